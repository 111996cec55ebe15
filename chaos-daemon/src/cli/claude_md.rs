//! `chaosctl policy export`: what to keep to on this host, as a marked block of the file of rules that an agent's client reads.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::client::Client;
use super::failure::{FAILED, Failure};
use super::whole_file;
use crate::policy::Policy;
use crate::request::chain;

/// The first and the last line of the block. Markdown shows neither.
const BEGIN: &str = "<!-- chaos-daemon rules: begin -->";
const END: &str = "<!-- chaos-daemon rules: end -->";
/// Where the daemon has the rules.
const RULES: &str = "chaos://policy";

pub(super) const EXPORT_EXIT_CODES: &str = "Exit codes:
  0  done; with --check, the file has the rules in force
  1  with --check, it has not; or something went wrong
  3  the daemon cannot be reached";

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// As lines for the CLAUDE.md of a project, 20 at most
    #[arg(long, required = true)]
    claude_md: bool,
    /// From this policy file, in place of the policy that the daemon has read
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Only tell whether this file has them as they are now, and what is different
    #[arg(long, value_name = "FILE", conflicts_with = "into")]
    check: Option<PathBuf>,
    /// Write them into this file, in place of those that are in it; all else stays
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
}

/// Does it. Returns text for people, the answer for programs, and the exit code.
///
/// # Errors
/// When the policy cannot be had, or the file not read or written.
pub(super) async fn carry_out(args: &ExportArgs, socket: &Path) -> Result<(String, Value, u8), Failure> {
    // The only form there is, which has to be named: others may come.
    debug_assert!(args.claude_md);
    let rules = match &args.policy {
        Some(file) => Policy::read(file).map_err(|error| Failure::Other(chain(&error)))?.rules(),
        None => {
            let client = Client::connect(socket).await?;
            let rules = client.read(RULES).await;
            client.close().await;
            rules?
        }
    };
    let block = format!("{BEGIN}\n{rules}{END}\n");
    if let Some(file) = &args.check {
        return check(file, &block);
    }
    let Some(file) = &args.into else { return Ok((block.clone(), json!({"rules": block}), 0)) };
    let before = text(file)?;
    let after = with(&before, &block).map_err(|problem| wrong(file, problem))?;
    if after != before {
        whole_file::replace(file, after.as_bytes()).map_err(|error| wrong(file, error))?;
    }
    let said = if after == before { "has them already" } else { "has them now" };
    Ok((format!("{} {said}\n", file.display()), json!({"file": file, "changed": after != before}), 0))
}

fn wrong(file: &Path, problem: impl std::fmt::Display) -> Failure {
    Failure::Other(format!("{}: {problem}", file.display()))
}

fn text(file: &Path) -> Result<String, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(wrong(file, format!("cannot be read: {error}"))),
    }
}

/// The block in a text, as the bytes from and to.
fn find(text: &str) -> Result<Option<(usize, usize)>, String> {
    let (begins, ends) = (text.match_indices(BEGIN).count(), text.match_indices(END).count());
    match (text.find(BEGIN), text.find(END), begins, ends) {
        (None, None, ..) => Ok(None),
        (Some(from), Some(to), 1, 1) if from < to => {
            let to = to + END.len();
            let rest = &text[to..];
            let line_end = if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
            Ok(Some((from, to + line_end)))
        }
        _ => Err(format!("the lines {BEGIN:?} and {END:?} do not stand once each: take them out")),
    }
}

/// The text with this block in place of the one that is in it, or at its end.
fn with(text: &str, block: &str) -> Result<String, String> {
    Ok(match find(text)? {
        Some((from, to)) => [&text[..from], block, &text[to..]].concat(),
        None if text.is_empty() => block.to_owned(),
        None if text.ends_with('\n') => format!("{text}\n{block}"),
        None => format!("{text}\n\n{block}"),
    })
}

fn check(file: &Path, block: &str) -> Result<(String, Value, u8), Failure> {
    let text = text(file)?;
    let shown = file.display();
    let found = find(&text).map_err(|problem| wrong(file, problem))?;
    let had = found.map_or("", |(from, to)| &text[from..to]);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let difference = difference(&lines(had), &lines(block));
    let is_current = difference.is_empty();
    let answer = json!({"file": file, "current": is_current, "difference": difference});
    if is_current {
        return Ok((format!("{shown} has the rules that are in force\n"), answer, 0));
    }
    let what = if found.is_some() { "has fallen behind" } else { "has no rules" };
    let text = format!(
        "{shown} {what}: chaosctl policy export --claude-md --into {shown}\n{}\n",
        difference.join("\n")
    );
    Ok((text, answer, FAILED))
}

/// Lines that are no more, after `-`, and new ones, after `+`, by the longest sequence that both have. Both are short.
fn difference(old: &[String], new: &[String]) -> Vec<String> {
    let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for (row, old) in old.iter().enumerate().rev() {
        for (column, new) in new.iter().enumerate().rev() {
            common[row][column] = match old == new {
                true => common[row + 1][column + 1] + 1,
                false => common[row + 1][column].max(common[row][column + 1]),
            };
        }
    }
    let (mut row, mut column, mut lines) = (0, 0, Vec::new());
    while row < old.len() || column < new.len() {
        if row < old.len() && column < new.len() && old[row] == new[column] {
            (row, column) = (row + 1, column + 1);
        } else if column == new.len()
            || (row < old.len() && common[row + 1][column] >= common[row][column + 1])
        {
            lines.push(format!("- {}", old[row]));
            row += 1;
        } else {
            lines.push(format!("+ {}", new[column]));
            column += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::export::MOST_LINES;

    fn block(rules: &str) -> String {
        format!("{BEGIN}\n{rules}{END}\n")
    }

    #[test]
    fn the_block_takes_the_place_of_the_old_one_and_all_else_stays() {
        let (old, new) = (block("a\n"), block("b\nc\n"));
        for (before, after) in [
            (String::new(), new.clone()),
            ("# Mine\n".to_owned(), format!("# Mine\n\n{new}")),
            ("# Mine".to_owned(), format!("# Mine\n\n{new}")),
            (format!("x\r\n{old}\ny"), format!("x\r\n{new}\ny")),
            (format!("x\n{}", old.trim_end()), format!("x\n{new}")),
        ] {
            let written = with(&before, &new).unwrap();
            assert_eq!(written, after);
            assert_eq!(with(&written, &new).unwrap(), after, "again");
        }
        for odd in [BEGIN, END, &format!("{END}{BEGIN}"), &format!("{old}{old}")] {
            assert!(with(odd, &new).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_file_that_has_fallen_behind_is_told_by_what_is_different() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("CLAUDE.md");
        let new = block("same\nnew\n");
        let checked = || check(&file, &new).ok().unwrap();
        assert!(checked().2 == FAILED && checked().0.contains("has no rules"));
        fs::write(&file, format!("# Mine\n{}", block("same\nold\n"))).unwrap();
        let (text, answer, code) = checked();
        assert!(code == FAILED && text.contains("has fallen behind"), "{text}");
        assert_eq!(answer["difference"], json!(["- old", "+ new"]));
        fs::write(&file, format!("# Mine\n{new}more")).unwrap();
        assert_eq!(checked().2, 0);
    }

    #[test]
    fn the_block_of_any_policy_has_twenty_lines_at_most() {
        assert!(block(&Policy::default().rules()).lines().count() <= 20);
        assert_eq!(MOST_LINES + 2, 20);
    }
}
