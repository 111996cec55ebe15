//! Tests of the experiment document.

use serde_json::json;

use super::*;
use crate::experiment::alert::Wanted;
use crate::experiment::gate::{Op, Rule};
use crate::experiment::tolerance::{Form, Tolerance};
use crate::experiment::variables::Nowhere;
use crate::probe::http::{Exchange, Method, Request};
use crate::probe::trust::Trust;
use crate::probe::{Check, Sample};
use crate::spec::FaultType;

pub(super) fn document() -> Value {
    json!({
        "title": "payment survives a slow database",
        "steady-state-hypothesis": {
            "title": "payment healthy",
            "probes": [
                {"type": "probe", "name": "health", "tolerance": 200,
                 "provider": {"type": "http", "url": "http://127.0.0.1:8080/health", "timeout": 2}},
                {"type": "probe", "name": "database", "tolerance": 0,
                 "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:5432"]}},
            ],
        },
        "method": [
            {"type": "action", "name": "slow", "provider": {"type": "process", "path": "chaosctl", "arguments": {
                "inject": "latency", "--interface": "eth0", "--cidr": ["10.0.0.0/8", "fd00::/8"],
                "--port": 5432, "--delay": "300ms", "--for": "3m"}}},
        ],
        "rollbacks": [],
    })
}

pub(super) fn parse(document: Value) -> Result<Experiment, SpecError> {
    let Value::Object(document) = document else { panic!("not an object") };
    Experiment::parse(&document, &Nowhere)
}

fn fault(experiment: &Experiment) -> &FaultRequest {
    experiment.faults().next().unwrap().2
}

#[test]
fn a_method_is_understood_activity_by_activity() {
    let mut several = document();
    let inject = |name: &str, lasts: &str| {
        json!({"type": "action", "name": name, "provider": {"type": "process", "path": "chaosctl", "arguments":
            {"inject": "timeout", "--interface": "eth0", "--name": name, "--for": lasts}}})
    };
    let mut probe = document()["steady-state-hypothesis"]["probes"][0].clone();
    probe.as_object_mut().unwrap().remove("tolerance");
    several["method"] = json!([inject("a", "30s"), probe, inject("b", "1m"),
        {"type": "action", "name": "end a", "provider": {"type": "process", "path": "chaosctl", "arguments": ["remove", "a"]}}]);
    several["method"][0]["background"] = json!(true);
    several["method"][0]["pauses"] = json!({"before": 2});
    several["method"][1]["pauses"] = json!({"before": 1, "after": 3});
    let experiment = parse(several).unwrap();
    let step = |deed, background, before, after| Step { deed, background, before, after };
    assert_eq!(
        experiment.steps(),
        [
            step(machine::Deed::Inject, true, true, false),
            step(machine::Deed::Probe, false, true, true),
            step(machine::Deed::Inject, false, false, false),
            step(machine::Deed::Remove(0), false, false, false),
        ]
    );
    // 1 and 3 seconds around the probe, and then the minute of the second fault.
    assert_eq!(experiment.lasts(), Duration::from_secs(64));
    assert_eq!(
        experiment.faults().map(|(index, name, _)| (index, name.unwrap().as_str())).collect::<Vec<_>>(),
        [(0, "a"), (2, "b")]
    );
}

#[test]
fn a_document_means_what_the_command_line_in_it_means() {
    let experiment = parse(document()).unwrap();
    assert_eq!(experiment.name, "payment survives a slow database");
    assert_eq!(experiment.lasts(), Duration::from_secs(180));
    assert_eq!(fault(&experiment).fault_type, FaultType::Latency);
    assert_eq!(fault(&experiment).params["delay_ms"], json!(300.0));
    assert_eq!(fault(&experiment).target.cidrs, ["10.0.0.0/8", "fd00::/8"]);
    assert_eq!(experiment.conditions.len(), 2);
    assert_eq!(
        experiment.conditions[0].probe.check,
        Check::http("", "http://127.0.0.1:8080/health", vec![]).unwrap()
    );
    assert_eq!(experiment.conditions[0].tolerance, Tolerance::Equal(json!(200)));
    assert_eq!(experiment.conditions[1].form, Form::Process);
}

