//! What a network fault is about.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::process::Whose;
use super::target::{
    Direction, PortMatch, Protocol, TargetRequest, interface_or_route, parse_direction, peers, transport,
};
use super::units::SpecError;

/// The traffic a network fault selects on its interface: parsed, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Interface name; `None` is the one by which packets to the peers leave, which has to be looked up.
    pub interface: Option<String>,
    /// Network namespace, as the caller named it; `None` is the daemon's own.
    pub netns: Option<String>,
    /// Whose; `None` is everybody's. What is known by its control group has no [`Direction::Ingress`], and no packets without a
    /// socket.
    pub whose: Option<Whose>,
    /// Peer prefixes. Empty only when [`Traffic::every_peer`] holds.
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

impl Traffic {
    /// Parses the network part of a target. `default_directions` is what the fault type does when the caller
    /// does not say.
    ///
    /// # Errors
    /// Names the field that is missing or wrong.
    pub fn parse(target: &TargetRequest, default_directions: &[Direction]) -> Result<Self, SpecError> {
        let interface = interface_or_route(target)?;
        let whose = Whose::parse(target)?;
        if matches!(whose, Some(Whose::Processes(_))) && target.netns.is_some() {
            let problem = "processes are in a network namespace already, where the interface is looked up: leave it out";
            return Err(SpecError::new("target.netns", problem));
        }
        let directions = parse_direction(target.direction.as_deref(), default_directions)?;
        if matches!(whose, Some(Whose::Cgroup(_))) && directions.contains(&Direction::Ingress) {
            return Err(no_service_on_arrival());
        }
        let (protocol, ports) = transport(target)?;
        Ok(Self {
            interface,
            netns: target.netns.clone(),
            whose,
            peers: peers(target)?,
            host: target.host.clone(),
            protocol,
            ports,
            directions,
        })
    }

    /// Whether every peer is selected: no prefix and no host was named.
    pub fn every_peer(&self) -> bool {
        self.peers.is_empty() && self.host.is_none()
    }
}

