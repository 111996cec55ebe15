//! A fault that takes this host down: what is in its way, what becomes of its record when the host stays up, and what is told of it
//! by the daemon that starts afterwards.

use std::path::Path;
use std::time::Duration;

use super::state::Injector;
use crate::host::{BootId, boot_time_ns};
use crate::journal::down::wall_clock;
use crate::journal::{Back, DownRecord, FoundDown};
use crate::kernel::node::talk;
use crate::request::evidence::Down;
use crate::request::{ApiError, Caller, ErrorCode, Evidence, FaultState, FaultStatus, WentDown};
use crate::spec::LifetimeClass;
use crate::spec::{FaultType, QualifiedName};

/// Whether faults of this type take the host down.
pub(super) fn takes_down(fault_type: FaultType) -> bool {
    matches!(fault_type, FaultType::HostReboot | FaultType::HostPanic)
}

/// Refuses any fault while another one takes the host down, and one that does so while something is held that a boot may not
/// put right.
///
/// # Errors
/// Names the fault that is in the way.
pub(super) fn refuse_in_the_way(
    injector: &Injector,
    fault_type: FaultType,
    caller: Caller,
) -> Result<(), ApiError> {
    if let Some(other) = injector.first(|active| takes_down(active.fault_type)) {
        let other = other.shown_to(caller);
        return Err(ApiError::new(ErrorCode::LimitReached, format!("fault {other} takes this host down"))
            .hint(format!("chaos_stop with fault_name {other} prevents it, if it is not too late")));
    }
    if !takes_down(fault_type) {
        return Ok(());
    }
    match injector.first(|active| active.lifetime == LifetimeClass::Supervised) {
        None => Ok(()),
        Some(other) => {
            let (name, other) = (fault_type.name(), other.shown_to(caller));
            let text = format!(
                "{name} while fault {other} is active, which is supervised: what it has set might outlive the boot"
            );
            Err(ApiError::new(ErrorCode::LimitReached, text)
                .hint("remove that one first, or wait until it ends"))
        }
    }
}

/// Sees to the record of a fault that has ended: it stays if the host is going down, and only then. What there is to say of it.
pub(super) async fn settle(injector: &Injector, name: &QualifiedName) -> Option<&'static str> {
    let path = injector.site.down_record.clone();
    let name = name.clone();
    let settled = tokio::task::spawn_blocking(move || settle_in(&path, &name, is_stopping)).await;
    settled.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot look whether the host goes down");
        None
    })
}

/// Whether systemd stops this host; when it does not say, it may be because it does.
fn is_stopping() -> bool {
    talk(async |systemd| systemd.is_stopping().await).unwrap_or(true)
}

fn settle_in(path: &Path, name: &QualifiedName, is_stopping: impl FnOnce() -> bool) -> Option<&'static str> {
    let record = DownRecord::read(path).ok().flatten()?;
    // An earlier one is still told of.
    if record.name != *name || record.back.is_some() {
        return None;
    }
    if record.fault_type == FaultType::HostReboot && is_stopping() {
        return Some("this host is going down");
    }
    if let Err(error) = DownRecord::forget(path) {
        tracing::warn!(path = %path.display(), %error, "cannot forget what did not happen");
    }
    Some("this host did not go down")
}

/// What a daemon that starts has to tell of a fault that has taken the host down before this boot.
pub(super) fn tell(path: &Path) -> Option<(FaultStatus, WentDown)> {
    let found = DownRecord::read(path).and_then(|record| Ok((record, BootId::current()?)));
    match found {
        Ok((None, _)) => None,
        Ok((Some(record), boot)) => {
            tell_of(record, path, &boot, wall_clock(), Duration::from_nanos(boot_time_ns()))
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot read what has taken the host down");
            None
        }
    }
}

