//! Heartbeats that are out, and who waits for what they bring.

use tokio::sync::oneshot;

/// Of one fault. A holder answers each heartbeat once, in the order in which they were sent, and tells what the fault has met when
/// it hears of it. So who asks has to wait for one that is sent then: the answer to an earlier one may be older than the question.
#[derive(Debug, Default)]
pub(super) struct Beats {
    sent: u64,
    heard: u64,
    /// Each with the heartbeat that was sent for it.
    waiting: Vec<(u64, oneshot::Sender<()>)>,
}

impl Beats {
    /// One has been sent, for those who asked for it.
    pub(super) fn sent(&mut self, asked: impl IntoIterator<Item = oneshot::Sender<()>>) {
        self.sent += 1;
        let number = self.sent;
        self.waiting.extend(asked.into_iter().map(|done| (number, done)));
    }

    /// Whether one is out that somebody asked for.
    pub(super) fn are_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next one has been answered, and what the answer brings is known to all: tells those who waited for it.
    pub(super) fn heard(&mut self) {
        self.heard += 1;
        let heard = self.heard;
        for (_, done) in self.waiting.extract_if(.., |(number, _)| *number <= heard) {
            // Who has left meanwhile does not want to know.
            let _ = done.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_hears_of_what_was_met_when_it_asked_and_not_of_an_earlier_heartbeat() {
        let mut beats = Beats::default();
        let (first, mut told_first) = oneshot::channel();
        let (second, mut told_second) = oneshot::channel();
        beats.sent(None);
        beats.sent(Some(first));
        beats.sent(Some(second));
        beats.heard();
        assert!(beats.are_awaited());
        assert!(told_first.try_recv().is_err(), "by the answer to a heartbeat of before");
        beats.heard();
        assert!(told_first.try_recv().is_ok() && told_second.try_recv().is_err());
        beats.heard();
        assert!(told_second.try_recv().is_ok() && !beats.are_awaited());
    }

    #[test]
    fn all_who_ask_at_once_are_told_by_the_answer_to_one_heartbeat() {
        let mut beats = Beats::default();
        let (asked, told): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        beats.sent(asked);
        assert!(beats.are_awaited());
        beats.heard();
        assert!(told.into_iter().all(|mut told| told.try_recv().is_ok()) && !beats.are_awaited());
    }

    #[test]
    fn who_asks_is_told_by_the_next_answer_when_no_heartbeat_is_out() {
        let mut beats = Beats::default();
        beats.sent(None);
        beats.heard();
        let (done, mut told) = oneshot::channel();
        beats.sent(Some(done));
        assert!(told.try_recv().is_err());
        beats.heard();
        assert!(told.try_recv().is_ok());
    }
}
