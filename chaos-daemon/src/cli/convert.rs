//! `chaosctl convert`: from an experiment that Chaos Toolkit runs to one that chaos-daemon runs.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::document;
use super::failure::Failure;
use crate::experiment::convert::{Converted, convert, yaml};
use crate::experiment::source::Source;
use crate::spec::SpecError;

/// Which document.
#[derive(Debug, Args)]
pub(super) struct ConvertArgs {
    /// JSON or YAML file, or - for stdin
    file: PathBuf,
}

/// Converts it: the document for people, and beside it for programs what was done. What was done goes to stderr otherwise.
///
/// # Errors
/// When the file is no document.
pub(super) fn carry_out(args: &ConvertArgs, json: bool) -> Result<(String, Value, u8), Failure> {
    let name = args.file.display().to_string();
    let text = document::text(&args.file)?;
    let source = Source::read(&text).map_err(|error| SpecError::new(&name, error.problem))?;
    let converted = convert(source.document());
    if !json {
        eprint!("{}", told(&name, &converted));
    }
    let Converted { document, notes, gaps } = converted;
    let text = yaml::write(&document);
    Ok((text, json!({"document": document, "notes": notes, "gaps": gaps}), 0))
}

/// What was done, a line each.
fn told(name: &str, Converted { notes, gaps, .. }: &Converted) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    notes.iter().for_each(|note| _ = writeln!(out, "{name}: {}: {}", note.path, note.text));
    gaps.iter().for_each(|gap| _ = writeln!(out, "{name}: {}: a gap: {}", gap.path, gap.text));
    let gaps = match gaps.len() {
        0 => "no gap".to_owned(),
        1 => "1 gap, marked as x-gap".to_owned(),
        count => format!("{count} gaps, marked as x-gap"),
    };
    let _ = writeln!(out, "{name}: {} changed, {gaps}; check it by chaosctl validate --all", notes.len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_a_document_and_what_was_done_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        let text = "title: a\nmethod:\n- {type: action, name: b, provider: {type: process, path: pkill, arguments: -f worker}}\n\
                    - {type: action, name: c, provider: {type: python, module: chaosaws.ec2.actions, func: stop_instance}}\n";
        std::fs::write(&file, text).unwrap();
        let (text, answer, code) = carry_out(&ConvertArgs { file }, true).unwrap_or_else(|_| panic!());
        assert_eq!(code, 0);
        assert!(text.contains("- process-kill\n") || text.contains("\"process-kill\""), "{text}");
        assert_eq!(answer["gaps"][0]["path"], "method[1]");
        assert!(
            answer["gaps"][0]["text"]
                .as_str()
                .unwrap()
                .starts_with("chaosaws.ec2.actions.stop_instance: it acts on a cloud")
        );
        assert_eq!(answer["notes"][0]["path"], "method[0]");
    }
}
