//! Starting a fault: parse, permit, resolve, plan, write down, apply, read back. In this order.

use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ipnet::IpNet;
use tokio::task::yield_now;

use super::holders::{Holder, HolderFailure};
use super::life::{self, Aim, Life};
use super::names::{self, Names};
use super::oom::Doom;
use super::orders::{Line, line};
use super::state::{Active, Injector, LEASE_WINDOW};
use super::together::{Seat, refuse_beside};
use super::{affected, down, ground, reach, supervisors, ways_in};
use crate::fault::{self, Attach, Ground, Place, Plan, Work};
use crate::holder::arm::{capacity, roomy};
use crate::holder::{Lease, Report};
use crate::host::{NetNs, boot_time_ns};
use crate::journal::{Entry, Event};
use crate::kernel::bpf::{Capacity, Family, MOST_NAMED};
use crate::kernel::setting::{CgroupSetting, Setting};
use crate::kernel::step::{NetNsRef, Step, has_clsact};
use crate::policy::Permit;
use crate::request::targets::UNKNOWN_TARGETS;
use crate::request::{
    ApiError, Caller, ErrorCode, Evidence, FaultState, FaultStatus, LifetimeClass, PlanReport, Planned,
    TargetsReport,
};
use crate::spec::fault::{Effect, WaysIn};
use crate::spec::{ConnectionLoad, Fault, FaultName, FaultRequest};
use crate::target::supervisor::Supervision;
use crate::target::{self, NetworkTarget};

/// Everything that is decided before anything is changed.
struct Admitted {
    fault: Fault,
    plan: Plan,
    target: Option<NetworkTarget>,
    /// The network namespace that the holder enters, of a fault without an interface.
    netns: Option<NetNs>,
    id: u32,
    place: Option<(crate::host::NetNsIdentity, u32, u8)>,
    /// Those that were chosen, of a fault that goes to processes.
    targets: Option<TargetsReport>,
    /// The host that the target names, and what it stands for.
    names: Option<Names>,
    /// Whom the kernel is to kill.
    doom: Option<Doom>,
    permit: Permit,
}

/// Why a fault was not started.
struct Failed {
    error: ApiError,
    /// What is left of it on this node, and the journal to go on undoing it by.
    left: Option<(Entry, Vec<String>)>,
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self { error, left: None }
    }
}

/// What an injection would do; refused where the injection would be.
pub(super) async fn plan(
    injector: &Injector,
    name: &FaultName,
    request: &FaultRequest,
    caller: Caller,
) -> Result<PlanReport, ApiError> {
    let named = named_peers(request).await?;
    let admitted = admit(injector, name, request, &named, caller)?;
    Ok(told(report(injector, &admitted), &admitted).await)
}

/// What injecting each of these would do, at a time when those that it names are active beside it.
pub(super) async fn plan_all(
    injector: &Injector,
    faults: &[Planned],
    caller: Caller,
) -> Vec<Result<PlanReport, ApiError>> {
    let mut plans = Vec::new();
    let named = join_all(faults.iter().map(|fault| named_peers(&fault.fault))).await;
    for (fault, named) in faults.iter().zip(named) {
        // Heartbeats, and whoever wants a fault to end, come between two of them.
        yield_now().await;
        plans.push(named.and_then(|named| admit(injector, &fault.name, &fault.fault, &named, caller)));
    }
    let seat = |number: usize| {
        let (planned, admitted) = (faults.get(number)?, plans.get(number)?.as_ref().ok()?);
        Some(Seat {
            name: &planned.name,
            fault: &admitted.fault,
            lifetime: admitted.plan.lifetime,
            settings: settings(&admitted.plan.steps),
        })
    };
    let active = injector.active.borrow().len();
    let numbers = faults.iter().zip(&plans).enumerate();
    let reports = numbers.map(|(number, (planned, admitted))| {
        let admitted = admitted.as_ref().map_err(Clone::clone)?;
        let beside: Vec<_> = planned.beside.iter().filter_map(|other| seat(*other)).collect();
        if let Some(new) = seat(number) {
            refuse_beside(&injector.policy, caller, active, &new, &beside.iter().collect::<Vec<_>>())?;
        }
        Ok(report(injector, admitted))
    });
    let reports: Vec<Result<PlanReport, ApiError>> = reports.collect();
    let mut all = Vec::new();
    for (report, admitted) in reports.into_iter().zip(&plans) {
        all.push(match (report, admitted) {
            (Ok(report), Ok(admitted)) => Ok(told(report, admitted).await),
            (refused, _) => refused,
        });
    }
    all
}

