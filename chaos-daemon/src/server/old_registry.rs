//! The registry as it is in its file, also in that of a version in which names were everybody's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::history::{ExperimentResult, Total};
use super::registry::{Belongings, Document, Entry, Registry};
use crate::spec::{FaultName, FaultRequest, Owner};

/// What is in the file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Stored {
    owned: BTreeMap<Owner, Belongings>,
    results: Vec<ExperimentResult>,
    totals: BTreeMap<String, Total>,
    /// Of before names had owners.
    faults: BTreeMap<FaultName, Old<FaultRequest>>,
    /// Likewise.
    experiments: BTreeMap<String, Old<Document>>,
}

/// Something that was registered before names had owners: with who has registered it, or from before that was known.
#[derive(Deserialize)]
#[serde(untagged)]
enum Old<T> {
    By { registered_by: Option<OldOwner>, what: T },
    Bare(T),
}

/// An owner as that version has written it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OldOwner {
    User(u32),
    Context(u32),
}

impl<T: Serialize> Old<T> {
    /// What nobody has registered is root's.
    fn owned(self) -> (Owner, Entry<T>) {
        let (by, what) = match self {
            Self::By { registered_by, what } => (registered_by, what),
            Self::Bare(what) => (None, what),
        };
        let owner = match by {
            Some(OldOwner::User(uid)) => Owner::User(uid),
            Some(OldOwner::Context(cid)) => Owner::Context(cid),
            None => Owner::ROOT,
        };
        (owner, what.into())
    }
}

impl From<Stored> for Registry {
    fn from(stored: Stored) -> Self {
        let Stored { owned, results, totals, faults, experiments } = stored;
        let mut registry = Self { owned, results, totals };
        for (name, old) in faults {
            let (owner, entry) = old.owned();
            registry.of(owner).faults.insert(name, entry);
        }
        for (name, old) in experiments {
            let (owner, entry) = old.owned();
            registry.of(owner).experiments.insert(name, entry);
        }
        registry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file_of_before_names_had_owners_each_has_its_own_and_what_is_nobodys_is_roots() {
        let old = r#"{"faults":{
                "slow":{"fault_type":"latency","probability":0.5,"target":{"interface":"eth0"}},
                "cut":{"registered_by":{"user":1001},"what":{"fault_type":"timeout","probability":1.0}},
                "far":{"registered_by":{"context":3},"what":{"fault_type":"timeout","probability":1.0}},
                "lost":{"registered_by":null,"what":{"fault_type":"timeout","probability":1.0}}},
            "experiments":{"e":{"title":"e","what":1},"f":{"registered_by":{"user":1001},"what":{"title":"f"}}}}"#;
        let registry: Registry = serde_json::from_str(old).unwrap();
        let names = |owner: Owner| {
            let theirs = &registry.owned[&owner];
            let faults = theirs.faults.keys().map(|name| name.as_str().to_owned());
            faults.chain(theirs.experiments.keys().cloned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(Owner::ROOT), "lost slow e");
        assert_eq!(names(Owner::User(1001)), "cut f");
        assert_eq!(names(Owner::Context(3)), "far");
        assert_eq!(registry.experiment(Owner::ROOT, "e").unwrap().read()["what"], 1);
        let again: Registry = serde_json::from_value(serde_json::to_value(&registry).unwrap()).unwrap();
        assert_eq!(again, registry);
    }
}
