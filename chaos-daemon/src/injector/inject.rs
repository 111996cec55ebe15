//! Starting a fault: parse, permit, look, plan, write down, apply, read back. In this order. Looking is done beside the loop
//! (`survey`); what comes before and after it takes no time, and by what is active when it is decided.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::time::sleep;

use super::approvals::decide::{self, Found};
use super::approvals::leave::OfRun;
use super::aside::Purpose;
use super::audit::Begun;
use super::holders::{Holder, HolderFailure};
use super::life::{self, Aim, Applied, Life};
use super::names::{self, Names};
use super::oom::Doom;
use super::orders::{Line, line};
use super::owners::Taken;
use super::presence::{Device, Pins};
use super::refusal::{active_already, refuse_overlap, refuse_unchanged, unsteady};
use super::reload::Grounds;
use super::state::{Active, Injector, LEASE_WINDOW, Standing, settings};
use super::survey::{self, Asked, Spot, Surveyed};
use super::watch::Sight;
use super::{by_route, digest, down, idle, taken_back, ways_in};
use crate::fault::{Attach, Place, Plan, Ready};
use crate::holder::packets::{capacity, roomy};
use crate::holder::{Lease, Report, Unreached};
use crate::host::{NetNs, NetNsIdentity, Spared, boot_time_ns};
use crate::journal::{Entry, Event};
use crate::kernel::step::Step;
use crate::policy::{self, Intent, Permit, Who};
use crate::request::wire::{Ticket, Wanted};
use crate::request::{ApiError, ErrorCode, Evidence, FaultState, FaultStatus, TargetsReport};
use crate::spec::LifetimeClass;
use crate::spec::effect::WaysIn;
use crate::spec::{Fault, FaultRequest, OnTargetGone, QualifiedName, SpecError, TargetRequest};
use crate::target::{Entrance, NetworkTarget};

/// How often it is looked whether the faults before one on a device are applied.
const TURN: Duration = Duration::from_millis(2);
/// How often it is looked again because a fault has meanwhile given back what it had set.
const MOST_SURVEYS: usize = 3;
/// Everything that is decided before anything is changed.
pub(super) struct Admitted {
    pub(super) fault: Fault,
    pub(super) plan: Plan,
    pub(super) target: Option<NetworkTarget>,
    /// The network namespace that the holder enters, of a fault without an interface.
    netns: Option<NetNs>,
    id: u32,
    pub(super) place: Option<(NetNsIdentity, u32, u8)>,
    /// By what all of it is known to who has planned it.
    pub(super) digest: String,
    /// Those that were chosen, of a fault that goes to processes.
    pub(super) targets: Option<TargetsReport>,
    /// The host that the target names, and what it stands for.
    names: Option<Names>,
    /// Whom the kernel is to kill.
    doom: Option<Doom>,
    permit: Permit,
    /// As whom namespaces that the caller names are opened.
    entrance: Entrance,
    /// Whom it has to spare.
    spared: Spared,
    who: Arc<Who>,
    /// What keeps packets from meeting it, for people.
    pub(super) warning: Option<String>,
    pub(super) guard: Sight,
    /// Of a plan: why the fault would be refused by itself now.
    pub(super) refused_now: Option<String>,
    grounds: Box<Grounds>,
}

impl Admitted {
    /// By what it is decided whether others have to approve of it, and have.
    pub(super) fn found(&self) -> Found<'_> {
        Found {
            request: &self.grounds.request,
            fault: &self.fault,
            percent: self.targets.as_ref().map(|targets| targets.share * 100.0),
            digest: &self.digest,
            description: &self.plan.description,
        }
    }
}

/// Why a fault was not started.
pub(super) struct Failed {
    pub(super) error: ApiError,
    /// What is left of it on this node, and the journal to go on undoing it by.
    pub(super) left: Option<(Entry, Vec<String>)>,
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self { error, left: None }
    }
}

