//! Programs that probes of the daemon run: as whom, with what, and that none outlives any of the processes above it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use chaos_daemon::host::accounts;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Context, Outcome, TestResult, tests};
use crate::daemon::folder_of_roots;
use crate::late::HANG;
use crate::mcp::Answer;
use crate::process::{self, Process, wait_until};
use crate::{Daemon, Error, Mcp, Result};

tests![
    a_program_is_run_as_a_user_without_rights_who_is_not_the_servers,
    a_program_that_the_policy_does_not_name_or_others_may_change_is_refused_by_name,
    a_daemon_whose_policy_names_no_program_has_no_runner,
    what_has_left_its_programs_session_is_gone_when_the_sample_is_answered,
    a_sample_that_is_killed_leaves_nothing_and_the_daemon_goes_on,
    whichever_process_is_killed_no_program_is_left,
    a_runner_that_dies_is_replaced_alone,
];

/// The user of programs where there is no account for them.
const UNNAMED: u32 = 65_533;

/// A daemon whose policy names programs; the folder has the policy.
struct Scene {
    daemon: Daemon,
    mcp: Mcp,
    _folder: TempDir,
}

impl Scene {
    fn new(programs: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(Error::io("create", "a folder"))?;
        let path = folder.path().join("policy.toml");
        fs::write(&path, format!("probe_commands = {programs:?}\n"))
            .map_err(Error::io("write", "a policy"))?;
        let daemon = Daemon::start_with(|command| {
            command.arg("--policy").arg(&path);
        })?;
        let mcp = daemon.mcp()?;
        Ok(Self { daemon, mcp, _folder: folder })
    }

    fn probe(&self, words: &[&str]) -> Result<Value> {
        self.mcp.call_tool("chaos_probe", json!({"arguments": words}))?.ok()
    }
}

/// A script in a folder of root's; it goes with the folder.
fn script(text: &str) -> Result<(TempDir, PathBuf)> {
    let folder = folder_of_roots("checks")?;
    let path = folder.path().join("check");
    let mode = |path: &std::path::Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
    fs::write(&path, format!("#!/bin/sh\n{text}\n"))
        .and_then(|()| mode(&path))
        .and_then(|()| mode(folder.path()))
        .map_err(Error::io("write", path.display().to_string()))?;
    Ok((folder, path))
}

fn a_program_is_run_as_a_user_without_rights_who_is_not_the_servers(_: &Context) -> TestResult {
    let rights = "$(grep -E '^(CapPrm|CapBnd|NoNewPrivs):' /proc/self/status | tr -d '\\n\\t ')";
    let (folder, path) = script(&format!(
        "ls \"$1\" >/dev/null 2>&1 && echo open\necho $(id -u) $(id -g) $(id -G) {rights} $PWD"
    ))?;
    let everything = format!("{}/*", folder.path().display());
    let scene = Scene::new(&[&everything])?;
    let servers = scene.daemon.state_dir().join("server");
    let seen = scene.probe(&[
        "command",
        "--",
        path.to_str().ok_or("no text")?,
        servers.to_str().ok_or("no text")?,
    ])?;
    let user = accounts::user("chaos-probe")?.map_or(UNNAMED, |(uid, _)| uid);
    let none = "0000000000000000";
    let expected = format!("{user} {user} {user} CapPrm:{none}CapBnd:{none}NoNewPrivs:1 /");
    assert!(
        seen["ok"] == true && seen["detail"].as_str().is_some_and(|text| text.contains(&expected)),
        "{seen}"
    );
    // Neither of the runner's own processes has a way to the server.
    let runner = scene.daemon.runner().ok_or("no runner")?;
    let keeper = process::descendants(runner.pid).into_iter().next().ok_or("no keeper")?;
    let open = fs::read_dir(format!("/proc/{}/fd", keeper.pid))?.flatten();
    let sockets: Vec<_> = open
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .collect();
    assert!(sockets.is_empty(), "{sockets:?}");
    Ok(Outcome::Pass)
}

