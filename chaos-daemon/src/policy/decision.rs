//! The decision: a pure function from who asks, for what, where and when, to leave or a refusal.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

use super::environment::{Environment, FIELD, texts};
use super::experiments::admit_here;
use super::limits::Recent;
use super::refusal::{Refusal, quoted};
use super::roles::{Reach, Who, reach};
use super::{FaultTypeName, PROBE_COMMANDS, PROBE_KUBECONFIGS, PROBE_PYTHON, Permit, Policy};
use crate::request::facts::Precautions;
use crate::request::{Act, ApiError, ErrorCode};
use crate::spec::effect::Effect;
use crate::spec::units::LONGEST_FAULT;
use crate::spec::{Fault, FaultRequest, FaultType, Hoard, HostLimits, Owner, TargetRequest};

/// The rule that names types of faults.
const FAULT_TYPES: &str = "fault_types";
/// The rule that names interfaces.
const INTERFACES: &str = "interfaces";
/// The rule that bounds how long a fault lasts.
const MAX_DURATION: &str = "max_duration_seconds";
/// The rule that says what is not production's although a marker is in its name.
const NOT_PRODUCTION: &str = "not_production";

/// A fault that somebody wants.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Who.
    pub who: &'a Who,
    /// The fault.
    pub fault: &'a Fault,
    /// How many are active beside it.
    pub active: usize,
    /// What was lately.
    pub recent: Recent,
    /// For what.
    pub intent: Intent,
    /// When.
    pub now: Timestamp,
}

/// What a fault is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// To know what it would do by itself.
    Plan,
    /// To know what it would do in a run of an experiment.
    PlanOfRun,
    /// By itself.
    Single,
    /// By itself, for longer: it has begun, and the time is no longer asked for.
    SingleGoingOn,
    /// In a run of an experiment, which was admitted when it began.
    Run,
}

impl Intent {
    /// The same of a fault that has begun.
    #[must_use]
    pub fn going_on(self) -> Self {
        match self {
            Self::Single => Self::SingleGoingOn,
            other => other,
        }
    }

    fn goes_on(self) -> bool {
        self == Self::SingleGoingOn
    }

    fn act(self) -> Act {
        match self {
            Self::Plan | Self::PlanOfRun => Act::Plan,
            Self::Single | Self::SingleGoingOn => Act::Inject,
            Self::Run => Act::Run,
        }
    }
}

impl Policy {
    /// Decides whether somebody may do this on this host at all. What it is done to is another question.
    ///
    /// # Errors
    /// The rule that forbids it: of roles, or of what this host is.
    pub fn admit(&self, who: &Who, act: Act) -> Result<(), Refusal> {
        self.roles.admit(who, act)?;
        match (&self.environment, reach(act)) {
            (_, Reach::Nothing) | (None, Reach::Looks) => Ok(()),
            (Some(here), _) if here.is_production() => {
                let text = format!("this host is {}, where nobody may {act}", here.name());
                Err(Refusal::new(FIELD, text))
            }
            (None, Reach::Changes) => {
                let text = format!(
                    "it is not said what this host is, so nobody may {act}: dry runs alone are done here"
                );
                Err(Refusal::new(FIELD, text).but_for(format!("{FIELD} = \"test\"")))
            }
            (Some(_), _) => Ok(()),
        }
    }

