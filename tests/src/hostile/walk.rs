//! From the schema of a tool's input to documents that are right but for one place, in which something else can be said.

use std::net::Ipv4Addr;
use std::rc::Rc;

use chaos_daemon::spec::{FAULT_TYPES, FaultType};
use serde_json::{Map, Value, json};

use super::values::{Hostile, Place};
use crate::kinds;
use crate::kinds::aims::{Aims, NOBODYS_UNIT};

/// Stands in a document where something else is said.
const HERE: &str = "@here@";

/// A place in the input of a tool.
#[derive(Debug)]
pub(super) struct Spot {
    /// The names on the way to it.
    pub(super) path: String,
    takes_text: bool,
    takes_numbers: bool,
    /// Whole inputs with this place open, of each of which something differs on the way to it.
    documents: Vec<Value>,
}

impl Spot {
    fn new(path: String, schema: &Value, documents: Vec<Value>) -> Self {
        let types = types(schema);
        let takes = |wanted: &[&str]| types.is_empty() || types.iter().any(|kind| wanted.contains(kind));
        Self { path, takes_text: takes(&["string"]), takes_numbers: takes(&["number", "integer"]), documents }
    }

    /// Whether a line of the table is said here.
    pub(super) fn takes(&self, value: &Hostile) -> bool {
        match value.place {
            Place::Any | Place::Large => true,
            Place::Text => self.takes_text,
            Place::Number => self.takes_numbers,
        }
    }

    /// The arguments of a call with this value here; with another number, in another document.
    pub(super) fn arguments(&self, value: &[u8], number: usize) -> Vec<u8> {
        let document = &self.documents[number % self.documents.len()];
        splice(&document.to_string(), value)
    }
}

/// Writes bytes where a text stands open.
fn splice(text: &str, bytes: &[u8]) -> Vec<u8> {
    let (before, after) = text.split_once(&format!("\"{HERE}\"")).unwrap_or((text, ""));
    [before.as_bytes(), bytes, after.as_bytes()].concat()
}

/// Every place of a tool's input. Of tools that take a fault, each is open in the faults of every type that takes it.
pub(super) fn spots(tool: &str, schema: &Value, known: &Known) -> Vec<Spot> {
    let mut spots = Vec::new();
    let properties = &schema["properties"];
    match properties["fault_type"].is_object() {
        true => of_faults(schema, known, &mut spots),
        false => walk("", schema, &whole(), &mut spots),
    }
    if let Some(right) = right(tool) {
        for document in spots.iter_mut().flat_map(|spot| &mut spot.documents) {
            *document = lay_over(right.clone(), document);
        }
    }
    if properties["arguments"]["type"] == "array" {
        spots.extend(of_probes());
    }
    spots
}

/// What is right of the input of a tool, where its schema alone does not say it. Of one that is new nothing has to be.
fn right(tool: &str) -> Option<Value> {
    let name = json!({"experiment_name": DOCUMENT});
    match tool {
        "chaos_register_experiment" => Some(document(DOCUMENT, 10)),
        "chaos_plan_experiment" => Some(json!({"document": document(DOCUMENT, 10)})),
        "chaos_run_experiment" => Some(json!({"experiment_name": DOCUMENT, "dry_run": true})),
        "chaos_describe_experiment" => Some(name),
        "chaos_advise" => Some(json!({"window_seconds": 1, "limit": 1})),
        "chaos_search" => Some(json!({"action": "list"})),
        "chaos_schedule" => Some(json!({"action": "set", "name": "hostile", "experiment": DOCUMENT,
            "cron": "0 10 * * 1", "paused": true})),
        _ => None,
    }
}

/// The name of a document that is registered before anything is said.
pub(super) const DOCUMENT: &str = "flood";

/// A document that is taken, of about so many bytes.
pub(super) fn document(title: &str, bytes: usize) -> Value {
    json!({"title": title, "description": "x".repeat(bytes),
        "steady-state-hypothesis": {"title": "t", "probes": [{"type": "probe", "name": "p", "tolerance": 0,
            "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:9"]}}]},
        "method": [{"type": "action", "name": "a", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "timeout", "--interface": "lo", "--cidr": "127.9.9.9", "--for": "1s"}}}]})
}

