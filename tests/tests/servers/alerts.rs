//! Alerts of a real Alertmanager, which is asked.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chaos_tests::HANG;
use chaos_tests::daemon::binary;
use chaos_tests::process::wait_until;
use chaos_tests::{Daemon, Mcp, NetNs};
use serde_json::{Value, json};

use super::told::{listening, telling_routes};
use super::{Server, exporter, namespace, probe};

pub(super) const ROUTES: &str = "\
route:
  receiver: oncall
  routes: [{matchers: ['team=\"dev\"'], receiver: developers}]
receivers: [{name: oncall}, {name: developers}]
inhibit_rules:
- {source_matchers: ['alertname=\"NodeDown\"'], target_matchers: ['alertname=\"PoolUsedUp\"']}
";

/// An Alertmanager on port 9093 with these routes, which keeps what it has in `folder`.
pub(super) fn alertmanager(namespace: &NetNs, folder: &Path, routes: &str) -> Server {
    let configuration = folder.join("alertmanager.yml");
    fs::write(&configuration, routes).unwrap();
    let server = Server::start(
        namespace
            .command("prometheus-alertmanager")
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.path={}", folder.join("alerts").display()))
            .args(["--web.listen-address=127.0.0.1:9093", "--cluster.listen-address="]),
    );
    let ready = || probe(namespace, &["http", "http://127.0.0.1:9093/-/ready"]).0 == 0;
    assert!(wait_until(HANG, ready), "no Alertmanager");
    server
}

/// Tells Alertmanager of an alert, as Prometheus does; `seconds` from now on it is over.
pub(super) fn raise(namespace: &NetNs, name: &str, team: &str, summary: &str, seconds: i64) {
    let at = |seconds: i64| {
        let output =
            Command::new("date").args(["--utc", "+%FT%TZ", "-d", &format!("{seconds} sec")]).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    };
    let alert = json!([{"labels": {"alertname": name, "team": team}, "annotations": {"summary": summary},
        "startsAt": at(-90), "endsAt": at(seconds)}]);
    let body = alert.to_string();
    let mut answer = String::new();
    namespace.run(|| {
        let mut stream = TcpStream::connect("127.0.0.1:9093").unwrap();
        let head =
            "POST /api/v2/alerts HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json";
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream.read_to_string(&mut answer).unwrap();
    });
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn alertmanager_tells_whether_an_alert_fires_with_these_labels_for_this_reason_and_to_whom() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let url = "http://127.0.0.1:9093";
    let ask = |words: &[&str]| probe(&namespace, &[&["alert", url], words].concat());
    let refused = ask(&["--max", "0"]);
    assert!(refused.0 == 1 && refused.1["value"].is_null(), "not seen is not none: {refused:?}");
    let _server = alertmanager(&namespace, folder.path(), ROUTES);
    let pool = ["--label", "alertname=PoolUsedUp"];
    let of_pool = |words: &[&str]| ask(&[&pool, words].concat());
    assert_eq!((of_pool(&[]).0, of_pool(&["--max", "0"]).0, ask(&["--max", "0"]).0), (1, 0, 0));

    raise(&namespace, "PoolUsedUp", "pay", "no connection of \"pay\" left", 60);
    let (code, fires) =
        of_pool(&["--label", "team=~p.*", "--reason", "connection .* left", "--receiver", "oncall"]);
    assert!(code == 0 && fires["value"] == 1.0, "{fires}");
    assert_eq!(fires["answer"]["firing"][0]["labels"], json!({"alertname": "PoolUsedUp", "team": "pay"}));
    assert_eq!(of_pool(&["--max", "0"]).0, 1);
    for (words, why) in [
        (["--reason", "disk"], "gives another reason (summary: "),
        (["--receiver", "developers"], "goes to [\"oncall\"]"),
        (["--within", "1m"], "has been firing for 9"),
        (["--label", "team!=pay"], "none fires;"),
    ] {
        let (code, answer) = of_pool(&words);
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(code == 1 && answer["value"] == 0.0 && detail.contains(why), "{words:?}: {answer}");
    }
    assert_eq!(of_pool(&["--within", "2m"]).0, 0);

    // Another one, to somebody else.
    raise(&namespace, "PoolUsedUp", "dev", "a \\ and a \"", 60);
    assert_eq!(of_pool(&["--receiver", "developers", "--label", "team=dev"]).0, 0);
    assert_eq!(of_pool(&["--min", "2"]).1["value"], 2.0);
    // One of which nobody hears because of another, and both once that is over.
    raise(&namespace, "NodeDown", "ops", "it is gone", 60);
    assert!(wait_until(HANG, || of_pool(&["--max", "0"]).0 == 0), "{:?}", of_pool(&[]));
    assert!(
        of_pool(&[]).1["detail"].as_str().unwrap().contains("silenced or inhibited"),
        "{:?}",
        of_pool(&[])
    );
    raise(&namespace, "NodeDown", "ops", "it is gone", -1);
    assert!(wait_until(HANG, || of_pool(&["--min", "2"]).0 == 0), "{:?}", of_pool(&[]));
    // Resolved.
    for team in ["pay", "dev"] {
        raise(&namespace, "PoolUsedUp", team, "", -1);
    }
    assert!(wait_until(HANG, || of_pool(&["--max", "0"]).0 == 0), "{:?}", of_pool(&[]));
    // What is no Alertmanager.
    let (code, wrong) = probe(&namespace, &["alert", "http://127.0.0.1:9093/nothing"]);
    assert!(code == 1 && wrong["value"].is_null(), "{wrong}");
}

