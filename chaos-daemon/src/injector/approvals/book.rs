//! Which plans wait for an approval, and who has approved of which. Pure: who asks, for what and when goes in, leave or a reason comes
//! out. It is kept in memory, so that what was used once is never found again in a file.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::leave::{Leave, Plan};
use crate::policy::Who;
use crate::policy::approval::Need;
use crate::request::approvals::{Approval, Given};
use crate::request::{ApiError, ErrorCode};
use crate::spec::Owner;

/// The most plans that wait, or were carried out lately.
const MOST: usize = 256;
/// The most of them of one user.
const MOST_OF_ONE: usize = 32;
/// How long a plan waits after it was asked for last, in nanoseconds.
const WAITS: u64 = 24 * 3600 * 1_000_000_000;
/// How far ahead an approval may begin.
const AHEAD: Duration = Duration::from_secs(24 * 3600);
/// The most lines that are told of a plan, and the longest of them in characters. What is longer nobody approves of.
const MOST_LINES: usize = 32;
const LONGEST_LINE: usize = 2000;

/// When: by the clock on the wall, for people, and by the time since boot, which nobody sets.
#[derive(Debug, Clone, Copy)]
pub(in crate::injector) struct Moment {
    pub(in crate::injector) wall: Timestamp,
    pub(in crate::injector) boot_ns: u64,
}

/// From when until when an approval is wanted to hold.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::injector) struct Window {
    pub(in crate::injector) from: Option<Timestamp>,
    pub(in crate::injector) lasts: Option<Duration>,
}

/// Who wants to approve.
#[derive(Debug, Clone)]
pub(in crate::injector) struct Approver {
    pub(in crate::injector) who: Who,
    /// As whom they have logged in, where the kernel knows it.
    pub(in crate::injector) login: Option<u32>,
}

impl Approver {
    fn owner(&self) -> Owner {
        self.who.caller.owner()
    }

    /// The users that this person is, as far as the kernel knows.
    fn logins(&self) -> Vec<u32> {
        let own = match self.owner() {
            Owner::User(uid) => Some(uid),
            _ => None,
        };
        own.into_iter().chain(self.login).collect()
    }

    /// Whether this is the same person as `other`, as far as the kernel knows.
    fn is(&self, other: Owner) -> bool {
        self.owner() == other || self.login.is_some_and(|login| Owner::User(login) == other)
    }
}

#[derive(Debug, Clone)]
struct Signature {
    id: String,
    by: Approver,
    from: Timestamp,
    until: Timestamp,
    until_ns: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    plan: Plan,
    need: Need,
    asked: Moment,
    signatures: Vec<Signature>,
    used: Option<String>,
    /// As whom those who have asked for it had logged in.
    logins: BTreeSet<u32>,
    /// Whether it is longer than what is told of it.
    is_cut: bool,
}

/// Plans, the one that was asked for last at the end.
#[derive(Debug, Default)]
pub(in crate::injector) struct Book {
    all: Vec<Entry>,
}

/// Why a plan may not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::injector) enum Lack {
    #[error("nobody has approved of it")]
    Nobody,
    #[error("{0} approved of another plan of it, {1}: fault, stage or target are others by now")]
    Another(String, String),
    #[error("{0} of {1} others have approved of it")]
    TooFew(usize, usize),
    #[error("its approval holds from {0:.0} on")]
    Early(Timestamp),
    #[error("its approval has ended at {0:.0}")]
    Over(Timestamp),
    #[error("its approval was used already, by {0}: each is used once")]
    Used(String),
    #[error("{0} is no approver here any more")]
    NoApprover(Owner),
}

