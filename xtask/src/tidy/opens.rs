//! Every place of the daemon that opens, connects to or looks up something says who could have named it, as whom it is opened, and why that is
//! safe: in a comment `// OPENS: who | as whom | why`. ARCHITECTURE.md has them as a table.

use std::fmt::Write;

use super::Source;
use crate::error::Error;
use crate::run;

const ROOT: &str = "chaos-daemon/src/";
/// Rooms that run with rights, or for a caller.
const ROOMS: &[&str] = &[
    "fault/",
    "guard/",
    "holder/",
    "host/",
    "injector/",
    "journal/",
    "kernel/",
    "policy/",
    "probe/",
    "residue/",
    "target/",
];
const MARK: &str = "// OPENS: ";
/// What opens something.
const SIGNS: &[&str] = &[
    "File::open(",
    "OpenOptions::new()",
    "openat(",
    "O_PATH",
    "SYS_pidfd_getfd",
    "UnixStream::connect(",
    "TcpStream::connect(",
    "socket.connect(*",
    "canonicalize(",
    "to_socket_addrs(",
    "lookup_host(",
    "getaddrinfo(",
];
/// An open file opened once more: whatever the text says, it leads elsewhere.
const AGAIN: &str = "/proc/self/fd";
/// Where nobody but the kernel and root put anything.
const FIXED: &[&str] = &["\"/proc/", "\"/sys/", "\"/dev/", "\"/etc/"];

const DOCUMENT: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- opens:begin -->\n";
const END: &str = "<!-- opens:end -->";

/// One place.
struct Place {
    /// File and function.
    name: String,
    /// Who, as whom, why.
    words: Vec<String>,
}

/// Places without a comment, and a table that is not the code's, as `path:line: problem`.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems: Vec<String> = sources.iter().flat_map(unexplained).collect();
    let found = sources.iter().find(|source| source.path == DOCUMENT);
    match found.map(|document| split(&document.text)) {
        Some(Some((_, table, _))) if table == self::table(sources) => {}
        Some(Some(_)) => {
            problems.push(format!(
                "{DOCUMENT}:1: the table of what is opened is not the code's: cargo xtask tidy --fix"
            ));
        }
        // Other trees of tests have no such document.
        None if sources.iter().all(|source| !source.path.starts_with(ROOT)) => {}
        Some(None) | None => {
            problems.push(format!("{DOCUMENT}:1: no table between {} and {END}", BEGIN.trim()))
        }
    }
    problems
}

/// Writes the table anew.
pub(super) fn fix(sources: &[Source]) -> Result<(), Error> {
    let Some(document) = sources.iter().find(|source| source.path == DOCUMENT) else { return Ok(()) };
    let Some((before, _, after)) = split(&document.text) else { return Ok(()) };
    let text = format!("{before}{BEGIN}{}{END}{after}", table(sources));
    let path = run::root().join(DOCUMENT);
    std::fs::write(&path, text).map_err(Error::file("write", &path))
}

fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    Some((before, table, after))
}

