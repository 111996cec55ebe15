//! The events at which the matrix strikes, and what happens there.

use std::fmt;

use chaos_daemon::fail_point::{Action, Point, Role};

use crate::sweep::Kind;

/// An event, and what happens there.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// Who comes to it.
    pub role: Role,
    /// The point.
    pub point: Point,
    /// What happens.
    pub action: Action,
}

/// Every event of a fault's life with everything that happens there. A call before which the process dies is the one
/// before it after which it dies, so that is not told apart.
pub const EVENTS: &[Event] = &{
    use Action::{Fail, Kill, KillInjector};
    use Point::{
        AfterApplied, AfterArming, AfterCall, AfterDisarm, AfterEnding, AfterForget, AfterIntent,
        AfterRenewal, AfterUndo, BeforeApplied, BeforeArming, BeforeCall, BeforeDisarm, BeforeEnding,
        BeforeForget, BeforeIntent, BeforeRenewal, BeforeUndo,
    };
    use Role::{Holder, Injector};
    [
        event(Injector, BeforeIntent, Kill),
        event(Injector, BeforeIntent, Fail),
        event(Injector, AfterIntent, Kill),
        event(Injector, AfterIntent, Fail),
        event(Holder, BeforeArming, Kill),
        event(Holder, BeforeArming, KillInjector),
        event(Holder, BeforeArming, Fail),
        event(Holder, BeforeCall, Fail),
        event(Holder, AfterCall, Kill),
        event(Holder, AfterCall, KillInjector),
        event(Holder, AfterCall, Fail),
        event(Holder, AfterArming, Kill),
        event(Holder, AfterArming, KillInjector),
        event(Holder, AfterArming, Fail),
        event(Injector, BeforeApplied, Kill),
        event(Injector, BeforeApplied, Fail),
        event(Injector, AfterApplied, Kill),
        event(Injector, AfterApplied, Fail),
        event(Holder, BeforeRenewal, Kill),
        event(Holder, BeforeRenewal, KillInjector),
        event(Holder, BeforeRenewal, Fail),
        event(Holder, AfterRenewal, Kill),
        event(Holder, AfterRenewal, KillInjector),
        event(Holder, AfterRenewal, Fail),
        event(Injector, BeforeEnding, Kill),
        event(Injector, BeforeEnding, Fail),
        event(Injector, AfterEnding, Kill),
        event(Injector, AfterEnding, Fail),
        event(Holder, BeforeDisarm, Kill),
        event(Holder, BeforeDisarm, KillInjector),
        event(Holder, BeforeDisarm, Fail),
        event(Holder, AfterDisarm, Kill),
        event(Holder, AfterDisarm, KillInjector),
        event(Holder, AfterDisarm, Fail),
        event(Injector, BeforeUndo, Kill),
        event(Injector, BeforeUndo, Fail),
        event(Injector, AfterUndo, Kill),
        event(Injector, AfterUndo, Fail),
        event(Injector, BeforeCall, Fail),
        event(Injector, AfterCall, Kill),
        event(Injector, AfterCall, Fail),
        event(Injector, BeforeForget, Kill),
        event(Injector, BeforeForget, Fail),
        event(Injector, AfterForget, Kill),
        event(Injector, AfterForget, Fail),
    ]
};

/// The events at which whoever recovers dies: `recover`, or the guard.
pub const UNDOING: &[Point] =
    &[Point::BeforeUndo, Point::AfterUndo, Point::AfterCall, Point::BeforeForget, Point::AfterForget];

const fn event(role: Role, point: Point, action: Action) -> Event {
    Event { role, point, action }
}

/// How often a fault comes to an event, as far as it makes a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeats {
    /// At each request to the kernel.
    PerCall,
    /// At each step that is undone.
    PerStep,
    /// Once, or always in the same place.
    Not,
}

impl Event {
    /// Whether a fault comes to it more than once, each time in another place.
    pub(super) fn repeats(self) -> Repeats {
        match self.point {
            Point::BeforeCall | Point::AfterCall => Repeats::PerCall,
            Point::BeforeUndo | Point::AfterUndo => Repeats::PerStep,
            _ => Repeats::Not,
        }
    }

    pub(super) fn is_renewal(self) -> bool {
        matches!(self.point, Point::BeforeRenewal | Point::AfterRenewal)
    }

    /// Whether a fault comes to it only when it is there: what strikes then is to strike one that acts.
    pub fn is_of_active(self) -> bool {
        use Point::{
            AfterDisarm, AfterEnding, AfterForget, AfterRenewal, AfterUndo, BeforeDisarm, BeforeEnding,
            BeforeForget, BeforeRenewal, BeforeUndo,
        };
        matches!(
            self.point,
            BeforeRenewal
                | AfterRenewal
                | BeforeEnding
                | AfterEnding
                | BeforeDisarm
                | AfterDisarm
                | BeforeUndo
                | AfterUndo
                | BeforeForget
                | AfterForget
        )
    }

    /// Whether the injector dies of it.
    pub fn kills_injector(self) -> bool {
        match self.action {
            Action::Kill => self.role == Role::Injector,
            Action::KillInjector => true,
            Action::Fail => false,
        }
    }

    /// Whether every fault that can come to it must: the injector makes no request to the kernel for what dies with its
    /// holder.
    pub(super) fn must_be(self) -> bool {
        self.role == Role::Holder || self.repeats() != Repeats::PerCall
    }

    /// Whether a fault of this kind comes to it.
    pub(super) fn happens_to(self, kind: &Kind) -> bool {
        self.repeats() != Repeats::PerCall || kind.makes_requests()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.role, self.action, self.point)
    }
}
