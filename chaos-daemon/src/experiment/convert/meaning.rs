//! What a command line comes to.

/// What a command line does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A fault.
    Fault {
        /// The words of `chaosctl inject`, but for its name and how long it lasts.
        words: Vec<String>,
        /// How long it lasts, if the command says so.
        lasts: Option<String>,
        /// By what the command is known that takes it back.
        key: String,
        /// What is not quite as it was.
        note: Option<String>,
    },
    /// It takes back what was done under this key.
    TakesBack(String),
}

impl Meaning {
    pub(super) fn fault(words: &[&str], key: impl Into<String>) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self::Fault { words, lasts: None, key: key.into(), note: None }
    }

    /// The same, of which something has to be known.
    pub(super) fn noting(self, text: &str) -> Self {
        match self {
            Self::Fault { words, lasts, key, .. } => {
                Self::Fault { words, lasts, key, note: Some(text.to_owned()) }
            }
            other => other,
        }
    }
}
