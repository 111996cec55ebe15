//! Samples of what only the injector sees, by a tool, by `chaosctl`, and in experiments.

use std::process::Stdio;

use chaos_daemon::policy::Policy;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::client::{Client, PATIENCE};
use crate::double::Server;
use crate::experiments::{document, port, register};

/// Exit code and what was printed.
async fn chaosctl(server: &Server, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaosctl"));
    command.arg("--socket").arg(&server.socket).args(words).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("no end").unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), said)
}

#[tokio::test]
async fn what_the_policy_does_not_let_be_asked_is_asked_by_no_probe_whether_named_or_looked_up() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let own: Policy = toml::from_str("limits.probe_addresses = [\"127.0.0.2/32\"]").unwrap();
    server.policy.lock().unwrap().limits = own.limits;
    for (host, rule) in
        [("127.0.0.1", "limits.probe_addresses = ["), ("localhost", "(limits.probe_addresses)")]
    {
        for words in [
            json!(["tcp", format!("{host}:{port}")]),
            json!(["http", format!("http://{host}:{port}/")]),
            json!(["tls", format!("{host}:{port}")]),
            json!(["mcp", format!("http://{host}:{port}/")]),
            json!(["prometheus", format!("http://{host}:{port}"), "up"]),
            json!(["latency", "--tcp", format!("{host}:{port}"), "--samples", 2]),
            json!(["series", "--tcp", format!("{host}:{port}"), "--samples", 2]),
        ] {
            let (sample, _) = client.call("chaos_probe", json!({"arguments": words})).await;
            let detail = sample["detail"].as_str().unwrap();
            assert!(sample["ok"] == false && detail.contains(rule), "{words}: {sample}");
        }
    }
    // A document that names such an address is refused when it is registered.
    let (answer, failed) = client
        .call("chaos_register_experiment", document("cut", &format!("127.0.0.1:{port}"), "100ms"))
        .await;
    assert!(failed && answer["error"].to_string().contains("limits.probe_addresses"), "{answer}");
    let nobody = tokio::time::timeout(std::time::Duration::from_millis(100), listener.accept()).await;
    assert!(nobody.is_err(), "somebody has connected");
}

#[tokio::test]
async fn a_tool_takes_a_sample_of_units_and_processes_for_its_caller() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for (words, ok, value) in [
        (json!(["unit", "a.service"]), true, json!(90.0)),
        (json!(["unit", "a.service", "--measure", "restarts", "--max", 1]), false, json!(2.0)),
        (json!(["unit", "a.service", "--state", "failed"]), false, json!(90.0)),
        (json!(["process", "--exe", "/opt/a"]), true, json!(3.0)),
        (json!(["process", "--unit", "a.service", "--max", 2]), false, json!(3.0)),
        (json!(["process", "--exe", "/opt/a", "--measure", "memory_mb", "--max", 64]), true, json!(64.0)),
        (json!(["process", "--exe", "/opt/a", "--measure", "youngest", "--min", 60]), false, json!(5.0)),
    ] {
        let (sample, failed) = client.call("chaos_probe", json!({"arguments": words})).await;
        assert!(!failed && sample["ok"] == ok && sample["value"] == value, "{words}: {sample}");
    }
    let asked = server.take_asked();
    // Who asks is what the kernel says of the connection.
    assert!(asked[0].contains("a.service") && asked[0].contains("Unix { uid"), "{asked:?}");
    let (sample, _) = client.call("chaos_probe", json!({"arguments": ["sockets", "all", "--min", 0]})).await;
    assert_eq!((&sample["ok"], server.take_asked().len()), (&json!(true), 0), "{sample}");
}

