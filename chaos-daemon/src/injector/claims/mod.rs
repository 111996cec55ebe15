//! In whose name the server may ask: of who is connected, as the kernel says it, and of who has begun something while connected. The
//! server names a number. What it stands for is here, and nothing that the server says changes it.

mod doorman;
mod grants;
mod peer;
mod requests;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::approvals::leave::{OfRun, RunLeave};
use crate::policy::Who;
use crate::request::claim::{Claim, Entrusted, Undertaking};
use crate::request::facts::Question;
use crate::request::{ApiError, Caller, ErrorCode, Request};
use crate::spec::{FaultRequest, Owner};
pub use doorman::{Doorman, Entrances, make_room};
use grants::Grants;
pub use requests::read;
pub(super) use requests::{entrust, intent, keep, release, remove, speaker, stop_all};

/// The most connections that are known, those that the server has refused and not let go yet among them. It is a second net: the
/// server's places are fewer (`server/places.rs`).
const MOST_KNOWN: usize = 384;
/// How many of them are for root alone.
const KEPT_FOR_ROOT: usize = 48;

/// In whose name the server may ask.
#[derive(Debug, Default)]
pub struct Claims {
    connections: BTreeMap<u64, Connection>,
    /// How many there have been.
    given: u64,
    grants: Grants,
}

#[derive(Debug)]
struct Connection {
    who: Arc<Who>,
    /// The same as the server has, so that its end is seen here.
    socket: OwnedFd,
    /// The process that has connected, from Linux 6.5 on.
    process: Option<Arc<OwnedFd>>,
}

/// In whose name something is asked, and by what.
#[derive(Debug, Clone)]
pub struct Speaker {
    /// Who that is.
    pub who: Arc<Who>,
    /// By what.
    pub by: By,
}

/// By what somebody is spoken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A connection that is open.
    Connection,
    /// Something that goes on.
    Grant(u64, Undertaking),
}

