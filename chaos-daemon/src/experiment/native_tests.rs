//! The reader of documents, held against that of the command line: what is generated from the parameters of each fault means the same to
//! both, or is refused by both.

use serde_json::json;

use super::*;
use crate::cli;
use crate::experiment::source::Source;
use crate::spec::{FAULT_TYPES, Shape};

/// Both readers, and how often they agreed.
struct Readers {
    command_line: clap::Command,
    accepted: usize,
    refused: usize,
    decided: usize,
    differ: Vec<String>,
}

impl Readers {
    fn new() -> Self {
        Self { command_line: cli::parser(), accepted: 0, refused: 0, decided: 0, differ: Vec::new() }
    }

    /// Has both read this: the command line the words that Chaos Toolkit would make of it.
    fn compare(&mut self, arguments: &Value) {
        let words = flatten("", arguments.clone());
        let meant = words
            .map_err(|error| error.to_string())
            .and_then(|words| cli::native(&mut self.command_line, &words));
        let read = super::read("a", arguments.clone());
        match (meant, read) {
            (Ok(meant), Ok(read)) if meant == read => self.accepted += 1,
            (Err(_), Err(_)) => self.refused += 1,
            (meant, _) if is_decided(&arguments.to_string(), meant.is_ok()) => self.decided += 1,
            (meant, read) => {
                self.differ.push(format!("{arguments}\n  shell: {meant:?}\n  document: {read:?}"))
            }
        }
    }

    fn agree(&self, least: usize) {
        let Self { accepted, refused, decided, differ, .. } = self;
        println!("{accepted} accepted, {refused} refused, {decided} decided, {} differ", differ.len());
        assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
        assert!(*accepted.min(refused) >= least, "{accepted} accepted and {refused} refused are too few");
    }
}