#[test]
fn a_list_of_arguments_means_the_same_as_a_mapping() {
    let mut list = document();
    list["method"][0]["provider"]["arguments"] = json!([
        "inject",
        "latency",
        "--interface",
        "eth0",
        "--cidr",
        "10.0.0.0/8",
        "--cidr",
        "fd00::/8",
        "--port",
        5432,
        "--delay",
        "300ms",
        "--for",
        "3m"
    ]);
    assert_eq!(parse(list).unwrap(), parse(document()).unwrap());
    let mut mapping = document();
    mapping["steady-state-hypothesis"]["probes"][1]["provider"]["arguments"] =
        json!({"probe": "tcp", "127.0.0.1:5432": ""});
    assert_eq!(parse(mapping).unwrap(), parse(document()).unwrap());
}

#[test]
fn a_pause_keeps_the_fault_shorter_than_it_would_last() {
    let mut shorter = document();
    shorter["method"][0]["pauses"] = json!({"after": 1.5});
    assert_eq!(parse(shorter).unwrap().lasts(), Duration::from_millis(1500));
}

#[test]
fn a_rollback_may_only_say_what_happens_anyway() {
    let removal = |name| {
        json!([{"type": "action", "name": "undo",
                "provider": {"type": "process", "path": "chaosctl", "arguments": {"remove": name}}}])
    };
    let mut named = document();
    named["method"][0]["provider"]["arguments"]["--name"] = json!("slow-db");
    named["rollbacks"] = removal("slow-db");
    assert_eq!(parse(named.clone()).unwrap().faults().next().unwrap().1.unwrap().as_str(), "slow-db");
    named["rollbacks"] = vec![removal("slow-db")[0].clone(); MOST_ACTIVITIES + 1].into();
    assert_eq!(parse(named.clone()).unwrap_err().field, "rollbacks");
    named["rollbacks"] = removal("another");
    assert_eq!(parse(named).unwrap_err().field, "rollbacks[0].provider.arguments");
}

#[test]
fn an_error_about_an_option_names_its_place_and_in_a_list_the_option() {
    for (arguments, said) in [
        (
            json!(["inject", "latency", "--interface", "e", "--delay", "1"]),
            "[4]: --delay: \"1\" is not a duration",
        ),
        (
            json!({"inject": "latency", "--interface": "e", "--delay": "2h"}),
            ".--delay: 7200000 ms is out of bounds",
        ),
    ] {
        let mut wrong = document();
        wrong["method"][0]["provider"]["arguments"] = arguments;
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.starts_with(&format!("method[0].provider.arguments{said}")), "{error}");
    }
}

#[test]
fn whatever_is_not_supported_is_refused_by_name() {
    let provider = |provider: Value| json!([{"type": "action", "name": "a", "provider": provider}]);
    let chaosctl =
        |arguments: Value| provider(json!({"type": "process", "path": "chaosctl", "arguments": arguments}));
    let valid = document()["method"][0].clone();
    let mut named = valid.clone();
    named["provider"]["arguments"]["--name"] = json!("slow");
    let remove = chaosctl(json!({"remove": "slow"}))[0].clone();
    let cases = [
        ("method", json!([named, named]), "method[1].provider.arguments"),
        ("method", json!([remove, named]), "method[0].provider.arguments"),
        ("method", vec![valid; 65].into(), "method"),
        (
            "method",
            provider(json!({"type": "python", "module": "m", "func": "f"})),
            "method[0].provider.type",
        ),
        (
            "method",
            provider(json!({"type": "process", "path": "/bin/sh", "arguments": []})),
            "method[0].provider.path",
        ),
        ("method", chaosctl(json!(["stop", "--all"])), "method[0].provider.arguments[0]"),
        (
            "method",
            chaosctl(json!({"inject": "meteor", "--force": 1})),
            "method[0].provider.arguments.inject",
        ),
        ("method", chaosctl(json!({"inject": "latency"})), "method[0].provider.arguments"),
        (
            "method",
            chaosctl(json!({"inject": "latency", "--interface": "e", "--probability": "0.5"})),
            "method[0].provider.arguments.--probability",
        ),
        (
            "method",
            chaosctl(json!({"inject": "latency", "--interface": "e", "--force": "x"})),
            "method[0].provider.arguments.--force",
        ),
        (
            "method",
            json!([{"type": "action", "name": "a", "background": "yes", "provider": {}}]),
            "method[0].background",
        ),
        ("method", json!([{"ref": "nobody"}]), "method[0].ref"),
        ("method", json!([{"type": "action", "name": "a", "dry": "actions"}]), "method[0].dry"),
        (
            "method",
            json!([{"type": "action", "name": "a", "controls": [{"name": "c"}]}]),
            "method[0].controls",
        ),
        ("method", json!([{"type": "action", "name": "a", "tolerance": 0}]), "method[0].tolerance"),
        ("configuration", json!(1), "configuration"),
        ("secrets", json!({"a": 1}), "secrets.a"),
        ("tags", json!([""]), "tags[0]"),
        ("extensions", json!([{"data": 1}]), "extensions[0].name"),
        ("extensions", json!([{"name": "chaos-daemon", "data": 1}]), "extensions[0].data"),
        ("runtime", json!({"hypothesis": {"strategy": "skip"}}), "runtime.hypothesis.strategy"),
        ("runtime", json!({"hypothesis": {"frequency": 2}}), "runtime.hypothesis.frequency"),
        ("runtime", json!({"rollbacks": {"strategy": "never"}}), "runtime.rollbacks.strategy"),
        ("runtime", json!({"rollbacks": {"strategy": "deviated"}}), "runtime.rollbacks.strategy"),
        ("controls", json!([{"name": "c"}]), "controls"),
        ("surprise", json!(1), "surprise"),
        ("title", json!(""), "title"),
        ("title", json!(null), "title"),
        ("method", json!(null), "method"),
        ("steady-state-hypothesis", json!({"title": 1}), "steady-state-hypothesis.title"),
    ];
    for (key, value, field) in cases {
        let mut changed = document();
        changed[key] = value.clone();
        let error = parse(changed).expect_err(&format!("{key} = {value} was accepted"));
        assert_eq!(error.field, field, "{error}");
    }
}

