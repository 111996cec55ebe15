//! What a probe asks the injector, because only root sees it, or the policy decides: how a unit is, what processes are like, what a
//! log says, whether a program may be run, a credential shown or an experiment begin. It reads, away from the loop, a few at a time; and tells no caller more than the preview
//! of a fault of the same target does, or the policy.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};

use super::aside::{Places, Purpose};
use super::inject::cancelled;
use super::owners::Taken;
use super::state::Injector;
use super::{host_targets, logs, services};
use crate::fault::{services as of_service, spared};
use crate::host::program::{Distrust, trusted};
use crate::host::usage::Usage;
use crate::host::{Identity, Open, Running};
use crate::kernel::systemd::Unit;
use crate::policy::{Policy, Who};
use crate::request::facts::{Facts, ProcessFacts, Question, UnitFacts};
use crate::request::wire::Ticket;
use crate::request::{Act, ApiError, Caller, ErrorCode};
use crate::spec::{FaultType, Owner, ProcessSelector, TargetRequest};
use crate::target::Entrance;
use crate::target::process::{Matcher, nobody};

/// Faults whose preview tells of a unit.
const OF_UNITS: &[FaultType] = &[FaultType::ServiceStop, FaultType::ServiceRestart];
/// Faults whose preview tells of processes.
const OF_PROCESSES: &[FaultType] = &[FaultType::ProcessKill, FaultType::ProcessPause];

/// How much of a processor one look may take.
const LONGEST: Duration = Duration::from_secs(8);
/// So many look at once, of one user half of them.
static PLACES: Places = Places::new(4, 2, Some(LONGEST), "questions about this host");

/// Looks, unless who has asked leaves before.
///
/// # Errors
/// When the policy forbids it, the target makes no sense or is protected, or what is asked cannot be read.
pub(super) async fn look(
    policy: &Policy,
    question: Question,
    who: &Who,
    ticket: &mut Ticket,
) -> Result<Facts, ApiError> {
    let caller = who.caller;
    match question {
        Question::Unit(name) => {
            policy.admit(who, Act::Probe)?;
            policy.may_look(who, OF_UNITS)?;
            let open = policy.open.clone();
            aside((caller, ticket), move || unit(&name, caller, &open).map(Facts::Unit)).await
        }
        Question::Processes(target) => {
            policy.admit(who, Act::Probe)?;
            policy.may_look(who, OF_PROCESSES)?;
            let open = policy.open.clone();
            aside((caller, ticket), move || processes(&target, caller, &open).map(Facts::Processes)).await
        }
        Question::Targets(wanted) => {
            policy.admit(who, Act::Plan)?;
            let with_processes = policy.may_look(who, OF_PROCESSES);
            let entrance = Entrance::new(caller, &policy.fault_netns);
            let found = host_targets::find(entrance, (caller, policy.open.clone()), with_processes, wanted);
            unless_left(ticket, async { Ok(Facts::Targets(Box::new(found.await?))) }).await
        }
        Question::Services(wanted) => {
            policy.admit(who, Act::Plan)?;
            policy.may_look(who, OF_PROCESSES)?;
            let found = services::find(who.caller, policy.open.clone(), wanted);
            unless_left(ticket, async { Ok(Facts::Services(Box::new(found.await?))) }).await
        }
        Question::Command(path) => {
            policy.may_run(who, &path)?;
            aside((caller, ticket), move || program(&path).map(Facts::Command)).await
        }
        Question::Python(modules) => {
            policy.may_call(who, &modules)?;
            let interpreter = policy.probe_python.interpreter.clone();
            aside((caller, ticket), move || program(&interpreter).map(Facts::Command)).await
        }
        Question::Log { request, limit } => {
            logs::look(policy, &request, limit, (who, ticket)).await.map(Facts::Log)
        }
        Question::Act(_)
        | Question::Naming(_)
        | Question::Skipping
        | Question::Kubeconfig(_)
        | Question::Credential { .. }
        | Question::Address(_) => policy.answer(who, &question, Timestamp::now()),
        Question::Experiment(_)
        | Question::Named { .. }
        | Question::Fault { .. }
        | Question::Rules
        | Question::Leave => {
            // What a document says may be long, and a policy may have many patterns.
            let (policy, who) = (policy.clone(), who.clone());
            aside((caller, ticket), move || policy.answer(&who, &question, Timestamp::now())).await
        }
    }
}

