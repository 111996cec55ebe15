//! Runs of experiments that do not get to their end.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::daemon::binary;
use crate::guard::Guard;
use crate::late::HANG;
use crate::mcp::Answer;
use crate::mounts::{Ballast, Mounted, with_tiny_tmpfs};
use crate::netns::output;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, Pair, Residue};

tests![
    a_run_whose_server_is_killed_is_interrupted_and_leaves_nothing,
    a_run_that_a_signal_meets_in_a_pause_is_interrupted_and_injects_nothing_after_it,
    a_run_that_everything_died_under_is_interrupted_for_the_next_daemon,
    a_run_that_the_daemon_is_stopped_under_leaves_nothing_and_is_interrupted_for_the_next,
    a_dry_run_is_refused_where_the_run_would_be,
    on_a_disk_that_is_full_a_run_ends_as_ever_and_none_begins,
];

/// An experiment whose fault would last for longer than anybody waits.
pub(super) fn document(pair: &Pair) -> Value {
    let chaosctl = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    json!({
        "title": "cut",
        "description": "A run that does not get to its end.",
        "steady-state-hypothesis": {"title": "there are sockets", "probes": [{"type": "probe", "name": "sockets",
            "tolerance": 0, "provider": chaosctl(json!(["probe", "sockets", "all", "--min", 0]))}]},
        "method": [{"type": "action", "name": "cut", "may_be_idle": true, "provider": chaosctl(json!({"inject": "network-partition",
            "--netns": pair.near.name(), "--interface": INTERFACE, "--name": "cut", "--for": "10m"}))}],
        "rollbacks": [],
    })
}

pub(super) fn chaosctl(daemon: &Daemon, words: &[&str]) -> Result<Command, Error> {
    let mut command = Command::new(binary("chaosctl")?);
    command.arg("--socket").arg(daemon.socket()).args(words).stdin(Stdio::null());
    Ok(command)
}

