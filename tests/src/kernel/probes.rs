//! Probes of the host itself, taken by the prober from within its sandbox, or by the injector where the policy allows it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::hoards::{busy_and_all, holder};
use super::{Context, Outcome, TestResult, Tried, tests};
use crate::daemon::{folder_of_roots, run_as_nobody};
use crate::late::HANG;
use crate::mounts::with_tmpfs;
use crate::process::wait_until;
use crate::worker::Program;
use crate::{Daemon, Mcp, process};

tests![
    sockets_are_counted_anew_by_the_prober_for_every_sample,
    pressure_is_read_by_the_prober_or_the_kernel_named_that_keeps_none,
    numbers_of_the_host_are_read_by_the_prober_and_are_what_the_kernel_says,
    room_of_a_file_system_is_told_without_opening_anything_there,
    a_gate_on_room_ends_the_fault_that_takes_it,
    processes_are_seen_by_the_injector_with_age_memory_and_descriptors,
    whom_no_preview_shows_no_probe_tells_of,
    a_log_is_read_for_who_may_not_read_it_where_the_policy_names_it_and_nowhere_else,
    a_gate_on_a_log_ends_the_fault_once_the_log_says_so,
    a_unit_without_any_entry_is_no_unit_that_is_silent,
    a_kubeconfig_is_used_only_where_the_policy_names_it_and_nobody_but_root_can_have_put_it_there,
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
    let never = judge(&mcp, &json!(["probe", "pressure", "cpu", "--min", 100]))?;
    assert_eq!(never["steady_state_before"], false, "{never}");
    Ok(Outcome::Pass)
}

/// What is measured by the tool, within the sandbox.
fn measure(mcp: &Mcp, words: &[&str]) -> Result<f64, Box<dyn std::error::Error>> {
    let sample = take(mcp, &json!(words))?;
    println!("{words:?}: {sample}");
    assert_eq!(sample["ok"], true, "{words:?}: {sample}");
    sample["value"].as_f64().ok_or_else(|| format!("{words:?}: {sample}").into())
}

/// The n-th word of a file as a number.
fn word(path: &str, index: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let text = fs::read_to_string(path)?;
    let word = text.split([' ', '\t', '\n', '/']).filter(|word| !word.is_empty()).nth(index);
    Ok(word.ok_or_else(|| format!("{path}: {text:?}"))?.parse()?)
}

/// The bytes that the kernel says of this kind of memory; 0 where it says nothing.
fn memory(name: &str) -> Tried<f64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.unwrap_or(0.0) * 1024.0)
}

/// How often a number is taken that what else the machine does can spoil.
const TRIES: usize = 5;

/// Has a number of the host taken between two looks at the same by this process, which is not shut in. Meanwhile things change:
/// it may be less or more than both by as much as `most` says of either.
fn between(mcp: &Mcp, metric: &str, look: impl Fn() -> Tried<f64>, most: impl Fn(f64) -> f64) -> Tried<()> {
    let mut found = Vec::new();
    for _ in 0..TRIES {
        let (before, seen, after) = (look()?, measure(mcp, &["host", metric])?, look()?);
        let (least, greatest) = (before.min(after), before.max(after));
        if (least - most(least)..=greatest + most(greatest)).contains(&seen) {
            return Ok(());
        }
        found.push(format!("{before}, {seen}, {after}"));
    }
    Err(format!("{metric}: before, taken, and after: {}", found.join("; ")).into())
}

/// How busy the processors are said to be, how busy they were by the kernel's books, and for which share of that time nobody had
/// them watched, all in percent. One at least is busy.
fn watch(mcp: &Mcp) -> Tried<[f64; 3]> {
    const WINDOW: Duration = Duration::from_secs(2);
    std::thread::scope(|scope| -> Tried<[f64; 3]> {
        let start = Instant::now();
        scope.spawn(move || {
            while start.elapsed() < WINDOW + WINDOW / 2 {
                std::hint::spin_loop();
            }
        });
        let (busy, all) = busy_and_all("cpu")?;
        let seen = measure(mcp, &["host", "cpu_busy_percent", "--window", "2s", "--timeout", "20s"])?;
        let (busy_then, all_then) = busy_and_all("cpu")?;
        let share = 100.0 * (busy_then - busy) / (all_then - all).max(1.0);
        let unwatched = 100.0 * (1.0 - WINDOW.as_secs_f64() / start.elapsed().as_secs_f64());
        Ok([seen, share, unwatched])
    })
}

