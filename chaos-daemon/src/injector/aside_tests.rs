//! Who gets a place, and when.

use std::sync::mpsc;

use tokio::task::{JoinHandle, spawn_blocking, yield_now};

use super::*;
use crate::host::budget;
use crate::waits::{HANG, wait_for};

const A: Party = Party::User(1000);
const B: Party = Party::User(1001);
const C: Party = Party::Context(7);

/// Places of a test's own, for the rest of the process.
fn places(all: usize, each: usize) -> &'static Places {
    Box::leak(Box::new(Places::new(all, each, None, "questions")))
}

/// Takes a place, and keeps it until told.
async fn keep(places: &'static Places, party: Party) -> (mpsc::Sender<()>, JoinHandle<Result<(), ApiError>>) {
    let (begins, began) = oneshot::channel();
    let (go, wait) = mpsc::channel::<()>();
    let kept = tokio::spawn(places.look(party, move || {
        begins.send(()).unwrap();
        // Until it is told, or the test is over.
        let _over = wait.recv();
        Ok(())
    }));
    began.await.unwrap();
    (go, kept)
}

/// Has `party` wait; its turn is told under `name`.
async fn wait_in(
    places: &'static Places,
    (party, purpose): (Party, Purpose),
    name: &'static str,
    told: &mpsc::Sender<&'static str>,
) -> JoinHandle<()> {
    let before = places.desk().waiting.len();
    let told = told.clone();
    let waits = tokio::spawn(async move {
        let turn = places.turn(party, purpose).await.unwrap();
        told.send(name).unwrap();
        drop(turn);
    });
    while places.desk().waiting.len() == before {
        yield_now().await;
    }
    waits
}

#[tokio::test(start_paused = true)]
async fn however_many_ask_no_more_is_done_at_a_time_than_there_are_places_for() {
    let places = places(1, 1);
    let (go, first) = keep(places, A).await;
    for party in [A, B, C] {
        let refused = places.look(party, || Ok(())).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::LimitReached);
        assert!(refused.message.contains("too many questions"), "{refused}");
    }
    go.send(()).unwrap();
    first.await.unwrap().unwrap();
    places.look(A, || Ok(())).await.unwrap();
}

#[tokio::test]
async fn one_party_has_no_more_than_its_share_and_another_does_not_wait_for_it() {
    let places = places(3, 1);
    let (_go, _kept) = keep(places, A).await;
    let waits = tokio::spawn(places.look(A, || Ok(())));
    for party in [B, C] {
        timeout(HANG, places.look(party, || Ok(()))).await.unwrap().unwrap();
    }
    assert!(!waits.is_finished());
}

#[tokio::test]
async fn injections_come_before_looks_and_parties_take_turns() {
    let places = places(1, 1);
    let (go, kept) = keep(places, A).await;
    let (told, order) = mpsc::channel();
    let mut all = Vec::new();
    for (who, name) in [
        ((A, Purpose::Look), "first of a"),
        ((A, Purpose::Look), "second of a"),
        ((B, Purpose::Look), "first of b"),
        ((C, Purpose::Look), "first of c"),
        ((B, Purpose::Look), "second of b"),
        ((A, Purpose::Injection), "injection of a"),
    ] {
        all.push(wait_in(places, who, name, &told).await);
    }
    drop(told);
    go.send(()).unwrap();
    kept.await.unwrap().unwrap();
    for each in all {
        each.await.unwrap();
    }
    let order: Vec<_> = order.iter().collect();
    let expected = ["injection of a", "first of b", "first of c", "first of a", "second of b", "second of a"];
    assert_eq!(order, expected);
    assert!(places.desk().parties.is_empty(), "nobody is there any more");
}

#[tokio::test]
async fn the_last_place_is_kept_for_an_injection() {
    let places: &'static Places = Box::leak(Box::new(Places::new(2, 1, None, "questions").keeping(1)));
    let (_go, _kept) = keep(places, A).await;
    let looks = tokio::spawn(places.look(B, || Ok(())));
    timeout(HANG, places.turn(C, Purpose::Injection)).await.unwrap().unwrap();
    assert!(!looks.is_finished());
}

