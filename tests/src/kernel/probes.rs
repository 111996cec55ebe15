//! Probes of the host itself, taken by the prober from within its sandbox.

use std::net::{TcpListener, TcpStream};
use std::path::Path;

use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::{Daemon, Mcp};

tests![
    sockets_are_counted_anew_by_the_prober_for_every_sample,
    pressure_is_read_by_the_prober_or_the_kernel_named_that_keeps_none,
];

/// What a dry run says of a steady state of this one probe.
fn judge(mcp: &Mcp, arguments: &Value) -> Result<Value, Box<dyn std::error::Error>> {
    let chaosctl = |arguments: &Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let probe = json!({"type": "probe", "name": "host", "tolerance": 0, "provider": chaosctl(arguments)});
    let action = json!({"type": "action", "name": "burn",
        "provider": chaosctl(&json!({"inject": "resource_exhaustion", "--cpu-percent": 5, "--for": "1s"}))});
    let document = json!({"title": "host", "description": "a probe of the host", "method": [action],
        "rollbacks": [], "steady-state-hypothesis": {"title": "so", "probes": [probe]}});
    mcp.call_tool("chaos_register_experiment", document)?.ok()?;
    let run = json!({"experiment_name": "host", "dry_run": true});
    Ok(mcp.call_tool("chaos_run_experiment", run)?.ok()?)
}

fn sockets_are_counted_anew_by_the_prober_for_every_sample(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let mut clients = Vec::new();
    for number in 0..3 {
        let exactly = json!([
            "probe",
            "sockets",
            "tcp",
            "--state",
            "established",
            "--peer-port",
            port,
            "--min",
            number,
            "--max",
            number
        ]);
        let seen = judge(&mcp, &exactly)?;
        assert_eq!(seen["steady_state_before"], true, "{number}: {seen}");
        clients.push(TcpStream::connect(("127.0.0.1", port))?);
        let seen = judge(&mcp, &exactly)?;
        assert_eq!(seen["steady_state_before"], false, "one more than {number}: {seen}");
    }
    let seen = judge(&mcp, &json!(["probe", "sockets", "all", "--min", 1]))?;
    assert_eq!(seen["steady_state_before"], true, "{seen}");
    Ok(Outcome::Pass)
}

fn pressure_is_read_by_the_prober_or_the_kernel_named_that_keeps_none(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    for resource in ["cpu", "memory", "io", "irq"] {
        let seen = judge(&mcp, &json!(["probe", "pressure", resource, "--window", "total", "--min", 0]))?;
        println!("{resource}: {seen}");
        // Read by this process, which is not shut in: what the kernel has is the same for both.
        let kept = std::fs::read(Path::new("/proc/pressure").join(resource)).is_ok();
        assert_eq!(seen["steady_state_before"], json!(kept), "{resource}: {seen}");
        if !kept {
            let error = seen["error"].as_str().unwrap_or_default();
            assert!(error.contains("this kernel keeps no pressure"), "{resource}: {seen}");
        }
    }
    let never = judge(&mcp, &json!(["probe", "pressure", "cpu", "--min", 101]))?;
    assert_eq!(never["steady_state_before"], false, "{never}");
    Ok(Outcome::Pass)
}