/// Starts a fault that was asked for in this epoch, unless who has asked takes it back before it is in the journal; who does so later
/// has it ended. When this returns an error, nothing of it is on the node, or the error says what is.
pub(super) async fn inject(
    injector: &Rc<Injector>,
    name: &QualifiedName,
    (request, planned): (&FaultRequest, Option<&str>),
    who: &Arc<Who>,
    ((intent, of_run), epoch, ticket): ((Intent, Option<OfRun>), u64, &mut Ticket),
) -> Result<FaultStatus, ApiError> {
    let caller = who.caller;
    let undecided = injector.undecided(name);
    let found = tokio::select! {
        biased;
        () = ticket.cancelled() => return Err(cancelled()),
        found = survey_for(injector, name, request, (who, intent), Standing::New) => found,
    };
    // No await from here until the name is taken: of two injections under one name, one finds it taken.
    let ended = match (injector.epoch() == epoch, undecided.is_removed()) {
        (true, false) => None,
        (true, true) => Some("it was removed"),
        (false, _) => Some("every fault was ended"),
    };
    if let Some(ended) = ended {
        let text = format!("inject {}: {ended} after it was asked for", name.shown_to(caller));
        return Err(ApiError::new(ErrorCode::Unavailable, text).hint("ask for it again"));
    }
    drop(undecided);
    let (surveyed, freshness) = found?;
    let mut admitted = decide(injector, request, surveyed, freshness)?;
    digest::require(planned, &admitted.digest)?;
    let leave = decide::admit(injector, (name, who), &admitted.found(), (intent, of_run))?;
    admitted.grounds.approved = leave.as_ref().map(|leave| leave.by.clone());
    let (line, orders) = line();
    injector.active.borrow_mut().insert(name.clone(), entry(&admitted, line.clone()));
    if intent == Intent::Single {
        injector.pace.begin(name.owner, Instant::now());
    }
    let planned = (admitted.plan.description.as_str(), admitted.digest.as_str());
    let recorded = match Begun::write(injector, name, (planned, leave.as_ref()), (who, intent)).await {
        Ok(recorded) => recorded,
        Err(error) => {
            decide::give_back(injector, who, leave.as_ref().filter(|_| intent == Intent::Single));
            injector.take_out(name);
            return Err(error);
        }
    };
    let follows = admitted.fault.on_target_gone == OnTargetGone::Follow && admitted.fault.effect.is_pinned();
    // What others have approved of was the target that was there.
    let follows = (follows && leave.is_none()).then(|| Box::new(request.clone()));
    let mut started = start(injector, name, admitted, Some(&ticket.wanted()), None).await;
    recorded.ended(injector, started.as_mut().err().map(|failed| &mut failed.error));
    injector.restock();
    match started {
        Ok(applied) => {
            let status = injector.status_of(name);
            let who = Arc::clone(who);
            let life = Life { injector: Rc::clone(injector), name: name.clone(), who, follows, applied };
            tokio::task::spawn_local(life.live(orders));
            tokio::task::spawn_local(taken_back::end_if(ticket.wanted(), line));
            status.ok_or_else(|| {
                let text = format!("fault {} has gone already", name.shown_to(caller));
                ApiError::new(ErrorCode::Unavailable, text)
            })
        }
        Err(Failed { error, left: None }) => {
            injector.take_out(name);
            Err(error)
        }
        Err(Failed { error, left: Some((journal, residue)) }) => {
            let injector = Rc::clone(injector);
            tokio::task::spawn_local(life::retry(injector, name.clone(), journal, orders, residue));
            Err(error)
        }
    }
}

/// Looks whether the target of a fault that is waiting for it is there, and decides anew.
///
/// # Errors
/// As an injection; [`ErrorCode::TargetNotFound`] while it is not there.
pub(super) async fn look_again(
    injector: &Injector,
    name: &QualifiedName,
    request: &FaultRequest,
    who: &Arc<Who>,
) -> Result<(Surveyed, Freshness), ApiError> {
    let grounds = |active: &Active| active.grounds.as_ref().map(|grounds| grounds.intent);
    let intent = injector.active.borrow().get(name).and_then(grounds).unwrap_or(Intent::Run);
    survey_for(injector, name, request, (who, intent.going_on()), Standing::Waiting).await
}

