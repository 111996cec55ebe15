//! A link as a whole: how late packets are, how many are lost and how many get through, each way for itself. By the name of one that
//! people know, by numbers, or by both.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::impairment::{MOST_JITTER_MS, RATE_KBIT};
use super::target::Direction;
use super::trace::{LONGEST_PERIOD, LONGEST_TEXT, Told, Trace};
use super::units::{Probability, SpecError, time};

/// The largest delay of one way: what waits behind it is let out when the daemon stops.
pub(super) const MOST_DELAY_MS: f64 = 20_000.0;

/// A link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// By whose name it was asked for, if so.
    pub preset: Option<Preset>,
    /// What leaves this node.
    pub up: OneWay,
    /// What arrives here.
    pub down: OneWay,
    /// How what leaves changes, if it does; `up` is how it begins.
    pub up_trace: Option<Trace>,
    /// Likewise of what arrives.
    pub down_trace: Option<Trace>,
}

/// One way over a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OneWay {
    /// How late a packet is, beside what it waits for its turn.
    pub delay: Duration,
    /// The most that this varies, either way.
    pub jitter: Duration,
    /// Share of the packets that are lost.
    pub loss: Probability,
    /// How much gets through, in thousands of bits per second; without it, all.
    pub kbit: Option<u64>,
}

/// A link that people know. The delay of each way is half of the round trip that the source tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Mobile of the third generation.
    #[serde(rename = "3g")]
    ThirdGeneration,
    /// Mobile of the fourth generation.
    Lte,
    /// A telephone line.
    Dsl,
    /// A television cable.
    Cable,
    /// A satellite that stands still.
    SatelliteGeo,
    /// One of many satellites that pass by.
    SatelliteLeo,
    /// Wireless, far from its base.
    LossyWifi,
    /// From one continent to another.
    Intercontinental,
}

/// Every one.
pub const PRESETS: [Preset; 8] = [
    Preset::ThirdGeneration,
    Preset::Lte,
    Preset::Dsl,
    Preset::Cable,
    Preset::SatelliteGeo,
    Preset::SatelliteLeo,
    Preset::LossyWifi,
    Preset::Intercontinental,
];

/// What is known of a link.
struct Known {
    name: &'static str,
    /// Milliseconds there and back.
    round_trip: f64,
    /// Milliseconds that each way varies, either way.
    jitter: f64,
    /// Percent of the packets, each way.
    loss: f64,
    /// Thousands of bits per second, up and down; 0 is as many as come.
    kbit: (u64, u64),
    /// Who says so.
    source: &'static str,
}

/// Where the profiles of WebPageTest are.
const WEBPAGETEST: &str = "WebPageTest, settings/connectivity.ini.sample";
/// Satellites in the United States, medians of the third quarter of 2021.
const OOKLA: &str = "Ookla, Speedtest Intelligence, Q3 2021";

impl Preset {
    fn known(self) -> Known {
        let known =
            |name, round_trip, kbit, source| Known { name, round_trip, jitter: 0.0, loss: 0.0, kbit, source };
        match self {
            Self::ThirdGeneration => known("3g", 300.0, (768, 1600), WEBPAGETEST),
            Self::Lte => known("lte", 70.0, (12_000, 12_000), WEBPAGETEST),
            Self::Dsl => known("dsl", 50.0, (384, 1500), WEBPAGETEST),
            Self::Cable => known("cable", 28.0, (1000, 5000), WEBPAGETEST),
            Self::SatelliteGeo => known("satellite-geo", 629.0, (2960, 18_750), OOKLA),
            // Quarters of all round trips are below 40 and above 60 ms, with 50 in the middle.
            Self::SatelliteLeo => Known {
                jitter: 5.0,
                source: "Ookla, Speedtest Intelligence, Q3 2021; its variation: F. Michel and others, APNIC blog, 2022-11-28",
                ..known("satellite-leo", 44.0, (13_540, 87_250), OOKLA)
            },
            Self::LossyWifi => Known {
                loss: 2.0,
                source: "comcast, Network Condition Profiles: WIFI; its loss is that of the table's poor DSL",
                ..known("lossy-wifi", 40.0, (30_000, 30_000), "")
            },
            Self::Intercontinental => {
                known("intercontinental", 90.0, (0, 0), "Verizon, service level for New York to London")
            }
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.known().name
    }

    /// Who says what it is like.
    pub fn source(self) -> &'static str {
        self.known().source
    }

