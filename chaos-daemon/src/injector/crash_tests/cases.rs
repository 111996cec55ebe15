//! What is injected on the node that is not there: something of every type of fault, planned by the production code.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fault::{
    self, Attach, Callers, Crowd, DirectoryGround, DownGround, MemoryGround, OomGround, Place, Plan,
    ProcessorGround,
};
use crate::host::directory::{DirectoryRef, Space};
use crate::host::oom::{Books, Weight};
use crate::host::panic::AfterPanic;
use crate::host::socket_file::SparedSockets;
use crate::host::supply::{Descriptors, Memory, Tasks};
use crate::host::{CgroupRef, Facts, Identity, Interface, NetNs, PlaceRef, Spared};
use crate::kernel::fake::{FakeGroup, FakeLink, FakeNode, FakeUnit, Objects};
use crate::kernel::netlink::fake::{address, neighbour, proxy, route};
use crate::kernel::netlink::marks::{self, FILTER_HANDLE, FILTER_PREFIX};
use crate::kernel::netlink::{Belongings, Qdisc};
use crate::kernel::node::Node;
use crate::kernel::node::talk_on;
use crate::kernel::process::ProcessId;
use crate::kernel::setting::{Knob, LinkSetting, Setting, link};
use crate::kernel::step::{NetNsRef, Step};
use crate::request::ApiError;
use crate::spec::effect::Effect;
use crate::spec::resource;
use crate::spec::{FAULT_TYPES, FaultRequest, FaultType, Hoard, HostDown, QualifiedName, Way};
use crate::target::NetworkTarget;
use crate::target::process::Selection;

/// The device that faults go to, and another one.
pub(super) const ETH0: u32 = 2;
pub(super) const ETH1: u32 = 3;
pub(super) const EGRESS: u32 = 0xffff_fff3;
pub(super) const INGRESS: u32 = 0xffff_fff2;
pub(super) const HOLDER: ProcessId = ProcessId { pid: 100, start_time: 7 };
/// The control group that faults go to, by its path and its id; likewise the service.
const GROUP: &str = "/sys/fs/cgroup/a.slice";
const GROUP_ID: u64 = 7;
const SERVICE: &str = "a.service";
/// Much of everything.
const MUCH: u64 = 1 << 40;

/// One fault to be.
pub(super) struct Case {
    pub(super) what: String,
    pub(super) fault_type: FaultType,
    pub(super) plan: Plan,
    /// What is on the node before it.
    pub(super) before: Objects,
}

impl Case {
    /// What it sets, if it is supervised.
    pub(super) fn setting(&self) -> Option<&Setting> {
        self.plan.steps.iter().find_map(|step| match step {
            Step::Setting(setting) => Some(setting),
            Step::Holder(_) | Step::NearEnd { .. } | Step::Clsact { .. } | Step::Stub { .. } => None,
        })
    }
}

/// Every fault type.
pub(super) static CASES: LazyLock<Vec<Case>> =
    LazyLock::new(|| FAULT_TYPES.iter().flat_map(|fault_type| cases(*fault_type)).collect());

/// What stands for a fault type: the shortest request, and of some more.
fn cases(fault_type: FaultType) -> Vec<Case> {
    let one = |target: Value, params: Value| vec![case(fault_type, &target, &params, Attach::Tcx, true)];
    let service = || json!({"unit": SERVICE});
    let (target, params) = fault_type.example();
    match fault_type {
        FaultType::Latency | FaultType::Error => on_every_hook(fault_type),
        FaultType::Timeout | FaultType::NetworkPartition => {
            on_every_hook(fault_type).into_iter().chain(one(service(), json!({}))).collect()
        }
        FaultType::ResourceExhaustion => {
            resource::names().flat_map(of_resource).flat_map(|(target, params)| one(target, params)).collect()
        }
        FaultType::LinkDown => {
            let rhythm = json!({"down_ms": 100, "up_ms": 100});
            [json!({}), rhythm]
                .map(|params| one(json!({"interface": "eth0"}), params))
                .into_iter()
                .flatten()
                .collect()
        }
        FaultType::ClockSkew => {
            let both = [json!({"offset_seconds": 3600}), json!({"offset_seconds": -60})];
            both.map(|params| one(json!({}), params)).into_iter().flatten().collect()
        }
        // These differ from a delay or an error in nothing but their queue or program.
        _ if target.get("interface").is_some() => {
            vec![case(fault_type, &on_device("both"), &params, Attach::Stub, true)]
        }
        _ => one(target, params),
    }
}

