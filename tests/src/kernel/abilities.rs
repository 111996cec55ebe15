//! What the faults need of the kernel is there, and loads by itself as on a real host.

use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use chaos_daemon::host::ProcessId;
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, VsockAddr, bind, connect, getsockname, listen, socket,
};

use super::{Context, Outcome, TestResult, tests};
use crate::bpf::tcx_programs;
use crate::late::HANG;
use crate::measure::{Echo, Tcp, icmp_rtt, tcp_rtt, udp_rtt_median};
use crate::pair::INTERFACE;
use crate::process::{Killed, Process};
use crate::{Error, NetNs, Pair, Reason, Residue, UdpFlow};

tests![
    a_cable_carries_udp_tcp_and_icmp_on_both_families,
    netem_in_a_private_namespace_delays_and_goes_without_trace,
    filters_come_and_go_without_losing_a_packet,
    tcx_answers_queries,
    vsock_has_a_loopback,
    a_process_that_was_collected_has_ended_though_its_session_goes_on,
];

fn a_cable_carries_udp_tcp_and_icmp_on_both_families(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    for address in [Pair::FAR_V4, Pair::FAR_V6] {
        let echo = Echo::start(&pair.far, address, 7)?;
        udp_rtt_median(&pair.near, echo.address(), 3, HANG)?;
        let tcp = tcp_rtt(&pair.near, echo.address(), HANG)?;
        assert!(matches!(tcp, Tcp::Answered { .. }), "{tcp:?}");
        drop(echo);
        let refused = tcp_rtt(&pair.near, (address, 7).into(), HANG)?;
        assert!(matches!(refused, Tcp::Reset(_)), "{refused:?}");
        assert!(icmp_rtt(&pair.near, address, HANG)?.is_some(), "no answer to ping from {address}");
    }
    Ok(Outcome::Pass)
}

fn netem_in_a_private_namespace_delays_and_goes_without_trace(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let before = udp_rtt_median(&pair.near, echo.address(), 5, HANG)?;
    let picture = Residue::take(&[&pair.near])?;
    match pair.near.tc(&["qdisc", "add", "dev", INTERFACE, "root", "netem", "delay", "50ms"]) {
        Ok(_) => {}
        Err(Error::Command { output, .. }) if output.contains("Specified qdisc kind is unknown") => {
            return Ok(Outcome::Skip(Reason::NoNetem, output));
        }
        Err(error) => return Err(error.into()),
    }
    let during = udp_rtt_median(&pair.near, echo.address(), 5, HANG)?;
    // netem may be late but never early; how late depends on what else the machine does.
    assert!(
        during >= Duration::from_millis(50) && before < during,
        "50 ms of netem: {before:?}, then {during:?}"
    );
    assert!(!picture.difference(&Residue::take(&[&pair.near])?).is_empty(), "netem does not show");
    pair.near.tc(&["qdisc", "del", "dev", INTERFACE, "root"])?;
    picture.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

/// Filters, not the clsact qdisc under them: adding or deleting that one takes the device's queues down for a moment
/// (`qdisc_graft` in `net/sched/sch_api.c`), which loses packets of bystanders on every kernel we know.
fn filters_come_and_go_without_losing_a_packet(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    pair.near.tc(&["qdisc", "add", "dev", INTERFACE, "clsact"])?;
    let picture = Residue::take(&[&pair.near])?;
    let flow = UdpFlow::start(&pair.near, &pair.far, (Pair::FAR_V4, 9).into(), 1000)?;
    std::thread::sleep(Duration::from_millis(100));
    let place = ["dev", INTERFACE, "egress", "pref", "1"];
    for _ in 0..5 {
        // A classic filter that matches nothing: one instruction, "return 0".
        pair.near.tc(&[&["filter", "add"], &place[..], &["bpf", "bytecode", "1,6 0 0 0"]].concat())?;
        pair.near.tc(&[&["filter", "del"], &place[..]].concat())?;
    }
    std::thread::sleep(Duration::from_millis(100));
    let report = flow.finish()?;
    assert!(report.sent > 100, "{report:?}");
    assert_eq!(
        (report.lost(), report.refused, report.duplicated, report.reordered),
        (0, 0, 0, 0),
        "{report:?}"
    );
    picture.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn tcx_answers_queries(context: &Context) -> TestResult {
    const INGRESS: u32 = 46;
    let namespace = NetNs::new()?;
    // The loopback device has index 1 in every namespace; a hook that does not exist gives an error.
    let answer = namespace.run(|| tcx_programs(1, INGRESS));
    match answer {
        Ok(programs) => {
            assert!(context.kernel >= (6, 6), "tcx on {:?}?", context.kernel);
            assert!(programs.is_empty(), "a new namespace has tcx programs {programs:?}");
            Ok(Outcome::Pass)
        }
        Err(error) => Ok(Outcome::Skip(Reason::NoTcx, error.to_string())),
    }
}

fn vsock_has_a_loopback(_: &Context) -> TestResult {
    match connect_to_self_over_vsock() {
        Ok(()) => Ok(Outcome::Pass),
        Err(errno) => Ok(Outcome::Skip(Reason::NoVsockLoopback, errno.to_string())),
    }
}

/// Whether a vsock of this kernel reaches another of it; the error is the kernel's.
pub(super) fn connect_to_self_over_vsock() -> nix::Result<()> {
    const ANY_PORT: u32 = u32::MAX;
    const LOOPBACK: u32 = 1;
    let open = || socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    let (server, client) = (open()?, open()?);
    bind(server.as_raw_fd(), &VsockAddr::new(LOOPBACK, ANY_PORT))?;
    listen(&server, Backlog::new(1)?)?;
    connect(client.as_raw_fd(), &getsockname::<VsockAddr>(server.as_raw_fd())?)
}

/// A kernel keeps the number of a process while its session has others in it. Some call it invalid then (EINVAL of pidfd_open(2)).
fn a_process_that_was_collected_has_ended_though_its_session_goes_on(_: &Context) -> TestResult {
    // The leader of a session starts another process, says its number, and ends with its input.
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", "sleep 600 >/dev/null & echo $!; read -r _"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut leader = Killed(command.spawn().map_err(Error::io("start", "setsid"))?);
    let mut said = String::new();
    let output = leader.0.stdout.take().into_iter();
    output.map(BufReader::new).try_for_each(|mut output| output.read_line(&mut said).map(drop))?;
    let other = said.trim().parse().ok().and_then(Process::read);
    let other = other.ok_or_else(|| Error::Different(format!("no process {said:?}")))?;
    let id = ProcessId::of(leader.0.id().cast_signed())?;
    assert!(id.open()?.is_some());
    drop(leader.0.stdin.take());
    leader.0.wait()?;
    let opened = id.open();
    other.signal(Signal::SIGKILL);
    assert!(opened?.is_none(), "it was collected");
    Ok(Outcome::Pass)
}
