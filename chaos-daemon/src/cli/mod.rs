//! `chaosctl`, a client of the daemon's MCP socket.

mod advise;
mod approvals;
mod audit;
mod bridge;
mod calls;
mod claude_md;
mod client;
mod clients;
mod compare;
mod convert;
mod ctl;
mod document;
mod duration;
mod experiments;
mod failure;
mod fault_args;
mod history;
mod hook;
mod hub;
mod inject;
mod interrupts;
mod live;
mod mcp_proxy;
mod policy;
mod progress;
mod report;
mod runs;
mod sample;
mod schedule;
mod search;
mod show;
mod top;
mod validate;
mod watch;
mod whole_file;
mod words;

pub use ctl::main as chaosctl;
#[cfg(test)]
pub(crate) use ctl::{native, parser};
