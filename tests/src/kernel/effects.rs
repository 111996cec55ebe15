//! What a fault does to packets, measured from outside the daemon: before, during, after; and to nobody else.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;

use super::{Attach, Context, Outcome, TestResult, on_every_attachment, tests};
use crate::fault::Fault;
use crate::late::{HANG, within};
use crate::measure::{Echo, Tcp, icmp_rtt, tcp_rtt, udp_rtt, udp_rtt_least, udp_rtt_median};
use crate::pair::INTERFACE;
use crate::rate::burns;
use crate::trace::Load;
use crate::{Daemon, Error, Pair, Reason, Residue, UdpFlow};

tests![
    a_partition_cuts_the_named_peer_off_both_ways_and_no_other,
    a_partition_is_silent_so_that_tcp_keeps_trying,
    a_partition_of_one_direction_lets_the_other_through_on_both_families,
    a_timeout_makes_callers_of_one_port_wait_and_no_others,
    a_partition_of_a_range_of_ports_meets_both_its_ends_and_spares_what_is_next_to_it,
    an_error_refuses_connections_at_once_on_both_families,
    a_delay_of_100_ms_is_100_ms_on_the_way_out_and_the_root_qdisc_stays,
    a_delay_of_100_ms_is_100_ms_on_the_way_in,
    a_delay_both_ways_counts_twice,
    two_delays_add_up_and_ending_one_leaves_the_other,
    a_delay_loses_no_packet_while_it_comes,
    a_delay_loses_no_packet_while_it_goes,
    half_of_the_packets_means_half_also_behind_a_delay,
    burning_cpu_takes_the_share_asked_for,
];

/// Less than it takes until a SYN is sent again of itself.
const AT_ONCE: Duration = Duration::from_millis(500);
/// Long enough to tell silence from slowness.
const PATIENCE: Duration = Duration::from_millis(400);

fn a_partition_cuts_the_named_peer_off_both_ways_and_no_other(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let other = Echo::start(&pair.far, Pair::FAR_V6, 7)?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near, &pair.far])?;
        udp_rtt_median(&pair.near, echo.address(), 5, HANG)?;
        assert!(icmp_rtt(&pair.far, Pair::NEAR_V4, HANG)?.is_some(), "no way in before");
        let bystander = UdpFlow::start(&pair.near, &pair.far, (Pair::FAR_V6, 9).into(), 500)?;

        let fault = Fault::new("network_partition").on(&pair.near, json!({"cidr": "10.77.0.2"}));
        fault.inject(&mcp)?;
        assert_eq!(udp_rtt(&pair.near, echo.address(), PATIENCE)?, None, "the peer still answers");
        assert!(icmp_rtt(&pair.far, Pair::NEAR_V4, PATIENCE)?.is_none(), "the peer still gets in");
        udp_rtt_median(&pair.near, other.address(), 5, HANG)?;

        fault.remove(&mcp)?;
        udp_rtt_median(&pair.near, echo.address(), 5, HANG)?;
        assert!(icmp_rtt(&pair.far, Pair::NEAR_V4, HANG)?.is_some(), "no way in after");
        let report = bystander.finish()?;
        // Adding clsact, which tcx does without, makes the kernel restart the device's queue.
        if attach == Attach::Auto && context.kernel >= (6, 6) {
            assert_eq!((report.lost(), report.refused), (0, 0), "a bystander lost packets: {report:?}");
        }
        before.assert_unchanged_within(&[&pair.near, &pair.far], HANG)?;
        Ok(())
    })
}

fn a_partition_is_silent_so_that_tcp_keeps_trying(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let before = tcp_rtt(&pair.near, echo.address(), HANG)?;
        assert!(matches!(before, Tcp::Answered { .. }), "{before:?}");
        let fault = Fault::new("network_partition").on(&pair.near, json!({"cidr": "10.77.0.0/24"}));
        fault.inject(&mcp)?;
        // A sender that is told of the loss would fail here instead of waiting.
        let during = tcp_rtt(&pair.near, echo.address(), PATIENCE)?;
        assert!(matches!(during, Tcp::Silent), "{during:?}");
        fault.remove(&mcp)?;
        let after = tcp_rtt(&pair.near, echo.address(), HANG)?;
        assert!(matches!(after, Tcp::Answered { .. }), "{after:?}");
        Ok(())
    })
}

