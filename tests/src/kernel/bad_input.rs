//! Bad input, a kernel that lacks something, a caller without rights: each gets an error by name and changes nothing.

use std::process::{Command, Output};

use chaos_daemon::host::privilege::INJECTOR;
use serde_json::{Value, json};

use super::lacks::assert_helps;
use super::scene::Scene;
use super::{Context, Outcome, TestResult, tests};
use crate::daemon::{binary, run_as_nobody};
use crate::late::HANG;
use crate::measure::{Echo, udp_rtt_median};
use crate::{Error, Pair, Wire};

tests![
    a_wrong_registration_is_refused_by_the_field_that_is_wrong,
    a_target_that_is_not_there_is_refused_by_its_name,
    what_is_not_json_is_answered_and_the_connection_goes_on,
    a_line_of_ten_megabytes_is_answered_with_the_limit,
    half_a_request_is_no_request,
    a_delay_is_possible_or_the_missing_module_is_named,
    without_root_the_daemon_names_every_capability_it_lacks,
    a_stranger_may_not_connect_and_is_told_what_to_do,
    a_refused_command_line_leaves_what_is_registered_as_it_was,
];

/// What is laid over a right registration, the code of the error, and what its message starts with.
fn wrong() -> Vec<(Value, &'static str, &'static str)> {
    let delay = |params: Value| json!({"fault_type": "latency", "params": params});
    vec![
        (json!({"fault_type": "meteor"}), "INVALID_PARAMETER", "fault_type: \"meteor\" is not known"),
        (json!({"fault_type": null}), "MISSING_PARAMETER", "fault_type: "),
        (json!({"probability": 1.5}), "INVALID_PROBABILITY", "probability: "),
        (json!({"probability": "NaN"}), "INVALID_PROBABILITY", "probability: "),
        (json!({"probability": "often"}), "INVALID_PROBABILITY", "probability: "),
        (
            json!({"params": {"packet_probability": 1.5}}),
            "INVALID_PROBABILITY",
            "params.packet_probability: ",
        ),
        (json!({"target": {"cidr": "10.0.0.0/33"}}), "INVALID_PARAMETER", "target.cidr: \"10.0.0.0/33\""),
        (
            json!({"target": {"netns": "/tmp/ns"}}),
            "INVALID_PARAMETER",
            "target.netns: \"/tmp/ns\" is no place",
        ),
        (json!({"target": {"interface": null, "cidr": null}}), "MISSING_PARAMETER", "target.interface: "),
        (json!({"duration_seconds": -1}), "INVALID_PARAMETER", "duration_seconds: -1 s is out of bounds"),
        (json!({"duration_seconds": 0}), "INVALID_PARAMETER", "duration_seconds: "),
        (json!({"duration_seconds": 3601}), "INVALID_PARAMETER", "duration_seconds: "),
        (json!({"duration_seconds": 1e300}), "INVALID_PARAMETER", "duration_seconds: "),
        (json!({"duration_seconds": "1h"}), "INVALID_PARAMETER", "duration_seconds: "),
        (delay(json!({"delay_ms": -5})), "INVALID_PARAMETER", "params.delay_ms: "),
        (delay(json!({"delay_ms": 1e12})), "INVALID_PARAMETER", "params.delay_ms: "),
        (delay(json!({"delay_ms": 10, "jitter_ms": -1})), "INVALID_PARAMETER", "params.jitter_ms: "),
        (
            json!({"fault_type": "packet_loss", "params": {"four_state": {"p13": 60, "p31": 1, "p14": 60}}}),
            "INVALID_PARAMETER",
            "params.four_state.p13: with p14 it is 120 %",
        ),
        (
            json!({"fault_type": "bandwidth", "params": {"rate_kbit": 0}}),
            "INVALID_PARAMETER",
            "params.rate_kbit: 0 kbit/s is out of bounds",
        ),
        (json!({"blast": true}), "INVALID_PARAMETER", "blast: "),
        (json!({"target": {"iface": "eth0"}}), "INVALID_PARAMETER", "target: unknown field `iface`"),
        (json!({"params": {"delay_ms": 5}}), "INVALID_PARAMETER", "params.delay_ms: is not known: "),
    ]
}

