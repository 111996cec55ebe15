//! Who is never a target, whatever fault is meant for it: what this host lives by, and the daemon itself.

use serde_json::{Value, json};

use super::scene::Scene;
use super::{Context, Outcome, TestResult, tests};
use crate::daemon::binary;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::{Daemon, Error, Pair};

tests![
    pid_1_services_and_the_daemon_itself_are_refused_as_targets,
    a_device_of_a_fault_is_refused_as_a_target,
];

fn pid_1_services_and_the_daemon_itself_are_refused_as_targets(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let injector = scene.daemon.injector_pid();
    let server = scene.daemon.server().ok_or("no server")?.pid;
    let alone = |target: Value| {
        json!({"interface": null, "netns": null, "cidr": null, "unit": target["unit"],
        "cgroup": target["cgroup"], "pid": target["pid"]})
    };
    for pid in [1, injector, server] {
        let network = scene.registration(json!({"target": {"pid": pid}}));
        let burner = json!({"fault_type": "resource_exhaustion", "target": alone(json!({"pid": pid}))});
        for registration in [network, scene.registration(burner)] {
            let [code, message, _] = scene.refused(registration.clone())?;
            assert_eq!(code, "INVALID_PARAMETER", "{registration}: {message}");
        }
    }
    // Of another file than the daemon, as after an upgrade.
    let folder = tempfile::tempdir().map_err(Error::io("create", "a folder"))?;
    let older = folder.path().join("older-daemon");
    std::fs::copy(binary("chaos-daemon")?, &older).map_err(Error::io("copy", "the daemon"))?;
    let guard = Guard::start_program(&older, Vec::new(), &scene.daemon)?;
    let mut parts = vec![1, guard.pid()];
    parts.extend(scene.daemon.processes().iter().map(|process| process.pid));
    let known = [scene.daemon.server(), scene.daemon.prober(), scene.daemon.keeper()];
    assert!(known.iter().flatten().all(|process| parts.contains(&process.pid)), "{known:?}, {parts:?}");
    assert!(!scene.daemon.holders().is_empty(), "no holder waits");
    let mut targets: Vec<_> = parts.iter().map(|pid| json!({"pid": pid})).collect();
    targets.push(json!({"exe": older}));
    targets.push(json!({"command": format!("^{} guard", older.display())}));
    for target in targets {
        for kind in ["process_kill", "process_pause"] {
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
            // Where no such unit runs, it is not found; the root is no group below the mount.
            let named = ["TARGET_PROTECTED", "TARGET_NOT_FOUND", "INVALID_PARAMETER"];
            assert!(named.contains(&code.as_str()), "{kind} {target}: {code} {message}");
        }
    }
    scene.assert_untouched()?;
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
