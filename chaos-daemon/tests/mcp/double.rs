//! A server under test: the real one, on a socket of its own, with a double of the injector behind the real door.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chaos_audit::Record;
use chaos_daemon::injector::claims::{By, Claims, Doorman, Entrances, Speaker, lock};
use chaos_daemon::mcp;
use chaos_daemon::policy::limits::Recent;
use chaos_daemon::policy::logs::LogRule;
use chaos_daemon::policy::{Asked, Intent, Policy, Role, Who};
use chaos_daemon::probe::alert::webhook::{Token, Webhook};
use chaos_daemon::probe::prober;
use chaos_daemon::request::claim::{Claim, arrivals};
use chaos_daemon::request::descriptors::hand_over;
use chaos_daemon::request::evidence::Met;
use chaos_daemon::request::facts::{Facts, LogFacts, ProcessFacts, Question, UnitFacts};
use chaos_daemon::request::wire::Desk;
use chaos_daemon::request::{
    Ability, Act, ApiError, Caller, DoctorReport, ErrorCode, Evidence, FaultState, FaultStatus, Leftover,
    Level, PlanReport, Planned, Removal, Reply, Request, ResidueReport, ResourceAbility, TargetsReport,
};
use chaos_daemon::server::ServerOptions;
use chaos_daemon::server::history::Retention;
use chaos_daemon::server::places::MOST_OF_ONE;
use chaos_daemon::server::runs::MOST_RUNS;
use chaos_daemon::spec::LifetimeClass;
use chaos_daemon::spec::{FAULT_TYPES, FaultRequest, FaultType, GivenName, LogSearch, QualifiedName};
use jiff::Timestamp;

/// What the doctor says of a type: netem is missing for each, and for one resource its controller.
fn ability(fault_type: FaultType) -> Ability {
    let pids = || ResourceAbility {
        resource: "pids_limit".into(),
        missing: vec!["the cgroup controller pids (disabled)".into()],
        remedy: Some("boot without it".into()),
    };
    let resources = (fault_type == FaultType::ResourceExhaustion).then(pids).into_iter().collect();
    Ability { fault_type, missing: vec!["sch_netem".into()], remedy: None, resources }
}

/// How many processes any selector matches.
pub(crate) const MATCHING: usize = 20;

/// A server under test; it ends when dropped.
pub(crate) struct Server {
    pub(crate) socket: PathBuf,
    /// What the injector was asked, in order, without the looking.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    /// What the server has said that it does.
    pub(crate) recorded: Arc<Mutex<Vec<(Record, Caller)>>>,
    /// What is injected.
    pub(crate) active: Arc<Mutex<BTreeMap<QualifiedName, (FaultRequest, Instant)>>>,
    /// What was injected last.
    pub(crate) latest: Arc<Mutex<Option<FaultRequest>>>,
    /// Residue that removals report.
    pub(crate) residue: Arc<Mutex<Vec<String>>>,
    /// What the injector allows.
    pub(crate) policy: Arc<Mutex<Policy>>,
    /// The process that runs programs.
    pub(crate) runner: Option<Runner>,
    /// In whose name the server may ask.
    pub(crate) claims: Arc<Mutex<Claims>>,
    desk: Option<tokio::task::JoinHandle<()>>,
    doorman: tokio::task::JoinHandle<()>,
    directory: tempfile::TempDir,
}

impl Server {
    /// Starts a server with a registry in its own directory.
    pub(crate) async fn start() -> Self {
        Self::start_with(MOST_RUNS).await
    }

