//! Tests of what may be active together.

use serde_json::{Value, json};

use super::*;
use crate::experiment::variables::Nowhere;

fn experiment(method: &Value) -> Experiment {
    let probe = json!({"type": "probe", "name": "up", "tolerance": 0, "provider":
        {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:5432"]}});
    let document = json!({"title": "several", "method": method, "rollbacks": [],
        "steady-state-hypothesis": {"title": "up", "probes": [probe]}});
    Experiment::parse(document.as_object().unwrap(), &Nowhere).unwrap()
}

#[test]
fn which_faults_may_be_active_together_is_known_beforehand() {
    let inject = |name: &str, lasts: &str, pauses: Value, background: bool| {
        json!({"type": "action", "name": name, "background": background, "pauses": pauses,
            "provider": {"type": "process", "path": "chaosctl", "arguments":
                {"inject": "timeout", "--interface": "eth0", "--name": name, "--for": lasts}}})
    };
    let remove = |name: &str| json!({"type": "action", "name": "end", "provider": {"type": "process", "path": "chaosctl", "arguments": ["remove", name]}});
    let none = || json!({});
    for (method, expected) in [
        (
            json!([inject("a", "30s", none(), false), inject("b", "30s", none(), false)]),
            vec![vec![], vec![0]],
        ),
        // The first is over when the second begins: by its time, or because it was removed.
        (
            json!([inject("a", "30s", json!({"after": 30}), false), inject("b", "30s", none(), false)]),
            vec![vec![], vec![]],
        ),
        (
            json!([
                inject("a", "30s", json!({"after": 1}), false),
                remove("a"),
                inject("b", "1s", none(), false)
            ]),
            vec![vec![], vec![]],
        ),
        (
            json!([inject("a", "30s", json!({"after": 29}), false), inject("b", "30s", none(), false)]),
            vec![vec![], vec![0]],
        ),
        // In the background, and later than the one that comes after it.
        (
            json!([
                inject("a", "30s", json!({"before": 5}), true),
                inject("b", "30s", none(), false),
                inject("c", "1s", none(), false)
            ]),
            vec![vec![1], vec![], vec![1]],
        ),
    ] {
        assert_eq!(experiment(&method).beside(), expected);
    }
}
