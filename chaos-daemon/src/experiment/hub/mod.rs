//! The catalogue of experiments that are ready to be used: those built in, and those of directories, as they are or as a
//! commit has them. Nothing is fetched, and nothing is written.

mod checkout;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;
use serde_json::{Map, Value};

use super::source::Source;
use crate::spec::{FaultType, SpecError};

/// The name of the hub that is built in.
pub const BUILT_IN: &str = "built-in";

/// What is built in, by name.
const DOCUMENTS: &[(&str, &str)] = &[
    ("dependency-partition", include_str!("../../../experiments/dependency-partition.yaml")),
    ("pool-exhaustion", include_str!("../../../experiments/pool-exhaustion.yaml")),
    ("process-death", include_str!("../../../experiments/process-death.yaml")),
    ("process-death-alert", include_str!("../../../experiments/process-death-alert.yaml")),
    ("retry-storm", include_str!("../../../experiments/retry-storm.yaml")),
    ("slow-dependency", include_str!("../../../experiments/slow-dependency.yaml")),
];

/// How files end that are documents.
const ENDINGS: &[&str] = &["yaml", "yml", "json"];

/// An experiment of a hub.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Its name: that of its file, without the ending.
    pub name: String,
    /// The hub that it is from: [`BUILT_IN`], or what names a [`Hub`].
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

/// The names of those that inject a fault of this type.
pub fn injecting(entries: &[Entry], fault_type: FaultType) -> Vec<&str> {
    entries.iter().filter(|entry| entry.injects(fault_type.name())).map(|entry| entry.name.as_str()).collect()
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

/// The values of the configuration.
pub fn parameters(document: &Map<String, Value>) -> Vec<Parameter> {
    let configuration = document.get("configuration").and_then(Value::as_object).into_iter().flatten();
    let read = |(name, value): (&String, &Value)| {
        let environment =
            (value["type"] == "env").then(|| value["key"].as_str().map(str::to_owned)).flatten();
        let default = if environment.is_some() { value.get("default") } else { Some(value) };
        Parameter { name: name.clone(), environment, default: default.cloned() }
    };
    configuration.map(read).collect()
}

/// A hub beside the one that is built in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hub {
    directory: PathBuf,
    /// The commit, in full, as which it is read; as it is, when there is none.
    commit: Option<String>,
}

impl FromStr for Hub {
    type Err = String;

    /// Understands `DIRECTORY` and `DIRECTORY#COMMIT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((directory, commit)) = text.rsplit_once('#') else {
            return Ok(Self { directory: text.into(), commit: None });
        };
        if !matches!(commit.len(), 40 | 64) || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!(
                "{commit:?} pins nothing: after # give all 40 digits of a commit, as \"git rev-parse HEAD\" prints them"
            ));
        }
        Ok(Self { directory: directory.into(), commit: Some(commit.to_ascii_lowercase()) })
    }
}

impl fmt::Display for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.directory.display())?;
        self.commit.iter().try_for_each(|commit| write!(f, "#{commit}"))
    }
}

impl Hub {
    fn entries(&self) -> Result<Vec<Entry>, SpecError> {
        let hub = self.to_string();
        let files = match &self.commit {
            Some(commit) => checkout::files(&self.directory, commit, is_document)
                .map_err(|problem| SpecError::new(&hub, problem))?,
            None => files(&self.directory)?,
        };
        files.into_iter().map(|(name, text)| Entry::read(&hub, &name, text)).collect()
    }
}

/// Every experiment of the hubs, in their order, and then those built in.
///
/// # Errors
/// Names a hub, or a document in one, that cannot be read.
pub fn entries<'a>(hubs: impl IntoIterator<Item = &'a Hub>) -> Result<Vec<Entry>, SpecError> {
    let mut entries = Vec::new();
    for hub in hubs {
        entries.extend(hub.entries()?);
    }
    for (name, text) in DOCUMENTS {
        entries.push(Entry::read(BUILT_IN, &format!("{name}.yaml"), (*text).to_owned())?);
    }
    Ok(entries)
}

fn is_document(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| ENDINGS.iter().any(|known| end == *known))
}

/// The documents in a directory, by name.
fn files(directory: &Path) -> Result<BTreeMap<String, String>, SpecError> {
    let failed = |path: &Path, error: io::Error| {
        SpecError::new(path.display().to_string(), format!("cannot be read: {error}"))
    };
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(|error| failed(directory, error))? {
        let path = entry.map_err(|error| failed(directory, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_document(&name) {
            files.insert(name, fs::read_to_string(&path).map_err(|error| failed(&path, error))?);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
