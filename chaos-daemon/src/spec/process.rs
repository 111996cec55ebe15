//! Faults that aim at processes: which ones, what share of them, and what is done to them how often.

use std::str::FromStr;
use std::time::Duration;

use nix::sys::signal::Signal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cgroup::{self, CgroupSelector};
use super::command::CommandPattern;
use super::share::Share;
use super::target::TargetRequest;
use super::units::{LONGEST_FAULT, SpecError, millis, time};

/// The most volleys of one `process_kill`.
const MOST_VOLLEYS: u32 = 10_000;
/// How long after a volley the next one comes when nobody says.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// Signals after which a process stands still until somebody continues it: nothing would end that.
const STOPPING: &[Signal] = &[Signal::SIGSTOP, Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// Which processes, as a caller selects them. Every field narrows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSelector {
    /// This one.
    pub pid: Option<i32>,
    /// Those of a control group, and of those below it.
    pub cgroup: Option<CgroupSelector>,
    /// Those that run this program, by its absolute path.
    pub exe: Option<String>,
    /// Those whose command line matches.
    pub command: Option<CommandPattern>,
    /// Those below a process whose command line matches: its children, theirs, and so on.
    pub below: Option<CommandPattern>,
    /// Those of a container, by its id or the beginning of it.
    pub container: Option<String>,
    /// What share of them.
    pub share: Share,
    /// Which of them: the same seed chooses the same ones.
    pub seed: u64,
}

/// Whose packets, calls or resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whose {
    /// Those of a control group, and of those below it.
    Cgroup(CgroupSelector),
    /// Those of processes, which must have a network namespace or a control group of their own.
    Processes(ProcessSelector),
}

impl Whose {
    /// Whom a target names, whatever it names beside them; `None` when it names nobody.
    pub(super) fn parse(target: &TargetRequest) -> Result<Option<Self>, SpecError> {
        for (field, given) in
            [("target.share", target.share.is_some()), ("target.seed", target.seed.is_some())]
        {
            if given {
                return Err(SpecError::new(
                    field,
                    "this fault is of all processes of a service or cgroup: leave it out",
                ));
            }
        }
        if target.names_processes() {
            let alone = whose(target, TargetRequest::default());
            return Ok(Some(Self::Processes(ProcessSelector::parse(&alone)?)));
        }
        match target.unit.is_some() || target.cgroup.is_some() {
            true => Ok(Some(Self::Cgroup(cgroup::of(target)?))),
            false => Ok(None),
        }
    }

    /// The service or the processes that a target names, and nothing beside them but what `others` has; `problem` says why.
    ///
    /// # Errors
    /// When it names nobody, or more.
    pub(super) fn alone(
        target: &TargetRequest,
        others: TargetRequest,
        problem: &str,
    ) -> Result<Self, SpecError> {
        let found = Self::parse(target)?.ok_or_else(Self::missing)?;
        if whose(target, others) == *target { Ok(found) } else { Err(SpecError::new("target", problem)) }
    }

    /// Why nobody is not a target.
    pub(super) fn missing() -> SpecError {
        let problem = "missing: name a cgroup by its path, a unit by target.unit, or processes";
        SpecError::new("target.cgroup", problem)
    }
}

/// What a target says of whose packets, calls or resources; the rest as in `others`.
fn whose(target: &TargetRequest, others: TargetRequest) -> TargetRequest {
    let TargetRequest { pid, exe, command, below, container, unit, cgroup, .. } = target.clone();
    TargetRequest { pid, exe, command, below, container, unit, cgroup, ..others }
}

