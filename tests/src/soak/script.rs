//! What happens, in which order: a function of the seed alone, so that a seed replays exactly.

use std::collections::BTreeMap;

/// Names of faults.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A kind of fault of the soak, by what it does to the target's traffic. None that takes the host down (`host_reboot`,
/// `host_panic`): the soak would go with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Neither UDP nor TCP gets through.
    Partition,
    /// UDP does not get through.
    Timeout,
    /// TCP is answered with a reset.
    Error,
    /// Packets are late.
    Latency,
    /// Nothing happens to packets.
    Cpu,
    /// Memory is taken.
    Memory,
    /// A process stands still.
    Stillness,
    /// A process's calls fail.
    Calls,
    /// An MCP server's tools fail.
    Tools,
    /// The processes of a control group stand still, also when everybody of the daemon is dead.
    Frozen,
    /// A link that nothing else uses is down, likewise.
    Link,
}

impl Kind {
    /// Whether it outlives every process of the daemon.
    pub(super) fn is_supervised(self) -> bool {
        matches!(self, Self::Frozen | Self::Link)
    }
}

/// What there may be one of at a time.
const ALONE: [Kind; 4] = [Kind::Stillness, Kind::Tools, Kind::Frozen, Kind::Link];

/// What can happen. Those from `KillHolder` on are deaths and other blows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A fault that lasts until something ends it.
    Inject,
    /// The same once more, which is refused.
    InjectAgain,
    /// A fault becomes another under its name.
    Change,
    /// A fault of a second, beside those that last.
    Expire,
    Remove,
    StopAll,
    Wait,
    KillHolder,
    PauseHolder,
    StopHolder,
    KillServer,
    PauseServer,
    StopServer,
    KillInjector,
    PauseInjector,
    HangInjector,
    KillAll,
    KillCgroup,
    StopAndRecover,
    Terminate,
    Halt,
    KillGuard,
    StopGuard,
    PauseGuard,
    ReplaceGuard,
    KillWithGuard,
    RenameDevice,
    DeleteDevice,
    MoveDevice,
    DeleteNamespace,
    ExhaustDescriptors,
    FillJournal,
    OutOfMemory,
    FreezeFiles,
    SetClock,
}

impl Step {
    /// Whether it strikes the guard, which matters while there is something to guard.
    fn is_of_guard(self) -> bool {
        matches!(
            self,
            Self::KillGuard | Self::StopGuard | Self::PauseGuard | Self::ReplaceGuard | Self::KillWithGuard
        )
    }
}

/// What a step needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// One that nobody else uses.
    Vm,
}

/// Each with its weight.
const STEPS: &[(Step, usize, Needs)] = &[
    (Step::Inject, 90, Needs::Nothing),
    (Step::InjectAgain, 6, Needs::Nothing),
    (Step::Change, 16, Needs::Nothing),
    (Step::Expire, 10, Needs::Nothing),
    (Step::Remove, 20, Needs::Nothing),
    (Step::StopAll, 3, Needs::Nothing),
    (Step::Wait, 8, Needs::Nothing),
    (Step::KillHolder, 14, Needs::Nothing),
    (Step::PauseHolder, 5, Needs::Nothing),
    (Step::StopHolder, 4, Needs::Nothing),
    (Step::KillServer, 3, Needs::Nothing),
    (Step::PauseServer, 3, Needs::Nothing),
    (Step::StopServer, 2, Needs::Nothing),
    (Step::KillInjector, 4, Needs::Nothing),
    (Step::PauseInjector, 4, Needs::Nothing),
    (Step::HangInjector, 2, Needs::Nothing),
    (Step::KillAll, 5, Needs::Nothing),
    (Step::KillCgroup, 4, Needs::Nothing),
    (Step::StopAndRecover, 2, Needs::Nothing),
    (Step::Terminate, 2, Needs::Nothing),
    (Step::Halt, 2, Needs::Nothing),
    (Step::KillGuard, 3, Needs::Nothing),
    (Step::StopGuard, 2, Needs::Nothing),
    (Step::PauseGuard, 3, Needs::Nothing),
    (Step::ReplaceGuard, 3, Needs::Nothing),
    (Step::KillWithGuard, 4, Needs::Nothing),
    (Step::RenameDevice, 3, Needs::Nothing),
    (Step::DeleteDevice, 2, Needs::Nothing),
    (Step::MoveDevice, 2, Needs::Nothing),
    (Step::DeleteNamespace, 2, Needs::Nothing),
    (Step::ExhaustDescriptors, 2, Needs::Nothing),
    (Step::FillJournal, 5, Needs::Nothing),
    (Step::OutOfMemory, 4, Needs::Vm),
    (Step::FreezeFiles, 3, Needs::Vm),
    (Step::SetClock, 6, Needs::Vm),
];

