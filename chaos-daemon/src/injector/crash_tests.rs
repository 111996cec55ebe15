//! The crash matrix on a node that is not there: for every fault kind's plan, everything of ours dies before or after,
//! or the node refuses, or an answer is lost, at every operation of making it, of undoing it, and of recovery. What
//! makes, undoes and recovers is the production code down to the netlink messages.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::recover::{Recovered, recover_on};
use crate::fault::{self, Attach, Place, Plan};
use crate::host::{Facts, Interface, Lack, NetNs, WhenAsked};
use crate::journal::{Entry, Event, Journal, undo_on};
use crate::kernel::netlink::NetlinkError;
use crate::kernel::netlink::fake::{FakeLink, FakeNode, Objects, Trouble};
use crate::kernel::netlink::marks::{self, FILTER_HANDLE, FILTER_PREFIX};
use crate::kernel::netlink::{Netlink, Qdisc};
use crate::kernel::process::ProcessId;
use crate::kernel::step::{NetNsRef, Node, Step};
use crate::spec::{Direction, FaultName, FaultRequest, FaultType};
use crate::target::NetworkTarget;

/// The device that faults go to, and another one.
const ETH0: u32 = 2;
const ETH1: u32 = 3;
const EGRESS: u32 = 0xffff_fff3;
const INGRESS: u32 = 0xffff_fff2;
const HOLDER: ProcessId = ProcessId { pid: 100, start_time: 7 };
/// No plan makes so many operations.
const MOST: usize = 200;
/// More attempts than any undo is refused here.
const FOR_EVER: usize = usize::MAX;

/// One fault to be.
struct Case {
    what: String,
    fault_type: FaultType,
    plan: Plan,
    /// What is on the node before it.
    before: Objects,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(cases);

/// Every fault kind, way and attachment, on a device with and without filter hooks of somebody else's.
fn cases() -> Vec<Case> {
    let mut cases = vec![case("resource_exhaustion", None, json!({}), Attach::Tcx, true)];
    // These differ from a delay in nothing but what their queue is told.
    for (kind, params) in [
        ("packet_loss", json!({"loss_percent": 10})),
        ("packet_duplicate", json!({"duplicate_percent": 10})),
        ("packet_corrupt", json!({"corrupt_percent": 10})),
        ("packet_reorder", json!({"reorder_percent": 10})),
        ("bandwidth", json!({"rate_kbit": 1000})),
        // And this from an error in nothing but the program.
        ("dns_error", json!({})),
    ] {
        cases.push(case(kind, Some("both"), params, Attach::Stub, true));
    }
    for kind in ["network_partition", "timeout", "error", "latency"] {
        for way in ["egress", "ingress", "both"] {
            for (attach, hooks_are_ours) in [(Attach::Tcx, true), (Attach::Stub, true), (Attach::Stub, false)]
            {
                cases.push(case(kind, Some(way), json!({}), attach, hooks_are_ours));
            }
        }
    }
    cases
}

fn case(kind: &str, way: Option<&str>, params: Value, attach: Attach, hooks_are_ours: bool) -> Case {
    let target =
        way.map_or(json!({}), |way| json!({"interface": "eth0", "cidr": "10.77.0.2", "direction": way}));
    let request: FaultRequest = serde_json::from_value(
        json!({"fault_type": kind, "probability": 1.0, "target": target, "params": params}),
    )
    .unwrap();
    let effect = request.parse().unwrap().effect;
    let netns = NetNs::current().unwrap();
    let reference = NetNsRef::new(None, &netns).unwrap();
    let interface = Interface { name: "eth0".into(), index: ETH0, ethernet: true };
    let target = NetworkTarget { netns_name: None, netns, interface, service: None, peers: Vec::new() };
    let place = Place {
        target: &target,
        netns: reference,
        id: 0x1234_5678,
        level: 1,
        attach,
        owns_clsact: hooks_are_ours,
        protected_peers: &[],
        protected_tcp_ports: &[],
    };
    let facts = Facts {
        release: "6.1".into(),
        processors: 2,
        tcx: true,
        packet_programs: None,
        veth: None,
        netem: None,
        cgroup_v2: None,
        controllers: Vec::new(),
        tracing: None,
        descriptors: None,
        call_programs: WhenAsked::new(|| Ok(())),
        files: WhenAsked::new(|| Err(Lack { what: String::new(), remedy: String::new() })),
        sockets: WhenAsked::new(|| Err(Lack { what: String::new(), remedy: String::new() })),
        systemd: None,
        sysrq: None,
    };
    let usable = vec![0, 1];
    let ground = fault::Ground::Processors(fault::ProcessorGround { usable, cgroup: None, quota: None });
    Case {
        what: format!("{kind} {way:?} {attach:?}, hooks are ours: {hooks_are_ours}"),
        fault_type: request.fault_type,
        plan: fault::plan(&effect, Some(&place), Some(&ground), &facts).unwrap(),
        before: strangers(hooks_are_ours),
    }
}

/// What others have on the node: much of it looks like ours, but for one mark.
fn strangers(hooks_are_ours: bool) -> Objects {
    let link = |name: &str, peer| FakeLink { name: name.into(), peer, up: true };
    let bpf = |name: &str| ("bpf".to_owned(), Some(name.to_owned()));
    let (pref, other_pref) = (marks::filter_pref(1).unwrap(), marks::filter_pref(2).unwrap());
    let mut objects = Objects {
        links: BTreeMap::from([
            (1, link("lo", None)),
            (ETH0, link("eth0", None)),
            (ETH1, link("eth1", None)),
            (4, link("chaos12345678x", Some(5))),
            (5, link("chaos1234567n", Some(4))),
            (6, link("chaos87654320n", None)),
        ]),
        qdiscs: BTreeMap::from([
            ((ETH0, Qdisc::ROOT), "fq_codel".into()),
            ((ETH1, Qdisc::ROOT), "mq".into()),
            ((ETH1, Qdisc::CLSACT), "clsact".into()),
        ]),
        filters: BTreeMap::from([
            ((ETH1, EGRESS, pref, FILTER_HANDLE), bpf(FILTER_PREFIX)),
            ((ETH1, INGRESS, 1, 1), bpf("cilium")),
        ]),
        processes: BTreeMap::from([(1, 1), (HOLDER.pid + 1, HOLDER.start_time)]),
    };
    if !hooks_are_ours {
        objects.qdiscs.insert((ETH0, Qdisc::CLSACT), "clsact".into());
        objects.filters.insert((ETH0, EGRESS, other_pref, FILTER_HANDLE), bpf("cilium"));
        objects.filters.insert((ETH0, INGRESS, pref, FILTER_HANDLE + 1), ("u32".into(), None));
    }
    objects
}

/// A node with a fault's journal on it.
struct Bench<'a> {
    case: &'a Case,
    node: FakeNode,
    journal: Journal,
    folder: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    fn new(case: &'a Case) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let journal = Journal::open(folder.path().into()).unwrap();
        let node = FakeNode::default();
        node.0.change(|objects| *objects = case.before.clone());
        Self { case, node, journal, folder }
    }

