//! What this kernel can do, and what of ours lies about.

use super::state::Injector;
use crate::fault::{Attach, lacks};
use crate::kernel::netlink::residue;
use crate::request::{Ability, DoctorReport};
use crate::spec::FAULT_TYPES;

/// The report.
pub(super) async fn report(injector: &Injector) -> DoctorReport {
    let (ids, filters): (Vec<_>, Vec<_>) = {
        let active = injector.active.borrow();
        active
            .values()
            .map(|active| (active.id, active.place.map_or((0, 0), |(_, device, level)| (device, level))))
            .unzip()
    };
    let residue =
        tokio::task::spawn_blocking(move || residue::idle(&ids, &filters)).await.unwrap_or_default();
    let facts = &injector.facts;
    let ability = |fault_type| {
        let lacks = lacks(fault_type, facts);
        Ability {
            fault_type,
            remedy: lacks.first().map(|lack| lack.remedy.clone()),
            missing: lacks.into_iter().map(|lack| lack.what).collect(),
        }
    };
    let attach = match injector.attach {
        Attach::Tcx => "tcx links",
        Attach::Stub => "clsact stubs with a program array",
    };
    DoctorReport {
        kernel: facts.release.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        faults: FAULT_TYPES.iter().copied().map(ability).collect(),
        facts: vec![
            ("attachment".to_owned(), attach.to_owned()),
            ("processors".to_owned(), facts.processors.to_string()),
            (
                "guard".to_owned(),
                match injector.guard.watchful() {
                    Ok(pid) => format!("process {pid}"),
                    Err(problem) => format!("{problem}: supervised faults are refused"),
                },
            ),
            ("lease window".to_owned(), format!("{:?}", super::state::LEASE_WINDOW)),
        ],
        residue,
    }
}
