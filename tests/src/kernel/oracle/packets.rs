//! Devices, filters, links, programs and maps, in namespaces with and without a name.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use chaos_daemon::host::boot_time_ns;
use chaos_daemon::kernel::netlink::Netlink;
use chaos_daemon::kernel::netlink::marks::{FILTER_HANDLE, FILTER_PREFIX, far_name, filter_pref, near_name};
use chaos_daemon::spec::Direction;
use nix::mount::{MsFlags, mount};
use nix::net::if_::if_nametoindex;
use serde_json::json;
use tempfile::TempDir;

use super::super::{Context, Outcome, TestResult, on_every_attachment, tests, with_netem};
use super::{Elsewhere, Verdict, number};
use crate::bpf::{self, CLASSIFIER, TCX_EGRESS};
use crate::fault::{Fault, LONG};
use crate::pair::INTERFACE;
use crate::skip::Environment;
use crate::{Daemon, Error, NetNs, Pair, Reason, Result};

tests![
    a_device_in_a_named_namespace_is_named_and_swept,
    a_device_in_a_namespace_that_only_a_process_is_in_is_named,
    a_filter_whose_program_nobody_holds_is_inert,
    a_link_in_the_hands_of_a_stranger_acts_until_its_lease_is_over,
    a_link_a_program_and_a_map_that_are_pinned_are_named_with_their_pins,
    a_link_to_a_control_group_is_named,
    what_others_have_on_their_devices_is_not_named,
    the_faults_of_a_running_daemon_are_not_left_over,
    the_devices_of_a_running_daemon_s_delay_are_not_left_over,
];

fn a_device_in_a_named_namespace_is_named_and_swept(context: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let (near, far) = (near_name(number(1)), far_name(number(1)));
    namespace.ip(&["link", "add", &near, "type", "veth", "peer", "name", &far])?;
    let verdict = Verdict::of_node()?;
    let left = verdict.names("inert", "device", &near)?;
    assert_eq!(left["place"], format!("network namespace {}", namespace.name()));
    verdict.names("inert", "device", &far)?;
    // On a host it would sweep away what others test with.
    if context.environment == Environment::Vm {
        let folder = TempDir::new()?;
        let mut sweep = Command::new(crate::daemon::binary("chaos-daemon")?);
        sweep.args(["recover", "--sweep", "--everywhere", "--runtime-dir"]).arg(folder.path());
        let said = crate::netns::output(&mut sweep)?;
        // Whichever end comes first takes the other along.
        assert!([&near, &far].iter().any(|end| said.contains(&format!("removed device {end}"))), "{said}");
    } else {
        namespace.ip(&["link", "delete", &near])?;
    }
    Verdict::of_node()?.is_silent_on(namespace.name())?;
    Ok(Outcome::Pass)
}

fn a_device_in_a_namespace_that_only_a_process_is_in_is_named(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let near = near_name(number(1));
    namespace.ip(&["link", "add", &near, "type", "veth", "peer", "name", &far_name(number(1))])?;
    let inside = Sleeper(namespace.command("sleep").arg("600").spawn().map_err(Error::io("start", "sleep"))?);
    namespace.lose_name()?;
    let verdict = Verdict::of_node()?;
    let left = verdict.names("inert", "device", &near)?;
    assert!(left["place"].as_str().is_some_and(|place| place.starts_with("net:[")), "{left}");
    drop(inside);
    Ok(Outcome::Pass)
}

fn a_filter_whose_program_nobody_holds_is_inert(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    filter(&pair.near, bpf::load("chaos_stub_egre", CLASSIFIER, None)?.as_fd(), FILTER_PREFIX, 7)?;
    let verdict = Verdict::of_node()?;
    let left = verdict.names("inert", "filter", pair.near.name())?;
    assert_eq!(left["what"], "chaos_stub pref 30007 on eth0 egress");
    Ok(Outcome::Pass)
}

