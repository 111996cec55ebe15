//! `chaosctl inject` and `chaosctl targets`: each type of fault is a subcommand with the options of its own, which documents of
//! experiments have as well (`spec/options.rs`).

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde_json::{Map, Value};

use super::duration;
use crate::spec::options::Takes;
use crate::spec::parameter::{Unit, plain};
use crate::spec::trace::{period, shortened};
use crate::spec::{
    FAULT_TYPES, FaultName, FaultOptions, FaultType, GivenName, Owner, Parameter, Shape, SpecError,
    TargetRequest,
};

/// The largest file that is read for an option, in bytes.
const LARGEST_FILE: u64 = 16 << 20;

/// A fault, and what a command takes beside it.
#[derive(Debug, Clone)]
pub(super) struct OfFault<More> {
    pub(super) fault: FaultOptions,
    /// Whose it is, where its name says so.
    pub(super) owner: Option<Owner>,
    pub(super) more: More,
}

/// What every fault takes, whatever its type.
#[derive(Debug, Clone, Args)]
struct Common {
    /// Name for the fault, for an admin also 1001/NAME for that of another user [default: its type and four random digits]
    #[arg(long, value_parser = |text: &str| GivenName::parse(text))]
    name: Option<GivenName>,
    /// How long the fault lasts before it ends by itself, e.g. 3m [default: 1m]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    lasts: Option<Duration>,
    /// Text reported when an error or timeout fault is injected
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
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
    let target = TargetRequest::options().map(|field| {
        option("target", field).hide(!fields.contains(&field.name.as_str())).help_heading("Target")
    });
    let effects =
        kind.options().into_iter().map(|parameter| option("params", &parameter).help_heading("Effect"));
    // Last, since options that were derived bring a sentence of their own.
    More::augment_args(Common::augment_args(command.args(effects).args(target))).about(kind.summary())
}

/// The option that sets a field of this object.
fn option(object: &str, parameter: &Parameter) -> Arg {
    let arg = Arg::new(format!("{object}.{}", parameter.name)).long(parameter.option()).help(help(parameter));
    let arg = match parameter.takes() {
        Takes::Nothing => return arg.action(ArgAction::SetTrue),
        Takes::Text => arg,
        Takes::Number => arg.allow_negative_numbers(true),
        Takes::Anything => arg.allow_hyphen_values(true),
    };
    let arg = if parameter.repeats() { arg.action(ArgAction::Append) } else { arg };
    arg.value_name(value_name(parameter)).value_parser(Reads(parameter.clone()))
}

/// What the help calls a value of it.
fn value_name(parameter: &Parameter) -> String {
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
        Shape::Number(_) if parameter.is_duration() => "DURATION".to_owned(),
        Shape::Number(_) | Shape::Whole(_) => of_number.to_owned(),
        Shape::Model(parts) => {
            parts.iter().map(|part| part.name.to_uppercase()).collect::<Vec<_>>().join(",")
        }
        Shape::Document(_) => "@FILE|TEXT".to_owned(),
        Shape::Flag | Shape::Text(_) | Shape::List(..) => word_name(&parameter.name),
    }
}

