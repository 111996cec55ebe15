//! What `chaosctl` draws on a terminal: a run while it goes on, and `chaosctl top`.

use std::io::Write as _;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::experiments::{chaosctl, document, is_cut};
use super::{Context, Outcome, TestResult, tests};
use crate::daemon::ROOM;
use crate::late::HANG;
use crate::process::wait_until;
use crate::terminal::Terminal;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    a_run_is_drawn_at_every_width_with_its_gates_events_and_verdict,
    a_run_whose_daemon_dies_says_so_where_it_is_drawn_and_how_it_is_found_again,
    top_shows_faults_runs_and_gates_and_stops_what_was_asked_about,
    however_top_ends_the_terminal_is_as_it_was,
];

/// As [`document`], with a gate that nothing breaches, whose fault lasts so long.
fn gated(pair: &Pair, lasts: &str) -> Value {
    let mut gated = document(pair);
    gated["method"][0]["provider"]["arguments"]["--for"] = json!(lasts);
    let sockets = json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "sockets", "all"]});
    let gate =
        json!({"name": "many", "op": "gt", "value": 1_000_000, "interval": "200ms", "provider": sockets});
    gated["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [gate]}]);
    gated
}

/// The document in a file.
fn file(document: &Value) -> Result<NamedTempFile> {
    let file = tempfile::Builder::new().prefix("chaos-test-").suffix(".json").tempfile();
    let mut file = file.map_err(Error::io("create", "a document"))?;
    file.write_all(document.to_string().as_bytes()).map_err(Error::io("write", "a document"))?;
    Ok(file)
}

/// The handle in `run HANDLE of `.
fn handle(screen: &str) -> Result<String> {
    let word = screen.split("run ").nth(1).and_then(|rest| rest.split(' ').next());
    word.map(str::to_owned).ok_or_else(|| Error::Different(format!("no handle: {screen}")))
}

fn a_run_is_drawn_at_every_width_with_its_gates_events_and_verdict(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let file = file(&gated(&pair, "2s"))?;
    let file = file.path().display().to_string();
    for (columns, no_color) in [(60, ""), (80, "1"), (120, "")] {
        let mut run = chaosctl(&daemon, &["run", &file])?;
        let mut terminal = Terminal::start(run.env("NO_COLOR", no_color), columns)?;
        let drawn =
            terminal.until_it_shows(&["cut · lasting", "✓ many", "injected: cut", "trips at > 10"])?;
        let handle = handle(&drawn)?;
        assert!(drawn.contains(&format!("run {handle} of cut; Ctrl-C stops it")), "{drawn}");
        assert!(drawn.contains(" left\n") && drawn.contains('▁') | drawn.contains('█'), "{drawn}");
        assert_eq!(terminal.has_colours(), no_color.is_empty(), "{drawn}");
        let (code, left) = terminal.ended()?;
        assert_eq!(code, Some(0), "{left}");
        for word in ["H E L D   cut", "removed: cut", "cut: held after", "steady state before: met"] {
            assert!(left.contains(word), "{word}: {left}");
        }
        assert!(!left.contains("cut · "), "what was drawn has gone: {left}");
        terminal.assert_given_back()?;
    }
    Ok(Outcome::Pass)
}

fn a_run_whose_daemon_dies_says_so_where_it_is_drawn_and_how_it_is_found_again(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let mut daemon = Daemon::start()?;
    let file = file(&gated(&pair, "10m"))?;
    let mut terminal =
        Terminal::start(&mut chaosctl(&daemon, &["run", &file.path().display().to_string()])?, 80)?;
    let drawn = terminal.until_it_shows(&["injected: cut", "✓ many"])?;
    let handle = handle(&drawn)?;
    daemon.kill_everything();
    terminal.until_it_shows(&["the daemon does not answer"])?;
    let (code, left) = terminal.ended()?;
    // A terminal breaks lines where it likes.
    let words = left.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(code, Some(6), "{left}");
    assert!(words.contains(&format!("the daemon has ended while run {handle} went on")), "{left}");
    assert!(words.contains(&format!("chaosctl show {handle}")), "{left}");
    terminal.assert_given_back()?;
    daemon.start_again(|_| {})?;
    let shown = chaosctl(&daemon, &["show", &handle])?.output().map_err(Error::io("start", "chaosctl"))?;
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.starts_with("cut: interrupted after"), "{shown}");
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

