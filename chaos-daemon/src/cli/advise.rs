//! `chaosctl advise`: which services deserve chaos next, why, and what to try on them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::failure::Failure;
use super::runs::object;
use crate::mcp::advise::{AdviceView, AdviseOutput, ReasonView, RefusedView};
use crate::spec::options::duration;

/// How many reasons of a service are told to people.
const REASONS: usize = 4;

/// What advice is wanted.
#[derive(Debug, Args)]
pub(super) struct AdviseArgs {
    /// Only this service: a unit, a container, or the path of a control group
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// How long services are looked at, 1s to 15s [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    window: Option<Duration>,
    /// About how many services, 1 to 20 [default: 5]
    #[arg(long, value_name = "COUNT")]
    limit: Option<u32>,
    /// Write the experiment for the first service to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    write: Option<PathBuf>,
}

/// Asks, and tells it to people and to programs.
pub(super) async fn carry_out(client: &Client, args: &AdviseArgs) -> Result<(String, Value), Failure> {
    let mut asked = object(json!({"service": args.service, "limit": args.limit,
        "window_seconds": args.window.map(|window| window.as_secs_f64())}));
    asked.retain(|_, value| !value.is_null());
    let answer: Answer<AdviseOutput> = client.ask("chaos_advise", asked).await?;
    let mut text = page(&answer.read);
    if let Some(file) = &args.write {
        text.push_str(&write(file, &answer.read)?);
    }
    Ok((text, answer.json))
}

fn write(file: &Path, found: &AdviseOutput) -> Result<String, Failure> {
    let Some(document) = found.advice.first().and_then(|advice| advice.document.as_ref()) else {
        return Err(Failure::Other(format!("{} is not written: nothing is advised", file.display())));
    };
    let written = std::fs::write(file, format!("{:#}\n", json!(document)));
    written.map_err(|error| Failure::Other(format!("writing to {}: {error}", file.display())))?;
    let name = file.display();
    Ok(format!(
        "\nthe experiment: {name}; chaosctl plan {name} shows what it would do, chaosctl run {name} does it\n"
    ))
}

fn page(found: &AdviseOutput) -> String {
    let mut out = String::new();
    for (index, advice) in found.advice.iter().enumerate() {
        out.push_str(&of_service(index + 1, advice));
    }
    if found.advice.is_empty() {
        out.push_str("nothing to advise\n");
    }
    // Writing to a string cannot fail.
    for RefusedView { what, why } in &found.left_out {
        let _ = writeln!(out, "left out {what}: {why}");
    }
    for what in &found.not_seen {
        let _ = writeln!(out, "not seen: {what}");
    }
    if found.more > 0 {
        let _ = writeln!(out, "{} services more", found.more);
    }
    out
}

fn of_service(place: usize, advice: &AdviceView) -> String {
    let AdviceView { service, points, reasons, document, refused } = advice;
    let mut out = format!("{place:2}  {points:6.1}  {service}\n");
    for ReasonView { points, words, .. } in reasons.iter().take(REASONS) {
        let _ = writeln!(out, "    {points:6.1}  {words}");
    }
    if let Some(document) = document {
        // As the daemon has written it.
        let title = serde_json::from_value::<Titled>(json!(document)).map(|it| it.title).unwrap_or_default();
        let _ = writeln!(out, "        try  {title}");
    }
    for RefusedView { what, why } in refused {
        let _ = writeln!(out, "        not  {what}: {why}");
    }
    out
}

/// What of an experiment people know it by.
#[derive(Deserialize)]
struct Titled {
    title: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> AdviseOutput {
        let reason = json!({"reason": "forecast", "number": 47.0, "unit": "s", "points": 39.5, "words": "memory: full in 47 s"});
        serde_json::from_value(json!({
            "advice": [{"service": "unit shop.service", "points": 47.25, "reasons": [reason], "document": {"title": "a pause"},
                "refused": [{"what": "process_kill", "why": "the policy"}]}],
            "left_out": [{"what": "unit ssh.service", "why": "needed"}], "not_seen": ["logs: none"], "more": 2,
        }))
        .unwrap()
    }

    #[test]
    fn a_page_says_who_is_first_why_with_the_number_what_to_try_and_what_is_not_told() {
        assert_eq!(
            page(&found()),
            " 1    47.2  unit shop.service\n      39.5  memory: full in 47 s\n        try  a pause\n        not  process_kill: the policy\n\
             left out unit ssh.service: needed\nnot seen: logs: none\n2 services more\n"
        );
        assert_eq!(page(&AdviseOutput::default()), "nothing to advise\n");
    }

    #[test]
    fn the_first_document_is_written_and_nothing_where_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        assert!(write(&file, &found()).is_ok());
        let read: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(read, json!({"title": "a pause"}));
        let other = folder.path().join("b.json");
        assert!(write(&other, &AdviseOutput::default()).is_err() && !other.exists());
    }
}
