//! What the daemon does with single faults.

use std::sync::Arc;

use chaos_audit::{Kind, Record};

use super::Service;
use crate::experiment::Impact;
use crate::experiment::driver::unexpected;
use crate::request::facts::Question;
use crate::request::{
    Act, ApiError, Caller, ErrorCode, FaultState, FaultStatus, PlanReport, Removal, Reply, Request,
};
use crate::server::keys::{Begun, IdempotencyKey};
use crate::server::nearest::or_nearest;
use crate::spec::{
    FaultName, FaultRequest, FaultType, GivenName, Probability, QualifiedName, SpecError, TargetRequest,
};

/// What came of an injection. It is small: by its key it is kept for an hour, whatever else the fault says.
#[derive(Debug, Clone)]
pub enum Injection {
    /// The roll of the dice said no.
    NotTriggered(Brief),
    /// The fault is active.
    Active(Brief, Box<FaultStatus>),
}

/// What is told of a registered fault.
#[derive(Debug, Clone)]
pub struct Brief {
    /// Its type.
    pub fault_type: FaultType,
    /// Of what the roll has to say yes.
    pub probability: Probability,
    /// What is reported when it is triggered.
    pub error_message: Option<String>,
}

impl From<&FaultRequest> for Brief {
    fn from(fault: &FaultRequest) -> Self {
        let (fault_type, probability) = (fault.fault_type, fault.probability);
        Self { fault_type, probability, error_message: fault.error_message.clone() }
    }
}

/// What came of registering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Something was registered under the name before.
    pub replaced: bool,
    /// A fault of this name is active, and goes on as it was.
    pub active: bool,
    /// It names no target yet, so that it cannot be injected.
    pub needs_target: bool,
    /// What could not be saved.
    pub problem: Option<String>,
}

/// Checks a fault for registration; returns whether it lacks a target. The tool specification registers faults without
/// any, so that is allowed; a target that is given has to be right.
///
/// # Errors
/// Names the first field that is wrong.
pub fn check(fault: &FaultRequest) -> Result<bool, SpecError> {
    match fault.parse() {
        Err(error) if fault.target == TargetRequest::default() => {
            let any = Some("any".to_owned());
            let target = match error.field.as_str() {
                "target.interface" => TargetRequest { interface: any, ..TargetRequest::default() },
                "target.unit" => {
                    TargetRequest { unit: Some("any.service".to_owned()), ..TargetRequest::default() }
                }
                "target.cgroup" => TargetRequest { cgroup: any, ..TargetRequest::default() },
                _ => return Err(error),
            };
            FaultRequest { target, ..fault.clone() }.parse().map(|_| true)
        }
        checked => checked.map(|_| false),
    }
}

/// What came of removing.
#[derive(Debug)]
pub struct Removed {
    /// What was active, and is ended.
    pub removals: Vec<Removal>,
    /// What was registered, and is forgotten.
    pub forgotten: Option<Arc<FaultRequest>>,
    /// Whatever is registered under the name is not the caller's to forget.
    pub stays: bool,
    /// The caller has none of this name, and others have: whose, and how theirs is ended.
    pub others: Option<String>,
}

impl Service {
    /// Registers a fault, in place of any of the same name of the same owner. A fault that is active goes on as it was.
    ///
    /// # Errors
    /// When the name is another user's, the fault makes no sense, or the registry is full. Nothing has changed then.
    pub async fn register(
        &self,
        name: &GivenName,
        fault: FaultRequest,
        caller: Caller,
    ) -> Result<Registered, ApiError> {
        let question = Question::Fault { act: Act::Register, fault: Box::new(fault.clone()) };
        self.ask(question).await?;
        let name = self.named(name, caller).await?;
        let _turn = self.store.turn(caller.owner()).await;
        let needs_target = check(&fault)?;
        let fault_type = fault.fault_type.name();
        let key = name.clone();
        let change = self.store.change(caller.owner(), move |registry| {
            Ok(registry.of(key.owner).faults.insert(key.name, fault.into()).is_some())
        });
        let (replaced, problem) = change.await?;
        tracing::info!(%caller, %name, fault_type, replaced, "registered a fault");
        let active = self.active().await.is_ok_and(|faults| faults.iter().any(|fault| fault.name == name));
        Ok(Registered { replaced, active, needs_target, problem })
    }

