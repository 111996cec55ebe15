//! What was seen of services by earlier calls: a trend of hours needs looks hours ago. It goes with the server, is each user's own, and
//! has bounds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use chaos_advise::{Gauge, Level, Look, Stalled};

use crate::request::services::{ServiceSeen, Share, Stalls};
use crate::spec::Owner;

/// How many users' looks are kept, of those who have asked lately.
const MOST_OWNERS: usize = 8;
/// Of how many services of one user, of those that were seen lately.
const MOST_KNOWN: usize = 200;
/// How many looks at one service.
const MOST_LOOKS: usize = 32;
/// What is older than this against the latest is thinned out, in seconds.
const LATELY: f64 = 60.0;
/// How far apart looks are kept that are older, in seconds.
const APART: f64 = 60.0;
/// Looks older than this are forgotten, in seconds.
const OLDEST: f64 = 24.0 * 3600.0;

/// A look, with the oldest process of the service then.
type Kept = (Look, (i32, u64));

/// Looks of each user at each service.
#[derive(Debug, Clone, Default)]
pub struct Looks {
    all: Arc<Mutex<BTreeMap<Owner, OfOwner>>>,
}

#[derive(Debug, Default)]
struct OfOwner {
    /// When this user has asked last, in seconds since the host has started.
    last: f64,
    services: BTreeMap<String, Vec<Kept>>,
}

/// What is known of a service by looks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    /// The looks, the oldest first.
    pub looks: Vec<Look>,
    /// How often its oldest process was another one than before.
    pub restarts: u32,
}

impl Looks {
    /// Notes what was seen at a time, in seconds since the host has started.
    pub fn note(&self, owner: Owner, at: f64, services: &[ServiceSeen]) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let of_owner = all.entry(owner).or_default();
        of_owner.last = at;
        for service in services {
            let looks = of_owner.services.entry(service.name()).or_default();
            looks.push((look(at, service), service.oldest));
            thin(looks, at);
        }
        of_owner.services.retain(|_, looks| looks.last().is_some_and(|(look, _)| look.at >= at - OLDEST));
        forget(&mut of_owner.services);
        while all.len() > MOST_OWNERS
            && let Some(longest_ago) = all.iter().min_by(|one, other| one.1.last.total_cmp(&other.1.last))
        {
            let owner = *longest_ago.0;
            all.remove(&owner);
        }
    }

    /// What this user has seen of a service.
    pub fn of(&self, owner: Owner, service: &str) -> Known {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = all.get(&owner).and_then(|of_owner| of_owner.services.get(service)) else {
            return Known::default();
        };
        let changed = kept.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        let looks = kept.iter().map(|(look, _)| look.clone()).collect();
        Known { looks, restarts: u32::try_from(changed).unwrap_or(u32::MAX) }
    }
}

/// Forgets those that were seen longest ago, if there are too many.
fn forget(services: &mut BTreeMap<String, Vec<Kept>>) {
    let last = |looks: &[Kept]| looks.last().map_or(f64::NEG_INFINITY, |(look, _)| look.at);
    let Some(too_many) = services.len().checked_sub(MOST_KNOWN).filter(|more| *more > 0) else { return };
    let mut all: Vec<_> = services.iter().map(|(name, looks)| (last(looks), name.clone())).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
    for (_, name) in all.into_iter().take(too_many) {
        services.remove(&name);
    }
}

/// Keeps what is recent, and of what is older one a minute.
fn thin(looks: &mut Vec<Kept>, now: f64) {
    looks.retain(|(look, _)| look.at >= now - OLDEST);
    let mut kept = f64::NEG_INFINITY;
    looks.retain(|(look, _)| {
        let keep = look.at >= now - LATELY || look.at - kept >= APART;
        if keep {
            kept = look.at;
        }
        keep
    });
    // Every other one of the older ones goes, so that the oldest stays for long.
    if looks.len() > MOST_LOOKS {
        let recent = looks.iter().filter(|(look, _)| look.at >= now - LATELY).count();
        let older = looks.len() - recent;
        let mut place = 0;
        looks.retain(|_| {
            place += 1;
            place > older || place % 2 == 1
        });
        let too_many = looks.len().saturating_sub(MOST_LOOKS);
        looks.drain(..too_many);
    }
}

