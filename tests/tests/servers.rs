//! Probes of real servers: Prometheus, Alertmanager and a name server, each alone in a network namespace. On the host only:
//! the VM's image has none of them.

#![cfg(test)]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chaos_tests::daemon::binary;
use chaos_tests::process::wait_until;
use chaos_tests::{Daemon, Mcp, NetNs};
use serde_json::{Value, json};

/// Ends with its test.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Self {
        let program = format!("{:?}", command.get_program());
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has noticed then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn namespace() -> NetNs {
    let namespace = NetNs::new().unwrap();
    namespace.ip(&["link", "set", "lo", "up"]).unwrap();
    namespace
}

/// Exit code and answer of `chaosctl --json probe …`, or what it complained about.
fn probe(namespace: &NetNs, words: &[&str]) -> (i32, Value) {
    let mut command = namespace.command(binary("chaosctl").unwrap());
    let output = command.args(["--json", "probe"]).args(words).output().unwrap();
    let answer = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| json!(String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), answer)
}

#[test]
fn a_name_server_answers_with_addresses_or_a_code_and_over_tcp_what_is_long() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let hosts = folder.path().join("hosts");
    let mut text = "10.1.2.3 db.test\nfd00::7 db.test\n".to_owned();
    // Too many for one answer over UDP.
    (1..=60).for_each(|n| writeln!(text, "10.9.9.{n} many.test").unwrap());
    fs::write(&hosts, text).unwrap();
    let _server = Server::start(
        namespace
            .command("dnsmasq")
            .args([
                "--keep-in-foreground",
                "--no-resolv",
                "--no-hosts",
                "--conf-file=/dev/null",
                "--user=root",
            ])
            .args(["--pid-file=", "--local=/test/", "--listen-address=127.0.0.1", "--bind-interfaces"])
            .arg(format!("--addn-hosts={}", hosts.display())),
    );
    let ask = |words: &[&str]| probe(&namespace, &[&["dns", "--server", "127.0.0.1"], words].concat());
    assert!(wait_until(Duration::from_secs(10), || ask(&["db.test"]).0 == 0), "{:?}", ask(&["db.test"]));
    let (_, answer) = ask(&["db.test"]);
    assert_eq!(answer["answer"]["addresses"], json!(["10.1.2.3"]), "{answer}");
    assert_eq!(answer["answer"]["rcode"], "NOERROR");
    assert!((0.0..3000.0).contains(&answer["value"].as_f64().unwrap()), "{answer}");
    assert_eq!(ask(&["db.test", "--type", "AAAA"]).1["answer"]["addresses"], json!(["fd00::7"]));
    let (code, many) = ask(&["many.test"]);
    assert_eq!((code, many["answer"]["addresses"].as_array().unwrap().len()), (0, 60), "{many}");
    let (code, none) = ask(&["absent.test"]);
    assert_eq!((code, &none["answer"]["rcode"]), (1, &json!("NXDOMAIN")), "{none}");
    assert_eq!(ask(&["absent.test", "--rcode", "NXDOMAIN"]).0, 0);
    assert_eq!(ask(&["db.test", "--max", "0"]).0, 1);
    // Nobody listens there.
    let (code, refused) = probe(&namespace, &["dns", "db.test", "--server", "127.0.0.1:5354"]);
    assert!(code == 1 && refused["value"].is_null(), "{refused}");
}

/// Answers every request with what `metrics` holds.
fn exporter(namespace: &NetNs, metrics: Arc<Mutex<String>>) {
    let listener = namespace.run(|| TcpListener::bind("127.0.0.1:9100").unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let body = metrics.lock().unwrap().clone();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
            // A scrape that was given up is not this test's business.
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
        }
    });
}

const CONFIGURATION: &str = "\
global: {scrape_interval: 1s}
scrape_configs:
- job_name: pay
  static_configs: [{targets: ['127.0.0.1:9100']}]
";