fn on_device(way: &str) -> Value {
    json!({"interface": "eth0", "cidr": "10.77.0.2", "direction": way})
}

/// Every way and attachment, on a device with and without filter hooks of somebody else's.
fn on_every_hook(fault_type: FaultType) -> Vec<Case> {
    let mut cases = Vec::new();
    for way in ["egress", "ingress", "both"] {
        for (attach, hooks_are_ours) in [(Attach::Tcx, true), (Attach::Stub, true), (Attach::Stub, false)] {
            cases.push(case(fault_type, &on_device(way), &json!({}), attach, hooks_are_ours));
        }
    }
    cases
}

/// Targets and parameters for a resource.
fn of_resource(resource: &str) -> Vec<(Value, Value)> {
    let limited = || json!({"unit": SERVICE});
    let (target, more) = match resource {
        "cpu" => (json!({}), json!({})),
        "memory" => (json!({}), json!({"memory_mb": 1})),
        "disk_fill" => (json!({}), json!({"path": "/a", "megabytes": 1})),
        "file_descriptors" | "pids" | "ports" => (json!({}), json!({"count": 1})),
        "inodes" => (json!({}), json!({"path": "/a", "count": 1})),
        "disk_io" => (json!({}), json!({"path": "/a", "bytes_per_second": 1 << 20})),
        "cpu_limit" => (limited(), json!({"cpu_percent": 10})),
        "memory_limit" => (limited(), json!({"memory_mb": 64})),
        "pids_limit" => (limited(), json!({"pids": 5})),
        "io_limit" => (limited(), json!({"device": "8:0", "read_bps": 4096, "write_bps": 8192})),
        other => panic!("nothing stands for resource {other}"),
    };
    let with = |target: Value, more: Value| {
        let mut params = more;
        params["resource"] = resource.into();
        (target, params)
    };
    let mut all = vec![with(target, more)];
    if resource == "memory" {
        all.push(with(limited(), json!({"oom": true})));
    }
    all
}

fn case(fault_type: FaultType, target: &Value, params: &Value, attach: Attach, hooks_are_ours: bool) -> Case {
    let request: FaultRequest = serde_json::from_value(
        json!({"fault_type": fault_type, "probability": 1.0, "target": target, "params": params}),
    )
    .unwrap();
    let fault = request.parse().unwrap();
    let before = strangers(hooks_are_ours);
    let node = FakeNode::default();
    node.0.change(|objects| *objects = before.clone());
    let netns = NetNs::current().unwrap();
    let reference = NetNsRef::new(None, &netns).unwrap();
    let interface = Interface { name: "eth0".into(), index: ETH0, ethernet: true };
    let named = NetworkTarget { netns_name: None, netns, interface, service: None, peers: Vec::new() };
    let place = Place {
        target: &named,
        netns: reference,
        id: 0x1234_5678,
        level: 1,
        attach,
        owns_clsact: hooks_are_ours,
        protected_peers: &[],
        protected_tcp_ports: &[],
    };
    let plan = planned(&fault.effect, &node, &place).unwrap();
    let what =
        format!("{} {target} {params} {attach:?}, hooks are ours: {hooks_are_ours}", fault_type.name());
    Case { what, fault_type, plan, before }
}

fn group() -> CgroupRef {
    CgroupRef { path: GROUP.into(), id: GROUP_ID }
}

