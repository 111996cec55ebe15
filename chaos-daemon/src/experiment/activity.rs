//! The activities of a document: what its probes sample, and what its actions do.

use std::time::Duration;

use serde_json::{Map, Value};

use super::native::{Native, command, is_chaosctl, native, path};
use super::problems::Problems;
use super::sampling::Sampling;
use super::tolerance::{Form, Tolerance};
use super::variables::{Room, Use, Variables};
use crate::probe::http::{Method, Request};
use crate::probe::python::Call;
use crate::probe::trust::Trust;
use crate::probe::{Bounds, Check, DEFAULT_TIMEOUT, LONGEST_TIMEOUT, Probe, Sample};
use crate::request::fields::Fields;
use crate::spec::units::{LONGEST_FAULT, seconds};
use crate::spec::{FaultName, FaultRequest, Mistake, SpecError};

/// What reading an activity needs.
pub(super) struct Reader<'a> {
    /// Configuration and secrets.
    pub(super) variables: &'a Variables,
    /// How much of them may still be put into the document.
    pub(super) room: Room,
    /// What was found to be wrong so far.
    pub(super) problems: Problems,
}

/// Where a conversion says that it could not turn something into anything, and why.
pub(super) const GAP: &str = "x-gap";
/// Fields of activities that have no effect, here as in Chaos Toolkit.
const WITHOUT_EFFECT: [&str; 5] = ["extensions", "configuration", "description", "tags", "title"];

/// One condition of the steady state.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// Name in the document.
    pub name: String,
    /// What is sampled.
    pub probe: Probe,
    /// What its provider returns.
    pub form: Form,
    /// What of that is right.
    pub tolerance: Tolerance,
    /// When it is sampled, and how often.
    pub sampling: Sampling,
}

impl Condition {
    /// Whether what was seen is within the tolerance.
    ///
    /// # Errors
    /// What is not met, for people.
    pub fn judge(&self, sample: &Sample) -> Result<(), String> {
        let judged = self.tolerance.judge_sample(self.form, sample);
        judged.map_err(|problem| format!("{}: {problem}", self.name))
    }
}

/// One activity of the method.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    /// Name in the document.
    pub name: String,
    /// Whether the next one starts without waiting for it.
    pub background: bool,
    /// How long to wait before it.
    pub before: Duration,
    /// How long to wait after it.
    pub after: Option<Duration>,
    /// Whether its fault may act on nothing, without which the run is unverified then.
    pub may_be_idle: bool,
    /// What is done.
    pub deed: Deed,
}

/// What an activity does.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// Injects a fault.
    Inject {
        /// Name for it; the run makes one up when there is none.
        name: Option<FaultName>,
        /// The fault.
        fault: Box<FaultRequest>,
    },
    /// Removes a fault that an earlier activity has injected.
    Remove(FaultName),
    /// Takes a sample, for the record.
    Probe {
        /// What is sampled.
        probe: Probe,
        /// What is right, if the document says so; without it, what the probe itself finds right.
        right: Option<Box<(Form, Tolerance)>>,
    },
}