/// The same with who would be hit, and who would start anew what it kills.
async fn told(report: PlanReport, admitted: &Admitted) -> PlanReport {
    let Admitted { plan, target, targets, .. } = admitted;
    let Supervision { lines, warning } = supervisors::look(&plan.work).await;
    let mut warnings: Vec<_> = warning.into_iter().collect();
    let targets = match targets {
        Some(chosen) => Some(chosen.clone()),
        None => affected::look(&plan.work, target.as_ref()).await.unwrap_or_else(|error| {
            warnings.push(format!("{UNKNOWN_TARGETS}: {error}"));
            None
        }),
    };
    PlanReport { targets, restarts: lines, warnings, ..report }
}

fn report(injector: &Injector, admitted: &Admitted) -> PlanReport {
    let holder = "start a holder process, which owns the fault; undo: end it".to_owned();
    let steps = admitted.plan.steps.iter().map(Step::words);
    let lasting = admitted.plan.lifetime;
    let work = admitted.plan.work.words().into_iter().map(|words| match lasting {
        LifetimeClass::Irreversible => format!("{words}; undo: none"),
        _ => format!("{words}; undo: goes with the holder"),
    });
    PlanReport {
        description: admitted.plan.description.clone(),
        lifetime: admitted.plan.lifetime,
        guard: injector.guard.words(admitted.plan.lifetime),
        duration: admitted.fault.duration,
        targets: None,
        restarts: Vec::new(),
        warnings: Vec::new(),
        steps: std::iter::once(holder).chain(steps).chain(work).collect(),
    }
}

/// Starts a fault that was asked for in this epoch. When this returns an error, nothing of it is on the node, or the error says
/// what is.
pub(super) async fn inject(
    injector: &Rc<Injector>,
    name: &FaultName,
    request: &FaultRequest,
    caller: Caller,
    epoch: u64,
) -> Result<FaultStatus, ApiError> {
    let named = named_peers(request).await?;
    if injector.epoch() != epoch {
        let text = format!("inject {name}: every fault was ended after it was asked for");
        return Err(ApiError::new(ErrorCode::Unavailable, text).hint("ask for it again"));
    }
    // No await from here until the name is taken: of two injections under one name, one finds it taken.
    let admitted = admit(injector, name, request, &named, caller)?;
    let (line, orders) = line();
    injector.active.borrow_mut().insert(name.clone(), entry(&admitted, line));
    let started = start(injector, name, &admitted).await;
    injector.restock();
    match started {
        Ok((holder, journal, lease, evidence)) => {
            injector.update(name, |active| active.applied(evidence));
            injector.changed.notify_one();
            tracing::info!(%name, ?caller, fault = admitted.plan.description, "injected");
            let status = injector.status_of(name);
            let drain = admitted.plan.work.longest_stay();
            let aim = admitted.names.clone().map(|names| Aim::new(names, fixed_peers(&admitted.fault)));
            let injector = Rc::clone(injector);
            let doom = admitted.doom.clone();
            let life = Life { injector, name: name.clone(), holder, journal, lease, drain, aim, doom };
            tokio::task::spawn_local(life.live(orders));
            status.ok_or_else(|| {
                ApiError::new(ErrorCode::Unavailable, format!("fault {name} has gone already"))
            })
        }
        Err(Failed { error, left: None }) => {
            injector.active.borrow_mut().remove(name);
            injector.changed.notify_one();
            Err(error)
        }
        Err(Failed { error, left: Some((journal, residue)) }) => {
            let injector = Rc::clone(injector);
            tokio::task::spawn_local(life::retry(injector, name.clone(), journal, orders, residue));
            Err(error)
        }
    }
}

/// The addresses of the host that the target names. Asked for beside the event loop: name servers may take longer
/// than a lease lasts.
async fn named_peers(request: &FaultRequest) -> Result<Vec<IpNet>, ApiError> {
    let Some(host) = request.target.host.clone() else { return Ok(Vec::new()) };
    let mut found = names::lookup(host).await?;
    found.truncate(MOST_NAMED as usize);
    Ok(found)
}

