//! Questions to name servers: what a caller writes in `params` about them, and what it means.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use chaos_common::DnsRule;
use chaos_common::dns::{self, MOST_NAMES};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ports::Ports;
use super::target::{PortMatch, Protocol};
use super::traffic::Traffic;
use super::units::SpecError;

/// The port of name servers.
const PORT: u16 = 53;
/// The answers of `dns_error`, as callers name them.
pub const DNS_ANSWERS: &[&str] = &["nxdomain", "servfail", "refused", "wrong_address", "timeout"];

/// Which questions are answered, and with what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Questions {
    /// About which names; none is all.
    pub names: Vec<Names>,
    /// What is said to them.
    pub answer: DnsAnswer,
}

/// One name, or all below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Names {
    /// In small letters, without the last dot.
    pub name: String,
    /// All names below it are meant, and not itself.
    pub below: bool,
}

/// What a question is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DnsAnswer {
    /// There is no such name.
    Nxdomain,
    /// The server failed.
    Servfail,
    /// The server does not want to.
    Refused,
    /// An address, at least one; whoever asks for something else hears that there is none.
    WrongAddress {
        /// Of IPv4.
        v4: Option<Ipv4Addr>,
        /// Of IPv6.
        v6: Option<Ipv6Addr>,
    },
    /// Nothing.
    Timeout,
}

impl DnsAnswer {
    /// As the programs read it.
    pub fn rule(self) -> DnsRule {
        let error = |code| DnsRule { code, ..DnsRule::default() };
        match self {
            Self::Nxdomain => error(dns::NAME_ERROR),
            Self::Servfail => error(dns::SERVER_FAILURE),
            Self::Refused => error(dns::REFUSED),
            Self::Timeout => DnsRule { flags: dns::SILENT, ..DnsRule::default() },
            Self::WrongAddress { v4, v6 } => DnsRule {
                flags: v4.map_or(0, |_| dns::V4) | v6.map_or(0, |_| dns::V6),
                code: dns::NO_ERROR,
                v4: v4.map_or([0; 4], |address| address.octets()),
                v6: v6.map_or([0; 16], |address| address.octets()),
            },
        }
    }
}

impl Questions {
    /// The traffic in which there can be questions: on the port of name servers, unless another is named.
    ///
    /// # Errors
    /// For a protocol over which nobody asks, or that alone cannot be answered.
    pub(super) fn narrow(mut traffic: Traffic) -> Result<Traffic, SpecError> {
        if matches!(traffic.protocol, Protocol::Tcp | Protocol::Icmp) {
            let problem = "questions are answered over udp, and met over tcp, too, where no protocol is named: give \"udp\", or leave it out";
            return Err(SpecError::new("target.protocol", problem));
        }
        if traffic.ports == PortMatch::default() {
            traffic.ports.either = Some(Ports::one(PORT));
        }
        Ok(traffic)
    }
}

/// The names as the programs are told them: each, and whether it stands for those below it.
pub fn keys(names: &[Names]) -> Vec<(String, bool)> {
    names.iter().map(|names| (names.name.clone(), names.below)).collect()
}

/// " every question for a name", or of these.
pub fn about(names: &[Names]) -> String {
    match names {
        [] => " every question for a name".to_owned(),
        [one] => format!(" questions for {one}"),
        [first, rest @ ..] => format!(" questions for {} names ({first}, …)", rest.len() + 1),
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.below { "*." } else { "" }, self.name)
    }
}

impl fmt::Display for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.answer {
            DnsAnswer::Nxdomain => f.write_str("answers NXDOMAIN to")?,
            DnsAnswer::Servfail => f.write_str("answers SERVFAIL to")?,
            DnsAnswer::Refused => f.write_str("answers REFUSED to")?,
            DnsAnswer::Timeout => f.write_str("drops")?,
            DnsAnswer::WrongAddress { v4, v6 } => {
                let shown = [v4.map(IpAddr::from), v6.map(IpAddr::from)].into_iter().flatten();
                let shown: Vec<_> = shown.map(|address| address.to_string()).collect();
                write!(f, "answers with {} to", shown.join(" and "))?;
            }
        }
        f.write_str(&about(&self.names))
    }
}

/// What `dns_error` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DnsParams {
    /// What questions are answered with; timeout is nothing at all.
    #[serde(default = "nxdomain")]
    #[schemars(extend("enum" = DNS_ANSWERS))]
    answer: String,
    /// About which names, e.g. db.example.org, or *.example.org for all below it; all unless they are given.
    #[schemars(length(min = 1, max = MOST_NAMES))]
    names: Option<Vec<String>>,
    /// The wrong addresses, of the answer wrong_address: one of IPv4, one of IPv6, or both.
    #[schemars(length(min = 1, max = 2))]
    addresses: Option<Vec<String>>,
}

fn nxdomain() -> String {
    "nxdomain".to_owned()
}

impl DnsParams {
    pub(super) fn questions(&self) -> Result<Questions, SpecError> {
        let answer = match self.answer.as_str() {
            "nxdomain" => DnsAnswer::Nxdomain,
            "servfail" => DnsAnswer::Servfail,
            "refused" => DnsAnswer::Refused,
            "timeout" => DnsAnswer::Timeout,
            "wrong_address" => self.wrong_address()?,
            other => {
                let problem = format!("{other:?} is not known: give one of {}", DNS_ANSWERS.join(", "));
                return Err(SpecError::new("params.answer", problem));
            }
        };
        if self.addresses.is_some() && !matches!(answer, DnsAnswer::WrongAddress { .. }) {
            let problem = "only the answer \"wrong_address\" has some";
            return Err(SpecError::new("params.addresses", problem));
        }
        Ok(Questions { names: parse_names(self.names.as_deref())?, answer })
    }

