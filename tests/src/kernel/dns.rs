//! Questions about names that are answered wrongly, or not at all: what a resolver hears of a name that is meant and of one
//! that is not, over UDP and TCP and both IP versions, before, during and after.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use chaos_daemon::spec::dns::DNS_ANSWERS;
use serde_json::{Value, json};

use super::lifetime::recover;
use super::served::AT_ONCE;
use super::{
    Attach, Context, Outcome, STANDSTILL, TestResult, Tried, on_every_attachment, tests, with_netem,
};
use crate::cgroup::Cgroup;
use crate::daemon::binary;
use crate::fault::Fault;
use crate::late::HANG;
use crate::name_server::{Heard, Kind, NameServer, Over, ask};
use crate::netns::NetNs;
use crate::process::wait_until;
use crate::{Daemon, Error, Pair, Residue};
use nix::sys::signal::Signal;

tests![
    names_that_are_meant_get_the_error_at_once_and_all_others_the_truth,
    each_answer_is_the_code_that_it_says,
    without_names_every_question_is_met_and_nothing_but_questions,
    a_wrong_address_is_told_for_no_longer_than_the_moment,
    a_timeout_leaves_questions_without_an_answer,
    answers_about_names_that_are_meant_come_late_and_all_others_at_once,
    a_question_over_tcp_has_its_connection_reset,
    questions_over_the_loopback_are_answered,
    questions_that_arrive_are_answered,
    one_server_is_met_and_another_is_not,
    only_the_service_that_is_meant_hears_it,
    killing_every_process_at_once_ends_it_at_once,
    stopping_every_process_ends_it_with_the_lease,
];

/// Long enough to tell silence from slowness.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long one heartbeat keeps a fault.
const LEASE: Duration = Duration::from_secs(3);
const NAMES: [&str; 2] = ["db.example.org", "*.cut.example.org"];
/// Meant by these.
const MEANT: [&str; 4] = ["db.example.org", "DB.Example.org", "a.cut.example.org", "b.a.cut.example.org"];
/// Much like them.
const OTHERS: [&str; 5] =
    ["example.org", "a.db.example.org", "xdb.example.org", "cut.example.org", "db.example.org.net"];
const NXDOMAIN: u8 = 3;
const ELSEWHERE: [&str; 2] = ["wrong_address", "timeout"];

/// A resolver on the near side, servers on the far side.
struct Stage {
    servers: [NameServer; 2],
    pair: Pair,
}

impl Stage {
    fn new() -> crate::Result<Self> {
        let pair = Pair::new()?;
        let start = |address| NameServer::start(&pair.far, address, 53);
        Ok(Self { servers: [start(Pair::FAR_V4)?, start(Pair::FAR_V6)?], pair })
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        self.servers.each_ref().map(NameServer::address)
    }

    fn fault(&self, params: Value) -> Fault {
        Fault::new("dns_error").on(&self.pair.near, json!({})).with(params)
    }

    /// Asks over UDP.
    fn ask(&self, server: SocketAddr, name: &str, kind: Kind) -> crate::Result<Heard> {
        ask(&self.pair.near, server, Over::Udp, name, kind, HANG)
    }

    /// Both servers, with both kinds of question.
    fn ways(&self) -> [(SocketAddr, Kind); 4] {
        let [v4, v6] = self.addresses();
        [(v4, Kind::A), (v6, Kind::A), (v4, Kind::Aaaa), (v6, Kind::Aaaa)]
    }

    /// These names are told the truth, one after the other by each server and to each kind of question, and over TCP.
    fn assert_truth(&self, names: &[&str], when: &str) -> TestResult {
        for (name, (server, kind)) in names.iter().zip(self.ways().into_iter().cycle()) {
            assert_eq!(self.ask(server, name, kind)?, Heard::truth(kind), "{when}: {name} from {server}");
        }
        for server in self.addresses() {
            let heard = ask(&self.pair.near, server, Over::Tcp, names[0], Kind::A, HANG)?;
            assert_eq!(heard, Heard::truth(Kind::A), "{when}: {} from {server} over TCP", names[0]);
        }
        Ok(Outcome::Pass)
    }
}