    /// Starts one that runs so many experiments at once.
    pub(crate) async fn start_with(most_runs: u32) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), most_runs, None).await
    }

    /// Starts one that is told of alerts, at this address, by who has `token`.
    pub(crate) async fn start_listening(token: &str) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let webhook = Webhook::new(listener, Some(Token::new(token))).unwrap();
        (Self::start_in(tempfile::tempdir().unwrap(), MOST_RUNS, Some(webhook)).await, address)
    }

    /// Ends the server and starts another one with the same directory.
    pub(crate) async fn restart(mut self) -> Self {
        self.end_injector().await;
        let directory = std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap());
        std::fs::remove_file(directory.path().join("mcp.sock")).unwrap();
        // As the injector does when a server ends.
        lock(&self.claims).server_gone();
        Self::start_all(directory, (MOST_RUNS, Arc::clone(&self.claims)), None, &[]).await
    }

    /// Starts one with a runner, where the policy names these programs.
    pub(crate) async fn start_with_programs(programs: &[&str]) -> Self {
        Self::start_all(tempfile::tempdir().unwrap(), (MOST_RUNS, Arc::default()), None, programs).await
    }

    async fn start_in(directory: tempfile::TempDir, most_runs: u32, webhook: Option<Webhook>) -> Self {
        Self::start_all(directory, (most_runs, Arc::default()), webhook, &[]).await
    }

    async fn start_all(
        directory: tempfile::TempDir,
        (most_runs, claims): (u32, Arc<Mutex<Claims>>),
        webhook: Option<Webhook>,
        programs: &[&str],
    ) -> Self {
        let socket = directory.path().join("mcp.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (door, desk) = UnixStream::pair().unwrap();
        let (prober, samples) = UnixStream::pair().unwrap();
        samples.set_nonblocking(true).unwrap();
        tokio::spawn(prober::serve(tokio::net::UnixStream::from_std(samples).unwrap(), webhook));
        let state_dir = Some(directory.path().to_owned());
        let retention = Retention::default();
        let (announces, arrivals) = arrivals().unwrap();
        let entrances = Entrances { unix: vec![(listener.into(), Role::Admin)], vsock: None };
        let doorman = Doorman::new(entrances).unwrap();
        let announces = tokio::net::UnixStream::from_std(announces).unwrap();
        let known = Arc::clone(&claims);
        let doorman = tokio::spawn(async move {
            doorman.keep(&known, announces).await;
        });
        let (runner, stream) = (!programs.is_empty()).then(|| Runner::start(programs)).unzip();
        let options = ServerOptions {
            arrivals,
            door,
            prober: handed_over(&prober),
            runner: stream.as_ref().map(handed_over),
            state_dir,
            retention,
            most_runs,
            went_down: None,
            connections: MOST_OF_ONE,
        };
        tokio::spawn(async move { mcp::serve(options).await.unwrap() });
        desk.set_nonblocking(true).unwrap();
        let (asked, active, latest, residue) = <(Arc<_>, Arc<_>, Arc<_>, Arc<_>)>::default();
        let recorded = Arc::default();
        let words = programs.iter().map(|word| (*word).to_owned()).collect();
        let policy = Arc::new(Mutex::new(Policy { probe_commands: words, ..here() }));
        let double = Double {
            ended: Arc::default(),
            asked: Arc::clone(&asked),
            recorded: Arc::clone(&recorded),
            active: Arc::clone(&active),
            latest: Arc::clone(&latest),
            residue: Arc::clone(&residue),
            policy: Arc::clone(&policy),
            claims: Arc::clone(&claims),
        };
        let desk = Desk::new(tokio::net::UnixStream::from_std(desk).unwrap());
        let desk = Some(tokio::spawn(double.serve(desk)));
        Self {
            socket,
            asked,
            recorded,
            active,
            latest,
            residue,
            policy,
            runner,
            claims,
            desk,
            doorman,
            directory,
        }
    }

    /// What the injector was asked since the last time.
    pub(crate) fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// Where the registry is.
    pub(crate) fn state(&self) -> &Path {
        self.directory.path()
    }

    /// Lets the injector die.
    pub(crate) async fn end_injector(&mut self) {
        if let Some(desk) = self.desk.take() {
            desk.abort();
            // Cancelled, as asked.
            let _ = desk.await;
            self.doorman.abort();
        }
    }
}

#[derive(Clone)]
struct Double {
    /// What has ended by itself.
    ended: Arc<Mutex<BTreeMap<QualifiedName, FaultStatus>>>,
    asked: Arc<Mutex<Vec<String>>>,
    recorded: Arc<Mutex<Vec<(Record, Caller)>>>,
    active: Arc<Mutex<BTreeMap<QualifiedName, (FaultRequest, Instant)>>>,
    latest: Arc<Mutex<Option<FaultRequest>>>,
    residue: Arc<Mutex<Vec<String>>>,
    policy: Arc<Mutex<Policy>>,
    claims: Arc<Mutex<Claims>>,
}

/// The server's end of a socket over which this stream was handed to it, as the injector does.
fn handed_over(stream: &UnixStream) -> UnixStream {
    let (near, far) = UnixStream::pair().unwrap();
    hand_over(near.as_fd(), stream).unwrap();
    far
}

/// The real runner, with the rights of this test, and without a namespace of process numbers.
pub(crate) struct Runner(pub(crate) Child);

