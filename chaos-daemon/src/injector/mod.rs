//! The privileged process: checks every request again, keeps one holder per fault, renews their leases, and
//! undoes. The server, which speaks with callers, is its child and reaches it through one socketpair only.

pub mod alerts;
mod approvals;
mod aside;
mod audit;
mod beats;
mod by_route;
pub mod child;
pub mod claims;
mod credentials;
mod digest;
pub mod doctor;
mod down;
mod facts;
mod follow;
mod health;
pub mod holders;
mod host_targets;
mod idle;
pub mod inject;
#[cfg(feature = "kubernetes")]
mod kubeconfigs;
pub mod life;
mod logs;
mod lost_guard;
pub mod manager;
mod names;
mod oom;
mod orders;
mod owners;
mod pace;
mod plans;
mod presence;
pub mod recover;
mod refusal;
pub mod reload;
pub mod runtime;
pub mod server_process;
mod services;
mod site;
pub mod state;
mod supervisors;
mod survey;
mod taken_back;
mod together;
mod told;
pub mod watch;
mod ways_in;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::LocalSet;

use crate::fail_point::{self, Role};
use crate::host::privilege::{CLOCK, INJECTOR, LOW_PORTS, allow_maps, limit_to};
use crate::host::program::{Foreign, own};
use crate::host::{MissingPrivilege, NetNs, NetNsError, Privileges, log_rates, sshd};
use crate::journal::Journal;
use crate::journal::down::FILE;
use crate::kernel::probe;
use crate::policy::Policy;
use crate::request::claim::Entrusted;
use crate::request::wire::{Answers, Desk, Ticket};
use crate::request::{ApiError, Reply, Request};
use crate::residue::Scope;
use crate::spec::{FaultType, Parameter};

use alerts::{AlertsError, Ears};
use claims::{Doorman, Entrances, Speaker};
use lost_guard::watch_guard;
use manager::{ManagerError, ServiceManager, keep_informed};
use recover::Unfinished;
use reload::{PolicySource, keep_policy};
use runtime::{Runtime, RuntimeError, SocketOfRole, listen_vsock};
use server_process::Recipe;
use state::Injector;
use watch::{Heartbeat, beat};

/// What the folders are to be, which nobody but root may be able to change: in them is what is undone, and who is believed. Asked at
/// the start alone, since nothing stands before ending a fault.
const RUNTIME: &str = "the runtime directory";
const STATE: &str = "the state directory";

/// How long to wait before a server that has died is started again.
const SERVER_PAUSE: Duration = Duration::from_millis(300);

/// How long tokio's threads that block are kept: for good, since undoing must not depend on whether a thread can be made. What
/// callers ask for takes none of them ([`aside`]).
const KEEP_THREADS: Duration = Duration::from_secs(u32::MAX as u64);

/// How packet programs are attached to target devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AttachChoice {
    /// tcx where the kernel has it, clsact stubs elsewhere.
    #[default]
    Auto,
    /// clsact stubs, also where the kernel has tcx.
    Clsact,
}

/// How the daemon runs.
#[derive(Debug)]
pub struct Options {
    /// Socket, lock and kernel journal; on tmpfs.
    pub runtime_dir: PathBuf,
    /// What outlives a boot.
    pub state_dir: PathBuf,
    /// What the operator allows.
    pub policy: Policy,
    /// Where that comes from, to be read again.
    pub policy_source: PolicySource,
    /// Group that may use the socket, beside root; of no effect on a socket that the service manager opened.
    pub socket_group: Option<String>,
    /// More sockets; there are none where the service manager opened some.
    pub sockets: Vec<SocketOfRole>,
    /// vsock port to listen on, and the context ids that may connect.
    pub vsock: Option<(u32, Vec<u32>)>,
    /// Where it is told of alerts, and the file with the token that who tells has to have.
    pub alerts: Option<(SocketAddr, Option<PathBuf>)>,
    /// How to attach.
    pub attach: AttachChoice,
    /// How many runs of experiments the server keeps.
    pub keep_runs: u32,
    /// How many megabytes they may take.
    pub keep_megabytes: u64,
    /// For how many days it keeps them; without it, for ever.
    pub keep_days: Option<u32>,
    /// How many experiments the server runs at once.
    pub most_runs: u32,
    /// How many connections one user may have.
    pub connections: u32,
    /// How many megabytes the audit may take.
    pub audit_megabytes: u64,
}

