//! How soon everything was normal: the figures of every kernel, kept in one file.

use serde_json::{Map, Value};

use crate::error::Error;
use crate::run;
use crate::verdict::Verdict;

/// Puts what was measured into `target/kills.json`, by kernel and name, beside what is there of other kernels.
pub(crate) fn keep(verdicts: &[Verdict]) -> Result<(), Error> {
    let path = run::root().join("target/kills.json");
    let mut kept: Map<String, Value> = match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|source| Error::Json { what: path.display().to_string(), source })?,
        Err(_) => Map::new(),
    };
    for verdict in verdicts {
        let kernel = kept.entry(&verdict.kernel).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(kernel) = kernel {
            kernel.extend(verdict.figures.clone());
        }
    }
    let text = format!("{:#}\n", Value::Object(kept));
    std::fs::write(&path, text).map_err(Error::file("write", &path))
}
