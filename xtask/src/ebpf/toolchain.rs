//! Finds a Rust toolchain that can build for BPF, the linker and the strip tool, and says which versions they are.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::EbpfError;

/// What decides, beside the source, which bytes come out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Versions {
    pub(super) rustc: String,
    pub(super) llvm: String,
    pub(super) bpf_linker: String,
    pub(super) strip: String,
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rustc, llvm, bpf_linker, strip } = self;
        write!(f, "{rustc} with LLVM {llvm}, {bpf_linker}, {strip}")
    }
}

/// The tools.
pub(super) struct Toolchain {
    /// Holds `bin/rustc`, `bin/cargo` and the source of the standard library.
    pub(super) sysroot: PathBuf,
    pub(super) linker: PathBuf,
    pub(super) strip: PathBuf,
    pub(super) versions: Versions,
}

impl Toolchain {
    /// Finds the toolchain with these versions or, without such, any that can build.
    pub(super) fn find(pinned: Option<&Versions>) -> Result<Self, EbpfError> {
        let linker = in_path("bpf-linker").ok_or(EbpfError::NoTool {
            tool: "bpf-linker",
            remedy: "install it with `cargo install bpf-linker`",
        })?;
        let bpf_linker = says(&linker, &["--version"])?.trim().to_owned();
        let seen = sysroots();
        let mut usable = Vec::new();
        for sysroot in seen.iter().filter(|sysroot| library(sysroot).is_dir() && cargo(sysroot).is_file()) {
            let about = says(&sysroot.join("bin/rustc"), &["--version", "--verbose"])?;
            let rustc = about.lines().next().unwrap_or_default().to_owned();
            let llvm = field(&about, "LLVM version: ").to_owned();
            let strip = strip_tool(&llvm).ok_or(EbpfError::NoTool {
                tool: "llvm-strip",
                remedy: "install LLVM (Debian: the package llvm)",
            })?;
            let versions = Versions {
                rustc,
                llvm,
                bpf_linker: bpf_linker.clone(),
                strip: format!("llvm-strip {}", field(&says(&strip, &["--version"])?, "LLVM version ")),
            };
            usable.push(Self { sysroot: sysroot.clone(), linker: linker.clone(), strip, versions });
        }
        let exact = usable.iter().position(|found| Some(&found.versions) == pinned).unwrap_or(0);
        if usable.is_empty() {
            let seen: Vec<_> = seen.iter().map(|path| path.display().to_string()).collect();
            return Err(EbpfError::NoToolchain { seen: seen.join(", ") });
        }
        Ok(usable.swap_remove(exact))
    }
}

/// Where a toolchain keeps the source of the standard library.
pub(super) fn library(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust/library")
}

/// The cargo of a toolchain.
pub(super) fn cargo(sysroot: &Path) -> PathBuf {
    sysroot.join("bin/cargo")
}

/// The homes of all compilers: those in PATH, the distribution's, and rustup's nightly.
fn sysroots() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut ask = |program: &Path, arguments: &[&str]| {
        if let Ok(answer) = says(program, arguments) {
            let sysroot = PathBuf::from(answer.trim());
            if !found.contains(&sysroot) {
                found.push(sysroot);
            }
        }
    };
    let in_path = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
    for directory in in_path.iter().map(PathBuf::as_path).chain([Path::new("/usr/bin")]) {
        ask(&directory.join("rustc"), &["--print", "sysroot"]);
        ask(&directory.join("rustup"), &["run", "nightly", "rustc", "--print", "sysroot"]);
    }
    found
}

/// The strip tool of the LLVM that made the code, or any.
fn strip_tool(llvm: &str) -> Option<PathBuf> {
    let major = llvm.split('.').next().unwrap_or_default();
    let beside = PathBuf::from(format!("/usr/lib/llvm-{major}/bin/llvm-strip"));
    if beside.is_file() {
        return Some(beside);
    }
    in_path(&format!("llvm-strip-{major}")).or_else(|| in_path("llvm-strip"))
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// What a program prints.
fn says(program: &Path, arguments: &[&str]) -> Result<String, EbpfError> {
    let mut command = Command::new(program);
    command.args(arguments);
    forget_cargo(&mut command);
    let output =
        command.output().map_err(|source| EbpfError::Spawn { program: program.to_owned(), source })?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(EbpfError::Failed { program: program.to_owned(), complaint });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The rest of the first line that has this in it.
fn field<'a>(text: &'a str, key: &str) -> &'a str {
    text.lines().find_map(|line| line.split_once(key)).map_or("", |(_, value)| value.trim())
}

/// Takes from a command's environment what the surrounding `cargo run` and rustup put there, and what would change the
/// code: another compiler is to run in its own right.
pub(super) fn forget_cargo(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let kept = ["CARGO_HOME", "RUSTUP_HOME"].contains(&name)
            || ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR"].iter().any(|prefix| name.starts_with(prefix));
        let theirs = ["CARGO", "RUSTC", "RUSTFLAGS", "RUSTUP_", "RUSTDOC", "LD_LIBRARY_PATH"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if theirs && !kept {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn versions_are_found_in_what_the_tools_print() {
        let rustc = "rustc 1.96.0 (ac68faa20 2026-05-25)\nrelease: 1.96.0\nLLVM version: 22.1.8\n";
        assert_eq!(field(rustc, "LLVM version: "), "22.1.8");
        let strip = "llvm-strip, compatible with GNU strip\nDebian LLVM version 22.1.8\n  Optimized build.\n";
        assert_eq!(field(strip, "LLVM version "), "22.1.8");
        assert_eq!(field("nothing", "LLVM version "), "");
    }
}
