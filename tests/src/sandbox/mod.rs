//! That the two processes without rights are shut in as tightly as a systemd unit of the best score would do it: each is
//! made to try what the unit's directives forbid, and every try is answered by the right errno.

mod attempts;
mod puppet;

use std::fs;

use nix::libc;
use nix::sys::signal::Signal;

use crate::error::{Error, Result};
use crate::process::Process;
use attempts::{Attempt, BOTH, PROBER_MAY, SERVER, X32};
use puppet::{Argument, Puppet};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What callers talk to.
    Server,
    /// What takes samples.
    Prober,
}

/// What is around the process beside its own sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Around {
    /// Nothing.
    Nothing,
    /// The unit's sandbox, which hides some files before Landlock is asked: they are not there, or read-only.
    Unit,
}

/// Has the process try everything, without leaving a trace in it. Returns how many tries were refused.
///
/// # Errors
/// Every try that was answered differently, at once.
pub fn prove(process: &Process, role: Role, around: Around) -> Result<usize> {
    let mut problems = fields(process)?;
    let puppet = Puppet::take(process.pid)?;
    let own = puppet.call(libc::SYS_getpid, &[])?;
    if own != i64::from(process.pid) {
        problems.push(format!("a call that is allowed: getpid gives {own}"));
    }
    let mut tries: Vec<&Attempt> = BOTH.iter().collect();
    if role == Role::Server {
        tries.extend(SERVER);
    }
    for attempt in &tries {
        let Attempt { directive, words, call, arguments, errno } = attempt;
        let got = puppet.call(*call, arguments)?;
        let hidden = around == Around::Unit
            && *errno == libc::EACCES
            && [libc::ENOENT, libc::EROFS].iter().any(|other| got == -i64::from(*other));
        if got != -i64::from(*errno) && !hidden {
            problems.push(format!("{directive}: {words}: {got} instead of {}", -errno));
        }
    }
    if role == Role::Prober {
        for allowed in PROBER_MAY {
            let fd = puppet.call(allowed.call, allowed.arguments)?;
            let closed = puppet.call(libc::SYS_close, &[Argument::Number(fd.cast_unsigned())])?;
            if fd < 0 || closed != 0 {
                problems.push(format!("what a probe needs: {}: {fd}", allowed.words));
            }
        }
    }
    drop(puppet);
    match problems.as_slice() {
        [] => Ok(tries.len()),
        _ => Err(Error::Different(format!("{role:?}: {}", problems.join("\n")))),
    }
}

/// Calls of other architectures: one of x32 is refused, one of i386 ends the process. Returns the signal. For a daemon that
/// no service manager has started.
///
/// # Errors
/// When either is answered.
pub fn prove_architecture(process: &Process) -> Result<Signal> {
    let puppet = Puppet::take(process.pid)?;
    match puppet.call(X32.call, X32.arguments)? {
        refused if refused == -i64::from(X32.errno) => puppet.call_as_i386(),
        other => Err(Error::Different(format!("{}: {other}", X32.words))),
    }
}

/// What `/proc` says of it; returns what differs.
fn fields(process: &Process) -> Result<Vec<String>> {
    let path = format!("/proc/{}/status", process.pid);
    let text = fs::read_to_string(&path).map_err(Error::io("read", path))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or("missing").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let none = "0000000000000000";
    let mut problems: Vec<String> = [
        ("CapInh", none),
        ("CapPrm", none),
        ("CapEff", none),
        ("CapBnd", none),
        ("CapAmb", none),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("Umask", "0077"),
        ("Groups", ""),
    ]
    .into_iter()
    .filter(|(name, wanted)| field(name) != *wanted)
    .map(|(name, wanted)| format!("{name} is {:?} instead of {wanted:?}", field(name)))
    .collect();
    if field("Uid").split(' ').any(|uid| uid == "0") || field("Gid").split(' ').any(|gid| gid == "0") {
        problems.push("it is root".to_owned());
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Proved by [`fields`] and by the namespace, not by a call.
    const OTHERWISE: &[&str] = &["UMask", "PrivateNetwork"];

    #[test]
    fn every_directive_of_the_reference_unit_is_tried_and_nothing_else_is() {
        let unit = include_str!("../../systemd/server-reference.service");
        let directives: BTreeSet<&str> = unit
            .lines()
            .skip_while(|line| *line != "[Service]")
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| Some(line.split_once('=')?.0))
            .filter(|name| *name != "ExecStart")
            .collect();
        let tried: BTreeSet<&str> = BOTH
            .iter()
            .chain(SERVER)
            .map(|attempt| attempt.directive)
            .chain([X32.directive])
            .chain(OTHERWISE.iter().copied())
            .collect();
        assert_eq!(tried, directives);
    }
}