/// Whether datagrams arrive at the far side, and at the near one: all of them or none.
fn ways(pair: &Pair, [near, far]: [IpAddr; 2]) -> Result<[bool; 2], Error> {
    const PACKETS: u64 = 20;
    let arrive = |from, to, address: IpAddr| {
        let load = Load { linger: Duration::from_millis(150), ..Load::of(PACKETS, 400) };
        let trace = load.send(from, to, (address, 9).into())?;
        match (trace.sent, trace.received()) {
            (PACKETS, 0) => Ok(false),
            (PACKETS, PACKETS) => Ok(true),
            (sent, received) => {
                Err(Error::Different(format!("{received} of {sent} arrived, {} refused", trace.refused)))
            }
        }
    };
    Ok([arrive(&pair.near, &pair.far, far)?, arrive(&pair.far, &pair.near, near)?])
}

fn a_partition_of_one_direction_lets_the_other_through_on_both_families(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        for (ends, cidr) in
            [([Pair::NEAR_V4, Pair::FAR_V4], "10.77.0.2"), ([Pair::NEAR_V6, Pair::FAR_V6], "fd77::2")]
        {
            assert_eq!(ways(&pair, ends)?, [true, true], "{cidr} before");
            for (direction, expected) in [("egress", [false, true]), ("ingress", [true, false])] {
                let narrow = json!({"cidr": cidr, "direction": direction});
                let fault = Fault::new("network_partition").on(&pair.near, narrow);
                fault.inject(&mcp)?;
                assert_eq!(ways(&pair, ends)?, expected, "{cidr}, {direction}");
                fault.remove(&mcp)?;
                assert_eq!(ways(&pair, ends)?, [true, true], "{cidr} after {direction}");
            }
        }
        Ok(())
    })
}

fn a_timeout_makes_callers_of_one_port_wait_and_no_others(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let (slow, fine) =
        (Echo::start(&pair.far, Pair::FAR_V4, 5432)?, Echo::start(&pair.far, Pair::FAR_V4, 80)?);
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let before = tcp_rtt(&pair.near, slow.address(), HANG)?;
    assert!(matches!(before, Tcp::Answered { .. }), "{before:?}");
    let fault = Fault::new("timeout").on(&pair.near, json!({"remote_port": 5432, "protocol": "tcp"}));
    fault.inject(&mcp)?;
    let silent = tcp_rtt(&pair.near, slow.address(), PATIENCE)?;
    assert!(matches!(silent, Tcp::Silent), "{silent:?}");
    udp_rtt_median(&pair.near, slow.address(), 3, HANG)?;
    let answered = tcp_rtt(&pair.near, fine.address(), HANG)?;
    assert!(matches!(answered, Tcp::Answered { .. }), "{answered:?}");
    assert_eq!(fault.status(&mcp)?["state"], "effective");
    fault.remove(&mcp)?;
    let after = tcp_rtt(&pair.near, slow.address(), HANG)?;
    assert!(matches!(after, Tcp::Answered { .. }), "{after:?}");
    Ok(Outcome::Pass)
}

fn a_partition_of_a_range_of_ports_meets_both_its_ends_and_spares_what_is_next_to_it(
    context: &Context,
) -> TestResult {
    const RANGE: (u16, u16) = (8000, 8100);
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let start = |port: u16| Echo::start(&pair.far, Pair::FAR_V4, port);
        let hit = [start(RANGE.0)?, start(8050)?, start(RANGE.1)?];
        let spared = [start(RANGE.0 - 1)?, start(RANGE.1 + 1)?];
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let answers = |echo: &Echo| udp_rtt(&pair.near, echo.address(), PATIENCE).map(|rtt| rtt.is_some());
        for echo in hit.iter().chain(&spared) {
            assert!(answers(echo)?, "before: {}", echo.address());
        }
        let range = format!("{}-{}", RANGE.0, RANGE.1);
        let fault = Fault::new("network_partition").on(&pair.near, json!({"remote_port": range}));
        fault.inject(&mcp)?;
        for (echoes, expected) in [(hit.as_slice(), false), (&spared, true)] {
            for echo in echoes {
                assert_eq!(answers(echo)?, expected, "{}", echo.address());
            }
        }
        fault.remove(&mcp)?;
        for echo in &hit {
            assert!(answers(echo)?, "after: {}", echo.address());
        }
        Ok(())
    })
}

