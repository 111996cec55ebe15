//! What an injection, or a dry run, finds on this node before anything is decided. It is looked at beside the loop, by values alone:
//! the policy's leave is given, and what other faults do meanwhile is for who decides. Looking may take long, also for ever: a lock
//! of the kernel that somebody holds, a file system or a service manager that does not answer, an expression and many processes.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::aside::{Places, Purpose, Turn};
use super::site::Site;
use super::state::Standing;
use super::watch::Sight;
use super::{by_route, supervisors, ways_in};
use crate::fault::{self, Attach, Eyes, Ready, Work, affected};
use crate::host::{NetNsIdentity, Spared};
use crate::kernel::netlink::marks::recognise_device;
use crate::kernel::step::{FilterHooks, NetNsRef, filter_hooks};
use crate::policy::{Intent, Permit, Who};
use crate::request::targets::UNKNOWN_TARGETS;
use crate::request::{ApiError, Caller, ErrorCode, PlanReport, TargetsReport};
use crate::spec::{Direction, Fault, FaultRequest, QualifiedName};
use crate::target::supervisor::Supervision;
use crate::target::{self, Entrance, NetworkTarget};

/// How much of a processor one survey may take.
const LONGEST: Duration = Duration::from_secs(2);

/// So many at a time, one of a user, and the last place for who injects.
static PLACES: Places = Places::new(4, 1, Some(LONGEST), "surveys of this host").keeping(1);
/// Beside them for faults that wait for their targets: they keep nobody from injecting.
static PLACES_OF_FAULTS: Places =
    Places::new(4, 1, Some(LONGEST), "surveys for faults that wait for their targets");

/// What is to be looked at.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) name: QualifiedName,
    pub(super) fault: Fault,
    /// As the caller wrote it.
    pub(super) request: FaultRequest,
    /// The addresses of the host that the target names.
    pub(super) named: Vec<IpNet>,
    pub(super) permit: Permit,
    /// Under which policy it was given.
    pub(super) policies: u64,
    pub(super) who: Arc<Who>,
    pub(super) intent: Intent,
    /// The ports at which sshd was when it was last looked.
    pub(super) ways_in: Vec<u16>,
    pub(super) standing: Standing,
}

/// What there is.
#[derive(Debug)]
pub(super) struct Surveyed {
    pub(super) asked: Asked,
    /// The ports at which sshd is, if they were looked at.
    pub(super) ways_in: Option<Vec<u16>>,
    pub(super) target: Option<Spot>,
    pub(super) ready: Ready,
    /// As whom namespaces that the caller names are opened.
    pub(super) entrance: Entrance,
    pub(super) guard: Sight,
    /// Whom the fault has to spare.
    pub(super) spared: Spared,
}

impl Surveyed {
    /// What tells the target that was found from every other: the network namespace and the device, and the control group.
    pub(super) fn identity(&self) -> (Option<(NetNsIdentity, u32)>, Option<u64>) {
        let device = self.target.as_ref().map(|spot| (spot.netns.id, spot.target.interface.index));
        let of_packets = self.target.as_ref().and_then(|spot| spot.target.service.as_ref());
        let group = of_packets.map(|service| service.cgroup.id);
        (device, group.or_else(|| self.ready.group()))
    }
}

/// The device of a network fault.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) target: NetworkTarget,
    pub(super) netns: NetNsRef,
    /// What is at its filter hooks, whoever brought it; not asked where none is needed.
    pub(super) hooks: FilterHooks,
}

/// Waits for a turn to look at this node.
///
/// # Errors
/// When it does not come.
pub(super) async fn turn(caller: Caller, purpose: Purpose) -> Result<Turn, ApiError> {
    PLACES.turn(caller.into(), purpose).await
}

/// Waits for a turn to look for the target of a fault that waits for it.
///
/// # Errors
/// When it does not come.
pub(super) async fn turn_of_fault(caller: Caller) -> Result<Turn, ApiError> {
    PLACES_OF_FAULTS.turn(caller.into(), Purpose::Look).await
}