/// Why the daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum InjectorError {
    /// Not root, or root without what it needs.
    #[error("this needs root")]
    Privilege(#[from] MissingPrivilege),
    /// The runtime directory.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Where it is to be told of alerts.
    #[error(transparent)]
    Alerts(#[from] AlertsError),
    /// What the service manager left in the environment.
    #[error("understand the service manager")]
    Manager(#[from] ManagerError),
    /// The network namespace the daemon runs in.
    #[error("pin the daemon's own network namespace")]
    Home(#[source] NetNsError),
    /// Capabilities could not be given up.
    #[error(transparent)]
    Limit(#[from] crate::host::privilege::LimitError),
    /// Others could change one of its directories.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// The operating system refused something.
    #[error("{operation}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Runs the daemon until it is told to stop by SIGTERM or SIGINT; then ends every fault. SIGUSR1 ends every
/// fault and every run, with the server, and goes on with a new one. SIGHUP has it read the policy again; where it was started from a
/// terminal, that has gone, and it stops. `manager` is told when callers can connect, that the
/// daemon lives, and when it stops; a socket that it opened is used instead of one of our own.
///
/// # Errors
/// When it cannot start. Once started it goes on.
pub fn run(options: &Options, mut manager: ServiceManager) -> Result<(), InjectorError> {
    let io = |operation| move |source| InjectorError::Io { operation, source };
    let privileges = Privileges::check()?;
    fail_point::enter(Role::Injector);
    claims::make_room().map_err(io("raise the limit of open files"))?;
    own(RUNTIME, &options.runtime_dir)?;
    own(STATE, &options.state_dir)?;
    let mut runtime = Runtime::claim(&options.runtime_dir)?;
    // It may have been made just now.
    own(RUNTIME, &options.runtime_dir)?;
    let journal = Journal::open(runtime.journal_dir()).map_err(io("open the journal"))?;
    let recovered = recover::recover_journal(&journal).map_err(io("read the journal"))?;
    recovered.log();
    let (told, went_down) = down::tell(&options.state_dir.join(FILE)).unzip();
    let vsock = match &options.vsock {
        Some((port, cids)) => Some((listen_vsock(*port)?, cids.clone())),
        None => None,
    };
    let alerts = options.alerts.as_ref();
    let alerts = alerts.map(|(address, token)| Ears::open(*address, token.as_deref())).transpose()?;
    // Last: once the first of these sockets is there, all the others are.
    let mut listeners = manager.take_listeners();
    if listeners.is_empty() {
        listeners = runtime.listen(options.socket_group.as_deref(), &options.sockets)?;
    }
    let entrances = Entrances { unix: listeners, vsock };
    let recipe = Recipe::new(options, alerts, went_down).map_err(io("prepare the server's directory"))?;
    own(STATE, &options.state_dir)?;
    let clock = options.policy.clock_skew.then_some(CLOCK);
    allow_maps().map_err(io("raise the limit of locked memory, which eBPF maps need before Linux 5.11"))?;
    limit_to(&INJECTOR.iter().copied().chain(clock).chain([LOW_PORTS]).collect::<Vec<_>>())?;
    let facts = probe::facts();
    let home =
        NetNs::current().and_then(|home| home.identity().map(|_| home)).map_err(InjectorError::Home)?;
    let ways_in = sshd::ports().map_err(io("look at which ports sshd listens"))?;
    tracing::info!(kernel = facts.release, tcx = facts.tcx, netem = facts.netem.is_none(), "ready");
    let audit = audit::open(options).map_err(io("start the threads of the audit"))?;
    let injector = Rc::new(Injector::new(options, (privileges, audit), facts, journal, home, ways_in));
    told.into_iter().for_each(|status| injector.remember(status));
    *injector.claims() = claims::read(&options.state_dir);
    injector.note("daemon_started", format!("version {}", env!("CARGO_PKG_VERSION")));
    // One thread, the main one: it starts every child, and a child's parent-death signal is bound to the thread.
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(KEEP_THREADS)
        .build()
        .map_err(io("start tokio"))?;
    let heartbeat = runtime.serve()?;
    LocalSet::new()
        .block_on(
            &tokio,
            serve(
                &injector,
                (&recipe, entrances),
                &Rc::new(manager),
                heartbeat,
                (recovered.unfinished, &options.policy_source),
            ),
        )
        .map_err(io("serve"))
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    halt: Signal,
    reload: Signal,
    /// Whether it was started by hand.
    of_terminal: bool,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            halt: signal(SignalKind::user_defined1())?,
            reload: signal(SignalKind::hangup())?,
            of_terminal: std::io::stdin().is_terminal(),
        })
    }
}

async fn serve(
    injector: &Rc<Injector>,
    (recipe, entrances): (&Recipe, Entrances),
    manager: &Rc<ServiceManager>,
    heartbeat: Heartbeat,
    (left, source): (Vec<Unfinished>, &PolicySource),
) -> std::io::Result<()> {
    let mut signals = Signals::new()?;
    let doorman = Doorman::new(entrances)?;
    // They are read now, and not on the loop when somebody asks for the first fault.
    let _: &[Parameter] = FaultType::Latency.parameters();
    // The first thread that undoes, while threads can still be had; it stays.
    tokio::task::spawn_blocking(|| ()).await?;
    left.into_iter().for_each(|left| life::take_up(injector, left));
    injector.restock();
    tokio::task::spawn_local(Rc::clone(injector).watch_stock());
    tokio::task::spawn_local(beat(heartbeat));
    tokio::task::spawn_local(watch_guard(Rc::clone(injector)));
    tokio::task::spawn_local(keep_policy(Rc::clone(injector), source.clone()));
    tokio::task::spawn_local(keep_informed(Rc::clone(manager), Rc::clone(injector)));
    tokio::task::spawn_local(async {
        loop {
            tokio::time::sleep(log_rates::TOLD).await;
            log_rates::tell_left_out();
        }
    });
    loop {
        let (mut server, door, arrivals) = recipe.start(injector.resolver())?;
        // Said again of a server that was started again, which changes nothing.
        manager.tell("READY=1");
        let over = tokio::select! {
            never = doorman.keep(&injector.claims, arrivals) => match never {},
            over = attend(injector, server.ended(recipe, injector.resolver()), Desk::new(door), &mut signals) => over,
        };
        // Who was connected has lost the server; what outlives it goes on by the next.
        injector.claims().server_gone();
        if over == Over::Stop {
            manager.tell("STOPPING=1");
        }
        // Runs live in the server: without it, none injects what it has not injected yet.
        injector.note("all_ended", over.words());
        tokio::join!(server.end(), injector.end_all(over.words()));
        if over == Over::Stop {
            injector.audit.close();
            log_rates::tell_left_out();
            injector.clear_stock();
            return Ok(());
        }
        tokio::time::sleep(SERVER_PAUSE).await;
    }
}

/// Why a server's life is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGUSR1.
    Halt,
    /// The policy was read again, and nothing may run here any more.
    Forbidden,
    /// It has ended, or speaks nonsense.
    Broken,
}

impl Over {
    /// What ends the faults, in words.
    fn words(self) -> &'static str {
        match self {
            Self::Stop => "the daemon is stopping",
            Self::Halt => "SIGUSR1",
            Self::Forbidden => "the policy no longer allows anything here",
            Self::Broken => "the server ended",
        }
    }
}