/// Where a document is read in another way than the words that it would make, and why.
fn is_decided(arguments: &str, by_shell: bool) -> bool {
    match by_shell {
        // The options of chaosctl itself mean nothing in a document, however often they are there.
        false => arguments.contains("--json") || arguments.contains("--socket"),
        // No probability; an option that takes no value has one, which as a word would end the options; and one without its value
        // twice, of which the second would be the value of the first where that may begin with a dash.
        true => [r#"NaN"#, r#":"--""#, r#":["",""]"#].iter().any(|odd| arguments.contains(odd)),
    }
}

/// The shortest fault of a type, as a mapping.
fn shortest(kind: FaultType) -> Map<String, Value> {
    let (target, params) = kind.example();
    let mut mapping = Map::from_iter([("inject".to_owned(), json!(kind.name()))]);
    let options = kind.options();
    let all = options.iter().map(|option| (&params, option));
    for (of, option) in all.chain(TargetRequest::options().map(|option| (&target, option))) {
        let text = match of.get(&option.name) {
            None => continue,
            Some(number) if option.is_duration() => {
                json!(format!("{number}{}", if option.name.ends_with("_ms") { "ms" } else { "s" }))
            }
            Some(Value::Object(parts)) => {
                json!(parts.values().map(Value::to_string).collect::<Vec<_>>().join(","))
            }
            Some(Value::Bool(_)) => json!(""),
            Some(other) => other.clone(),
        };
        mapping.insert(format!("--{}", option.option()), text);
    }
    mapping
}

/// Values of which some are right for one option or another, and all are wrong for many.
fn odd_values() -> Vec<Value> {
    let texts = [
        "",
        "~",
        "-",
        "--",
        "-x",
        "--for",
        "-5",
        "-0.5",
        "-.5",
        "-1e3",
        "-inf",
        "0",
        "1",
        "5",
        "50",
        "0.5",
        "+5",
        "1e3",
        "1_000",
        "NaN",
        "inf",
        "5s",
        "100ms",
        "-3s",
        "PT2S",
        "1h 30m",
        " 5s",
        "9999999999h",
        "1,2,3",
        "1,,3",
        "50,50",
        ",",
        "a,b",
        "80-90",
        "8080",
        "lo",
        "10.0.0.0/8",
        "25%",
        "a=b",
        "true",
        "payment.service",
        "/usr/bin/env",
        "SIGTERM",
    ];
    let others = json!([
        null, true, false, 0, 1, 5, 50, 0.5, -5, -0.5, 1e3, 1e300, 5_000_000_000_u64, u64::MAX, [], [""], ["a"], [1, 2],
        ["1", "2"], ["a", "b", ""], ["", ""], [true], [[1]], {"a": 1}
    ]);
    let others = others.as_array().unwrap().clone();
    texts.into_iter().map(Value::from).chain(others).collect()
}

/// Values at the bounds of an option, and beyond them; and its words.
fn own_values(option: &Parameter) -> Vec<Value> {
    let unit = match option.is_duration() {
        true if option.name.ends_with("_ms") => "ms",
        true => "s",
        false => "",
    };
    let mut values = Vec::new();
    match &option.shape {
        Shape::Number(bounds) | Shape::Whole(bounds) => {
            for bound in [&bounds.least, &bounds.most].into_iter().flatten() {
                let bound = bound.as_f64().unwrap();
                for number in [bound, bound + 1.0, bound - 1.0, bound * 1.001] {
                    values.extend([json!(number), json!(format!("{number}{unit}"))]);
                }
            }
        }
        Shape::Text(words) | Shape::List(words, _) => {
            values.extend(words.iter().map(|word| json!(word)));
            values.push(json!(words.join(",")));
            values.push(json!(words));
        }
        Shape::Model(parts) => {
            for many in 1..parts.len() + 2 {
                values.push(json!(vec!["1"; many].join(",")));
                values.push(json!(vec!["1"; many]));
            }
        }
        Shape::Document(most) => {
            let csv = "time_s,rate_kbit\n0,80\n1,90";
            let padding = usize::try_from(*most).unwrap() - csv.len();
            values.extend([json!(csv), json!("1\n2\n3")]);
            values.extend([padding, padding + 1].map(|more| json!(format!("{csv}{}", " ".repeat(more)))));
        }
        Shape::Flag => {}
    }
    values
}

/// The same as a list, the value as a word of its own or in that of the option.
fn as_list(mapping: &Map<String, Value>, is_bound: bool) -> Value {
    let mut words = Vec::new();
    for (key, value) in mapping.iter().filter(|(key, _)| key.starts_with("--")) {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in values {
            match value.as_str() {
                Some(text) if is_bound => words.push(json!(format!("{key}={text}"))),
                _ => words.extend([json!(key), value]),
            }
        }
    }
    let command = ["inject".to_owned().into(), mapping["inject"].clone()];
    Value::Array(command.into_iter().chain(words).collect())
}

/// Each of these values for this option, beside what the shortest fault has: as a mapping, and some as a list of one kind or the other.
fn try_values(
    readers: &mut Readers,
    shortest: &Map<String, Value>,
    option: &str,
    values: impl Iterator<Item = Value>,
) {
    for (index, value) in values.enumerate() {
        let mut mapping = shortest.clone();
        mapping.insert(format!("--{option}"), value);
        if index % 3 != 0 {
            readers.compare(&as_list(&mapping, index % 3 == 1));
        }
        readers.compare(&Value::Object(mapping));
    }
}

#[test]
fn whatever_a_parameter_is_given_means_the_same_in_a_document_and_in_a_shell() {
    let mut readers = Readers::new();
    for kind in FAULT_TYPES {
        let shortest = shortest(*kind);
        let before = readers.accepted;
        readers.compare(&Value::Object(shortest.clone()));
        assert_eq!(readers.accepted, before + 1, "the shortest {}: {:?}", kind.name(), readers.differ);
        for option in kind.options() {
            let values = own_values(&option).into_iter().chain(odd_values());
            try_values(&mut readers, &shortest, &option.option(), values);
        }
    }
    readers.agree(1500);
}

#[test]
fn whatever_a_target_and_the_others_are_given_means_the_same_in_a_document_and_in_a_shell() {
    let mut readers = Readers::new();
    for option in TargetRequest::options() {
        let has_it = |kind: &&FaultType| kind.target_fields().contains(&option.name.as_str());
        let kind = FAULT_TYPES.iter().find(has_it).unwrap();
        let values = own_values(option).into_iter().chain(odd_values());
        try_values(&mut readers, &shortest(*kind), &option.option(), values);
    }
    for kind in [FaultType::Timeout, FaultType::ProcessKill] {
        for (option, _) in OF_CHAOSCTL.into_iter().chain(OF_FAULTS) {
            try_values(&mut readers, &shortest(kind), option, odd_values().into_iter());
        }
    }
    // What has no place in a target is understood, and refused for what the fault goes to.
    for kind in FAULT_TYPES {
        for option in TargetRequest::options() {
            let values = ["80", "eth0"].into_iter().map(Value::from);
            try_values(&mut readers, &shortest(*kind), &option.option(), values);
        }
    }
    readers.agree(500);
}

#[test]
fn commands_are_spelled_in_a_document_as_in_a_shell() {
    let mut readers = Readers::new();
    for kind in FAULT_TYPES {
        let mut mapping = shortest(*kind);
        for word in
            [kind.name().replace('_', "-"), kind.name().replacen('_', "-", 1), kind.name().to_uppercase()]
        {
            mapping.insert("inject".to_owned(), json!(word));
            readers.compare(&Value::Object(mapping.clone()));
            readers.compare(&as_list(&mapping, false));
        }
    }
    for arguments in [
        json!({"remove": "a"}),
        json!({"remove": 5}),
        json!({"remove": "a b"}),
        json!({"remove": null}),
        json!({"remove": "a", "b": ""}),
        json!({"remove": "a", "--json": null}),
        json!({"remove": "a", "--for": "5s"}),
        json!({"remove": ["a"]}),
        json!(["remove", "a"]),
        json!(["remove"]),
        json!(["remove", "--", "a"]),
        json!(["remove", "a", "--"]),
        json!(["remove", "a", "b"]),
        json!(["remove", "-a"]),
        json!(["remove", "-"]),
        json!(["--json", "remove", "a"]),
        json!(["remove", "--socket", "x", "a"]),
        json!(["remove", "--socket=", "a"]),
        json!(["stop", "--all"]),
        json!(["help"]),
        json!(["inject", "help"]),
        json!(["--version"]),
        json!([]),
        json!({}),
        json!([""]),
        json!({"": ""}),
        json!("inject latency"),
        json!(null),
        json!(5),
        json!({"inject": ""}),
        json!({"inject": null, "--interface": "eth0"}),
        json!({"inject": "latency", "remove": "a"}),
        json!({"inject": "latency", "--interface=eth0": ""}),
        json!({"inject": "latency", "--interface=eth0": "x"}),
        json!({"inject": "latency", "--interface": "eth0", "": ""}),
        json!({"inject": "latency", "--interface": "eth0", "": "x"}),
        json!({"inject": "latency", "--interface": "eth0", "x": ""}),
        json!({"inject": "latency", "--interface": "eth0", "-x": ""}),
        json!({"inject": "latency", "--interface": "eth0", "interface": "eth0"}),
        json!({"inject": "latency", "--interface": "eth0", "--message=": ""}),
        json!(["inject", "latency", "", "--interface", "", "eth0"]),
        json!(["inject", "--json", "latency", "--interface", "eth0"]),
        json!(["inject", "--interface", "eth0", "latency"]),
        json!(["inject", "latency", "--interface", "eth0", "--"]),
        json!(["inject", "latency", "--interface", "eth0", "--", "x"]),
        json!(["inject", "latency", "--", "--interface", "eth0"]),
        json!(["inject", "latency", "--interface", "--delay", "5ms"]),
        json!(["inject", "latency", "--delay", "--interface", "eth0"]),
        json!(["inject", "latency", "--interface", "eth0", "--interface", "eth0"]),
        json!(["inject", "latency", "--interface", "eth0", "--help"]),
        json!(["inject", "latency", "--interface", "eth0", "-h"]),
    ] {
        readers.compare(&arguments);
    }
    readers.agree(20);
}

/// Words in any order, as nobody would write them: what the one takes for a value is none to the other, or they differ.
#[test]
fn a_list_is_split_into_options_as_a_shell_does() {
    const WORDS: [&str; 24] = [
        "--interface",
        "eth0",
        "--delay",
        "5ms",
        "--delay=5ms",
        "--names",
        "a,b",
        "--cidr",
        "::1",
        "--message",
        "-",
        "--json",
        "--socket",
        "--for",
        "-5",
        "x",
        "--probability",
        "1",
        "--wait",
        "--name",
        "--message=--x",
        "--distribution",
        "normal",
        "",
    ];
    let mut readers = Readers::new();
    // The constants are Knuth's, for numbers that look like chance and are the same each time.
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..1500 {
        let mut words = vec!["inject", "latency", "--interface", "eth0"];
        for _ in 0..next(6) {
            words.insert(next(words.len() + 1), WORDS[next(WORDS.len())]);
        }
        readers.compare(&json!(words));
    }
    readers.agree(100);
}

/// The arguments of every provider within a document.
fn arguments_in(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| arguments_in(item, found)),
        Value::Object(fields) => {
            if let (Some(Value::String(path)), Some(arguments)) =
                (fields.get("path"), fields.get("arguments"))
            {
                found.extend(is_chaosctl(path).then(|| arguments.clone()));
            }
            fields.values().for_each(|value| arguments_in(value, found));
        }
        _ => {}
    }
}

