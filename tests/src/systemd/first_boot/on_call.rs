//! Whoever is on call (`process-death-alert` of the hub): a real Prometheus has a real Alertmanager tell the installed daemon that a
//! service is gone, and that it is back.

use std::fs;

use serde_json::json;

use super::drop_ins::{TOKEN, hearing};
use super::experiments::{RTO, SHOP, Shipped, Shop, held};
use super::storm::{PROMETHEUS, start};
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::wait_until;
use crate::systemd::lab::{assert_idle, idle};
use crate::systemd::unit::{installed, log, run, systemctl};
use crate::systemd::{TestResult, tests};

tests![the_shipped_experiment_kills_a_service_and_whoever_is_on_call_is_told_of_it_and_that_it_is_over];

const FOLDER: &str = "/run/chaos-on-call";
const ALERTMANAGER: &str = "chaos-alertmanager.service";
const WATCHES: &str = "\
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
- {job_name: shop, scrape_timeout: 1s, static_configs: [{targets: ['127.0.0.1:8080']}]}
alerting: {alertmanagers: [{static_configs: [{targets: ['127.0.0.1:9093']}]}]}
";
const RULES: &str = "\
groups:
- name: shop
  rules: [{alert: ServiceDown, expr: up == 0, annotations: {summary: '{{ $labels.instance }} is unreachable'}}]
";

/// Prometheus and Alertmanager, gone when this is.
struct Watch;

impl Watch {
    fn begin() -> Result<Self> {
        let watch = Self;
        let routes = format!(
            "route: {{receiver: oncall, group_by: [alertname], group_wait: 100ms, group_interval: 1s}}\n\
             receivers:\n- name: oncall\n  webhook_configs:\n  - url: http://127.0.0.1:9199/alerts\n    \
             http_config: {{authorization: {{credentials: {TOKEN}}}}}\n"
        );
        fs::create_dir_all(FOLDER).map_err(Error::io("create", FOLDER))?;
        for (name, text) in
            [("prometheus.yml", WATCHES), ("rules.yml", RULES), ("alertmanager.yml", routes.as_str())]
        {
            fs::write(format!("{FOLDER}/{name}"), text).map_err(Error::io("write", name))?;
        }
        let file = |name: &str| format!("--config.file={FOLDER}/{name}");
        let (tells, watches) = (file("alertmanager.yml"), file("prometheus.yml"));
        let alone = ["--storage.path=/tmp/alerts", "--cluster.listen-address="];
        start(ALERTMANAGER, &[&["/usr/bin/prometheus-alertmanager", tells.as_str()][..], &alone].concat())?;
        start(PROMETHEUS, &["/usr/bin/prometheus", &watches, "--storage.tsdb.path=/tmp/prometheus"])?;
        let up = ["probe", "prometheus", "http://127.0.0.1:9090", "up", "--min", "1"];
        let ready = ["probe", "http", "http://127.0.0.1:9093/-/ready"];
        let both = || run("chaosctl", &up).is_ok() && run("chaosctl", &ready).is_ok();
        match wait_until(HANG, both) {
            true => Ok(watch),
            false => Err(Error::Hung { what: "Prometheus and Alertmanager ready".into() }),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for unit in [PROMETHEUS, ALERTMANAGER] {
            let _ = systemctl(&["stop", unit]);
        }
        let _ = fs::remove_dir_all(FOLDER);
    }
}

fn the_shipped_experiment_kills_a_service_and_whoever_is_on_call_is_told_of_it_and_that_it_is_over()
-> TestResult {
    installed()?;
    let (_shop, _ears, _watch) = (Shop::open()?, hearing()?, Watch::begin()?);
    let before = Shop::pid()?;
    let variables = [
        ("CHAOS_UNIT", SHOP),
        ("CHAOS_WATCH_SECONDS", "20"),
        ("CHAOS_RTO", RTO.0),
        ("CHAOS_ALERT_WITHIN", RTO.0),
    ];
    let shipped = Shipped::register("process-death-alert", &variables)?;
    let (result, _) = held(&shipped, || false)?;
    assert!(Shop::pid()? != before, "the service was not killed: {result}");
    let (recovery, alert) = (&result["recovery"], &result["recovery"]["alerts"][0]);
    let after = |field: &str| alert[field].as_f64().unwrap_or(f64::NAN);
    assert!((0.1..RTO.1).contains(&after("fired_after_seconds")), "{result}; {}", log());
    // From the end of the fault, before which it may be resolved: it was killed once.
    assert!((0.0..300.0).contains(&after("gone_after_seconds")), "{result}; {}", log());
    assert_eq!(recovery["within_rto"], json!(true), "{result}");
    assert_idle(idle())?;
    Ok(())
}
