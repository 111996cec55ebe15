//! Tests of which runs may go on beside each other, and of what is told of one.

use super::*;
use crate::experiment::role::Stage;
use crate::spec::TargetRequest;

fn run(experiment: &str, target: &str) -> Run {
    let target: TargetRequest = serde_json::from_str(target).unwrap();
    Run {
        run_id: format!("id-of-{experiment}"),
        owner: Owner::ROOT,
        experiment: experiment.to_owned(),
        faults: BTreeMap::new(),
        stage: None,
        started_at: now(),
        targets: target.names().into_iter().collect(),
        activities: Arc::new([]),
        lasts: Duration::ZERO,
        recovery: None,
        timeline: Arc::default(),
        known: Arc::default(),
        started: Instant::now(),
        stop: watch::channel(()).0,
        stopped_by: Arc::default(),
        progress: watch::channel(Progress::default()).1,
        result: watch::channel(None).1,
    }
}

fn conflict(new: &Run, going_on: &BTreeMap<String, Run>, most: u32) -> Option<String> {
    super::conflict((new.owner, &new.experiment, &new.targets), Owner::ROOT, going_on, most)
}

const ETH0: &str = r#"{"interface": "eth0"}"#;

#[test]
fn a_node_has_one_run_unless_told_otherwise_and_the_one_that_goes_on_is_named() {
    let going_on = BTreeMap::from([("a".to_owned(), run("slow", ETH0))]);
    let other = run("fast", r#"{"unit": "a.service"}"#);
    assert_eq!(conflict(&other, &BTreeMap::new(), MOST_RUNS), None);
    let said = conflict(&other, &going_on, MOST_RUNS).unwrap();
    assert_eq!(said, "this node has one run at a time, and is running \"slow\", as run id-of-slow");
    assert_eq!(conflict(&other, &going_on, 2), None);
    let going_on = BTreeMap::from([("a".to_owned(), run("slow", ETH0)), ("b".to_owned(), other)]);
    let said = conflict(&run("third", r#"{"unit": "c.service"}"#), &going_on, 2).unwrap();
    assert!(said.contains("2 runs") && said.contains("\"slow\"") && said.contains("id-of-fast"), "{said}");
}

#[test]
fn a_user_has_half_of_the_runs_and_the_last_one_is_roots() {
    let (one, two) = (Owner::User(1001), Owner::User(1002));
    let going_on = |owners: &[Owner]| -> BTreeMap<String, Run> {
        let run = |(number, owner): (usize, &Owner)| {
            let name = format!("e{number}");
            (name.clone(), Run { owner: *owner, ..run(&name, &format!(r#"{{"interface": "eth{number}"}}"#)) })
        };
        owners.iter().enumerate().map(run).collect()
    };
    let may = |owner: Owner, owners: &[Owner], most: u32| {
        let targets = BTreeSet::from(["unit new.service".to_owned()]);
        super::conflict((owner, "new", &targets), owner, &going_on(owners), most).is_none()
    };
    assert!(may(one, &[one], 4) && !may(one, &[one, one], 4) && may(two, &[one, one], 4));
    assert!(!may(two, &[one, one, two], 4) && may(Owner::ROOT, &[one, one, two], 4));
    assert!(may(one, &[], 1) && !may(one, &[Owner::ROOT], 1) && !may(Owner::ROOT, &[one], 1));
    assert!(may(one, &[Owner::ROOT], 3) && may(Owner::ROOT, &[Owner::ROOT; 2], 3));
}

#[test]
fn of_several_runs_no_two_have_the_same_target_however_many_there_may_be() {
    let going_on = BTreeMap::from([("a".to_owned(), run("slow", ETH0))]);
    let said = |target: &str| conflict(&run("other", target), &going_on, MOST_RUNS_EVER);
    let conflict = said(r#"{"unit": "a.service", "interface": "eth0", "direction": "egress"}"#).unwrap();
    assert!(conflict.starts_with("interface eth0 is a target of \"slow\", as run id-of-slow"), "{conflict}");
    assert_eq!(said(r#"{"interface": "eth1"}"#), None);
    assert_eq!(said(r#"{"interface": "eth0", "netns": "blue"}"#), None);
    assert_eq!(said(r#"{"unit": "a.service"}"#), None);
}

#[test]
fn what_a_run_does_right_now_fits_into_a_line() {
    let sample = |role: Role, met: bool, value: Option<f64>| Reading {
        at_seconds: 1.0,
        time: now(),
        probe: format!("{role:?}").to_lowercase(),
        role,
        stage: Stage::During,
        met,
        value,
        took_seconds: 0.0,
        late_seconds: None,
        no_data: false,
        detail: String::new(),
    };
    let live = Live {
        phase: "lasting".to_owned(),
        activities: vec!["cut".to_owned(), "load".to_owned()],
        elapsed: 12.2,
        left: Some(47.6),
        latest: vec![
            sample(Role::Gate, true, Some(512.04)),
            sample(Role::Method, true, Some(1.0)),
            sample(Role::Alert, false, None),
        ],
    };
    assert_eq!(live.to_string(), "lasting (cut, load), 48 s left; gate 512.0, alert not met");
    let live = Live { activities: Vec::new(), left: None, latest: Vec::new(), ..live };
    assert_eq!(live.to_string(), "lasting");
}

#[test]
fn an_experiment_runs_once_at_a_time_however_many_runs_there_may_be() {
    let going_on = BTreeMap::from([("a".to_owned(), run("slow", ETH0))]);
    let said = conflict(&run("slow", "{}"), &going_on, MOST_RUNS_EVER).unwrap();
    assert_eq!(said, "\"slow\" is running already, as run id-of-slow");
    // One of another user's, of the same name, is another experiment.
    let other = Run { owner: Owner::User(1001), ..run("slow", "{}") };
    assert_eq!(conflict(&other, &going_on, MOST_RUNS_EVER), None);
    let said = super::conflict((other.owner, "slow", &other.targets), other.owner, &going_on, 1).unwrap();
    assert!(said.contains("is running \"0/slow\""), "{said}");
}

#[test]
fn a_run_is_known_by_the_name_of_its_experiment_to_its_owner_and_by_the_qualified_one_to_everybody() {
    let one = Owner::User(1001);
    let (own, others) = (Run { owner: one, ..run("24/7", "{}") }, run("24/7", "{}"));
    let is = |name: &str, run: &Run, caller| Which::Experiment(name.to_owned()).is(run, caller);
    assert!(is("24/7", &own, one) && is("1001/24/7", &own, one) && is("1001/24/7", &own, Owner::ROOT));
    assert!(!is("24/7", &others, one) && is("0/24/7", &others, one) && is("24/7", &others, Owner::ROOT));
    assert!(!is("24/7", &own, Owner::ROOT) && !is("7", &own, one));
}
