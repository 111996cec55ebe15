//! The JSON Schema of a document, for editors, agents and people. What it cannot say, [`super::Experiment::parse`] does.

use serde_json::{Value, json};

use super::sampling::STRATEGIES;
use crate::probe::KINDS;

/// The strategies of rollbacks that mean what is done anyway.
pub(super) const ROLLBACKS: [&str; 2] = ["default", "always"];

/// The schema: of what Chaos Toolkit's format allows, the part that is supported.
pub fn document() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An experiment of chaos-daemon",
        "description": "A Chaos Toolkit experiment, https://chaostoolkit.org/reference/api/experiment/.",
    });
    schema["type"] = json!("object");
    schema["properties"] = properties();
    schema["required"] = json!(["title", "method"]);
    schema["patternProperties"] = json!({"^x-": {"description": "Without effect."}});
    schema["additionalProperties"] = json!(false);
    schema
}

/// The fields of a document.
pub fn properties() -> Value {
    let none = |what: &str| json!({"type": "array", "maxItems": 0, "description": format!("Not supported: {what}.")});
    json!({
        "title": text("What the experiment is about; its name, unless name is given."),
        "name": text("Name under which it runs."),
        "description": text("What is expected to hold. Chaos Toolkit requires it."),
        "version": text("Without effect."),
        "tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "description": "Without effect."},
        "contributions": {"type": "object", "description": "Without effect."},
        "configuration": {"type": "object", "additionalProperties": value(),
            "description": "Values by name, used as ${name} in providers, tolerances and pauses."},
        "secrets": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": value()},
            "description": "Values by group and name, used as ${name} in probes, and never shown."},
        "controls": none("controls are Python modules"),
        "runtime": runtime(),
        "extensions": {"type": "array", "items": extension(), "description": "Those of others are without effect."},
        "steady-state-hypothesis": {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "controls": none("controls are Python modules"),
                "probes": {"type": "array", "items": condition(), "maxItems": 32},
            },
            "patternProperties": {"^x-": {}},
            "additionalProperties": false,
        },
        "method": {"type": "array", "items": {"anyOf": [activity(), reference()]}, "maxItems": 64},
        "rollbacks": {"type": "array", "items": {"anyOf": [action(), reference()]}, "description": "May stay empty: every fault is always removed."},
    })
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn value() -> Value {
    json!({"description": "The value, or {type: \"env\", key, default, env_var_type} or {type: \"file\", path}, which chaosctl reads."})
}

fn runtime() -> Value {
    let strategy = |known: Value, description: &str| {
        json!({"type": "object", "properties": {"strategy": {"enum": known, "default": "default"}},
        "description": description, "additionalProperties": false})
    };
    json!({
        "type": "object",
        "properties": {
            "hypothesis": strategy(json!(STRATEGIES.map(|(name, _)| name)), "When the steady state is verified, unless the extension says otherwise of a probe."),
            "rollbacks": strategy(json!(ROLLBACKS), "Every fault is removed in any case."),
        },
        "additionalProperties": false,
    })
}

fn extension() -> Value {
    let mut properties = super::guardrails::fields();
    properties["name"] =
        json!({"type": "string", "minLength": 1, "description": "\"chaos-daemon\" for gates."});
    json!({"type": "object", "properties": properties, "required": ["name"]})
}

fn chaosctl(commands: &str) -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": {"const": "process"},
            "path": {"type": "string", "pattern": "(^|/)chaosctl$"},
            "arguments": {
                "anyOf": [
                    {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
                    {"type": "object"},
                    {"type": "string"},
                ],
                "description": format!("{commands}, which is understood and not executed."),
            },
            "secrets": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["type", "path", "arguments"],
    })
}

