//! What the policy says of a host decides before anything else, and a policy that is read again holds at once.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::scene::Scene;
use super::{Context, Outcome, TestResult, tests};
use crate::daemon::binary;
use crate::late::HANG;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    a_host_of_which_nothing_is_said_has_dry_runs_alone_and_production_not_even_those,
    what_has_a_marker_of_production_is_refused_by_name_and_an_exception_lets_it_be,
    a_policy_that_is_read_again_ends_what_it_no_longer_allows_and_says_so,
    a_run_ends_its_faults_also_when_its_caller_and_the_callers_groups_are_gone,
    a_fault_without_a_target_goes_where_the_policy_says_and_nowhere_else,
    a_host_that_becomes_production_has_every_fault_and_run_ended,
    a_policy_that_cannot_be_read_again_leaves_the_one_before,
    between_two_policies_nothing_begins_that_neither_permits,
];

/// How many injections are tried while the policy changes.
const TRIES: usize = 400;

struct PolicyFile {
    folder: TempDir,
}

impl PolicyFile {
    fn new(text: &str) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(Error::io("create", "a folder"))?;
        let file = Self { folder };
        file.write(text)?;
        Ok(file)
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("policy.toml")
    }

    fn write(&self, text: &str) -> Result<()> {
        let (path, next) = (self.path(), self.folder.path().join("next"));
        fs::write(&next, text).map_err(Error::io("write", next.display().to_string()))?;
        // A reader sees the one or the other.
        fs::rename(&next, &path).map_err(Error::io("replace", path.display().to_string()))
    }

    fn scene(&self) -> Result<Scene> {
        let path = self.path();
        Scene::of(Daemon::start_unsaid(|command| {
            command.arg("--policy").arg(path);
        })?)
    }
}

/// Has the daemon read its policy again, and waits until it says that it has.
fn reload(daemon: &Daemon, said: &str) -> Result<()> {
    let before = daemon.log().matches(said).count();
    let injector = daemon.injector().ok_or(Error::Different("no injector".into()))?;
    injector.signal(Signal::SIGHUP);
    match wait_until(HANG, || daemon.log().matches(said).count() > before) {
        true => Ok(()),
        false => Err(Error::Hung { what: format!("{said:?} in the log:\n{}", daemon.log()) }),
    }
}

const READ: &str = "the policy was read again";

fn plan(mcp: &Mcp, registration: &Value) -> Result<(Value, bool)> {
    let mut asked = registration.clone();
    if let Some(fields) = asked.as_object_mut() {
        fields.remove("action");
    }
    let answer = mcp.call_tool("chaos_plan", asked)?;
    Ok((answer.json, answer.is_error))
}

fn a_host_of_which_nothing_is_said_has_dry_runs_alone_and_production_not_even_those(
    _: &Context,
) -> TestResult {
    let file = PolicyFile::new("")?;
    let scene = file.scene()?;
    let [code, message, hint] = scene.inject_refused(json!({}))?;
    assert!(code == "POLICY_DENIED" && message.contains("not said what this host is"), "{message}");
    assert!(hint.contains("environment = \"test\""), "{hint}");
    let (told, failed) = plan(&scene.mcp, &scene.registration(json!({})))?;
    assert!(!failed && told["warnings"][0].as_str().is_some_and(|said| said.contains("not said")), "{told}");
    scene.assert_untouched()?;
    drop(scene);
    for name in ["production", "PROD"] {
        file.write(&format!("environment = \"{name}\"\n"))?;
        let scene = file.scene()?;
        let answer = scene.mcp.call_tool("chaos_inject_fault", scene.registration(json!({})))?;
        assert!(answer.is_error && answer.json["error"]["code"] == "POLICY_DENIED", "{}", answer.json);
        let (told, failed) = plan(&scene.mcp, &scene.registration(json!({})))?;
        assert!(failed && told.to_string().contains(&format!("this host is {name}")), "{told}");
        for (tool, arguments) in
            [("chaos_probe", json!({"arguments": ["tcp", "127.0.0.1:1"]})), ("chaos_targets", json!({}))]
        {
            let answer = scene.mcp.call_tool(tool, arguments)?;
            assert!(
                answer.is_error && answer.json.to_string().contains("POLICY_DENIED"),
                "{tool}: {}",
                answer.json
            );
        }
        scene.mcp.call_tool("chaos_status", json!({}))?.ok()?;
        scene.mcp.call_tool("chaos_stop", json!({}))?.ok()?;
        scene.assert_untouched()?;
    }
    // What the command line says of the host may not be another thing.
    let started = Daemon::start_with(|command| {
        command.arg("--policy").arg(file.path());
    });
    let Err(error) = started else { return Err("started as two hosts at once".into()) };
    assert!(error.to_string().contains("say it once"), "{error}");
    Ok(Outcome::Pass)
}