#[test]
fn only_an_action_that_injects_may_be_idle() {
    let mut changed = document();
    changed["method"][0]["may_be_idle"] = json!(true);
    assert!(parse(changed.clone()).unwrap().method[0].may_be_idle);
    let provider = json!({"type": "http", "url": "http://x"});
    changed["method"] = json!([{"type": "probe", "name": "a", "may_be_idle": true, "provider": provider}]);
    assert_eq!(parse(changed).unwrap_err().field, "method[0].may_be_idle");
}

#[test]
fn a_probe_that_is_not_understood_is_refused_by_name() {
    for (key, value, field) in [
        ("tolerance", json!({"type": "range", "range": [0, 5]}), "tolerance.target"),
        ("tolerance", json!(null), "tolerance"),
        ("tolerance", json!(true), "tolerance"),
        ("pauses", json!({"after": 1}), "pauses"),
        ("background", json!(true), "background"),
        ("type", json!("action"), "type"),
        ("provider", json!({"type": "http", "url": "ftp://x"}), "provider.url"),
        ("provider", json!({"type": "http", "url": "http://x", "headers": {"a": []}}), "provider.headers.a"),
        ("provider", json!({"type": "http", "url": "http://x", "method": "DELETE"}), "provider.method"),
        (
            "provider",
            json!({"type": "http", "url": "https://x", "verify_tls": "ca.pem"}),
            "provider.verify_tls",
        ),
        ("provider", json!({"type": "http", "url": "https://x", "verify_tls": 0}), "provider.verify_tls"),
        ("provider", json!({"type": "http", "url": "http://x", "max_retries": 1}), "provider.max_retries"),
        ("provider", json!({"type": "http", "url": "http://${x}"}), "provider.url"),
        ("provider", json!({"type": "http", "url": "http://x", "secrets": ["x"]}), "provider.secrets[0]"),
        ("provider", json!({"type": "http", "url": "http://x", "timeout": 31}), "provider.timeout"),
        ("provider", json!({"type": "process", "path": "curl", "arguments": []}), "provider.path"),
        ("provider", json!({"type": "process", "path": "./check.sh"}), "provider.path"),
        ("provider", json!({"type": "process", "path": "~/check.sh"}), "provider.path"),
        ("provider", json!({"type": "process", "path": "/x", "arguments": "a | b"}), "provider.arguments"),
        ("provider", json!({"type": "process", "path": "/x", "arguments": "$HOME"}), "provider.arguments"),
        ("provider", json!({"type": "process", "path": "/x", "arguments": [["a"]]}), "provider.arguments"),
        (
            "provider",
            json!({"type": "process", "path": "/x", "arguments": {"get": "a", "from": "b"}}),
            "provider.arguments",
        ),
        ("provider", json!({"type": "process", "path": "/x", "shell": true}), "provider.shell"),
        ("provider", json!({"type": "process", "path": "/x", "timeout": 60}), "provider.timeout"),
        (
            "provider",
            json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "x"]}),
            "provider.arguments",
        ),
        ("provider", json!({"type": "python"}), "provider.module"),
        ("provider", json!({"type": "grpc"}), "provider.type"),
    ] {
        let mut changed = document();
        changed["steady-state-hypothesis"]["probes"][0][key] = value.clone();
        let error = parse(changed).expect_err(&format!("{key} = {value} was accepted"));
        assert_eq!(error.field, format!("steady-state-hypothesis.probes[0].{field}"), "{error}");
    }
}