    /// What it is like.
    pub fn link(self) -> Link {
        let Known { round_trip, jitter, loss, kbit: (up, down), .. } = self.known();
        let way = |kbit: u64| OneWay {
            delay: time(round_trip / 2.0),
            jitter: time(jitter),
            loss: Probability::new("loss", loss / 100.0).unwrap_or(Probability::NEVER),
            kbit: Some(kbit).filter(|kbit| *kbit > 0),
        };
        Link { preset: Some(self), up: way(up), down: way(down), ..CLEAR_LINK }
    }
}

/// What `link_profile` takes in `params`. Numbers override those of the preset.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LinkParams {
    /// A link that people know. Numbers that are given override its own.
    preset: Option<Preset>,
    /// Delay of each packet that leaves.
    #[schemars(range(min = 0.0, max = MOST_DELAY_MS))]
    up_delay_ms: Option<f64>,
    /// Variation of that delay, either way.
    #[schemars(range(min = 0.0, max = MOST_JITTER_MS))]
    up_jitter_ms: Option<f64>,
    /// Share of the packets that leave and are lost.
    #[schemars(range(min = 0.0, max = 100.0))]
    up_loss_percent: Option<f64>,
    /// Thousands of bits per second that leave, with Ethernet headers.
    #[schemars(range(min = RATE_KBIT.0, max = RATE_KBIT.1))]
    up_rate_kbit: Option<u64>,
    /// Delay of each packet that arrives.
    #[schemars(range(min = 0.0, max = MOST_DELAY_MS))]
    down_delay_ms: Option<f64>,
    /// Variation of that delay, either way.
    #[schemars(range(min = 0.0, max = MOST_JITTER_MS))]
    down_jitter_ms: Option<f64>,
    /// Share of the packets that arrive and are lost.
    #[schemars(range(min = 0.0, max = 100.0))]
    down_loss_percent: Option<f64>,
    /// Thousands of bits per second that arrive, with Ethernet headers.
    #[schemars(range(min = RATE_KBIT.0, max = RATE_KBIT.1))]
    down_rate_kbit: Option<u64>,
    /// How what leaves changes: a CSV of time_s and rate_kbit, delay_ms or loss_percent, or a packet-delivery trace of Mahimahi.
    #[schemars(length(max = LONGEST_TEXT))]
    up_trace: Option<String>,
    /// How what arrives changes, likewise.
    #[schemars(length(max = LONGEST_TEXT))]
    down_trace: Option<String>,
    /// When traces begin anew; after their last step unless it is given.
    #[schemars(range(min = 0.1, max = LONGEST_PERIOD.as_secs_f64()))]
    trace_period_seconds: Option<f64>,
}

/// One that changes nothing.
const CLEAR: OneWay =
    OneWay { delay: Duration::ZERO, jitter: Duration::ZERO, loss: Probability::NEVER, kbit: None };

const CLEAR_LINK: Link = Link { preset: None, up: CLEAR, down: CLEAR, up_trace: None, down_trace: None };

impl LinkParams {
    /// The link.
    pub(super) fn link(&self) -> Result<Link, SpecError> {
        let start = self.preset.map_or(CLEAR_LINK, Preset::link);
        let period = self.trace_period_seconds.map(Duration::from_secs_f64);
        let up = Given {
            numbers: [self.up_delay_ms, self.up_jitter_ms, self.up_loss_percent],
            kbit: self.up_rate_kbit,
            trace: self.up_trace.as_deref(),
        };
        let down = Given {
            numbers: [self.down_delay_ms, self.down_jitter_ms, self.down_loss_percent],
            kbit: self.down_rate_kbit,
            trace: self.down_trace.as_deref(),
        };
        if period.is_some() && up.trace.or(down.trace).is_none() {
            let problem = "nothing has a period but a trace: give params.up_trace or params.down_trace";
            return Err(SpecError::new("params.trace_period_seconds", problem));
        }
        let (up, up_trace) = up.of("up", start.up, period)?;
        let (down, down_trace) = down.of("down", start.down, period)?;
        let link = Link { preset: start.preset, up, down, up_trace, down_trace };
        if link == (Link { preset: start.preset, ..CLEAR_LINK }) {
            let names = PRESETS.map(Preset::name).join(", ");
            let problem = format!("missing: give one of {names}, or numbers such as params.down_delay_ms");
            return Err(SpecError::new("params.preset", problem));
        }
        Ok(link)
    }
}

/// What is given of one way.
struct Given<'a> {
    /// Delay, jitter and loss.
    numbers: [Option<f64>; 3],
    kbit: Option<u64>,
    trace: Option<&'a str>,
}

