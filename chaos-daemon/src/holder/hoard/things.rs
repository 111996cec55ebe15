//! What is counted: open files, threads, ports.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, socket};

use super::{Step, Store};
use crate::host::part::HELD_THREAD;
use crate::host::supply;
use crate::request::evidence::Things;
use crate::request::{Evidence, Shortfall};

/// No step takes more, so that an order to end is heard in between.
const STEP: u64 = 128;
/// Nor a larger part of what may be taken: others take some meanwhile, other faults among them, who have seen as much room.
const PART: u64 = 16;
/// Threads that do nothing but sleep need little.
const STACK: usize = 16 << 10;
/// How often ports that were in use are tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Takes one after the other, up to `wanted` and no more than a step: short of it when `room`, which says how many can be taken
/// without touching a reserve, says none, or when the kernel gives no more.
fn take_some<T>(
    things: &mut Vec<T>,
    wanted: u64,
    room: impl FnOnce() -> io::Result<u64>,
    mut take: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<Step> {
    let missing = wanted.saturating_sub(things.len() as u64);
    if missing == 0 {
        return Ok(Step::Enough);
    }
    let room = match room() {
        Ok(0) => return Ok(Step::Short(Shortfall::Reserve)),
        Ok(room) => room,
        Err(_) if !things.is_empty() => return Ok(Step::Short(Shortfall::Exhausted)),
        Err(error) => return Err(error),
    };
    for _ in 0..missing.min(STEP).min(room.div_ceil(PART)) {
        match take() {
            Ok(Some(thing)) => things.push(thing),
            Ok(None) => return Ok(Step::Short(Shortfall::Exhausted)),
            Err(_) if !things.is_empty() => return Ok(Step::Short(Shortfall::Exhausted)),
            Err(error) => return Err(error),
        }
    }
    Ok(if (things.len() as u64) < wanted { Step::More } else { Step::Enough })
}

fn counted<T>(things: &[T]) -> Evidence {
    Evidence::Things(Things { things_held: things.len() as u64, shortfall: None })
}

/// Lets this process have as many descriptors as it may have: `select`(2), for which the soft limit is low, is not used here.
pub(super) fn raise_descriptor_limit() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

/// Entries of the host's table of open files.
#[derive(Debug)]
pub(super) struct Descriptors {
    count: u64,
    leave: u64,
    files: Vec<File>,
}

impl Descriptors {
    /// Takes none yet.
    pub(super) fn open(count: u64, leave: u64) -> Self {
        Self { count, leave, files: Vec::new() }
    }
}

impl Store for Descriptors {
    fn goal(&self) -> u64 {
        self.count
    }

    fn take(&mut self, wanted: u64) -> io::Result<Step> {
        let leave = self.leave;
        let room = || {
            let supply::Descriptors { used, table, .. } = supply::Descriptors::read()?;
            Ok(table.saturating_sub(used).saturating_sub(leave))
        };
        take_some(&mut self.files, wanted, room, || File::open("/dev/null").map(Some))
    }

    fn give_back(&mut self) {
        self.files = Vec::new();
    }

    fn held(&mut self) -> Evidence {
        counted(&self.files)
    }
}

/// Places for processes and threads.
#[derive(Debug)]
pub(super) struct Tasks {
    count: u64,
    leave: u64,
    /// The control group that this process is in, and how many more that can have still, if it is not to be full.
    own: Option<(PathBuf, u64)>,
    over: Arc<(Mutex<bool>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

impl Tasks {
    /// Takes none yet. `own_leave` stay free in the control group that this process is in.
    pub(super) fn open(count: u64, leave: u64, own_leave: Option<u64>) -> io::Result<Self> {
        let own = match own_leave {
            Some(leave) => supply::own_cgroup()?.map(|own| (own, leave)),
            None => None,
        };
        Ok(Self { count, leave, own, over: Arc::default(), threads: Vec::new() })
    }

    fn set_over(&self, over: bool) {
        *self.over.0.lock().unwrap_or_else(PoisonError::into_inner) = over;
        self.over.1.notify_all();
    }
}

/// How many can be taken without touching the reserve of the host, and of the own control group if it has one.
fn room_for_tasks(leave: u64, own: Option<&(PathBuf, u64)>) -> io::Result<u64> {
    let (used, most) = supply::Tasks::of_host()?;
    let host = most.saturating_sub(used).saturating_sub(leave);
    let own = own.and_then(|(group, leave)| Some(supply::task_room(group)?.saturating_sub(*leave)));
    Ok(host.min(own.unwrap_or(u64::MAX)))
}

impl Store for Tasks {
    fn goal(&self) -> u64 {
        self.count
    }

    fn take(&mut self, wanted: u64) -> io::Result<Step> {
        let Self { leave, own, over, threads, .. } = self;
        let take = || {
            let over = Arc::clone(over);
            let sleep = move || {
                let sleeping = over.0.lock().unwrap_or_else(PoisonError::into_inner);
                drop(over.1.wait_while(sleeping, |over| !*over));
            };
            thread::Builder::new().name(HELD_THREAD.to_owned()).stack_size(STACK).spawn(sleep).map(Some)
        };
        take_some(threads, wanted, || room_for_tasks(*leave, own.as_ref()), take)
    }

    fn give_back(&mut self) {
        self.set_over(true);
        for thread in self.threads.drain(..) {
            // One that panicked is gone, too.
            drop(thread.join());
        }
        self.set_over(false);
    }

    fn held(&mut self) -> Evidence {
        counted(&self.threads)
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Ports of an address.
#[derive(Debug)]
pub(super) struct Ports {
    kind: SockType,
    address: IpAddr,
    range: (u16, u16),
    count: u64,
    next: u32,
    wait_until: Option<Instant>,
    sockets: Vec<OwnedFd>,
}

impl Ports {
    /// Finds out the range, in the network namespace that this thread is in; takes none yet.
    pub(super) fn open(
        udp: bool,
        address: IpAddr,
        range: Option<(u16, u16)>,
        count: u64,
    ) -> io::Result<Self> {
        let kind = if udp { SockType::Datagram } else { SockType::Stream };
        let range = match range {
            Some(range) => range,
            None => supply::connection_ports()?,
        };
        Ok(Self { kind, address, range, count, next: range.0.into(), wait_until: None, sockets: Vec::new() })
    }
}

/// A socket bound to this port; `None` when the port is in use.
fn bound(kind: SockType, address: IpAddr, port: u16) -> io::Result<Option<OwnedFd>> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
    match bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, port))) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::EADDRINUSE) => Ok(None),
        Err(error) => Err(io::Error::new(
            io::Error::from(error).kind(),
            format!("bind to {address} port {port}: {error}"),
        )),
    }
}

