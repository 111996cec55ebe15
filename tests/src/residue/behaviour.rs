//! How a pair of namespaces behaves, whatever is or is not on its links, and a service in it: what its user notices.

use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chaos_daemon::host::Part;
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::error::{Error, Result};
use crate::measure::{Echo, Tcp, tcp_rtt, udp_rtt};
use crate::pair::Pair;
use crate::plug::Plug;
use crate::process;
use crate::touch::Touch;

/// Datagrams sent.
const DATAGRAMS: usize = 8;
/// Longest that one may take: more than any delay that tests inject, and a busy machine's hiccup.
const PATIENCE: Duration = Duration::from_millis(500);
/// The quickest round trip may differ by so much. Load does not slow the quickest of several by more; every delay that tests
/// inject does.
const SLOWER: Duration = Duration::from_millis(10);
/// How often it is measured before something counts as wrong.
const TRIES: usize = 4;
/// CPU time that a thread of ours uses up while it is looked who else does. CPU time, since others may use this machine.
const SPIN: Duration = Duration::from_millis(100);

/// Who calls the kernel: a process in a control group of its own, on the near side, with a file of its own. So faults of calls
/// can be meant for it.
#[derive(Debug)]
pub struct Witness {
    service: Caller,
    /// Where it is.
    pub cgroup: Cgroup,
    /// In which its file is.
    pub folder: TempDir,
}

impl Witness {
    /// Starts the process, which is this executable in another role.
    ///
    /// # Errors
    /// When group, file or process cannot be made.
    pub fn new(pair: &Pair) -> Result<Self> {
        let (cgroup, folder) = (Cgroup::new()?, TempDir::new().map_err(Error::io("create", "a folder"))?);
        let service = Caller::start(&pair.near, Some(&cgroup))?;
        let witness = Self { service, cgroup, folder };
        let file = witness.file();
        fs::write(&file, "some bytes").map_err(Error::io("write", file.display().to_string()))?;
        Ok(witness)
    }

    /// The file that it opens.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("file")
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// Datagrams, of eight, that were not answered.
    pub lost: usize,
    /// The quickest answer.
    pub round_trip: Option<Duration>,
    /// Whether a byte came back over TCP.
    pub echo: bool,
    /// What the service got from connect(2), if an error.
    pub connect: Option<Errno>,
    /// What it got from open(2).
    pub open: Option<Errno>,
    /// What it got from bind(2), listen(2), accept(2), send(2) and recv(2), the first error of them.
    pub sockets: Option<Errno>,
    /// CPU time that the hungriest process of the daemon's used, of those below this one, while a thread here used 100 ms.
    pub burnt: Duration,
}

impl Behaviour {
    /// Measures, from the near side to an echo on the far one. Some 100 ms, if nothing is wrong.
    ///
    /// # Errors
    /// When it cannot be measured at all.
    pub fn measure(pair: &Pair, echo: &Echo, witness: &mut Witness) -> Result<Self> {
        let file = witness.file();
        Self::of_traffic_and_calls(pair, echo, &mut witness.service, &file)?.and_of_processors()
    }

    /// As [`Behaviour::measure`], with a service on the near side, and a file for it; without what processors do. A few milliseconds.
    ///
    /// # Errors
    /// As [`Behaviour::measure`].
    pub fn of_traffic_and_calls(pair: &Pair, echo: &Echo, service: &mut Caller, file: &Path) -> Result<Self> {
        let mut answers = Vec::new();
        for _ in 0..DATAGRAMS {
            answers.extend(udp_rtt(&pair.near, echo.address(), PATIENCE)?);
        }
        let error = |errno: i32| (errno != 0).then(|| Errno::from_raw(errno));
        Ok(Self {
            lost: DATAGRAMS - answers.len(),
            round_trip: answers.iter().min().copied(),
            echo: matches!(tcp_rtt(&pair.near, echo.address(), PATIENCE)?, Tcp::Answered { .. }),
            connect: error(service.ask(Ask::Reach(echo.address()))?),
            open: error(service.touch(Touch::Open, file)?),
            sockets: error(service.plug(Plug::Whole, (Ipv4Addr::LOCALHOST, 0).into())?),
            burnt: Duration::ZERO,
        })
    }

    /// With who uses up CPU time.
    ///
    /// # Errors
    /// When a clock cannot be read.
    pub fn and_of_processors(self) -> Result<Self> {
        Ok(Self { burnt: burnt()?, ..self })
    }

    /// Measures before any fault, until nothing is wrong: a machine that stands still makes something late once.
    ///
    /// # Errors
    /// When it cannot be measured, or something is wrong each time.
    pub fn before(mut measure: impl FnMut() -> Result<Self>) -> Result<Self> {
        let good = |it: &Self| {
            (it.lost, it.echo, it.connect, it.open, it.sockets) == (0, true, None, None, None)
                && it.burnt < SPIN / 2
        };
        let mut last = measure()?;
        for _ in 1..TRIES {
            if good(&last) {
                break;
            }
            last = measure()?;
        }
        if good(&last) {
            return Ok(last);
        }
        Err(Error::Different(format!("behaves wrongly before any fault: {last:?}")))
    }

