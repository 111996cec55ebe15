//! Nobody is spoken for who is not connected, but by what he has begun.

use std::os::unix::net::UnixStream;

use serde_json::json;

use super::*;
use crate::policy::Role;
use crate::waits::wait_for;

fn who(uid: u32) -> Who {
    Caller::Unix { uid, gid: uid, pid: 7 }.into()
}

/// Somebody who is connected until the end that is returned is dropped.
fn connect(claims: &mut Claims, uid: u32) -> (Claim, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    (Claim::Connection(claims.arrive(who(uid), near.into(), None).unwrap()), far)
}

fn fault(delay: u32) -> FaultRequest {
    let request = json!({"fault_type": "latency", "probability": 1, "target": {"interface": "eth0"},
        "params": {"delay_ms": delay}});
    serde_json::from_value(request).unwrap()
}

fn entrusted(what: Undertaking, owner: u32, faults: &[u32]) -> Entrusted {
    Entrusted {
        what,
        owner: Owner::User(owner),
        name: "slow".into(),
        document: "d".into(),
        faults: faults.iter().copied().map(fault).collect(),
        says: Default::default(),
        stage: None,
        skips: false,
        lasts: None,
        runs: None,
    }
}

/// Has something go on in the name of a claim.
fn entrust(claims: &mut Claims, claim: Claim, what: &Entrusted) -> Result<u64, ApiError> {
    let speaker = claims.speaker(claim)?;
    claims.entrust(&speaker, claim, what)
}

fn uid(claims: &mut Claims, claim: Claim) -> Option<u32> {
    match claims.speaker(claim).ok()?.who.caller {
        Caller::Unix { uid, .. } => Some(uid),
        Caller::Vsock { .. } => None,
    }
}

#[test]
fn whoever_is_connected_is_spoken_for_by_the_number_of_the_connection_and_nobody_else_is() {
    let mut claims = Claims::default();
    let ((one, end_of_one), (two, _end)) = (connect(&mut claims, 1001), connect(&mut claims, 1002));
    assert_eq!((uid(&mut claims, one), uid(&mut claims, two)), (Some(1001), Some(1002)));
    for other in [Claim::Nobody, Claim::Connection(0), Claim::Connection(3), Claim::Grant(1)] {
        assert_eq!(uid(&mut claims, other), None, "{other:?}");
    }
    // One who has only stopped to say something waits for answers.
    end_of_one.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(uid(&mut claims, one), Some(1001));
    drop(end_of_one);
    assert_eq!((uid(&mut claims, one), uid(&mut claims, two)), (None, Some(1002)));
    let (three, end) = connect(&mut claims, 1003);
    assert_ne!(three, one, "a number is given out once");
    drop(end);
    claims.sweep();
    assert_eq!(claims.connections.len(), 1);
    claims.server_gone();
    assert_eq!(uid(&mut claims, two), None, "the next server speaks for nobody whom it has not taken in");
}

#[test]
fn a_run_goes_on_in_the_name_of_who_has_left_and_injects_each_of_its_faults_once_and_no_other() {
    let mut claims = Claims::default();
    let (one, end) = connect(&mut claims, 1001);
    let run = entrust(&mut claims, one, &entrusted(Undertaking::Run, 1001, &[1, 2, 2])).unwrap();
    drop(end);
    assert_eq!(uid(&mut claims, Claim::Grant(run)), Some(1001));
    let owner = Owner::User(1001);
    assert!(claims.take_fault(run, owner, &fault(3)).is_err(), "of another experiment");
    assert!(claims.take_fault(run, Owner::ROOT, &fault(1)).is_err(), "in the name of another owner");
    for (delay, is_granted) in [(1, true), (1, false), (2, true), (2, true), (2, false)] {
        assert_eq!(claims.take_fault(run, owner, &fault(delay)).is_ok(), is_granted, "{delay}");
    }
    // The next thing is begun by nobody.
    assert!(entrust(&mut claims, one, &entrusted(Undertaking::Run, 1001, &[1])).is_err());
    assert!(!claims.release(run) && uid(&mut claims, Claim::Grant(run)).is_none());
}

