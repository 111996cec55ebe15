//! A fault as options: what `chaosctl inject` and the documents of experiments have in common. An option is a parameter of the type or a
//! field of the target. How its value is read is said here, once for both.

use std::time::Duration;

use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::fault::FaultRequest;
use super::kinds::{FAULT_TYPES, FaultType};
use super::parameter::{Parameter, Shape, merged};
use super::target::TargetRequest;
use super::typed;
use super::units::{FaultName, Probability, SpecError};

/// What may stand behind an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing: the option is there or not.
    Nothing,
    /// Text; what begins with a dash is another option.
    Text,
    /// A number, which may be less than 0.
    Number,
    /// Whatever comes.
    Anything,
}

impl Takes {
    /// Whether `text` is a value behind the option, and not an option of its own.
    pub fn accepts(self, text: &str) -> bool {
        let is_number =
            |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok();
        match (self, text.strip_prefix('-')) {
            (Self::Nothing, _) => false,
            (Self::Anything, _) | (_, None | Some("")) => true,
            (Self::Text, _) => false,
            (Self::Number, Some(rest)) => is_number(rest),
        }
    }
}

/// Parses a duration with a unit, as people write it: `300ms`, `3m`, `1h 30m`, `0.5s`.
///
/// # Errors
/// When it is none, or negative.
pub fn duration(text: &str) -> Result<Duration, String> {
    // ISO 8601 ("PT3M") is understood as well.
    match text.trim().parse::<SignedDuration>().map(Duration::try_from) {
        Ok(Ok(duration)) => Ok(duration),
        Ok(Err(_)) => Err(format!("{text:?} is negative")),
        Err(_) => Err(format!("{text:?} is not a duration: give a number with a unit, e.g. 300ms, 2s, 3m")),
    }
}

fn number(text: &str) -> Result<Value, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.map(Value::from).ok_or_else(|| format!("{text:?} is not a number"))
}

impl Parameter {
    /// What may stand behind its option.
    pub fn takes(&self) -> Takes {
        match &self.shape {
            Shape::Flag => Takes::Nothing,
            Shape::Number(_) if self.is_duration() => Takes::Anything,
            Shape::Number(_) | Shape::Model(_) => Takes::Number,
            // Words of a command line, which may begin with dashes themselves.
            Shape::Text(_) if matches!(&*self.name, "command" | "below") => Takes::Anything,
            Shape::Whole(_) | Shape::Text(_) | Shape::Document(_) | Shape::List(..) => Takes::Text,
        }
    }

    /// Whether its option may be repeated.
    pub fn repeats(&self) -> bool {
        matches!(self.shape, Shape::List(..) | Shape::Model(_))
    }

    /// What one text behind its option says. Of a list and of a model these are the parts.
    ///
    /// # Errors
    /// When it says nothing that the parameter could be. Bounds are seen to by whoever parses the fault.
    pub fn read(&self, text: &str) -> Result<Value, String> {
        match &self.shape {
            Shape::Number(_) if self.is_duration() => {
                let parts = if self.name.ends_with("_ms") { 1e3 } else { 1.0 };
                duration(text).map(|time| Value::from(time.as_secs_f64() * parts))
            }
            Shape::Number(_) | Shape::Whole(_) if self.name.ends_with("_mb") => {
                match typed::mebibytes(text) {
                    Some(size) => self.of_size(text, size?),
                    None => self.of_number(text),
                }
            }
            Shape::Number(_) | Shape::Whole(_) => self.of_number(text),
            Shape::Flag => Err("takes no value".to_owned()),
            Shape::Text(_) | Shape::Document(_) => Ok(Value::from(text)),
            Shape::List(..) => Ok(text.split(',').map(Value::from).collect()),
            Shape::Model(_) => text.split(',').map(number).collect(),
        }
    }

