//! Experiments that are shipped, run by the installed daemon against a service with a supervisor and a database: systemd
//! starts it again, PostgreSQL is asked for every answer, and its MCP server has few sessions (`tests/systemd/shop.py`).

use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::patience::patient;
use crate::error::{Error, Result};
use crate::late::{self, HANG};
use crate::netns::output;
use crate::process::wait_until;
use crate::systemd::lab::{assert_idle, idle};
use crate::systemd::unit::{MEMBER, installed, log, property, run, say, systemctl, too_slow};
use crate::systemd::{TestResult, tests};

tests![
    the_shipped_experiment_kills_a_service_and_measures_how_soon_it_is_back,
    an_experiment_restarts_a_service_and_measures_how_soon_it_is_back,
    the_shipped_experiment_cuts_off_a_database_and_its_service_says_so_and_is_not_restarted,
    the_shipped_experiment_slows_a_database_down_and_its_service_goes_on_answering,
    the_shipped_experiment_uses_up_the_sessions_of_a_server_and_it_serves_again,
];

pub(super) const SHOP: &str = "chaos-shop.service";
const UNIT_FILE: &str = "/run/systemd/system/chaos-shop.service";
const UNIT: &str = "[Service]\nType=exec\nUser=nobody\nExecStart=/usr/bin/python3 /chaos/shop.py\nRestart=always\n\
                    RestartSec=1s\n";
const DATABASE: &str = "postgresql";
const TABLES: &str = "create role shop login password 'shop'; create table goods (name text, price int); \
                      insert into goods values ('tea', 7); grant select on goods to shop;";
const ADDRESS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 8080);
/// Sessions that its MCP server has place for.
const PLACES: u64 = 4;
/// How long an answer is waited for: longer than the service waits for its database.
const ANSWER: Duration = Duration::from_secs(14);

/// The service and its database, gone when this is.
pub(super) struct Shop;

impl Shop {
    pub(super) fn open() -> Result<Self> {
        let shop = Self;
        systemctl(&["start", DATABASE])?;
        let asked = |statements: &str, database: &str| {
            run("runuser", &["-u", "postgres", "--", "psql", "-q", "-d", database, "-c", statements])
        };
        if !wait_until(HANG, || asked("select 1", "postgres").is_ok()) {
            return Err(Error::Hung { what: "PostgreSQL answering".into() });
        }
        if asked("select 1", "shop").is_err() {
            asked("create database shop", "postgres")?;
            asked(TABLES, "shop")?;
        }
        fs::write(UNIT_FILE, UNIT).map_err(Error::io("write", UNIT_FILE))?;
        systemctl(&["daemon-reload"])?;
        systemctl(&["start", SHOP])?;
        match wait_until(HANG, || health().is_some_and(|said| said.status == 200)) {
            true => Ok(shop),
            false => {
                let said = run("journalctl", &["--no-pager", "--lines=20", "--unit", SHOP, "--output=cat"])?;
                Err(Error::Hung { what: format!("the service healthy; it said {said}") })
            }
        }
    }

    pub(super) fn pid() -> Result<String> {
        property(SHOP, "MainPID")
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = systemctl(&["stop", SHOP]);
        let _ = fs::remove_file(UNIT_FILE);
        let _ = systemctl(&["daemon-reload"]);
        let _ = systemctl(&["stop", DATABASE]);
    }
}

/// What the service answered.
struct Said {
    status: u16,
    body: String,
    after: Duration,
}

impl Said {
    /// Free places of its MCP server.
    fn places(&self) -> Option<u64> {
        serde_json::from_str::<Value>(&self.body).ok()?["free_places"].as_u64()
    }
}

/// Asks with nothing of the daemon.
fn ask(request: &str) -> Option<Said> {
    let start = Instant::now();
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(ADDRESS), ANSWER).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some(Said {
        status: head.split(' ').nth(1)?.parse().ok()?,
        body: body.to_owned(),
        after: start.elapsed(),
    })
}

