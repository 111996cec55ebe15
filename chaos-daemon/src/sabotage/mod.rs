//! Builds with one guard taken out, so that tests can prove that they would notice. Only builds with the feature
//! `sabotage` do anything of this; in all others [`without`] is always false, and the environment is not looked at.
//!
//! A place that keeps a guard asks `sabotage::without(Guard::…)`, on one line. Which tests have to notice which
//! guard's absence is in `tests/src/sabotage.rs`; `cargo xtask test --only sabotage` sees to it that they do.

#[cfg(feature = "sabotage")]
mod active;
#[cfg(not(feature = "sabotage"))]
mod inactive;

#[cfg(feature = "sabotage")]
pub use active::{PINS, VARIABLE, check, fork, pin, without};
#[cfg(not(feature = "sabotage"))]
pub use inactive::{check, fork, pin, without};

macro_rules! guards {
    ($($(#[$doc:meta])* $guard:ident = $absence:literal),* $(,)?) => {
        /// Something that keeps the promise that every fault ends. One of them can be taken out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Guard {
            $($(#[$doc])* $guard),*
        }

        impl Guard {
            /// Every guard.
            pub const ALL: &[Self] = &[$(Self::$guard),*];

            /// What a build without it is called.
            pub const fn absence(self) -> &'static str {
                match self {
                    $(Self::$guard => $absence),*
                }
            }
        }
    };
}

guards! {
    /// A link lives by its descriptors alone: nothing is pinned.
    NoPins = "links-pinned",
    /// What makes packets meet a fault comes after everything that they need on their way.
    ArmLast = "armed-before-its-plumbing",
    /// A holder has no child, which would keep its links.
    NoFork = "holder-forks",
    /// Programs and burners stop by themselves when the lease is over.
    Deadline = "no-deadline",
    /// The kernel kills a holder some time after its fault's end, also when it is stopped.
    Timer = "no-timer",
    /// A filter, which nothing removes by itself, only jumps through a program array of its holder.
    Stub = "stub-left-out",
    /// Packets stop being sent to a device before the device goes.
    DisarmFirst = "device-removed-before-its-filter",
    /// Children die with the injector, by the kernel's doing.
    DeathSignal = "no-parent-death-signal",
    /// Protected traffic is spared.
    Exclusions = "exclusion-map-empty",
    /// Somebody beside the daemon ends what outlives it.
    GuardUnit = "no-guard-unit",
}

/// The environment names no guard.
#[derive(Debug, thiserror::Error)]
#[error("there is no sabotage called {0:?}; known are {known}", known = names())]
pub struct UnknownSabotage(pub String);

fn names() -> String {
    Guard::ALL.iter().map(|guard| guard.absence()).collect::<Vec<_>>().join(", ")
}