/// Looks at all that is `asked` for. Blocks.
///
/// # Errors
/// Names what cannot be a target, or is missing, and why.
pub(super) fn look(site: &Arc<Site>, asked: Asked) -> Result<Surveyed, ApiError> {
    let Asked { name, fault, request, named, permit, policies, who, intent, ways_in, standing } = asked;
    let caller = who.caller;
    // Before anything is looked at, which may be missing for the same reason.
    fault::require(&fault, &site.facts)?;
    let (permit, ways_in_now) = ways_in::sparing(permit, fault.effect.ways_in(), &ways_in)?;
    let entrance = Entrance::new(caller, permit.fault_netns());
    let spared = fault::spared(caller, permit.open());
    // What is only delayed or lost to others may be the caller's own.
    let of_packets = spared.with_session();
    let found = by_route::on_its_way(&fault, &request, &named, (&site.home, &entrance, &of_packets))?;
    let fault = found.unwrap_or(fault);
    let target = fault.effect.traffic();
    let target = target.map(|traffic| target::resolve(traffic, &named, &site.home, &entrance, &of_packets));
    let target = target.transpose()?;
    if let Some(target) = &target {
        fault::refuse_cut(&fault.effect, target, &permit, &site.home)?;
    }
    let directions = fault.effect.traffic().map(|traffic| traffic.directions.clone()).unwrap_or_default();
    let target = target.map(|target| spot(target, site.attach, &directions)).transpose()?;
    let eyes = Eyes {
        name: &name,
        named: &named,
        permit: &permit,
        caller,
        spared: &spared,
        entrance: &entrance,
        home: &site.home,
        runtime_dir: &site.runtime_dir,
        down_record: &site.down_record,
        facts: &site.facts,
    };
    let ready = fault::prepare(&fault, &eyes)?;
    let guard = site.guard.watchful();
    let asked = Asked { name, fault, request, named, permit, policies, who, intent, ways_in, standing };
    Ok(Surveyed { asked, ways_in: ways_in_now, target, ready, entrance, guard, spared })
}

fn spot(target: NetworkTarget, attach: Attach, directions: &[Direction]) -> Result<Spot, ApiError> {
    let name = &target.interface.name;
    // A fault there would cut what a delay promises to bring back.
    if recognise_device(name).is_some() {
        let text = format!("target.interface: {name} is a device that a fault of chaos-daemon has made");
        return Err(ApiError::new(ErrorCode::InvalidParameter, text)
            .hint("name the device that the fault is on: faults on one device add up"));
    }
    let netns = NetNsRef::new(target.netns_name.clone(), &target.netns).map_err(|error| {
        ApiError::new(
            ErrorCode::TargetNotFound,
            format!("target.netns: identify the network namespace: {error}"),
        )
    })?;
    let device = target.interface.index;
    let hooks = match attach {
        Attach::Tcx => FilterHooks::default(),
        Attach::Stub => filter_hooks(&netns, device, directions).map_err(|error| {
            let text = format!("look for a clsact qdisc on device {device}: {error}");
            ApiError::new(ErrorCode::InjectionFailed, text)
        })?,
    };
    Ok(Spot { target, netns, hooks })
}

impl Spot {
    /// That programs of others run before the fault, if there are some.
    pub(super) fn warning(&self) -> Option<String> {
        let Self { target, hooks: FilterHooks { ahead, .. }, .. } = self;
        (!ahead.is_empty()).then(|| {
            let (interface, ahead) = (&target.interface.name, ahead.join(", "));
            format!("on {interface} filters of others run before this fault, and what they decide about does not meet it: {ahead}")
        })
    }
}

/// What is told of a plan beside what it does.
#[derive(Debug)]
pub(super) struct Preview {
    pub(super) report: PlanReport,
    pub(super) work: Work,
    /// Those that were chosen, of a fault that goes to processes.
    pub(super) targets: Option<TargetsReport>,
    /// The network namespace of the device, if it was named.
    pub(super) netns: Option<NetNsIdentity>,
}

/// The report of a plan, with who would be hit, and who would start anew what it kills. Blocks.
pub(super) fn tell(preview: Preview) -> PlanReport {
    let Preview { report, work, targets, netns } = preview;
    let Supervision { lines, warning } = supervisors::look(&work);
    let mut warnings: Vec<_> =
        report.warnings.iter().cloned().chain(warning).chain(supervisors::deaf(&work)).collect();
    let targets = targets.or_else(|| {
        affected::look(&work, netns).unwrap_or_else(|error| {
            warnings.push(format!("{UNKNOWN_TARGETS}: {error}"));
            None
        })
    });
    PlanReport { targets, restarts: lines, warnings, ..report }
}