fn names_that_are_meant_get_the_error_at_once_and_all_others_the_truth(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let stage = Stage::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let namespaces = [&stage.pair.near, &stage.pair.far];
        let before = Residue::take(&namespaces)?;
        stage.assert_truth(&MEANT, "before")?;
        let fault = stage.fault(json!({"names": NAMES}));
        fault.inject(&mcp)?;
        for (name, (server, kind)) in MEANT.iter().zip(stage.ways()) {
            assert_eq!(stage.ask(server, name, kind)?, Heard::code(NXDOMAIN), "{name} from {server}");
        }
        stage.assert_truth(&OTHERS, "a bystander")?;
        let status = fault.status(&mcp)?;
        assert_eq!(status["state"], "effective", "{status}");
        assert_eq!(status["evidence"]["packets_affected"], MEANT.len(), "{status}");
        fault.remove(&mcp)?;
        stage.assert_truth(&MEANT, "after")?;
        before.assert_unchanged_within(&namespaces, HANG)?;
        Ok(())
    })
}

fn answers_about_names_that_are_meant_come_late_and_all_others_at_once(context: &Context) -> TestResult {
    const DELAY: Duration = Duration::from_millis(800);
    let late = |names: Value| Fault::new("latency").with(json!({"delay_ms": 800, "names": names}));
    let test = |attach: Attach| {
        let stage = Stage::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let namespaces = [&stage.pair.near, &stage.pair.far];
        let before = Residue::take(&namespaces)?;
        let fault = late(json!(NAMES)).on(&stage.pair.near, json!({}));
        let taken = |over, name: &str, (server, kind): (SocketAddr, Kind)| -> crate::Result<Duration> {
            let asked = Instant::now();
            let heard = ask(&stage.pair.near, server, over, name, kind, HANG)?;
            assert_eq!(heard, Heard::truth(kind), "{name} from {server}");
            Ok(asked.elapsed())
        };
        // A busy machine is late once, and a delay each time.
        let assert_prompt = |name: &str, way: (SocketAddr, Kind)| {
            let prompt = || taken(Over::Udp, name, way).is_ok_and(|taken| taken < DELAY);
            assert!(wait_until(HANG, prompt), "{name} takes {DELAY:?} each time");
        };
        assert_prompt(MEANT[0], stage.ways()[0]);
        fault.inject(&mcp)?;
        for (name, way) in MEANT.iter().zip(stage.ways()) {
            let taken = taken(Over::Udp, name, way)?;
            assert!(taken >= DELAY, "{name} after {taken:?}");
        }
        let over_tcp = taken(Over::Tcp, MEANT[0], stage.ways()[0])?;
        assert!(over_tcp >= DELAY, "after {over_tcp:?}");
        for (name, way) in OTHERS.iter().zip(stage.ways().into_iter().cycle()) {
            assert_prompt(name, way);
        }
        let status = fault.status(&mcp)?;
        assert_eq!(status["state"], "effective", "{status}");
        fault.remove(&mcp)?;
        assert_prompt(MEANT[0], stage.ways()[0]);
        before.assert_unchanged_within(&namespaces, HANG)?;
        Ok(())
    };
    with_netem(context, || on_every_attachment(context, test))
}

fn each_answer_is_the_code_that_it_says(_: &Context) -> TestResult {
    let stage = Stage::new()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let codes = [("nxdomain", NXDOMAIN), ("servfail", 2), ("refused", 5)];
    // Tests of their own have the other two.
    let tried = |name: &str| codes.iter().any(|(code, _)| *code == name) || ELSEWHERE.contains(&name);
    assert!(DNS_ANSWERS.iter().all(|name| tried(name)), "an answer is not tried");
    stage.assert_truth(&MEANT[..1], "before")?;
    for (answer, code) in codes {
        let fault = stage.fault(json!({"answer": answer, "names": NAMES}));
        fault.inject(&mcp)?;
        for (server, kind) in stage.ways() {
            assert_eq!(stage.ask(server, MEANT[0], kind)?, Heard::code(code), "{answer} from {server}");
        }
        fault.remove(&mcp)?;
        stage.assert_truth(&MEANT[..1], "after")?;
    }
    Ok(Outcome::Pass)
}

