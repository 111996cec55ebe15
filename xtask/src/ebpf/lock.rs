//! The lock file beside the object: what it was made from, with what, and what came out.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::build::FLAGS;
use super::toolchain::Versions;
use super::{EbpfError, file, read, write};

/// What is compiled into the object.
const SOURCES: [&str; 2] = ["chaos-common/src", "chaos-ebpf/src/bin"];
const MANIFESTS: [&str; 2] = ["chaos-common/Cargo.toml", "chaos-ebpf/Cargo.toml"];

/// The content of `chaos.lock.toml`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lock {
    /// Over sources, manifests, flags, profile and the versions of what they use.
    pub(super) source_sha256: String,
    /// Over the object.
    pub(super) object_sha256: String,
    /// Flags of the compiler, for the reader; the source hash covers them.
    flags: Vec<String>,
    /// What it was built with.
    pub(super) toolchain: Versions,
}

impl Lock {
    pub(super) fn new(root: &Path, object: &[u8], toolchain: Versions) -> Result<Self, EbpfError> {
        Ok(Self {
            source_sha256: source_hash(root)?,
            object_sha256: hash(object),
            flags: FLAGS.map(str::to_owned).to_vec(),
            toolchain,
        })
    }

    pub(super) fn read(root: &Path) -> Result<Self, EbpfError> {
        parse(&path(root))
    }

    pub(super) fn write(&self, root: &Path) -> Result<(), EbpfError> {
        let body = toml::to_string(self).map_err(EbpfError::Lock)?;
        write(&path(root), format!("# Written by `cargo xtask ebpf build`.\n{body}").as_bytes())
    }
}

fn path(root: &Path) -> PathBuf {
    root.join("chaos-ebpf/prebuilt/chaos.lock.toml")
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, EbpfError> {
    let text = fs::read_to_string(path).map_err(file("reading", path))?;
    toml::from_str(&text)
        .map_err(|source| EbpfError::Toml { path: path.to_owned(), source: Box::new(source) })
}

/// SHA-256 in hexadecimal.
pub(super) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// The hash over everything in the repository that decides what the object is.
pub(super) fn source_hash(root: &Path) -> Result<String, EbpfError> {
    let mut files = MANIFESTS.map(PathBuf::from).to_vec();
    for source in SOURCES {
        list(root, Path::new(source), &mut files)?;
    }
    files.sort();
    let mut all = Sha256::new();
    let mut add = |name: &str, content: &[u8]| {
        // Lengths, so that no two lists of parts give the same bytes.
        for part in [name.as_bytes(), content] {
            all.update((part.len() as u64).to_le_bytes());
            all.update(part);
        }
    };
    for path in &files {
        add(&path.to_string_lossy(), &read(&root.join(path))?);
    }
    add("flags", FLAGS.join("\n").as_bytes());
    add("profile", profile(root)?.as_bytes());
    add("dependencies", dependencies(root)?.join("\n").as_bytes());
    Ok(hash(&all.finalize()))
}

fn list(root: &Path, below: &Path, files: &mut Vec<PathBuf>) -> Result<(), EbpfError> {
    let directory = root.join(below);
    for entry in fs::read_dir(&directory).map_err(file("listing", &directory))? {
        let entry = entry.map_err(file("listing", &directory))?;
        let path = below.join(entry.file_name());
        if entry.path().is_dir() {
            list(root, &path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// What the object is built by: its own profile, which leaves nothing that decides to the one that it inherits from.
fn profile(root: &Path) -> Result<String, EbpfError> {
    let manifest: toml::Table = parse(&root.join("Cargo.toml"))?;
    let profile = |name: &str| manifest.get("profile").and_then(|profiles| profiles.get(name)).cloned();
    Ok(format!("{:?}", profile("bpf")))
}

#[derive(Deserialize)]
struct CargoLock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Name, version and checksum of the crates that are compiled into the object.
fn dependencies(root: &Path) -> Result<Vec<String>, EbpfError> {
    let lock: CargoLock = parse(&root.join("Cargo.lock"))?;
    let used = lock.package.into_iter().filter(|package| package.name.starts_with("aya-ebpf"));
    Ok(used
        .map(|Package { name, version, checksum }| {
            format!("{name} {version} {}", checksum.unwrap_or_default())
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkout() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in [
            ("chaos-common/Cargo.toml", "[package]"),
            ("chaos-common/src/lib.rs", "// contract"),
            ("chaos-ebpf/Cargo.toml", "[package]"),
            ("chaos-ebpf/src/lib.rs", "// carrier"),
            ("chaos-ebpf/src/bin/chaos/main.rs", "// programs"),
            ("Cargo.toml", "[profile.bpf]\nopt-level = 3\n[profile.dev]\ndebug = 1\n"),
            ("Cargo.lock", "[[package]]\nname = \"aya-ebpf\"\nversion = \"0.2.1\"\nchecksum = \"ab\"\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn every_part_of_the_source_changes_the_hash_and_nothing_else_does() {
        let root = checkout();
        let before = source_hash(root.path()).unwrap();
        for (path, content, changes) in [
            ("chaos-ebpf/src/lib.rs", "// another carrier", false),
            ("Cargo.toml", "[profile.bpf]\nopt-level = 3\n[profile.dev]\ndebug = 2\n", false),
            ("chaos-common/src/lib.rs", "// another contract", true),
            ("chaos-ebpf/src/bin/chaos/maps.rs", "", true),
            ("chaos-ebpf/Cargo.toml", "[lib]", true),
            ("Cargo.toml", "[profile.bpf]\nopt-level = 2\n", true),
            ("Cargo.lock", "[[package]]\nname = \"aya-ebpf\"\nversion = \"0.2.2\"\n", true),
        ] {
            let path_of_file = root.path().join(path);
            let kept = fs::read(&path_of_file).ok();
            fs::write(&path_of_file, content).unwrap();
            assert_eq!(source_hash(root.path()).unwrap() != before, changes, "{path}");
            match kept {
                Some(kept) => fs::write(path_of_file, kept).unwrap(),
                None => fs::remove_file(path_of_file).unwrap(),
            }
        }
        assert_eq!(source_hash(root.path()).unwrap(), before);
    }

    #[test]
    fn a_lock_file_is_read_as_it_was_written() {
        let root = checkout();
        fs::create_dir_all(root.path().join("chaos-ebpf/prebuilt")).unwrap();
        let versions =
            Versions { rustc: "1".into(), llvm: "2".into(), bpf_linker: "3".into(), strip: "4".into() };
        let lock = Lock::new(root.path(), b"object", versions).unwrap();
        lock.write(root.path()).unwrap();
        assert_eq!(Lock::read(root.path()).unwrap(), lock);
    }

    #[test]
    fn hashes_are_those_of_everybody_else() {
        assert_eq!(hash(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
