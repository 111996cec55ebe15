//! Any two network faults on one device, about the same packets, in either order: whichever ends, the other is there as if it
//! had been alone. And while both act: of two that drop or answer, the one that came first decides about each packet that both are
//! about, but that a partition swallows answers, too.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::impairments::checksum_errors;
use super::scene::Scene;
use super::supervised::stage::is_up;
use super::{Context, Outcome, TestResult, tests, with_netem};
use crate::fault::{Fault, LONG};
use crate::guard::Guard;
use crate::late::HANG;
use crate::measure::Echo;
use crate::name_server::{Heard, Kind, NameServer, Over, ask};
use crate::pair::Pair;
use crate::process::wait_until;
use crate::trace::{Load, quantile};
use crate::{Error, Mcp, NetNs, Result};

tests![
    of_two_faults_that_drop_or_answer_either_is_exact_when_the_other_ends,
    of_two_faults_of_which_one_is_a_queue_either_is_exact_when_the_other_ends,
    of_two_queues_of_any_kind_either_is_as_it_was_alone_when_the_other_ends,
    beside_a_delay_or_a_timeout_a_queue_of_any_kind_is_as_it_was_alone_when_that_ends,
    a_link_that_is_down_and_a_fault_of_its_packets_leave_each_other_alone,
    a_link_that_is_down_and_a_queue_leave_each_other_alone,
];

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(600);
/// A delay, and what is called late.
const DELAY_MS: u64 = 300;
const LATE: Duration = Duration::from_millis(DELAY_MS / 2);
/// Longer than anything here takes, also where it is emulated.
/// How often what shows is looked at, as long as it is not as it should be.
const TRIES: usize = 3;
const PORT: u16 = 7;
const NAME: &str = "db.example.org";

/// A fault as it is asked for.
type Asked = (&'static str, Value);

/// Every mechanism that needs no queue.
fn plain() -> [Asked; 5] {
    [
        ("timeout", json!({})),
        ("network_partition", json!({})),
        ("error", json!({})),
        ("error", json!({"answer": "host_unreachable"})),
        ("dns_error", json!({})),
    ]
}

/// What netem does that shows in a single packet.
fn queues() -> [Asked; 3] {
    [
        ("latency", json!({"delay_ms": DELAY_MS})),
        ("packet_duplicate", json!({"duplicate_percent": 100})),
        ("packet_loss", json!({"loss_percent": 100})),
    ]
}

/// What becomes of what is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Signs {
    /// Of a datagram: how many come back, whether late; or with what error.
    datagram: std::result::Result<(usize, bool), ErrorKind>,
    /// Of a connection: whether it is made late; or with what error.
    connection: std::result::Result<bool, ErrorKind>,
    /// Of a question to a name server: what is heard, whether late. `None` for an error.
    question: Option<(Heard, bool)>,
}

impl Signs {
    /// What shows of two that drop or answer, of which the first one injected decides about whatever it meets, and the second about
    /// the rest. An answer comes in as one of the peer's would: a partition, which is both ways, is about it, too.
    fn of_both(normal: &Self, first: (&Asked, &Self), second: (&Asked, &Self)) -> Self {
        let (kind, _) = second.0;
        let (first, second) =
            if *kind == "network_partition" { (second.1, first.1) } else { (first.1, second.1) };
        fn decided<T: Clone + PartialEq>(normal: &T, first: &T, second: &T) -> T {
            if first == normal { second.clone() } else { first.clone() }
        }
        Self {
            datagram: decided(&normal.datagram, &first.datagram, &second.datagram),
            connection: decided(&normal.connection, &first.connection, &second.connection),
            question: decided(&normal.question, &first.question, &second.question),
        }
    }
}

struct Stage {
    scene: Scene,
    echo: Echo,
    server: NameServer,
}

impl Stage {
    fn new() -> Result<Self> {
        let scene = Scene::new()?;
        let echo = Echo::start(&scene.pair.far, Pair::FAR_V4, PORT)?;
        let server = NameServer::start(&scene.pair.far, Pair::FAR_V4, 53)?;
        Ok(Self { scene, echo, server })
    }