/// What a machine can do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Abilities {
    /// It is a VM.
    pub(super) vm: bool,
    /// Packets can be delayed.
    pub(super) netem: bool,
}

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Action {
    /// What.
    pub(super) step: Step,
    /// To the fault of this name, if to one.
    pub(super) name: &'static str,
    /// Of this kind, if it is about to be.
    pub(super) kind: Kind,
    /// Whatever else is left to chance, below 1,000.
    pub(super) number: u64,
}

/// Everything that happens, one after the other, without an end.
#[derive(Debug)]
pub(super) struct Script {
    random: Random,
    steps: Vec<(Step, usize)>,
    kinds: Vec<Kind>,
    active: BTreeMap<&'static str, Kind>,
    /// What has to come before anything is left to chance; last first.
    opening: Vec<Step>,
    /// Likewise.
    first_kinds: Vec<Kind>,
}

impl Script {
    /// The script of one of so many lanes, which share out among them what has to come first: every step once, and every
    /// kind.
    pub(super) fn new(seed: u64, number: usize, of: usize, abilities: Abilities) -> Self {
        let mut kinds =
            vec![Kind::Partition, Kind::Timeout, Kind::Error, Kind::Cpu, Kind::Frozen, Kind::Link];
        if abilities.vm {
            // One lane at a time: several that look for processes all the time make this kernel stand still for seconds.
            kinds.extend([Kind::Memory, Kind::Stillness, Kind::Calls, Kind::Tools]);
        }
        if abilities.netem {
            kinds.push(Kind::Latency);
        }
        let possible = |needs| needs == Needs::Nothing || abilities.vm;
        let steps = STEPS.iter().filter(|(.., needs)| possible(*needs));
        let steps: Vec<_> = steps.map(|(step, weight, _)| (*step, *weight)).collect();
        let mut common = Random(seed);
        let share = |position: &usize| position % of.max(1) == number % of.max(1);
        let opening = common.shuffle(steps.iter().map(|(step, _)| *step).collect());
        let opening = (0..).zip(opening).filter(|(position, _)| share(position));
        let first = common.shuffle(kinds.clone());
        let first = (0..).zip(first).filter(|(position, _)| share(position));
        Self {
            // Scripts apart by more than any soak draws.
            random: Random(seed ^ (number as u64).wrapping_mul(0xd134_2543_de82_ef95)),
            opening: opening.map(|(_, step)| step).collect(),
            first_kinds: first.map(|(_, kind)| kind).collect(),
            steps,
            kinds,
            active: BTreeMap::new(),
        }
    }

    /// Nothing is active any more.
    pub(super) fn forget(&mut self) {
        self.active.clear();
    }

    pub(super) fn next(&mut self) -> Action {
        loop {
            let step = self.choose();
            let names = self.names(step);
            if names.is_empty() {
                continue;
            }
            let name = self.random.pick(&names);
            let action =
                Action { step, name, kind: self.kind(step, name), number: self.random.below(1000) as u64 };
            self.follow(action);
            return action;
        }
    }

    /// One of the opening, if there is something that it can be done to; after that, whatever chance says.
    fn choose(&mut self) -> Step {
        match self.opening.pop() {
            // Faults first: there is something to strike then.
            Some(step) if !self.first_kinds.is_empty() && self.active.len() < NAMES.len() => {
                self.opening.push(step);
                Step::Inject
            }
            Some(step) if self.names(step).is_empty() => {
                self.opening.push(step);
                match step.is_of_guard() && self.active.len() < NAMES.len() {
                    true => {
                        self.first_kinds.push(Kind::Frozen);
                        Step::Inject
                    }
                    false if self.active.is_empty() => Step::Inject,
                    false => Step::Remove,
                }
            }
            Some(step) => step,
            None => self.weigh(),
        }
    }

    /// A kind for a fault of this name. A process has one tracer, a proxy obeys one fault, and one holds a setting.
    fn kind(&mut self, step: Step, name: &str) -> Kind {
        let others = self.active.iter().filter(|(other, _)| **other != name);
        let taken: Vec<_> = others.map(|(_, kind)| *kind).filter(|kind| ALONE.contains(kind)).collect();
        let possible = |kind: &Kind| !taken.contains(kind);
        if step == Step::Inject
            && let Some(at) = self.first_kinds.iter().position(possible)
        {
            return self.first_kinds.swap_remove(at);
        }
        let kinds: Vec<_> = self.kinds.iter().copied().filter(possible).collect();
        self.random.pick(&kinds)
    }

