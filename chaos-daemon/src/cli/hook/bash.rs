//! What a command line of a shell would call of the daemon: each `chaosctl` in it, also behind `sh -c`, `env` and the like.
//!
//! The rule: what is understood is judged, and what is not understood and speaks of `chaosctl` is refused. Commands that have nothing
//! to do with it are not this hook's business.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::mention;
use super::shell::{self, Simple, Word};
use crate::mcp::judge::{MOST_CALLS, ToolCall};

/// How deep shells may be within shells.
const MOST_LAYERS: usize = 8;
/// How many letters of its name a pattern has to have, to be taken for it.
const FEWEST_LETTERS: usize = 3;
/// How many words of a line are looked at as files.
const MOST_FILES: usize = 64;
/// How much of a script is looked at.
const LONGEST_SCRIPT: u64 = 256 << 10;

/// Programs that read, list or print what they are given, and run nothing of it.
const READERS: &[&str] = &[
    "[", "cat", "command", "echo", "egrep", "false", "fgrep", "file", "grep", "head", "ls", "printf",
    "readlink", "realpath", "stat", "tail", "test", "true", "type", "wc", "whatis", "whereis", "which",
];
/// The same, as long as no option names another program.
const PAGERS: &[&str] = &["less", "man", "more", "rg"];
/// Programs that run what they read, or are given.
const RUNNERS: &[&str] = &[
    "at",
    "awk",
    "batch",
    "bun",
    "busybox",
    "chroot",
    "crontab",
    "curl",
    "deno",
    "docker",
    "entr",
    "expect",
    "find",
    "flock",
    "gawk",
    "gdb",
    "gosu",
    "kubectl",
    "ltrace",
    "lua",
    "make",
    "mawk",
    "nc",
    "ncat",
    "node",
    "nsenter",
    "parallel",
    "perf",
    "perl",
    "php",
    "podman",
    "python",
    "ruby",
    "runuser",
    "screen",
    "script",
    "setpriv",
    "socat",
    "ssh",
    "strace",
    "su",
    "systemd-run",
    "tclsh",
    "tmux",
    "unshare",
    "valgrind",
    "watch",
    "xargs",
];
/// Those of a shell that change what the commands after them mean.
const CHANGERS: &[&str] = &[
    "alias", "declare", "enable", "export", "hash", "local", "readonly", "set", "shopt", "trap", "typeset",
    "unset",
];
const SHELLS: &[&str] = &["ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"];
/// Those that change the folder.
const MOVERS: &[&str] = &["cd", "popd", "pushd"];
/// Programs that run the command after their options: which of their options take a value, and how many words come before it.
const WRAPPERS: &[(&str, &str, usize)] = &[
    ("builtin", "", 0),
    ("command", "", 0),
    ("doas", "uC", 0),
    ("env", "ua", 0),
    ("exec", "a", 0),
    ("ionice", "cn", 0),
    ("nice", "n", 0),
    ("nohup", "", 0),
    ("setsid", "", 0),
    ("stdbuf", "ioe", 0),
    ("sudo", "ughpCTrt", 0),
    ("time", "fo", 0),
    ("timeout", "ks", 1),
];

/// Which calls of tools a command makes.
pub(super) type OfCommand<'a> = dyn Fn(&[String], bool) -> Result<Vec<ToolCall>, String> + 'a;

/// What a line comes to.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What it would call.
    pub(super) calls: Vec<ToolCall>,
    /// Why a person should look at it.
    pub(super) ask: Option<String>,
}

/// What a line would call, where `of_command` knows what a `chaosctl` command does, and whether files are where they seem to be.
///
/// # Errors
/// Why that cannot be told, of a line that speaks of `chaosctl`.
pub(super) fn look(line: &str, of_command: &OfCommand<'_>) -> Result<Found, String> {
    let mut look = Look {
        of_command,
        found: Found::default(),
        folders: vec![PathBuf::new()],
        named: Vec::new(),
        speaks: mention::is_in(line),
        is_others: false,
    };
    look.line(line, MOST_LAYERS)?;
    if look.found.calls.len() > MOST_CALLS {
        return Err(format!("it has too many commands of chaosctl: give {MOST_CALLS} calls at most"));
    }
    Ok(look.found)
}