impl Reader<'_> {
    /// A probe of the steady state, which stands at `path`.
    pub(super) fn condition(&self, path: &str, probe: Value) -> Option<Condition> {
        let told = &self.problems;
        let mut fields = told.keep(Fields::of(path, probe))?;
        told.keep(no_gap(&mut fields))?;
        let name = self.head(&mut fields, &["probe"]).map(|(_, name)| name);
        let tolerance = fields.take("tolerance");
        let tolerance =
            told.keep(fields.need("tolerance", tolerance, "give a status, such as 200, or a range"));
        for odd in ["background", "pauses"] {
            if fields.take(odd).is_some_and(|value| value != Value::Bool(false)) {
                let problem =
                    "not supported in the steady state, whose probes are taken all at once: leave it out";
                told.note(SpecError::new(fields.at(odd), problem).code(Mistake::NotSupported));
            }
        }
        let provider = told.keep(self.provider(&mut fields, Use::Probe));
        let at = fields.at("tolerance");
        self.end(fields);
        let (mut probe, form) = told.keep(self.probe(provider?))?;
        let tolerance = told.keep(self.tolerance(&at, tolerance?, &mut probe, form))?;
        Some(Condition { name: name?, probe, form, tolerance, sampling: Sampling::default() })
    }

    /// An activity of the method, which stands at `path`.
    pub(super) fn activity(&self, path: &str, activity: Value) -> Option<Activity> {
        let told = &self.problems;
        let mut fields = told.keep(Fields::of(path, activity))?;
        told.keep(no_gap(&mut fields))?;
        let head = self.head(&mut fields, &["action", "probe"]);
        let is_probe = head.as_ref().is_some_and(|(kind, _)| kind == "probe");
        let background = told.keep(fields.boolean("background")).flatten().unwrap_or(false);
        let pauses = told.keep(self.pauses(&mut fields));
        let may_be_idle = told.keep(fields.boolean("may_be_idle")).flatten().unwrap_or(false);
        let (place, at) = (fields.at("may_be_idle"), fields.at("tolerance"));
        let tolerance = fields.take("tolerance");
        if head.is_some() && !is_probe && tolerance.is_some() {
            told.note(SpecError::new(&at, "only a probe has it: leave it out"));
        }
        let user = if is_probe { Use::Probe } else { Use::Fault };
        let provider = told.keep(self.provider(&mut fields, user));
        self.end(fields);
        let (_, name) = head?;
        let deed = match is_probe {
            true => told.keep(self.judged(&at, tolerance, provider?))?,
            false => told.keep(self.action(provider?))?,
        };
        if may_be_idle && !matches!(deed, Deed::Inject { .. }) {
            told.note(SpecError::new(place, "only an action that injects a fault has it: leave it out"));
        }
        let (before, after) = pauses?;
        Some(Activity { name, background, before, after, may_be_idle, deed })
    }

    /// A probe of the method. What is right of it changes no verdict, and is told of.
    fn judged(&self, at: &str, tolerance: Option<Value>, provider: Fields) -> Result<Deed, SpecError> {
        let (mut probe, form) = self.probe(provider)?;
        let tolerance = tolerance.map(|tolerance| self.tolerance(at, tolerance, &mut probe, form));
        let tolerance = tolerance.transpose()?;
        Ok(Deed::Probe { probe, right: tolerance.map(|tolerance| Box::new((form, tolerance))) })
    }

    /// What is right of a probe, which stands at `at`. Python is judged by Python, and so it is put into the probe.
    pub(super) fn tolerance(
        &self,
        at: &str,
        tolerance: Value,
        probe: &mut Probe,
        form: Form,
    ) -> Result<Tolerance, SpecError> {
        let tolerance = self.substituted(at, tolerance, Use::Probe)?;
        let Check::Python(call) = &mut probe.check else { return Tolerance::parse(at, tolerance, form) };
        *call = call.clone().judged(at, tolerance.clone())?;
        Ok(Tolerance::Asked(tolerance))
    }

    /// A function of Python, which is called as the document has it.
    fn python(&self, mut provider: Fields) -> Result<Probe, SpecError> {
        let at = provider.at("");
        let at = at.trim_end_matches('.');
        let timeout = timeout(&mut provider)?.unwrap_or(LONGEST_TIMEOUT);
        let mut kept = Map::from_iter([("type".to_owned(), "python".into())]);
        for key in ["module", "func", "arguments", "secrets"] {
            kept.extend(provider.take(key).map(|value| (key.to_owned(), value)));
        }
        provider.finish()?;
        let (configuration, secrets) = self.variables.all(at, &self.room)?;
        let call = Call::parse(at, Value::Object(kept), configuration, secrets)?;
        Ok(Probe { check: Check::Python(call), timeout, bounds: Bounds::default() })
    }

    /// Notes every field of an activity that nobody asked for.
    fn end(&self, mut fields: Fields) {
        fields.leave_out(&WITHOUT_EFFECT);
        fields.strangers().into_iter().for_each(|stranger| self.problems.note(stranger));
    }

    /// A rollback, which stands at `path`: every fault is removed anyway, so it may only say what happens.
    pub(super) fn rollback(
        &self,
        path: &str,
        rollback: Value,
        injected: Option<&[Activity]>,
    ) -> Result<(), SpecError> {
        let mut fields = Fields::of(path, rollback)?;
        no_gap(&mut fields)?;
        if self.head(&mut fields, &["action"]).is_none() {
            return Ok(());
        }
        if fields.boolean("background")? == Some(true) {
            let problem = "not supported in rollbacks: leave it out";
            return Err(SpecError::new(fields.at("background"), problem).code(Mistake::NotSupported));
        }
        // Everything is removed by then, so that there is nothing to wait for.
        self.pauses(&mut fields)?;
        let provider = self.provider(&mut fields, Use::Fault)?;
        self.end(fields);
        let place = provider.at("arguments");
        match self.action(provider)? {
            Deed::Remove(name) if injected.is_none_or(|injected| injects(injected, &name)) => Ok(()),
            _ => Err(SpecError::new(
                place,
                "only \"chaosctl remove NAME\" of the --name of an action: every fault is removed in any case",
            )),
        }
    }

    pub(super) fn substituted(&self, path: &str, mut value: Value, user: Use) -> Result<Value, SpecError> {
        self.variables.substitute(path, &mut value, user, &self.room)?;
        Ok(value)
    }

    /// The provider with its values, and without the groups of secrets that it names.
    pub(super) fn provider(&self, fields: &mut Fields, user: Use) -> Result<Fields, SpecError> {
        let at = fields.at("provider");
        let provider = fields.take("provider");
        let provider = fields.need("provider", provider, "give an object with a type")?;
        let put = self.substituted(&at, provider.clone(), user)?;
        // Python is handed what the document says, with all values beside it.
        let is_python = user == Use::Probe && put.get("type").is_some_and(|kind| kind == "python");
        let groups = put.get("secrets").cloned().unwrap_or_default();
        let mut provider = Fields::of(&at, if is_python { provider } else { put })?;
        provider.leave_out(&["configuration"]);
        if !is_python {
            provider.take("secrets");
        }
        if !(groups.is_array() || groups.is_null()) {
            let problem = format!("a list of groups of the secrets is needed here, not {groups}");
            return Err(SpecError::new(format!("{at}.secrets"), problem).code(Mistake::WrongType));
        }
        for (index, group) in groups.as_array().into_iter().flatten().enumerate() {
            if !group.as_str().is_some_and(|group| self.variables.has_group(group)) {
                let at = format!("{at}.secrets[{index}]");
                return Err(SpecError::new(at, format!("{group} is no group of the secrets")));
            }
        }
        Ok(provider)
    }

    fn pauses(&self, fields: &mut Fields) -> Result<(Duration, Option<Duration>), SpecError> {
        let Some(pauses) = fields.take("pauses") else { return Ok((Duration::ZERO, None)) };
        let at = fields.at("pauses");
        let mut pauses = Fields::of(&at, self.substituted(&at, pauses, Use::Probe)?)?;
        let mut pause = |key| -> Result<Option<Duration>, SpecError> {
            let given = pauses.number(key)?;
            given
                .map(|value| seconds(&format!("{at}.{key}"), value, Duration::ZERO, LONGEST_FAULT))
                .transpose()
        };
        let (before, after) = (pause("before")?.unwrap_or_default(), pause("after")?);
        pauses.finish()?;
        Ok((before, after))
    }

    fn action(&self, mut provider: Fields) -> Result<Deed, SpecError> {
        let kind = provider.string("type")?;
        match provider.need("type", kind, "\"process\"")?.as_str() {
            "process" => {}
            other => {
                let what = match (other, provider.string("module")?, provider.string("func")?) {
                    ("python", Some(module), Some(func)) => format!("\"python\" ({module}.{func})"),
                    _ => format!("{other:?}"),
                };
                let problem = format!(
                    "{what} is not supported, since nobody could undo what it does: give \"process\" with the path \
                     \"chaosctl\", or have chaosctl convert look for a fault that does the same"
                );
                return Err(SpecError::new(provider.at("type"), problem).code(Mistake::NotSupported));
            }
        }
        let place = provider.at("arguments");
        let path = path(&mut provider)?;
        match native(path, provider)? {
            Native::Inject { name, fault } => Ok(Deed::Inject { name, fault }),
            Native::Remove(name) => Ok(Deed::Remove(name)),
            Native::Probe(_) => {
                Err(SpecError::new(place, "an action runs \"chaosctl inject …\" or \"chaosctl remove NAME\""))
            }
        }
    }

    /// A `chaosctl` command line, or any other, of which the output is judged.
    fn process_probe(&self, mut provider: Fields) -> Result<(Probe, Form), SpecError> {
        let (place, within) = (provider.at("arguments"), provider.at("timeout"));
        let limit = timeout(&mut provider)?;
        let path = path(&mut provider)?;
        if !is_chaosctl(&path) {
            let check = Check::Command(command(path, provider)?);
            // Chaos Toolkit waits as long as it takes.
            let timeout = limit.unwrap_or(LONGEST_TIMEOUT);
            return Ok((Probe { check, timeout, bounds: Bounds::default() }, Form::Command));
        }
        match native(path, provider)? {
            Native::Probe(probe) => {
                let timeout = limit.map_or(probe.timeout, |limit| limit.min(probe.timeout));
                let probe = Probe { timeout, ..probe };
                probe.fits(&within)?;
                Ok((probe, Form::Process))
            }
            _ => Err(SpecError::new(place, "a probe runs \"chaosctl probe …\", or another program")),
        }
    }

    /// What a probe's provider samples.
    pub(super) fn probe(&self, mut provider: Fields) -> Result<(Probe, Form), SpecError> {
        let kind = provider.string("type")?;
        match provider.need("type", kind, "give \"http\", \"process\" or \"python\"")?.as_str() {
            "http" => Ok((http_probe(provider)?, Form::Http)),
            "process" => self.process_probe(provider),
            "python" => Ok((self.python(provider)?, Form::Python)),
            other => {
                let problem = format!("{other:?} is not supported: give \"http\", \"process\" or \"python\"");
                Err(SpecError::new(provider.at("type"), problem).code(Mistake::NotSupported))
            }
        }
    }
}