/// Has the processors watched for about as long as this process watches them; what they did in the rest of the time may be
/// anything.
fn watch_alike(mcp: &Mcp) -> Tried<()> {
    const GIVE: f64 = 15.0;
    let mut found = Vec::new();
    for _ in 0..TRIES {
        let [seen, share, unwatched] = watch(mcp)?;
        if (seen - share).abs() <= GIVE + unwatched {
            return Ok(());
        }
        found.push(format!("{seen:.1} of {share:.1}, {unwatched:.1} of the time unwatched"));
    }
    Err(format!("busy processors: {}", found.join("; ")).into())
}

fn numbers_of_the_host_are_read_by_the_prober_and_are_what_the_kernel_says(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let (total, swap) = (memory("MemTotal")?, memory("SwapTotal")?);
    let used = |left: f64, of: f64| if of > 0.0 { 100.0 - left * 100.0 / of } else { 0.0 };
    between(&mcp, "memory_used_percent", || Ok(used(memory("MemAvailable")?, total)), |_| 5.0)?;
    between(&mcp, "memory_available_bytes", || memory("MemAvailable"), |_| total / 20.0)?;
    between(&mcp, "swap_used_percent", || Ok(used(memory("SwapFree")?, swap)), |_| 5.0)?;
    for (index, metric) in ["load1", "load5", "load15"].into_iter().enumerate() {
        between(&mcp, metric, || word("/proc/loadavg", index), |_| 0.5)?;
    }
    // Little of all that there may be: a tenth of what there is, and some that come and go.
    let most = word("/proc/sys/kernel/threads-max", 0)?.min(word("/proc/sys/kernel/pid_max", 0)?);
    let share = |count: f64| count * 100.0 / most;
    let give = |seen: f64| seen / 10.0 + share(30.0);
    between(&mcp, "tasks_percent", || Ok(share(word("/proc/loadavg", 4)?)), give)?;
    let most = word("/proc/sys/fs/file-nr", 2)?;
    let share = |count: f64| count * 100.0 / most;
    let give = |seen: f64| seen / 10.0 + share(200.0);
    between(&mcp, "open_files_percent", || Ok(share(word("/proc/sys/fs/file-nr", 0)?)), give)?;
    watch_alike(&mcp)?;
    let watched = take(&mcp, &json!(["host", "cpu_busy_percent", "--window", "300ms"]))?;
    assert!(watched["seconds"].as_f64() >= Some(0.3), "{watched}");
    Ok(Outcome::Pass)
}

/// Runs a closure with a file system of 64 MiB that only it and its daemon see.
fn on_a_file_system(work: impl FnOnce(&Path) -> TestResult + Send) -> TestResult {
    let folder = tempfile::tempdir()?;
    let told = |error: Box<dyn std::error::Error>| error.to_string();
    let done = with_tmpfs(folder.path(), "size=64m,nr_inodes=4000,mode=1777", || {
        Ok(work(folder.path()).map_err(told))
    });
    Ok(done??)
}

