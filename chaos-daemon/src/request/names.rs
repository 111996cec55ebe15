//! What the injector asks of the prober about names of hosts. Name servers are strangers, and the C library reads their answers with
//! plug-ins of its own: so that is done where there are no rights.

use std::net::IpAddr;

use super::line::Line;

/// The most addresses of a host that are told; of more the first.
pub const MOST_ADDRESSES: u32 = 128;
/// No answer is longer, in bytes: so many addresses take a tenth of it.
const LONGEST_ANSWER: usize = 64 << 10;

/// The injector's end: which addresses a name has, or why that is not known.
pub type Resolver = Line<String, Result<Vec<IpAddr>, String>>;

/// One that is not connected to a prober yet.
pub fn resolver() -> Resolver {
    Line::to_nobody(LONGEST_ANSWER)
}