impl Given<'_> {
    /// The way, which is otherwise like `start`, and how it changes.
    fn of(
        self,
        way: &str,
        start: OneWay,
        period: Option<Duration>,
    ) -> Result<(OneWay, Option<Trace>), SpecError> {
        let field = format!("params.{way}_trace");
        let [mut delay, jitter, loss] = self.numbers;
        let told = self.trace.map(|text| Told::read(&field, text, period)).transpose()?;
        let Some(told) = told else { return Ok((start.with(way, self.numbers, self.kbit)?, None)) };
        let given = [
            ("rate_kbit", self.kbit.is_some()),
            ("delay_ms", delay.is_some()),
            ("loss_percent", loss.is_some()),
        ];
        if let Some(name) = told.quantities().find(|name| given.contains(&(*name, true))) {
            let problem = format!("{field} says it already: leave one of them out");
            return Err(SpecError::new(format!("params.{way}_{name}"), problem));
        }
        delay = told.longest_delay().map(|longest| longest.as_secs_f64() * 1e3).or(delay);
        let trace = told.over(&field, start.with(way, [delay, jitter, loss], self.kbit)?)?;
        match trace.steps.as_slice() {
            // It never changes.
            [step] if step.way.kbit != Some(0) => Ok((step.way, None)),
            steps => Ok((steps.first().map_or(start, |step| step.way), Some(trace))),
        }
    }
}

impl Link {
    /// The way of packets that go in this direction, seen from this node.
    pub fn way(&self, direction: Direction) -> OneWay {
        match direction {
            Direction::Egress => self.up,
            Direction::Ingress => self.down,
        }
    }

    /// How that way changes, if it does.
    pub fn trace(&self, direction: Direction) -> Option<&Trace> {
        match direction {
            Direction::Egress => self.up_trace.as_ref(),
            Direction::Ingress => self.down_trace.as_ref(),
        }
    }

    /// Whether a way that packets of these directions take has a rate that changes.
    pub fn has_traced_rates(&self, directions: &[Direction]) -> bool {
        directions.iter().filter_map(|direction| self.trace(*direction)).any(Trace::has_rates)
    }

    /// Whether a way that packets of these directions take is one on which nothing gets through, for a while at least.
    pub(super) fn cuts_off(&self, directions: &[Direction]) -> bool {
        let mut ways = directions.iter().map(|direction| (self.way(*direction), self.trace(*direction)));
        ways.any(|(way, trace)| trace.map_or(way.loss == Probability::CERTAIN, Trace::cuts_off))
    }

    /// Refuses a link of which no way changes anything that packets of these directions take.
    pub(super) fn check(&self, directions: &[Direction]) -> Result<(), SpecError> {
        let says = |direction: &Direction| self.way(*direction) != CLEAR || self.trace(*direction).is_some();
        if directions.iter().any(says) {
            return Ok(());
        }
        let (met, other) =
            if directions.contains(&Direction::Egress) { ("up", "down") } else { ("down", "up") };
        let problem = format!(
            "only packets that go {met} are met here, and nothing is said of them: give params.{met}_delay_ms, or a \
             target.direction in which {other} counts"
        );
        Err(SpecError::new(format!("params.{met}_delay_ms"), problem))
    }
}

