//! Requests and answers between the two ends.

use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::request::Caller;
use crate::waits::HANG;

const CALLER: Caller = Caller::Vsock { cid: 9 };

fn pair() -> (Door, Desk) {
    let (server, injector) = UnixStream::pair().unwrap();
    (Door::new(server), Desk::new(injector))
}

#[tokio::test]
async fn a_slow_answer_does_not_keep_a_quick_one_waiting() {
    let (door, mut desk) = pair();
    let slow = tokio::spawn({
        let door = door.clone();
        async move { door.call(Request::StopAll { caller: CALLER }).await }
    });
    let (slow_ticket, request) = desk.next().await.unwrap().unwrap();
    assert!(matches!(request, Request::StopAll { .. }));
    let quick = tokio::spawn({
        let door = door.clone();
        async move { door.call(Request::Status).await }
    });
    let (quick_ticket, _) = desk.next().await.unwrap().unwrap();
    desk.answers().answer(quick_ticket, Reply::Status(Vec::new()));
    assert!(matches!(quick.await.unwrap(), Ok(Reply::Status(_))));
    assert!(!slow.is_finished());
    desk.answers().answer(slow_ticket, Reply::Removed(Vec::new()));
    assert!(matches!(slow.await.unwrap(), Ok(Reply::Removed(_))));
}

#[tokio::test]
async fn who_leaves_takes_the_request_back_and_nobody_elses() {
    let (door, mut desk) = pair();
    let ask = || {
        let door = door.clone();
        tokio::spawn(async move { door.call(Request::Doctor { caller: CALLER }).await })
    };
    let (leaves, stays) = (ask(), ask());
    let (mut first, _) = desk.next().await.unwrap().unwrap();
    let (mut second, _) = desk.next().await.unwrap().unwrap();
    leaves.abort();
    let next = tokio::spawn(async move { desk.next().await.map(|next| (next.is_none(), desk)) });
    tokio::time::timeout(HANG, first.cancelled()).await.expect("nobody was told");
    let waits = tokio::time::timeout(Duration::from_millis(20), second.cancelled()).await;
    assert!(waits.is_err() && !stays.is_finished());
    // What the server is gone for is wanted by nobody.
    stays.abort();
    drop(door);
    assert!(next.await.unwrap().unwrap().0);
    tokio::time::timeout(HANG, second.cancelled()).await.unwrap();
}

#[tokio::test]
async fn who_has_an_answer_takes_nothing_back() {
    let (door, mut desk) = pair();
    let asked = tokio::spawn({
        let door = door.clone();
        async move { door.call(Request::Status).await }
    });
    let (ticket, _) = desk.next().await.unwrap().unwrap();
    desk.answers().answer(ticket, Reply::Status(Vec::new()));
    asked.await.unwrap().unwrap();
    drop(door);
    assert!(desk.next().await.unwrap().is_none());
    assert!(desk.wanted.values().all(watch::Sender::is_closed));
}