fn an_error_refuses_connections_at_once_on_both_families(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        for address in [Pair::FAR_V4, Pair::FAR_V6] {
            let echo = Echo::start(&pair.far, address, 5432)?;
            let other = Echo::start(&pair.far, address, 80)?;
            let before = tcp_rtt(&pair.near, echo.address(), HANG)?;
            assert!(matches!(before, Tcp::Answered { .. }), "{before:?}");
            let fault = Fault::new("error").on(&pair.near, json!({"port": 5432}));
            fault.inject(&mcp)?;
            let refused = tcp_rtt(&pair.near, echo.address(), HANG)?;
            let Tcp::Reset(after) = refused else { return Err(format!("{refused:?}").into()) };
            within(AT_ONCE, after, "the refusal")?;
            let fine = tcp_rtt(&pair.near, other.address(), HANG)?;
            assert!(matches!(fine, Tcp::Answered { .. }), "{fine:?}");
            fault.remove(&mcp)?;
            let after = tcp_rtt(&pair.near, echo.address(), HANG)?;
            assert!(matches!(after, Tcp::Answered { .. }), "{after:?}");
        }
        Ok(())
    })
}

/// Injects a fault that has a queue, or says that this kernel cannot: by name, and with nothing changed.
pub(super) fn inject_netem(fault: &Fault, mcp: &crate::Mcp) -> Result<Option<Outcome>, Error> {
    match fault.inject(mcp) {
        Ok(_) => Ok(None),
        Err(Error::Mcp { problem, .. }) if problem.contains("UNSUPPORTED_KERNEL") => {
            assert!(problem.contains("sch_netem"), "the missing module is not named: {problem}");
            Ok(Some(Outcome::Skip(Reason::NoNetem, "the daemon says so".into())))
        }
        Err(error) => Err(error),
    }
}

fn delayed(direction: &str, times: u32) -> TestResult {
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let before = Residue::take(&[&pair.near, &pair.far])?;
    let root = || pair.near.tc(&["-j", "qdisc", "show", "dev", INTERFACE, "root"]);
    let root_before = root()?;
    let baseline = udp_rtt_least(&pair.near, echo.address(), 15, HANG)?;

    let narrow = json!({"cidr": "10.77.0.0/24", "direction": direction});
    let fault = Fault::new("latency").on(&pair.near, narrow).with(json!({"delay_ms": 100}));
    if let Some(skip) = inject_netem(&fault, &mcp)? {
        before.assert_unchanged_within(&[&pair.near, &pair.far], HANG)?;
        return Ok(skip);
    }
    let during = udp_rtt_least(&pair.near, echo.address(), 15, HANG)?;
    let added = during.saturating_sub(baseline).as_secs_f64() * 1e3;
    let asked = 100.0 * f64::from(times);
    assert!((added - asked).abs() < 5.0 * f64::from(times), "asked for {asked} ms, measured {added:.2} ms");
    assert_eq!(root()?, root_before, "the device's own qdisc was touched");
    let tcp = tcp_rtt(&pair.near, echo.address(), HANG)?;
    assert!(matches!(tcp, Tcp::Answered { connect, .. } if connect.as_millis() >= 95), "{tcp:?}");

    fault.remove(&mcp)?;
    assert_eq!(root()?, root_before);
    let after = udp_rtt_least(&pair.near, echo.address(), 15, HANG)?;
    assert!(after < baseline + Duration::from_millis(20), "before {baseline:?}, after {after:?}");
    before.assert_unchanged_within(&[&pair.near, &pair.far], HANG)?;
    Ok(Outcome::Pass)
}

fn a_delay_of_100_ms_is_100_ms_on_the_way_out_and_the_root_qdisc_stays(_: &Context) -> TestResult {
    delayed("egress", 1)
}

fn a_delay_of_100_ms_is_100_ms_on_the_way_in(_: &Context) -> TestResult {
    delayed("ingress", 1)
}

fn a_delay_both_ways_counts_twice(_: &Context) -> TestResult {
    delayed("both", 2)
}

