//! From the text of a document, JSON or YAML, to its value; and back from a path in it to the line where it stands.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

use crate::spec::{Mistake, SpecError};

/// The largest document, in bytes.
pub const LARGEST_DOCUMENT: usize = 1024 * 1024;

/// How deep a document may be nested: its reader goes down with it.
const DEEPEST: usize = 32;
/// The most parts of a document that aliases may repeat.
const MOST_REPEATED: usize = 10_000;

/// Where something stands: both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: u64,
    /// Column, in characters.
    pub column: u64,
}

/// A document and where its parts stand.
#[derive(Debug, Clone)]
pub struct Source {
    document: Map<String, Value>,
    positions: BTreeMap<String, Position>,
    /// Words that mean something else to another reader of YAML.
    ambiguous: Vec<SpecError>,
}

/// Why a text is no document, and where, if that is known.
#[derive(Debug)]
pub struct Unreadable {
    /// Why; of no field.
    pub error: SpecError,
    /// Where.
    pub position: Option<Position>,
}

impl Source {
    /// Reads `text`: JSON when it begins with a brace, as every JSON document does, and YAML otherwise.
    ///
    /// # Errors
    /// Says with line and column why it is neither; the field is empty then.
    pub fn read(text: &str) -> Result<Self, SpecError> {
        let source = Self::read_whole(text).map_err(|unreadable| unreadable.error)?;
        match source.ambiguous.first() {
            None => Ok(source),
            Some(SpecError { field, problem, code }) => {
                let line = source.position(field).map_or(String::new(), |at| format!("line {}: ", at.line));
                Err(SpecError::new("", format!("{line}{field}: {problem}")).code(*code))
            }
        }
    }

    /// Reads `text` likewise, also with words in it that mean different things to different readers of YAML: see
    /// [`Source::ambiguous`].
    ///
    /// # Errors
    /// Says why it is no document.
    pub fn read_whole(text: &str) -> Result<Self, Unreadable> {
        let unreadable = |problem: String, position| Unreadable {
            error: SpecError::new("", problem).code(Mistake::Syntax),
            position,
        };
        if text.len() > LARGEST_DOCUMENT {
            return Err(unreadable(format!("too long: give at most {} KiB", LARGEST_DOCUMENT >> 10), None));
        }
        let mut options = serde_saphyr::Options::default();
        options.alias_limits.max_total_replayed_events = MOST_REPEATED;
        // What a tag stands for is known to nobody here, so that the text alone would mean something else.
        options.reject_unsupported_tags = true;
        options.budget.iter_mut().for_each(|budget| budget.max_depth = DEEPEST);
        let node = serde_saphyr::from_str_with_options::<Spanned<Node>>(text, options);
        let is_json = text.trim_start().starts_with('{');
        let json: Option<Map<String, Value>> = match is_json.then(|| serde_json::from_str(text)).transpose() {
            Ok(json) => json,
            Err(error) => {
                let at = Position { line: number(error.line()), column: number(error.column()) };
                return Err(unreadable(format!("not JSON: {error}"), Some(at)));
            }
        };
        // JSON is YAML as well, but that it lets a key be repeated.
        let node = node.map_err(|error| {
            let at = error.location().map(|at| Position { line: at.line(), column: at.column() });
            let form = if is_json { "JSON" } else { "YAML" };
            unreadable(format!("not {form}: {}", in_words(&error)), at)
        })?;
        let positions = positions(&node);
        if let Some(document) = json {
            return Ok(Self { document, positions, ambiguous: Vec::new() });
        }
        let mut ambiguous = Vec::new();
        let document = node.value.into_value("", text, &node.referenced, &mut ambiguous);
        match document {
            Value::Object(document) => Ok(Self { document, positions, ambiguous }),
            _ => Err(unreadable("an experiment is a mapping that begins with a title".to_owned(), None)),
        }
    }

    /// What stands there that means different things to different readers of YAML.
    pub fn ambiguous(&self) -> &[SpecError] {
        &self.ambiguous
    }

