//! Everything that is wrong with a document, not only the first of it.

use std::cell::RefCell;

use serde::Serialize;

use super::source::{Position, Source};
use crate::spec::{Mistake, SpecError};

/// The most problems that are kept of one document: who has more has another document in hand.
const MOST: usize = 256;
/// What is said where a value could not be read, which is told of where it is declared.
pub(super) const UNREAD: &str = "stands for what could not be read";
/// The words with which a problem begins to say what would be right.
const ADVICE: [&str; 28] = [
    "give",
    "leave",
    "put",
    "write",
    "set",
    "declare",
    "quote",
    "use",
    "name ",
    "say",
    "make",
    "repeat",
    "rename",
    "the fields are",
    "the options are",
    "add",
    "see",
    "ask",
    "begin",
    "first ",
    "end ",
    "replace",
    "only ",
    "run ",
    "do ",
    "each ",
    "have ",
    "refer ",
];

/// What was found so far.
#[derive(Debug)]
pub struct Problems {
    found: RefCell<Vec<SpecError>>,
    most: usize,
}

impl Problems {
    /// All that there are, or with `only_first` the first of them.
    pub fn new(only_first: bool) -> Self {
        Self { found: RefCell::default(), most: if only_first { 1 } else { MOST } }
    }

    /// Notes a problem, once.
    pub fn note(&self, error: SpecError) {
        let mut found = self.found.borrow_mut();
        if error.problem != UNREAD && found.len() < self.most && !found.contains(&error) {
            found.push(error);
        }
    }

    /// Whether no other is wanted, so that nothing more needs to be looked at.
    pub fn is_full(&self) -> bool {
        self.found.borrow().len() >= self.most
    }

    /// The value, if there is one; what is wrong instead is noted.
    pub fn keep<T>(&self, result: Result<T, SpecError>) -> Option<T> {
        result.map_err(|error| self.note(error)).ok()
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// All of them, in the order in which they were found.
    pub fn into_vec(self) -> Vec<SpecError> {
        self.found.into_inner()
    }
}

/// A problem as programs read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Line, counted from 1, where that is known.
    pub line: Option<u64>,
    /// Column in characters, likewise.
    pub column: Option<u64>,
    /// Path of the value in the document, such as `method[0].provider.url`; empty for all of it.
    pub path: String,
    /// Which kind of mistake it is.
    pub code: Mistake,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub fix: String,
}

impl Problem {
    /// A problem of what stands in `source`.
    pub fn of(source: &Source, error: &SpecError) -> Self {
        Self::at(source.position(&error.field), error)
    }

    /// A problem of what stands at this place.
    pub fn at(place: Option<Position>, error: &SpecError) -> Self {
        let (message, fix) = split(&error.problem);
        let fix = if fix.is_empty() { usual_fix(error.code) } else { fix };
        Self {
            line: place.map(|place| place.line),
            column: place.map(|place| place.column),
            path: error.field.clone(),
            code: error.code,
            message: message.to_owned(),
            fix: fix.to_owned(),
        }
    }
}

/// What is wrong, and what would be right: a problem says both, after a colon or a semicolon.
fn split(problem: &str) -> (&str, &str) {
    let ends = problem.match_indices([':', ';']).filter_map(|(end, mark)| {
        let fix = problem[end + mark.len()..].strip_prefix(' ')?;
        ADVICE.iter().any(|word| fix.starts_with(word)).then_some((&problem[..end], fix))
    });
    ends.into_iter().next().unwrap_or((problem, ""))
}

/// What would be right where a problem does not say it.
fn usual_fix(code: Mistake) -> &'static str {
    match code {
        Mistake::Syntax => "write it as JSON or YAML has it",
        Mistake::Missing => "add it",
        Mistake::UnknownField => "leave it out, or begin its name with x-",
        Mistake::NotSupported => "leave it out",
        Mistake::Undeclared => "declare it in configuration",
        Mistake::Unset => "set it, or give a default",
        Mistake::Gap => "write what is to be done there",
        Mistake::Invalid | Mistake::WrongType | Mistake::SaysNothing => "give what chaosctl schema has there",
    }
}

#[cfg(test)]
#[path = "problems_tests.rs"]
mod tests;
