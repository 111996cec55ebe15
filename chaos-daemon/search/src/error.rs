//! What can be wrong with what a search is made of, or told.

use thiserror::Error;

/// A search cannot be made of this.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("a search cannot be made: {subject} {is}; it must be {must}")]
pub struct Invalid {
    subject: String,
    is: String,
    must: String,
}

impl Invalid {
    pub(crate) fn new(subject: &str, is: String, must: &str) -> Invalid {
        Invalid { subject: subject.to_owned(), is, must: must.to_owned() }
    }
}

/// An outcome was told that nobody has asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("an outcome cannot be taken: {0}; tell the outcome of the candidate that was asked for last, once")]
pub struct Unexpected(pub(crate) &'static str);
