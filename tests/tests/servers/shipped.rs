//! Shipped experiments as they are, against a real Prometheus and a real Alertmanager: the storm of retries, whose pool and caller are
//! `tests/systemd/payment.py`, and a service that is killed while somebody is on call.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use chaos_tests::HANG;
use chaos_tests::cgroup::Cgroup;
use chaos_tests::daemon::binary;
use chaos_tests::process::wait_until;
use chaos_tests::{Daemon, NetNs};
use serde_json::Value;

use super::alerts::Watched;
use super::{Server, namespace, probe};

const PROMETHEUS: &str = "http://127.0.0.1:9090";

/// Registers an experiment of the hub with these variables, runs it to its end, and says how it ended.
fn run(daemon: &Daemon, name: &str, variables: &[(&str, &str)]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("experiment.yaml");
    let chaosctl = |words: &[&str]| {
        let mut command = Command::new(binary("chaosctl").unwrap());
        command.arg("--socket").arg(daemon.socket()).args(words).stdin(Stdio::null());
        command
    };
    let done = |command: &mut Command| {
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let copied = done(chaosctl(&["hub", "copy", name]).arg(&file));
    assert_eq!(copied.0, Some(0), "{copied:?}");
    let registered = done(chaosctl(&["experiment", "register"]).arg(&file).envs(variables.iter().copied()));
    assert_eq!(registered.0, Some(0), "{registered:?}");
    let text = fs::read_to_string(&file).unwrap();
    let title = text.lines().find_map(|line| line.strip_prefix("title: ")).unwrap();
    let output = chaosctl(&["--json", "run", title]).output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}; {}", daemon.log()))
}

/// A pool, its caller, a Prometheus that has seen some of both, and a daemon.
struct Street {
    daemon: Daemon,
    _servers: [Server; 3],
    _folder: tempfile::TempDir,
    _namespace: NetNs,
}

/// What the caller counts.
const COUNTERS: [&str; 4] = [
    "http_requests_total",
    "http_requests_failed_total",
    "http_client_retries_total",
    "http_client_rate_limited_total",
];

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd")
}

impl Street {
    fn open(attempts: &str) -> Self {
        let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
        let script = |words: &[&str]| {
            Server::start(namespace.command("python3").arg(files().join("payment.py")).args(words))
        };
        let (server, caller) = (script(&["server"]), script(&["caller", attempts]));
        let prometheus = Server::start(
            namespace
                .command("prometheus")
                .arg(format!("--config.file={}", files().join("prometheus.yml").display()))
                .arg(format!("--storage.tsdb.path={}", folder.path().display()))
                .arg("--web.listen-address=127.0.0.1:9090"),
        );
        let daemon = Daemon::start_with(|command| namespace.place(command)).unwrap();
        let counted = |name: &&str| {
            probe(&namespace, &["prometheus", PROMETHEUS, &format!("rate({name}[10s])"), "--min", "0"]).0 == 0
        };
        assert!(wait_until(HANG, || COUNTERS.iter().all(counted)), "Prometheus knows no rates");
        Self { daemon, _servers: [server, caller, prometheus], _folder: folder, _namespace: namespace }
    }

    fn run(&self, others: &[(&'static str, &'static str)]) -> Value {
        let mut variables = VARIABLES.to_vec();
        variables.extend_from_slice(others);
        run(&self.daemon, "retry-storm", &variables)
    }
}

/// Rates over a window that Prometheus fills soon.
const VARIABLES: [(&str, &str); 8] = [
    ("CHAOS_SESSIONS", "10"),
    ("CHAOS_HEALTH_URL", "http://127.0.0.1:8082/health"),
    ("CHAOS_REQUEST_QUERY", "sum(rate(http_requests_total[10s]))"),
    ("CHAOS_ERROR_QUERY", "sum(rate(http_requests_failed_total[10s])) / sum(rate(http_requests_total[10s]))"),
    (
        "CHAOS_AMPLIFICATION_QUERY",
        "sum(rate(http_client_retries_total[10s])) / sum(rate(http_requests_total[10s]))",
    ),
    ("CHAOS_RETRY_QUERY", "sum(rate(http_client_retries_total[10s]))"),
    ("CHAOS_REJECTION_QUERY", "sum(rate(http_client_rate_limited_total[10s]))"),
    ("CHAOS_HOLD_SECONDS", "25"),
];

