//! The parameters of each type of fault, read off the structs that parse them. Command line, JSON Schema, bounds, errors and the
//! tables of the documents come from here, so that a parameter is described in one place: its field.
//!
//! The unit of a parameter is the end of its name: `delay_ms` is in milliseconds. See [`Unit`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::value::Error as Noted;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::{Map, Value, json};

use super::units::SpecError;

/// One parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// The name of its field.
    pub name: String,
    /// What it may be.
    pub shape: Shape,
    /// Whether a fault cannot be described without it.
    pub required: bool,
    /// What it is when nobody says.
    pub default: Option<Value>,
    /// What it means, in a sentence or two.
    pub sentence: String,
    /// The resources that take it, of `resource_exhaustion`; none is all of them.
    pub resources: Vec<&'static str>,
}

/// What a parameter may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A number.
    Number(Bounds),
    /// A number without a fraction.
    Whole(Bounds),
    /// One of these words, or any where there are none.
    Text(Vec<String>),
    /// Text of many lines, which people have in a file; at most so many bytes.
    Document(u64),
    /// Yes or no.
    Flag,
    /// Some of these words, or of any where there are none; at most so many.
    List(Vec<String>, Option<u64>),
    /// Numbers that belong together.
    Model(Vec<Parameter>),
}

/// The least and the most that a number may be, as JSON has them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bounds {
    /// The least.
    pub least: Option<Value>,
    /// The most.
    pub most: Option<Value>,
}

/// What a number is a number of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Behind a number.
    pub symbol: &'static str,
    /// In a sentence.
    pub plural: &'static str,
}

/// The ends of names, each with its unit.
const UNITS: &[(&str, Unit)] = &[
    ("_ms", Unit { symbol: "ms", plural: "milliseconds" }),
    ("_seconds", Unit { symbol: "s", plural: "seconds" }),
    ("percent", Unit { symbol: "%", plural: "percent" }),
    ("_mb", Unit { symbol: "MiB", plural: "MiB" }),
    ("megabytes", Unit { symbol: "MiB", plural: "MiB" }),
    ("_kbit", Unit { symbol: "kbit/s", plural: "kbit/s" }),
    ("bytes_per_second", Unit { symbol: "B/s", plural: "bytes per second" }),
    ("_bps", Unit { symbol: "B/s", plural: "bytes per second" }),
    ("_iops", Unit { symbol: "per second", plural: "per second" }),
];

impl Unit {
    /// The unit of the parameter of this name; `None` for one that only counts.
    pub fn of(name: &str) -> Option<Self> {
        UNITS.iter().find(|(end, _)| name.ends_with(end)).map(|(_, unit)| *unit)
    }

    fn is_time(self) -> bool {
        matches!(self.symbol, "ms" | "s")
    }
}

impl Parameter {
    /// Whether it is a length of time, which people write with a unit: not one that may be negative.
    pub fn is_duration(&self) -> bool {
        let Shape::Number(Bounds { least, .. }) = &self.shape else { return false };
        let is_length = least.as_ref().and_then(Value::as_f64).is_some_and(|least| least >= 0.0);
        is_length && Unit::of(&self.name).is_some_and(Unit::is_time)
    }

    /// The option of `chaosctl` that sets it, without dashes before it: of a length of time the unit is in the value, and of prefixes
    /// each has an option.
    pub fn option(&self) -> String {
        let name = match &*self.name {
            "cidrs" => "cidr",
            name if self.is_duration() => name.trim_end_matches("_ms").trim_end_matches("_seconds"),
            name => name,
        };
        name.replace('_', "-")
    }

    /// Its name, with what may be given and what is taken when nothing is: `delay_ms (0.001 to 60000; 100)`.
    pub fn line(&self) -> String {
        let notes: Vec<_> = self.range().into_iter().chain(self.default.as_ref().map(plain)).collect();
        match notes.is_empty() {
            true => self.name.clone(),
            false => format!("{} ({})", self.name, notes.join("; ")),
        }
    }

    /// What may be given, where there are bounds: `0.001 to 60000`.
    pub fn range(&self) -> Option<String> {
        match &self.shape {
            Shape::Number(bounds) | Shape::Whole(bounds) => bounds.words(),
            Shape::Text(words) | Shape::List(words, _) if !words.is_empty() => Some(words.join(", ")),
            Shape::Model(parts) => {
                let parts: Vec<_> = parts.iter().map(Parameter::line).collect();
                Some(parts.join(", "))
            }
            Shape::Document(most) => Some(format!("text of up to {most} bytes")),
            Shape::Text(_) | Shape::List(..) | Shape::Flag => None,
        }
    }

