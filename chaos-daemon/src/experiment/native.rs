//! Process providers: those that run `chaosctl` are understood as it would be, and never executed; those of a probe that run another
//! program are what `chaosctl probe command` is.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::arguments::{Arguments, Given};
use crate::probe::command::Command;
use crate::probe::program::Program;
use crate::probe::{Probe, arguments};
use crate::request::fields::Fields;
use crate::spec::options::{Takes, duration};
use crate::spec::{
    FaultName, FaultOptions, FaultRequest, FaultType, Mistake, Parameter, Probability, SpecError,
    TargetRequest,
};

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
pub(super) fn native(path: String, mut provider: Fields) -> Result<Native, SpecError> {
    if !is_chaosctl(&path) {
        let problem = format!(
            "{path:?} is not supported here: only \"chaosctl\" is, which the daemon runs natively; what another program does \
             nobody could undo; have chaosctl convert look for a fault that does the same"
        );
        return Err(SpecError::new(provider.at("path"), problem).code(Mistake::NotSupported));
    }
    let at = provider.at("arguments");
    let arguments = provider.take("arguments");
    let arguments =
        provider.need("arguments", arguments, "give chaosctl's arguments, as a mapping or a list")?;
    provider.finish()?;
    let arguments = match arguments {
        Value::String(line) => split(&at, &line)?.into_iter().map(Value::String).collect(),
        arguments => arguments,
    };
    read(&at, arguments)
}

/// What the arguments of `chaosctl` mean, which stand at `at`.
fn read(at: &str, arguments: Value) -> Result<Native, SpecError> {
    match is_probe(&arguments) {
        true => probe(at, flatten(at, arguments)?),
        false => of_fault(Arguments::read(at, arguments, table)?),
    }
}

/// Whether the command is `probe`.
fn is_probe(arguments: &Value) -> bool {
    let items = match arguments {
        Value::Object(mapping) => return mapping.contains_key("probe") && !mapping.contains_key("inject"),
        Value::Array(items) => items,
        _ => return false,
    };
    let words = items.iter().filter(|item| !item.is_null() && **item != "");
    let mut words = words.map(|item| item.as_str().unwrap_or_default());
    loop {
        match words.next() {
            Some("--json") => {}
            Some("--socket") => drop(words.next()),
            Some(word) if word.starts_with("--socket=") => {}
            word => return word == Some("probe"),
        }
    }
}

/// `chaosctl probe …`
fn probe(at: &str, mut words: Vec<String>) -> Result<Native, SpecError> {
    // Of what may stand before it, all may stand behind it.
    if let Some(command) = words.iter().position(|word| word == "probe") {
        words.remove(command);
    }
    arguments::read(&words).map(Native::Probe).map_err(|problem| SpecError::new(at, problem))
}

/// What the arguments of `chaosctl inject` or `chaosctl remove` mean.
fn of_fault(mut arguments: Arguments) -> Result<Native, SpecError> {
    // Behind a -- are words, whatever they begin with.
    arguments.words.extend(arguments.rest.take().into_iter().flatten());
    match arguments.command.as_str() {
        "inject" => fault(&arguments),
        _ => removal(&arguments),
    }
}

/// The options that documents may give to a command about this.
fn table(command: &str, about: Option<&str>) -> Result<BTreeMap<String, Takes>, String> {
    let mut known: BTreeMap<_, _> =
        OF_CHAOSCTL.iter().map(|(name, takes)| ((*name).to_owned(), *takes)).collect();
    if let Some(kind) = about.filter(|_| command == "inject") {
        let kind = FaultType::of_word(kind).map_err(|error| error.to_string())?;
        let parameters = kind.options().into_iter().chain(TargetRequest::options().cloned());
        known.extend(parameters.map(|parameter| (parameter.option(), parameter.takes())));
        known.extend(OF_FAULTS.iter().map(|(name, takes)| ((*name).to_owned(), *takes)));
    }
    Ok(known)
}

/// Options of every command. They are about whoever runs it, and have no meaning here.
const OF_CHAOSCTL: [(&str, Takes); 2] = [("json", Takes::Nothing), ("socket", Takes::Text)];

/// Options of `chaosctl inject` beside those of the type.
const OF_FAULTS: [(&str, Takes); 7] = [
    ("name", Takes::Text),
    ("for", Takes::Anything),
    ("message", Takes::Text),
    ("probability", Takes::Text),
    ("dry-run", Takes::Nothing),
    ("plan-digest", Takes::Text),
    ("wait", Takes::Nothing),
];