/// Applies a fault to the target for which it has waited, until `end_ns`.
pub(super) async fn apply_again(
    injector: &Rc<Injector>,
    name: &QualifiedName,
    request: &FaultRequest,
    (surveyed, freshness): (Surveyed, Freshness),
    end_ns: u64,
) -> Result<Applied, Failed> {
    let admitted = decide(injector, request, surveyed, freshness)?;
    injector.update(name, |active| active.become_anew(entry(&admitted, active.line.clone())));
    let applied = start(injector, name, admitted, None, Some(end_ns)).await;
    injector.restock();
    if matches!(applied, Err(Failed { left: None, .. })) {
        injector.release(name);
    }
    applied
}

/// Who has asked is gone, or wants it no more.
pub(super) fn cancelled() -> ApiError {
    ApiError::new(ErrorCode::Unavailable, "who has asked for it has taken it back; nothing was changed")
}

/// Whether what was found is to be relied upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// No fault has given back what it had set since it was looked; or nothing will be done by it.
    Fresh,
    /// One has, so that an old value may be what that one had set.
    Stale,
}

/// What an injection finds on this node, looked at again where one of our own faults has given something back meanwhile. No await may
/// come between this and what is decided by it.
async fn survey_for(
    injector: &Injector,
    name: &QualifiedName,
    request: &FaultRequest,
    (who, intent): (&Arc<Who>, Intent),
    standing: Standing,
) -> Result<(Surveyed, Freshness), ApiError> {
    let caller = who.caller;
    let asked = ask(injector, name, request, (who, Purpose::Injection, intent), standing).await?;
    let turn = match standing {
        Standing::New => survey::turn(caller, Purpose::Injection).await?,
        Standing::Waiting => survey::turn_of_fault(caller).await?,
    };
    let look = async |asked: Asked| {
        let (site, before) = (Arc::clone(&injector.site), injector.given_back());
        let surveyed = match standing {
            Standing::New => turn.run_soon(move || survey::look(&site, asked)).await?,
            Standing::Waiting => turn.run(move || survey::look(&site, asked)).await?,
        };
        let freshness = if injector.given_back() == before { Freshness::Fresh } else { Freshness::Stale };
        Ok::<_, ApiError>((surveyed, freshness))
    };
    let mut found = look(asked).await?;
    for _ in 1..MOST_SURVEYS {
        match found {
            (_, Freshness::Fresh) => break,
            (surveyed, Freshness::Stale) => found = look(surveyed.asked).await?,
        }
    }
    Ok(found)
}

/// What can be said of a fault at once, and what is to be looked at then: parse it, ask the policy, find the name free.
pub(super) async fn ask(
    injector: &Injector,
    name: &QualifiedName,
    request: &FaultRequest,
    (who, purpose, intent): (&Arc<Who>, Purpose, Intent),
    standing: Standing,
) -> Result<Asked, ApiError> {
    // The proof that this process may change the node at all.
    let _: crate::host::Privileges = injector.privileges;
    let fault = request.parse().map_err(|error| aimless(request, error))?;
    let policies = injector.policies();
    injector.policy().spare_production_in(request)?;
    let permit = permit(injector, name, &fault, (who, intent), standing)?;
    let named = match &request.target.host {
        Some(host) => names::lookup(host, injector.resolver(), who.caller, purpose).await?,
        None => Vec::new(),
    };
    let ways_in = injector.ways_in.borrow().clone();
    let (name, request, who) = (name.clone(), request.clone(), Arc::clone(who));
    Ok(Asked { name, fault, request, named, permit, policies, who, intent, ways_in, standing })
}

/// Why a request makes no sense, and what to do where it has no target at all.
fn aimless(request: &FaultRequest, error: SpecError) -> ApiError {
    let error = ApiError::from(error);
    match request.target == TargetRequest::default() {
        true => error.hint(
            "register the fault again, with a target: nothing is injected anywhere unless the policy has a `default_target`",
        ),
        false => error,
    }
}

