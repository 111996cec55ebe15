//! The life of one fault: a process that owns the kernel objects in which the fault lives.
//!
//! ```text
//!            Ready            Armed            Beat …             Disarmed
//!  started ────────> waiting ────────> armed ────────> renewed ──────────> gone
//!    Load ↑     Arm ↑           Renew ↑ (every second)   Disarm ↑
//! ```
//!
//! It is single-threaded, but for those that burn, hoard, send signals, trace or replay. It does no disk I/O but what is the fault, has no
//! child, and every descriptor is close-on-exec. Its death is the end of the fault, and it dies by the parent-death signal, by its own kernel
//! timer, and when the socket to the injector closes.

pub mod arm;
mod burner;
mod countdown;
pub mod deadline;
mod detour;
mod flapper;
mod group;
mod hoard;
pub mod keeper;
pub mod life;
mod memory;
pub mod packets;
mod pauser;
pub mod protocol;
mod replayer;
mod restarter;
mod settings;
mod signaller;
mod spoiler;

pub use life::run;
pub use protocol::{Lease, Order, Preload, Report, Unreached};