/// Whether another run of this owner's may begin so soon after those before it.
///
/// # Errors
/// The rule of the policy that forbids it.
pub(super) fn in_time(injector: &Injector, who: &Who, owner: Owner) -> Result<(), ApiError> {
    let now = Instant::now();
    let taken = Taken::of(injector.active.borrow().keys().map(|name| name.owner), owner);
    let recent = injector.pace.recent(owner, (taken.own, taken.all), now);
    Ok(injector.policy().admit_pace(who, &recent)?)
}

/// Looks on another thread, when it is its turn, and unless who has asked leaves before it is done.
///
/// # Errors
/// As `look`; and when its turn does not come, it takes too long, or it breaks.
async fn aside<T: Send + 'static>(
    (caller, ticket): (Caller, &mut Ticket),
    look: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    // A gate may wait for it, which ends a fault in time, or says that it has no data: so it does not give way to anybody.
    let looked = async { PLACES.turn(caller.into(), Purpose::Look).await?.run_soon(look).await };
    unless_left(ticket, looked).await
}

/// Gives a look up when who has asked leaves.
async fn unless_left<T>(
    ticket: &mut Ticket,
    looked: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    tokio::select! {
        biased;
        () = ticket.cancelled() => Err(cancelled()),
        looked = looked => looked,
    }
}

/// The file that a program which the policy names is.
fn program(path: &str) -> Result<String, ApiError> {
    let found = trusted(path).map_err(|distrust| match distrust {
        Distrust::Changeable { .. } => {
            let text = format!("{path:?} is not run, because others than root could change it: {distrust}");
            ApiError::new(ErrorCode::PolicyDenied, text)
                .hint("chown root and chmod go-w the program and every folder above it")
        }
        other => ApiError::new(ErrorCode::TargetNotFound, format!("{path:?} is not run: {other}")),
    })?;
    Ok(found.display().to_string())
}

fn unit(name: &str, caller: Caller, open: &Open) -> Result<UnitFacts, ApiError> {
    // By the same rules as a target.
    ProcessSelector::parse(&TargetRequest { unit: Some(name.to_owned()), ..TargetRequest::default() })?;
    let unit = of_service::look(name, &spared(caller, open).for_looks())?;
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    Ok(unit_facts(unit, now))
}

/// `now` is by the clock of [`Unit::active_since`].
fn unit_facts(unit: Unit, now: Duration) -> UnitFacts {
    let is_active = matches!(unit.active.as_str(), "active" | "reloading") && !unit.active_since.is_zero();
    let active_for = is_active.then(|| now.saturating_sub(unit.active_since));
    UnitFacts { active: unit.active, sub: unit.sub, restarts: unit.restarts, active_for }
}

fn processes(target: &TargetRequest, caller: Caller, open: &Open) -> Result<ProcessFacts, ApiError> {
    let selector = ProcessSelector::parse(target)?;
    let all = Running::all().map_err(|error| {
        ApiError::new(ErrorCode::Unavailable, format!("look at the processes of this host: {error}"))
    })?;
    let spared = spared(caller, open).for_looks();
    let matcher = match Matcher::new(&selector, &Identity::of(caller), &spared) {
        // A unit that is not up has no control group.
        Err(error) if error.code == ErrorCode::TargetNotFound => return Ok(ProcessFacts::default()),
        matcher => matcher?,
    };
    let selection = matcher.select(all, &spared)?;
    if selection.hit.is_empty() && !selection.left_out.is_empty() {
        return Err(nobody(&selector, &selection));
    }
    Ok(sum(selection.ids().into_iter().filter_map(Usage::of)))
}

