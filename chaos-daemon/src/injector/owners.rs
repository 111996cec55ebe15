//! Whose faults: which one is meant by a name, who may give it, and how many places one user has.

use super::state::Injector;
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::{FaultName, GivenName, Owner, QualifiedName};

/// The fault that is to end. Ending is everybody's; but nobody ends another's by mistake, with a name that does not say whose it is.
///
/// # Errors
/// When the caller has no fault of this name, and others have.
pub(super) fn to_end(
    injector: &Injector,
    given: GivenName,
    caller: Caller,
) -> Result<QualifiedName, ApiError> {
    let own = caller.owner();
    let name = QualifiedName::new(given.owner.unwrap_or(own), given.name);
    if given.owner.is_some() || injector.knows(&name) {
        return Ok(name);
    }
    match injector.of_others(&name).as_slice() {
        [] => Ok(name),
        others => Err(another_is_meant(&name.name, own, others)),
    }
}

fn another_is_meant(name: &FaultName, own: Owner, others: &[QualifiedName]) -> ApiError {
    let owners: Vec<_> = others.iter().map(|other| other.owner.to_string()).collect();
    let commands: Vec<_> =
        others.iter().map(|other| format!("chaos_stop with fault_name {}", other.shown_to(own))).collect();
    let text = format!(
        "you have no fault {name}: the one that is active is of {}; nothing was ended",
        owners.join(" and of ")
    );
    ApiError::new(ErrorCode::FaultNotFound, text).hint(format!("end it with {}", commands.join(" or ")))
}

/// How many faults are active beside a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// Of everybody.
    pub(super) all: usize,
    /// Of everybody but root.
    pub(super) but_roots: usize,
    /// Of the owner of the new one.
    pub(super) own: usize,
}

impl Taken {
    /// Counts these owners of faults, for a new one of `owner`.
    pub(super) fn of(active: impl Iterator<Item = Owner>, owner: Owner) -> Self {
        let mut taken = Self { all: 0, but_roots: 0, own: 0 };
        for other in active {
            taken.all += 1;
            taken.but_roots += usize::from(!other.is_root());
            taken.own += usize::from(other == owner);
        }
        taken
    }

    /// The same with so many more of that owner.
    pub(super) fn and(self, more: usize, owner: Owner) -> Self {
        let but_roots = if owner.is_root() { 0 } else { more };
        Self { all: self.all + more, but_roots: self.but_roots + but_roots, own: self.own + more }
    }

    /// Refuses a further fault of `owner` where `most` may be active in all: one user has half of the places, rounded up, and the last
    /// one is root's. Where there is one place only, it is everybody's.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`]; never of root.
    pub(super) fn refuse(self, owner: Owner, most: usize) -> Result<(), ApiError> {
        if owner.is_root() || most < 2 {
            return Ok(());
        }
        let share = most.div_ceil(2);
        let text = if self.own >= share {
            format!(
                "{owner} has {} faults active, and one user may have {share} of max_active = {most}",
                self.own
            )
        } else if self.but_roots >= most - 1 {
            format!("{} faults are active, and the last place of max_active = {most} is root's", self.all)
        } else {
            return Ok(());
        };
        Err(ApiError::new(ErrorCode::LimitReached, text)
            .hint("wait until one ends, or end one: chaos_status lists them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = Owner::User(1001);
    const TWO: Owner = Owner::User(1002);
    const FAR: Owner = Owner::Context(1001);

    /// How many each gets of `most` places, who tries as often as he likes, one after the other.
    fn fill(most: usize, owners: &[Owner]) -> Vec<usize> {
        let mut active = Vec::new();
        let got = owners.iter().map(|owner| {
            let mut got = 0;
            let may = |active: &[Owner]| {
                // The policy has the last word on all of them.
                let taken = Taken::of(active.iter().copied(), *owner);
                active.len() < most && taken.refuse(*owner, most).is_ok()
            };
            while may(&active) {
                active.push(*owner);
                got += 1;
            }
            got
        });
        got.collect()
    }

    #[test]
    fn a_user_has_half_of_the_places_and_the_last_one_is_roots() {
        for (most, owners, expected) in [
            (8, vec![ONE, TWO, FAR, Owner::ROOT], vec![4, 3, 0, 1]),
            (8, vec![ONE, Owner::ROOT, TWO], vec![4, 4, 0]),
            (8, vec![Owner::ROOT, ONE], vec![8, 0]),
            (5, vec![ONE, FAR, TWO, Owner::ROOT], vec![3, 1, 0, 1]),
            (2, vec![ONE, TWO, Owner::ROOT], vec![1, 0, 1]),
            (1, vec![ONE, Owner::ROOT], vec![1, 0]),
            (1, vec![Owner::ROOT, ONE], vec![1, 0]),
        ] {
            assert_eq!(fill(most, &owners), expected, "{most} places, {owners:?}");
        }
    }

    #[test]
    fn faults_that_are_planned_together_take_places_as_those_that_are_active() {
        let taken = Taken::of([ONE, TWO, Owner::ROOT].into_iter(), ONE);
        assert_eq!(taken, Taken { all: 3, but_roots: 2, own: 1 });
        assert_eq!(taken.and(2, ONE), Taken { all: 5, but_roots: 4, own: 3 });
        assert!(taken.and(2, ONE).refuse(ONE, 8).is_ok() && taken.and(3, ONE).refuse(ONE, 8).is_err());
        let roots = Taken::of([ONE].into_iter(), Owner::ROOT).and(2, Owner::ROOT);
        assert_eq!(roots, Taken { all: 3, but_roots: 1, own: 2 });
    }

    #[test]
    fn whoever_names_what_only_others_have_is_told_how_to_name_it() {
        let name = FaultName::new("slow").unwrap();
        let others = [ONE, FAR].map(|owner| QualifiedName::new(owner, name.clone()));
        let error = another_is_meant(&name, TWO, &others);
        assert!(error.message.contains("is of uid 1001 and of vsock context 1001"), "{error}");
        let hint = error.hint.unwrap();
        assert!(
            hint.contains(
                "chaos_stop with fault_name 1001/slow or chaos_stop with fault_name vsock:1001/slow"
            ),
            "{hint}"
        );
        let roots = [QualifiedName::new(Owner::ROOT, name.clone())];
        let hint = another_is_meant(&name, TWO, &roots).hint.unwrap();
        assert!(hint.contains("chaos_stop with fault_name 0/slow"), "{hint}");
    }
}
