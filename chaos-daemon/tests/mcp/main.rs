//! The MCP server over a real unix socket, and `chaosctl` before it; behind it, a double of the injector.

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod catalogue;
#[cfg(test)]
mod chaosctl;
#[cfg(test)]
mod client;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod double;
#[cfg(test)]
mod experiments;
#[cfg(test)]
mod history;
#[cfg(test)]
mod hooks;
#[cfg(test)]
mod interrupts;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod node;
#[cfg(test)]
mod probes;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod protocol;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod revisions;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod sampling;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod searches;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod specification;
#[cfg(test)]
mod stages;
#[cfg(test)]
mod stops;
#[cfg(test)]
mod strategies;
#[cfg(test)]
mod subscriptions;
#[cfg(test)]
mod supervisors;
#[cfg(test)]
mod waiting;