fn http() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": {"const": "http"},
            "url": {"type": "string", "description": "http://… or https://…"},
            "method": {"enum": ["GET", "HEAD", "OPTIONS", "POST"], "default": "GET"},
            "headers": {"type": "object"},
            "arguments": {"type": "object", "description": "The query; with POST a form, or JSON if Content-Type says so."},
            "timeout": {"description": "Seconds."},
            "verify_tls": {
                "anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^/"}],
                "default": true,
                "description": "Whether the server at an https address is verified by the CAs that the host trusts, or by the CA certificates \
                                in which file, below /etc.",
            },
            "max_retries": {"const": 0},
            "configuration": {"description": "Without effect."},
            "secrets": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["type", "url"],
        "additionalProperties": false,
    })
}

/// The provider of a probe.
pub(super) fn provider_of_probe() -> Value {
    json!({"anyOf": [http(), chaosctl_probe(), program()]})
}

/// A process provider of a probe that runs another program.
fn program() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": {"const": "process"},
            "path": {"type": "string", "pattern": "^/", "description": "A program that the daemon's policy names."},
            "arguments": {
                "anyOf": [
                    {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
                    {"type": "object"},
                    {"type": "string"},
                ],
                "description": "Read as Chaos Toolkit does, but by no shell.",
            },
            "timeout": {"description": "Seconds."},
            "secrets": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["type", "path"],
        "additionalProperties": false,
    })
}

/// A process provider of a probe: which checks there are.
fn chaosctl_probe() -> Value {
    let mut provider = chaosctl(&format!("chaosctl probe {} …", KINDS.join("|")));
    provider["properties"]["timeout"] = json!({"description": "Seconds."});
    provider["properties"]["arguments"]["examples"] = examples_of_probes();
    provider
}

/// Words of probes, of each kind at least once.
pub fn examples_of_probes() -> Value {
    let mut examples = json!([
        ["probe", "tcp", "127.0.0.1:5432"],
        ["probe", "tls", "payment.example.org:443", "--min", 14],
        ["probe", "latency", "--http", "http://127.0.0.1:8080/", "--max", 200],
        ["probe", "series", "--http", "http://127.0.0.1:8080/", "--samples", 10, "--max", 5],
        ["probe", "http", "https://127.0.0.1:8443/health", "--ca-file", "/etc/ssl/payment-ca.pem"],
        ["probe", "dns", "db.example.org"],
        ["probe", "mcp", "http://127.0.0.1:8000/mcp"],
        ["probe", "mcp", "--tool", "search", "--", "/usr/local/bin/my-server"],
        ["probe", "command", "--measure", "stdout", "--max", 100, "--", "/usr/lib/payment/check", "queue"],
        ["probe", "host", "memory_used_percent", "--max", 80],
        ["probe", "host", "disk_used_percent", "--path", "/var/lib/payment", "--max", 90],
        ["probe", "pressure", "memory", "--share", "full", "--max", 10],
        ["probe", "sockets", "tcp", "--state", "close_wait", "--max", 100],
        ["probe", "unit", "payment.service", "--measure", "restarts", "--max", 0],
        ["probe", "process", "--unit", "payment.service", "--measure", "memory_mb", "--max", 500],
        [
            "probe",
            "log",
            "--unit",
            "payment.service",
            "--match",
            "ERROR|panic",
            "--within",
            "60s",
            "--max",
            0
        ],
        ["probe", "prometheus", "http://127.0.0.1:9090", "sum(rate(errors_total[1m]))", "--no-data", "ok"],
        ["probe", "alert", "http://127.0.0.1:9093", "--label", "severity=page", "--max", 0],
        ["probe", "alert", "--webhook", "--label", "alertname=Watchdog"],
    ]);
    #[cfg(feature = "kubernetes")]
    if let Some(examples) = examples.as_array_mut() {
        let kubeconfig = "/etc/chaos-daemon/kubeconfig";
        examples.push(json!(["probe", "kubernetes", "--kubeconfig", kubeconfig, "pod/payment-0", "--ready"]));
    }
    examples
}