fn two_delays_add_up_and_ending_one_leaves_the_other(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let baseline = udp_rtt_least(&pair.near, echo.address(), 15, HANG)?;
    let delay = |name, millis| {
        let params = json!({"delay_ms": millis});
        Fault::new("latency").named(name).on(&pair.near, json!({})).with(params)
    };
    let (first, second) = (delay("first", 50), delay("second", 100));
    if let Some(skip) = inject_netem(&first, &mcp)? {
        return Ok(skip);
    }
    second.inject(&mcp)?;
    let added = || -> Result<f64, Error> {
        Ok((udp_rtt_least(&pair.near, echo.address(), 15, HANG)?.as_secs_f64() - baseline.as_secs_f64())
            * 1e3)
    };
    let both = added()?;
    assert!((both - 150.0).abs() < 10.0, "50 ms and 100 ms gave {both:.1} ms");
    first.remove(&mcp)?;
    let one = added()?;
    assert!((one - 100.0).abs() < 5.0, "100 ms alone gave {one:.1} ms");
    second.remove(&mcp)?;
    let none = added()?;
    assert!(none < 20.0, "{none:.1} ms are left");
    Ok(Outcome::Pass)
}

/// Injects or removes a delay on a flow that it meets: late is all that its packets may be.
fn delaying(change: fn(&Fault, &crate::Mcp, &Pair) -> Result<UdpFlow, Error>) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = Fault::new("latency").on(&pair.near, json!({})).with(json!({"delay_ms": 100}));
    // Once before, so that nothing that comes with a first time is counted: modules, a clsact qdisc that stays.
    if let Some(skip) = inject_netem(&fault, &mcp)? {
        return Ok(skip);
    }
    let keeps_clsact = Fault::new("timeout").named("other").on(&pair.near, json!({"remote_port": 1}));
    keeps_clsact.inject(&mcp)?;
    fault.remove(&mcp)?;
    let flow = change(&fault, &mcp, &pair)?;
    std::thread::sleep(Duration::from_millis(200));
    let report = flow.finish()?;
    assert!(report.sent > 50, "{report:?}");
    assert_eq!((report.lost(), report.refused), (0, 0), "packets were lost: {report:?}");
    assert!(report.slowest.as_millis() >= 95, "none was late: {report:?}");
    Ok(Outcome::Pass)
}

fn flow(pair: &Pair) -> Result<UdpFlow, Error> {
    let flow = UdpFlow::start(&pair.near, &pair.far, (Pair::FAR_V4, 9).into(), 500)?;
    std::thread::sleep(Duration::from_millis(200));
    Ok(flow)
}

fn a_delay_loses_no_packet_while_it_comes(_: &Context) -> TestResult {
    delaying(|fault, mcp, pair| {
        let flow = flow(pair)?;
        fault.inject(mcp)?;
        Ok(flow)
    })
}

fn a_delay_loses_no_packet_while_it_goes(_: &Context) -> TestResult {
    delaying(|fault, mcp, pair| {
        fault.inject(mcp)?;
        let flow = flow(pair)?;
        fault.remove(mcp)?;
        Ok(flow)
    })
}

/// A packet comes by twice when a delay sends it on a detour; the other fault must not roll its dice twice.
fn half_of_the_packets_means_half_also_behind_a_delay(_: &Context) -> TestResult {
    const PACKETS: u32 = 600;
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let loss = Fault::new("timeout")
        .on(&pair.near, json!({"protocol": "udp"}))
        .with(json!({"packet_probability": 0.5}));
    loss.inject(&mcp)?;
    let delay = Fault::new("latency").on(&pair.near, json!({})).with(json!({"delay_ms": 10}));
    let skip = inject_netem(&delay, &mcp)?;
    let flow = UdpFlow::start(&pair.near, &pair.far, (Pair::FAR_V4, 9).into(), 300)?;
    std::thread::sleep(Duration::from_secs(1) * PACKETS / 300);
    let report = flow.finish()?;
    let share = report.received as f64 / report.sent as f64;
    // Four standard errors of a fair coin.
    let tolerance = 4.0 * (0.25 / report.sent as f64).sqrt();
    assert!((share - 0.5).abs() < tolerance, "{share:.3} of {report:?} arrived");
    Ok(skip.unwrap_or(Outcome::Pass))
}

fn burning_cpu_takes_the_share_asked_for(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let idle: Vec<i32> = daemon.holders().iter().map(|holder| holder.pid).collect();
    let fault = Fault::new("resource_exhaustion").with(json!({"cpu_percent": 30, "cores": 1}));
    fault.inject(&mcp)?;
    let burner = daemon
        .holders()
        .into_iter()
        .find(|holder| !idle.contains(&holder.pid) && holder.arguments.len() == 2);
    let burner = burner.ok_or("no burning process")?;
    burns(0.3, burner.pid, || Ok(burner.cpu_time().as_secs_f64()))?;
    fault.remove(&mcp)?;
    assert!(!burner.runs(), "it still burns");
    Ok(Outcome::Pass)
}