#[test]
fn the_documents_that_there_are_mean_what_they_would_in_a_shell() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut found = Vec::new();
    for folder in
        ["chaos-daemon/experiments", "fuzz/corpus/experiment", "docs", "tests/chaostoolkit/documents", "."]
    {
        for file in std::fs::read_dir(format!("{root}/{folder}")).unwrap() {
            let Ok(text) = std::fs::read_to_string(file.unwrap().path()) else { continue };
            // A document, or pages with documents between fences.
            let parts = text
                .split("```")
                .map(|part| part.trim_start_matches(['y', 'a', 'm', 'l', 'j', 's', 'o', 'n']));
            for source in
                std::iter::once(text.as_str()).chain(parts).filter_map(|part| Source::read(part).ok())
            {
                arguments_in(&Value::Object(source.document().clone()), &mut found);
            }
        }
    }
    let mut readers = Readers::new();
    found.iter().for_each(|arguments| readers.compare(arguments));
    // The words of probes, which have one parser.
    for example in crate::experiment::schema::examples_of_probes().as_array().unwrap() {
        readers.compare(example);
        let words = example.as_array().unwrap();
        for place in 0..=words.len() {
            for more in [
                json!(["--json"]),
                json!(["--socket", "probe"]),
                json!(["--timeout", "2s"]),
                json!(["probe"]),
            ] {
                let more = more.as_array().unwrap().clone();
                readers.compare(&Value::Array([&words[..place], &more[..], &words[place..]].concat()));
            }
        }
    }
    readers.agree(50);
}
