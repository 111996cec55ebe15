//! What others do to a setting of ours stays, whatever happens to us: in the end the node is as if they had done it and we nothing.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;

use super::any_trouble;
use super::bench::{Bench, at_every_operation, seen};
use super::cases::{CASES, Case};
use crate::kernel::fake::{FakeUnit, Objects};
use crate::kernel::netlink::Belongings;
use crate::kernel::netlink::fake::{address, neighbour, route};
use crate::kernel::setting::{CgroupSetting, ClockSetting, Knob, LinkSetting, ServiceSetting, Setting};

/// Less than what any step of the clock could be mistaken for.
const LITTLE_NS: i64 = 400_000_000;

/// What somebody else does to a setting.
struct Deed {
    what: &'static str,
    act: Box<dyn Fn(&mut Objects)>,
    /// Whether the undo says that the setting is theirs; otherwise it is as before, or nothing is left of it.
    is_reported: bool,
}

fn deed(what: &'static str, is_reported: bool, act: impl Fn(&mut Objects) + 'static) -> Deed {
    Deed { what, act: Box::new(act), is_reported }
}

/// What others can do to a setting; one without a place here does not compile.
fn deeds(setting: &Setting) -> Vec<Deed> {
    match setting.clone() {
        Setting::Cgroup(setting) => of_group(setting),
        Setting::Link(LinkSetting { ifindex, .. }) => of_link(ifindex),
        Setting::Clock(ClockSetting { base_ns, .. }) => vec![
            deed("set right", false, move |objects| objects.clock_distance_ns = base_ns + LITTLE_NS),
            deed("stepped by a little", false, |objects| objects.clock_distance_ns += LITTLE_NS),
        ],
        Setting::Service(ServiceSetting { unit, .. }) => {
            let to = |what, load: &'static str, active: &'static str| {
                let name = unit.clone();
                deed(what, true, move |objects| {
                    let unit = objects.units.get_mut(&name).unwrap();
                    *unit = FakeUnit { load, active, start: unit.start + 1, job: None };
                })
            };
            vec![
                to("started", "loaded", "active"),
                to("started and stopped", "loaded", "inactive"),
                to("masked", "masked", "inactive"),
            ]
        }
    }
}

fn of_link(ifindex: u32) -> Vec<Deed> {
    let given = |what, give: fn(u32, &mut Belongings)| {
        deed(what, false, move |objects| {
            let Some(link) = objects.links.get_mut(&ifindex) else { return };
            link.up = true;
            give(ifindex, &mut link.has);
            for entries in [&mut link.has.addresses, &mut link.has.routes, &mut link.has.neighbours] {
                entries.sort();
            }
        })
    };
    vec![
        given("set up, and given an address", |ifindex, has| {
            has.addresses.push(address(ifindex, "2001:db8:ffff::1/64".parse().unwrap()));
        }),
        given("set up, and given a route", |ifindex, has| {
            has.routes.push(route(ifindex, "10.200.0.0/16".parse().unwrap(), None));
        }),
        // In place of the one that it had.
        given("set up, and given a neighbour", |ifindex, has| {
            has.neighbours = vec![neighbour(ifindex, "10.0.0.5".parse().unwrap(), 2)];
        }),
        deed("removed", false, move |objects| drop(objects.links.remove(&ifindex))),
    ]
}

fn of_group(setting: CgroupSetting) -> Vec<Deed> {
    let CgroupSetting { cgroup, knob, new, .. } = setting;
    let (file, path) = (knob.file(), cgroup.path.clone());
    let write = |what, is_reported, text: &'static str| {
        let path = path.clone();
        deed(what, is_reported, move |objects| {
            objects.groups.get_mut(&path).unwrap().write(file, text).unwrap()
        })
    };
    let changed = match &knob {
        Knob::CpuMax => vec![write("another limit", true, "50000 100000")],
        Knob::MemoryHigh | Knob::PidsMax => vec![write("another limit", true, "4096")],
        Knob::IoMax { .. } => vec![
            write("another limit of writing", true, "8:0 wbps=5000"),
            write("a limit of what was free", false, "8:0 riops=9"),
            write("other limits of both", true, "8:0 rbps=4000 wbps=5000"),
            write("a limit of another device", false, "8:32 rbps=4000"),
        ],
        Knob::Freeze => vec![write("thawed", false, "0")],
    };
    let (gone, anew) = (path.clone(), path.clone());
    let value = if let Knob::IoMax { device } = &knob { format!("{device} {new}") } else { new };
    changed
        .into_iter()
        .chain([
            deed("removed", false, move |objects| drop(objects.groups.remove(&gone))),
            deed("made anew, with the very value", false, move |objects| {
                let group = objects.groups.get_mut(&anew).unwrap();
                group.id = cgroup.id + 100;
                group.write(file, &value).unwrap();
            }),
        ])
        .collect()
}

