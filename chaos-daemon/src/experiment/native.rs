//! Process providers: those that run `chaosctl` are understood with its own grammar, and never executed; those of a probe that run
//! another program are what `chaosctl probe command` is.

use serde_json::Value;

use crate::probe::Probe;
use crate::probe::command::Command;
use crate::probe::program::Program;
use crate::request::fields::Fields;
use crate::spec::{FaultName, FaultRequest, SpecError};

/// What a `chaosctl` command line in a document means.
#[derive(Debug, Clone, PartialEq)]
pub enum Native {
    /// `chaosctl inject …`
    Inject {
        /// `--name`
        name: Option<FaultName>,
        /// The fault.
        fault: Box<FaultRequest>,
    },
    /// `chaosctl probe …`
    Probe(Probe),
    /// `chaosctl remove NAME`
    Remove(FaultName),
}

/// Reads the arguments of a `chaosctl` command line as `chaosctl` itself does; the error is its message.
pub type Grammar = fn(&[String]) -> Result<Native, String>;

/// The program of `provider`.
///
/// # Errors
/// When there is none.
pub(super) fn path(provider: &mut Fields) -> Result<String, SpecError> {
    let path = provider.string("path")?;
    provider.need("path", path, "give \"chaosctl\"")
}

/// Whether a program is `chaosctl`, wherever it is.
pub(super) fn is_chaosctl(path: &str) -> bool {
    path.rsplit('/').next() == Some("chaosctl")
}

/// What `provider` runs, whose program is at `path`.
///
/// # Errors
/// When it does not run `chaosctl`, or not with arguments that have a place in an experiment.
pub(super) fn native(path: String, mut provider: Fields, grammar: Grammar) -> Result<Native, SpecError> {
    if !is_chaosctl(&path) {
        let problem = format!(
            "{path:?} is not supported here: only \"chaosctl\" is, which the daemon runs natively; what another program does \
             nobody could undo"
        );
        return Err(SpecError::new(provider.at("path"), problem));
    }
    let at = provider.at("arguments");
    let arguments = provider.take("arguments");
    let arguments =
        provider.need("arguments", arguments, "give chaosctl's arguments, as a mapping or a list")?;
    provider.finish()?;
    grammar(&flatten(&at, arguments)?).map_err(|problem| SpecError::new(at, problem))
}

/// The program that a probe's `provider` runs, with its arguments as Chaos Toolkit reads them.
///
/// # Errors
/// When its path is not absolute, or the arguments are none that could be told without a shell.
pub(super) fn command(path: String, mut provider: Fields) -> Result<Command, SpecError> {
    let (place, at) = (provider.at("path"), provider.at("arguments"));
    let arguments = provider.take("arguments");
    provider.finish()?;
    let mut words = vec![path];
    words.extend(match arguments {
        None => Vec::new(),
        Some(Value::String(line)) => split(&at, &line)?,
        Some(Value::Object(mapping)) => {
            if mapping.len() > 1 && mapping.keys().any(|key| !key.starts_with('-')) {
                let problem = "a mapping has no order here, which only options need none of: give a list";
                return Err(SpecError::new(at, problem));
            }
            let pairs = mapping.into_iter().flat_map(|(key, value)| [Value::String(key), value]);
            flatten(&at, Value::Array(pairs.collect()))?
        }
        Some(list) => flatten(&at, list)?,
    });
    let program = Program::parse("path", words).map_err(|error| SpecError::new(place, error.problem))?;
    Ok(Command::any(program))
}

/// The words of a line that Chaos Toolkit has a shell read: only where a shell does nothing but split it.
fn split(path: &str, line: &str) -> Result<Vec<String>, SpecError> {
    let is_plain = |c: char| {
        c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.' | '/' | ':' | ',' | '=' | '@' | '%' | '+')
    };
    match line.chars().find(|c| !is_plain(*c)) {
        None => Ok(line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()),
        Some(odd) => {
            let problem = format!("{odd:?} is for a shell, and none is run here: give a list of arguments");
            Err(SpecError::new(path, problem))
        }
    }
}

/// Makes an argument vector of a list, or of a mapping as Chaos Toolkit does: key, value, key, value, without what
/// is empty. The command comes first, for a mapping has no order of its own.
fn flatten(path: &str, arguments: Value) -> Result<Vec<String>, SpecError> {
    let text = |value: Value| match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Ok(String::new()),
        other => Err(SpecError::new(path, format!("{other} cannot be an argument: give text or a number"))),
    };
    let mut flat = Vec::new();
    match arguments {
        Value::Array(items) => {
            for item in items {
                flat.push(text(item)?);
            }
        }
        Value::Object(mut mapping) => {
            for command in ["inject", "probe", "remove"] {
                if let Some(value) = mapping.remove(command) {
                    flat.extend([command.to_owned(), text(value)?]);
                }
            }
            for (key, value) in mapping {
                // A repeated option, which a mapping can say only so.
                let values = if let Value::Array(values) = value { values } else { vec![value] };
                for value in values {
                    flat.extend([key.clone(), text(value)?]);
                }
            }
        }
        other => return Err(SpecError::new(path, format!("a mapping or a list is needed, not {other}"))),
    }
    flat.retain(|argument| !argument.is_empty());
    Ok(flat)
}