    /// The document.
    pub fn document(&self) -> &Map<String, Value> {
        &self.document
    }

    /// Where the value at `path` stands; for one that is missing, where it ought to.
    pub fn position(&self, path: &str) -> Option<Position> {
        let mut path = path;
        loop {
            if let Some(position) = self.positions.get(path) {
                return Some(*position);
            }
            path = match path.rfind(['.', '[']) {
                Some(end) => &path[..end],
                None if path.is_empty() => return None,
                None => "",
            };
        }
    }

    /// `error` with its line and column before the path, after `name`, as editors understand them.
    pub fn place(&self, name: &str, error: SpecError) -> SpecError {
        let place = self.position(&error.field).map(|at| format!(":{}:{}", at.line, at.column));
        let place = format!("{name}{}", place.unwrap_or_default());
        match error.field.is_empty() {
            true => SpecError::new(place, error.problem),
            false => SpecError::new(format!("{place}: {}", error.field), error.problem),
        }
    }
}

/// A value each part of which knows where it stands.
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Mapping(Vec<(String, Spanned<Node>)>),
}

fn positions(node: &Spanned<Node>) -> BTreeMap<String, Position> {
    let mut found = BTreeMap::new();
    node.value.note(String::new(), &node.referenced, &mut found);
    found
}

impl Node {
    fn note(&self, path: String, place: &serde_saphyr::Location, found: &mut BTreeMap<String, Position>) {
        found.insert(path.clone(), Position { line: place.line(), column: place.column() });
        match self {
            Self::Scalar(_) => {}
            Self::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.value.note(format!("{path}[{index}]"), &item.referenced, found);
                }
            }
            Self::Mapping(entries) => {
                for (key, value) in entries {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    value.value.note(path, &value.referenced, found);
                }
            }
        }
    }

    /// The value. What means different things to different readers of YAML is added to `ambiguous`.
    fn into_value(
        self,
        path: &str,
        text: &str,
        place: &serde_saphyr::Location,
        ambiguous: &mut Vec<SpecError>,
    ) -> Value {
        let mut below = |path: String, node: Spanned<Self>| {
            node.value.into_value(&path, text, &node.referenced, ambiguous)
        };
        match self {
            Self::Scalar(value) => {
                if let Some(word) = plain(text, place).filter(|word| is_ambiguous(word)) {
                    let problem = format!(
                        "{word} is not the same to every YAML program: quote it if it is text, or write true, \
                         false or a number in decimal"
                    );
                    ambiguous.push(SpecError::new(path, problem).code(Mistake::Syntax));
                }
                value
            }
            Self::List(items) => {
                let items = items.into_iter().enumerate();
                items.map(|(index, item)| below(format!("{path}[{index}]"), item)).collect()
            }
            Self::Mapping(entries) => {
                let entries = entries.into_iter().map(|(key, node)| {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    (key, below(path, node))
                });
                entries.collect()
            }
        }
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// What the reader says of a text that it cannot read, without its advice to who writes programs.
fn in_words(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.replace(", set DuplicateKeyPolicy in Options if acceptable", "");
    match text.split_once("use from_") {
        Some((what, _)) => format!("{what}give one document alone"),
        None => text,
    }
}

/// The word of a scalar without quotes, as it stands in the text.
fn plain<'a>(text: &'a str, place: &serde_saphyr::Location) -> Option<&'a str> {
    let start = usize::try_from(place.span().byte_offset()?).ok()?;
    let rest = text.get(start..)?;
    let end = rest.find(|c: char| c.is_whitespace() || ",]}#".contains(c)).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// YAML 1.1, which Chaos Toolkit reads, takes these for a boolean or an octal number, and YAML 1.2 does not.
