//! What can be tried on a service, and which of it answers a reason.

use std::net::IpAddr;

use crate::{Dependency, Service};

/// What is to be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trial {
    /// The experiment of this run once more: at its next stage, if it has stages.
    Again(String),
    /// Its processes stand still for a while.
    Pause,
    /// Its processes are killed, as the kernel does for want of memory.
    Kill,
    /// Its service manager restarts it.
    Restart,
    /// Half of its memory is taken.
    TakeMemory,
    /// Its share of the processors is taken.
    TakeCpu,
    /// It cannot accept connections for want of descriptors.
    FailAccept,
    /// It cannot write to files of this folder, as on a full disk.
    FailWrites(String),
    /// Sessions to it are opened and held.
    HoldSessions(IpAddr, u16),
    /// It cannot get to somebody.
    Partition(IpAddr, u16),
    /// Somebody answers it late.
    Slow(IpAddr, u16),
}

impl Trial {
    /// The type of its fault; none of one that is another's.
    pub fn kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::Again(_) => return None,
            Self::Pause => "process_pause",
            Self::Kill => "process_kill",
            Self::Restart => "service_restart",
            Self::TakeMemory | Self::TakeCpu => "resource_exhaustion",
            Self::FailAccept => "socket_error",
            Self::FailWrites(_) => "file_error",
            Self::HoldSessions(..) => "connection_load",
            Self::Partition(..) => "network_partition",
            Self::Slow(..) => "latency",
        })
    }
}

/// Everything that could be tried on a service, the mildest kinds first.
pub(crate) fn all(service: &Service) -> Vec<Trial> {
    let mut all = vec![Trial::Pause];
    all.extend(service.dependencies.iter().flat_map(of_dependency));
    all.extend(service.listens.iter().map(|(address, port)| Trial::HoldSessions(*address, *port)));
    if !service.listens.is_empty() {
        all.push(Trial::FailAccept);
    }
    all.extend(service.writes.clone().map(Trial::FailWrites));
    all.push(Trial::TakeMemory);
    all.extend(kill(service));
    all.extend(service.managed.then_some(Trial::Restart));
    all
}

/// A kill, of what comes back: of what does not, it would only be the end.
pub(crate) fn kill(service: &Service) -> Option<Trial> {
    let comes_back = service.supervised || service.restarts > 0 || service.oom_kills > 0;
    comes_back.then_some(Trial::Kill)
}

fn of_dependency(dependency: &Dependency) -> [Trial; 2] {
    let Dependency { address, port, .. } = *dependency;
    [Trial::Partition(address, port), Trial::Slow(address, port)]
}

/// Whom it needs and what was never failed, the one with most connections first.
pub(crate) fn unfailed(service: &Service) -> Vec<&Dependency> {
    let mut unfailed: Vec<_> = service.dependencies.iter().filter(|it| !it.failed_before).collect();
    unfailed.sort_by_key(|it| (std::cmp::Reverse(it.connections), it.address, it.port));
    unfailed
}

/// What would try it on those whom it needs.
pub(crate) fn on_dependencies(service: &Service) -> Vec<Trial> {
    unfailed(service).into_iter().flat_map(of_dependency).collect()
}

/// Kinds that could be tried, and were not.
pub(crate) fn untested(service: &Service) -> Vec<Trial> {
    let was_tried = |kind: &str| service.tried.iter().any(|run| run.kinds.iter().any(|it| it == kind));
    let mut trials = all(service);
    trials.retain(|trial| trial.kind().is_some_and(|kind| !was_tried(kind)));
    trials
}

/// What tries a type of fault on a service.
pub fn of_kind(service: &Service, kind: &str) -> Vec<Trial> {
    all(service).into_iter().filter(|trial| trial.kind() == Some(kind)).collect()
}
