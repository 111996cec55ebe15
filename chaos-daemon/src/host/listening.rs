//! Who listens in the network namespace of a thread, and at which port.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use procfs::net::{TcpNetEntry, TcpState, UdpNetEntry, UdpState};
use procfs::process::Process;
use procfs::{ProcError, ProcResult};

use super::budget;
use super::connections::unless_missing;

/// How many descriptors of one process are looked at.
const MOST_DESCRIPTORS: usize = 4096;

/// A socket that waits for whoever comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// "tcp" or "udp".
    pub protocol: &'static str,
    /// Where.
    pub address: SocketAddr,
    /// Whose it is.
    pub uid: u32,
    /// The number by which a descriptor of it is known.
    pub inode: u64,
}

/// Every socket that listens, and every datagram socket with a port that is connected to nobody.
///
/// # Errors
/// When procfs cannot be read. A kernel without IPv6 has none of it.
pub fn listening() -> ProcResult<Vec<Listening>> {
    // As this thread sees it, which may have entered another namespace than its process.
    let thread = fs::read_link("/proc/thread-self").map_err(|error| ProcError::Io(error, None))?;
    let here = Process::new_with_root(Path::new("/proc").join(thread))?;
    let streams = here.tcp()?.into_iter().chain(unless_missing(here.tcp6())?);
    let streams = streams.filter(|entry| entry.state == TcpState::Listen).map(
        |TcpNetEntry { local_address, uid, inode, .. }| Listening {
            protocol: "tcp",
            address: local_address,
            uid,
            inode,
        },
    );
    let datagrams = here.udp()?.into_iter().chain(unless_missing(here.udp6())?);
    let datagrams = datagrams.filter(|entry| entry.state != UdpState::Established).map(
        |UdpNetEntry { local_address, uid, inode, .. }| Listening {
            protocol: "udp",
            address: local_address,
            uid,
            inode,
        },
    );
    Ok(streams.chain(datagrams).collect())
}

/// Which of these processes has each of these sockets, as far as the calling thread may see their descriptors. Of several it is the
/// first.
///
/// # Errors
/// When the thread's [budget] is spent.
pub fn owners(sockets: &[Listening], processes: &[i32]) -> io::Result<BTreeMap<u64, i32>> {
    let wanted = sockets.iter().map(|socket| socket.inode).collect();
    let all = all_owners(&wanted, processes)?;
    Ok(all.into_iter().filter_map(|(inode, owners)| Some((inode, *owners.first()?))).collect())
}

/// Which of these processes have each of the sockets of these numbers, in the order of the processes; likewise.
///
/// # Errors
/// As [`owners`].
pub fn all_owners(wanted: &BTreeSet<u64>, processes: &[i32]) -> io::Result<BTreeMap<u64, Vec<i32>>> {
    let mut found: BTreeMap<u64, Vec<i32>> = BTreeMap::new();
    for pid in processes {
        budget::check()?;
        let folder = Path::new("/proc").join(pid.to_string()).join("fd");
        // Of another user's, or of who has ended meanwhile, nothing is seen.
        let Ok(entries) = fs::read_dir(folder) else { continue };
        let links =
            entries.flatten().take(MOST_DESCRIPTORS).filter_map(|entry| fs::read_link(entry.path()).ok());
        for inode in links.filter_map(|link| socket(&link)).filter(|inode| wanted.contains(inode)) {
            let owners = found.entry(inode).or_default();
            // It may have it twice.
            if owners.last() != Some(pid) {
                owners.push(*pid);
            }
        }
    }
    Ok(found)
}

/// The number of the socket that a descriptor is, by where its link leads (proc(5)).
fn socket(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn who_listens_is_found_with_its_process_and_who_is_connected_is_not() {
        let stream = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(stream.local_addr().unwrap()).unwrap();
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect(datagrams.local_addr().unwrap()).unwrap();
        let all = listening().unwrap();
        let at =
            |address: SocketAddr| all.iter().filter(|socket| socket.address == address).collect::<Vec<_>>();
        let me = std::process::id().cast_signed();
        let owners = owners(&all, &[me]).unwrap();
        for (address, protocol) in
            [(stream.local_addr().unwrap(), "tcp"), (datagrams.local_addr().unwrap(), "udp")]
        {
            let found = at(address);
            assert!(found.len() == 1 && found[0].protocol == protocol, "{found:?}");
            assert_eq!(owners.get(&found[0].inode), Some(&me));
        }
        assert!(at(near.local_addr().unwrap()).is_empty() && at(connected.local_addr().unwrap()).is_empty());
    }

    #[test]
    fn a_descriptor_that_is_no_socket_is_none() {
        assert_eq!(socket(Path::new("socket:[17]")), Some(17));
        for other in ["/dev/null", "pipe:[17]", "socket:[x]", "anon_inode:[eventfd]"] {
            assert_eq!(socket(Path::new(other)), None, "{other}");
        }
    }
}
