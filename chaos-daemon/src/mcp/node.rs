//! `chaos_node`: what there is to know of this host, and of the caller, before anything is tried.

use std::net::SocketAddr;
use std::sync::LazyLock;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::control::FactView;
use super::results::{Failure, says_its_error};
use super::schema::object;
use super::tool::{Call, Hints, Tool};
use crate::experiment::hub;
use crate::experiment::stage::STAGES;
use crate::request::fields::Fields;
use crate::request::host_targets::InterfaceTarget;
use crate::request::leave::Leave;
use crate::request::services::{Peer, ServiceSeen};
use crate::request::{Ability, ApiError};
use crate::server::service::Node;
use crate::spec::TargetRequest;

/// How many interfaces, and how many services, are told.
const MOST: usize = 12;

/// Whether one type of fault can be here.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KindView {
    /// Type.
    pub(crate) fault_type: String,
    /// Whether this kernel can do it.
    pub(crate) possible: bool,
    /// What of the kernel is missing, if something is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
    /// Parts of it that this kernel cannot do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) without: Vec<String>,
    /// Whether the policy lets you inject it.
    pub(crate) allowed: bool,
    /// By which rule it does not.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<String>,
}

/// A service that faults may go to.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ServiceView {
    /// The fields of a target that mean it: unit, container or cgroup.
    pub(crate) target: TargetRequest,
    /// Names of some of its programs.
    pub(crate) programs: Vec<String>,
    /// Where it accepts TCP connections, ADDRESS:PORT.
    pub(crate) listens: Vec<String>,
    /// Whom it is connected to: what it depends on, such as its database.
    pub(crate) peers: Vec<PeerView>,
}

/// Whom a service is connected to.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PeerView {
    /// Address, for `cidr`.
    pub(crate) address: String,
    /// Port, for `remote_port`.
    pub(crate) port: u16,
    /// The interface by which packets get there, for `interface`, if that is known.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interface: Option<String>,
}

/// An experiment that is built in, to be described, changed and registered.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TemplateView {
    /// Its name, for chaos_describe_experiment.
    pub(crate) experiment_name: String,
    /// What it is about.
    pub(crate) title: String,
    /// Types of its faults.
    pub(crate) fault_types: Vec<String>,
}

/// Result of `chaos_node`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct NodeOutput {
    /// Who you are, and what the policy lets you.
    #[schemars(with = "Leave")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) you: Option<Leave>,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Version of the daemon.
    pub(crate) version: String,
    /// Facts about host and daemon.
    pub(crate) facts: Vec<FactView>,
    /// Each type of fault: whether the kernel can do it, and whether the policy allows it.
    pub(crate) faults: Vec<KindView>,
    /// The stages of a blast radius, in percent: none is left out.
    pub(crate) stages: Vec<u8>,
    /// Services that faults may go to; those that are connected to somebody first.
    pub(crate) services: Vec<ServiceView>,
    /// Interfaces; those of this host's own network first.
    pub(crate) interfaces: Vec<InterfaceTarget>,
    /// Experiments that are built in.
    pub(crate) templates: Vec<TemplateView>,
    /// What could not be looked at, and why.
    pub(crate) not_seen: Vec<String>,
    /// How many more interfaces and services there are: chaos_targets finds them by a text.
    pub(crate) more: usize,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(NodeOutput);

pub(super) struct AboutNode;

impl Tool for AboutNode {
    const NAME: &'static str = "chaos_node";
    const TITLE: &'static str = "About this node";
    const DESCRIPTION: &'static str = "Call this first. Who you are, what the policy lets you, which faults this kernel can do, the services and interfaces that can be aimed at with whom they are connected to, and the experiments that are built in.";
    const HINTS: Hints = Hints::LOOKS;
    const GIVEN_UP: bool = true;
    type Output = NodeOutput;

    fn input() -> JsonObject {
        object(json!({}), &[])
    }

    async fn carry_out(call: Call<'_>) -> Result<NodeOutput, ApiError> {
        Fields::new("", call.arguments).finish()?;
        Ok(told(call.service.node().await?))
    }
}

fn told(Node { leave, doctor, targets, services }: Node) -> NodeOutput {
    let mut not_seen = Vec::new();
    let mut more = 0;
    let mut interfaces = match targets {
        Ok(found) => {
            not_seen.extend(found.not_seen);
            found.interfaces
        }
        Err(error) => {
            not_seen.push(format!("interfaces: {}", error.in_full()));
            Vec::new()
        }
    };
    let mut services = match services {
        Ok(seen) => {
            not_seen.extend(seen.not_seen);
            more += seen.more;
            seen.services
        }
        Err(error) => {
            not_seen.push(format!("services: {}", error.in_full()));
            Vec::new()
        }
    };
    interfaces.sort_by_key(|it| (it.netns.is_some(), !it.up));
    services.sort_by_key(|it| (it.peers.is_empty(), it.listens.is_empty()));
    for left in [interfaces.len(), services.len()] {
        more += left.saturating_sub(MOST);
    }
    interfaces.truncate(MOST);
    services.truncate(MOST);
    not_seen.sort();
    not_seen.dedup();
    NodeOutput {
        kernel: doctor.kernel,
        version: doctor.version,
        facts: doctor
            .facts
            .into_iter()
            .filter(is_told_once)
            .map(|(name, value)| FactView { name, value })
            .collect(),
        faults: doctor.faults.into_iter().map(|ability| kind(ability, &leave)).collect(),
        stages: STAGES.to_vec(),
        services: services.into_iter().map(service).collect(),
        interfaces,
        templates: templates(),
        not_seen,
        more,
        you: Some(leave),
        error: None,
    }
}

/// Whether it is not in what the policy lets the caller, too.
fn is_told_once((name, _): &(String, String)) -> bool {
    !["environment", "policy"].contains(&name.as_str())
}

fn kind(ability: Ability, leave: &Leave) -> KindView {
    let name = ability.fault_type.name();
    let of_all = leave.may_not.iter().find(|forbidden| forbidden.what == "inject");
    let own = leave.forbidden_types.iter().find(|forbidden| forbidden.what == name);
    let rule = own.or(of_all).map(|forbidden| forbidden.rule.clone());
    let lacking = ability.resources.into_iter().filter(|part| !part.missing.is_empty());
    KindView {
        fault_type: name.to_owned(),
        possible: ability.missing.is_empty(),
        missing: ability.missing,
        without: lacking.map(|part| part.resource).collect(),
        allowed: rule.is_none(),
        rule,
    }
}

fn service(seen: ServiceSeen) -> ServiceView {
    let peer = |Peer { address, port, interface, .. }: Peer| PeerView {
        address: address.to_string(),
        port,
        interface,
    };
    ServiceView {
        target: seen.target,
        programs: seen.programs,
        listens: seen
            .listens
            .into_iter()
            .map(|(address, port)| SocketAddr::new(address, port).to_string())
            .collect(),
        peers: seen.peers.into_iter().map(peer).collect(),
    }
}

/// What is built in, which is read once.
fn templates() -> Vec<TemplateView> {
    static ALL: LazyLock<Vec<TemplateView>> = LazyLock::new(|| {
        let template = |entry: hub::Entry| TemplateView {
            experiment_name: entry.name,
            title: entry.title,
            fault_types: entry.faults.iter().map(|fault| fault.replace('-', "_")).collect(),
        };
        // That it can be read is tested with the hub.
        hub::entries([]).unwrap_or_default().into_iter().map(template).collect()
    });
    ALL.clone()
}
