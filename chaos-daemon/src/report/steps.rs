//! What happened in a run, in order, as rows for people. They are what the events say, what recovery was measured by, and the samples
//! that were not as they should be, grouped. What two of them say is told once.

use std::collections::BTreeMap;

use super::document::called;
use super::story::Story;
use super::words::{amount, clock, count, line, seconds};
use super::worst::Limit;
use crate::experiment::gate::Op;
use crate::experiment::role::Role;
use crate::experiment::timeline::{Kind, Occurrence, Reading};

/// How near a sample and an event are that tell of the same thing, in seconds.
const SAME: f64 = 0.15;
/// How many times a probe may go bad before all of them are one row.
const MOST_SPELLS: usize = 3;

/// How a row is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Fault,
    Good,
    Bad,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// Seconds since the run began.
    pub(super) at: f64,
    /// The time of day, in UTC.
    pub(super) clock: String,
    pub(super) tone: Tone,
    pub(super) what: String,
    pub(super) detail: String,
}

/// Samples of one probe that follow each other, and say the same.
struct Group<'a> {
    first: &'a Reading,
    last: &'a Reading,
    samples: u64,
    /// How many times it began.
    spells: u64,
    worst: Option<f64>,
}

impl<'a> Group<'a> {
    /// Of which probe it is, and what that said, where no value says it.
    fn of(&self) -> (Role, &'a str, String) {
        let said =
            if self.worst.is_some() { String::new() } else { without_figures(&line(&self.first.detail)) };
        (kind(self.first.role), &self.first.probe, said)
    }
}

/// Everything that happened, in order.
pub(super) fn steps(story: &Story<'_>) -> Vec<Step> {
    let mut groups = groups(story);
    let mut found: Vec<Step> = Vec::new();
    for incident in story.recorded.run.recovery.iter().flat_map(|recovery| &recovery.incidents) {
        let Some(began) = story.began(incident) else { continue };
        for (tone, what, after) in [
            (Tone::Fault, "Old process gone", incident.gone_after_seconds),
            (Tone::Bad, "Seen to fail", incident.unreachable_after_seconds),
            (Tone::Fault, "New process", incident.new_process_after_seconds),
            (Tone::Good, "Recovered", incident.recovered_after_seconds),
        ] {
            let Some(after) = after else { continue };
            let at = began + after;
            // The sample by which it was seen says what there was to see.
            let is_seen = |group: &Group<'_>| {
                let near = (group.first.at_seconds - at).abs() <= SAME;
                tone == Tone::Bad && kind(group.first.role) == Role::SteadyState && near
            };
            let seen = groups.iter().position(is_seen);
            let detail = match seen.map(|seen| groups.remove(seen)) {
                Some(group) => {
                    format!("{} after \"{}\": {}", seconds(after), incident.action, told(story, &group))
                }
                None => format!("{} after \"{}\"", seconds(after), incident.action),
            };
            found.push(Step { at, clock: clock(&story.time(at)), tone, what: what.to_owned(), detail });
        }
    }
    let events = &story.recorded.events;
    for (at, event) in events.iter().enumerate() {
        if !is_told_elsewhere(story, &events[..at], event) {
            found.extend(step(story, event, events));
        }
    }
    for group in groups {
        let what = match group.first.role {
            Role::Gate => "Gate is bad",
            Role::Alert => "Alert not as expected",
            Role::SteadyState | Role::Recovery | Role::Method => "Not as it should be",
        };
        let (at, clock) = (group.first.at_seconds, clock(&group.first.time));
        found.push(Step { at, clock, tone: Tone::Bad, what: what.to_owned(), detail: told(story, &group) });
    }
    found.sort_by(|left, right| left.at.total_cmp(&right.at));
    repeated(found)
}

/// Whether what an event says is told by another row.
fn is_told_elsewhere(story: &Story<'_>, before: &[Occurrence], event: &Occurrence) -> bool {
    let samples = &story.recorded.samples;
    match event.kind {
        // A probe that was not as it should be, of which there is the sample.
        Kind::NotMet if before.iter().any(|before| before.kind == Kind::Injecting) => {
            samples.iter().any(|sample| {
                !sample.met
                    && (sample.at_seconds - event.at_seconds).abs() <= SAME
                    && event.detail == format!("{}: {}", sample.probe, sample.detail)
            })
        }
        // It ends a run because of what was said just before, of a breach.
        Kind::Abort => {
            before.iter().any(|before| before.kind == Kind::Breach && event.detail.contains(&before.detail))
        }
        _ => false,
    }
}

