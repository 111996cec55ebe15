//! The TCP ports at which sshd lets an operator in, wherever it was told to listen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::Process;

use super::process::numbers;

/// No more ports are told: each forwarded connection has one of its own.
const MOST_PORTS: usize = 256;

/// Whether a process of this name is of OpenSSH's server: the listener, or what it starts for a session.
pub fn is_sshd(name: &str) -> bool {
    name == "sshd" || name.starts_with("sshd-")
}

/// The ports at which processes called so listen, and then those of their connections: of this host's processes, in whatever
/// network namespace; a container has a pid namespace, and a way in, of its own.
///
/// # Errors
/// When procfs cannot be read.
pub fn ports() -> io::Result<Vec<u16>> {
    let ours = fs::read_link("/proc/self/ns/pid")?;
    // By network namespace: a process that is in it, and the sockets of all of them.
    let mut networks = BTreeMap::<_, (i32, BTreeSet<u64>)>::new();
    for pid in numbers()? {
        let folder = Path::new("/proc").join(pid.to_string());
        // Who has ended meanwhile lets nobody in.
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        if !is_sshd(name.trim_end()) || !fs::read_link(folder.join("ns/pid")).is_ok_and(|its| its == ours) {
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
    Ok(told(&found))
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

/// From ports, and whether each is listened at.
fn told(found: &[(u16, bool)]) -> Vec<u16> {
    let of = |listened| found.iter().filter(move |(_, is)| *is == listened).map(|(port, _)| *port);
    let mut ports: Vec<_> = of(true).chain(of(false)).collect();
    let mut seen = BTreeSet::new();
    ports.retain(|port| seen.insert(*port));
    ports.truncate(MOST_PORTS);
    ports
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn each_port_is_told_once_and_listening_ones_before_those_of_connections() {
        let mut found = vec![(2222, false), (40_000, false), (2222, true)];
        assert_eq!(told(&found), [2222, 40_000]);
        found = vec![(40_000, false), (2222, true)];
        assert_eq!(told(&found), [2222, 40_000]);
        found.extend((1000..2000).map(|port| (port, false)));
        assert_eq!(told(&found).len(), MOST_PORTS);
    }

    #[test]
    fn a_port_is_told_for_as_long_as_a_process_called_sshd_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        let port_of = |address: std::io::Result<SocketAddr>| address.unwrap().port();
        let (listens, stranger) = (port_of(listener.local_addr()), port_of(other.local_addr()));
        let session = port_of(connected.local_addr());
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("sshd");
        fs::copy("/bin/sleep", &program).unwrap();
        let has = |port| ports().unwrap().contains(&port);
        assert!(!has(listens) && !has(session));
        let mut sshd = Command::new(program)
            .arg("30")
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::from(OwnedFd::from(connected)))
            .spawn()
            .unwrap();
        // Whoever starts a program hears of it a moment before the program has its name.
        let started = Instant::now();
        while !has(listens) && started.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(1));
        }
        let told = (has(listens), has(session), has(stranger));
        sshd.kill().unwrap();
        sshd.wait().unwrap();
        assert_eq!(told, (true, true, false));
        assert!(!has(listens) && !has(session));
    }
}
