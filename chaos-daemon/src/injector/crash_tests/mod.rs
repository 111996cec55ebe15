//! The crash matrix on a node that is not there: for the plan of every fault type, everything of ours dies before or after,
//! or the node refuses, or an answer is lost, at every operation of making what can outlive its holder, of undoing it, and of
//! recovery. What undoes and recovers, and what makes a setting, is the production code, down to the messages of netlink and of
//! the message bus, the files of control groups and the step of the clock. What makes the objects of a packet fault is its calls to
//! netlink, in the plan's order. Of a fault that leaves nothing behind it is the holder's end.

mod bench;
mod cases;
mod others;

use std::collections::BTreeSet;

use proptest::prelude::*;

use self::bench::{Bench, MOST, at_every_operation, seen};
use self::cases::{CASES, EGRESS, ETH0, HOLDER, INGRESS};
use crate::journal::Event;
use crate::kernel::fake::{Objects, Trouble};
use crate::kernel::netlink::Qdisc;
use crate::kernel::netlink::marks::{self, FILTER_HANDLE};
use crate::kernel::setting::{Knob, Setting};
use crate::kernel::step::Step;
use crate::spec::LifetimeClass;
use crate::spec::{Direction, FAULT_TYPES, QualifiedName};

/// More attempts than any undo is refused here.
const FOR_EVER: usize = usize::MAX;

/// The kinds of steps that a plan can have, each with all that is told apart of it; one without a place here does not compile.
fn kind(step: &Step) -> &'static str {
    match step {
        Step::Holder(_) => "holder",
        Step::NearEnd { .. } => "near end",
        Step::Clsact { .. } => "clsact",
        Step::Stub { .. } => "stub",
        Step::Setting(Setting::Link(_)) => "link",
        Step::Setting(Setting::Clock(_)) => "clock",
        Step::Setting(Setting::Service(_)) => "service",
        Step::Setting(Setting::Cgroup(setting)) => match setting.knob {
            Knob::CpuMax => "cpu.max",
            Knob::MemoryHigh => "memory.high",
            Knob::PidsMax => "pids.max",
            Knob::IoMax { .. } => "io.max",
            Knob::Freeze => "cgroup.freeze",
        },
    }
}

#[test]
fn every_fault_type_and_every_kind_of_step_is_here_as_it_is_planned() {
    for fault_type in FAULT_TYPES {
        assert!(CASES.iter().any(|case| case.fault_type == *fault_type), "{}", fault_type.name());
    }
    for case in CASES.iter() {
        let is_supervised = case.plan.lifetime == LifetimeClass::Supervised;
        assert_eq!(case.setting().is_some(), is_supervised, "{}", case.what);
    }
    let kinds: BTreeSet<_> = CASES.iter().flat_map(|case| &case.plan.steps).map(kind).collect();
    let all = [
        "cgroup.freeze",
        "clock",
        "clsact",
        "cpu.max",
        "io.max",
        "link",
        "memory.high",
        "near end",
        "pids.max",
        "service",
        "stub",
    ];
    assert_eq!(kinds, BTreeSet::from(all));
}

#[test]
fn whatever_happens_while_a_fault_is_made_recovery_leaves_the_node_as_it_was() {
    let mut cells = 0;
    for case in CASES.iter() {
        cells += at_every_operation(|trouble| {
            let bench = Bench::new(case);
            let (entry, made) = bench.inject(Some(trouble));
            let operations = bench.node.0.operations();
            if bench.node.0.died() || made {
                bench.everything_died(operations.is_multiple_of(2));
                bench.assert_recovers(&format!("making with {trouble:?}"));
            } else {
                // Refused, and alive: the injector undoes what was made.
                assert!(bench.remove(entry, 1), "{}, {trouble:?}", case.what);
                assert_eq!(bench.seen(), seen(case.before.clone()), "{}, {trouble:?}", case.what);
                assert!(bench.journals().is_empty());
            }
            operations
        });
    }
    println!("making: {cells} cells");
    assert!(cells > 900, "{cells}");
}