fn admit(
    injector: &Injector,
    name: &FaultName,
    request: &FaultRequest,
    named: &[IpNet],
    caller: Caller,
) -> Result<Admitted, ApiError> {
    // The proof that this process may change the node at all.
    let _: crate::host::Privileges = injector.privileges;
    let fault = request.parse()?;
    let permit = injector.policy.permit(caller, &fault, injector.active.borrow().len())?;
    if let Some(status) = injector.status_of(name) {
        return Err(active_already(name, status.remaining));
    }
    // Before anything is looked at, which may be missing for the same reason.
    fault::require(&fault.effect, &injector.facts)?;
    let permit = ways_in::sparing(injector, permit, fault.effect.ways_in())?;
    let id = rand::random::<u32>() & !1;
    let target =
        fault.effect.traffic().map(|traffic| target::resolve(traffic, named, &injector.home)).transpose()?;
    let place = target.as_ref().map(|target| place(injector, target, id, &permit)).transpose()?;
    let netns = match &fault.effect {
        Effect::Hoard { netns: Some(name), .. } => Some(target::resolve_netns(name)?),
        Effect::Load(ConnectionLoad { netns: Some(name), .. }) => Some(reach::netns(name, caller)?),
        _ => None,
    };
    down::refuse_in_the_way(injector, &fault.effect)?;
    let ground = match &fault.effect {
        Effect::Down(down) => Some(down::look(injector, name, *down)?),
        effect => {
            let Injector { home, runtime_dir, .. } = injector;
            ground::look(effect, named, &permit, home, runtime_dir, caller)?
        }
    };
    let targets = match (&ground, fault.effect.processes()) {
        (Some(Ground::Crowd(crowd)), Some(selector)) => Some(crowd.selection.report(selector.seed)),
        _ => None,
    };
    let plan = fault::plan(&fault.effect, place.as_ref(), ground.as_ref(), &injector.facts)?;
    refuse_overlap(injector, &plan)?;
    refuse_unchanged(&plan)?;
    if plan.lifetime == LifetimeClass::Supervised {
        injector.guard.require()?;
    }
    let place = place.map(|place| (place.netns.id, place.target.interface.index, place.level));
    let names = request.target.host.as_deref();
    let names = names.and_then(|host| Names::new(host, request.target.resolve_every(), named));
    let doom = Doom::of(ground.as_ref());
    Ok(Admitted { fault, plan, id, place, target, netns, targets, names, doom, permit })
}

/// Of two faults that change one setting, the second would take the first's value for the node's own.
fn refuse_overlap(injector: &Injector, plan: &Plan) -> Result<(), ApiError> {
    for place in settings(&plan.steps) {
        if let Some(other) = injector.changer_of(&place) {
            return Err(changed_already(&other, &place));
        }
    }
    Ok(())
}

/// A limit that is there already, by somebody else, would be taken for ours, and have no effect.
fn refuse_unchanged(plan: &Plan) -> Result<(), ApiError> {
    for step in &plan.steps {
        if let Step::Setting(setting @ Setting::Cgroup(CgroupSetting { old, new, .. })) = step
            && old == new
        {
            let text = format!("{} is {old:?} already, so the fault would change nothing", setting.place());
            return Err(ApiError::new(ErrorCode::InvalidParameter, text).hint("ask for a lower limit"));
        }
    }
    Ok(())
}

pub(super) fn changed_already(other: &FaultName, place: &str) -> ApiError {
    let text = format!("fault {other} has changed {place} already, and one at a time can");
    ApiError::new(ErrorCode::LimitReached, text).hint("remove it first, or wait until it ends")
}

pub(super) fn active_already(name: &FaultName, remaining: Duration) -> ApiError {
    let text = format!("fault {name} is already active, for another {:.1} s", remaining.as_secs_f64());
    ApiError::new(ErrorCode::FaultActive, text).hint("remove it first, or inject under another name")
}

/// The places of the settings among these steps.
pub(super) fn settings(steps: &[Step]) -> Vec<String> {
    let place = |step: &Step| match step {
        Step::Setting(setting) => Some(setting.place()),
        _ => None,
    };
    steps.iter().filter_map(place).collect()
}

fn place<'a>(
    injector: &Injector,
    target: &'a NetworkTarget,
    id: u32,
    permit: &'a Permit,
) -> Result<Place<'a>, ApiError> {
    let netns = NetNsRef::new(target.netns_name.clone(), &target.netns).map_err(|error| {
        ApiError::new(
            ErrorCode::TargetNotFound,
            format!("target.netns: identify the network namespace: {error}"),
        )
    })?;
    let level = injector.next_level(netns.id, target.interface.index);
    if level > crate::kernel::netlink::marks::HIGHEST_LEVEL {
        return Err(ApiError::new(
            ErrorCode::LimitReached,
            format!("too many faults, one after the other, on {}", target.interface.name),
        )
        .hint("end every fault on this device once, then go on"));
    }
    let (device, attach) = (target.interface.index, injector.attach);
    let owns_clsact = attach == Attach::Stub
        && (injector.brought_clsact(netns.id, device)
            || !has_clsact(&netns, device).map_err(|error| {
                ApiError::new(
                    ErrorCode::InjectionFailed,
                    format!("look for a clsact qdisc on device {device}: {error}"),
                )
            })?);
    Ok(Place {
        owns_clsact,
        target,
        netns,
        id,
        level,
        attach,
        protected_peers: &permit.protected().cidrs,
        protected_tcp_ports: &permit.protected().tcp_ports,
    })
}