impl ProcessSelector {
    /// The processes that a target names, and nothing beside them.
    ///
    /// # Errors
    /// Names the field that is missing, wrong, or of other faults.
    pub fn parse(target: &TargetRequest) -> Result<Self, SpecError> {
        let alone = TargetRequest {
            pid: None,
            cgroup: None,
            unit: None,
            exe: None,
            command: None,
            below: None,
            container: None,
            share: None,
            seed: None,
            ..target.clone()
        };
        if alone != TargetRequest::default() {
            let problem = "this fault goes to processes: give unit, cgroup, exe, command, below, container or pid, and share";
            return Err(SpecError::new("target", problem));
        }
        let named = target.cgroup.is_some() || target.unit.is_some();
        let pattern = |field: &str, text: &Option<String>| {
            text.as_ref().map(|text| CommandPattern::parse(field, text)).transpose()
        };
        let selector = Self {
            pid: target.pid.map(pid).transpose()?,
            cgroup: named.then(|| cgroup::of(target)).transpose()?,
            exe: target.exe.clone().map(exe).transpose()?,
            command: pattern("target.command", &target.command)?,
            below: pattern("target.below", &target.below)?,
            container: target.container.clone().map(container).transpose()?,
            share: target.share.unwrap_or(Share::ALL),
            seed: target.seed.unwrap_or_default(),
        };
        match named || target.names_processes() {
            true => Ok(selector),
            false => Err(SpecError::new(
                "target.unit",
                "missing: name processes by unit, cgroup, exe, command, below, container or pid",
            )),
        }
    }
}

impl std::fmt::Display for ProcessSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = Vec::new();
        words.extend(self.pid.map(|pid| format!("pid {pid}")));
        words.extend(self.cgroup.as_ref().map(|cgroup| match cgroup {
            CgroupSelector::Path(path) => format!("cgroup {path}"),
            CgroupSelector::Unit(unit) => format!("unit {unit}"),
        }));
        words.extend(self.exe.as_ref().map(|exe| format!("exe {exe}")));
        words.extend(self.command.as_ref().map(|command| format!("command {:?}", command.as_str())));
        words.extend(self.below.as_ref().map(|below| format!("below {:?}", below.as_str())));
        words.extend(self.container.as_ref().map(|container| format!("container {container}")));
        f.write_str(&words.join(", "))
    }
}

fn pid(pid: u32) -> Result<i32, SpecError> {
    match i32::try_from(pid) {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(SpecError::new("target.pid", format!("{pid} is not a process id"))),
    }
}

fn exe(path: String) -> Result<String, SpecError> {
    match path.starts_with('/') && path.len() < 4096 && !path.contains('\0') {
        true => Ok(path),
        false => {
            let problem = format!("{path:?} is not an absolute path: give e.g. \"/usr/sbin/nginx\"");
            Err(SpecError::new("target.exe", problem))
        }
    }
}

/// Container engines name control groups after the id, which has 64 hexadecimal digits, and show the first 12.
fn container(id: String) -> Result<String, SpecError> {
    let digits = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match digits && (12..=64).contains(&id.len()) {
        true => Ok(id),
        false => {
            let problem =
                format!("{id:?} is not a container id: give its first 12 digits or more, not its name");
            Err(SpecError::new("target.container", problem))
        }
    }
}

/// What `process_kill` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volleys {
    /// Number of the signal (signal(7)).
    pub signal: i32,
    /// How often.
    pub times: u32,
    /// How long after one volley the next one comes.
    pub interval: Duration,
    /// Uniform variation of the interval, either way.
    pub jitter: Duration,
}

impl Volleys {
    /// The signal's name.
    pub fn signal_name(&self) -> &'static str {
        signal_name(self.signal)
    }
}

/// The name of the signal of this number.
pub fn signal_name(number: i32) -> &'static str {
    Signal::try_from(number).map_or("a signal", Signal::as_str)
}

/// How `process_pause` alternates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rhythm {
    /// How long the processes stand still.
    pub pause: Duration,
    /// How long they run in between.
    pub run: Duration,
    /// Uniform variation of both, either way.
    pub jitter: Duration,
}

/// What `process_kill` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct KillParams {
    /// Name of the signal, e.g. SIGTERM.
    #[serde(default = "sigkill")]
    signal: String,
    /// How often, each time to those that match then.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = MOST_VOLLEYS))]
    times: u32,
    /// Time between two volleys; 5 unless it is given.
    #[schemars(range(min = 0.1, max = LONGEST_FAULT.as_secs_f64()))]
    interval_seconds: Option<f64>,
    /// Variation of the interval, either way.
    #[schemars(range(min = 0.0, max = LONGEST_FAULT.as_secs_f64() * 1e3))]
    jitter_ms: Option<f64>,
}

fn sigkill() -> String {
    Signal::SIGKILL.to_string()
}

fn once() -> u32 {
    1
}