#[test]
fn whatever_happens_while_a_fault_is_undone_another_attempt_or_recovery_leaves_the_node_as_it_was() {
    let mut cells = 0;
    for case in CASES.iter() {
        cells += at_every_operation(|trouble| {
            let bench = Bench::new(case);
            let (entry, made) = bench.inject(None);
            assert!(made, "{}", case.what);
            bench.node.0.expect(Some(trouble));
            let done = bench.remove(entry, 1);
            let operations = bench.node.0.operations();
            if done {
                assert_eq!(bench.seen(), seen(case.before.clone()), "{}", case.what);
            } else {
                assert_eq!(bench.journals().len(), 1, "{}, {trouble:?}: called done", case.what);
            }
            bench.everything_died(true);
            bench.assert_recovers(&format!("undoing with {trouble:?}"));
            operations
        });
    }
    println!("undoing: {cells} cells");
    assert!(cells > 1900, "{cells}");
}

#[test]
fn whatever_happens_while_recovering_the_next_recovery_leaves_the_node_as_it_was() {
    let mut cells = 0;
    for case in CASES.iter() {
        cells += at_every_operation(|trouble| {
            let bench = Bench::new(case);
            bench.inject(None);
            bench.everything_died(true);
            let recovered = bench.recover(Some(trouble));
            let operations = bench.node.0.operations();
            assert_eq!(recovered.stuck.is_empty(), bench.journals().is_empty(), "{}, {trouble:?}", case.what);
            // Who stays can go on with it.
            assert_eq!(recovered.unfinished.len(), bench.journals().len(), "{}, {trouble:?}", case.what);
            bench.assert_recovers(&format!("recovering with {trouble:?}"));
            operations
        });
    }
    println!("recovering: {cells} cells");
    assert!(cells > 1900, "{cells}");
}

#[test]
fn an_undo_that_is_refused_again_and_again_is_named_each_time_and_done_once_it_can_be() {
    let mut cells = 0;
    for case in CASES.iter() {
        for (at, times, attempts) in (1..MOST).flat_map(|at| [(at, 1, 1), (at, 1, 2), (at, FOR_EVER, 5)]) {
            let bench = Bench::new(case);
            bench.inject(None);
            bench.everything_died(true);
            let mut named = Vec::new();
            for attempt in 0..attempts {
                let recovered = bench.recover(Some(Trouble::Refuse(at, times)));
                if recovered.stuck.is_empty() {
                    assert!(bench.journals().is_empty());
                    break;
                }
                assert_eq!(bench.journals().len(), 1, "{}: stuck and forgotten", case.what);
                assert!(times != 1 || recovered.stuck.len() == 1, "{}: {recovered:?}", case.what);
                assert!(attempt == 0 || times == 1 || recovered.stuck.len() <= named.len());
                named = recovered.stuck;
                cells += 1;
            }
            bench.assert_recovers(&format!("refusing {times} times from {at} on"));
            if named.is_empty() {
                break;
            }
        }
    }
    println!("refusing: {cells} cells");
    assert!(cells > 3000, "{cells}");
}

#[test]
fn a_journal_that_is_cut_off_anywhere_is_recovered_from() {
    let mut cells = 0;
    for case in CASES.iter().filter(|case| !case.what.contains("gress")) {
        let bench = Bench::new(case);
        let (entry, _) = bench.inject(None);
        let path = bench.journals().remove(0);
        let intended = std::fs::read(&path).unwrap().len() - b"\"applied\"\n".len();
        let mut entry = entry;
        entry.note(Event::Ending { reason: "told".into() }).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let made = bench.node.0.objects();
        for length in 0..=whole.len() {
            // Nothing is made before every step is on file.
            let before = &case.before;
            bench.node.0.change(|objects| *objects = if length < intended { before } else { &made }.clone());
            std::fs::write(&path, &whole[..length]).unwrap();
            bench.assert_recovers(&format!("cut off after {length} bytes"));
            cells += 1;
        }
    }
    println!("cut off: {cells} cells");
    assert!(cells > 15_000, "{cells}");
}

#[test]
fn a_line_that_is_not_understood_keeps_the_journal_and_everything_else_in_it_is_undone() {
    for case in CASES.iter() {
        let bench = Bench::new(case);
        bench.inject(None);
        bench.everything_died(true);
        let path = bench.journals().remove(0);
        let (text, made) = (std::fs::read_to_string(&path).unwrap(), bench.node.0.objects());
        let whole: Vec<_> = text.lines().collect();
        for at in 0..=whole.len() {
            bench.node.0.change(|objects| *objects = made.clone());
            let mut lines = whole.clone();
            lines.insert(at, r#"{"intent":{"Teapot":{"cups":3}}}"#);
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
            let recovered = bench.recover(None);
            assert_eq!(bench.seen(), seen(case.before.clone()), "{}, line {at}: {recovered:?}", case.what);
            let words = format!("{}: line {} (", path.display(), at + 1);
            let is_told = recovered.stuck.len() == 1 && recovered.stuck[0].contains(&words);
            assert!(is_told && recovered.unfinished.is_empty(), "{}, line {at}: {recovered:?}", case.what);
            assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), lines.len(), "{}", case.what);
        }
        // Once it is understood again, as by the version that wrote it.
        bench.node.0.change(|objects| *objects = made.clone());
        std::fs::write(&path, text).unwrap();
        bench.assert_recovers("a line that was not understood");
    }
}

