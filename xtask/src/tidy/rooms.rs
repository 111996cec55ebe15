//! The rooms of chaos-daemon and the direction of calls between them (see `chaos-daemon/src/lib.rs`), and which
//! crates may be used where.

use super::Source;

const ROOT: &str = "chaos-daemon/src/";

/// Each room, and those it may use. A room sees itself and what is listed, nothing else.
const ROOMS: &[(&str, &[&str])] = &[
    ("fail_point", &[]),
    ("sabotage", &[]),
    ("spec", &[]),
    ("request", &["spec"]),
    ("host", &["spec", "request"]),
    ("target", &["spec", "request", "host"]),
    ("kernel", &["fail_point", "sabotage", "spec", "request", "host", "target"]),
    ("policy", &["spec", "request", "host", "target"]),
    ("fault", &["spec", "request", "host", "target", "kernel", "policy"]),
    ("journal", &["fail_point", "spec", "request", "host", "target", "kernel", "fault"]),
    ("residue", &["spec", "request", "host", "kernel", "journal"]),
    (
        "holder",
        &["fail_point", "sabotage", "spec", "request", "host", "target", "kernel", "fault", "journal"],
    ),
    (
        "injector",
        &[
            "fail_point",
            "sabotage",
            "spec",
            "request",
            "host",
            "target",
            "kernel",
            "fault",
            "journal",
            "residue",
            "holder",
            "policy",
        ],
    ),
    ("guard", &["sabotage", "spec", "request", "host", "target", "kernel", "fault", "journal", "injector"]),
    ("probe", &["spec", "request", "host"]),
    ("experiment", &["spec", "request", "host", "probe", "policy"]),
    ("server", &["spec", "request", "host", "policy", "probe", "experiment"]),
    ("report", &["spec", "experiment", "server"]),
    ("mcp", &["spec", "request", "fault", "probe", "experiment", "server", "report"]),
    (
        "cli",
        &["spec", "request", "host", "policy", "fault", "probe", "experiment", "server", "report", "mcp"],
    ),
    (
        "roles",
        &[
            "sabotage", "spec", "request", "host", "residue", "holder", "policy", "injector", "guard",
            "probe", "server", "mcp",
        ],
    ),
];

/// A crate, and the paths below `chaos-daemon/src` that may name it.
const CRATES: &[(&str, &[&str])] = &[
    ("aya", &["kernel/"]),
    ("rtnetlink", &["kernel/"]),
    ("netlink_packet_core", &["kernel/"]),
    ("netlink_packet_route", &["kernel/"]),
    ("hyper", &["holder/", "probe/"]),
    ("hyper_util", &["holder/", "probe/"]),
    ("http_body_util", &["holder/", "probe/"]),
    ("zbus", &["kernel/"]),
    ("rustls", &["probe/"]),
    ("rustls_native_certs", &["probe/"]),
    ("rusqlite", &["server/"]),
    ("landlock", &["host/"]),
    ("seccompiler", &["host/"]),
    ("rmcp", &["mcp/", "cli/"]),
    ("clap", &["cli/", "probe/arguments", "roles"]),
    ("clap_complete", &["cli/"]),
    ("clap_mangen", &["cli/", "roles"]),
    ("ratatui", &["cli/"]),
];

/// Every call in a forbidden direction, as `path:line: problem`.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        let Some(path) = source.path.strip_prefix(ROOT).filter(|_| source.is_rust()) else { continue };
        let room = path.split(['/', '.']).next().unwrap_or_default();
        // Tests may look at anything.
        if path.ends_with("tests.rs") {
            continue;
        }
        // lib.rs names every room, the programs use what they need. Unit tests of every room wait by waits.rs, which is no room, and
        // neither is fuzzing/, which asks every reader.
        let allowed = ROOMS.iter().find(|(name, _)| *name == room).map(|(_, uses)| *uses);
        if allowed.is_none() && !matches!(room, "lib" | "bin" | "waits" | "fuzzing") {
            problems.push(format!(
                "{}:1: room {room} is not in the table of xtask/src/tidy/rooms.rs",
                source.path
            ));
        }
        for (line, code) in statements(&source.text) {
            let mut add = |problem: String| problems.push(format!("{}:{line}: {problem}", source.path));
            for used in allowed.map(|_| rooms_named(&code)).into_iter().flatten() {
                let known = ROOMS.iter().any(|(name, _)| *name == used);
                if known && used != room && !allowed.is_some_and(|uses| uses.contains(&used)) {
                    add(format!("{room} may not use {used}"));
                }
            }
            for (name, places) in CRATES {
                if names_crate(&code, name) && !places.iter().any(|place| path.starts_with(place)) {
                    add(format!("{name} may only be used in {}", places.join(" and ")));
                }
            }
        }
    }
    problems
}

/// The lines of a file with their numbers, without comments; a `use` over several lines is one.
pub(super) fn statements(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        match found.last_mut() {
            Some((_, statement)) if open => statement.push_str(code.trim_start()),
            _ => found.push((index + 1, code.to_owned())),
        }
        let opens = code.split(' ').any(|word| word == "use");
        open = (open || opens) && !code.contains(';');
    }
    found
}

/// The words after each `crate::`, also within braces: `use crate::{host, spec::Fault}`.
fn rooms_named(code: &str) -> Vec<&str> {
    let mut rooms = Vec::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => rooms.push(word(rest)),
            Some(list) => {
                let mut depth = 0;
                for part in list.split_inclusive([',', '{', '}']) {
                    if depth == 0 {
                        rooms.push(word(part.trim_start()));
                    }
                    depth += part.matches('{').count();
                    depth = depth.saturating_sub(part.matches('}').count());
                }
            }
        }
    }
    rooms.retain(|room| !room.is_empty());
    rooms
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

fn names_crate(code: &str, name: &str) -> bool {
    let path = format!("{name}::");
    code.match_indices(&path).any(|(at, _)| {
        // `chaos_aya::` or `crate::aya::` is something else.
        !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&[Source { path: format!("{ROOT}{path}"), text: text.into() }]).len()
    }

    #[test]
    fn calls_against_the_order_are_found() {
        assert_eq!(problems("fault/mod.rs", "use crate::kernel::tc;\nuse crate::spec::Fault;"), 0);
        assert_eq!(problems("kernel/mod.rs", "use crate::fault::plan;"), 1);
        assert_eq!(problems("spec/mod.rs", "use crate::{spec::a, host::{b, kernel}, fault};"), 2);
        assert_eq!(problems("spec/mod.rs", "use crate::{\n    spec::a,\n    fault, // why\n};"), 1);
        assert_eq!(problems("mcp/tools.rs", "fn f() { crate::kernel::reset() }"), 1);
        assert_eq!(problems("novel/mod.rs", ""), 1);
    }

    #[test]
    fn crates_stay_where_they_belong() {
        assert_eq!(problems("kernel/bpf.rs", "use aya::maps::Array;"), 0);
        assert_eq!(problems("fault/mod.rs", "use aya::maps::Array;"), 1);
        assert_eq!(problems("injector/mod.rs", "let x: rmcp::Error;"), 1);
        assert_eq!(problems("cli/mod.rs", "use clap::Parser; // aya::x"), 0);
    }

    #[test]
    fn a_room_uses_only_rooms_above_it() {
        for (index, (room, uses)) in ROOMS.iter().enumerate() {
            for used in *uses {
                let position = ROOMS.iter().position(|(name, _)| name == used);
                assert!(position.is_some_and(|position| position < index), "{room} -> {used}");
            }
        }
    }
}
