//! The guards themselves: what a test makes is gone afterwards, also when the test panics; and that instruments see.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::Duration;

use chaos_daemon::host::Part;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::oracle::{Cgroup, Fake, leased};
use super::{Attach, Context, Outcome, TestResult, tests};
use crate::bpf::{self, CGROUP_EGRESS, CGROUP_SKB, CLASSIFIER, TCX_EGRESS};
use crate::fault::{Fault, LONG};
use crate::late::HANG;
use crate::measure::Echo;
use crate::process::wait_until;
use crate::residue::{Behaviour, Level, Witness};
use crate::skip::Environment;
use crate::sweep::bench::Bench;
use crate::sweep::tracer::{Aim, Trace};
use crate::sweep::{Strike, list};
use crate::worker::Program;
use crate::{Daemon, Error, NetNs, Pair, Reason, Residue, UdpFlow, netns};

tests![
    a_namespace_is_gone_after_a_panic_inside_it,
    a_pair_is_gone_after_its_test_panicked,
    a_command_runs_inside_its_namespace,
    a_change_of_a_link_shows_as_residue,
    every_other_change_in_a_namespace_shows_until_it_is_taken_back,
    what_is_left_on_the_node_shows_until_it_is_taken_back,
    what_is_left_is_told_from_what_still_acts,
    what_calls_get_and_who_burns_show_in_how_it_behaves,
    a_file_error_shows_in_how_it_behaves,
    a_socket_error_shows_in_how_it_behaves,
    a_bystander_counts_what_an_unplugged_cable_loses,
    a_trace_of_a_process_in_full_swing_begins_before_its_first_call_is_struck,
    no_sign_shows_that_a_fault_acts_when_there_is_none,
];

/// What uses processors, as the bench calls it.
const PROCESSORS: &str = "resource_exhaustion";

fn a_namespace_is_gone_after_a_panic_inside_it(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let path = namespace.path();
    assert!(path.exists());
    let panicked = catch_unwind(AssertUnwindSafe(move || namespace.run(|| panic!("on purpose"))));
    assert!(panicked.is_err());
    assert!(!path.exists(), "{} is left", path.display());
    Ok(Outcome::Pass)
}

fn a_pair_is_gone_after_its_test_panicked(_: &Context) -> TestResult {
    let before = netns::left_by(std::process::id());
    let panicked = catch_unwind(|| {
        let pair = Pair::new();
        assert!(pair.is_err(), "on purpose");
    });
    assert!(panicked.is_err());
    assert_eq!(netns::left_by(std::process::id()), before);
    Ok(Outcome::Pass)
}

fn a_command_runs_inside_its_namespace(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let outside = std::fs::read_link("/proc/self/ns/net")?;
    let inside = namespace.run(|| std::fs::read_link("/proc/thread-self/ns/net"))?;
    let command = netns::output(namespace.command("readlink").arg("/proc/self/ns/net"))?;
    assert_ne!(inside, outside);
    assert_eq!(inside.to_string_lossy(), command.trim());
    Ok(Outcome::Pass)
}

fn a_change_of_a_link_shows_as_residue(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near, &pair.far])?;
    assert_eq!(before.difference(&Residue::take(&[&pair.near, &pair.far])?), "");
    pair.near.ip(&["link", "set", "eth0", "mtu", "1400"])?;
    let difference = before.difference(&Residue::take(&[&pair.near, &pair.far])?);
    assert!(difference.contains("1400"), "{difference}");
    Ok(Outcome::Pass)
}