    /// Injects: writes the journal, makes the holder, and makes in its place what it makes. `true` when all went well.
    fn inject(&self, trouble: Option<Trouble>) -> (Entry, bool) {
        self.node.0.expect(trouble);
        self.node.0.change(|objects| {
            objects.processes.insert(HOLDER.pid, HOLDER.start_time);
        });
        let mut steps = self.case.plan.steps.clone();
        steps.push(Step::Holder(HOLDER));
        let name = FaultName::new("a").unwrap();
        let mut entry = self.journal.begin(1, &name, self.case.fault_type, &steps).unwrap();
        let made = self.make();
        if made {
            entry.note(Event::Applied).unwrap();
        }
        (entry, made)
    }

    /// Makes what can outlive the holder, in the order of the plan, by the calls that the holder makes.
    fn make(&self) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for step in &self.case.plan.steps {
                let netlink = self.node.connect(NetNs::current().unwrap()).unwrap();
                if make_one(step, &netlink).await.is_err() {
                    return false;
                }
            }
            true
        })
    }

    /// Everything of ours has died, the holder too; its pair goes soon after it, or has gone.
    fn everything_died(&self, pair_lingers: bool) {
        self.node.0.expect(None);
        self.node.0.change(|objects| {
            objects.processes.remove(&HOLDER.pid);
            if !pair_lingers {
                let ours = |link: &FakeLink| {
                    link.name.starts_with("chaos12345678") && !link.name.ends_with('x')
                        || link.name.starts_with("chaos12345679")
                };
                objects.links.retain(|_, link| !ours(link));
            }
        });
    }

    fn recover(&self, trouble: Option<Trouble>) -> Recovered {
        self.node.0.expect(trouble);
        recover_on(&self.node, &self.journal).unwrap()
    }

    fn journals(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// Recovers without trouble: the node is as before, and recovering again finds nothing.
    fn assert_recovers(&self, after: &str) {
        let what = &self.case.what;
        let recovered = self.recover(None);
        assert_eq!(recovered.stuck, [""; 0], "{what}, {after}");
        assert_eq!(self.node.0.objects(), self.case.before, "{what}, {after}: {recovered:?}");
        assert!(self.journals().is_empty(), "{what}, {after}: a journal is left");
        let again = self.recover(None);
        assert!(again.removed.is_empty() && again.stuck.is_empty(), "{what}, {after}: {again:?}");
        assert_eq!(self.node.0.objects(), self.case.before, "{what}, {after}, recovered twice");
    }

    /// As the injector does while it lives, until nothing is left: at most `attempts` times. `true` when done.
    fn remove(&self, entry: Entry, attempts: usize) -> bool {
        for _ in 0..attempts {
            if undo_on(&self.node, entry.steps()).stuck.is_empty() {
                entry.close().unwrap();
                return true;
            }
        }
        false
    }
}

