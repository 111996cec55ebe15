//! Socket errors: what a service asks of sockets answers with an error at once.
//!
//! - **Mechanism**: programs at security hooks (BPF LSM) of one control group: `socket_bind`, `socket_listen`, `socket_accept`,
//!   `socket_sendmsg` and `socket_recvmsg`, which set what the call returns (`bpf_set_retval`), and send the caller a signal where
//!   one is asked for (`bpf_send_signal`). Nothing is sent, taken or thrown away: a connection that is not accepted waits on, and
//!   so do bytes that are not received. A call is the group's if who calls is in it, whoever made the socket; sockets of IPv4 and
//!   IPv6 are met, and no others.
//! - **Kernel requirement**: as for file errors, and `CONFIG_SECURITY_NETWORK`.
//! - **Lifetime class**: kernel. The links die with the holder. With a signal: irreversible, since what it has ended stays so.
//! - **Undo**: end the holder. What has failed stays failed; every socket can be asked again.
//! - **Blast radius**: processes that are in the named control group, or below it, when they call, and sockets of the named
//!   protocol and ports; what the policy protects is spared. Calls that wait already are not met, because the kernel asks before
//!   they wait.
//! - **Reference**: Linux `net/socket.c`, `security/security.c`, `kernel/bpf/cgroup.c` (`__cgroup_bpf_run_lsm_current`).

use super::Ready;
use super::look::{Eyes, callers, refuse_to_end_who_is_needed};
use super::requirements::refusal;
use super::{Callers, Plan, SocketWork, Work, failure_lifetime, failure_words};
use crate::host::KernelSockets;
use crate::request::ApiError;
use crate::spec::{Failure, Protocol, SocketCalls};

/// Looks at the group, and plans it.
///
/// # Errors
/// When there is no such group, or somebody in it is needed and would be ended.
pub(super) fn prepare(calls: &SocketCalls, failure: &Failure, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    let callers = callers(&calls.whose, Vec::new(), eyes)?;
    refuse_to_end_who_is_needed(&callers.cgroup, failure, eyes.spared)?;
    let kernel = eyes.facts.sockets.get().map_err(|lack| refusal("socket_error", &[lack], eyes.facts))?;
    Ok(plan(calls, failure, &callers, *kernel).into())
}

/// Plans it.
pub fn plan(calls: &SocketCalls, failure: &Failure, callers: &Callers, kernel: KernelSockets) -> Plan {
    let names: Vec<_> = calls.operations.iter().map(|operation| operation.name()).collect();
    let sockets = match calls.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Any | Protocol::Icmp => "IPv4 and IPv6",
    };
    let description = format!(
        "socket_error: cgroup {} gets {} from {} of {sockets}{}{}",
        callers.cgroup.path.display(),
        failure.errno.symbol(),
        names.join(", "),
        calls.ports.words(),
        failure_words(failure)
    );
    Plan {
        steps: Vec::new(),
        lifetime: failure_lifetime(failure),
        description,
        work: Work::Sockets(SocketWork {
            callers: callers.clone(),
            protocol: calls.protocol,
            ports: calls.ports,
            operations: calls.operations.clone(),
            failure: *failure,
            kernel,
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::host::CgroupRef;
    use crate::spec::FaultRequest;
    use crate::spec::LifetimeClass;
    use crate::spec::effect::Effect;

    fn planned(target: Value, params: Value) -> Plan {
        let request: FaultRequest = serde_json::from_value(
            json!({"fault_type": "socket_error", "probability": 1.0, "target": target, "params": params}),
        )
        .unwrap();
        let Effect::Sockets { calls, failure } = request.parse().unwrap().effect else { panic!() };
        let callers = Callers {
            cgroup: CgroupRef { path: "/sys/fs/cgroup/a".into(), id: 7 },
            peers: Vec::new(),
            protected_peers: Vec::new(),
            protected_tcp_ports: vec![22],
        };
        let kernel: KernelSockets = serde_json::from_value(json!({
            "socket_bind": 1, "socket_listen": 2, "socket_accept": 3, "socket_sendmsg": 4, "socket_recvmsg": 5,
            "socket_sock": 6, "family": 7, "protocol": 8, "local_port": 9, "remote_port": 10, "remote_v4": 11,
            "remote_v6": 12, "message_name": 13,
        }))
        .unwrap();
        plan(&calls, &failure, &callers, kernel)
    }

    #[test]
    fn a_plan_says_whose_calls_fail_on_which_sockets_and_how() {
        let target = json!({"cgroup": "a", "protocol": "tcp", "local_port": "8000-8100"});
        let params = json!({"operations": ["accept", "send"], "errno": "connection_aborted", "times": 1});
        let plan = planned(target, params);
        assert_eq!(
            plan.description,
            "socket_error: cgroup /sys/fs/cgroup/a gets ECONNABORTED from accept, send of tcp local ports 8000-8100, 1 times at \
             most"
        );
        assert_eq!(plan.lifetime, LifetimeClass::Kernel);
        assert_eq!(
            plan.work.words(),
            ["attach programs socket_accept, socket_sendmsg to cgroup /sys/fs/cgroup/a by links"]
        );
    }

    #[test]
    fn each_operation_is_met_at_a_hook_of_its_own() {
        let words = planned(json!({"cgroup": "a"}), json!({})).work.words().join("; ");
        for program in ["socket_bind", "socket_listen", "socket_accept", "socket_sendmsg", "socket_recvmsg"] {
            assert_eq!(words.matches(program).count(), 1, "{words}");
        }
    }
}
