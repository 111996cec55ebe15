//! What is known of a type of fault whatever it is told: for its page.

use serde::Serialize;
use serde_json::{Value, json};

use super::requirements::parts;
use crate::spec::blast::{Of, Severity};
use crate::spec::category::Category;
use crate::spec::{FaultType, LifetimeClass, Requirement};

/// A type of fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Profile {
    /// The type.
    pub fault_type: FaultType,
    /// What it does.
    pub summary: &'static str,
    /// What it is about.
    pub categories: &'static [Category],
    /// The parameters that it takes.
    pub parameters: String,
    /// What binds it to its end; of `resource_exhaustion` it depends on the resource.
    pub lifetimes: Vec<Lifetime>,
    /// How badly those are off that it affects, the mildest first: which of these depends on what it is told.
    pub severities: &'static [Severity],
    /// What it can be told to affect a share of, and by which field; of others there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Shared>,
    /// What it needs of the kernel; nothing where there is none. Whether that is there `chaosctl doctor` says.
    pub needs: Vec<Need>,
}

/// What binds a fault to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lifetime {
    /// The class.
    pub class: LifetimeClass,
    /// Who undoes it when the daemon cannot.
    pub undone_by: &'static str,
    /// Of which part of the type this is true; of all of it without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<&'static str>,
}

/// What a share is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shared {
    /// Of what.
    pub of: Of,
    /// The field of a fault that says how large it is.
    pub field: &'static str,
}

/// What is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The resource, or other part, that needs it; all of the type without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<&'static str>,
    /// Their names.
    pub what: Vec<String>,
}

impl Profile {
    /// Of a type.
    pub fn of(fault_type: FaultType) -> Self {
        Self {
            fault_type,
            summary: fault_type.summary(),
            categories: fault_type.categories(),
            parameters: fault_type.parameter_line(),
            lifetimes: lifetimes(fault_type),
            severities: fault_type.severities(),
            share: fault_type.shared().map(|(of, field)| Shared { of, field }),
            needs: needs(fault_type),
        }
    }

    /// As programs read it, with the schema of its parameters, an example, and the names of the experiments that inject it.
    pub fn with_experiments(&self, names: &[&str]) -> Value {
        let mut page = json!(self);
        let parameters = self.fault_type.parameters().iter();
        page["params"] = parameters.map(|parameter| (parameter.name.clone(), parameter.schema())).collect();
        page["target_fields"] = json!(self.fault_type.target_fields());
        let (target, params) = self.fault_type.example();
        page["example"] = json!({"fault_type": self.fault_type, "target": target, "params": params});
        page["experiments"] = json!(names);
        page
    }
}

fn lifetimes(fault_type: FaultType) -> Vec<Lifetime> {
    let parts = fault_type.lifetimes().iter();
    parts.map(|(class, of)| Lifetime { class: *class, undone_by: class.undone_by(), of: *of }).collect()
}

fn needs(fault_type: FaultType) -> Vec<Need> {
    let named = |(of, needed): (_, &[Requirement])| Need {
        of,
        what: needed.iter().map(|requirement| requirement.name()).collect(),
    };
    let whole = match fault_type {
        // All of it is of one resource or another.
        FaultType::ResourceExhaustion => None,
        _ => Some(named((None, fault_type.needs()))),
    };
    let parts = parts(fault_type).into_iter().map(|(part, needed)| named((Some(part), needed)));
    whole.into_iter().chain(parts).filter(|need| !need.what.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::spec::FAULT_TYPES;

    #[test]
    fn the_class_of_a_fault_is_the_one_that_its_summary_says() {
        for kind in FAULT_TYPES {
            let profile = Profile::of(*kind);
            let of = |class| profile.lifetimes.iter().filter(move |lifetime| lifetime.class == class);
            let says = |word: &str| profile.summary.contains(word);
            assert_eq!(of(LifetimeClass::Supervised).count() > 0, says("(supervised)"), "{kind:?}");
            // Where only a part is, the summary has no room for it.
            let whole = of(LifetimeClass::Irreversible).filter(|lifetime| lifetime.of.is_none());
            assert_eq!(whole.count() > 0, says("(irreversible)"), "{kind:?}");
        }
    }

    #[test]
    fn every_fault_is_about_something_and_no_two_parts_of_one_are_called_alike() {
        for kind in FAULT_TYPES {
            let profile = Profile::of(*kind);
            assert!(!profile.categories.is_empty() && !profile.severities.is_empty(), "{kind:?}");
            let parts: BTreeSet<_> = profile.lifetimes.iter().map(|lifetime| lifetime.of).collect();
            assert_eq!(parts.len(), profile.lifetimes.len(), "{kind:?}");
        }
    }

    #[test]
    fn what_is_needed_is_named_as_doctor_names_it_when_it_is_missing() {
        let needs = |kind| Profile::of(kind).needs;
        let latency = needs(FaultType::Latency);
        assert_eq!(latency.len(), 1);
        assert_eq!(
            (latency[0].of, &latency[0].what[..]),
            (None, &["cls_bpf", "veth", "sch_netem"].map(str::to_owned)[..])
        );
        let of_resources = needs(FaultType::ResourceExhaustion);
        let limit = of_resources.iter().find(|need| need.of == Some("cpu_limit"));
        assert!(limit.is_some_and(|limit| limit.what.contains(&"the cgroup controller cpu".to_owned())));
        assert!(!of_resources.iter().any(|need| need.of == Some("cpu")));
        assert_eq!(needs(FaultType::PortInUse), []);
    }
}