#[test]
fn a_process_provider_of_another_program_is_what_it_is_for_chaos_toolkit() {
    let read = |arguments: Value, tolerance: Value| {
        let mut changed = document();
        let probe = &mut changed["steady-state-hypothesis"]["probes"][1];
        probe["provider"] =
            json!({"type": "process", "path": "/usr/lib/foo/check.sh", "arguments": arguments});
        probe["tolerance"] = tolerance;
        parse(changed).map(|mut experiment| experiment.conditions.remove(1))
    };
    let words = |arguments| match read(arguments, json!(0)).unwrap().probe.check {
        check @ Check::Command(_) => serde_json::to_value(check.program()).unwrap()["arguments"].clone(),
        other => panic!("{other:?}"),
    };
    for (arguments, argv) in [
        (json!(null), json!([])),
        (json!(["-v", 3, "", "a b"]), json!(["-v", "3", "a b"])),
        (json!("-v  --url http://127.0.0.1:80/x"), json!(["-v", "--url", "http://127.0.0.1:80/x"])),
        (json!({"--url": "x y"}), json!(["--url", "x y"])),
        (json!({"--a": "1", "-b": ""}), json!(["--a", "1", "-b"])),
    ] {
        assert_eq!(words(arguments.clone()), argv, "{arguments}");
    }
    let condition = read(json!([]), json!({"type": "regex", "target": "stdout", "pattern": "up"})).unwrap();
    assert_eq!((condition.form, condition.probe.timeout), (Form::Command, Duration::from_secs(30)));
    // The output is that of the program; one that has not ended has none.
    let mut sample = Sample::failed("late".into());
    assert!(condition.judge(&sample).is_err());
    sample.answer = Some(json!({"status": 3, "stdout": "all up", "stderr": ""}));
    assert_eq!(condition.judge(&sample), Ok(()));
    let condition = read(json!([]), json!([0, 3])).unwrap();
    assert_eq!(condition.judge(&sample), Ok(()));
    assert!(read(json!([]), json!(true)).is_err());
}

#[test]
fn everything_that_runs_a_program_is_among_the_probes() {
    let mut several = document();
    let provider = |path: &str| json!({"type": "process", "path": path});
    let native = |program: &str| json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "mcp", "--", program]});
    several["steady-state-hypothesis"]["probes"][0] =
        json!({"type": "probe", "name": "steady", "tolerance": 0, "provider": provider("/a")});
    several["method"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "probe", "name": "looks", "provider": provider("/b")}));
    several["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [
        {"name": "gate", "provider": native("/c"), "op": "gt", "value": 100}]}]);
    let experiment = parse(several).unwrap();
    let programs: Vec<_> =
        experiment.probes().filter_map(|(name, probe)| Some((name, probe.check.program()?.path()))).collect();
    assert_eq!(programs, [("steady", "/a"), ("gate", "/c"), ("looks", "/b")]);
}

#[test]
fn configuration_goes_into_probes_and_faults_and_secrets_into_probes_only() {
    let mut values = document();
    values["configuration"] = json!({"delay": "300ms", "port": 5432, "good": 204, "keep": 2.5});
    values["secrets"] = json!({"api": {"token": "hunter2"}});
    let probe = &mut values["steady-state-hypothesis"]["probes"][0];
    probe["tolerance"] = json!(["${good}"]);
    probe["provider"] = json!({"type": "http", "url": "http://127.0.0.1/", "method": "post", "timeout": [1, 2],
        "headers": {"Authorization": "Bearer ${token}", "Content-Type": "application/json"},
        "arguments": {"port": "${port}"}, "secrets": ["api"]});
    values["method"][0]["provider"]["arguments"]["--delay"] = json!("${delay}");
    values["method"][0]["pauses"] = json!({"after": "${keep}"});
    let experiment = parse(values.clone()).unwrap();
    assert_eq!(fault(&experiment).params["delay_ms"], json!(300.0));
    assert_eq!(experiment.lasts(), Duration::from_millis(2500));
    let probe = &experiment.conditions[0];
    assert_eq!(probe.tolerance, Tolerance::List(vec![json!(204)]));
    assert_eq!(probe.probe.timeout, Duration::from_secs(3));
    let Check::Http(Exchange { request, .. }) = &probe.probe.check else { panic!("{probe:?}") };
    let expected = Request {
        url: "http://127.0.0.1/".into(),
        method: Method::Post,
        headers: vec![
            ("Authorization".into(), "Bearer hunter2".into()),
            ("Content-Type".into(), "application/json".into()),
        ],
        arguments: vec![],
        body: Some("{\"port\":5432}".into()),
        trust: Trust::Host,
        credential: None,
    };
    assert_eq!(*request, expected);
    values["method"][0]["provider"]["arguments"]["--delay"] = json!("${token}");
    assert_eq!(parse(values).unwrap_err().field, "method[0].provider.arguments.--delay");
}

