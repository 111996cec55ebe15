//! Which service deserves chaos next, why, and what to try on it.
//!
//! Facts of services go in, and the services come out in an order, each with its reasons. A reason has a number, and points that follow
//! from it by one table of [weights]. There is no clock, no chance and no I/O: the same facts give the same advice.

mod facts;
mod rank;
mod reasons;
mod trend;
mod trial;
pub mod weights;

pub use facts::{
    Dependency, Errors, GAUGES, Gauge, Level, Likeness, Look, Outcome, Service, Stage, Stalled, Tried,
};
pub use rank::{Advice, rank};
pub use reasons::Reason;
pub use trend::{Forecast, forecast};
pub use trial::{Trial, of_kind};
pub use weights::What;