fn room_of_a_file_system_is_told_without_opening_anything_there(_: &Context) -> TestResult {
    on_a_file_system(|path| {
        let (room, closed) = (path.to_string_lossy(), path.join("closed"));
        fs::write(path.join("a file"), vec![1; 16 << 20])?;
        fs::create_dir(&closed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        // Nobody else may look into it, and how full it is can be known.
        assert!((measure(&mcp, &["host", "disk_used_percent", "--path", &room])? - 25.0).abs() < 0.5);
        let available = measure(&mcp, &["host", "disk_available_bytes", "--path", &room])?;
        assert!((available - f64::from(48 << 20)).abs() < 1e6, "{available}");
        let inodes = measure(&mcp, &["host", "inodes_used_percent", "--path", &room])?;
        assert!((0.01..1.0).contains(&inodes), "{inodes}");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000))?;
        let below = closed.join("below");
        for (path, mode, said) in [
            (&closed, 0o700, "may not go to"),
            (&closed, 0o755, "ProtectHome="),
            (&below, 0o755, "may not go to"),
            (&path.join("none"), 0o755, "there is no"),
        ] {
            fs::set_permissions(&*room, fs::Permissions::from_mode(mode))?;
            let sample = take(&mcp, &json!(["host", "disk_used_percent", "--path", path]))?;
            let detail = sample["detail"].as_str().unwrap_or_default();
            assert!(sample["value"].is_null() && detail.contains(said), "{}: {sample}", path.display());
        }
        Ok(Outcome::Pass)
    })
}

