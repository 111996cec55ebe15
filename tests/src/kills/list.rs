//! What is ended, of every kind of fault: that it is complete is the compiler's to say.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use chaos_daemon::spec::{FAULT_TYPES, FaultType};
use serde_json::json;
use tempfile::{NamedTempFile, TempDir};

use super::watch::DELAY_MS;
use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::kernel::{Attach, Context};
use crate::measure::Echo;
use crate::name_server::comes_back;
use crate::skip::Environment;
use crate::tools::{Came, Session};
use crate::touch::Touch;
use crate::worker::{Program, Worker};
use crate::{Error, Pair, Result};

/// A port that only the test knows.
const PORT: u16 = 4997;
/// An echo comes back within this.
const SOON: Duration = Duration::from_millis(100);

/// How it shows whether a fault is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// No datagram comes back soon.
    Echoes,
    /// Most datagrams do not come back soon: it is a matter of chance.
    SomeEchoes,
    /// Each datagram comes back twice.
    Twins,
    /// Only TCP can be reset.
    Connections,
    /// A process holds what is taken, and with its end all of it is free.
    Holder,
    /// A process stands still.
    Worker,
    /// Calls of a process in a control group fail.
    Calls,
    /// No datagram of such a process comes back soon.
    Trips,
    /// What such a process asks of a file fails.
    Files,
    /// A port cannot be bound.
    Port,
    /// A call to an MCP server behind a proxy fails.
    Proxy,
    /// A question about a name is answered by somebody else than whom it is sent to.
    Questions,
}

/// What of the kernel it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Netem,
    Lsm,
}

/// A kind of fault, and how it is attached.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// What it is called in figures.
    pub name: &'static str,
    pub(super) attach: Attach,
    pub(super) sign: Sign,
    needs: Needs,
    fault: fn(&Scene) -> Fault,
}

/// Every kind that there is.
pub(super) fn all() -> impl Iterator<Item = Kind> {
    FAULT_TYPES.iter().flat_map(|kind| measured(*kind)).copied()
}

/// Those that this kernel can do.
pub fn kinds() -> Vec<Kind> {
    let context = Context::new();
    all().filter(|kind| kind.lacks(&context).is_none()).collect()
}

impl Kind {
    /// What this kernel lacks for it, if anything.
    pub fn lacks(&self, context: &Context) -> Option<&'static str> {
        match self.needs {
            Needs::Netem if !context.has_netem() => Some("netem is not there"),
            Needs::Lsm if !context.has_bpf_lsm() => Some("BPF LSM is not on"),
            _ if self.name == TCX && context.kernel < (6, 6) => Some("tcx comes with Linux 6.6"),
            _ => None,
        }
    }
}

const TCX: &str = "partition (tcx)";

/// What is measured of a fault type: nothing of those that outlive the processes.
fn measured(kind: FaultType) -> &'static [Kind] {
    match kind {
        FaultType::NetworkPartition => PARTITIONS,
        FaultType::Timeout => &[TIMEOUT],
        FaultType::Error => &[ERROR],
        FaultType::Latency => &[LATENCY],
        FaultType::PacketLoss => &[LOSS],
        FaultType::PacketDuplicate => &[DUPLICATE],
        FaultType::PacketCorrupt => &[CORRUPT],
        FaultType::PacketReorder => &[REORDER],
        FaultType::Bandwidth => &[BANDWIDTH],
        FaultType::LinkProfile => &[LINK_PROFILE],
        FaultType::ResourceExhaustion => HELD,
        FaultType::ConnectionLoad => &[CONNECTIONS],
        FaultType::PortInUse => &[PORT_IN_USE],
        FaultType::ProcessPause => &[PAUSE],
        FaultType::ConnectError => &[CALLS],
        FaultType::DnsError => &[QUESTIONS],
        FaultType::FileError => &[FILES],
        FaultType::SocketError => &[SOCKETS],
        FaultType::McpError => &[PROXY],
        // Supervised: their guard ends them, which the crash matrix shows.
        FaultType::Pause | FaultType::LinkDown | FaultType::ClockSkew | FaultType::ServiceStop => &[],
        // They would take this host down with whoever measures; the tests on systemd do so, in a VM.
        FaultType::HostReboot | FaultType::HostPanic => &[],
        // What they do cannot be taken back.
        FaultType::ProcessKill | FaultType::ServiceRestart => &[],
    }
}