fn without_names_every_question_is_met_and_nothing_but_questions(_: &Context) -> TestResult {
    let stage = Stage::new()?;
    let elsewhere = NameServer::start(&stage.pair.far, Pair::FAR_V4, 5300)?;
    let echo = crate::measure::Echo::start(&stage.pair.far, Pair::FAR_V4, 5301)?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let assert_heard = |expected: &Heard, when: &str| -> TestResult {
        for server in stage.addresses() {
            for name in ["", "org", MEANT[0], OTHERS[0]] {
                let heard = stage.ask(server, name, Kind::Mail)?;
                assert_eq!(&heard, expected, "{when}: {name:?} from {server}");
            }
        }
        Ok(Outcome::Pass)
    };
    let truth = Heard::truth(Kind::Mail);
    assert_heard(&truth, "before")?;
    let fault = stage.fault(json!({}));
    fault.inject(&mcp)?;
    assert_heard(&Heard::code(NXDOMAIN), "during")?;
    assert_eq!(stage.ask(elsewhere.address(), MEANT[0], Kind::A)?, Heard::truth(Kind::A), "another port");
    fault.remove(&mcp)?;
    assert_heard(&truth, "after")?;
    let comes_back = || crate::name_server::comes_back(&stage.pair.near, echo.address(), HANG);
    assert!(comes_back()?, "a question, before");
    let fault = stage.fault(json!({})).on(&stage.pair.near, json!({"remote_port": 5301}));
    fault.inject(&mcp)?;
    let trip = crate::measure::udp_rtt(&stage.pair.near, echo.address(), HANG)?;
    assert!(trip.is_some(), "a datagram that is no question");
    assert!(!comes_back()?, "one that is");
    fault.remove(&mcp)?;
    assert!(comes_back()?, "a question, after");
    Ok(Outcome::Pass)
}

fn a_wrong_address_is_told_for_no_longer_than_the_moment(_: &Context) -> TestResult {
    let stage = Stage::new()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    stage.assert_truth(&MEANT, "before")?;
    for (given, wrong_v6) in [
        (json!([v4.to_string(), v6.to_string()]), Heard::Said(0, vec![v6.into()], vec![0])),
        (json!([v4.to_string()]), Heard::code(0)),
    ] {
        let params = json!({"answer": "wrong_address", "addresses": given, "names": NAMES});
        let fault = stage.fault(params);
        fault.inject(&mcp)?;
        for server in stage.addresses() {
            let heard = |kind| stage.ask(server, MEANT[0], kind);
            assert_eq!(heard(Kind::A)?, Heard::Said(0, vec![v4.into()], vec![0]), "{given}");
            assert_eq!(heard(Kind::Aaaa)?, wrong_v6, "{given}");
            assert_eq!(heard(Kind::Mail)?, Heard::code(0), "{given}");
        }
        stage.assert_truth(&OTHERS[..4], "a bystander")?;
        fault.remove(&mcp)?;
        stage.assert_truth(&MEANT, "after")?;
    }
    Ok(Outcome::Pass)
}

fn a_timeout_leaves_questions_without_an_answer(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let stage = Stage::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        stage.assert_truth(&MEANT, "before")?;
        let fault = stage.fault(json!({"answer": "timeout", "names": NAMES}));
        fault.inject(&mcp)?;
        for server in stage.addresses() {
            for over in [Over::Udp, Over::Tcp] {
                let heard = ask(&stage.pair.near, server, over, MEANT[0], Kind::A, PATIENCE)?;
                assert_eq!(heard, Heard::Silence, "{server} over {over:?}");
            }
        }
        stage.assert_truth(&OTHERS, "a bystander")?;
        fault.remove(&mcp)?;
        stage.assert_truth(&MEANT, "after")?;
        Ok(())
    })
}

