//! What is ended, of every kind of fault (`kinds`), and the scene where it is.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use chaos_daemon::spec::{FAULT_TYPES, FaultType};
use tempfile::{NamedTempFile, TempDir};

use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::kernel::{Attach, Context};
use crate::kinds;
use crate::kinds::aims::{Aims, NOBODYS_UNIT, ToRequest};
use crate::kinds::ended::Ended;
use crate::kinds::needs::{Machine, Needs};
use crate::kinds::sign::Sign;
use crate::measure::Echo;
use crate::name_server::comes_back;
use crate::skip::Environment;
use crate::tools::{Came, Session};
use crate::touch::Touch;
use crate::worker::{Program, Worker};
use crate::{Error, Pair, Result};

/// A port that only the test knows.
const PORT: u16 = 4997;
/// Nobody serves it.
const FREE_PORT: u16 = PORT + 1;
/// An echo comes back within this.
const SOON: Duration = Duration::from_millis(100);

/// A kind of fault, and how it is attached.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// What it is called in figures.
    pub name: &'static str,
    pub(super) attach: Attach,
    pub(super) sign: Sign,
    /// Its fault type.
    of: &'static str,
    needs: Needs,
    needs_tcx: bool,
    request: ToRequest,
}

/// Every kind that there is.
pub(super) fn all() -> impl Iterator<Item = Kind> {
    let of_type = |kind: &FaultType| {
        let (of, needs) = (kind.name(), kinds::of(*kind).needs);
        let named = move |ended: &Ended| {
            let Ended { name, attach, needs_tcx, sign, request } = *ended;
            Kind { name: name.unwrap_or(of), attach, sign, of, needs, needs_tcx, request }
        };
        kinds::of(*kind).ended.iter().map(named)
    };
    FAULT_TYPES.iter().flat_map(of_type)
}

/// Those that this kernel can do.
pub fn kinds() -> Vec<Kind> {
    let machine = Machine::of(&Context::new());
    all().filter(|kind| kind.lacks(&machine).is_none()).collect()
}

impl Kind {
    /// What a machine lacks for it, if anything.
    pub fn lacks(&self, machine: &Machine) -> Option<&'static str> {
        match self.needs_tcx && !machine.has_tcx() {
            true => Some("tcx comes with Linux 6.6"),
            false => machine.lacks(self.needs),
        }
    }

    pub(super) fn fault(&self, scene: &Scene) -> Fault {
        let (target, params) = (self.request)(&scene.aims());
        Fault::new(self.of).aimed(target).with(params)
    }
}

/// Whatever faults are aimed at.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) pair: Pair,
    worker: Worker,
    _of_worker: Program,
    service: RefCell<Caller>,
    session: RefCell<Session>,
    cgroup: Cgroup,
    file: NamedTempFile,
    folder: TempDir,
    echo: Echo,
    is_emulated: bool,
}

/// Accepts every connection, and keeps it until its client closes it.
fn serve(listener: TcpListener) {
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || io::copy(&mut stream, &mut io::sink()));
        }
    });
}

impl Scene {
    pub(super) fn new() -> Result<Self> {
        let pair = Pair::new()?;
        let of_worker = Program::new()?;
        let worker = of_worker.start(0, "kills")?;
        let cgroup = Cgroup::new()?;
        let service = RefCell::new(Caller::start(&pair.near, Some(&cgroup))?);
        let echo = Echo::start(&pair.far, Pair::FAR_V4, PORT)?;
        let server = pair.near.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)));
        serve(server.map_err(Error::io("bind", "a listener"))?);
        Ok(Self {
            pair,
            worker,
            _of_worker: of_worker,
            service,
            session: RefCell::new(Session::start()?),
            cgroup,
            file: NamedTempFile::new().map_err(Error::io("create", "a file"))?,
            folder: TempDir::with_prefix("chaos-test-").map_err(Error::io("create", "a folder"))?,
            echo,
            is_emulated: Environment::detect() == Environment::Vm,
        })
    }

    fn aims(&self) -> Aims {
        let near = || Some(self.pair.near.name().to_owned());
        Aims {
            netns: near(),
            peer: "10.77.0.2",
            // The echo has the same port.
            server: (Ipv4Addr::LOCALHOST, PORT).into(),
            netns_of_server: near(),
            port: FREE_PORT,
            unit: NOBODYS_UNIT,
            group: self.cgroup.name(),
            process: self.worker.pid(),
            proxy: self.session.borrow().pid(),
            file: self.file.path().to_owned(),
            folder: self.folder.path().to_owned(),
        }
    }

    /// Whether nothing shows of a fault, for signs that can be asked for at any time.
    pub(super) fn is_normal(&self, sign: Sign) -> Result<bool> {
        let mut service = self.service.borrow_mut();
        Ok(match sign {
            Sign::Traced => self.worker.state() != Some('t'),
            Sign::Calls => service.ask(Ask::Associate((Pair::FAR_V4, PORT).into()))? == 0,
            Sign::Trips => {
                let to = (Pair::FAR_V4, PORT).into();
                let ask = if self.is_emulated { Ask::TripSoon(to) } else { Ask::TripAtOnce(to) };
                service.ask(ask)? == 0
            }
            Sign::Proxy => self.session.borrow_mut().ask("a", SOON)? == Came::Result,
            Sign::Files => service.touch(Touch::Open, self.file.path())? == 0,
            Sign::Port => {
                self.pair.near.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, FREE_PORT))).is_ok()
            }
            Sign::Questions => comes_back(&self.pair.near, self.echo.address(), SOON)?,
            Sign::Echoes
            | Sign::SomeEchoes
            | Sign::Twins
            | Sign::Resets
            | Sign::Continued
            | Sign::Clients(_)
            | Sign::Holder
            | Sign::Holds(..) => true,
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_figures_have_one_name() {
        let mut names: Vec<_> = super::all().map(|kind| kind.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
