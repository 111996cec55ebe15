//! How much, how often and how far: bounds for everybody and for each role, of which the narrower one holds.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use super::refusal::{Refusal, quoted};
use super::roles::Role;
use crate::spec::dns::{DnsAnswer, Names, parse_names};
use crate::spec::effect::Effect;
use crate::spec::ip::prefixes;
use crate::spec::magnitude::Magnitude;
use crate::spec::units::LONGEST_FAULT;
use crate::spec::{Fault, Reach, SpecError};

/// The table of the policy file.
const TABLE: &str = "limits";
/// The bound of how long a fault lasts.
const MAX_DURATION: &str = "max_duration_seconds";
/// The bound of how many faults are active.
const MAX_ACTIVE: &str = "max_active";
/// For how long what has begun is counted.
pub const HOUR: Duration = Duration::from_hours(1);
/// The bounds of everybody together.
const TOGETHER: &str = "together";
/// The longest time between two runs that can be asked for, in seconds.
const LONGEST_COOL_DOWN: u64 = 86_400;
/// Addresses at which nobody is: for documentation (RFC 5737, RFC 3849), and to be discarded (RFC 6666).
const NOBODYS: [&str; 5] = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "100::/64"];

/// What bounds faults and runs. Everything left out bounds nothing, but for addresses.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Each caller, whatever its role.
    pub everybody: Bounds,
    /// Each approver: of what it plans.
    pub approver: Bounds,
    /// Each operator.
    pub operator: Bounds,
    /// Each admin, root among them.
    pub admin: Bounds,
    /// All callers together.
    pub together: Together,
    /// Names about which `dns_error` may say something wrong, as its parameter `names` has them. Default: all.
    pub dns_names: Option<Vec<String>>,
    /// Addresses that `dns_error` may answer with. Default: those at which nobody is, for documentation and to be discarded.
    #[serde(deserialize_with = "prefixes")]
    pub dns_addresses: Vec<IpNet>,
    /// Addresses that probes may ask. Where clouds tell a host its secrets needs a prefix of its own. Default: all others.
    #[serde(deserialize_with = "prefixes")]
    pub probe_addresses: Vec<IpNet>,
}

/// The bounds of one caller. Each that is left out bounds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// Longest fault, in seconds, 1 to 3600.
    pub max_duration_seconds: Option<u64>,
    /// Most faults active at once, 1 to 64.
    pub max_active: Option<u64>,
    /// Largest share of whom a fault is aimed at that it affects, in percent. One that spares nobody has 100.
    pub most_share_percent: Option<u64>,
    /// Largest share of the packets that is lost, in percent, of whatever type.
    pub most_loss_percent: Option<u64>,
    /// The most that packets are late, in milliseconds.
    pub most_latency_ms: Option<u64>,
    /// The least that gets through, in thousands of bits per second.
    pub least_rate_kbit: Option<u64>,
    /// Runs and single faults that may begin within an hour.
    pub runs_per_hour: Option<u64>,
    /// Seconds that pass after the last fault until a run or a single fault may begin, up to 86400.
    pub cool_down_seconds: Option<u64>,
}

/// The bounds of all callers together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Together {
    /// Runs and single faults that may begin within an hour.
    pub runs_per_hour: Option<u64>,
    /// Seconds that pass after the last fault of anybody until a run or a single fault may begin, up to 86400.
    pub cool_down_seconds: Option<u64>,
}

/// What has begun and ended lately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lately {
    /// Runs and single faults that have begun within the last hour.
    pub begun: u64,
    /// Faults that are active.
    pub active: u64,
    /// How long ago the last fault has ended; `None` when none has, as far as is known.
    pub since_end: Option<Duration>,
}

/// The same of who asks, and of everybody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recent {
    /// Who asks.
    pub own: Lately,
    /// Everybody, who asks among them.
    pub all: Lately,
}

impl Default for Limits {
    fn default() -> Self {
        let dns_addresses = NOBODYS.iter().filter_map(|text| text.parse().ok()).collect();
        let (everybody, approver, operator, admin) = Default::default();
        Self {
            everybody,
            approver,
            operator,
            admin,
            together: Together::default(),
            dns_names: None,
            dns_addresses,
            probe_addresses: Reach::usual().prefixes,
        }
    }
}

