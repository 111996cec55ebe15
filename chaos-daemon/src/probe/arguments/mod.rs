//! The words of `chaosctl probe`, of which each kind of probe has its own: as a shell has them, and as documents and callers do.

mod access;
mod series;
mod usage;

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};

use self::access::{CredentialArgs, TrustArgs};
use self::series::SeriesArgs;
pub use self::usage::usage;
use crate::probe::alert::{self, Alert};
use crate::probe::command::{self, Command};
use crate::probe::credential::Credential;
use crate::probe::dns::Lookup;
use crate::probe::host::{METRICS, Number};
use crate::probe::kubernetes::{self, Resource, Wanted};
use crate::probe::latency::{Latency, PERCENTILES};
use crate::probe::log::Entries;
use crate::probe::mcp::{Dialogue, Server};
use crate::probe::pressure::{Gauge, RESOURCES, SHARES, WINDOWS};
use crate::probe::process::{self, Processes};
use crate::probe::prometheus::{NO_DATA, Query, REDUCERS, Terms};
use crate::probe::sockets::{Count, Filter, PROTOCOLS, STATES};
use crate::probe::tls::Handshake;
use crate::probe::trust::Trust;
use crate::probe::unit::{self, Unit};
use crate::probe::{Bounds, Check, DEFAULT_TIMEOUT, LONGEST_TIMEOUT, Probe, http};
use crate::spec::log::PRIORITIES;
use crate::spec::options::duration;
use crate::spec::{LogRequest, SpecError, TargetRequest, size};

/// One sample, taken by this command itself.
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    #[command(subcommand)]
    check: CheckArgs,
    /// How long the answer may take
    #[arg(long, value_name = "DURATION", value_parser = duration, global = true)]
    timeout: Option<Duration>,
    /// The least that the measured value may be; of what answers, milliseconds
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, global = true)]
    min: Option<f64>,
    /// The most that it may be
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, global = true)]
    max: Option<f64>,
}

/// The words behind `chaosctl probe`. The first two options are of chaosctl itself, and mean nothing here.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[arg(long, global = true)]
    json: bool,
    #[arg(long, global = true)]
    socket: Option<String>,
    #[command(flatten)]
    probe: ProbeArgs,
}

/// The probe that these words stand for, behind `chaosctl probe`.
///
/// # Errors
/// What `chaosctl` would say of them.
pub fn read(words: &[String]) -> Result<Probe, String> {
    let line = Line::try_parse_from(words).map_err(|error| {
        // What is wrong and what there is instead, which may be lines of their own; not the usage.
        let text = error.render().to_string();
        let problem = text.trim().trim_start_matches("error: ").split("\n\n").next();
        problem.unwrap_or_default().lines().map(str::trim).collect::<Vec<_>>().join(" ")
    })?;
    line.probe.probe().map_err(|error| error.to_string())
}