    fn signs(&self) -> Result<Signs> {
        let near = &self.scene.pair.near;
        let asked = Instant::now();
        let question = ask(near, self.server.address(), Over::Udp, NAME, Kind::A, PATIENCE);
        let question = question.ok().map(|heard| {
            let late = heard != Heard::Silence && asked.elapsed() >= LATE;
            (heard, late)
        });
        Ok(Signs {
            datagram: datagram(near, self.echo.address())?,
            connection: connection(near, self.echo.address())?,
            question,
        })
    }

    /// What shows twice in a row: a machine that is busy makes an answer late that nothing holds up.
    fn clear_signs(&self) -> Result<Signs> {
        let mut last = self.signs()?;
        for _ in 0..2 * TRIES {
            let signs = self.signs()?;
            if signs == last {
                return Ok(signs);
            }
            last = signs;
        }
        Err(Error::Different(format!("what shows is another each time, {last:?} in the end")))
    }

    /// Two may be of one type.
    fn fault(&self, name: &str, (kind, params): &Asked) -> Fault {
        let fault = Fault::new(kind).on(&self.scene.pair.near, json!({"cidr": "10.77.0.2"}));
        fault.with(params.clone()).named(name).lasting(LONG)
    }

    /// What shows of a fault alone.
    fn alone(&self, asked: &Asked) -> Result<Signs> {
        let fault = self.fault("alone", asked);
        fault.inject(&self.scene.mcp)?;
        let signs = self.clear_signs()?;
        fault.remove(&self.scene.mcp)?;
        Ok(signs)
    }

    /// Has both begin and end in every order. What they do together is looked at where one of them decides.
    fn overlap(
        &self,
        normal: &Signs,
        first: (&Asked, &Signs),
        second: (&Asked, &Signs),
        one_decides: bool,
    ) -> Result<()> {
        let mcp: &Mcp = &self.scene.mcp;
        let (one, other) = (self.fault("first", first.0), self.fault("second", second.0));
        let expect = |expected: &Signs, when: &str| -> Result<()> {
            // A machine that is busy makes an answer late that nothing holds up.
            let mut seen = Vec::new();
            while seen.len() < TRIES {
                let signs = self.signs()?;
                if signs == *expected {
                    return Ok(());
                }
                seen.push(signs);
            }
            Err(Error::Different(format!(
                "{:?} and {:?}: {when}: {seen:?}, and not {expected:?}",
                first.0, second.0
            )))
        };
        one.inject(mcp)?;
        other.inject(mcp)?;
        if one_decides {
            expect(&Signs::of_both(normal, first, second), "both act, and the first came first")?;
        }
        one.remove(mcp)?;
        expect(second.1, "the first, which came first, has ended")?;
        one.inject(mcp)?;
        if one_decides {
            expect(&Signs::of_both(normal, second, first), "both act, and the second came first")?;
        }
        other.remove(mcp)?;
        expect(first.1, "the second, which came first, has ended")?;
        other.inject(mcp)?;
        other.remove(mcp)?;
        expect(first.1, "the second, which came last, has ended")?;
        one.remove(mcp)?;
        expect(normal, "both have ended")
    }
}

fn datagram(from: &NetNs, to: SocketAddr) -> Result<std::result::Result<(usize, bool), ErrorKind>> {
    let asked = from.run(|| {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let sent = Instant::now();
        socket.send(b"x")?;
        let (mut count, mut late, mut buffer) = (0, false, [0; 16]);
        loop {
            match socket.recv(&mut buffer) {
                Ok(_) => {
                    late |= count == 0 && sent.elapsed() >= LATE;
                    count += 1;
                    // Another comes along with it.
                    socket.set_read_timeout(Some(PATIENCE / 3))?;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok((count, late));
                }
                Err(error) => return Err(error),
            }
        }
    });
    said(asked, to)
}

fn connection(from: &NetNs, to: SocketAddr) -> Result<std::result::Result<bool, ErrorKind>> {
    let started = Instant::now();
    let made = from.run(|| TcpStream::connect_timeout(&to, PATIENCE));
    said(made.map(|_| started.elapsed() >= LATE), to)
}

