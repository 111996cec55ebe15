//! What the task of a fault is told. Its end comes before whatever else waits, and those who ask how it is are heard together,
//! once those before them have an answer: however many do, they keep neither the fault from its end nor the holder busy.

use std::iter::from_fn;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::request::Removal;

/// To the task of a fault. Clones are to the same one, whatever becomes of its name.
#[derive(Debug, Clone)]
pub(super) struct Line {
    ends: UnboundedSender<End>,
    asks: UnboundedSender<oneshot::Sender<()>>,
}

/// What the task of a fault hears.
#[derive(Debug)]
pub(super) struct Orders {
    ends: UnboundedReceiver<End>,
    asks: UnboundedReceiver<oneshot::Sender<()>>,
}

/// The fault has to end.
#[derive(Debug)]
pub(super) struct End {
    /// Why.
    pub(super) reason: String,
    /// Who wants to know what was found.
    pub(super) done: oneshot::Sender<Removal>,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    /// The fault's time is up.
    Due,
    /// Somebody wants it to end.
    End(End),
    /// These want to know what it has met by now, and when that is known.
    Ask(Vec<oneshot::Sender<()>>),
}

/// Both ends of what a fault's task is told by.
pub(super) fn line() -> (Line, Orders) {
    let (ends, ending) = unbounded_channel();
    let (asks, asking) = unbounded_channel();
    (Line { ends, asks }, Orders { ends: ending, asks: asking })
}

impl Line {
    /// Has the fault end; what was found comes when it has been undone. `None` when it has ended.
    pub(super) fn end(&self, reason: &str) -> Option<oneshot::Receiver<Removal>> {
        let (done, removal) = oneshot::channel();
        self.ends.send(End { reason: reason.to_owned(), done }).ok().map(|()| removal)
    }

    /// Has the holder asked what the fault has met; something comes when that is known. `None` when the fault ends already.
    pub(super) fn ask(&self) -> Option<oneshot::Receiver<()>> {
        let (done, known) = oneshot::channel();
        self.asks.send(done).ok().map(|()| known)
    }
}

impl Orders {
    /// The first of what there is, in this order: the fault's end, which is `due` at its time, who wants it to end, and, while
    /// somebody `may_ask`, all who do. Cancelling it loses nothing.
    pub(super) async fn next(&mut self, due: impl Future<Output = ()>, may_ask: bool) -> Next {
        tokio::select! {
            biased;
            () = due => Next::Due,
            Some(end) = self.ends.recv() => Next::End(end),
            Some(first) = self.asks.recv(), if may_ask => {
                let mut asked = vec![first];
                asked.extend(from_fn(|| self.asks.try_recv().ok()));
                Next::Ask(asked)
            }
        }
    }

    /// All who want it to end by now.
    pub(super) fn take_ends(&mut self) -> impl Iterator<Item = oneshot::Sender<Removal>> {
        from_fn(move || self.ends.try_recv().ok()).map(|end| end.done)
    }

    /// Has whoever has asked by now learn that there is no answer to come.
    pub(super) fn drop_asks(&mut self) {
        while self.asks.try_recv().is_ok() {}
    }

    /// Has whoever asks, and has asked, learn that there is no answer to come.
    pub(super) fn refuse_asks(&mut self) {
        // One to which nobody has a line.
        self.asks = unbounded_channel().1;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn who_wants_a_fault_to_end_is_heard_before_all_who_ask_how_it_is_and_these_at_once() {
        let (line, mut orders) = line();
        let known: Vec<_> = (0..1000).filter_map(|_| line.ask()).collect();
        let _removal = line.end("removed").unwrap();
        let Next::End(end) = orders.next(pending(), true).await else { panic!("asked first") };
        assert_eq!(end.reason, "removed");
        let Next::Ask(asked) = orders.next(pending(), true).await else { panic!("not asked") };
        assert_eq!((known.len(), asked.len()), (1000, 1000));
        assert!(orders.next(pending(), true).now_or_never().is_none());
    }

    #[tokio::test]
    async fn nobody_keeps_a_fault_whose_time_is_up_from_its_end() {
        let (line, mut orders) = line();
        let _known = line.ask().unwrap();
        let _removal = line.end("removed").unwrap();
        assert!(matches!(orders.next(ready(()), true).await, Next::Due));
        assert_eq!(orders.take_ends().count(), 1, "who wants its end waits for nothing");
    }

    #[tokio::test]
    async fn who_asks_waits_for_the_answer_to_those_before_and_who_wants_its_end_does_not() {
        let (line, mut orders) = line();
        let _known = line.ask().unwrap();
        assert!(orders.next(pending(), false).now_or_never().is_none());
        let _removal = line.end("removed").unwrap();
        assert!(matches!(orders.next(pending(), false).await, Next::End(_)));
        assert!(matches!(orders.next(pending(), true).await, Next::Ask(asked) if asked.len() == 1));
    }

    #[tokio::test]
    async fn who_asks_how_a_fault_is_that_ends_does_not_wait() {
        let (line, mut orders) = line();
        let known = line.ask().unwrap();
        orders.refuse_asks();
        assert!(known.await.is_err() && line.ask().is_none());
        let _removal = line.end("removed").unwrap();
        assert!(matches!(orders.next(pending(), true).await, Next::End(_)));
    }
}
