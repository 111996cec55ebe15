//! One lane's namespaces, traffic and daemon, and the looks that compare them with what should be.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::Lane;
use super::guarded::Guarded;
use super::ledger::{Account, Expected, Ledger};
use super::script::Kind;
use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::daemon::binary;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::late::HANG;
use crate::measure::{Echo, Tcp, tcp_rtt, udp_rtt};
use crate::netns::output;
use crate::pair::INTERFACE;
use crate::process::{self, Process, wait_for, wait_until};
use crate::residue::{Behaviour, Judged};
use crate::skip::Environment;
use crate::stall;
use crate::tools::{Came, Session};
use crate::worker::{Program, Worker};
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

/// What a latency fault of the soak adds.
const DELAY: Duration = Duration::from_millis(20);
/// A busy machine delays, too.
const SLACK: Duration = Duration::from_millis(100);
/// An answer to TCP within this, beyond all delays, has not been cut off.
const SILENCE: Duration = Duration::from_millis(60);
/// Holders of a daemon without a fault.
const WARM: usize = 1;
/// Longer than a lane goes without a blow that ends everything.
pub(super) const LASTING: Duration = Duration::from_secs(3000);

/// Everything a lane touches. Fields go in this order.
pub(super) struct World {
    pub(super) lane: Lane,
    /// What keeps the lane and the daemon's processes from going on.
    pub(super) seen: stall::Lane,
    pub(super) mcp: Mcp,
    /// Before the daemon, whose directory goes with it.
    pub(super) guard: Guard,
    pub(super) daemon: Daemon,
    pub(super) cgroup: Cgroup,
    props: Props,
    pub(super) guarded: Guarded,
    pub(super) site: Site,
    /// Processes, mounts, control groups, eBPF objects and the clock before any fault; in the VM, where nobody else has any.
    node: Option<Residue>,
    /// What should be active.
    pub(super) active: BTreeMap<&'static str, Kind>,
    /// What was found of residue; whoever takes it counts it.
    pub(super) judged: Cell<Judged>,
}

/// What faults of a process and of its calls are aimed at.
struct Props {
    worker: Worker,
    _of_worker: Program,
    service: RefCell<Caller>,
    session: RefCell<Session>,
    cgroup: Cgroup,
    /// Where the service is: nothing happens to these devices.
    _pair: Pair,
}

impl Props {
    fn new() -> Result<Self> {
        let of_worker = Program::new()?;
        // Without threads that come and go: they keep procfs busy, which everybody here reads.
        let worker = of_worker.start(0, "soak")?;
        let cgroup = Cgroup::new()?;
        let pair = Pair::new()?;
        let service = RefCell::new(Caller::start(&pair.near, Some(&cgroup))?);
        let session = RefCell::new(Session::start()?);
        Ok(Self { worker, _of_worker: of_worker, service, session, cgroup, _pair: pair })
    }
}

/// Namespaces with traffic between them.
pub(super) struct Site {
    /// What faults are aimed at: UDP port 8 on IPv4.
    pub(super) target: Ledger,
    /// What no fault is aimed at: IPv6, on the same device.
    pub(super) bystander: Ledger,
    echo: Echo,
    pub(super) pair: Pair,
    before: Residue,
    /// Something else than faults has happened to its device.
    hurt: bool,
}

impl Site {
    fn new(lane: Lane) -> Result<Self> {
        let pair = Pair::new()?;
        if lane.clsact {
            pair.near.tc(&["qdisc", "add", "dev", INTERFACE, "clsact"])?;
        }
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        // Neighbours know each other before anything counts: until then packets wait, and are lost with the device.
        for address in [Pair::FAR_V4, Pair::FAR_V6] {
            let greeted = Echo::start(&pair.far, address, 6)?;
            let answers = || matches!(udp_rtt(&pair.near, greeted.address(), SILENCE), Ok(Some(_)));
            wait_for(&format!("{address} reached before any fault"), answers)?;
        }
        let before = Residue::of_networks(&[&pair.near, &pair.far])?;
        let interval = Duration::from_millis(match Environment::detect() {
            Environment::Host => 2,
            // An emulated processor is the daemon's, too.
            Environment::Vm => 40,
        });
        let flow = |address| Ledger::start(&pair.near, &pair.far, address, interval);
        let (target, bystander) = (flow((Pair::FAR_V4, 8).into())?, flow((Pair::FAR_V6, 9).into())?);
        Ok(Self { target, bystander, echo, pair, before, hurt: false })
    }