/// Every setting, with everything that others can do to it.
fn all() -> impl Iterator<Item = (&'static Case, Deed)> {
    let settings = CASES.iter().filter_map(|case| Some((case, case.setting()?)));
    settings.flat_map(|(case, setting)| deeds(setting).into_iter().map(move |deed| (case, deed)))
}

/// The node as it would be if others had done this, and we nothing.
fn without_us(case: &Case, deed: &Deed) -> Objects {
    let mut objects = case.before.clone();
    (deed.act)(&mut objects);
    seen(objects)
}

#[test]
fn what_others_do_to_a_setting_of_ours_stays_whatever_happens_while_it_is_undone() {
    let mut cells = 0;
    for (case, deed) in all() {
        cells += at_every_operation(|trouble| {
            let what = format!("{}, {}, {trouble:?}", case.what, deed.what);
            let bench = Bench::new(case);
            let (_, made) = bench.inject(None);
            assert!(made, "{what}");
            bench.node.0.change(&deed.act);
            bench.everything_died(false);
            let first = bench.recover(Some(trouble));
            let operations = bench.node.0.operations();
            let second = bench.recover(None);
            assert_eq!(bench.seen(), without_us(case, &deed), "{what}");
            assert!(second.stuck.is_empty() && bench.journals().is_empty(), "{what}: {second:?}");
            // Twice where the first could not finish with another step.
            let kept: BTreeSet<_> = first.kept.iter().chain(&second.kept).collect();
            assert_eq!(kept.len(), usize::from(deed.is_reported), "{what}: {kept:?}");
            operations
        });
    }
    println!("others' settings: {cells} cells");
    assert!(cells > 500, "{cells}");
}

#[test]
fn what_others_have_done_to_a_setting_before_us_stays() {
    for (case, deed) in all() {
        let bench = Bench::new(case);
        bench.node.0.change(&deed.act);
        let (entry, made) = bench.inject(None);
        let what = format!("{}, {}, made: {made}", case.what, deed.what);
        assert!(!(made && deed.is_reported), "{what}: not looked at before");
        assert!(bench.remove(entry, 1), "{what}");
        bench.everything_died(false);
        assert_eq!(bench.seen(), without_us(case, &deed), "{what}");
    }
}

#[test]
fn a_service_that_is_stopped_stays_so_when_its_host_goes_down() {
    let case = CASES.iter().find(|case| matches!(case.setting(), Some(Setting::Service(_)))).unwrap();
    let bench = Bench::new(case);
    let (entry, made) = bench.inject(None);
    assert!(made);
    bench.node.0.change(|objects| objects.is_stopping = true);
    let before = bench.seen();
    let report = crate::journal::undo_on(&bench.node, entry.steps());
    assert!(report.stuck.is_empty() && report.kept[0].contains("the host is going down"), "{report:?}");
    bench.everything_died(false);
    assert_eq!(bench.seen().units, before.units);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_others_do_to_a_setting_of_ours_stays_at_whatever_moment_they_do_it(
        which in any::<Index>(),
        making in any_trouble(),
        recoveries in proptest::collection::vec(any_trouble(), 0..4),
        moment in any::<Index>(),
    ) {
        let all: Vec<_> = all().collect();
        let (case, deed) = which.get(&all);
        let bench = Bench::new(case);
        bench.inject(making);
        bench.everything_died(false);
        let moment = moment.index(recoveries.len() + 1);
        for (number, trouble) in recoveries.into_iter().chain([None]).enumerate() {
            if number == moment {
                // What is under way has come by then.
                bench.node.0.change(|objects| *objects = objects.clone().settled());
                bench.node.0.change(&deed.act);
            }
            let recovered = bench.recover(trouble);
            prop_assert_eq!(recovered.stuck.is_empty(), bench.journals().is_empty());
        }
        prop_assert!(bench.journals().is_empty());
        prop_assert_eq!(bench.seen(), without_us(case, deed));
    }
}