/// The row of an event; none of what only says where a run has come to.
fn step(story: &Story<'_>, event: &Occurrence, events: &[Occurrence]) -> Option<Step> {
    let other = |kind: Kind| events.iter().find(|other| other.kind == kind && other.subject == event.subject);
    let took = |asked: Kind, what: &str| {
        let asked = other(asked)?;
        let took = event.at_seconds - asked.at_seconds;
        (took >= 0.0).then(|| format!("{} after {what}", seconds(took)))
    };
    let ended = |kinds: &[Kind]| kinds.iter().any(|kind| other(*kind).is_some());
    let name = called(story.recorded, &event.subject);
    let detail = || event.detail.clone();
    let (tone, what, detail) = match event.kind {
        Kind::Started => (Tone::Plain, "Begun".to_owned(), detail()),
        Kind::Phase if event.subject == "finished" => (Tone::Plain, "Ended".to_owned(), detail()),
        Kind::Phase => return None,
        Kind::Met => (Tone::Good, "Steady state met".to_owned(), when(story, event)),
        Kind::NotMet => (Tone::Bad, "Steady state not met".to_owned(), detail()),
        Kind::Injecting if ended(&[Kind::Injected, Kind::InjectionFailed]) => return None,
        Kind::Injecting => (Tone::Fault, format!("{name}: asked for"), detail()),
        Kind::Injected => (
            Tone::Fault,
            format!("{name}: active"),
            took(Kind::Injecting, "it was asked for").unwrap_or_default(),
        ),
        Kind::InjectionFailed => (Tone::Bad, format!("{name}: not injected"), detail()),
        Kind::Removing if ended(&[Kind::Removed, Kind::RemovalFailed]) => return None,
        Kind::Removing => (Tone::Fault, format!("{name}: removal asked for"), detail()),
        Kind::Removed => (
            Tone::Fault,
            format!("{name}: removed"),
            took(Kind::Removing, "that was asked for").unwrap_or_default(),
        ),
        Kind::RemovalFailed => (Tone::Bad, format!("{name}: not removed"), detail()),
        Kind::EndedEarly => (Tone::Bad, format!("{name}: ended before its time"), detail()),
        Kind::Breach => (Tone::Bad, "Gate breached".to_owned(), detail()),
        Kind::AlertFired => (Tone::Plain, format!("Alert {name} fired"), detail()),
        Kind::AlertGone => (Tone::Good, format!("Alert {name} gone"), detail()),
        Kind::Finding => (Tone::Bad, "Finding".to_owned(), detail()),
        Kind::Abort => (Tone::Bad, "Run broken off".to_owned(), detail()),
    };
    let detail = line(&detail);
    Some(Step { at: event.at_seconds, clock: clock(&event.time), tone, what, detail })
}

/// When the steady state was met: before the method, or so long after the last fault was removed.
fn when(story: &Story<'_>, event: &Occurrence) -> String {
    match (story.facts.injected, story.facts.removed) {
        (_, Some(removed)) if event.at_seconds >= removed => {
            format!("{} after the last fault was removed", seconds(event.at_seconds - removed))
        }
        (Some(injected), _) if event.at_seconds >= injected => String::new(),
        _ => "before the method".to_owned(),
    }
}

/// What a sample of the steady state was taken for is of no matter here.
fn kind(role: Role) -> Role {
    if role == Role::Recovery { Role::SteadyState } else { role }
}

/// Which way a value is worse, of the gate that a sample is of.
fn worse(story: &Story<'_>, sample: &Reading) -> Option<Op> {
    let limit = Limit::named(story.experiment.as_ref(), &sample.probe).filter(|_| sample.role == Role::Gate);
    limit.map(|limit| limit.op)
}