#[tokio::test]
async fn who_leaves_while_the_answer_is_on_its_way_takes_the_request_back_all_the_same() {
    for is_answered in [false, true] {
        let (door, mut desk) = pair();
        let mut asked = Box::pin(door.call(Request::Status));
        // Sent, and not looked at again.
        assert!((&mut asked).now_or_never().is_none());
        let (ticket, _) = desk.next().await.unwrap().unwrap();
        let mut wanted = ticket.wanted();
        assert!(!wanted.is_cancelled());
        if is_answered {
            desk.answers().answer(ticket, Reply::Status(Vec::new()));
            crate::waits::see(async || lock(&door.waiting).as_ref().is_some_and(HashMap::is_empty)).await;
        }
        drop(asked);
        let next = tokio::spawn(async move { desk.next().await.map(|next| next.is_none()) });
        tokio::time::timeout(HANG, wanted.cancelled()).await.expect("nobody was told");
        assert!(wanted.is_cancelled());
        drop(door);
        assert!(next.await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn everyone_learns_that_the_injector_is_gone() {
    let (door, mut desk) = pair();
    let waiting = tokio::spawn({
        let door = door.clone();
        async move { door.call(Request::Status).await }
    });
    desk.next().await.unwrap().unwrap();
    drop(desk);
    assert_eq!(waiting.await.unwrap().unwrap_err().code, ErrorCode::Unavailable);
    tokio::time::timeout(HANG, door.closed()).await.unwrap();
    assert_eq!(door.call(Request::Status).await.unwrap_err().code, ErrorCode::Unavailable);
}

#[tokio::test]
async fn the_desk_ends_when_the_server_is_gone() {
    let (door, mut desk) = pair();
    drop(door);
    assert!(desk.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_request_that_is_none_is_answered_and_the_next_one_served() {
    let (server, injector) = UnixStream::pair().unwrap();
    let mut desk = Desk::new(injector);
    let (reader, mut writer) = server.into_split();
    let odd = br#"{"id":7,"request":{"Explode":{}}}"#;
    writer.write_all(&u32::try_from(odd.len()).unwrap().to_le_bytes()).await.unwrap();
    writer.write_all(odd).await.unwrap();
    let next = Call { id: 8, request: Some(Request::Doctor { caller: CALLER }) };
    writer.write_all(&frame(&next).unwrap()).await.unwrap();
    let (ticket, request) = desk.next().await.unwrap().unwrap();
    assert_eq!((ticket.id, matches!(request, Request::Doctor { .. })), (8, true));
    let answer = FrameReader::new(reader).next().await.unwrap().unwrap();
    let answer: Answer = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer.id, 7);
    let Reply::Error(error) = answer.reply else { panic!("not an error") };
    assert_eq!(error.code, ErrorCode::MalformedRequest);
}

#[tokio::test]
async fn a_frame_beyond_the_limit_and_half_a_frame_are_errors() {
    for (bytes, kind) in [
        (u32::MAX.to_le_bytes().to_vec(), io::ErrorKind::InvalidData),
        (vec![10, 0, 0, 0, b'{'], io::ErrorKind::UnexpectedEof),
    ] {
        let (mut server, injector) = UnixStream::pair().unwrap();
        let mut desk = Desk::new(injector);
        server.write_all(&bytes).await.unwrap();
        drop(server);
        assert_eq!(desk.next().await.unwrap_err().kind(), kind);
    }
}

#[tokio::test]
async fn cancelling_next_in_the_middle_of_a_frame_loses_nothing() {
    let (mut server, injector) = UnixStream::pair().unwrap();
    let mut desk = Desk::new(injector);
    let bytes = frame(&Call { id: 1, request: Some(Request::Status) }).unwrap();
    server.write_all(&bytes[..6]).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), desk.next()).await.is_err());
    server.write_all(&bytes[6..]).await.unwrap();
    assert_eq!(desk.next().await.unwrap().unwrap().0.id, 1);
}
/// A look whose question is longer than what is decoded at once.
fn long() -> Request {
    let cidrs: Vec<_> = (0..SHORT / 8).map(|at| format!("10.{}.{}.0/24", at / 256, at % 256)).collect();
    let fault = serde_json::json!({
        "fault_type": "network_partition", "probability": 1.0, "target": { "interface": "lo", "cidrs": cidrs }
    });
    let name = crate::spec::FaultName::new("long").unwrap();
    Request::Plan { name, fault: serde_json::from_value(fault).unwrap(), caller: CALLER }
}

#[tokio::test]
async fn a_long_request_keeps_no_short_one_waiting() {
    let (door, mut desk) = pair();
    let turn = Arc::clone(&desk.turn).acquire_owned().await;
    let mut asked = Vec::new();
    for request in [long(), Request::Status] {
        let door = door.clone();
        asked.push(tokio::spawn(async move { door.call(request).await }));
        tokio::task::yield_now().await;
    }
    let (_, first) = desk.next().await.unwrap().unwrap();
    assert!(matches!(first, Request::Status), "{first:?}");
    drop(turn);
    let (_, second) = desk.next().await.unwrap().unwrap();
    assert_eq!(serde_json::to_value(&second).unwrap(), serde_json::to_value(long()).unwrap());
}

#[tokio::test]
async fn a_long_request_that_is_taken_back_before_its_turn_is_not_served() {
    let (door, mut desk) = pair();
    let turn = Arc::clone(&desk.turn).acquire_owned().await;
    let mut asked = Box::pin(door.call(long()));
    assert!((&mut asked).now_or_never().is_none());
    drop(asked);
    let next = tokio::spawn({
        let door = door.clone();
        async move { door.call(Request::Status).await }
    });
    let (_, request) = desk.next().await.unwrap().unwrap();
    assert!(matches!(request, Request::Status), "{request:?}");
    drop((turn, door));
    next.abort();
    assert!(desk.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_long_request_that_is_none_is_answered_and_one_without_its_id_in_front_ends_the_stream() {
    let (server, injector) = UnixStream::pair().unwrap();
    let mut desk = Desk::new(injector);
    let (reader, mut writer) = server.into_split();
    let mut reader = FrameReader::new(reader);
    let padding = " ".repeat(SHORT);
    let mut send = async |odd: String| {
        writer.write_all(&u32::try_from(odd.len()).unwrap().to_le_bytes()).await.unwrap();
        writer.write_all(odd.as_bytes()).await.unwrap();
    };
    send(format!(r#"{{"id":7,"request":{padding}{{"Explode":{{}}}}}}"#)).await;
    let answer = tokio::select! {
        next = desk.next() => panic!("{next:?}"),
        answer = reader.next() => answer.unwrap().unwrap(),
    };
    let answer: Answer = serde_json::from_slice(&answer).unwrap();
    let Reply::Error(error) = answer.reply else { panic!("not an error") };
    assert_eq!((answer.id, error.code), (7, ErrorCode::MalformedRequest));
    send(format!(r#"{{{padding}"id":8}}"#)).await;
    assert_eq!(desk.next().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
}
