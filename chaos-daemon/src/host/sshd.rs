//! The TCP ports at which sshd lets an operator in, wherever it was told to listen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::Process;

use super::budget;
use super::process::numbers;

/// No more ports are told: each connection that a session of root forwards has one of its own.
const MOST_PORTS: usize = 256;
/// Whose processes are believed. Of anybody's session the one that watches over it is root's, and has its connection, too.
const ROOT: u32 = 0;

/// Whether a process of this name is of OpenSSH's server: the listener, or what it starts for a session.
pub fn is_sshd(name: &str) -> bool {
    name == "sshd" || name.starts_with("sshd-")
}

/// The ports at which processes called so listen, and then those of their connections: root's processes of this host, which run a
/// program called so, in whatever network namespace; a container has a pid namespace, and a way in, of its own.
///
/// # Errors
/// When procfs cannot be read, or it listens at more ports than can be told.
pub fn ports() -> io::Result<Vec<u16>> {
    ports_of(ROOT)
}

fn ports_of(user: u32) -> io::Result<Vec<u16>> {
    let ours = fs::read_link("/proc/self/ns/pid")?;
    // By network namespace: a process that is in it, and the sockets of all of them.
    let mut networks = BTreeMap::<_, (i32, BTreeSet<u64>)>::new();
    for pid in numbers()? {
        budget::check()?;
        let folder = Path::new("/proc").join(pid.to_string());
        // Who has ended meanwhile lets nobody in.
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        if !is_sshd(name.trim_end())
            || !fs::read_link(folder.join("ns/pid")).is_ok_and(|its| its == ours)
            || !is_of(&folder, user)
            || !runs_sshd(&folder)
        {
            continue;
        }
        if let Ok(network) = fs::read_link(folder.join("ns/net")) {
            let (_, sockets) = networks.entry(network).or_insert((pid, BTreeSet::new()));
            sockets.extend(sockets_of(&folder));
        }
    }
    let mut found = Vec::new();
    for (pid, sockets) in networks.into_values() {
        for entry in tcp(pid).iter().filter(|entry| sockets.contains(&entry.inode)) {
            if !matches!(entry.state, TcpState::Listen | TcpState::Established) {
                continue;
            }
            found.push((entry.local_address.port(), entry.state == TcpState::Listen));
        }
    }
    told(&found)
}

/// Whether a process is this user's, by who has started it and by whose rights it has: anybody can take a name, and be root for a
/// moment by a program that is for that.
fn is_of(folder: &Path, user: u32) -> bool {
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let mut ids = ids.split_whitespace().map(|id| id.parse::<u32>() == Ok(user));
    // The real and the effective one (proc_pid_status(5)).
    ids.next() == Some(true) && ids.next() == Some(true)
}

/// Whether the program of a process is called so, also when an upgrade has replaced it: a name is that of the link by which a
/// program was started, which may be anybody's link to one that makes itself root.
fn runs_sshd(folder: &Path) -> bool {
    let program = fs::read_link(folder.join("exe")).unwrap_or_default();
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    is_sshd(name.strip_suffix(" (deleted)").unwrap_or(name))
}

/// The numbers of the sockets that a process has open.
fn sockets_of(folder: &Path) -> impl Iterator<Item = u64> {
    let entries = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter_map(|target| target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
}

/// Every TCP socket of a process's network namespace.
fn tcp(pid: i32) -> Vec<TcpNetEntry> {
    let listed = Process::new(pid).and_then(|process| {
        let mut all = process.tcp()?;
        // A kernel without IPv6 has none of it.
        all.extend(process.tcp6().unwrap_or_default());
        Ok(all)
    });
    listed.unwrap_or_default()
}

/// From ports, and whether each is listened at. Too many of those are an error: whichever were left out might be the one that is
/// needed. Of connections the lowest ports are told: a session's is the one at which it came in, and those that it forwards take
/// ports of the range for connections, which is above (ip(7)).
fn told(found: &[(u16, bool)]) -> io::Result<Vec<u16>> {
    let of = |listened| found.iter().filter(move |(_, is)| *is == listened).map(|(port, _)| *port);
    let (listened, connected) = (of(true).collect::<BTreeSet<_>>(), of(false).collect::<BTreeSet<_>>());
    if listened.len() > MOST_PORTS {
        let problem = format!("sshd listens at {} TCP ports, and {MOST_PORTS} can be spared", listened.len());
        return Err(io::Error::other(problem));
    }
    let mut ports: Vec<_> = listened.iter().chain(connected.difference(&listened)).copied().collect();
    ports.truncate(MOST_PORTS);
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::waits::wait_for;

    #[test]
    fn each_port_is_told_once_and_listening_ones_before_those_of_connections() {
        let mut found = vec![(2222, false), (40_000, false), (2222, true)];
        assert_eq!(told(&found).unwrap(), [2222, 40_000]);
        found = vec![(40_000, false), (2222, true)];
        assert_eq!(told(&found).unwrap(), [2222, 40_000]);
    }

    #[test]
    fn of_too_many_connections_the_lowest_ports_are_told_and_too_many_listening_ones_are_an_error() {
        let mut found: Vec<_> = (40_000..41_000).map(|port| (port, false)).collect();
        found.extend([(22, false), (50_022, true)]);
        let ports = told(&found).unwrap();
        assert_eq!((ports.len(), &ports[..3]), (MOST_PORTS, &[50_022, 22, 40_000][..]));
        found.extend((1000..2000).map(|port| (port, true)));
        let error = told(&found).unwrap_err().to_string();
        assert!(error.contains("listens at 1001 TCP ports"), "{error}");
    }

    /// Starts this program, and says what is told of its user, and what of another one: the port at which it listens, that of a
    /// connection that it has, and a stranger's; and whether any of it is told when it has ended.
    fn told_of(program: &Path) -> ([bool; 3], [bool; 3], bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        let port_of = |address: std::io::Result<SocketAddr>| address.unwrap().port();
        let (listens, stranger) = (port_of(listener.local_addr()), port_of(other.local_addr()));
        let session = port_of(connected.local_addr());
        let me = nix::unistd::getuid().as_raw();
        let has = |user, port| ports_of(user).unwrap().contains(&port);
        assert!(!has(me, listens) && !has(me, session));
        let mut sshd = Command::new(program)
            .arg("30")
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::from(OwnedFd::from(connected)))
            .spawn()
            .unwrap();
        // Whoever starts a program hears of it a moment before the program has its name.
        let comm = format!("/proc/{}/comm", sshd.id());
        wait_for(|| fs::read_to_string(&comm).unwrap() == "sshd\n");
        let of = |user| [listens, session, stranger].map(|port| has(user, port));
        let (mine, others) = (of(me), of(me + 1));
        sshd.kill().unwrap();
        sshd.wait().unwrap();
        (mine, others, has(me, listens) || has(me, session))
    }

    #[test]
    fn a_port_is_told_for_as_long_as_sshd_of_that_user_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("sshd");
        fs::copy("/bin/sleep", &program).unwrap();
        assert_eq!(told_of(&program), ([true, true, false], [false; 3], false));
    }

    #[test]
    fn another_program_that_is_started_as_sshd_has_no_way_in() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("sshd");
        std::os::unix::fs::symlink("/bin/sleep", &link).unwrap();
        assert_eq!(told_of(&link), ([false; 3], [false; 3], false));
    }
}
