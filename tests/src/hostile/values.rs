//! What strangers say instead of what is meant: a table, each line as the bytes of a JSON value, or of what is none.

use std::fmt;

use serde_json::json;

/// To what a value is said in place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Whatever is meant.
    Any,
    /// A text, of whatever meaning: names, paths, links, addresses, expressions are not told apart by a schema.
    Text,
    /// A number.
    Number,
    /// Whatever is meant, but seldom: it is large.
    Large,
}

/// A line of the table.
#[derive(Clone)]
pub(super) struct Hostile {
    pub(super) what: &'static str,
    pub(super) place: Place,
    /// As it is written into the line.
    pub(super) bytes: Vec<u8>,
}

impl fmt::Debug for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

/// What a forged line of the log begins with: a time long before any test.
pub(super) const FORGED: &str = "2001-01-01T00:00:00.000000Z  INFO injected name=evil caller=Unix { uid: 0 }";

/// Names of things that are there for it.
#[derive(Debug)]
pub(super) struct Names {
    /// A path of root's below which are `file`, `socket`, `program`, `closed/file` and `closed/socket`.
    pub(super) roots: String,
    /// A folder of a stranger's, below which links lead to those.
    pub(super) own: String,
    /// A network namespace in which no stranger has a process.
    pub(super) namespace: String,
    /// Processes: of a stranger, of root, of the injector.
    pub(super) processes: [u32; 3],
}

/// The whole table.
pub(super) fn table(names: &Names) -> Vec<Hostile> {
    let mut table = texts(names);
    table.extend(numbers(names));
    table.extend(anything());
    table.extend(large());
    table
}

/// The texts alone.
pub(super) fn texts(names: &Names) -> Vec<Hostile> {
    let Names { roots, own, namespace, processes: [stranger, root, injector] } = names;
    let text =
        |what, text: String| Hostile { what, place: Place::Text, bytes: json!(text).to_string().into() };
    vec![
        text("nothing", String::new()),
        text("a blank", " ".into()),
        text("NUL", "a\0b".into()),
        text("a line of the log", format!("a\n{FORGED}")),
        text("a carriage return", format!("a\r{FORGED}")),
        text("a sequence of a terminal", "\u{1b}[2J\u{1b}]0;root\u{7}\u{9b}31m".into()),
        text("a change of direction", "\u{202e}gpj\u{2069}\u{2028}x".into()),
        text("letters beyond 16 bits", "💥\u{10ffff}".into()),
        text("64 letters and one", "a".repeat(65)),
        text("a name of an interface with folders", "lo/../eth0".into()),
        text("a name of root's", "0/nobodys".into()),
        text("a name of a vsock peer's", "vsock:3/nobodys".into()),
        text("a way up", "../../../../../../etc/shadow".into()),
        text("a file of root's", format!("{roots}/file")),
        text("a program of root's", format!("{roots}/program")),
        text("a folder of root's", format!("{roots}/closed")),
        text("a link to a file of root's", format!("{own}/link")),
        text("a link to a folder of root's", format!("{own}/way/file")),
        text("a link to itself", format!("{own}/circle")),
        text("a pipe", format!("{own}/pipe")),
        text("a way through a process of one's own", format!("/proc/{stranger}/root{roots}/file")),
        text("a way through a process of root's", format!("/proc/{root}/root{roots}/file")),
        text("a descriptor of the injector's", format!("/proc/{injector}/fd/3")),
        text("the daemon's own memory", "/proc/self/mem".into()),
        text("a device", "/dev/zero".into()),
        text("a folder of everybody's", "/tmp".into()),
        text("the root folder", "/".into()),
        text("a network namespace by name", namespace.clone()),
        text("a network namespace by process", format!("/proc/{root}/ns/net")),
        text("a network namespace by a way up", format!("/run/netns/../netns/{namespace}")),
        text("a mount namespace", format!("/proc/{root}/ns/mnt")),
        text("a control group above all", "..".into()),
        text("the root of the control groups", "/".into()),
        text("a socket of root's", format!("unix:{roots}/socket")),
        text("a socket of root's by a link", format!("unix:{own}/socket")),
        text("a socket of root's, of MCP", format!("mcp+unix:{roots}/closed/socket")),
        text("metadata of a cloud", "http://169.254.169.254/latest/meta-data/".into()),
        text("an address of IPv4 in one of IPv6", "::ffff:127.0.0.1".into()),
        text("everybody's addresses", "0.0.0.0/0".into()),
        text("a file by URL", "file:///etc/shadow".into()),
        text("a header in an address", "http://127.0.0.1:1/\r\nX-Forged: 1".into()),
        text("an expression that explodes", "(?:[a-z]?){90}Z".into()),
        text("an expression that grows", "((a{1000}){1000}){1000}".into()),
        text("an expression without an end", "(((((((((".into()),
        text("an expression for everybody", ".".into()),
        text("an option", "--policy=/tmp/policy.toml".into()),
        text("a command", format!("$(touch {roots}/new); `touch {roots}/new`")),
        text("a variable", "${CANARY} %(CANARY)s {{CANARY}}".into()),
        text("a format", "%s%n%1000000d{0}".into()),
        text("a number as text", "18446744073709551616".into()),
        text("a unit of the system's", "systemd-journald.service".into()),
        text("the daemon's unit", "chaos-daemon.service".into()),
    ]
}