    /// Measures after all faults, until it behaves as it did then.
    ///
    /// # Errors
    /// When it cannot be measured; says what differs each time.
    pub fn after(before: &Self, mut measure: impl FnMut() -> Result<Self>) -> Result<()> {
        for _ in 1..TRIES {
            if measure()?.assert_like(before).is_ok() {
                return Ok(());
            }
        }
        measure()?.assert_like(before)
    }

    /// Whether it behaves as it did then.
    ///
    /// # Errors
    /// Says what differs.
    pub fn assert_like(&self, before: &Self) -> Result<()> {
        let slower = match (self.round_trip, before.round_trip) {
            (Some(now), Some(then)) => now > then + SLOWER,
            (now, then) => now.is_some() != then.is_some(),
        };
        let calls = |it: &Self| (it.lost, it.echo, it.connect, it.open, it.sockets);
        let burns = self.burnt > before.burnt + SPIN / 2;
        match calls(self) == calls(before) && !slower && !burns {
            true => Ok(()),
            false => Err(Error::Different(format!("behaves otherwise: {self:?}, before: {before:?}"))),
        }
    }
}

/// A pair of namespaces and a service of their own, at which no fault is aimed, and how they behaved before all faults.
#[derive(Debug)]
pub struct Surroundings {
    witness: Witness,
    echo: Echo,
    pair: Pair,
    before: Behaviour,
}

impl Surroundings {
    /// Makes them and measures.
    ///
    /// # Errors
    /// When they cannot be made, or do not behave.
    pub fn new() -> Result<Self> {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let mut witness = Witness::new(&pair)?;
        let before = Behaviour::before(|| Behaviour::measure(&pair, &echo, &mut witness))?;
        Ok(Self { witness, echo, pair, before })
    }

    /// Whether they behave as they did then.
    ///
    /// # Errors
    /// Says what differs.
    pub fn assert_as_before(&mut self) -> Result<()> {
        let Self { witness, echo, pair, before } = self;
        Behaviour::after(before, || Behaviour::measure(pair, echo, witness))
    }
}

/// What [`Behaviour::burnt`] says. Of two that want all they can get, each gets about as much as the other, however busy
/// the machine is; who sleeps gets nothing.
fn burnt() -> Result<Duration> {
    let before = used();
    spin()?;
    let more =
        |(who, after): (_, Duration)| after.saturating_sub(before.get(&who).copied().unwrap_or_default());
    Ok(used().into_iter().map(more).max().unwrap_or_default())
}

/// CPU time of each process of the daemon's, by pid and start time.
fn used() -> HashMap<(i32, u64), Duration> {
    let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let below = process::descendants(std::process::id().cast_signed()).into_iter();
    let ours = below.filter(|process| Part::named(name(process.pid).trim_end()).is_some());
    ours.map(|process| ((process.pid, process.start_time), process.cpu_time())).collect()
}

/// Uses up [`SPIN`].
fn spin() -> Result<()> {
    let used = || {
        let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        used.map(Duration::from).map_err(Error::sys("read", "a clock"))
    };
    let end = used()? + SPIN;
    while used()? < end {
        std::hint::spin_loop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn well() -> Behaviour {
        Behaviour {
            lost: 0,
            round_trip: Some(Duration::from_millis(1)),
            echo: true,
            connect: None,
            open: None,
            sockets: None,
            burnt: Duration::ZERO,
        }
    }

    /// Measures these, one after the other, and the last one again and again.
    fn measures(all: &[Behaviour]) -> impl FnMut() -> Result<Behaviour> {
        let mut all = VecDeque::from(all.to_vec());
        move || {
            let next = if all.len() > 1 { all.pop_front() } else { all.front().cloned() };
            next.ok_or_else(|| Error::Different("nothing".into()))
        }
    }

    #[test]
    fn what_is_wrong_once_is_measured_again_and_what_is_wrong_each_time_is_said() {
        let late = Behaviour { lost: 1, ..well() };
        let delayed = Behaviour { round_trip: Some(Duration::from_millis(31)), ..well() };
        let failing = Behaviour { connect: Some(Errno::EACCES), ..well() };
        let hungry = Behaviour { burnt: SPIN, ..well() };
        assert_eq!(Behaviour::before(measures(&[late.clone(), well()])).unwrap(), well());
        assert!(Behaviour::after(&well(), measures(&[delayed.clone(), late.clone(), well()])).is_ok());
        for wrong in [late, delayed, failing, hungry] {
            let said = Behaviour::after(&well(), measures(std::slice::from_ref(&wrong))).unwrap_err();
            assert!(said.to_string().contains(&format!("{wrong:?}")), "{said}");
        }
        let lost = Behaviour { lost: 8, round_trip: None, ..well() };
        assert!(Behaviour::before(measures(&[lost])).is_err());
    }
}
