//! What is done to the calls to an MCP server behind `chaosctl mcp-proxy`, whether its options or a fault say so; and the page of
//! shared memory on which a fault tells a proxy.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::parameter;
use super::units::{LONGEST_FAULT, Probability, SpecError, time};

/// Calls that meet faults unless others are named.
const TOOL_CALL: &str = "tools/call";
/// The most methods, and the most tools, that can be named.
pub const MOST_NAMED: usize = 32;
/// The longest such name, in bytes.
const LONGEST_NAME: usize = 128;

/// What becomes of calls, and of which.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spoiling {
    /// How much later an answer comes.
    pub delay: Duration,
    /// Uniform variation of that, either way.
    pub jitter: Duration,
    /// Share of the calls that is delayed.
    pub delay_share: Probability,
    /// Share that is answered with an error, and never comes to the server.
    pub fail: Probability,
    /// Share whose answer never comes.
    pub drop: Probability,
    /// Share whose answer is cut short.
    pub truncate: Probability,
    /// Share whose answer has a wrong byte.
    pub corrupt: Probability,
    /// Share of the matching calls that any of this is about.
    pub call_probability: Probability,
    /// Methods that match.
    pub methods: Vec<String>,
    /// Tools that match; none is every call.
    pub tools: Vec<String>,
}

/// What `mcp_error` takes in `params`, and `chaosctl mcp-proxy` as options.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct McpParams {
    /// How much later an answer comes.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = LONGEST_FAULT.as_secs_f64() * 1e3))]
    delay_ms: f64,
    /// Variation of the delay, either way.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = LONGEST_FAULT.as_secs_f64() * 1e3))]
    jitter_ms: f64,
    /// Share of the calls that is delayed.
    #[serde(default = "all")]
    #[schemars(range(min = 0.0, max = 1.0))]
    delay_share: f64,
    /// Share of the calls that is answered with an error, and never comes to the server.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    fail: f64,
    /// Share of the calls whose answer never comes.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    drop: f64,
    /// Share of the calls whose answer is cut short.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    truncate: f64,
    /// Share of the calls whose answer has a wrong byte.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    corrupt: f64,
    /// Share of the matching calls that any of this is about.
    #[serde(default = "all")]
    #[schemars(range(min = 0.0, max = 1.0))]
    call_probability: f64,
    /// Methods that match; tools/call unless some are given.
    #[serde(default)]
    #[schemars(length(max = MOST_NAMED))]
    methods: Vec<String>,
    /// Only calls of these tools; all unless some are given.
    #[serde(default)]
    #[schemars(length(max = MOST_NAMED))]
    tools: Vec<String>,
}

fn all() -> f64 {
    1.0
}

impl McpParams {
    fn spoiling(&self) -> Result<Spoiling, SpecError> {
        let spoiling = Spoiling {
            delay: time(self.delay_ms),
            jitter: time(self.jitter_ms),
            delay_share: Probability::new("params.delay_share", self.delay_share)?,
            fail: Probability::new("params.fail", self.fail)?,
            drop: Probability::new("params.drop", self.drop)?,
            truncate: Probability::new("params.truncate", self.truncate)?,
            corrupt: Probability::new("params.corrupt", self.corrupt)?,
            call_probability: Probability::new("params.call_probability", self.call_probability)?,
            methods: match names("params.methods", &self.methods)? {
                [] => vec![TOOL_CALL.to_owned()],
                named => named.to_vec(),
            },
            tools: names("params.tools", &self.tools)?.to_vec(),
        };
        let together = spoiling.harmed();
        if together > 1.0 {
            let problem = format!("with drop, truncate and corrupt {together} of the calls: give at most 1");
            return Err(SpecError::new("params.fail", problem));
        }
        if spoiling.jitter > spoiling.delay {
            return Err(SpecError::new(
                "params.jitter_ms",
                "longer than the delay: answers cannot come before they are given",
            ));
        }
        Ok(spoiling)
    }
}

fn names<'a>(field: &str, names: &'a [String]) -> Result<&'a [String], SpecError> {
    let fits = |name: &String| (1..=LONGEST_NAME).contains(&name.len()) && !name.contains(char::is_control);
    match names.len() <= MOST_NAMED && names.iter().all(fits) {
        true => Ok(names),
        false => {
            let problem =
                format!("give {MOST_NAMED} names at most, each of 1 to {LONGEST_NAME} bytes of text");
            Err(SpecError::new(field, problem))
        }
    }
}