fn a_question_over_tcp_has_its_connection_reset(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let stage = Stage::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let over_tcp = |server, name| ask(&stage.pair.near, server, Over::Tcp, name, Kind::A, HANG);
        stage.assert_truth(&MEANT, "before")?;
        let fault = stage.fault(json!({"names": NAMES}));
        fault.inject(&mcp)?;
        for server in stage.addresses() {
            assert_eq!(over_tcp(server, MEANT[0])?, Heard::Reset, "{server}");
            assert_eq!(over_tcp(server, OTHERS[0])?, Heard::truth(Kind::A), "{server}");
        }
        fault.remove(&mcp)?;
        let udp_alone = fault.on(&stage.pair.near, json!({"protocol": "udp"}));
        udp_alone.inject(&mcp)?;
        for server in stage.addresses() {
            assert_eq!(over_tcp(server, MEANT[0])?, Heard::truth(Kind::A), "{server}");
            assert_eq!(stage.ask(server, MEANT[0], Kind::A)?, Heard::code(NXDOMAIN), "{server}");
        }
        udp_alone.remove(&mcp)?;
        stage.assert_truth(&MEANT, "after")?;
        Ok(())
    })
}

/// What these servers on the near side are asked from one side, with a fault of an interface there.
fn answered_near(
    pair: &Pair,
    from: &NetNs,
    addresses: [IpAddr; 2],
    [interface, direction]: [&str; 2],
    mcp: &crate::Mcp,
) -> TestResult {
    let target = json!({"interface": interface, "netns": pair.near.name(), "direction": direction});
    let fault = Fault::new("dns_error").aimed(target).with(json!({"names": NAMES}));
    let start = |address| NameServer::start(&pair.near, address, 53);
    let servers = addresses.into_iter().map(start).collect::<crate::Result<Vec<_>>>()?;
    let truth = Heard::truth(Kind::Aaaa);
    for (when, udp, tcp) in [
        ("before", &truth, &truth),
        ("during", &Heard::code(NXDOMAIN), &Heard::Reset),
        ("after", &truth, &truth),
    ] {
        match when {
            "during" => drop(fault.inject(mcp)?),
            "after" => drop(fault.remove(mcp)?),
            _ => {}
        }
        for server in &servers {
            let heard = |over, name| ask(from, server.address(), over, name, Kind::Aaaa, HANG);
            let what = format!("{when} {direction} of {interface}, {}", server.address());
            assert_eq!(&heard(Over::Udp, MEANT[2])?, udp, "{what}");
            assert_eq!(&heard(Over::Tcp, MEANT[2])?, tcp, "{what}");
            assert_eq!(heard(Over::Tcp, OTHERS[3])?, truth, "{what}");
        }
    }
    Ok(Outcome::Pass)
}

fn questions_over_the_loopback_are_answered(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        // As systemd-resolved and other resolvers of a host listen.
        let at = [IpAddr::from([127, 0, 0, 53]), IpAddr::from(Ipv6Addr::LOCALHOST)];
        for direction in ["egress", "ingress"] {
            answered_near(&pair, &pair.near, at, ["lo", direction], &mcp)?;
        }
        Ok(())
    })
}

fn questions_that_arrive_are_answered(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let at = [Pair::NEAR_V4, Pair::NEAR_V6];
        answered_near(&pair, &pair.far, at, ["eth0", "ingress"], &daemon.mcp()?)?;
        Ok(())
    })
}

