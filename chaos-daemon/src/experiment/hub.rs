//! The catalogue of experiments that are ready to be used: those built in, and those of directories. Nothing is fetched, and
//! nothing is written.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::source::Source;
use crate::spec::SpecError;

/// The name of the hub that is built in.
pub const BUILT_IN: &str = "built-in";

/// What is built in, by name.
const DOCUMENTS: &[(&str, &str)] = &[
    ("dependency-partition", include_str!("../../experiments/dependency-partition.yaml")),
    ("pool-exhaustion", include_str!("../../experiments/pool-exhaustion.yaml")),
    ("process-death", include_str!("../../experiments/process-death.yaml")),
    ("retry-storm", include_str!("../../experiments/retry-storm.yaml")),
    ("slow-dependency", include_str!("../../experiments/slow-dependency.yaml")),
];

/// How files end that are documents.
const ENDINGS: &[&str] = &["yaml", "yml", "json"];

/// An experiment of a hub.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Its name: that of its file, without the ending.
    pub name: String,
    /// The hub that it is from: [`BUILT_IN`], or a directory.
    pub hub: String,
    /// The name of its file.
    pub file: String,
    /// What it is about.
    pub title: String,
    /// What is expected to hold.
    pub description: String,
    /// Its tags.
    pub categories: Vec<String>,
    /// Types of the faults that it injects, as it writes them.
    pub faults: Vec<String>,
    /// What it can be told, by `configuration`.
    pub parameters: Vec<Parameter>,
    /// The document itself.
    #[serde(skip)]
    pub text: String,
}

/// A value of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// The variable of the environment that it is read from; of what is written in the document itself, none.
    pub environment: Option<String>,
    /// What it is when nobody says.
    pub default: Option<Value>,
}

impl Entry {
    fn read(hub: &str, file: &str, text: String) -> Result<Self, SpecError> {
        let place = if hub == BUILT_IN { file.to_owned() } else { format!("{hub}/{file}") };
        let source = Source::read(&text).map_err(|error| SpecError::new(place, error.problem))?;
        let document = source.document();
        let word = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let list = |field: &str| document.get(field).and_then(Value::as_array).into_iter().flatten();
        Ok(Self {
            name: file.rsplit_once('.').map_or(file, |(name, _)| name).to_owned(),
            hub: hub.to_owned(),
            file: file.to_owned(),
            title: word("title"),
            description: word("description"),
            categories: list("tags").filter_map(Value::as_str).map(str::to_owned).collect(),
            faults: list("method").filter_map(injected).map(str::to_owned).collect(),
            parameters: parameters(document),
            text,
        })
    }

    /// Whether `word` is found in what it is about, in whatever case.
    pub fn has(&self, word: &str) -> bool {
        let mut texts = vec![&self.name, &self.title, &self.description];
        texts.extend(self.categories.iter().chain(&self.faults));
        texts.iter().any(|text| holds(text, word))
    }

    /// Whether it injects a fault of this type.
    pub fn injects(&self, fault_type: &str) -> bool {
        self.faults.iter().any(|fault| fault.replace('-', "_") == fault_type)
    }
}

/// Whether `word` is in `text`, in whatever case.
pub fn holds(text: &str, word: &str) -> bool {
    text.to_lowercase().contains(&word.to_lowercase())
}

/// The type of fault that an activity injects.
fn injected(activity: &Value) -> Option<&str> {
    match &activity["provider"]["arguments"] {
        Value::Array(words) if words.first()? == "inject" => words.get(1)?.as_str(),
        arguments => arguments.get("inject")?.as_str(),
    }
}

fn parameters(document: &Map<String, Value>) -> Vec<Parameter> {
    let configuration = document.get("configuration").and_then(Value::as_object).into_iter().flatten();
    let read = |(name, value): (&String, &Value)| {
        let environment =
            (value["type"] == "env").then(|| value["key"].as_str().map(str::to_owned)).flatten();
        let default = if environment.is_some() { value.get("default") } else { Some(value) };
        Parameter { name: name.clone(), environment, default: default.cloned() }
    };
    configuration.map(read).collect()
}

/// Every experiment of the directories, in their order, and then those built in.
///
/// # Errors
/// Names a directory, or a document in one, that cannot be read.
pub fn entries<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Result<Vec<Entry>, SpecError> {
    let mut entries = Vec::new();
    for directory in directories {
        entries.extend(of_directory(directory)?);
    }
    for (name, text) in DOCUMENTS {
        entries.push(Entry::read(BUILT_IN, &format!("{name}.yaml"), (*text).to_owned())?);
    }
    Ok(entries)
}

fn of_directory(directory: &Path) -> Result<Vec<Entry>, SpecError> {
    let hub = directory.display().to_string();
    let failed = |error: std::io::Error| SpecError::new(&hub, format!("cannot be read: {error}"));
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_document = path.extension().is_some_and(|end| ENDINGS.iter().any(|known| end == *known));
        if is_document {
            files.push(path);
        }
    }
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(path).map_err(|error| {
            SpecError::new(path.display().to_string(), format!("cannot be read: {error}"))
        })?;
        Entry::read(&hub, &file, text)
    };
    files.iter().map(read).collect()
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