impl Book {
    /// Notes that somebody wants to carry a plan out. One whose approvals are used up or over waits for new ones.
    pub(in crate::injector) fn ask(&mut self, plan: Plan, need: Need, now: Moment) {
        self.forget(now);
        let is_cut =
            plan.does.len() > MOST_LINES || plan.does.iter().any(|line| line.chars().count() > LONGEST_LINE);
        let does = plan.does.iter().take(MOST_LINES);
        let does = does.map(|line| line.chars().take(LONGEST_LINE).collect()).collect();
        let plan = Plan { does, ..plan };
        let known = self.all.iter().position(|entry| entry.is(plan.requester, &plan.digest));
        let before = known.map(|place| self.all.remove(place));
        let is_spent =
            |entry: &Entry| entry.used.is_some() || entry.signatures.iter().any(|it| it.is_over(now));
        let mut logins: BTreeSet<_> =
            before.iter().flat_map(|before| before.logins.iter().copied()).collect();
        logins.extend(plan.login);
        let signatures = match before {
            Some(before) if !is_spent(&before) => before.signatures,
            _ => Vec::new(),
        };
        self.make_room(plan.requester);
        self.all.push(Entry { plan, need, asked: now, signatures, used: None, logins, is_cut });
    }

    /// Drops what nobody waits for any more.
    fn forget(&mut self, now: Moment) {
        self.all.retain(|entry| {
            let waits = now.boot_ns.saturating_sub(entry.asked.boot_ns) < WAITS;
            waits || (entry.used.is_none() && entry.signatures.iter().any(|it| !it.is_over(now)))
        });
    }

    /// The oldest goes: of the same user where it has its share, and then of whoever has the most.
    fn make_room(&mut self, requester: Owner) {
        let count = |owner: Owner| self.all.iter().filter(|entry| entry.plan.requester == owner).count();
        let whose = match (count(requester) >= MOST_OF_ONE, self.all.len() >= MOST) {
            (true, _) => Some(requester),
            (false, true) => {
                self.all.iter().map(|entry| entry.plan.requester).max_by_key(|owner| count(*owner))
            }
            (false, false) => None,
        };
        if let Some(whose) = whose
            && let Some(first) = self.all.iter().position(|entry| entry.plan.requester == whose)
        {
            self.all.remove(first);
        }
    }

