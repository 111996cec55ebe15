//! What the operator's policy file forbids is not done, and what it protects is not hit.

use std::fs::{Permissions, create_dir_all, set_permissions};
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::scene::Scene;
use super::{Context, Outcome, TestResult, on_every_attachment, tests};
use crate::daemon::{NOBODY, binary, run_as_nobody};
use crate::fault::Fault;
use crate::kinds::untried;
use crate::late::HANG;
use crate::measure::{Echo, Tcp, tcp_rtt, udp_rtt, udp_rtt_median};
use crate::pair::INTERFACE;
use crate::process::Killed;
use crate::{Daemon, Error, Pair, Residue, Result};

tests![
    a_policy_refuses_by_the_name_of_its_rule_and_allows_the_rest,
    a_user_that_the_policy_does_not_list_may_look_but_not_inject,
    a_network_namespace_is_entered_for_root_for_whom_has_a_process_there_and_where_the_policy_names_it,
    a_protected_port_is_spared_by_a_partition_of_everything_else,
    a_protected_peer_is_spared_by_a_partition_of_everyone_else,
    what_is_protected_is_spared_over_the_loopback_whichever_end_speaks,
    taking_the_host_down_is_refused_by_the_default_policy_and_leaves_nothing_behind,
    a_policy_that_cannot_be_used_is_refused_at_the_start_with_its_path,
    what_others_than_root_could_change_is_refused_at_the_start_with_what_to_do,
];

const PATIENCE: Duration = Duration::from_millis(400);

/// A policy file; it goes with the folder.
fn policy(text: &str) -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().map_err(Error::io("create", "a folder"))?;
    let path = folder.path().join("policy.toml");
    std::fs::write(&path, text).map_err(Error::io("write", path.display().to_string()))?;
    Ok((folder, path))
}

fn a_policy_refuses_by_the_name_of_its_rule_and_allows_the_rest(_: &Context) -> TestResult {
    let rules = format!(
        "fault_types = [\"network_partition\", \"timeout\"]\ninterfaces = [\"{INTERFACE}\"]\n\
         max_duration_seconds = 20\n"
    );
    let (_folder, path) = policy(&rules)?;
    let scene = Scene::with(|command| {
        command.arg("--policy").arg(&path);
    })?;
    let right = json!({"duration_seconds": 20});
    for (change, rule) in [
        (json!({"duration_seconds": 20, "fault_type": "error"}), "fault_types"),
        (json!({"duration_seconds": 20, "target": {"interface": "lo"}}), "interfaces"),
        (json!({"duration_seconds": 20.5}), "max_duration_seconds"),
    ] {
        let [code, message, hint] = scene.inject_refused(change)?;
        assert!(code == "POLICY_DENIED" && hint.contains(&format!("`{rule}`")), "{code}: {message}: {hint}");
    }
    scene.assert_untouched()?;
    scene.mcp.call_tool("chaos_inject_fault", scene.registration(right))?.ok()?;
    for action in ["inject", "remove"] {
        scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": action}))?.ok()?;
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// On this host and in the VM the switches stay off: what happens with them on is for the VM with systemd alone.
fn taking_the_host_down_is_refused_by_the_default_policy_and_leaves_nothing_behind(
    _: &Context,
) -> TestResult {
    let scene = Scene::new()?;
    for (kind, params) in [
        ("host_reboot", json!({})),
        ("host_reboot", json!({"forced": true, "countdown_seconds": 600})),
        ("host_panic", json!({})),
        ("host_panic", json!({"sync": true, "stay_down": true, "countdown_seconds": 600})),
    ] {
        let plain = params == json!({});
        let fault = json!({"fault_name": "down", "fault_type": kind, "probability": 1.0, "duration_seconds": 900,
            "target": {}, "params": params});
        let tries = [
            ("chaos_plan", fault.clone()),
            ("chaos_inject_fault", json!({"fault_name": "down", "action": "inject"})),
        ];
        let mut register = fault;
        register["action"] = json!("register");
        scene.mcp.call_tool("chaos_inject_fault", register)?.ok()?;
        for (tool, arguments) in tries {
            let answer = scene.mcp.call_tool(tool, arguments)?;
            let error = &answer.json["error"];
            let hint = error["hint"].as_str().unwrap_or_default();
            assert!(answer.is_error && error["code"] == "POLICY_DENIED", "{tool} {kind}: {}", answer.json);
            assert!(hint.contains(&format!("`{kind}`")), "{tool} {kind}: {}", answer.json);
            if plain && tool == "chaos_inject_fault" {
                let message = error["message"].as_str().unwrap_or_default();
                untried(kind, "refused by policy", message);
            }
        }
    }
    scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "down", "action": "remove"}))?.ok()?;
    assert!(!scene.daemon.state_dir().join("host-down.json").exists());
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn a_user_that_the_policy_does_not_list_may_look_but_not_inject(_: &Context) -> TestResult {
    let inject = |scene: &Scene| {
        let socket = format!("--socket={}", scene.daemon.socket().display());
        let netns = format!("--netns={}", scene.pair.near.name());
        let fault = ["network_partition", "--interface", INTERFACE, "--cidr=10.77.0.2", "--for=10s"];
        run_as_nobody("chaosctl", &[&[&*socket, "inject"], &fault[..], &[&*netns]].concat())
    };
    for (uids, allowed) in [("[1]", false), ("[65534]", true)] {
        let (_folder, path) =
            policy(&format!("fault_netns = [\"/run/netns/*\"]\nroles.operator.uids = {uids}\n"))?;
        let scene = Scene::with(|command| {
            command.args(["--socket-group", "nogroup", "--policy"]).arg(&path);
        })?;
        let output = inject(&scene)?;
        let text = String::from_utf8_lossy(&output.stderr);
        if allowed {
            assert!(output.status.success(), "{text}");
            continue;
        }
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(text.contains("POLICY_DENIED") && text.contains("`roles.operator`"), "{text}");
        let socket = format!("--socket={}", scene.daemon.socket().display());
        assert!(run_as_nobody("chaosctl", &[&socket, "status"])?.status.success());
        scene.assert_untouched()?;
    }
    Ok(Outcome::Pass)
}