/// Registers a fault that lasts, and injects it.
fn hoard(mcp: &Mcp, name: &str) -> Result<()> {
    let fault = json!({"fault_name": name, "action": "register", "fault_type": "resource_exhaustion", "probability": 1,
        "duration_seconds": 600, "params": {"resource": "file_descriptors", "count": 10}});
    mcp.call_tool("chaos_inject_fault", fault)?.ok()?;
    mcp.call_tool("chaos_inject_fault", json!({"fault_name": name, "action": "inject"}))?.ok().map(drop)
}

fn top_shows_faults_runs_and_gates_and_stops_what_was_asked_about(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let before = Residue::take(&[&pair.near])?;
    let daemon = Daemon::start_under(ROOM)?;
    let mcp = daemon.mcp()?;
    hoard(&mcp, "hoard")?;
    let file = file(&gated(&pair, "10m"))?;
    let begun = chaosctl(&daemon, &["run", "--detach", &file.path().display().to_string()])?.output();
    let begun = begun.map_err(Error::io("start", "chaosctl"))?;
    assert!(begun.status.success(), "{begun:?}");
    assert!(wait_until(HANG, || is_cut(&mcp)), "{}", daemon.log());
    let handle = String::from_utf8_lossy(&begun.stdout).trim().to_owned();
    // In a pipe it is one page of plain text.
    let once = chaosctl(&daemon, &["top", "--once"])?.output().map_err(Error::io("start", "chaosctl"))?;
    let page = String::from_utf8_lossy(&once.stdout);
    for word in ["2 faults, 1 run", "hoard", "network_partition", &format!("run {handle}"), "✓ many"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    assert!(once.status.success() && !page.contains('\u{1b}'), "{page}");
    let mut terminal = Terminal::start(&mut chaosctl(&daemon, &["top"])?, 80)?;
    terminal.until_it_shows(&[
        "2 faults, 1 run",
        "hoard",
        &format!("run {handle}"),
        "✓ many",
        "trips at > 1000000",
    ])?;
    assert!(terminal.has_colours());
    // Faults are in the order of their names: cut, hoard.
    terminal.press("jj")?;
    terminal.until_it_shows(&["> hoard"])?;
    terminal.press("s")?;
    terminal.until_it_shows(&["stop fault hoard? y: yes, any other key: no"])?;
    terminal.press("n")?;
    terminal.until_it_does_not_show("stop fault hoard?")?;
    terminal.until_it_shows(&["2 faults, 1 run", "> hoard"])?;
    terminal.press("sy")?;
    terminal.until_it_shows(&["1 fault, 1 run", "ended: hoard"])?;
    terminal.press("ay")?;
    terminal.until_it_shows(&["0 faults, 0 runs", "none is active", "none goes on"])?;
    terminal.press("q")?;
    let (code, left) = terminal.ended()?;
    assert_eq!((code, left.trim()), (Some(0), ""));
    terminal.assert_given_back()?;
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn however_top_ends_the_terminal_is_as_it_was(_: &Context) -> TestResult {
    let mut daemon = Daemon::start()?;
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let mut terminal = Terminal::start(&mut chaosctl(&daemon, &["top"])?, 80)?;
        terminal.until_it_shows(&["0 faults, 0 runs"])?;
        terminal.signal(signal)?;
        assert_eq!(terminal.ended()?.0, Some(0), "{signal}");
        terminal.assert_given_back()?;
    }
    for key in ["q", "\u{3}"] {
        let mut terminal = Terminal::start(&mut chaosctl(&daemon, &["top"])?, 60)?;
        terminal.until_it_shows(&["0 faults, 0 runs"])?;
        terminal.press(key)?;
        assert_eq!(terminal.ended()?.0, Some(0), "{key:?}");
        terminal.assert_given_back()?;
    }
    let mut terminal = Terminal::start(&mut chaosctl(&daemon, &["top"])?, 120)?;
    terminal.until_it_shows(&["0 faults, 0 runs"])?;
    daemon.kill_everything();
    terminal.until_it_shows(&["the daemon does not answer"])?;
    daemon.start_again(|_| {})?;
    terminal.until_it_does_not_show("the daemon does not answer")?;
    terminal.press("q")?;
    assert_eq!(terminal.ended()?.0, Some(0));
    terminal.assert_given_back()?;
    Ok(Outcome::Pass)
}