/// Errors of the network are what was to be seen; others are ours.
fn said<T>(result: std::io::Result<T>, to: SocketAddr) -> Result<std::result::Result<T, ErrorKind>> {
    match result {
        Ok(seen) => Ok(Ok(seen)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::HostUnreachable
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::ConnectionReset
                    | ErrorKind::TimedOut
            ) =>
        {
            Ok(Err(error.kind()))
        }
        Err(error) => Err(Error::io("ask", to.to_string())(error)),
    }
}

/// Every two of `faults`, but for those of which both are among the first `done`.
fn every_two(faults: &[Asked], done: usize, one_decides: bool) -> TestResult {
    let stage = Stage::new()?;
    let normal = stage.clear_signs()?;
    let alone = faults.iter().map(|asked| stage.alone(asked)).collect::<Result<Vec<_>>>()?;
    for (asked, signs) in faults.iter().zip(&alone) {
        assert_ne!(*signs, normal, "{asked:?} does not show");
    }
    for second in 1..faults.len() {
        for first in (0..second).filter(|_| second >= done) {
            let [first, second] = [first, second].map(|at| (&faults[at], &alone[at]));
            stage.overlap(&normal, first, second, one_decides)?;
        }
    }
    stage.scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn of_two_faults_that_drop_or_answer_either_is_exact_when_the_other_ends(_: &Context) -> TestResult {
    every_two(&plain(), 0, true)
}

fn of_two_faults_of_which_one_is_a_queue_either_is_exact_when_the_other_ends(
    context: &Context,
) -> TestResult {
    // One that drops and one that answers stand for all that need no queue: under emulation every injection takes seconds.
    let [_, drops, answers, ..] = plain();
    with_netem(context, || every_two(&[&[drops, answers][..], &queues()].concat(), 2, false))
}

/// What shows in many packets alone, each of them clearly: everything that netem does, and half of them dropped before it.
fn shares() -> [(Asked, Traits); 7] {
    let none = Traits::NONE;
    [
        (("timeout", json!({"packet_probability": 0.5})), Traits { lost: true, ..none }),
        (("latency", json!({"delay_ms": 80})), Traits { late: true, ..none }),
        (("packet_loss", json!({"loss_percent": 50})), Traits { lost: true, ..none }),
        (("packet_duplicate", json!({"duplicate_percent": 50})), Traits { copied: true, ..none }),
        (("packet_corrupt", json!({"corrupt_percent": 50})), Traits { lost: true, wrong: true, ..none }),
        (
            ("packet_reorder", json!({"reorder_percent": 50, "delay_ms": 80})),
            Traits { overtaken: true, late: true, ..none },
        ),
        // So slow that ten packets, which wait at most, take a tenth of a second.
        (("bandwidth", json!({"rate_kbit": 100})), Traits { lost: true, late: true, ..none }),
    ]
}

/// What becomes of many packets: whether more than a little of them is meant by each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Traits {
    lost: bool,
    copied: bool,
    overtaken: bool,
    late: bool,
    wrong: bool,
}

impl Traits {
    const NONE: Self = Self { lost: false, copied: false, overtaken: false, late: false, wrong: false };

    fn see(stage: &Stage) -> Result<Self> {
        const PACKETS: u64 = 100;
        const LITTLE: f64 = 0.1;
        let Pair { near, far } = &stage.scene.pair;
        let wrong = checksum_errors(far)?;
        let trace = Load::of(PACKETS, 800).send(near, far, (Pair::FAR_V4, 9).into())?;
        let share = |count: u64| count as f64 / PACKETS as f64 > LITTLE;
        Ok(Self {
            lost: trace.lost() > LITTLE,
            copied: share(trace.copies()),
            overtaken: share(trace.overtakers()),
            late: quantile(&trace.times(), 0.75) > 50.0,
            wrong: share(checksum_errors(far)? - wrong),
        })
    }

    /// Looks until it is so, since a machine that is busy makes any packet late.
    fn expect(self, stage: &Stage, when: &str) -> Result<()> {
        let mut seen = Vec::new();
        while seen.len() < TRIES {
            let now = Self::see(stage)?;
            if now == self {
                return Ok(());
            }
            seen.push(now);
        }
        let status = stage.scene.mcp.call_tool("chaos_status", json!({}))?.ok()?;
        Err(Error::Different(format!("{when}: {seen:?}, and not {self:?}; {status}")))
    }
}

