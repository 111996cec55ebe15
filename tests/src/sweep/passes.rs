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

    /// The one to strike, from 1.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// It was struck: on to the next.
    pub(crate) fn struck(&mut self) {
        self.struck = true;
        self.at += self.stride;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is struck when so many are there.
    fn struck(first: usize, stride: usize, there: usize) -> (Vec<usize>, Missed) {
        let (mut passes, mut struck) = (Passes::new(first, stride), Vec::new());
        loop {
            if passes.at() <= there {
                struck.push(passes.at());
                passes.struck();
                continue;
            }
            match passes.missed(there) {
                Missed::Another => {}
                end => return (struck, end),
            }
        }
    }

    #[test]
    fn from_the_first_on_every_so_many_are_struck() {
        assert_eq!(struck(1, 1, 3), (vec![1, 2, 3], Missed::Done));
        assert_eq!(struck(5, 36, 100), (vec![5, 41, 77], Missed::Done));
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
