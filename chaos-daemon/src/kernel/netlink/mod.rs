//! Links and traffic control, over the kernel's routing netlink. A [`Netlink`] is a connection into one network
//! namespace, and stays in it wherever its thread goes.
//!
//! Mechanism: netlink(7), rtnetlink(7). Every change is acknowledged by the kernel before it returns. What is
//! deleted is compared first, and a thing that is already gone is `Ok(false)`, so that every undo can be repeated.

pub mod belongings;
pub mod clsact;
pub mod error;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed;
pub mod htb;
pub mod link;
pub mod marks;
pub mod netem;
pub mod probe;
pub mod qdisc;
pub mod residue;
mod route;
mod wire;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use futures_util::StreamExt;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::proto::{self, Connection, ConnectionHandle, NetlinkCodec};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr, TokioSocket};
use tokio::time::timeout;

use self::error::{ANSWER_LIMIT, Refusal};
use self::wire::Wire;
use crate::fail_point::{self, Point};
use crate::host::netns::NetNs;

pub use self::belongings::Belongings;
pub use self::clsact::{Clsact, Filter};
pub use self::error::NetlinkError;
pub use self::htb::Pace;
pub use self::link::{Device, LinkLayer, VethPair};
pub use self::netem::{Chance, Loss, Netem, NetemState};
pub use self::qdisc::Qdisc;
pub use self::residue::Residue;

/// How often a list that changed while it was read is read again.
const DUMP_ATTEMPTS: u32 = 8;

/// A connection into one network namespace. The connection ends when this is dropped.
#[derive(Debug)]
pub struct Netlink {
    line: Line,
    /// The same socket again, for what only an ioctl tells.
    socket: OwnedFd,
    netns: NetNs,
}

/// Who answers.
#[derive(Debug)]
enum Line {
    Kernel(ConnectionHandle<Wire>),
    #[cfg(test)]
    Fake(std::sync::Arc<super::fake::FakeKernel>),
}

impl Netlink {
    /// Connects into the namespace that the calling thread is in.
    ///
    /// # Errors
    /// When there is no socket to be had, or no tokio runtime with I/O and time to drive it.
    pub fn open() -> Result<Self, NetlinkError> {
        let netns = NetNs::current().map_err(NetlinkError::NetNs)?;
        let socket = open_socket().map_err(NetlinkError::Open)?;
        Self::connect(socket, netns)
    }

    /// Connects into another namespace; the calling thread stays in its own.
    ///
    /// # Errors
    /// As [`Netlink::open`], and when the namespace cannot be entered.
    pub fn open_in(netns: NetNs) -> Result<Self, NetlinkError> {
        let socket = netns.inside(open_socket).map_err(NetlinkError::NetNs)?;
        Self::connect(socket, netns)
    }

    fn connect(socket: Socket, netns: NetNs) -> Result<Self, NetlinkError> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| NetlinkError::Open(io::Error::other(error)))?;
        let spare = socket.as_fd().try_clone_to_owned().map_err(NetlinkError::Open)?;
        // SAFETY: the descriptor was just given up by its only owner.
        let socket = unsafe { TokioSocket::from_raw_fd(socket.into_raw_fd()) };
        let (mut connection, handle, _unsolicited): (Connection<Wire, TokioSocket, NetlinkCodec>, _, _) =
            proto::from_socket_with_codec(socket);
        // An answer counts only when its end was seen: without these two, a lost connection looks like success.
        connection.set_forward_ack(true);
        connection.set_forward_done(true);
        runtime.spawn(connection);
        Ok(Self { line: Line::Kernel(handle), socket: spare, netns })
    }

    /// The namespace this is connected into.
    pub fn netns(&self) -> &NetNs {
        &self.netns
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends one request, and returns what came before its acknowledgement.
    async fn request(
        &self,
        operation: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<Vec<u8>>, NetlinkError> {
        self.exchange(operation, Wire::Request(message), NLM_F_ACK | flags).await.map(|(answers, _)| answers)
    }

    /// Sends again what a list has told, as a request of the type `kind`.
    async fn replay(&self, operation: &str, kind: u16, bytes: &[u8], flags: u16) -> Result<(), NetlinkError> {
        let message = Wire::Raw(kind, bytes.to_vec());
        self.exchange(operation, message, NLM_F_ACK | flags).await.map(drop)
    }

    /// Reads a whole list, again if it changed meanwhile. `message` is made anew for each attempt.
    async fn dump(
        &self,
        operation: &str,
        message: impl Fn() -> RouteNetlinkMessage,
    ) -> Result<Vec<Vec<u8>>, NetlinkError> {
        self.dump_wire(operation, || Wire::Request(message())).await
    }

    async fn dump_wire(
        &self,
        operation: &str,
        message: impl Fn() -> Wire,
    ) -> Result<Vec<Vec<u8>>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            let (answers, interrupted) = self.exchange(operation, message(), NLM_F_DUMP).await?;
            if !interrupted {
                return Ok(answers);
            }
        }
        Err(NetlinkError::Unstable { operation: operation.to_owned() })
    }

    async fn exchange(
        &self,
        operation: &str,
        message: Wire,
        flags: u16,
    ) -> Result<(Vec<Vec<u8>>, bool), NetlinkError> {
        let unknown = |_| NetlinkError::NoAnswer { operation: operation.to_owned() };
        fail_point::pass(Point::BeforeCall).map_err(unknown)?;
        let answers = self.send(operation, message, flags).await?;
        fail_point::pass(Point::AfterCall).map_err(unknown)?;
        Ok(answers)
    }

    async fn send(
        &self,
        operation: &str,
        message: Wire,
        flags: u16,
    ) -> Result<(Vec<Vec<u8>>, bool), NetlinkError> {
        let no_answer = || NetlinkError::NoAnswer { operation: operation.to_owned() };
        let refused = |refusal| Err(NetlinkError::refused(operation.to_owned(), refusal));
        #[cfg_attr(
            not(test),
            expect(clippy::infallible_destructuring_match, reason = "tests have a second kind of line")
        )]
        let handle = match &self.line {
            Line::Kernel(handle) => handle,
            #[cfg(test)]
            Line::Fake(kernel) => return kernel.answer(operation, &message, flags),
        };
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        let Ok(mut stream) = handle.request(message, SocketAddr::new(0, 0)) else {
            return Err(no_answer());
        };
        let (mut answers, mut interrupted) = (Vec::new(), false);
        while let Ok(Some(message)) = timeout(ANSWER_LIMIT, stream.next()).await {
            interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
            match message.payload {
                NetlinkPayload::InnerMessage(Wire::Answer(bytes)) => answers.push(bytes),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok((answers, interrupted)),
                NetlinkPayload::Error(error) => return refused(Refusal::from_message(&error)),
                NetlinkPayload::Done(done) if done.code == 0 => return Ok((answers, interrupted)),
                NetlinkPayload::Done(done) => return refused(Refusal::new(done.code, &done.extended_ack)),
                _ => {}
            }
        }
        Err(no_answer())
    }
}

/// A socket that says in words why it refuses, without echoing the request.
fn open_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.set_ext_ack(true)?;
    socket.set_cap_ack(true)?;
    socket.bind_auto()?;
    Ok(socket)
}

impl From<Wire> for NetlinkPayload<Wire> {
    fn from(message: Wire) -> Self {
        Self::InnerMessage(message)
    }
}