fn a_program_that_the_policy_does_not_name_or_others_may_change_is_refused_by_name(
    _: &Context,
) -> TestResult {
    let (folder, path) = script("exit 0")?;
    let path = path.display().to_string();
    let scene = Scene::new(&[&path])?;
    let register = |program: &str| {
        let process =
            |path: &str, arguments: Value| json!({"type": "process", "path": path, "arguments": arguments});
        let burn = json!({"inject": "resource_exhaustion", "--cpu-percent": 5, "--for": "300ms"});
        let document = json!({"title": "checked", "description": "a program", "rollbacks": [],
            "method": [{"type": "action", "name": "burn", "provider": process("chaosctl", burn)}],
            "steady-state-hypothesis": {"title": "up", "probes": [
                {"type": "probe", "name": "check", "tolerance": 0, "provider": process(program, json!([]))}]}});
        scene.mcp.call_tool("chaos_register_experiment", document)
    };
    register(&path)?.ok()?;
    let run = || scene.mcp.call_tool("chaos_run_experiment", json!({"experiment_name": "checked"}))?.ok();
    assert_eq!(run()?["verdict"], "held");
    let [code, message, hint] = refused(&register("/bin/sh")?)?;
    assert!(
        code == "POLICY_DENIED" && message.contains("/bin/sh") && hint.contains("`probe_commands`"),
        "{message}: {hint}"
    );
    // Registered while it was all right, and asked about again.
    for changed in [folder.path().display().to_string(), path.clone()] {
        fs::set_permissions(&changed, fs::Permissions::from_mode(0o775))?;
        let [code, message, hint] = refused(&register(&path)?)?;
        assert!(
            code == "POLICY_DENIED" && message.contains(&format!("{changed} can be written by others")),
            "{message}"
        );
        assert!(hint.contains("chmod go-w"), "{hint}");
        let result = run()?;
        let error = result["error"].as_str().unwrap_or_default();
        assert!(result["verdict"] == "refused" && error.contains("can be written by others"), "{result}");
        fs::set_permissions(&changed, fs::Permissions::from_mode(0o755))?;
    }
    assert_eq!(run()?["verdict"], "held");
    Ok(Outcome::Pass)
}

fn a_daemon_whose_policy_names_no_program_has_no_runner(_: &Context) -> TestResult {
    let scene = Scene::new(&[])?;
    let seen = scene.probe(&["command", "--", "/bin/sh", "-c", "exit 0"])?;
    let detail = seen["detail"].as_str().unwrap_or_default();
    assert!(seen["ok"] == false && detail.contains("not among the programs that probes may run"), "{seen}");
    assert_eq!(scene.daemon.runner(), None);
    Ok(Outcome::Pass)
}

/// Code, message and hint of a refusal.
fn refused(answer: &Answer) -> Result<[String; 3]> {
    let error = &answer.json["error"];
    match answer.is_error {
        true => Ok(["code", "message", "hint"].map(|key| error[key].as_str().unwrap_or_default().to_owned())),
        false => Err(Error::Different(format!("not refused: {}", answer.json))),
    }
}

/// What processes of a test are told by.
fn mark(number: usize) -> String {
    format!("chaos-mark-{}-{number}", std::process::id())
}

fn marked(mark: &str) -> Vec<Process> {
    let mut all = process::all();
    all.retain(|process| process.state != 'Z' && process.arguments.iter().any(|word| word == mark));
    all
}

/// Starts somebody who leaves group and session, and minds no signal that can be minded.
fn leaves(mark: &str) -> String {
    format!("setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' {mark}")
}

/// A program with a child that has left its group and its session, and minds no signal that can be minded; told by its mark.
struct Stubborn {
    mark: String,
    sample: std::thread::JoinHandle<()>,
}

impl Stubborn {
    fn start(scene: &Scene, number: usize) -> Result<Self> {
        let mark = mark(number);
        let outer = format!("{} & while :; do sleep 1; done", leaves(&mark));
        let words = ["--timeout", "25s", "command", "--", "/bin/sh", "-c", &outer, &mark];
        let (mcp, words) = (scene.daemon.mcp()?, json!({"arguments": words}));
        let sample = std::thread::spawn(move || {
            // What becomes of the call is not what is asked here.
            let _ = mcp.call_tool("chaos_probe", words);
        });
        let started = Self { mark, sample };
        match wait_until(HANG, || started.processes().len() >= 2) {
            true => Ok(started),
            false => Err(Error::Hung { what: format!("programs started; {}", scene.daemon.log()) }),
        }
    }

    fn processes(&self) -> Vec<Process> {
        marked(&self.mark)
    }