/// Plans by what a fault finds: of the node that is not there, where it looks at what is to be set.
fn planned(effect: &Effect, node: &FakeNode, place: &Place<'_>) -> Result<Plan, ApiError> {
    let old = |knob: &Knob| knob.read(&node.cgroup(&group()).unwrap().unwrap()).unwrap();
    let unit = |name: &String| talk_on(node, async |systemd| systemd.unit(name).await).unwrap();
    let crowd = Crowd {
        selection: Selection { hit: Vec::new(), spared: Vec::new(), left_out: Vec::new() },
        spared: Spared::default(),
        programs: Vec::new(),
    };
    let callers = Callers {
        cgroup: group(),
        peers: Vec::new(),
        protected_peers: Vec::new(),
        protected_tcp_ports: Vec::new(),
    };
    let down = DownGround { name: QualifiedName::parse("a").unwrap(), record: "/a".into() };
    let facts = Facts::of_everything();
    Ok(match effect {
        Effect::Impair { traffic, impairment, packet_probability, names } => {
            fault::detour::plan(traffic, impairment, *packet_probability, names, place)
        }
        Effect::Refuse { traffic, refusal, packet_probability } => {
            fault::error::plan(traffic, *refusal, *packet_probability, place)
        }
        Effect::Names { traffic, questions, packet_probability } => {
            fault::dns_error::plan(traffic, questions, *packet_probability, place)
        }
        Effect::Drop { traffic, packet_probability, partition } => {
            fault::packet_drop::plan(traffic, *packet_probability, *partition, place)
        }
        Effect::Sever { packets, packet_probability, partition } => {
            fault::sever::plan(packets, *packet_probability, *partition, &callers)
        }
        Effect::Cpu(load) => {
            let ground = ProcessorGround { usable: vec![0, 1], cgroup: None, quota: None };
            fault::cpu::plan(load, &ground)?
        }
        Effect::Hoard { what, ramp, .. } => taken(what, *ramp)?,
        Effect::Limit { limit, .. } => {
            let knob = fault::limit::knob(limit, "8:0");
            fault::limit::plan(limit, &group(), &knob, &old(&knob))
        }
        Effect::Pause { .. } => fault::pause::plan(&group(), &old(&Knob::Freeze)),
        Effect::LinkDown { rhythm, .. } => {
            let netns = NetNsRef::new(None, &NetNs::current().unwrap()).unwrap();
            let (up, found) = link::inventory(node, &netns, ETH0).unwrap().unwrap();
            assert!(up && found.unrestorable.is_empty(), "{found:?}");
            let setting = LinkSetting { netns, ifindex: ETH0, name: "eth0".into(), had: found.belongings };
            fault::link_down::plan(&setting, *rhythm)
        }
        Effect::ClockSkew { offset_ns } => {
            fault::clock_skew::plan(*offset_ns, node.clock_distance_ns().unwrap())
        }
        Effect::ServiceStop { unit: name } => fault::service_stop::plan(&unit(name)),
        Effect::ServiceRestart { unit: name } => fault::service_restart::plan(&unit(name)),
        Effect::ProcessKill { processes, volleys } => fault::process_kill::plan(processes, *volleys, &crowd),
        Effect::ProcessPause { processes, rhythm } => fault::process_pause::plan(processes, *rhythm, &crowd),
        Effect::Spoil { processes, spoiling } => fault::mcp_error::plan(processes, spoiling, &crowd),
        Effect::Connect { calls, failure } => fault::connect_error::plan(calls, failure, &callers),
        Effect::Sockets { calls, failure } => {
            fault::socket_error::plan(calls, failure, &callers, *facts.sockets.get().unwrap())
        }
        Effect::Files { calls, failure } => {
            let place = PlaceRef { path: "/a".into(), device: 1, inode: 2, is_folder: false };
            fault::file_error::plan(calls, failure, &group(), &place, *facts.files.get().unwrap())
        }
        Effect::Load(load) => {
            fault::connection_load::plan(load, MUCH, &SparedSockets::default(), &Identity::ROOT)?
        }
        Effect::Down(HostDown { way: Way::Reboot { forced }, countdown }) => {
            fault::host_reboot::plan(*forced, *countdown, &down)
        }
        Effect::Down(HostDown { way: Way::Panic { sync, stay_down }, countdown }) => {
            let after = AfterPanic { timeout: 10, crash_kernel: false };
            fault::host_panic::plan((*sync, *stay_down), *countdown, after, &down)?
        }
    })
}

/// Plans what is taken and held, of much that there is.
fn taken(what: &Hoard, ramp: Duration) -> Result<Plan, ApiError> {
    let memory = Memory { total: MUCH, available: MUCH };
    let open = Descriptors { used: 0, table: MUCH, process: MUCH };
    let directory = DirectoryGround {
        directory: DirectoryRef { path: "/a".into(), device: 1, inode: 2 },
        identity: Identity::ROOT,
        space: Space {
            bytes: MUCH,
            used: 0,
            available: MUCH,
            inodes: MUCH,
            available_inodes: MUCH,
            in_memory: false,
        },
        memory,
        least: 0,
        closed: None,
    };
    match what {
        Hoard::Memory { size, reserve } => {
            fault::memory::plan(*size, *reserve, ramp, &MemoryGround { cgroup: None, memory, limit: None })
        }
        Hoard::Oom { reserve } => fault::oom::plan(*reserve, ramp, &out_of_memory(memory)),
        Hoard::Disk(fill) => fault::disk_fill::plan(fill, ramp, &directory),
        Hoard::Inodes { count, .. } => fault::inodes::plan(*count, ramp, &directory, MUCH),
        Hoard::DiskIo { rate, bytes, .. } => fault::disk_io::plan(*rate, *bytes, None, &directory),
        Hoard::Descriptors { count, leave } => fault::descriptors::plan(*count, *leave, ramp, open),
        Hoard::Ports { udp, address, range, count } => {
            fault::ports::plan(*udp, *address, *range, *count, ramp, MUCH)
        }
        Hoard::Port(port) => Ok(fault::port_in_use::plan(*port)),
        Hoard::Tasks { count } => {
            fault::pids::plan(*count, ramp, None, Tasks { used: 0, most: MUCH, own_room: None }, 512)
        }
    }
}

