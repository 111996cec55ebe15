//! Who is never a target, whatever fault is meant for it: what this host lives by, and the daemon itself.

use std::collections::BTreeSet;
use std::process::Stdio;

use serde_json::{Value, json};

use super::lacks::lacking;
use super::oracle::Fake;
use super::scene::Scene;
use super::{Context, Outcome, TestResult, tests};
use crate::cgroup::Cgroup;
use crate::daemon::binary;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::late::HANG;
use crate::process::wait_until;
use crate::{Daemon, Error, Pair, Result};

tests![
    pid_1_services_and_the_daemon_itself_are_refused_as_targets,
    a_group_with_a_service_that_the_host_needs_is_refused_by_whom_it_protects,
    a_device_of_a_fault_is_refused_as_a_target,
];

fn pid_1_services_and_the_daemon_itself_are_refused_as_targets(context: &Context) -> TestResult {
    let scene = Scene::new()?;
    let injector = scene.daemon.injector_pid();
    let server = scene.daemon.server().ok_or("no server")?.pid;
    let mut known = vec![server, scene.daemon.prober().ok_or("no prober")?.pid];
    // Of the kernels without tcx none has hooks that are kept on.
    if context.kernel >= (6, 6) {
        assert!(wait_until(HANG, || scene.daemon.keeper().is_some()), "no keeper");
        known.push(scene.daemon.keeper().ok_or("no keeper any more")?.pid);
    }
    let alone = |target: Value| {
        json!({"interface": null, "netns": null, "cidr": null, "unit": target["unit"],
        "cgroup": target["cgroup"], "pid": target["pid"]})
    };
    for pid in [1, injector, server] {
        let network = scene.registration(json!({"target": {"pid": pid}}));
        let [code, message, _] = scene.refused(network.clone())?;
        assert_eq!(code, "INVALID_PARAMETER", "{network}: {message}");
    }
    // Of another file than the daemon, as after an upgrade.
    let folder = tempfile::tempdir().map_err(Error::io("create", "a folder"))?;
    let older = folder.path().join("older-daemon");
    std::fs::copy(binary("chaos-daemon")?, &older).map_err(Error::io("copy", "the daemon"))?;
    let guard = Guard::start_program(&older, Vec::new(), &scene.daemon)?;
    let mut parts = vec![1, guard.pid()];
    parts.extend(scene.daemon.processes().iter().map(|process| process.pid));
    assert!(known.iter().all(|pid| parts.contains(pid)), "{known:?}, {parts:?}");
    assert!(!scene.daemon.holders().is_empty(), "no holder waits");
    let mut targets: Vec<_> = parts.iter().map(|pid| json!({"pid": pid})).collect();
    targets.push(json!({"exe": older}));
    targets.push(json!({"command": format!("^{} guard", older.display())}));
    for target in targets {
        for kind in ["process_kill", "process_pause", "pause", "resource_exhaustion"] {
            let mut only = alone(target.clone());
            for field in ["exe", "command"] {
                only[field] = target[field].clone();
            }
            let [code, message, _] =
                scene.inject_refused(json!({"fault_type": kind, "target": only, "params": null}))?;
            assert_eq!(code, "TARGET_PROTECTED", "{kind} {target}: {message}");
            assert!(target["pid"] == 1 || message.contains("a part of chaos-daemon"), "{message}");
        }
    }
    for target in [
        json!({"unit": "init.scope"}),
        json!({"unit": "systemd-journald.service"}),
        json!({"unit": "ssh.service"}),
        json!({"unit": "chaos-daemon.service"}),
        json!({"cgroup": "/"}),
        json!({"cgroup": "/init.scope"}),
        json!({"cgroup": "/system.slice/systemd-journald.service"}),
        json!({"cgroup": "/system.slice/ssh.service"}),
        json!({"cgroup": "/system.slice/chaos-daemon.service"}),
    ] {
        let mut egress = target.clone();
        egress["direction"] = json!("egress");
        for (kind, target) in [
            ("network_partition", egress),
            ("resource_exhaustion", alone(target.clone())),
            ("pause", alone(target)),
        ] {
            let [code, message, _] = scene.inject_refused(json!({"fault_type": kind, "target": target}))?;
            assert_eq!(code, expected(&target)?, "{kind} {target}: {message}");
        }
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// With which code a group is refused that has what the host needs in it, wherever it runs.
fn expected(target: &Value) -> Result<&'static str> {
    let root = crate::cgroup::root()?;
    let path = ["unit", "cgroup"].iter().find_map(|field| target[*field].as_str()).unwrap_or_default();
    let (path, slice) = (path.trim_start_matches('/'), root.join("system.slice").join(path));
    Ok(match (path, root.join(path).exists() || slice.exists()) {
        ("", _) => "INVALID_PARAMETER",
        (_, true) => "TARGET_PROTECTED",
        (_, false) => "TARGET_NOT_FOUND",
    })
}

/// What runs under these names the host needs, or whoever works on it.
const NEEDED: [&str; 7] =
    ["sshd", "sshd-session", "systemd", "systemd-journald", "systemd-logind", "dbus-daemon", "dbus-broker"];

/// A fault of every kind that goes to a group or to the processes in it, but for those that are `lacking`: what the kernel cannot do
/// is refused before any target is looked at.
fn of_groups(target: &Value, lacking: &BTreeSet<String>) -> Vec<Fault> {
    let of = |kind: &'static str, params: Value| {
        let name = params["resource"].as_str().unwrap_or(kind);
        (!lacking.contains(name)).then(|| Fault::new(kind).aimed(target.clone()).with(params))
    };
    let limit = |resource: &str, field: &str| json!({"resource": resource, field: 50});
    let mut egress = target.clone();
    (egress["interface"], egress["direction"]) = (json!("lo"), json!("egress"));
    let packets =
        ["network_partition", "timeout", "error"].map(|kind| Fault::new(kind).aimed(egress.clone()));
    let others = [
        Some(Fault::new("network_partition").aimed(target.clone()).named("everywhere")),
        of("connect_error", json!({})),
        of("file_error", json!({"path": "/"})),
        of("socket_error", json!({})),
        of("resource_exhaustion", json!({"resource": "cpu"})),
        of("resource_exhaustion", limit("cpu_limit", "cpu_percent")),
        of("resource_exhaustion", limit("memory_limit", "memory_mb")),
        of("resource_exhaustion", limit("pids_limit", "pids")),
        of("pause", json!({})),
        of("process_kill", json!({})),
        of("process_pause", json!({})),
    ];
    packets.into_iter().chain(others.into_iter().flatten()).collect()
}