fn sum(all: impl Iterator<Item = Usage>) -> ProcessFacts {
    let none = ProcessFacts { descriptors: Some(0), resident: Some(0), ..ProcessFacts::default() };
    all.fold(none, |sum, one| ProcessFacts {
        count: sum.count + 1,
        youngest: Some(sum.youngest.map_or(one.age, |age| age.min(one.age))),
        oldest: Some(sum.oldest.map_or(one.age, |age| age.max(one.age))),
        descriptors: sum.descriptors.zip(one.descriptors).map(|(sum, one)| sum + one),
        resident: sum.resident.map(|sum| sum + one.resident),
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::waits::{HANG, see};

    const NOBODY: Caller = Caller::Vsock { cid: 7 };

    fn child() -> Child {
        Command::new("sleep").arg("61").spawn().unwrap()
    }

    async fn ask(policy: &Policy, question: Question, caller: Caller) -> Result<Facts, ApiError> {
        look(policy, question, &caller.into(), &mut Ticket::of_a_test()).await
    }

    async fn asked(target: TargetRequest) -> Result<Facts, ApiError> {
        ask(&Policy::default(), Question::Processes(Box::new(target)), NOBODY).await
    }

    #[tokio::test]
    async fn children_of_this_test_are_counted_until_they_are_gone() {
        let mut child = child();
        let pid = child.id();
        let target =
            TargetRequest { pid: Some(pid), command: Some("sleep 61".into()), ..TargetRequest::default() };
        let mut seen = ProcessFacts::default();
        // It executes its program a moment after it is there.
        see(async || {
            if let Ok(Facts::Processes(facts)) = asked(target.clone()).await {
                seen = facts;
            }
            seen.count == 1
        })
        .await;
        assert!(seen.youngest == seen.oldest && seen.youngest.unwrap() < HANG, "{seen:?}");
        assert!(seen.descriptors.unwrap() >= 3 && seen.resident.unwrap() > 0, "{seen:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        let Facts::Processes(facts) = asked(target).await.unwrap() else { panic!("of something else") };
        assert_eq!(facts.count, 0);
    }

    #[tokio::test]
    async fn whom_a_preview_does_not_show_and_what_makes_no_sense_is_refused() {
        let pid = |pid| TargetRequest { pid: Some(pid), ..TargetRequest::default() };
        assert_eq!(asked(pid(1)).await.unwrap_err().code, ErrorCode::TargetProtected);
        assert_eq!(asked(TargetRequest::default()).await.unwrap_err().code, ErrorCode::MissingParameter);
        let wrong = TargetRequest { exe: Some("sleep".into()), ..TargetRequest::default() };
        assert_eq!(asked(wrong).await.unwrap_err().code, ErrorCode::InvalidParameter);
        let wrong = ask(&Policy::default(), Question::Unit("a/b.service".into()), NOBODY).await;
        assert_eq!(wrong.unwrap_err().code, ErrorCode::InvalidParameter);
        let absent = TargetRequest { cgroup: Some("no/such".into()), ..TargetRequest::default() };
        assert_eq!(asked(absent).await.unwrap(), Facts::Processes(ProcessFacts::default()));
    }

    #[tokio::test]
    async fn a_program_is_asked_for_by_the_policy_and_then_by_its_file() {
        let policy = Policy { probe_commands: vec!["/bin/sh".into(), "/tmp/*".into()], ..Policy::default() };
        let asked = async |path: &str| ask(&policy, Question::Command(path.to_owned()), NOBODY).await;
        let shell = std::fs::canonicalize("/bin/sh").unwrap().display().to_string();
        assert_eq!(asked("/bin/sh").await.unwrap(), Facts::Command(shell));
        assert_eq!(asked("/bin/true").await.unwrap_err().code, ErrorCode::PolicyDenied);
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = asked(file.path().to_str().unwrap()).await.unwrap_err();
        assert!(refused.code == ErrorCode::PolicyDenied && refused.message.contains("/tmp"), "{refused}");
        let absent = Policy { probe_commands: vec!["/bin/no-such".into()], ..Policy::default() };
        let refused = ask(&absent, Question::Command("/bin/no-such".into()), NOBODY).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::TargetNotFound);
    }

    #[test]
    fn a_unit_that_is_not_active_has_no_uptime_whenever_it_was() {
        let unit = |active: &str, since| Unit {
            active: active.into(),
            active_since: Duration::from_secs(since),
            ..Unit::default()
        };
        let now = Duration::from_secs(100);
        assert_eq!(unit_facts(unit("active", 40), now).active_for, Some(Duration::from_secs(60)));
        assert_eq!(unit_facts(unit("failed", 40), now).active_for, None);
        assert_eq!(unit_facts(unit("active", 0), now).active_for, None);
    }

    #[test]
    fn descriptors_of_all_are_unknown_when_those_of_one_are() {
        let one = |age, descriptors| Usage { age: Duration::from_secs(age), resident: 10, descriptors };
        let all = sum([one(5, Some(3)), one(9, Some(4))].into_iter());
        assert_eq!((all.count, all.descriptors, all.resident), (2, Some(7), Some(20)));
        assert_eq!((all.youngest, all.oldest), (Some(Duration::from_secs(5)), Some(Duration::from_secs(9))));
        assert_eq!(sum([one(5, Some(3)), one(9, None)].into_iter()).descriptors, None);
    }
}