/// Every kind of fault that enters a network namespace, by the words of `chaosctl`.
const ENTERING: &[&[&str]] = &[
    &["network_partition", "--interface=eth0", "--cidr=10.77.0.2"],
    &["error", "--interface=eth0", "--cidr=10.77.0.2"],
    &["dns_error", "--interface=eth0"],
    &["link_down", "--interface=eth0"],
    &["resource_exhaustion", "--resource=ports", "--count=1"],
    &["port_in_use", "--local-port=7007"],
    &["connection_load", "--url=tcp://10.77.0.1:7007", "--sessions=1"],
];

fn a_network_namespace_is_entered_for_root_for_whom_has_a_process_there_and_where_the_policy_names_it(
    _: &Context,
) -> TestResult {
    let pair = Pair::new()?;
    let sleeper = |user: u32| {
        let spawned = pair.near.run(|| Command::new("sleep").arg("600").uid(user).gid(user).spawn());
        spawned.map(Killed).map_err(Error::io("start", "sleep"))
    };
    let (his, roots) = (sleeper(NOBODY)?, sleeper(0)?);
    let (name, kept) = (pair.near.name().to_owned(), format!("/run/netns/{}", pair.near.name()));
    let process = |of: &Killed| format!("/proc/{}/ns/net", of.0.id());
    let by_pid = format!("--pid={}", roots.0.id());
    let places: Vec<(String, bool)> =
        [(name.clone(), false), (kept.clone(), false), (process(&roots), false)]
            .into_iter()
            .chain([(process(&his), true)])
            .map(|(netns, is_his)| (format!("--netns={netns}"), is_his))
            .collect();
    let named = format!("[{name:?}]");
    let mut refused = 0;
    for (rule, allows) in [
        ("[]", false),
        ("[\"other\"]", false),
        (&*named, true),
        ("[\"/run/netns/*\"]", true),
        ("[\"*\"]", true),
    ] {
        // Of root's process it is the namespace that decides.
        let rules = format!("fault_netns = {rule}\n[open]\nprograms = [\"sleep\"]\n");
        let (_folder, path) = policy(&rules)?;
        let daemon = Daemon::start_with(|command| {
            command.args(["--socket-group", "nogroup", "--policy"]).arg(&path);
        })?;
        let socket = format!("--socket={}", daemon.socket().display());
        let is_refused = |words: &[&str]| -> Result<bool> {
            let plan = ["--name=a", "--for=10s", "--dry-run"];
            let output = run_as_nobody("chaosctl", &[&[&*socket, "inject"], words, &plan[..]].concat())?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let denied = text.contains("POLICY_DENIED") && text.contains("`fault_netns`");
            assert!(denied || !text.contains("POLICY_DENIED"), "{words:?}: {text}");
            Ok(denied)
        };
        for fault in ENTERING {
            for (netns, is_his) in &places {
                let words = [*fault, &[&**netns]].concat();
                assert_eq!(is_refused(&words)?, !allows && !is_his, "{rule}: {words:?}");
                refused += usize::from(!allows && !is_his);
            }
        }
        // By a process of root's there, and by none of this host's own.
        let by_process = ["network_partition", "--interface=eth0", "--cidr=10.77.0.2", &by_pid];
        assert_eq!(is_refused(&by_process)?, !allows, "{rule}: {by_process:?}");
        assert!(!is_refused(&["network_partition", "--interface=lo", "--cidr=127.0.0.9"])?, "{rule}");
        let root = Fault::new("network_partition").on(&pair.near, json!({"cidr": "10.77.0.2"}));
        root.inject(&daemon.mcp()?)?;
    }
    println!("{refused} refused");
    Ok(Outcome::Pass)
}