/// The leave to start a fault under this name beside those that are active.
fn permit(
    injector: &Injector,
    name: &QualifiedName,
    fault: &Fault,
    (who, intent): (&Who, Intent),
    standing: Standing,
) -> Result<Permit, ApiError> {
    let (caller, owner) = (who.caller, name.owner);
    injector.policy().admit_to(who, owner)?;
    let taken = {
        let active = injector.active.borrow();
        let others = active.keys().filter(|other| standing == Standing::New || *other != name);
        Taken::of(others.map(|other| other.owner), owner)
    };
    let recent = injector.pace.recent(owner, (taken.own, taken.all), Instant::now());
    let asked = policy::Asked { who, fault, active: taken.all, recent, intent, now: Timestamp::now() };
    let permit = injector.policy().permit(&asked)?;
    if standing == Standing::New
        && let Some(status) = injector.status_of(name)
    {
        return Err(active_already(&name.shown_to(caller), status.remaining));
    }
    taken.refuse(owner, injector.policy().max_active)?;
    down::refuse_in_the_way(injector, fault.fault_type, caller)?;
    Ok(permit)
}

/// Decides by what was found and by what is active now. Nothing is looked at here, and nothing waited for.
pub(super) fn decide(
    injector: &Injector,
    request: &FaultRequest,
    surveyed: Surveyed,
    freshness: Freshness,
) -> Result<Admitted, ApiError> {
    let identity = surveyed.identity();
    let Surveyed { asked, ways_in, target: spot, ready, entrance, guard, spared } = surveyed;
    let Ready { plan, targets, doomed, netns } = ready;
    let Asked { name, fault, named, permit: leave, policies, who, intent, standing, .. } = asked;
    let caller = who.caller;
    *injector.guard.borrow_mut() = guard.clone();
    if let Some(ports) = ways_in {
        *injector.ways_in.borrow_mut() = ports;
    }
    if policies != injector.policies() {
        let text = format!("inject {name}: the policy was read again meanwhile");
        return Err(ApiError::new(ErrorCode::Unavailable, text).hint("ask again"));
    }
    // Again: others were injected meanwhile.
    permit(injector, &name, &fault, (&who, intent), standing)?;
    let id = rand::random::<u32>() & !1;
    let place = spot.as_ref().map(|spot| place(injector, spot, id, &leave)).transpose()?;
    let mut plan = plan.at(place.as_ref())?;
    if request.target.interface.is_none() && place.is_some() {
        plan.description.push_str(by_route::WORDS);
    }
    let names = names_of(&plan, spot.as_ref(), targets.as_ref());
    injector.policy().spare_production(names.iter().map(String::as_str))?;
    let by = Arc::clone(&who);
    let grounds =
        Grounds { request: request.clone(), fault: fault.clone(), who: by, intent, names, approved: None };
    refuse_overlap(injector, &plan, caller)?;
    refuse_unchanged(&plan)?;
    if plan.lifetime == LifetimeClass::Supervised {
        injector.site.guard.require(&guard)?;
    }
    let place = place.map(|place| (place.netns.id, place.target.interface.index, place.level));
    let shared = plan.steps.iter().any(|step| matches!(step, Step::Setting(_) | Step::Stub { .. }));
    if shared && freshness == Freshness::Stale {
        return Err(unsteady(&name.shown_to(caller)));
    }
    let names = request.target.host.as_deref();
    let every = request.target.resolve_every();
    let names = names.and_then(|host| Names::new(host, every, &named, injector.resolver().clone()));
    let warning = spot.as_ref().and_then(Spot::warning);
    let target = spot.map(|spot| spot.target);
    let doom = doomed.as_deref().map(Doom::of);
    Ok(Admitted {
        digest: digest::digest(request, identity, targets.as_ref()),
        fault,
        plan,
        id,
        place,
        target,
        netns,
        targets,
        names,
        doom,
        refused_now: leave.refused_now.clone(),
        grounds: Box::new(grounds),
        permit: leave,
        entrance,
        spared,
        who,
        warning,
        guard,
    })
}