    /// Refuses a value that it cannot be. `at` is where it was given.
    fn check(&self, at: &str, value: &Value) -> Result<(), SpecError> {
        let wanted = |what: &str| Err(SpecError::new(at, format!("{what} is needed, not {value}")));
        match &self.shape {
            Shape::Number(bounds) if value.is_number() => bounds.check(&self.name, at, value),
            Shape::Whole(bounds) if value.is_u64() => bounds.check(&self.name, at, value),
            // A number below 0 or with a fraction is out of bounds for people.
            Shape::Number(_) => wanted("a number"),
            Shape::Whole(_) => wanted("a whole number from 0 on"),
            Shape::Flag if value.is_boolean() => Ok(()),
            Shape::Flag => wanted("true or false"),
            Shape::Text(_) if value.is_string() => Ok(()),
            Shape::Text(_) => wanted("text"),
            Shape::Document(most) => match value.as_str().map(str::len) {
                Some(length) if length as u64 <= *most => Ok(()),
                Some(length) => {
                    Err(SpecError::new(at, format!("{length} bytes are too long: give up to {most}")))
                }
                None => Err(SpecError::new(at, "text is needed")),
            },
            Shape::List(..) if value.as_array().is_some_and(|all| all.iter().all(Value::is_string)) => Ok(()),
            Shape::List(..) => wanted("a list of texts"),
            Shape::Model(parts) => match value {
                Value::Object(given) => check_all(parts, at, given),
                _ => wanted("an object"),
            },
        }
    }
}

impl Bounds {
    fn words(&self) -> Option<String> {
        match (&self.least, &self.most) {
            (Some(least), Some(most)) => Some(format!("{} to {}", plain(least), plain(most))),
            // What only counts is no less than nothing.
            (Some(least), None) if least == 0 => None,
            (Some(least), None) => Some(format!("{} or more", plain(least))),
            (None, Some(most)) => Some(format!("up to {}", plain(most))),
            (None, None) => None,
        }
    }

    fn check(&self, name: &str, at: &str, value: &Value) -> Result<(), SpecError> {
        let number = value.as_f64().unwrap_or(f64::NAN);
        let bound = |bound: &Option<Value>, none| bound.as_ref().and_then(Value::as_f64).unwrap_or(none);
        let (least, most) = (bound(&self.least, f64::NEG_INFINITY), bound(&self.most, f64::INFINITY));
        if (least..=most).contains(&number) {
            return Ok(());
        }
        let (symbol, plural) = match Unit::of(name) {
            Some(Unit { symbol, plural }) => (format!(" {symbol}"), format!(" {plural}")),
            None => (String::new(), String::new()),
        };
        let range = self.words().unwrap_or_default();
        let problem = format!("{}{symbol} is out of bounds: give {range}{plural}", plain(value));
        Err(SpecError::new(at, problem))
    }
}

/// A value for people: a number without a fraction that is none, a text without quotes.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string())
        }
        Value::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Refuses parameters that `who` does not take, that lack one, or that are out of bounds.
///
/// # Errors
/// Names the parameter.
pub(super) fn check(who: &str, takes: &[Parameter], given: &Map<String, Value>) -> Result<(), SpecError> {
    if let Some(name) = given.keys().find(|name| !takes.iter().any(|known| known.name == **name)) {
        let takes: Vec<_> = takes.iter().map(Parameter::line).collect();
        let takes = if takes.is_empty() { "none".to_owned() } else { takes.join("; ") };
        return Err(SpecError::new(format!("params.{name}"), format!("is not known: {who} takes {takes}")));
    }
    check_all(takes, "params", given)
}

fn check_all(takes: &[Parameter], at: &str, given: &Map<String, Value>) -> Result<(), SpecError> {
    for parameter in takes {
        let at = format!("{at}.{}", parameter.name);
        match given.get(&parameter.name) {
            // As if it were not there.
            Some(Value::Null) if !parameter.required => {}
            Some(value) => parameter.check(&at, value)?,
            None if parameter.required => {
                return Err(SpecError::new(at, format!("missing: {}", parameter.sentence)));
            }
            None => {}
        }
    }
    match given.keys().find(|name| !takes.iter().any(|known| known.name == **name)) {
        None => Ok(()),
        Some(name) => {
            let takes: Vec<_> = takes.iter().map(|known| known.name.as_str()).collect();
            Err(SpecError::new(format!("{at}.{name}"), format!("is not known: give {}", takes.join(", "))))
        }
    }
}