#[tokio::test]
async fn a_queue_has_an_end_for_who_fills_it_and_for_nobody_else() {
    let places = places(1, 1);
    let (go, kept) = keep(places, A).await;
    let (told, _order) = mpsc::channel();
    for _ in 0..MOST_LOOKS {
        wait_in(places, (A, Purpose::Look), "", &told).await;
    }
    let refused = places.turn(A, Purpose::Look).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::LimitReached);
    assert!(refused.message.contains("16 of the same user wait already"), "{refused}");
    assert!(refused.hint.is_some());
    let others = [(A, Purpose::Injection), (B, Purpose::Look)];
    let mut waits = Vec::new();
    for who in others {
        waits.push(wait_in(places, who, "", &told).await);
    }
    go.send(()).unwrap();
    kept.await.unwrap().unwrap();
    for each in waits {
        timeout(HANG, each).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn who_leaves_is_out_of_the_queue_and_what_is_looked_at_for_nobody_stops() {
    let places = places(1, 1);
    let (begins, began) = oneshot::channel();
    let looks = tokio::spawn(places.look(A, move || {
        begins.send(()).unwrap();
        wait_for(|| budget::check().is_err());
        Ok(())
    }));
    began.await.unwrap();
    let (told, _order) = mpsc::channel();
    let waits = wait_in(places, (A, Purpose::Look), "", &told).await;
    waits.abort();
    waits.await.unwrap_err();
    assert_eq!(places.desk().waiting.len(), 0);
    looks.abort();
    timeout(HANG, places.look(B, || Ok(()))).await.expect("it goes on").unwrap();
}

#[tokio::test]
async fn what_hangs_is_told_of_and_keeps_a_place_of_who_asked_and_of_nobody_else() {
    const LONGEST: Duration = HANG;
    let places: &'static Places = Box::leak(Box::new(Places::new(1, 1, Some(LONGEST), "questions")));
    let (go, hung) = keep(places, A).await;
    // The clock runs ahead from here on, while nothing happens.
    tokio::time::pause();
    let refused = hung.await.unwrap().unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert!(refused.message.contains("hangs in the kernel"), "{refused}");
    places.turn(B, Purpose::Look).await.unwrap();
    let refused = places.turn(A, Purpose::Look).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::LimitReached);
    drop(go);
    wait_for(|| places.desk().parties.is_empty());
    places.turn(A, Purpose::Look).await.unwrap();
    assert_eq!(places.desk().taken, 0);
}

#[tokio::test]
async fn two_looks_of_one_turn_have_one_budget_and_one_place() {
    let places = places(1, 1);
    let turn = places.turn(A, Purpose::Look).await.unwrap();
    for _ in 0..2 {
        turn.run(|| Ok(budget::check()?)).await.unwrap();
        assert_eq!(places.desk().taken, 1);
    }
    drop(turn);
    assert_eq!(places.desk().taken, 0);
}

#[tokio::test]
async fn what_breaks_is_told_of_and_gives_its_place_back() {
    let places = places(1, 1);
    for _ in 0..2 {
        let broken = places.look::<()>(A, || panic!("for the test")).await;
        assert_eq!(broken.unwrap_err().code, ErrorCode::Unavailable);
    }
    places.look(A, || Ok(())).await.unwrap();
}

#[tokio::test]
async fn who_only_looks_gives_way_and_who_injects_does_not() {
    // SAFETY: it takes no memory; 0 is the calling thread.
    let nice = || Ok(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) });
    let mine = nice().unwrap();
    let turn = places(1, 1).turn(A, Purpose::Look).await.unwrap();
    assert_eq!(turn.run_soon(nice).await.unwrap(), mine);
    assert_eq!(turn.run(nice).await.unwrap(), NICE.max(mine));
    assert_eq!(nice().unwrap(), mine);
}

#[test]
fn what_hangs_takes_no_thread_from_undoing_and_the_end_does_not_wait_for_it() {
    let places = places(2, 2);
    let mut tokio = tokio::runtime::Builder::new_current_thread();
    let tokio = tokio.enable_all().max_blocking_threads(1).build().unwrap();
    let go = tokio.block_on(async {
        let (go, _kept) = keep(places, A).await;
        timeout(HANG, spawn_blocking(|| ())).await.expect("no thread").unwrap();
        go
    });
    drop(tokio);
    go.send(()).expect("it has been waited for");
}
