//! Whether a resource is ready, by what the API server has of it: what kubectl waits for.
//!
//! Sources: `pkg/api/v1/pod/util.go` (`IsPodReady`) and `staging/src/k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go` of Kubernetes
//! 1.20, and the fields' descriptions in its API reference (<https://kubernetes.io/docs/reference/kubernetes-api/>). Unlike the latter,
//! a deployment is ready while old pods serve in place of new ones: it is about who answers, and not about a rollout.

use serde_json::Value;

use super::Kind;

/// What makes a resource ready, or what it lacks, in words.
pub(super) fn ready(kind: Kind, resource: &Value) -> Result<String, String> {
    if resource["metadata"]["deletionTimestamp"].is_string() {
        return Err("it is being deleted".to_owned());
    }
    match kind {
        Kind::Pod | Kind::Node => condition(resource, "Ready"),
        Kind::Job => condition(resource, "Complete"),
        Kind::Deployment => replicas(resource, "availableReplicas", "available"),
        Kind::StatefulSet => replicas(resource, "readyReplicas", "ready"),
        Kind::DaemonSet => {
            seen(resource)?;
            let status = &resource["status"];
            enough(
                count(&status["numberAvailable"], 0),
                count(&status["desiredNumberScheduled"], 0),
                "available",
            )
        }
        Kind::Service => Err("a service has no readiness".to_owned()),
    }
}

/// Whether a condition is true.
fn condition(resource: &Value, name: &str) -> Result<String, String> {
    let all = resource["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(found) = all.iter().find(|condition| condition["type"] == name) else {
        return Err(format!("it has no condition {name} yet"));
    };
    let status = found["status"].as_str().unwrap_or_default();
    let why = match found["reason"].as_str() {
        Some(reason) if !reason.is_empty() => format!(" ({})", reason.escape_debug()),
        _ => String::new(),
    };
    match status {
        "True" => Ok(format!("{name} is True")),
        other => Err(format!("{name} is {}{why}", other.escape_debug())),
    }
}

fn replicas(resource: &Value, field: &str, word: &str) -> Result<String, String> {
    seen(resource)?;
    enough(count(&resource["status"][field], 0), count(&resource["spec"]["replicas"], 1), word)
}

/// Whether what is told of it is about what it is by now.
fn seen(resource: &Value) -> Result<(), String> {
    let wanted = count(&resource["metadata"]["generation"], 0);
    let observed = count(&resource["status"]["observedGeneration"], 0);
    match observed >= wanted {
        true => Ok(()),
        false => Err(format!("its controller has seen generation {observed} of {wanted}")),
    }
}

fn enough(have: u64, want: u64, word: &str) -> Result<String, String> {
    match have >= want {
        true => Ok(format!("{have} of {want} {word}")),
        false => Err(format!("{have} of {want} {word}")),
    }
}

/// A number, which is left out when it is what a field has unless told otherwise.
fn count(value: &Value, default: u64) -> u64 {
    value.as_u64().unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(kind: Kind, status: &Value, spec: &Value) -> Result<String, String> {
        ready(kind, &json!({"metadata": {"name": "a", "generation": 2}, "spec": spec, "status": status}))
    }

    #[test]
    fn pods_nodes_and_jobs_have_a_condition() {
        for (kind, name) in [(Kind::Pod, "Ready"), (Kind::Node, "Ready"), (Kind::Job, "Complete")] {
            let of = |status: &str| json!({"conditions": [{"type": "Other", "status": "True"}, {"type": name, "status": status, "reason": "Why\u{1b}"}]});
            assert_eq!(with(kind, &of("True"), &json!({})), Ok(format!("{name} is True")));
            assert_eq!(with(kind, &of("False"), &json!({})), Err(format!("{name} is False (Why\\u{{1b}})")));
            assert_eq!(
                with(kind, &of("Unknown"), &json!({})),
                Err(format!("{name} is Unknown (Why\\u{{1b}})"))
            );
            assert_eq!(with(kind, &json!({}), &json!({})), Err(format!("it has no condition {name} yet")));
        }
        let going = json!({"metadata": {"deletionTimestamp": "2026-05-04T10:00:00Z"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(ready(Kind::Pod, &going), Err("it is being deleted".to_owned()));
    }

    #[test]
    fn what_has_replicas_needs_as_many_as_it_wants_and_to_have_been_seen() {
        for (kind, field, word) in [
            (Kind::Deployment, "availableReplicas", "available"),
            (Kind::StatefulSet, "readyReplicas", "ready"),
        ] {
            let of = |number: u64, generation: u64| json!({field: number, "observedGeneration": generation});
            assert_eq!(with(kind, &of(3, 2), &json!({"replicas": 3})), Ok(format!("3 of 3 {word}")));
            assert_eq!(with(kind, &of(2, 2), &json!({"replicas": 3})), Err(format!("2 of 3 {word}")));
            assert_eq!(with(kind, &of(0, 2), &json!({"replicas": 0})), Ok(format!("0 of 0 {word}")));
            // One, when nobody says; and what is not there is 0.
            assert_eq!(
                with(kind, &json!({"observedGeneration": 2}), &json!({})),
                Err(format!("0 of 1 {word}"))
            );
            let stale = with(kind, &of(3, 1), &json!({"replicas": 3})).unwrap_err();
            assert_eq!(stale, "its controller has seen generation 1 of 2");
        }
    }

    #[test]
    fn a_daemon_set_needs_one_on_each_node_that_it_wants() {
        let of = |available, desired, generation: u64| {
            let status = json!({"numberAvailable": available, "desiredNumberScheduled": desired,
                "observedGeneration": generation});
            with(Kind::DaemonSet, &status, &json!({}))
        };
        assert_eq!(of(2, 2, 2), Ok("2 of 2 available".to_owned()));
        assert_eq!(of(1, 2, 2), Err("1 of 2 available".to_owned()));
        assert!(of(2, 2, 1).is_err());
        assert!(ready(Kind::Service, &json!({})).is_err());
    }
}
