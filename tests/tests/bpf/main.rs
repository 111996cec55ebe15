//! The eBPF programs and their loader against the running kernel, in network namespaces of the test's own. Needs root.

#[cfg(test)]
mod arm;
#[cfg(test)]
mod dns;
#[cfg(test)]
mod drops;
#[cfg(test)]
mod loops;
#[cfg(test)]
mod net;
#[cfg(test)]
mod rejects;
#[cfg(test)]
mod resets;
#[cfg(test)]
mod stubs;
