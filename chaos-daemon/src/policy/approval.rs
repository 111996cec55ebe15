//! What nobody does here before others have approved of it, and how many of them it takes.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::FaultTypeName;
use super::refusal::{Refusal, quoted};
use crate::spec::units::{LONGEST_FAULT, SpecError};
use crate::spec::{Fault, FaultRequest};

/// The table of the policy file.
const TABLE: &str = "approval";
/// Whether a stage may be run out of its order, in each tier.
const SKIPPED_STAGE: &str = "skipped_stage";
/// From how many to how many seconds an approval may hold.
const VALID_SECONDS: (u64, u64) = (60, 86_400);

/// What others have to approve of, and for how long that holds. The default asks for nothing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalRules {
    /// How long an approval holds at most, in seconds, 60 to 86400. Default: 1800.
    pub valid_seconds: u64,
    /// What one other person has to approve of.
    pub one: Tier,
    /// What two others have to approve of.
    pub two: Tier,
}

/// What is so risky that it has to be approved of. What is left out asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tier {
    /// Whether a stage may be run out of its order. In no tier, no approval lets it. Default: no.
    pub skipped_stage: bool,
    /// These types of fault.
    pub fault_types: BTreeSet<FaultTypeName>,
    /// Whatever names no unit, container, cgroup, processes or network namespace.
    pub host_wide: bool,
    /// What affects a larger share of whom it is aimed at, in percent.
    pub share_above_percent: Option<u64>,
    /// What loses a larger share of the packets, in percent.
    pub loss_above_percent: Option<u64>,
    /// What delays packets for longer, in milliseconds.
    pub latency_above_ms: Option<u64>,
    /// What lets less through, in thousands of bits per second.
    pub rate_below_kbit: Option<u64>,
    /// What lasts longer, in seconds.
    pub longer_than_seconds: Option<u64>,
}

impl Default for ApprovalRules {
    fn default() -> Self {
        Self { valid_seconds: 1800, one: Tier::default(), two: Tier::default() }
    }
}

/// A fault, by what decides whether it has to be approved of.
#[derive(Debug, Clone, Copy)]
pub struct Risk<'a> {
    /// As it was asked for, with its target.
    pub request: &'a FaultRequest,
    /// The same, understood.
    pub fault: &'a Fault,
    /// The share of the processes that match which it would hit, in percent, where that was looked at.
    pub found_percent: Option<f64>,
}

/// That something has to be approved of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The rule: the name of a field of the policy file, with that of its tables.
    pub rule: String,
    /// How many others have to approve of it.
    pub persons: usize,
    /// What it is about the fault or the run.
    pub why: String,
}

impl ApprovalRules {
    /// Whether nothing at all has to be approved of.
    pub fn ask_for_nothing(&self) -> bool {
        self.one == Tier::default() && self.two == Tier::default()
    }

