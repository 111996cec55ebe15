//! For tests: which parameters a type takes, as its own parser says. What schema, command line and list say is compared with it.

use serde_json::json;

use super::settings::{self, RESOURCES};
use super::{FAULT_TYPES, FaultRequest, FaultType, Probability, TargetRequest};

/// A name that no parameter has.
const NOBODY: &str = "?";

/// The parameters that `kind` takes: those that its parser names to whom gives another.
pub(crate) fn of(kind: FaultType) -> Vec<String> {
    let params = [(NOBODY.to_owned(), json!(1))].into_iter().collect();
    // The target is looked at first where the fault goes to processes.
    let pid = matches!(kind, FaultType::ProcessKill | FaultType::ProcessPause).then_some(7);
    let target = TargetRequest { pid, ..TargetRequest::default() };
    let request = FaultRequest {
        fault_type: kind,
        probability: Probability::CERTAIN,
        duration_seconds: None,
        error_message: None,
        target,
        params,
    };
    let refused = request.parse().unwrap_err();
    let names = format!("unknown field `{NOBODY}`, ");
    let names = refused.problem.strip_prefix(&names).unwrap_or_else(|| panic!("{}: {refused}", kind.name()));
    let (names, _) = names.split_once(';').unwrap();
    // `there are no fields`, `expected `a``, `expected `a` or `b``, `expected one of `a`, `b``.
    names.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

/// Every parameter, once each.
pub(crate) fn all() -> Vec<String> {
    let mut all: Vec<_> = FAULT_TYPES.iter().flat_map(|kind| of(*kind)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Who takes the parameter `name`: types, and for `resource_exhaustion` its resources.
fn takers(name: &str) -> Vec<&'static str> {
    let mut takers = Vec::new();
    for kind in FAULT_TYPES.iter().filter(|kind| of(**kind).iter().any(|each| each == name)) {
        match (*kind, settings::resources_of(name)) {
            (FaultType::ResourceExhaustion, Some(resources)) => takers.extend_from_slice(resources),
            _ => takers.push(kind.name()),
        }
    }
    takers
}

/// A description either is for everybody, and names nobody, or names all who take the parameter; and whom it has something to
/// say about, before a colon, takes it.
pub(crate) fn check_words(name: &str, description: &str) {
    let takers = takers(name);
    let words: Vec<_> = description.split(|each: char| !each.is_alphanumeric() && each != '_').collect();
    let is_named = |taker: &&&str| words.contains(*taker);
    let missing: Vec<_> = takers.iter().filter(|taker| !is_named(taker)).collect();
    let someone = takers.iter().any(|taker| is_named(&taker));
    assert!(!someone || missing.is_empty(), "{name}: {description:?} says nothing of {missing:?}");
    for label in labels(description) {
        assert!(takers.contains(&label), "{name}: {description:?} is about {label}, which does not take it");
    }
}

/// Whom the parts of a description are about: `cpu, memory: how much; pids: how many`.
fn labels(description: &str) -> impl Iterator<Item = &str> {
    let known = |word: &str| RESOURCES.contains(&word) || FAULT_TYPES.iter().any(|kind| kind.name() == word);
    description
        .split(['.', ';', '['])
        .filter_map(|part| part.split_once(':'))
        .flat_map(|(labels, _)| labels.split(','))
        .map(str::trim)
        .filter(move |word| known(word))
}

#[test]
fn the_list_of_every_type_names_its_parameters_and_no_others() {
    let all = all();
    for kind in FAULT_TYPES {
        let (takes, text) = (of(*kind), kind.parameters());
        let words: Vec<_> = text.split(|each: char| !each.is_alphanumeric() && each != '_').collect();
        for name in &all {
            let (takes, says) = (takes.contains(name), words.contains(&name.as_str()));
            // Words such as `path` or `percent` are not always the parameter; those that are put together are.
            let wrong = if takes { !says } else { says && name.contains('_') };
            assert!(!wrong, "{}: takes {name}: {takes}, and its list says {says}: {text}", kind.name());
        }
    }
}

#[test]
fn the_list_of_resource_exhaustion_names_each_parameter_after_every_resource_that_takes_it() {
    let text = FaultType::ResourceExhaustion.parameters();
    for resource in RESOURCES {
        assert!(text.contains(&format!("{resource}: ")), "{resource}: {text}");
    }
    for name in of(FaultType::ResourceExhaustion) {
        assert!(
            name == "resource" || settings::resources_of(&name).is_some(),
            "{name} belongs to no resource"
        );
    }
}