/// Why a fault of what arrives cannot be of one service.
pub fn no_service_on_arrival() -> SpecError {
    SpecError::new(
        "target.direction",
        "a packet that arrives meets the interface before its service is known: with a unit or cgroup, or processes without a \
         network namespace of their own, give \"egress\"; or leave the interface out of network_partition and timeout, which are \
         of the service's sockets then, both ways",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::CgroupSelector;

    fn target(json: &str) -> Result<Traffic, SpecError> {
        Traffic::parse(&serde_json::from_str(json).unwrap(), Direction::BOTH)
    }

    #[test]
    fn a_prefix_longer_than_the_address_is_named_with_its_field() {
        let error = target(r#"{"interface":"eth0","cidr":"10.0.0.0/33"}"#).unwrap_err();
        assert!(
            error.to_string().starts_with("target.cidr: \"10.0.0.0/33\" is not an address prefix"),
            "{error}"
        );
    }

    #[test]
    fn a_bare_address_is_a_host_prefix_and_host_bits_are_cut() {
        let traffic =
            target(r#"{"interface":"eth0","cidr":"10.0.0.7","cidrs":["10.1.2.3/16","::1"]}"#).unwrap();
        let texts: Vec<_> = traffic.peers.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.7/32", "10.1.0.0/16", "::1/128"]);
    }

    #[test]
    fn a_peer_of_ipv4_is_one_however_it_is_written() {
        let traffic =
            target(r#"{"interface":"eth0","cidr":"::ffff:10.0.0.7","cidrs":["::ffff:10.1.2.3/104"]}"#)
                .unwrap();
        let texts: Vec<_> = traffic.peers.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.0/8", "10.0.0.7/32"]);
    }

    #[test]
    fn a_network_target_needs_an_interface() {
        assert_eq!(target("{}").unwrap_err().field, "target.interface");
        assert_eq!(
            target(r#"{"interface":"an-interface-name-too-long"}"#).unwrap_err().field,
            "target.interface"
        );
    }

    #[test]
    fn who_names_peers_or_whose_packets_need_not_name_the_interface() {
        for json in [
            r#"{"cidr":"10.0.0.7"}"#,
            r#"{"cidrs":["10.0.0.7"],"netns":"n"}"#,
            r#"{"host":"db.example.org"}"#,
            r#"{"unit":"a.service","direction":"egress"}"#,
            r#"{"pid":71}"#,
        ] {
            assert_eq!(target(json).unwrap().interface, None, "{json}");
        }
        for json in [r#"{"port":80}"#, r#"{"netns":"n"}"#, r#"{"cidr":"10.0.0.7","interface":""}"#] {
            assert_eq!(target(json).unwrap_err().field, "target.interface", "{json}");
        }
    }

    #[test]
    fn a_service_is_known_on_the_way_out_only() {
        let egress = target(r#"{"interface":"e","unit":"a.service","direction":"egress"}"#).unwrap();
        assert_eq!(egress.whose, Some(Whose::Cgroup(CgroupSelector::Unit("a.service".into()))));
        for json in [
            r#"{"interface":"e","unit":"a.service"}"#,
            r#"{"interface":"e","cgroup":"a","direction":"ingress"}"#,
            r#"{"interface":"e","cgroup":"a","direction":"both"}"#,
        ] {
            assert_eq!(target(json).unwrap_err().field, "target.direction", "{json}");
        }
        let both = r#"{"interface":"e","cgroup":"a","unit":"a.service","direction":"egress"}"#;
        assert_eq!(target(both).unwrap_err().field, "target.cgroup");
    }

    #[test]
    fn processes_bring_their_namespace_along_and_are_never_a_share() {
        let both = target(r#"{"interface":"e","pid":71,"unit":"a.service","direction":"both"}"#).unwrap();
        assert!(matches!(both.whose, Some(Whose::Processes(selector)) if selector.pid == Some(71)));
        for (json, field) in [
            (r#"{"interface":"e","pid":71,"netns":"n"}"#, "target.netns"),
            (r#"{"interface":"e","exe":"nginx"}"#, "target.exe"),
            (r#"{"interface":"e","pid":71,"share":0.5}"#, "target.share"),
            (r#"{"interface":"e","container":"web"}"#, "target.container"),
            (r#"{"interface":"e","below":"("}"#, "target.below"),
        ] {
            assert_eq!(target(json).unwrap_err().field, field, "{json}");
        }
    }

    #[test]
    fn a_target_is_known_by_what_it_names() {
        let names = |json: &str| serde_json::from_str::<TargetRequest>(json).unwrap().names();
        let both = r#"{"interface":"e","unit":"a.service","port":80,"direction":"egress"}"#;
        assert_eq!(names(both), ["interface e", "unit a.service"]);
        assert_eq!(names(r#"{"interface":"e","netns":"n"}"#), ["interface e of network namespace n"]);
        assert_eq!(names(r#"{"pid":7,"exe":"/a","command":"b c"}"#), ["pid 7", "exe /a", "command \"b c\""]);
        assert_eq!(names(r#"{"command":"mcp","below":"a"}"#), ["command \"mcp\"", "below \"a\""]);
        assert_eq!(names(r#"{"netns":"n","local_port":80}"#), ["network namespace n"]);
        assert_eq!(names("{}"), ["this host"]);
    }

    #[test]
    fn unknown_target_fields_are_refused() {
        assert!(serde_json::from_str::<TargetRequest>(r#"{"iface":"eth0"}"#).is_err());
    }

    #[test]
    fn ports_and_icmp_exclude_each_other() {
        assert_eq!(
            target(r#"{"interface":"e","protocol":"icmp","port":1}"#).unwrap_err().field,
            "target.protocol"
        );
        assert_eq!(target(r#"{"interface":"e","port":0}"#).unwrap_err().field, "target.port");
        let backwards = r#"{"interface":"e","remote_port":"90-80"}"#;
        assert_eq!(target(backwards).unwrap_err().field, "target.remote_port");
    }
}