impl Spoiling {
    /// Parses parameters, of `mcp_error` or of `chaosctl mcp-proxy`. With none nothing becomes of a call.
    ///
    /// # Errors
    /// Names the parameter that is out of bounds, or makes no sense beside the others.
    pub fn parse(params: &Map<String, Value>) -> Result<Self, SpecError> {
        parameter::check("mcp_error", &parameter::fields_of::<McpParams>(), params)?;
        parameter::part::<McpParams>(params)?.spoiling()
    }

    /// Share of the calls whose answer is another, or does not come.
    pub fn harmed(&self) -> f64 {
        [self.fail, self.drop, self.truncate, self.corrupt].map(Probability::get).iter().sum()
    }

    /// Share of the matching calls that something is done to.
    pub fn affected(&self) -> f64 {
        let late = if self.delay.is_zero() { 0.0 } else { self.delay_share.get() };
        let harmed = self.harmed();
        self.call_probability.get() * (harmed + (1.0 - harmed) * late)
    }
}

impl std::fmt::Display for Spoiling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = Vec::new();
        let percent = |share: Probability| format!("{} %", share.get() * 100.0);
        if !self.delay.is_zero() && self.delay_share != Probability::NEVER {
            let jitter = if self.jitter.is_zero() { String::new() } else { format!(" ± {:?}", self.jitter) };
            words.push(format!("delays {} by {:?}{jitter}", percent(self.delay_share), self.delay));
        }
        for (verb, share) in [
            ("fails", self.fail),
            ("drops", self.drop),
            ("truncates", self.truncate),
            ("corrupts", self.corrupt),
        ] {
            if share != Probability::NEVER {
                words.push(format!("{verb} {}", percent(share)));
            }
        }
        write!(f, "{} of the {} calls", words.join(", "), self.methods.join(" and "))?;
        if !self.tools.is_empty() {
            write!(f, " of {}", self.tools.join(", "))?;
        }
        match self.call_probability == Probability::CERTAIN {
            true => Ok(()),
            false => write!(f, ", but only to {} of them", percent(self.call_probability)),
        }
    }
}

/// The page on which a fault tells a proxy what becomes of its calls, and the proxy what it has done: a file in memory without a
/// name (`memfd_create`(2)), of sealed length, which the proxy makes and keeps, and the fault's process takes from it
/// (`pidfd_getfd`(2)) as it is. Words are sealed, so that who reads while somebody writes sees that.
///
/// The fault is in force while its process has a lock (`F_SETLK` of fcntl(2)) on [`page::FORCE`], and the deadline is not over.
pub mod page {
    use serde::{Deserialize, Serialize};

    use super::Spoiling;

    /// What the file is called, with the version of what is on it.
    pub const NAME: &str = "chaos-mcp-proxy-1";
    /// What procfs calls a descriptor of it.
    pub const LINK: &str = "/memfd:chaos-mcp-proxy-1 (deleted)";
    /// The number of the proxy's descriptor of it.
    pub const NUMBER: i32 = 200;
    /// Byte whose lock says that a fault has the page: nobody else writes on it.
    pub const CLAIM: i64 = 0;
    /// Byte whose lock says that the fault is in force.
    pub const FORCE: i64 = 1;
    /// Where the term is: sealed, when it is over in boot-time nanoseconds, and which fault's it is.
    pub const TERM: u64 = 0;
    /// Where the tally is: sealed, which fault's it is, calls that matched, and those that it did something to.
    pub const TALLY: u64 = 64;
    /// Where the order is: JSON, and zeros behind it.
    pub const ORDER: u64 = 4096;
    /// How long the order may be: all names at their longest, with a backslash before each byte, take half of it.
    pub const ORDER_ROOM: usize = 32 << 10;
    /// Length of the file.
    pub const LENGTH: u64 = ORDER + ORDER_ROOM as u64;