impl KillParams {
    pub(super) fn volleys(&self) -> Result<Volleys, SpecError> {
        let times = self.times;
        if times == 1 {
            for (field, given) in [
                ("params.interval_seconds", self.interval_seconds.is_some()),
                ("params.jitter_ms", self.jitter_ms.is_some()),
            ] {
                if given {
                    return Err(SpecError::new(field, "belongs to repeats: give params.times above 1"));
                }
            }
        }
        let interval = self.interval_seconds.map_or(DEFAULT_INTERVAL, Duration::from_secs_f64);
        let jitter = jitter(self.jitter_ms, interval)?;
        Ok(Volleys { signal: signal(&self.signal)?, times, interval, jitter })
    }
}

/// The number of the signal of this name, which may lack its `SIG`, or of this number.
///
/// # Errors
/// When there is none, or it would leave processes standing still.
pub(super) fn signal(name: &str) -> Result<i32, SpecError> {
    let upper = name.to_ascii_uppercase();
    let long = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    let named = match name.parse::<i32>() {
        Ok(number) => Signal::try_from(number),
        Err(_) => Signal::from_str(&long),
    };
    match named {
        Ok(stopping) if STOPPING.contains(&stopping) => Err(SpecError::new(
            "params.signal",
            format!(
                "{stopping} would leave processes standing still for ever: use process_pause, which ends"
            ),
        )),
        Ok(signal) => Ok(signal as i32),
        Err(_) => {
            let problem =
                format!("{name:?} is not a signal: give e.g. \"SIGKILL\", \"SIGTERM\" or \"SIGHUP\"");
            Err(SpecError::new("params.signal", problem))
        }
    }
}

/// What `process_pause` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PauseParams {
    /// How long they stand still, in a rhythm; all the time unless it is given.
    #[schemars(range(min = 1.0, max = 60_000.0))]
    pause_ms: Option<f64>,
    /// How long they run in between.
    #[schemars(range(min = 1.0, max = 60_000.0))]
    run_ms: Option<f64>,
    /// Variation of both, either way.
    #[schemars(range(min = 0.0, max = 60_000.0))]
    jitter_ms: Option<f64>,
}

impl PauseParams {
    /// `None` when the processes stand still all the time.
    pub(super) fn rhythm(&self) -> Result<Option<Rhythm>, SpecError> {
        let need = |field: &str| SpecError::new(field, "missing: pause_ms and run_ms belong together");
        match (self.pause_ms, self.run_ms) {
            (None, None) if self.jitter_ms.is_some() => {
                Err(SpecError::new("params.jitter_ms", "belongs to pause_ms and run_ms: give those as well"))
            }
            (None, None) => Ok(None),
            (Some(_), None) => Err(need("params.run_ms")),
            (None, Some(_)) => Err(need("params.pause_ms")),
            (Some(pause), Some(run)) => {
                let (pause, run) = (time(pause), time(run));
                Ok(Some(Rhythm { pause, run, jitter: jitter(self.jitter_ms, pause.min(run))? }))
            }
        }
    }
}

