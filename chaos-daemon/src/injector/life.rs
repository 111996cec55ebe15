//! One active fault from its first heartbeat to the last look for residue.

use std::collections::btree_map;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::beats::Beats;
use super::down;
use super::follow::{self, Lost};
use super::holders::Holder;
use super::idle;
use super::names::{Answer, Names};
use super::oom::Watch;
use super::orders::{End, Next, Orders, line};
use super::presence;
use super::recover::Unfinished;
use super::state::{Active, Injector};
use crate::holder::{Lease, Order, Report};
use crate::host::boot_time_ns;
use crate::journal::{Entry, Event, undo_all};
use crate::policy::Who;
use crate::request::{Caller, Evidence, FaultState, Removal};
use crate::spec::{FaultRequest, QualifiedName};

/// How often a lease is renewed.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a holder may take to answer that it has undone, once its packets are out. One that stands still acts as long
/// as its lease; killing it ends that sooner.
const DISARM_LIMIT: Duration = Duration::from_millis(1500);
/// How long a holder that was told to end may take to do so.
const EXIT_LIMIT: Duration = Duration::from_secs(2);
/// How long to wait before an undo that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// Why most faults end.
pub(super) const TIME_UP: &str = "its time was up";

/// What one fault's task owns.
pub(super) struct Life {
    pub(super) injector: Rc<Injector>,
    pub(super) name: QualifiedName,
    /// Who has asked for it.
    pub(super) who: Arc<Who>,
    /// What was asked for, of a fault that follows its target.
    pub(super) follows: Option<Box<FaultRequest>>,
    /// What is on the node.
    pub(super) applied: Applied,
}

/// What a fault has on the node, and what is watched while it is there.
pub(super) struct Applied {
    pub(super) holder: Holder,
    pub(super) journal: Entry,
    pub(super) lease: Lease,
    /// How long packets may take to get out when the fault ends.
    pub(super) drain: Duration,
    /// What it is about, if that is a host with a name.
    pub(super) aim: Option<Aim>,
    /// Whom the kernel is to kill, if that is the fault.
    pub(super) doom: Option<Watch>,
    /// Whether its target is there.
    pub(super) presence: presence::Watch,
    /// Why it meets nothing.
    pub(super) _idle: idle::Watch,
}

/// Why a fault is taken from the node.
enum Ended {
    /// It ends, for this reason.
    For(String),
    /// Its target has gone, or is no target any more.
    Lost(String),
}

impl Ended {
    fn because(reason: &str) -> Self {
        Self::For(reason.to_owned())
    }
}

/// A named host, asked for again and again, beside the peers that were named by their addresses.
pub(super) struct Aim {
    names: Names,
    fixed: Vec<IpNet>,
    answers: Receiver<Answer>,
    /// What the holder was ordered to be about and has not reported yet.
    ordered: Option<Vec<IpNet>>,
    /// Whether the last answer was none.
    unknown: bool,
}

impl Aim {
    /// Begins to ask.
    pub(super) fn new(names: Names, fixed: Vec<IpNet>) -> Self {
        Self { answers: names.watch(), names, fixed, ordered: None, unknown: false }
    }
}

/// The next answer to be acted upon; none as long as the holder has not acted upon the last.
async fn next_answer(aim: Option<&mut Aim>) -> Answer {
    match aim {
        Some(Aim { answers, ordered: None, .. }) => match answers.recv().await {
            Some(answer) => answer,
            None => pending().await,
        },
        _ => pending().await,
    }
}

/// How long a fault still has that ends at `end_ns`, both boot time; `None` when its time is up.
pub(super) fn time_left(end_ns: u64, now_ns: u64) -> Option<Duration> {
    end_ns.checked_sub(now_ns).filter(|left| *left > 0).map(Duration::from_nanos)
}

pub(super) type Waiting = Vec<oneshot::Sender<Removal>>;

