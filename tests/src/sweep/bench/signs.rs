//! Whether a fault acts: by what whoever it is aimed at meets, or by the kernel's own books of the process that holds it. Of a
//! fault that has no effect it says nothing that none is left.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::{Bench, Kind, PORT};
use crate::caller::Ask;
use crate::kinds::sign::{Sign, Thing};
use crate::late::HANG;
use crate::measure::{Tcp, tcp_rtt, udp_rtt};
use crate::name_server::comes_back;
use crate::netns::NetNs;
use crate::process::{Process, wait_until};
use crate::tools::Came;
use crate::touch::Touch;
use crate::{Error, Result};

/// What has not come back within this is late, or lost.
const PROMPT: Duration = Duration::from_millis(30);

impl Bench {
    /// Has everything ready for a fault of this kind to show.
    pub(crate) fn prepare(&self, kind: &Kind) {
        if let (Some(Sign::Continued), Some(worker)) = (kind.sign(), Process::read(self.worker.pid())) {
            worker.stop();
        }
    }

    /// Whether the fault of this kind that was injected acts; it is looked no longer than until the strike.
    pub(crate) fn acts(&self, kind: &Kind, has_struck: impl Fn() -> bool) -> Result<bool> {
        let Some(sign) = kind.sign() else { return Ok(false) };
        let before = self.taken(sign);
        look(|| self.shows(sign, before), has_struck)
    }

    /// Whether its sign shows at this moment.
    pub(crate) fn shows_now(&self, kind: &Kind) -> Result<bool> {
        kind.sign().map_or(Ok(false), |sign| self.shows(sign, self.taken(sign)))
    }

    /// Fails unless it acts, or the strike comes before that shows.
    pub(crate) fn assert_acts(&self, kind: &Kind, has_struck: impl Fn() -> bool) -> Result<()> {
        match self.acts(kind, &has_struck)? || has_struck() {
            true => Ok(()),
            false => Err(Error::Different(format!("injected, and does not act; {}", self.evidence()))),
        }
    }

    /// What the daemon says of its faults: how much their programs have seen.
    fn evidence(&self) -> String {
        let status = self.daemon().and_then(|(_, mcp)| mcp.call_tool("chaos_status", json!({}))?.ok());
        status.map_or_else(|error| error.to_string(), |status| status["active_faults"].to_string())
    }

    fn shows(&self, sign: Sign, before: u64) -> Result<bool> {
        let (near, to) = (&self.pair.near, self.echo.address());
        Ok(match sign {
            // "No way" is how it may show, too.
            Sign::Echoes | Sign::SomeEchoes => !matches!(udp_rtt(near, to, PROMPT), Ok(Some(_))),
            Sign::Twins => answers(near, to)? > 1,
            Sign::Resets => matches!(tcp_rtt(near, to, PROMPT)?, Tcp::Reset(_)),
            Sign::Questions => !comes_back(near, to, PROMPT)?,
            Sign::Calls => self.service.borrow_mut().ask(Ask::Associate(to))? != 0,
            Sign::Trips => self.service.borrow_mut().ask(Ask::TripSoon(to))? != 0,
            Sign::Files => self.service.borrow_mut().touch(Touch::Open, self.file.path())? != 0,
            Sign::Proxy => self.session.borrow_mut().ask("a", PROMPT)? == Came::Error,
            Sign::Traced => self.worker.state() == Some('t'),
            Sign::Continued => self.worker.state() != Some('T'),
            Sign::Port => near.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))).is_err(),
            Sign::Clients(least) => clients(&self.pair.far, to)? >= least,
            Sign::Holder => self.holder().is_some(),
            Sign::Holds(thing, least) if thing.grows() => self.taken(sign) >= before + least,
            Sign::Holds(_, least) => self.taken(sign) >= least,
        })
    }

    /// How much the process that holds the fault has taken.
    fn taken(&self, sign: Sign) -> u64 {
        let Sign::Holds(thing, _) = sign else { return 0 };
        self.holder().map_or(0, |holder| thing.of(&holder, self.folder.path()))
    }

    /// The process that was started for a fault: it has no room for programs.
    fn holder(&self) -> Option<Process> {
        let mut holders = self.running.iter().flat_map(|running| running.daemon.holders());
        holders.find(|holder| holder.arguments.len() == 2)
    }
}