/// One parameter for each name, of those that several take. Who takes what is said where it is not the same for all.
pub fn merged<'a>(all: impl Iterator<Item = (&'a str, &'a Parameter)>) -> Vec<Parameter> {
    let mut names: Vec<&Parameter> = Vec::new();
    let mut takers: BTreeMap<&str, Vec<(&str, &Parameter)>> = BTreeMap::new();
    for (who, parameter) in all {
        let known = takers.entry(&parameter.name).or_default();
        if known.is_empty() {
            names.push(parameter);
        }
        known.push((who, parameter));
    }
    names.into_iter().filter_map(|first| Some(merge(first, &takers.remove(first.name.as_str())?))).collect()
}

/// What all of these say, of whom `first` is the first.
fn merge(first: &Parameter, takers: &[(&str, &Parameter)]) -> Parameter {
    let mut told: Vec<(&Parameter, Vec<&str>)> = Vec::new();
    for (who, parameter) in takers {
        let says_the_same = |known: &Parameter| {
            (&known.sentence, &known.default) == (&parameter.sentence, &parameter.default)
        };
        match told.iter_mut().find(|(known, _)| says_the_same(known)) {
            Some((_, alike)) => alike.push(who),
            None => told.push((parameter, vec![who])),
        }
    }
    let same_default = told.len() == 1;
    let default = |parameter: &Parameter| match &parameter.default {
        Some(value) if !same_default => format!(" Default: {}.", plain(value)),
        _ => String::new(),
    };
    let sentences: Vec<_> = told
        .iter()
        .map(|(parameter, who)| format!("{}: {}{}", who.join(", "), parameter.sentence, default(parameter)))
        .collect();
    Parameter {
        name: first.name.clone(),
        shape: takers.iter().skip(1).fold(first.shape.clone(), |shape, (_, other)| shape.or(&other.shape)),
        required: false,
        default: first.default.clone().filter(|_| same_default),
        sentence: sentences.join(" "),
        resources: Vec::new(),
    }
}

impl Parameter {
    /// As a property of a JSON Schema.
    pub fn schema(&self) -> Value {
        let mut schema = Map::new();
        let mut say = |key: &str, value: Value| drop(schema.insert(key.to_owned(), value));
        let word = |words: &[String]| match words {
            [] => json!({"type": "string"}),
            words => json!({"type": "string", "enum": words}),
        };
        let one_of = match &self.shape {
            Shape::Text(words) | Shape::List(words, _) => word(words),
            _ => Value::Null,
        };
        match &self.shape {
            Shape::Number(bounds) | Shape::Whole(bounds) => {
                say("type", json!(if matches!(self.shape, Shape::Whole(_)) { "integer" } else { "number" }));
                bounds.least.iter().for_each(|least| say("minimum", least.clone()));
                bounds.most.iter().for_each(|most| say("maximum", most.clone()));
            }
            Shape::Text(_) => {
                for (key, value) in one_of.as_object().into_iter().flatten() {
                    say(key, value.clone());
                }
            }
            Shape::Document(most) => {
                say("type", json!("string"));
                say("maxLength", json!(most));
            }
            Shape::Flag => say("type", json!("boolean")),
            Shape::List(_, most) => {
                say("type", json!("array"));
                say("items", one_of);
                say("minItems", json!(1));
                most.iter().for_each(|most| say("maxItems", json!(most)));
            }
            Shape::Model(parts) => {
                let properties: Map<_, _> =
                    parts.iter().map(|part| (part.name.clone(), part.schema())).collect();
                let required: Vec<_> =
                    parts.iter().filter(|part| part.required).map(|part| &part.name).collect();
                say("type", json!("object"));
                say("properties", Value::Object(properties));
                say("required", json!(required));
                say("additionalProperties", json!(false));
            }
        }
        self.default.iter().for_each(|default| say("default", default.clone()));
        say("description", json!(self.sentence));
        Value::Object(schema)
    }
}

impl Shape {
    /// What either may be.
    fn or(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => Self::Number(one.or(other)),
            (Self::Whole(one), Self::Whole(other)) => Self::Whole(one.or(other)),
            (Self::Text(one), Self::Text(other)) => Self::Text(words_of_both(one, other)),
            (Self::List(one, most), Self::List(other, more)) => {
                Self::List(words_of_both(one, other), most.zip(*more).map(|(most, more)| most.max(more)))
            }
            (one, _) => one,
        }
    }
}