fn entry(admitted: &Admitted, line: Line) -> Active {
    Active {
        fault_type: admitted.fault.effect.fault_type(),
        lifetime: admitted.plan.lifetime,
        description: admitted.plan.description.clone(),
        state: FaultState::Starting,
        started: Instant::now(),
        duration: admitted.fault.duration,
        evidence: Evidence::default(),
        note: None,
        place: admitted.place,
        settings: settings(&admitted.plan.steps),
        addresses: admitted.names.as_ref().map(Names::aimed).unwrap_or_default(),
        owns_clsact: admitted.plan.steps.iter().any(|step| matches!(step, Step::Clsact { .. })),
        line,
    }
}

async fn start(
    injector: &Injector,
    name: &FaultName,
    admitted: &Admitted,
) -> Result<(Holder, Entry, Lease, Evidence), Failed> {
    let failed = |what: &dyn std::fmt::Display| {
        ApiError::new(ErrorCode::InjectionFailed, format!("inject {name}: {what}"))
    };
    let mut holder = injector
        .holder(room(&admitted.plan.work, admitted.names.is_some()))
        .await
        .map_err(|error| failed(&words(&error)))?;
    let mut steps = admitted.plan.steps.clone();
    steps.push(Step::Holder(holder.id));
    let fault_type = admitted.fault.effect.fault_type();
    // From here on a crash at any point is undone by recovery.
    let mut journal = injector
        .journal
        .begin(admitted.id, name, fault_type, &steps)
        .map_err(|error| failed(&format!("write the journal: {error}")))?;
    let duration = u64::try_from(admitted.fault.duration.as_nanos()).unwrap_or(u64::MAX);
    let lease = Lease { end_ns: boot_time_ns().saturating_add(duration), window: LEASE_WINDOW };
    // A holder may have had to be waited for.
    injector.update(name, |active| active.started = Instant::now());
    let netns = admitted.target.as_ref().map(|target| &target.netns).or(admitted.netns.as_ref());
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
        Ok(evidence) => Ok((holder, journal, lease, evidence)),
        Err(error) => {
            injector.update(name, |active| active.state = FaultState::Ending);
            holder.end().await;
            let mut error = failed(&words(&error)).hint("nothing of it is left on this node");
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

/// The peers that a fault names by their addresses.
fn fixed_peers(fault: &Fault) -> Vec<IpNet> {
    match &fault.effect {
        Effect::Connect { calls, .. } => calls.peers.clone(),
        Effect::Sever { packets, .. } => packets.peers.clone(),
        effect => effect.traffic().map_or_else(Vec::new, |traffic| traffic.peers.clone()),
    }
}

/// The programs that `work` needs, and room for its peers, of which a `named` host may get others; `None` when it needs none.
fn room(work: &Work, named: bool) -> Option<(Family, Capacity)> {
    let room = |peers: &[IpNet]| if named { roomy(peers) } else { capacity(peers) };
    match work {
        Work::Packets(work) => Some((work.action.family(), room(&work.packets.peers))),
        Work::Loop(work) => Some((work.family(), room(&work.packets.peers))),
        Work::Calls(work) => Some((Family::Calls, room(&work.callers.peers))),
        Work::Sever(work) => Some((Family::Severance, room(&work.callers.peers))),
        Work::Files(work) => Some((Family::Files(work.kernel), capacity(&[]))),
        Work::Sockets(work) => Some((Family::Sockets(work.kernel), capacity(&[]))),
        Work::Cpu(_)
        | Work::Hoard(_)
        | Work::Settings(_)
        | Work::Flap(_)
        | Work::Signals(_)
        | Work::Pause(_)
        | Work::Spoil(_)
        | Work::Restart(_)
        | Work::Down(_) => None,
    }
}

fn words(error: &HolderFailure) -> String {
    match error {
        HolderFailure::Start(source) | HolderFailure::Socket(source) => format!("{error}: {source}"),
        HolderFailure::Silent | HolderFailure::Refused(_) => error.to_string(),
    }
}
