//! Alerts of which a real Alertmanager tells the daemon.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use chaos_tests::Daemon;
use chaos_tests::HANG;
use chaos_tests::daemon::binary;
use chaos_tests::process::wait_until;
use chaos_tests::sandbox::{Around, Role, prove};
use serde_json::{Value, json};

use super::alerts::{ROUTES, Watched, alertmanager, asked, raise};
use super::{namespace, probe};

const TOKEN: &str = "0c0ffee0c0ffee0c";

/// Arguments of a daemon that is told of alerts by who has the token, of which Alertmanager has a copy in `folder`.
pub(super) fn listening(folder: &Path) -> [String; 4] {
    let token = folder.join("token");
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(folder.join("copy"), TOKEN).unwrap();
    let token = token.display().to_string();
    ["--alert-webhook".into(), "127.0.0.1:9199".into(), "--alert-webhook-token-file".into(), token]
}

/// Those of [`ROUTES`], the first of which tells the daemon.
pub(super) fn telling_routes(folder: &Path) -> String {
    let copy = folder.join("copy");
    let tells = format!(
        "{{name: oncall, webhook_configs: [{{url: 'http://127.0.0.1:9199/alerts', send_resolved: true, \
         http_config: {{authorization: {{credentials_file: '{}'}}}}}}]}}",
        copy.display()
    );
    let soon = "receiver: oncall\n  group_by: [alertname]\n  group_wait: 100ms\n  group_interval: 500ms";
    ROUTES.replace("{name: oncall}", &tells).replacen("receiver: oncall", soon, 1)
}

/// Exit code and answer of `chaosctl --json probe alert --webhook …`.
fn heard(daemon: &Daemon, words: &[&str]) -> (i32, Value) {
    let mut command = Command::new(binary("chaosctl").unwrap());
    command.arg("--socket").arg(daemon.socket()).args(["--json", "probe", "alert", "--webhook"]);
    let output = command.args(words).output().unwrap();
    let answer = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| json!(String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), answer)
}

#[test]
fn alertmanager_tells_the_daemon_of_what_fires_and_is_resolved_and_of_nothing_that_goes_elsewhere() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let listening = listening(folder.path());
    let daemon = Daemon::start_with(|command| {
        namespace.place(command);
        command.args(&listening);
    });
    let mut daemon = daemon.unwrap();
    let _server = alertmanager(&namespace, folder.path(), &telling_routes(folder.path()));
    let told = |daemon: &Daemon, words: &[&str]| wait_until(HANG, || heard(daemon, words).0 == 0);
    assert_eq!((heard(&daemon, &[]).0, heard(&daemon, &["--max", "0"]).0), (1, 0));

    raise(&namespace, "PoolUsedUp", "dev", "", 300);
    raise(&namespace, "PoolUsedUp", "pay", "no connection of \"pay\" left", 300);
    let pool = ["--label", "alertname=PoolUsedUp", "--reason", "connection .* left", "--receiver", "oncall"];
    assert!(told(&daemon, &pool), "{:?}; {}", heard(&daemon, &[]), daemon.log());
    // That of the developers fires, and nobody tells the daemon.
    let asked = ["alert", "http://127.0.0.1:9093", "--label", "team=dev"];
    assert_eq!(probe(&namespace, &asked).0, 0);
    let (code, all) = heard(&daemon, &[]);
    assert!(code == 0 && all["value"] == 1.0, "{all}");
    assert_eq!(heard(&daemon, &["--within", "1m"]).0, 1, "it began 90 s ago");
    raise(&namespace, "PoolUsedUp", "pay", "", -1);
    assert!(told(&daemon, &["--max", "0"]), "{:?}", heard(&daemon, &[]));
    let (_, gone) = heard(&daemon, &pool[..2]);
    assert!(gone["detail"].as_str().unwrap().contains("\"PoolUsedUp\" is resolved"), "{gone}");

    // One of which another keeps it from being told.
    raise(&namespace, "NodeDown", "ops", "it is gone", 300);
    assert!(told(&daemon, &["--label", "alertname=NodeDown"]), "{:?}", heard(&daemon, &[]));
    raise(&namespace, "PoolUsedUp", "pay", "no connection of \"pay\" left", 300);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(heard(&daemon, &[&pool[..2], &["--max", "0"]].concat()).0, 0, "{:?}", heard(&daemon, &[]));

    // Listening, it is shut in as ever. A new prober has the same ears, and no memory.
    let prober = daemon.prober().unwrap();
    prove(&prober, Role::Prober, Around::Nothing).unwrap();
    assert_eq!(heard(&daemon, &["--label", "alertname=NodeDown"]).0, 0);
    prober.signal(nix::sys::signal::Signal::SIGKILL);
    let again = || daemon.prober().is_some_and(|now| now != prober) && heard(&daemon, &["--max", "0"]).0 == 0;
    assert!(wait_until(HANG, again), "{}", daemon.log());
    raise(&namespace, "DiskFull", "pay", "", 300);
    assert!(told(&daemon, &["--label", "alertname=DiskFull"]), "{:?}; {}", heard(&daemon, &[]), daemon.log());
    // Nobody listens there any more.
    daemon.stop().unwrap();
    namespace.run(|| TcpStream::connect("127.0.0.1:9199").unwrap_err());
}