impl Life {
    /// Keeps the fault until it is due, told to end, or its holder dies; then undoes it, until nothing is left. One that follows its
    /// target waits for it meanwhile, with nothing on the node.
    pub(super) async fn live(mut self, mut orders: Orders) {
        let mut waiting = Waiting::new();
        loop {
            let ended = self.hold(&mut orders, &mut waiting).await;
            let Self { injector, name, who, follows, applied } = self;
            let caller = who.caller;
            let end_ns = applied.lease.end_ns;
            let since = Instant::now();
            let (reason, follows) = match ended {
                Ended::For(reason) => (reason, None),
                Ended::Lost(lost) => (lost, follows),
            };
            let Some(request) = follows else {
                orders.refuse_asks();
                let turn = (&mut orders, waiting);
                return take_off(&injector, (&name, caller), applied, &reason, turn, Then::Retire).await;
            };
            let turn = (&mut orders, std::mem::take(&mut waiting));
            take_off(&injector, (&name, caller), applied, &reason, turn, Then::Keep).await;
            // Whoever wanted its end meanwhile has had it.
            if injector.status_of(&name).is_none() {
                return;
            }
            let fault = Lost { name: &name, who: &who, request: &request, end_ns, reason: &reason, since };
            match follow::wait(&injector, &fault, &mut orders).await {
                Some(applied) => self = Self { injector, name, who, follows: Some(request), applied },
                None => return,
            }
        }
    }
}

/// What becomes of the entry of a fault of which nothing is left on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It has ended.
    Retire,
    /// It stays, unless somebody wants the fault to end.
    Keep,
}

/// Takes a fault from the node, until nothing is left of it.
async fn take_off(
    injector: &Rc<Injector>,
    (name, caller): (&QualifiedName, Caller),
    applied: Applied,
    reason: &str,
    (orders, waiting): (&mut Orders, Waiting),
    then: Then,
) {
    injector.update(name, |active| {
        active.state = FaultState::Ending;
        active.note = Some(reason.to_owned());
    });
    let Applied { mut holder, mut journal, drain, doom, .. } = applied;
    note_ending(name, &mut journal, reason);
    match disarm(name, &mut holder, drain).await {
        Some(evidence) => {
            injector.update(name, |active| active.evidence = evidence);
            holder.finish(EXIT_LIMIT).await;
        }
        // It may not even have heard of its end: waiting for it would be waiting with the fault on.
        None => holder.end().await,
    }
    // The holder may have been killed, too.
    let doomed = match doom {
        Some(doom) => doom.last().await,
        None => None,
    };
    if let Some((kills, words)) = doomed {
        injector.update(name, |active| {
            active.evidence = active.evidence.with_oom_kills(kills);
            active.note = Some(format!("{reason}; {words}"));
        });
    }
    if injector.status_of(name).is_some_and(|status| down::takes_down(status.fault_type))
        && let Some(words) = down::settle(injector, name).await
    {
        injector.update(name, |active| active.note = Some(format!("{reason}; {words}")));
    }
    undo(injector, name, &journal, (orders, waiting), then).await;
    close(journal);
    tracing::info!(%name, %caller, reason, "ended");
    if injector.status_of(name).is_some() {
        injector.note_fault("fault_waits", name, Some(reason));
    }
}

impl Life {
    /// Heartbeats until there is a reason to end; returns it.
    async fn hold(&mut self, orders: &mut Orders, waiting: &mut Waiting) -> Ended {
        let end_ns = self.applied.lease.end_ns;
        let rest = time_left(end_ns, boot_time_ns()).unwrap_or_default();
        let due = sleep_until(Instant::now() + rest);
        tokio::pin!(due);
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut beats = Beats::default();
        loop {
            tokio::select! {
                biased;
                // No more than one heartbeat is out for who asks: a holder that stands still takes in so many and no more.
                next = orders.next(due.as_mut(), !beats.are_awaited()) => match next {
                    Next::Due => return Ended::because(TIME_UP),
                    Next::End(End { reason, done }) => {
                        waiting.push(done);
                        return Ended::For(reason);
                    }
                    Next::Ask(asked) => {
                        if self.applied.holder.order(&Order::Renew).await.is_err() {
                            return Ended::because("its holder died");
                        }
                        beats.sent(asked);
                    }
                },
                lost = self.applied.presence.lost() => return Ended::Lost(lost),
                doomed = Watch::next(self.applied.doom.as_mut()) => self.doomed(doomed),
                answer = next_answer(self.applied.aim.as_mut()) => {
                    if !self.take_aim(answer).await {
                        return Ended::because("its holder died");
                    }
                }
                report = self.applied.holder.report() => match report {
                    Ok(Report::Aimed) => self.aimed(),
                    Ok(Report::Beat(evidence)) => {
                        heard = Instant::now();
                        self.injector.update(&self.name, |active| active.met(evidence));
                        beats.heard();
                    }
                    Ok(Report::Failed { message, .. }) => {
                        return self.ended(format!("it could not be kept up: {message}")).await;
                    }
                    Ok(other) => return Ended::For(format!("its holder said {other:?}")),
                    Err(_) => return self.ended("its holder died".to_owned()).await,
                },
                _ = heartbeat.tick() => {
                    // Tokio's clock stands still while the host is suspended, and boot time, by which a fault ends, goes on.
                    match time_left(end_ns, boot_time_ns()) {
                        Some(left) => due.as_mut().reset(Instant::now() + left),
                        None => return Ended::because(TIME_UP),
                    }
                    if heard.elapsed() > 2 * self.applied.lease.window {
                        return Ended::because("its holder was silent for two lease windows");
                    }
                    if self.applied.holder.order(&Order::Renew).await.is_err() {
                        return Ended::because("its holder died");
                    }
                    beats.sent(None);
                }
            }
        }
    }
}