fn table(sources: &[Source]) -> String {
    let mut text = "| where | who names it, or could have written it | as whom | why that is safe |\n|---|---|---|---|\n".to_owned();
    for place in sources.iter().filter(|source| is_concerned(source)).flat_map(marked) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{}` | {} |", place.name, place.words.join(" | "));
    }
    text
}

fn is_concerned(source: &Source) -> bool {
    let Some(path) = source.path.strip_prefix(ROOT).filter(|_| source.is_rust()) else { return false };
    let test = path.ends_with("tests.rs") || path.contains("_tests/") || path.ends_with("/fake.rs");
    !test && ROOMS.iter().any(|room| path.starts_with(room))
}

/// Lines of a file before its tests, with the function that each is in.
fn lines(source: &Source) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut function = "";
    let own = source.text.lines().enumerate().take_while(|(_, line)| *line != "#[cfg(test)]");
    own.map(move |(index, line)| {
        let code = line.split("//").next().unwrap_or_default();
        if let Some((_, rest)) =
            code.split_once("fn ").filter(|(before, _)| before.trim().split(' ').all(is_qualifier))
        {
            function = rest.split(['(', '<']).next().unwrap_or_default();
        }
        (index + 1, function, line)
    })
}

fn is_qualifier(word: &str) -> bool {
    matches!(word, "" | "async" | "const" | "unsafe") || word.starts_with("pub")
}

fn marked(source: &Source) -> Vec<Place> {
    let file = source.path.strip_prefix(ROOT).unwrap_or(&source.path);
    let mut places: Vec<Place> = Vec::new();
    let mut open = false;
    for (_, function, line) in lines(source) {
        let line = line.trim_start();
        if let Some(words) = line.strip_prefix(MARK) {
            places.push(Place { name: format!("{file}::{function}"), words: vec![words.to_owned()] });
            open = true;
        } else if let Some(more) =
            line.strip_prefix("// ").filter(|more| open && !more.starts_with("SAFETY:"))
        {
            let words = places.last_mut().and_then(|place| place.words.first_mut());
            words.into_iter().for_each(|words| words.extend([" ", more]));
        } else {
            open = false;
        }
    }
    for place in &mut places {
        place.words = place.words.concat().split('|').map(|part| part.trim().to_owned()).collect();
    }
    places
}

fn unexplained(source: &Source) -> Vec<String> {
    if !is_concerned(source) {
        return Vec::new();
    }
    let marked = marked(source);
    let mut problems: Vec<String> = marked
        .iter()
        .filter(|place| place.words.len() != 3)
        .map(|place| format!("{}:1: {}: OPENS has three parts: who | as whom | why", source.path, place.name))
        .collect();
    for (number, function, line) in lines(source) {
        let code = line.split("//").next().unwrap_or_default();
        let fixed = FIXED.iter().any(|place| code.contains(place)) || of_constant(code);
        let opens = code.contains(AGAIN) || !fixed && SIGNS.iter().any(|sign| code.contains(sign));
        let explained = marked.iter().any(|place| place.name.ends_with(&format!("::{function}")));
        if opens && !explained {
            problems.push(format!(
                "{}:{number}: {function} opens something: say who names it, as whom it is opened, and why that is safe \
                 ({MARK}who | as whom | why)",
                source.path
            ));
        }
    }
    problems
}

/// Whether what is opened is a constant, such as `SYSRQ`.
fn of_constant(code: &str) -> bool {
    let argument = ["open(", "connect("].iter().find_map(|call| code.rsplit_once(call)).map(|(_, rest)| rest);
    let argument = argument.and_then(|rest| rest.split([')', ',']).next()).unwrap_or_default();
    !argument.is_empty() && argument.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        let path = format!("{ROOT}{path}");
        unexplained(&Source { path, text: text.to_owned() }).len()
    }

    #[test]
    fn what_opens_something_by_a_name_says_why_it_may() {
        let opens = |comment: &str, call: &str| format!("fn a() {{\n{comment}    {call};\n}}\n");
        for call in [
            "File::open(path)",
            "openat(&a, b)",
            "x.custom_flags(O_PATH)",
            "format!(\"/proc/self/fd/{fd}\")",
            "(host, 0).to_socket_addrs()",
        ] {
            assert_eq!(problems("host/a.rs", &opens("", call)), 1, "{call}");
            assert_eq!(
                problems("host/a.rs", &opens("    // OPENS: root | root\n    // too | it is\n", call)),
                0,
                "{call}"
            );
            assert_eq!(problems("host/a.rs", &opens("    // OPENS: root | root\n", call)), 1, "{call}");
            assert_eq!(problems("server/a.rs", &opens("", call)), 0, "{call}");
            assert_eq!(problems("host/a.rs", &format!("#[cfg(test)]\n{}", opens("", call))), 0, "{call}");
        }
        for call in ["File::open(\"/proc/stat\")", "OpenOptions::new().open(SYSRQ)"] {
            assert_eq!(problems("host/a.rs", &opens("", call)), 0, "{call}");
        }
        let another = format!("fn b() {{\n    // OPENS: a | b | c\n}}\n{}", opens("", "File::open(path)"));
        assert_eq!(problems("host/a.rs", &another), 1, "the comment of another function");
    }
}
