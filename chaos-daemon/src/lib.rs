//! chaos-daemon: real faults on one Linux node, each of which ends.
//!
//! The rooms, in reading order. An arrow between rooms only ever points up this list; `cargo xtask tidy`
//! checks it. What the rooms promise each other is in `ARCHITECTURE.md`.

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod waits;

pub mod fail_point;
pub mod sabotage;

pub mod spec;

pub mod request;

pub mod host;

pub mod target;

pub mod kernel;

pub mod policy;

pub mod fault;

pub mod journal;

pub mod residue;

pub mod holder;

pub mod injector;

pub mod guard;

pub mod probe;

pub mod experiment;

pub mod server;

pub mod report;

pub mod mcp;

pub mod cli;

pub mod roles;