struct Look<'a> {
    of_command: &'a OfCommand<'a>,
    found: Found,
    /// The folders in which a command may run: the one in which the line begins, and those to which it changes.
    folders: Vec<PathBuf>,
    /// What the line names that is looked at: its words, and what it reads.
    named: Vec<String>,
    /// Whether the whole line speaks of `chaosctl`.
    speaks: bool,
    /// Whether what is looked at runs as somebody else.
    is_others: bool,
}

/// A command without what stands before it.
struct Bare<'a> {
    words: &'a [String],
    variables: Vec<String>,
    /// It runs as somebody else.
    is_others: bool,
}

impl Look<'_> {
    fn line(&mut self, line: &str, layers: usize) -> Result<(), String> {
        let commands = match shell::read(line) {
            Ok(commands) => commands,
            Err(_) if !self.speaks && !mention::has_parts(line) => return not_plain(line),
            Err(why) => return Err(format!("it speaks of chaosctl, and cannot be understood: {why}")),
        };
        let Some(layers) = layers.checked_sub(1) else {
            return self.not_understood("shells within shells");
        };
        let texts = |command: &Simple| {
            let words = command.words.iter().map(|word| word.text.clone());
            words.chain(command.reads.iter().cloned()).collect::<Vec<_>>()
        };
        let outer = std::mem::replace(&mut self.named, commands.iter().flat_map(texts).collect());
        commands.iter().try_for_each(|command| self.command(command, layers))?;
        self.named = outer;
        Ok(())
    }

    /// Refuses what may be about it, and lets the rest be.
    fn not_understood(&self, what: &str) -> Result<(), String> {
        match self.speaks {
            true => Err(format!("it speaks of chaosctl within {what}: call chaosctl by itself, or a tool")),
            false => Ok(()),
        }
    }

    fn command(&mut self, command: &Simple, layers: usize) -> Result<(), String> {
        let words: Vec<String> = command.words.iter().map(|word| word.text.clone()).collect();
        let Ok(bare) = bare(&words) else { return self.not_understood("options that are not known here") };
        let variables: Vec<_> = command.variables.iter().cloned().chain(bare.variables.clone()).collect();
        let Some(program) = bare.words.first() else {
            return if variables.is_empty() { Ok(()) } else { self.not_understood("variables") };
        };
        let name = base(program);
        let is_pattern = |word: &Word| word.is_pattern;
        if command.words.get(words.len() - bare.words.len()).is_some_and(is_pattern) && may_be_chaosctl(name)
        {
            return Err(format!("{program:?} may be chaosctl: name it in full"));
        }
        if name == "chaosctl" {
            return self.chaosctl(&bare, &variables, command.words.iter().any(is_pattern));
        }
        if name == "eval" || SHELLS.contains(&name) {
            if !variables.is_empty() {
                return self.not_understood("a shell for which variables are set");
            }
            let was_others = self.is_others;
            self.is_others |= bare.is_others;
            match name {
                "eval" => self.line(&bare.words[1..].join(" "), layers)?,
                _ => self.shell(&bare.words[1..], layers)?,
            }
            self.is_others = was_others;
            return Ok(());
        }
        if MOVERS.contains(&name) {
            self.moves(&bare.words[1..]);
            return Ok(());
        }
        if matches!(name, "." | "source") {
            return bare.words.get(1).map_or(Ok(()), |path| self.script(Path::new(path)));
        }
        self.other(name, &bare, &variables)
    }

    /// A program that is neither `chaosctl` nor a shell.
    fn other(&mut self, name: &str, bare: &Bare<'_>, variables: &[String]) -> Result<(), String> {
        // Of several versions, such as python3.12.
        let plain = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        if RUNNERS.contains(&plain) || CHANGERS.contains(&name) {
            return self.not_understood(&format!("a line with {name}"));
        }
        // A pager runs what its variables and some of its words say.
        let has_options = bare.words.iter().skip(1).any(|word| word.starts_with(['-', '+']));
        let is_told = !variables.is_empty() || !bare.variables.is_empty();
        if !is_told && (READERS.contains(&name) || (PAGERS.contains(&name) && !has_options)) {
            return Ok(());
        }
        if let Some(program) = bare.words.first().filter(|program| program.contains('/')) {
            self.own_script(Path::new(program))?;
        }
        if bare.words.iter().chain(variables).any(|word| mention::is_in(word)) {
            let text = format!("{name} is given something about chaosctl, and this hook does not know it");
            self.found.ask = Some(text);
        }
        Ok(())
    }

    /// Another folder, from here on or, where this fails, not.
    fn moves(&mut self, words: &[String]) {
        let named = words.iter().find(|word| !word.starts_with('-'));
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let Some(to) = named.map(PathBuf::from).or(home) else { return };
        let known: Vec<_> = self.folders.iter().take(MOST_FILES / 2).map(|folder| folder.join(&to)).collect();
        self.folders.extend(known);
    }

    fn chaosctl(&mut self, bare: &Bare<'_>, variables: &[String], has_pattern: bool) -> Result<(), String> {
        if has_pattern {
            return Err("a shell would put names of files in it: quote them, or name them in full".to_owned());
        }
        if let Some(set) = variables.first() {
            let name = set.split('=').next().unwrap_or_default();
            return Err(format!("{name} is set for it alone, which may change what it does: leave that out"));
        }
        let calls = (self.of_command)(bare.words, self.folders.len() == 1)?;
        if (bare.is_others || self.is_others) && !calls.iter().all(ToolCall::looks_or_ends) {
            return Err("it runs as somebody else, for whom this hook cannot speak".to_owned());
        }
        self.found.calls.extend(calls);
        Ok(())
    }

    /// The words after the name of a shell: `-c` and what it runs, or a script.
    fn shell(&mut self, words: &[String], layers: usize) -> Result<(), String> {
        let mut words = words.iter();
        let mut runs = false;
        while let Some(word) = words.next() {
            match word.strip_prefix(['-', '+']) {
                Some(long) if long.starts_with('-') => {
                    if !matches!(word.as_str(), "--login" | "--norc" | "--noprofile" | "--posix" | "--") {
                        return self.not_understood("options of a shell");
                    }
                }
                Some("") => return self.not_understood("what a shell reads"),
                Some(letters) => {
                    runs |= letters.contains('c');
                    if letters.contains(['o', 'O']) {
                        words.next();
                    }
                }
                None if runs => return self.line(word, layers),
                None => return self.script(Path::new(word)),
            }
        }
        // It may come from any file that the line names.
        let named = self.named.iter().take(MOST_FILES).map(Path::new);
        named.flat_map(|path| self.texts(path)).try_for_each(|(path, text)| speaks_not(&path, &text))?;
        self.not_understood("what a shell reads")
    }

    /// A script that a shell is to run, as it is now.
    fn script(&self, path: &Path) -> Result<(), String> {
        let texts = self.texts(path);
        if texts.is_empty() {
            return self.not_understood("a line with a script that cannot be read");
        }
        texts.iter().try_for_each(|(path, text)| speaks_not(path, text))
    }

    /// A program by its path, which may be a script.
    fn own_script(&self, path: &Path) -> Result<(), String> {
        let texts = self.texts(path);
        let mut scripts = texts.iter().filter(|(_, text)| text.starts_with("#!"));
        scripts.try_for_each(|(path, text)| speaks_not(path, text))
    }

    /// The texts that a path may stand for, in each folder in which a command may run.
    fn texts(&self, path: &Path) -> Vec<(PathBuf, String)> {
        let paths = self.folders.iter().map(|folder| folder.join(path));
        let mut texts: Vec<_> = paths.filter_map(|path| Some((path.clone(), contents(&path)?))).collect();
        texts.dedup_by(|(one, _), (other, _)| one == other);
        texts
    }
}

