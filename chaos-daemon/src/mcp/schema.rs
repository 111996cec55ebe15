//! JSON schemas that every client understands: one flat 2020-12 schema per tool, without references, formats that are
//! Rust's own, or lists of types.

use std::sync::Arc;

use rmcp::model::JsonObject;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::{Value, json};

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
pub(super) fn of_output<T: JsonSchema>() -> Arc<JsonObject> {
    Arc::new(flat::<T>(SchemaSettings::draft2020_12().for_serialize()))
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
