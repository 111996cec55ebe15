//! Partition and time-out: matching packets vanish.
//!
//! - **Mechanism**: a packet program on the device (tcx, or clsact with a stub) redirects matching packets to an
//!   interface that does not exist, which the kernel treats as a silent loss: the sender sees no error and TCP
//!   retransmits. (`TC_ACT_SHOT` on egress would tell the sender by ENOBUFS.)
//! - **Kernel requirement**: `BPF_PROG_TYPE_SCHED_CLS` and `CONFIG_CGROUP_BPF`, by which a packet is known for a service's; tcx
//!   from 6.6, otherwise `sch_ingress` and `cls_bpf`.
//! - **Lifetime class**: kernel.
//! - **Undo**: end the holder; with clsact, also delete the inert filter.
//! - **Blast radius**: the named device, prefixes, protocol and ports; neighbour discovery, DHCP and protected
//!   traffic are spared.
//! - **Reference**: Linux `net/core/filter.c` (`skb_do_redirect`), `kernel/bpf/tcx.c`.

use super::Ready;
use super::{Match, PacketAction, PacketWork, Place, Plan, Work, attach_steps, matching, traffic_words};
use crate::spec::LifetimeClass;
use crate::spec::{Probability, Traffic};

/// Plans it as soon as its place is known.
pub(super) fn prepare(traffic: &Traffic, packet_probability: Probability, partition: bool) -> Ready {
    let traffic = traffic.clone();
    Ready::on_device(move |place| plan(&traffic, packet_probability, partition, place))
}

/// Plans it.
pub fn plan(traffic: &Traffic, packet_probability: Probability, partition: bool, place: &Place<'_>) -> Plan {
    let packets: Match = matching(traffic, packet_probability, place);
    let verb = if partition { "partition: drops" } else { "timeout: drops" };
    Plan {
        steps: attach_steps(&packets, place),
        lifetime: LifetimeClass::Kernel,
        description: format!("{verb} {}", traffic_words(traffic, &packets)),
        work: Work::Packets(PacketWork { packets, action: PacketAction::Drop }),
    }
}