fn every_other_change_in_a_namespace_shows_until_it_is_taken_back(context: &Context) -> TestResult {
    let pair = Pair::new()?;
    let near = &pair.near;
    let before = Residue::take(&[near])?;
    for (shows, program, change, back) in [
        ("address eth0", "ip", "address add 10.9.9.9/32 dev eth0", "address delete 10.9.9.9/32 dev eth0"),
        ("route", "ip", "route add 10.99.0.0/16 dev eth0", "route delete 10.99.0.0/16 dev eth0"),
        ("route", "ip", "-6 route add fd99::/64 dev eth0", "-6 route delete fd99::/64 dev eth0"),
        ("rule", "ip", "rule add pref 99 lookup 99", "rule delete pref 99"),
        ("qdisc eth0", "tc", "qdisc add dev eth0 root pfifo limit 7", "qdisc delete dev eth0 root"),
        ("qdisc eth0", "tc", "qdisc add dev eth0 clsact", "qdisc delete dev eth0 clsact"),
        ("link other", "ip", "link add other type veth peer name another", "link delete other"),
    ] {
        let run = |words: &str| netns::output(near.command(program).args(words.split(' ')));
        run(change)?;
        let difference = before.difference(&before.again(&[near])?);
        assert!(difference.contains(&format!("+ {} {shows}", near.name())), "{change}: {difference}");
        run(back)?;
        before.assert_unchanged_within(&[near], HANG)?;
    }
    near.run(|| fs::write("/proc/sys/net/ipv4/ip_default_ttl", "63"))?;
    let difference = before.difference(&before.again(&[near])?);
    assert!(difference.contains("sysctl /proc/sys/net/ipv4/ip_default_ttl: 63"), "{difference}");
    near.run(|| fs::write("/proc/sys/net/ipv4/ip_default_ttl", "64"))?;
    if context.kernel >= (6, 6) {
        let index = near.run(|| nix::net::if_::if_nametoindex("eth0"))?;
        let program = bpf::load("somebodys", CLASSIFIER, None)?;
        let link = near.run(|| bpf::attach(program.as_fd(), index, TCX_EGRESS))?;
        let difference = before.difference(&before.again(&[near])?);
        assert!(difference.contains(&format!("tcx #{index} egress")), "{difference}");
        drop(link);
    }
    before.assert_unchanged_within(&[near], HANG)?;
    Ok(Outcome::Pass)
}

fn what_is_left_on_the_node_shows_until_it_is_taken_back(context: &Context) -> TestResult {
    let cgroup = Cgroup::new(&format!("ct{}-guard", std::process::id()))?;
    let before = Residue::take_with(&[], &[cgroup.path()])?;
    let shows = |what: &str| -> Result<(), Error> {
        let mut difference = String::new();
        // A process takes its name, and its place in /proc, when it is given a processor.
        let seen = wait_until(HANG, || {
            difference =
                before.again(&[]).map_or_else(|error| error.to_string(), |now| before.difference(&now));
            difference.contains(what)
        });
        match seen {
            true => Ok(()),
            false => Err(Error::Different(format!("{what} does not show: {difference:?}"))),
        }
    };
    let is_gone = || before.assert_unchanged_within(&[], HANG);
    fs::write(cgroup.path().join("cgroup.freeze"), "1")?;
    shows("cgroup.freeze=1")?;
    fs::write(cgroup.path().join("cgroup.freeze"), "0")?;
    is_gone()?;

    let (program, group) = (bpf::load("somebodys", CGROUP_SKB, None)?, fs::File::open(cgroup.path())?);
    let link = bpf::attach(program.as_fd(), group.as_raw_fd().unsigned_abs(), CGROUP_EGRESS)?;
    shows("inet_egress=1 programs")?;
    drop(link);
    is_gone()?;

    let mark = format!("chaos{:08x}", std::process::id());
    let folder = tempfile::tempdir()?;
    let point = folder.path().join(&mark);
    fs::create_dir(&point)?;
    mount(None::<&str>, &point, Some("bpf"), MsFlags::empty(), None::<&str>)?;
    let pinned = bpf::array("chaos_RULE", 1).and_then(|map| bpf::pin(map.as_fd(), &point.join("map")));
    let seen = pinned.and_then(|()| {
        shows(&format!("mount {}", point.display()))?;
        shows(&format!("pin {}", point.join("map").display()))?;
        if context.environment == Environment::Vm {
            shows("chaos_RULE: that nobody holds")?;
        }
        Ok(())
    });
    umount2(&point, MntFlags::MNT_DETACH)?;
    seen?;
    is_gone()?;

    for part in Part::ALL {
        let fake = Fake::start_as(part.name(), "sleep", &["600"], Stdio::null())?;
        let (pid, line) = (fake.pid(), format!("process {} {}", part.name(), fake.pid()));
        // These two are nobody's children, and at work while they run.
        if !matches!(part, Part::Injector | Part::Guard) {
            shows(&line)?;
        }
        kill(Pid::from_raw(pid), Signal::SIGSTOP)?;
        shows(&format!("{line}: state T"))?;
        drop(fake);
        is_gone()?;
    }

    let path = folder.path().join(format!("{mark}-fill"));
    let file = fs::File::create(&path)?;
    fs::remove_file(&path)?;
    let mut keeper = Command::new("sleep").arg("600").stdin(file).spawn()?;
    let seen = shows(&path.display().to_string());
    keeper.kill()?;
    keeper.wait()?;
    seen?;
    is_gone()?;
    Ok(Outcome::Pass)
}