const PARTITIONS: &[Kind] = &[
    packets(TCX, Sign::Echoes, |scene| scene.packets("network_partition")),
    Kind {
        attach: Attach::Clsact,
        ..packets("partition (stub)", Sign::Echoes, |scene| scene.packets("network_partition"))
    },
    packets("partition (cgroup)", Sign::Trips, |scene| {
        Fault::new("network_partition").aimed(json!({"cgroup": scene.cgroup.name()}))
    }),
];
const TIMEOUT: Kind = packets("timeout", Sign::Echoes, |scene| scene.packets("timeout"));
const ERROR: Kind = packets("error", Sign::Connections, |scene| scene.packets("error"));
const LATENCY: Kind =
    netem("latency", Sign::Echoes, |scene| scene.packets("latency").with(json!({"delay_ms": DELAY_MS})));
const LOSS: Kind = netem("packet_loss", Sign::Echoes, |scene| {
    scene.packets("packet_loss").with(json!({"loss_percent": 100}))
});
const DUPLICATE: Kind = netem("packet_duplicate", Sign::Twins, |scene| {
    scene.packets("packet_duplicate").with(json!({"duplicate_percent": 100}))
});
/// A wrong bit in the sender's address of the link is nothing that anybody minds.
const CORRUPT: Kind = netem("packet_corrupt", Sign::SomeEchoes, |scene| {
    scene.packets("packet_corrupt").with(json!({"corrupt_percent": 100}))
});
const REORDER: Kind = netem("packet_reorder", Sign::SomeEchoes, |scene| {
    scene.packets("packet_reorder").with(json!({"reorder_percent": 1, "delay_ms": DELAY_MS}))
});
/// One datagram takes as long as is prompt.
const BANDWIDTH: Kind =
    netem("bandwidth", Sign::SomeEchoes, |scene| scene.packets("bandwidth").with(json!({"rate_kbit": 8})));
/// As late as is told from what is prompt, and half of it lost. One way alone: two take an emulated machine
/// longer than there is time for stopping everybody.
const LINK_PROFILE: Kind = netem("link_profile", Sign::SomeEchoes, |scene| {
    let one_way = scene.packets("link_profile").narrowed(json!({"direction": "egress"}));
    one_way.with(json!({"up_delay_ms": DELAY_MS, "up_loss_percent": 50}))
});
const CONNECTIONS: Kind = held("connection_load", |scene| {
    let url = format!("tcp://{}:{PORT}", Ipv4Addr::LOCALHOST);
    let fault = Fault::new("connection_load").aimed(json!({"netns": scene.pair.near.name()}));
    fault.with(json!({"url": url, "sessions": 10}))
});
const PORT_IN_USE: Kind = packets("port_in_use", Sign::Port, |scene| {
    let netns = scene.pair.near.name();
    Fault::new("port_in_use").aimed(json!({"local_port": PORT + 1, "protocol": "tcp", "netns": netns}))
});
const PAUSE: Kind = packets("process_pause", Sign::Worker, |scene| {
    Fault::new("process_pause").aimed(json!({"pid": scene.worker.pid()}))
});
const CALLS: Kind = packets("connect_error", Sign::Calls, |scene| {
    Fault::new("connect_error").aimed(json!({"cgroup": scene.cgroup.name()}))
});
const PROXY: Kind = packets("mcp_error", Sign::Proxy, |scene| {
    let fault = Fault::new("mcp_error").aimed(json!({"pid": scene.session.borrow().pid()}));
    fault.with(json!({"fail": 1}))
});
const QUESTIONS: Kind = packets("dns_error", Sign::Questions, |scene| {
    Fault::new("dns_error").on(&scene.pair.near, json!({"remote_port": PORT}))
});
const FILES: Kind = Kind {
    needs: Needs::Lsm,
    ..packets("file_error", Sign::Files, |scene| {
        let fault = Fault::new("file_error").aimed(json!({"cgroup": scene.cgroup.name()}));
        fault.with(json!({"path": scene.file.path(), "operations": ["open"]}))
    })
};