fn a_link_in_the_hands_of_a_stranger_acts_until_its_lease_is_over(context: &Context) -> TestResult {
    if context.kernel < (6, 6) {
        return Ok(Outcome::Skip(Reason::NoTcx, "the link is one".into()));
    }
    let pair = Pair::new()?;
    let lease = Duration::from_secs(3);
    let link = leased(&pair.near, lease)?;
    let me = format!("process {} (", std::process::id());
    let acts = format!("acts on {INTERFACE} egress in network namespace {}", pair.near.name());
    let verdict = Verdict::of_node()?;
    let left = verdict.names("effect", "process", &me)?;
    assert!(left["what"].as_str().is_some_and(|what| what.contains(&acts)), "{left}");
    std::thread::sleep(lease);
    Verdict::of_node()?.names("inert", "process", &me)?;
    drop(link);
    Verdict::of_node()?.is_silent_on(&me)?;
    Ok(Outcome::Pass)
}

fn a_link_a_program_and_a_map_that_are_pinned_are_named_with_their_pins(context: &Context) -> TestResult {
    let pair = Pair::new()?;
    let folder = TempDir::new()?;
    let root = folder.path().to_owned();
    let tcx = context.kernel >= (6, 6);
    let near = std::fs::File::open(pair.near.path())?;
    let elsewhere = Elsewhere::new(move || {
        mount(None::<&str>, &root, Some("bpf"), MsFlags::empty(), None::<&str>)
            .map_err(Error::sys("mount", "bpffs"))?;
        let map = bpf::array("chaos_HOSTS_V4", 0)?;
        bpf::pin(map.as_fd(), &root.join("map"))?;
        bpf::pin(bpf::load("chaos_hairpin", CLASSIFIER, None)?.as_fd(), &root.join("program"))?;
        bpf::pin(bpf::load("stranger", CLASSIFIER, None)?.as_fd(), &root.join("other"))?;
        if tcx {
            nix::sched::setns(&near, nix::sched::CloneFlags::CLONE_NEWNET)
                .map_err(Error::sys("enter", "near"))?;
            bpf::pin(attached(LONG)?.as_fd(), &root.join("link"))?;
        }
        Ok(())
    })?;
    let verdict = Verdict::of_node()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    verdict.names("inert", "pin", &at("map"))?;
    verdict.names("inert", "pin", &at("program"))?;
    verdict.is_silent_on(&at("other"))?;
    if tcx {
        verdict.names("inert", "pin", &at("link"))?;
        // Nobody renews it, and it acts all the same.
        let left = verdict.names("effect", "link", pair.near.name())?;
        assert!(left["goes"].as_str().is_some_and(|goes| goes.contains(&at("link"))), "{left}");
    }
    drop(elsewhere);
    Verdict::of_node()?.is_silent_on(&at("map"))?;
    Ok(Outcome::Pass)
}

fn a_link_to_a_control_group_is_named(_: &Context) -> TestResult {
    use std::os::fd::AsRawFd;
    let cgroup = super::files::Cgroup::new(&format!("ct{}-link", std::process::id()))?;
    let folder = std::fs::File::open(cgroup.path())?;
    let program = bpf::load("chaos_drop_egre", bpf::CGROUP_SKB, None)?;
    let link = bpf::attach(program.as_fd(), folder.as_raw_fd().unsigned_abs(), bpf::CGROUP_EGRESS)?;
    let me = format!("process {} (", std::process::id());
    let verdict = Verdict::of_node()?;
    let left = verdict.names("inert", "process", &me)?;
    assert!(left["what"].as_str().is_some_and(|what| what.contains("1 links, 1 programs")), "{left}");
    drop((link, program));
    Ok(Outcome::Pass)
}

fn what_others_have_on_their_devices_is_not_named(context: &Context) -> TestResult {
    let pair = Pair::new()?;
    let near = &pair.near;
    near.ip(&["link", "add", "chaos-lan", "type", "veth", "peer", "name", "chaosX"])?;
    near.tc(&["qdisc", "replace", "dev", INTERFACE, "root", "pfifo", "limit", "99"])?;
    let program = bpf::load("drop_egress", CLASSIFIER, None)?;
    filter(near, program.as_fd(), "cilium", 7)?;
    filter(near, program.as_fd(), FILTER_PREFIX, 9_999)?;
    let link = match context.kernel >= (6, 6) {
        true => Some(near.run(|| bpf::attach(program.as_fd(), index()?, TCX_EGRESS))?),
        false => None,
    };
    let sleeper = Sleeper(Command::new("sleep").arg0("chaos-holder").arg("600").spawn()?);
    let verdict = Verdict::of_node()?;
    verdict.is_silent_on(near.name())?;
    verdict.is_silent_on(&format!("process {} ", std::process::id()))?;
    verdict.is_silent_on(&format!("process {} ", sleeper.0.id()))?;
    if context.environment == Environment::Vm {
        assert_eq!((verdict.code, &verdict.report["level"]), (0, &json!("clean")), "{:#}", verdict.report);
    }
    drop((link, sleeper));
    Ok(Outcome::Pass)
}

