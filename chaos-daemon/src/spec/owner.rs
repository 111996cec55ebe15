//! Whose something is, and names with whose they are: one parser for `1001/slow` and `vsock:3/slow`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::units::{FaultName, SpecError};

/// How the far side of a vsock begins where it qualifies a name.
const VSOCK: &str = "vsock:";

/// A user of this host, or the far side of a vsock: whatever process of theirs has called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Owner {
    /// By user id.
    User(u32),
    /// By vsock context id.
    Context(u32),
}

impl Owner {
    /// Root of this host. What was written down before owners were is root's.
    pub const ROOT: Self = Self::User(0);

    /// Whether it is root of this host.
    pub fn is_root(self) -> bool {
        self == Self::ROOT
    }

    /// How a name of theirs begins for others: `1001`, or `vsock:3`.
    pub fn qualifier(self) -> String {
        match self {
            Self::User(uid) => uid.to_string(),
            Self::Context(cid) => format!("{VSOCK}{cid}"),
        }
    }

    /// The name of something of theirs as `viewer` reads and writes it: plain if it is the viewer's own.
    pub fn name_for(self, viewer: Self, name: &str) -> String {
        if self == viewer { name.to_owned() } else { format!("{}/{name}", self.qualifier()) }
    }

    /// Whose it is, if that is worth a word for `viewer`.
    pub fn told_to(self, viewer: Self) -> Option<String> {
        (self != viewer).then(|| self.to_string())
    }

    /// What its `Display` has written.
    pub fn from_words(words: &str) -> Option<Self> {
        let owner = match words.strip_prefix("uid ") {
            Some(uid) => Self::User(uid.parse().ok()?),
            None => Self::Context(words.strip_prefix("vsock context ")?.parse().ok()?),
        };
        (owner.to_string() == words).then_some(owner)
    }

    /// What [`Owner::qualifier`] has written, and nothing else.
    fn parse(text: &str) -> Option<Self> {
        let owner = match text.strip_prefix(VSOCK) {
            Some(cid) => Self::Context(cid.parse().ok()?),
            None => Self::User(text.parse().ok()?),
        };
        (owner.qualifier() == text).then_some(owner)
    }
}

impl fmt::Display for Owner {
    /// `uid 1000`, or `vsock context 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "uid {uid}"),
            Self::Context(cid) => write!(f, "vsock context {cid}"),
        }
    }
}

impl TryFrom<String> for Owner {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        Self::parse(&text).ok_or_else(|| {
            SpecError::new("owner", format!("{text:?} is none: a user id, or {VSOCK} and a context id"))
        })
    }
}

impl From<Owner> for String {
    fn from(owner: Owner) -> Self {
        owner.qualifier()
    }
}

/// A name as it is written: whose it is, if that is said before a slash, and the name. What stands before the first slash and is
/// nobody's qualifier belongs to the name.
pub fn split(text: &str) -> (Option<Owner>, &str) {
    let qualified = text.split_once('/').and_then(|(owner, name)| Some((Owner::parse(owner)?, name)));
    qualified.map_or((None, text), |(owner, name)| (Some(owner), name))
}

/// Whose things may be meant by a name that may be any text, and how they are called there. The caller's own comes first, whatever
/// it looks like, and then what it says.
pub fn meanings(text: &str, caller: Owner) -> impl Iterator<Item = (Owner, &str)> {
    let (owner, name) = split(text);
    std::iter::once((caller, text)).chain(owner.map(|owner| (owner, name)))
}

/// The name of a fault as a caller writes it: `slow` is the caller's own, `1001/slow` another user's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GivenName {
    /// Whose it is said to be.
    pub owner: Option<Owner>,
    /// The name.
    pub name: FaultName,
}

impl GivenName {
    /// Understands a name, with or without whose it is.
    ///
    /// # Errors
    /// When the name is none.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let (owner, name) = split(text);
        Ok(Self { owner, name: FaultName::new(name)? })
    }
}

