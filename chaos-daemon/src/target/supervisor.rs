//! Who would start processes anew that are about to be killed, as far as it can be known before. Pure: what was seen goes in, words
//! come out.
//!
//! Reference: systemd.service(5), the table of `Restart=`.

use std::collections::BTreeMap;
use std::fmt;

use crate::host::Running;

/// The most processes that are named of those for whom the same holds.
const MOST_NAMED: usize = 3;
/// The most lines about who would start whom.
const MOST_LINES: usize = 8;
/// Programs that start their children again, by the beginnings of their names.
const SUPERVISORS: &[&str] = &["runsv", "s6-supervise", "supervisord", "circusd", "perpd"];
/// Signals after which systemd takes a service for cleanly ended: SIGHUP, SIGINT, SIGPIPE, SIGTERM (signal(7)).
const CLEAN: &[i32] = &[1, 2, 13, 15];

/// What systemd knows of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Number of its main process; 0 when it has none.
    pub main_pid: i32,
    /// Its `Restart=`.
    pub restart: String,
}

/// What systemd says of the services that were asked for, by name; or why nobody can say.
pub type Services = Result<BTreeMap<String, Service>, String>;

/// Who would start a process anew.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// systemd, by this service's `Restart=`.
    Systemd { service: String, restart: String },
    /// A program that is there for it.
    Supervisor { pid: i32, name: String },
    /// Perhaps its parent, which runs the same program.
    Parent { pid: i32, name: String },
    /// Perhaps a container runtime, by a restart policy that only it knows.
    Runtime(String),
    /// Nobody knows, for this reason.
    Unknown(String),
    /// Nobody was found; with what there is.
    Nobody(Option<String>),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Systemd { service, restart } => write!(f, "systemd ({service} has Restart={restart})"),
            Self::Supervisor { pid, name } => write!(f, "the supervisor {name} (process {pid})"),
            Self::Parent { pid, name } => {
                write!(f, "perhaps the parent, process {pid} ({name}), which runs the same program")
            }
            Self::Runtime(container) => {
                write!(f, "perhaps a container runtime, by its restart policy ({container})")
            }
            Self::Unknown(why) => write!(f, "not known: {why}"),
            Self::Nobody(None) => f.write_str("nobody was found"),
            Self::Nobody(Some(instead)) => write!(f, "nobody was found ({instead})"),
        }
    }
}

/// Who would start processes anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Supervision {
    /// Who whom, a line each.
    pub lines: Vec<String>,
    /// That there are some whom nobody would, and what to do first.
    pub warning: Option<String>,
}