/// A small document with a steady state, a fault and a gate.
pub fn example() -> Value {
    let health = json!({"type": "http", "url": "http://127.0.0.1:8080/health", "timeout": 2});
    json!({
        "title": "the shop answers while its database is slow",
        "description": "Packets to the database are late by 300 ms. The shop goes on answering with 200.",
        "steady-state-hypothesis": {"title": "the shop answers", "probes": [
            {"type": "probe", "name": "health", "tolerance": 200, "provider": health},
        ]},
        "method": [{
            "type": "action", "name": "slow down the database",
            "provider": {"type": "process", "path": "chaosctl", "arguments": {
                "inject": "latency", "--interface": "eth0", "--cidr": "192.0.2.10", "--protocol": "tcp",
                "--remote-port": 5432, "--delay": "300ms", "--for": "30s",
            }},
        }],
        "rollbacks": [],
        "extensions": [{"name": "chaos-daemon", "rollback_on": [
            {"name": "an answer takes more than 2 s", "provider": health, "op": "gt", "value": 2000},
        ]}],
    })
}

/// The provider of an alert.
pub(super) fn provider_of_alert() -> Value {
    chaosctl("chaosctl probe alert … without --min and --max")
}

fn condition() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": {"const": "probe"},
            "name": {"type": "string"},
            "provider": provider_of_probe(),
            "tolerance": tolerance(),
            "controls": {"type": "array", "maxItems": 0},
            "background": {"const": false},
        },
        "required": ["type", "name", "provider", "tolerance"],
        "patternProperties": without_effect(),
        "additionalProperties": false,
    })
}

fn tolerance() -> Value {
    let target = json!({"enum": ["status", "headers", "body", "stdout", "stderr"]});
    json!({
        "anyOf": [
            {"type": "number"},
            {"type": "array", "items": {"type": "number"}, "minItems": 1},
            {
                "type": "object",
                "properties": {
                    "type": {"enum": ["range", "regex", "jsonpath"]},
                    "target": target,
                    "range": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
                    "pattern": {"type": "string"},
                    "path": {"type": "string"},
                    "count": {"type": "integer", "minimum": 0},
                    "expect": {},
                },
                "required": ["type"],
                "additionalProperties": false,
            },
        ],
        "description": "What is right: a status, a list of them, or {type: range, target, range}, {type: regex, target, \
                        pattern}, {type: jsonpath, target, path, count, expect}.",
    })
}

fn pauses() -> Value {
    json!({
        "type": "object",
        "properties": {
            "before": {"description": "Seconds."},
            "after": {"description": "Seconds. A fault without it is kept until its --for is over."},
        },
        "additionalProperties": false,
    })
}

/// An activity that stands elsewhere.
fn reference() -> Value {
    json!({
        "type": "object",
        "properties": {"ref": {"type": "string", "description": "The name of a probe or an action of this document."}},
        "required": ["ref"],
    })
}

/// Of an activity, what may stand beside the fields that are understood.
fn without_effect() -> Value {
    json!({"^x-|^(extensions|configuration|description|tags|title)$": {"description": "Without effect."}})
}

fn activity() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": {"enum": ["action", "probe"]},
            "name": {"type": "string"},
            "provider": {"anyOf": [http(), chaosctl("chaosctl probe …, or in actions inject … or remove NAME"), program()]},
            "pauses": pauses(),
            "background": {"type": "boolean", "description": "Whether the next activity starts without waiting for this one."},
            "may_be_idle": {"type": "boolean", "default": false, "description": "Of an action that injects: whether its fault may act on nothing. Without it such a run is unverified."},
            "tolerance": tolerance(),
            "controls": {"type": "array", "maxItems": 0},
        },
        "required": ["type", "name", "provider"],
        "patternProperties": without_effect(),
        "additionalProperties": false,
    })
}

fn action() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": {"const": "action"},
            "name": {"type": "string"},
            "provider": chaosctl("chaosctl inject … or chaosctl remove NAME"),
            "controls": {"type": "array", "maxItems": 0},
            "background": {"const": false},
            "pauses": pauses(),
        },
        "required": ["type", "name", "provider"],
        "patternProperties": without_effect(),
        "additionalProperties": false,
    })
}
