//! Tests of the ranking.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::*;
use crate::{Dependency, Errors, Gauge, Level, Likeness, Look, Outcome, Stage, Stalled, Tried, What};

const NEAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5));

/// A service that does what services do: it swings a little, and nothing is wrong.
fn calm(name: &str) -> Service {
    let look = |at: u32| Look {
        at: f64::from(at),
        gauges: BTreeMap::from([
            (Gauge::Memory, Level { used: 5e7 + f64::from(at % 2) * 4096.0, limit: 5e8 }),
            (Gauge::Descriptors, Level { used: 20.0, limit: 1024.0 }),
        ]),
        stalled: Some(Stalled { cpu: 0.001 * f64::from(at), ..Stalled::default() }),
        waiting: u32::from(at % 4 == 1),
    };
    Service {
        name: name.to_owned(),
        looks: (0..6).map(look).collect(),
        listens: vec![(NEAR, 80)],
        tried: vec![tried("all well", Outcome::Held, 1)],
        ..Service::default()
    }
}

fn tried(experiment: &str, outcome: Outcome, run: u32) -> Tried {
    Tried {
        run_id: format!("r{run}"),
        experiment: experiment.to_owned(),
        kinds: vec!["process_pause".to_owned()],
        seconds_ago: 86400.0,
        outcome,
        stage: None,
        alerted: true,
    }
}

fn rising(service: &mut Service, gauge: Gauge, per_second: f64, limit: f64) {
    for look in &mut service.looks {
        look.gauges.insert(gauge, Level { used: limit / 10.0 + look.at * per_second, limit });
    }
}

