//! Files that hold secrets: who may have put them there, and who else may read them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::program;
use crate::spec::origin::Origin;

/// The most of a file that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// Rights of those who are neither owner nor group.
const OTHERS: u32 = 0o007;

/// What is in a file with a credential, or why that is not known, and to whom it may be shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entrusted {
    /// To whom.
    pub origins: BTreeSet<Origin>,
    /// What is in the file.
    pub text: Result<String, String>,
}

impl fmt::Debug for Entrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entrusted").field("origins", &self.origins).finish_non_exhaustive()
    }
}

/// Reads a file with the rights of who runs this.
///
/// # Errors
/// Says which cannot be read, and why.
pub fn own(path: &Path, _secret: bool) -> Result<Vec<u8>, String> {
    contents(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// Reads a file that nobody but root can have put there, without a link on the way; a secret only if others cannot read it either.
///
/// # Errors
/// Says which cannot be read, and why; or who can get at it.
pub fn roots(path: &Path, secret: bool) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let (place, file) = program::roots(path).map_err(|distrust| distrust.to_string())?;
    if place != path {
        return Err(format!("{shown} leads over a link, or a detour, to {}: give that", place.display()));
    }
    if !file.is_file() {
        return Err(format!("{shown} is no regular file"));
    }
    if secret && file.mode() & OTHERS != 0 {
        return Err(format!(
            "{shown} is no secret, for others may get at it: chmod o= and give a new credential"
        ));
    }
    own(path, secret)
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // OPENS: the policy; the command line of root; in `chaosctl` its user | root; in `chaosctl` its user | root's alone, with
    // every folder above, and no link on the way (`roots`)
    match File::open(path)?.take(LARGEST + 1).read_to_end(&mut text)? as u64 {
        0..=LARGEST => Ok(text),
        _ => Err(io::Error::other("it is larger than 1 MiB")),
    }
}
