//! Advice about real services: whichever weakness is planted among services that are well is found, and its experiment is fit to be run.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Context, Outcome, TestResult, tests};
use crate::cgroup::Cgroup;
use crate::daemon::binary;
use crate::late::HANG;
use crate::mounts::Mounted;
use crate::process::wait_until;
use crate::victim::has_controllers;
use crate::{Daemon, Error, Mcp, Result};

tests![
    whatever_weakness_is_planted_among_real_services_comes_first_and_its_experiment_is_admitted,
    who_may_not_look_is_told_nothing_and_what_may_not_be_aimed_at_is_left_out_with_the_reason,
];

/// How many services are well.
const CALM: usize = 4;
/// How many plantings have to come first, of all.
const FOUND: usize = 9;
/// How long a planting shows itself before it is asked.
const SHOWS: Duration = Duration::from_secs(2);

/// A service of the test's own in a control group of its own; both gone when the guard is.
struct Service {
    group: Arc<Cgroup>,
    child: Child,
    address: SocketAddr,
}

impl Service {
    fn start(folder: &TempDir, weakness: &[&str]) -> Result<Self> {
        let group = Arc::new(Cgroup::new()?);
        let (child, address) = start(folder, &group, weakness)?;
        Ok(Self { group, child, address })
    }

    /// What advice calls it.
    fn name(&self) -> String {
        format!("cgroup {}", self.group.name())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.group.kill();
        let _ = self.child.wait();
    }
}

/// Starts a service in a group, and waits until it says where it listens.
fn start(folder: &TempDir, group: &Cgroup, weakness: &[&str]) -> Result<(Child, SocketAddr)> {
    let file = folder.path().join(format!("port-{}", group.name()));
    let _ = fs::remove_file(&file);
    let mut command = Command::new(binary("chaos-worker")?);
    command.arg(&file).arg("--weak").args(weakness).stdin(Stdio::null());
    let log = log(folder);
    let output =
        File::options().append(true).open(&log).map_err(Error::io("open", log.display().to_string()))?;
    command
        .stdout(if weakness.first() == Some(&"errors") { output.into() } else { Stdio::null() })
        .stderr(Stdio::null());
    group.place(&mut command);
    let mut child = command.spawn().map_err(Error::io("start", "a service"))?;
    let mut port = None;
    let listens = wait_until(HANG, || {
        port = fs::read_to_string(&file).ok().and_then(|text| text.parse::<u16>().ok());
        port.is_some()
    });
    match port.filter(|_| listens) {
        Some(port) => Ok((child, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))),
        None => {
            let _ = child.kill();
            let _ = child.wait();
            Err(Error::Hung { what: format!("a service with {weakness:?}") })
        }
    }
}

fn log(folder: &TempDir) -> PathBuf {
    folder.path().join("log")
}

