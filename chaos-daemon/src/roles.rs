//! The `chaos-daemon` command: run, recover, guard, and the roles that it starts itself.
//!
//! It is here and not in the executable, because an `async fn` is compiled where it is first waited for: each of the executables
//! would compile the whole daemon again.

use std::fs::File;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::guard::{self, GuardError};
use crate::holder;
use crate::host::allowed::Allowed;
use crate::host::log_rates::ByCaller;
use crate::host::privilege::check_guard;
use crate::host::program::own;
use crate::host::sandbox::{self, Sandbox, SandboxError};
use crate::host::words::{self, LogLines};
use crate::host::{Part, Privileges};
use crate::injector::child::CHILD_FD;
use crate::injector::manager::ServiceManager;
use crate::injector::recover::{RecoverError, recover};
use crate::injector::reload::PolicySource;
use crate::injector::runtime::{RuntimeError, SocketOfRole};
use crate::injector::{self, AttachChoice, InjectorError, Options, alerts};
use crate::mcp;
use crate::policy::PolicyError;
use crate::policy::environment::Environment;
use crate::probe::alert::webhook::{Token, Webhook};
use crate::probe::{credential, instruments, kubernetes, names, offspring, prober, runner};
use crate::request::{RUNTIME_DIR, STATE_DIR, WentDown, chain};
use crate::residue::{self, Scope};
use crate::sabotage::{self, UnknownSabotage};
use crate::server::budget;
use crate::server::history::{KEPT_BYTES, KEPT_RUNS, Retention};
use crate::server::places::{MOST_CONNECTIONS, MOST_OF_ONE};
use crate::server::runs::{MOST_RUNS, MOST_RUNS_EVER};
use crate::server::{ServerError, ServerOptions};
use crate::spec::SpecError;

/// The most threads of the server, beside its first one.
const SERVER_THREADS: usize = 8;

/// Injects real faults into this node, each of which ends. Callers use `chaosctl` or MCP.
#[derive(Parser)]
#[command(name = "chaos-daemon", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failed
  2  wrong usage
  4  not permitted: root is needed
  5  something of ours is left on the node; with --dry-run: and does nothing
  6  a daemon is running; guard: another guard is
  7  recover --dry-run: a fault that nobody keeps still acts";