    fn of_number(&self, text: &str) -> Result<Value, String> {
        if !matches!(self.shape, Shape::Whole(_)) {
            return number(text);
        }
        let whole = text.parse::<u64>().ok().map(Value::from);
        whole.ok_or_else(|| format!("{text:?} is not a whole number from 0 on"))
    }

    /// A size in MiB, which may have to be a whole number of them.
    fn of_size(&self, text: &str, mebibytes: f64) -> Result<Value, String> {
        match &self.shape {
            Shape::Whole(_) if mebibytes.fract() != 0.0 => Err(format!("{text:?} is no whole number of MiB")),
            Shape::Whole(_) => self.of_number(&mebibytes.to_string()),
            _ => Ok(Value::from(mebibytes)),
        }
    }

    /// What it is when its option was given with these, each as [`Self::read`] has read it.
    ///
    /// # Errors
    /// When it cannot be that many.
    pub fn gathered(&self, given: Vec<Value>) -> Result<Value, String> {
        if !self.repeats() {
            return match <[Value; 1]>::try_from(given) {
                Ok([one]) => Ok(one),
                Err(_) => Err("given more than once".to_owned()),
            };
        }
        let all = given.into_iter().flat_map(|each| match each {
            Value::Array(parts) => parts,
            one => vec![one],
        });
        let Shape::Model(parts) = &self.shape else { return Ok(all.collect()) };
        let (numbers, names) = (all.collect::<Vec<_>>(), parts.iter().map(|part| part.name.as_str()));
        if numbers.len() > parts.len() {
            let (given, most, names) = (numbers.len(), parts.len(), names.collect::<Vec<_>>().join(","));
            return Err(format!("{given} numbers: give {most} at most ({names})"));
        }
        Ok(Value::Object(names.map(ToOwned::to_owned).zip(numbers).collect()))
    }
}

impl FaultType {
    /// The type of this name, which may be written with dashes.
    ///
    /// # Errors
    /// Names the known types.
    pub fn of_word(word: &str) -> Result<Self, SpecError> {
        let dashed = FAULT_TYPES.iter().find(|kind| kind.name().replace('_', "-") == word);
        dashed.map_or_else(|| Self::parse(word), |kind| Ok(*kind))
    }

    /// Its parameters, one for each option.
    pub fn options(self) -> Vec<Parameter> {
        let all = self.parameters();
        if all.iter().all(|parameter| parameter.resources.is_empty()) {
            return all.to_vec();
        }
        let plain = all.iter().filter(|parameter| parameter.resources.is_empty()).cloned();
        let of_resources =
            all.iter().flat_map(|each| each.resources.iter().map(move |resource| (*resource, each)));
        plain.chain(merged(of_resources)).collect()
    }
}

impl TargetRequest {
    /// Its fields, one for each option. Those that have no place in a type are understood all the same: the refusal says what the fault
    /// goes to.
    pub fn options() -> impl Iterator<Item = &'static Parameter> {
        Self::fields().iter().filter(|field| field.name != "cidr")
    }
}

/// A fault as options have said it.
#[derive(Debug, Clone)]
pub struct FaultOptions {
    /// Its type.
    pub fault_type: FaultType,
    /// `--name`
    pub name: Option<FaultName>,
    /// `--for`
    pub lasts: Option<Duration>,
    /// `--message`
    pub message: Option<String>,
    /// What was given of its target.
    pub target: Map<String, Value>,
    /// What was given of its parameters.
    pub params: Map<String, Value>,
}

impl FaultOptions {
    /// The request these options stand for; `probability` is rolled once per injection.
    ///
    /// # Errors
    /// Names the option that is missing or wrong.
    pub fn request(&self, probability: Probability) -> Result<FaultRequest, SpecError> {
        let target = TargetRequest::deserialize(&self.target);
        let request = FaultRequest {
            fault_type: self.fault_type,
            probability,
            duration_seconds: self.lasts.map(|lasts| lasts.as_secs_f64()),
            error_message: self.message.clone(),
            target: target.map_err(|error| SpecError::new("target", error.to_string()))?,
            params: self.params.clone(),
        };
        request.parse().map_err(as_option)?;
        Ok(request)
    }
}

