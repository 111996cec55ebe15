//! A Chaos Toolkit experiment document, the part of it that is understood so far: steady-state probes and one
//! native fault. What is not understood is refused by name, never skipped.
//!
//! Format: "An Open API for Chaos Engineering Experiments", <https://chaostoolkit.org/reference/api/experiment/>.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::probe::{Check, DEFAULT_TIMEOUT, LONGEST_TIMEOUT, Probe};
use crate::request::fields::Fields;
use crate::spec::units::seconds;
use crate::spec::{FaultName, FaultRequest, SpecError};

/// The most probes a hypothesis may have.
const MOST_PROBES: usize = 32;

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

/// One condition of the steady state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Name in the document.
    pub name: String,
    /// What is sampled.
    pub probe: Probe,
    /// Whether the sample has to be good, or has to be bad.
    pub expected: bool,
}

/// An experiment, understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Name under which it runs.
    pub name: String,
    /// What it is about.
    pub description: String,
    /// The steady state; never empty.
    pub conditions: Vec<Condition>,
    /// Name for the fault; the run makes one up when there is none.
    pub fault_name: Option<FaultName>,
    /// The fault.
    pub fault: FaultRequest,
    /// How long the fault is kept.
    pub hold: Duration,
}

impl Experiment {
    /// Understands `document`.
    ///
    /// # Errors
    /// Names the first part that is missing, wrong or not supported.
    pub fn parse(document: &Map<String, Value>, grammar: Grammar) -> Result<Self, SpecError> {
        let mut fields = Fields::new("", document.clone());
        let title = fields.string("title")?;
        let name = fields.string("name")?.or(title);
        let name = fields.need("title", name, "say in a few words what the experiment is about")?;
        if name.trim().is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
            return Err(SpecError::new("title", "must be 1 to 128 bytes of printable text"));
        }
        let description = fields.string("description")?.unwrap_or_default();
        // Annotations without effect, here as in Chaos Toolkit.
        for annotation in ["version", "tags", "contributions"] {
            fields.take(annotation);
        }
        for later in ["configuration", "secrets", "controls", "runtime", "extensions"] {
            if fields.take(later).is_some_and(|value| !is_empty(&value)) {
                return Err(SpecError::new(later, "not supported yet: leave it out"));
            }
        }
        let hypothesis = fields.take("steady-state-hypothesis");
        let hypothesis = fields.need(
            "steady-state-hypothesis",
            hypothesis,
            "give {title, probes}; without it nothing could be learned",
        )?;
        let conditions = conditions(hypothesis, grammar)?;
        let method = fields.array("method")?;
        let method = fields.need("method", method, "give a list with one action")?;
        let Ok([action]) = <[Value; 1]>::try_from(method) else {
            return Err(SpecError::new("method", "exactly one action is supported so far"));
        };
        let (fault_name, fault, hold) = action_of(action, grammar)?;
        for (index, rollback) in fields.array("rollbacks")?.unwrap_or_default().into_iter().enumerate() {
            check_rollback(&format!("rollbacks[{index}]"), rollback, fault_name.as_ref(), grammar)?;
        }
        fields.finish()?;
        Ok(Self { name, description, conditions, fault_name, fault, hold })
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

fn conditions(hypothesis: Value, grammar: Grammar) -> Result<Vec<Condition>, SpecError> {
    let mut fields = Fields::of("steady-state-hypothesis", hypothesis)?;
    fields.string("title")?;
    let probes = fields.array("probes")?.unwrap_or_default();
    fields.finish()?;
    if probes.is_empty() || probes.len() > MOST_PROBES {
        return Err(SpecError::new(
            "steady-state-hypothesis.probes",
            format!("missing: give 1 to {MOST_PROBES} probes"),
        ));
    }
    let path = |index| format!("steady-state-hypothesis.probes[{index}]");
    probes.into_iter().enumerate().map(|(index, probe)| condition(&path(index), probe, grammar)).collect()
}

fn condition(path: &str, probe: Value, grammar: Grammar) -> Result<Condition, SpecError> {
    let mut fields = Fields::of(path, probe)?;
    expect_type(&mut fields, "probe")?;
    let name = fields.string("name")?;
    let name = fields.need("name", name, "name the probe")?;
    let tolerance = fields.take("tolerance");
    let tolerance = fields.need("tolerance", tolerance, "give a status code, or true")?;
    let tolerance_path = fields.at("tolerance");
    let provider = fields.take("provider");
    let mut provider =
        Fields::of(fields.at("provider"), fields.need("provider", provider, "give an object")?)?;
    fields.finish()?;
    let kind = provider.string("type")?;
    let (probe, expected) = match provider.need("type", kind, "\"http\" or \"process\"")?.as_str() {
        "http" => (http_probe(provider, &tolerance_path, &tolerance)?, tolerance != Value::Bool(false)),
        "process" => {
            let place = provider.at("arguments");
            match native(provider, grammar)? {
                (Native::Probe(probe), _) => (probe, exit_tolerance(&tolerance_path, &tolerance)?),
                _ => return Err(SpecError::new(place, "a probe runs \"chaosctl probe …\"")),
            }
        }
        other => {
            let problem = format!("{other:?} is not supported: give \"http\" or \"process\"");
            return Err(SpecError::new(provider.at("type"), problem));
        }
    };
    Ok(Condition { name, probe, expected })
}

fn expect_type(fields: &mut Fields, expected: &str) -> Result<(), SpecError> {
    match fields.string("type")? {
        Some(kind) if kind == expected => Ok(()),
        Some(other) => Err(SpecError::new(
            fields.at("type"),
            format!("{other:?} is not supported here: give {expected:?}"),
        )),
        None => Err(SpecError::new(fields.at("type"), format!("missing: give {expected:?}"))),
    }
}

fn http_probe(mut provider: Fields, path: &str, tolerance: &Value) -> Result<Probe, SpecError> {
    let url = provider.string("url")?;
    let url = provider.need("url", url, "the address to get")?;
    let field = provider.at("url");
    if let Some(method) = provider.string("method")?.filter(|method| !method.eq_ignore_ascii_case("GET")) {
        return Err(SpecError::new(
            provider.at("method"),
            format!("{method:?} is not supported: only GET is"),
        ));
    }
    let at = provider.at("timeout");
    let timeout = match provider.number("timeout")? {
        None => DEFAULT_TIMEOUT,
        Some(value) => seconds(&at, value, Duration::from_millis(10), LONGEST_TIMEOUT)?,
    };
    provider.finish()?;
    Ok(Probe { check: Check::http(&field, &url, http_tolerance(path, tolerance)?)?, timeout })
}

fn http_tolerance(path: &str, tolerance: &Value) -> Result<Vec<u16>, SpecError> {
    let status = |value: &Value| {
        let status = value.as_u64().and_then(|code| u16::try_from(code).ok());
        status.filter(|code| (100..600).contains(code)).ok_or_else(|| {
            SpecError::new(
                path,
                format!("{value} is not supported: give a status code, a list of them, or true"),
            )
        })
    };
    match tolerance {
        // Any 2xx; `false` turns the answer around.
        Value::Bool(_) => Ok(Vec::new()),
        Value::Array(codes) if !codes.is_empty() => codes.iter().map(status).collect(),
        code => Ok(vec![status(code)?]),
    }
}

/// A process probe is judged by its exit code: 0 is good, 1 is bad.
fn exit_tolerance(path: &str, tolerance: &Value) -> Result<bool, SpecError> {
    match (tolerance.as_bool(), tolerance.as_u64()) {
        (Some(expected), _) => Ok(expected),
        (_, Some(0)) => Ok(true),
        (_, Some(1)) => Ok(false),
        _ => Err(SpecError::new(path, format!("{tolerance} is not supported: give 0, 1, true or false"))),
    }
}

fn action_of(
    action: Value,
    grammar: Grammar,
) -> Result<(Option<FaultName>, FaultRequest, Duration), SpecError> {
    let mut fields = Fields::of("method[0]", action)?;
    expect_type(&mut fields, "action")?;
    let name = fields.string("name")?;
    fields.need("name", name, "name the action")?;
    let pauses = fields.object("pauses")?;
    let provider = fields.take("provider");
    let provider = Fields::of(fields.at("provider"), fields.need("provider", provider, "give an object")?)?;
    fields.finish()?;
    let place = provider.at("arguments");
    let (Native::Inject { name, fault }, _) = native(provider, grammar)? else {
        return Err(SpecError::new(place, "an action runs \"chaosctl inject …\""));
    };
    let lasts = fault.parse()?.duration;
    let hold = match pauses {
        None => lasts,
        Some(pauses) => {
            let mut pauses = Fields::new("method[0].pauses", pauses);
            let after = pauses.number("after")?;
            pauses.finish()?;
            after
                .map_or(Ok(lasts), |after| seconds("method[0].pauses.after", after, Duration::ZERO, lasts))?
        }
    };
    Ok((name, *fault, hold))
}

/// The daemon removes the fault by itself, so a rollback may only say what happens anyway.
fn check_rollback(
    path: &str,
    rollback: Value,
    fault_name: Option<&FaultName>,
    grammar: Grammar,
) -> Result<(), SpecError> {
    let mut fields = Fields::of(path, rollback)?;
    expect_type(&mut fields, "action")?;
    fields.string("name")?;
    let provider = fields.take("provider");
    let provider = Fields::of(fields.at("provider"), fields.need("provider", provider, "give an object")?)?;
    fields.finish()?;
    let place = provider.at("arguments");
    match native(provider, grammar)? {
        (Native::Remove(name), _) if Some(&name) == fault_name => Ok(()),
        _ => Err(SpecError::new(
            place,
            "only \"chaosctl remove NAME\" of the action's own --name: the fault is removed in any case",
        )),
    }
}

/// What a process provider runs, when that is `chaosctl`; with its argument vector.
fn native(mut provider: Fields, grammar: Grammar) -> Result<(Native, Vec<String>), SpecError> {
    match provider.string("type")? {
        // The caller has looked at the type of a probe already.
        None => {}
        Some(kind) if kind == "process" => {}
        Some(kind) => {
            let problem = format!("{kind:?} is not supported: give \"process\" with the path \"chaosctl\"");
            return Err(SpecError::new(provider.at("type"), problem));
        }
    }
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
    let arguments = flatten(&at, arguments)?;
    let meaning = grammar(&arguments).map_err(|problem| SpecError::new(at, problem))?;
    Ok((meaning, arguments))
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
            flat.retain(|argument| !argument.is_empty());
        }
        other => return Err(SpecError::new(path, format!("a mapping or a list is needed, not {other}"))),
    }
    Ok(flat)
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