fn of_two_queues_of_any_kind_either_is_as_it_was_alone_when_the_other_ends(context: &Context) -> TestResult {
    let [_, _, queues @ ..] = shares();
    with_netem(context, || every_two_shares(&queues, queues.len()))
}

fn beside_a_delay_or_a_timeout_a_queue_of_any_kind_is_as_it_was_alone_when_that_ends(
    context: &Context,
) -> TestResult {
    with_netem(context, || every_two_shares(&shares(), 2))
}

/// Every two of these, of which one at least is among the first `beside`.
fn every_two_shares(faults: &[(Asked, Traits)], beside: usize) -> TestResult {
    let stage = Stage::new()?;
    Traits::NONE.expect(&stage, "before")?;
    let mcp = &stage.scene.mcp;
    for (number, (asked, traits)) in faults.iter().enumerate() {
        let second = stage.fault("second", asked);
        second.inject(mcp)?;
        traits.expect(&stage, &format!("{asked:?} alone"))?;
        second.remove(mcp)?;
        for (earlier, alone) in faults[..number].iter().take(beside) {
            let pair = format!("{} and {}", earlier.0, asked.0);
            let first = stage.fault("first", earlier);
            first.inject(mcp)?;
            second.inject(mcp)?;
            first.remove(mcp)?;
            traits.expect(&stage, &format!("{pair}: the first, which came first, has ended"))?;
            first.inject(mcp)?;
            second.remove(mcp)?;
            alone.expect(&stage, &format!("{pair}: the second, which came first, has ended"))?;
            second.inject(mcp)?;
            second.remove(mcp)?;
            alone.expect(&stage, &format!("{pair}: the second, which came last, has ended"))?;
            first.remove(mcp)?;
            Traits::NONE.expect(&stage, &format!("{pair}: both have ended"))?;
        }
    }
    stage.scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn a_link_that_is_down_and_a_fault_of_its_packets_leave_each_other_alone(_: &Context) -> TestResult {
    let [drops, _, _, answers, _] = plain();
    beside_a_link_that_is_down(&[drops, answers])
}

fn a_link_that_is_down_and_a_queue_leave_each_other_alone(context: &Context) -> TestResult {
    let [delays, ..] = queues();
    with_netem(context, || beside_a_link_that_is_down(&[delays]))
}

fn beside_a_link_that_is_down(faults: &[Asked]) -> TestResult {
    let stage = Stage::new()?;
    let (near, mcp) = (&stage.scene.pair.near, &stage.scene.mcp);
    let _guard = Guard::start(&stage.scene.daemon)?;
    let normal = stage.clear_signs()?;
    let down = Fault::new("link_down").on(near, json!({})).named("down").lasting(LONG);
    for asked in faults {
        let (alone, fault) = (stage.alone(asked)?, stage.fault("fault", asked));
        let becomes = |expected: &Signs, when: &str| {
            let mut signs = None;
            let same = wait_until(HANG, || {
                signs = stage.signs().ok();
                signs.as_ref() == Some(expected)
            });
            let status = if same { None } else { Some(mcp.call_tool("chaos_status", json!({}))) };
            assert!(same, "{asked:?}: {when}: {signs:?}, and not {expected:?}; {status:?}");
        };
        fault.inject(mcp)?;
        down.inject(mcp)?;
        assert!(!is_up(near), "{asked:?} came first: the link is up");
        down.remove(mcp)?;
        becomes(&alone, "the link, which came last, is up again");
        down.inject(mcp)?;
        fault.remove(mcp)?;
        assert!(!is_up(near), "{asked:?} has ended: the link is up");
        fault.inject(mcp)?;
        down.remove(mcp)?;
        becomes(&alone, "the link, which came first, is up again");
        fault.remove(mcp)?;
        becomes(&normal, "both have ended");
    }
    stage.scene.assert_untouched()?;
    Ok(Outcome::Pass)
}