#[tokio::test]
async fn a_log_is_read_where_the_policy_names_it_and_otherwise_it_is_said_what_it_would_have_to_say() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for (words, ok) in [
        (json!(["log", "--unit", "a.service", "--match", "ERR"]), true),
        (json!(["log", "--unit", "a.service", "--match", "ERR", "--max", 1]), false),
        (json!(["log", "--file", "/var/log/payment/a.log", "--match", "ERR", "--min", 2, "--max", 2]), true),
    ] {
        let (sample, failed) = client.call("chaos_probe", json!({"arguments": words})).await;
        assert!(!failed && sample["ok"] == ok && sample["value"] == 2.0, "{words}: {sample}");
        assert!(sample["detail"].as_str().unwrap().contains("2 of 9 entries match, the last: \"ERR 1\""));
    }
    let asked = server.take_asked();
    // With what is left of the sample's time.
    assert!(asked[0].contains("limit: 3s") && asked[0].contains("Unix { uid"), "{asked:?}");
    for (words, rule) in [
        (json!(["log", "--unit", "b.service", "--match", "ERR"]), ", \"unit:b.service\"]"),
        (json!(["log", "--file", "/etc/shadow", "--match", "x", "--max", 0]), ", \"/etc/shadow\"]"),
    ] {
        let (sample, _) = client.call("chaos_probe", json!({"arguments": words})).await;
        assert!(sample["ok"] == false && sample["value"].is_null(), "{words}: {sample}");
        assert!(sample["detail"].as_str().unwrap().contains(rule), "{words}: {sample}");
    }
}

#[tokio::test]
async fn a_gate_on_a_log_goes_by_its_count_and_one_that_the_policy_forbids_lets_nothing_begin() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let process = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let log =
        |unit: &str| process(json!({"probe": "log", "--unit": unit, "--match": "ERR", "--within": "5s"}));
    let run = |title: &str, gate: Value| {
        json!({
            "title": title,
            "steady-state-hypothesis": {"title": "logs", "probes": [
                {"type": "probe", "name": "log", "tolerance": 0, "provider": log("a.service")}]},
            "method": [{"type": "action", "name": "cut",
                "provider": process(json!({"inject": "timeout", "--interface": "eth0", "--for": "100ms"}))}],
            "rollbacks": [],
            "extensions": [{"name": "chaos-daemon", "rollback_on": [gate]}],
        })
    };
    for (title, gate, verdict) in [
        ("tolerated", json!({"name": "n", "provider": log("a.service"), "op": "gt", "value": 2}), "held"),
        ("too many", json!({"name": "n", "provider": log("a.service"), "op": "gt", "value": 1}), "refused"),
        ("forbidden", json!({"name": "n", "provider": log("b.service"), "op": "gt", "value": 2}), "refused"),
    ] {
        let (answer, failed) = client.call("chaos_register_experiment", run(title, gate)).await;
        assert!(!failed, "{answer}");
        let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": title})).await;
        assert_eq!(result["verdict"], verdict, "{title}: {result}");
    }
    let injected = server.take_asked().iter().filter(|asked| asked.starts_with("inject ")).count();
    assert_eq!(injected, 1);
}

#[tokio::test]
async fn numbers_of_the_host_are_told_and_a_gate_on_them_keeps_a_run_from_beginning() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for (words, ok) in [
        (json!(["host", "memory_used_percent", "--min", 0, "--max", 100]), true),
        (json!(["host", "memory_available_bytes", "--max", 0]), false),
        (json!(["host", "cpu_busy_percent", "--window", "100ms", "--max", 100]), true),
        (json!(["host", "load15", "--min", 0]), true),
        (json!(["host", "disk_used_percent", "--path", "/tmp", "--max", 100]), true),
    ] {
        let (sample, failed) = client.call("chaos_probe", json!({"arguments": words})).await;
        assert!(!failed && sample["ok"] == ok && sample["value"].is_number(), "{words}: {sample}");
    }
    let (sample, _) = client
        .call("chaos_probe", json!({"arguments": ["host", "disk_used_percent", "--path", "/proc"]}))
        .await;
    assert!(sample["ok"] == false && sample["value"].is_null(), "{sample}");

    let (_listener, address) = port().await;
    for (title, most, verdict) in [("enough", 99.99, "held"), ("never enough", 0.001, "refused")] {
        let mut document = document(title, &address, "100ms");
        let gate = json!({"name": "memory", "op": "gt", "value": most, "provider": {"type": "process",
            "path": "chaosctl", "arguments": ["probe", "host", "memory_used_percent"]}});
        document["extensions"] = json!([{"name": "chaos-daemon", "abort_when": [gate]}]);
        register(&mut client, document).await;
        let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": title})).await;
        assert_eq!(result["verdict"], verdict, "{result}");
        let said = result["error"].as_str().unwrap_or_default();
        assert_eq!(said.contains("gate memory: "), verdict == "refused", "{result}");
    }
    let injected = server.take_asked().iter().filter(|asked| asked.starts_with("inject ")).count();
    assert_eq!(injected, 1);
}

