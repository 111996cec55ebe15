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

use super::Ready;
use super::look::{Crowd, Eyes, everybody, invalid, select};
use super::{Plan, Work, work::SpoilWork};
use crate::host::{Running, budget, proxy};
use crate::kernel::proxy::find;
use crate::request::{ApiError, ErrorCode};
use crate::spec::LifetimeClass;
use crate::spec::ProcessSelector;
use crate::spec::mcp::Spoiling;
use crate::spec::mcp::page::Order;
use crate::target::process::Matcher;
use std::collections::BTreeMap;
use std::fs::File;

/// The command of `chaosctl` that every proxy has in its command line.
const PROXY: &str = "mcp-proxy";

/// Looks for the proxies, and plans it.
///
/// # Errors
/// When nobody matches, none of those is a proxy or may be hit, or one has a fault already.
pub(super) fn prepare(
    selector: &ProcessSelector,
    spoiling: &Spoiling,
    eyes: &Eyes<'_>,
) -> Result<Ready, ApiError> {
    let crowd = proxies(selector, eyes)?;
    Ok(Ready::of_processes(plan(selector, spoiling, &crowd), &crowd, selector))
}

/// The proxies among the processes that match; none of those that are hit has a fault already.
fn proxies(selector: &ProcessSelector, eyes: &Eyes<'_>) -> Result<Crowd, ApiError> {
    let matcher = Matcher::new(selector, eyes.identity(), eyes.spared)?;
    let mut matching = matcher.matching(everybody()?)?;
    let mut pages = BTreeMap::new();
    // Of nobody else a descriptor is taken.
    for process in matching.iter().filter(|process| process.command.split(' ').any(|word| word == PROXY)) {
        budget::check()?;
        pages.extend(page(process)?.map(|page| (process.id, page)));
    }
    if pages.is_empty() && !matching.is_empty() {
        let (count, plural) = (matching.len(), if matching.len() == 1 { "" } else { "es" });
        let text = format!("target: none of {count} process{plural} ({selector}) is a chaosctl mcp-proxy");
        return Err(ApiError::new(ErrorCode::TargetNotFound, text).hint(
            "put `chaosctl mcp-proxy --` before the server's command in the configuration of its client",
        ));
    }
    matching.retain(|process| pages.contains_key(&process.id));
    let crowd = select(selector, &matcher, matching, eyes.spared)?;
    let claimed = |process: &&Running| {
        pages.get(&process.id).is_some_and(|page| proxy::is_claimed(page).unwrap_or(false))
    };
    match crowd.selection.hit.iter().find(claimed) {
        None => Ok(crowd),
        Some(Running { id, name, .. }) => {
            let text = format!("process {} ({name}) has an mcp_error already, and can have one only", id.pid);
            Err(invalid(text).hint("remove that fault first, or say in it what both of them do"))
        }
    }
}

/// The page of a process, if it is a proxy.
fn page(process: &Running) -> Result<Option<File>, ApiError> {
    find(process.id).map_err(|error| {
        let text = format!("look at a descriptor of process {} ({}): {error}", process.id.pid, process.name);
        ApiError::new(ErrorCode::InjectionFailed, text)
            .hint("it takes CAP_SYS_PTRACE, and kernel.yama.ptrace_scope below 3")
    })
}

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
