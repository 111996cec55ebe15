//! Injections that are taken back when they have begun: whoever asked has left without the answer, or wants the fault no more.

use std::time::Duration;

use tokio::time::timeout;

use super::orders::Line;
use crate::request::wire::Wanted;

/// How long an answer and whoever takes the request back may cross: the server may have to wait for a processor.
const CROSSING: Duration = Duration::from_secs(30);

/// Ends a fault for who takes it back after it was in the journal, also where that crosses with the answer.
pub(super) async fn end_if(mut wanted: Wanted, line: Line) {
    if timeout(CROSSING, wanted.cancelled()).await.is_ok()
        && let Some(removal) = line.end("who asked for it has taken it back")
    {
        // What was found is told to nobody.
        let _removal = removal.await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::net::UnixStream;
    use tokio::task::{LocalSet, spawn_local};

    use super::super::orders::{End, Next, line};
    use super::*;
    use crate::request::wire::{Desk, Door};
    use crate::request::{Reply, Request};

    /// Whether a fault is told to end whose caller does this, `answered` or not.
    async fn ends(answered: bool, leaves: bool, after: Duration) -> bool {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (door, mut desk) = (Door::new(ours), Desk::new(theirs));
        let asks = door.clone();
        let asked = spawn_local(async move {
            let mut asked = Box::pin(asks.call(Request::Status));
            // The answer comes, and is not looked at.
            assert!((&mut asked).now_or_never().is_none());
            std::future::pending::<()>().await;
        });
        let (ticket, _) = desk.next().await.unwrap().unwrap();
        let (line, mut orders) = line();
        spawn_local(end_if(ticket.wanted(), line));
        let answers = desk.answers();
        spawn_local(async move { while let Ok(Some(_)) = desk.next().await {} });
        if answered {
            answers.answer(ticket, Reply::Status(Vec::new()));
        }
        tokio::time::sleep(after).await;
        if leaves {
            asked.abort();
        }
        let due = tokio::time::sleep(2 * CROSSING);
        let next = orders.next(due, false).await;
        drop(door);
        matches!(next, Next::End(End { reason, .. }) if reason.contains("taken it back"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_ends_for_who_takes_it_back_before_having_the_answer_and_for_nobody_else() {
        LocalSet::new()
            .run_until(async {
                for (answered, leaves, after, expected) in [
                    (false, true, Duration::ZERO, true),
                    (true, true, Duration::from_secs(1), true),
                    (true, false, Duration::ZERO, false),
                    (true, true, CROSSING + Duration::from_secs(1), false),
                ] {
                    let told = ends(answered, leaves, after).await;
                    assert_eq!(told, expected, "answered: {answered}, leaves: {leaves}, after {after:?}");
                }
            })
            .await;
    }
}