/// Whether one of `activities` injects a fault of this name.
pub(super) fn injects(activities: &[Activity], wanted: &FaultName) -> bool {
    activities
        .iter()
        .any(|activity| matches!(&activity.deed, Deed::Inject { name: Some(name), .. } if name == wanted))
}

impl Reader<'_> {
    /// Takes what all activities have, the type, one of `kinds`, and the name; and notes what none of ours can have.
    fn head(&self, fields: &mut Fields, kinds: &[&str]) -> Option<(String, String)> {
        for (field, instead) in [
            ("ref", "refer to it from the method"),
            ("dry", "leave it out: a dry run is asked for when it is run"),
            ("timeout", "put it into the provider"),
        ] {
            if fields.take(field).is_some_and(|value| value != Value::Bool(false)) {
                let error = SpecError::new(fields.at(field), format!("not supported here: {instead}"));
                self.problems.note(error.code(Mistake::NotSupported));
            }
        }
        self.problems.keep(no_controls(fields));
        self.problems.keep(kind_and_name(fields, kinds))
    }
}

fn kind_and_name(fields: &mut Fields, kinds: &[&str]) -> Result<(String, String), SpecError> {
    let kind = fields.string("type")?;
    let wanted = kinds.join(" or ");
    let kind = fields.need("type", kind, &format!("give {wanted}"))?;
    if !kinds.contains(&kind.as_str()) {
        let problem = format!("{kind:?} is not supported here: give {wanted}");
        return Err(SpecError::new(fields.at("type"), problem));
    }
    let name = fields.string("name")?;
    let name = fields.need("name", name, &format!("name the {kind}"))?;
    printable(&fields.at("name"), &name)?;
    Ok((kind, name))
}