async fn make_one(step: &Step, netlink: &Netlink) -> Result<(), NetlinkError> {
    match step {
        Step::NearEnd { id, .. } => {
            let pair =
                netlink.create_veth_pair(&marks::near_name(*id), netlink, &marks::far_name(*id)).await?;
            netlink.set_up(pair.near.ifindex).await
        }
        Step::Clsact { ifindex, .. } => netlink.add_clsact(*ifindex).await.map(drop),
        Step::Stub { ifindex, direction, level, .. } => {
            let program = std::fs::File::open("/dev/null").unwrap();
            let (program, pref) = (std::os::fd::AsFd::as_fd(&program), marks::filter_pref(*level).unwrap());
            netlink.add_bpf_filter(*ifindex, *direction, pref, FILTER_HANDLE, program, FILTER_PREFIX).await
        }
        // A setting is not an object that netlink makes.
        Step::Holder(_) | Step::Setting(_) => Ok(()),
    }
}

/// All that can happen at one operation.
fn troubles(at: usize) -> [Trouble; 4] {
    [Trouble::DieBefore(at), Trouble::DieAfter(at), Trouble::Refuse(at, 1), Trouble::LoseAnswer(at, 1)]
}

/// Runs `cell` with every trouble at every operation that it makes; returns how many cells there were. `cell` says how
/// many operations it made.
fn at_every_operation(mut cell: impl FnMut(Trouble) -> usize) -> usize {
    let mut cells = 0;
    for at in 1..MOST {
        for trouble in troubles(at) {
            if cell(trouble) < at {
                return cells;
            }
            cells += 1;
        }
    }
    panic!("more than {MOST} operations");
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
                assert_eq!(bench.node.0.objects(), case.before, "{}, {trouble:?}", case.what);
                assert!(bench.journals().is_empty());
            }
            operations
        });
    }
    println!("making: {cells} cells");
    assert!(cells > 400, "{cells}");
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
                assert_eq!(bench.node.0.objects(), case.before, "{}", case.what);
            } else {
                assert_eq!(bench.journals().len(), 1, "{}, {trouble:?}: called done", case.what);
            }
            bench.everything_died(true);
            bench.assert_recovers(&format!("undoing with {trouble:?}"));
            operations
        });
    }
    println!("undoing: {cells} cells");
    assert!(cells > 1000, "{cells}");
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
            bench.assert_recovers(&format!("recovering with {trouble:?}"));
            operations
        });
    }
    println!("recovering: {cells} cells");
    assert!(cells > 1000, "{cells}");
}

#[test]
fn an_undo_that_is_refused_again_and_again_is_named_each_time_and_done_once_it_can_be() {
    let mut cells = 0;
    for case in CASES.iter() {
        for (at, times, attempts) in (1..MOST).flat_map(|at| [(at, 1, 2), (at, FOR_EVER, 5)]) {
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
    assert!(cells > 1000, "{cells}");
}

#[test]
fn a_journal_that_is_cut_off_anywhere_is_recovered_from() {
    let mut cells = 0;
    for case in CASES.iter().filter(|case| case.what.contains("Some(\"both\")") || case.plan.steps.is_empty())
    {
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
    assert!(cells > 3000, "{cells}");
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
                Step::NearEnd { .. } | Step::Holder(_) | Step::Setting(_) => continue,
            }
            before.processes.insert(HOLDER.pid, HOLDER.start_time + 1);
            bench.node.0.change(|objects| *objects = before.clone());
            let mut steps = case.plan.steps.clone();
            steps.push(Step::Holder(HOLDER));
            bench.journal.begin(1, &FaultName::new("a").unwrap(), case.fault_type, &steps).unwrap();
            let recovered = bench.recover(None);
            assert!(
                recovered.removed.is_empty() && recovered.stuck.is_empty(),
                "{}: {recovered:?}",
                case.what
            );
            assert_eq!(bench.node.0.objects(), before, "{}, {step}", case.what);
        }
    }
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
        case in 0..CASES.len(),
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
        prop_assert_eq!(bench.node.0.objects(), before);
        prop_assert!(bench.journals().is_empty());
    }
}