const WATCHED: &str = "\
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [rules.yml]
scrape_configs:
- {job_name: pay, scrape_timeout: 500ms, static_configs: [{targets: ['127.0.0.1:9100']}]}
alerting: {alertmanagers: [{static_configs: [{targets: ['127.0.0.1:9093']}]}]}
";
const RULES: &str = "\
groups:
- name: pay
  rules: [{alert: PayDown, expr: up == 0, labels: {team: pay}, annotations: {summary: '{{ $labels.instance }} gives no numbers'}}]
";

/// A service whose numbers a real Prometheus gets, which has a real Alertmanager told of an alert when it cannot, and a daemon
/// beside them.
pub(super) struct Watched {
    pub(super) daemon: Daemon,
    mcp: Mcp,
    namespace: NetNs,
    _service: Option<Server>,
    _servers: [Server; 2],
    pub(super) folder: tempfile::TempDir,
}

impl Watched {
    fn new() -> Self {
        let namespace = namespace();
        exporter(&namespace, Arc::new(Mutex::new("errors 0\n".to_owned())));
        Self::start(namespace, tempfile::tempdir().unwrap(), ROUTES, &[])
    }

    /// One whose Alertmanager tells the daemon.
    pub(super) fn telling() -> Self {
        let namespace = namespace();
        exporter(&namespace, Arc::new(Mutex::new("errors 0\n".to_owned())));
        Self::telling_within(namespace)
    }

    /// The same of a service of somebody's own, which has its numbers at port 9100.
    pub(super) fn of(service: impl FnOnce(&NetNs) -> Server) -> Self {
        let namespace = namespace();
        let service = service(&namespace);
        Self { _service: Some(service), ..Self::telling_within(namespace) }
    }

    fn telling_within(namespace: NetNs) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listening = listening(folder.path());
        let listening: Vec<_> = listening.iter().map(String::as_str).collect();
        let routes = telling_routes(folder.path());
        Self::start(namespace, folder, &routes, &listening)
    }

    fn start(namespace: NetNs, folder: tempfile::TempDir, routes: &str, arguments: &[&str]) -> Self {
        let alertmanager = alertmanager(&namespace, folder.path(), routes);
        let configuration = folder.path().join("prometheus.yml");
        fs::write(&configuration, WATCHED).unwrap();
        fs::write(folder.path().join("rules.yml"), RULES).unwrap();
        let prometheus = Server::start(
            namespace
                .command("prometheus")
                .arg(format!("--config.file={}", configuration.display()))
                .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
                .arg("--web.listen-address=127.0.0.1:9090"),
        );
        let daemon = Daemon::start_with(|command| {
            namespace.place(command);
            command.args(arguments);
        });
        let daemon = daemon.unwrap();
        let mcp = daemon.mcp().unwrap();
        let watched =
            Self { daemon, mcp, namespace, _service: None, _servers: [alertmanager, prometheus], folder };
        let up =
            || probe(&watched.namespace, &["prometheus", "http://127.0.0.1:9090", "up", "--min", "1"]).0 == 0;
        assert!(wait_until(HANG, up), "Prometheus gets no numbers");
        watched
    }

    /// Registers an experiment that cuts the service off for some seconds, and expects these alerts.
    pub(super) fn register(&self, seconds: u32, alerts: &Value) {
        let chaosctl = |words: Value| json!({"type": "process", "path": "chaosctl", "arguments": words});
        let document = json!({
            "title": "told",
            "description": "Whoever is on call is told that a service cannot be reached.",
            "steady-state-hypothesis": {"title": "it can be reached", "probes": [{"type": "probe", "name": "up",
                "tolerance": 0, "provider": chaosctl(json!(["probe", "tcp", "127.0.0.1:9100", "--timeout", "300ms"]))}]},
            "method": [{"type": "action", "name": "cut", "provider": chaosctl(json!(["inject", "network_partition",
                "--interface", "lo", "--port", 9100, "--for", format!("{seconds}s")]))}],
            "rollbacks": [],
            "extensions": [{"name": "chaos-daemon", "alerts": alerts}],
        });
        self.mcp.call_tool("chaos_register_experiment", document).unwrap().ok().unwrap();
    }

    pub(super) fn run(&self) -> Value {
        let run = json!({"experiment_name": "told"});
        self.mcp
            .call_tool("chaos_run_experiment", run)
            .unwrap()
            .ok()
            .unwrap_or_else(|error| panic!("{error}; {}", self.daemon.log()))
    }
}

