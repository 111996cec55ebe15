//! The fields that describe a fault, with the parameters of every type, as one JSON Schema.

use serde_json::{Value, json};

use super::schema;
use crate::spec::units::{DEFAULT_FAULT, LONGEST_FAULT, SHORTEST_FAULT};
use crate::spec::{FAULT_TYPES, FaultType, Probability, TargetRequest};

/// The fields that describe a fault.
pub(super) fn of_fault() -> Value {
    let types: Vec<_> = FAULT_TYPES.iter().map(|kind| kind.name()).collect();
    let takes = |kind: &FaultType| {
        let mut names: Vec<_> = Vec::new();
        // Each resource has its own of some.
        for parameter in kind.parameters().iter().map(|parameter| parameter.name.as_str()) {
            if !names.contains(&parameter) {
                names.push(parameter);
            }
        }
        (!names.is_empty()).then(|| format!("{}: {}", kind.name(), names.join(", ")))
    };
    let parameters: Vec<_> = FAULT_TYPES.iter().filter_map(takes).collect();
    json!({
        "fault_name": {
            "type": "string", "minLength": 1, "maxLength": 81, "pattern": "^((vsock:)?[0-9]+/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$",
            "description": "Unique fault identifier among yours, e.g. \"slow-database\"; for root also \"1001/slow-database\".",
        },
        "fault_type": {
            "type": "string", "enum": types,
            "description": "Required for register.",
        },
        "probability": {
            "type": "number", "minimum": 0, "maximum": 1, "default": Probability::DEFAULT.get(),
            "description": "Injection probability, rolled once per inject.",
        },
        "duration_seconds": {
            "type": "number", "minimum": SHORTEST_FAULT.as_secs_f64(), "maximum": LONGEST_FAULT.as_secs_f64(),
            "default": DEFAULT_FAULT.as_secs_f64(),
            "description": "How long each injection lasts before it ends by itself.",
        },
        "error_message": {
            "type": "string", "maxLength": 512,
            "description": "Error message for error and timeout faults, reported when triggered.",
        },
        "target": target(),
        "params": {
            "type": "object",
            "description": format!("How much, by type: {}. The resource chaos://fault/TYPE says what each type does, needs and takes, with bounds; so does a refusal.", parameters.join("; ")),
        },
    })
}

/// The fields that describe a fault, for a tool beside the one that describes them.
pub(super) fn of_fault_in_short() -> Value {
    let mut properties = of_fault();
    for (name, property) in properties.as_object_mut().into_iter().flatten() {
        if let Some(property) = property.as_object_mut().filter(|_| name != "fault_name") {
            property.retain(|word, _| word == "type");
        }
    }
    properties
}

fn target() -> Value {
    let mut target = schema::in_a_sentence(schema::of_input::<TargetRequest>());
    target.insert(
        "description".to_owned(),
        json!(
            "Where the fault goes. Every field narrows, and chaos_targets lists what there is. Network faults need \
             interface, peers or a unit; link_down needs interface. service_stop and service_restart need \
             unit. pause, limits, connect_error, file_error and socket_error need unit, cgroup or processes. process faults and \
             mcp_error need unit, cgroup, exe, command, below, container or pid, and take share and seed. port_in_use needs \
             local_port. A refusal says which fields its type takes."
        ),
    );
    Value::Object(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::parameter::Shape;

    #[test]
    fn every_parameter_has_a_sentence_and_every_number_bounds() {
        for (kind, parameter) in
            FAULT_TYPES.iter().flat_map(|kind| kind.parameters().iter().map(move |it| (kind, it)))
        {
            let what = format!("{} {}", kind.name(), parameter.name);
            assert!(parameter.sentence.ends_with('.'), "{what}: {}", parameter.sentence);
            if let Shape::Number(bounds) = &parameter.shape {
                assert!(bounds.least.is_some() && bounds.most.is_some(), "{what}: {bounds:?}");
            }
        }
    }

    #[test]
    fn the_short_form_has_every_field_by_its_type_alone() {
        let (full, short) = (of_fault(), of_fault_in_short());
        let names = |it: &Value| it.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&full), names(&short));
        assert_eq!(short["target"], json!({"type": "object"}));
    }
}