#[test]
fn a_daemon_that_cannot_be_told_of_alerts_does_not_start() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let [_, _, option, token] = listening(folder.path());
    let readable = folder.path().join("copy").display().to_string();
    for (arguments, said) in [
        (
            vec!["--alert-webhook", "0.0.0.0:9199"],
            "can be reached from other hosts: give --alert-webhook-token-file",
        ),
        (vec!["--alert-webhook", "192.0.2.1:9199", &option, &token], "listen for alerts at 192.0.2.1:9199"),
        (vec!["--alert-webhook", "127.0.0.1:9199", &option, &readable], "others may get at it"),
        (
            vec!["--alert-webhook", "127.0.0.1:9199", &option, "/nowhere"],
            "read --alert-webhook-token-file /nowhere",
        ),
        (vec!["--alert-webhook", "localhost"], "such as 127.0.0.1:9199"),
        (vec![&option, &token], "--alert-webhook <ADDRESS:PORT>"),
    ] {
        let refused = Daemon::start_with(|command| {
            namespace.place(command);
            command.args(&arguments);
        });
        let refused = refused.map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(said) && !refused.contains(TOKEN), "{arguments:?}: {refused}");
    }
}

/// What an experiment asks the daemon, of what it was told.
fn told(words: &[&str]) -> Value {
    let arguments = [&["probe", "alert", "--webhook"], words].concat();
    json!({"type": "process", "path": "chaosctl", "arguments": arguments})
}

#[test]
fn a_fault_is_held_if_its_notification_arrives_and_its_recovery_too_and_not_if_only_the_alert_fires() {
    let watched = Watched::telling();
    let down = ["--label", "alertname=PayDown"];
    let of = |words: &[&str]| told(&[&down, words].concat());
    let alerts = json!([
        {"name": "told", "provider": of(&["--reason", "9100 gives no", "--receiver", "oncall"]), "interval": "200ms",
            "fires_within": "20s", "gone_within": "30s"},
        {"name": "others", "provider": told(&["--label", "alertname!=PayDown"]), "must_not_fire": true},
        {"name": "asked", "provider": asked(&down), "interval": "200ms", "fires_within": "20s", "gone_within": "30s"},
    ]);
    watched.register(8, &alerts);
    let result = watched.run();
    println!("{}", result["recovery"]);
    assert_eq!(result["verdict"], "held", "{result}; {}", watched.daemon.log());
    let alert = &result["recovery"]["alerts"][0];
    let (fired, gone) =
        (alert["fired_after_seconds"].as_f64().unwrap(), alert["gone_after_seconds"].as_f64().unwrap());
    // It may be told that the alert is gone before the recovery is sampled.
    assert!((0.1..20.0).contains(&fired) && (0.0..30.0).contains(&gone), "{result}");
    assert_eq!(result["recovery"]["alerts"][1], json!({"alert": "others", "action": "cut"}));

    // Told, and nobody should be; told to another than was thought.
    watched.register(
        8,
        &json!([
            {"name": "none", "provider": of(&[]), "must_not_fire": true},
            {"name": "receiver", "provider": of(&["--receiver", "developers"]), "fires_within": "8s"},
        ]),
    );
    let result = watched.run();
    let findings = [0, 1].map(|n| result["recovery"]["alerts"][n]["finding"].as_str().unwrap_or_default());
    assert!(
        result["verdict"] == "deviated" && findings[0].starts_with("P2: alert \"none\" fired "),
        "{result}"
    );
    let expected = "P1: alert \"receiver\" did not fire within 8s of \"cut\": ";
    assert!(findings[1].starts_with(expected) && findings[1].contains("goes to [\"oncall\"]"), "{result}");
    let gone = || heard(&watched.daemon, &["--max", "0"]).0 == 0;
    assert!(wait_until(HANG, gone), "{:?}", heard(&watched.daemon, &[]));

    // The alert fires, and its notification is not taken.
    fs::write(watched.folder.path().join("copy"), "0decaf0decaf0decaf").unwrap();
    watched.register(
        8,
        &json!([
            {"name": "told", "provider": of(&[]), "fires_within": "8s"},
            {"name": "asked", "provider": asked(&down), "fires_within": "20s"},
        ]),
    );
    let result = watched.run();
    let [told, asked] = [0, 1].map(|n| &result["recovery"]["alerts"][n]);
    assert!(result["verdict"] == "deviated" && asked["finding"].is_null(), "{result}");
    assert!(
        told["finding"].as_str().unwrap().starts_with("P1: alert \"told\" did not fire within 8s"),
        "{result}"
    );
}