impl fmt::Display for GivenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            Some(owner) => write!(f, "{}/{}", owner.qualifier(), self.name),
            None => self.name.fmt(f),
        }
    }
}

impl TryFrom<String> for GivenName {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        Self::parse(&text)
    }
}

impl From<GivenName> for String {
    fn from(name: GivenName) -> Self {
        name.to_string()
    }
}

/// The name of a fault among those of everybody. As text it is as root writes it: root's own are plain, as all were before names had
/// owners.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QualifiedName {
    /// Whose it is.
    pub owner: Owner,
    /// The name, one among the owner's.
    pub name: FaultName,
}

impl QualifiedName {
    /// This name of this owner's.
    pub fn new(owner: Owner, name: FaultName) -> Self {
        Self { owner, name }
    }

    /// Understands a name as root writes it.
    ///
    /// # Errors
    /// When the name is none.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let GivenName { owner, name } = GivenName::parse(text)?;
        Ok(Self { owner: owner.unwrap_or(Owner::ROOT), name })
    }

    /// As `viewer` reads and writes it.
    pub fn shown_to(&self, viewer: impl Into<Owner>) -> String {
        self.owner.name_for(viewer.into(), self.name.as_str())
    }

    /// As its owner writes it, with nothing left to be guessed.
    pub fn given(&self) -> GivenName {
        GivenName { owner: Some(self.owner), name: self.name.clone() }
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown_to(Owner::ROOT))
    }
}

impl TryFrom<String> for QualifiedName {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        Self::parse(&text)
    }
}

impl From<QualifiedName> for String {
    fn from(name: QualifiedName) -> Self {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = Owner::User(1001);

    #[test]
    fn a_name_has_an_owner_only_if_what_stands_before_the_slash_is_one() {
        for (text, owner, name) in [
            ("slow", None, "slow"),
            ("1001/slow", Some(ONE), "slow"),
            ("0/slow", Some(Owner::ROOT), "slow"),
            ("vsock:3/slow", Some(Owner::Context(3)), "slow"),
            ("24/7 load", Some(Owner::User(24)), "7 load"),
            ("+1/slow", None, "+1/slow"),
            ("01001/slow", None, "01001/slow"),
            ("vsock:/slow", None, "vsock:/slow"),
            ("4294967296/slow", None, "4294967296/slow"),
            ("and/or", None, "and/or"),
            ("/slow", None, "/slow"),
        ] {
            assert_eq!(split(text), (owner, name), "{text}");
        }
    }

    #[test]
    fn an_owner_is_read_from_the_words_in_which_the_history_has_it() {
        for owner in [Owner::ROOT, ONE, Owner::Context(3)] {
            assert_eq!(Owner::from_words(&owner.to_string()), Some(owner));
        }
        for bad in ["", "1001", "uid 01", "uid x", "vsock context", "vsock:3"] {
            assert_eq!(Owner::from_words(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_name_of_a_fault_is_read_as_it_was_written_and_a_plain_one_is_roots() {
        for text in ["slow", "1001/slow", "vsock:3/slow"] {
            let name: QualifiedName = serde_json::from_value(text.into()).unwrap();
            assert_eq!(serde_json::to_value(&name).unwrap(), text);
            assert_eq!(GivenName::parse(text).unwrap().to_string(), text);
            assert_eq!(QualifiedName::parse(text).unwrap(), name);
        }
        for bad in ["", "/", "1001/", "1001/a/b", "1001/-x", "a/b", "1001/1002/slow"] {
            assert!(GivenName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn whoever_reads_a_name_can_write_it() {
        let owners = [Owner::ROOT, ONE, Owner::Context(1001)];
        for viewer in owners {
            for owner in owners {
                let name = QualifiedName::new(owner, FaultName::new("slow").unwrap());
                let given = GivenName::parse(&name.shown_to(viewer)).unwrap();
                assert_eq!(QualifiedName::new(given.owner.unwrap_or(viewer), given.name), name);
            }
        }
    }
}
