//! `chaosctl hub`: experiments that are ready to be used, and a page about each type of fault.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::experiment::hub::{self, Entry, Hub, holds};
use crate::experiment::source::Source;
use crate::fault::profile::{Lifetime, Need, Profile, Shared};
use crate::spec::{FAULT_TYPES, FaultType, SpecError};

/// How an experiment is used.
pub(super) const USE: &str = "To use one, with values by the environment (show says which):
  chaosctl hub copy process-death .
  CHAOS_UNIT=payment.service chaosctl run process-death.yaml";

/// Where to look, and for what.
#[derive(Debug, Args)]
pub(super) struct HubArgs {
    /// Directory with more experiments, or one in a Git checkout as that commit has it, which come before those built in;
    /// may be repeated
    #[arg(
        long = "hub",
        env = "CHAOS_HUB",
        value_name = "DIR[#COMMIT]",
        value_delimiter = ':',
        global = true
    )]
    hubs: Vec<Hub>,
    #[command(subcommand)]
    command: HubCommand,
}

#[derive(Debug, Subcommand)]
enum HubCommand {
    /// List experiments and types of fault
    List {
        /// Only experiments with this tag, and types of fault of this category: network, resources, errors, process, host
        #[arg(long, value_name = "CATEGORY")]
        category: Option<String>,
    },
    /// List those in which a word is found
    Search {
        /// Word, in whatever case
        word: String,
    },
    /// Show an experiment, or what there is to know about a type of fault
    Show {
        /// Name of either
        name: String,
    },
    /// Copy an experiment to a file that is not there yet
    Copy {
        /// Name
        name: String,
        /// File or folder, or - for stdout
        #[arg(default_value = ".")]
        to: PathBuf,
    },
}

/// Does what is asked: text for people, the answer for programs.
///
/// # Errors
/// When there is no such thing, or a file cannot be read or written.
pub(super) fn carry_out(args: &HubArgs) -> Result<(String, Value), SpecError> {
    let entries = hub::entries(&args.hubs)?;
    match &args.command {
        HubCommand::List { category: None } => Ok(list(entries.iter().collect(), FAULT_TYPES.to_vec())),
        HubCommand::List { category: Some(tag) } => {
            let tagged = entries.iter().filter(|entry| entry.categories.contains(tag)).collect();
            let of = |kind: &FaultType| kind.categories().iter().any(|category| category.name() == tag);
            Ok(list(tagged, FAULT_TYPES.iter().copied().filter(of).collect()))
        }
        HubCommand::Search { word } => {
            let faults = FAULT_TYPES.iter().copied().filter(|kind| {
                [kind.name(), kind.summary(), &kind.parameter_line()].iter().any(|text| holds(text, word))
            });
            Ok(list(entries.iter().filter(|entry| entry.has(word)).collect(), faults.collect()))
        }
        HubCommand::Show { name } => {
            match (find(&entries, name), FaultType::parse(&name.replace('-', "_"))) {
                (Ok(entry), _) => show(entry),
                (Err(_), Ok(kind)) => Ok(page(kind, &entries)),
                (Err(error), Err(_)) => Err(error),
            }
        }
        HubCommand::Copy { name, to } => copy(find(&entries, name)?, to),
    }
}

fn find<'a>(entries: &'a [Entry], name: &str) -> Result<&'a Entry, SpecError> {
    let found = entries.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| {
        SpecError::new("NAME", format!("there is no {name:?}: \"chaosctl hub list\" shows what there is"))
    })
}

fn list(entries: Vec<&Entry>, faults: Vec<FaultType>) -> (String, Value) {
    let mut out = String::new();
    for Entry { name, title, categories, hub, .. } in &entries {
        let from = if hub == hub::BUILT_IN { String::new() } else { format!("  (of {hub})") };
        let _ = writeln!(out, "{name:<24} [{}] {title}{from}", categories.join(", "));
    }
    for kind in &faults {
        let _ = writeln!(out, "{:<24} [fault: {}] {}", kind.name(), categories(*kind), kind.summary());
    }
    if out.is_empty() {
        out.push_str("nothing was found\n");
    }
    let faults = faults.iter().map(
        |kind| json!({"fault_type": kind.name(), "categories": kind.categories(), "summary": kind.summary()}),
    );
    let faults: Vec<_> = faults.collect();
    (out, json!({"experiments": entries, "faults": faults}))
}