    fn wrong_address(&self) -> Result<DnsAnswer, SpecError> {
        let (mut v4, mut v6) = (None, None);
        for (index, text) in self.addresses.iter().flatten().enumerate() {
            let field = format!("params.addresses[{index}]");
            let twice = match text.parse() {
                Ok(IpAddr::V4(address)) => v4.replace(address).is_some(),
                Ok(IpAddr::V6(address)) => v6.replace(address).is_some(),
                Err(_) => {
                    let problem = format!("{text:?} is not an address: give e.g. \"192.0.2.1\"");
                    return Err(SpecError::new(field, problem));
                }
            };
            if twice {
                return Err(SpecError::new(field, "a second one of its version: give at most one of each"));
            }
        }
        if v4.is_none() && v6.is_none() {
            let problem = "missing: name the wrong address, e.g. [\"192.0.2.1\", \"2001:db8::1\"]";
            return Err(SpecError::new("params.addresses", problem));
        }
        Ok(DnsAnswer::WrongAddress { v4, v6 })
    }
}

/// The names that `params.names` lists: sorted, each once; none when there is no list.
///
/// # Errors
/// When one is no name, or they are none or too many.
pub fn parse_names(given: Option<&[String]>) -> Result<Vec<Names>, SpecError> {
    let Some(given) = given else { return Ok(Vec::new()) };
    if given.is_empty() || given.len() > MOST_NAMES as usize {
        let problem = format!("give 1 to {MOST_NAMES} names, or leave them out for all");
        return Err(SpecError::new("params.names", problem));
    }
    let read = |(index, text): (usize, &String)| {
        names(text).ok_or_else(|| {
            let problem = format!(
                "{text:?} is not a name: give e.g. \"db.example.org\", or \"*.example.org\" for all names below; \
                 others than of ASCII as they are asked for, with \"xn--\""
            );
            SpecError::new(format!("params.names[{index}]"), problem)
        })
    };
    let mut names = given.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The name, or names, that a text stands for.
fn names(text: &str) -> Option<Names> {
    let (name, below) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'\\');
        (1..=63).contains(&label.len()) && label.bytes().all(plain)
    };
    (name.split('.').all(is_label) && dns::key(&name, below).is_some()).then_some(Names { name, below })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn questions(params: Value) -> Result<Questions, SpecError> {
        serde_json::from_value::<DnsParams>(params).unwrap().questions()
    }

    #[test]
    fn names_are_read_as_they_are_compared() {
        let read =
            questions(json!({"names": ["*.Example.ORG.", "db.example.org", "DB.example.org"]})).unwrap();
        let below = Names { name: "example.org".into(), below: true };
        assert_eq!(read.names, [Names { name: "db.example.org".into(), below: false }, below]);
        assert_eq!(questions(json!({})).unwrap().names, []);
        assert_eq!(read.to_string(), "answers NXDOMAIN to questions for 2 names (db.example.org, …)");
    }

    #[test]
    fn what_is_no_name_is_refused_by_its_place() {
        let long = "a".repeat(64);
        for name in ["", ".", "*", "*.", "a..b", "a.*.b", "a b", "ä.org", "a\\.b", &long, &"a.".repeat(128)]
        {
            let error = questions(json!({"names": ["ok", name]})).unwrap_err();
            assert_eq!(error.field, "params.names[1]", "{name:?}");
        }
        let many: Vec<_> = (0..=MOST_NAMES).map(|number| format!("n{number}")).collect();
        for names in [json!([]), json!(many)] {
            assert_eq!(questions(json!({"names": names})).unwrap_err().field, "params.names");
        }
    }

    #[test]
    fn every_answer_that_is_listed_is_known_and_only_one_has_addresses() {
        for answer in DNS_ANSWERS {
            let bare = questions(json!({"answer": answer}));
            let addressed = questions(json!({"answer": answer, "addresses": ["192.0.2.1", "2001:db8::1"]}));
            let (refused, taken) =
                if *answer == "wrong_address" { (bare, addressed) } else { (addressed, bare) };
            assert_eq!(refused.unwrap_err().field, "params.addresses", "{answer}");
            assert!(taken.is_ok(), "{answer}");
        }
        assert_eq!(questions(json!({"answer": "yes"})).unwrap_err().field, "params.answer");
        for addresses in [json!(["1.2.3"]), json!(["192.0.2.1/32"])] {
            let refused = questions(json!({"answer": "wrong_address", "addresses": addresses}));
            assert_eq!(refused.unwrap_err().field, "params.addresses[0]");
        }
        let twice = json!({"answer": "wrong_address", "addresses": ["::1", "::2"]});
        assert_eq!(questions(twice).unwrap_err().field, "params.addresses[1]");
    }

    #[test]
    fn the_programs_are_told_the_addresses_that_there_are() {
        let rule = |addresses| {
            questions(json!({"answer": "wrong_address", "addresses": addresses})).unwrap().answer.rule()
        };
        let both = rule(json!(["192.0.2.1", "::5"]));
        assert_eq!((both.flags, both.v4, both.v6[15]), (dns::V4 | dns::V6, [192, 0, 2, 1], 5));
        assert_eq!(rule(json!(["::5"])).flags, dns::V6);
    }
}