/// One planting: what it is, how it is planted, what its first reason is about, and what is tried first.
type Planting = (&'static str, fn(&mut Service), What, Trial);

fn plantings() -> Vec<Planting> {
    let mut all = of_now();
    all.extend(of_before());
    all
}

/// What goes wrong now.
fn of_now() -> Vec<Planting> {
    vec![
        ("leaks memory", |it| rising(it, Gauge::Memory, 1e6, 5e8), What::Forecast, Trial::TakeMemory),
        (
            "leaks descriptors",
            |it| rising(it, Gauge::Descriptors, 2.0, 1024.0),
            What::Forecast,
            Trial::FailAccept,
        ),
        (
            "keeps sessions",
            |it| rising(it, Gauge::Sessions, 1.0, 1000.0),
            What::Forecast,
            Trial::HoldSessions(NEAR, 80),
        ),
        (
            "fills its disk",
            |it| {
                it.writes = Some("/srv/data".to_owned());
                rising(it, Gauge::Disk, 1e6, 1e9);
            },
            What::Forecast,
            Trial::FailWrites("/srv/data".to_owned()),
        ),
        ("is started anew", |it| it.restarts = 4, What::Restarts, Trial::Kill),
        ("is killed for want of memory", |it| it.oom_kills = 2, What::OomKills, Trial::TakeMemory),
        (
            "tells of errors",
            |it| it.errors = Some(Errors { recent: 30, expected: 0.5, example: "ERROR 17".into() }),
            What::Errors,
            Trial::Pause,
        ),
        (
            "waits for processors",
            |it| {
                for look in &mut it.looks {
                    look.stalled = Some(Stalled { cpu: look.at * 0.6, ..Stalled::default() });
                }
            },
            What::CpuPressure,
            Trial::TakeCpu,
        ),
        (
            "does not accept",
            |it| it.looks.iter_mut().for_each(|look| look.waiting = 12),
            What::Waiting,
            Trial::Pause,
        ),
    ]
}

/// What was not tried, or went wrong before.
fn of_before() -> Vec<Planting> {
    vec![
        (
            "has a dependency",
            |it| {
                let whom = Dependency { address: NEAR, port: 5432, connections: 3, failed_before: false };
                it.dependencies = vec![whom];
            },
            What::Dependency,
            Trial::Partition(NEAR, 5432),
        ),
        (
            "broke",
            |it| it.tried.push(tried("it breaks", Outcome::Broke, 2)),
            What::Broke,
            Trial::Again("r2".to_owned()),
        ),
        (
            "stays at its first stage",
            |it| it.tried.push(Tried { stage: Some(Stage(10)), ..tried("staged", Outcome::Held, 3) }),
            What::Stage,
            Trial::Again("r3".to_owned()),
        ),
        (
            "is like what broke",
            |it| {
                it.supervised = true;
                it.likeness =
                    Some(Likeness { run_id: "r9".into(), kind: "process_kill".into(), similarity: 0.8 });
            },
            What::Likeness,
            Trial::Kill,
        ),
    ]
}

#[test]
fn whichever_weakness_is_planted_among_calm_services_comes_first_with_its_reason_and_what_tries_it() {
    for (what, plant, about, trial) in plantings() {
        let mut services: Vec<_> = ["a", "b", "c", "d"].into_iter().map(calm).collect();
        let mut planted = calm("planted");
        plant(&mut planted);
        services.push(planted);
        let ranked = rank(&services);
        assert_eq!(ranked[0].service, "planted", "{what}: {ranked:#?}");
        assert_eq!((ranked[0].reasons[0].what, &ranked[0].trials[0]), (about, &trial), "{what}: {ranked:#?}");
        assert!(ranked[0].points > ranked[1].points, "{what}");
    }
}

#[test]
fn services_that_deserve_it_alike_are_told_by_name_and_the_same_facts_give_the_same_advice() {
    let mut services: Vec<_> = ["c", "a", "b"].into_iter().map(calm).collect();
    let names = |services: &[Service]| rank(services).into_iter().map(|it| it.service).collect::<Vec<_>>();
    assert_eq!(names(&services), ["a", "b", "c"]);
    let first = rank(&services);
    services.reverse();
    assert_eq!(rank(&services), first);
}

#[test]
fn of_what_is_calm_nothing_is_said_but_what_was_not_tried() {
    let told: Vec<_> = rank(&[calm("a")])[0].reasons.iter().map(|reason| reason.what).collect();
    assert_eq!(told, [What::Untested, What::Idle]);
}

#[test]
fn a_dependency_that_was_failed_is_no_reason_and_what_held_after_it_broke_neither() {
    let mut service = calm("a");
    service.dependencies = vec![Dependency { address: NEAR, port: 1, connections: 1, failed_before: true }];
    service.tried = vec![tried("x", Outcome::Broke, 1), tried("x", Outcome::Held, 2)];
    let told = |service: &Service| {
        rank(std::slice::from_ref(service))[0].reasons.iter().map(|it| it.what).collect::<Vec<_>>()
    };
    assert!(!told(&service).contains(&What::Dependency) && !told(&service).contains(&What::Broke));
    assert!(!told(&service).contains(&What::NoAlert), "an alert fired");
    service.tried[0].alerted = false;
    assert!(told(&service).contains(&What::NoAlert));
}

#[test]
fn three_greens_in_a_row_ask_for_another_kind_and_two_do_not() {
    let mut service = calm("a");
    service.tried = (0..2).map(|run| tried("x", Outcome::Held, run)).collect();
    let greens = |service: &Service| {
        let advice = rank(std::slice::from_ref(service)).remove(0);
        advice.reasons.into_iter().find(|reason| reason.what == What::Greens)
    };
    assert_eq!(greens(&service), None);
    service.tried.push(tried("x", Outcome::Held, 2));
    let found = greens(&service).unwrap_or_else(|| panic!("{service:?}"));
    assert!((found.number - 3.0).abs() < f64::EPSILON && !found.trials.contains(&Trial::Pause), "{found:?}");
    // One that showed nothing is neither.
    service.tried.insert(1, tried("x", Outcome::Nothing, 9));
    assert!(greens(&service).is_some());
    service.tried.push(tried("x", Outcome::Broke, 3));
    assert_eq!(greens(&service), None);
}

#[test]
fn only_what_comes_back_is_to_be_killed() {
    let mut service = calm("a");
    rising(&mut service, Gauge::Memory, 1e6, 5e8);
    let is_killed = |service: &Service| rank(std::slice::from_ref(service))[0].trials.contains(&Trial::Kill);
    assert!(!is_killed(&service));
    assert!(is_killed(&Service { supervised: true, ..service.clone() }));
    service.restarts = 1;
    assert!(is_killed(&service));
}

#[test]
fn words_have_the_number_and_its_unit() {
    let mut service = calm("a");
    rising(&mut service, Gauge::Memory, 1_048_576.0, 104_857_600.0);
    let told = &rank(&[service])[0].reasons[0];
    assert_eq!(told.words, "memory: 15.0 of 100.0 MiB, grows by 1.0 MiB/s: full in 85 s");
    assert!((told.number - 85.0).abs() < 1e-9);
}