/// Serves one server's life, and says why it is over. The server `has_ended` some day, and says how.
async fn attend(
    injector: &Rc<Injector>,
    has_ended: impl Future<Output = String>,
    mut desk: Desk,
    signals: &mut Signals,
) -> Over {
    let answers = desk.answers();
    tokio::pin!(has_ended);
    loop {
        tokio::select! {
            request = desk.next() => match request {
                Ok(Some((mut ticket, request))) => {
                    let (injector, answers) = (Rc::clone(injector), answers.clone());
                    let epoch = injector.epoch();
                    tokio::task::spawn_local(async move {
                        let noted = audit::Noted::of(&injector, &request, ticket.claim());
                        let mut reply = reply_to(&injector, request, epoch, &mut ticket).await;
                        if let Some(noted) = noted {
                            noted.answered(&injector, &mut reply);
                        }
                        Answers::answer(&answers, ticket, reply);
                    });
                }
                Ok(None) => return Over::Broken,
                Err(error) => {
                    tracing::error!(%error, "the server sent nonsense");
                    return Over::Broken;
                }
            },
            how = &mut has_ended => {
                tracing::error!(how, "the server ended; every fault is being ended");
                return Over::Broken;
            }
            _ = signals.terminate.recv() => return Over::Stop,
            _ = signals.interrupt.recv() => return Over::Stop,
            _ = signals.halt.recv() => {
                tracing::warn!("SIGUSR1: ending every fault and every run, and starting the server anew");
                return Over::Halt;
            }
            _ = signals.reload.recv() => {
                if signals.of_terminal {
                    // It has gone.
                    return Over::Stop;
                }
                injector.reloads.notify_one();
            }
            () = injector.halted.notified() => return Over::Forbidden,
        }
    }
}

