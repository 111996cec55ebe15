//! What packets and calls are narrowed by, as the programs read it: protocol, ports and connections.

use chaos_common::PacketRule;
use chaos_common::rule::{
    self, EITHER, EXCEPT, EXCEPT_PORTS, LISTED_EITHER, LISTED_LOCAL, LISTED_REMOTE, LOCAL, OPEN, OPENING,
    REMOTE, SOME_CONNECTIONS,
};

use crate::kernel::bpf::{BpfError, Programs};
use crate::spec::{Flows, PortMatch, Ports, Protocol, TcpState};

/// The rule of these protocols, ports and connections. What it says of lists, [`list`] has to have written.
pub fn narrowed(rule: PacketRule, protocol: Protocol, ports: &PortMatch, flows: Flows) -> PacketRule {
    let mut rule = PacketRule { protocol: number(protocol), ..rule };
    for (range, given, flag) in [
        (&mut rule.ports, ports.either, LISTED_EITHER),
        (&mut rule.local_ports, ports.local, LISTED_LOCAL),
        (&mut rule.remote_ports, ports.remote, LISTED_REMOTE),
    ] {
        if let Some((span, is_whole)) = given.map(Ports::span) {
            *range = span;
            rule.flags |= if is_whole { 0 } else { flag };
        }
    }
    if ports.except.is_some() {
        rule.flags |= EXCEPT_PORTS;
    }
    rule.flags |= match flows.state {
        None => 0,
        Some(TcpState::New) => OPENING,
        Some(TcpState::Established) => OPEN,
    };
    if let Some(share) = flows.share {
        rule.flags |= SOME_CONNECTIONS;
        (rule.connections, rule.seed) = (rule::threshold(share.of.fraction()), share.seed);
    }
    rule
}

/// Writes the lists of ports that a rule says it has. A list of one range it has itself.
pub(super) fn list(programs: &mut Programs, ports: &PortMatch) -> Result<(), BpfError> {
    for (number, given) in
        [(EITHER, ports.either), (LOCAL, ports.local), (REMOTE, ports.remote), (EXCEPT, ports.except)]
    {
        if let Some(ports) = given.filter(|ports| number == EXCEPT || !ports.span().1) {
            programs.set_ports(number, ports.each())?;
        }
    }
    Ok(())
}

/// The number by which the programs know a protocol.
fn number(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Any => 0,
        Protocol::Tcp => rule::TCP.into(),
        Protocol::Udp => rule::UDP.into(),
        Protocol::Icmp => rule::ICMP.into(),
        Protocol::Other(number) => number.into(),
    }
}