    /// What a fault has a proxy do.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Order {
        /// What becomes of which calls.
        pub spoiling: Spoiling,
        /// What the dice start from.
        pub seed: u64,
    }

    impl Order {
        /// As it is on the page; `None` when there is no room for it.
        pub fn write(&self) -> Option<Vec<u8>> {
            let mut bytes = serde_json::to_vec(self).ok()?;
            (bytes.len() < ORDER_ROOM).then(|| {
                bytes.resize(ORDER_ROOM, 0);
                bytes
            })
        }

        /// From the page; `None` when it is none, or only a part of it is there.
        pub fn read(bytes: &[u8]) -> Option<Self> {
            serde_json::from_slice(bytes.split(|byte| *byte == 0).next()?).ok()
        }
    }

    /// Bytes of so many words and their seal.
    pub const fn sealed(words: usize) -> usize {
        8 * (words + 1)
    }

    /// Words, and behind them what no other words have in common with them: never zeros for zeros.
    pub fn seal(words: &[u64]) -> Vec<u8> {
        let words = words.iter().copied().chain([check(words)]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// The words, if they are those that were sealed.
    pub fn unseal<const WORDS: usize>(bytes: &[u8]) -> Option<[u64; WORDS]> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<_> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (seal, words) = words.split_last()?;
        (rest.is_empty() && *seal == check(words)).then(|| words.try_into().ok())?
    }

    /// FNV-1a (Fowler, Noll, Vo), word by word.
    fn check(words: &[u64]) -> u64 {
        let mix = |sum: u64, word: &u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        words.iter().fold(0xcbf2_9ce4_8422_2325, mix)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::page::{Order, seal, sealed, unseal};
    use super::*;

    fn parse(params: serde_json::Value) -> Result<Spoiling, SpecError> {
        Spoiling::parse(params.as_object().unwrap())
    }

    #[test]
    fn shares_that_make_no_sense_are_refused_by_name() {
        for (params, field) in [
            (json!({"fail": 1.5}), "params.fail"),
            (json!({"drop": -0.1}), "params.drop"),
            (json!({"fail": 0.6, "drop": 0.6}), "params.fail"),
            (json!({"delay_ms": 100, "jitter_ms": 101}), "params.jitter_ms"),
            (json!({"delay_ms": 3_600_001}), "params.delay_ms"),
            (json!({"tools": [""]}), "params.tools"),
            (json!({"methods": vec!["a"; MOST_NAMED + 1]}), "params.methods"),
        ] {
            assert_eq!(parse(params.clone()).unwrap_err().field, field, "{params}");
        }
    }

    #[test]
    fn of_the_calls_so_many_are_affected() {
        for (params, share) in [
            (json!({}), 0.0),
            (json!({"delay_ms": 5, "delay_share": 0}), 0.0),
            (json!({"delay_ms": 5, "fail": 0.5}), 1.0),
            (json!({"delay_ms": 5, "delay_share": 0.5, "fail": 0.5, "call_probability": 0.5}), 0.375),
        ] {
            assert_eq!(parse(params.clone()).unwrap().affected(), share, "{params}");
        }
    }

    #[test]
    fn it_says_in_words_what_becomes_of_which_calls() {
        let spoiling = json!({"delay_ms": 200, "jitter_ms": 50, "fail": 0.25, "tools": ["a", "b"], "call_probability": 0.5});
        assert_eq!(
            parse(spoiling).unwrap().to_string(),
            "delays 100 % by 200ms ± 50ms, fails 25 % of the tools/call calls of a, b, but only to 50 % of them"
        );
    }

    #[test]
    fn the_longest_order_has_room_on_the_page() {
        let name = || "\"".repeat(LONGEST_NAME);
        let names = || (0..MOST_NAMED).map(|_| name()).collect::<Vec<_>>();
        let spoiling = parse(json!({"fail": 1.0, "methods": names(), "tools": names()})).unwrap();
        let order = Order { spoiling, seed: u64::MAX };
        assert_eq!(Order::read(&order.write().unwrap()), Some(order));
        assert_eq!(Order::read(&[0; 16]), None);
    }

    proptest! {
        #[test]
        fn words_that_are_half_old_and_half_new_are_none(old: [u64; 3], new: [u64; 3], at in 1usize..31) {
            let (before, after) = (seal(&old), seal(&new));
            prop_assert_eq!(before.len(), sealed(3));
            prop_assert_eq!(unseal::<3>(&before), Some(old));
            let torn = [&after[..at], &before[at..]].concat();
            let read = unseal::<3>(&torn);
            prop_assert!(read.is_none() || torn == before || torn == after);
            prop_assert_eq!(unseal::<3>(&[0; 32]), None);
        }
    }
}