/// The argument after `--state-dir`.
fn state_dir(command: &Command) -> std::io::Result<&Path> {
    let mut words = command.get_args().skip_while(|word| *word != "--state-dir").skip(1);
    words.next().map(Path::new).ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// Puts the files of a daemon's state directory into that of one that is about to start.
fn inherit(from: &Daemon, command: &Command) -> std::io::Result<()> {
    let to = state_dir(command)?;
    std::fs::create_dir(to.join("server"))?;
    for file in ["server/registry.json", "server/runs.json"] {
        let (from, to) = (from.state_dir().join(file), to.join(file));
        std::fs::copy(&from, &to)?;
        // The server's user has to be able to read it, as it could there.
        std::os::unix::fs::chown(&to, Some(from.metadata()?.uid()), Some(from.metadata()?.gid()))?;
    }
    Ok(())
}

pub(super) fn is_cut(mcp: &Mcp) -> bool {
    let status = mcp.call_tool("chaos_status", json!({})).and_then(crate::mcp::Answer::ok);
    let cut = |fault: &Value| fault["name"] == "cut" && fault["active"] == json!(true);
    status.is_ok_and(|status| status["active_faults"].as_array().is_some_and(|all| all.iter().any(cut)))
}

/// The only run that is listed.
fn listed(daemon: &Daemon) -> Result<String, Box<dyn std::error::Error>> {
    let output = chaosctl(daemon, &["runs"])?.output()?;
    assert!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

fn assert_interrupted(listed: &str) {
    let words: Vec<_> = listed.split_whitespace().collect();
    assert_eq!(
        (listed.lines().count(), words.get(2), words.get(3)),
        (1, Some(&"interrupted"), Some(&"cut")),
        "{listed}"
    );
}

fn a_run_whose_server_is_killed_is_interrupted_and_leaves_nothing(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    mcp.call_tool("chaos_register_experiment", document(&pair))?.ok()?;
    let mut run = chaosctl(&daemon, &["run", "cut"])?;
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    assert!(wait_until(HANG, || is_cut(&mcp)), "{}", daemon.log());
    assert!(listed(&daemon)?.contains("  running  cut"));
    let server = daemon.server().ok_or("no server")?;
    server.signal(Signal::SIGKILL);
    // Who waits for the run learns what has become of it, from the next server.
    let output = run.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(6) && said.starts_with("cut: interrupted after"), "{output:?}");
    assert_interrupted(&listed(&daemon)?);
    assert_known(&daemon)?;
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    // The next run is not kept from running, and ends as it should.
    let mut short = document(&pair);
    short["method"][0]["provider"]["arguments"]["--for"] = json!("300ms");
    let mcp = daemon.mcp()?;
    mcp.call_tool("chaos_register_experiment", short)?.ok()?;
    assert_eq!(chaosctl(&daemon, &["run", "cut"])?.output()?.status.code(), Some(0), "{}", daemon.log());
    Ok(Outcome::Pass)
}

/// The run that broke off says what was seen until then: the steady state before, that the fault was active, and no more.
fn assert_known(daemon: &Daemon) -> Result<(), Error> {
    let mcp = daemon.mcp()?;
    let found = mcp.call_tool("chaos_list_runs", json!({"verdict": "interrupted"}))?.ok()?;
    let told = mcp.call_tool("chaos_get_run", json!({"run_id": found["runs"][0]["run_id"]}))?.ok()?;
    assert_eq!(told["run"]["steady_state_before"], true, "{told}");
    assert_eq!(told["faults"][0]["injected"], true, "{told}");
    assert_eq!(told["faults"][0].get("removed_clean"), None, "{told}");
    let kinds: Vec<_> =
        told["events"].as_array().into_iter().flatten().map(|event| event["kind"].clone()).collect();
    assert!(kinds.contains(&json!("injected")) && kinds.last() == Some(&json!("abort")), "{told}");
    Ok(())
}

fn a_run_that_a_signal_meets_in_a_pause_is_interrupted_and_injects_nothing_after_it(
    _: &Context,
) -> TestResult {
    const PAUSE: Duration = Duration::from_secs(4);
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let mut paused = document(&pair);
    paused["method"][0]["pauses"] = json!({"before": PAUSE.as_secs()});
    mcp.call_tool("chaos_register_experiment", paused)?.ok()?;
    let mut run = chaosctl(&daemon, &["run", "cut"])?;
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let phase = || -> Result<Value, Error> {
        Ok(mcp.call_tool("chaos_status", json!({}))?.ok()?["running"][0]["phase"].clone())
    };
    assert!(wait_until(HANG, || phase().is_ok_and(|phase| phase == "method")), "{}", daemon.log());
    daemon.injector().ok_or("no injector")?.signal(Signal::SIGUSR1);
    // It would inject now.
    std::thread::sleep(PAUSE + Duration::from_secs(1));
    assert!(!is_cut(&daemon.mcp()?), "{}", daemon.log());
    before.assert_unchanged_within(&[&pair.near], Duration::ZERO)?;
    let output = run.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(6) && said.starts_with("cut: interrupted after"), "{output:?}");
    assert_interrupted(&listed(&daemon)?);
    Ok(Outcome::Pass)
}

fn a_dry_run_is_refused_where_the_run_would_be(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let mut down = document(&pair);
    down["method"][0]["provider"]["arguments"] = json!({"inject": "link-down", "--netns": pair.near.name(),
        "--interface": INTERFACE, "--for": "1s"});
    let run = |document: &Value, dry: bool| -> Result<Value, Box<dyn std::error::Error>> {
        mcp.call_tool("chaos_register_experiment", document.clone())?.ok()?;
        Ok(mcp.call_tool("chaos_run_experiment", json!({"experiment_name": "cut", "dry_run": dry}))?.ok()?)
    };
    let says = |result: &Value, words: &str| {
        let said = result["error"].as_str().is_some_and(|error| error.contains(words));
        assert!(said && result["success"] == json!(false), "no {words:?} in {result}");
    };
    // Supervised, without a guard.
    for dry in [true, false] {
        says(&run(&down, dry)?, "needs a guard, but no guard is running");
    }
    let _guard = Guard::start(&daemon)?;
    let planned = run(&down, true)?;
    assert_eq!(planned["success"], true, "{planned}");
    let plan = &planned["plans"][0];
    assert!(
        plan["lifetime"] == "supervised"
            && plan["guard"].as_str().is_some_and(|guard| guard.contains("chaos-daemon guard")),
        "{plan}"
    );
    // Two of them, of one link, which each alone could be.
    down["method"] = json!([down["method"][0], down["method"][0]]);
    for dry in [true, false] {
        says(&run(&down, dry)?, "already, and one at a time can");
    }
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn a_run_that_the_daemon_is_stopped_under_leaves_nothing_and_is_interrupted_for_the_next(
    _: &Context,
) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let mut daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    mcp.call_tool("chaos_register_experiment", document(&pair))?.ok()?;
    let mut run = chaosctl(&daemon, &["run", "cut"])?;
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    assert!(wait_until(HANG, || is_cut(&mcp)), "{}", daemon.log());
    run.kill()?;
    run.wait()?;
    // SIGTERM, as a service manager does it; it ends by itself, and well.
    daemon.stop()?;
    before.assert_unchanged_within(&[&pair.near], Duration::ZERO)?;
    let mut inherited = Ok(());
    let next = Daemon::start_with(|command| inherited = inherit(&daemon, command))?;
    inherited?;
    next.mcp()?;
    assert_interrupted(&listed(&next)?);
    Ok(Outcome::Pass)
}