    fn registered(&self, name: &QualifiedName) -> Option<Arc<FaultRequest>> {
        self.store.read(|registry| registry.fault(name.owner, &name.name))
    }

    pub(super) fn needed(&self, name: &QualifiedName, caller: Caller) -> Result<Arc<FaultRequest>, ApiError> {
        self.registered(name).ok_or_else(|| {
            let text = format!("no fault is registered as {:?}", name.shown_to(caller));
            let registry = self.store.all();
            let theirs = registry.owned.get(&name.owner).into_iter().flat_map(|theirs| theirs.faults.keys());
            let advice = "register it first: chaos_inject_fault with action \"register\" and a fault_type";
            ApiError::new(ErrorCode::FaultNotFound, text).hint(or_nearest(
                advice,
                name.name.as_str(),
                theirs.map(FaultName::as_str),
            ))
        })
    }

    /// Rolls the dice once and, if they say so, injects a registered fault: with `planned`, only what was planned by this digest.
    ///
    /// # Errors
    /// When no such fault is registered, and whatever the injector says. Nothing has changed then.
    pub async fn inject(
        &self,
        name: &GivenName,
        planned: Option<String>,
        caller: Caller,
    ) -> Result<Injection, ApiError> {
        let name = self.named(name, caller).await?;
        let fault = self.needed(&name, caller)?;
        if let Err(error) = fault.parse() {
            if fault.target != TargetRequest::default() {
                return Err(error.into());
            }
            // One without a target goes where the policy says, which the injector knows. That is asked before the dice are rolled.
            let asked = Box::new(FaultRequest::clone(&fault));
            self.door.call(Request::Plan { name: name.clone(), fault: asked }).await?;
        }
        if !rand::random_bool(fault.probability.get()) {
            tracing::info!(fault = %name, %caller, "not triggered");
            let what = Some(format!("the roll at probability {} said no", fault.probability.get()));
            let record = Record { what, on: Some(name.to_string()), ..act("inject") };
            self.ledger.put(Kind::Act, record, caller).await;
            return Ok(Injection::NotTriggered(Brief::from(&*fault)));
        }
        let asked = Box::new(FaultRequest::clone(&fault));
        let request = Request::Inject { name, fault: asked, plan_digest: planned };
        match self.door.call(request).await? {
            Reply::Injected(status) => Ok(Injection::Active(Brief::from(&*fault), status)),
            other => Err(unexpected(&other)),
        }
    }

    /// As [`Service::inject`], but of the calls of a caller with the same `key` only the first rolls the dice and injects. The others
    /// are answered with what came of it then.
    ///
    /// # Errors
    /// As of [`Service::inject`] and [`crate::server::keys::Keys::once`].
    pub async fn inject_once(
        &self,
        name: &GivenName,
        planned: Option<String>,
        key: &IdempotencyKey,
        caller: Caller,
    ) -> Result<Begun<Injection>, ApiError> {
        let asked = format!("fault {name}");
        let begun = self.injection_keys.once(caller, key, asked, self.inject(name, planned, caller)).await?;
        if begun.repeated.is_some() {
            let what = Some("the key was known: nothing was done".to_owned());
            let record = Record { what, on: Some(name.to_string()), ..act("inject") };
            self.ledger.put(Kind::Act, record, caller).await;
        }
        Ok(begun)
    }