/// `chaosctl remove NAME`
fn removal(arguments: &Arguments) -> Result<Native, SpecError> {
    let mut names = arguments.about.iter().chain(&arguments.words);
    match (names.next(), names.next()) {
        (Some(name), None) => {
            let removed = FaultName::new(name.text.as_str()).map(Native::Remove);
            removed.map_err(|error| arguments.wrong_word(name, error.problem))
        }
        (None, _) => Err(arguments.wrong("missing: the name of the fault to remove".to_owned())),
        (_, Some(second)) => Err(arguments.wrong_word(second, "only one name can be given".to_owned())),
    }
}

/// `chaosctl inject TYPE …`
fn fault(arguments: &Arguments) -> Result<Native, SpecError> {
    let Some(kind) = &arguments.about else {
        return Err(arguments.wrong("missing: name a type of fault".to_owned()));
    };
    let fault_type =
        FaultType::of_word(&kind.text).map_err(|error| arguments.wrong_word(kind, error.to_string()))?;
    if let Some(word) = arguments.words.first() {
        let problem = format!("{:?} is not known here: options begin with two dashes", word.text);
        return Err(arguments.wrong_word(word, problem));
    }
    certain(arguments)?;
    let (params, target) = (fault_type.options(), TargetRequest::options());
    let options = FaultOptions {
        fault_type,
        name: once(arguments, "name", |text| FaultName::new(text).map_err(|error| error.problem))?,
        lasts: once(arguments, "for", duration)?,
        message: once(arguments, "message", |text| Ok(text.to_owned()))?,
        target: object(arguments, target)?,
        params: object(arguments, params.iter())?,
    };
    let fault = options.request(Probability::CERTAIN).map_err(|error| arguments.placed(error))?;
    Ok(Native::Inject { name: options.name, fault: Box::new(fault) })
}

/// Refuses what would inject a fault only perhaps, or not at all.
fn certain(arguments: &Arguments) -> Result<(), SpecError> {
    let is_certain = |probability: f64| (probability - 1.0).abs() <= f64::EPSILON;
    let odd = |given: &&Given| match given.name.as_str() {
        "dry-run" | "plan-digest" | "wait" => true,
        "probability" => !given.value.as_deref().and_then(|text| text.parse().ok()).is_some_and(is_certain),
        _ => false,
    };
    let problem = "has no place in an experiment, which injects its faults and ends them";
    match arguments.options.iter().find(odd) {
        Some(given) => Err(arguments.wrong_option(given, problem.to_owned())),
        None => once(arguments, "probability", |_| Ok(())).map(drop),
    }
}

/// The value of an option that may be given once.
fn once<T>(
    arguments: &Arguments,
    name: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, SpecError> {
    let mut given = arguments.options.iter().filter(|given| given.name == name);
    let Some(first) = given.next() else { return Ok(None) };
    if let Some(again) = given.next() {
        return Err(arguments.wrong_option(again, "given more than once".to_owned()));
    }
    let read = read(first.value.as_deref().unwrap_or_default());
    read.map(Some).map_err(|problem| arguments.wrong_option(first, problem))
}

/// What was given of these parameters, by their names.
fn object<'a>(
    arguments: &Arguments,
    parameters: impl Iterator<Item = &'a Parameter>,
) -> Result<Map<String, Value>, SpecError> {
    let mut all = Map::new();
    for parameter in parameters {
        let option = parameter.option();
        let given: Vec<_> = arguments.options.iter().filter(|given| given.name == option).collect();
        let Some(last) = given.last() else { continue };
        let read = |given: &&Given| match &given.value {
            None => Ok(Value::Bool(true)),
            Some(text) => parameter.read(text).map_err(|problem| arguments.wrong_option(given, problem)),
        };
        let values = given.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let value = parameter.gathered(values);
        all.insert(parameter.name.clone(), value.map_err(|problem| arguments.wrong_option(last, problem))?);
    }
    Ok(all)
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
pub(super) fn split(path: &str, line: &str) -> Result<Vec<String>, SpecError> {
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
pub(super) fn flatten(path: &str, arguments: Value) -> Result<Vec<String>, SpecError> {
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

#[cfg(test)]
#[path = "native_tests.rs"]
mod tests;