/// Refuses a value above a bound, or below it, and says which line would do.
fn refuse(field: &str, problem: String, enough: u64, most: u64) -> Refusal {
    let refusal = Refusal::new(format!("{TABLE}.{field}"), problem);
    match enough <= most {
        true => refusal.but_for(format!("{TABLE}.{field} = {enough}")),
        false => refusal,
    }
}

/// A number that is no integer, rounded up to the next one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is a share in percent, or fewer than 2^52"
)]
fn up(value: f64) -> u64 {
    // What a share in binary digits is above the one that was written is nobody's wish.
    (value - 1e-9).ceil().max(0.0) as u64
}

impl Bounds {
    /// Each number with its name, and from where to where it may be.
    fn all(&self) -> [(&'static str, Option<u64>, (u64, u64)); 8] {
        let longest = LONGEST_FAULT.as_secs();
        [
            (MAX_DURATION, self.max_duration_seconds, (1, longest)),
            (MAX_ACTIVE, self.max_active, (1, 64)),
            ("most_share_percent", self.most_share_percent, (0, 100)),
            ("most_loss_percent", self.most_loss_percent, (0, 100)),
            ("most_latency_ms", self.most_latency_ms, (0, 120_000)),
            ("least_rate_kbit", self.least_rate_kbit, (0, 100_000_000)),
            ("runs_per_hour", self.runs_per_hour, (1, 10_000)),
            ("cool_down_seconds", self.cool_down_seconds, (0, LONGEST_COOL_DOWN)),
        ]
    }

    /// Whether a fault is within them.
    fn admit(&self, of: &str, fault: &Fault) -> Result<(), Refusal> {
        let Magnitude { share_percent, loss_percent, latency, rate_kbit } = fault.effect.magnitude();
        let seconds = fault.duration.as_secs_f64();
        let over = |name: &str, bound: Option<u64>, value: f64, words: String, most: u64| match bound {
            Some(bound) if up(value) > bound => Err(refuse(
                &format!("{of}.{name}"),
                format!("{words} is more than the {bound} allowed"),
                up(value),
                most,
            )),
            _ => Ok(()),
        };
        let longest = LONGEST_FAULT.as_secs();
        over("max_duration_seconds", self.max_duration_seconds, seconds, format!("{seconds} s"), longest)?;
        let share = format!("{share_percent:.1} % of whom it is aimed at");
        over("most_share_percent", self.most_share_percent, share_percent, share, 100)?;
        let loss = format!("{loss_percent:.1} % of the packets lost");
        over("most_loss_percent", self.most_loss_percent, loss_percent, loss, 100)?;
        let late = latency.as_secs_f64() * 1e3;
        over("most_latency_ms", self.most_latency_ms, late, format!("{late} ms late"), 120_000)?;
        match (self.least_rate_kbit, rate_kbit) {
            (Some(least), Some(kbit)) if kbit < least => Err(refuse(
                &format!("{of}.least_rate_kbit"),
                format!("{kbit} kbit/s is less than the {least} that have to get through"),
                kbit,
                u64::MAX,
            )),
            _ => Ok(()),
        }
    }

    fn admit_active(&self, of: &str, own: &Lately) -> Result<(), Refusal> {
        match self.max_active {
            Some(most) if own.active >= most => Err(refuse(
                &format!("{of}.max_active"),
                format!("{} of your faults are active, and {most} may be", own.active),
                own.active + 1,
                64,
            )),
            _ => Ok(()),
        }
    }

    fn pace(&self) -> Together {
        Together { runs_per_hour: self.runs_per_hour, cool_down_seconds: self.cool_down_seconds }
    }
}

impl Together {
    fn admit(&self, of: &str, whose: &str, lately: &Lately) -> Result<(), Refusal> {
        if let Some(most) = self.runs_per_hour
            && lately.begun >= most
        {
            let begun = lately.begun;
            let text = format!(
                "{begun} runs and single faults{whose} have begun within the last hour, and {most} may"
            );
            return Err(refuse(&format!("{of}.runs_per_hour"), text, begun + 1, 10_000));
        }
        let Some(wanted) = self.cool_down_seconds.filter(|seconds| *seconds > 0) else { return Ok(()) };
        let field = format!("{of}.cool_down_seconds");
        if lately.active > 0 {
            let text = format!(
                "{} faults{whose} are active, and the next run or single fault begins {wanted} s after the last",
                lately.active
            );
            return Err(refuse(&field, text, 0, LONGEST_COOL_DOWN));
        }
        match lately.since_end {
            Some(since) if since.as_secs() < wanted => {
                let left = wanted - since.as_secs();
                let text =
                    format!("the last fault{whose} has ended less than {wanted} s ago: {left} s are left");
                Err(refuse(&field, text, since.as_secs(), LONGEST_COOL_DOWN))
            }
            _ => Ok(()),
        }
    }
}

impl Limits {
    fn bounds(&self, role: Role) -> Option<&Bounds> {
        match role {
            Role::Observer => None,
            Role::Approver => Some(&self.approver),
            Role::Operator => Some(&self.operator),
            Role::Admin => Some(&self.admin),
        }
    }