    /// What has to be approved of before these faults are injected, as one fault or in one run; `skips` says that the stage of the run
    /// is not due. The tier of two comes first.
    pub fn need(&self, risks: &[Risk<'_>], skips: bool) -> Option<Need> {
        [("two", &self.two, 2), ("one", &self.one, 1)].into_iter().find_map(|(name, tier, persons)| {
            let of_run = (skips && tier.skipped_stage)
                .then(|| (SKIPPED_STAGE, "it skips a stage of the blast radius".to_owned()));
            let (field, why) = of_run.or_else(|| risks.iter().find_map(|risk| tier.meets(*risk)))?;
            Some(Need { rule: format!("{TABLE}.{name}.{field}"), persons, why })
        })
    }

    /// Whether an approval may let a stage be run out of its order.
    ///
    /// # Errors
    /// The line that would let it.
    pub(super) fn admit_skipping(&self) -> Result<(), Refusal> {
        match self.one.skipped_stage || self.two.skipped_stage {
            true => Ok(()),
            false => {
                let rule = format!("{TABLE}.one.{SKIPPED_STAGE}");
                let text = "a stage of the blast radius is skipped by nobody, also with an approval";
                Err(Refusal::new(rule.clone(), text).but_for(format!("{rule} = true")))
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let (least, most) = VALID_SECONDS;
        if !(least..=most).contains(&self.valid_seconds) {
            return Err(SpecError::new(format!("{TABLE}.valid_seconds"), format!("give {least} to {most}")));
        }
        [("one", &self.one), ("two", &self.two)].into_iter().try_for_each(|(name, tier)| tier.check(name))
    }
}

impl Tier {
    /// What of a fault has to be approved of: the field, and why.
    fn meets(&self, Risk { request, fault, found_percent }: Risk<'_>) -> Option<(&'static str, String)> {
        let kind = request.fault_type.name();
        if self.fault_types.contains(&FaultTypeName(request.fault_type)) {
            return Some(("fault_types", format!("it is {kind}")));
        }
        // By a process the namespace may be the host's own.
        let netns = request.target.netns.as_deref().filter(|netns| !netns.starts_with("/proc/"));
        if self.host_wide && !request.target.names_group() && netns.is_none() {
            return Some(("host_wide", format!("{kind} is aimed at the whole host")));
        }
        let of = fault.effect.magnitude();
        let share = found_percent.map_or(of.share_percent, |found| found.max(of.share_percent));
        let late = of.latency.as_secs_f64() * 1e3;
        let lasts = fault.duration.as_secs_f64();
        let over = |field, bound: Option<u64>, value: f64, unit: &str| {
            // Whatever is above by what a share in binary digits adds is nobody's wish.
            #[expect(clippy::cast_precision_loss, reason = "`check` allows no more than 120000")]
            let bound = bound.filter(|bound| value > *bound as f64 + 1e-9)?;
            Some((field, format!("{kind}: {value:.1} {unit} is more than {bound}")))
        };
        over("share_above_percent", self.share_above_percent, share, "% of whom it is aimed at")
            .or_else(|| over("loss_above_percent", self.loss_above_percent, of.loss_percent, "% lost"))
            .or_else(|| over("latency_above_ms", self.latency_above_ms, late, "ms late"))
            .or_else(|| over("longer_than_seconds", self.longer_than_seconds, lasts, "s"))
            .or_else(|| {
                let (least, kbit) = self.rate_below_kbit.zip(of.rate_kbit)?;
                (kbit < least)
                    .then(|| ("rate_below_kbit", format!("{kind}: {kbit} kbit/s is less than {least}")))
            })
    }

    fn check(&self, name: &str) -> Result<(), SpecError> {
        for (field, value, most) in [
            ("share_above_percent", self.share_above_percent, 100),
            ("loss_above_percent", self.loss_above_percent, 100),
            ("latency_above_ms", self.latency_above_ms, 120_000),
            ("rate_below_kbit", self.rate_below_kbit, 100_000_000),
            ("longer_than_seconds", self.longer_than_seconds, LONGEST_FAULT.as_secs()),
        ] {
            if value.is_some_and(|value| value > most) {
                let field = format!("{TABLE}.{name}.{field}");
                return Err(SpecError::new(field, format!("give 0 to {most}")));
            }
        }
        Ok(())
    }

    /// In words, as lines of the policy file.
    pub(super) fn words(&self) -> Vec<String> {
        let kinds: Vec<_> = self.fault_types.iter().map(|FaultTypeName(kind)| quoted(kind.name())).collect();
        let numbers = [
            ("share_above_percent", self.share_above_percent),
            ("loss_above_percent", self.loss_above_percent),
            ("latency_above_ms", self.latency_above_ms),
            ("rate_below_kbit", self.rate_below_kbit),
            ("longer_than_seconds", self.longer_than_seconds),
        ];
        let numbers = numbers.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        let flags = [(SKIPPED_STAGE, self.skipped_stage), ("host_wide", self.host_wide)];
        let flags = flags.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned());
        let kinds = (!kinds.is_empty()).then(|| format!("fault_types {}", kinds.join(", ")));
        flags.chain(kinds).chain(numbers).collect()
    }
}

impl ApprovalRules {
    /// What has to be approved of, for people: a line for each tier that asks for something.
    pub fn words(&self) -> Vec<String> {
        let line = |(persons, tier): (&str, &Tier)| {
            let words = tier.words();
            (!words.is_empty()).then(|| format!("{persons}: {}", words.join("; ")))
        };
        [("one other person", &self.one), ("two others", &self.two)].into_iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(text: &str) -> ApprovalRules {
        let rules: ApprovalRules = toml::from_str(text).unwrap();
        rules.check().unwrap();
        rules
    }

    fn need(
        text: &str,
        kind: &str,
        target: Value,
        params: Value,
        found: Option<f64>,
    ) -> Option<(String, usize)> {
        let request = json!({"fault_type": kind, "probability": 1, "duration_seconds": 30,
            "target": target, "params": params});
        let request: FaultRequest = serde_json::from_value(request).unwrap();
        let fault = request.parse().unwrap();
        let risk = Risk { request: &request, fault: &fault, found_percent: found };
        rules(text).need(&[risk], false).map(|need| (need.rule, need.persons))
    }

    /// Of a fault of `eth0`, what has to be approved of; nothing is an empty rule.
    fn of_eth0(text: &str, kind: &str, params: Value) -> (String, usize) {
        need(text, kind, json!({"interface": "eth0"}), params, None).unwrap_or_default()
    }

    #[test]
    fn how_much_has_to_be_approved_of_is_this_table() {
        let none = || json!({});
        for (text, kind, params, rule) in [
            ("one.loss_above_percent = 10", "packet_loss", json!({"loss_percent": 10}), ""),
            ("one.loss_above_percent = 10", "packet_loss", json!({"loss_percent": 11}), "loss_above_percent"),
            ("one.latency_above_ms = 101", "latency", json!({"delay_ms": 100, "jitter_ms": 1}), ""),
            (
                "one.latency_above_ms = 100",
                "latency",
                json!({"delay_ms": 100, "jitter_ms": 1}),
                "latency_above_ms",
            ),
            ("one.rate_below_kbit = 64", "bandwidth", json!({"rate_kbit": 64}), ""),
            ("one.rate_below_kbit = 64", "bandwidth", json!({"rate_kbit": 63}), "rate_below_kbit"),
            ("one.longer_than_seconds = 30", "timeout", none(), ""),
            ("one.longer_than_seconds = 29", "timeout", none(), "longer_than_seconds"),
        ] {
            let expected = match rule {
                "" => (String::new(), 0),
                rule => (format!("approval.one.{rule}"), 1),
            };
            assert_eq!(of_eth0(text, kind, params.clone()), expected, "{text}: {kind} {params}");
        }
    }

    #[test]
    fn what_has_to_be_approved_of_and_by_how_many_is_this_table() {
        let (eth0, unit) = (json!({"interface": "eth0"}), json!({"unit": "a.service"}));
        let half = json!({"unit": "a.service", "share": "50%"});
        let inside = json!({"interface": "eth0", "netns": "blue"});
        let kills = "one.fault_types = [\"process_kill\"]";
        let both = "one.host_wide = true\ntwo.fault_types = [\"timeout\"]";
        let share = "one.share_above_percent = 50";
        for (text, kind, target, found, rule, persons) in [
            ("", "process_kill", &unit, None, "", 0),
            (kills, "process_kill", &unit, None, "approval.one.fault_types", 1),
            (kills, "process_pause", &unit, None, "", 0),
            (both, "timeout", &eth0, None, "approval.two.fault_types", 2),
            ("two.host_wide = true", "timeout", &eth0, None, "approval.two.host_wide", 2),
            ("two.host_wide = true", "timeout", &inside, None, "", 0),
            ("two.host_wide = true", "process_kill", &unit, None, "", 0),
            (share, "process_kill", &half, None, "", 0),
            // Of one process half is all.
            (share, "process_kill", &half, Some(100.0), "approval.one.share_above_percent", 1),
            (share, "process_kill", &unit, None, "approval.one.share_above_percent", 1),
        ] {
            let found = need(text, kind, target.clone(), json!({}), found).unwrap_or_default();
            assert_eq!(found, (rule.to_owned(), persons), "{text}: {kind} of {target}");
        }
    }

    #[test]
    fn a_skipped_stage_has_to_be_approved_of_where_a_tier_says_so_and_is_refused_elsewhere() {
        let persons = |text: &str| rules(text).need(&[], true).map(|need| need.persons);
        assert_eq!(persons("one.skipped_stage = true"), Some(1));
        assert_eq!(persons("one.skipped_stage = true\ntwo.skipped_stage = true"), Some(2));
        assert_eq!(rules("two.skipped_stage = true").need(&[], false), None);
        assert!(rules("two.skipped_stage = true").admit_skipping().is_ok());
        let refused = rules("one.host_wide = true").admit_skipping().unwrap_err();
        assert_eq!(refused.rule, "approval.one.skipped_stage");
    }

    #[test]
    fn a_value_out_of_its_bounds_is_refused_by_its_name() {
        for (text, field) in [
            ("valid_seconds = 59", "approval.valid_seconds"),
            ("valid_seconds = 86401", "approval.valid_seconds"),
            ("two.share_above_percent = 101", "approval.two.share_above_percent"),
            ("one.longer_than_seconds = 3601", "approval.one.longer_than_seconds"),
        ] {
            let refused = toml::from_str::<ApprovalRules>(text).unwrap().check().unwrap_err();
            assert_eq!(refused.field, field);
        }
        assert!(toml::from_str::<ApprovalRules>("three.host_wide = true").is_err());
    }

    #[test]
    fn the_words_of_the_rules_have_every_field_that_asks_for_something() {
        let words =
            rules("one.host_wide = true\none.loss_above_percent = 5\ntwo.fault_types = [\"latency\"]")
                .words();
        assert_eq!(
            words,
            ["one other person: host_wide; loss_above_percent 5", "two others: fault_types \"latency\"",]
        );
        assert!(rules("").words().is_empty() && rules("").ask_for_nothing());
    }
}
