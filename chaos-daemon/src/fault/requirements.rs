//! What each type of fault, and each resource of `resource_exhaustion`, needs of the kernel.

use super::{detour, limit, oom, sever};
use crate::host::{Facts, Lack};
use crate::request::{ApiError, ErrorCode};
use crate::spec::Fault;
use crate::spec::effect::Effect;
use crate::spec::resource;
use crate::spec::{FaultType, Hoard, Impairment, Requirement};

/// The parts of a fault type that need something else than the whole, each with what it needs of the kernel.
pub fn parts(fault_type: FaultType) -> Vec<(&'static str, &'static [Requirement])> {
    match fault_type {
        FaultType::ResourceExhaustion => resources(),
        FaultType::LinkProfile => vec![(OF_RATES, detour::OF_RATES)],
        FaultType::Timeout | FaultType::NetworkPartition => vec![(OF_SERVICE, sever::REQUIREMENTS)],
        _ => Vec::new(),
    }
}

/// What `resource_exhaustion` can be about, in the order of [`resource::RESOURCES`], each with what it needs of the kernel; memory a second
/// time, until it kills.
fn resources() -> Vec<(&'static str, &'static [Requirement])> {
    let mut all = Vec::new();
    for resource in resource::names() {
        all.push((resource, of_resource(resource)));
        if resource == "memory" {
            all.push((WITH_OOM, oom::REQUIREMENTS));
        }
    }
    all
}

const WITH_OOM: &str = "memory with oom";
const OF_RATES: &str = "a trace of rates";
const OF_SERVICE: &str = "a service without an interface";

fn of_resource(resource: &str) -> &'static [Requirement] {
    match resource {
        "cpu_limit" => limit::OF_CPU,
        "memory_limit" => limit::OF_MEMORY,
        "pids_limit" => limit::OF_PIDS,
        "io_limit" => limit::OF_IO,
        // What is held within a cgroup needs one that is there, and no controller.
        _ => FaultType::ResourceExhaustion.needs(),
    }
}

/// What of this is not there on this kernel.
pub fn lacks(requirements: &[Requirement], facts: &Facts) -> Vec<Lack> {
    requirements.iter().filter_map(|requirement| facts.lack(*requirement)).collect()
}

/// What would supply all of this, each remedy once; `None` when nothing is missing.
pub fn remedy(lacks: &[Lack]) -> Option<String> {
    let mut remedies: Vec<&str> = Vec::new();
    for lack in lacks {
        if !remedies.contains(&lack.remedy.as_str()) {
            remedies.push(&lack.remedy);
        }
    }
    (!remedies.is_empty()).then(|| remedies.join("; and "))
}

/// What a fault needs of the kernel, and the part of its type that it is, where parts need something else than the whole.
fn needs(fault: &Fault) -> (Option<&'static str>, Vec<Requirement>) {
    let effect = &fault.effect;
    let (part, needed) = match effect {
        Effect::Sever { .. } => (Some(OF_SERVICE), sever::REQUIREMENTS),
        Effect::Limit { limit, .. } => (Some(limit.resource()), of_resource(limit.resource())),
        Effect::Hoard { what: Hoard::Oom { .. }, .. } => (Some(WITH_OOM), oom::REQUIREMENTS),
        Effect::Impair { traffic, impairment: Impairment::Link(link), .. }
            if link.has_traced_rates(&traffic.directions) =>
        {
            (Some(OF_RATES), detour::OF_RATES)
        }
        _ => (None, fault.fault_type.needs()),
    };
    let mut needed = needed.to_vec();
    if effect.names_cgroup() && !needed.contains(&Requirement::CgroupV2) {
        needed.push(Requirement::CgroupV2);
    }
    (part, needed)
}

/// Refuses what this kernel cannot do. To be asked before anything is looked at: what is looked for may be missing for the same
/// reason.
///
/// # Errors
/// [`ErrorCode::UnsupportedKernel`] names the fault, everything that is missing, and what would supply it.
pub fn require(fault: &Fault, facts: &Facts) -> Result<(), ApiError> {
    let lacks = lacks(&needs(fault).1, facts);
    if lacks.is_empty() { Ok(()) } else { Err(refusal(&called(fault), &lacks, facts)) }
}

/// What is said of a fault for want of this.
pub(super) fn refusal(fault: &str, lacks: &[Lack], facts: &Facts) -> ApiError {
    let names: Vec<_> = lacks.iter().map(|lack| lack.what.as_str()).collect();
    let text = format!("{fault} is not possible on kernel {}: missing {}", facts.release, names.join(", "));
    let error = ApiError::new(ErrorCode::UnsupportedKernel, text);
    match remedy(lacks) {
        Some(remedy) => error.hint(remedy),
        None => error,
    }
}

/// A fault as refusals call it: its type, and the part of that where parts need something else than the whole.
pub fn called(fault: &Fault) -> String {
    let name = fault.fault_type.name();
    needs(fault).0.map_or_else(|| name.to_owned(), |part| format!("{name} ({part})"))
}

#[cfg(test)]
#[path = "requirements_tests.rs"]
mod tests;