fn speaks_not(path: &Path, script: &str) -> Result<(), String> {
    match mention::is_in(script) {
        true => Err(format!("the script {} speaks of chaosctl: run its commands one by one", path.display())),
        false => Ok(()),
    }
}

/// The text of a regular file that is not long.
fn contents(path: &Path) -> Option<String> {
    let is_short = |found: std::fs::Metadata| found.is_file() && found.len() <= LONGEST_SCRIPT;
    std::fs::metadata(path).is_ok_and(is_short).then_some(())?;
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(LONGEST_SCRIPT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The name of a program without its folders.
fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// A line that is not plain, and does not speak of `chaosctl`: no word of it may stand for the name.
fn not_plain(line: &str) -> Result<(), String> {
    let is_near = |pattern: &String| {
        let letters = base(pattern).chars().filter(char::is_ascii_alphabetic).count();
        letters >= FEWEST_LETTERS && may_be_chaosctl(base(pattern))
    };
    match shell::patterns(line).into_iter().find(is_near) {
        Some(pattern) => Err(format!("a word like {pattern:?} may be chaosctl: name it in full")),
        None => Ok(()),
    }
}

/// Whether a pattern of a shell may stand for the name.
fn may_be_chaosctl(pattern: &str) -> bool {
    let mut expression = String::from("^");
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            '[' => {
                // Any of a set, whatever is in it.
                letters.by_ref().find(|letter| *letter == ']');
                expression.push('.');
            }
            // A list of alternatives may be anything.
            '{' => return true,
            letter => expression.push_str(&regex_lite::escape(&letter.to_string())),
        }
    }
    expression.push('$');
    regex_lite::Regex::new(&expression).is_ok_and(|expression| expression.is_match("chaosctl"))
}

