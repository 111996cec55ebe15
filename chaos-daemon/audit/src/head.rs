//! Where a chain ends.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::chain::{Hash, NotAHash};

/// The last line of a chain: whoever knows it can tell whether the chain has lost its end, or is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Head {
    /// Its number, which is how many lines there have ever been.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
}

impl Head {
    /// That of a chain without a line.
    pub const NONE: Self = Self { seq: 0, hash: Hash::NONE };
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

impl FromStr for Head {
    type Err = NotAHash;

    /// `SEQ:HASH`, as it is shown.
    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let (seq, hash) = text.split_once(':').unwrap_or(("", text));
        let hash: Hash = hash.parse()?;
        // Of what is wrong with the number the same is said.
        let seq = seq.parse().or_else(|_| format!("{seq}:").parse::<Hash>().map(|_| 0))?;
        Ok(Self { seq, hash })
    }
}