fn a_run_that_everything_died_under_is_interrupted_for_the_next_daemon(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let mut daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    mcp.call_tool("chaos_register_experiment", document(&pair))?.ok()?;
    let mut run = chaosctl(&daemon, &["run", "cut"])?;
    let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    assert!(wait_until(HANG, || is_cut(&mcp)), "{}", daemon.log());
    daemon.kill_everything();
    // Who waits for the run is told, once it is clear that the daemon does not come back.
    let ended = run.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    let told = said.contains("the daemon has ended while run ") && said.contains("chaosctl show ");
    assert!(ended.status.code() == Some(6) && told, "{ended:?}");
    let mut inherited = Ok(());
    let next = Daemon::start_with(|command| inherited = inherit(&daemon, command))?;
    inherited?;
    next.mcp()?;
    assert_interrupted(&listed(&next)?);
    // The next one has another runtime directory: what is inert in the first's is for `recover`.
    output(
        Command::new(binary("chaos-daemon")?).arg("recover").arg("--runtime-dir").arg(daemon.runtime_dir()),
    )?;
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

/// The full one is a tmpfs of the test's own, which only this thread and its children see.
fn on_a_disk_that_is_full_a_run_ends_as_ever_and_none_begins(_: &Context) -> TestResult {
    with_tiny_tmpfs(65536, || {
        let pair = Pair::new()?;
        let before = Residue::take(&[&pair.near])?;
        let daemon;
        // Unmounted before the daemon's folder is removed.
        let mut disk = Err(Error::Different("no state directory".into()));
        daemon = Daemon::start_with(|command| {
            disk = state_dir(command)
                .map_err(Error::io("find", "the state directory"))
                .and_then(|on| Mounted::over("tmpfs", on, "size=1m,mode=755"));
        })?;
        let _disk = disk?;
        let mut document = document(&pair);
        document["method"][0]["provider"]["arguments"]["--for"] = json!("3s");
        let mcp = daemon.mcp()?;
        mcp.call_tool("chaos_register_experiment", document)?.ok()?;
        let begin = || -> Result<Child, Error> {
            let mut command = chaosctl(&daemon, &["run", "cut"])?;
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().map_err(Error::io("run", "chaosctl"))
        };
        let ended = |run: Child, code: i32| -> Result<String, Error> {
            let output = run.wait_with_output().map_err(Error::io("wait for", "chaosctl"))?;
            assert_eq!(output.status.code(), Some(code), "{output:?}{}", daemon.log());
            Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        };
        let acts = || {
            let status = mcp.call_tool("chaos_status", json!({})).and_then(Answer::ok);
            status.is_ok_and(|status| {
                status["active_faults"].as_array().is_some_and(|faults| !faults.is_empty())
            })
        };
        let unkept = "not recorded, so it is forgotten";
        {
            let run = begin()?;
            assert!(wait_until(HANG, acts), "{}", daemon.log());
            let _full = Ballast::fill(&daemon.state_dir())?;
            let said = ended(run, 0)?;
            assert!(said.starts_with("cut: held") && said.contains(unkept), "{said}");
            let refused = "no run begins that cannot be noted before";
            let said = ended(begin()?, 3)?;
            assert!(said.contains(refused) && !acts(), "{said}");
            // The next server has no more room than this one, and knows the experiment.
            daemon.server().ok_or_else(|| Error::Different("no server".into()))?.signal(Signal::SIGKILL);
            assert!(wait_until(HANG, || daemon.mcp().is_ok()), "{}", daemon.log());
            let said = ended(begin()?, 3)?;
            assert!(said.contains(refused), "{said}");
        }
        let said = ended(begin()?, 0)?;
        assert!(said.starts_with("cut: held") && !said.contains(unkept), "{said}");
        before.assert_unchanged_within(&[&pair.near], HANG)?;
        Ok(())
    })?;
    Ok(Outcome::Pass)
}
