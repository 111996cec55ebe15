//! Probes of real servers: Prometheus, Alertmanager, nginx, PostgreSQL and a name server, each alone in a network namespace. On the host only:
//! the VM's image has none of them.

#![cfg(test)]

mod alerts;
mod database;
mod shipped;
mod tls;
mod told;
mod web;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use chaos_tests::HANG;
use chaos_tests::NetNs;
use chaos_tests::daemon::binary;
use chaos_tests::process::wait_until;
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
    assert!(wait_until(HANG, || ask(&["db.test"]).0 == 0), "{:?}", ask(&["db.test"]));
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
    assert!(wait_until(HANG, scraped), "{:?}", ask("errors", &[]));
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
    assert!(wait_until(HANG, || ask("errors", &[]).1["value"] == 4.0));
    let reduced =
        |reduce| ask("errors", &["--range", "1m", "--step", "1s", "--reduce", reduce]).1["value"].clone();
    assert_eq!((reduced("min"), reduced("max"), reduced("last")), (json!(0.25), json!(4.0), json!(4.0)));
    let mean = reduced("avg").as_f64().unwrap();
    assert!(0.25 < mean && mean < 4.0, "{mean}");
}
