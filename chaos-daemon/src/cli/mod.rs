//! `chaosctl`, a client of the daemon's MCP socket, and the grammar that experiments share with it.

mod bridge;
mod client;
mod ctl;
mod document;
mod duration;
mod evidence;
mod experiments;
mod failure;
mod fault_args;
mod history;
mod hub;
mod interrupts;
mod mcp_proxy;
mod probe_args;
mod progress;
mod runs;
mod schedule;
mod show;
mod size;
mod watch;

use crate::mcp;
use crate::server::{ServerError, ServerOptions};

pub use ctl::main as chaosctl;
pub use ctl::native;
#[cfg(test)]
pub(crate) use ctl::{parser, understood};

/// Runs the unprivileged server, with `chaosctl`'s own grammar for the command lines in experiments.
///
/// # Errors
/// As [`mcp::serve`].
pub async fn serve(options: ServerOptions) -> Result<(), ServerError> {
    mcp::serve(options, native).await
}