/// The names of what was found for a fault, by which production is known.
fn names_of(plan: &Plan, spot: Option<&Spot>, targets: Option<&TargetsReport>) -> Vec<String> {
    let of_packets = spot.and_then(|spot| spot.target.service.as_ref()).map(|service| &service.cgroup);
    let groups =
        plan.work.group().into_iter().chain(of_packets).map(|group| group.path.display().to_string());
    let units = plan.work.units().map(str::to_owned);
    let hit = targets.into_iter().flat_map(|targets| targets.groups.iter().cloned());
    let device = spot.map(|spot| spot.target.interface.name.clone());
    groups.chain(units).chain(hit).chain(device).collect()
}

fn place<'a>(
    injector: &Injector,
    spot: &'a Spot,
    id: u32,
    permit: &'a Permit,
) -> Result<Place<'a>, ApiError> {
    let Spot { target, netns, hooks } = spot;
    let level = injector.next_level(netns.id, target.interface.index);
    if level > crate::kernel::netlink::marks::HIGHEST_LEVEL {
        return Err(ApiError::new(
            ErrorCode::LimitReached,
            format!("too many faults, one after the other, on {}", target.interface.name),
        )
        .hint("end every fault on this device once, then go on"));
    }
    let (device, attach) = (target.interface.index, injector.site.attach);
    Ok(Place {
        owns_clsact: attach == Attach::Stub && (injector.brought_clsact(netns.id, device) || !hooks.clsact),
        target,
        netns: netns.clone(),
        id,
        level,
        attach,
        protected_peers: &permit.protected().cidrs,
        protected_tcp_ports: &permit.protected().tcp_ports,
    })
}

fn entry(admitted: &Admitted, line: Line) -> Active {
    Active {
        fault_type: admitted.fault.fault_type,
        lifetime: admitted.plan.lifetime,
        description: admitted.plan.description.clone(),
        state: FaultState::Starting,
        started: Instant::now(),
        duration: admitted.fault.duration,
        evidence: Evidence::default(),
        note: None,
        warning: admitted.warning.clone(),
        idle: None,
        grounds: Some(admitted.grounds.clone()),
        place: admitted.place,
        settings: settings(&admitted.plan.steps),
        addresses: admitted.names.as_ref().map(Names::aimed).unwrap_or_default(),
        owns_clsact: admitted.plan.steps.iter().any(|step| matches!(step, Step::Clsact { .. })),
        line,
    }
}

