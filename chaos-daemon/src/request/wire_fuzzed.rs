//! However a stream is cut into pieces, the same frames come of it; and every message of them is written as it was read.

use super::{Answer, Call, MAX_FRAME, OnlyId, Unread, frame};
use crate::fuzzing::{agree, is_written_as_it_is, stays_the_same};
use crate::request::Request;
use crate::spec::FaultRequest;

pub(crate) fn read(bytes: &[u8]) {
    let frames = frames_of(&[bytes]);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    agree(&frames, &frames_of(&[first, second]));
    for bytes in &frames {
        assert!(bytes.len() <= MAX_FRAME);
        // A list for an object has no more than its id then.
        let is_its = |id| serde_json::from_slice::<OnlyId>(bytes).map_or(true, |only| only.id == id);
        if let Some(call) = stays_the_same::<Call>(bytes) {
            assert!(is_its(call.id), "of another");
            assert!(frame(&call).is_ok(), "what came through the door does not fit through it");
            faults(call.request.as_ref()).into_iter().for_each(understand);
        }
        if let Some(answer) = stays_the_same::<Answer>(bytes) {
            assert!(is_its(answer.id), "of another");
        }
    }
}

/// The frames of a stream that comes in these pieces, until one is none.
pub(crate) fn frames_of(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let (mut unread, mut frames) = (Unread { buffer: Vec::new(), longest: MAX_FRAME }, Vec::new());
    for piece in pieces {
        unread.buffer.extend_from_slice(piece);
        while let Ok(Some(frame)) = unread.take() {
            frames.push(frame);
        }
    }
    frames
}

fn faults(request: Option<&Request>) -> Vec<&FaultRequest> {
    match request {
        Some(Request::Inject { fault, .. } | Request::Plan { fault, .. }) => vec![fault],
        Some(Request::PlanAll { faults, .. }) => faults.iter().map(|planned| &planned.fault).collect(),
        _ => Vec::new(),
    }
}

/// What it means goes to a holder.
fn understand(fault: &FaultRequest) {
    if let Ok(fault) = fault.parse() {
        is_written_as_it_is(&fault);
    }
}