fn a_protected_port_is_spared_by_a_partition_of_everything_else(context: &Context) -> TestResult {
    let (_folder, path) = policy("[protect]\ntcp_ports = [5432]\n")?;
    on_every_attachment(context, |attach| {
        let scene = Scene::with(|command| {
            command.arg("--policy").arg(&path);
            attach.configure(command);
        })?;
        let (near, far) = (&scene.pair.near, &scene.pair.far);
        let spared = Echo::start(near, Pair::NEAR_V4, 5432)?;
        let cut = Echo::start(near, Pair::NEAR_V4, 80)?;
        let fault = Fault::new("network_partition").on(near, json!({"cidr": "10.77.0.0/24"}));
        fault.inject(&scene.mcp)?;
        let silent = tcp_rtt(far, cut.address(), PATIENCE)?;
        assert!(matches!(silent, Tcp::Silent), "port 80 still answers: {silent:?}");
        let answered = tcp_rtt(far, spared.address(), HANG)?;
        assert!(matches!(answered, Tcp::Answered { .. }), "the protected port: {answered:?}");
        // The same port of another protocol is nobody's way in.
        assert_eq!(udp_rtt(far, spared.address(), PATIENCE)?, None, "UDP port 5432 still answers");
        let status = fault.status(&scene.mcp)?;
        let protected = status["evidence"]["packets_protected"].as_u64();
        assert!(protected.is_some_and(|packets| packets > 0), "{status}");
        fault.remove(&scene.mcp)?;
        Ok(scene.assert_untouched()?)
    })
}

fn a_protected_peer_is_spared_by_a_partition_of_everyone_else(_: &Context) -> TestResult {
    let (_folder, path) = policy("[protect]\ncidrs = [\"10.77.0.2/32\"]\n")?;
    let scene = Scene::with(|command| {
        command.arg("--policy").arg(&path);
    })?;
    let near = &scene.pair.near;
    let spared = Echo::start(&scene.pair.far, Pair::FAR_V4, 7)?;
    let cut = Echo::start(&scene.pair.far, Pair::FAR_V6, 7)?;
    let everyone = json!({"cidrs": ["0.0.0.0/0", "fd77::2"]});
    let fault = Fault::new("network_partition").on(near, everyone);
    fault.inject(&scene.mcp)?;
    assert_eq!(udp_rtt(near, cut.address(), PATIENCE)?, None, "the other peer still answers");
    udp_rtt_median(near, spared.address(), 5, HANG)?;
    fault.remove(&scene.mcp)?;
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// There a port is the sender's of every second packet, and so is the address of a peer.
fn what_is_protected_is_spared_over_the_loopback_whichever_end_speaks(context: &Context) -> TestResult {
    let (_folder, path) = policy("[protect]\ntcp_ports = [5432]\ncidrs = [\"127.0.0.9/32\"]\n")?;
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let near = &pair.near;
        near.ip(&["link", "set", "lo", "up"])?;
        let daemon = Daemon::start_with(|command| {
            command.arg("--policy").arg(&path);
            attach.configure(command);
        })?;
        let (mcp, before) = (daemon.mcp()?, Residue::take(&[near])?);
        let address = |last: u8| IpAddr::from([127, 0, 0, last]);
        let port = Echo::start(near, address(2), 5432)?;
        let peer = Echo::start(near, address(9), 80)?;
        let cut = Echo::start(near, address(2), 80)?;
        let all = json!({"interface": "lo", "netns": near.name()});
        let fault = Fault::new("network_partition").aimed(all);
        fault.inject(&mcp)?;
        let silent = tcp_rtt(near, cut.address(), PATIENCE)?;
        assert!(matches!(silent, Tcp::Silent), "port 80 still answers: {silent:?}");
        for (what, spared) in [("port", &port), ("peer", &peer)] {
            let answered = tcp_rtt(near, spared.address(), HANG)?;
            assert!(matches!(answered, Tcp::Answered { .. }), "the protected {what}: {answered:?}");
        }
        fault.remove(&mcp)?;
        let answered = tcp_rtt(near, cut.address(), HANG)?;
        assert!(matches!(answered, Tcp::Answered { .. }), "afterwards: {answered:?}");
        before.assert_unchanged_within(&[near], HANG)?;
        Ok(())
    })
}