/// A variation of at most so much; none is none.
pub(super) fn jitter(value: Option<f64>, most: Duration) -> Result<Duration, SpecError> {
    value.map_or(Ok(Duration::ZERO), |value| millis("params.jitter_ms", value, Duration::ZERO, most))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::FaultType;
    use crate::spec::effect::Effect;
    use crate::spec::fault;

    /// What a fault of process 7 does, with these parameters.
    fn of(kind: FaultType, params: serde_json::Value) -> Result<Effect, SpecError> {
        fault::tests::parse(kind, r#"{"pid":7}"#, params).map(|fault| fault.effect)
    }

    fn selector(target: serde_json::Value) -> Result<ProcessSelector, SpecError> {
        let target: TargetRequest =
            serde_json::from_value(target).map_err(|error| SpecError::new("target", error.to_string()))?;
        ProcessSelector::parse(&target)
    }

    #[test]
    fn processes_are_named_by_something_and_by_nothing_of_a_network() {
        let all =
            selector(json!({"unit": "a.service", "command": "--shard=[0-9]+", "share": "25%", "seed": 7}));
        let all = all.unwrap();
        assert_eq!(all.to_string(), "unit a.service, command \"--shard=[0-9]+\"");
        assert_eq!((all.share.fraction(), all.seed), (0.25, 7));
        for (target, words) in [
            (json!({"below": "agent"}), "below \"agent\""),
            (json!({"below": "agent", "command": "mcp"}), "command \"mcp\", below \"agent\""),
        ] {
            let selector = selector(target).unwrap();
            assert_eq!(selector.to_string(), words);
            let text = serde_json::to_string(&selector).unwrap();
            assert_eq!(serde_json::from_str::<ProcessSelector>(&text).unwrap(), selector);
        }
        for (bad, field) in [
            (json!({}), "target.unit"),
            (json!({"share": 0.5}), "target.unit"),
            (json!({"pid": 0}), "target.pid"),
            (json!({"pid": 3_000_000_000_u32}), "target.pid"),
            (json!({"exe": "nginx"}), "target.exe"),
            (json!({"command": ""}), "target.command"),
            (json!({"command": "("}), "target.command"),
            (json!({"below": ""}), "target.below"),
            (json!({"command": "a", "below": "("}), "target.below"),
            (json!({"below": "(a{0,99}){0,99}b"}), "target.below"),
            (json!({"container": "web"}), "target.container"),
            (json!({"unit": "a.service", "cgroup": "b"}), "target.cgroup"),
            (json!({"pid": 5, "interface": "eth0"}), "target"),
            (json!({"pid": 5, "share": 0}), "target"),
            (json!({"pid": 5, "share": 25}), "target"),
            (json!({"pid": 5, "share": "101%"}), "target"),
        ] {
            assert_eq!(selector(bad.clone()).unwrap_err().field, field, "{bad}");
        }
    }

    #[test]
    fn a_signal_that_only_stops_is_refused_with_what_to_use() {
        let parse = |params| match of(FaultType::ProcessKill, params)? {
            Effect::ProcessKill { volleys, .. } => Ok::<_, SpecError>(volleys),
            other => panic!("{other:?}"),
        };
        assert_eq!(parse(json!({})).unwrap().signal_name(), "SIGKILL");
        let repeated = parse(json!({"signal": "term", "times": 3, "interval_seconds": 2, "jitter_ms": 500}));
        let repeated = repeated.unwrap();
        assert_eq!((repeated.signal_name(), repeated.times), ("SIGTERM", 3));
        assert_eq!(parse(json!({"signal": "9"})).unwrap().signal_name(), "SIGKILL");
        for stops in ["SIGSTOP", "19"] {
            let refused = parse(json!({"signal": stops})).unwrap_err().problem;
            assert!(refused.contains("SIGSTOP") && refused.contains("process_pause"), "{refused}");
        }
        for (bad, field) in [
            (json!({"signal": "SIGBANG"}), "params.signal"),
            (json!({"times": 0}), "params.times"),
            (json!({"interval_seconds": 1}), "params.interval_seconds"),
            (json!({"times": 2, "interval_seconds": 0}), "params.interval_seconds"),
            (json!({"times": 2, "interval_seconds": 1, "jitter_ms": 1001}), "params.jitter_ms"),
        ] {
            assert_eq!(parse(bad.clone()).unwrap_err().field, field, "{bad}");
        }
    }

    #[test]
    fn a_rhythm_has_both_parts_or_none() {
        let parse = |params| match of(FaultType::ProcessPause, params)? {
            Effect::ProcessPause { rhythm, .. } => Ok::<_, SpecError>(rhythm),
            other => panic!("{other:?}"),
        };
        assert_eq!(parse(json!({})).unwrap(), None);
        assert!(parse(json!({"pause_ms": 50, "run_ms": 100, "jitter_ms": 20})).unwrap().is_some());
        for (bad, field) in [
            (json!({"pause_ms": 50}), "params.run_ms"),
            (json!({"run_ms": 50}), "params.pause_ms"),
            (json!({"jitter_ms": 5}), "params.jitter_ms"),
            (json!({"pause_ms": 50, "run_ms": 10, "jitter_ms": 11}), "params.jitter_ms"),
        ] {
            assert_eq!(parse(bad.clone()).unwrap_err().field, field, "{bad}");
        }
    }
}
