//! JSON schemas that every client understands: one flat 2020-12 schema per tool, without references, formats that are
//! Rust's own, or lists of types. What a list of tools has of an output is its outline; the whole is a resource.

use rmcp::model::JsonObject;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::{Map, Value, json};

/// The schema of a text.
pub(super) fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// The schema of an object that has these properties and no others.
pub(super) fn object(properties: Value, required: &[&str]) -> JsonObject {
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), json!(required));
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema
}

/// The schema of what `T` serializes to.
pub(super) fn of_output<T: JsonSchema>() -> JsonObject {
    flat::<T>(SchemaSettings::draft2020_12().for_serialize())
}

/// That schema without words: each field that is always there with its type, and nothing of what is in it. Every model reads every
/// list of tools, whichever tool it then calls.
pub(super) fn outline(schema: &JsonObject) -> JsonObject {
    let Some(Value::Object(all)) = schema.get("properties") else { return only_kind(schema) };
    let required: Vec<_> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let property = |(name, property): (&String, &Value)| {
        let mut short = property.as_object().map(only_kind).unwrap_or_default();
        // Of objects there is no more to say without saying what is in them.
        if let Some(Value::Object(items)) = property.get("items").filter(|items| items["type"] != "object") {
            short.insert("items".to_owned(), Value::Object(only_kind(items)));
        }
        (name.clone(), Value::Object(short))
    };
    let mut outline = JsonObject::new();
    outline.insert("type".to_owned(), json!("object"));
    outline.insert(
        "properties".to_owned(),
        all.iter().filter(|(name, _)| required.contains(&name.as_str())).map(property).collect(),
    );
    outline.insert("required".to_owned(), json!(required));
    outline
}

/// Of a value: which kind it is, or which kinds it may be.
fn only_kind(schema: &JsonObject) -> JsonObject {
    let kept = ["type", "enum", "anyOf"].into_iter();
    kept.filter_map(|word| Some((word.to_owned(), schema.get(word)?.clone()))).collect()
}

/// The same properties, each with the first sentence of what is said of it.
pub(super) fn in_a_sentence(mut schema: JsonObject) -> JsonObject {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        if let Some(Value::String(said)) = property.get_mut("description")
            && let Some(end) = end_of_sentence(said)
        {
            said.truncate(end);
        }
    }
    schema
}

/// Where the first sentence ends, if another follows: behind "e.g." none begins.
fn end_of_sentence(text: &str) -> Option<usize> {
    let ends = text.match_indices(". ").map(|(at, _)| at + 1);
    let mut ends = ends.filter(|end| text[end + 1..].starts_with(|next: char| next.is_ascii_uppercase()));
    ends.next()
}

/// What a property is, and what it is for, without what is in it.
pub(super) fn shallow(property: &mut Value) {
    if let Value::Object(property) = property {
        property.retain(|word, _| ["type", "description", "enum", "default"].contains(&word.as_str()));
    }
}

/// The schema of what `T` deserializes from.
pub(super) fn of_input<T: JsonSchema>() -> JsonObject {
    flat::<T>(SchemaSettings::draft2020_12())
}

fn flat<T: JsonSchema>(settings: SchemaSettings) -> JsonObject {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    match schema {
        Value::Object(object) => object,
        other => JsonObject::from_iter([("const".to_owned(), other)]),
    }
}

/// Removes what clients stumble over: `format: uint64` and the names of Rust types.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for annotation in ["format", "title"] {
                if object.get(annotation).is_some_and(Value::is_string) {
                    object.remove(annotation);
                }
            }
            object.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// Text or null, as the tool specification has it for `error`.
pub(super) fn text_or_null(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": "string"}, {"type": "null"}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_has_each_field_that_is_always_there_with_its_type_and_no_words() {
        let Value::Object(schema) = json!({"type": "object", "required": ["runs", "names", "error"], "properties": {
            "names": {"type": "array", "description": "All.", "items": {"type": "string", "description": "One."}},
            "error": {"description": "Why.", "anyOf": [{"type": "string"}, {"type": "null"}]},
            "note": {"type": "object", "description": "More.", "properties": {"a": {"type": "string"}}},
            "runs": {"type": "array", "description": "All.", "items": {"type": "object", "required": ["id"],
                "properties": {"id": {"type": "string", "description": "Which."}}}},
        }}) else {
            panic!("no object")
        };
        assert_eq!(
            Value::Object(outline(&schema)),
            json!({"type": "object", "required": ["runs", "names", "error"], "properties": {
                "error": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "names": {"type": "array", "items": {"type": "string"}},
                "runs": {"type": "array"},
            }})
        );
    }

    #[test]
    fn of_what_is_said_of_a_property_the_first_sentence_stays() {
        let Value::Object(schema) = json!({"properties": {
            "a": {"description": "Where it goes, e.g. eth0. Without one, everywhere."}, "b": {"description": "Which."},
        }}) else {
            panic!("no object")
        };
        let short = Value::Object(in_a_sentence(schema));
        assert_eq!(short["properties"]["a"]["description"], "Where it goes, e.g. eth0.");
        assert_eq!(short["properties"]["b"]["description"], "Which.");
    }
}