fn word_name(name: &str) -> String {
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

/// Reads a value as documents do. Words are there to be completed: others are left to the parser of the fault, which knows other names of
/// theirs.
#[derive(Debug, Clone)]
struct Reads(Parameter);

impl TypedValueParser for Reads {
    type Value = Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Value, clap::Error> {
        let parameter = self.0.clone();
        (move |text: &str| parameter.read(text)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let (Shape::Text(words) | Shape::List(words, _)) = &self.0.shape else { return None };
        let known = words.iter().map(|word| PossibleValue::new(word.clone()));
        (!words.is_empty()).then(|| Box::new(known) as Box<dyn Iterator<Item = PossibleValue>>)
    }
}

impl<More: Args> FromArgMatches for OfFault<More> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::raw(ErrorKind::MissingSubcommand, "name a type of fault\n");
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let usage = |error: SpecError| clap::Error::raw(ErrorKind::ValueValidation, format!("{error}\n"));
        let fault_type = FaultType::parse(name).map_err(usage)?;
        let Common { name, lasts, message } = Common::from_arg_matches(matches)?;
        let target = given("target", TargetRequest::options(), matches).map_err(usage)?;
        let params = given("params", fault_type.options().iter(), matches).map_err(usage)?;
        let (owner, name) = name.map_or((None, None), |given| (given.owner, Some(given.name)));
        let fault = FaultOptions { fault_type, name, target, params, lasts, message };
        Ok(Self { fault, owner, more: More::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What was given of an object, by the names of its fields.
fn given<'a>(
    object: &str,
    fields: impl Iterator<Item = &'a Parameter>,
    matches: &ArgMatches,
) -> Result<Map<String, Value>, SpecError> {
    let mut all = Map::new();
    for field in fields {
        let id = format!("{object}.{}", field.name);
        let given: Vec<Value> = match field.takes() {
            Takes::Nothing => matches.get_flag(&id).then_some(Value::Bool(true)).into_iter().collect(),
            _ => matches.get_many(&id).into_iter().flatten().cloned().collect(),
        };
        if !given.is_empty() {
            let wrong = |problem| SpecError::new(format!("--{}", field.option()), problem);
            all.insert(field.name.clone(), field.gathered(given).map_err(wrong)?);
        }
    }
    Ok(all)
}

/// A fault with the files read that are named instead of long texts, as whoever runs this process. Nobody else may call it: the same
/// options stand in documents of others.
///
/// # Errors
/// Names the option, and the file that cannot be read or is too long.
pub(super) fn with_files(mut fault: FaultOptions) -> Result<FaultOptions, SpecError> {
    let period = period(&fault.params);
    for parameter in fault.fault_type.options() {
        if let Shape::Document(most) = parameter.shape
            && let Some(Value::String(text)) = fault.params.get_mut(&parameter.name)
            && let Some(path) = text.strip_prefix('@')
        {
            let wrong = |problem| SpecError::new(format!("--{}", parameter.option()), problem);
            *text = file(path, most, period).map_err(wrong)?;
        }
    }
    Ok(fault)
}

/// The text in a file of at most so many bytes. A longer one is a trace that is shortened, with its period.
fn file(path: &str, most: u64, period: Option<Duration>) -> Result<String, String> {
    let unreadable = |error| format!("{path} cannot be read: {error}");
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text))
        .map_err(unreadable)?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(format!("{path} has more than {} MiB", LARGEST_FILE >> 20));
    }
    let fits = |text: &String| text.len() as u64 <= most;
    if fits(&text) {
        return Ok(text);
    }
    let too_long = || format!("{path} has {} bytes: {most} is the most", text.len());
    shortened(&text, period).filter(fits).ok_or_else(too_long)
}

/// The name given, or one made up.
///
/// # Errors
/// Never for the types there are.
pub(super) fn name(fault: &FaultOptions) -> Result<FaultName, SpecError> {
    match &fault.name {
        Some(name) => Ok(name.clone()),
        None => FaultName::new(format!("{}-{:04x}", fault.fault_type.name(), rand::random::<u16>())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::options::as_option;
    use crate::spec::{FaultRequest, Probability};

    #[derive(Debug, Clone, Args)]
    struct Nothing {}

    fn parsed(words: &[&str]) -> Result<FaultOptions, String> {
        let command = OfFault::<Nothing>::augment_subcommands(Command::new("inject").no_binary_name(true));
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        let args = OfFault::<Nothing>::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        Ok(args.fault)
    }

    fn read(words: &[&str]) -> Result<FaultRequest, String> {
        parsed(words)?.request(Probability::CERTAIN).map_err(|error| error.to_string())
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

    #[test]
    fn a_long_text_is_read_from_a_file_where_that_is_asked_for_and_its_option_is_named_where_it_cannot_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("up");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let option = format!("@{}", path.display());
            let words = ["link-profile", "--interface", "eth0", "--up-trace", option.as_str()];
            assert!(read(&words).unwrap_err().contains("read a @FILE"));
            with_files(parsed(&words).unwrap())
        };
        let csv = "time_s,rate_kbit\n0,8\n1,9";
        assert_eq!(read(csv).unwrap().params["up_trace"], csv);
        let deliveries: String = (1..=60_000).map(|ms| format!("{ms}\n")).collect();
        let short = read(&deliveries).unwrap();
        assert!(short.params["up_trace"].as_str().unwrap().starts_with("time_s,rate_kbit\n0.000,12112\n"));
        let error = read(&format!("{csv}{}", "#".repeat(1 << 16))).unwrap_err().to_string();
        assert!(error.starts_with("--up-trace: ") && error.contains("65536 is the most"), "{error}");
        let missing = ["link-profile", "--interface", "eth0", "--up-trace", "@/no/such"];
        let error = with_files(parsed(&missing).unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("--up-trace: /no/such cannot be read: "), "{error}");
    }
}