/// The field of a request as the option that sets it.
pub fn as_option(mut error: SpecError) -> SpecError {
    let field = error.field.split('[').next().unwrap_or_default();
    let mut parts = field.split('.');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    // Of a model, the option is the whole.
    if let Some(number) = parts.next() {
        error.problem = format!("{number}: {}", error.problem);
    }
    let option = match second.unwrap_or(first) {
        "duration_seconds" => "for".to_owned(),
        "error_message" => "message".to_owned(),
        "params" | "target" => return error,
        other => {
            let mut all =
                FAULT_TYPES.iter().flat_map(|kind| kind.parameters()).chain(TargetRequest::fields());
            all.find(|known| known.name == other).map_or_else(|| other.replace('_', "-"), Parameter::option)
        }
    };
    error.field = format!("--{option}");
    error
}

/// A text of the daemon's with options in the place of fields: `params.delay_ms` is `--delay` to who has typed that.
pub fn with_options(text: &str) -> String {
    let mut told = String::new();
    let mut rest = text;
    while let Some(at) = ["params.", "target."].iter().filter_map(|object| rest.find(object)).min() {
        let (before, field) = rest.split_at(at);
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.');
        let end = field.find(|c| !is_of_name(c)).unwrap_or(field.len());
        let (field, after) = field.split_at(end);
        let (name, point) = field.split_at(field.trim_end_matches('.').len());
        let parts: Vec<_> = name.split('.').collect();
        let known = |wanted: &str| {
            let mut all =
                FAULT_TYPES.iter().flat_map(|kind| kind.parameters()).chain(TargetRequest::fields());
            all.find(|parameter| parameter.name == wanted).map(Parameter::option)
        };
        told.push_str(before);
        match parts.get(1).and_then(|name| known(name)) {
            Some(option) => {
                told.push_str(&format!("--{option}"));
                parts.iter().skip(2).for_each(|part| told.push_str(&format!(" {part}")));
            }
            None => told.push_str(name),
        }
        told.push_str(point);
        rest = after;
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_about_fields_is_told_by_options_and_other_words_stay() {
        for (text, told) in [
            ("params.leave_free_mb: 3 is less", "--leave-free-mb: 3 is less"),
            ("lower params.delay_ms, or target.cidrs.", "lower --delay, or --cidr."),
            (
                "target: no process; params.no_such_thing and a target.",
                "target: no process; params.no_such_thing and a target.",
            ),
            ("params.gilbert_elliott.p: 101", "--gilbert-elliott p: 101"),
        ] {
            assert_eq!(with_options(text), told);
        }
    }

    #[test]
    fn a_size_in_mebibytes_and_words_that_begin_with_dashes_are_read() {
        let options = FaultType::ResourceExhaustion.options();
        let of = |name: &str| options.iter().find(|each| each.name == name).unwrap();
        assert_eq!(of("memory_mb").read("1Gi").unwrap().as_f64(), Some(1024.0));
        assert!(of("memory_mb").read("1GB").unwrap_err().contains("1GiB"));
        assert!(of("memory_mb").read("much").unwrap_err().contains("number"));
        let command = TargetRequest::options().find(|field| field.name == "command").unwrap();
        assert!(command.takes().accepts("--defaults-file=x") && command.takes().accepts("-jar app.jar"));
    }

    #[test]
    fn a_duration_needs_a_unit_and_is_not_negative() {
        for (text, millis) in
            [("300ms", 300), ("3m", 180_000), ("1h 30m", 5_400_000), ("0.5s", 500), ("PT2S", 2000)]
        {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for bad in ["", "3", "-3s", "soon", "3 fortnights", "1e300s"] {
            assert!(duration(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
