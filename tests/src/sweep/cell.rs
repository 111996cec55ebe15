//! The cells of matrix and sweep: a kind of fault, how it is attached, and a part of what can strike it.

use std::time::Instant;

use super::Found;
use super::list::{self, Kind};
use crate::Result;
use crate::kernel::Attach;
use crate::residue::Surroundings;

/// Carries a cell out, until a moment at most: being late is a failure.
pub type Work = Box<dyn Fn(Instant) -> Result<Found>>;

/// What strikes a kind of fault, of those that can.
pub struct Cell {
    /// What is struck.
    pub kind: &'static Kind,
    /// How programs are attached, if it is up to the cell.
    pub attach: Option<Attach>,
    /// Its name, which stays.
    pub name: String,
    /// The number of the part: of another kind the same one takes alike long.
    part: usize,
    is_guarded: bool,
    /// `None` for what other tests try.
    work: Option<Work>,
}

impl Cell {
    /// On the bench.
    pub(crate) fn on_bench(
        kind: &'static Kind,
        attach: Attach,
        part: usize,
        name: String,
        work: impl Fn(Instant) -> Result<Found> + 'static,
    ) -> Self {
        Self { kind, attach: Some(attach), name, part, is_guarded: false, work: Some(Box::new(work)) }
    }

    /// On a stage, with a guard.
    pub(crate) fn guarded(
        kind: &'static Kind,
        part: usize,
        name: String,
        work: impl Fn(Instant) -> Result<Found> + 'static,
    ) -> Self {
        // Of a bench it is a part that it behaves as before; a stage has nothing else around it.
        let work = move |deadline| beside_others(|| work(deadline));
        Self { kind, attach: None, name, part, is_guarded: true, work: Some(Box::new(work)) }
    }

    fn elsewhere(kind: &'static Kind) -> Self {
        Self { kind, attach: None, name: kind.name.to_owned(), part: 0, is_guarded: false, work: None }
    }

    /// Carries it out, until `deadline` at most.
    ///
    /// # Errors
    /// When it cannot be carried out at all.
    pub fn run(&self, deadline: Instant) -> Result<Found> {
        self.work.as_ref().map_or_else(|| Ok(Found::default()), |work| work(deadline))
    }
}

/// Carries something out, and sees that what is around behaves then as before.
fn beside_others(work: impl FnOnce() -> Result<Found>) -> Result<Found> {
    let mut around = Surroundings::new()?;
    let mut found = work()?;
    if let Err(error) = around.assert_as_before() {
        found.failures.push(format!("when all was over: {error}"));
    }
    Ok(found)
}

/// These, and what other tests try, in the order of the list. Alike ones, which take alike long, are neighbours there.
pub fn in_order(cells: Vec<Cell>) -> Vec<Cell> {
    let elsewhere = list::all().filter(|kind| kind.is_elsewhere()).map(Cell::elsewhere);
    let mut all: Vec<_> = cells.into_iter().chain(elsewhere).collect();
    let alike = |cell: &Cell| {
        (
            cell.work.is_none(),
            cell.is_guarded,
            cell.part,
            cell.kind.is_rare(),
            cell.attach == Some(Attach::Clsact),
        )
    };
    all.sort_by_key(alike);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use super::*;
    use crate::asked::Asked;
    use crate::cells::Choice;
    use crate::{matrix, sweep};

    fn lists() -> [Vec<Cell>; 2] {
        let asked = Asked::read(std::iter::empty(), Duration::ZERO).unwrap();
        [matrix::cells(&asked, (6, 12)), sweep::cells(&asked)].map(in_order)
    }

    #[test]
    fn no_two_cells_have_one_name_and_every_kind_has_a_cell() {
        for cells in lists() {
            let names: BTreeSet<_> = cells.iter().map(|cell| cell.name.as_str()).collect();
            assert_eq!(names.len(), cells.len());
            let kinds: BTreeSet<_> = cells.iter().map(|cell| cell.kind.name).collect();
            assert_eq!(kinds, list::all().map(|kind| kind.name).collect());
        }
    }

    #[test]
    fn every_share_has_as_many_of_each_part_as_the_others() {
        for of in 1..=12 {
            let shares: Vec<_> =
                (1..=of).map(|number| parts(&format!("--partition={number}/{of}"))).collect();
            let parts: BTreeSet<_> = shares.iter().flat_map(BTreeMap::keys).copied().collect();
            for part in parts {
                let counts = || shares.iter().map(|share| share.get(&part).copied().unwrap_or_default());
                let (least, most) = (counts().min(), counts().max());
                assert!(most <= least.map(|least| least + 1), "{part:?} in {of} shares");
            }
        }
    }

    /// How many cells of a partition are of each part: of which list, whether other tests try it, has a guard, number.
    fn parts(partition: &str) -> BTreeMap<(usize, bool, bool, usize), usize> {
        let mut choice = Choice::default();
        choice.take(partition).unwrap();
        let mut parts = BTreeMap::new();
        for (list, cells) in lists().into_iter().enumerate() {
            for cell in choice.of(cells, |cell| &cell.name).unwrap() {
                *parts.entry((list, cell.work.is_none(), cell.is_guarded, cell.part)).or_default() += 1;
            }
        }
        parts
    }
}