/// The options of a wrapper with which it is more than that.
fn odd_of(wrapper: &str) -> &'static [char] {
    match wrapper {
        "sudo" => &['i', 's', 'k', 'D', 'R', 'e', 'l', 'v'],
        "doas" => &['s', 'L'],
        "env" => &['S', 'C'],
        _ => &[],
    }
}

/// A command without the programs that only run it in another way.
fn bare(words: &[String]) -> Result<Bare<'_>, ()> {
    let mut bare = Bare { words, variables: Vec::new(), is_others: false };
    loop {
        let Some(program) = bare.words.first() else { return Ok(bare) };
        let name = base(program);
        let Some((name, with_value, before)) = WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) else {
            return Ok(bare);
        };
        let mut rest = &bare.words[1..];
        if *name == "command" && rest.first().is_some_and(|word| matches!(word.as_str(), "-v" | "-V")) {
            return Ok(bare);
        }
        while let Some(option) = rest.first().and_then(|word| word.strip_prefix('-')) {
            rest = &rest[1..];
            match option {
                "-" => break,
                // Another login, another shell, another folder, or a line that is split.
                option if option.starts_with('-') || option.contains(odd_of(name)) => return Err(()),
                option => {
                    let takes_next =
                        option.ends_with(|letter| with_value.contains(letter)) && !option.is_empty();
                    rest = rest.get(usize::from(takes_next)..).unwrap_or_default();
                }
            }
        }
        rest = rest.get(*before..).unwrap_or_default();
        if matches!(*name, "env" | "sudo" | "doas") {
            while let Some((variable, more)) = rest.split_first().filter(|(word, _)| word.contains('=')) {
                bare.variables.push(variable.clone());
                rest = more;
            }
        }
        bare.is_others |= matches!(*name, "sudo" | "doas");
        bare.words = rest;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    /// The commands of chaosctl that are found, each as one call with its words.
    fn found(line: &str) -> Result<(Vec<String>, bool), String> {
        let of_command = |words: &[String], _: bool| {
            let tool = if words.get(1).is_some_and(|word| word == "stop") { "chaos_stop" } else { "" };
            Ok(vec![ToolCall::new(if tool.is_empty() { &words[1] } else { tool }, Map::new())])
        };
        let found = look(line, &of_command)?;
        Ok((found.calls.into_iter().map(|call| call.tool).collect(), found.ask.is_some()))
    }

    #[test]
    fn each_command_of_chaosctl_is_found_wherever_it_stands() {
        for line in [
            "chaosctl x",
            "/usr/bin/chaosctl x",
            "c'haos'ctl x",
            "true && chaosctl x | jq .",
            "sh -c 'chaosctl x'",
            "bash -lc \"chaosctl x\"",
            "bash -o pipefail -c 'chaosctl x'",
            "sh -c \"bash -c 'chaosctl x'\"",
            "env -i chaosctl x",
            "timeout -k 5 10 nice -n 5 chaosctl x",
            "nohup chaosctl x > log 2>&1 &",
            "eval chaosctl x",
            "command chaosctl x",
            "! chaosctl x",
            "exec chaosctl x",
        ] {
            assert_eq!(found(line), Ok((vec!["x".to_owned()], false)), "{line}");
        }
        assert_eq!(found("sudo chaosctl stop").unwrap().0, ["chaos_stop"]);
    }

    #[test]
    fn what_is_not_understood_and_speaks_of_it_is_refused() {
        let encoded = "Y2hhb3NjdGwgaW5qZWN0IGxhdGVuY3k=";
        for line in [
            "chaosctl inject $X",
            "for i in 1 2; do chaosctl x; done",
            "echo 'chaosctl x' | sh",
            &format!("echo {encoded} | base64 -d | bash"),
            &format!("bash -c \"$(echo {encoded} | base64 -d)\""),
            "python3.12 -c 'import os; os.system(\"chaosctl x\")'",
            "xargs chaosctl",
            "find . -exec chaosctl x ;",
            "X=chaos; ${X}ctl x",
            "/usr/bin/chaos* x",
            "c?aosctl x",
            "chaosctl run *.yaml",
            "{chaosctl,x}",
            "A=1 chaosctl x",
            "env A=1 chaosctl x",
            "export A=1; chaosctl x",
            "alias c=chaosctl; c x",
            "C=chaosctl",
            "sudo chaosctl x",
            "sudo -i chaosctl x",
            "sudo sh -c 'chaosctl x'",
            "A=1 sh -c 'chaosctl x'",
            "env /usr/bin/chaos* x",
            "env -C / chaosctl x",
            "sh <<< 'chaosctl x'",
            "bash /no/such/script chaosctl",
            "nc -U /run/chaos-daemon/mcp.sock",
            "ssh host chaosctl x",
            "echo $HOME; /usr/bin/chaos?tl x",
            "for i in 1; do /usr/bin/[c]haosc* x; done",
            "(cha${A}ctl x)",
            "cha$(true)ctl x",
            "$(true); {c,}haosctl x",
        ] {
            assert!(found(line).is_err(), "{line}: {:?}", found(line));
        }
        let deep = (0..12).fold("chaosctl x".to_owned(), |line, _| format!("sh -c {line:?}"));
        assert!(found(&deep).is_err());
    }

    #[test]
    fn a_script_that_speaks_of_it_is_refused_and_the_rest_is_nobodys_business() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("x.sh");
        std::fs::write(&script, "#!/bin/sh\nchaosctl x\n").unwrap();
        assert!(found(&format!("sh {}", script.display())).is_err());
        let at = folder.path().display();
        for line in [
            format!("cd {at} && sh x.sh"),
            format!("cd {at}; ./x.sh"),
            format!(". {at}/x.sh"),
            format!("source {at}/x.sh"),
            format!("sh < {at}/x.sh"),
            format!("cat {at}/x.sh | bash"),
            format!("cd /tmp || cd {at} && bash -e x.sh"),
        ] {
            assert!(found(&line).is_err(), "{line}");
        }
        std::fs::write(&script, "#!/bin/sh\ntrue\n").unwrap();
        assert_eq!(found(&format!("sh {}", script.display())), Ok((Vec::new(), false)));
        for line in [
            "ls -l",
            "cargo test $X",
            "systemctl status chaos-daemon",
            "for i in a; do echo; done",
            "",
            "tc qdisc show",
            "ls $HOME/c* | wc -l",
            "for f in *; do echo \"$f\"; done",
            "echo ${X}..$Y a$b systemctl $(date)",
            "cd /tmp && ls | sh",
        ] {
            assert_eq!(found(line), Ok((Vec::new(), false)), "{line}");
        }
        for line in [
            "grep -rn chaosctl docs",
            "which chaosctl",
            "command -v chaosctl",
            "man chaosctl",
            "echo chaosctl",
        ] {
            assert_eq!(found(line), Ok((Vec::new(), false)), "{line}");
        }
        for line in [
            "git commit -m 'about chaosctl'",
            "cp chaosctl /usr/bin/chaosctl",
            "man -P 'chaosctl x' ls",
            "LESSOPEN='|chaosctl x' less a",
        ] {
            assert_eq!(found(line), Ok((Vec::new(), true)), "{line}");
        }
        std::fs::write(&script, "#!/bin/sh\nchaosctl x\n").unwrap();
        assert!(found(&script.display().to_string()).is_err());
    }
}