fn show(entry: &Entry) -> Result<(String, Value), SpecError> {
    let mut out = String::new();
    let Entry { name, hub, title, description, categories, faults, .. } = entry;
    let _ = writeln!(out, "{name} ({hub}): {title}\n{description}");
    let _ = writeln!(out, "categories: {}; faults: {}", categories.join(", "), faults.join(", "));
    for parameter in &entry.parameters {
        let default =
            parameter.default.as_ref().map_or_else(String::new, |value| format!(" (default {value})"));
        match &parameter.environment {
            Some(variable) => _ = writeln!(out, "  {variable}: {}{default}", parameter.name),
            None => _ = writeln!(out, "  in the document: {}{default}", parameter.name),
        }
    }
    let _ = write!(out, "\n{}", entry.text);
    let source = Source::read(&entry.text)?;
    Ok((out, json!({"experiment": entry, "document": source.document()})))
}

/// What a type of fault is about.
fn categories(kind: FaultType) -> String {
    joined(kind.categories().iter().map(|category| category.name().to_owned()))
}

/// What there is to know about a type of fault.
fn page(kind: FaultType, entries: &[Entry]) -> (String, Value) {
    let profile = Profile::of(kind);
    let using = hub::injecting(entries, kind);
    let name = kind.name();
    let mut out = format!("{name}: {}\n", profile.summary);
    let _ = writeln!(out, "categories: {}", categories(kind));
    let parameters = kind.parameters();
    out.push_str(if parameters.is_empty() {
        "parameters: none\n"
    } else {
        "parameters (what may be given; default):\n"
    });
    for parameter in parameters {
        let of = if parameter.resources.is_empty() {
            String::new()
        } else {
            format!("{}: ", parameter.resources.join(", "))
        };
        let _ = writeln!(out, "  {}: {of}{}", parameter.line(), parameter.sentence);
    }
    for Lifetime { class, undone_by, of } in &profile.lifetimes {
        let of = of.map_or_else(String::new, |of| format!(" of {of}"));
        let _ = writeln!(
            out,
            "lifetime class{of}: {}; undone, if the daemon cannot, by {undone_by}",
            class.name()
        );
    }
    let severities: Vec<_> = profile.severities.iter().map(|severity| severity.name()).collect();
    let told = if severities.len() > 1 { ", by what it is told" } else { "" };
    let _ = writeln!(out, "severity: {}{told}", severities.join(" or "));
    match &profile.share {
        Some(Shared { of, field }) => _ = writeln!(out, "share: of {}, by {field}", of.name()),
        None => out.push_str("share: all or nothing, or by its parameters\n"),
    }
    let needs = profile.needs.iter().map(|Need { of, what }| {
        let of = of.map_or_else(String::new, |of| format!(" (of {of})"));
        format!("{}{of}", what.join(", "))
    });
    let needs: Vec<_> = needs.collect();
    let needs = if needs.is_empty() { "nothing special".to_owned() } else { needs.join("; ") };
    let _ = writeln!(out, "needs of the kernel: {needs}");
    let _ = writeln!(out, "experiments with it: {}", joined(using.iter().map(|name| (*name).to_owned())));
    let _ = writeln!(
        out,
        "what it would do here: chaosctl inject {name} … --dry-run; whether it can: chaosctl doctor; its options: \
         chaosctl inject {name} --help"
    );
    (out, profile.with_experiments(&using))
}

/// After commas; "none" of nothing.
fn joined(words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = words.collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn copy(entry: &Entry, to: &Path) -> Result<(String, Value), SpecError> {
    if to == Path::new("-") {
        return Ok((entry.text.clone(), Value::String(entry.text.clone())));
    }
    let to = if to.is_dir() { to.join(&entry.file) } else { to.to_owned() };
    let shown = to.display().to_string();
    let written = fs::File::create_new(&to).and_then(|mut file| file.write_all(entry.text.as_bytes()));
    written.map_err(|error| SpecError::new(&shown, format!("cannot be written: {error}")))?;
    let next = format!("{shown}\n  register it with: chaosctl experiment register {shown}\n");
    Ok((next, json!({"copied": entry.name, "file": shown})))
}
