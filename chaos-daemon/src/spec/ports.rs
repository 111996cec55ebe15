//! The ports that a caller names: one of them, or a range.

use std::fmt;
use std::str::FromStr;

use chaos_common::rule::PortRange;
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::units::SpecError;

/// As a caller writes it: a port (8080), or a range of which both ends are part ("8000-8100").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a port such as 8080, or a range of ports such as \"8000-8100\"")]
pub enum PortText {
    /// One port.
    Number(u64),
    /// A range, or one port in quotes.
    Text(String),
}

/// At least one port, and whatever lies between the first and the last. On the wire as [`PortText`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PortText", into = "PortText")]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// The ports that the field of this name gives.
    ///
    /// # Errors
    /// When one of them is none, or the range runs backwards.
    pub(super) fn parse(field: &str, given: &PortText) -> Result<Self, SpecError> {
        let text = given.to_string();
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        let port = |text: &str| {
            text.trim().parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(|| {
                let problem =
                    format!("{text:?} is not a port: give 1 to 65535, or a range such as \"8000-8100\"");
                SpecError::new(field, problem)
            })
        };
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(SpecError::new(field, format!("{text:?} runs backwards: give \"{last}-{first}\"")));
        }
        Ok(Self { first, last })
    }

    /// This port alone.
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// The port, unless there are several.
    pub fn only(self) -> Option<u16> {
        (self.first == self.last).then_some(self.first)
    }

    /// As the programs in the kernel read them.
    pub const fn range(self) -> PortRange {
        PortRange { first: self.first, last: self.last }
    }
}

/// "port 80", or "ports 8000-8100".
impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.only() {
            Some(port) => write!(f, "port {port}"),
            None => write!(f, "ports {}-{}", self.first, self.last),
        }
    }
}

impl TryFrom<PortText> for Ports {
    type Error = SpecError;

    fn try_from(text: PortText) -> Result<Self, SpecError> {
        Self::parse("port", &text)
    }
}

impl From<Ports> for PortText {
    fn from(ports: Ports) -> Self {
        match ports.only() {
            Some(port) => Self::Number(port.into()),
            None => Self::Text(format!("{}-{}", ports.first, ports.last)),
        }
    }
}

impl fmt::Display for PortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl FromStr for PortText {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Ports::parse("port", &Self::Text(text.to_owned())).map(Self::from)
    }
}

impl JsonSchema for PortText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ports".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "integer", "minimum": 1, "maximum": 65535},
            {"type": "string", "pattern": "^[0-9]+-[0-9]+$"},
        ]})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn parse(given: serde_json::Value) -> Result<Ports, String> {
        let text = from_value::<PortText>(given).map_err(|error| error.to_string())?;
        Ports::parse("target.port", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn one_port_is_a_number_and_a_range_a_text() {
        for (given, first, last, words) in [
            (json!(80), 80, 80, "port 80"),
            (json!("80"), 80, 80, "port 80"),
            (json!("8000-8100"), 8000, 8100, "ports 8000-8100"),
            (json!("1 - 65535"), 1, 65535, "ports 1-65535"),
        ] {
            let ports = parse(given).unwrap();
            assert_eq!(ports.range(), PortRange { first, last });
            assert_eq!(ports.to_string(), words);
            let written = serde_json::to_value(ports).unwrap();
            assert_eq!(from_value::<Ports>(written).unwrap(), ports);
        }
        assert_eq!(serde_json::to_value(Ports::one(80)).unwrap(), json!(80), "as it always was");
    }

    #[test]
    fn what_is_no_port_is_refused_and_says_what_to_give() {
        for given in [json!(0), json!(65536), json!("0-80"), json!("80-"), json!("http"), json!("80-90-100")]
        {
            let problem = parse(given.clone()).unwrap_err();
            assert!(
                problem.contains("target.port") && problem.contains("give 1 to 65535"),
                "{given}: {problem}"
            );
        }
        assert!(parse(json!("90-80")).unwrap_err().contains("give \"80-90\""));
        for given in [json!(-1), json!(1.5), json!(true), json!([80])] {
            assert!(parse(given.clone()).unwrap_err().contains("8000-8100"), "{given}");
        }
    }

    #[test]
    fn the_command_line_takes_both() {
        assert_eq!("80".parse::<PortText>().unwrap(), PortText::Number(80));
        assert_eq!("80-90".parse::<PortText>().unwrap(), PortText::Text("80-90".into()));
        assert!("x".parse::<PortText>().is_err());
    }
}
