//! Process providers that run `chaosctl`: understood with its own grammar, and never executed.

use serde_json::Value;

use crate::probe::Probe;
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

/// What `provider` runs.
///
/// # Errors
/// When it does not run `chaosctl`, or not with arguments that have a place in an experiment.
pub(super) fn native(mut provider: Fields, grammar: Grammar) -> Result<Native, SpecError> {
    let path = provider.string("path")?;
    let path = provider.need("path", path, "give \"chaosctl\"")?;
    if path.rsplit('/').next() != Some("chaosctl") {
        let problem =
            format!("{path:?} is not supported: only \"chaosctl\" is, which the daemon runs natively");
        return Err(SpecError::new(provider.at("path"), problem));
    }
    let at = provider.at("arguments");
    let arguments = provider.take("arguments");
    let arguments =
        provider.need("arguments", arguments, "give chaosctl's arguments, as a mapping or a list")?;
    provider.finish()?;
    grammar(&flatten(&at, arguments)?).map_err(|problem| SpecError::new(at, problem))
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