impl Life {
    /// Why it ends: its holder may have noticed first that its target has gone.
    async fn ended(&self, reason: String) -> Ended {
        match self.applied.presence.lost_now().await {
            Some(lost) => Ended::Lost(lost),
            None => Ended::For(reason),
        }
    }

    /// Has the holder be about what the name stands for now; false when it is gone. While nobody answers it goes on as it was.
    async fn take_aim(&mut self, answer: Answer) -> bool {
        let Some(aim) = &mut self.applied.aim else { return true };
        let problem =
            answer.as_ref().err().map(|error| format!("{error}; it goes on with what the name stood for"));
        // What else is told of it stays.
        if problem.is_some() || aim.unknown {
            aim.unknown = problem.is_some();
            self.injector.update(&self.name, |active| active.note = problem);
        }
        let Some(named) = answer.ok().and_then(|fresh| aim.names.take_in(fresh)) else { return true };
        let (name, caller) = (&self.name, self.who.caller);
        tracing::info!(%name, %caller, host = aim.names.host(), ?named, "the name stands for other addresses");
        let peers = aim.fixed.iter().chain(&named).copied().collect();
        aim.ordered = Some(named);
        self.applied.holder.order(&Order::Aim { peers }).await.is_ok()
    }

    /// Shows what the holder says that it is about.
    fn aimed(&mut self) {
        if let Some(named) = self.applied.aim.as_mut().and_then(|aim| aim.ordered.take()) {
            self.injector.update(&self.name, |active| active.addresses = named);
        }
    }

    /// Shows whom the kernel has killed.
    fn doomed(&mut self, (kills, words): (u64, String)) {
        self.injector.update(&self.name, |active| {
            active.met(active.evidence.with_oom_kills(kills));
            active.note = Some(words);
        });
    }
}

/// Tells the holder to undo, and waits for what it met. `None` when it is dead or silent: ending it undoes too.
async fn disarm(name: &QualifiedName, holder: &mut Holder, drain: Duration) -> Option<Evidence> {
    holder.order(&Order::Disarm).await.ok()?;
    loop {
        match holder.answer_within(DISARM_LIMIT + drain).await {
            Ok(Report::Disarmed(evidence)) => return Some(evidence),
            // A heartbeat's answer that was still under way.
            Ok(Report::Beat(_) | Report::Aimed) => {}
            Ok(other) => {
                tracing::warn!(%name, ?other, "unexpected report while ending");
                return None;
            }
            Err(error) => {
                tracing::warn!(%name, %error, "the holder could not undo by itself; ending it");
                return None;
            }
        }
    }
}

/// Goes on with a failed injection of which something is left: shows it, and undoes until nothing is left.
pub(super) async fn retry(
    injector: Rc<Injector>,
    name: QualifiedName,
    journal: Entry,
    mut orders: Orders,
    residue: Vec<String>,
) {
    undo_what_is_left(&injector, &name, journal, &mut orders, &residue).await;
}

/// The same, of a fault whose task goes on until then.
pub(super) async fn undo_what_is_left(
    injector: &Injector,
    name: &QualifiedName,
    mut journal: Entry,
    orders: &mut Orders,
    residue: &[String],
) {
    orders.refuse_asks();
    note_ending(name, &mut journal, "something of it is left");
    stuck(injector, name, residue).await;
    undo(injector, name, &journal, (orders, Waiting::new()), Then::Retire).await;
    close(journal);
    tracing::info!(%name, "undone what was left");
}