#[derive(Subcommand)]
enum Command {
    /// Run in the foreground until SIGTERM or SIGINT, which end every fault. SIGUSR1 ends every fault and every run, and goes on.
    Run(Run),
    /// Undo whatever a daemon that died has left; a daemon that is stopped is ended first.
    Recover {
        /// Runtime directory of the daemon that died.
        #[arg(long, default_value = RUNTIME_DIR, value_parser = absolute)]
        runtime_dir: PathBuf,
        /// Also remove what carries our marks in this network namespace and no running daemon uses, journal or not.
        #[arg(long)]
        sweep: bool,
        /// With --sweep: in every network namespace that can be found, and stray holders and pins.
        #[arg(long, requires = "sweep")]
        everywhere: bool,
        /// Remove nothing: only show what is left, everywhere on the node. Works while a daemon runs.
        #[arg(long, conflicts_with_all = ["sweep", "everywhere"])]
        dry_run: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Guard the faults that outlive a daemon's processes: undo them when the daemon dies or hangs. Runs until SIGTERM.
    Guard {
        /// Runtime directory of the daemon to guard.
        #[arg(long, default_value = RUNTIME_DIR, value_parser = absolute)]
        runtime_dir: PathBuf,
    },
    /// Write the manual pages.
    #[command(hide = true)]
    Manual { folder: PathBuf },
    /// The unprivileged server; started by `run`.
    #[command(hide = true)]
    Server(Server),
    /// Takes samples for the server; started by `run`.
    #[command(hide = true)]
    Prober {
        #[arg(long)]
        alerts_fd: Option<i32>,
        #[arg(long, requires = "alerts_fd")]
        token_fd: Option<i32>,
        #[arg(long)]
        kubeconfigs_fd: Option<i32>,
        #[arg(long)]
        credentials_fd: Option<i32>,
    },
    /// Has programs run for the server's samples; started by `run`.
    #[command(hide = true)]
    Runner {
        /// What may be run, in the words of `host/allowed.rs`; may be repeated.
        #[arg(long)]
        command: Vec<String>,
        /// One of its own processes.
        part: Option<RunnerPart>,
    },
    /// The holder of one fault; started by `run`.
    #[command(hide = true)]
    Holder {
        #[arg(long)]
        packets: bool,
    },
    /// Keeps the kernel's packet hooks switched on; started by `run`.
    #[command(hide = true)]
    Keeper,
}

/// The server's ends of what the injector has opened for it. By those to prober and runner it is handed a stream to each that starts.
#[derive(clap::Args)]
struct Server {
    #[arg(long)]
    arrivals_fd: i32,
    #[arg(long)]
    door_fd: i32,
    #[arg(long)]
    prober_fd: i32,
    #[arg(long)]
    runner_fd: Option<i32>,
    #[arg(long)]
    state_dir: PathBuf,
    #[arg(long, value_parser = WentDown::from_argument)]
    went_down: Option<WentDown>,
    #[command(flatten)]
    connections: Connections,
    #[command(flatten)]
    runs: Runs,
}

/// What the runner starts itself.
#[derive(Clone, Copy, ValueEnum)]
enum RunnerPart {
    /// Keeps the namespace of process numbers.
    Keep,
    /// Takes one sample.
    Take,
}

#[derive(clap::Args)]
struct Run {
    /// Directory for the socket (`mcp.sock`), the lock and the kernel journal; on tmpfs.
    #[arg(long, default_value = RUNTIME_DIR, value_parser = absolute)]
    runtime_dir: PathBuf,
    /// Directory for what outlives a boot.
    #[arg(long, default_value = STATE_DIR, value_parser = absolute)]
    state_dir: PathBuf,
    /// Policy file (TOML): what may be injected, by whom, for how long. Default: everything, bounded.
    #[arg(long, value_parser = absolute)]
    policy: Option<PathBuf>,
    /// What this host is, such as "test", where the policy file does not say it. In production nothing is injected; where nobody says
    /// it, there are dry runs alone.
    #[arg(long, value_name = "NAME", value_parser = environment)]
    environment: Option<Environment>,
    /// Group whose members may use the socket, beside root. A socket that systemd passes has the owner that its unit
    /// says.
    #[arg(long)]
    socket_group: Option<String>,
    /// One more socket in the runtime directory, by which nobody is more than of this role; may be repeated.
    #[arg(long = "role-socket", value_name = "ROLE=NAME[:GROUP]")]
    sockets: Vec<SocketOfRole>,
    /// Also listen on this vsock port, for the context ids given by --vsock-cid.
    #[arg(long, requires = "vsock_cid")]
    vsock_port: Option<u32>,
    /// A vsock context id that may connect.
    #[arg(long, requires = "vsock_port")]
    vsock_cid: Vec<u32>,
    /// Be told of alerts here, at http://ADDRESS:PORT/alerts, by webhook_configs of an Alertmanager.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = alerts::address)]
    alert_webhook: Option<SocketAddr>,
    /// File with a token that who tells of alerts has to have; needed where other hosts may.
    #[arg(long, value_name = "FILE", requires = "alert_webhook", value_parser = absolute)]
    alert_webhook_token_file: Option<PathBuf>,
    /// How to attach packet programs.
    #[arg(long, value_enum, default_value = "auto")]
    attach: Attach,
    /// How many megabytes the audit may take: who did what, in the folder `audit` of the state directory. The oldest lines go first.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 256, value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    audit_megabytes: u64,
    #[command(flatten)]
    connections: Connections,
    #[command(flatten)]
    runs: Runs,
}

#[derive(clap::Args)]
struct Connections {
    /// How many connections one user, or one vsock context, may have at once, of 256 in all.
    #[arg(long, value_name = "N", default_value_t = MOST_OF_ONE, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CONNECTIONS)))]
    user_connections: u32,
}

/// Runs of experiments: how many at once, and how much history there is.
#[derive(clap::Args)]
struct Runs {
    /// How many experiments may run at once, of which no two have the same target.
    #[arg(long, value_name = "N", default_value_t = MOST_RUNS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RUNS_EVER)))]
    most_runs: u32,
    /// How many runs of experiments are kept; the oldest go first.
    #[arg(long, value_name = "N", default_value_t = KEPT_RUNS, value_parser = clap::value_parser!(u32).range(1..))]
    keep_runs: u32,
    /// How many megabytes they may take, a quarter of it those of one user; the oldest of who has the most go first.
    #[arg(long, value_name = "MEGABYTES", default_value_t = KEPT_BYTES >> 20, value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    keep_megabytes: u64,
    /// For how many days runs are kept. Default: for ever.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    keep_days: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Attach {
    /// tcx links where the kernel has them, clsact stubs elsewhere.
    Auto,
    /// clsact stubs everywhere.
    Clsact,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Sabotage(#[from] UnknownSabotage),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Injector(#[from] InjectorError),
    #[error(transparent)]
    Recover(#[from] RecoverError),
    #[error(transparent)]
    Guard(#[from] GuardError),
    #[error("run the server")]
    Server(#[from] ServerError),
    #[error("run programs for the server")]
    Runner(#[source] std::io::Error),
    #[error(transparent)]
    Programs(#[from] SpecError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("read the token of who tells of alerts")]
    Token(#[source] std::io::Error),
    #[error("read the kubeconfigs for probes")]
    Kubeconfigs(#[source] std::io::Error),
    #[error("read the credentials for probes")]
    Credentials(#[source] std::io::Error),
    #[error("start tokio")]
    Tokio(#[source] std::io::Error),
    #[error("write the manual pages")]
    Manual(#[source] std::io::Error),
    #[error(transparent)]
    Holder(#[from] holder::life::HolderError),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log_to_stderr();
    if let Err(unknown) = sabotage::check() {
        return fail(&unknown.into());
    }
    let outcome = match arguments.command {
        Command::Run(run) => {
            call_this_process(Part::Injector);
            run.run()
        }
        Command::Recover { runtime_dir, dry_run: true, json, .. } => {
            return report_residue(&runtime_dir, json);
        }
        Command::Recover { runtime_dir, sweep, everywhere, json, .. } => {
            let scope = if everywhere { Scope::Everywhere } else { Scope::Here };
            return report_recovery(&runtime_dir, sweep.then_some(scope), json);
        }
        Command::Guard { runtime_dir } => {
            call_this_process(Part::Guard);
            watch_over(&runtime_dir)
        }
        Command::Manual { folder } => {
            clap_mangen::generate_to(Arguments::command(), folder).map_err(Failure::Manual)
        }
        Command::Server(server) => {
            call_this_process(Part::Server);
            server.run()
        }
        Command::Prober { alerts_fd, token_fd, kubeconfigs_fd, credentials_fd } => {
            call_this_process(Part::Prober);
            run_prober([alerts_fd, token_fd, kubeconfigs_fd, credentials_fd])
        }
        Command::Runner { command, part } => {
            call_this_process(Part::Runner);
            run_runner(&command, part)
        }
        Command::Holder { packets } => {
            call_this_process(Part::Holder);
            // SAFETY: this descriptor was opened for this process by the injector, for nobody else in it.
            holder::run(unsafe { inherited(CHILD_FD) }, packets).map_err(Failure::from)
        }
        Command::Keeper => {
            call_this_process(Part::Holder);
            // SAFETY: this descriptor was opened for this process by the injector, for nobody else in it.
            holder::keeper::keep(unsafe { inherited(CHILD_FD) }).map_err(Failure::from)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

impl Run {
    fn run(self) -> Result<(), Failure> {
        // SAFETY: this is the only call, and nothing has taken a descriptor yet.
        let manager = unsafe { ServiceManager::from_environment() }.map_err(InjectorError::from)?;
        sandbox::withhold()?;
        let policy_source = PolicySource { file: self.policy, environment: self.environment };
        let policy = policy_source.read()?;
        let attach = match self.attach {
            Attach::Auto => AttachChoice::Auto,
            Attach::Clsact => AttachChoice::Clsact,
        };
        let options = Options {
            runtime_dir: self.runtime_dir,
            state_dir: self.state_dir,
            policy,
            policy_source,
            socket_group: self.socket_group,
            sockets: self.sockets,
            vsock: self.vsock_port.map(|port| (port, self.vsock_cid)),
            alerts: self.alert_webhook.map(|address| (address, self.alert_webhook_token_file)),
            attach,
            keep_runs: self.runs.keep_runs,
            keep_megabytes: self.runs.keep_megabytes,
            keep_days: self.runs.keep_days,
            most_runs: self.runs.most_runs,
            connections: self.connections.user_connections,
            audit_megabytes: self.audit_megabytes,
        };
        Ok(injector::run(&options, manager)?)
    }
}

impl Server {
    fn run(self) -> Result<(), Failure> {
        let Self { arrivals_fd, door_fd, prober_fd, runner_fd, state_dir, went_down, connections, runs } =
            self;
        // SAFETY: these descriptors were opened for this process by the injector, for nobody else in it.
        let take = |fd| unsafe { inherited(fd) };
        let runner = runner_fd.map(|fd| take(fd).into());
        let (arrivals, door, prober) =
            (take(arrivals_fd).into(), take(door_fd).into(), take(prober_fd).into());
        budget::frugal();
        shut_in(Sandbox::Server { state_dir: Some(&state_dir) })?;
        let retention =
            Retention { runs: runs.keep_runs, bytes: runs.keep_megabytes << 20, days: runs.keep_days };
        let (most_runs, state_dir) = (runs.most_runs, Some(state_dir));
        serve(ServerOptions {
            arrivals,
            door,
            prober,
            runner,
            state_dir,
            retention,
            most_runs,
            went_down,
            connections: connections.user_connections,
        })
    }
}

fn watch_over(runtime_dir: &std::path::Path) -> Result<(), Failure> {
    // SAFETY: this is the only call, and nothing has taken a descriptor yet.
    let manager = unsafe { ServiceManager::from_environment() }.map_err(InjectorError::from)?;
    sandbox::withhold()?;
    Ok(guard::run(runtime_dir, &manager)?)
}

/// # Safety
/// `fd` must be an open descriptor that nothing else in this process uses.
unsafe fn inherited(fd: i32) -> OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Names this process in `ps`, however its program is called: what was started through `/proc/self/exe` would be "exe".
fn call_this_process(part: Part) {
    if let Ok(name) = std::ffi::CString::new(part.name()) {
        // Who cannot have a name works without one.
        let _ = nix::sys::prctl::set_name(&name);
    }
}

/// Gives up all that this process does not need, while it has one thread and nobody has said anything to it.
fn shut_in(sandbox: Sandbox<'_>) -> Result<(), Failure> {
    if !sandbox.enter()? {
        tracing::warn!(?sandbox, "this kernel has no Landlock: files are guarded by their modes only");
    }
    Ok(())
}

fn serve(options: ServerOptions) -> Result<(), Failure> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // For the disk: each has a stack, and what it works on.
    let runtime =
        builder.enable_all().max_blocking_threads(SERVER_THREADS).build().map_err(Failure::Tokio)?;
    Ok(runtime.block_on(mcp::serve(options))?)
}

/// Until the server is gone, which the injector ends together with this process.
fn probe(
    server: std::os::unix::net::UnixStream,
    injector: std::os::unix::net::UnixStream,
    alerts: Option<TcpListener>,
    token: Option<Token>,
) -> Result<(), Failure> {
    for stream in [&server, &injector] {
        stream.set_nonblocking(true).map_err(Failure::Tokio)?;
    }
    one_thread()?.block_on(async {
        let injector = tokio::net::UnixStream::from_std(injector).map_err(Failure::Tokio)?;
        tokio::spawn(names::serve(injector));
        let webhook = alerts.map(|listener| Webhook::new(listener, token)).transpose();
        let webhook = webhook.map_err(Failure::Tokio)?;
        prober::serve(tokio::net::UnixStream::from_std(server).map_err(Failure::Tokio)?, webhook).await;
        Ok(())
    })
}

/// One thread answers sooner than two on a node that has better things to do.
fn one_thread() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Tokio)
}

/// `fds`: where alerts are told, the token of who may, kubeconfigs and credentials.
fn run_prober(fds: [Option<i32>; 4]) -> Result<(), Failure> {
    sandbox::hide()?;
    // SAFETY: this descriptor was opened for this process by the injector, for nobody else in it.
    let socket = unsafe { inherited(CHILD_FD) };
    // SAFETY: so was this one.
    let injector = unsafe { inherited(CHILD_FD + 1) };
    // SAFETY: so were these.
    let [alerts, token, kubeconfigs, credentials] = fds.map(|fd| fd.map(|fd| unsafe { inherited(fd) }));
    kubernetes::take_over(kubeconfigs.map(File::from)).map_err(Failure::Kubeconfigs)?;
    credential::take_over(credentials.map(File::from)).map_err(Failure::Credentials)?;
    // Before nothing more can be opened.
    instruments::open();
    let token = token.map(read_token).transpose()?;
    shut_in(Sandbox::Prober)
        .and_then(|()| probe(socket.into(), injector.into(), alerts.map(TcpListener::from), token))
}

/// The injector has written it into a pipe, and nobody else has the other end.
fn read_token(pipe: OwnedFd) -> Result<Token, Failure> {
    let mut text = String::new();
    File::from(pipe).read_to_string(&mut text).map_err(Failure::Token)?;
    Ok(Token::new(&text))
}

fn run_runner(commands: &[String], part: Option<RunnerPart>) -> Result<(), Failure> {
    shut_in(Sandbox::Runner)?;
    match part {
        Some(RunnerPart::Keep) => {
            runner::keep();
            Ok(())
        }
        Some(RunnerPart::Take) => one_thread()?.block_on(runner::take()).map_err(Failure::Runner),
        None => {
            let allowed = Allowed::parse("--command", commands)?;
            // SAFETY: this descriptor was opened for this process by the injector, for nobody else in it.
            let server: std::os::unix::net::UnixStream = unsafe { inherited(CHILD_FD) }.into();
            let served = one_thread()?.block_on(run_programs(server, allowed));
            // Nobody else would collect what it has started, without which the keeper cannot end.
            offspring::end_all(&[]);
            served.map_err(Failure::Runner)
        }
    }
}

async fn run_programs(server: std::os::unix::net::UnixStream, allowed: Allowed) -> std::io::Result<()> {
    server.set_nonblocking(true)?;
    runner::serve(tokio::net::UnixStream::from_std(server)?, allowed).await
}

/// What is left, without a daemon being asked.
fn report_residue(runtime_dir: &std::path::Path, json: bool) -> ExitCode {
    if let Err(missing) = Privileges::check() {
        return fail(&InjectorError::Privilege(missing).into());
    }
    let report = residue::look(Some(runtime_dir), Scope::Everywhere);
    if json {
        print(&serde_json::json!(report).to_string());
    } else {
        print(report.to_string().trim_end());
    }
    ExitCode::from(report.level.exit_code())
}

fn report_recovery(runtime_dir: &std::path::Path, sweep: Option<Scope>, json: bool) -> ExitCode {
    if let Err(missing) = check_guard() {
        return fail(&InjectorError::Privilege(missing).into());
    }
    if let Err(foreign) = own("the runtime directory", runtime_dir) {
        return fail(&InjectorError::Foreign(foreign).into());
    }
    match recover(runtime_dir, sweep) {
        Err(error) => fail(&error.into()),
        Ok(recovered) => {
            if json {
                print(&serde_json::json!(recovered).to_string());
            } else {
                recovered.removed.iter().for_each(|each| print(&format!("removed {each}")));
                recovered.kept.iter().for_each(|each| print(&format!("kept {each}")));
                recovered.stuck.iter().for_each(|each| print(&format!("STUCK {each}")));
                if recovered.removed.is_empty() && recovered.stuck.is_empty() {
                    print("nothing was left behind");
                }
            }
            if recovered.stuck.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(5) }
        }
    }
}

fn print(line: &str) {
    use std::io::Write;
    // A reader that has gone away does not change what was done.
    drop(writeln!(std::io::stdout(), "{}", words::plain(line)));
}

fn fail(failure: &Failure) -> ExitCode {
    use std::io::Write;
    drop(writeln!(std::io::stderr(), "chaos-daemon: {}", words::line(&chain(failure))));
    ExitCode::from(match failure {
        Failure::Injector(InjectorError::Privilege(_)) | Failure::Guard(GuardError::Privilege(_)) => 4,
        Failure::Guard(GuardError::InUse(_))
        | Failure::Injector(InjectorError::Runtime(RuntimeError::InUse { .. }))
        | Failure::Recover(RecoverError::Runtime(RuntimeError::InUse { .. })) => 6,
        _ => 1,
    })
}

fn environment(text: &str) -> Result<Environment, SpecError> {
    Environment::try_from(text.to_owned())
}

/// A path as it is from anywhere: the daemon's processes leave the folder in which it was started.
fn absolute(text: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(text)
}

fn log_to_stderr() {
    use tracing_subscriber::EnvFilter;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    // rmcp logs whole requests at debug: only on demand.
    let filter = EnvFilter::try_from_env("CHAOS_LOG").unwrap_or_else(|_| EnvFilter::new("info,rmcp=warn"));
    let lines = || LogLines(std::io::stderr());
    let to_stderr = tracing_subscriber::fmt().with_writer(lines).with_ansi(false);
    to_stderr.with_env_filter(filter).with_target(false).finish().with(ByCaller).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_named_from_where_the_daemon_starts_is_known_from_everywhere() {
        let parsed = Arguments::try_parse_from([
            "chaos-daemon",
            "run",
            "--runtime-dir",
            "run",
            "--state-dir",
            "state",
        ]);
        let Ok(Arguments { command: Command::Run(run) }) = parsed else { panic!("not understood") };
        let here = std::env::current_dir().unwrap();
        assert_eq!((run.runtime_dir, run.state_dir), (here.join("run"), here.join("state")));
    }
}
