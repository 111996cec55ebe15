//! How exposed the processes are, by systemd's own count and by trying.

use crate::error::{Error, Result};
use crate::process::Process;
use crate::runner::FIGURE;
use crate::sandbox::{Around, Role, prove};
use crate::systemd::unit::{MEMBER, SERVICE, chaosctl, installed, main_pid, processes, run};
use crate::systemd::{TestResult, tests};

tests![
    no_unit_is_exposed_more_than_it_may_be,
    the_installed_server_and_prober_are_refused_what_their_reference_units_forbid,
];

/// What `systemd-analyze security` is asked about, and the most it may say, in tenths. The units of the last two are not
/// installed: they stand for what the processes give up by themselves.
const EXPOSURES: &[(&str, &[&str], u32)] = &[
    ("the injector's unit", &[SERVICE], 30),
    ("a unit as tight as the server", &["--offline=yes", "/chaos/server-reference.service"], 10),
    ("a unit as tight as the prober", &["--offline=yes", "/chaos/prober-reference.service"], 12),
];

fn no_unit_is_exposed_more_than_it_may_be() -> TestResult {
    installed()?;
    let mut problems = String::new();
    for (what, unit, most) in EXPOSURES {
        // Fails above the threshold.
        let threshold = format!("--threshold={most}");
        let said = run("systemd-analyze", &[&["security", "--no-pager", &threshold], *unit].concat());
        match said.as_deref().ok().and_then(|text| text.lines().last()?.split_once(": ")) {
            Some((_, exposure)) => println!("{FIGURE}exposure of {what}: {exposure}"),
            None => problems.push_str(&format!("{what}: {said:?}\n")),
        }
    }
    assert!(problems.is_empty(), "{problems}");
    Ok(())
}

fn the_installed_server_and_prober_are_refused_what_their_reference_units_forbid() -> TestResult {
    installed()?;
    // Once it has answered, it is ready.
    chaosctl(MEMBER, &["doctor"])?;
    for (role, word) in [(Role::Server, "server"), (Role::Prober, "prober")] {
        println!("{FIGURE}{word}: {} tries refused", prove(&child(word)?, role, Around::Unit)?);
    }
    Ok(())
}

fn child(word: &str) -> Result<Process> {
    let injector = main_pid()?;
    let mut all = processes();
    all.retain(|process| process.parent == injector);
    let found = all.into_iter().find(|process| process.arguments.get(1).is_some_and(|role| role == word));
    found.ok_or_else(|| Error::Different(format!("the injector has no {word}")))
}