fn look(at: f64, service: &ServiceSeen) -> Look {
    let level = |share: Share| Level { used: share.used as f64, limit: share.limit as f64 };
    let sessions = service.descriptors.filter(|_| !service.listens.is_empty() || service.sessions > 0);
    let sessions = sessions.map(|share| Share { used: service.sessions.into(), limit: share.limit });
    let gauges = [
        (Gauge::Memory, service.memory),
        (Gauge::Tasks, service.tasks),
        (Gauge::Descriptors, service.descriptors),
        (Gauge::Disk, service.disk),
        (Gauge::Sessions, sessions),
    ];
    let stalled = |Stalls { cpu, memory, io }: Stalls| Stalled {
        cpu: cpu.as_secs_f64(),
        memory: memory.as_secs_f64(),
        io: io.as_secs_f64(),
    };
    Look {
        at,
        gauges: gauges.into_iter().filter_map(|(gauge, share)| Some((gauge, level(share?)))).collect(),
        stalled: service.stalls.map(stalled),
        waiting: service.waiting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::TargetRequest;

    const ME: Owner = Owner::User(1001);

    fn seen(used: u64, oldest: i32) -> ServiceSeen {
        ServiceSeen {
            target: TargetRequest { unit: Some("a.service".into()), ..TargetRequest::default() },
            memory: Some(Share { used, limit: 1000 }),
            oldest: (oldest, 1),
            ..ServiceSeen::default()
        }
    }

    #[test]
    fn looks_are_kept_for_whoever_has_looked_and_told_to_nobody_else() {
        let looks = Looks::default();
        looks.note(ME, 1.0, &[seen(10, 7)]);
        looks.note(ME, 2.0, &[seen(20, 7)]);
        looks.note(ME, 3.0, &[seen(20, 9)]);
        let known = looks.of(ME, "unit a.service");
        assert_eq!((known.looks.len(), known.restarts), (3, 1));
        assert_eq!(known.looks[1].gauges[&Gauge::Memory], Level { used: 20.0, limit: 1000.0 });
        assert_eq!(looks.of(Owner::User(1002), "unit a.service"), Known::default());
        assert_eq!(looks.of(ME, "unit b.service"), Known::default());
    }

    #[test]
    fn however_often_somebody_asks_the_looks_stay_few_and_reach_far_back() {
        let looks = Looks::default();
        for minute in 0..6000_u32 {
            looks.note(ME, f64::from(minute) * 30.0, &[seen(1, 7)]);
        }
        let known = looks.of(ME, "unit a.service");
        let (first, last) = (known.looks[0].at, known.looks.last().unwrap().at);
        assert!(known.looks.len() <= MOST_LOOKS && last - first >= 3600.0, "{} to {last}", first);
        assert!(last - first <= OLDEST);
    }

    #[test]
    fn of_services_that_come_and_go_those_that_were_seen_lately_are_remembered() {
        let looks = Looks::default();
        for number in 0..1000_u32 {
            let target =
                TargetRequest { unit: Some(format!("{number}.service")), ..TargetRequest::default() };
            looks.note(ME, f64::from(number), &[ServiceSeen { target, ..seen(1, 7) }]);
        }
        assert_eq!(looks.all.lock().unwrap()[&ME].services.len(), MOST_KNOWN);
        assert_eq!(looks.of(ME, "unit 999.service").looks.len(), 1);
        assert_eq!(looks.of(ME, "unit 0.service").looks.len(), 0);
    }

    #[test]
    fn of_many_users_those_who_have_asked_lately_are_remembered() {
        let looks = Looks::default();
        for user in 0..100_u32 {
            looks.note(Owner::User(user), f64::from(user), &[seen(1, 7)]);
        }
        assert_eq!(looks.all.lock().unwrap().len(), MOST_OWNERS);
        assert_eq!(looks.of(Owner::User(99), "unit a.service").looks.len(), 1);
        assert_eq!(looks.of(Owner::User(0), "unit a.service").looks.len(), 0);
    }
}