/// What an experiment asks an Alertmanager.
pub(super) fn asked(words: &[&str]) -> Value {
    let arguments = [&["probe", "alert", "http://127.0.0.1:9093"], words].concat();
    json!({"type": "process", "path": "chaosctl", "arguments": arguments})
}

#[test]
fn a_fault_of_which_somebody_is_told_in_time_for_the_right_reason_is_held_and_otherwise_a_finding() {
    let watched = Watched::new();
    let down = ["--label", "alertname=PayDown"];
    let of = |words: &[&str]| asked(&[&down, words].concat());

    // Told, and nobody else.
    watched.register(6, &json!([
        {"name": "down", "provider": of(&["--reason", "9100 gives no", "--receiver", "oncall"]), "interval": "200ms",
            "fires_within": "20s", "gone_within": "30s"},
        {"name": "others", "provider": asked(&["--label", "alertname!=PayDown"]), "must_not_fire": true},
    ]));
    let result = watched.run();
    println!("{}", result["recovery"]);
    assert_eq!(result["verdict"], "held", "{result}; {}", watched.daemon.log());
    let (recovery, alert) = (&result["recovery"], &result["recovery"]["alerts"][0]);
    let (fired, gone) =
        (alert["fired_after_seconds"].as_f64().unwrap(), alert["gone_after_seconds"].as_f64().unwrap());
    assert!((0.1..20.0).contains(&fired) && (0.0..30.0).contains(&gone), "{recovery}");
    assert_eq!((&alert["alert"], &alert["action"]), (&json!("down"), &json!("cut")));
    assert_eq!(recovery["mttd_by_alert_seconds"], alert["fired_after_seconds"]);
    assert!(recovery["mttd_seconds"].as_f64().unwrap() < fired, "{recovery}");
    assert_eq!(recovery["alerts"][1], json!({"alert": "others", "action": "cut"}));

    // Told for another reason, told to others, and too late; and told though nobody should be.
    watched.register(
        6,
        &json!([
            {"name": "reason", "provider": of(&["--reason", "disk"]), "fires_within": "6s"},
            {"name": "receiver", "provider": of(&["--receiver", "developers"]), "fires_within": "6s"},
            {"name": "late", "provider": of(&[]), "interval": "100ms", "fires_within": "100ms"},
            {"name": "none", "provider": of(&[]), "must_not_fire": true},
        ]),
    );
    let result = watched.run();
    println!("{}", result["error"]);
    assert!(result["verdict"] == "deviated" && result["steady_state_after"] == true, "{result}");
    let findings: Vec<_> =
        (0..4).map(|n| result["recovery"]["alerts"][n]["finding"].as_str().unwrap_or_default()).collect();
    for (finding, parts) in findings.iter().zip([
        ["P1: alert \"reason\" did not fire within 6s of \"cut\": ", "gives another reason (summary: "],
        ["P1: alert \"receiver\" did not fire within 6s of \"cut\": ", "goes to [\"oncall\"]"],
        ["P1: alert \"late\" fired ", ", and not within 100ms"],
        ["P2: alert \"none\" fired ", ", and must not: "],
    ]) {
        assert!(parts.iter().all(|part| finding.contains(part)), "{parts:?}: {finding}");
        assert!(result["error"].as_str().unwrap().contains(finding), "{finding}: {result}");
    }
    let report = Command::new(binary("chaosctl").unwrap())
        .arg("--socket")
        .arg(watched.daemon.socket())
        .args(["report", result["run_id"].as_str().unwrap()])
        .output()
        .unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    assert!(
        report.contains("P1: alert \"reason\" did not fire within") && report.contains("none: fired"),
        "{report}"
    );

    // One that fires already.
    raise(&watched.namespace, "DiskFull", "pay", "", 60);
    watched.register(2, &json!([{"name": "disk", "provider": asked(&["--label", "alertname=DiskFull"]), "fires_within": "1m"}]));
    let result = watched.run();
    let error = result["error"].as_str().unwrap_or_default();
    assert!(result["verdict"] == "refused" && error.contains("\"disk\" fires already"), "{result}");
}

#[test]
fn a_run_that_waits_for_an_alert_can_be_stopped() {
    let watched = Watched::new();
    watched.register(1, &json!([{"name": "never", "provider": asked(&["--label", "alertname=Never"]), "fires_within": "10m"}]));
    let other = watched.daemon.mcp().unwrap();
    let result = std::thread::scope(|scope| {
        let run = scope.spawn(|| watched.run());
        // The fault is over by then.
        std::thread::sleep(Duration::from_secs(5));
        other.call_tool("chaos_stop", json!({})).unwrap().ok().unwrap();
        run.join().unwrap()
    });
    assert!(result["verdict"] == "aborted" && result["steady_state_after"] == true, "{result}");
    assert!(result["duration_seconds"].as_f64().unwrap() < 20.0, "{result}");
    assert!(result["recovery"]["alerts"][0]["finding"].is_null(), "{result}");
}
