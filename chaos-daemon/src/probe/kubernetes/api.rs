//! The question to an API server, and what its answer means (<https://kubernetes.io/docs/reference/using-api/api-concepts/>).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

use super::ready::ready;
use super::{Kind, Resource, Wanted, identity};
use crate::host::kubeconfig::{Access, Kubeconfig, own};
use crate::probe::Seen;
use crate::probe::http::{self, LARGEST_BODY, Request};

/// What the prober was given when it was started: what a kubeconfig has, or why it is not there.
static GIVEN: OnceLock<BTreeMap<String, Result<Kubeconfig, String>>> = OnceLock::new();
/// How much of what a server says of its refusal is shown, in characters.
const LONGEST_REFUSAL: usize = 300;

/// Has every sample of this process use the kubeconfigs in a file, as the injector writes them, and no others; without a file, none. A second
/// call does nothing.
///
/// # Errors
/// When it cannot be read.
pub fn take_over(file: Option<File>) -> io::Result<()> {
    let mut text = Vec::new();
    if let Some(mut file) = file {
        file.read_to_end(&mut text)?;
    }
    let given = if text.is_empty() { BTreeMap::new() } else { serde_json::from_slice(&text)? };
    let _ = GIVEN.set(given);
    Ok(())
}

/// What there is at the place of a resource.
#[derive(Debug, PartialEq)]
enum Found<'a> {
    Nothing,
    Resource(&'a Value),
}

impl Kind {
    /// Where the API has them: the group, and the name of all of the kind.
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::Pod => ("api/v1", "pods"),
            Self::Service => ("api/v1", "services"),
            Self::Node => ("api/v1", "nodes"),
            Self::Deployment => ("apis/apps/v1", "deployments"),
            Self::StatefulSet => ("apis/apps/v1", "statefulsets"),
            Self::DaemonSet => ("apis/apps/v1", "daemonsets"),
            Self::Job => ("apis/batch/v1", "jobs"),
        }
    }
}

impl Resource {
    pub(super) async fn ask(&self, limit: Duration) -> Seen {
        let question = self.clone();
        let asked = http::carry(move || question.prepare(limit), &[200, 404], limit).await;
        let Some(answer) = asked.answer else { return asked };
        match self.found(&answer) {
            Ok(found) => self.judge(&found),
            Err(problem) => Seen::nothing(problem),
        }
    }

    /// The request, and who makes it.
    fn prepare(&self, limit: Duration) -> Result<(Request, ureq::Agent), String> {
        let access = self.access().map_err(|problem| format!("kubeconfig {}: {problem}", self.kubeconfig))?;
        let mut headers = vec![("Accept".to_owned(), "application/json".to_owned())];
        headers
            .extend(access.token.iter().map(|token| ("Authorization".to_owned(), format!("Bearer {token}"))));
        let request = Request { url: self.url(&access), headers, ..Request::default() };
        let config = identity::config(&access)?;
        Ok((request, http::client(limit).tls_config(config).build().new_agent()))
    }

    fn access(&self) -> Result<Access, String> {
        let context = self.context.as_deref();
        match GIVEN.get() {
            None => Kubeconfig::read(Path::new(&self.kubeconfig), &own)?.access(context).cloned(),
            Some(given) => match given.get(&self.kubeconfig) {
                Some(kubeconfig) => kubeconfig.as_ref().map_err(Clone::clone)?.access(context).cloned(),
                None => Err("it was not there when the daemon was started".to_owned()),
            },
        }
    }

    fn url(&self, access: &Access) -> String {
        let (group, all) = self.kind.place();
        let namespace = match self.kind {
            Kind::Node => String::new(),
            _ => format!("/namespaces/{}", self.namespace(access)),
        };
        format!("{}/{group}{namespace}/{all}/{}", access.server, self.name)
    }

    fn namespace<'a>(&'a self, access: &'a Access) -> &'a str {
        self.namespace.as_deref().or(access.namespace.as_deref()).unwrap_or("default")
    }

    /// What an answer says that there is. That there is nothing has to be said by an API server, of this very name.
    fn found<'a>(&self, answer: &'a Value) -> Result<Found<'a>, String> {
        let (status, body) = (answer["status"].as_u64().unwrap_or_default(), &answer["body"]);
        if body.is_null() {
            return Err(format!("an answer of more than {} KiB", LARGEST_BODY / 1024));
        }
        let says = |reason: &str| body["kind"] == "Status" && body["reason"] == reason;
        match status {
            200 if body["metadata"]["name"] == self.name.as_str() => Ok(Found::Resource(body)),
            404 if says("NotFound") && body["details"]["name"] == self.name.as_str() => Ok(Found::Nothing),
            401 => {
                Err("status 401: the API server does not accept the credential of the kubeconfig".to_owned())
            }
            status => Err(format!("status {status}: {}", refusal(body))),
        }
    }

    fn judge(&self, found: &Found<'_>) -> Seen {
        let ready = match found {
            Found::Nothing => None,
            // Of what has no readiness nobody asks for it.
            Found::Resource(resource) => Some(ready(self.kind, resource)),
        };
        let verdict = match (self.wanted, &ready) {
            (Wanted::Absent, None) => Ok("absent".to_owned()),
            (_, None) => Err("absent".to_owned()),
            (Wanted::Absent, Some(_)) => Err("present, and must not be".to_owned()),
            (Wanted::Present, Some(_)) => Ok("present".to_owned()),
            (Wanted::Ready, Some(Ok(why))) => Ok(format!("ready: {why}")),
            (Wanted::Ready, Some(Err(why))) => Err(format!("not ready: {why}")),
        };
        // Nothing else of it: a pod may have secrets among its variables.
        let answer = json!({"present": ready.is_some(), "ready": ready.as_ref().map(Result::is_ok)});
        Seen { verdict, answer: Some(answer), value: None, no_data: None }
    }
}

