//! The document by which something is tried on a service: small, and with a steady state, a gate and an end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use chaos_advise::Trial;
use serde_json::{Map, Value, json};

use crate::experiment::EXTENSION;
use crate::request::services::{Peer, ServiceSeen};

/// How many sessions are held.
const SESSIONS: u32 = 20;

/// The document of a trial of this service; none of what is another's document, or would go nobody knows where.
pub(super) fn document(service: &ServiceSeen, trial: &Trial, why: &str) -> Option<Map<String, Value>> {
    let kind = trial.kind()?;
    let name = service.name();
    let (parameters, seconds) = fault(service, trial)?;
    let mut arguments = Map::from_iter([("inject".to_owned(), json!(kind))]);
    if !matches!(trial, Trial::HoldSessions(..)) {
        arguments.extend(target(service));
    }
    arguments.extend(parameters);
    arguments.insert("--for".to_owned(), json!(format!("{}s", seconds * 2)));
    let document = json!({
        "title": title(trial, &name),
        "description": format!("Advised, since {name} {why}"),
        "tags": ["advice"],
        "steady-state-hypothesis": {"title": format!("{name} is up"), "probes": steady_state(service)},
        "method": [{"type": "action", "name": kind, "provider": chaosctl(Value::Object(arguments)), "pauses": {"after": seconds}}],
        "rollbacks": [],
        "extensions": [{
            "name": EXTENSION,
            "rollback_on": [{"name": "its processes are gone", "provider": runs(service), "tolerance": 0, "alertAfter": "20s"}],
            "abort_when": [{"not_recovered_within": "1m"}],
        }],
    });
    match document {
        Value::Object(document) => Some(document),
        _ => None,
    }
}

fn title(trial: &Trial, name: &str) -> String {
    match trial {
        Trial::Again(_) | Trial::Pause => format!("advised: {name} stands still for a while"),
        Trial::Kill => format!("advised: {name} is killed"),
        Trial::Restart => format!("advised: {name} is restarted"),
        Trial::TakeMemory => format!("advised: {name} is short of memory"),
        Trial::TakeCpu => format!("advised: {name} is short of processors"),
        Trial::FailAccept => format!("advised: {name} is out of descriptors"),
        Trial::FailWrites(_) => format!("advised: {name} finds its disk full"),
        Trial::HoldSessions(..) => format!("advised: sessions of {name} are held"),
        Trial::Partition(address, port) => format!("advised: {name} without {address} port {port}"),
        Trial::Slow(address, port) => format!("advised: {name} with a slow {address} port {port}"),
    }
}

/// The parameters of the fault, and for how many seconds it is kept; none where it is not known where it would go.
fn fault(service: &ServiceSeen, trial: &Trial) -> Option<(Map<String, Value>, u32)> {
    let peer = |address: &IpAddr, port: &u16| json!({"--cidr": address.to_string(), "--protocol": "tcp", "--remote-port": port});
    let (parameters, seconds) = match trial {
        Trial::Again(_) | Trial::Pause => (json!({}), 5),
        Trial::Kill => (json!({"--signal": "SIGKILL"}), 20),
        Trial::Restart => (json!({}), 20),
        Trial::TakeMemory => (json!({"--resource": "memory", "--memory-percent": 50}), 20),
        Trial::TakeCpu => (json!({"--resource": "cpu", "--cpu-percent": 80}), 20),
        Trial::FailAccept => (json!({"--operations": "accept", "--errno": "too_many_open_files"}), 10),
        Trial::FailWrites(folder) => {
            (json!({"--path": folder, "--operations": "write", "--errno": "no_space"}), 10)
        }
        Trial::HoldSessions(address, port) => {
            let url = format!("tcp://{}", at(*address, *port));
            let sessions = SESSIONS.max(service.sessions);
            (json!({"--url": url, "--sessions": sessions}), 20)
        }
        Trial::Partition(address, port) => (peer(address, port), 20),
        Trial::Slow(address, port) => {
            let is_it = |peer: &&Peer| (&peer.address, &peer.port) == (address, port);
            let interface = service.peers.iter().find(is_it)?.interface.as_ref()?;
            let mut slow = peer(address, port);
            slow["--interface"] = json!(interface);
            slow["--delay"] = json!("300ms");
            (slow, 20)
        }
    };
    match parameters {
        Value::Object(parameters) => Some((parameters, seconds)),
        _ => None,
    }
}

