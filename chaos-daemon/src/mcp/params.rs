//! The parameters of every fault type as one JSON Schema.

use serde_json::Value;

use crate::spec::parameter::merged;
use crate::spec::{FAULT_TYPES, FaultType, Parameter};

/// Every parameter of every type. Which of them a type takes is checked when it is registered.
pub(super) fn properties() -> Value {
    let all =
        FAULT_TYPES.iter().flat_map(|kind| kind.parameters().iter().flat_map(|each| takers(*kind, each)));
    merged(all).into_iter().map(|parameter| (parameter.name.clone(), parameter.schema())).collect()
}

/// Who takes it, as callers are told: its type, or of `resource_exhaustion` the resources.
fn takers(kind: FaultType, parameter: &Parameter) -> Vec<(&str, &Parameter)> {
    match parameter.resources.as_slice() {
        [] => vec![(kind.name(), parameter)],
        resources => resources.iter().map(|resource| (*resource, parameter)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_of_several_types_has_the_bounds_of_all_and_says_what_it_is_for_each() {
        let properties = properties();
        let answer = &properties["answer"];
        assert_eq!(answer["enum"].as_array().map(Vec::len), Some(10), "{answer}");
        let text = answer["description"].as_str().unwrap();
        assert!(text.contains("error: What packets") && text.contains("dns_error: What questions"), "{text}");
        let rate = &properties["rate_kbit"];
        assert_eq!((&rate["minimum"], &rate["maximum"]), (&8.into(), &100_000_000.into()));
        let percent = &properties["cpu_percent"];
        assert_eq!((&percent["minimum"], &percent["maximum"]), (&1.0.into(), &100_000.0.into()), "{percent}");
        assert!(properties["four_state"]["properties"]["p23"]["default"] == 100.0, "{properties}");
    }

    #[test]
    fn every_parameter_has_a_sentence_and_every_number_bounds() {
        for (name, property) in properties().as_object().unwrap() {
            let text = property["description"].as_str().unwrap();
            assert!(text.ends_with(['.', ']']) && text.contains(": "), "{name}: {text}");
            if property["type"] == "number" {
                assert!(
                    property["minimum"].is_number() && property["maximum"].is_number(),
                    "{name}: {property}"
                );
            }
        }
    }
}