    /// All that bind a caller of these roles, each with its table.
    fn of<'a>(&'a self, roles: &'a BTreeSet<Role>) -> impl Iterator<Item = (&'static str, &'a Bounds)> {
        let by_role = roles.iter().filter_map(|role| Some((role.name(), self.bounds(*role)?)));
        std::iter::once(("everybody", &self.everybody)).chain(by_role)
    }

    /// Whether a caller of these roles may have this fault.
    ///
    /// # Errors
    /// The bound that it is beyond.
    pub(super) fn admit(&self, roles: &BTreeSet<Role>, fault: &Fault) -> Result<(), Refusal> {
        self.of(roles).try_for_each(|(of, bounds)| bounds.admit(of, fault))?;
        self.admit_forgery(&fault.effect)
    }

    /// Whether a caller of these roles may have one more fault.
    ///
    /// # Errors
    /// The bound that it is beyond.
    pub(super) fn admit_active(&self, roles: &BTreeSet<Role>, recent: &Recent) -> Result<(), Refusal> {
        self.of(roles).try_for_each(|(of, bounds)| bounds.admit_active(of, &recent.own))
    }

    /// Whether a run or a single fault of a caller of these roles may begin after what was lately.
    ///
    /// # Errors
    /// The bound that it is beyond.
    pub(super) fn admit_pace(&self, roles: &BTreeSet<Role>, recent: &Recent) -> Result<(), Refusal> {
        self.of(roles).try_for_each(|(of, bounds)| bounds.pace().admit(of, " of yours", &recent.own))?;
        self.together.admit(TOGETHER, "", &recent.all)
    }