/// Does something again and again, until the guard goes.
struct Again {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Again {
    fn start(pause: Duration, mut work: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                work();
                sleep(pause);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What goes wrong with a planted service from outside, and goes when the guard does.
type Trouble = Box<dyn std::any::Any>;

/// Where the plantings are made.
struct Bed {
    folder: TempDir,
    /// A small file system.
    disk: Mounted,
    disk_path: PathBuf,
    /// Somebody to depend on.
    other: TcpListener,
    daemon: Daemon,
    mcp: Mcp,
}

impl Bed {
    fn new() -> Result<Self> {
        let folder = TempDir::with_prefix("chaos-test-").map_err(Error::io("create", "a folder"))?;
        let disk_path = folder.path().join("disk");
        let disk = Mounted::new("tmpfs", &disk_path, "size=48m")?;
        let log = log(&folder);
        let old = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(50);
        fs::write(&log, format!("{old} started\n")).map_err(Error::io("write", "a log"))?;
        let daemon = Daemon::start_under(&format!("probe_logs = [{:?}]\n", log.display().to_string()))?;
        let mcp = daemon.mcp()?;
        let other = TcpListener::bind("127.0.0.1:0").map_err(Error::io("bind", "a listener"))?;
        Ok(Self { folder, disk, disk_path, other, daemon, mcp })
    }

    /// Plants one, with what troubles it.
    fn plant(&self, weakness: &str) -> Result<(Service, Trouble)> {
        let nothing = || Box::new(()) as Trouble;
        let start = |weakness: &[&str]| Service::start(&self.folder, weakness);
        Ok(match weakness {
            "memory" => {
                let service = start(&["memory"])?;
                if has_controllers(&["memory"]) {
                    service.group.set("memory.max", "268435456")?;
                }
                (service, nothing())
            }
            "disk" => {
                let file = self.disk_path.join("data").display().to_string();
                (start(&["disk", &file])?, nothing())
            }
            "dependency" => {
                let address = self.other.local_addr().map_err(Error::io("ask", "a listener"))?;
                (start(&["dependency", &address.to_string()])?, nothing())
            }
            "sessions" => {
                let service = start(&["sessions"])?;
                let (address, mut held) = (service.address, Vec::new());
                let connect = move || held.extend(TcpStream::connect(address).ok());
                let trouble = Again::start(Duration::from_millis(80), connect);
                (service, Box::new(trouble))
            }
            "deaf" => {
                let service = start(&["deaf"])?;
                let held: Vec<_> = (0..12).filter_map(|_| TcpStream::connect(service.address).ok()).collect();
                (service, Box::new(held))
            }
            "restarts" => self.restarting()?,
            "broke" => {
                let service = start(&["calm"])?;
                self.break_once(&service)?;
                (service, nothing())
            }
            other => (start(&[other])?, nothing()),
        })
    }

    /// A service that is started anew about once a second.
    fn restarting(&self) -> Result<(Service, Trouble)> {
        let service = Service::start(&self.folder, &["calm"])?;
        let group = Arc::clone(&service.group);
        let (binary, file) = (binary("chaos-worker")?, self.folder.path().join("port-restarts"));
        let (mut latest, port) = (None::<Child>, service.address.port().to_string());
        let restart = move || {
            let mut command = Command::new(&binary);
            command.arg(&file).args(["--weak", "calm", &port]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            group.place(&mut command);
            let _ = group.kill();
            if let Some(mut before) = latest.take() {
                let _ = before.wait();
            }
            latest = command.spawn().ok();
        };
        let trouble = Again::start(Duration::from_millis(1200), restart);
        Ok((service, Box::new(trouble)))
    }

    /// Has a run of it be ended by a gate: its answers stay away while it stands still.
    fn break_once(&self, service: &Service) -> Result<()> {
        let health = json!({"type": "http", "url": format!("http://{}/", service.address), "timeout": 0.3});
        let document = json!({
            "title": "it answers while it stands still", "description": "It cannot.",
            "steady-state-hypothesis": {"title": "it answers", "probes": [
                {"type": "probe", "name": "answers", "tolerance": 200, "provider": health}]},
            "method": [{"type": "action", "name": "pause", "pauses": {"after": 3}, "provider": {"type": "process",
                "path": "chaosctl", "arguments": {"inject": "process_pause", "--cgroup": service.group.name(), "--for": "4s"}}}],
            "rollbacks": [],
            "extensions": [{"name": "chaos-daemon", "rollback_on": [
                {"name": "health", "provider": health, "tolerance": 200, "interval": "300ms"}]}],
        });
        self.mcp.call_tool("chaos_register_experiment", document)?.ok()?;
        let asked = json!({"experiment_name": "it answers while it stands still"});
        let run = self.mcp.call_tool("chaos_run_experiment", asked)?.json;
        match run["verdict"] == "tripped" {
            true => Ok(()),
            false => Err(Error::Different(format!("{run:#}\n{}", self.daemon.log()))),
        }
    }

    fn advise(&self) -> Result<Value> {
        self.mcp.call_tool("chaos_advise", json!({"limit": 1}))?.ok()
    }
}

fn whatever_weakness_is_planted_among_real_services_comes_first_and_its_experiment_is_admitted(
    _: &Context,
) -> TestResult {
    let bed = Bed::new()?;
    let calm: Vec<_> = (0..CALM).map(|_| Service::start(&bed.folder, &["calm"])).collect::<Result<_>>()?;
    let plantings = [
        "memory",
        "descriptors",
        "sessions",
        "disk",
        "processors",
        "deaf",
        "dependency",
        "errors",
        "restarts",
        "broke",
    ];
    let (mut found, mut told) = (0, Vec::new());
    for weakness in plantings {
        let (service, trouble) = bed.plant(weakness)?;
        sleep(SHOWS);
        let begun = Instant::now();
        let answer = bed.advise()?;
        let first = &answer["advice"][0];
        let is_first = first["service"] == service.name().as_str();
        found += usize::from(is_first);
        let reasons: Vec<_> = first["reasons"].as_array().into_iter().flatten().collect();
        let words: Vec<_> =
            reasons.iter().map(|reason| format!("{} {}", reason["points"], reason["words"])).collect();
        let place = if is_first { "first" } else { "NOT FIRST" };
        let tries = &first["document"]["method"][0]["name"];
        let not: Vec<_> = first["refused"].as_array().into_iter().flatten().map(|it| &it["what"]).collect();
        let took = begun.elapsed();
        told.push(format!("{weakness}: {place} after {took:?}, tries {tries} and not {not:?}: {words:?}"));
        println!("{}", told.last().map_or("", String::as_str));
        // The planner is asked once more, as an agent does it.
        let planned =
            bed.mcp.call_tool("chaos_plan_experiment", json!({"document": first["document"]}))?.ok()?;
        assert!(planned["success"] == true, "{weakness}: {planned:#}\n{answer:#}");
        drop(trouble);
        drop(service);
    }
    assert!(found >= FOUND, "{found} of {} were found: {told:#?}", plantings.len());
    drop(calm);
    let Bed { disk, daemon, .. } = bed;
    drop((daemon, disk));
    Ok(Outcome::Pass)
}

fn who_may_not_look_is_told_nothing_and_what_may_not_be_aimed_at_is_left_out_with_the_reason(
    _: &Context,
) -> TestResult {
    let bed = Bed::new()?;
    let service = Service::start(&bed.folder, &["calm"])?;
    let asked = json!({"service": service.group.name(), "window_seconds": 1});
    let answer = bed.mcp.call_tool("chaos_advise", asked.clone())?.ok()?;
    assert_eq!(answer["advice"][0]["service"], service.name().as_str(), "{answer:#}");
    assert_eq!(answer["advice"].as_array().map(Vec::len), Some(1), "{answer:#}");
    let nobody = bed.mcp.call_tool("chaos_advise", json!({"service": "no/such", "window_seconds": 1}))?;
    assert!(nobody.is_error && nobody.json["error"]["code"] == "TARGET_NOT_FOUND", "{}", nobody.json);
    for (field, wrong) in
        [("window_seconds", json!(90)), ("limit", json!(0)), ("limit", json!(1.5)), ("x", json!(1))]
    {
        let refused = bed.mcp.call_tool("chaos_advise", json!({field: wrong}))?;
        assert!(refused.is_error, "{field} {wrong}: {}", refused.json);
    }
    // What the policy lets nobody do is not advised, and said with the reason.
    let strict = Daemon::start_under("fault_types = [\"process_kill\"]\n")?;
    let answer = strict.mcp()?.call_tool("chaos_advise", asked)?.ok()?;
    let left_out = &answer["left_out"][0];
    assert!(answer["advice"] == json!([]) && left_out["what"] == service.name().as_str(), "{answer:#}");
    let why = left_out["why"].as_str().unwrap_or_default();
    assert!(why.contains("process_pause is not allowed"), "{answer:#}");
    Ok(Outcome::Pass)
}
