//! Credentials that probes may show: they are read here, and handed to the prober in a file without a name, with the origins that the
//! policy has for them. It may open none, and the server, with which callers speak, never has them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::child::CHILD_FD;
use crate::host::secret::{Entrusted, roots};
use crate::spec::origin::Origin;

/// Adds what is in the files at these paths to the descriptors that the prober is to have; returns the arguments by which it finds it.
/// What cannot be read is said there, to whoever asks by it.
pub(super) fn hand_over(
    credentials: &BTreeMap<String, BTreeSet<Origin>>,
    fds: &mut Vec<OwnedFd>,
) -> io::Result<Vec<String>> {
    if credentials.is_empty() {
        return Ok(Vec::new());
    }
    let entrusted = |(path, origins): (&String, &BTreeSet<Origin>)| {
        (path.clone(), Entrusted { origins: origins.clone(), text: read(path) })
    };
    let entrusted: BTreeMap<_, _> = credentials.iter().map(entrusted).collect();
    let mut file = File::from(memfd_create(c"credentials", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&serde_json::to_vec(&entrusted)?)?;
    file.seek(SeekFrom::Start(0))?;
    let words = vec!["--credentials-fd".to_owned(), (CHILD_FD as usize + fds.len()).to_string()];
    fds.push(file.into());
    Ok(words)
}

fn read(path: &str) -> Result<String, String> {
    let read = roots(Path::new(path), true)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_bytes| format!("{path} is not text")));
    if let Err(problem) = &read {
        tracing::warn!(path, %problem, "no probe can show a credential that the policy names");
    }
    read
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_prober_gets_what_there_is_to_whom_it_may_be_shown_and_why_there_is_nothing() {
        let mut fds = vec![File::open("/dev/null").unwrap().into()];
        assert!(hand_over(&BTreeMap::new(), &mut fds).unwrap().is_empty() && fds.len() == 1);
        let origin = Origin::of("https://p.test").unwrap();
        let credentials = [("/run/no-such-token".to_owned(), [origin.clone()].into())].into();
        assert_eq!(hand_over(&credentials, &mut fds).unwrap(), ["--credentials-fd", "4"]);
        let mut text = String::new();
        File::from(fds.pop().unwrap()).read_to_string(&mut text).unwrap();
        let given: BTreeMap<String, Entrusted> = serde_json::from_str(&text).unwrap();
        let Entrusted { origins, text } = &given["/run/no-such-token"];
        assert!(origins.contains(&origin) && text.as_ref().unwrap_err().contains("no-such-token"));
    }
}
