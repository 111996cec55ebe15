//! What this kernel can do, and what of ours lies about.

use super::aside::Places;
use super::health;
use super::state::Injector;
use crate::fault::{Attach, lacks, parts, remedy};
use crate::host::{Facts, Lack};
use crate::policy::environment::Environment;
use crate::request::{
    Ability, ApiError, Caller, DoctorReport, Leftover, Level, ResidueReport, ResourceAbility,
};
use crate::residue::{self, Scope};
use crate::spec::{FAULT_TYPES, FaultType};

/// So many look for leftovers at once, one of a user.
static PLACES: Places = Places::new(2, 1, None, "looks for leftovers");
/// The same everywhere: that goes into every file system, and may take for ever in one.
static PLACES_EVERYWHERE: Places = Places::new(2, 1, None, "looks for leftovers everywhere");
/// So many look at once at what this kernel can do.
static PLACES_OF_KERNEL: Places = Places::new(2, 1, None, "looks at what the kernel can do");

/// The report, for a caller.
///
/// # Errors
/// When what is possible cannot be found out now.
pub(super) async fn report(injector: &Injector, caller: Caller) -> Result<DoctorReport, ApiError> {
    let left = residue(injector, Scope::Here, caller).await.leftovers;
    let residue = left.iter().map(ToString::to_string).collect();
    let facts = injector.facts_met();
    // Some of it is found out by loading programs.
    let met = facts.clone();
    let state = injector.site.audit.clone();
    let look = move || {
        let faults: Vec<_> = FAULT_TYPES.iter().map(|kind| ability(*kind, &met)).collect();
        Ok((faults, health::facts(&state)))
    };
    let (faults, health) = PLACES_OF_KERNEL.look(caller.into(), look).await?;
    let guard = injector.look_at_guard().await;
    let attach = match injector.site.attach {
        Attach::Tcx => "tcx links",
        Attach::Stub => "clsact stubs with a program array",
    };
    Ok(DoctorReport {
        kernel: facts.release.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        faults,
        facts: vec![
            ("attachment".to_owned(), attach.to_owned()),
            ("processors".to_owned(), facts.processors.to_string()),
            (
                "guard".to_owned(),
                match guard {
                    Ok(pid) => format!("process {pid}"),
                    Err(problem) => format!("{problem}: supervised faults are refused"),
                },
            ),
            (
                "environment".to_owned(),
                injector
                    .policy()
                    .environment
                    .as_ref()
                    .map_or("not said: dry runs alone", Environment::name)
                    .to_owned(),
            ),
            ("policy".to_owned(), injector.policy().digest.clone()),
            ("lease window".to_owned(), format!("{:?}", super::state::LEASE_WINDOW)),
        ]
        .into_iter()
        .chain(health)
        .collect(),
        residue,
    })
}

fn ability(fault_type: FaultType, facts: &Facts) -> Ability {
    let (missing, remedy) = told(lacks(fault_type.needs(), facts));
    let resource = |(name, needed): (&str, _)| {
        let (missing, remedy) = told(lacks(needed, facts));
        ResourceAbility { resource: name.to_owned(), missing, remedy }
    };
    let resources = parts(fault_type).into_iter().map(resource).collect();
    Ability { fault_type, missing, remedy, resources }
}

/// Everything that is missing, and what would supply it.
fn told(lacks: Vec<Lack>) -> (Vec<String>, Option<String>) {
    let remedy = remedy(&lacks);
    (lacks.into_iter().map(|lack| lack.what).collect(), remedy)
}

/// What is left there that no running daemon uses.
pub(super) async fn residue(injector: &Injector, scope: Scope, caller: Caller) -> ResidueReport {
    let runtime_dir = injector.site.runtime_dir.clone();
    let places = match scope {
        Scope::Here => &PLACES,
        Scope::Everywhere => &PLACES_EVERYWHERE,
    };
    let looked = places.look(caller.into(), move || Ok(residue::look(Some(&runtime_dir), scope))).await;
    looked.unwrap_or_else(|error| {
        tracing::warn!(%caller, %error, "nobody knows what is left");
        let left = Leftover {
            level: Level::Unknown,
            kind: "look".to_owned(),
            what: format!("for leftovers: {error}"),
            place: String::new(),
            goes: "look again".to_owned(),
        };
        ResidueReport { level: Level::Unknown, leftovers: vec![left], ..ResidueReport::default() }
    })
}
