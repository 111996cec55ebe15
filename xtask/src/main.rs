//! `cargo xtask`: the build vocabulary of chaos-daemon. One subcommand per line; each lives in its own module.

mod artifacts;
mod bench;
mod demo;
mod dist;
mod ebpf;
mod error;
mod kills;
mod kinds;
mod kubernetes;
mod points;
mod run;
mod said;
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
    /// Measure against the goals, beside iptables and nft; writes target/bench.json
    Bench(bench::Options),
    /// Cut off a peer in a namespace of our own and watch it; with --vm, delay one in a VM too
    Demo(demo::Options),
    /// Build the eBPF object that is committed, or check that it is fresh
    #[command(subcommand)]
    Ebpf(ebpf::Task),
    /// Build the release programs and a Debian package of them, in target/dist
    Dist,
    /// Print every kind of fault and what the tests have said of it on each kernel; writes target/kinds.md
    Kinds,
    /// End injector and holder at every event of every fault's life, on namespaces of our own
    Matrix(points::Options),
    /// Inject and kill at random on real namespaces, for minutes or hours
    Soak(soak::Options),
    /// Strike injector and holder at every system call that changes something, for every fault
    Sweep(points::Options),
    /// Run every test: unit, host, both kernels under QEMU, scripts
    Test(test::Options),
    /// Check the rules of the tree that the compiler does not
    Tidy(tidy::Options),
    /// Boot the test image under QEMU and print one verdict per test
    Vm(vm::Options),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Bench(options) => bench::main(&options),
        Command::Demo(options) => demo::main(&options),
        Command::Ebpf(task) => ebpf::main(&task),
        Command::Dist => dist::main(),
        Command::Kinds => kinds::main(),
        Command::Matrix(options) => points::main("matrix", &options),
        Command::Soak(options) => soak::main(&options),
        Command::Sweep(options) => points::main("sweep", &options),
        Command::Test(options) => test::main(&options),
        Command::Tidy(options) => tidy::main(&options),
        Command::Vm(options) => vm::main(&options),
    };
    result.unwrap_or_else(|error| error::report(&error))
}
