//! The storm of retries (`retry-storm` of the hub), against a pool, a caller and Prometheus (`tests/systemd/payment.py`): a
//! caller without bounds is found out, and one with bounds holds.

use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::experiments::Shipped;
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::wait_until;
use crate::systemd::lab::{assert_idle, idle};
use crate::systemd::unit::{installed, log, run, systemctl};
use crate::systemd::{TestResult, tests};

tests![
    the_shipped_experiment_finds_out_a_caller_that_makes_a_storm_of_retries_and_names_each_step,
    the_shipped_experiment_holds_for_a_caller_that_bounds_its_retries,
];

const SERVER: &str = "chaos-payment.service";
const CALLER: &str = "chaos-caller.service";
pub(super) const PROMETHEUS: &str = "chaos-prometheus.service";
/// Ports of the three.
const PORTS: [u16; 3] = [8081, 8082, 9090];

/// What the caller counts.
const COUNTERS: [&str; 4] = [
    "http_requests_total",
    "http_requests_failed_total",
    "http_client_retries_total",
    "http_client_rate_limited_total",
];

/// All three, gone when this is.
struct Street;

impl Street {
    fn open(attempts: &str) -> Result<Self> {
        let street = Self;
        let script = |role| ["/usr/bin/python3", "/chaos/payment.py", role];
        start(SERVER, &script("server"))?;
        start(CALLER, &[&script("caller")[..], &[attempts]].concat())?;
        let storage = [
            "/usr/bin/prometheus",
            "--config.file=/chaos/prometheus.yml",
            "--storage.tsdb.path=/tmp/prometheus",
        ];
        start(PROMETHEUS, &storage)?;
        let rated = |counter: &str| {
            let query = format!("rate({counter}[30s])");
            run("chaosctl", &["probe", "prometheus", "http://127.0.0.1:9090", &query, "--min", "0"]).is_ok()
        };
        // At once, as the gates of a run ask: each has a second, in which an emulated machine that still starts things answers one.
        let all_rated = || {
            std::thread::scope(|scope| {
                let asked = COUNTERS.map(|counter| scope.spawn(move || rated(counter)));
                asked.into_iter().all(|asked| asked.join().unwrap_or(false))
            })
        };
        let up = |port: &u16| TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], *port))).is_ok();
        if !wait_until(HANG, || PORTS.iter().all(up)) {
            return Err(Error::Hung { what: format!("ports {PORTS:?} open") });
        }
        if !wait_until(HANG, all_rated) {
            return Err(Error::Hung { what: format!("Prometheus telling rates of {COUNTERS:?}") });
        }
        Ok(street)
    }
}

impl Drop for Street {
    fn drop(&mut self) {
        for unit in [PROMETHEUS, CALLER, SERVER] {
            let _ = systemctl(&["stop", unit]);
        }
    }
}

/// Runs a program as a service of nobody's.
pub(super) fn start(unit: &str, argv: &[&str]) -> Result<()> {
    let unit = format!("--unit={unit}");
    let options = ["--quiet", "--collect", "--property=DynamicUser=yes", "--property=PrivateTmp=yes", &unit];
    run("systemd-run", &[&options[..], argv].concat()).map(drop)
}

/// Rates over a window that Prometheus fills soon.
const VARIABLES: [(&str, &str); 7] = [
    ("CHAOS_SESSIONS", "10"),
    ("CHAOS_HEALTH_URL", "http://127.0.0.1:8082/health"),
    ("CHAOS_REQUEST_QUERY", "sum(rate(http_requests_total[30s]))"),
    (
        "CHAOS_AMPLIFICATION_QUERY",
        "sum(rate(http_client_retries_total[30s])) / sum(rate(http_requests_total[30s]))",
    ),
    ("CHAOS_ERROR_QUERY", "sum(rate(http_requests_failed_total[30s])) / sum(rate(http_requests_total[30s]))"),
    ("CHAOS_RETRY_QUERY", "sum(rate(http_client_retries_total[30s]))"),
    ("CHAOS_REJECTION_QUERY", "sum(rate(http_client_rate_limited_total[30s]))"),
];

/// How long the pool is held for a caller that bounds its retries, in seconds: its requests may all fail for less than 30. For one
/// that does not it is held as long as is shipped, and a gate ends the run: how soon depends on the machine.
const HOLD: (&str, &str) = ("CHAOS_HOLD_SECONDS", "20");

fn outcome(attempts: &str, hold: Option<(&str, &str)>) -> Result<Value> {
    let _street = Street::open(attempts)?;
    let variables: Vec<_> = VARIABLES.into_iter().chain(hold).collect();
    let shipped = Shipped::register("retry-storm", &variables)?;
    let (result, _) = shipped.run(|| false)?;
    assert_idle(idle())?;
    Ok(result)
}

fn the_shipped_experiment_finds_out_a_caller_that_makes_a_storm_of_retries_and_names_each_step() -> TestResult
{
    installed()?;
    let result = outcome("unbounded", None)?;
    let error = result["error"].as_str().unwrap_or_default();
    assert_eq!(result["verdict"], "tripped", "{result}; {}", log());
    for step in ["pool exhaustion: ", "retry amplification: ", "retry storm: ", "self-rate-limit: "] {
        assert!(error.contains(step), "{step}: {error}");
    }
    Ok(())
}

fn the_shipped_experiment_holds_for_a_caller_that_bounds_its_retries() -> TestResult {
    installed()?;
    let result = outcome("3", Some(HOLD))?;
    assert_eq!(result["verdict"], "held", "{result}; {}", log());
    Ok(())
}