    /// What injecting would do, and who would be affected how badly. `fault` is the registered one of this name when none is given.
    ///
    /// # Errors
    /// As [`Service::inject`].
    pub async fn plan(
        &self,
        name: &GivenName,
        fault: Option<FaultRequest>,
        caller: Caller,
    ) -> Result<(PlanReport, Impact), ApiError> {
        let name = self.named(name, caller).await?;
        let fault = match fault {
            Some(fault) => fault,
            None => FaultRequest::clone(&*self.needed(&name, caller)?),
        };
        fault.parse()?;
        let request = Request::Plan { name, fault: Box::new(fault.clone()) };
        match self.door.call(request).await? {
            Reply::Planned(plan) => {
                let impact = Impact::of(&fault, plan.targets.as_ref())?;
                Ok((*plan, impact))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Ends a fault if it is active, and forgets it if it is registered. Succeeds when there is none. Another user's is ended for
    /// everybody who names it, and forgotten for root alone.
    ///
    /// # Errors
    /// Whatever the injector says; the registration then stays, so that the name can be found again.
    pub async fn remove(&self, name: &GivenName, caller: Caller) -> Result<Removed, ApiError> {
        self.ask_leave(Act::End).await?;
        let key = QualifiedName::new(name.owner.unwrap_or(caller.owner()), name.name.clone());
        let (removals, others) = match self.end(name, caller).await {
            // Removing what is not there succeeds, whatever others have.
            Err(error) if error.code == ErrorCode::FaultNotFound => (Vec::new(), Some(error.in_full())),
            removals => (removals?, None),
        };
        let stays = self.meant(Some(key.owner), caller).await.is_err();
        if stays || self.registered(&key).is_none() {
            return Ok(Removed { removals, forgotten: None, stays, others });
        }
        let QualifiedName { owner, name } = key.clone();
        let change =
            self.store.change(caller.owner(), move |registry| Ok(registry.of(owner).faults.remove(&name)));
        let (forgotten, _) = change.await?;
        tracing::info!(%caller, name = %key, "removed the registration of a fault");
        Ok(Removed { removals, forgotten: forgotten.map(|entry| entry.what), stays: false, others })
    }

    /// Ends one active fault, or all of them and every run. Registrations stay.
    ///
    /// # Errors
    /// Whatever the injector says.
    pub async fn stop(&self, name: Option<&GivenName>, caller: Caller) -> Result<Vec<Removal>, ApiError> {
        self.ask_leave(Act::End).await?;
        match name {
            Some(name) => self.end(name, caller).await,
            None => {
                // Before their runs end: another one would begin.
                self.searches.stop(None).await?;
                self.runs.stop(None, caller);
                self.removals(Request::StopAll).await
            }
        }
    }

    /// Ends the fault that is meant, and the run that it is of.
    async fn end(&self, name: &GivenName, caller: Caller) -> Result<Vec<Removal>, ApiError> {
        let key = QualifiedName::new(name.owner.unwrap_or(caller.owner()), name.name.clone());
        let is_known = self.runs.stop(Some(&key), caller) || self.registered(&key).is_some();
        // Who has one of this name means that, whatever others have.
        let name = if is_known { key.given() } else { name.clone() };
        self.removals(Request::Remove { name }).await
    }

    async fn removals(&self, request: Request) -> Result<Vec<Removal>, ApiError> {
        match self.door.call(request).await? {
            Reply::Removed(removals) => Ok(removals),
            other => Err(unexpected(&other)),
        }
    }

    /// What is meant by a name that is used.
    pub(super) async fn named(&self, name: &GivenName, caller: Caller) -> Result<QualifiedName, ApiError> {
        Ok(QualifiedName::new(self.meant(name.owner, caller).await?, name.name.clone()))
    }

    /// Faults that are active now.
    async fn active(&self) -> Result<Vec<FaultStatus>, ApiError> {
        let mut faults = self.faults().await?;
        faults.retain(|fault| fault.state != FaultState::Ended);
        Ok(faults)
    }

    /// Faults that are active, and that ended a short while ago.
    pub(super) async fn faults(&self) -> Result<Vec<FaultStatus>, ApiError> {
        match self.door.call(Request::Status).await? {
            Reply::Status(faults) => Ok(faults),
            other => Err(unexpected(&other)),
        }
    }
}

/// A record of this act.
fn act(act: &str) -> Record {
    Record { act: act.to_owned(), ..Record::default() }
}