#[derive(Debug, Clone, Subcommand)]
enum CheckArgs {
    /// Whether a port accepts a connection
    Tcp {
        /// Host name or address, and port, e.g. 127.0.0.1:5432 or [::1]:80
        #[arg(value_name = "HOST:PORT")]
        address: String,
    },
    /// Whether a port speaks TLS with a certificate that is right for its name; measured are the days that the certificate has left
    Tls {
        /// Host name or address, and port, e.g. example.org:443
        #[arg(value_name = "HOST:PORT")]
        address: String,
        /// Name that is asked for, and that the certificate has to be for [default: the host]
        #[arg(long, value_name = "NAME")]
        server_name: Option<String>,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Whether an address answers
    Http {
        /// Address, e.g. http://127.0.0.1:8080/health
        url: String,
        /// Status that is right; may be repeated [default: any 2xx]
        #[arg(long)]
        status: Vec<u16>,
        /// GET, HEAD, OPTIONS or POST [default: GET]
        #[arg(long)]
        method: Option<String>,
        /// Header that is sent, as NAME: VALUE; may be repeated
        #[arg(long, value_name = "HEADER")]
        header: Vec<String>,
        /// What is sent with POST, of the type that a header Content-Type says
        #[arg(long, value_name = "TEXT")]
        body: Option<String>,
        #[command(flatten)]
        trust: TrustArgs,
        #[command(flatten)]
        credential: CredentialArgs,
    },
    /// How long answers take: a percentile of several, one after the other, each with a connection of its own, in milliseconds
    Latency {
        /// Address that is got
        #[arg(long, value_name = "URL")]
        http: Option<String>,
        /// Port that is connected to
        #[arg(long, value_name = "HOST:PORT", conflicts_with = "http")]
        tcp: Option<String>,
        /// MCP server with which a session is opened, and which lists its tools
        #[arg(long, value_name = "URL", conflicts_with_all = ["http", "tcp"])]
        mcp: Option<String>,
        /// How many samples; --timeout is for all of them [default: 20]
        #[arg(long, value_name = "NUMBER")]
        samples: Option<u32>,
        /// Percentile by the nearest rank; what has no answer is slower than all that has one [default: p95]
        #[arg(long, value_parser = names(PERCENTILES))]
        percentile: Option<String>,
        #[command(flatten)]
        trust: TrustArgs,
        #[command(flatten)]
        credential: CredentialArgs,
        /// The command line of an MCP server over stdio, which is started for each sample, with the absolute path of its program
        #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["http", "tcp", "mcp"])]
        program: Vec<String>,
    },
    /// What share of several requests fails, how long their answers take, or how many there are in a second; each has a connection of its
    /// own
    Series(Box<SeriesArgs>),
    /// Whether a name has an address, by one question to a name server
    Dns {
        /// Name, as a whole: no search list is used
        name: String,
        /// A or AAAA [default: A]
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Name server, as ADDRESS or ADDRESS:PORT [default: the first of /etc/resolv.conf]
        #[arg(long, value_name = "ADDRESS")]
        server: Option<String>,
        /// Code of the answer that is right, e.g. NXDOMAIN [default: NOERROR, with an address]
        #[arg(long, value_name = "CODE")]
        rcode: Option<String>,
    },
    /// Whether an MCP server opens a session and lists its tools: one over HTTP, or one over stdio, which is started and ended
    Mcp {
        /// Address, e.g. http://127.0.0.1:8000/mcp
        #[arg(required_unless_present = "program", conflicts_with = "program")]
        url: Option<String>,
        /// Tool that has to be listed
        #[arg(long, value_name = "NAME")]
        tool: Option<String>,
        /// Tool that is called, and must not fail
        #[arg(long, value_name = "NAME")]
        call: Option<String>,
        /// Arguments of the call, an object in JSON
        #[arg(long, value_name = "JSON")]
        arguments: Option<String>,
        #[command(flatten)]
        trust: TrustArgs,
        #[command(flatten)]
        credential: CredentialArgs,
        /// The server's command line, with the absolute path of its program
        #[arg(last = true, value_name = "PROGRAM")]
        program: Vec<String>,
    },
    /// What a program says by its exit status and its output; the daemon runs those that its policy names
    Command {
        /// Status that is right; may be repeated [default: 0]
        #[arg(long)]
        status: Vec<u8>,
        /// Regular expression that is found in the standard output
        #[arg(long, value_name = "REGEX")]
        stdout: Option<String>,
        /// Milliseconds until it has ended, or the number that its standard output consists of [default: time]
        #[arg(long, value_parser = names(command::MEASURES))]
        measure: Option<String>,
        /// Its command line, with the absolute path of the program
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<String>,
    },
    /// A number about this host: memory, processors, load, room in a file system, open files, threads
    Host {
        /// What is measured
        #[arg(value_parser = names(METRICS))]
        metric: String,
        /// Of disk and inodes: the file system of this path
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
        /// Of cpu_busy_percent: over how long, at most half of what a sample may take [default: 1s, or that half if it is less]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        window: Option<Duration>,
    },
    /// How much of the time work waits for a resource of this host, in percent (PSI)
    Pressure {
        /// Resource
        #[arg(value_parser = PossibleValuesParser::new(RESOURCES.iter().map(|resource| resource.name())))]
        resource: String,
        /// Whether some of the work waits, or all of it [default: some; of irq, full]
        #[arg(long, value_parser = PossibleValuesParser::new(SHARES))]
        share: Option<String>,
        /// Seconds over which it is averaged, or microseconds since the start [default: avg10]
        #[arg(long, value_parser = PossibleValuesParser::new(WINDOWS))]
        window: Option<String>,
    },
    /// How many sockets this host has, in the daemon's network namespace
    Sockets {
        /// Protocol, of IPv4 and IPv6
        #[arg(value_parser = PossibleValuesParser::new(PROTOCOLS))]
        protocol: String,
        /// State
        #[arg(long, value_parser = PossibleValuesParser::new(STATES))]
        state: Option<String>,
        /// Own port
        #[arg(long)]
        port: Option<u16>,
        /// Port of the other end
        #[arg(long)]
        peer_port: Option<u16>,
        /// A sum of the kernel instead: used (of all), inuse, orphan, tw, alloc, mem
        #[arg(long, value_name = "NAME")]
        sum: Option<String>,
    },
    /// How a systemd unit is, as the daemon sees it
    Unit {
        /// Unit, e.g. payment.service
        name: String,
        /// State that is right [default: active]
        #[arg(long, value_parser = PossibleValuesParser::new(unit::STATES))]
        state: Option<String>,
        /// State in the words of its kind that is right, e.g. running or exited [default: any]
        #[arg(long, value_name = "NAME")]
        sub: Option<String>,
        /// Seconds since it became active, or how often systemd has started it again [default: uptime]
        #[arg(long, value_parser = names(unit::MEASURES))]
        measure: Option<String>,
    },
    /// What the processes of a service are like, as the daemon sees them; every option of whose narrows
    Process {
        /// Those of this systemd unit
        #[arg(long)]
        unit: Option<String>,
        /// Those of this cgroup v2, by its path below /sys/fs/cgroup
        #[arg(long, value_name = "PATH", conflicts_with = "unit")]
        cgroup: Option<String>,
        /// Those that run this program, by its absolute path
        #[arg(long, value_name = "PATH")]
        exe: Option<String>,
        /// Those in whose command line this regular expression (or word) is found
        #[arg(long, value_name = "REGEX")]
        command: Option<String>,
        /// Those below a process in whose command line this regular expression (or word) is found, also further up
        #[arg(long, value_name = "REGEX")]
        below: Option<String>,
        /// Those of the container of this id
        #[arg(long, value_name = "ID")]
        container: Option<String>,
        /// This one
        #[arg(long)]
        pid: Option<u32>,
        /// Their number, seconds since the latest or the first was started, open descriptors, or resident MiB [default: count,
        /// and at least one]
        #[arg(long, value_parser = names(process::MEASURES))]
        measure: Option<String>,
    },
    /// How many entries of a log match, as the daemon reads it: at least one, unless --min or --max say otherwise
    Log {
        /// Those of this systemd unit in the journal
        #[arg(long)]
        unit: Option<String>,
        /// The lines of this file, by its absolute path
        #[arg(long, value_name = "PATH", conflicts_with = "unit")]
        file: Option<String>,
        /// Regular expression that is found in them
        #[arg(long = "match", value_name = "REGEX")]
        pattern: String,
        /// How old they may be; lines of a file by the times with which they begin (RFC 3339) [default: 60s of a unit; of a file
        /// any age]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        within: Option<Duration>,
        /// How much of a file is read, from its end, up to 16MiB [default: 1MiB]
        #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "unit")]
        last: Option<u64>,
        /// How urgent an entry of the journal is at least
        #[arg(long, value_parser = PossibleValuesParser::new(PRIORITIES), conflicts_with = "file")]
        priority: Option<String>,
    },
    /// One number of a Prometheus server
    Prometheus {
        /// Address of the server, e.g. http://127.0.0.1:9090
        url: String,
        /// Expression of PromQL that gives one series
        query: String,
        /// How far back, instead of now
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        range: Option<Duration>,
        /// In what steps [default: 15s]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        step: Option<Duration>,
        /// What becomes of the points of a range [default: last]
        #[arg(long, value_parser = names(REDUCERS))]
        reduce: Option<String>,
        /// What no data counts as: error is a probe that does not work, and ends a run as failed [default: breach]
        #[arg(long, value_parser = names(NO_DATA))]
        no_data: Option<String>,
        /// How old the latest sample of a selector may be to be data
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        stale: Option<Duration>,
        #[command(flatten)]
        trust: TrustArgs,
        #[command(flatten)]
        credential: CredentialArgs,
    },
    /// How many alerts fire, by a Prometheus Alertmanager: at least one, unless --min or --max say otherwise
    Alert {
        /// Address of the Alertmanager, e.g. http://127.0.0.1:9093
        #[arg(conflicts_with = "webhook")]
        url: Option<String>,
        /// Those of which the daemon was told, by webhook_configs of a receiver (chaos-daemon run --alert-webhook)
        #[arg(long)]
        webhook: bool,
        /// Label that it has: NAME=VALUE, NAME!=VALUE, NAME=~REGEX or NAME!~REGEX; may be repeated
        #[arg(long, value_name = "MATCHER")]
        label: Vec<String>,
        /// Regular expression that is found in one of its annotations
        #[arg(long, value_name = "REGEX")]
        reason: Option<String>,
        /// Regular expression that matches the whole name of a receiver to which it is routed, or that tells of it
        #[arg(long, value_name = "REGEX")]
        receiver: Option<String>,
        /// How long ago it may have begun to fire
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        within: Option<Duration>,
        #[command(flatten)]
        trust: TrustArgs,
        #[command(flatten)]
        credential: CredentialArgs,
    },
    /// Whether a resource of a Kubernetes cluster is there, or ready; the daemon uses the kubeconfigs that its policy names
    Kubernetes {
        /// pod, deployment, statefulset, daemonset, job, service or node, and its name, e.g. pod/payment-0
        #[arg(value_name = "KIND/NAME")]
        resource: String,
        /// Kubeconfig, by its absolute path
        #[arg(long, value_name = "PATH")]
        kubeconfig: String,
        /// Context of the kubeconfig [default: its current-context]
        #[arg(long, value_name = "NAME")]
        context: Option<String>,
        /// Namespace [default: that of the context, or default]
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
        #[command(flatten)]
        wanted: WantedArgs,
    },
}

/// What is right about a resource; that it is there, unless told otherwise.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
struct WantedArgs {
    /// It is there [default]
    #[arg(long)]
    present: bool,
    /// It is not there
    #[arg(long)]
    absent: bool,
    /// It is there and ready: a pod or a node by its condition, a job that is complete, and of what has replicas as many as it wants
    #[arg(long)]
    ready: bool,
}

impl WantedArgs {
    fn wanted(&self) -> Wanted {
        match (self.absent, self.ready) {
            (true, _) => Wanted::Absent,
            (_, true) => Wanted::Ready,
            _ => Wanted::Present,
        }
    }
}

fn names<T>(known: &[(&'static str, T)]) -> PossibleValuesParser {
    PossibleValuesParser::new(known.iter().map(|(name, _)| *name))
}

impl ProbeArgs {
    /// The probe these options stand for.
    ///
    /// # Errors
    /// Names what is wrong.
    pub fn probe(self) -> Result<Probe, SpecError> {
        let timeout = self.timeout.unwrap_or(DEFAULT_TIMEOUT);
        if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
            return Err(SpecError::new("--timeout", format!("give up to {LONGEST_TIMEOUT:?}")));
        }
        let bounds = Bounds::new(self.min, self.max)?;
        let check = self.check.check()?;
        let bounds = if bounds == Bounds::default() { check.usual_bounds() } else { bounds };
        let probe = Probe { check, timeout, bounds };
        probe.fits("--timeout")?;
        Ok(probe)
    }
}

/// What is known of an alert, by an Alertmanager or by being told.
fn alert(
    url: Option<&str>,
    webhook: bool,
    trust: Trust,
    terms: alert::Terms<'_>,
) -> Result<Alert, SpecError> {
    match url {
        Some(url) => Alert::parse(url, trust, terms),
        None if webhook => Alert::told(terms),
        None => Err(SpecError::new("URL", "missing: give the address of an Alertmanager, or --webhook")),
    }
}

/// What is sampled, of several: the one of these that is given.
fn address(
    http: Option<String>,
    tcp: Option<&str>,
    mcp: Option<&str>,
    program: Vec<String>,
    (trust, credential): (Trust, Option<Credential>),
) -> Result<Check, SpecError> {
    match (http, tcp) {
        (Some(url), _) => {
            let request = http::Request { url, trust, credential, ..http::Request::default() };
            Check::request("--http", request, Vec::new())
        }
        (None, Some(address)) => Check::tcp("--tcp", address),
        (None, None) if mcp.is_none() && program.is_empty() => {
            let problem =
                "missing: give --http URL, --tcp HOST:PORT, --mcp URL, or -- PROGRAM of an MCP server";
            Err(SpecError::new("--http", problem))
        }
        (None, None) => {
            let server = Server::parse("--mcp", mcp, program, trust)?;
            let dialogue = Dialogue::parse(server, None, None, None)?;
            Ok(Check::Mcp(dialogue.showing(credential)))
        }
    }
}

impl CheckArgs {
    fn check(self) -> Result<Check, SpecError> {
        match self {
            Self::Tcp { address } => Check::tcp("HOST:PORT", &address),
            Self::Tls { address, server_name, trust } => {
                Handshake::parse(&address, server_name.as_deref(), trust.trust()?).map(Check::Tls)
            }
            Self::Http { url, status, method, header, body, trust, credential } => {
                let trust = trust.of(Some(&url))?;
                let credential = credential.of(Some(&url), &trust)?;
                let request = http::Request::parse(url, method.as_deref(), &header, body, trust)?;
                Check::request("URL", request.showing(credential)?, status)
            }
            Self::Latency { http, tcp, mcp, samples, percentile, trust, credential, program } => {
                let url = http.as_deref().or(mcp.as_deref());
                let trust = trust.of(url)?;
                let credential = credential.of(url, &trust)?;
                let check = address(http, tcp.as_deref(), mcp.as_deref(), program, (trust, credential))?;
                Latency::new(check, samples, percentile.as_deref()).map(Check::Latency)
            }
            Self::Series(series) => series.check(),
            Self::Dns { name, kind, server, rcode } => {
                Lookup::parse(&name, kind.as_deref(), server.as_deref(), rcode.as_deref()).map(Check::Dns)
            }
            Self::Mcp { url, tool, call, arguments, trust, credential, program } => {
                let trust = trust.of(url.as_deref())?;
                let credential = credential.of(url.as_deref(), &trust)?;
                let server = Server::parse("URL", url.as_deref(), program, trust)?;
                let arguments = arguments.as_deref();
                let dialogue = Dialogue::parse(server, tool.as_deref(), call.as_deref(), arguments)?;
                Ok(Check::Mcp(dialogue.showing(credential)))
            }
            Self::Command { status, stdout, measure, program } => {
                Command::parse(program, status, stdout.as_deref(), measure.as_deref()).map(Check::Command)
            }
            Self::Host { metric, path, window } => {
                Number::parse(&metric, path.as_deref(), window).map(Check::Host)
            }
            Self::Pressure { resource, share, window } => {
                Gauge::parse(&resource, share.as_deref(), window.as_deref()).map(Check::Pressure)
            }
            Self::Sockets { protocol, state, port, peer_port, sum } => {
                let filter = Filter { state: state.as_deref(), port, peer_port, sum: sum.as_deref() };
                Count::parse(&protocol, filter).map(Check::Sockets)
            }
            Self::Unit { name, state, sub, measure } => {
                Unit::parse(&name, state.as_deref(), sub.as_deref(), measure.as_deref()).map(Check::Unit)
            }
            Self::Process { unit, cgroup, exe, command, below, container, pid, measure } => {
                let none = TargetRequest::default();
                let target = TargetRequest { unit, cgroup, exe, command, below, container, pid, ..none };
                Processes::parse(target, measure.as_deref()).map(Check::Processes)
            }
            Self::Log { unit, file, pattern, within, last, priority } => {
                let request = LogRequest { unit, file, pattern, within, last, priority };
                Entries::parse(request).map(Check::Log)
            }
            Self::Prometheus { url, query, range, step, reduce, no_data, stale, trust, credential } => {
                let trust = trust.of(Some(&url))?;
                let credential = credential.of(Some(&url), &trust)?;
                let (reduce, no_data) = (reduce.as_deref(), no_data.as_deref());
                let terms = Terms { range, step, reduce, no_data, stale };
                let query = Query::parse(&url, &query, terms)?;
                Ok(Check::Prometheus(query.trusting(trust).showing(credential)))
            }
            Self::Alert { url, webhook, label, reason, receiver, within, trust, credential } => {
                let trust = trust.of(url.as_deref())?;
                let credential = credential.of(url.as_deref(), &trust)?;
                let (reason, receiver) = (reason.as_deref(), receiver.as_deref());
                let terms = alert::Terms { labels: &label, reason, receiver, within };
                let alert = alert(url.as_deref(), webhook, trust, terms)?;
                Ok(Check::Alert(alert.showing(credential)))
            }
            Self::Kubernetes { resource, kubeconfig, context, namespace, wanted } => {
                let (context, namespace) = (context.as_deref(), namespace.as_deref());
                let (kubeconfig, resource, wanted) = (&*kubeconfig, &*resource, wanted.wanted());
                let terms = kubernetes::Terms { kubeconfig, context, namespace, resource, wanted };
                Resource::parse(terms).map(Check::Kubernetes)
            }
        }
    }
}
