//! From what was seen of services, of their logs and of runs to the facts of advice. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use chaos_advise::{Dependency, Errors, Likeness, Outcome, Service, Stage, Tried};
use ipnet::IpNet;

use super::looks::Known;
use crate::experiment::Verdict;
use crate::request::services::{Peer, ServiceSeen};
use crate::server::history::tried::Past;
use crate::spec::category::Category;
use crate::spec::{FaultType, PortText, Ports, TargetRequest};

/// Two services that are less alike than this are not told to be.
const ALIKE: f64 = 0.5;

/// The facts of each service.
pub(super) fn facts(
    seen: &[ServiceSeen],
    known: impl Fn(&str) -> Known,
    errors: impl Fn(&str) -> Option<Errors>,
    past: &[Past],
    now_ms: i64,
) -> Vec<Service> {
    let mut all: Vec<_> = seen
        .iter()
        .map(|service| {
            let name = service.name();
            let Known { looks, restarts } = known(&name);
            let about: Vec<_> = past.iter().filter(|run| is_about(run, service)).collect();
            Service {
                looks,
                restarts: restarts.max(service.restarts.unwrap_or_default()),
                oom_kills: service.oom_kills,
                errors: errors(&name),
                dependencies: service.peers.iter().map(|peer| dependency(peer, service, past)).collect(),
                listens: service.listens.clone(),
                writes: service.writes.clone(),
                managed: service.restarts.is_some(),
                supervised: service.supervised,
                tried: about.into_iter().map(|run| tried(run, now_ms)).collect(),
                likeness: None,
                name,
            }
        })
        .collect();
    for index in 0..all.len() {
        all[index].likeness = likeness(index, seen, &all);
    }
    all
}

/// Whether a run had a fault that was aimed at this service.
fn is_about(run: &Past, service: &ServiceSeen) -> bool {
    run.faults.iter().any(|(_, target)| is_aimed_at(target, service))
}

fn is_aimed_at(target: &TargetRequest, service: &ServiceSeen) -> bool {
    let same = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
    let own = &service.target;
    let is_container =
        own.container.as_ref().zip(target.container.as_ref()).is_some_and(|(own, it)| it.starts_with(own));
    same(&target.unit, &own.unit) || same(&target.cgroup, &own.cgroup) || is_container
}

fn outcome(verdict: Option<Verdict>) -> Outcome {
    match verdict {
        Some(Verdict::Held) => Outcome::Held,
        Some(Verdict::Deviated | Verdict::Tripped) => Outcome::Broke,
        _ => Outcome::Nothing,
    }
}

fn tried(run: &Past, now_ms: i64) -> Tried {
    Tried {
        run_id: run.run_id.clone(),
        experiment: run.experiment.clone(),
        kinds: run.faults.iter().map(|(kind, _)| kind.clone()).collect(),
        seconds_ago: (now_ms - run.started_ms).max(0) as f64 / 1000.0,
        outcome: outcome(run.verdict),
        stage: run.stage.map(|stage| Stage(stage.percent())),
        alerted: run.alerted,
    }
}

fn dependency(peer: &Peer, service: &ServiceSeen, past: &[Past]) -> Dependency {
    let has_failed = |run: &Past| {
        outcome(run.verdict) != Outcome::Nothing
            && run.faults.iter().any(|(kind, target)| fails(kind, target, peer, service))
    };
    Dependency {
        address: peer.address,
        port: peer.port,
        connections: peer.connections,
        failed_before: past.iter().any(has_failed),
    }
}

/// Whether a fault was about what a service says to this peer.
fn fails(kind: &str, target: &TargetRequest, peer: &Peer, service: &ServiceSeen) -> bool {
    let is_of_network =
        FaultType::parse(kind).is_ok_and(|kind| kind.categories().contains(&Category::Network));
    let names_other = (target.unit.is_some() || target.cgroup.is_some() || target.container.is_some())
        && !is_aimed_at(target, service);
    if !is_of_network || names_other || target.host.is_some() || target.local_port.is_some() {
        return false;
    }
    let mut prefixes = target.cidr.iter().chain(&target.cidrs).peekable();
    let somewhere = prefixes.peek().is_none() && (is_aimed_at(target, service) || target.interface.is_some());
    let covers = |text: &String| prefix(text).is_some_and(|net| net.contains(&peer.address));
    // One that is over the loopback is met only by who names it.
    let there = prefixes.any(covers) || somewhere && !peer.address.is_loopback();
    let ports = [&target.port, &target.remote_port];
    let has_port = |text: &PortText| {
        let range = Ports::try_from(text.clone()).map(Ports::range);
        range.is_ok_and(|range| (range.first..=range.last).contains(&peer.port))
    };
    there && ports.into_iter().flatten().all(has_port)
}

fn prefix(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Of others that broke and have not held since, the one that a service is most like, by a kind of fault that it has not met.
fn likeness(index: usize, seen: &[ServiceSeen], all: &[Service]) -> Option<Likeness> {
    let (own, facts) = (features(&seen[index]), &all[index]);
    let was_tried = |kind: &String| facts.tried.iter().any(|run| run.kinds.contains(kind));
    let others = seen.iter().zip(all).enumerate().filter(|(other, _)| *other != index);
    let broken = others.flat_map(|(_, (other, theirs))| {
        let similarity = similarity(&own, &features(other));
        let broke = theirs.tried.iter().filter(|run| run.outcome == Outcome::Broke);
        broke.flat_map(move |run| {
            run.kinds.iter().map(move |kind| (similarity, run.run_id.clone(), kind.clone()))
        })
    });
    let alike = broken.filter(|(similarity, _, kind)| *similarity >= ALIKE && !was_tried(kind));
    let most = alike.max_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
    most.map(|(similarity, run_id, kind)| Likeness { run_id, kind, similarity })
}

/// What two services can have in common.
fn features(service: &ServiceSeen) -> BTreeSet<String> {
    let programs = service.programs.iter().map(|program| format!("runs {program}"));
    let peers = service.peers.iter().map(|peer| format!("needs {} {}", peer.address, peer.port));
    programs.chain(peers).collect()
}

/// What both have, of all that either has (Jaccard).
fn similarity(one: &BTreeSet<String>, other: &BTreeSet<String>) -> f64 {
    let all = one.union(other).count();
    one.intersection(other).count() as f64 / all.max(1) as f64
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
