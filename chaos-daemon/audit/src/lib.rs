//! The audit: an append-only record of who did what, in which a change can be found.
//!
//! A record is a line of JSON. Each line has a number, and the hash of the line before it. So nothing can be changed, left out, put in
//! or moved without a break in the chain ([`verify()`]). Where the chain ends is said by its *head*, which is kept beside it and
//! told to others. [`Folder`] has the chain on disk, in segments. [`Audit`] writes it on a thread of its own.
//!
//! Who may write the files can write the whole chain anew, and its head. That is found only by a head that somebody else has kept.

mod audit;
mod chain;
mod folder;
mod head;
mod line;
mod record;
mod shares;
mod verify;

pub use audit::{Audit, AuditOptions, Ear, Fallen, Sink, Written};
pub use chain::{Hash, NotAHash};
pub use folder::{Folder, Limits, segments};
pub use head::Head;
pub use line::Line;
pub use record::{Dropped, Mended, Outcome, Party, Record, Who};
pub use shares::{Kind, Shares};
pub use verify::{Problem, Segment, Verified, verify};

#[cfg(test)]
mod mutation_tests;