fn what_is_left_is_told_from_what_still_acts(context: &Context) -> TestResult {
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let both = [&pair.near, &pair.far];
    let mut witness = Witness::new(&pair)?;
    let (before, behaved) = (Residue::take(&both)?, Behaviour::measure(&pair, &echo, &mut witness)?);
    assert_eq!((behaved.lost, behaved.echo, behaved.connect, behaved.open), (0, true, None, None));
    let settle = Duration::from_millis(200);
    let mut level = || {
        let behaves = || Behaviour::measure(&pair, &echo, &mut witness)?.assert_like(&behaved);
        before.level_within(&both, settle, behaves)
    };
    assert_eq!(level()?, Level::Identical);
    pair.near.ip(&["address", "add", "10.9.9.9/32", "dev", "eth0"])?;
    assert!(matches!(level()?, Level::Inert(text) if text.contains("10.9.9.9")));
    pair.far.ip(&["address", "delete", "10.77.0.2/24", "dev", "eth0"])?;
    assert!(matches!(level()?, Level::Effect(text) if text.contains("lost: 8")));
    pair.far.ip(&["address", "add", "10.77.0.2/24", "dev", "eth0"])?;
    if context.kernel >= (6, 6) {
        // Nobody notices it yet, and the daemon's oracle knows that it acts.
        let link = leased(&pair.near, LONG)?;
        assert!(matches!(level()?, Level::Effect(text) if text.contains("acts on eth0 egress")));
        drop(link);
    }
    pair.near.ip(&["address", "delete", "10.9.9.9/32", "dev", "eth0"])?;
    assert_eq!(level()?, Level::Identical);
    Ok(Outcome::Pass)
}

fn what_calls_get_and_who_burns_show_in_how_it_behaves(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let mut witness = Witness::new(&pair)?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    // Whose start takes processor time.
    let now = |witness: &mut Witness| {
        daemon.wait_until_warm()?;
        Behaviour::measure(&pair, &echo, witness)
    };
    let before = now(&mut witness)?;
    let fault = Fault::new("connect_error").aimed(json!({"cgroup": witness.cgroup.name()}));
    fault.with(json!({"errno": "EACCES"})).inject(&mcp)?;
    let refused = now(&mut witness)?;
    // Who is not in the group notices nothing.
    assert_eq!((refused.connect, refused.echo), (Some(Errno::EACCES), true), "{refused:?}");
    assert!(refused.assert_like(&before).is_err());
    mcp.call_tool("chaos_stop", json!({}))?.ok()?;
    let away = witness.folder.path().join("away");
    fs::rename(witness.file(), &away)?;
    let without = now(&mut witness)?;
    assert_eq!((without.connect, without.open), (None, Some(Errno::ENOENT)), "{without:?}");
    assert!(without.assert_like(&before).is_err());
    fs::rename(&away, witness.file())?;
    let burner = Fake::start("sh", &["-c", "while :; do :; done"])?;
    // The two are on processors of their own, of which one may be much busier than the other.
    let burns = || now(&mut witness).is_ok_and(|now| now.assert_like(&before).is_err());
    assert!(wait_until(HANG, burns), "nobody sees it burn");
    drop(burner);
    now(&mut witness)?.assert_like(&before)?;
    Ok(Outcome::Pass)
}