fn a_wrong_registration_is_refused_by_the_field_that_is_wrong(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    for (change, code, start) in wrong() {
        let [seen, message, _] = scene.refused(scene.registration(change.clone()))?;
        assert!(seen == code && message.starts_with(start), "{change}: {seen}: {message}");
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn a_target_that_is_not_there_is_refused_by_its_name(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    for (field, name) in [("interface", "nowhere0"), ("netns", "no-such-namespace")] {
        let [code, message, _] = scene.inject_refused(json!({"target": {field: name}}))?;
        assert!(code == "TARGET_NOT_FOUND" && message.contains(name), "{field}: {code}: {message}");
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn what_is_not_json_is_answered_and_the_connection_goes_on(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let mut wire = Wire::connect(&scene.daemon.socket())?;
    wire.open()?;
    // Neither can be said in JSON.
    for number in ["NaN", "1e999"] {
        let registration = scene.registration(json!({"probability": "here"})).to_string();
        let arguments = registration.replace("\"here\"", number);
        let params = format!(r#"{{"name":"chaos_inject_fault","arguments":{arguments}}}"#);
        wire.bytes(
            format!("{{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\",\"params\":{params}}}\n")
                .as_bytes(),
        )?;
        let answer = wire.answer()?.ok_or("closed")?;
        assert_eq!(answer["error"]["code"], -32700, "{number}: {answer}");
    }
    assert_eq!(wire.call("chaos_status", json!({}))?["active_faults"], json!([]));
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn a_line_of_ten_megabytes_is_answered_with_the_limit(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let mut wire = Wire::connect(&scene.daemon.socket())?;
    wire.open()?;
    let registration = scene.registration(json!({"error_message": "x".repeat(10 * 1024 * 1024)}));
    let params = json!({"name": "chaos_inject_fault", "arguments": registration});
    let line = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}).to_string();
    // Without its end, so that nothing but its length tells.
    wire.bytes(line.as_bytes())?;
    let answer = wire.answer()?.ok_or("closed without a reason")?;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(answer["error"]["code"] == -32600 && message.contains("4194304 bytes"), "{answer}");
    assert_eq!(wire.answer()?, None, "the connection stays open");
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn half_a_request_is_no_request(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let echo = Echo::start(&scene.pair.far, Pair::FAR_V4, 7)?;
    let request = |arguments: Value| {
        let params = json!({"name": "chaos_inject_fault", "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}).to_string()
    };
    let cut = |text: &str| -> TestResult {
        let mut wire = Wire::connect(&scene.daemon.socket())?;
        wire.open()?;
        wire.bytes(text.as_bytes())?;
        wire.end()?;
        assert_eq!(wire.answer()?, None, "half a request was answered");
        Ok(Outcome::Pass)
    };
    let whole = request(scene.registration(json!({})));
    cut(&whole[..whole.len() / 2])?;
    // All but the end of the line, which alone makes it a request.
    cut(&whole)?;
    scene.assert_untouched()?;

    scene.mcp.call_tool("chaos_inject_fault", scene.registration(json!({})))?.ok()?;
    cut(&request(json!({"fault_name": "f", "action": "inject"})))?;
    udp_rtt_median(&scene.pair.near, echo.address(), 3, HANG)?;
    let status = scene.mcp.call_tool("chaos_status", json!({}))?.ok()?;
    assert_eq!(status["active_faults"][0]["active"], false, "{status}");
    scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "remove"}))?.ok()?;
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn a_delay_is_possible_or_the_missing_module_is_named(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let doctor = scene.mcp.call_tool("chaos_doctor", json!({}))?.ok()?;
    let faults = doctor["faults"].as_array().ok_or("no faults")?;
    let latency = faults.iter().find(|fault| fault["fault_type"] == "latency").ok_or("no latency")?;
    // Asked of the kernel, in a namespace of the test's own, without the daemon.
    let add = ["qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"];
    let possible = crate::NetNs::new()?.tc(&add).is_ok();
    assert_eq!(latency["possible"], possible, "{latency}");
    if !possible {
        let missing = latency["missing"].to_string();
        assert!(missing.contains("sch_netem") && latency["remedy"].is_string(), "{latency}");
        let refusal = scene.inject_refused(json!({"fault_type": "latency", "params": {"delay_ms": 100}}))?;
        assert_helps("latency", "sch_netem (", refusal.each_ref().map(String::as_str));
        assert_eq!(latency["remedy"], refusal[2].as_str(), "the doctor says otherwise");
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn without_root_the_daemon_names_every_capability_it_lacks(_: &Context) -> TestResult {
    let folder = tempfile::tempdir()?;
    let (runtime, state) = (folder.path().join("run"), folder.path().join("state"));
    let dirs = [("--runtime-dir", &runtime), ("--state-dir", &state)];
    let [runtime_dir, state_dir] = dirs.map(|(flag, path)| format!("{flag}={}", path.display()));
    let output = run_as_nobody("chaos-daemon", &["run", &runtime_dir, &state_dir])?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("needs root"), "{text}");
    for capability in INJECTOR {
        assert!(text.contains(&capability.to_string()), "{capability} is not named: {text}");
    }
    let output = run_as_nobody("chaos-daemon", &["recover", &runtime_dir])?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(4) && text.contains("needs root"), "{text}");
    assert!(!runtime.exists() && !state.exists(), "it made its directories all the same");
    Ok(Outcome::Pass)
}

fn a_stranger_may_not_connect_and_is_told_what_to_do(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let socket = |scene: &Scene| format!("--socket={}", scene.daemon.socket().display());
    let fault = ["inject", "resource_exhaustion", "--for=5s"];
    let output = run_as_nobody("chaosctl", &[&[&*socket(&scene)], &fault[..]].concat())?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("permission denied") && text.contains("usermod -aG chaos"), "{text}");
    scene.assert_untouched()?;

    // The same user is let in as a member of the group, so it was the permission that kept it out.
    let open = Scene::with(|command| {
        command.args(["--socket-group", "nogroup"]);
    })?;
    let output = run_as_nobody("chaosctl", &[&socket(&open), "status"])?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(Outcome::Pass)
}

fn a_refused_command_line_leaves_what_is_registered_as_it_was(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let inject = || {
        let mut command = Command::new(binary("chaosctl")?);
        command.arg("--socket").arg(scene.daemon.socket());
        command.args(["inject", "timeout", "--name=f", "--interface=nowhere0", "--for=5s"]);
        command.output().map_err(Error::io("start", "chaosctl"))
    };
    let refused = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && text.contains("TARGET_NOT_FOUND"), "{text}");
    };
    refused(&inject()?);
    scene.assert_untouched()?;

    scene.mcp.call_tool("chaos_inject_fault", scene.registration(json!({})))?.ok()?;
    refused(&inject()?);
    let status = scene.mcp.call_tool("chaos_status", json!({}))?.ok()?;
    assert_eq!(status["active_faults"][0]["fault_type"], "network_partition", "{status}");
    scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "remove"}))?.ok()?;
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}
