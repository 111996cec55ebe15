//! Who would start the processes anew that a plan kills: asked for plans alone.

use std::collections::BTreeMap;
use std::io;

use crate::fault::Work;
use crate::fault::affected::Place;
use crate::host::deaf::{self, Deaf};
use crate::host::{CgroupRef, ProcessId, Running};
use crate::kernel::node::talk;
use crate::kernel::systemd;
use crate::request::{ApiError, ErrorCode};
use crate::spec::process::signal_name;
use crate::target::supervisor::{Service, Services, Supervision, services, supervision};

/// How many processes are named that take no notice of a signal.
const MOST_NAMED: usize = 3;
/// The most services that systemd is asked for.
const MOST_ASKED: usize = 16;

/// Looks at those that `work` would kill, if it would kill any; what cannot be looked at is said. Blocks.
pub(super) fn look(work: &Work) -> Supervision {
    let Some((prey, signal)) = prey(work) else { return Supervision::default() };
    found(&prey, signal).unwrap_or_else(|error| Supervision {
        lines: vec![format!("not known: {error}")],
        ..Supervision::default()
    })
}

fn found(prey: &Prey, signal: i32) -> Result<Supervision, ApiError> {
    let failed =
        |what: &str, error: io::Error| ApiError::new(ErrorCode::Unavailable, format!("look {what}: {error}"));
    let all = Running::all().map_err(|error| failed("at the processes of this host", error))?;
    let hit: Vec<_> = match prey {
        Prey::Those(ids) => all.iter().filter(|process| ids.contains(&process.id)).cloned().collect(),
        Prey::In(group) => {
            let place = Place::group(group).map_err(|error| failed("for the place of the cgroup", error))?;
            all.iter().filter(|process| place.has(process)).cloned().collect()
        }
    };
    Ok(supervision(&hit, &all, &ask(services(&hit)), signal))
}

/// Whom a signal may meet.
enum Prey {
    Those(Vec<ProcessId>),
    /// Whoever is in the control group.
    In(CgroupRef),
}

/// Whom `work` sends which signal, if it sends any.
fn prey(work: &Work) -> Option<(Prey, i32)> {
    let (group, failure) = match work {
        Work::Signals(work) => return Some((Prey::Those(work.targets.clone()), work.volleys.signal)),
        Work::Files(work) => (&work.cgroup, &work.failure),
        Work::Sockets(work) => (&work.callers.cgroup, &work.failure),
        _ => return None,
    };
    failure.signal.map(|signal| (Prey::In(group.clone()), signal))
}

/// That some whom `work` would send a signal take no notice of it, for people. Blocks.
pub(super) fn deaf(work: &Work) -> Option<String> {
    let Work::Signals(work) = work else { return None };
    let signal = work.volleys.signal;
    let found: Vec<_> =
        work.targets.iter().filter_map(|id| Some((id.pid, deaf::deaf(*id, signal)?))).collect();
    let words = |(pid, why): &(i32, Deaf)| match why {
        Deaf::Ignores => format!("process {pid} ignores it"),
        Deaf::First => format!("process {pid} is the first of its pid namespace, and has no handler for it"),
    };
    let named: Vec<_> = found.iter().take(MOST_NAMED).map(words).collect();
    let more = if found.len() > MOST_NAMED { ", and more" } else { "" };
    let (deaf, all, signal) = (found.len(), work.targets.len(), signal_name(signal));
    (deaf > 0).then(|| format!("{deaf} of {all} take no notice of {signal}: {}{more}", named.join(", ")))
}

/// What systemd knows of these services.
fn ask(mut names: Vec<String>) -> Services {
    names.truncate(MOST_ASKED);
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    if let Some(reason) = systemd::absent() {
        return Err(format!("no systemd runs here: {reason}"));
    }
    let asked = talk(async |systemd| {
        let mut known = BTreeMap::new();
        for name in &names {
            let unit = systemd.unit(name).await?;
            let main_pid = i32::try_from(unit.main_pid).unwrap_or_default();
            known.insert(name.clone(), Service { main_pid, restart: unit.restart });
        }
        Ok(known)
    });
    asked.map_err(|error| format!("ask systemd: {error}"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::fault::work::SignalWork;
    use crate::spec::ProcessSelector;
    use crate::spec::TargetRequest;
    use crate::spec::process::Volleys;
    use crate::waits::see;

    #[tokio::test]
    async fn of_a_child_of_this_test_nobody_is_found_and_nothing_is_done_to_it() {
        let mut child = Command::new("sleep").arg("61").spawn().unwrap();
        let pid = child.id().cast_signed();
        let id = ProcessId::of(pid).unwrap();
        let target = TargetRequest { pid: Some(child.id()), ..TargetRequest::default() };
        let work = Work::Signals(SignalWork {
            selector: ProcessSelector::parse(&target).unwrap(),
            programs: Vec::new(),
            targets: vec![id],
            spared: Box::default(),
            volleys: Volleys { signal: 9, times: 1, interval: Duration::ZERO, jitter: Duration::ZERO },
        });
        // It executes its program a moment after it is there: until then it is this program, as its parent is.
        let mut told = Supervision::default();
        see(async || {
            told = look(&work);
            told.lines.iter().any(|line| line.contains("(sleep)"))
        })
        .await;
        let goes_on = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(goes_on, "the child has ended");
        assert_eq!(told.lines.len(), 1, "{told:?}");
        assert!(told.lines[0].contains(&format!("1 process: {pid} (sleep)")), "{told:?}");
        // Where this test runs in a container, its runtime might.
        let is_contained = told.lines[0].contains("container runtime");
        assert_eq!(told.warning.is_some(), !is_contained, "{told:?}");
        let gone = look(&work);
        assert_eq!(gone, Supervision::default());
    }
}