/// Refuses what a conversion could not turn into anything, and has marked.
fn no_gap(fields: &mut Fields) -> Result<(), SpecError> {
    match fields.take(GAP) {
        None => Ok(()),
        Some(why) => Err(gap(fields.at(GAP), &why)),
    }
}

/// The problem of a gap, which says itself why it is one.
pub(super) fn gap(at: String, why: &Value) -> SpecError {
    let why = why.as_str().map_or_else(|| why.to_string(), str::to_owned);
    SpecError::new(at, format!("{why}: replace what stands there, and leave {GAP} out")).code(Mistake::Gap)
}

/// Sees that a name, which stands at `field`, can be shown on a terminal as it is.
pub(super) fn printable(field: &str, name: &str) -> Result<(), SpecError> {
    match name.chars().any(char::is_control) {
        true => Err(SpecError::new(field, format!("{name:?} cannot be shown: give printable text"))),
        false => Ok(()),
    }
}

/// Refuses controls, which may stand at every level.
pub(super) fn no_controls(fields: &mut Fields) -> Result<(), SpecError> {
    match fields.array("controls")?.unwrap_or_default().is_empty() {
        true => Ok(()),
        false => Err(SpecError::new(
            fields.at("controls"),
            "not supported: controls are Python modules, and none is run here; leave them out",
        )
        .code(Mistake::NotSupported)),
    }
}