fn numbers(names: &Names) -> Vec<Hostile> {
    let number = |what, text: &str| Hostile { what, place: Place::Number, bytes: text.into() };
    let [_, root, injector] = names.processes.map(|pid| pid.to_string());
    vec![
        number("0", "0"),
        number("-0", "-0.0"),
        number("-1", "-1"),
        number("1", "1"),
        number("a half", "0.5"),
        number("65536", "65536"),
        number("2^31", "2147483648"),
        number("2^32", "4294967296"),
        number("2^63", "9223372036854775808"),
        number("2^64", "18446744073709551616"),
        number("-2^63 - 1", "-9223372036854775809"),
        number("1e308", "1e308"),
        number("1e999", "1e999"),
        number("a number next to 0", "5e-324"),
        number("NaN", "NaN"),
        number("infinity", "-Infinity"),
        number("a process of root's", &root),
        number("the injector", &injector),
    ]
}

fn anything() -> Vec<Hostile> {
    let any = |what, bytes: &[u8]| Hostile { what, place: Place::Any, bytes: bytes.into() };
    vec![
        any("null", b"null"),
        any("true", b"true"),
        any("an empty list", b"[]"),
        any("an empty object", b"{}"),
        any("a list of lists", b"[[[[]]]]"),
        any("an object with one key twice", br#"{"a":1,"a":2}"#),
        any("half a surrogate", br#""\ud800""#),
        any("bytes that are no text", b"\"\xff\xfe\xc0\x80\""),
        any("a raw control character", b"\"a\x01b\""),
        any("half a value", b"{\"a\":"),
        any("a value and another", b"1, \"fault_name\": \"other\""),
        any("an end that comes too early", b"1}}}, {"),
    ]
}

fn large() -> Vec<Hostile> {
    let large = |what, bytes: Vec<u8>| Hostile { what, place: Place::Large, bytes };
    vec![
        large("1 MiB of A", format!("\"{}\"", "A".repeat(1 << 20)).into()),
        large("a line that is too long", format!("\"{}\"", "A".repeat(4 << 20)).into()),
        large("100,000 levels", ["[".repeat(100_000), "]".repeat(100_000)].concat().into()),
        large("100 levels", ["[".repeat(100), "]".repeat(100)].concat().into()),
        large("100,000 objects, each in one", ["{\"a\":".repeat(100_000), "1".into()].concat().into()),
        large("a list of 100,000", format!("[{}0]", "0,".repeat(100_000)).into()),
        large("a list of 100,000 names", format!("[{}\"\"]", "\"a\",".repeat(100_000)).into()),
        large("a number of 100,000 digits", "9".repeat(100_000).into()),
        large("100,000 escapes", format!("\"{}\"", "\\u0000".repeat(100_000)).into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lines_of_the_table_have_one_name_and_none_has_a_line_end() {
        let names =
            Names { roots: "/r".into(), own: "/o".into(), namespace: "n".into(), processes: [2, 3, 4] };
        let table = table(&names);
        let mut whats: Vec<_> = table.iter().map(|line| line.what).collect();
        whats.sort_unstable();
        whats.dedup();
        assert_eq!(whats.len(), table.len());
        assert!(table.iter().all(|line| !line.bytes.contains(&b'\n')));
    }
}