fn a_gate_on_room_ends_the_fault_that_takes_it(_: &Context) -> TestResult {
    on_a_file_system(|path| {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let chaosctl =
            |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
        let room = chaosctl(json!(["probe", "host", "disk_used_percent", "--path", path, "--max", 10]));
        let gate = chaosctl(json!(["probe", "host", "disk_used_percent", "--path", path]));
        let fill =
            chaosctl(json!({"inject": "resource_exhaustion", "--resource": "disk_fill", "--path": path,
            "--percent": 90, "--for": "10m"}));
        let document = json!({"title": "filled", "rollbacks": [],
            "steady-state-hypothesis": {"title": "there is room", "probes": [
                {"type": "probe", "name": "room", "tolerance": 0, "provider": room}]},
            "method": [{"type": "action", "name": "fill", "provider": fill}],
            "extensions": [{"name": "chaos-daemon", "abort_when": [
                {"name": "nearly full", "provider": gate, "op": "gt", "value": 80, "interval": "500ms"}]}]});
        mcp.call_tool("chaos_register_experiment", document)?.ok()?;
        let result = mcp.call_tool("chaos_run_experiment", json!({"experiment_name": "filled"}))?.ok()?;
        assert_eq!(result["verdict"], "tripped", "{result}");
        let error = result["error"].as_str().unwrap_or_default();
        assert!(
            error.contains("gate nearly full was breached") && error.contains("disk_used_percent"),
            "{error}"
        );
        // And the room is there again, which the steady state has seen, too.
        assert_eq!(result["steady_state_after"], true, "{result}");
        assert!(measure(&mcp, &["host", "disk_used_percent", "--path", &path.to_string_lossy()])? < 5.0);
        Ok(Outcome::Pass)
    })
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
    assert!(oldest - youngest > 0.4 && oldest < 600.0, "{youngest} {oldest}");
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

/// A folder for logs, which only root reads, and a daemon whose policy names its files, and one unit.
struct Logs {
    daemon: Daemon,
    folder: TempDir,
    path: PathBuf,
}

impl Logs {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        // What leads to it may be a link, which the daemon does not follow.
        let path = fs::canonicalize(folder.path())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        let policy = path.join("policy.toml");
        let logs = path.join("logs");
        fs::create_dir(&logs)?;
        fs::write(
            &policy,
            format!("probe_logs = [\"{}/*\", \"unit:chaos-no-such.service\"]\n", logs.display()),
        )?;
        let daemon = Daemon::start_with(|command| {
            command.args(["--socket-group", "nogroup", "--policy"]).arg(&policy);
        })?;
        Ok(Self { daemon, folder, path: logs })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether it is so, and what is said, to somebody who has no right to any of it.
    fn ask(&self, words: &[&str]) -> Result<(bool, String), Box<dyn std::error::Error>> {
        let socket = format!("--socket={}", self.daemon.socket().display());
        let output =
            run_as_nobody("chaosctl", &[&[&*socket, "probe", "log", "--match", "ERR"], words].concat())?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok((output.status.success(), said))
    }

    fn ask_for(&self, path: &Path, words: &[&str]) -> Result<(bool, String), Box<dyn std::error::Error>> {
        let path = path.to_string_lossy();
        self.ask(&[&["--file", &*path], words].concat())
    }
}

fn a_log_is_read_for_who_may_not_read_it_where_the_policy_names_it_and_nowhere_else(
    _: &Context,
) -> TestResult {
    let logs = Logs::new()?;
    let (log, secret) = (logs.file("a.log"), logs.folder.path().join("secret"));
    for path in [&log, &secret] {
        fs::write(path, "fine\nERR one\nERR \x1b[2Jtwo\nERR half")?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    }
    let (met, said) = logs.ask_for(&log, &["--min", "2", "--max", "2"])?;
    assert!(
        met && said.contains("2 of 3 entries match, the last: \"ERR one\", \"ERR \\u{1b}[2Jtwo\""),
        "{said}"
    );
    assert!(!logs.ask_for(&log, &["--max", "0"])?.0);
    assert!(!logs.ask_for(&log, &["--last", "20"])?.1.contains("ERR one"));

    symlink(&secret, logs.file("link"))?;
    symlink(logs.folder.path(), logs.file("way"))?;
    mkfifo(&logs.file("pipe"), Mode::S_IRWXU)?;
    let detour = logs.file("../secret");
    for (path, words) in [
        (&secret, "probe_logs = ["),
        (&detour, "absolute path without"),
        (&logs.file("way/secret"), "probe_logs = ["),
        (&logs.file("link"), "is a symbolic link"),
        (&logs.file("pipe"), "no regular file"),
        (&logs.file("none"), "there is no"),
    ] {
        // A bound that none would meet: what cannot be seen is not none, and a pipe is not waited for.
        let (met, said) = logs.ask_for(path, &["--max", "0"])?;
        assert!(
            !met && said.contains(words) && !said.contains("entries match"),
            "{}: {said}",
            path.display()
        );
    }

    // By what the lines say of when they were written.
    let (met, said) = logs.ask_for(&log, &["--within", "60s", "--max", "0"])?;
    assert!(!met && said.contains("RFC 3339"), "{said}");
    let stamp = |age| Timestamp::now() - Duration::from_secs(age);
    fs::write(&log, format!("{} ERR old\n{} ERR new\n  ERR of its trace\n", stamp(600), stamp(5)))?;
    assert!(logs.ask_for(&log, &["--within", "60s", "--min", "2", "--max", "2"])?.0);
    assert!(logs.ask_for(&log, &["--within", "1h", "--min", "3"])?.0);
    Ok(Outcome::Pass)
}

fn a_gate_on_a_log_ends_the_fault_once_the_log_says_so(_: &Context) -> TestResult {
    let logs = Logs::new()?;
    let log = logs.file("a.log");
    fs::write(&log, "ready\n")?;
    let chaosctl = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let probe = chaosctl(json!({"probe": "log", "--file": log, "--match": "^ERR"}));
    let ready = chaosctl(json!({"probe": "log", "--file": log, "--match": "^ready"}));
    let document = json!({"title": "logged", "rollbacks": [],
        "steady-state-hypothesis": {"title": "ready", "probes": [
            {"type": "probe", "name": "ready", "tolerance": 0, "provider": ready}]},
        "method": [{"type": "action", "name": "burn",
            "provider": chaosctl(json!({"inject": "resource_exhaustion", "--cpu-percent": 5, "--for": "10m"}))}],
        "extensions": [{"name": "chaos-daemon",
            "rollback_on": [{"name": "errors", "provider": probe, "op": "gt", "value": 0, "interval": "200ms"}]}]});
    let mcp = logs.daemon.mcp()?;
    mcp.call_tool("chaos_register_experiment", document)?.ok()?;
    // Not before the fault acts: before it, a breach would only keep the run from beginning.
    let status = logs.daemon.mcp()?;
    let acts = move || {
        let seen =
            status.call_tool("chaos_status", json!({})).map(|answer| answer.json["active_faults"][0].clone());
        seen.is_ok_and(|fault| fault.is_object())
    };
    let daemon = &logs.daemon;
    let (result, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(move || -> std::io::Result<bool> {
            wait_until(HANG, acts);
            let burns = wait_until(HANG, || holder(daemon).is_ok());
            OpenOptions::new().append(true).open(log)?.write_all(b"ERR pool used up\n")?;
            Ok(burns)
        });
        (mcp.call_tool("chaos_run_experiment", json!({"experiment_name": "logged"})), writer.join())
    });
    assert!(written.map_err(|_panic| "the writer broke")??, "nobody has burned anything");
    let result = result?.ok()?;
    assert_eq!(result["verdict"], "tripped", "{result}");
    assert!(result.to_string().contains("ERR pool used up"), "{result}");
    // By its time it would end later.
    assert!(wait_until(HANG, || holder(daemon).is_err()), "it still burns");
    Ok(Outcome::Pass)
}