#[test]
fn whom_a_server_has_to_prove_to_be_is_said_as_in_chaos_toolkit() {
    for (given, trust) in [
        (json!(null), Trust::Host),
        (json!(true), Trust::Host),
        (json!(false), Trust::Anyone),
        (json!("/etc/ssl/ca.pem"), Trust::File("/etc/ssl/ca.pem".into())),
    ] {
        let mut secure = document();
        let provider = &mut secure["steady-state-hypothesis"]["probes"][0]["provider"];
        *provider = json!({"type": "http", "url": "https://x"});
        if !given.is_null() {
            provider["verify_tls"] = given.clone();
        }
        let experiment = parse(secure).unwrap();
        let Check::Http(Exchange { request, .. }) = &experiment.conditions[0].probe.check else {
            panic!("{given}")
        };
        assert_eq!(request.trust, trust, "{given}");
    }
}

#[test]
fn an_error_does_not_show_a_secret() {
    let mut values = document();
    values["secrets"] = json!({"api": {"host": "hunter2 "}});
    values["steady-state-hypothesis"]["probes"][0]["provider"] =
        json!({"type": "http", "url": "http://${host}/"});
    let error = parse(values).unwrap_err();
    assert!(error.problem.contains("***") && !error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn what_has_no_effect_in_chaos_toolkit_has_none_here() {
    let mut annotated = document();
    annotated["tags"] = json!(["payment"]);
    annotated["contributions"] = json!({"reliability": "high"});
    annotated["controls"] = json!([]);
    annotated["extensions"] = json!([{"name": "somebody-else", "data": 1}, {"name": "chaos-daemon"}]);
    annotated["runtime"] =
        json!({"rollbacks": {"strategy": "always"}, "hypothesis": {"strategy": "default"}});
    assert_eq!(parse(annotated).unwrap(), parse(document()).unwrap());
}

#[test]
fn gates_are_understood_in_the_words_of_openslo() {
    let mut guarded = document();
    let tcp = json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:80"]});
    guarded["configuration"] = json!({"most": 250});
    guarded["extensions"] = json!([{"name": "chaos-daemon",
        "rollback_on": [{"name": "slow", "provider": tcp, "op": "gt", "value": "${most}", "alertAfter": "30s",
            "lookbackWindow": "1.5m", "interval": "500ms", "noData": "ignore"},
            {"provider": {"type": "http", "url": "http://127.0.0.1/"}, "tolerance": [200, 204]}],
        "abort_when": [{"not_recovered_within": "5m"}]}]);
    let guardrails = parse(guarded.clone()).unwrap().guardrails;
    assert_eq!(guardrails.recovery, Some(Duration::from_secs(300)));
    let [slow, http] = guardrails.gates.as_slice() else { panic!("{guardrails:?}") };
    assert_eq!(slow.rule, Rule::Compare { op: Op::Gt, value: 250.0, lookback: Duration::from_secs(90) });
    assert_eq!((slow.alert_after, slow.interval), (Duration::from_secs(30), Duration::from_millis(500)));
    // What has not come within the interval is no data.
    assert_eq!((slow.no_data_is_breach, slow.probe.timeout), (false, Duration::from_millis(500)));
    assert_eq!((http.name.as_str(), http.no_data_is_breach, http.alert_after), ("2", true, Duration::ZERO));
    for (key, value, field) in [
        ("op", json!("more"), "op"),
        ("op", json!(null), "op"),
        ("value", json!("much"), "value"),
        ("alertAfter", json!("soon"), "alertAfter"),
        ("alertAfter", json!("2h"), "alertAfter"),
        ("interval", json!("1ms"), "interval"),
        ("noData", json!("shrug"), "noData"),
        ("provider", json!(null), "provider"),
        ("burnrate", json!(1), "burnrate"),
        ("not_recovered_within", json!("5m"), "not_recovered_within"),
    ] {
        let mut changed = guarded.clone();
        changed["extensions"][0]["rollback_on"][0][key] = value;
        let error = parse(changed).expect_err(key);
        assert_eq!(error.field, format!("extensions[0].rollback_on[0].{field}"), "{error}");
    }
}

#[test]
fn an_alert_has_to_fire_in_time_or_must_not_fire_and_time_counts_from_an_action() {
    let probe = |words: &[&str]| {
        let arguments = [&["probe", "alert", "http://127.0.0.1:9093"], words].concat();
        json!({"type": "process", "path": "chaosctl", "arguments": arguments})
    };
    let told = json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "alert", "--webhook"]});
    let mut alarmed = document();
    alarmed["extensions"] = json!([{"name": "chaos-daemon", "alerts": [
        {"name": "pool", "provider": probe(&["--label", "alertname=Pool"]), "action": "slow", "fires_within": "1m",
            "gone_within": "2m", "interval": "500ms"},
        {"provider": told, "must_not_fire": true}]}]);
    let alerts = parse(alarmed.clone()).unwrap().guardrails.alerts;
    let [pool, other] = alerts.as_slice() else { panic!("{alerts:?}") };
    let seconds = Duration::from_secs;
    assert_eq!(pool.wanted, Wanted::Fires { within: seconds(60), gone_within: Some(seconds(120)) });
    assert_eq!((pool.interval, other.interval), (Duration::from_millis(500), seconds(1)));
    assert_eq!((other.name.as_str(), other.wanted), ("2", Wanted::Silence));
    let method = parse(alarmed.clone()).unwrap().method;
    assert_eq!((pool.action(&method), other.action(&method)), (Some(0), Some(0)));
    for (key, value, field) in [
        ("provider", json!(null), "provider"),
        ("provider", probe(&["--max", "0"]), "provider"),
        ("provider", json!({"type": "http", "url": "http://127.0.0.1:9093/"}), "provider"),
        ("fires_within", json!("soon"), "fires_within"),
        ("fires_within", json!("2h"), "fires_within"),
        ("fires_within", json!(null), "fires_within"),
        ("must_not_fire", json!(true), "fires_within"),
        ("must_not_fire", json!("yes"), "must_not_fire"),
        ("interval", json!("1ms"), "interval"),
        ("name", json!("pool\u{1b}]0;"), "name"),
        ("tolerance", json!(0), "tolerance"),
    ] {
        let mut changed = alarmed.clone();
        changed["extensions"][0]["alerts"][0][key] = value;
        let error = parse(changed).expect_err(key);
        assert_eq!(error.field, format!("extensions[0].alerts[0].{field}"), "{error}");
    }
    alarmed["extensions"][0]["alerts"][0]["action"] = json!("fast");
    assert!(parse(alarmed).unwrap_err().problem.contains("\"fast\", which injects nothing"));
}

