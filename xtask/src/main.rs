//! `cargo xtask`: the build vocabulary of chaos-daemon. One subcommand per line; each lives in its own module.

mod artifacts;
mod ebpf;
mod error;
mod run;
mod soak;
mod summary;
mod test;
mod tidy;
mod tools;
mod verdict;
mod vm;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "The build vocabulary of chaos-daemon")]
enum Command {
    /// Build the eBPF object that is committed, or check that it is fresh
    #[command(subcommand)]
    Ebpf(ebpf::Task),
    /// Inject and kill at random on real namespaces, for minutes or hours
    Soak(soak::Options),
    /// Run every test: unit, host, both kernels under QEMU, scripts
    Test(test::Options),
    /// Check the rules of the tree that the compiler does not
    Tidy(tidy::Options),
    /// Boot the test image under QEMU and print one verdict per test
    Vm(vm::Options),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Ebpf(task) => ebpf::main(&task),
        Command::Soak(options) => soak::main(&options),
        Command::Test(options) => test::main(&options),
        Command::Tidy(options) => tidy::main(&options),
        Command::Vm(options) => vm::main(&options),
    };
    result.unwrap_or_else(|error| error::report(&error))
}
