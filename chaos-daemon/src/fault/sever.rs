//! Partition and time-out of one service, without an interface: what its sockets send, and what arrives for them, vanishes.
//!
//! - **Mechanism**: programs at the hooks `BPF_CGROUP_INET_EGRESS` and `BPF_CGROUP_INET_INGRESS` of one control group, which the kernel
//!   runs for each packet of its sockets: after routing on the way out, and once the socket is known on the way in, whatever the
//!   interface. What is lost of TCP is sent again, and of a datagram nobody is told but who has asked for errors (`IP_RECVERR`).
//! - **Kernel requirement**: cgroup v2 and `CONFIG_CGROUP_BPF`; links to control groups are of Linux 5.7, and atomic counting with a
//!   result of 5.12.
//! - **Lifetime class**: kernel. The links die with the holder.
//! - **Undo**: end the holder.
//! - **Blast radius**: the sockets of IPv4 and IPv6 that the named control group, or one below it, has made, narrowed to prefixes,
//!   protocol and ports. What goes over the loopback is met only where a prefix or host names its peer; neighbour discovery,
//!   DHCP and protected traffic are spared. What the kernel sends for want of a socket is not met, nor are packet sockets.
//! - **Reference**: Linux `net/core/filter.c` (`sk_filter_trim_cap`), `net/ipv4/ip_output.c` (`ip_finish_output`),
//!   `kernel/bpf/cgroup.c` (`__cgroup_bpf_run_filter_skb`).

use super::Ready;
use super::look::{Eyes, callers};
use super::{Callers, Plan, SeverWork, Work, direction_words, peer_words, transport_words};
use crate::request::ApiError;
use crate::spec::LifetimeClass;
use crate::spec::Requirement;
use crate::spec::{Probability, ServicePackets};

/// What it needs of the kernel.
pub const REQUIREMENTS: &[Requirement] = &[Requirement::CgroupV2, Requirement::SeverPrograms];

/// Looks at the group, and plans it.
///
/// # Errors
/// When there is no such control group.
pub(super) fn prepare(
    packets: &ServicePackets,
    packet_probability: Probability,
    partition: bool,
    eyes: &Eyes<'_>,
) -> Result<Ready, ApiError> {
    let peers = [&packets.peers, eyes.named].concat();
    let callers = callers(&packets.whose, peers, eyes)?;
    Ok(plan(packets, packet_probability, partition, &callers).into())
}

/// Plans it.
pub fn plan(
    packets: &ServicePackets,
    packet_probability: Probability,
    partition: bool,
    callers: &Callers,
) -> Plan {
    Plan {
        steps: Vec::new(),
        lifetime: LifetimeClass::Kernel,
        description: words(packets, packet_probability, partition, callers),
        work: Work::Sever(SeverWork {
            callers: callers.clone(),
            protocol: packets.protocol,
            ports: packets.ports,
            directions: packets.directions.clone(),
            packet_probability,
        }),
    }
}

/// "partition: drops tcp port 5432, peer 10.0.0.7/32 of cgroup /sys/fs/cgroup/a on every interface, both ways".
fn words(
    packets: &ServicePackets,
    packet_probability: Probability,
    partition: bool,
    callers: &Callers,
) -> String {
    let mut words = if partition { "partition: drops " } else { "timeout: drops " }.to_owned();
    words.push_str(&transport_words(packets.protocol, packets.ports, packet_probability));
    words.push_str(&peer_words(&callers.peers));
    words.push_str(&format!(" of cgroup {} on every interface", callers.cgroup.path.display()));
    if callers.peers.is_empty() {
        words.push_str(" but lo");
    }
    words + direction_words(&packets.directions)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::host::CgroupRef;
    use crate::spec::FaultRequest;
    use crate::spec::effect::Effect;

    fn planned(kind: &str, target: Value, peers: &[&str]) -> Plan {
        let request: FaultRequest =
            serde_json::from_value(json!({"fault_type": kind, "probability": 1.0, "target": target}))
                .unwrap();
        let effect = request.parse().unwrap().effect;
        let Effect::Sever { packets, packet_probability, partition } = effect else { panic!("{effect:?}") };
        let callers = Callers {
            cgroup: CgroupRef { path: "/sys/fs/cgroup/a".into(), id: 7 },
            peers: peers.iter().map(|peer| peer.parse().unwrap()).collect(),
            protected_peers: Vec::new(),
            protected_tcp_ports: vec![22],
        };
        plan(&packets, packet_probability, partition, &callers)
    }

    #[test]
    fn a_plan_says_whose_packets_vanish_and_that_the_loopback_is_spared_unless_it_is_named() {
        let whole = planned("network_partition", json!({"cgroup": "a"}), &[]);
        assert_eq!(
            whole.description,
            "partition: drops all packets of cgroup /sys/fs/cgroup/a on every interface but lo, both ways"
        );
        assert_eq!(
            whole.work.words(),
            ["attach programs sever_egress, sever_ingress to cgroup /sys/fs/cgroup/a by links"]
        );
        assert!(whole.steps.is_empty() && whole.lifetime == LifetimeClass::Kernel);
        let narrow = json!({"cgroup": "a", "cidr": "127.0.0.1", "protocol": "tcp", "remote_port": 5432});
        let narrow = planned("timeout", narrow, &["127.0.0.1/32"]);
        assert_eq!(
            narrow.description,
            "timeout: drops tcp remote port 5432, peer 127.0.0.1/32 of cgroup /sys/fs/cgroup/a on every interface, egress"
        );
        assert_eq!(narrow.work.words(), ["attach programs sever_egress to cgroup /sys/fs/cgroup/a by links"]);
    }
}