#[test]
fn what_a_run_or_a_schedule_is_for_is_all_that_is_asked_in_its_name() {
    let mut claims = Claims::default();
    let (one, _end) = connect(&mut claims, 1001);
    let run = entrust(&mut claims, one, &entrusted(Undertaking::Run, 1001, &[1])).unwrap();
    let schedule = entrust(&mut claims, one, &entrusted(Undertaking::Schedule, 1001, &[1])).unwrap();
    let name = || "1001/a".to_owned().try_into().unwrap();
    let begins = |what| Request::Entrust(Box::new(entrusted(what, 1001, &[1])));
    let looks = || Request::Look { question: crate::request::facts::Question::Unit("a.service".into()) };
    let injects = || Request::Inject { name: name(), fault: Box::new(fault(1)), plan_digest: None };
    for (request, by_connection, by_run, by_schedule) in [
        (injects(), true, true, false),
        (looks(), true, true, false),
        (Request::Doctor, true, false, false),
        (Request::Residue, true, false, false),
        (Request::PlanAll { faults: Vec::new() }, true, true, false),
        (Request::Plan { name: name(), fault: Box::new(fault(1)) }, true, false, false),
        (begins(Undertaking::Run), true, false, true),
        (begins(Undertaking::Schedule), true, false, false),
        (begins(Undertaking::Search), true, false, false),
    ] {
        let may = [one, Claim::Grant(run), Claim::Grant(schedule)]
            .map(|claim| claims.speaker(claim).unwrap().may_ask(&request).is_ok());
        assert_eq!(may, [by_connection, by_run, by_schedule], "{request:?}");
    }
}

#[test]
fn a_schedule_begins_runs_of_its_own_faults_and_a_search_of_faults_like_its_own() {
    let mut claims = Claims::default();
    let (one, end) = connect(&mut claims, 1001);
    let schedule = entrust(&mut claims, one, &entrusted(Undertaking::Schedule, 1001, &[1, 2])).unwrap();
    let budget = Entrusted { runs: Some(2), ..entrusted(Undertaking::Search, 1001, &[1]) };
    let search = entrust(&mut claims, one, &budget).unwrap();
    drop(end);
    let elsewhere = {
        let mut other = entrusted(Undertaking::Run, 1001, &[1]);
        other.faults[0].target.interface = Some("eth1".into());
        other
    };
    let run = |faults: &[u32]| entrusted(Undertaking::Run, 1001, faults);
    for (what, by_schedule) in [
        (run(&[1]), true),
        (run(&[2, 1]), true),
        (run(&[3]), false),
        (entrusted(Undertaking::Run, 0, &[1]), false),
        (elsewhere.clone(), false),
    ] {
        assert_eq!(entrust(&mut claims, Claim::Grant(schedule), &what).is_ok(), by_schedule, "{what:?}");
    }
    for (what, by_search) in [(elsewhere, false), (run(&[9]), true), (run(&[7]), true), (run(&[7]), false)] {
        assert_eq!(entrust(&mut claims, Claim::Grant(search), &what).is_ok(), by_search, "{what:?}");
    }
}

#[test]
fn schedules_and_searches_outlive_the_daemon_and_runs_do_not() {
    let mut claims = Claims::default();
    let observer = Who { groups: vec![27], ceiling: Role::Operator, ..who(1001) };
    let (near, _far) = UnixStream::pair().unwrap();
    let one = Claim::Connection(claims.arrive(observer, near.into(), None).unwrap());
    let [run, schedule, search] = [Undertaking::Run, Undertaking::Schedule, Undertaking::Search]
        .map(|what| entrust(&mut claims, one, &entrusted(what, 1001, &[1])).unwrap());
    let mut after = Claims::new(Some(&claims.standing().unwrap())).unwrap();
    assert_eq!(uid(&mut after, Claim::Grant(run)), None);
    let spoken = after.speaker(Claim::Grant(schedule)).unwrap().who;
    // Without the process, which may be another by now.
    assert_eq!(spoken.caller, Caller::Unix { uid: 1001, gid: 1001, pid: 0 });
    assert_eq!((spoken.groups.as_slice(), spoken.ceiling), (&[27][..], Role::Operator));
    assert!(entrust(&mut after, Claim::Grant(schedule), &entrusted(Undertaking::Run, 1001, &[1])).is_ok());
    assert!(after.keep(&[search]) && uid(&mut after, Claim::Grant(schedule)).is_none());
    assert_eq!(uid(&mut after, Claim::Grant(search)), Some(1001));
    assert!(Claims::new(Some(b"{")).is_err());
}

#[test]
fn there_are_places_for_root_when_all_others_are_taken() {
    let mut claims = Claims::default();
    let mut ends = Vec::new();
    for number in 0..MOST_KNOWN - KEPT_FOR_ROOT {
        ends.push(connect(&mut claims, 1001 + u32::try_from(number).unwrap()));
    }
    let (near, _far) = UnixStream::pair().unwrap();
    assert!(claims.arrive(who(5), near.into(), None).unwrap_err().contains("the most at once"));
    let (_root, _end) = connect(&mut claims, 0);
    ends.pop();
    // Who has gone makes way, whenever that is.
    ends.pop();
    // A test beside this one that starts a program has its other end for a moment, too.
    wait_for(|| {
        let (near, _end) = UnixStream::pair().unwrap();
        claims.arrive(who(5), near.into(), None).is_ok()
    });
}
