//! What the injector asks of the prober about names of hosts. Name servers are strangers, and the C library reads their answers with
//! plug-ins of its own: so that is done where there are no rights.

use std::net::IpAddr;

use tokio::net::UnixStream;

use super::line::Line;

/// The most addresses of a host that are told; of more the first.
pub const MOST_ADDRESSES: u32 = 128;
/// No answer is longer, in bytes: so many addresses take a tenth of it.
const LONGEST_ANSWER: usize = 64 << 10;

/// The injector's end: which addresses a name has, or why that is not known.
pub type Resolver = Line<String, Result<Vec<IpAddr>, String>>;

/// Takes over the stream to the prober. Must be called within a tokio runtime.
pub fn resolver(stream: UnixStream) -> Resolver {
    Line::new(stream, LONGEST_ANSWER)
}