/// Where there is a journal it has none of this unit, where there is none journalctl says so, and where there is no journalctl
/// the daemon does.
fn a_unit_without_any_entry_is_no_unit_that_is_silent(_: &Context) -> TestResult {
    let logs = Logs::new()?;
    let (met, said) = logs.ask(&["--unit", "chaos-no-such.service", "--max", "0", "--timeout", "20s"])?;
    assert!(!met && said.contains("journal") && !said.contains("entries match"), "{said}");
    assert!(["no entry of", "journalctl"].iter().any(|words| said.contains(words)), "{said}");
    let (met, said) = logs.ask(&["--unit", "chaos-other.service", "--max", "0"])?;
    assert!(!met && said.contains("\"unit:chaos-other.service\"]"), "{said}");
    Ok(Outcome::Pass)
}

/// Of a cluster that is not there: what is said is how far it got.
fn a_kubeconfig_is_used_only_where_the_policy_names_it_and_nobody_but_root_can_have_put_it_there(
    _: &Context,
) -> TestResult {
    let (folder, open) = (folder_of_roots("kube")?, tempfile::tempdir()?);
    let text = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:9', insecure-skip-tls-verify: true}}]\n\
                users: [{name: u, user: {token: hunter2}}, {name: p, user: {exec: {command: hunter2}}}]\n\
                contexts: [{name: t, context: {cluster: c, user: u}}, {name: e, context: {cluster: c, user: p}}]\n\
                current-context: t\n";
    let write = |folder: &Path, name: &str, mode| -> std::io::Result<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
    };
    let (good, readable) = (write(folder.path(), "good", 0o600)?, write(folder.path(), "readable", 0o644)?);
    let (unnamed, changeable) =
        (write(folder.path(), "unnamed", 0o600)?, write(open.path(), "changeable", 0o600)?);
    let link = folder.path().join("link");
    symlink(&good, &link)?;
    let policy = folder.path().join("policy.toml");
    fs::write(&policy, format!("probe_kubeconfigs = {:?}\n", [&good, &readable, &changeable, &link]))?;
    let daemon = Daemon::start_with(|command| {
        command.arg("--policy").arg(&policy);
    })?;
    let mcp = daemon.mcp()?;
    for (path, more, said) in [
        (&good, [].as_slice(), "refused"),
        (&good, &["--context", "e"], "exec is not supported: no program is run"),
        (&readable, &[], "others may get at it"),
        (&changeable, &[], "can be written by others than its owner"),
        (&link, &[], "leads over a link"),
        (&unnamed, &[], "probe_kubeconfigs = ["),
    ] {
        // What cannot be seen is not absent.
        let kubeconfig = path.display().to_string();
        let words = [&["kubernetes", "pod/a", "--absent", "--kubeconfig", &kubeconfig], more].concat();
        let sample = take(&mcp, &json!(words))?;
        let detail = sample["detail"].as_str().unwrap_or_default();
        assert!(sample["ok"] == false && detail.contains(said), "{kubeconfig}: {sample}");
        assert!(!sample.to_string().contains("hunter2"), "{sample}");
    }
    assert!(!daemon.log().contains("hunter2"), "{}", daemon.log());
    Ok(Outcome::Pass)
}
