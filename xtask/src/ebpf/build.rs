//! Compiles the programs. The same bytes come out wherever the checkout, the registry and the toolchain lie.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::toolchain::{Toolchain, cargo, forget_cargo, library};
use super::{EbpfError, read};

/// Flags of the compiler that decide what comes out. The architecture only names register layouts for probes, which
/// there are none of: the object serves every little-endian machine.
pub(super) const FLAGS: [&str; 2] = ["-Clinker=bpf-linker", "--cfg=bpf_target_arch=\"x86_64\""];

const TARGET: &str = "bpfel-unknown-none";

/// Builds the object in `target` and returns it, stripped.
pub(super) fn object(root: &Path, toolchain: &Toolchain, target: &Path) -> Result<Vec<u8>, EbpfError> {
    let mut command = Command::new(cargo(&toolchain.sysroot));
    forget_cargo(&mut command);
    command
        .current_dir(root)
        .args(["build", "--quiet", "--locked", "--profile", "bpf", "--package", "chaos-ebpf"])
        .args(["--bin", "chaos", "--features", "ebpf", "--target", TARGET, "-Zbuild-std=core"])
        .arg("--target-dir")
        .arg(target)
        .env("RUSTC", toolchain.sysroot.join("bin/rustc"))
        // Lets a stable compiler build the standard library too.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags(root, toolchain).join("\x1f"))
        .env("PATH", path_with(&toolchain.linker));
    run(&mut command)?;
    let built = target.join(TARGET).join("bpf/chaos");
    let stripped = built.with_extension("stripped.o");
    run(Command::new(&toolchain.strip).arg("-g").arg("-o").arg(&stripped).arg(&built))?;
    read(&stripped)
}

/// The flags, with every path of this machine replaced by one that is the same everywhere.
fn flags(root: &Path, toolchain: &Toolchain) -> Vec<String> {
    let mut flags = FLAGS.map(str::to_owned).to_vec();
    let mut remap = |from: &Path, to: &str| {
        for from in [Some(from.to_owned()), from.canonicalize().ok()].into_iter().flatten() {
            flags.push(format!("--remap-path-prefix={}={to}", from.display()));
        }
    };
    remap(root, "/chaos-daemon");
    remap(&library(&toolchain.sysroot), "/library");
    // One directory per registry, named after its address.
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let registries = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok());
    for registry in registries.into_iter().flatten().flatten() {
        remap(&registry.path(), "/registry");
    }
    flags
}

fn path_with(linker: &Path) -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let first = linker.parent().map(Path::to_owned).into_iter();
    env::join_paths(first.chain(env::split_paths(&path))).unwrap_or(path)
}

fn run(command: &mut Command) -> Result<(), EbpfError> {
    let program = PathBuf::from(command.get_program());
    let status = command.status().map_err(|source| EbpfError::Spawn { program: program.clone(), source })?;
    if status.success() { Ok(()) } else { Err(EbpfError::Failed { program, complaint: status.to_string() }) }
}
