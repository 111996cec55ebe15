//! From an experiment that Chaos Toolkit runs to one that chaos-daemon runs. What an action does is said as a fault where that means the
//! same, and is marked as a gap elsewhere. Everything else stays as it is.

mod commands;
mod meaning;
mod netfilter;
mod others;
mod pressure;
mod traffic;
pub mod yaml;

use serde_json::{Map, Value, json};

use self::commands::{understand, words};
use self::meaning::Meaning;
use super::activity::GAP;
use super::native::is_chaosctl;

/// How long a fault lasts beyond the pauses that follow it, in seconds.
const MARGIN: f64 = 60.0;
/// How long it lasts if the pauses are not known, in seconds.
const LONG: f64 = 600.0;
/// The longest that a fault may last, in seconds.
const LONGEST: f64 = 3600.0;

/// A document, and what was done to it.
#[derive(Debug)]
pub struct Converted {
    /// The document.
    pub document: Map<String, Value>,
    /// What was changed, and what has to be known of it.
    pub notes: Vec<Note>,
    /// What could not be turned into anything, and why. It is marked in the document.
    pub gaps: Vec<Note>,
}

/// What is said of a part of a document.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// Where the part stood.
    pub path: String,
    /// What is said of it.
    pub text: String,
}

/// What an action comes to.
enum Deed {
    /// It stays as it is.
    Stays,
    /// A fault: the words of `chaosctl inject`, and by what its undoing is known.
    Injects { words: Vec<String>, lasts: Option<String>, key: String, note: Option<String> },
    /// It takes back what was done under this key.
    TakesBack(String),
}

/// A fault that an action has become.
struct Injected {
    key: String,
    /// Its activity, and its `--name` if a later action removes it.
    name: String,
}

/// Makes a document that chaos-daemon runs, as far as that is possible.
pub fn convert(document: &Map<String, Value>) -> Converted {
    let mut converted = Converted { document: document.clone(), notes: Vec::new(), gaps: Vec::new() };
    converted.controls();
    converted.strategy();
    let injected = converted.method();
    converted.rollbacks(&injected);
    converted
}

impl Converted {
    fn note(&mut self, path: &str, text: impl Into<String>) {
        self.notes.push(Note { path: path.to_owned(), text: text.into() });
    }

    /// Marks a gap in an activity, which stays as it is.
    fn gap(&mut self, path: &str, activity: &mut Value, why: String) {
        if let Value::Object(fields) = activity {
            fields.insert(GAP.to_owned(), json!(why));
        }
        self.gaps.push(Note { path: path.to_owned(), text: why });
    }

    /// Controls are Python modules. What they did is a gap of the whole document.
    fn controls(&mut self) {
        let mut taken = Vec::new();
        let mut whole = Value::Object(std::mem::take(&mut self.document));
        without_controls("", &mut whole, &mut taken);
        if let Value::Object(fields) = whole {
            self.document = fields;
        }
        let mut whys = Vec::new();
        for (path, names) in taken {
            let why = format!(
                "the controls {} of {path} were Python modules, which are not run: see to what they did",
                names.join(", ")
            );
            self.gaps.push(Note { path, text: why.clone() });
            whys.push(json!(why));
        }
        if !whys.is_empty() {
            self.document.insert(GAP.to_owned(), Value::Array(whys));
        }
    }

    /// Every fault is removed in any case.
    fn strategy(&mut self) {
        const PATH: &str = "runtime.rollbacks.strategy";
        let rollbacks = self.document.get_mut("runtime").and_then(|runtime| runtime.get_mut("rollbacks"));
        let Some(strategy) = rollbacks.and_then(|rollbacks| rollbacks.get_mut("strategy")) else { return };
        if !super::schema::ROLLBACKS.iter().any(|known| strategy == known) {
            let was = std::mem::replace(strategy, json!("always"));
            self.note(
                PATH,
                format!("{was} became \"always\": every fault is removed, whatever becomes of a run"),
            );
        }
    }

    fn method(&mut self) -> Vec<Injected> {
        let Some(Value::Array(method)) = self.document.get_mut("method") else { return Vec::new() };
        let mut method = std::mem::take(method);
        let deeds: Vec<_> = method.iter().map(deed).collect();
        let taken_back = deeds.iter().filter_map(|deed| match deed {
            Ok(Deed::TakesBack(key)) => Some(key.clone()),
            _ => None,
        });
        let taken_back: Vec<String> = taken_back.collect();
        let lasting: Vec<_> = (0..method.len()).map(|index| until_the_end(&method[index..])).collect();
        let mut injected: Vec<Injected> = Vec::new();
        for (index, (activity, deed)) in method.iter_mut().zip(deeds).enumerate() {
            let path = format!("method[{index}]");
            match deed {
                Ok(Deed::Stays) => {}
                Ok(Deed::Injects { words, lasts, key, note }) => {
                    let name = format!("converted-{}", index + 1);
                    let named = taken_back.contains(&key).then_some(name.as_str());
                    inject(activity, words, lasts.unwrap_or_else(|| lasting[index].clone()), named);
                    let was = shown(activity);
                    self.note(&path, [was, note.unwrap_or_default()].join(" ").trim().to_owned());
                    injected.push(Injected { key, name });
                }
                Ok(Deed::TakesBack(key)) => match injected.iter().rev().find(|one| one.key == key) {
                    Some(one) => {
                        set_provider(activity, vec!["remove".to_owned(), one.name.clone()]);
                        self.note(&path, format!("became chaosctl remove {}", one.name));
                    }
                    None => self.gap(
                        &path,
                        activity,
                        "it takes back what no action before it has done".to_owned(),
                    ),
                },
                Err(why) => self.gap(&path, activity, why),
            }
        }
        self.document.insert("method".to_owned(), Value::Array(method));
        injected
    }

