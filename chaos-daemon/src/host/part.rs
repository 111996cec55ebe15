//! The processes of this daemon, by the names that they give themselves.

/// What a thread of a holder is called that only takes up room in the table of processes.
pub const HELD_THREAD: &str = "held";

/// What a process of ours is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The injector, and `recover`.
    Injector,
    /// The unprivileged server.
    Server,
    /// Takes samples for the server.
    Prober,
    /// Runs programs for the server, with those that it starts itself for each.
    Runner,
    /// A fault, or the keeper of the packet hooks.
    Holder,
    /// The guard.
    Guard,
}

impl Part {
    /// Every one.
    pub const ALL: &[Self] =
        &[Self::Injector, Self::Server, Self::Prober, Self::Runner, Self::Holder, Self::Guard];

    /// The name, of at most 15 bytes, so that the kernel keeps all of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Injector => "chaos-daemon",
            Self::Server => "chaos-server",
            Self::Prober => "chaos-prober",
            Self::Runner => "chaos-runner",
            Self::Holder => "chaos-holder",
            Self::Guard => "chaos-guard",
        }
    }

    /// Which part calls itself so. Anybody can take a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|part| part.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_known_by_a_name_that_the_kernel_keeps() {
        for part in Part::ALL {
            assert!(part.name().len() <= 15, "{part:?}");
            assert_eq!(Part::named(part.name()), Some(*part));
        }
        assert_eq!(Part::named("chaos-guardian"), None);
    }
}
