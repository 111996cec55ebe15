//! Kubeconfigs that probes may use: they are read here, and handed to the prober in a file without a name. It may open none, and the server,
//! with which callers speak, never has them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::child::CHILD_FD;
use crate::host::kubeconfig::{Kubeconfig, roots};

/// Adds what is in the kubeconfigs at `paths` to the descriptors that the prober is to have; returns the arguments by which it finds it. What
/// cannot be read is said there, to whoever asks by it.
pub(super) fn hand_over(paths: &BTreeSet<String>, fds: &mut Vec<OwnedFd>) -> io::Result<Vec<String>> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let read: BTreeMap<_, _> = paths.iter().map(|path| (path, read(path))).collect();
    let mut file = File::from(memfd_create(c"kubeconfigs", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&serde_json::to_vec(&read)?)?;
    file.seek(SeekFrom::Start(0))?;
    let words = vec!["--kubeconfigs-fd".to_owned(), (CHILD_FD as usize + fds.len()).to_string()];
    fds.push(file.into());
    Ok(words)
}

fn read(path: &str) -> Result<Kubeconfig, String> {
    let read = Kubeconfig::read(Path::new(path), &roots);
    if let Err(problem) = &read {
        tracing::warn!(path, %problem, "no probe can use a kubeconfig that the policy names");
    }
    read
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_prober_gets_what_there_is_and_why_there_is_nothing() {
        let mut fds = vec![File::open("/dev/null").unwrap().into()];
        assert!(hand_over(&BTreeSet::new(), &mut fds).unwrap().is_empty() && fds.len() == 1);
        let paths = ["/run/no-such-kubeconfig".to_owned()].into();
        assert_eq!(hand_over(&paths, &mut fds).unwrap(), ["--kubeconfigs-fd", "4"]);
        let mut text = String::new();
        File::from(fds.pop().unwrap()).read_to_string(&mut text).unwrap();
        let read: BTreeMap<String, Result<Kubeconfig, String>> = serde_json::from_str(&text).unwrap();
        assert!(read["/run/no-such-kubeconfig"].as_ref().unwrap_err().contains("no-such-kubeconfig"));
    }
}
