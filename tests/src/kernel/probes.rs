//! Probes of the host itself, taken by the prober from within its sandbox.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::worker::Program;
use crate::{Daemon, Mcp, process};

tests![
    sockets_are_counted_anew_by_the_prober_for_every_sample,
    pressure_is_read_by_the_prober_or_the_kernel_named_that_keeps_none,
    processes_are_seen_by_the_injector_with_age_memory_and_descriptors,
    whom_no_preview_shows_no_probe_tells_of,
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

/// One sample by the tool.
fn take(mcp: &Mcp, words: &Value) -> Result<Value, Box<dyn std::error::Error>> {
    Ok(mcp.call_tool("chaos_probe", json!({"arguments": words}))?.ok()?)
}

fn processes_are_seen_by_the_injector_with_age_memory_and_descriptors(context: &Context) -> TestResult {
    let program = Program::new()?;
    let worker = program.start(1, "one")?;
    std::thread::sleep(Duration::from_millis(500));
    let _later = program.start(1, "two")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let of = |measure: &str| -> Result<f64, Box<dyn std::error::Error>> {
        let sample = take(&mcp, &json!(["process", "--exe", program.path(), "--measure", measure]))?;
        assert_eq!(sample["ok"], true, "{measure}: {sample}");
        sample["value"].as_f64().ok_or_else(|| format!("{measure}: {sample}").into())
    };
    assert!((of("count")? - 2.0).abs() < 0.01);
    let (youngest, oldest) = (of("youngest")?, of("oldest")?);
    assert!(oldest - youngest > 0.4 && oldest < 60.0, "{youngest} {oldest}");
    assert!(of("memory_mb")? > 0.1, "{}", of("memory_mb")?);
    // Counted by this test, which is root with every right.
    let counted = std::fs::read_dir(format!("/proc/{}/fd", worker.pid()))?.count();
    let descriptors = take(&mcp, &json!(["process", "--pid", worker.pid(), "--measure", "descriptors"]))?;
    assert_eq!(descriptors["value"].as_f64(), Some(f64::from(u32::try_from(counted)?)), "{descriptors}");
    // An experiment has the same, and one that was started anew is young.
    let two = json!(["probe", "process", "--exe", program.path(), "--min", 2, "--max", 2]);
    assert_eq!(judge(&mcp, &two)?["steady_state_before"], true, "{:?}", context.kernel);
    drop(worker);
    assert_eq!(judge(&mcp, &two)?["steady_state_before"], false);
    Ok(Outcome::Pass)
}

fn whom_no_preview_shows_no_probe_tells_of(_: &Context) -> TestResult {
    let policy = tempfile::NamedTempFile::new()?;
    std::fs::write(policy.path(), "fault_types = [\"latency\"]")?;
    let open = Daemon::start()?;
    let sample = take(&open.mcp()?, &json!(["process", "--pid", 1]))?;
    let detail = sample["detail"].as_str().unwrap_or_default();
    assert!(sample["ok"] == false && detail.contains("protected"), "{sample}");
    let limited = Daemon::start_with(|command| {
        command.arg("--policy").arg(policy.path());
    })?;
    let sample = take(&limited.mcp()?, &json!(["process", "--pid", process::all()[0].pid]))?;
    let detail = sample["detail"].as_str().unwrap_or_default();
    assert!(sample["ok"] == false && detail.contains("process_kill"), "{sample}");
    Ok(Outcome::Pass)
}