fn a_policy_that_cannot_be_used_is_refused_at_the_start_with_its_path(_: &Context) -> TestResult {
    for (text, problem) in [
        ("fault_type = [\"latency\"]\n", "unknown field `fault_type`"),
        ("[protect]\nports = [22]\n", "unknown field `ports`"),
        ("fault_types = [\"meteor\"]\n", "meteor"),
        ("max_duration_seconds = 3601\n", "max_duration_seconds: give 1 to 3600"),
        ("max_active = 0\n", "max_active: give 1 to 64"),
    ] {
        let (_folder, path) = policy(text)?;
        let started = Daemon::start_with(|command| {
            command.arg("--policy").arg(&path);
        });
        let Err(error) = started else { return Err(format!("started with {text:?}").into()) };
        let log = error.to_string();
        assert!(log.contains("exit status: 1"), "{text:?}: {log}");
        assert!(log.contains(&*path.to_string_lossy()) && log.contains(problem), "{text:?}: {log}");
    }
    // The one that is not there.
    let missing = std::env::temp_dir().join(format!("chaos-no-policy-{}", std::process::id()));
    let started = Daemon::start_with(|command| {
        command.arg("--policy").arg(&missing);
    });
    let Err(error) = started else { return Err("started without its policy".into()) };
    assert!(error.to_string().contains(&*missing.to_string_lossy()), "{error}");
    Ok(Outcome::Pass)
}

fn what_others_than_root_could_change_is_refused_at_the_start_with_what_to_do(_: &Context) -> TestResult {
    let (folder, path) = policy("max_active = 1\n")?;
    let at = |name: &str| folder.path().join(name);
    for name in ["good", "theirs", "all/deep", "group"] {
        create_dir_all(at(name))?;
    }
    for (name, mode) in [("policy.toml", 0o644), ("all", 0o777), ("group", 0o775)] {
        set_permissions(at(name), Permissions::from_mode(mode))?;
    }
    std::fs::copy(&path, at("open.toml"))?;
    set_permissions(at("open.toml"), Permissions::from_mode(0o666))?;
    std::fs::copy(&path, at("theirs.toml"))?;
    for name in ["theirs", "theirs.toml"] {
        chown(at(name), Some(NOBODY), None)?;
    }
    // By a limit that only a hang reaches: who is not refused goes on.
    let start = |program: &[&str]| {
        let mut command = Command::new("timeout");
        command.arg("60").arg(binary("chaos-daemon")?).args(program);
        command.output().map_err(Error::io("start", "chaos-daemon"))
    };
    let flag = |name: &str, path: &str| format!("--{name}={}", at(path).display());
    for (runtime, state, policy, words) in [
        ("theirs", "good", "policy.toml", "the runtime directory is not used"),
        ("all", "good", "policy.toml", "the runtime directory is not used"),
        ("all/deep", "good", "policy.toml", "the runtime directory is not used"),
        ("all/none", "good", "policy.toml", "the runtime directory is not used"),
        ("group", "good", "policy.toml", "the runtime directory is not used"),
        ("good", "theirs", "policy.toml", "the state directory is not used"),
        ("good", "all/none", "policy.toml", "the state directory is not used"),
        ("good", "good", "open.toml", "the policy file is not used"),
        ("good", "good", "theirs.toml", "the policy file is not used"),
        ("good", "good", "none.toml", "read policy"),
    ] {
        let options = [flag("runtime-dir", runtime), flag("state-dir", state), flag("policy", policy)];
        let output = start(&[&["run"], &options.each_ref().map(String::as_str)[..]].concat())?;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(words), "{runtime}, {state}, {policy}: {text}");
        assert!(policy == "none.toml" || text.contains("chmod go-w"), "{text}");
        if runtime != "good" {
            for command in ["guard", "recover"] {
                let output = start(&[command, &options[0]])?;
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(!output.status.success() && text.contains(words), "{command} {runtime}: {text}");
            }
        }
    }
    assert!(!at("all/none").exists(), "it was made all the same");
    Ok(Outcome::Pass)
}
