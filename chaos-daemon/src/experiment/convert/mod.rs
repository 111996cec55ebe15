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
/// How long there is to look at the steady state under a fault, where the document itself leaves no time, in seconds.
const LOOK: f64 = 5.0;
/// How long it lasts if the pauses are not known, in seconds.
const LONG: f64 = 600.0;
/// The longest that a converted fault lasts, in seconds.
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
    /// The activity's place in the method.
    index: usize,
    /// Whether it is there until something takes it back.
    stays: bool,
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
        let ran: Vec<f64> = method.iter().zip(&deeds).map(|(activity, deed)| runs(activity, deed)).collect();
        let left = |index: usize| time_left(&method[index..], &ran[index..]);
        let left: Vec<Option<f64>> = (0..method.len()).map(left).collect();
        let mut injected: Vec<Injected> = Vec::new();
        for (index, (activity, deed)) in method.iter_mut().zip(deeds).enumerate() {
            let path = format!("method[{index}]");
            match deed {
                Ok(Deed::Stays) => {}
                Ok(Deed::Injects { key, .. }) if injected.iter().any(|one| one.key == key && one.stays) => {
                    let why = "it changes what an action before it has done: take that back first";
                    self.gap(&path, activity, why.to_owned());
                }
                Ok(Deed::Injects { words, lasts, key, note }) => {
                    let name = format!("converted-{}", index + 1);
                    let named = taken_back.contains(&key).then_some(name.as_str());
                    let is_point = key.starts_with("killed ") || key.starts_with("restarted ");
                    let stays = lasts.is_none() && !is_point;
                    let by_itself = lasts.map(|lasts| (lasts, ran[index]));
                    inject(activity, words, by_itself.ok_or(left[index]), named);
                    let was = shown(activity);
                    self.note(&path, [was, note.unwrap_or_default()].join(" ").trim().to_owned());
                    injected.push(Injected { key, name, index, stays });
                }
                Ok(Deed::TakesBack(key)) => match injected.iter_mut().rev().find(|one| one.key == key) {
                    Some(one) => {
                        one.stays = false;
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
        let staying: Vec<usize> = injected.iter().filter(|one| one.stays).map(|one| one.index).collect();
        if let Some(last) = staying.last() {
            self.look_under(&mut method[*last], (*last, left[*last]));
        }
        self.document.insert("method".to_owned(), Value::Array(method));
        injected
    }

    /// Has the steady state looked at while a fault is there that nothing in the method takes back. Chaos Toolkit looks at it after the
    /// method, with the fault; here every fault is removed by then.
    fn look_under(&mut self, activity: &mut Value, (index, left): (usize, Option<f64>)) {
        if left.is_some_and(|left| left <= 0.0) {
            activity["pauses"]["after"] = json!(LOOK);
        }
        let runtime = self.document.entry("runtime").or_insert_with(|| json!({}));
        let hypothesis = &mut runtime["hypothesis"];
        if hypothesis["strategy"].is_null() {
            hypothesis["strategy"] = json!("continuously");
        }
        let text = "it is removed before the steady state is looked at for the last time, which Chaos Toolkit does with it: so that is \
                    looked at while it is there, too (runtime.hypothesis.strategy)";
        self.note(&format!("method[{index}]"), text);
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

/// For how long an action keeps the next one waiting beside its pauses, in seconds: a program with a time of its own that runs in the
/// foreground.
fn runs(activity: &Value, deed: &Result<Deed, String>) -> f64 {
    match deed {
        Ok(Deed::Injects { lasts: Some(lasts), .. }) if activity["background"] != json!(true) => {
            seconds(lasts).unwrap_or_default()
        }
        _ => 0.0,
    }
}

/// The seconds of `20s`, `5m` or `1h`.
fn seconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let each = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * each)
}

/// How much time passes from the first of `rest` to the end of the method, in seconds, where each of them `ran` so long by itself. `None`
/// where a pause is not known.
fn time_left(rest: &[Value], ran: &[f64]) -> Option<f64> {
    let pause = |activity: &Value, key: &str| match &activity["pauses"][key] {
        Value::Null => Some(0.0),
        value => value.as_f64(),
    };
    let first = rest.first().map_or(Some(0.0), |first| pause(first, "after"));
    let others = rest.iter().zip(ran).skip(1);
    let others = others.map(|(other, ran)| Some(pause(other, "before")? + ran + pause(other, "after")?));
    std::iter::once(first).chain(others).sum()
}

/// Has an activity inject a fault. It `lasts` as long as the command says, which takes so many seconds of the method; or until the end
/// of the method, in so many.
fn inject(
    activity: &mut Value,
    words: Vec<String>,
    lasts: Result<(String, f64), Option<f64>>,
    name: Option<&str>,
) {
    let mut arguments = vec!["inject".to_owned()];
    arguments.extend(words);
    if let Some(name) = name {
        arguments.extend(["--name".to_owned(), name.to_owned()]);
    }
    // A fault without a pause after it is waited for, as a program in the foreground is.
    let after = activity["pauses"].get("after").cloned();
    let lasts = match lasts {
        Ok((lasts, ran)) if ran > 0.0 => {
            if let Some(after) = after.as_ref().and_then(Value::as_f64) {
                activity["pauses"]["after"] = json!(ran + after);
            }
            lasts
        }
        Ok((lasts, _)) => {
            activity["pauses"]["after"] = after.unwrap_or(json!(0));
            lasts
        }
        Err(left) => {
            activity["pauses"]["after"] = after.unwrap_or(json!(0));
            let seconds = left.map_or(LONG, |left| left + MARGIN).clamp(1.0, LONGEST);
            format!("{}s", seconds.ceil())
        }
    };
    arguments.extend(["--for".to_owned(), lasts]);
    set_provider(activity, arguments);
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