impl Runner {
    fn start(programs: &[&str]) -> (Self, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_chaos-daemon"));
        command.arg("runner").stdin(Stdio::null()).stdout(Stdio::null());
        programs.iter().for_each(|program| {
            command.args(["--command", program]);
        });
        // SAFETY: between fork and exec only an async-signal-safe call is made: dup2.
        unsafe {
            command.pre_exec(move || match nix::libc::dup2(theirs.as_raw_fd(), 3) {
                3 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        (Self(command.spawn().unwrap()), ours)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Double {
    async fn serve(self, mut desk: Desk) {
        let answers = desk.answers();
        while let Ok(Some((mut ticket, request))) = desk.next().await {
            let (double, answers) = (self.clone(), answers.clone());
            tokio::spawn(async move {
                if let Request::Inject { name, fault, .. } = &request {
                    match fault.target.interface.as_deref() {
                        Some("slow0") => tokio::time::sleep(Duration::from_secs(1)).await,
                        Some("hung0") => {
                            double.note(format!("hung {}", name.name));
                            ticket.cancelled().await;
                            return double.note(format!("taken back {}", name.name));
                        }
                        _ => {}
                    }
                }
                let claim = ticket.claim();
                let meant = |name: &GivenName| double.meant(name, claim);
                if let Request::Remove { name } = &request
                    && double.is_on(&meant(name), "glued0")
                {
                    return std::future::pending().await;
                }
                if let Request::Remove { name } = &request
                    && double.is_on(&meant(name), "sticky0")
                {
                    double.note(format!("removing {}", name.name));
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
                answers.answer(ticket, double.reply(request, claim));
            });
        }
    }

    /// What is meant by a name, whoever asks.
    fn meant(&self, name: &GivenName, claim: Claim) -> QualifiedName {
        let own = lock(&self.claims).speaker(claim).map(|speaker| speaker.who.caller.owner());
        QualifiedName::new(name.owner.or(own.ok()).unwrap(), name.name.clone())
    }

    fn reply(&self, request: Request, claim: Claim) -> Reply {
        self.expire();
        match request {
            Request::Remove { name } => {
                self.note(format!("remove {}", name.name));
                let name = self.meant(&name, claim);
                Reply::Removed(self.remove(|active| *active == name))
            }
            Request::StopAll => {
                self.note("stop all".into());
                Reply::Removed(self.remove(|_| true))
            }
            Request::Status => {
                let active = self.active.lock().unwrap();
                let active = active.iter().map(|(name, (fault, since))| status(name, fault, *since));
                Reply::Status(active.chain(self.ended.lock().unwrap().values().cloned()).collect())
            }
            Request::Release => {
                if let Claim::Grant(grant) = claim {
                    lock(&self.claims).release(grant);
                }
                Reply::Done
            }
            Request::Keep { grants } => {
                lock(&self.claims).keep(&grants);
                Reply::Done
            }
            request => {
                let speaker = lock(&self.claims).speaker(claim);
                speaker.map_or_else(Reply::Error, |speaker| self.answer(request, claim, &speaker))
            }
        }
    }

    /// Answers what is asked in somebody's name.
    fn answer(&self, request: Request, claim: Claim, speaker: &Speaker) -> Reply {
        let who = &*speaker.who;
        match request {
            Request::Inject { name, fault, .. } => {
                let (taken, act) = match speaker.by {
                    By::Connection => (Ok(()), Act::Inject),
                    By::Grant(grant, _) => {
                        (lock(&self.claims).take_fault(grant, name.owner, &fault).map(drop), Act::Run)
                    }
                };
                let injected = taken.and_then(|()| self.permit(act, &fault, who));
                let injected = injected.and_then(|()| self.inject(&name, &fault));
                injected.map_or_else(Reply::Error, |status| Reply::Injected(Box::new(status)))
            }
            Request::Entrust(what) => {
                let granted = lock(&self.claims).entrust(speaker, claim, &what);
                granted.map_or_else(Reply::Error, |grant| Reply::Entrusted { grant, approved: None })
            }
            Request::Approved(_) => Reply::Done,
            Request::Plan { name, fault, .. } => {
                let planned = self.permit(Act::Plan, &fault, who).and_then(|()| {
                    self.note(format!("plan {}", name.name));
                    self.plan(&fault)
                });
                planned.map_or_else(Reply::Error, |plan| Reply::Planned(Box::new(plan)))
            }
            Request::PlanAll { faults } => self.plan_all(&faults, speaker.by != By::Connection),
            Request::Residue => {
                let left = Leftover {
                    level: Level::Effect,
                    kind: "holder".into(),
                    what: "process 7 is stopped".into(),
                    place: String::new(),
                    goes: "`chaos-daemon recover` at once".into(),
                };
                let leftovers = vec![left];
                let report = ResidueReport { level: Level::Effect, leftovers, ..ResidueReport::default() };
                Reply::Residue(Box::new(report))
            }
            Request::Look { question } => self.seen(&question, who).map_or_else(Reply::Error, Reply::Seen),
            Request::Record { record, .. } => self.record(*record, who.caller),
            Request::Audit { .. } => Reply::Audit(vec![format!("{{\"of\":\"{}\"}}", who.caller)]),
            Request::Doctor => Reply::Doctor(Box::new(DoctorReport {
                kernel: "6.12.0".into(),
                version: "0.1.0".into(),
                faults: FAULT_TYPES.iter().copied().map(ability).collect(),
                facts: vec![("tcx".into(), "yes".into())],
                residue: Vec::new(),
            })),
            other => panic!("{other:?} is asked in nobody's name"),
        }
    }

    /// What the policy alone answers is by the policy, and is not noted.
    fn seen(&self, question: &Question, who: &Who) -> Result<Facts, ApiError> {
        let policy = self.policy.lock().unwrap();
        let answer = || policy.answer(who, question, Timestamp::now());
        match question {
            Question::Act(_)
            | Question::Naming(_)
            | Question::Experiment(_)
            | Question::Named { .. }
            | Question::Fault { .. }
            | Question::Skipping
            | Question::Address(_)
            | Question::Rules
            | Question::Leave => answer(),
            question => {
                let caller = who.caller;
                self.note(format!("look {question:?} for {caller:?}"));
                match question {
                    Question::Command(path) => {
                        policy.may_run(who, path).map(|()| Facts::Command(path.clone()))
                    }
                    Question::Python(modules) => {
                        let interpreter = policy.probe_python.interpreter.clone();
                        policy.may_call(who, modules).map(|()| Facts::Command(interpreter))
                    }
                    Question::Credential { .. } => answer(),
                    question => look(question, who),
                }
            }
        }
    }

    /// As the injector does: by the policy, which knows who asks, for what, and when.
    fn permit(&self, act: Act, fault: &FaultRequest, who: &Who) -> Result<(), ApiError> {
        let policy = self.policy.lock().unwrap();
        let aimed = policy.aimed(fault);
        let parsed = aimed.parse()?;
        let intent = match act {
            Act::Run => Intent::Run,
            Act::Plan => Intent::Plan,
            _ => Intent::Single,
        };
        policy.spare_production_in(&aimed)?;
        let active = self.active.lock().unwrap().len();
        policy
            .permit(&Asked {
                who,
                fault: &parsed,
                active,
                recent: Recent::default(),
                intent,
                now: Timestamp::now(),
            })
            .map(drop)
    }

    /// Whether this fault is on an interface: of sticky0 it takes 5 s to remove one, and of glued0 for ever.
    fn is_on(&self, name: &QualifiedName, interface: &str) -> bool {
        let active = self.active.lock().unwrap();
        active.get(name).is_some_and(|(fault, _)| fault.target.interface.as_deref() == Some(interface))
    }

    fn record(&self, record: Record, caller: Caller) -> Reply {
        self.recorded.lock().unwrap().push((record, caller));
        Reply::Recorded
    }

    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    fn expire(&self) {
        let is_over =
            |fault: &FaultRequest, since: Instant| since.elapsed() >= fault.parse().unwrap().duration;
        let mut active = self.active.lock().unwrap();
        for (name, (fault, since)) in active.extract_if(.., |_, (fault, since)| is_over(fault, *since)) {
            let ended = FaultStatus { state: FaultState::Ended, ..status(&name, &fault, since) };
            self.ended.lock().unwrap().insert(name, ended);
        }
    }

    /// Of a run it is no news: the tests say what is done.
    fn plan_all(&self, faults: &[Planned], in_run: bool) -> Reply {
        for fault in faults.iter().filter(|_| !in_run) {
            self.note(format!("plan {}", fault.name.name));
        }
        Reply::PlannedAll(faults.iter().map(|fault| self.plan(&fault.fault)).collect())
    }

    fn plan(&self, fault: &FaultRequest) -> Result<PlanReport, ApiError> {
        if fault.target.interface.as_deref() == Some("nosuch0") {
            return Err(ApiError::new(ErrorCode::TargetNotFound, "no interface nosuch0"));
        }
        let fault = fault.parse()?;
        let found = fault.effect.processes().map(|selector| {
            let hit = selector.share.of(MATCHING);
            let share = hit as f64 / MATCHING as f64;
            TargetsReport { matching: MATCHING, hit, share, ..TargetsReport::default() }
        });
        let kills = fault.fault_type == FaultType::ProcessKill;
        let of_kills = |text: &str| kills.then(|| text.to_owned()).into_iter().collect();
        Ok(PlanReport {
            restarts: of_kills("nobody was found: 1 process: 71 (a)"),
            warnings: of_kills("nobody was found who would start again 1 of 1: set up a supervisor first"),
            description: "would drop packets".into(),
            lifetime: LifetimeClass::Kernel,
            guard: "the kernel".into(),
            duration: fault.duration,
            steps: vec!["attach a program; undo: detach it".into()],
            digest: format!("{:?} on {:?}", fault.fault_type, fault.effect.interface()),
            targets: found,
        })
    }

    fn inject(&self, name: &QualifiedName, fault: &FaultRequest) -> Result<FaultStatus, ApiError> {
        self.note(format!("inject {}", name.name));
        match fault.target.interface.as_deref() {
            Some("nosuch0") => return Err(ApiError::new(ErrorCode::TargetNotFound, "no interface nosuch0")),
            Some("nonetem0") => {
                return Err(ApiError::new(ErrorCode::UnsupportedKernel, "latency needs sch_netem")
                    .hint("modprobe sch_netem"));
            }
            _ => {}
        }
        let mut active = self.active.lock().unwrap();
        if active.contains_key(name) {
            return Err(ApiError::new(ErrorCode::FaultActive, format!("{name} is active")));
        }
        let since = Instant::now();
        self.ended.lock().unwrap().remove(name);
        active.insert(name.clone(), (fault.clone(), since));
        *self.latest.lock().unwrap() = Some(fault.clone());
        Ok(status(name, fault, since))
    }

    fn remove(&self, which: impl Fn(&QualifiedName) -> bool) -> Vec<Removal> {
        let residue = self.residue.lock().unwrap().clone();
        let removed = self.active.lock().unwrap().extract_if(.., |name, _| which(name)).collect::<Vec<_>>();
        let removal = |(name, (fault, _)): (QualifiedName, (FaultRequest, Instant))| Removal {
            name,
            fault_type: fault.fault_type,
            evidence: Evidence::Met(Met { affected: 7, ..Met::default() }),
            likely: None,
            residue: residue.clone(),
            kept: Vec::new(),
        };
        removed.into_iter().map(removal).collect()
    }
}

/// The policy of a host for tests.
fn here() -> Policy {
    toml::from_str("environment = \"test\"").unwrap()
}

/// A unit that is up, three processes, and two entries of the logs that the policy names.
fn look(question: &Question, who: &Who) -> Result<Facts, ApiError> {
    Ok(match question {
        Question::Unit(_) => Facts::Unit(UnitFacts {
            active: "active".into(),
            sub: "running".into(),
            restarts: Some(2),
            active_for: Some(Duration::from_secs(90)),
        }),
        Question::Processes(_) => Facts::Processes(ProcessFacts {
            count: 3,
            youngest: Some(Duration::from_secs(5)),
            oldest: Some(Duration::from_secs(90)),
            descriptors: Some(42),
            resident: Some(64 << 20),
        }),
        Question::Log { request, .. } => {
            let rules = ["/var/log/payment/*", "unit:a.service"];
            let probe_logs: Result<BTreeSet<_>, _> =
                rules.into_iter().map(|rule| LogRule::try_from(rule.to_owned())).collect();
            let policy = Policy { probe_logs: probe_logs?, ..here() };
            policy.may_read(who, &LogSearch::parse(request)?.log)?;
            Facts::Log(LogFacts { count: 2, seen: 9, ahead: 0, last: vec!["ERR 1".into(), "ERR 2".into()] })
        }
        Question::Targets(_) => Facts::Targets(Box::default()),
        Question::Services(_) => Facts::Services(Box::default()),
        Question::Command(path) => Facts::Command(path.clone()),
        Question::Credential { .. } => Facts::Credential,
        Question::Kubeconfig(path) => here().may_use(who, path).map(|()| Facts::Kubeconfig)?,
        other => here().answer(who, other, Timestamp::now())?,
    })
}

fn status(name: &QualifiedName, fault: &FaultRequest, since: Instant) -> FaultStatus {
    let duration = fault.parse().unwrap().duration;
    FaultStatus {
        began: Some("uid 0, pid 1".into()),
        name: name.clone(),
        fault_type: fault.fault_type,
        state: FaultState::NoTraffic,
        lifetime: LifetimeClass::Kernel,
        guard: "the kernel".into(),
        description: format!("{} on {:?}", fault.fault_type.name(), fault.target.interface),
        age: since.elapsed(),
        remaining: duration.saturating_sub(since.elapsed()),
        addresses: Vec::new(),
        likely: None,
        evidence: Evidence::Met(Met { matched: 9, affected: 7, protected: 0 }),
        note: None,
    }
}
