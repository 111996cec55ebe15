//! Which requests of a connection are under way: from when one is taken in until its reply is written, or, of one that was cancelled
//! and gets none, until its handler has ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;

use crate::server::budget::Held;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    begun: u64,
    all: HashMap<RequestId, Request>,
}

#[derive(Debug)]
struct Request {
    /// Which of those with its id.
    number: u64,
    /// Its place, and the room for its reply.
    held: Held,
    /// Its handler has ended.
    handled: bool,
    /// It gets no reply.
    cancelled: bool,
}

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request, and gives it a number; none where one with this id is under way.
    pub(super) fn begin(&self, id: &RequestId, held: Held) -> Option<u64> {
        let mut requests = self.lock();
        if requests.all.contains_key(id) {
            return None;
        }
        requests.begun += 1;
        let number = requests.begun;
        requests.all.insert(id.clone(), Request { number, held, handled: false, cancelled: false });
        Some(number)
    }

    /// Ends a request whose reply is there now; returns what is held for it until that is written.
    pub(super) fn answer(&self, id: &RequestId) -> Option<Held> {
        self.lock().all.remove(id).map(|request| request.held)
    }

    /// A request gets no reply any more, for it was cancelled.
    pub(super) fn cancel(&self, id: &RequestId) {
        let mut requests = self.lock();
        let Some(request) = requests.all.get_mut(id) else { return };
        request.cancelled = true;
        if request.handled {
            requests.all.remove(id);
        }
    }

    /// None gets a reply any more, for the client has gone.
    pub(super) fn cancel_all(&self) {
        self.lock().all.retain(|_, request| {
            request.cancelled = true;
            !request.handled
        });
    }

    /// The handler of a request has ended; one that broke gives no reply.
    fn handled(&self, id: &RequestId, number: u64) {
        let mut requests = self.lock();
        let Some(request) = requests.all.get_mut(id).filter(|request| request.number == number) else {
            return;
        };
        request.handled = true;
        if request.cancelled || std::thread::panicking() {
            requests.all.remove(id);
        }
    }
}

/// The memory of a message while somebody has it, which rmcp hands on with the message.
#[derive(Debug)]
pub(super) struct Memory {
    _memory: Held,
    what: What,
}

#[derive(Debug)]
enum What {
    Request(Arc<UnderWay>, RequestId, u64),
    /// It gets no reply: its place ends with it.
    Notification {
        _place: Held,
    },
}

impl Memory {
    pub(super) fn of_request(memory: Held, under_way: &Arc<UnderWay>, id: RequestId, number: u64) -> Self {
        Self { _memory: memory, what: What::Request(Arc::clone(under_way), id, number) }
    }

    pub(super) fn of_notification(memory: Held, place: Held) -> Self {
        Self { _memory: memory, what: What::Notification { _place: place } }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let What::Request(under_way, id, number) = &self.what {
            under_way.handled(id, *number);
        }
    }
}