/// What a server says of why it does not answer, without anything that a terminal obeys.
fn refusal(body: &Value) -> String {
    let message = match body["kind"] == "Status" {
        true => body["message"].as_str().unwrap_or_default(),
        false => "not the answer of an API server",
    };
    message.chars().take(LONGEST_REFUSAL).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Terms;
    use super::*;
    use crate::host::kubeconfig::Authorities;

    fn resource(resource: &str, wanted: Wanted) -> Resource {
        let (context, namespace) = (None, None);
        Resource::parse(Terms { kubeconfig: "/etc/k", context, namespace, resource, wanted }).unwrap()
    }

    fn access(namespace: Option<&str>) -> Access {
        let namespace = namespace.map(str::to_owned);
        let (server, authorities) = ("https://127.0.0.1:6443".to_owned(), Authorities::Host);
        Access { server, authorities, namespace, token: None, certificate: None }
    }

    #[test]
    fn a_resource_has_its_place_in_the_api() {
        for (name, context, path) in [
            ("pod/a", None, "api/v1/namespaces/default/pods/a"),
            ("service/a", Some("shop"), "api/v1/namespaces/shop/services/a"),
            ("node/a.b", Some("shop"), "api/v1/nodes/a.b"),
            ("deployment/a", None, "apis/apps/v1/namespaces/default/deployments/a"),
            ("statefulset/a", None, "apis/apps/v1/namespaces/default/statefulsets/a"),
            ("daemonset/a", None, "apis/apps/v1/namespaces/default/daemonsets/a"),
            ("job/a", None, "apis/batch/v1/namespaces/default/jobs/a"),
        ] {
            let url = resource(name, Wanted::Present).url(&access(context));
            assert_eq!(url, format!("https://127.0.0.1:6443/{path}"));
        }
        let mut named = resource("pod/a", Wanted::Present);
        named.namespace = Some("own".into());
        assert!(named.url(&access(Some("shop"))).ends_with("/namespaces/own/pods/a"));
    }

    #[test]
    fn only_an_api_server_can_say_that_something_is_not_there() {
        let pod = resource("pod/a", Wanted::Absent);
        let gone = json!({"kind": "Status", "reason": "NotFound", "details": {"name": "a", "kind": "pods"}});
        assert_eq!(pod.found(&json!({"status": 404, "body": gone})), Ok(Found::Nothing));
        let there = json!({"metadata": {"name": "a"}});
        assert_eq!(pod.found(&json!({"status": 200, "body": there})), Ok(Found::Resource(&there)));
        let forbidden =
            json!({"kind": "Status", "reason": "Forbidden", "message": "pods \"a\" is forbidden\u{1b}"});
        for (status, body, said) in [
            (404, json!("404 page not found"), "not the answer of an API server"),
            (
                404,
                json!({"kind": "Status", "reason": "NotFound", "message": "no such group"}),
                "no such group",
            ),
            (200, json!({"metadata": {"name": "b"}}), "not the answer of an API server"),
            (200, json!("<html>"), "not the answer of an API server"),
            (200, Value::Null, "more than 256 KiB"),
            (401, json!({"kind": "Status"}), "does not accept the credential"),
            (403, forbidden, "pods \\\"a\\\" is forbidden\\u{1b}"),
            (503, json!(""), "status 503"),
        ] {
            let problem = pod.found(&json!({"status": status, "body": body})).unwrap_err();
            assert!(problem.contains(said), "{status}: {problem}");
        }
    }

    #[test]
    fn what_is_right_is_what_was_asked_for_and_nothing_of_a_resource_is_told() {
        let of = |status: &str| {
            json!({"metadata": {"name": "a"}, "spec": {"env": "hunter2"},
            "status": {"conditions": [{"type": "Ready", "status": status}]}})
        };
        let (ready, unready) = (of("True"), of("False"));
        for (wanted, found, verdict) in [
            (Wanted::Present, Found::Resource(&unready), Ok("present")),
            (Wanted::Present, Found::Nothing, Err("absent")),
            (Wanted::Absent, Found::Nothing, Ok("absent")),
            (Wanted::Absent, Found::Resource(&ready), Err("present, and must not be")),
            (Wanted::Ready, Found::Resource(&ready), Ok("ready: Ready is True")),
            (Wanted::Ready, Found::Resource(&unready), Err("not ready: Ready is False")),
            (Wanted::Ready, Found::Nothing, Err("absent")),
        ] {
            let seen = resource("pod/a", wanted).judge(&found);
            assert!(!seen.answer.unwrap().to_string().contains("hunter2"));
            assert_eq!(seen.verdict.as_deref().map_err(String::as_str), verdict);
        }
    }
}
