//! How much of the record is one party's: so that a flood of one does not push out the lines of others.
//!
//! Old segments are dropped, so whoever could write without end would have the lines of others dropped. What changes the host always
//! has a line of its own, and is refused to whoever does it too often. Everything else has one until its party has had its share. After
//! that it is counted: one line a minute for each kind of act that came out the same way.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::record::{Outcome, Party, Record};

/// How long what is counted is counted until a line says it.
const WINDOW: Duration = Duration::from_secs(60);
/// So many parties are told apart.
const MOST_PARTIES: usize = 256;
/// So many kinds of acts of one party are counted apart.
const MOST_KINDS: usize = 32;

/// What an act is to the shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It changes this host: never counted together with others, and bounded by being refused.
    Start,
    /// It has a line of its own within the share of its party.
    Act,
    /// It only looks at what the daemon knows: one line a minute.
    Look,
}

/// A bucket of the generic cell rate algorithm (ITU-T I.371).
#[derive(Debug, Clone, Copy)]
struct Rate {
    /// So many at once.
    burst: u32,
    /// One more after each.
    every: Duration,
}

/// What changes the host: 10 a minute in the long run, which is 14,400 a day.
const STARTS: Rate = Rate { burst: 1000, every: Duration::from_secs(6) };
/// Everything else.
const ACTS: Rate = Rate { burst: 300, every: Duration::from_secs(10) };

impl Rate {
    fn admits(self, until: &mut Instant, now: Instant) -> bool {
        let full = (*until).max(now);
        if full.duration_since(now) > self.every * (self.burst - 1) {
            return false;
        }
        *until = full + self.every;
        true
    }
}

/// How acts that are counted together are alike.
type Alike = (String, Outcome, Option<String>);

/// Acts that are counted.
#[derive(Debug)]
struct Counted {
    began: Instant,
    count: u64,
    since: Timestamp,
    /// The last of them, which stands for all.
    last: Record,
}

#[derive(Debug)]
struct Share {
    starts: Instant,
    acts: Instant,
    counted: BTreeMap<Alike, Counted>,
}

/// The shares of all parties.
#[derive(Debug, Default)]
pub struct Shares(BTreeMap<Party, Share>);

impl Shares {
    fn of(&mut self, party: Party, now: Instant) -> &mut Share {
        let is_new = !self.0.contains_key(&party);
        let party = if is_new && self.0.len() >= MOST_PARTIES { Party::Others } else { party };
        self.0.entry(party).or_insert(Share { starts: now, acts: now, counted: BTreeMap::new() })
    }

    /// Whether a party may change the host once more.
    pub fn may_start(&mut self, party: Party, now: Instant) -> bool {
        party.is_trusted() || STARTS.admits(&mut self.of(party, now).starts, now)
    }

    /// The record, if it has a line of its own; otherwise it is counted.
    pub fn admit(&mut self, kind: Kind, record: Record, now: Instant) -> Option<Record> {
        let party = record.party();
        let share = self.of(party, now);
        let has_line = match kind {
            Kind::Start => true,
            Kind::Act => party == Party::Daemon || ACTS.admits(&mut share.acts, now),
            Kind::Look => false,
        };
        if has_line {
            return Some(record);
        }
        let mut alike = (record.act.clone(), record.outcome, record.code.clone());
        if share.counted.len() >= MOST_KINDS && !share.counted.contains_key(&alike) {
            alike = ("others".to_owned(), record.outcome, None);
        }
        if let Some(counted) = share.counted.get_mut(&alike) {
            if counted.count == 0 {
                counted.since = record.time;
            }
            counted.count += 1;
            counted.last = record;
            return None;
        }
        // The first of a minute is told at once, and those after it when the minute is over; of a party beyond its share none is.
        let told = kind == Kind::Look;
        let (since, count) = (record.time, u64::from(!told));
        share.counted.insert(alike, Counted { began: now, count, since, last: record.clone() });
        told.then_some(record)
    }