fn what_has_a_marker_of_production_is_refused_by_name_and_an_exception_lets_it_be(_: &Context) -> TestResult {
    let file = PolicyFile::new("environment = \"test\"\nproduction_markers = [\"near*\", \"prod\"]\n")?;
    let scene = file.scene()?;
    let name = scene.pair.near.name().to_owned();
    // By what is asked for.
    let marked = json!({"target": {"netns": name, "interface": INTERFACE, "host": "db.prod.internal"}});
    let [code, message, hint] = scene.inject_refused(marked)?;
    assert!(code == "POLICY_DENIED" && message.contains("db.prod.internal"), "{message}");
    assert!(hint.contains("not_production = [\"db.prod.internal\"]"), "{hint}");
    scene.mcp.call_tool("chaos_inject_fault", scene.registration(json!({})))?.ok()?;
    scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"}))?.ok()?;
    scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "remove"}))?.ok()?;
    // And a marker that the name of the network namespace fits.
    file.write(&format!(
        "environment = \"test\"\nproduction_markers = [\"{}*\"]\n",
        &name[..name.len() - 1]
    ))?;
    reload(&scene.daemon, READ)?;
    let [_, message, _] = scene.inject_refused(json!({}))?;
    assert!(message.contains(&name), "{message}");
    file.write(&format!(
        "environment = \"test\"\nproduction_markers = [\"{}*\"]\nnot_production = [\"{name}\"]\n",
        &name[..name.len() - 1]
    ))?;
    reload(&scene.daemon, READ)?;
    scene.mcp.call_tool("chaos_inject_fault", scene.registration(json!({})))?.ok()?;
    scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"}))?.ok()?;
    scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "remove"}))?.ok()?;
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// Whether a fault of this name is active.
fn is_active(mcp: &Mcp, name: &str) -> Result<bool> {
    let status = mcp.call_tool("chaos_status", json!({}))?.ok()?;
    let active = |fault: &Value| fault["name"] == name && fault["active"] == json!(true);
    Ok(status["active_faults"].as_array().is_some_and(|all| all.iter().any(active)))
}

