//! `cargo xtask tidy`: the rules of the tree that the compiler does not know. Also a test.

mod circles;
mod faults;
mod figures;
mod look_ups;
mod opens;
mod provision;
mod rooms;
mod sentences;
mod text;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;

use crate::error::Error;
use crate::run;

/// Options of `cargo xtask tidy`.
#[derive(Args)]
pub(crate) struct Options {
    /// Write anew the tables of faults in docs/ and ARCHITECTURE.md's of what is opened; lower the numbers of long sentences
    #[arg(long)]
    fix: bool,
    /// Print figures of the tree instead: lines, circles of files, look-ups by strings
    #[arg(long, conflicts_with = "fix")]
    figures: bool,
    /// With --figures: how many files that were there before each of these commits has changed
    #[arg(long, requires = "figures", value_name = "REV")]
    commits: Vec<String>,
}

/// A tracked text file.
pub(crate) struct Source {
    /// From the root of the tree.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    if options.figures {
        return figures::print(&sources()?, &options.commits);
    }
    if options.fix {
        opens::fix(&sources()?)?;
    }
    let of_faults = faults::check(options.fix)?;
    if options.fix {
        // Of the documents as they are now.
        sentences::fix(&sources()?)?;
    }
    let mut problems = check(&sources()?);
    problems.extend(of_faults);
    problems.iter().for_each(|problem| println!("{problem}"));
    println!("tidy: {} problems", problems.len());
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All that needs no build of the daemon.
pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        problems.extend(text::check(source));
    }
    problems.extend(rooms::check(sources));
    problems.extend(circles::check(sources));
    problems.extend(look_ups::check(sources));
    problems.extend(opens::check(sources));
    problems.extend(provision::check(sources));
    problems.extend(sentences::check(sources));
    problems
}

/// What git tracks or would track; binary files are left out.
pub(crate) fn sources() -> Result<Vec<Source>, Error> {
    let list = run::text(
        Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(run::root()),
    )?;
    let mut sources = Vec::new();
    for path in list.split('\0').filter(|path| !path.is_empty()) {
        let full: PathBuf = run::root().join(path);
        // A file deleted but not yet committed is listed still.
        let Ok(bytes) = std::fs::read(&full) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            sources.push(Source { path: path.to_owned(), text });
        }
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let sources = sources().unwrap();
        assert!(sources.len() > 20, "git lists {} files only", sources.len());
        let problems = check(&sources);
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