/// The samples that were not as they should be, by probe, those that say the same together.
fn groups<'a>(story: &Story<'a>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    // By probe, where a group is that goes on.
    let mut open: Vec<(&str, Role, usize)> = Vec::new();
    for sample in &story.recorded.samples {
        let is = |open: &&(&str, Role, usize)| open.0 == sample.probe && open.1 == kind(sample.role);
        let goes_on = open.iter().find(is).map(|open| open.2);
        if sample.met {
            open.retain(|open| !is(&open));
            continue;
        }
        let is_same = |group: &&mut Group<'_>| {
            without_figures(&line(&group.first.detail)) == without_figures(&line(&sample.detail))
        };
        if let Some(group) = goes_on.and_then(|at| groups.get_mut(at)).filter(is_same) {
            let values = group.worst.into_iter().chain(sample.value);
            group.worst = match worse(story, sample) {
                Some(op) => Limit::worst(op, values),
                None => group.worst,
            };
            (group.last, group.samples) = (sample, group.samples + 1);
            continue;
        }
        open.retain(|open| !is(&open));
        open.push((&sample.probe, kind(sample.role), groups.len()));
        let worst = sample.value.filter(|_| worse(story, sample).is_some());
        groups.push(Group { first: sample, last: sample, samples: 1, spells: 1, worst });
    }
    together(story, groups)
}

/// The groups of a probe that was bad, and well, and bad again many times, as one if they say the same.
fn together<'a>(story: &Story<'a>, groups: Vec<Group<'a>>) -> Vec<Group<'a>> {
    let mut spells: BTreeMap<(Role, &str, String), (usize, Option<usize>)> = BTreeMap::new();
    groups.iter().for_each(|group| spells.entry(group.of()).or_default().0 += 1);
    let mut out: Vec<Group<'a>> = Vec::new();
    for group in groups {
        let (all, place) = spells.entry(group.of()).or_default();
        let known = place.filter(|_| *all > MOST_SPELLS).and_then(|place| out.get_mut(place));
        let Some(known) = known else {
            *place = Some(out.len());
            out.push(group);
            continue;
        };
        let values = known.worst.into_iter().chain(group.worst);
        known.worst = worse(story, known.first).and_then(|op| Limit::worst(op, values));
        (known.last, known.samples, known.spells) =
            (group.last, known.samples + group.samples, known.spells + 1);
    }
    out
}

/// What a group has seen, in words.
fn told(story: &Story<'_>, group: &Group<'_>) -> String {
    let Group { first, last, samples, spells, worst } = group;
    let seen = match (worst, first.detail.is_empty()) {
        (Some(worst), _) if first.role == Role::Gate => {
            let limit = Limit::named(story.experiment.as_ref(), &first.probe);
            let worst = amount(*worst, limit.as_ref().map_or("", |limit| limit.unit));
            let bound = limit.map(|limit| format!(", and {} is bad", limit.bound())).unwrap_or_default();
            format!("{worst}{bound}")
        }
        (_, true) => "not as it should be".to_owned(),
        (_, false) => line(&first.detail),
    };
    let probe = &first.probe;
    match samples {
        1 => format!("{probe}: {seen}"),
        _ => {
            let worst = if worst.is_some() { "at worst " } else { "" };
            let again = if *spells > 1 { format!(", {spells} times") } else { String::new() };
            let (samples, until) = (count(*samples, "sample"), seconds(last.at_seconds));
            format!("{probe}: {worst}{seen} ({samples} until {until}{again})")
        }
    }
}

/// A text in which every number is the same: two samples that differ only in how long they took say the same.
fn without_figures(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_ascii_digit() || c == '.' {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(c),
        }
    }
    out
}

/// Rows that say the same, one after the other, as one.
fn repeated(steps: Vec<Step>) -> Vec<Step> {
    let mut out: Vec<(Step, u64)> = Vec::new();
    for step in steps {
        match out.last_mut() {
            Some((last, times)) if (&last.what, &last.detail) == (&step.what, &step.detail) => *times += 1,
            _ => out.push((step, 1)),
        }
    }
    let told = |(step, times): (Step, u64)| match times {
        1 => step,
        _ => Step { what: format!("{}, {times} times", step.what), ..step },
    };
    out.into_iter().map(told).collect()
}