#[test]
fn prometheus_gives_a_number_of_now_or_of_a_range_and_says_when_it_has_none() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    // One that was measured two minutes ago, which the server goes on showing.
    let old = now - 120_000;
    let text =
        format!("errors 0.25\nerrors_by{{code=\"500\"}} 1\nerrors_by{{code=\"503\"}} 2\nold 7 {old}\n");
    let metrics = Arc::new(Mutex::new(text));
    exporter(&namespace, Arc::clone(&metrics));
    let configuration = folder.path().join("prometheus.yml");
    fs::write(&configuration, CONFIGURATION).unwrap();
    let _server = Server::start(
        namespace
            .command("prometheus")
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:9090"),
    );
    let url = "http://127.0.0.1:9090";
    let ask = |query: &str, words: &[&str]| probe(&namespace, &[&["prometheus", url, query], words].concat());
    let scraped = || ask("count_over_time(errors[1m]) >= 3", &[]).0 == 0;
    assert!(wait_until(Duration::from_secs(60), scraped), "{:?}", ask("errors", &[]));
    assert_eq!(ask("errors", &[]).1["value"], 0.25);
    assert_eq!(ask("errors", &["--max", "0.2"]).0, 1);
    assert_eq!(ask("sum(errors_by)", &[]).1["value"], 3.0);
    let (code, several) = ask("errors_by", &[]);
    assert!(code == 1 && several["detail"].as_str().unwrap().contains("2 series"), "{several}");
    let (code, wrong) = ask("errors{", &[]);
    assert!(code == 1 && wrong["detail"].as_str().unwrap().contains("refuses the query"), "{wrong}");
    // No data, and what it counts as.
    let line = |words: &[&str]| {
        let mut command = namespace.command(binary("chaosctl").unwrap());
        let output =
            command.args(["probe", "prometheus", url, "absent_metric"]).args(words).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    for (no_data, code, word) in [("breach", 1, "failed: "), ("ok", 0, "ok: "), ("error", 1, "error: ")] {
        let (seen, text) = line(&["--no-data", no_data]);
        assert!(
            seen == code && text.starts_with(word) && text.contains("no data"),
            "{no_data}: {seen} {text}"
        );
    }
    // How old a sample is.
    assert_eq!(ask("old", &[]).1["value"], 7.0);
    assert_eq!(ask("old", &["--stale", "5m"]).1["value"], 7.0);
    let (code, stale) = ask("old", &["--stale", "60s"]);
    assert!(code == 1 && stale["detail"].as_str().unwrap().contains("no data of the last 60s"), "{stale}");
    assert_eq!(ask("errors", &["--stale", "60s"]).1["value"], 0.25);
    // Over a range.
    *metrics.lock().unwrap() = "errors 4\n".to_owned();
    assert!(wait_until(Duration::from_secs(30), || ask("errors", &[]).1["value"] == 4.0));
    let reduced =
        |reduce| ask("errors", &["--range", "1m", "--step", "1s", "--reduce", reduce]).1["value"].clone();
    assert_eq!((reduced("min"), reduced("max"), reduced("last")), (json!(0.25), json!(4.0), json!(4.0)));
    let mean = reduced("avg").as_f64().unwrap();
    assert!(0.25 < mean && mean < 4.0, "{mean}");
}

const ROUTES: &str = "\
route:
  receiver: oncall
  routes: [{matchers: ['team=\"dev\"'], receiver: developers}]
receivers: [{name: oncall}, {name: developers}]
inhibit_rules:
- {source_matchers: ['alertname=\"NodeDown\"'], target_matchers: ['alertname=\"PoolUsedUp\"']}
";

/// An Alertmanager on port 9093, which keeps what it has in `folder`.
fn alertmanager(namespace: &NetNs, folder: &Path) -> Server {
    let configuration = folder.join("alertmanager.yml");
    fs::write(&configuration, ROUTES).unwrap();
    let server = Server::start(
        namespace
            .command("prometheus-alertmanager")
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.path={}", folder.join("alerts").display()))
            .args(["--web.listen-address=127.0.0.1:9093", "--cluster.listen-address="]),
    );
    let ready = || probe(namespace, &["http", "http://127.0.0.1:9093/-/ready"]).0 == 0;
    assert!(wait_until(Duration::from_secs(30), ready), "no Alertmanager");
    server
}

/// Tells Alertmanager of an alert, as Prometheus does; `seconds` from now on it is over.
fn raise(namespace: &NetNs, name: &str, team: &str, summary: &str, seconds: i64) {
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
    let _server = alertmanager(&namespace, folder.path());
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
    assert!(wait_until(Duration::from_secs(10), || of_pool(&["--max", "0"]).0 == 0), "{:?}", of_pool(&[]));
    assert!(
        of_pool(&[]).1["detail"].as_str().unwrap().contains("silenced or inhibited"),
        "{:?}",
        of_pool(&[])
    );
    raise(&namespace, "NodeDown", "ops", "it is gone", -1);
    assert!(wait_until(Duration::from_secs(10), || of_pool(&["--min", "2"]).0 == 0), "{:?}", of_pool(&[]));
    // Resolved.
    for team in ["pay", "dev"] {
        raise(&namespace, "PoolUsedUp", team, "", -1);
    }
    assert!(wait_until(Duration::from_secs(10), || of_pool(&["--max", "0"]).0 == 0), "{:?}", of_pool(&[]));
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
struct Watched {
    daemon: Daemon,
    mcp: Mcp,
    namespace: NetNs,
    _servers: [Server; 2],
    _folder: tempfile::TempDir,
}

impl Watched {
    fn new() -> Self {
        let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
        exporter(&namespace, Arc::new(Mutex::new("errors 0\n".to_owned())));
        let alertmanager = alertmanager(&namespace, folder.path());
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
        let daemon = Daemon::start_with(|command| namespace.place(command)).unwrap();
        let mcp = daemon.mcp().unwrap();
        let watched = Self { daemon, mcp, namespace, _servers: [alertmanager, prometheus], _folder: folder };
        let up =
            || probe(&watched.namespace, &["prometheus", "http://127.0.0.1:9090", "up", "--min", "1"]).0 == 0;
        assert!(wait_until(Duration::from_secs(60), up), "Prometheus gets no numbers");
        watched
    }

    /// Registers an experiment that cuts the service off for some seconds, and expects these alerts.
    fn register(&self, seconds: u32, alerts: &Value) {
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

    fn run(&self) -> Value {
        let run = json!({"experiment_name": "told"});
        self.mcp
            .call_tool("chaos_run_experiment", run)
            .unwrap()
            .ok()
            .unwrap_or_else(|error| panic!("{error}; {}", self.daemon.log()))
    }
}

/// What an experiment asks an Alertmanager.
fn asked(words: &[&str]) -> Value {
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
    assert!((0.1..20.0).contains(&fired) && (0.1..30.0).contains(&gone), "{recovery}");
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
        report.contains("Finding P1: alert \"reason\"") && report.contains("| alert fired | none"),
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