fn a_file_error_shows_in_how_it_behaves(context: &Context) -> TestResult {
    shows_in_how_it_behaves(context, |witness| {
        let params = json!({"path": witness.folder.path(), "errno": "EROFS"});
        (Fault::new("file_error").with(params), |seen| {
            assert_eq!((seen.connect, seen.open, seen.sockets), (None, Some(Errno::EROFS), None), "{seen:?}");
        })
    })
}

fn a_socket_error_shows_in_how_it_behaves(context: &Context) -> TestResult {
    shows_in_how_it_behaves(context, |_| {
        let params = json!({"operations": ["receive"], "errno": "EPIPE"});
        (Fault::new("socket_error").with(params), |seen| {
            assert_eq!((seen.connect, seen.open, seen.sockets), (None, None, Some(Errno::EPIPE)), "{seen:?}");
        })
    })
}

/// A fault at security hooks of the witness's group, and what is seen of it.
fn shows_in_how_it_behaves(
    context: &Context,
    fault: impl FnOnce(&Witness) -> (Fault, fn(&Behaviour)),
) -> TestResult {
    if !context.has_bpf_lsm() {
        let lack = "no `bpf` in /sys/kernel/security/lsm, or lockdown";
        return Ok(Outcome::Skip(Reason::NoBpfLsm, lack.into()));
    }
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let mut witness = Witness::new(&pair)?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    daemon.wait_until_warm()?;
    let before = Behaviour::measure(&pair, &echo, &mut witness)?;
    let (fault, check) = fault(&witness);
    let fault = fault.aimed(json!({"cgroup": witness.cgroup.name()}));
    fault.inject(&mcp)?;
    let failing = Behaviour::measure(&pair, &echo, &mut witness)?;
    check(&failing);
    assert!(failing.assert_like(&before).is_err());
    fault.remove(&mcp)?;
    daemon.wait_until_warm()?;
    Behaviour::measure(&pair, &echo, &mut witness)?.assert_like(&before)?;
    Ok(Outcome::Pass)
}

fn a_bystander_counts_what_an_unplugged_cable_loses(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let flow = UdpFlow::start(&pair.near, &pair.far, (Pair::FAR_V6, 9).into(), 200)?;
    std::thread::sleep(Duration::from_millis(500));
    pair.far.ip(&["link", "set", "eth0", "down"])?;
    std::thread::sleep(Duration::from_millis(500));
    let report = flow.finish()?;
    assert!(report.received > 5, "{report:?}");
    assert!(report.lost() + report.refused > 5, "{report:?}");
    Ok(Outcome::Pass)
}

fn a_trace_of_a_process_in_full_swing_begins_before_its_first_call_is_struck(_: &Context) -> TestResult {
    let program = Program::new()?;
    for round in 0..20 {
        // Starts and ends threads all the time.
        let worker = program.start(64, &round.to_string())?;
        let (pid, strike) = (worker.pid(), Strike::Kill);
        let trace = Trace::start(Aim { pid, children: false, at: 1, strike, everybody: Vec::new() })?;
        let dead = || matches!(worker.state(), None | Some('Z'));
        assert!(wait_until(HANG, dead), "round {round}");
        let seen = trace.finish()?;
        assert!(seen.struck.is_some(), "{seen:?}");
    }
    Ok(Outcome::Pass)
}

fn no_sign_shows_that_a_fault_acts_when_there_is_none(context: &Context) -> TestResult {
    let mut bench = Bench::new(Attach::Auto)?;
    // A process that has taken nothing of what others are asked for.
    let other = bench.fault(PROCESSORS)?;
    other.inject(bench.ready()?.1)?;
    for kind in list::here(context).filter(|kind| kind.sign().is_some() && kind.name != PROCESSORS) {
        bench.prepare(kind);
        let absent = || matches!(bench.shows_now(kind), Ok(false));
        assert!(wait_until(HANG, absent), "{}: {:?}", kind.name, bench.shows_now(kind));
    }
    Ok(Outcome::Pass)
}
