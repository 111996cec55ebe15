//! The options that describe a fault: one grammar for `chaosctl inject`, experiments and agents. Each type of fault is a subcommand
//! with the options of its own, which are its parameters ([`FaultType::parameters`]) and the fields of its target.

use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand, value_parser};
use serde_json::{Map, Value};

use super::duration;
use crate::spec::parameter::{Unit, merged, plain};
use crate::spec::units::Probability;
use crate::spec::{
    FAULT_TYPES, FaultName, FaultRequest, FaultType, Parameter, Shape, SpecError, TargetRequest,
};

/// A fault, where it goes and how long it lasts.
#[derive(Debug, Clone)]
pub(super) struct FaultArgs {
    fault_type: FaultType,
    pub(super) name: Option<FaultName>,
    target: Map<String, Value>,
    params: Map<String, Value>,
    lasts: Option<Duration>,
    message: Option<String>,
}

/// A fault, and what a command takes beside it.
#[derive(Debug, Clone)]
pub(super) struct OfFault<More> {
    pub(super) fault: FaultArgs,
    pub(super) more: More,
}

/// What every fault takes, whatever its type.
#[derive(Debug, Clone, Args)]
struct Common {
    /// Name for the fault [default: its type and four random digits]
    #[arg(long, value_parser = |text: &str| FaultName::new(text))]
    name: Option<FaultName>,
    /// How long the fault lasts before it ends by itself, e.g. 3m [default: 1m]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    lasts: Option<Duration>,
    /// Text reported when an error or timeout fault is injected
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

/// The parameters of a type, one for each option.
fn effects(kind: FaultType) -> Vec<Parameter> {
    let all = kind.parameters();
    if all.iter().all(|parameter| parameter.resources.is_empty()) {
        return all.to_vec();
    }
    let plain = all.iter().filter(|parameter| parameter.resources.is_empty()).cloned();
    let of_resources =
        all.iter().flat_map(|each| each.resources.iter().map(move |resource| (*resource, each)));
    plain.chain(merged(of_resources)).collect()
}

impl<More: Args> Subcommand for OfFault<More> {
    fn augment_subcommands(command: Command) -> Command {
        // Of a type that is not known the error names those that are: see `from_arg_matches`.
        let command = command.allow_external_subcommands(true);
        let command = command.subcommand_value_name("TYPE").subcommand_help_heading("Types of fault");
        FAULT_TYPES.iter().fold(command, |command, kind| command.subcommand(of_kind::<More>(*kind)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        FaultType::parse(&name.replace('-', "_")).is_ok()
    }
}

/// The subcommand of a type.
fn of_kind<More: Args>(kind: FaultType) -> Command {
    let command = Command::new(kind.name());
    let command = match kind.name().replace('_', "-") {
        dashed if dashed == kind.name() => command,
        dashed => command.alias(dashed),
    };
    let fields = kind.target_fields();
    // What has no place in it is understood all the same: the refusal says what the fault goes to.
    let target = TargetRequest::fields().iter().filter(|field| field.name != "cidr").map(|field| {
        option("target", field).hide(!fields.contains(&field.name.as_str())).help_heading("Target")
    });
    let effects =
        effects(kind).into_iter().map(|parameter| option("params", &parameter).help_heading("Effect"));
    // Last, since options that were derived bring a sentence of their own.
    More::augment_args(Common::augment_args(command.args(effects).args(target))).about(kind.summary())
}

/// The name of the option for a field of this object.
fn option_name(parameter: &Parameter) -> String {
    match parameter.name.as_str() {
        "cidrs" => "cidr".to_owned(),
        _ => parameter.option(),
    }
}

/// The option that sets a field of this object.
fn option(object: &str, parameter: &Parameter) -> Arg {
    let name = option_name(parameter);
    let arg = Arg::new(format!("{object}.{}", parameter.name)).long(name).help(help(parameter));
    let unit = Unit::of(&parameter.name).map(|unit| unit.plural);
    let of_number = match unit {
        Some("percent") => "PERCENT",
        Some("seconds") => "SECONDS",
        Some("MiB") => "MIB",
        Some("kbit/s") => "KBIT",
        Some(_) => "PER_SECOND",
        None => "NUMBER",
    };
    match &parameter.shape {
        Shape::Number(_) if parameter.is_duration() => {
            arg.value_name("DURATION").value_parser(duration::parse).allow_hyphen_values(true)
        }
        Shape::Number(_) => {
            arg.value_name(of_number).value_parser(value_parser!(f64)).allow_negative_numbers(true)
        }
        Shape::Whole(_) => arg.value_name(of_number).value_parser(value_parser!(u64)),
        Shape::Flag => arg.action(ArgAction::SetTrue),
        Shape::Text(words) => arg.value_name(value_name(&parameter.name)).value_parser(Words(words.clone())),
        Shape::List(words, _) => {
            let arg = arg.value_name(value_name(&parameter.name)).action(ArgAction::Append);
            arg.value_delimiter(',').value_parser(Words(words.clone()))
        }
        Shape::Model(parts) => {
            let names: Vec<_> = parts.iter().map(|part| part.name.to_uppercase()).collect();
            let arg = arg.value_name(names.join(",")).value_delimiter(',').action(ArgAction::Append);
            arg.value_parser(value_parser!(f64)).allow_negative_numbers(true)
        }
    }
}

fn value_name(name: &str) -> String {
    match name {
        "interface" => "IFACE".to_owned(),
        "command" | "below" => "REGEX".to_owned(),
        "exe" | "cgroup" => "PATH".to_owned(),
        "container" => "ID".to_owned(),
        "netns" => "NAME|PATH".to_owned(),
        "cidrs" => "PREFIX".to_owned(),
        other => other.to_uppercase(),
    }
}

/// What the option means, without a point at the end, with its bounds and its default.
fn help(parameter: &Parameter) -> String {
    let unit = Unit::of(&parameter.name).map(|unit| format!(" {}", unit.symbol)).unwrap_or_default();
    let range = match &parameter.shape {
        Shape::Number(_) | Shape::Whole(_) => parameter.range().map(|range| format!(" [{range}{unit}]")),
        _ => None,
    };
    let default = match (&parameter.shape, &parameter.default) {
        (Shape::Flag, _) | (_, None) => None,
        (_, Some(value)) if parameter.is_duration() => {
            Some(format!(" [default: {}{}]", plain(value), unit.trim()))
        }
        (_, Some(value)) => Some(format!(" [default: {}]", plain(value))),
    };
    let sentence = parameter.sentence.trim_end_matches('.');
    format!("{sentence}{}{}", range.unwrap_or_default(), default.unwrap_or_default())
}

/// Words that can be completed. Others are left to the parser of the fault, which knows other names of theirs.
#[derive(Debug, Clone)]
struct Words(Vec<String>);

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = self.0.iter().map(|word| PossibleValue::new(word.clone()));
        (!self.0.is_empty()).then(|| Box::new(words) as Box<dyn Iterator<Item = PossibleValue>>)
    }
}

impl<More: Args> FromArgMatches for OfFault<More> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::raw(ErrorKind::MissingSubcommand, "name a type of fault\n");
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let usage = |error: SpecError| clap::Error::raw(ErrorKind::ValueValidation, format!("{error}\n"));
        let fault_type = FaultType::parse(name).map_err(usage)?;
        let Common { name, lasts, message } = Common::from_arg_matches(matches)?;
        let target = given("target", TargetRequest::fields(), matches).map_err(usage)?;
        let params = given("params", &effects(fault_type), matches).map_err(usage)?;
        let fault = FaultArgs { fault_type, name, target, params, lasts, message };
        Ok(Self { fault, more: More::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What was given of an object, by the names of its fields.
fn given(object: &str, fields: &[Parameter], matches: &ArgMatches) -> Result<Map<String, Value>, SpecError> {
    let mut all = Map::new();
    for field in fields.iter().filter(|field| (object, field.name.as_str()) != ("target", "cidr")) {
        if let Some(value) = value(&format!("{object}.{}", field.name), field, matches)? {
            all.insert(field.name.clone(), value);
        }
    }
    Ok(all)
}

fn value(id: &str, parameter: &Parameter, matches: &ArgMatches) -> Result<Option<Value>, SpecError> {
    Ok(match &parameter.shape {
        Shape::Number(_) if parameter.is_duration() => {
            let parts = if parameter.name.ends_with("_ms") { 1e3 } else { 1.0 };
            matches.get_one::<Duration>(id).map(|time| Value::from(time.as_secs_f64() * parts))
        }
        Shape::Number(_) => matches.get_one::<f64>(id).copied().map(Value::from),
        Shape::Whole(_) => matches.get_one::<u64>(id).copied().map(Value::from),
        Shape::Flag => matches.get_flag(id).then_some(Value::Bool(true)),
        Shape::Text(_) => matches.get_one::<String>(id).cloned().map(Value::from),
        Shape::List(..) => {
            matches.get_many::<String>(id).map(|words| words.cloned().map(Value::from).collect())
        }
        Shape::Model(parts) => {
            let numbers: Vec<f64> = matches.get_many(id).into_iter().flatten().copied().collect();
            let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
            if numbers.len() > names.len() {
                let problem =
                    format!("{} numbers: give {} at most ({})", numbers.len(), names.len(), names.join(","));
                return Err(SpecError::new(format!("--{}", parameter.option()), problem));
            }
            let fields: Map<_, _> = names
                .into_iter()
                .zip(numbers)
                .map(|(name, number)| (name.to_owned(), number.into()))
                .collect();
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
    })
}

impl FaultArgs {
    /// The request these options stand for; `probability` is rolled once per injection.
    ///
    /// # Errors
    /// Names the option that is missing or wrong.
    pub(super) fn request(&self, probability: Probability) -> Result<FaultRequest, SpecError> {
        let target = serde_json::from_value(Value::Object(self.target.clone()));
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

    /// The name given, or one made up.
    ///
    /// # Errors
    /// Never for the types there are.
    pub(super) fn name(&self) -> Result<FaultName, SpecError> {
        match &self.name {
            Some(name) => Ok(name.clone()),
            None => FaultName::new(format!("{}-{:04x}", self.fault_type.name(), rand::random::<u16>())),
        }
    }
}

/// The field of a request as the option that sets it.
pub(super) fn as_option(mut error: SpecError) -> SpecError {
    let field = error.field.split('[').next().unwrap_or_default();
    let mut parts = field.split('.');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    // Of a model, the option is the whole.
    if let Some(number) = parts.next() {
        error.problem = format!("{number}: {}", error.problem);
    }
    let option = match second.unwrap_or(first) {
        "cidrs" => "cidr".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Args)]
    struct Nothing {}

    fn read(words: &[&str]) -> Result<FaultRequest, String> {
        let command = OfFault::<Nothing>::augment_subcommands(Command::new("inject").no_binary_name(true));
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        let args = OfFault::<Nothing>::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        args.fault.request(Probability::CERTAIN).map_err(|error| error.to_string())
    }

    #[test]
    fn every_type_has_an_option_for_each_parameter_and_an_error_about_it_names_the_option() {
        for kind in FAULT_TYPES {
            let command = of_kind::<Nothing>(*kind);
            command.clone().debug_assert();
            for parameter in kind.parameters() {
                let error = as_option(SpecError::new(format!("params.{}", parameter.name), "wrong"));
                let known = command
                    .get_arguments()
                    .filter_map(Arg::get_long)
                    .any(|long| format!("--{long}") == error.field);
                assert!(known, "{}: no option {}", kind.name(), error.field);
            }
        }
    }

    #[test]
    fn what_is_given_with_a_unit_and_a_number_arrives_as_the_parameter_has_it() {
        let request = read(&[
            "latency",
            "--interface",
            "eth0",
            "--delay",
            "1.5s",
            "--jitter",
            "20ms",
            "--names",
            "a.b,*.c",
        ]);
        let request = request.unwrap();
        let params = serde_json::json!({"delay_ms": 1500.0, "jitter_ms": 20.0, "names": ["a.b", "*.c"]});
        assert_eq!(Value::Object(request.params), params);
        let model = read(&["packet-loss", "--interface", "eth0", "--four-state", "1,2,3"]).unwrap();
        assert_eq!(
            Value::Object(model.params),
            serde_json::json!({"four_state": {"p13": 1.0, "p31": 2.0, "p32": 3.0}})
        );
        let peers = read(&[
            "timeout",
            "--interface",
            "eth0",
            "--cidr",
            "10.0.0.1",
            "--cidr",
            "::1",
            "--port",
            "80-90",
        ]);
        assert_eq!(peers.unwrap().target.cidrs, ["10.0.0.1", "::1"]);
    }

    #[test]
    fn an_option_of_another_type_and_a_value_out_of_bounds_are_refused_by_the_option() {
        let refused = read(&["latency", "--interface", "eth0", "--cpu-percent", "5"]).unwrap_err();
        assert!(refused.contains("unexpected argument '--cpu-percent'"), "{refused}");
        let refused =
            read(&["packet_loss", "--interface", "eth0", "--gilbert-elliott", "101,1"]).unwrap_err();
        assert_eq!(refused, "--gilbert-elliott: p: 101 is out of bounds: give 0 to 100");
        let refused = read(&["pause", "--unit", "a.service", "--interface", "eth0"]).unwrap_err();
        assert!(refused.contains("this fault goes to a cgroup"), "{refused}");
    }
}
