//! The protocol that packets are narrowed by: by name, or by its number (IANA's "Assigned Internet Protocol Numbers").

use std::fmt;

use serde::{Deserialize, Serialize};

use super::units::SpecError;

/// Protocol of the packets that a fault selects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Every IP packet.
    #[default]
    Any,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP for IPv4, ICMPv6 for IPv6.
    Icmp,
    /// Another one, by its number; never that of one of these, nor 0.
    Other(u8),
}

/// Names of others, as people and `/etc/protocols` have them.
const OTHERS: [(&str, u8); 17] = [
    ("igmp", 2),
    ("ipip", 4),
    ("dccp", 33),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

/// Extension headers of IPv6, behind which a packet has its protocol (IANA's "IPv6 Extension Header Types").
const EXTENSIONS: [u8; 4] = [0, 43, 44, 60];

impl Protocol {
    /// The protocol that a target names.
    ///
    /// # Errors
    /// When there is none of this name or number.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, SpecError> {
        let Some(given) = text else { return Ok(Self::Any) };
        let name = given.trim().to_ascii_lowercase();
        let number = match name.as_str() {
            "any" | "all" => return Ok(Self::Any),
            "tcp" => return Ok(Self::Tcp),
            "udp" => return Ok(Self::Udp),
            "icmp" => return Ok(Self::Icmp),
            _ => OTHERS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number),
        };
        let wrong = |problem: String| Err(SpecError::new("target.protocol", problem));
        match number.or_else(|| name.parse().ok()) {
            Some(1) => Ok(Self::Icmp),
            Some(6) => Ok(Self::Tcp),
            Some(17) => Ok(Self::Udp),
            Some(number) if EXTENSIONS.contains(&number) => wrong(format!(
                "{given:?} is an extension of the header of IPv6: give the protocol behind it, or leave it out for any"
            )),
            Some(number) => Ok(Self::Other(number)),
            None => {
                let known: Vec<_> = OTHERS.iter().map(|(known, _)| *known).collect();
                wrong(format!(
                    "{given:?} is not known: give tcp, udp, icmp, {}, or a number up to 255, or leave it out for any",
                    known.join(", ")
                ))
            }
        }
    }

    /// Whether packets of it have ports, by which they are told apart. Of any protocol, some have.
    pub(super) fn has_ports(self) -> bool {
        matches!(self, Self::Any | Self::Tcp | Self::Udp)
    }
}

/// "tcp", "vrrp", "protocol 253"; of any "all packets".
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("all packets"),
            Self::Tcp => f.write_str("tcp"),
            Self::Udp => f.write_str("udp"),
            Self::Icmp => f.write_str("icmp"),
            Self::Other(number) => match OTHERS.iter().find(|(_, known)| known == number) {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "protocol {number}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_known_by_name_however_it_is_written_and_by_number() {
        for (text, protocol, words) in [
            ("TCP", Protocol::Tcp, "tcp"),
            ("6", Protocol::Tcp, "tcp"),
            ("17", Protocol::Udp, "udp"),
            ("1", Protocol::Icmp, "icmp"),
            ("all", Protocol::Any, "all packets"),
            ("sctp", Protocol::Other(132), "sctp"),
            ("132", Protocol::Other(132), "sctp"),
            (" VRRP ", Protocol::Other(112), "vrrp"),
            ("icmpv6", Protocol::Other(58), "icmpv6"),
            ("253", Protocol::Other(253), "protocol 253"),
        ] {
            let parsed = Protocol::parse(Some(text)).unwrap();
            assert_eq!((parsed, parsed.to_string().as_str()), (protocol, words), "{text}");
            let wire = serde_json::to_string(&parsed).unwrap();
            assert_eq!(serde_json::from_str::<Protocol>(&wire).unwrap(), parsed);
        }
        assert_eq!(Protocol::parse(None).unwrap(), Protocol::Any);
        for (wrong, says) in [
            ("http", "sctp"),
            ("256", "up to 255"),
            ("-1", "up to 255"),
            ("44", "extension"),
            ("0", "extension"),
        ] {
            let error = Protocol::parse(Some(wrong)).unwrap_err();
            assert!(error.field == "target.protocol" && error.problem.contains(says), "{wrong}: {error}");
        }
    }
}