    /// What was counted for long enough; `all` of it at the end.
    pub fn due(&mut self, now: Instant, all: bool) -> Vec<Record> {
        let mut due = Vec::new();
        for share in self.0.values_mut() {
            let over = |counted: &Counted| all || now.duration_since(counted.began) >= WINDOW;
            for (alike, counted) in share.counted.extract_if(.., |_, counted| over(counted)) {
                let Counted { count, since, last, .. } = counted;
                match count {
                    0 => {}
                    1 => due.push(last),
                    _ => due.push(Record {
                        act: alike.0,
                        repeats: Some(count),
                        since: Some(since),
                        id: None,
                        ..last
                    }),
                }
            }
        }
        // Whoever has used up nothing is as good as new.
        self.0.retain(|_, share| share.starts > now || share.acts > now || !share.counted.is_empty());
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Who;

    fn record(uid: u32, act: &str, outcome: Outcome) -> Record {
        let who = Some(Who { uid: Some(uid), ..Who::default() });
        Record { act: act.to_owned(), outcome, who, ..Record::default() }
    }

    #[test]
    fn a_flood_of_one_user_is_counted_and_the_lines_of_others_and_what_changes_the_host_are_all_there() {
        let (mut shares, start) = (Shares::default(), Instant::now());
        let mut lines = BTreeMap::new();
        for number in 0..100_000_u32 {
            let now = start + Duration::from_millis(u64::from(number) / 10);
            let mut told = |kind, record: Record| {
                if let Some(record) = shares.admit(kind, record, now) {
                    *lines.entry((record.party(), record.act)).or_insert(0) += 1;
                }
            };
            told(Kind::Act, record(1001, "plan", Outcome::Refused));
            if number % 1000 == 0 {
                told(Kind::Act, record(1002, "plan", Outcome::Refused));
                told(Kind::Start, record(1001, "inject", Outcome::Done));
            }
            told(Kind::Look, record(1003, "status", Outcome::Done));
        }
        let count = |uid, act: &str| lines.get(&(Party::User(uid), act.to_owned())).copied().unwrap_or(0);
        assert_eq!((count(1002, "plan"), count(1001, "inject")), (100, 100));
        assert_eq!((count(1001, "plan"), count(1003, "status")), (300, 1));
        let counted = shares.due(start + Duration::from_secs(61), false);
        let counted: Vec<_> =
            counted.iter().map(|record| (record.party(), record.act.as_str(), record.repeats)).collect();
        let expected = [
            (Party::User(1001), "plan", Some(100_000 - 300)),
            (Party::User(1003), "status", Some(100_000 - 1)),
        ];
        assert_eq!(counted, expected);
        assert!(shares.due(start + Duration::from_secs(3600), true).is_empty());
    }

    #[test]
    fn whoever_changes_the_host_too_often_is_refused_but_root_is_not_and_nobody_else() {
        let (mut shares, now) = (Shares::default(), Instant::now());
        let mut started = |party, after| {
            (0..5000).filter(|_| shares.may_start(party, now + Duration::from_secs(after))).count()
        };
        assert_eq!(started(Party::User(1001), 0), 1000);
        assert_eq!((started(Party::User(1002), 0), started(Party::Context(1001), 0)), (1000, 1000));
        assert_eq!(started(Party::User(1001), 60), 10);
        assert_eq!((started(Party::User(0), 0), started(Party::Daemon, 0)), (5000, 5000));
    }

    #[test]
    fn however_many_users_and_kinds_there_are_what_is_kept_of_them_has_a_bound() {
        let (mut shares, now) = (Shares::default(), Instant::now());
        for uid in 1..2000 {
            for kind in 0..40 {
                shares.admit(Kind::Look, record(uid, &format!("act {kind}"), Outcome::Done), now);
            }
        }
        assert_eq!(shares.0.len(), MOST_PARTIES + 1);
        assert!(shares.0.values().all(|share| share.counted.len() <= MOST_KINDS + 2));
    }
}