impl Bounds {
    fn or(self, other: &Self) -> Self {
        let outer = |one: Option<Value>, other: &Option<Value>, further: fn(f64, f64) -> bool| {
            let (one, other) = (one?, other.clone()?);
            let is_further = further(other.as_f64()?, one.as_f64()?);
            Some(if is_further { other } else { one })
        };
        Self {
            least: outer(self.least, &other.least, |other, one| other < one),
            most: outer(self.most, &other.most, |other, one| other > one),
        }
    }
}

/// No words are any.
fn words_of_both(one: Vec<String>, other: &[String]) -> Vec<String> {
    if one.is_empty() || other.is_empty() {
        return Vec::new();
    }
    let more: Vec<_> = other.iter().filter(|word| !one.contains(word)).cloned().collect();
    one.into_iter().chain(more).collect()
}

/// Those of the parameters that are the fields of `T`. They were checked.
///
/// # Errors
/// When a value is none that `T` can have.
pub(super) fn part<T: for<'de> Deserialize<'de>>(params: &Map<String, Value>) -> Result<T, SpecError> {
    // Nothing is as if it were not there.
    let given = params.iter().filter(|(_, value)| !value.is_null());
    let given = Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect());
    T::deserialize(given).map_err(|error| SpecError::new("params", error.to_string()))
}

/// The parameters that are the fields of `T`.
pub(super) fn fields_of<T: JsonSchema + for<'de> Deserialize<'de>>() -> Vec<Parameter> {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    read(declared::<T>(), &schema)
}

/// The fields of `T` in the order in which they are declared, as serde names them to a format. A struct within another has them as
/// `x-order` of its schema, which has no order.
pub(super) fn declared<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &[&str] = &[];
    // This format has nothing to read, and only takes note.
    let _: Result<T, Noted> = T::deserialize(Notes(&mut fields));
    fields
}

/// A format that takes note of the fields which are asked of it.
struct Notes<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Notes<'_> {
    type Error = Noted;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Noted> {
        Err(Noted::custom("nothing to read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Noted> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The parameters of these names, as a schema has them.
fn read(names: &[&str], schema: &Value) -> Vec<Parameter> {
    let required = |name: &str| {
        let all = schema["required"].as_array();
        all.into_iter().flatten().any(|required| required == name)
    };
    names
        .iter()
        .map(|name| {
            let property = &schema["properties"][name];
            Parameter {
                name: (*name).to_owned(),
                shape: shape(property),
                required: required(name),
                default: property.get("default").filter(|value| says_something(value)).cloned(),
                sentence: property["description"].as_str().unwrap_or_default().replace('\n', " "),
                resources: Vec::new(),
            }
        })
        .collect()
}

/// Whether a default is one for people: nothing and an empty list are what is left out.
fn says_something(default: &Value) -> bool {
    !default.is_null() && default.as_array().is_none_or(|all| !all.is_empty())
}

fn shape(property: &Value) -> Shape {
    let words = |of: &Value| {
        let listed = of["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let told = of["oneOf"].as_array().into_iter().flatten().filter_map(|one| one["const"].as_str());
        listed.chain(told).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    // What may be left out may be null, too.
    let mut either = property["anyOf"].as_array().into_iter().flatten().filter(|one| one["type"] != "null");
    match (either.next(), either.next()) {
        (Some(one), None) => return shape(one),
        // Whatever else it may be, people write it as text.
        (Some(_), Some(_)) => return Shape::Text(Vec::new()),
        (None, _) => {}
    }
    let kind = match &property["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| **kind != "null").unwrap_or(&Value::Null),
        one => one,
    };
    let bounds =
        || Bounds { least: property.get("minimum").cloned(), most: property.get("maximum").cloned() };
    match kind.as_str() {
        Some("number") => Shape::Number(bounds()),
        Some("integer") => Shape::Whole(bounds()),
        Some("boolean") => Shape::Flag,
        Some("array") => Shape::List(words(&property["items"]), property["maxItems"].as_u64()),
        Some("object") => {
            let order = property["x-order"].as_array().into_iter().flatten().filter_map(Value::as_str);
            Shape::Model(read(&order.collect::<Vec<_>>(), property))
        }
        _ => match property["maxLength"].as_u64() {
            Some(most) => Shape::Document(most),
            None => Shape::Text(words(property)),
        },
    }
}
