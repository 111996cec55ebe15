//! The ports that a caller names: one of them, a range, or a list of both.

use std::fmt;
use std::str::FromStr;

use chaos_common::rule::PortRange;
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::units::SpecError;

/// So many ranges a list has, at most.
const MOST_RANGES: usize = 16;

/// As a caller writes it: a port (8080), a range of which both ends are part ("8000-8100"), or a list of both ("80,443,8000-8010").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a port such as 8080, a range such as \"8000-8100\", or a list such as \"80,443,8000-8010\""
)]
pub enum PortText {
    /// One port.
    Number(u64),
    /// A range, a list, or one port in quotes.
    Text(String),
}

/// At least one port. On the wire as [`PortText`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PortText", into = "PortText")]
pub struct Ports {
    /// Ranges in order, of which none touches the next; beyond the last one the first again.
    ranges: [(u16, u16); MOST_RANGES],
    count: usize,
}

impl Ports {
    /// The ports that the field of this name gives.
    ///
    /// # Errors
    /// When one of them is none, a range runs backwards, or there are too many.
    pub(super) fn parse(field: &str, given: &PortText) -> Result<Self, SpecError> {
        let text = given.to_string();
        let ranges = text.split(',').map(|part| range(field, part.trim())).collect::<Result<Vec<_>, _>>()?;
        Self::of(ranges).ok_or_else(|| {
            SpecError::new(field, format!("a list has at most {MOST_RANGES} ranges that do not touch"))
        })
    }

    /// All of these ranges; `None` when they are none, or too many.
    fn of(mut all: Vec<(u16, u16)>) -> Option<Self> {
        all.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::new();
        for (first, last) in all {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        let mut ranges = [*joined.first()?; MOST_RANGES];
        let count = joined.len();
        ranges.get_mut(..count)?.copy_from_slice(&joined);
        Some(Self { ranges, count })
    }

    /// This port alone.
    pub const fn one(port: u16) -> Self {
        Self { ranges: [(port, port); MOST_RANGES], count: 1 }
    }

    /// The port, unless there are several.
    pub fn only(self) -> Option<u16> {
        match self.ranges() {
            [(first, last)] if first == last => Some(*first),
            _ => None,
        }
    }

    fn ranges(&self) -> &[(u16, u16)] {
        self.ranges.get(..self.count).unwrap_or_default()
    }

    /// The ranges, in order, as the programs in the kernel read them.
    pub fn each(&self) -> impl Iterator<Item = PortRange> {
        self.ranges().iter().map(|&(first, last)| PortRange { first, last })
    }

    /// From the first to the last of them, and whether all between are among them.
    pub fn span(self) -> (PortRange, bool) {
        let (first, last) = (self.ranges[0].0, self.ranges().last().map_or(0, |range| range.1));
        (PortRange { first, last }, self.count == 1)
    }

    /// How many ports they are.
    pub fn count(self) -> u32 {
        self.ranges().iter().map(|(first, last)| u32::from(last - first) + 1).sum()
    }

    /// Whether this port is among them.
    pub fn has(self, port: u16) -> bool {
        self.ranges().iter().any(|(first, last)| (first..=last).contains(&&port))
    }

    fn list(&self) -> String {
        let range = |&(first, last): &(u16, u16)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        self.ranges().iter().map(range).collect::<Vec<_>>().join(",")
    }
}

/// A port, or a range.
fn range(field: &str, text: &str) -> Result<(u16, u16), SpecError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| {
        text.trim().parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(|| {
            let problem = format!(
                "{text:?} is not a port: give 1 to 65535, a range such as \"8000-8100\", or a list such as \"80,443,8000-8010\""
            );
            SpecError::new(field, problem)
        })
    };
    let (first, last) = (port(first)?, port(last)?);
    if first > last {
        return Err(SpecError::new(field, format!("{text:?} runs backwards: give \"{last}-{first}\"")));
    }
    Ok((first, last))
}

/// "port 80", or "ports 80,8000-8100".
impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.only() {
            Some(port) => write!(f, "port {port}"),
            None => write!(f, "ports {}", self.list()),
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
            None => Self::Text(ports.list()),
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
            {"type": "string", "pattern": "^[0-9 ,-]+$"},
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
            assert_eq!(ports.span(), (PortRange { first, last }, true));
            assert_eq!(ports.to_string(), words);
            let written = serde_json::to_value(ports).unwrap();
            assert_eq!(from_value::<Ports>(written).unwrap(), ports);
        }
        assert_eq!(serde_json::to_value(Ports::one(80)).unwrap(), json!(80), "as it always was");
    }

    #[test]
    fn a_list_has_its_ranges_in_order_and_those_that_touch_are_one() {
        let list = parse(json!("443, 8000-8010,80,8011,81-82,8005-8020")).unwrap();
        assert_eq!(list.to_string(), "ports 80-82,443,8000-8020");
        assert_eq!(list.span(), (PortRange { first: 80, last: 8020 }, false));
        assert_eq!((list.count(), list.has(443), list.has(444), list.only()), (25, true, false, None));
        assert_eq!(from_value::<Ports>(serde_json::to_value(list).unwrap()).unwrap(), list);
        assert_eq!(parse(json!("80,80")).unwrap(), Ports::one(80));
        let many = |count: u16| (1..=count).map(|port| (10 * port).to_string()).collect::<Vec<_>>().join(",");
        assert!(parse(json!(many(16))).is_ok());
        assert!(parse(json!(many(17))).unwrap_err().contains("at most 16 ranges"));
        for wrong in ["80,", ",80", "80,,81", "80;81"] {
            assert!(parse(json!(wrong)).unwrap_err().contains("is not a port"), "{wrong}");
        }
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