    fn close(self) -> [Account; 2] {
        [self.target.close(), self.bystander.close()]
    }
}

/// Who calls the kernel to see how the site behaves, for as long as that takes.
struct Watching {
    service: Caller,
    file: NamedTempFile,
}

impl Watching {
    fn new(world: &World) -> Result<Self> {
        let service = Caller::start(&world.site.pair.near, Some(&world.props.cgroup))?;
        Ok(Self { service, file: NamedTempFile::new().map_err(Error::io("create", "a file"))? })
    }

    fn measure(&mut self, world: &World) -> Result<Behaviour> {
        let Site { pair, echo, .. } = &world.site;
        Behaviour::of_traffic_and_calls(pair, echo, &mut self.service, self.file.path())
    }
}

impl World {
    pub(super) fn new(lane: Lane, seen: stall::Lane) -> Result<Self> {
        let (site, cgroup) = (Site::new(lane)?, Cgroup::new()?);
        let (props, guarded) = (Props::new()?, Guarded::new()?);
        let daemon = start(lane, &cgroup)?;
        let (mcp, guard) = (daemon.mcp()?, Guard::start(&daemon)?);
        let in_vm = Environment::detect() == Environment::Vm;
        Ok(Self {
            lane,
            seen,
            mcp,
            guard,
            daemon,
            cgroup,
            props,
            guarded,
            site,
            node: in_vm.then(|| Residue::take(&[])).transpose()?,
            active: BTreeMap::new(),
            judged: Cell::default(),
        })
    }

    /// A fault of this kind under this name.
    pub(super) fn fault(&self, name: &str, kind: Kind, duration: Duration) -> Fault {
        let delay_ms = u64::try_from(DELAY.as_millis()).unwrap_or_default();
        let beside = |kind, target, params| Fault::new(kind).aimed(target).with(params);
        let beside = match kind {
            Kind::Stillness => {
                Some(beside("process_pause", json!({"pid": self.props.worker.pid()}), json!({})))
            }
            Kind::Calls => {
                Some(beside("connect_error", json!({"cgroup": self.props.cgroup.name()}), json!({})))
            }
            Kind::Tools => {
                let target = json!({"pid": self.props.session.borrow().pid()});
                Some(beside("mcp_error", target, json!({"fail": 1})))
            }
            Kind::Memory => {
                let params = json!({"resource": "memory", "memory_mb": 8});
                Some(beside("resource_exhaustion", json!({}), params))
            }
            _ => self.guarded.fault(kind),
        };
        if let Some(fault) = beside {
            return fault.named(name).lasting(duration);
        }
        let (kind, narrow, params) = match kind {
            Kind::Partition => ("network_partition", json!({"cidr": "10.77.0.2"}), json!({})),
            Kind::Timeout => ("timeout", json!({"port": 8, "protocol": "udp"}), json!({})),
            Kind::Error => ("error", json!({"port": 7}), json!({})),
            Kind::Latency => ("latency", json!({"cidr": "10.77.0.0/24"}), json!({"delay_ms": delay_ms})),
            _ => ("resource_exhaustion", Value::Null, json!({"cpu_percent": 3, "cores": 1})),
        };
        let fault = Fault::new(kind).with(params).named(name).lasting(duration);
        if narrow.is_null() { fault } else { fault.on(&self.site.pair.near, narrow) }
    }

    /// What should become of the target's packets.
    pub(super) fn expected(&self) -> Expected {
        match self.active.values().any(|kind| matches!(kind, Kind::Partition | Kind::Timeout)) {
            true => Expected::Cut,
            false => Expected::Through,
        }
    }

