//! Which of the calls, or of the passes of an event, are struck.

/// From the first on, every so many. Where there are fewer than the first they are counted round, so that something is struck
/// wherever there is anything.
#[derive(Debug)]
pub(crate) struct Passes {
    at: usize,
    stride: usize,
    struck: bool,
}

/// What it means that one was not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missed {
    /// Nothing has been struck yet: there is another one to try.
    Another,
    /// All have been struck.
    Done,
    /// There is none at all.
    Nothing,
}

impl Passes {
    pub(crate) fn new(first: usize, stride: usize) -> Self {
        Self { at: first, stride, struck: false }
    }

    /// Once, at the first.
    pub(crate) fn once() -> Self {
        Self::new(1, usize::MAX)
    }

    /// The one to strike, from 1.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// It was struck: on to the next.
    pub(crate) fn struck(&mut self) {
        self.struck = true;
        self.at = self.at.saturating_add(self.stride);
    }

    /// It was not there, and `there` are; who has not counted says 1.
    pub(crate) fn missed(&mut self, there: usize) -> Missed {
        let round = 1 + (self.at - 1) % there.max(1);
        match self.struck {
            true => Missed::Done,
            false if round == self.at => Missed::Nothing,
            false => {
                self.at = round;
                Missed::Another
            }
        }
    }
}

/// The first for a kind in this place of a list. Kinds make much the same calls: with another first for each, a stride leaves out
/// little; over as many offsets as the stride is, it leaves out nothing.
pub(crate) fn first(position: usize, offset: usize, stride: usize) -> usize {
    1 + (position + offset) % stride
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What is struck when so many are there, of which `counted` are known to whoever misses one.
    pub(crate) fn strikes(mut passes: Passes, there: usize, counted: usize) -> (Vec<usize>, Missed) {
        let mut struck = Vec::new();
        loop {
            if passes.at() <= there {
                struck.push(passes.at());
                passes.struck();
                continue;
            }
            match passes.missed(counted) {
                Missed::Another => {}
                end => return (struck, end),
            }
        }
    }

    /// What is struck over all offsets of a stride, by each of these.
    pub(crate) fn struck_by_all(
        all: impl Iterator<Item = Passes>,
        there: usize,
        counted: usize,
    ) -> Vec<usize> {
        let mut struck: Vec<_> = all.flat_map(|passes| strikes(passes, there, counted).0).collect();
        struck.sort_unstable();
        struck.dedup();
        struck
    }

    fn struck(first: usize, stride: usize, there: usize) -> (Vec<usize>, Missed) {
        strikes(Passes::new(first, stride), there, there)
    }

    #[test]
    fn over_all_offsets_of_a_stride_every_one_is_struck_whether_or_not_they_are_counted() {
        for (position, stride, there) in [(0, 1, 5), (7, 36, 100), (50, 36, 7), (3, 5, 1)] {
            let all = || (0..stride).map(|offset| Passes::new(first(position, offset, stride), stride));
            for counted in [1, there] {
                assert_eq!(struck_by_all(all(), there, counted), (1..=there).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn from_the_first_on_every_so_many_are_struck() {
        assert_eq!(struck(1, 1, 3), (vec![1, 2, 3], Missed::Done));
        assert_eq!(struck(5, 36, 100), (vec![5, 41, 77], Missed::Done));
        assert_eq!(strikes(Passes::once(), 3, 1), (vec![1], Missed::Done));
    }

    #[test]
    fn where_there_are_fewer_than_the_first_one_is_struck_all_the_same() {
        assert_eq!(struck(8, 36, 7), (vec![1], Missed::Done));
        assert_eq!(struck(20, 36, 7), (vec![6], Missed::Done));
        // Nobody has counted.
        assert_eq!(
            (Passes::new(20, 36).missed(1), Passes::new(1, 36).missed(1)),
            (Missed::Another, Missed::Nothing)
        );
    }

    #[test]
    fn where_there_is_nothing_that_is_said() {
        assert_eq!(struck(20, 36, 0), (vec![], Missed::Nothing));
        assert_eq!(struck(1, 1, 0), (vec![], Missed::Nothing));
    }
}
