//! The packets of one service, on whatever interface they are.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::process::Whose;
use super::target::{self, Direction, PortMatch, Protocol, TargetRequest};
use super::units::SpecError;

/// What the sockets of one service send, and what arrives for them: parsed, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePackets {
    /// Whose sockets.
    pub whose: Whose,
    /// Peers. Empty, with no host either, is every peer, but for those over the loopback.
    pub peers: Vec<IpNet>,
    /// Peer by name, to be resolved.
    pub host: Option<String>,
    /// Protocol.
    pub protocol: Protocol,
    /// Ports.
    pub ports: PortMatch,
    /// Directions, never empty.
    pub directions: Vec<Direction>,
}

impl ServicePackets {
    /// Parses a target that names a service and no interface; `None` when it names an interface, or no service.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub(super) fn parse(
        target: &TargetRequest,
        default_directions: &[Direction],
    ) -> Result<Option<Self>, SpecError> {
        if target.interface.is_some() {
            return Ok(None);
        }
        let Some(whose) = Whose::parse(target)? else { return Ok(None) };
        if target.netns.is_some() {
            let problem =
                "without an interface, the sockets of a service are found in every namespace: leave it out";
            return Err(SpecError::new("target.netns", problem));
        }
        let (protocol, ports) = target::transport(target)?;
        Ok(Some(Self {
            whose,
            peers: target::peers(target)?,
            host: target.host.clone(),
            protocol,
            ports,
            directions: target::parse_direction(target.direction.as_deref(), default_directions)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::spec::CgroupSelector;

    fn parse(target: Value) -> Result<Option<ServicePackets>, SpecError> {
        ServicePackets::parse(&serde_json::from_value(target).unwrap(), Direction::BOTH)
    }

    #[test]
    fn a_service_without_an_interface_is_met_both_ways_unless_it_is_narrowed() {
        let whole = parse(json!({"unit": "a.service"})).unwrap().unwrap();
        assert_eq!(whole.whose, Whose::Cgroup(CgroupSelector::Unit("a.service".into())));
        assert_eq!((whole.directions.as_slice(), whole.peers.len()), (Direction::BOTH, 0));
        let narrow = json!({
            "pid": 71, "direction": "ingress", "cidr": "10.0.0.7", "local_port": 80, "protocol": "tcp",
        });
        let narrow = parse(narrow).unwrap().unwrap();
        assert!(matches!(narrow.whose, Whose::Processes(selector) if selector.pid == Some(71)));
        assert_eq!(narrow.directions, [Direction::Ingress]);
        assert_eq!((narrow.protocol, narrow.ports.local.is_some()), (Protocol::Tcp, true));
        assert_eq!(narrow.peers, ["10.0.0.7/32".parse::<IpNet>().unwrap()]);
    }

    #[test]
    fn an_interface_or_nobody_is_no_service_without_an_interface() {
        for target in [json!({"interface": "eth0", "unit": "a.service"}), json!({}), json!({"port": 80})] {
            assert_eq!(parse(target.clone()), Ok(None), "{target}");
        }
    }

    #[test]
    fn what_the_sockets_of_a_service_do_not_have_is_refused_by_its_field() {
        for (with, field) in [
            (json!({"netns": "a"}), "target.netns"),
            (json!({"share": 0.5}), "target.share"),
            (json!({"protocol": "icmp", "port": 1}), "target.protocol"),
            (json!({"direction": "up"}), "target.direction"),
            (json!({"cidr": "a"}), "target.cidr"),
            (json!({"unit": "a.service"}), "target.cgroup"),
        ] {
            let mut whole = json!({"cgroup": "a"});
            whole.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
            assert_eq!(parse(whole.clone()).unwrap_err().field, field, "{whole}");
        }
    }
}
