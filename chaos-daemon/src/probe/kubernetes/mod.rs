//! Whether a resource of a Kubernetes cluster is there, or ready: one question to its API server, with a kubeconfig.
//!
//! A kubeconfig is a credential. In the daemon the policy names it, the injector reads it and hands it to the prober when that is started
//! (`injector/kubeconfigs.rs`); the server, with which callers speak, never has it. `chaosctl probe` reads it itself.

#[cfg(feature = "kubernetes")]
mod api;
#[cfg(feature = "kubernetes")]
mod identity;
#[cfg(feature = "kubernetes")]
mod ready;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Sampler, Seen};
use crate::spec::SpecError;

#[cfg(feature = "kubernetes")]
pub use api::take_over;

/// Names of the kinds of resources that can be asked for.
pub const KINDS: &[(&str, Kind)] = &[
    ("pod", Kind::Pod),
    ("deployment", Kind::Deployment),
    ("statefulset", Kind::StatefulSet),
    ("daemonset", Kind::DaemonSet),
    ("job", Kind::Job),
    ("service", Kind::Service),
    ("node", Kind::Node),
];

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Of the core.
    Pod,
    /// Of apps/v1.
    Deployment,
    /// Of apps/v1.
    StatefulSet,
    /// Of apps/v1.
    DaemonSet,
    /// Of batch/v1.
    Job,
    /// Of the core.
    Service,
    /// Of the core, and of no namespace.
    Node,
}

/// What is right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// That it is there.
    #[default]
    Present,
    /// That it is not.
    Absent,
    /// That it is there, and ready.
    Ready,
}

/// A resource, where it is asked for, and what of it is right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    kubeconfig: String,
    context: Option<String>,
    namespace: Option<String>,
    kind: Kind,
    name: String,
    wanted: Wanted,
}

/// A question as a command line has it.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// Path of a kubeconfig.
    pub kubeconfig: &'a str,
    /// A context of it; the current one.
    pub context: Option<&'a str>,
    /// Namespace; that of the context, or `default`.
    pub namespace: Option<&'a str>,
    /// `KIND/NAME`
    pub resource: &'a str,
    /// What is right.
    pub wanted: Wanted,
}

impl Resource {
    /// Understands a question.
    ///
    /// # Errors
    /// Names what makes no sense.
    #[cfg(feature = "kubernetes")]
    pub fn parse(terms: Terms<'_>) -> Result<Self, SpecError> {
        let Terms { kubeconfig, context, namespace, resource, wanted } = terms;
        if !crate::host::program::is_plain(kubeconfig) {
            let problem = format!(
                "{kubeconfig:?} is not an absolute path without detours: give e.g. \"/etc/chaos-daemon/kubeconfig\""
            );
            return Err(SpecError::new("--kubeconfig", problem));
        }
        let (kind, name) = resource.split_once('/').unwrap_or((resource, ""));
        let known = KINDS.iter().find(|(known, _)| *known == kind).map(|(_, kind)| *kind);
        let kind = known.ok_or_else(|| {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            SpecError::new("KIND/NAME", format!("{kind:?} is not one of {}", names.join(", ")))
        })?;
        if !is_name(name, 253, true) {
            let problem = format!("{name:?} is no name of a resource: give e.g. pod/payment-0");
            return Err(SpecError::new("KIND/NAME", problem));
        }
        if let Some(odd) = namespace.filter(|namespace| !is_name(namespace, 63, false)) {
            return Err(SpecError::new("--namespace", format!("{odd:?} is no name of a namespace")));
        }
        if kind == Kind::Node && namespace.is_some() {
            return Err(SpecError::new("--namespace", "a node is in none"));
        }
        if kind == Kind::Service && wanted == Wanted::Ready {
            return Err(SpecError::new(
                "--ready",
                "a service has no readiness: give --present, or ask for its pods",
            ));
        }
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Ok(Self {
            kubeconfig: kubeconfig.to_owned(),
            context: owned(context),
            namespace: owned(namespace),
            kind,
            name: name.to_owned(),
            wanted,
        })
    }
}

/// Why nothing is asked by a build without the feature.
#[cfg(not(feature = "kubernetes"))]
const WITHOUT: &str = "this build has no probes of Kubernetes: build it with the feature \"kubernetes\"";

#[cfg(not(feature = "kubernetes"))]
impl Resource {
    /// Understands no question.
    ///
    /// # Errors
    /// Always.
    pub fn parse(_: Terms<'_>) -> Result<Self, SpecError> {
        Err(SpecError::new("kubernetes", WITHOUT))
    }

    /// Of a document that another build has understood.
    async fn ask(&self, _: Duration) -> Seen {
        Seen::nothing(WITHOUT.to_owned())
    }
}

/// Nothing is used.
///
/// # Errors
/// Never.
#[cfg(not(feature = "kubernetes"))]
pub fn take_over(_: Option<std::fs::File>) -> std::io::Result<()> {
    Ok(())
}

/// Whether `name` is one by RFC 1123: a label, or several with dots between them.
#[cfg(feature = "kubernetes")]
fn is_name(name: &str, longest: usize, dots: bool) -> bool {
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= longest && if dots { name.split('.').all(is_label) } else { is_label(name) }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KINDS.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name))
    }
}

impl Sampler for Resource {
    async fn take(&self, limit: Duration) -> Seen {
        self.ask(limit).await
    }

    fn measures_time(&self) -> bool {
        true
    }

    fn kubeconfig(&self) -> Option<&str> {
        Some(&self.kubeconfig)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} by {}", self.kind, self.name, self.kubeconfig)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms<'a>(resource: &'a str, namespace: Option<&'a str>) -> Terms<'a> {
        Terms { kubeconfig: "/etc/k", context: None, namespace, resource, wanted: Wanted::Ready }
    }

    #[cfg(feature = "kubernetes")]
    #[test]
    fn what_makes_no_sense_is_named() {
        let field = |terms| Resource::parse(terms).unwrap_err().field;
        for resource in [
            "", "pod", "pod/", "secret/a", "pods/a", "Pod/a", "pod/A", "pod/a/b", "pod/../a", "pod/a?b",
            "pod/-a", "pod/a..b",
        ] {
            assert_eq!(field(terms(resource, None)), "KIND/NAME", "{resource}");
        }
        let long = format!("pod/{}", "a".repeat(254));
        assert_eq!(field(terms(&long, None)), "KIND/NAME");
        for namespace in ["", "a.b", "A", "../a", "a/b"] {
            assert_eq!(field(terms("pod/a", Some(namespace))), "--namespace", "{namespace}");
        }
        assert_eq!(field(terms("node/a", Some("b"))), "--namespace");
        assert_eq!(field(terms("service/a", None)), "--ready");
        for kubeconfig in ["", "k", "~/.kube/config", "/etc/../k", "/etc//k"] {
            assert_eq!(field(Terms { kubeconfig, ..terms("pod/a", None) }), "--kubeconfig", "{kubeconfig}");
        }
        for resource in ["pod/payment-0", "deployment/a.b-c.7", "node/10-0-0-1.test"] {
            assert!(Resource::parse(terms(resource, None)).is_ok(), "{resource}");
        }
    }

    #[cfg(not(feature = "kubernetes"))]
    #[test]
    fn a_build_without_it_says_so() {
        let refused = Resource::parse(terms("pod/a", None)).unwrap_err();
        assert_eq!(refused.field, "kubernetes");
    }
}
