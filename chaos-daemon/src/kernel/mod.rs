//! The only code that changes the node: each module wraps one interface of the kernel.

pub mod bpf;
