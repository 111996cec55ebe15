//! How matrix and sweep strike a kind of fault, and the request that it makes there.

use super::aims::ToRequest;
use super::sign::{Sign, Thing};
use crate::kernel::supervised::stage::Make;

/// How a kind is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// On an interface, by the programs that the warm holder has.
    Packets(Act),
    /// On an interface, by programs of its own, for which a holder is started.
    Answers(Act),
    /// In a control group, by programs of its own.
    Calls(Act),
    /// By a holder without programs, which makes no request to the kernel of those that count.
    Plain(Act),
    /// On a stage, with a guard.
    Guarded(Make),
    /// By other tests, for this reason.
    Elsewhere(&'static str),
}

/// What is done on the bench.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Act {
    /// How it shows there.
    pub(crate) sign: Sign,
    /// The request that makes it show.
    pub(crate) request: ToRequest,
}

/// What is struck of a fault type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Struck {
    /// What it is called in reports, unless it is called after its type.
    pub(crate) name: Option<&'static str>,
    /// How it is tried.
    pub(crate) way: Way,
    /// The controllers of cgroup v2 that it needs.
    pub(crate) controllers: &'static [&'static str],
    /// Another request that the matrix makes.
    pub(crate) in_matrix: Option<ToRequest>,
    /// Whether it is looked for processes, for which files of every process of the host are opened.
    pub(crate) looks: bool,
}

const fn by(way: Way) -> Struck {
    Struck { name: None, way, controllers: &[], in_matrix: None, looks: false }
}

/// On an interface.
pub(super) const fn packets(sign: Sign, request: ToRequest) -> Struck {
    by(Way::Packets(Act { sign, request }))
}

/// On an interface, by programs of its own.
pub(super) const fn answers(sign: Sign, request: ToRequest) -> Struck {
    by(Way::Answers(Act { sign, request }))
}

/// In a control group.
pub(super) const fn calls(sign: Sign, request: ToRequest) -> Struck {
    by(Way::Calls(Act { sign, request }))
}

/// Without programs.
pub(super) const fn plain(sign: Sign, request: ToRequest) -> Struck {
    by(Way::Plain(Act { sign, request }))
}

/// Of what uses something up: at least so much.
pub(super) const fn holds(thing: Thing, least: u64, request: ToRequest) -> Struck {
    plain(Sign::Holds(thing, least), request)
}

/// With a guard.
pub(super) const fn guarded(stage: Make) -> Struck {
    by(Way::Guarded(stage))
}

/// By other tests.
pub(super) const fn elsewhere(why: &'static str) -> Struck {
    by(Way::Elsewhere(why))
}

impl Struck {
    /// By another name than that of its type.
    pub(super) const fn called(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// With another request in the matrix.
    pub(super) const fn in_matrix(self, request: ToRequest) -> Self {
        Self { in_matrix: Some(request), ..self }
    }

    /// Where there are these controllers.
    pub(super) const fn with(self, controllers: &'static [&'static str]) -> Self {
        Self { controllers, ..self }
    }

    /// Of processes that are looked for.
    pub(super) const fn of_processes(self) -> Self {
        Self { looks: true, ..self }
    }
}
