//! Every way in which a run ends that has really changed the node: by the exit code of who waited for it, and in the history.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::experiments::{chaosctl, is_cut};
use super::{Context, Outcome, TestResult, tests};
use crate::late::HANG;
use crate::netns::output;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Daemon, Error, Pair, Residue, Result};

tests![a_run_ends_in_one_of_many_ways_and_is_found_in_the_history_by_that,];

/// What is cut off by the fault, and is used by nobody.
const PORT: u16 = 4998;

/// What happens while the fault is active.
#[derive(Clone, Copy)]
enum Meanwhile {
    Nothing,
    /// The steady state is lost, until after the run.
    Lost,
    /// Somebody stops the run.
    Stopped,
    /// Who holds the fault dies, which ends it before its time.
    Broken,
    /// The server dies, and another is started.
    Killed,
}

/// A run that is to end with a verdict, which is also its title.
struct Run {
    verdict: &'static str,
    code: i32,
    /// Whether the steady state is there before.
    steady: bool,
    gate: bool,
    lasting: &'static str,
    meanwhile: Meanwhile,
    /// Whether the document says that nobody has to meet the fault: nobody sends to the port.
    may_be_idle: bool,
}

/// Cut off for a moment.
const HELD: Run = Run {
    verdict: "held",
    code: 0,
    steady: true,
    gate: false,
    lasting: "300ms",
    meanwhile: Meanwhile::Nothing,
    may_be_idle: true,
};

/// The last is the one after which there is another server.
const RUNS: [Run; 8] = [
    HELD,
    Run { verdict: "unverified", code: 7, may_be_idle: false, ..HELD },
    Run { verdict: "deviated", code: 1, lasting: "3s", meanwhile: Meanwhile::Lost, ..HELD },
    Run { verdict: "refused", code: 2, steady: false, ..HELD },
    Run { verdict: "failed", code: 3, lasting: "10m", meanwhile: Meanwhile::Broken, ..HELD },
    Run { verdict: "tripped", code: 4, gate: true, lasting: "10m", meanwhile: Meanwhile::Lost, ..HELD },
    Run { verdict: "aborted", code: 5, lasting: "10m", meanwhile: Meanwhile::Stopped, ..HELD },
    Run { verdict: "interrupted", code: 6, lasting: "10m", meanwhile: Meanwhile::Killed, ..HELD },
];

impl Run {
    /// The steady state is that somebody listens at a port.
    fn document(&self, port: u16) -> Value {
        let chaosctl =
            |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
        let probe = chaosctl(json!(["probe", "sockets", "udp", "--port", port, "--min", 1]));
        let gate = json!({"name": "listened to", "provider": probe, "tolerance": 0, "interval": 0.1});
        let gates: Vec<_> = self.gate.then_some(gate).into_iter().collect();
        json!({
            "title": self.verdict,
            "description": "A port is cut off.",
            "steady-state-hypothesis": {"title": "it is listened to", "probes": [
                {"type": "probe", "name": "listened to", "tolerance": 0, "provider": probe}]},
            "method": [{"type": "action", "name": "cut", "may_be_idle": self.may_be_idle, "provider": chaosctl(json!({"inject": "network-partition",
                "--interface": INTERFACE, "--protocol": "udp", "--remote-port": PORT, "--name": "cut",
                "--for": self.lasting}))}],
            "rollbacks": [],
            "extensions": [{"name": "chaos-daemon", "rollback_on": gates}],
        })
    }

    /// Runs it to its end.
    fn carry_out(&self, pair: &Pair, daemon: &Daemon) -> Result<()> {
        let socket = pair.near.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        let socket = socket.map_err(Error::io("bind", "a port"))?;
        let port = socket.local_addr().map_err(Error::io("ask for the address of", "a port"))?.port();
        let mut socket = self.steady.then_some(socket);
        let mcp = daemon.mcp()?;
        mcp.call_tool("chaos_register_experiment", self.document(port))?.ok()?;
        let mut run = chaosctl(daemon, &["run", self.verdict])?;
        let failed = || Error::io("run", self.verdict);
        let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed())?;
        if !matches!(self.meanwhile, Meanwhile::Nothing) && !wait_until(HANG, || is_cut(&mcp)) {
            return Err(Error::Hung { what: format!("beginning of {}: {}", self.verdict, daemon.log()) });
        }
        match self.meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::Lost => socket = None,
            Meanwhile::Stopped => {
                output(&mut chaosctl(daemon, &["stop", "--experiment", self.verdict])?)?;
            }
            Meanwhile::Broken => daemon.holders().iter().for_each(|holder| holder.signal(Signal::SIGKILL)),
            Meanwhile::Killed => {
                let server = daemon.server().ok_or_else(|| Error::Different("no server".into()))?;
                server.signal(Signal::SIGKILL);
            }
        }
        let ended = run.wait_with_output().map_err(failed())?;
        assert_eq!(ended.status.code(), Some(self.code), "{}: {ended:?}", self.verdict);
        drop(socket);
        Ok(())
    }
}

fn a_run_ends_in_one_of_many_ways_and_is_found_in_the_history_by_that(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let daemon = Daemon::start_with(|command| pair.near.place(command))?;
    for run in &RUNS {
        run.carry_out(&pair, &daemon)?;
        before.assert_unchanged_within(&[&pair.near], HANG)?;
    }
    for Run { verdict, .. } in &RUNS {
        let found = output(&mut chaosctl(&daemon, &["runs", "--verdict", verdict])?)?;
        let words: Vec<_> = found.split_whitespace().collect();
        let told = (found.lines().count(), words.get(2).copied(), words.get(3).copied());
        assert_eq!(told, (1, Some(*verdict), Some(*verdict)), "{found}");
    }
    Ok(Outcome::Pass)
}