impl Thing {
    /// Whether it is counted from when it is looked.
    fn grows(self) -> bool {
        matches!(self, Self::Time | Self::Transfer)
    }

    fn of(self, holder: &Process, folder: &Path) -> u64 {
        let with = |start: &str| {
            files(holder).into_iter().filter(|(target, _)| target.starts_with(start)).collect::<Vec<_>>()
        };
        let nameless = || with(&folder.to_string_lossy());
        match self {
            Self::Time => time(holder),
            Self::Transfer => transfer(holder),
            Self::Memory => holder.status("RssAnon"),
            Self::Threads => holder.status("Threads"),
            Self::Descriptors => with("").len() as u64,
            Self::Sockets => with("socket:").len() as u64,
            Self::Files => nameless().len() as u64,
            Self::Room => {
                nameless().iter().filter_map(|(_, path)| Some(fs::metadata(path).ok()?.blocks() * 512)).sum()
            }
        }
    }
}

/// Looks for a sign, for a while or until the strike: how soon all is normal again is counted from that.
fn look(mut shows: impl FnMut() -> Result<bool>, has_struck: impl Fn() -> bool) -> Result<bool> {
    let mut last = Ok(false);
    wait_until(HANG, || {
        last = shows();
        has_struck() || !matches!(last, Ok(false))
    });
    last
}

/// What the descriptors of a process refer to, and where to look at it.
fn files(process: &Process) -> Vec<(String, PathBuf)> {
    let folder = fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten().flatten();
    let file = |entry: fs::DirEntry| {
        Some((fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned(), entry.path()))
    };
    folder.filter_map(file).collect()
}

/// What its threads have run, to the nanosecond (`/proc/PID/task/TID/schedstat`).
fn time(process: &Process) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten().flatten();
    let ran = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    threads.filter_map(ran).sum()
}

/// What it has read and written (`/proc/PID/io`).
fn transfer(process: &Process) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/io", process.pid)).unwrap_or_default();
    let number =
        |line: &str| line.strip_prefix("rchar:").or(line.strip_prefix("wchar:"))?.trim().parse::<u64>().ok();
    text.lines().filter_map(number).sum()
}

/// How often one datagram comes back.
fn answers(from: &NetNs, to: SocketAddr) -> Result<usize> {
    let count = || -> io::Result<usize> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(PROMPT))?;
        socket.send_to(b"x", to)?;
        Ok((0..2).take_while(|_| socket.recv(&mut [0]).is_ok()).count())
    };
    from.run(count).map_err(Error::io("count answers of", to.to_string()))
}

/// How many connections to a server in a namespace are established, by their clients' ends.
fn clients(namespace: &NetNs, server: SocketAddr) -> Result<usize> {
    const TABLE: &str = "/proc/thread-self/net/tcp";
    let table = namespace.run(|| fs::read_to_string(TABLE)).map_err(Error::io("read", TABLE))?;
    let port = format!(":{:04X}", server.port());
    let established = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        // Of the remote end; then the state.
        words.next().is_some_and(|remote| remote.ends_with(&port)) && words.next() == Some("01")
    };
    Ok(table.lines().filter(established).count())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn nobody_looks_for_a_sign_after_the_strike() {
        let looked = Cell::new(0);
        let shows = || {
            looked.set(looked.get() + 1);
            Ok(false)
        };
        assert!(matches!(look(shows, || looked.get() == 3), Ok(false)));
        assert_eq!(looked.get(), 3);
        assert!(matches!(look(|| Ok(true), || false), Ok(true)));
    }
}
