//! The life of one fault: a process that owns the kernel objects in which the fault lives.
//!
//! ```text
//!            Ready            Armed            Beat …             Disarmed
//!  started ────────> waiting ────────> armed ────────> renewed ──────────> gone
//!    Load ↑     Arm ↑           Renew ↑ (every second)   Disarm ↑
//! ```
//!
//! It is single-threaded (but for who burns CPU time, sends signals or traces), does no disk I/O, has no child, and every descriptor is
//! close-on-exec. Its death is the end of the fault, and it dies by the parent-death signal, by its own kernel
//! timer, and when the socket to the injector closes.

pub mod arm;
pub mod burner;
pub mod deadline;
pub mod life;
mod memory;
pub mod pauser;
pub mod protocol;
pub mod signaller;

pub use life::run;
pub use protocol::{Lease, Order, Preload, Report};