/// Goes on with what a daemon that died has left and the recovery at the start could not undo: like a failed injection of which
/// something is left, under the fault's name.
pub(super) fn take_up(injector: &Rc<Injector>, left: Unfinished) {
    let Unfinished { found, residue } = left;
    // Without a first line it is not understood.
    let Some((name, fault_type)) = found.fault.clone() else { return };
    let journal = match found.reopen() {
        Ok(journal) => journal,
        Err(error) => {
            tracing::error!(%name, %error, "cannot open the journal of what is left; it is for the next start");
            return;
        }
    };
    let (line, orders) = line();
    match injector.active.borrow_mut().entry(name.clone()) {
        btree_map::Entry::Vacant(place) => {
            place.insert(Active::left(fault_type, journal.steps(), line));
        }
        btree_map::Entry::Occupied(_) => {
            tracing::error!(%name, "something else is left under the same name; it is for the next start");
            return;
        }
    }
    injector.changed.notify_one();
    tokio::task::spawn_local(retry(Rc::clone(injector), name, journal, orders, residue));
}

/// From here on what the journal has is to go, and what of it is there is left.
fn note_ending(name: &QualifiedName, journal: &mut Entry, reason: &str) {
    if let Err(error) = journal.note(Event::Ending { reason: reason.to_owned() }) {
        tracing::warn!(%name, %error, "cannot write the journal; undoing all the same");
    }
}

pub(super) fn close(journal: Entry) {
    if let Err(error) = journal.close() {
        tracing::warn!(%error, "cannot close a journal");
    }
}

/// Undoes every step once, and returns what may be left, and what was left alone because somebody else has changed it.
pub(super) async fn attempt(journal: &Entry) -> (Vec<String>, Vec<String>) {
    let steps = journal.steps().to_vec();
    match tokio::task::spawn_blocking(move || undo_all(&steps)).await {
        Ok(report) => (report.residue(), report.kept),
        // What has not been undone to its end may be there still.
        Err(error) => (vec![format!("undoing: {error}")], Vec::new()),
    }
}

/// Says of what is left, and waits until it is time to try again.
async fn stuck(injector: &Injector, name: &QualifiedName, residue: &[String]) {
    tracing::error!(%name, ?residue, "undoing is stuck; trying again");
    injector.update(name, |active| {
        active.state = FaultState::Stuck;
        active.note = Some(residue.join("; "));
    });
    tokio::time::sleep(RETRY).await;
}

/// Undoes every step and looks for residue, again and again until nothing is left; answers who waits after the
/// first attempt.
async fn undo(
    injector: &Injector,
    name: &QualifiedName,
    journal: &Entry,
    (orders, mut waiting): (&mut Orders, Waiting),
    mut then: Then,
) {
    loop {
        let (residue, kept) = attempt(journal).await;
        orders.drop_asks();
        for each in &kept {
            tracing::warn!(%name, kept = each, "ended, but somebody else has changed what the fault had set");
            injector.update(name, |active| {
                active.note = Some(format!("{}; {each}", active.note.take().unwrap_or_default()));
            });
        }
        waiting.extend(orders.take_ends());
        if !waiting.is_empty() {
            // Once it was told to end it does, also if that takes several attempts.
            then = Then::Retire;
        }
        let removal = injector.status_of(name).map(|status| Removal {
            name: name.clone(),
            fault_type: status.fault_type,
            evidence: status.evidence,
            likely: status.likely,
            residue: residue.clone(),
            kept: kept.clone(),
        });
        if residue.is_empty() && then == Then::Keep {
            injector.release(name);
        } else if residue.is_empty() {
            // Before the answers: who reads "removed" finds the name free.
            injector.retire(name);
        }
        for done in waiting.drain(..) {
            // Nobody listening any more is fine.
            if let Some(removal) = removal.clone() {
                drop(done.send(removal));
            }
        }
        if residue.is_empty() {
            return;
        }
        stuck(injector, name, &residue).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_fault_is_up_at_its_end_and_as_long_after_it_as_a_suspended_host_may_have_slept() {
        let end_ns = 5_000_000_000;
        assert_eq!(time_left(end_ns, 0), Some(Duration::from_secs(5)));
        assert_eq!(time_left(end_ns, end_ns - 1), Some(Duration::from_nanos(1)));
        assert_eq!(time_left(end_ns, end_ns), None);
        // A second by the monotonic clock, and a night by this one.
        assert_eq!(time_left(end_ns, 30_000_000_000_000), None);
        // As the boot clock reads where it cannot be read.
        assert_eq!(time_left(end_ns, u64::MAX), None);
    }
}