impl Speaker {
    /// Refuses what is not asked by something that goes on: that does what was entrusted, and nothing else.
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`].
    fn may_ask(&self, request: &Request) -> Result<(), ApiError> {
        let By::Grant(_, what) = self.by else { return Ok(()) };
        let may = match request {
            Request::Record { .. } => true,
            // Before a run begins nothing else is asked.
            Request::Look { question: Question::Experiment(_) } => true,
            Request::Look { .. } => what == Undertaking::Run,
            Request::Inject { .. } | Request::PlanAll { .. } => what == Undertaking::Run,
            Request::Entrust(entrusted) => what != Undertaking::Run && entrusted.what == Undertaking::Run,
            _ => false,
        };
        if may {
            return Ok(());
        }
        let text = "what goes on in somebody's name does no more than what was entrusted";
        Err(ApiError::new(ErrorCode::PolicyDenied, text))
    }
}

/// Nobody holds it while waiting for anything.
pub fn lock(claims: &Mutex<Claims>) -> MutexGuard<'_, Claims> {
    claims.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claims {
    /// Nobody is connected; what has outlived the daemon before is in `kept`, as [`Claims::standing`] has written it.
    ///
    /// # Errors
    /// When that is something else.
    pub fn new(kept: Option<&[u8]>) -> serde_json::Result<Self> {
        let grants = kept.map_or_else(|| Ok(Grants::default()), Grants::read)?;
        Ok(Self { connections: BTreeMap::new(), given: 0, grants })
    }

    /// Knows somebody from now until the other end of `socket` closes; returns the number of the connection.
    ///
    /// # Errors
    /// When there are too many, and what to do.
    pub fn arrive(&mut self, who: Who, socket: OwnedFd, process: Option<OwnedFd>) -> Result<u64, String> {
        let most = if who.caller.owner().is_root() { MOST_KNOWN } else { MOST_KNOWN - KEPT_FOR_ROOT };
        if self.connections.len() >= most {
            self.sweep();
        }
        if self.connections.len() >= most {
            return Err(format!("{most} connections are open, which is the most at once: close one"));
        }
        self.given += 1;
        let process = process.map(Arc::new);
        self.connections.insert(self.given, Connection { who: Arc::new(who), socket, process });
        Ok(self.given)
    }

    /// Forgets a connection.
    pub fn leave(&mut self, connection: u64) {
        self.connections.remove(&connection);
    }

    /// Whoever is meant by a claim now. The kernel is asked whether a connection is open still.
    ///
    /// # Errors
    /// [`ErrorCode::Unavailable`] when nobody is.
    pub fn speaker(&mut self, claim: Claim) -> Result<Speaker, ApiError> {
        let gone = |what: &str| {
            let text = format!("{what}: nothing is done in a name that nobody here has any more");
            ApiError::new(ErrorCode::Unavailable, text).hint("connect again, and ask again")
        };
        match claim {
            Claim::Nobody => Err(gone("it was asked in nobody's name")),
            Claim::Connection(number) => {
                let open = self.connections.get(&number).filter(|connection| connection.is_open());
                let Some(connection) = open else {
                    self.connections.remove(&number);
                    return Err(gone("the connection has ended"));
                };
                Ok(Speaker {
                    who: of_process(&connection.who, connection.process.as_ref()),
                    by: By::Connection,
                })
            }
            Claim::Grant(number) => {
                let grant = self.grants.find(number);
                let grant = grant.ok_or_else(|| gone("what goes on has ended, or was never entrusted"))?;
                let who = of_process(&Arc::new(grant.who.clone()), grant.process.as_ref());
                Ok(Speaker { who, by: By::Grant(number, grant.what()) })
            }
        }
    }

    /// Has something go on in the name of this speaker; returns its number.
    ///
    /// # Errors
    /// When too much does, or it is not what the speaker's own grant is for.
    pub fn entrust(&mut self, speaker: &Speaker, claim: Claim, what: &Entrusted) -> Result<u64, ApiError> {
        let process = match claim {
            Claim::Connection(number) => self.connections.get(&number).and_then(|open| open.process.clone()),
            Claim::Grant(_) | Claim::Nobody => None,
        };
        if let By::Grant(number, _) = speaker.by {
            self.grants.begin_run(number, what)?;
        }
        self.grants.add(Who::clone(&speaker.who), process, what)
    }

    /// Notes what others have approved of for a run that goes on by this grant.
    pub(super) fn approve(&mut self, grant: u64, leave: RunLeave) {
        self.grants.approve(grant, leave);
    }

    /// Takes a fault of what goes on by this grant: each is injected once. Returns what others have approved of for it.
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`] when it has no such fault, or not any more.
    pub fn take_fault(
        &mut self,
        grant: u64,
        owner: Owner,
        fault: &FaultRequest,
    ) -> Result<Option<OfRun>, ApiError> {
        self.grants.take_fault(grant, owner, fault)
    }

    /// Something is over. Whether it was one of those that outlive the server.
    pub fn release(&mut self, grant: u64) -> bool {
        self.grants.remove(grant)
    }

    /// Of those that outlive the server no others are in use. Whether there were some.
    pub fn keep(&mut self, grants: &[u64]) -> bool {
        self.grants.keep(grants)
    }

    /// What outlives the daemon, to be written down.
    ///
    /// # Errors
    /// Never, as it is made of text and numbers.
    pub fn standing(&self) -> serde_json::Result<Vec<u8>> {
        self.grants.write()
    }

    /// Forgets who is no longer connected.
    pub fn sweep(&mut self) {
        self.connections.retain(|_, connection| connection.is_open());
    }

    /// The server has ended, with all that lives in it.
    pub fn server_gone(&mut self) {
        self.connections.clear();
        self.grants.forget_runs();
    }
}

impl Connection {
    /// Whether neither end is closed. One whose caller has only stopped to say something is open.
    fn is_open(&self) -> bool {
        // Without a question: hanging up and errors are told in any case (poll(2)). A vsock that the other end has closed only says
        // that nothing more comes.
        let asked = match self.who.caller {
            Caller::Unix { .. } => PollFlags::empty(),
            Caller::Vsock { .. } => PollFlags::from_bits_retain(libc::POLLRDHUP),
        };
        !has_happened(&self.socket, asked)
    }
}

/// Whether something of this, or an end, has come of a descriptor. A signal in between is none of it: it is asked again.
fn has_happened(of: &OwnedFd, what: PollFlags) -> bool {
    let mut asked = [PollFd::new(of.as_fd(), what)];
    loop {
        match poll(&mut asked, PollTimeout::ZERO) {
            Err(Errno::EINTR) => {}
            come => return come != Ok(0),
        }
    }
}

/// Who it is; without the process once that has ended: another one may have its number by then.
fn of_process(who: &Arc<Who>, process: Option<&Arc<OwnedFd>>) -> Arc<Who> {
    // A descriptor of a process can be read when it has ended (pidfd_open(2)).
    let has_ended = process.is_some_and(|process| has_happened(process, PollFlags::POLLIN));
    match has_ended {
        true => Arc::new(Who { caller: who.caller.without_process(), ..Who::clone(who) }),
        false => Arc::clone(who),
    }
}

#[cfg(test)]
mod tests;