fn tell_of(
    record: DownRecord,
    path: &Path,
    boot: &BootId,
    now: Duration,
    uptime: Duration,
) -> Option<(FaultStatus, WentDown)> {
    let name = record.name.clone();
    let (kept, back) = match record.judge(boot, now, uptime) {
        FoundDown::StillUp => {
            tracing::warn!(%name, "was about to take this host down, which is still up");
            (DownRecord::forget(path), None)
        }
        FoundDown::Old => (DownRecord::forget(path), None),
        FoundDown::Known(back) => (Ok(()), Some(back)),
        FoundDown::Back(back) => {
            let told = DownRecord { back: Some(back.clone()), ..record.clone() };
            (told.write(path), Some(back))
        }
    };
    if let Err(error) = kept {
        // Told all the same, and perhaps again after the next boot.
        tracing::warn!(path = %path.display(), %error, "cannot note what was told of a host that went down");
    }
    let back = back?;
    let words = words(&record, &back);
    tracing::warn!(%name, fault = record.fault_type.name(), "{words}");
    let status = FaultStatus {
        began: None,
        name: name.clone(),
        fault_type: record.fault_type,
        state: FaultState::Ended,
        lifetime: LifetimeClass::Irreversible,
        guard: String::new(),
        description: record.description,
        age: now.saturating_sub(record.at),
        remaining: Duration::ZERO,
        evidence: Evidence::Down(Down { host_downs: 1 }),
        addresses: Vec::new(),
        likely: None,
        note: Some(words.clone()),
    };
    Some((status, WentDown { fault: name, fault_type: record.fault_type, words }))
}

/// When the host went down, and for how long it was gone.
fn words(record: &DownRecord, back: &Back) -> String {
    let at =
        i64::try_from(record.at.as_millis()).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let at = at.map_or_else(String::new, |at| format!(" at {at:.3}"));
    let uptime = back.uptime.as_secs_f64();
    match back.after {
        Some(after) => format!(
            "took the host down{at}; the daemon was there again {:.1} s later, {uptime:.1} s after the kernel had started",
            after.as_secs_f64()
        ),
        None => format!(
            "took the host down{at}; the daemon was there again {uptime:.1} s after the kernel had started, and the wall clock is \
             behind what it was, so that it cannot be said for how long the host was gone"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::down::FILE;

    fn boot(name: &str) -> BootId {
        serde_json::from_value(name.into()).unwrap()
    }

    fn record(boot_id: BootId, fault_type: FaultType) -> DownRecord {
        DownRecord {
            boot: boot_id,
            name: QualifiedName::parse("a").unwrap(),
            fault_type,
            description: "host_reboot: …".into(),
            at: Duration::from_millis(1_770_000_000_500),
            back: None,
        }
    }

    #[test]
    fn after_the_boot_it_is_told_when_the_host_went_down_and_how_long_it_was_gone_until_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        record(boot("one"), FaultType::HostReboot).write(&path).unwrap();
        let tell = |boot_id: &str, seconds| {
            let found = DownRecord::read(&path).unwrap()?;
            let now = Duration::from_millis(1_770_000_000_500) + Duration::from_secs(seconds);
            tell_of(found, &path, &boot(boot_id), now, Duration::from_secs(9))
        };
        let (status, went_down) = tell("two", 31).unwrap();
        assert_eq!(
            (status.state, status.evidence),
            (FaultState::Ended, Evidence::Down(Down { host_downs: 1 }))
        );
        let words = status.note.unwrap();
        assert!(words.contains("2026-02-02T02:40:00.500Z") && words.contains("31.0 s later"), "{words}");
        assert_eq!((went_down.fault.to_string().as_str(), &went_down.words), ("a", &words));
        // A daemon that is restarted tells the same; the boot after that nothing.
        assert_eq!(tell("two", 500).unwrap().1.words, words);
        assert!(tell("three", 900).is_none() && DownRecord::read(&path).unwrap().is_none());
    }

    #[test]
    fn of_a_host_that_is_still_up_nothing_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        record(BootId::current().unwrap(), FaultType::HostPanic).write(&path).unwrap();
        assert!(tell(&path).is_none() && DownRecord::read(&path).unwrap().is_none());
    }

    #[test]
    fn the_record_of_a_fault_that_has_ended_stays_only_if_the_host_is_going_down() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let (a, b) = (QualifiedName::parse("a").unwrap(), QualifiedName::parse("b").unwrap());
        assert_eq!(settle_in(&path, &a, || true), None);
        for (fault_type, is_stopping, expected) in [
            (FaultType::HostReboot, true, "this host is going down"),
            (FaultType::HostReboot, false, "this host did not go down"),
            (FaultType::HostPanic, true, "this host did not go down"),
        ] {
            record(boot("one"), fault_type).write(&path).unwrap();
            assert_eq!(settle_in(&path, &b, || is_stopping), None);
            assert_eq!(settle_in(&path, &a, || is_stopping), Some(expected));
            let kept = expected == "this host is going down";
            assert_eq!(DownRecord::read(&path).unwrap().is_some(), kept);
        }
    }
}