/// The published schema refuses nothing that is understood; what it accepts may still be refused.
#[test]
fn the_schema_knows_every_field() {
    let schema = crate::experiment::schema::document();
    let known = schema["properties"].as_object().unwrap();
    let asked = parse(json!({"title": "x", "steady-state-hypothesis": document()["steady-state-hypothesis"],
        "method": document()["method"], "surprise": 1}));
    let problem = asked.unwrap_err().problem;
    let fields = problem.split_once("the fields are ").unwrap().1;
    let mut fields: Vec<&str> = fields.split(", ").collect();
    fields.sort_unstable();
    let mut names: Vec<&str> = known.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, fields);
}

#[test]
fn a_fault_weighs_ten_unless_the_document_says_otherwise_of_its_action() {
    let with = |weights: Value| {
        let mut document = document();
        document["extensions"] = json!([{"name": EXTENSION, "weights": weights}]);
        parse(document)
    };
    assert_eq!(with(json!({})).unwrap().weight(0), 10);
    assert_eq!(with(json!({"slow": 4})).unwrap().weight(0), 4);
    for (weights, said) in [
        (json!({"slow": 11}), "extensions[0].weights.slow"),
        (json!({"slow": 1.5}), "give a whole number, 0 to 10"),
        (json!({"health": 5}), "no action that injects a fault"),
    ] {
        let error = with(weights).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
