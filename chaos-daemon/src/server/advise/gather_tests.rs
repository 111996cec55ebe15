//! Tests of what becomes of what was seen.

use chaos_advise::Look;

use super::*;
use crate::experiment::Stage as OfRun;

fn service(unit: &str) -> ServiceSeen {
    ServiceSeen {
        target: TargetRequest { unit: Some(unit.to_owned()), ..TargetRequest::default() },
        programs: vec!["shop".to_owned()],
        ..ServiceSeen::default()
    }
}

fn run(id: &str, verdict: Verdict, kind: &str, target: TargetRequest) -> Past {
    Past {
        run_id: id.to_owned(),
        experiment: "x".to_owned(),
        started_ms: 1000,
        verdict: Some(verdict),
        stage: OfRun::try_from(25).ok(),
        alerted: false,
        faults: vec![(kind.to_owned(), target)],
    }
}

fn of(seen: &[ServiceSeen], past: &[Past]) -> Vec<Service> {
    facts(seen, |_| Known::default(), |_| None, past, 11_000)
}

#[test]
fn a_run_is_about_the_service_that_its_fault_was_aimed_at_and_no_other() {
    let seen = [service("a.service"), service("b.service")];
    let past = [run("r1", Verdict::Held, "process_pause", seen[0].target.clone())];
    let found = of(&seen, &past);
    assert_eq!((found[0].tried.len(), found[1].tried.len()), (1, 0));
    let tried = &found[0].tried[0];
    assert_eq!((tried.outcome, tried.stage, tried.seconds_ago), (Outcome::Held, Some(Stage(25)), 10.0));
    let container = TargetRequest { container: Some("0123456789ab".into()), ..TargetRequest::default() };
    let longer = TargetRequest { container: Some("0123456789abcdef".into()), ..TargetRequest::default() };
    assert!(is_aimed_at(&longer, &ServiceSeen { target: container, ..ServiceSeen::default() }));
    assert!(!is_aimed_at(&TargetRequest::default(), &ServiceSeen::default()), "nothing is nobody");
}

#[test]
fn a_dependency_has_failed_by_a_network_fault_that_was_about_it_and_has_shown_something() {
    let own = service("a.service");
    let far = IpAddr::from([10, 0, 0, 5]);
    let peer = |address, port| Peer { address, port, connections: 1, interface: None };
    let narrowed = |change: &dyn Fn(&mut TargetRequest)| {
        let mut target = own.target.clone();
        change(&mut target);
        target
    };
    let cidr = |text: &str| Some(text.to_owned());
    let port = |port: u64| Some(PortText::Number(port));
    let has_failed = |kind: &str, target: TargetRequest, verdict: Verdict, peer: &Peer| {
        dependency(peer, &own, &[run("r", verdict, kind, target)]).failed_before
    };
    let it = peer(far, 5432);
    let by = |change: &dyn Fn(&mut TargetRequest)| {
        has_failed("network_partition", narrowed(change), Verdict::Held, &it)
    };
    assert!(by(&|_| {}), "all of its packets");
    assert!(
        by(&|target| target.cidr = cidr("10.0.0.0/8"))
            && by(&|target| target.cidrs = vec!["10.0.0.5".into()])
    );
    assert!(!by(&|target| target.cidr = cidr("10.1.0.0/16")));
    assert!(by(&|target| target.remote_port = port(5432)) && !by(&|target| target.remote_port = port(80)));
    assert!(by(&|target| target.port = Some(PortText::Text("5000-6000".into()))));
    assert!(!by(&|target| target.unit = Some("b.service".into())), "another's");
    let interface = TargetRequest { interface: Some("eth0".into()), ..TargetRequest::default() };
    assert!(has_failed("latency", interface, Verdict::Held, &it));
    let all = || own.target.clone();
    assert!(!has_failed("process_pause", all(), Verdict::Held, &it));
    assert!(!has_failed("network_partition", all(), Verdict::Refused, &it));
    // Over the loopback only whoever names it is met.
    let near = peer(IpAddr::from([127, 0, 0, 1]), 5432);
    assert!(!has_failed("network_partition", all(), Verdict::Held, &near));
    let named = narrowed(&|target| target.cidr = cidr("127.0.0.1"));
    assert!(has_failed("network_partition", named, Verdict::Held, &near));
}

#[test]
fn a_service_that_runs_what_broke_elsewhere_is_like_it_unless_it_has_met_the_same() {
    let mut seen = [service("a.service"), service("b.service"), service("c.service")];
    seen[2].programs = vec!["other".to_owned()];
    let broke = run("r1", Verdict::Deviated, "process_kill", seen[0].target.clone());
    let found = of(&seen, std::slice::from_ref(&broke));
    let likeness = found[1].likeness.clone().unwrap();
    assert_eq!((likeness.run_id.as_str(), likeness.kind.as_str()), ("r1", "process_kill"));
    assert!((likeness.similarity - 1.0).abs() < f64::EPSILON);
    assert!(found[0].likeness.is_none() && found[2].likeness.is_none());
    let met = run("r2", Verdict::Held, "process_kill", seen[1].target.clone());
    assert!(of(&seen, &[broke, met])[1].likeness.is_none());
}

#[test]
fn restarts_are_those_of_the_service_manager_or_those_that_were_seen() {
    let managed = ServiceSeen { restarts: Some(2), ..service("a.service") };
    let known = |restarts| move |_: &str| Known { looks: vec![Look::default()], restarts };
    let of =
        |service: &ServiceSeen, seen| facts(std::slice::from_ref(service), known(seen), |_| None, &[], 0);
    assert_eq!((of(&managed, 1)[0].restarts, of(&managed, 5)[0].restarts), (2, 5));
    assert!(of(&managed, 0)[0].managed && !of(&service("a.service"), 0)[0].managed);
}