/// A group of one process, which is the first to be killed.
fn out_of_memory(memory: Memory) -> OomGround {
    OomGround {
        cgroup: group(),
        books: Books {
            most: Some(1 << 20),
            high: None,
            used: 0,
            above: None,
            swaps: false,
            together: false,
            kills: 0,
        },
        memory,
        members: vec![fault::oom::Member {
            id: ProcessId { pid: 1000, start_time: 1 },
            name: "x".into(),
            weight: Weight { bytes: 1 << 20, adjustment: 0 },
            protected: None,
        }],
        holder: Weight { bytes: 0, adjustment: -1000 },
    }
}

/// What others have on the node: much of it looks like ours, but for one mark.
fn strangers(hooks_are_ours: bool) -> Objects {
    let link = |name: &str, peer| FakeLink { name: name.into(), peer, up: true, ..FakeLink::default() };
    let bpf = |name: &str| ("bpf".to_owned(), Some(name.to_owned()));
    let (pref, other_pref) = (marks::filter_pref(1).unwrap(), marks::filter_pref(2).unwrap());
    let mut objects = Objects {
        links: BTreeMap::from([
            (1, link("lo", None)),
            (ETH0, FakeLink { has: belongings(ETH0, 0), ..link("eth0", None) }),
            (ETH1, FakeLink { has: belongings(ETH1, 100), ..link("eth1", None) }),
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
        groups: BTreeMap::from([
            (GROUP.into(), fake_group(GROUP_ID, "max", "0")),
            ("/sys/fs/cgroup/b.slice".into(), fake_group(GROUP_ID + 1, "5", "1")),
        ]),
        clock_distance_ns: 1_700_000_000_000_000_000,
        units: BTreeMap::from([
            (SERVICE.into(), FakeUnit { load: "loaded", active: "active", start: 1, job: None }),
            ("b.service".into(), FakeUnit { load: "loaded", active: "inactive", start: 1, job: None }),
        ]),
        orders: Vec::new(),
        is_stopping: false,
    };
    if !hooks_are_ours {
        objects.qdiscs.insert((ETH0, Qdisc::CLSACT), "clsact".into());
        objects.filters.insert((ETH0, EGRESS, other_pref, FILTER_HANDLE), bpf("cilium"));
        objects.filters.insert((ETH0, INGRESS, pref, FILTER_HANDLE + 1), ("u32".into(), None));
    }
    objects
}

/// What a device has: of routes one that others need first.
fn belongings(ifindex: u32, net: u8) -> Belongings {
    let v4 = |text: &str| format!("10.{net}.{text}");
    let v6 = |text: &str| format!("2001:db8:{net}:{text}");
    let on_link = |to: String| route(ifindex, to.parse().unwrap(), None);
    let through =
        |to: String, gateway: String| route(ifindex, to.parse().unwrap(), Some(gateway.parse().unwrap()));
    let in_order = |mut entries: Vec<Vec<u8>>| {
        entries.sort();
        entries
    };
    Belongings {
        addresses: in_order(
            [v4("0.1/24"), v6(":1/64")].map(|text| address(ifindex, text.parse().unwrap())).into(),
        ),
        routes: in_order(vec![
            on_link(v4("9.0/24")),
            through(v4("8.0/24"), v4("9.9")),
            through(v6("8::/64"), v6(":9")),
        ]),
        neighbours: in_order(vec![neighbour(ifindex, v4("0.5").parse().unwrap(), 1)]),
        proxies: in_order([v4("0.6"), v6(":6")].map(|text| proxy(ifindex, text.parse().unwrap())).into()),
    }
}

fn fake_group(id: u64, most: &str, frozen: &str) -> FakeGroup {
    let files = [
        ("cpu.max", "max 100000".to_owned()),
        ("memory.high", "max".to_owned()),
        ("pids.max", most.to_owned()),
        ("io.max", "8:16 rbps=4096 wbps=max riops=max wiops=max".to_owned()),
        ("cgroup.freeze", frozen.to_owned()),
        ("cgroup.events", format!("populated 1\nfrozen {frozen}")),
    ];
    FakeGroup { id, files: files.into() }
}