impl OneWay {
    /// The same with these numbers, where there are any.
    fn with(
        self,
        way: &str,
        [delay, jitter, loss]: [Option<f64>; 3],
        kbit: Option<u64>,
    ) -> Result<Self, SpecError> {
        let delay = delay.map_or(self.delay, time);
        let loss =
            loss.map(|percent| Probability::new(&format!("params.{way}_loss_percent"), percent / 100.0));
        let jitter = jitter.map_or(self.jitter.min(delay), time);
        if jitter > delay {
            let problem = format!("{jitter:?} is more than the delay: give up to {delay:?}");
            return Err(SpecError::new(format!("params.{way}_jitter_ms"), problem));
        }
        Ok(Self { delay, jitter, loss: loss.transpose()?.unwrap_or(self.loss), kbit: kbit.or(self.kbit) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn link(params: Value) -> Result<Link, SpecError> {
        serde_json::from_value::<LinkParams>(params).unwrap().link()
    }

    #[test]
    fn every_preset_has_a_name_a_source_and_half_of_its_round_trip_each_way() {
        for preset in PRESETS {
            let found = link(json!({"preset": preset.name()})).unwrap();
            assert_eq!(found.preset, Some(preset));
            assert_eq!(found.up.delay, found.down.delay);
            assert!(found.up.delay >= Duration::from_millis(14) && !preset.source().is_empty(), "{found:?}");
        }
        let dsl = link(json!({"preset": "dsl"})).unwrap();
        assert_eq!(
            (dsl.up.kbit, dsl.down.kbit, dsl.up.delay),
            (Some(384), Some(1500), Duration::from_millis(25))
        );
        assert_eq!(link(json!({"preset": "intercontinental"})).unwrap().up.kbit, None);
    }

    #[test]
    fn numbers_go_before_those_of_the_preset_and_are_enough_without_one() {
        let mixed = link(json!({"preset": "satellite-leo", "down_delay_ms": 2, "up_rate_kbit": 64})).unwrap();
        assert_eq!(
            (mixed.down.delay, mixed.down.jitter),
            (Duration::from_millis(2), Duration::from_millis(2))
        );
        assert_eq!((mixed.up.kbit, mixed.up.delay), (Some(64), Duration::from_millis(22)));
        let alone = link(json!({"down_loss_percent": 5})).unwrap();
        assert_eq!((alone.preset, alone.up), (None, CLEAR));
        assert!((alone.down.loss.get() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn a_link_that_changes_nothing_of_what_is_met_is_refused() {
        let down = link(json!({"down_delay_ms": 5})).unwrap();
        let (out, back) = (Direction::Egress, Direction::Ingress);
        assert_eq!(down.check(&[out]).unwrap_err().field, "params.up_delay_ms");
        assert_eq!(down.check(&[out, back]), Ok(()));
        assert_eq!(down.check(&[back]), Ok(()));
    }

    #[test]
    fn a_link_that_is_as_it_was_and_a_jitter_beyond_its_delay_are_refused() {
        let field = |params| link(params).unwrap_err().field;
        assert_eq!(field(json!({})), "params.preset");
        assert_eq!(field(json!({"up_loss_percent": 0})), "params.preset");
        assert_eq!(field(json!({"up_delay_ms": 1, "up_jitter_ms": 2})), "params.up_jitter_ms");
    }

    const CSV: &str = "time_s,rate_kbit\n0,2000\n1,8000";

    #[test]
    fn a_trace_goes_before_the_preset_and_what_it_does_not_say_is_as_without_it() {
        let found = link(json!({"preset": "3g", "down_trace": CSV, "down_loss_percent": 1})).unwrap();
        let steps = found.trace(Direction::Ingress).unwrap().steps.clone();
        assert_eq!((steps.len(), found.trace(Direction::Egress), found.up.kbit), (2, None, Some(768)));
        assert!(steps.iter().all(|step| step.way.delay == Duration::from_millis(150)), "{steps:?}");
        assert!(
            found.has_traced_rates(Direction::BOTH)
                && found.down == steps[0].way
                && steps[0].way.loss.get() > 0.0
        );
        let still = link(json!({"up_trace": "time_s,delay_ms\n0,30", "up_jitter_ms": 5})).unwrap();
        assert_eq!(
            (still.trace(Direction::Egress), still.up.delay.as_millis()),
            (None, 30),
            "it never changes"
        );
        let nothing = link(json!({"up_trace": "time_s,delay_ms\n0,0"})).unwrap_err();
        assert_eq!(nothing.field, "params.preset");
    }

    #[test]
    fn a_number_beside_a_trace_that_says_it_and_a_period_without_a_trace_are_refused() {
        let field = |params| link(params).unwrap_err().field;
        assert_eq!(field(json!({"up_trace": CSV, "up_rate_kbit": 64})), "params.up_rate_kbit");
        assert_eq!(
            field(json!({"up_delay_ms": 5, "trace_period_seconds": 9})),
            "params.trace_period_seconds"
        );
        assert_eq!(field(json!({"up_trace": CSV, "trace_period_seconds": 1})), "params.up_trace");
        assert!(link(json!({"up_trace": CSV, "down_rate_kbit": 64, "up_delay_ms": 9})).is_ok());
    }

    #[test]
    fn a_way_that_only_changes_later_changes_something() {
        let late = link(json!({"up_trace": "time_s,delay_ms\n0,0\n5,100"})).unwrap();
        assert_eq!(late.check(&[Direction::Egress]), Ok(()));
        assert_eq!(late.check(&[Direction::Ingress]).unwrap_err().field, "params.down_delay_ms");
    }
}