    /// Decides whether somebody may name what is this owner's.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn admit_to(&self, who: &Who, owner: Owner) -> Result<(), Refusal> {
        self.roles.admit_to(who, owner)
    }

    /// Decides whether an approval may let a stage be run out of its order.
    ///
    /// # Errors
    /// That none may, and the line that would let it.
    pub fn admit_skipping(&self) -> Result<(), Refusal> {
        self.approval.admit_skipping()
    }

    /// Whether nobody may change anything on this host.
    pub fn forbids_all(&self) -> bool {
        self.environment.as_ref().is_none_or(Environment::is_production)
    }

    /// Why a single fault would be refused now, although it may be planned.
    fn against_single(&self, who: &Who, recent: &Recent, now: Timestamp) -> Option<Refusal> {
        let admitted = self.admit(who, Act::Inject).and_then(|()| self.admit_single(now));
        admitted.and_then(|()| self.admit_pace(who, recent)).err()
    }

    /// Decides whether a run or a single fault of somebody may begin after what was lately.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn admit_pace(&self, who: &Who, recent: &Recent) -> Result<(), Refusal> {
        self.limits.admit_pace(&self.roles.of(who), recent)
    }

    /// Decides whether a single fault may begin `now`.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn admit_single(&self, now: Timestamp) -> Result<(), Refusal> {
        if !self.single_faults.any_time {
            self.windows.admit(now).map_err(|refusal| Refusal {
                message: format!("a single fault: {}", refusal.message),
                ..refusal
            })?;
        }
        self.admit_single_without_time()
    }

    /// Decides whether a single fault may be, at whatever time it has begun.
    ///
    /// # Errors
    /// The rule that forbids it.
    fn admit_single_without_time(&self) -> Result<(), Refusal> {
        self.experiments.admit_single(&self.single_faults)
    }

    /// What is meant by a request: where it names no target and needs one, that goes to the policy's.
    pub fn aimed<'a>(&self, request: &'a FaultRequest) -> Cow<'a, FaultRequest> {
        let is_aimed = request.target != TargetRequest::default() || request.parse().is_ok();
        match &self.default_target {
            Some(target) if !is_aimed => {
                Cow::Owned(FaultRequest { target: target.clone(), ..request.clone() })
            }
            _ => Cow::Borrowed(request),
        }
    }

    /// Decides whether a fault may be started, or planned.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn permit(&self, asked: &Asked<'_>) -> Result<Permit, ApiError> {
        self.judge(asked)?;
        let Asked { who, active, recent, intent, now, .. } = asked;
        if *active >= self.max_active {
            return Err(self.full(*active));
        }
        if !intent.goes_on() {
            self.limits.admit_active(&self.roles.of(who), recent)?;
        }
        let against = (*intent == Intent::Plan).then(|| self.against_single(who, recent, *now)).flatten();
        Ok(Permit::of(self, against.map(|refusal| ApiError::from(refusal).message)))
    }

    /// Decides the same, however many are active.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn judge(&self, asked: &Asked<'_>) -> Result<(), Refusal> {
        let Asked { who, fault, recent, intent, now, .. } = asked;
        self.admit(who, intent.act())?;
        match intent {
            Intent::Single => {
                self.admit_single(*now)?;
                self.admit_pace(who, recent)?;
            }
            Intent::SingleGoingOn => self.admit_single_without_time()?,
            Intent::Plan | Intent::PlanOfRun | Intent::Run => {}
        }
        self.admit_type(fault)?;
        self.admit_place(fault)?;
        self.admit_duration(fault)?;
        self.limits.admit(&self.roles.of(who), fault)
    }

    fn full(&self, active: usize) -> ApiError {
        ApiError::new(
            ErrorCode::LimitReached,
            format!("{active} faults are active, and the policy allows {} (`max_active`)", self.max_active),
        )
        .hint("remove one first, or wait until one ends")
    }

    /// Decides whether faults of a type may be at all.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub(super) fn admit_kind(&self, fault_type: FaultType) -> Result<(), Refusal> {
        if !self.allows(fault_type) {
            return Err(self.no_type(fault_type, format!("{} is not allowed", fault_type.name())));
        }
        match self.switched_off(fault_type) {
            Some(switch) => {
                let text = format!("{switch} is off unless it is allowed");
                Err(Refusal::new(switch, text).but_for(format!("{switch} = true")))
            }
            None => Ok(()),
        }
    }

    fn admit_type(&self, fault: &Fault) -> Result<(), Refusal> {
        self.admit_kind(fault.fault_type)?;
        let kills = match &fault.effect {
            Effect::Hoard { what: Hoard::Oom { .. }, .. } => Some("oom kills"),
            Effect::Files { failure, .. } | Effect::Sockets { failure, .. } => {
                failure.signal.map(|_| "a signal may kill")
            }
            _ => None,
        };
        match kills {
            Some(how) if !self.allows(FaultType::ProcessKill) => {
                Err(self.no_type(FaultType::ProcessKill, format!("{how}, and process_kill is not allowed")))
            }
            _ => Ok(()),
        }
    }

    fn no_type(&self, fault_type: FaultType, text: String) -> Refusal {
        let allowed = self.fault_types.iter().flatten().map(|FaultTypeName(it)| quoted(it.name()));
        Refusal::new(FAULT_TYPES, text).but_for_one_more(FAULT_TYPES, allowed, quoted(fault_type.name()))
    }

    fn admit_place(&self, fault: &Fault) -> Result<(), Refusal> {
        let Some(allowed) = &self.interfaces else { return Ok(()) };
        match fault.effect.interface() {
            Some(interface) if !allowed.contains(interface) => {
                let known = allowed.iter().map(|name| quoted(name));
                Err(Refusal::new(INTERFACES, format!("interface {interface:?} is not allowed"))
                    .but_for_one_more(INTERFACES, known, quoted(interface)))
            }
            None if matches!(fault.effect, Effect::Sever { .. }) => {
                let text = "packets of a service on every interface are not allowed";
                Err(Refusal::new(INTERFACES, text).unless("name an interface that it allows"))
            }
            _ => Ok(()),
        }
    }

    fn admit_duration(&self, fault: &Fault) -> Result<(), Refusal> {
        let longest = Duration::from_secs(self.max_duration_seconds);
        if fault.duration <= longest {
            return Ok(());
        }
        let asked = fault.duration.as_secs_f64();
        let refusal = Refusal::new(
            MAX_DURATION,
            format!("{asked} s is longer than the {} s allowed", longest.as_secs()),
        );
        match fault.duration <= LONGEST_FAULT {
            true => {
                let whole = fault.duration.as_secs() + u64::from(fault.duration.subsec_nanos() > 0);
                Err(refusal.but_for(format!("{MAX_DURATION} = {whole}")))
            }
            false => Err(refusal),
        }
    }

    /// Refuses what bears a marker of production, by the names that a fault is aimed at.
    ///
    /// # Errors
    /// The name, and the marker that is in it.
    pub fn spare_production<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), Refusal> {
        // A path is as harmless as each of its parts.
        for name in names.into_iter().flat_map(|name| name.split('/')) {
            if let Some(marker) = self.production_markers.of(name)
                && !self.not_production.contains(name)
            {
                let text = format!(
                    "{name:?} is production's: it has the marker {marker:?}, and production is not touched"
                );
                let known = self.not_production.iter().map(|name| quoted(name));
                return Err(Refusal::new("production_markers", text).but_for_one_more(
                    NOT_PRODUCTION,
                    known,
                    quoted(name),
                ));
            }
        }
        Ok(())
    }

    /// As [`Policy::spare_production`], by everything that a request says of target and parameters.
    ///
    /// # Errors
    /// The name, and the marker that is in it.
    pub fn spare_production_in(&self, request: &FaultRequest) -> Result<(), Refusal> {
        let target = serde_json::json!(request.target);
        let params = request.params.values().flat_map(texts);
        self.spare_production(texts(&target).into_iter().chain(params))
    }

    /// Decides whether somebody may be told what a preview of a fault of one of these types would tell.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn may_look(&self, who: &Who, previews: &[FaultType]) -> Result<(), ApiError> {
        self.admit(who, Act::Plan)?;
        if previews.iter().any(|preview| self.allows(*preview)) {
            return Ok(());
        }
        let names: Vec<_> = previews.iter().map(|preview| preview.name()).collect();
        let text = format!("none of {} is allowed, which would tell as much", names.join(", "));
        let refusal = match previews {
            [first, ..] => self.no_type(*first, text),
            [] => Refusal::new(FAULT_TYPES, text),
        };
        Err(refusal.into())
    }

    /// Decides whether the program at `path` may be run by a probe for somebody.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn may_run(&self, who: &Who, path: &str) -> Result<(), ApiError> {
        self.admit(who, Act::Probe)?;
        if self.programs()?.contains(path) {
            return Ok(());
        }
        let known = self.probe_commands.iter().map(|path| quoted(path));
        let text = format!("{path:?} is not among the programs that probes may run");
        Err(Refusal::new(PROBE_COMMANDS, text).but_for_one_more(PROBE_COMMANDS, known, quoted(path)).into())
    }

    /// Decides whether functions of these modules of Python may be called by a probe for somebody.
    ///
    /// # Errors
    /// The rule that forbids it, and what it would have to say.
    pub fn may_call(&self, who: &Who, modules: &[String]) -> Result<(), ApiError> {
        self.admit(who, Act::Probe)?;
        let Some(other) = modules.iter().find(|module| !self.probe_python.allows(module)) else {
            return Ok(());
        };
        let known = self.probe_python.modules.iter().map(|module| quoted(module));
        let text = format!("{other:?} is not among the modules of Python that probes may call");
        Err(Refusal::new(PROBE_PYTHON, text).but_for_one_more(PROBE_PYTHON, known, quoted(other)).into())
    }

    /// Decides whether a cluster may be asked by a probe with the kubeconfig at `path` for somebody.
    ///
    /// # Errors
    /// The rule that forbids it, and what it would have to say.
    pub fn may_use(&self, who: &Who, path: &str) -> Result<(), ApiError> {
        self.admit(who, Act::Probe)?;
        if self.probe_kubeconfigs.contains(path) {
            return Ok(());
        }
        let known = self.probe_kubeconfigs.iter().map(|path| quoted(path));
        let text = format!("{path} is not among the kubeconfigs that probes may use");
        Err(Refusal::new(PROBE_KUBECONFIGS, text)
            .but_for_one_more(PROBE_KUBECONFIGS, known, quoted(path))
            .into())
    }

    /// Decides whether an experiment that says this of itself may begin `now`. Returns the limits of this host within which it has to
    /// stay.
    ///
    /// # Errors
    /// The rule that forbids it, and what would be right.
    pub fn may_begin(&self, who: &Who, has: &Precautions, now: Timestamp) -> Result<&HostLimits, ApiError> {
        self.admit(who, Act::Run)?;
        self.spare_production(has.texts.iter().map(String::as_str))?;
        admit_here(self.environment.as_ref(), &has.environments)?;
        self.experiments.admit(has)?;
        self.windows.admit(now)?;
        Ok(&self.host_limits)
    }

    /// The switch that has to be on for a type of fault, and is not. Each has the name of its type.
    fn switched_off(&self, fault_type: FaultType) -> Option<&'static str> {
        let on = match fault_type {
            FaultType::ClockSkew => self.clock_skew,
            FaultType::HostReboot => self.host_reboot,
            FaultType::HostPanic => self.host_panic,
            _ => true,
        };
        (!on).then(|| fault_type.name())
    }

    fn allows(&self, fault_type: FaultType) -> bool {
        self.fault_types.as_ref().is_none_or(|allowed| allowed.contains(&FaultTypeName(fault_type)))
    }
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