/// Answers a request that came in this epoch. Nothing here, nor in what it calls, blocks: what looks at the node does so aside.
async fn reply_to(injector: &Rc<Injector>, request: Request, epoch: u64, ticket: &mut Ticket) -> Reply {
    let claim = ticket.claim();
    match request {
        // None of these needs a name.
        Request::Status => {
            injector.refresh().await;
            Reply::Status(injector.status())
        }
        Request::Remove { name } => claims::remove(injector, name, claim).await,
        Request::StopAll => claims::stop_all(injector, claim).await,
        Request::Release => claims::release(injector, claim).await,
        Request::Keep { grants } => claims::keep(injector, &grants),
        // Of who has left by now.
        Request::Record { kind, record } if injector.claims().speaker(claim).is_err() => {
            let told = audit::told(injector, (kind, *record), None).await;
            told.map_or_else(Reply::Error, |()| Reply::Recorded)
        }
        request => match claims::speaker(injector, claim, &request) {
            Ok(speaker) => answer(injector, request, epoch, &speaker, ticket).await,
            Err(error) => Reply::Error(error),
        },
    }
}

/// Answers what is asked in somebody's name.
async fn answer(
    injector: &Rc<Injector>,
    request: Request,
    epoch: u64,
    speaker: &Speaker,
    ticket: &mut Ticket,
) -> Reply {
    let (who, caller) = (&speaker.who, speaker.who.caller);
    match request {
        Request::Inject { name, fault, plan_digest } => {
            let injected = async {
                let of = claims::intent(injector, speaker, (&name, &fault))?;
                let policy = injector.policy();
                let fault = policy.aimed(&fault);
                let asked = (fault.as_ref(), plan_digest.as_deref());
                inject::inject(injector, &name, asked, who, (of, epoch, ticket)).await
            };
            match injected.await {
                Ok(status) => Reply::Injected(Box::new(status)),
                Err(error) => {
                    tracing::warn!(%name, %caller, code = ?error.code, %error, "injection refused");
                    Reply::Error(error)
                }
            }
        }
        Request::Look { question } => {
            let seen = facts::look(&injector.policy(), question, who, ticket).await;
            let seen = seen.and_then(|facts| match facts {
                crate::request::facts::Facts::Experiment(_) => {
                    facts::in_time(injector, who, caller.owner()).map(|()| facts)
                }
                _ => Ok(facts),
            });
            seen.map_or_else(Reply::Error, Reply::Seen)
        }
        Request::Record { kind, record } => {
            let told = audit::told(injector, (kind, *record), Some(who)).await;
            told.map_or_else(Reply::Error, |()| Reply::Recorded)
        }
        Request::Audit { most } => {
            let lines = audit::lines(injector, most, caller);
            unless_left(ticket, async { Ok(Reply::Audit(lines.await?)) }).await
        }
        Request::Plan { name, fault } => {
            let policy = injector.policy();
            let fault = policy.aimed(&fault);
            let plan = plans::plan(injector, &name, &fault, who);
            unless_left(ticket, async { Ok(Reply::Planned(Box::new(plan.await?))) }).await
        }
        Request::PlanAll { faults } => {
            let plans = plans::plan_all(injector, &faults, speaker);
            unless_left(ticket, async { Ok(Reply::PlannedAll(plans.await?)) }).await
        }
        Request::Doctor => {
            let report = doctor::report(injector, caller);
            unless_left(ticket, async { Ok(Reply::Doctor(Box::new(report.await?))) }).await
        }
        Request::Residue => {
            let residue = doctor::residue(injector, Scope::Everywhere, caller);
            unless_left(ticket, async { Ok(Reply::Residue(Box::new(residue.await))) }).await
        }
        Request::Entrust(what) => {
            entrust(injector, &what, speaker, ticket).await.unwrap_or_else(Reply::Error)
        }
        Request::Approved(what) => {
            let approved = approvals::runs::for_run(injector, &what, speaker, ticket).await;
            approved.map_or_else(Reply::Error, |_| Reply::Done)
        }
        Request::Approvals(what) => {
            approvals::answer::answer(injector, what, who).await.unwrap_or_else(Reply::Error)
        }
        Request::Status
        | Request::Remove { .. }
        | Request::StopAll
        | Request::Release
        | Request::Keep { .. } => Reply::Done,
    }
}

/// Has something go on in somebody's name, if others have approved of it where they have to.
async fn entrust(
    injector: &Injector,
    what: &Entrusted,
    speaker: &Speaker,
    ticket: &mut Ticket,
) -> Result<Reply, ApiError> {
    let run = approvals::runs::for_run(injector, what, speaker, ticket).await?;
    claims::entrust(injector, (speaker, what), run, ticket).await
}

/// Gives up a look, wherever it is, once nobody waits for it any more.
async fn unless_left(ticket: &mut Ticket, look: impl Future<Output = Result<Reply, ApiError>>) -> Reply {
    tokio::select! {
        biased;
        () = ticket.cancelled() => Reply::Error(inject::cancelled()),
        reply = look => reply.unwrap_or_else(Reply::Error),
    }
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod loop_tests;