/// Writes a fault down, applies it and reads it back, unless it is no longer `wanted`. It lasts until `end_ns`, or without that as long
/// as it says.
async fn start(
    injector: &Rc<Injector>,
    name: &QualifiedName,
    admitted: Admitted,
    wanted: Option<&Wanted>,
    end_ns: Option<u64>,
) -> Result<Applied, Failed> {
    let shown = name.shown_to(admitted.who.caller);
    let failed = |what: &dyn std::fmt::Display| {
        ApiError::new(ErrorCode::InjectionFailed, format!("inject {shown}: {what}"))
    };
    // A named host may get other addresses.
    let room = if admitted.names.is_some() { roomy } else { capacity };
    let programs = admitted.plan.work.programs().map(|(family, peers)| (family, room(peers)));
    let mut holder = injector.holder(programs).await.map_err(|error| failed(&error.words()))?;
    if wanted.is_some_and(Wanted::is_cancelled) {
        return Err(cancelled().into());
    }
    let mut steps = admitted.plan.steps.clone();
    steps.push(Step::Holder(holder.id));
    let fault_type = admitted.fault.fault_type;
    // From here on a crash at any point is undone by recovery.
    let mut journal = injector
        .journal
        .begin(admitted.id, name, fault_type, &steps)
        .map_err(|error| failed(&format!("write the journal: {error}")))?;
    let end_ns = end_ns.unwrap_or_else(|| {
        // A holder may have had to be waited for.
        injector.update(name, |active| active.started = Instant::now());
        let duration = u64::try_from(admitted.fault.duration.as_nanos()).unwrap_or(u64::MAX);
        boot_time_ns().saturating_add(duration)
    });
    let lease = Lease { end_ns, window: LEASE_WINDOW };
    let netns = admitted.target.as_ref().map(|target| &target.netns).or(admitted.netns.as_ref());
    wait_for_turn(injector, admitted.place).await;
    let armed = match holder.arm(&admitted.plan.work, lease, netns).await {
        Ok(Report::Armed(evidence)) => {
            journal.note(Event::Applied).map(|()| evidence).map_err(HolderFailure::Socket)
        }
        Ok(other) => Err(HolderFailure::Refused(format!("expected armed, got {other:?}"))),
        Err(error) => Err(error),
    };
    let armed = match armed {
        Ok(evidence) if admitted.fault.effect.ways_in() == WaysIn::Soon => {
            ways_in::spare_now(injector, &mut holder, &admitted.permit).await.map(|()| evidence)
        }
        armed => armed,
    };
    match armed {
        Ok(evidence) => {
            injector.update(name, |active| active.applied(evidence));
            injector.changed.notify_one();
            tracing::info!(%name, caller = %admitted.who.caller, fault = admitted.plan.description, "injected");
            let target = admitted.target.as_ref().map(|target| &target.netns);
            let idle = idle::watch(injector, name, idle::Subject::of(&admitted.plan.work, target));
            Ok(applied(admitted, holder, (journal, lease), idle))
        }
        Err(error) => {
            injector.update(name, |active| active.state = FaultState::Ending);
            holder.end().await;
            let code = match error {
                HolderFailure::Unreached(_, Unreached::Denied) => ErrorCode::TargetProtected,
                HolderFailure::Unreached(_, Unreached::Gone) => ErrorCode::TargetNotFound,
                _ => ErrorCode::InjectionFailed,
            };
            let mut error =
                ApiError { code, ..failed(&error.words()).hint("nothing of it is left on this node") };
            // What somebody else has changed meanwhile is not ours, and the error is told all the same.
            let (residue, _kept) = life::attempt(&journal).await;
            if residue.is_empty() {
                life::close(journal);
                return Err(error.into());
            }
            error.message.push_str(&format!("; {}", residue.join("; ")));
            error.hint = Some("it is being undone again and again, until nothing is left".to_owned());
            Err(Failed { error, left: Some((journal, residue)) })
        }
    }
}

/// Waits until the faults with lower levels on the same device are applied, or are not any more. Programs on a hook follow each other in
/// the order in which they are attached. Packets have to pass faults in the order of their levels.
async fn wait_for_turn(injector: &Injector, place: Option<(NetNsIdentity, u32, u8)>) {
    let Some((netns, device, level)) = place else { return };
    let is_before = |active: &Active| {
        let before = active.place.is_some_and(|(at, on, other)| (at, on) == (netns, device) && other < level);
        before && active.state == FaultState::Starting
    };
    while injector.first(is_before).is_some() {
        sleep(TURN).await;
    }
}

/// What is kept of a fault that was applied.
fn applied(
    admitted: Admitted,
    holder: Holder,
    (journal, lease): (Entry, Lease),
    _idle: idle::Watch,
) -> Applied {
    let pins = pins(&admitted);
    let Admitted { fault, plan, names, doom, .. } = admitted;
    Applied {
        holder,
        journal,
        lease,
        drain: plan.work.longest_stay(),
        aim: names.map(|names| Aim::new(names, fault.effect.fixed_peers())),
        doom: doom.map(Doom::watch),
        presence: pins.watch(),
        _idle,
    }
}

/// What a fault is pinned to.
fn pins(admitted: &Admitted) -> Pins {
    let work = &admitted.plan.work;
    let netns = match (&admitted.target, admitted.place, work.link()) {
        (Some(target), Some((id, ..)), _) => target.netns_name.clone().map(|name| (name, id)),
        (.., Some(link)) => link.netns.name.clone().map(|name| (name, link.netns.id)),
        _ => None,
    };
    let netns = netns.map(|(name, id)| (name, id, admitted.entrance.clone()));
    let device = work.device().map(|(index, name)| Device { index, name: name.to_owned(), netns });
    // Who asks may be met by what only delays it or keeps it from others.
    let spared = Some(admitted.spared.with_session());
    Pins { group: work.group().cloned(), device, spared }
}
