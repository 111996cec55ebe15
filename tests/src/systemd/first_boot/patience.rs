//! A shipped experiment as an emulated processor can run it: each look may take as long as a look takes there.

use serde_json::{Value, json};

/// How long an answer may take. On real processors it comes within a second or three.
const TIMEOUT: (&str, u32) = ("14s", 14);
/// How often a gate is sampled, which is no less than an answer may take.
const INTERVAL: &str = "15s";
/// The keys below which the guardrails of a document have gates.
const GATES: [&str; 2] = ["rollback_on", "abort_when"];

/// Gives every probe and gate of a document the time that it needs under emulation.
pub(super) fn patient(mut document: Value) -> Value {
    for looks in ["/steady-state-hypothesis/probes", "/method"] {
        elements(document.pointer_mut(looks)).for_each(wait_longer);
    }
    for extension in elements(document.get_mut("extensions")) {
        for key in GATES {
            for gate in elements(extension.get_mut(key)).filter(|gate| gate.get("provider").is_some()) {
                gate["interval"] = json!(INTERVAL);
                wait_longer(gate);
            }
        }
    }
    document
}

fn elements(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Of what asks something, by HTTP or by `chaosctl probe KIND`. An action stays as it is.
fn wait_longer(activity: &mut Value) {
    let provider = &mut activity["provider"];
    if provider["type"] == "http" {
        provider["timeout"] = json!(TIMEOUT.1);
    } else if let Some(arguments) = provider["arguments"].as_array_mut()
        && arguments.first() == Some(&json!("probe"))
        && !arguments.contains(&json!("--timeout"))
    {
        arguments.splice(2..2, [json!("--timeout"), json!(TIMEOUT.0)]);
    }
}