/// A number of seconds, or as Chaos Toolkit has it, one for the connection and one for the answer.
fn timeout(provider: &mut Fields) -> Result<Option<Duration>, SpecError> {
    let at = provider.at("timeout");
    let Some(value) = provider.take("timeout") else { return Ok(None) };
    let parts = match &value {
        Value::Array(parts) if parts.len() == 2 => parts.iter().map(Value::as_f64).collect(),
        other => other.as_f64().map(|value| vec![value]),
    };
    let total = parts.map(|parts: Vec<f64>| parts.iter().sum());
    let total =
        total.ok_or_else(|| SpecError::new(&at, format!("a number of seconds is needed, not {value}")))?;
    seconds(&at, total, Duration::from_millis(10), LONGEST_TIMEOUT).map(Some)
}

fn http_probe(mut provider: Fields) -> Result<Probe, SpecError> {
    let url = provider.string("url")?;
    let url = provider.need("url", url, "the address to get")?;
    let field = provider.at("url");
    let method = provider.string("method")?.unwrap_or_else(|| "GET".to_owned());
    let method = Method::parse(&method).ok_or_else(|| {
        let problem =
            format!("{method:?} is not supported: a probe changes nothing; give GET, HEAD, OPTIONS or POST");
        SpecError::new(provider.at("method"), problem)
    })?;
    let headers = pairs(&provider.at("headers"), provider.object("headers")?)?;
    let json = method == Method::Post
        && headers.iter().any(|(name, value)| name == "Content-Type" && value == "application/json");
    let arguments = provider.object("arguments")?;
    let (arguments, body) = match arguments {
        Some(arguments) if json => (Vec::new(), Some(Value::Object(arguments).to_string())),
        arguments => (pairs(&provider.at("arguments"), arguments)?, None),
    };
    let trust = verify_tls(&mut provider)?;
    if provider.take("max_retries").is_some_and(|value| value != 0) {
        let problem = "not supported: a sample is one request";
        return Err(SpecError::new(provider.at("max_retries"), problem));
    }
    let timeout = timeout(&mut provider)?.unwrap_or(DEFAULT_TIMEOUT);
    provider.finish()?;
    let request = Request { url, method, headers, arguments, body, trust, credential: None };
    let check = Check::request(&field, request, Vec::new())?;
    Ok(Probe { check, timeout, bounds: Bounds::default() })
}

/// What Chaos Toolkit hands to Requests as it is: whether a server is verified, or by the certificates in which file.
fn verify_tls(provider: &mut Fields) -> Result<Trust, SpecError> {
    let at = provider.at("verify_tls");
    match provider.take("verify_tls") {
        None | Some(Value::Bool(true)) => Ok(Trust::Host),
        Some(Value::Bool(false)) => Ok(Trust::Anyone),
        Some(Value::String(path)) => Trust::file(&at, Some(&path)),
        Some(other) => {
            let problem =
                format!("true, false or the path of a file of CA certificates is needed here, not {other}");
            Err(SpecError::new(at, problem))
        }
    }
}

/// Names with text, from an object.
fn pairs(path: &str, object: Option<Map<String, Value>>) -> Result<Vec<(String, String)>, SpecError> {
    let pairs = object.unwrap_or_default().into_iter().map(|(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) => Ok((name, number.to_string())),
        other => Err(SpecError::new(
            format!("{path}.{name}"),
            format!("text or a number is needed here, not {other}"),
        )),
    });
    pairs.collect()
}