    /// Changes which faults are active, with `work` between the last packet of which the old and the first of which
    /// the new can be said for certain.
    pub(super) fn change<T>(
        &mut self,
        to: impl FnOnce(&mut BTreeMap<&'static str, Kind>),
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = self.active.clone();
        let mut after = before.clone();
        to(&mut after);
        self.doubt(&before, &after);
        let result = work(self)?;
        self.active = after;
        self.settle();
        Ok(result)
    }

    fn doubt(&self, before: &BTreeMap<&str, Kind>, after: &BTreeMap<&str, Kind>) {
        let cut = |faults: &BTreeMap<&str, Kind>| {
            faults.values().any(|kind| matches!(kind, Kind::Partition | Kind::Timeout))
        };
        let delays = before.values().chain(after.values()).filter(|kind| **kind == Kind::Latency).count();
        // A packet that is under way in a delay when something else changes meets the change on its way back.
        let slack = if delays > 0 { DELAY * delays as u32 + SLACK } else { Duration::ZERO };
        if cut(before) != cut(after) || delays > 0 || self.lane.restarts_queue() {
            self.site.target.doubt(slack);
        }
        if self.lane.restarts_queue() {
            self.site.bystander.doubt(Duration::ZERO);
        }
    }

    /// Something else than a fault is about to happen to the device: from now on nothing can be said of its packets.
    pub(super) fn hurt(&mut self) {
        self.doubt(&self.active, &BTreeMap::new());
        self.site.target.doubt(Duration::ZERO);
        self.site.bystander.doubt(Duration::ZERO);
        self.site.hurt = true;
    }

    pub(super) fn settle(&self) {
        if self.site.hurt {
            return;
        }
        self.site.target.settle(self.expected());
        self.site.bystander.settle(Expected::Through);
    }

    /// The daemon was kept from going on: from then until now faults may have ended early, and let packets of the target through.
    pub(super) fn excuse_leaks(&self, since: Instant) {
        self.site.target.excuse_leaks(since);
    }

    /// Compares the daemon's status, what TCP meets, and how process, calls and tools are, with what should be. UDP is in the books.
    pub(super) fn check(&self) -> Result<()> {
        self.check_status()?;
        self.check_props()?;
        let delays = self.active.values().filter(|kind| **kind == Kind::Latency).count() as u32;
        let cut = self.active.values().any(|kind| matches!(kind, Kind::Partition | Kind::Error));
        let (from, to) = (&self.site.pair.near, self.site.echo.address());
        let answered = |patience| matches!(tcp_rtt(from, to, patience), Ok(Tcp::Answered { .. }));
        match cut {
            true if answered(SILENCE + DELAY * 4 * delays) => self.wrong("TCP gets through"),
            false if !wait_until(HANG, || answered(Duration::from_secs(1))) => {
                self.wrong("TCP does not get through")
            }
            _ => Ok(()),
        }
    }

    /// Ending a fault is quicker than what it leaves behind in the states of others, on a busy machine.
    fn check_props(&self) -> Result<()> {
        let is_active = |wanted| self.active.values().any(|kind| *kind == wanted);
        if let Some(kind) = self.guarded.differs(is_active, HANG) {
            return self.wrong(&format!("{kind:?} acts and should not, or the other way round"));
        }
        let (still, failing) = (is_active(Kind::Stillness), is_active(Kind::Calls));
        let stands = || (self.props.worker.state() == Some('t')) == still;
        if !wait_until(HANG, stands) {
            let state = self.props.worker.state();
            return self.wrong(&format!("a process is in state {state:?}"));
        }
        let to = Ask::Associate((Pair::FAR_V4, 7).into());
        let answer = self.props.service.borrow_mut().ask(to)?;
        if (answer != 0) != failing {
            return self.wrong(&format!("a call gets {answer}"));
        }
        let came = self.props.session.borrow_mut().ask("a", HANG)?;
        match came {
            Came::Error if is_active(Kind::Tools) => Ok(()),
            Came::Result if !is_active(Kind::Tools) => Ok(()),
            came => self.wrong(&format!("a tool of an MCP server answers with {came:?}")),
        }
    }

    /// The product's own oracle, as an operator asks it. On a host others have daemons, too: there what is in our namespaces
    /// and folders counts.
    pub(super) fn ask_the_doctor(&self) -> Result<()> {
        let in_vm = Environment::detect() == Environment::Vm;
        if in_vm {
            collect_orphans();
        }
        let mut command = Command::new(binary("chaosctl")?);
        command.arg("--socket").arg(self.daemon.socket()).args(["--json", "doctor", "--residue"]);
        let said = command.output().map_err(Error::io("start", "chaosctl"))?;
        let report: Value = serde_json::from_slice(&said.stdout)
            .map_err(|error| Error::Different(format!("chaosctl doctor --residue: {error}: {said:?}")))?;
        let Some(left) = report["leftovers"].as_array() else {
            return Err(Error::Different(format!("chaosctl doctor --residue: {report}")));
        };
        let runtime = self.daemon.runtime_dir().display().to_string();
        let Pair { near, far, .. } = &self.site.pair;
        let ours = |left: &&Value| {
            let text = left.to_string();
            in_vm || text.contains(&runtime) || [near, far].iter().any(|space| space.is_named_in(&text))
        };
        match left.iter().filter(ours).collect::<Vec<_>>() {
            found if found.is_empty() => Ok(()),
            found => Err(Error::Different(format!("chaosctl doctor --residue: {found:?}"))),
        }
    }

    pub(super) fn wrong<T>(&self, what: &str) -> Result<T> {
        Err(Error::Different(format!("{what}, with {:?} active", self.active)))
    }

    /// How it behaves before all faults: losses, round trip, and what calls get of somebody at whose group faults are aimed. What
    /// processors do is not in it: other lanes have daemons, too.
    pub(super) fn behaviour(&self) -> Result<Behaviour> {
        let mut watching = Watching::new(self)?;
        Behaviour::before(|| watching.measure(self))
    }

    /// Fails unless it behaves as it did then.
    pub(super) fn assert_behaves_like(&self, before: &Behaviour) -> Result<()> {
        let mut watching = Watching::new(self)?;
        Behaviour::after(before, || watching.measure(self))
    }

    /// Whether something else than faults has happened to the site's device.
    pub(super) fn is_hurt(&self) -> bool {
        self.site.hurt
    }

    /// What daemon and guard wrote.
    pub(super) fn logs(&self) -> String {
        format!("log of the daemon:\n{}log of the guard:\n{}", self.daemon.log(), self.guard.log())
    }

    fn check_status(&self) -> Result<()> {
        let mut last = String::new();
        let agrees = wait_until(HANG, || {
            last = match self.active_names() {
                Ok(names) if names.iter().eq(self.active.keys()) => return true,
                Ok(names) => format!("{names:?}, not {:?}", self.active),
                Err(error) => error.to_string(),
            };
            false
        });
        if agrees { Ok(()) } else { self.wrong(&format!("status: {last}")) }
    }

    /// Names of faults that are active, as the daemon says; sorted.
    pub(super) fn active_names(&self) -> Result<Vec<String>> {
        let status = self.mcp.call_tool("chaos_status", json!({}))?.ok()?;
        let listed = status["active_faults"].as_array().cloned().unwrap_or_default();
        let active = listed.iter().filter(|fault| fault["active"] == true);
        let mut names: Vec<_> =
            active.filter_map(|fault| fault["name"].as_str().map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Every fault has ended: nothing is left, nothing runs, and traffic is as ever.
    pub(super) fn assert_calm(&self) -> Result<()> {
        self.check()?;
        self.assert_no_residue()?;
        let idle = || self.daemon.holders().len() <= WARM;
        match wait_until(HANG, idle) {
            true => Ok(()),
            false => Err(Error::Different(format!("holders left: {:?}", self.daemon.holders()))),
        }
    }

    fn assert_no_residue(&self) -> Result<()> {
        if !wait_until(HANG, || self.journals().is_empty()) {
            return Err(Error::Different(format!("journals left: {:?}", self.journals())));
        }
        self.guarded.assert_as_before()?;
        if let Some(node) = &self.node {
            node.assert_unchanged_within(&[], HANG)?;
        }
        if self.site.hurt {
            // By us: its device is not what it was.
            return Ok(());
        }
        self.assert_networks_as_before()
    }

    /// Links, addresses, queues and all else in the site's namespaces are as they were, and packets get through.
    pub(super) fn assert_networks_as_before(&self) -> Result<()> {
        let (near, far, echo) = (&self.site.pair.near, &self.site.pair.far, self.site.echo.address());
        let answers = || matches!(udp_rtt(near, echo, SILENCE), Ok(Some(_)));
        let behaves = || wait_for("an echo", answers);
        let level = self.site.before.level_within(&[near, far], HANG, behaves)?;
        let mut judged = self.judged.take();
        let verdict = judged.in_the_end(level, HANG);
        self.judged.set(judged);
        verdict
    }

    /// Texts of the journals, one per fault.
    fn journals(&self) -> Vec<String> {
        let folder = self.daemon.runtime_dir().join("journal");
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect()
    }

    /// The holder of a fault, by the journal.
    pub(super) fn holder_of(&self, name: &str) -> Result<Process> {
        let (journals, holders) = (self.journals(), self.daemon.holders());
        let text = journals.iter().find(|text| {
            let notes = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            { notes }.any(|note| note["fault"]["name"] == name)
        });
        let holds =
            |holder: &&Process| text.is_some_and(|text| text.contains(&format!("\"pid\":{},", holder.pid)));
        let found = holders.iter().find(holds).cloned();
        found.ok_or_else(|| Error::Different(format!("no holder of {name} in {journals:?}, {holders:?}")))
    }

    /// From `since` until the first packet of the target that comes through left.
    pub(super) fn time_to_normal(&self, since: Instant, limit: Duration) -> Result<Duration> {
        let normal = self.site.target.first_after(since, limit);
        let late = || Error::in_vain(format!("normal traffic after {:?}", self.active), limit);
        normal.filter(|normal| *normal < limit).ok_or_else(late)
    }

    /// Recovers after a death of the daemon, of whose processes the first is the injector, as soon as they are gone: one that is on
    /// its way out still holds the lock.
    pub(super) fn recover_from(&mut self, all: &[Process]) -> Result<()> {
        wait_until(HANG, || !all.iter().any(Process::runs));
        self.recover(&all[1..])
    }

    /// Recovers after a death of the daemon, whose processes are gone or stand still.
    pub(super) fn recover(&mut self, dead: &[Process]) -> Result<()> {
        let mut command = Command::new(binary("chaos-daemon")?);
        let said = output(command.arg("recover").arg("--runtime-dir").arg(self.daemon.runtime_dir()))?;
        if said.contains("STUCK") {
            return Err(Error::Different(said));
        }
        if !wait_until(HANG, || !dead.iter().any(Process::runs)) {
            return Err(Error::Different(format!("still running: {dead:?}")));
        }
        self.bury(dead);
        self.assert_no_residue()
    }

    fn bury(&mut self, dead: &[Process]) {
        self.daemon.kill_everything();
        // What the injector leaves becomes a child of ours.
        for process in dead {
            let _ = waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG));
        }
    }

    /// Starts another daemon, when the one that was is no more, and a guard for it.
    pub(super) fn start(&mut self) -> Result<()> {
        self.guard.kill();
        let fresh = start(self.lane, &self.cgroup)?;
        self.mcp = fresh.mcp()?;
        self.guard = Guard::start(&fresh)?;
        self.daemon = fresh;
        Ok(())
    }

    /// Starts the daemon again where the one died that was, and a guard: what was left is undone before it serves.
    pub(super) fn start_again(&mut self, dead: &[Process]) -> Result<()> {
        self.bury(dead);
        let (lane, cgroup) = (self.lane, &self.cgroup);
        self.daemon.start_again(|command| place(lane, cgroup, command))?;
        self.mcp = self.daemon.mcp()?;
        self.guard = Guard::start(&self.daemon)?;
        self.guarded.assert_as_before()
    }

    /// Stops the daemon, and its guard, which would wait for another in a directory that goes.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.daemon.stop()?;
        self.guard.kill();
        Ok(())
    }

