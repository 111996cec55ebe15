//! Which faults of a document may be active at the same time.

use std::time::Duration;

use super::activity::Deed;
use super::document::Experiment;

impl Experiment {
    /// For each fault, in their order, the numbers of those that may be active when it is injected, if activities take no time themselves;
    /// of what takes some, the faults are the further apart.
    pub fn beside(&self) -> Vec<Vec<usize>> {
        let (mut now, mut lives) = (Duration::ZERO, Vec::new());
        for activity in &self.method {
            let begins = now + activity.before;
            match &activity.deed {
                Deed::Inject { name, fault } => {
                    let lasts = fault.parse().map_or(Duration::ZERO, |fault| fault.duration);
                    lives.push((name.as_ref(), begins, begins + lasts));
                }
                Deed::Remove(name) => {
                    for (_, _, ends) in lives.iter_mut().filter(|(other, ..)| *other == Some(name)) {
                        *ends = begins.min(*ends);
                    }
                }
                Deed::Probe(_) => {}
            }
            if !activity.background {
                now = begins + activity.after.unwrap_or_default();
            }
        }
        let is_there = |(number, (_, begins, _)): (usize, &(_, Duration, Duration))| {
            let earlier = |(other, (_, began, ends)): &(usize, &(_, Duration, Duration))| {
                (*began, *other) < (*begins, number) && begins < ends
            };
            lives.iter().enumerate().filter(earlier).map(|(other, _)| other).collect()
        };
        lives.iter().enumerate().map(is_there).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::native as grammar;
    use crate::experiment::variables::Nowhere;

    fn experiment(method: &Value) -> Experiment {
        let probe = json!({"type": "probe", "name": "up", "tolerance": 0, "provider":
            {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:5432"]}});
        let document = json!({"title": "several", "method": method, "rollbacks": [],
            "steady-state-hypothesis": {"title": "up", "probes": [probe]}});
        Experiment::parse(document.as_object().unwrap(), grammar, &Nowhere).unwrap()
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
}