fn the_faults_of_a_running_daemon_are_not_left_over(context: &Context) -> TestResult {
    are_not_left_over(context, &Fault::new("network_partition"))
}

fn the_devices_of_a_running_daemon_s_delay_are_not_left_over(context: &Context) -> TestResult {
    let delay = Fault::new("latency").with(json!({"delay_ms": 50}));
    with_netem(context, || are_not_left_over(context, &delay))
}

fn are_not_left_over(context: &Context, fault: &Fault) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let fault = fault.clone().on(&pair.near, json!({"cidr": "10.77.0.2"}));
        fault.inject(&mcp)?;
        let folder = TempDir::new()?;
        // Whether or not it knows of this daemon's runtime directory: it finds the daemon.
        for runtime_dir in [folder.path(), &daemon.runtime_dir()] {
            let verdict = Verdict::ask(runtime_dir)?;
            verdict.is_silent_on(pair.near.name())?;
            for process in daemon.processes() {
                verdict.is_silent_on(&format!("process {} ", process.pid))?;
            }
            assert!(verdict.report["in_use"].as_u64() >= Some(2), "{}", verdict.report);
        }
        // The normal door leads to the same answer.
        let answer = mcp.call_tool("chaos_doctor", json!({"residue": true}))?.ok()?;
        let verdict = Verdict { code: 0, report: answer["everywhere"].clone() };
        assert!(verdict.report["namespaces"].as_u64() >= Some(3), "{answer}");
        verdict.is_silent_on(pair.near.name())?;
        fault.remove(&mcp)?;
        Ok(())
    })
}

/// A process that ends with this.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn index() -> Result<u32> {
    if_nametoindex(INTERFACE).map_err(Error::sys("look up", INTERFACE))
}

/// A link of ours on egress of the calling thread's `eth0`, with a lease.
fn attached(lease: Duration) -> Result<OwnedFd> {
    bpf::attach(program(lease)?.as_fd(), index()?, TCX_EGRESS)
}

/// What keeps a program of ours that acts on egress of a namespace's `eth0`: its link, or where there are none, the program,
/// with a filter.
pub(super) fn acting(namespace: &NetNs, lease: Duration, tcx: bool) -> Result<OwnedFd> {
    if tcx {
        return leased(namespace, lease);
    }
    let program = program(lease)?;
    filter(namespace, program.as_fd(), FILTER_PREFIX, 7)?;
    Ok(program)
}

/// A program of ours with a lease.
fn program(lease: Duration) -> Result<OwnedFd> {
    let deadline = boot_time_ns() + u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
    let map = bpf::array("chaos_LEASE", deadline)?;
    bpf::load("chaos_drop_egre", CLASSIFIER, Some(map.as_fd()))
}

/// As [`attached`], in a namespace.
pub(in crate::kernel) fn leased(namespace: &NetNs, lease: Duration) -> Result<OwnedFd> {
    namespace.run(|| attached(lease))
}

/// A filter on egress of a namespace's `eth0`.
fn filter(namespace: &NetNs, program: BorrowedFd<'_>, name: &str, level: u16) -> Result<()> {
    let pref = u8::try_from(level).ok().and_then(filter_pref).unwrap_or(level);
    filter_at(namespace, program, name, pref)
}

/// The same with this preference.
pub(in crate::kernel) fn filter_at(
    namespace: &NetNs,
    program: BorrowedFd<'_>,
    name: &str,
    pref: u16,
) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::Different(format!("add filter {name}: {error}"));
    namespace.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| failed(&error))?.block_on(async {
            let netlink = Netlink::open().map_err(|error| failed(&error))?;
            let device = index()?;
            netlink.add_clsact(device).await.map_err(|error| failed(&error))?;
            let added = netlink.add_bpf_filter(device, Direction::Egress, pref, FILTER_HANDLE, program, name);
            added.await.map_err(|error| failed(&error))
        })
    })
}