/// What is there for faults to be aimed at.
#[derive(Debug)]
pub(super) struct Known {
    /// A control group of the test's.
    pub(super) group: String,
    /// A process of the test's.
    pub(super) process: u32,
    /// A folder of a stranger's.
    pub(super) own: String,
}

impl Known {
    /// The process is no proxy, and nobody serves the ports.
    fn aims(&self) -> Aims {
        Aims {
            netns: None,
            peer: "10.77.9.9",
            server: (Ipv4Addr::LOCALHOST, 4749).into(),
            netns_of_server: None,
            port: 4748,
            unit: NOBODYS_UNIT,
            group: self.group.clone(),
            process: self.process.cast_signed(),
            proxy: self.process.cast_signed(),
            file: self.own.clone().into(),
            folder: self.own.clone().into(),
        }
    }
}

/// Makes a whole input of what is said in one place of it.
type Wrap = Rc<dyn Fn(Value) -> Value>;

/// Of what is an input by itself.
fn whole() -> Wrap {
    Rc::new(|value| value)
}

/// The places of a schema; `wrap` makes a whole input of what is said instead of all of it.
fn walk(path: &str, schema: &Value, wrap: &Wrap, spots: &mut Vec<Spot>) {
    if !path.is_empty() {
        spots.push(Spot::new(path.to_owned(), schema, vec![wrap(json!(HERE))]));
    }
    for branch in branches(schema) {
        walk_below(path, branch, wrap, spots);
    }
    walk_below(path, schema, wrap, spots);
}

fn walk_below(path: &str, schema: &Value, wrap: &Wrap, spots: &mut Vec<Spot>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let (wrap, whole, name) = (Rc::clone(wrap), sample(schema), name.clone());
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let wrap: Wrap = Rc::new(move |value| {
            let mut whole = if whole.is_object() { whole.clone() } else { json!({}) };
            whole[&name] = value;
            wrap(whole)
        });
        walk(&below, inner, &wrap, spots);
    }
    if let Some(items) = schema.get("items") {
        let outer = Rc::clone(wrap);
        let wrap: Wrap = Rc::new(move |value| outer(json!([value])));
        walk(&format!("{path}[]"), items, &wrap, spots);
    }
}

fn branches(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten()
}

/// Every type that a schema names; none is any.
fn types(schema: &Value) -> Vec<&str> {
    let own = schema["type"].as_str().or(schema["enum"][0].as_str().map(|_| "string"));
    own.into_iter().chain(branches(schema).flat_map(types)).collect()
}

/// The least that fits a schema, as far as it says so.
pub(super) fn sample(schema: &Value) -> Value {
    let said = ["const", "default"].into_iter().find_map(|word| schema.get(word));
    if let Some(value) = said.or_else(|| schema["enum"].get(0)) {
        return value.clone();
    }
    if let Some(branch) = branches(schema).next() {
        return sample(branch);
    }
    match schema["type"].as_str() {
        Some("object") => {
            let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let member = |name: &str| (name.to_owned(), sample(&schema["properties"][name]));
            Value::Object(names.map(member).collect::<Map<_, _>>())
        }
        Some("array") if schema["minItems"].as_u64() > Some(0) => json!([sample(&schema["items"])]),
        Some("array") => json!([]),
        Some("number" | "integer") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(false),
        _ => json!(match schema["pattern"].as_str() {
            Some(pattern) if pattern.contains("chaosctl") => "chaosctl",
            Some("^/") => "/nowhere",
            _ => "hostile",
        }),
    }
}

/// Of probes, the words after each kind.
fn of_probes() -> Vec<Spot> {
    let open = |name: &str, words: &[&str]| {
        let documents = chaos_daemon::probe::KINDS.iter().map(|kind| {
            let all: Vec<_> = std::iter::once(kind).chain(words).collect();
            json!({"arguments": all})
        });
        Spot::new(format!("arguments[{name}]"), &json!({}), documents.collect())
    };
    vec![open("first", &[HERE]), open("second", &["127.0.0.1:9", HERE]), open("option", &["--timeout", HERE])]
}