#[tokio::test]
async fn what_is_no_probe_is_refused() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for words in [
        json!([]),
        json!(["unit"]),
        json!(["process"]),
        json!(["unit", "a.timer"]),
        json!(["host"]),
        json!(["host", "disk_used_percent"]),
        json!(["host", "cpu_busy_percent", "--window", "3s"]),
        json!(["process", "--exe", "a"]),
        json!(["log", "--unit", "a.service"]),
        json!(["log", "--match", "x"]),
        json!(["log", "--file", "/a", "--unit", "a.service", "--match", "x"]),
        json!(["log", "--file", "/a/../b", "--match", "x"]),
        json!(["log", "--file", "/a", "--match", "("]),
        json!([["unit", "a.service"]]),
    ] {
        let (answer, failed) = client.call("chaos_probe", json!({"arguments": words})).await;
        assert!(failed && answer["error"]["code"] == "INVALID_PARAMETER", "{words}: {answer}");
    }
    assert!(client.call("chaos_probe", json!({})).await.1);
    assert_eq!(server.take_asked(), [""; 0]);
}

#[tokio::test]
async fn chaosctl_asks_the_daemon_and_says_by_its_exit_code_whether_it_is_so() {
    let server = Server::start().await;
    let (code, said) = chaosctl(&server, &["probe", "unit", "a.service"]).await;
    assert!(code == 0 && said.starts_with("ok: unit a.service: active (running) for 90.0 s"), "{said}");
    let (code, said) = chaosctl(&server, &["probe", "--min", "4", "process", "--exe", "/opt/a"]).await;
    assert!(code == 1 && said.contains("failed: processes of exe /opt/a: 3 running; 3.000"), "{said}");
    let (code, said) = chaosctl(&server, &["--json", "probe", "process", "--exe", "/opt/a"]).await;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &said["value"]), (0, &json!(3.0)), "{said}");
    let log = ["probe", "log", "--file", "/var/log/payment/a.log", "--match", "ERR", "--last", "64KiB"];
    let (code, said) = chaosctl(&server, &log).await;
    assert!(code == 0 && said.starts_with("ok: \"ERR\" in /var/log/payment/a.log: 2 of 9"), "{said}");
    let (code, said) = chaosctl(&server, &[&log[..], &["--max", "0"]].concat()).await;
    assert!(code == 1 && said.contains("at most 0 is right"), "{said}");
    let (code, said) = chaosctl(&server, &["probe", "unit", "a.timer"]).await;
    assert!(code == 2 && said.contains("a.timer"), "{said}");
}

#[tokio::test]
async fn a_steady_state_of_a_unit_and_its_processes_is_asked_of_the_injector() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let process = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let probe = |name: &str, arguments: Value| json!({"type": "probe", "name": name, "tolerance": 0, "provider": process(arguments)});
    let document = json!({
        "title": "up",
        "steady-state-hypothesis": {"title": "up", "probes": [
            probe("active", json!(["probe", "unit", "a.service"])),
            probe("three", json!(["probe", "process", "--unit", "a.service", "--min", 3, "--max", 3])),
        ]},
        "method": [{"type": "action", "name": "cut",
            "provider": process(json!({"inject": "timeout", "--interface": "eth0", "--for": "100ms"}))}],
        "rollbacks": [],
    });
    let (answer, failed) = client.call("chaos_register_experiment", document).await;
    assert!(!failed, "{answer}");
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "up"})).await;
    assert_eq!(result["verdict"], "held", "{result}");
    let looks = server.take_asked().iter().filter(|asked| asked.starts_with("look ")).count();
    assert_eq!(looks, 4, "two before, two after");
}