/// By path and as a unit, the group itself and one above it; and as soon as the process has gone, no more.
fn a_group_with_a_service_that_the_host_needs_is_refused_by_whom_it_protects(_: &Context) -> TestResult {
    let (above, daemon) = (Cgroup::of_unit()?, Daemon::start()?);
    let (group, mcp) = (above.below()?, daemon.mcp()?);
    let below = format!("{}/{}", above.name(), group.name());
    let lacking = lacking(&mcp)?;
    for name in NEEDED {
        let service = Fake::start_as(name, "sleep", &["60"], Stdio::null())?;
        group.set("cgroup.procs", &service.pid().to_string())?;
        // The kernel cuts names.
        let who = format!("process {} ({})", service.pid(), &name[..name.len().min(15)]);
        for target in
            [json!({"cgroup": below}), json!({"cgroup": above.name()}), json!({"unit": above.name()})]
        {
            for fault in of_groups(&target, &lacking) {
                fault.register(&mcp)?;
                let inject = json!({"fault_name": fault.name(), "action": "inject"});
                let answer = mcp.call_tool("chaos_inject_fault", inject)?;
                let error = &answer.json["error"];
                assert_eq!(error["code"], "TARGET_PROTECTED", "{fault:?}: {}", answer.json);
                let message = error["message"].as_str().unwrap_or_default();
                assert!(message.contains(&who), "{fault:?} of {who}: {message}");
            }
        }
        assert!(service.runs(), "{name} was hit");
    }
    let stranger = Fake::start_as("not-sshd", "sleep", &["60"], Stdio::null())?;
    group.set("cgroup.procs", &stranger.pid().to_string())?;
    let fault = Fault::new("connect_error").aimed(json!({"cgroup": below}));
    fault.inject(&mcp)?;
    fault.remove(&mcp)?;
    Ok(Outcome::Pass)
}

fn a_device_of_a_fault_is_refused_as_a_target(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    // As the near end of a delay is called, which stands beside the target's device.
    let name = "chaos00000002n";
    pair.near.ip(&["link", "add", name, "type", "veth", "peer", "name", "other0"])?;
    let fault = Fault::new("network_partition").on(&pair.near, json!({"interface": name}));
    let refusal = match fault.inject(&daemon.mcp()?) {
        Ok(status) => return Err(format!("it was accepted: {status}").into()),
        Err(error) => error.to_string(),
    };
    assert!(refusal.contains("target.interface") && refusal.contains(name), "{refusal}");
    Ok(Outcome::Pass)
}