fn of_faults(schema: &Value, known: &Known, spots: &mut Vec<Spot>) {
    let mut plain = Vec::new();
    walk("", schema, &whole(), &mut plain);
    for mut spot in plain {
        let kinds = FAULT_TYPES.iter().copied().filter(|kind| takes(*kind, &spot.path));
        let documents: Vec<_> = kinds.map(|kind| lay_over(fault(kind, known), &spot.documents[0])).collect();
        if !documents.is_empty() {
            spot.documents = documents;
        }
        spots.push(spot);
    }
}

/// Whether faults of a type take a field.
fn takes(kind: FaultType, path: &str) -> bool {
    let Some(parameter) = path.strip_prefix("params.") else { return true };
    let name = parameter.split(['.', '[']).next().unwrap_or(parameter);
    kind.parameters().iter().any(|parameter| parameter.name == name)
}

/// What is open in `with`, and what leads to it, laid over what is right: but for names and what says which fault it is.
fn lay_over(mut whole: Value, with: &Value) -> Value {
    if let (Value::Array(whole), Value::Array(with)) = (&mut whole, with) {
        let first = whole.first_mut().zip(with.first());
        if let Some((whole, with)) = first.filter(|(whole, with)| whole.is_object() && with.is_object()) {
            *whole = lay_over(whole.take(), with);
        }
    }
    if let (Value::Object(whole), Value::Object(with)) = (&mut whole, with) {
        for (name, value) in with {
            let is_open = value.to_string().contains(HERE);
            let old = whole.get(name).cloned();
            match (is_open, old) {
                (true, Some(old)) if goes_on(&old, value) => {
                    whole.insert(name.clone(), lay_over(old, value));
                }
                (true, _) | (false, None) => {
                    whole.insert(name.clone(), value.clone());
                }
                (false, Some(_)) => {}
            }
        }
    }
    whole
}

/// Whether what is open is further in.
fn goes_on(old: &Value, new: &Value) -> bool {
    let first = |list: &Value| list.get(0).is_some_and(Value::is_object);
    (old.is_object() && new.is_object()) || (first(old) && first(new))
}

/// A fault of each type that is right, and hurts nobody: whoever it is aimed at is the test's.
pub(super) fn fault(kind: FaultType, known: &Known) -> Value {
    let (target, params) = (kinds::of(kind).harmless)(&known.aims());
    json!({"fault_name": "hostile", "fault_type": kind.name(), "probability": 1, "duration_seconds": 1,
        "target": target, "params": params})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(schema: &Value) -> Vec<String> {
        let known = Known { group: "g".into(), process: 1, own: "/o".into() };
        spots("new", schema, &known).into_iter().map(|spot| spot.path).collect()
    }

    #[test]
    fn every_place_of_a_schema_is_open_once_also_in_lists_and_in_each_of_several_forms() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string"},
            "b": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "number"}}}},
            "d": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"e": {}}}]},
        }});
        assert_eq!(paths(&schema), ["a", "b", "b[]", "b[].c", "d", "d.e"]);
    }

    #[test]
    fn what_is_said_stands_in_a_document_that_is_right_otherwise() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"enum": ["x"]}, "b": {"type": "object", "properties": {"c": {"type": "string"}}}}});
        let mut spots = Vec::new();
        walk("", &schema, &whole(), &mut spots);
        let last = spots.pop().unwrap();
        assert_eq!(last.path, "b.c");
        assert_eq!(last.arguments(b"NaN", 0), br#"{"a":"x","b":{"c":NaN}}"#);
    }

    #[test]
    fn what_is_open_is_laid_over_what_is_right_also_in_the_first_of_a_list() {
        let right = json!({"a": [{"b": 1, "c": 2}], "d": 3});
        let open = json!({"a": [{"c": HERE, "e": 4}], "d": 5});
        assert_eq!(lay_over(right, &open), json!({"a": [{"b": 1, "c": HERE, "e": 4}], "d": 3}));
    }

    #[test]
    fn a_parameter_is_open_in_faults_of_the_types_that_take_it() {
        assert!(takes(FaultType::Latency, "params.delay_ms") && !takes(FaultType::Pause, "params.delay_ms"));
        assert!(takes(FaultType::PacketLoss, "params.four_state.p13"));
        assert!(FAULT_TYPES.iter().all(|kind| takes(*kind, "target.netns")));
    }
}
