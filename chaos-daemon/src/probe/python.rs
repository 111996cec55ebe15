//! What a function of a Python module returns, called by chaostoolkit-lib: the runner starts the interpreter that the policy names, with
//! the question at its standard input. No argument is ever part of a command line.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::command::{End, run};
use super::program::Program;
use super::{Sampler, Seen};
use crate::host::python::{is_module, is_name};
use crate::spec::{Mistake, SpecError};

/// What the interpreter runs.
const ASK: &str = include_str!("python.py");
/// How much of what came back is shown to people, in characters.
const SHOWN: usize = 120;

/// A function, what it is given, and what is right of what it returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    asked: Box<Asked>,
    /// The interpreter, which only the runner knows.
    program: Option<Program>,
}

/// What the interpreter is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Asked {
    /// The activity, as the document has it.
    activity: Value,
    /// All values of the configuration.
    configuration: Value,
    /// All secrets, by their groups.
    secrets: Value,
    /// As the document has it; `None` if there is none.
    tolerance: Option<Value>,
}

/// What the interpreter answers.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Failed { error: String },
    Returned { value: Value, met: Option<bool> },
}

impl Call {
    /// Understands a provider, which stands at `at`.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn parse(at: &str, provider: Value, configuration: Value, secrets: Value) -> Result<Self, SpecError> {
        function(at, &provider)?;
        let activity = json!({"type": "probe", "name": "probe", "provider": provider});
        let asked = Asked { activity, configuration, secrets, tolerance: None };
        Ok(Self { asked: Box::new(asked), program: None })
    }

    /// The same, of which this is right; it stands at `at`.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn judged(self, at: &str, tolerance: Value) -> Result<Self, SpecError> {
        let kind = tolerance.get("type").and_then(Value::as_str);
        match (&tolerance, kind) {
            (Value::Object(_), Some("probe")) => drop(judge(at, &tolerance)?),
            (Value::Object(_), Some("range" | "regex" | "jsonpath")) => {}
            (Value::Object(_), _) | (Value::Null, _) => {
                let problem = "give a value, a list of two bounds, or an object with the type range, regex, jsonpath or probe";
                return Err(SpecError::new(at, problem));
            }
            _ => {}
        }
        let asked = Asked { tolerance: Some(tolerance), ..*self.asked };
        Ok(Self { asked: Box::new(asked), ..self })
    }

    /// The modules whose functions are called; an error if anything else is to be done.
    ///
    /// # Errors
    /// What else.
    pub fn modules(&self) -> Result<Vec<String>, SpecError> {
        let mut modules = vec![function("provider", &self.asked.activity["provider"])?.0];
        let judge = self
            .asked
            .tolerance
            .as_ref()
            .filter(|tolerance| tolerance.get("type").is_some_and(|kind| kind == "probe"));
        if let Some(tolerance) = judge {
            modules.push(self::judge("tolerance", tolerance)?);
        }
        Ok(modules)
    }

    /// The same, run by this interpreter.
    #[must_use]
    pub(super) fn by(self, interpreter: Program) -> Self {
        Self { program: Some(interpreter), ..self }
    }

    /// The command line of an interpreter: without its user's folders and variables, and with nothing of the call.
    ///
    /// # Errors
    /// When its path is none.
    pub(super) fn interpreter(path: &str) -> Result<Program, SpecError> {
        let words = [path, "-I", "-c", ASK].map(str::to_owned).to_vec();
        Program::parse("interpreter", words)
    }

    fn understand(&self, end: &End) -> Seen {
        let answer = match serde_json::from_str(&end.stdout) {
            Ok(answer) => answer,
            Err(_) => return Seen::nothing(format!("gave no answer, and ended with {}", end.words())),
        };
        match answer {
            Answer::Failed { error } => Seen::nothing(error),
            Answer::Returned { value, met } => {
                let number = value.as_f64().or_else(|| value.as_bool().map(|on| f64::from(u8::from(on))));
                let shown = brief(&value);
                let verdict = match met {
                    Some(false) => Err(shown),
                    _ => Ok(shown),
                };
                Seen {
                    verdict,
                    answer: Some(json!({"value": value, "met": met})),
                    value: number,
                    no_data: None,
                }
            }
        }
    }
}

/// The module and the function of a provider, which stands at `at`.
fn function(at: &str, provider: &Value) -> Result<(String, String), SpecError> {
    let part = |key: &str, good: fn(&str) -> bool, example: &str| {
        let field = format!("{at}.{key}");
        match provider.get(key).and_then(Value::as_str) {
            None => {
                Err(SpecError::new(field, format!("missing: give e.g. {example:?}")).code(Mistake::Missing))
            }
            Some(name) if good(name) => Ok(name.to_owned()),
            Some(name) => {
                Err(SpecError::new(field, format!("{name:?} is no name of Python: give e.g. {example:?}")))
            }
        }
    };
    if provider.get("arguments").is_some_and(|arguments| !arguments.is_object()) {
        return Err(SpecError::new(format!("{at}.arguments"), "give a mapping from names to values"));
    }
    Ok((part("module", is_module, "chaosprometheus.probes")?, part("func", is_name, "query")?))
}

/// The module of a tolerance that is a probe.
fn judge(at: &str, tolerance: &Value) -> Result<String, SpecError> {
    let provider = &tolerance["provider"];
    match provider.get("type").and_then(Value::as_str) {
        Some("python") => Ok(function(&format!("{at}.provider"), provider)?.0),
        _ => {
            let problem = "of http and process Chaos Toolkit takes whatever they answer for right: give range, regex or jsonpath, or \
                           the provider python";
            Err(SpecError::new(format!("{at}.provider.type"), problem).code(Mistake::NotSupported))
        }
    }
}

fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

impl Sampler for Call {
    async fn take(&self, limit: Duration) -> Seen {
        let Some(program) = &self.program else {
            return Seen::nothing("only the daemon calls Python".to_owned());
        };
        let ended = run(program, Some(json!(self.asked).to_string().into_bytes()), limit).await;
        ended.map(|end| self.understand(&end)).into()
    }

    fn may_change(&self) -> bool {
        true
    }

    fn python(&self) -> Option<Vec<String>> {
        // What makes no sense is of no module that a policy could name.
        Some(self.modules().unwrap_or_else(|_| vec![String::new()]))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match function("", &self.asked.activity["provider"]) {
            Ok((module, func)) => write!(f, "python {module}.{func}"),
            Err(_) => f.write_str("python"),
        }
    }
}

#[cfg(test)]
#[path = "python_tests.rs"]
mod tests;
