//! The documents' tables of faults and of their parameters are those that the code has. `cargo xtask tidy --fix` writes them.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use chaos_daemon::spec::link::{Link, OneWay, PRESETS};
use chaos_daemon::spec::parameter::{Unit, plain};
use chaos_daemon::spec::{FAULT_TYPES, FaultType, Parameter, Probability};

fn faults() -> String {
    let mut text = String::from("| fault | what it does | parameters |\n|---|---|---|\n");
    for fault in FAULT_TYPES {
        let mut names: Vec<_> = fault.parameters().iter().map(|parameter| parameter.name.as_str()).collect();
        names.dedup();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let _ = writeln!(text, "| `{}` | {} | {names} |", fault.name(), fault.summary());
    }
    text
}

fn parameters() -> String {
    let mut text = String::new();
    for fault in FAULT_TYPES {
        let _ = writeln!(text, "\n## `{}`\n", fault.name());
        let fields: Vec<_> = fault.target_fields().into_iter().map(|field| format!("`{field}`")).collect();
        let _ = match fields.is_empty() {
            true => writeln!(text, "Target: none."),
            false => writeln!(text, "Target: {}.", fields.join(", ")),
        };
        if !fault.parameters().is_empty() {
            text.push_str("\n| parameter | may be | default | meaning |\n|---|---|---|---|\n");
            fault.parameters().iter().for_each(|parameter| text.push_str(&row(*fault, parameter)));
        }
    }
    text
}

fn row(
    fault: FaultType,
    Parameter { name, required, default, sentence, resources, .. }: &Parameter,
) -> String {
    let parameter =
        fault.parameters().iter().find(|known| (&known.name, &known.resources) == (name, resources));
    let unit = Unit::of(name).map(|unit| format!(" {}", unit.plural)).unwrap_or_default();
    let range =
        parameter.and_then(Parameter::range).map(|range| format!("{range}{unit}")).unwrap_or_default();
    let default = match (default, required) {
        (Some(default), _) => plain(default),
        (None, true) => "needed".to_owned(),
        (None, false) => String::new(),
    };
    let of = if resources.is_empty() { String::new() } else { format!("{}: ", resources.join(", ")) };
    format!("| `{name}` | {range} | {default} | {of}{sentence} |\n")
}

fn presets() -> String {
    let way = |way: OneWay| {
        let jitter = if way.jitter.is_zero() { String::new() } else { format!(" ± {:?}", way.jitter) };
        let loss = if way.loss == Probability::NEVER {
            String::new()
        } else {
            format!(", {} % lost", way.loss.get() * 100.0)
        };
        let rate = way.kbit.map(|kbit| format!(", {kbit} kbit/s")).unwrap_or_default();
        format!("{:?}{jitter}{loss}{rate}", way.delay)
    };
    let mut text = String::from("| preset | up | down | source |\n|---|---|---|---|\n");
    for preset in PRESETS {
        let Link { up, down, .. } = preset.link();
        let _ = writeln!(text, "| `{}` | {} | {} | {} |", preset.name(), way(up), way(down), preset.source());
    }
    text
}

/// Compares what is between two lines of a document, or writes it there.
fn compare(document: &str, part: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document);
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {part}:begin -->"), format!("<!-- {part}:end -->"));
    let (before, rest) = text.split_once(&begin).expect("a line where the table begins");
    let (written, after) = rest.split_once(&end).expect("a line where it ends");
    let wanted = format!("\n{wanted}");
    if std::env::var_os("CHAOS_FIX").is_some() {
        fs::write(&path, format!("{before}{begin}{wanted}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(written, wanted, "{document} is stale: cargo xtask tidy --fix");
}

#[test]
fn the_documents_list_the_faults_and_parameters_that_the_code_has() {
    compare("docs/parameters.md", "faults", &faults());
    compare("docs/parameters.md", "parameters", &parameters());
    compare("docs/faults.md", "presets", &presets());
}