    /// Waits until the server is another one, and connects to it.
    pub(super) fn reconnect(&mut self, old: &Process) -> Result<()> {
        let daemon = &self.daemon;
        wait_until(HANG, || daemon.server().is_some_and(|now| now.pid != old.pid));
        self.mcp = daemon.mcp()?;
        Ok(())
    }

    /// Sends a signal to every process of the daemon.
    pub(super) fn signal_all(&self, signal: Signal) -> Vec<Process> {
        let all = self.daemon.processes();
        all.iter().for_each(|process| process.signal(signal));
        all
    }

    /// Accounts for the packets of target and bystander, and makes a site for what comes next.
    pub(super) fn renew_site(&mut self) -> Result<[Account; 2]> {
        let old = std::mem::replace(&mut self.site, Site::new(self.lane)?);
        Ok(old.close())
    }
}

fn start(lane: Lane, cgroup: &Cgroup) -> Result<Daemon> {
    Daemon::start_with(|command| place(lane, cgroup, command))
}

fn place(lane: Lane, cgroup: &Cgroup, command: &mut Command) {
    lane.attach.configure(command);
    cgroup.place(command);
}

/// Collects what has ended of daemons that died before: it is ours, see [`super::run`], and would be told as left behind. Where
/// there is one lane at a time, all of it is that lane's.
fn collect_orphans() {
    let me = std::process::id().cast_signed();
    for process in process::all().iter().filter(|process| process.parent == me && process.state == 'Z') {
        let _ = waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG));
    }
}