fn health() -> Option<Said> {
    ask("GET /health HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
}

/// An experiment, registered by a member of the group.
pub(super) struct Shipped {
    title: String,
}

impl Shipped {
    /// One of the hub, with these variables. It waits longer for what it looks at.
    pub(super) fn register(name: &str, variables: &[(&str, &str)]) -> Result<Self> {
        let file = format!("/tmp/chaos-test-{name}.yaml");
        let _ = fs::remove_file(&file);
        output(as_member().args(["chaosctl", "hub", "copy", name, &file]))?;
        let text = fs::read_to_string(&file).map_err(Error::io("read", &file))?;
        fs::remove_file(&file).map_err(Error::io("remove", file))?;
        let document = serde_saphyr::from_str(&text).map_err(|error| Error::Different(error.to_string()))?;
        Self::of(name, &patient(document), variables)
    }

    /// This one, with these variables.
    fn of(name: &str, document: &Value, variables: &[(&str, &str)]) -> Result<Self> {
        let file = format!("/tmp/chaos-test-{name}.json");
        fs::write(&file, document.to_string()).map_err(Error::io("write", &file))?;
        let variables = variables.iter().map(|(key, value)| format!("{key}={value}"));
        let register = ["chaosctl", "experiment", "register", &file];
        let registered = output(as_member().arg("env").args(variables).args(register));
        fs::remove_file(&file).map_err(Error::io("remove", file))?;
        let title = document["title"].as_str().unwrap_or_default().to_owned();
        registered.map(|_| Self { title })
    }

    /// Runs it, and says how it ended and whether something was seen meanwhile.
    pub(super) fn run(&self, seen: impl Fn() -> bool) -> Result<(Value, bool)> {
        let mut command = as_member();
        command
            .args(["chaosctl", "--json", "run", &self.title])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Error::io("start", "chaosctl"))?;
        let mut ever = false;
        while !ended(&mut child) {
            ever |= seen();
        }
        let output = child.wait_with_output().map_err(Error::io("wait for", "chaosctl"))?;
        let result: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| Error::Different(format!("{error}: {output:?}; {}", log())))?;
        let recovery = &result["recovery"];
        say(&format!(
            "{}: {}; MTTD {} s, MTTR {} s",
            self.title, result["verdict"], recovery["mttd_seconds"], recovery["mttr_seconds"]
        ));
        Ok((result, ever))
    }
}

/// As [`Shipped::run`], of what has to hold. What only the processor was too slow for is late, and nothing worse.
pub(super) fn held(shipped: &Shipped, seen: impl Fn() -> bool) -> Result<(Value, bool)> {
    let (result, ever) = shipped.run(seen)?;
    match result["verdict"] == "held" {
        true => Ok((result, ever)),
        false => {
            let slow = result["error"].as_str().is_some_and(too_slow);
            let mark = if slow { late::MARK } else { "" };
            Err(Error::Different(format!("{mark}{result}; {}", log())))
        }
    }
}

fn ended(child: &mut Child) -> bool {
    std::thread::sleep(Duration::from_millis(50));
    !matches!(child.try_wait(), Ok(None))
}

fn as_member() -> Command {
    let mut command = Command::new("runuser");
    command.args(["-u", MEMBER, "--"]).stdin(Stdio::null());
    command
}

/// How long a service may take to be back, in a VM whose processor is emulated beside others, and in seconds.
pub(super) const RTO: (&str, f64) = ("4m", 240.0);
/// What the service calls its database, and where it is reached.
const DEPENDENCY: [(&str, &str); 2] = [("CHAOS_INTERFACE", "lo"), ("CHAOS_DEPENDENCY", "127.0.0.1")];

fn the_shipped_experiment_kills_a_service_and_measures_how_soon_it_is_back() -> TestResult {
    installed()?;
    let _shop = Shop::open()?;
    let before = Shop::pid()?;
    let variables = [("CHAOS_UNIT", SHOP), ("CHAOS_WATCH_SECONDS", "20"), ("CHAOS_RTO", RTO.0)];
    let shipped = Shipped::register("process-death", &variables)?;
    let (result, gone) = held(&shipped, || health().is_none())?;
    let (recovery, incident) = (&result["recovery"], &result["recovery"]["incidents"][0]);
    assert!(gone && Shop::pid()? != before, "the service was not killed: {result}");
    assert_eq!(
        (&recovery["within_rto"], &recovery["rto_seconds"]),
        (&json!(true), &json!(RTO.1)),
        "{result}"
    );
    // systemd waits for a second before it starts it again.
    for field in ["new_process_after_seconds", "recovered_after_seconds"] {
        let after = incident[field].as_f64().unwrap_or_default();
        assert!((1.0..RTO.1).contains(&after), "{field}: {result}");
    }
    assert!(recovery["mttd_seconds"].as_f64() < recovery["mttr_seconds"].as_f64(), "{result}");
    assert_idle(idle())?;
    Ok(())
}