    /// Which addresses a host may have that a probe names, if it may be asked.
    ///
    /// # Errors
    /// When it is named by an address that may not be.
    pub(super) fn admit_probe(&self, host: &str) -> Result<Reach, Refusal> {
        let reach = Reach { prefixes: self.probe_addresses.clone() };
        match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(address) if !reach.has(address) => {
                let known = self.probe_addresses.iter().map(|prefix| quoted(&prefix.to_string()));
                let text = format!("{address} is none of the addresses that probes may ask");
                Err(Refusal::new(format!("{TABLE}.probe_addresses"), text).but_for_one_more(
                    &format!("{TABLE}.probe_addresses"),
                    known,
                    quoted(&IpNet::from(address).to_string()),
                ))
            }
            // The addresses of a name are known when it is looked up.
            _ => Ok(reach),
        }
    }

    /// Whether a wrong answer may be given about these names, and with these addresses.
    fn admit_forgery(&self, effect: &Effect) -> Result<(), Refusal> {
        let Effect::Names { questions, .. } = effect else { return Ok(()) };
        if let DnsAnswer::WrongAddress { v4, v6 } = questions.answer {
            let addresses = [v4.map(IpAddr::from), v6.map(IpAddr::from)].into_iter().flatten();
            for address in addresses {
                let address = address.to_canonical();
                if !self.dns_addresses.iter().any(|prefix| prefix.contains(&address)) {
                    let known = self.dns_addresses.iter().map(|prefix| quoted(&prefix.to_string()));
                    let text = format!("{address} is none of the addresses that dns_error may answer with");
                    return Err(Refusal::new(format!("{TABLE}.dns_addresses"), text).but_for_one_more(
                        &format!("{TABLE}.dns_addresses"),
                        known,
                        quoted(&IpNet::from(address).to_string()),
                    ));
                }
            }
        }
        let Some(allowed) = &self.dns_names else { return Ok(()) };
        let field = format!("{TABLE}.dns_names");
        // Of a policy that was read from a file they make sense.
        let parsed = parse_names(Some(allowed)).unwrap_or_default();
        let other = questions.names.iter().find(|name| !parsed.iter().any(|allowed| allowed.has(name)));
        let known = allowed.iter().map(|name| quoted(name));
        match other {
            Some(other) => {
                let text =
                    format!("{other} is none of the names about which dns_error may say something wrong");
                Err(Refusal::new(&field, text).but_for_one_more(&field, known, quoted(&other.to_string())))
            }
            None if questions.names.is_empty() => {
                let text = "dns_error may say something wrong about some names alone, and no name is given";
                Err(Refusal::new(&field, text).unless("name some of those that it lists, in params.names"))
            }
            None => Ok(()),
        }
    }

    /// Whether all of it makes sense.
    ///
    /// # Errors
    /// Names the field that does not, and what would be right.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let all = [
            ("everybody", &self.everybody),
            (Role::Approver.name(), &self.approver),
            (Role::Operator.name(), &self.operator),
            (Role::Admin.name(), &self.admin),
        ];
        let together = Bounds {
            runs_per_hour: self.together.runs_per_hour,
            cool_down_seconds: self.together.cool_down_seconds,
            ..Bounds::default()
        };
        for (of, bounds) in all.into_iter().chain([(TOGETHER, &together)]) {
            for (name, value, (least, most)) in bounds.all() {
                if value.is_some_and(|value| !(least..=most).contains(&value)) {
                    return Err(SpecError::new(
                        format!("{TABLE}.{of}.{name}"),
                        format!("give {least} to {most}"),
                    ));
                }
            }
        }
        match &self.dns_names {
            Some(names) if !names.is_empty() => parse_names(Some(names))
                .map(drop)
                .map_err(|error| SpecError::new(format!("{TABLE}.dns_names"), error.problem)),
            _ => Ok(()),
        }
    }

    /// The narrowest of each that bounds a caller of these roles, with its name.
    fn narrowest(&self, roles: &BTreeSet<Role>) -> Vec<(&'static str, u64)> {
        let mut found: Vec<(&str, u64)> = Vec::new();
        for (name, value) in self
            .of(roles)
            .flat_map(|(_, bounds)| bounds.all())
            .filter_map(|(name, value, _)| Some((name, value?)))
        {
            let is_least = name.starts_with("least") || name.starts_with("cool");
            match found.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = if is_least { value.max(*known) } else { value.min(*known) },
                None => found.push((name, value)),
            }
        }
        found
    }

    /// How long a fault of a caller of these roles lasts at most, in seconds, and how many of theirs are active; none where nothing says so.
    pub(super) fn longest_and_most(&self, roles: &BTreeSet<Role>) -> (Option<u64>, Option<u64>) {
        let found = self.narrowest(roles);
        let of = |wanted: &str| found.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        (of(MAX_DURATION), of(MAX_ACTIVE))
    }

    /// What bounds a caller of these roles, for people: the narrowest of each.
    pub fn words(&self, roles: &BTreeSet<Role>) -> Vec<String> {
        let found = self.narrowest(roles);
        let own = found.into_iter().map(|(name, value)| format!("{name} {value}"));
        let together = [
            ("runs_per_hour", self.together.runs_per_hour),
            ("cool_down_seconds", self.together.cool_down_seconds),
        ];
        let together = together
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name} {} of all together", value?)));
        let addresses: Vec<_> = self.dns_addresses.iter().map(ToString::to_string).collect();
        let names = self.dns_names.as_ref().map_or("any name".to_owned(), |names| names.join(", "));
        let forged = format!("dns_error answers with {}, about {names}", addresses.join(", "));
        let asked: Vec<_> = self.probe_addresses.iter().map(ToString::to_string).collect();
        let asked = format!("probes ask {}", asked.join(", "));
        own.chain(together).chain([forged, asked]).collect()
    }
}

impl Names {
    /// Whether this stands for all that `other` stands for.
    fn has(&self, other: &Self) -> bool {
        let is_below = other.name.strip_suffix(&self.name).is_some_and(|rest| rest.ends_with('.'));
        self == other || self.below && (is_below || other.below && other.name == self.name)
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
