//! Experiments that are shipped, run for real: a service and its dependency that are two small servers in namespaces of this
//! test's, and one that is killed and started again.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Context, Outcome, STANDSTILL, TestResult, tests, with_netem};
use crate::cgroup::Cgroup;
use crate::daemon::binary;
use crate::late::{self, HANG};
use crate::netns::output;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::worker::Program;
use crate::{Daemon, Error, NetNs, Pair, Residue, Result};

tests![
    a_shipped_experiment_cuts_off_a_dependency_and_sees_the_service_fail_and_recover,
    a_shipped_experiment_ends_when_a_service_is_started_again_for_want_of_its_dependency,
    a_shipped_experiment_ends_when_a_service_answers_with_errors_because_its_dependency_is_slow,
    a_killed_process_that_is_started_again_is_measured_against_its_objective,
];

const SERVICE: u16 = 8080;
const DEPENDENCY: u16 = 5432;
/// How long the service waits for its dependency.
const WAITS: Duration = Duration::from_millis(300);
/// How long a client may take to say what it wants.
const ASKS: Duration = Duration::from_secs(5);

/// A server on a thread of its own; ends when dropped.
struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(
        namespace: &NetNs,
        address: SocketAddr,
        answer: impl Fn(TcpStream) -> std::io::Result<()> + Send + 'static,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = namespace.run(move || -> std::io::Result<_> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            // A thread is in the namespace of the one that makes it.
            Ok(thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    match listener.accept() {
                        // A caller that leaves is no matter.
                        Ok((stream, _)) => drop(answer(stream)),
                        Err(_) => thread::sleep(Duration::from_millis(2)),
                    }
                }
            }))
        });
        let thread = thread.map_err(Error::io("listen at", address.to_string()))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// The database: whoever connects is let go.
    fn dependency(pair: &Pair) -> Result<Self> {
        Self::start(&pair.far, SocketAddr::from((Pair::FAR_V4, DEPENDENCY)), |_| Ok(()))
    }

    /// A service that is as healthy as its dependency can be reached.
    fn service(pair: &Pair) -> Result<Self> {
        Self::start(&pair.near, SocketAddr::from((Pair::NEAR_V4, SERVICE)), |mut stream| {
            // Who asks may be slow on a busy machine; only the dependency has to be soon there.
            stream.set_read_timeout(Some(ASKS))?;
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line)?;
            let dependency = SocketAddr::from((Pair::FAR_V4, DEPENDENCY));
            let status = match TcpStream::connect_timeout(&dependency, WAITS) {
                Ok(_) => "200 OK",
                Err(_) => "503 Service Unavailable",
            };
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The processes of the service's unit: one, which can be started again.
struct Main {
    unit: Cgroup,
    process: Child,
}

impl Main {
    fn start() -> Result<Self> {
        let unit = Cgroup::of_unit()?;
        let process = Self::process(&unit)?;
        Ok(Self { unit, process })
    }

    fn process(unit: &Cgroup) -> Result<Child> {
        let mut command = Command::new("sleep");
        unit.place(command.arg("300").stdin(Stdio::null()));
        command.spawn().map_err(Error::io("start", "sleep"))
    }

    fn start_again(&mut self) -> Result<()> {
        self.end();
        self.process = Self::process(&self.unit)?;
        Ok(())
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Main {
    fn drop(&mut self) {
        self.end();
    }
}

/// Registers a shipped experiment for the service and its dependency, with these variables beside those of where they are.
fn register(daemon: &Daemon, name: &str, variables: &[(&str, &str)]) -> Result<()> {
    let folder = tempfile::tempdir().map_err(Error::io("make", "a folder"))?;
    let file = folder.path().join("shipped.yaml");
    output(chaosctl(daemon, &["hub", "copy", name])?.arg(&file))?;
    let service_at = format!("{}:{SERVICE}", Pair::NEAR_V4);
    let mut register = chaosctl(daemon, &["experiment", "register"])?;
    register
        .arg(&file)
        .env("CHAOS_INTERFACE", INTERFACE)
        .env("CHAOS_DEPENDENCY", Pair::FAR_V4.to_string())
        .env("CHAOS_DEPENDENCY_PORT", DEPENDENCY.to_string())
        .env("CHAOS_HEALTH_URL", format!("http://{service_at}/health"))
        .env("CHAOS_SERVICE", &service_at)
        .envs(variables.iter().copied());
    output(&mut register).map(drop)
}

/// `dependency-partition`, of a service that has been up for three seconds.
fn register_cut(daemon: &Daemon, main: &Main, seconds: &str) -> Result<()> {
    let unit = main.unit.name();
    let up =
        [("CHAOS_UNIT", unit.as_str()), ("CHAOS_UPTIME_SECONDS", "3"), ("CHAOS_OUTAGE_SECONDS", seconds)];
    register(daemon, "dependency-partition", &up)?;
    thread::sleep(Duration::from_millis(3500));
    Ok(())
}

/// What the service says of itself, asked by this test.
fn health(pair: &Pair) -> Option<u16> {
    pair.near.run(|| {
        let mut stream = TcpStream::connect((Pair::NEAR_V4, SERVICE)).ok()?;
        stream.set_read_timeout(Some(4 * WAITS)).ok()?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").ok()?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).ok()?;
        line.split(' ').nth(1)?.parse().ok()
    })
}

fn chaosctl(daemon: &Daemon, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(binary("chaosctl")?);
    command.arg("--socket").arg(daemon.socket()).args(words).stdin(Stdio::null());
    Ok(command)
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn a_shipped_experiment_cuts_off_a_dependency_and_sees_the_service_fail_and_recover(
    _: &Context,
) -> TestResult {
    let pair = Pair::new()?;
    pair.near.ip(&["link", "set", "lo", "up"])?;
    let (dependency, service) = (Server::dependency(&pair)?, Server::service(&pair)?);
    let before = Residue::take(&[&pair.near])?;
    let daemon = Daemon::start_with(|command| pair.near.place(command))?;
    let main = Main::start()?;
    register_cut(&daemon, &main, "3")?;

    assert_eq!(health(&pair), Some(200), "before");
    let mut run = chaosctl(&daemon, &["--json", "run", "a service outlives the loss of its dependency"])?;
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let failed = wait_until(HANG, || health(&pair) == Some(503));
    let ended = run.wait_with_output()?;
    assert!(failed, "the service never failed; {}", daemon.log());
    let result: Value = serde_json::from_slice(&ended.stdout)?;
    println!("{}", result["recovery"]);
    assert!(ended.status.code() == Some(0) && result["verdict"] == "held", "{result}; {}", daemon.log());
    assert_eq!(health(&pair), Some(200), "after");
    let incident = &result["recovery"]["incidents"][0];
    assert_eq!(incident["fault_type"], "network_partition", "{result}");
    // It is cut off for the pause and as long as the activity in the background takes; the first sample is taken at once.
    let (gone, back) =
        (seconds(&incident["unreachable_after_seconds"]), seconds(&incident["recovered_after_seconds"]));
    assert!((0.0..3.0).contains(&gone) && back > 3.0, "{result}");
    drop(daemon);
    drop((dependency, service, main));
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn a_shipped_experiment_ends_when_a_service_is_started_again_for_want_of_its_dependency(
    _: &Context,
) -> TestResult {
    let pair = Pair::new()?;
    pair.near.ip(&["link", "set", "lo", "up"])?;
    let _servers = (Server::dependency(&pair)?, Server::service(&pair)?);
    let daemon = Daemon::start_with(|command| pair.near.place(command))?;
    let mut main = Main::start()?;
    // Far longer than it takes to see that.
    register_cut(&daemon, &main, "600")?;
    let mut run = chaosctl(&daemon, &["--json", "run", "a service outlives the loss of its dependency"])?;
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let failed = wait_until(HANG, || health(&pair) == Some(503));
    main.start_again()?;
    let ended = run.wait_with_output()?;
    assert!(failed, "the service never failed; {}", daemon.log());
    let result: Value = serde_json::from_slice(&ended.stdout)?;
    let error = result["error"].as_str().unwrap_or_default();
    assert!(ended.status.code() == Some(4) && result["verdict"] == "tripped", "{result}; {}", daemon.log());
    assert!(error.contains("the service was started again"), "{error}");
    Ok(Outcome::Pass)
}

fn a_shipped_experiment_ends_when_a_service_answers_with_errors_because_its_dependency_is_slow(
    context: &Context,
) -> TestResult {
    with_netem(context, errors_of_a_slow_dependency)
}

fn errors_of_a_slow_dependency() -> TestResult {
    let pair = Pair::new()?;
    pair.near.ip(&["link", "set", "lo", "up"])?;
    let _servers = (Server::dependency(&pair)?, Server::service(&pair)?);
    let daemon = Daemon::start_with(|command| pair.near.place(command))?;
    // Slower than the service waits, which then says so soon: of how long answers take nothing shows.
    let variables = [("CHAOS_DELAY", "1s"), ("CHAOS_P95_MS", "2000"), ("CHAOS_SLOW_SECONDS", "600")];
    register(&daemon, "slow-dependency", &variables)?;
    let run = chaosctl(&daemon, &["--json", "run", "a service bears a slow dependency"])?.output();
    let ended = run.map_err(Error::io("run", "chaosctl"))?;
    let result: Value = serde_json::from_slice(&ended.stdout)?;
    let error = result["error"].as_str().unwrap_or_default();
    assert!(ended.status.code() == Some(4) && result["verdict"] == "tripped", "{result}; {}", daemon.log());
    assert!(error.contains("an answer is an error") && error.contains("503"), "{error}");
    assert_eq!(health(&pair), Some(200), "after");
    Ok(Outcome::Pass)
}

fn a_killed_process_that_is_started_again_is_measured_against_its_objective(_: &Context) -> TestResult {
    let program = Program::new()?;
    // Gone for a second each time, so that a sample is taken meanwhile.
    let supervisor = program.supervise(Duration::from_secs(1))?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let chaosctl = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let exe = program.path();
    let document = |rto: &str| {
        json!({
            "title": "kill",
            "description": "A process is killed, and started again by its supervisor.",
            "steady-state-hypothesis": {"title": "it runs", "probes": [{"type": "probe", "name": "one", "tolerance": 0,
                "provider": chaosctl(json!(["probe", "process", "--exe", exe, "--min", 1, "--max", 1]))}]},
            "method": [{"type": "action", "name": "kill it", "pauses": {"after": 4},
                "provider": chaosctl(json!({"inject": "process_kill", "--exe": exe, "--for": "1m"}))}],
            "rollbacks": [],
            "extensions": [{"name": "chaos-daemon", "rto": rto}],
        })
    };
    for (rto, verdict, within) in [("10s", "held", true), ("500ms", "deviated", false)] {
        let started = supervisor.started();
        mcp.call_tool("chaos_register_experiment", document(rto))?.ok()?;
        let result = mcp.call_tool("chaos_run_experiment", json!({"experiment_name": "kill"}))?.ok()?;
        println!("{rto}: {}", result["recovery"]);
        let (recovery, incident) = (&result["recovery"], &result["recovery"]["incidents"][0]);
        assert_eq!(
            (&result["verdict"], &recovery["within_rto"]),
            (&json!(verdict), &json!(within)),
            "{result}"
        );
        assert_eq!(supervisor.started(), started + 1);
        let after = |field: &str| seconds(&incident[field]);
        let (gone, unreachable) = (after("gone_after_seconds"), after("unreachable_after_seconds"));
        let (new, back) = (after("new_process_after_seconds"), after("recovered_after_seconds"));
        assert!(new > 0.9 && back > 0.9 && back > unreachable, "{result}");
        for (limit, seconds, what) in
            [(1.0, gone, "gone"), (1.5, unreachable, "unreachable"), (4.0, back, "back")]
        {
            let after = Duration::try_from_secs_f64(seconds)?;
            late::within(Duration::from_secs_f64(limit) + STANDSTILL, after, &format!("{what} in {result}"))?;
        }
    }
    Ok(Outcome::Pass)
}
