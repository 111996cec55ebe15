//! Connection errors: what a service wants to connect to, or sends to without a connection, answers with an error at once.
//!
//! - **Mechanism**: programs at the hooks `connect4`, `connect6`, `sendmsg4` and `sendmsg6` of one control group, which set
//!   what the call returns (`bpf_set_retval`). No packet leaves. A call is the group's if its socket was made there.
//! - **Kernel requirement**: cgroup v2 and `CONFIG_CGROUP_BPF`; `bpf_set_retval` is of Linux 5.18.
//! - **Lifetime class**: kernel. The links die with the holder.
//! - **Undo**: end the holder. What has failed stays failed; a socket whose connect(2) has failed can try again.
//! - **Blast radius**: the sockets of the named control group and of those below it. Connections that are there go on;
//!   unix sockets, raw sockets and what others send are not asked.
//! - **Reference**: Linux `net/ipv4/tcp_ipv4.c` (`tcp_v4_pre_connect`), `net/ipv4/udp.c`, `kernel/bpf/cgroup.c`.

use super::Ready;
use super::look::{Eyes, callers};
use super::{CallWork, Callers, Plan, Work, failure_words};
use crate::request::ApiError;
use crate::spec::LifetimeClass;
use crate::spec::{Connections, Failure, Protocol};

/// Looks at the group, and plans it.
///
/// # Errors
/// When there is no such control group.
pub(super) fn prepare(calls: &Connections, failure: &Failure, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    let peers = [&calls.peers, eyes.named].concat();
    Ok(plan(calls, failure, &callers(&calls.whose, peers, eyes)?).into())
}

/// Plans it.
pub fn plan(calls: &Connections, failure: &Failure, callers: &Callers) -> Plan {
    Plan {
        steps: Vec::new(),
        lifetime: LifetimeClass::Kernel,
        description: words(calls, failure, callers),
        work: Work::Calls(CallWork {
            callers: callers.clone(),
            protocol: calls.protocol,
            ports: calls.ports,
            failure: *failure,
        }),
    }
}

/// "connect_error: cgroup /sys/fs/cgroup/a gets ECONNREFUSED from tcp port 5432, peer 10.0.0.7/32".
fn words(calls: &Connections, failure: &Failure, callers: &Callers) -> String {
    let mut words =
        format!("connect_error: cgroup {} gets {}", callers.cgroup.path.display(), failure.errno.symbol());
    words.push_str(match calls.protocol {
        Protocol::Tcp => " from tcp",
        Protocol::Udp => " from udp",
        Protocol::Any | Protocol::Icmp => " from tcp and udp",
    });
    if let Some(ports) = calls.ports {
        words.push_str(&format!(" {ports}"));
    }
    match callers.peers.as_slice() {
        [] => words.push_str(", every peer"),
        [one] => words.push_str(&format!(", peer {one}")),
        [first, ..] => words.push_str(&format!(", {} peer prefixes ({first}, …)", callers.peers.len())),
    }
    words + &failure_words(failure)
}