#[test]
fn a_stranger_in_the_very_place_of_ours_is_left_alone() {
    for case in CASES.iter() {
        for step in &case.plan.steps {
            let bench = Bench::new(case);
            let mut before = case.before.clone();
            match step {
                Step::Stub { direction, level, .. } => {
                    let hook = if *direction == Direction::Egress { EGRESS } else { INGRESS };
                    let place = (ETH0, hook, marks::filter_pref(*level).unwrap(), FILTER_HANDLE);
                    before.qdiscs.insert((ETH0, Qdisc::CLSACT), "clsact".into());
                    before.filters.insert(place, ("bpf".into(), Some("cilium".into())));
                }
                // The older qdisc, which has one hook only.
                Step::Clsact { .. } => drop(before.qdiscs.insert((ETH0, Qdisc::CLSACT), "ingress".into())),
                // Of settings see `others`.
                Step::NearEnd { .. } | Step::Holder(_) | Step::Setting(_) => continue,
            }
            before.processes.insert(HOLDER.pid, HOLDER.start_time + 1);
            bench.node.0.change(|objects| *objects = before.clone());
            let mut steps = case.plan.steps.clone();
            steps.push(Step::Holder(HOLDER));
            bench.journal.begin(1, &QualifiedName::parse("a").unwrap(), case.fault_type, &steps).unwrap();
            let recovered = bench.recover(None);
            assert!(
                recovered.removed.is_empty() && recovered.stuck.is_empty(),
                "{}: {recovered:?}",
                case.what
            );
            assert_eq!(bench.seen(), seen(before), "{}, {step}", case.what);
        }
    }
}

/// Of settings, which take the most operations, as often as of all the others.
fn any_case() -> impl Strategy<Value = usize> {
    let settings: Vec<_> = (0..CASES.len()).filter(|case| CASES[*case].setting().is_some()).collect();
    prop_oneof![0..CASES.len(), proptest::sample::select(settings)]
}

fn any_trouble() -> impl Strategy<Value = Option<Trouble>> {
    let at = 1..40_usize;
    let times = prop_oneof![1..4_usize, Just(FOR_EVER)];
    prop_oneof![
        Just(None),
        at.clone().prop_map(|at| Some(Trouble::DieBefore(at))),
        at.clone().prop_map(|at| Some(Trouble::DieAfter(at))),
        (at.clone(), times.clone()).prop_map(|(at, times)| Some(Trouble::Refuse(at, times))),
        (at, times).prop_map(|(at, times)| Some(Trouble::LoseAnswer(at, times))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_life_with_any_troubles_ends_as_if_it_had_not_been(
        case in any_case(),
        making in any_trouble(),
        undoing in any_trouble(),
        recoveries in proptest::collection::vec(any_trouble(), 0..4),
        pair_lingers in any::<bool>(),
        number_is_reused in any::<bool>(),
    ) {
        let case = &CASES[case];
        let bench = Bench::new(case);
        let (entry, _) = bench.inject(making);
        if !bench.node.0.died() {
            bench.node.0.expect(undoing);
            bench.remove(entry, 2);
        }
        bench.everything_died(pair_lingers);
        let mut before = case.before.clone();
        if number_is_reused {
            let reuse = |objects: &mut Objects| {
                objects.processes.insert(HOLDER.pid, HOLDER.start_time + 1);
            };
            reuse(&mut before);
            bench.node.0.change(reuse);
        }
        for trouble in recoveries {
            let recovered = bench.recover(trouble);
            prop_assert_eq!(recovered.stuck.is_empty(), bench.journals().is_empty());
        }
        let recovered = bench.recover(None);
        prop_assert!(recovered.stuck.is_empty(), "{:?}", recovered);
        prop_assert_eq!(bench.seen(), seen(before));
        prop_assert!(bench.journals().is_empty());
    }
}