    /// Rollbacks that take back what faults have done are not needed.
    fn rollbacks(&mut self, injected: &[Injected]) {
        let Some(Value::Array(rollbacks)) = self.document.get_mut("rollbacks") else { return };
        let rollbacks = std::mem::take(rollbacks);
        let mut kept = Vec::new();
        for (index, mut rollback) in rollbacks.into_iter().enumerate() {
            let path = format!("rollbacks[{index}]");
            match deed(&rollback) {
                Ok(Deed::Stays) => kept.push(rollback),
                Ok(Deed::TakesBack(key)) if injected.iter().any(|one| one.key == key) => {
                    self.note(&path, "left out: every fault is removed in any case");
                }
                Ok(_) => {
                    self.gap(
                        &path,
                        &mut rollback,
                        "a rollback here can only remove a fault, which happens anyway".to_owned(),
                    );
                    kept.push(rollback);
                }
                Err(why) => {
                    self.gap(&path, &mut rollback, why);
                    kept.push(rollback);
                }
            }
        }
        self.document.insert("rollbacks".to_owned(), Value::Array(kept));
    }
}

/// Takes the controls out of a part, which stands at `path`: where they stood, and their names.
fn without_controls(path: &str, part: &mut Value, taken: &mut Vec<(String, Vec<String>)>) {
    let Value::Object(fields) = part else { return };
    if let Some(controls) = fields.remove("controls") {
        let name = |control: &Value| {
            control.get("name").and_then(Value::as_str).unwrap_or("without a name").to_owned()
        };
        let names: Vec<_> = controls.as_array().into_iter().flatten().map(name).collect();
        if !names.is_empty() {
            let at = if path.is_empty() { "the document" } else { path };
            taken.push((at.to_owned(), names));
        }
    }
    let mut below = |at: &str, key: &str, fields: &mut Map<String, Value>| {
        if let Some(Value::Array(items)) = fields.get_mut(key) {
            for (index, item) in items.iter_mut().enumerate() {
                without_controls(&format!("{at}{key}[{index}]"), item, taken);
            }
        }
    };
    if path.is_empty() {
        below("", "method", fields);
        below("", "rollbacks", fields);
        if let Some(hypothesis) = fields.get_mut("steady-state-hypothesis") {
            without_controls("steady-state-hypothesis", hypothesis, taken);
        }
    } else if path == "steady-state-hypothesis" {
        below("steady-state-hypothesis.", "probes", fields);
    }
}

/// What an activity comes to.
fn deed(activity: &Value) -> Result<Deed, String> {
    let provider = &activity["provider"];
    if activity.get("ref").is_some() || activity["type"] != "action" {
        return Ok(Deed::Stays);
    }
    let text = |key: &str| provider[key].as_str().unwrap_or_default();
    match text("type") {
        "process" if is_chaosctl(text("path")) => Ok(Deed::Stays),
        "process" => match understand(&words(provider)?)? {
            Meaning::Fault { words, lasts, key, note } => Ok(Deed::Injects { words, lasts, key, note }),
            Meaning::TakesBack(key) => Ok(Deed::TakesBack(key)),
        },
        "python" => Err(others::python(text("module"), text("func"))),
        "http" => Err("nobody could undo what a request has changed".to_owned()),
        other => Err(format!("{other:?} is no kind of action that is known")),
    }
}

/// How long a fault of the first of `rest` lasts so that it is there until the end of the method, as an option has it.
fn until_the_end(rest: &[Value]) -> String {
    let pause = |activity: &Value, key: &str| match &activity["pauses"][key] {
        Value::Null => Some(0.0),
        value => value.as_f64(),
    };
    let first = rest.first().map_or(Some(0.0), |first| pause(first, "after"));
    let others = rest.iter().skip(1).map(|other| Some(pause(other, "before")? + pause(other, "after")?));
    let known: Option<f64> = std::iter::once(first).chain(others).sum();
    let seconds = known.map_or(LONG, |known| known + MARGIN).clamp(1.0, LONGEST);
    format!("{}s", seconds.ceil())
}

/// Has an activity inject a fault, and have it removed at the end of the method.
fn inject(activity: &mut Value, words: Vec<String>, lasts: String, name: Option<&str>) {
    let mut arguments = vec!["inject".to_owned()];
    arguments.extend(words);
    if let Some(name) = name {
        arguments.extend(["--name".to_owned(), name.to_owned()]);
    }
    arguments.extend(["--for".to_owned(), lasts]);
    set_provider(activity, arguments);
    // A fault without a pause after it would be waited for.
    if activity["pauses"].get("after").is_none() {
        activity["pauses"]["after"] = json!(0);
    }
}

fn set_provider(activity: &mut Value, arguments: Vec<String>) {
    activity["provider"] = json!({"type": "process", "path": "chaosctl", "arguments": arguments});
}

/// What an activity has become.
fn shown(activity: &Value) -> String {
    let words = activity["provider"]["arguments"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words: Vec<_> = words.collect();
    format!("became chaosctl {}", words.join(" "))
}

#[cfg(test)]
mod tests;