#[test]
fn the_storm_of_retries_is_refused_where_a_metric_is_not_there_and_held_by_a_caller_that_bounds_its_retries()
{
    let street = Street::open("3");
    let wrong = "sum(rate(no_such_metric_total[10s]))";
    for (variable, named) in [
        ("CHAOS_REQUEST_QUERY", "requests come"),
        ("CHAOS_ERROR_QUERY", "more than 1 % of the requests fail"),
        ("CHAOS_AMPLIFICATION_QUERY", "retry amplification"),
        ("CHAOS_RETRY_QUERY", "retry storm"),
        ("CHAOS_REJECTION_QUERY", "self-rate-limit"),
    ] {
        let result = street.run(&[(variable, wrong)]);
        let error = result["error"].as_str().unwrap_or_default();
        assert_eq!(result["verdict"], "refused", "{variable}: {result}");
        assert!(error.contains(named) && error.contains("no data"), "{variable}: {error}");
    }
    // Without callers it would show nothing.
    let result = street.run(&[("CHAOS_REQUESTS_PER_SECOND", "1000")]);
    assert!(
        result["verdict"] == "refused" && result["error"].to_string().contains("requests come"),
        "{result}"
    );

    let result = street.run(&[]);
    assert_eq!(result["verdict"], "held", "{result}; {}", street.daemon.log());
}

#[test]
fn the_storm_of_retries_of_a_caller_without_bounds_is_ended_and_each_of_its_steps_named() {
    let street = Street::open("unbounded");
    let result = street.run(&[]);
    let error = result["error"].as_str().unwrap_or_default();
    println!("{error}");
    assert_eq!(result["verdict"], "tripped", "{result}; {}", street.daemon.log());
    for step in ["pool exhaustion: ", "retry amplification: ", "retry storm: ", "self-rate-limit: "] {
        assert!(error.contains(step), "{step}: {error}");
    }
}

/// What a service with numbers is, for Prometheus and for who asks for its health. It ends by itself when a test is cut off.
const SERVICE: &str = "
import http.server, signal
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Type', 'text/plain; version=0.0.4')
        self.end_headers()
        self.wfile.write(b'errors 0\\n')
signal.alarm(300)
http.server.HTTPServer(('127.0.0.1', 9100), Handler).serve_forever()
";

/// A service in a control group that is found as a unit is, whose supervisor starts it again three seconds after its end.
fn supervised(namespace: &NetNs, unit: &Cgroup) -> Server {
    let script = "for _ in 1 2 3 4 5 6; do sh -c 'echo 0 >\"$1\" && exec python3 -c \"$2\"' - \"$1\" \"$2\"; sleep 3; done";
    let processes = chaos_tests::cgroup::root().unwrap().join(unit.name()).join("cgroup.procs");
    Server::start(namespace.command("sh").args(["-c", script, "-"]).arg(processes).arg(SERVICE))
}

#[test]
fn a_killed_service_comes_back_and_whoever_is_on_call_is_told_of_it_and_of_its_recovery_or_it_is_a_finding() {
    let unit = Cgroup::of_unit().unwrap();
    let watched = Watched::of(|namespace| supervised(namespace, &unit));
    let name = unit.name();
    let variables = [
        ("CHAOS_UNIT", name.as_str()),
        ("CHAOS_HEALTH_URL", "http://127.0.0.1:9100/health"),
        ("CHAOS_WATCH_SECONDS", "8"),
        ("CHAOS_ALERT", "alertname=PayDown"),
        ("CHAOS_ALERT_REASON", "9100 gives no numbers"),
    ];
    let result = run(&watched.daemon, "process-death-alert", &variables);
    println!("{}", result["recovery"]);
    assert_eq!(result["verdict"], "held", "{result}; {}", watched.daemon.log());
    let (recovery, incident) = (&result["recovery"], &result["recovery"]["incidents"][0]);
    let after = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let alert = &recovery["alerts"][0];
    // Its supervisor waits for three seconds.
    assert!((3.0..30.0).contains(&after(&incident["new_process_after_seconds"])), "{result}");
    assert!((3.0..30.0).contains(&after(&incident["recovered_after_seconds"])), "{result}");
    assert!((0.1..120.0).contains(&after(&alert["fired_after_seconds"])), "{result}");
    assert!(after(&alert["gone_after_seconds"]) < 300.0, "{result}");

    // It comes back as well, and those are not told who should be.
    let others =
        [&variables[..], &[("CHAOS_ALERT_RECEIVER", "developers"), ("CHAOS_ALERT_WITHIN", "6s")]].concat();
    let result = run(&watched.daemon, "process-death-alert", &others);
    let finding = result["recovery"]["alerts"][0]["finding"].as_str().unwrap_or_default();
    assert!(result["verdict"] == "deviated" && result["steady_state_after"] == true, "{result}");
    assert!(
        finding.starts_with("P1: alert \"whoever is on call is told\" did not fire within 6s"),
        "{result}"
    );
}