    /// Takes that somebody approves of a plan. Returns it, with all who have.
    ///
    /// # Errors
    /// When there is no such plan, it is the approver's own, or the window makes no sense.
    pub(in crate::injector) fn sign(
        &mut self,
        (digest, of): (&str, Option<Owner>),
        by: Approver,
        (window, valid): (Window, Duration),
        now: Moment,
    ) -> Result<Approval, ApiError> {
        self.forget(now);
        let meant: Vec<_> = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, entry)| {
                entry.plan.digest == digest && of.is_none_or(|of| of == entry.plan.requester)
            })
            .map(|(place, entry)| (place, entry.plan.requester))
            .collect();
        let place = match meant.as_slice() {
            [] => return Err(unknown(digest)),
            [(place, _)] => *place,
            several => {
                let whose: Vec<_> = several.iter().map(|(_, owner)| owner.qualifier()).collect();
                let text = format!("approve: several users want this plan: {}", whose.join(", "));
                return Err(ApiError::new(ErrorCode::InvalidParameter, text).hint("say whose, with --of"));
            }
        };
        let Some(entry) = self.all.get_mut(place) else { return Err(unknown(digest)) };
        entry.signatures.retain(|it| !it.is_over(now));
        entry.admit(&by)?;
        let signature = signature(by, (window, valid), now)?;
        entry.signatures.push(signature);
        Ok(entry.told())
    }

    /// Whether a plan may be carried out now by who asked for it. `is_approver` says who approves here still.
    ///
    /// # Errors
    /// Why not.
    pub(in crate::injector) fn leave(
        &self,
        (requester, digest): (Owner, &str),
        (need, on): (&Need, &str),
        now: Moment,
        is_approver: impl Fn(&Who) -> bool,
    ) -> Result<Leave, Lack> {
        let Some(entry) = self.all.iter().find(|entry| entry.is(requester, digest)) else {
            let mut others = self.all.iter().rev();
            let other = others
                .find(|entry| entry.plan.requester == requester && entry.plan.on == on && entry.holds(now));
            return Err(
                other.map_or(Lack::Nobody, |other| Lack::Another(other.by(), other.plan.digest.clone()))
            );
        };
        if let Some(used) = &entry.used {
            return Err(Lack::Used(used.clone()));
        }
        if let Some(other) = entry.signatures.iter().find(|it| !is_approver(&it.by.who)) {
            return Err(Lack::NoApprover(other.by.owner()));
        }
        if let Some(over) = entry.signatures.iter().find(|it| it.is_over(now)) {
            return Err(Lack::Over(over.until));
        }
        if let Some(early) = entry.signatures.iter().find(|it| now.wall < it.from) {
            return Err(Lack::Early(early.from));
        }
        match entry.signatures.len() {
            0 => Err(Lack::Nobody),
            given if given < need.persons => Err(Lack::TooFew(given, need.persons)),
            _ => Ok(Leave {
                by: entry.by(),
                ids: entry.signatures.iter().map(|it| it.id.clone()).collect(),
                plan: digest.to_owned(),
            }),
        }
    }

    /// Notes that a plan is carried out: its approvals are used up.
    pub(in crate::injector) fn use_up(&mut self, (requester, digest): (Owner, &str), by: String) {
        if let Some(entry) = self.all.iter_mut().find(|entry| entry.is(requester, digest)) {
            entry.used = Some(by);
        }
    }

    /// Notes that it was not carried out after all: nothing of it has begun.
    pub(in crate::injector) fn give_back(&mut self, requester: Owner, leave: &Leave) {
        let is_it = |entry: &&mut Entry| {
            let ids = entry.signatures.iter().map(|signature| &signature.id);
            entry.is(requester, &leave.plan) && ids.eq(&leave.ids)
        };
        if let Some(entry) = self.all.iter_mut().find(is_it) {
            entry.used = None;
        }
    }

    /// Takes an approval back: of who has given it, of whose plan it is, and of admins.
    ///
    /// # Errors
    /// When there is no such approval that they could take back.
    pub(in crate::injector) fn withdraw(
        &mut self,
        id: &str,
        by: Owner,
        is_admin: bool,
    ) -> Result<Approval, ApiError> {
        for entry in &mut self.all {
            let may = |it: &Signature| is_admin || it.by.owner() == by || entry.plan.requester == by;
            if let Some(place) = entry.signatures.iter().position(|it| it.id == id && may(it)) {
                if let Some(used) = &entry.used {
                    let text = format!("withdraw approval {id}: it was used already, by {used}");
                    return Err(ApiError::new(ErrorCode::InvalidParameter, text)
                        .hint("end what goes on with chaosctl stop"));
                }
                entry.signatures.remove(place);
                return Ok(entry.told());
            }
        }
        let text = format!("withdraw approval {id:?}: there is none of this number that is yours");
        Err(ApiError::new(ErrorCode::InvalidParameter, text).hint("chaosctl approvals lists them"))
    }

    /// What somebody may see: an approver all of it, others what they have asked for.
    pub(in crate::injector) fn list(&self, viewer: Owner, sees_all: bool) -> Vec<Approval> {
        let seen = self.all.iter().filter(|entry| sees_all || entry.plan.requester == viewer);
        seen.map(Entry::told).collect()
    }
}

fn unknown(digest: &str) -> ApiError {
    let text = format!("approve: nobody waits for an approval of plan {digest:?}");
    ApiError::new(ErrorCode::InvalidParameter, text)
        .hint("give the whole digest, as chaosctl approvals has it; who wants to carry the plan out asks for it first")
}