/// Its options as a target.
fn target(service: &ServiceSeen) -> Map<String, Value> {
    let own = &service.target;
    let options = [("--unit", &own.unit), ("--cgroup", &own.cgroup), ("--container", &own.container)];
    options
        .into_iter()
        .filter_map(|(option, value)| Some((option.to_owned(), json!(value.as_ref()?))))
        .collect()
}

fn chaosctl(arguments: Value) -> Value {
    json!({"type": "process", "path": "chaosctl", "arguments": arguments})
}

/// That its processes run.
fn runs(service: &ServiceSeen) -> Value {
    let options = target(service).into_iter().flat_map(|(option, value)| [json!(option), value]);
    chaosctl(json!([json!("probe"), json!("process")].into_iter().chain(options).collect::<Vec<_>>()))
}

/// That its processes run, and where it accepts connections, that it does.
fn steady_state(service: &ServiceSeen) -> Vec<Value> {
    let probe = |name: &str, provider: Value| json!({"type": "probe", "name": name, "tolerance": 0, "provider": provider});
    let mut probes = vec![probe("its processes run", runs(service))];
    if let Some((address, port)) = service.listens.first() {
        let arguments = json!(["probe", "tcp", at(*address, *port)]);
        probes.push(probe("it accepts connections", chaosctl(arguments)));
    }
    probes
}

/// Where whoever listens at all addresses is reached from here.
fn at(address: IpAddr, port: u16) -> String {
    let address = match address {
        IpAddr::V4(all) if all.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(all) if all.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    };
    std::net::SocketAddr::new(address, port).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::experiment::variables::Nowhere;
    use crate::spec::TargetRequest;

    #[test]
    fn whatever_is_tried_on_whichever_target_is_an_experiment_that_is_understood() {
        let near = IpAddr::from([10, 0, 0, 5]);
        let trials = [
            Trial::Pause,
            Trial::Kill,
            Trial::TakeMemory,
            Trial::TakeCpu,
            Trial::FailAccept,
            Trial::FailWrites("/srv/data".to_owned()),
            Trial::HoldSessions(Ipv4Addr::UNSPECIFIED.into(), 80),
            Trial::Partition(near, 5432),
            Trial::Slow(near, 5432),
        ];
        let unit = TargetRequest { unit: Some("a.service".into()), ..TargetRequest::default() };
        let cgroup = TargetRequest { cgroup: Some("a/b".into()), ..TargetRequest::default() };
        let container = TargetRequest { container: Some("0123456789ab".into()), ..TargetRequest::default() };
        let mut all: Vec<_> = trials
            .iter()
            .flat_map(|trial| [&unit, &cgroup, &container].map(|target| (trial.clone(), target.clone())))
            .collect();
        all.push((Trial::Restart, unit));
        for (trial, target) in all {
            let peer = Peer { address: near, port: 5432, connections: 1, interface: Some("eth0".to_owned()) };
            let listens = vec![(Ipv6Addr::UNSPECIFIED.into(), 80)];
            let service = ServiceSeen { target, listens, peers: vec![peer], ..ServiceSeen::default() };
            let document = document(&service, &trial, "leaks").unwrap();
            let experiment = Experiment::parse(&document, &Nowhere);
            let experiment = experiment.unwrap_or_else(|error| panic!("{trial:?}: {error}: {document:#?}"));
            let kinds: Vec<_> = experiment.faults().map(|(_, _, fault)| fault.fault_type.name()).collect();
            assert_eq!(kinds, [trial.kind().unwrap()]);
            for (_, _, fault) in experiment.faults() {
                fault.parse().unwrap_or_else(|error| panic!("{trial:?}: {error}"));
            }
        }
    }

    #[test]
    fn whoever_listens_everywhere_is_asked_on_the_loopback() {
        assert_eq!(at(Ipv4Addr::UNSPECIFIED.into(), 80), "127.0.0.1:80");
        assert_eq!(at(Ipv6Addr::UNSPECIFIED.into(), 80), "[::1]:80");
        assert_eq!(at(IpAddr::from([10, 0, 0, 5]), 80), "10.0.0.5:80");
    }
}