fn is_ambiguous(word: &str) -> bool {
    let octal = word.len() > 1 && word.starts_with('0') && word.bytes().all(|byte| byte.is_ascii_digit());
    let boolean = ["yes", "no", "on", "off"].iter().any(|other| word.eq_ignore_ascii_case(other));
    octal || boolean
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number has to be finite"))?;
        Ok(Node::Scalar(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut mapping = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            mapping.push(entry);
        }
        Ok(Node::Mapping(mapping))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const YAML: &str =
        "title: a\n# a comment\nmethod:\n  - name: cut\n    pauses: {after: 1.5}\n    on: 'yes'\n";

    fn position(text: &str, path: &str) -> (u64, u64) {
        let at = Source::read(text).unwrap().position(path).unwrap();
        (at.line, at.column)
    }

    #[test]
    fn yaml_and_json_mean_the_same_and_know_their_lines() {
        let json = "{\"title\": \"a\",\n\t\"method\": [{\"name\": \"cut\",\n\t\t\"pauses\": {\"after\": 1.5}, \"on\": \"yes\"}]}";
        let value = json!({"title": "a", "method": [{"name": "cut", "pauses": {"after": 1.5}, "on": "yes"}]});
        for text in [YAML, json] {
            assert_eq!(Value::Object(Source::read(text).unwrap().document().clone()), value);
        }
        assert_eq!(position(YAML, "method[0].pauses.after"), (5, 21));
        assert_eq!(position(json, "method[0].pauses.after"), (3, 23));
        // What is missing is looked for where it ought to stand.
        assert_eq!(position(YAML, "method[0].provider.type"), (4, 5));
        assert_eq!(position(YAML, "description"), (1, 1));
    }

    #[test]
    fn every_json_can_be_read() {
        let json = "{\"a\": \"\\ud83d\\ude00 \\/ \\u0000 \\\" # : - \u{e9}\", \"b\":[1e3,-0.5E-2,{\"c\":null}],\r\n\t\"\":{},\"d\" :[ ]}";
        let read = Source::read(json).map(|source| Value::Object(source.document));
        assert_eq!(read.unwrap(), serde_json::from_str::<Value>(json).unwrap());
    }

    #[test]
    fn an_error_names_file_line_column_path_and_problem() {
        let source = Source::read(YAML).unwrap();
        let error = source.place("slow.yaml", SpecError::new("method[0].name", "missing: name it"));
        assert_eq!(error.to_string(), "slow.yaml:4:11: method[0].name: missing: name it");
    }

    #[test]
    fn anchors_and_merges_are_followed() {
        let text = "a: &x {type: probe, name: one}\nb:\n  <<: *x\n  name: two\nc: *x\n";
        let document = Source::read(text).unwrap().document().clone();
        assert_eq!(document["b"], json!({"type": "probe", "name": "two"}));
        assert_eq!(document["c"], document["a"]);
    }

    #[test]
    fn what_is_no_document_says_where() {
        for (text, problem) in [
            ("{\"title\": \"a\",\n \"method\": }", "at line 2 column 12"),
            ("{\"title\": \"a\",\n \"title\": \"b\"}", "line 2"),
            ("{\"title\": \"a\",\n \"title\": \"b\"}", "not JSON"),
            ("title: a\nmethod: [", "not YAML: "),
            ("title: a\ntitle: b\n", "line 2"),
            ("- a\n", "a mapping"),
            ("", "a mapping"),
            ("title: a\nretries: on\n", "line 2: retries: on is not the same"),
            ("title: a\nlist: [1, 017]\n", "list[1]: 017"),
            ("title: .inf\n", "not YAML"),
            ("title: a\nx: !ENV \"abc\"\n", "line 2"),
            ("title: a\nx: !ENV \"abc\"\n", "!ENV"),
            ("title: a\nx: [1, !foo 2]\n", "!foo"),
            ("title: a\nx: !foo {y: 1}\n", "!foo"),
            ("title: a\nx: !!python/object:os.system {}\n", "python/object"),
        ] {
            let error = Source::read(text).expect_err(text).to_string();
            assert!(error.contains(problem), "{text:?}: {error}");
        }
        let bomb = format!(
            "a0: &a0 [x]\n{}",
            (1..40).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1)).collect::<String>()
        );
        assert!(Source::read(&bomb).is_err(), "aliases that double forty times were followed");
    }
}
