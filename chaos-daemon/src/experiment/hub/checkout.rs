//! The documents of a Git checkout as one commit has them, whatever has become of its files since. Read by `git`, in the
//! name of who asks.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What may go wrong is for people.
type Result<T> = std::result::Result<T, String>;

/// The files at the top of `directory`, which is in a repository, that are `wanted` by their names.
///
/// # Errors
/// When there is no such commit, or a file is no text.
pub(super) fn files(
    directory: &Path,
    commit: &str,
    wanted: fn(&str) -> bool,
) -> Result<BTreeMap<String, String>> {
    git(directory, &["cat-file", "-e", &format!("{commit}^{{commit}}")]).map_err(|problem| {
        format!("has no commit {commit}, and nothing is fetched: fetch it yourself ({problem})")
    })?;
    let list = text(git(directory, &["ls-tree", "-z", commit])?)?;
    let files = list.split_terminator('\0').filter_map(file).filter(|(name, _)| wanted(name));
    files
        .map(|(name, object)| {
            let bytes = git(directory, &["cat-file", "blob", object])?;
            Ok((name.to_owned(), text(bytes).map_err(|problem| format!("{name}: {problem}"))?))
        })
        .collect()
}

/// Name and object of a line of ls-tree, "MODE TYPE OBJECT<tab>NAME"; nothing of a link, a folder or a submodule.
fn file(line: &str) -> Option<(&str, &str)> {
    let (about, name) = line.split_once('\t')?;
    let mut words = about.split(' ');
    let (mode, _, object) = (words.next()?, words.next()?, words.next()?);
    matches!(mode, "100644" | "100755").then_some((name, object))
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| format!("is no text: {error}"))
}

/// What git says. Of a partial clone it may not get what is missing (git(1), GIT_ALLOW_PROTOCOL).
fn git(directory: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(arguments).env("GIT_ALLOW_PROTOCOL", "").env("LC_ALL", "C");
    let done = command.output().map_err(|error| format!("git cannot be run: {error}"))?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => {
            let said = String::from_utf8_lossy(&done.stderr);
            Err(said.lines().last().map_or_else(|| format!("git: {}", done.status), str::to_owned))
        }
    }
}