fn one_server_is_met_and_another_is_not(_: &Context) -> TestResult {
    let stage = Stage::new()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let [v4, v6] = stage.addresses();
    stage.assert_truth(&MEANT, "before")?;
    for (cidr, met, spared) in [("10.77.0.0/24", v4, v6), ("fd77::2", v6, v4)] {
        let fault = stage.fault(json!({})).on(&stage.pair.near, json!({"cidr": cidr}));
        fault.inject(&mcp)?;
        assert_eq!(stage.ask(met, MEANT[0], Kind::A)?, Heard::code(NXDOMAIN), "{cidr}");
        assert_eq!(stage.ask(spared, MEANT[0], Kind::A)?, Heard::truth(Kind::A), "{cidr}");
        fault.remove(&mcp)?;
        stage.assert_truth(&MEANT, "after")?;
    }
    Ok(Outcome::Pass)
}

/// What a resolver hears that is a process of its own, in a control group: the code of the answer.
fn in_a_group(from: &NetNs, group: &Cgroup, server: SocketAddr) -> Result<Value, Box<dyn std::error::Error>> {
    let mut command = from.command(binary("chaosctl")?);
    group.place(&mut command);
    let server = server.to_string();
    let output = command.args(["--json", "probe", "dns", MEANT[0], "--server", &server]).output()?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(said["answer"]["rcode"].clone())
}

fn only_the_service_that_is_meant_hears_it(_: &Context) -> TestResult {
    let stage = Stage::new()?;
    let (group, other) = (Cgroup::new()?, Cgroup::new()?);
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let narrow = json!({"cgroup": group.name(), "direction": "egress"});
    let fault = stage.fault(json!({"names": NAMES})).on(&stage.pair.near, narrow);
    let heard = |group| stage.addresses().map(|server| in_a_group(&stage.pair.near, group, server));
    for (when, expected) in [("before", "NOERROR"), ("during", "NXDOMAIN"), ("after", "NOERROR")] {
        match when {
            "during" => drop(fault.inject(&mcp)?),
            "after" => drop(fault.remove(&mcp)?),
            _ => {}
        }
        for (told, untold) in heard(&group).into_iter().zip(heard(&other)) {
            assert_eq!((told?, untold?), (json!(expected), json!("NOERROR")), "{when}");
        }
    }
    Ok(Outcome::Pass)
}

/// Strikes every process at once, and looks how soon the names are told the truth.
fn survives(context: &Context, blow: Signal, limit: Duration) -> TestResult {
    on_every_attachment(context, |attach| survives_once(attach, blow, limit))
}

fn survives_once(attach: Attach, blow: Signal, limit: Duration) -> Tried<()> {
    let stage = Stage::new()?;
    let mut daemon = Daemon::start_with(|command| attach.configure(command))?;
    let before = Residue::take(&[&stage.pair.near])?;
    stage.fault(json!({"names": NAMES})).inject(&daemon.mcp()?)?;
    let [server, _] = stage.addresses();
    assert_eq!(stage.ask(server, MEANT[0], Kind::A)?, Heard::code(NXDOMAIN));
    let processes = daemon.processes();
    processes.iter().for_each(|process| process.signal(blow));
    let is_true = || stage.ask(server, MEANT[0], Kind::A).is_ok_and(|heard| heard == Heard::truth(Kind::A));
    let is_normal = wait_until(limit, is_true);
    let said = recover(&daemon);
    processes.iter().for_each(|process| process.signal(Signal::SIGKILL));
    if !is_normal {
        return Err(Error::in_vain("the truth", limit).into());
    }
    let said = said?;
    assert!(!said.contains("STUCK"), "{said}");
    before.assert_unchanged_within(&[&stage.pair.near], HANG)?;
    stage.assert_truth(&MEANT, "after")?;
    daemon.kill_everything();
    Ok(())
}

fn killing_every_process_at_once_ends_it_at_once(context: &Context) -> TestResult {
    survives(context, Signal::SIGKILL, AT_ONCE)
}

fn stopping_every_process_ends_it_with_the_lease(context: &Context) -> TestResult {
    survives(context, Signal::SIGSTOP, LEASE + STANDSTILL)
}