    /// Names that a step makes sense with.
    fn names(&self, step: Step) -> Vec<&'static str> {
        let active = |name: &&'static str| self.active.contains_key(name);
        match step {
            Step::Inject | Step::Expire => NAMES.into_iter().filter(|name| !active(name)).collect(),
            Step::InjectAgain | Step::Change | Step::Remove => NAMES.into_iter().filter(active).collect(),
            Step::KillHolder | Step::PauseHolder | Step::StopHolder => {
                NAMES.into_iter().filter(active).collect()
            }
            _ if step.is_of_guard() && !self.is_guarded() => Vec::new(),
            _ => NAMES.to_vec(),
        }
    }

    fn is_guarded(&self) -> bool {
        self.active.values().any(|kind| kind.is_supervised())
    }

    fn weigh(&mut self) -> Step {
        let total = self.steps.iter().map(|(_, weight)| weight).sum();
        let mut at = self.random.below(total);
        for (step, weight) in &self.steps {
            if at < *weight {
                return *step;
            }
            at -= weight;
        }
        Step::Wait
    }

    /// What is active after it.
    fn follow(&mut self, action: Action) {
        match action.step {
            Step::Inject | Step::Change => {
                self.active.insert(action.name, action.kind);
            }
            Step::Remove | Step::KillHolder | Step::StopHolder | Step::FillJournal => {
                self.active.remove(action.name);
            }
            Step::InjectAgain | Step::Expire | Step::Wait | Step::SetClock => {}
            Step::PauseHolder | Step::PauseServer | Step::PauseInjector | Step::PauseGuard => {}
            Step::KillGuard | Step::StopGuard => self.active.retain(|_, kind| !kind.is_supervised()),
            _ => self.active.clear(),
        }
    }
}

/// SplitMix64: the same numbers for the same seed, everywhere.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is at least 1.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// The same in another order.
    fn shuffle<T>(&mut self, mut all: Vec<T>) -> Vec<T> {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last + 1));
        }
        all
    }

    /// One of these, of which there is at least one.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(seed: u64, number: usize, vm: bool) -> Vec<Action> {
        let mut script = Script::new(seed, number, 4, Abilities { vm, netem: vm });
        (0..2000).map(|_| script.next()).collect()
    }

    #[test]
    fn a_seed_gives_the_same_script_again_and_numbers_and_seeds_differ() {
        assert_eq!(actions(7, 1, false), actions(7, 1, false));
        assert_ne!(actions(7, 1, false), actions(7, 2, false));
        assert_ne!(actions(7, 1, false), actions(8, 1, false));
    }

    #[test]
    fn a_script_of_two_thousand_has_every_step_that_the_machine_can_do() {
        for vm in [false, true] {
            let script = actions(7, 0, vm);
            for (step, _, needs) in STEPS {
                let found = script.iter().any(|action| action.step == *step);
                assert_eq!(found, vm || *needs == Needs::Nothing, "{step:?}");
            }
        }
    }

    #[test]
    fn the_beginnings_of_all_scripts_have_every_step_and_every_kind() {
        let lengths = [(true, 12, 8), (true, 2, 40), (false, 4, 25), (false, 1, 70)];
        for (seed, (vm, scripts, length)) in (0..20).flat_map(|seed| lengths.map(|length| (seed, length))) {
            let abilities = Abilities { vm, netem: vm };
            let mut script = Vec::new();
            for number in 0..scripts {
                let mut one = Script::new(seed, number, scripts, abilities);
                script.extend((0..length).map(|_| one.next()));
            }
            for (step, _, needs) in STEPS {
                let found = script.iter().any(|action| action.step == *step);
                assert_eq!(
                    found,
                    vm || *needs == Needs::Nothing,
                    "{step:?} of {scripts} scripts, seed {seed}"
                );
            }
            for (kind, possible) in [
                (Kind::Partition, true),
                (Kind::Frozen, true),
                (Kind::Link, true),
                (Kind::Memory, vm),
                (Kind::Stillness, vm),
                (Kind::Calls, vm),
                (Kind::Tools, vm),
            ] {
                let injected = |action: &Action| (action.step, action.kind) == (Step::Inject, kind);
                assert_eq!(
                    script.iter().any(injected),
                    possible,
                    "{kind:?} of {scripts} scripts, seed {seed}"
                );
            }
        }
    }

    #[test]
    fn a_guard_is_struck_while_it_has_something_to_guard() {
        let mut script = Script::new(7, 0, 1, Abilities { vm: false, netem: false });
        let mut struck = 0;
        for _ in 0..5000 {
            let guarded = script.is_guarded();
            let step = script.next().step;
            assert!(guarded || !step.is_of_guard(), "{step:?}");
            struck += usize::from(step.is_of_guard());
        }
        assert!(struck > 100, "{struck} times");
    }

    #[test]
    fn what_obeys_one_fault_is_never_given_two() {
        let mut script = Script::new(7, 0, 1, Abilities { vm: true, netem: true });
        for _ in 0..5000 {
            script.next();
            for alone in ALONE {
                assert!(script.active.values().filter(|kind| **kind == alone).count() <= 1, "{alone:?}");
            }
        }
    }
}