/// Who associates a socket binds it first.
const SOCKETS: Kind = Kind {
    needs: Needs::Lsm,
    ..packets("socket_error", Sign::Calls, |scene| {
        let fault = Fault::new("socket_error").aimed(json!({"cgroup": scene.cgroup.name()}));
        fault.with(json!({"operations": ["bind"]}))
    })
};

/// Everything that a process uses up; limits are supervised.
const HELD: &[Kind] = &[
    held("cpu", |_| exhaustion(json!({"cpu_percent": 20, "cores": 1}))),
    held("memory", |_| exhaustion(json!({"resource": "memory", "memory_mb": 64}))),
    held("file_descriptors", |_| exhaustion(json!({"resource": "file_descriptors", "count": 100}))),
    held("pids", |_| exhaustion(json!({"resource": "pids", "count": 50}))),
    held("ports", |scene| {
        let netns = scene.pair.near.name();
        exhaustion(json!({"resource": "ports", "count": 100})).aimed(json!({"netns": netns}))
    }),
    held("disk_fill", |scene| {
        exhaustion(json!({"resource": "disk_fill", "path": scene.folder.path(), "megabytes": 16}))
    }),
    held("inodes", |scene| {
        exhaustion(json!({"resource": "inodes", "path": scene.folder.path(), "count": 100}))
    }),
    held("disk_io", |scene| {
        let path = scene.folder.path();
        exhaustion(json!({"resource": "disk_io", "path": path, "bytes_per_second": 1 << 20, "size_mb": 1}))
    }),
];

const fn packets(name: &'static str, sign: Sign, fault: fn(&Scene) -> Fault) -> Kind {
    Kind { name, attach: Attach::Auto, sign, needs: Needs::Nothing, fault }
}

const fn netem(name: &'static str, sign: Sign, fault: fn(&Scene) -> Fault) -> Kind {
    Kind { needs: Needs::Netem, ..packets(name, sign, fault) }
}

const fn held(name: &'static str, fault: fn(&Scene) -> Fault) -> Kind {
    packets(name, Sign::Holder, fault)
}

fn exhaustion(params: serde_json::Value) -> Fault {
    Fault::new("resource_exhaustion").with(params)
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

    fn packets(&self, kind: &'static str) -> Fault {
        Fault::new(kind).on(&self.pair.near, json!({"cidr": "10.77.0.2"}))
    }

    /// Whether nothing shows of a fault, for signs that can be asked for at any time.
    pub(super) fn is_normal(&self, sign: Sign) -> Result<bool> {
        let mut service = self.service.borrow_mut();
        Ok(match sign {
            Sign::Worker => self.worker.state() != Some('t'),
            Sign::Calls => service.ask(Ask::Associate((Pair::FAR_V4, PORT).into()))? == 0,
            Sign::Trips => {
                let to = (Pair::FAR_V4, PORT).into();
                let ask = if self.is_emulated { Ask::TripSoon(to) } else { Ask::TripAtOnce(to) };
                service.ask(ask)? == 0
            }
            Sign::Proxy => self.session.borrow_mut().ask("a", SOON)? == Came::Result,
            Sign::Files => service.touch(Touch::Open, self.file.path())? == 0,
            Sign::Port => self.pair.near.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT + 1))).is_ok(),
            Sign::Questions => comes_back(&self.pair.near, self.echo.address(), SOON)?,
            Sign::Echoes | Sign::SomeEchoes | Sign::Twins | Sign::Connections | Sign::Holder => true,
        })
    }
}

impl Kind {
    pub(super) fn fault(&self, scene: &Scene) -> Fault {
        (self.fault)(scene)
    }
}

#[cfg(test)]
mod tests {
    use chaos_daemon::spec::resource;

    use super::*;

    #[test]
    fn everything_that_can_be_used_up_is_measured() {
        let missing = resource::names().filter(|resource| {
            !resource.ends_with("_limit") && !HELD.iter().any(|kind| kind.name == *resource)
        });
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn no_two_figures_have_one_name() {
        let mut names: Vec<_> = super::all().map(|kind| kind.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
