//! Experiments in files: read, with the environment and the files of whoever runs `chaosctl`, and checked.

use std::path::Path;

use serde_json::Value;

use crate::experiment::Experiment;
use crate::experiment::source::Source;
use crate::experiment::variables::{Outside, inline};
use crate::spec::SpecError;

/// This process's environment, and the files that it can read.
pub(super) struct Here;

impl Outside for Here {
    fn environment(&self, name: &str) -> Result<String, String> {
        std::env::var(name).map_err(|error| match error {
            std::env::VarError::NotPresent => {
                "not set in the environment: set it, or give a default".to_owned()
            }
            std::env::VarError::NotUnicode(_) => "its value is not text".to_owned(),
        })
    }

    fn file(&self, path: &str) -> Result<String, String> {
        std::fs::read_to_string(path).map_err(|error| format!("reading {path}: {error}"))
    }
}

/// What is in `file`, or comes on stdin if that is `-`.
///
/// # Errors
/// Names the file that cannot be read.
pub(super) fn text(file: &Path) -> Result<String, SpecError> {
    let text = match file.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(file),
    };
    text.map_err(|error| SpecError::new(file.display().to_string(), format!("cannot be read: {error}")))
}

/// The document in `file`, or on stdin if that is `-`, with all its values in it, and what it means.
///
/// # Errors
/// Names file, line, column, path and problem of what cannot be read or is not supported.
pub(super) fn read(file: &Path) -> Result<(Value, Experiment), SpecError> {
    let name = file.display().to_string();
    let text = text(file)?;
    let source = Source::read(&text).map_err(|error| SpecError::new(&name, error.problem))?;
    let mut document = source.document().clone();
    let understood = inline(&mut document, &Here).and_then(|()| Experiment::parse(&document, &Here));
    let experiment = understood.map_err(|error| source.place(&name, error))?;
    Ok((Value::Object(document), experiment))
}