impl Store for Ports {
    fn goal(&self) -> u64 {
        self.count
    }

    fn take(&mut self, wanted: u64) -> io::Result<Step> {
        if self.wait_until.is_some_and(|until| Instant::now() < until) {
            return Ok(Step::Short(Shortfall::Exhausted));
        }
        let (kind, address) = (self.kind, self.address);
        let (last, next) = (u32::from(self.range.1), &mut self.next);
        let take = || {
            while let Ok(port) = u16::try_from(*next)
                && *next <= last
            {
                *next += 1;
                if let Some(socket) = bound(kind, address, port)? {
                    return Ok(Some(socket));
                }
            }
            Ok(None)
        };
        let step = take_some(&mut self.sockets, wanted, || Ok(u64::MAX), take)?;
        if let Step::Short(_) = step {
            self.next = self.range.0.into();
            self.wait_until = Some(Instant::now() + AGAIN);
        }
        Ok(step)
    }

    fn give_back(&mut self) {
        self.sockets = Vec::new();
        (self.next, self.wait_until) = (self.range.0.into(), None);
    }

    fn held(&mut self) -> Evidence {
        counted(&self.sockets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_in_use_are_passed_over_and_the_range_is_all() {
        let address = "127.0.0.9".parse().unwrap();
        let others = std::net::TcpListener::bind((address, 0)).unwrap();
        let port = others.local_addr().unwrap().port();
        let mut ports = Ports::open(false, address, Some((port, port)), 1).unwrap();
        assert!(matches!(ports.take(1).unwrap(), Step::Short(Shortfall::Exhausted)));
        drop(others);
        ports.give_back();
        assert!(matches!(ports.take(1).unwrap(), Step::Enough));
        assert_eq!(ports.held().held(), 1);
        assert!(std::net::TcpListener::bind((address, port)).is_err());
    }

    #[test]
    fn nothing_is_taken_of_a_reserve() {
        let mut files = Descriptors::open(3, u64::MAX);
        assert!(matches!(files.take(3).unwrap(), Step::Short(Shortfall::Reserve)));
        let mut tasks = Tasks::open(3, u64::MAX, None).unwrap();
        assert!(matches!(tasks.take(3).unwrap(), Step::Short(Shortfall::Reserve)));
        assert_eq!((files.held().held(), tasks.held().held()), (0, 0));
    }

    #[test]
    fn a_step_takes_a_small_part_of_what_may_be_taken_and_looks_before_each() {
        let mut things = Vec::new();
        let mut step = |room: u64| take_some(&mut things, 200, || Ok(room), || Ok(Some(()))).unwrap();
        assert!(matches!(step(u64::MAX), Step::More));
        assert!(matches!(step(160), Step::More));
        assert!(matches!(step(1), Step::More));
        assert!(matches!(step(0), Step::Short(Shortfall::Reserve)));
        assert_eq!(things.len() as u64, STEP + 160 / PART + 1);
        let unknown = || Err(io::Error::other("procfs is away"));
        let step = take_some(&mut things, 200, unknown, || Ok(Some(()))).unwrap();
        assert!(matches!(step, Step::Short(Shortfall::Exhausted)));
        assert!(take_some(&mut Vec::new(), 1, unknown, || Ok(Some(()))).is_err());
    }

    #[test]
    fn threads_end_when_they_are_given_back_and_can_be_taken_again() {
        let mut tasks = Tasks::open(3, 0, None).unwrap();
        for _ in 0..2 {
            assert!(matches!(tasks.take(3).unwrap(), Step::Enough));
            assert_eq!(tasks.held().held(), 3);
            tasks.give_back();
            assert_eq!(tasks.held().held(), 0);
        }
    }
}