fn a_policy_that_is_read_again_ends_what_it_no_longer_allows_and_says_so(_: &Context) -> TestResult {
    let file = PolicyFile::new("environment = \"test\"\n")?;
    let scene = file.scene()?;
    for (rule, words) in [
        ("environment = \"test\"\nfault_types = [\"latency\"]\n", "network_partition is not allowed"),
        ("environment = \"test\"\ninterfaces = [\"eth77\"]\n", "is not allowed"),
        ("environment = \"test\"\nmax_duration_seconds = 5\n", "longer than the 5 s allowed"),
        ("environment = \"test\"\nexperiments.require_gate = true\n", "single fault"),
        ("environment = \"test\"\n[protect]\ntcp_ports = [22, 5432]\n", "protect.tcp_ports"),
    ] {
        scene.mcp.call_tool("chaos_inject_fault", scene.registration(json!({})))?.ok()?;
        scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"}))?.ok()?;
        // One that allows it still ends nothing.
        file.write("environment = \"test\"\nmax_active = 7\n")?;
        reload(&scene.daemon, READ)?;
        assert!(is_active(&scene.mcp, "f")?, "{rule}: it has ended before");
        file.write(rule)?;
        reload(&scene.daemon, READ)?;
        let ended = wait_until(HANG, || is_active(&scene.mcp, "f").is_ok_and(|active| !active));
        assert!(ended, "{rule}: it goes on");
        let log = scene.daemon.log();
        let told = log.lines().rfind(|line| line.contains("no longer allows it: ending it"));
        assert!(told.is_some_and(|line| line.contains(words)), "{rule}: {told:?}");
        file.write("environment = \"test\"\n")?;
        reload(&scene.daemon, READ)?;
        scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "remove"}))?.ok()?;
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// The first example of the tool specification names no target.
fn a_fault_without_a_target_goes_where_the_policy_says_and_nowhere_else(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let target =
        format!("{{ netns = \"{}\", interface = \"{INTERFACE}\", cidr = \"10.77.0.2\" }}", pair.near.name());
    let file = PolicyFile::new("environment = \"test\"\n")?;
    let daemon = Daemon::start_unsaid(|command| {
        command.arg("--policy").arg(file.path());
    })?;
    let mcp = daemon.mcp()?;
    let registered = json!({"fault_name": "slow-database", "action": "register", "fault_type": "timeout", "probability": 1});
    mcp.call_tool("chaos_inject_fault", registered)?.ok()?;
    let inject =
        || mcp.call_tool("chaos_inject_fault", json!({"fault_name": "slow-database", "action": "inject"}));
    let refused = inject()?;
    assert!(refused.is_error && refused.json.to_string().contains("`default_target`"), "{}", refused.json);
    file.write(&format!("environment = \"test\"\ndefault_target = {target}\n"))?;
    reload(&daemon, READ)?;
    inject()?.ok()?;
    let status = mcp.call_tool("chaos_status", json!({}))?.ok()?;
    assert!(is_active(&mcp, "slow-database")? && status.to_string().contains(pair.near.name()), "{status}");
    mcp.call_tool("chaos_inject_fault", json!({"fault_name": "slow-database", "action": "remove"}))?.ok()?;
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn a_host_that_becomes_production_has_every_fault_and_run_ended(_: &Context) -> TestResult {
    let file = PolicyFile::new("environment = \"test\"\n")?;
    let scene = file.scene()?;
    scene.mcp.call_tool("chaos_inject_fault", scene.registration(json!({})))?.ok()?;
    scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"}))?.ok()?;
    file.write("environment = \"production\"\n")?;
    reload(&scene.daemon, "no longer allows anything here")?;
    let active = || scene.daemon.mcp_again().and_then(|mcp| is_active(&mcp, "f"));
    let normal = wait_until(HANG, || active().is_ok_and(|active| !active));
    assert!(normal, "{}", scene.daemon.log());
    let answer = scene.daemon.mcp_again()?.call_tool("chaos_inject_fault", scene.registration(json!({})))?;
    assert!(
        answer.is_error && answer.json.to_string().contains("this host is production"),
        "{}",
        answer.json
    );
    scene.assert_links_unchanged()?;
    Ok(Outcome::Pass)
}

fn a_run_ends_its_faults_also_when_its_caller_and_the_callers_groups_are_gone(_: &Context) -> TestResult {
    const GROUP: &str = "4242";
    let file = PolicyFile::new(&format!(
        "environment = \"test\"\nfault_netns = [\"*\"]\nroles.others = \"observer\"\nroles.operator.gids = [{GROUP}]\n"
    ))?;
    let pair = Pair::new()?;
    let daemon = Daemon::start_unsaid(|command| {
        command.args(["--socket-group", "nogroup", "--policy"]).arg(file.path());
    })?;
    let before = Residue::take(&[&pair.near])?;
    let document = file.folder.path().join("cut.json");
    fs::write(&document, super::experiments::document(&pair).to_string())?;
    fs::set_permissions(file.folder.path(), fs::Permissions::from_mode(0o755))?;
    // The program is read by root, for whom its folder may be closed to others.
    let program = fs::File::open(binary("chaosctl")?)?;
    // Whoever executes it opens it by its number.
    fcntl(&program, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let mut run = Command::new("setpriv");
    run.args(["--reuid=65534", "--regid=65534", "--groups", GROUP])
        .arg(format!("/proc/self/fd/{}", program.as_raw_fd()));
    let output = run
        .arg(format!("--socket={}", daemon.socket().display()))
        .args(["run", "--detach"])
        .arg(&document)
        .output()?;
    assert!(output.status.success(), "{output:?}");
    let handle = String::from_utf8(output.stdout)?.trim().to_owned();
    let mcp = daemon.mcp()?;
    assert!(wait_until(HANG, || is_active(&mcp, "65534/cut").unwrap_or_default()), "{}", daemon.log());
    // Also when the policy is read again, which allows it still.
    reload(&daemon, READ)?;
    assert!(is_active(&mcp, "65534/cut")?, "{}", daemon.log());
    mcp.call_tool("chaos_stop", json!({"run_id": handle}))?.ok()?;
    let ended = wait_until(HANG, || is_active(&mcp, "65534/cut").is_ok_and(|active| !active));
    assert!(ended, "{}", daemon.log());
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn a_policy_that_cannot_be_read_again_leaves_the_one_before(_: &Context) -> TestResult {
    let file = PolicyFile::new("environment = \"test\"\nmax_duration_seconds = 40\n")?;
    let scene = file.scene()?;
    scene.mcp.call_tool("chaos_inject_fault", scene.registration(json!({})))?.ok()?;
    scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"}))?.ok()?;
    for text in ["environment = ", "environment = \"prod-eu\"\n", "uids = [1]\n", "max_active = 0\n"] {
        file.write(text)?;
        reload(&scene.daemon, "the policy was not read again")?;
        let checked =
            Command::new(binary("chaosctl")?).args(["policy", "check", "--file"]).arg(file.path()).output();
        let checked = checked.map_err(Error::io("run", "chaosctl policy check"))?;
        assert_eq!(checked.status.code(), Some(1), "{text:?}");
    }
    assert!(is_active(&scene.mcp, "f")?, "{}", scene.daemon.log());
    scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "remove"}))?.ok()?;
    let [_, message, _] = scene.inject_refused(json!({"duration_seconds": 50}))?;
    assert!(message.contains("longer than the 40 s"), "{message}");
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn between_two_policies_nothing_begins_that_neither_permits(_: &Context) -> TestResult {
    let one = "environment = \"test\"\nfault_types = [\"timeout\", \"network_partition\"]\nmax_duration_seconds = 20\n";
    let other = "environment = \"test\"\nfault_types = [\"error\", \"network_partition\"]\nmax_duration_seconds = 30\n";
    let file = PolicyFile::new(one)?;
    let scene = file.scene()?;
    let target = json!({"netns": scene.pair.near.name(), "interface": INTERFACE, "cidr": "10.77.0.2"});
    // Neither permits the first two: each has the type of one and the length of the other. Both permit the last.
    let fault = |kind: &str, seconds: u32| json!({"fault_type": kind, "duration_seconds": seconds, "target": target, "params": {}});
    let kinds = [
        ("first", fault("timeout", 25)),
        ("second", fault("error", 35)),
        ("both", fault("network_partition", 5)),
    ];
    for (name, fault) in &kinds {
        let mut words = fault.clone();
        (words["fault_name"], words["action"], words["probability"]) =
            (json!(name), json!("register"), json!(1));
        scene.mcp.call_tool("chaos_inject_fault", words)?.ok()?;
    }
    let tries = std::env::var("CHAOS_TEST_RELOADS").ok().and_then(|text| text.parse().ok()).unwrap_or(TRIES);
    let injector = scene.daemon.injector().ok_or(Error::Different("no injector".into()))?;
    let over = AtomicBool::new(false);
    let (begun, mut injected, mut refused, mut wrong) = (Instant::now(), 0, 0, 0);
    std::thread::scope(|scope| -> TestResult {
        let changing = scope.spawn(|| -> Result<()> {
            // At whatever moment of an injection, and of one after the other.
            for number in (0..).take_while(|_| !over.load(Ordering::Relaxed)) {
                file.write(if number % 2 == 0 { other } else { one })?;
                injector.signal(Signal::SIGHUP);
                std::thread::sleep(Duration::from_millis(number % 29));
            }
            Ok(())
        });
        let tried = (0..tries).try_for_each(|number| -> Result<()> {
            let (name, _) = &kinds[number % kinds.len()];
            let asked = json!({"fault_name": name, "action": "inject"});
            let answer = scene.mcp.call_tool("chaos_inject_fault", asked)?;
            match (answer.is_error, *name) {
                (true, _) => refused += 1,
                (false, "both") => injected += 1,
                (false, _) => wrong += 1,
            }
            scene.mcp.call_tool("chaos_stop", json!({"fault_name": name}))?.ok().map(drop)
        });
        over.store(true, Ordering::Relaxed);
        changing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        tried?;
        Ok(Outcome::Pass)
    })?;
    println!(
        "{tries} tries in {:?}: {injected} injected, {refused} refused, {wrong} that neither permits",
        begun.elapsed()
    );
    assert_eq!(wrong, 0);
    assert!(injected > 0 && scene.daemon.log().matches(READ).count() > 1);
    for (name, _) in &kinds {
        scene.mcp.call_tool("chaos_inject_fault", json!({"fault_name": name, "action": "remove"}))?.ok()?;
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}