fn an_experiment_restarts_a_service_and_measures_how_soon_it_is_back() -> TestResult {
    installed()?;
    let _shop = Shop::open()?;
    let before = Shop::pid()?;
    let chaosctl = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let document = json!({
        "title": "a restarted service is back soon",
        "description": "A restart of its unit is an outage, and no longer than its recovery time objective.",
        "steady-state-hypothesis": {"title": "it is up", "probes": [{"type": "probe", "name": "health", "tolerance": 200,
            "provider": {"type": "http", "url": "http://127.0.0.1:8080/health", "timeout": 14}}]},
        "method": [{"type": "action", "name": "restart it", "pauses": {"after": 20},
            "provider": chaosctl(json!(["inject", "service_restart", "--unit", SHOP, "--for", "1m"]))}],
        "rollbacks": [],
        "extensions": [{"name": "chaos-daemon", "rto": RTO.0, "abort_when": [{"not_recovered_within": "5m"}]}],
    });
    let (result, gone) = held(&Shipped::of("restart", &document, &[])?, || health().is_none())?;
    assert!(gone && Shop::pid()? != before, "the service was not restarted: {result}");
    let (recovery, incident) = (&result["recovery"], &result["recovery"]["incidents"][0]);
    assert_eq!(incident["fault_type"], "service_restart", "{result}");
    assert_eq!(recovery["within_rto"], true, "{result}");
    for field in ["gone_after_seconds", "new_process_after_seconds", "recovered_after_seconds"] {
        let after = incident[field].as_f64().unwrap_or(f64::NAN);
        assert!((0.0..RTO.1).contains(&after), "{field}: {result}");
    }
    assert!(recovery["mttd_seconds"].as_f64() < recovery["mttr_seconds"].as_f64(), "{result}");
    assert_idle(idle())?;
    Ok(())
}

fn the_shipped_experiment_cuts_off_a_database_and_its_service_says_so_and_is_not_restarted() -> TestResult {
    installed()?;
    let _shop = Shop::open()?;
    let before = Shop::pid()?;
    // By its processes it has to have been up for longer than this.
    let up = [("CHAOS_UNIT", SHOP), ("CHAOS_UPTIME_SECONDS", "1"), ("CHAOS_OUTAGE_SECONDS", "25")];
    std::thread::sleep(Duration::from_secs(2));
    let variables = [&DEPENDENCY[..], &up].concat();
    let shipped = Shipped::register("dependency-partition", &variables)?;
    let unreachable = |said: Said| said.status == 503 && said.body.contains("database_unreachable");
    let (result, failed) = held(&shipped, || health().is_some_and(unreachable))?;
    assert!(failed, "the service never said that its database is gone: {result}");
    assert_eq!(Shop::pid()?, before, "the service was restarted");
    let incident = &result["recovery"]["incidents"][0];
    assert_eq!(incident["fault_type"], "network_partition", "{result}");
    assert!(incident["recovered_after_seconds"].as_f64() > Some(10.0), "{result}");
    assert_idle(idle())?;
    Ok(())
}

fn the_shipped_experiment_slows_a_database_down_and_its_service_goes_on_answering() -> TestResult {
    installed()?;
    let _shop = Shop::open()?;
    let delay = Duration::from_millis(800);
    // Of a healthy service under emulation.
    let promised = [("CHAOS_P95_MS", "700"), ("CHAOS_DELAY", "800ms"), ("CHAOS_SLOW_SECONDS", "8")];
    let variables = [&DEPENDENCY[..], &promised].concat();
    let shipped = Shipped::register("slow-dependency", &variables)?;
    let answers = RefCell::new(Vec::new());
    let slow = |said: Said| {
        answers.borrow_mut().push((said.status, said.after));
        said.status == 200 && said.after >= delay
    };
    let (result, slowed) = held(&shipped, || health().is_some_and(slow))?;
    assert!(slowed, "no answer was late: {:?}; {result}", answers.borrow());
    assert!(health().is_some_and(|said| said.status == 200 && said.after < delay), "it is slow still");
    assert_idle(idle())?;
    Ok(())
}

fn the_shipped_experiment_uses_up_the_sessions_of_a_server_and_it_serves_again() -> TestResult {
    installed()?;
    let _shop = Shop::open()?;
    let variables = [
        ("CHAOS_ENDPOINT", "http://127.0.0.1:8080/mcp"),
        ("CHAOS_SESSIONS", "6"),
        ("CHAOS_HOLD_SECONDS", "8"),
        // Under emulation its processors are busy with anything.
        ("CHAOS_CPU_PERCENT", "100"),
    ];
    let shipped = Shipped::register("pool-exhaustion", &variables)?;
    let places = |free: u64| move |said: Said| said.places() == Some(free);
    let (result, full) = held(&shipped, || health().is_some_and(places(0)))?;
    assert!(full, "no session was refused a place: {result}");
    let all = || health().is_some_and(places(PLACES));
    assert!(wait_until(HANG, all), "a place is still taken");
    assert_idle(idle())?;
    Ok(())
}