    /// Ends when nothing of it is left.
    fn assert_gone(self, what: &str, scene: &Scene) {
        let gone = wait_until(HANG, || self.processes().is_empty());
        let left = self.processes();
        left.iter().for_each(|process| process.signal(Signal::SIGKILL));
        assert!(gone, "after {what}: {left:?}; {}", scene.daemon.log());
        let _ = self.sample.join();
    }
}

/// The runner's process that takes a sample.
fn taker(scene: &Scene) -> Option<Process> {
    let runner = scene.daemon.runner()?;
    process::descendants(runner.pid)
        .into_iter()
        .find(|process| process.arguments.get(2).is_some_and(|part| part == "take"))
}

fn what_has_left_its_programs_session_is_gone_when_the_sample_is_answered(_: &Context) -> TestResult {
    let scene = Scene::new(&["/bin/sh"])?;
    for (number, then, ok) in [(20, "sleep 1; kill -0 $!", true), (21, "sleep 60", false)] {
        let mark = mark(number);
        let script = format!("{} & {then}", leaves(&mark));
        let seen = scene.probe(&["--timeout", "8s", "command", "--", "/bin/sh", "-c", &script])?;
        assert_eq!(seen["ok"], ok, "{seen}");
        let left = marked(&mark);
        assert!(left.is_empty(), "{left:?}");
    }
    Ok(Outcome::Pass)
}

fn a_sample_that_is_killed_leaves_nothing_and_the_daemon_goes_on(_: &Context) -> TestResult {
    let scene = Scene::new(&["/bin/sh"])?;
    let numbers =
        || [scene.daemon.server(), scene.daemon.runner()].map(|process| process.map(|process| process.pid));
    let before = numbers();
    let stubborn = Stubborn::start(&scene, 0)?;
    taker(&scene).ok_or("no sample")?.signal(Signal::SIGKILL);
    stubborn.assert_gone("the death of the process that took the sample", &scene);
    assert_eq!(numbers(), before);
    let seen = scene.probe(&["command", "--", "/bin/sh", "-c", "exit 0"])?;
    assert_eq!(seen["ok"], true, "{seen}");
    Ok(Outcome::Pass)
}

fn whichever_process_is_killed_no_program_is_left(_: &Context) -> TestResult {
    type Victim = fn(&Scene) -> Option<Process>;
    let keeper = |scene: &Scene| {
        let all = process::descendants(scene.daemon.runner()?.pid);
        all.into_iter().find(|process| process.arguments.get(2).is_some_and(|part| part == "keep"))
    };
    let victims: [(&str, Victim); 4] = [
        ("the runner", |scene| scene.daemon.runner()),
        ("the keeper of the namespace", keeper),
        ("the server", |scene| scene.daemon.server()),
        ("the injector", |scene| scene.daemon.injector()),
    ];
    for (number, (what, victim)) in victims.into_iter().enumerate() {
        let scene = Scene::new(&["/bin/sh"])?;
        let stubborn = Stubborn::start(&scene, number + 1)?;
        victim(&scene).ok_or(what)?.signal(Signal::SIGKILL);
        stubborn.assert_gone(what, &scene);
    }
    let mut scene = Scene::new(&["/bin/sh"])?;
    let stubborn = Stubborn::start(&scene, 9)?;
    scene.daemon.kill_everything();
    stubborn.assert_gone("everything", &scene);
    let mut scene = Scene::new(&["/bin/sh"])?;
    let stubborn = Stubborn::start(&scene, 10)?;
    scene.daemon.stop()?;
    stubborn.assert_gone("the end of the daemon", &scene);
    Ok(Outcome::Pass)
}

fn a_runner_that_dies_is_replaced_alone(_: &Context) -> TestResult {
    let scene = Scene::new(&["/bin/sh"])?;
    let (server, runner) =
        (scene.daemon.server().ok_or("no server")?, scene.daemon.runner().ok_or("no runner")?);
    runner.signal(Signal::SIGKILL);
    let replaced = || {
        let seen = scene.probe(&["command", "--", "/bin/sh", "-c", "exit 0"]);
        scene.daemon.runner().is_some_and(|now| now.pid != runner.pid)
            && seen.is_ok_and(|seen| seen["ok"] == true)
    };
    assert!(wait_until(HANG, replaced), "{}", scene.daemon.log());
    assert_eq!(scene.daemon.server().map(|now| now.pid), Some(server.pid), "{}", scene.daemon.log());
    Ok(Outcome::Pass)
}