/// The approval that is meant by a window.
fn signature(by: Approver, (window, valid): (Window, Duration), now: Moment) -> Result<Signature, ApiError> {
    let wrong = |text: String| ApiError::new(ErrorCode::InvalidParameter, format!("approve: {text}"));
    let lasts = window.lasts.unwrap_or(valid);
    if lasts.is_zero() || lasts > valid {
        let text = format!(
            "--for {} s: the policy lets an approval hold for 1 to {} s",
            lasts.as_secs(),
            valid.as_secs()
        );
        return Err(wrong(text));
    }
    let from = window.from.unwrap_or(now.wall).max(now.wall);
    let ahead = Duration::try_from(from.duration_since(now.wall)).unwrap_or_default();
    if ahead > AHEAD {
        return Err(wrong(format!("--from {from:.0} is more than a day ahead")));
    }
    let nanoseconds = u64::try_from((ahead + lasts).as_nanos()).unwrap_or(u64::MAX);
    let until = from.checked_add(lasts).map_err(|error| wrong(error.to_string()))?;
    let id = format!("{:08x}", rand::random::<u32>());
    Ok(Signature { id, by, from, until, until_ns: now.boot_ns.saturating_add(nanoseconds) })
}

impl Signature {
    /// By whichever clock it is over first: the one on the wall may be set back.
    fn is_over(&self, now: Moment) -> bool {
        now.wall >= self.until || now.boot_ns >= self.until_ns
    }
}

impl Entry {
    fn is(&self, requester: Owner, digest: &str) -> bool {
        self.plan.requester == requester && self.plan.digest == digest
    }

    /// Whether it would be carried out but for what it is.
    fn holds(&self, now: Moment) -> bool {
        self.used.is_none()
            && !self.signatures.is_empty()
            && !self.signatures.iter().any(|it| it.is_over(now))
    }

    /// Whether somebody may approve of it.
    fn admit(&self, by: &Approver) -> Result<(), ApiError> {
        let (requester, plan) = (self.plan.requester, &self.plan.digest);
        if self.is_cut {
            let text = format!(
                "approve {plan}: it has more than {MOST_LINES} faults, or one that is longer than {LONGEST_LINE} characters, and cannot be shown whole"
            );
            return Err(
                ApiError::new(ErrorCode::LimitReached, text).hint("it has to be divided into several")
            );
        }
        let own = |text: String| {
            ApiError::new(ErrorCode::PolicyDenied, format!("approve {plan}: {text}"))
                .hint("another user who is an approver has to: one person alone approves of nothing")
        };
        if by.owner() == requester {
            return Err(own(format!("it is the plan of {requester}, who asks")));
        }
        if by.is(requester) {
            return Err(own(format!("{} has logged in as {requester}, whose plan it is", by.owner())));
        }
        if let Some(login) = by.logins().into_iter().find(|login| self.logins.contains(login)) {
            return Err(own(format!("uid {login} has asked for it, as another user")));
        }
        let same = |it: &&Signature| {
            by.is(it.by.owner())
                || it.by.is(by.owner())
                || by.login.is_some_and(|login| it.by.login == Some(login))
        };
        if let Some(same) = self.signatures.iter().find(same) {
            let text = format!("approve {plan}: {} has done so already, by {}", same.by.owner(), same.id);
            return Err(ApiError::new(ErrorCode::PolicyDenied, text)
                .hint("a second approval is another person's; or withdraw this one first"));
        }
        match &self.used {
            None => Ok(()),
            Some(used) => {
                let text = format!("approve {plan}: it was carried out already, by {used}");
                Err(ApiError::new(ErrorCode::InvalidParameter, text).hint("it has to be asked for again"))
            }
        }
    }

    fn by(&self) -> String {
        let by: Vec<_> = self.signatures.iter().map(|it| it.by.owner().to_string()).collect();
        by.join(" and ")
    }

    fn told(&self) -> Approval {
        let Self { plan, need, asked, signatures, used, .. } = self;
        Approval {
            plan: plan.digest.clone(),
            requester: plan.requester,
            on: plan.on.clone(),
            stage: plan.stage,
            does: plan.does.clone(),
            rule: need.rule.clone(),
            why: need.why.clone(),
            persons: need.persons,
            asked: asked.wall,
            given: signatures
                .iter()
                .map(|it| Given { id: it.id.clone(), by: it.by.owner(), from: it.from, until: it.until })
                .collect(),
            used: used.clone(),
        }
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
