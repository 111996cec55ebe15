//! Whether faults that are planned together could be injected beside each other. Pure: what each is goes in, a refusal comes
//! out, the same as the second of them would meet if the first were active.

use super::down::takes_down;
use super::owners::Taken;
use super::refusal::{active_already, changed_already};
use jiff::Timestamp;

use crate::policy::limits::{Lately, Recent};
use crate::policy::{Asked, Intent, Policy, Who};
use crate::request::{ApiError, ErrorCode};
use crate::spec::LifetimeClass;
use crate::spec::{Fault, QualifiedName};

/// A fault that could be injected if it were the only one.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    pub(super) name: &'a QualifiedName,
    pub(super) fault: &'a Fault,
    pub(super) lifetime: LifetimeClass,
    /// The places of the settings that it changes.
    pub(super) settings: Vec<String>,
}

/// Refuses a fault that could not be injected while these are active `beside` it, and as many others as are active now.
///
/// # Errors
/// Names what is in the way.
pub(super) fn refuse_beside(
    policy: &Policy,
    (who, intent): (&Who, Intent),
    active: Taken,
    new: &Seat<'_>,
    beside: &[&Seat<'_>],
) -> Result<(), ApiError> {
    let owner = new.name.owner;
    let taken = active.and(beside.len(), owner);
    let own = Lately { active: taken.own as u64, ..Lately::default() };
    let recent = Recent { own, ..Recent::default() };
    policy.permit(&Asked {
        who,
        fault: new.fault,
        active: taken.all,
        recent,
        intent,
        now: Timestamp::now(),
    })?;
    taken.refuse(owner, policy.max_active)?;
    for other in beside {
        let name = other.name.shown_to(who.caller);
        if other.name == new.name {
            return Err(active_already(&name, other.fault.duration));
        }
        if let Some(place) = new.settings.iter().find(|place| other.settings.contains(place)) {
            return Err(changed_already(&name, place));
        }
        let goes_down = [new, other].map(|seat| takes_down(seat.fault.fault_type));
        let is_supervised = other.lifetime == LifetimeClass::Supervised;
        if goes_down[1] || (goes_down[0] && is_supervised) {
            let text = format!("fault {name} would be active then, and one of the two takes this host down");
            return Err(ApiError::new(ErrorCode::LimitReached, text)
                .hint("have the host go down in an experiment of its own"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::Caller;
    use crate::spec::FaultRequest;

    fn here() -> Policy {
        toml::from_str("environment = \"test\"").unwrap()
    }

    const ME: Caller = Caller::Unix { uid: 0, gid: 0, pid: 1 };

    fn fault(kind: &str) -> Fault {
        let request = json!({"fault_type": kind, "probability": 1, "target": {"interface": "eth0"}});
        serde_json::from_value::<FaultRequest>(request).unwrap().parse().unwrap()
    }

    fn name(name: &str) -> QualifiedName {
        QualifiedName::parse(name).unwrap()
    }

    #[test]
    fn faults_of_one_experiment_are_in_each_others_way_as_active_ones_are() {
        let (cut, down) = (fault("network_partition"), fault("link_down"));
        let (first, second) = (name("first"), name("second"));
        let seat = |name, fault, settings: &[&str]| Seat {
            name,
            fault,
            lifetime: LifetimeClass::Kernel,
            settings: settings.iter().map(|place| (*place).to_owned()).collect(),
        };
        let policy = Policy { max_active: 2, ..here() };
        let say = |all, new: &Seat<'_>, beside: &[&Seat<'_>]| {
            let active = Taken { all, but_roots: 0, own: all };
            refuse_beside(&policy, (&ME.into(), Intent::PlanOfRun), active, new, beside)
                .map_err(|error| error.message)
        };
        let one = seat(&first, &cut, &[]);
        assert_eq!(say(0, &seat(&second, &cut, &[]), &[&one]), Ok(()));
        // As many as the policy allows are there with the first of them.
        assert!(say(1, &seat(&second, &cut, &[]), &[&one]).unwrap_err().starts_with("2 faults are active"));
        assert_eq!(say(1, &seat(&second, &cut, &[]), &[]), Ok(()));
        assert!(
            say(0, &seat(&first, &cut, &[]), &[&one])
                .unwrap_err()
                .starts_with("fault first is already active")
        );
        let (link, other) = (seat(&first, &down, &["link eth0"]), seat(&second, &down, &["x", "link eth0"]));
        let said = say(0, &other, &[&link]).unwrap_err();
        assert_eq!(said, "fault first has changed link eth0 already, and one at a time can");
        assert_eq!(say(0, &seat(&second, &down, &["link eth1"]), &[&link]), Ok(()));
    }

    #[test]
    fn nothing_is_active_when_the_host_goes_down_that_could_outlive_it() {
        let (first, second) = (name("first"), name("second"));
        let request = json!({"fault_type": "host_reboot", "probability": 1});
        let reboot = serde_json::from_value::<FaultRequest>(request).unwrap().parse().unwrap();
        let cut = fault("network_partition");
        let policy = Policy { host_reboot: true, ..here() };
        let (irreversible, kernel) = (LifetimeClass::Irreversible, LifetimeClass::Kernel);
        let seat = |name, fault, lifetime| Seat { name, fault, lifetime, settings: Vec::new() };
        let reboots = seat(&first, &reboot, irreversible);
        let none = Taken { all: 0, but_roots: 0, own: 0 };
        let refused = |new: &Seat<'_>, beside: &Seat<'_>| {
            refuse_beside(&policy, (&ME.into(), Intent::PlanOfRun), none, new, &[beside]).is_err()
        };
        assert!(refused(&seat(&second, &cut, kernel), &reboots));
        assert!(refused(&reboots, &seat(&second, &cut, LifetimeClass::Supervised)));
        assert!(!refused(&reboots, &seat(&second, &cut, kernel)));
    }
}
