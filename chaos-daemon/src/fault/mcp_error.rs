//! MCP error: calls to an MCP server that speaks over stdio are delayed, failed, lost or spoilt, by the `chaosctl mcp-proxy` that is
//! before it.
//!
//! - **Mechanism**: each proxy has a page of shared memory (a memfd), whose descriptor the holder takes by `pidfd_getfd` of a process
//!   pinned by pidfd and start time, and opens anew. The holder writes there what becomes of which calls, then the deadline of its lease, and last takes a
//!   lock on the page (`F_OFD_SETLK`). At each call, and for each answer, the proxy asks the kernel for the lock and the clock for
//!   the deadline. It counts on the page.
//! - **Kernel requirement**: `pidfd_getfd` (Linux 5.6). `CAP_SYS_PTRACE` is enough, unless Yama forbids it altogether
//!   (`kernel.yama.ptrace_scope` of 3).
//! - **Lifetime class**: kernel: the lock is gone with the holder, and without it the page says nothing. Of a holder that is stopped
//!   the deadline runs out. Answers that are late come when the fault ends.
//! - **Undo**: end the holder.
//! - **Blast radius**: the clients of the selected proxies. One fault at a time has a proxy; what its own options do goes on beside
//!   it. A proxy that is started later is not met. One whose time namespace has another boot time keeps the deadline by that clock.
//! - **Reference**: memfd_create(2), pidfd_getfd(2), fcntl(2) (open file description locks); Model Context Protocol, transport "stdio".

use super::{Crowd, Plan, Work, work::SpoilWork};
use crate::spec::LifetimeClass;
use crate::spec::ProcessSelector;
use crate::spec::mcp::Spoiling;
use crate::spec::mcp::page::Order;

/// Plans it for the proxies that are selected now, and stay the ones.
pub fn plan(selector: &ProcessSelector, spoiling: &Spoiling, crowd: &Crowd) -> Plan {
    let order = Order { spoiling: spoiling.clone(), seed: selector.seed };
    Plan {
        steps: Vec::new(),
        lifetime: LifetimeClass::Kernel,
        description: format!("mcp_error: {spoiling}, at {}", crowd.selection.words(selector)),
        work: Work::Spoil(SpoilWork { targets: crowd.selection.ids(), order }),
    }
}