/// The services to ask systemd for, of processes that are about to be killed.
pub fn services(hit: &[Running]) -> Vec<String> {
    let mut names: Vec<_> = hit.iter().filter_map(service).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Who would start `hit` anew, which are some of `all`, after this signal has ended them.
pub fn supervision(hit: &[Running], all: &[Running], services: &Services, signal: i32) -> Supervision {
    let mut found = BTreeMap::<Who, Vec<&Running>>::new();
    for process in hit {
        found.entry(who(process, hit, all, services, signal)).or_default().push(process);
    }
    let named = |processes: &[&Running]| {
        let few: Vec<_> = processes.iter().take(MOST_NAMED).map(|process| shown(process)).collect();
        let more = if processes.len() > few.len() { ", …" } else { "" };
        let plural = if processes.len() == 1 { "" } else { "es" };
        format!("{} process{plural}: {}{more}", processes.len(), few.join(", "))
    };
    let mut lines: Vec<_> = found
        .iter()
        .take(MOST_LINES)
        .map(|(who, processes)| format!("{who}: {}", named(processes)))
        .collect();
    if found.len() > MOST_LINES {
        lines.push(format!("and {} more", found.len() - MOST_LINES));
    }
    let lost: Vec<_> = found
        .iter()
        .filter(|(who, _)| matches!(who, Who::Nobody(_)))
        .flat_map(|(_, lost)| lost)
        .copied()
        .collect();
    let warning = (!lost.is_empty()).then(|| {
        format!(
            "nobody was found who would start again {} of {} ({}): set up a supervisor first, such as Restart= of a systemd service",
            lost.len(),
            hit.len(),
            named(&lost)
        )
    });
    Supervision { lines, warning }
}

/// Who would start one of those that are hit.
fn who(process: &Running, hit: &[Running], all: &[Running], services: &Services, signal: i32) -> Who {
    let parent = all.iter().find(|other| other.id.pid == process.parent);
    if let Some(Running { id, name, .. }) = parent.filter(|parent| is_supervisor(parent)) {
        return Who::Supervisor { pid: id.pid, name: name.clone() };
    }
    if let Some(container) = container(process) {
        return Who::Runtime(container);
    }
    let is_hit = |pid: i32| hit.iter().any(|other| other.id.pid == pid);
    let by_service = by_service(process, services, signal, is_hit);
    match (by_service, parent) {
        (who @ Who::Systemd { .. }, _) => who,
        (_, Some(parent))
            if !is_hit(parent.id.pid) && parent.program.is_some() && parent.program == process.program =>
        {
            Who::Parent { pid: parent.id.pid, name: parent.name.clone() }
        }
        (who, _) => who,
    }
}

fn by_service(process: &Running, services: &Services, signal: i32, is_hit: impl Fn(i32) -> bool) -> Who {
    let Some(name) = service(process) else {
        return match of_a_user(process) {
            Some(unit) => Who::Unknown(format!("a user's own systemd, which is not asked, has {unit}")),
            None => Who::Nobody(None),
        };
    };
    let services = match services {
        Ok(services) => services,
        Err(why) => return Who::Unknown(why.clone()),
    };
    let Some(Service { main_pid, restart }) = services.get(name) else {
        return Who::Unknown(format!("systemd was not asked for {name}"));
    };
    // systemd looks at the end of the main process alone.
    match (is_hit(*main_pid), restarts(restart, signal)) {
        (true, true) => Who::Systemd { service: name.to_owned(), restart: restart.clone() },
        (true, false) => Who::Nobody(Some(format!("{name} has Restart={restart}"))),
        (false, _) => Who::Nobody(Some(format!("the main process of {name} is not hit"))),
    }
}

/// Whether `Restart=` of a service has it started again when its main process ends by this signal. One that takes the signal and
/// ends by itself may be another case.
fn restarts(restart: &str, signal: i32) -> bool {
    let is_clean = CLEAN.contains(&signal);
    match restart {
        "always" => true,
        "on-success" => is_clean,
        "on-failure" | "on-abnormal" | "on-abort" => !is_clean,
        _ => false,
    }
}

/// The service of the host's systemd in whose control group a process is.
fn service(process: &Running) -> Option<&str> {
    let unit = process.unit().filter(|unit| unit.ends_with(".service"))?;
    (of_a_user(process).is_none() && container(process).is_none()).then_some(unit)
}

/// The unit of a process that a user's own systemd has.
fn of_a_user(process: &Running) -> Option<&str> {
    let mut parts = process.cgroup.as_ref()?.iter().filter_map(|part| part.to_str());
    let is_manager = |part: &str| part.starts_with("user@") && part.ends_with(".service");
    parts.by_ref().find(|part| is_manager(part))?;
    process.unit().filter(|unit| !is_manager(unit) && unit.ends_with(".service"))
}

/// In which container a process is, if it is in one: by its control group, else by a pid namespace of its own.
fn container(process: &Running) -> Option<String> {
    let by_group = process.container().map(|id| format!("container {id}"));
    by_group.or_else(|| (!process.nearness.of_this_host).then(|| "a pid namespace of its own".to_owned()))
}

fn is_supervisor(process: &Running) -> bool {
    SUPERVISORS.iter().any(|name| process.name.starts_with(name))
}

fn shown(process: &Running) -> String {
    format!("{} ({})", process.id.pid, process.name)
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
