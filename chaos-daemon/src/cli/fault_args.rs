//! The options that describe a fault: one grammar for `chaosctl inject`, experiments and agents.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};

use super::duration;
use crate::spec::units::Probability;
use crate::spec::{FaultName, FaultRequest, FaultType, PortText, Share, SpecError, TargetRequest};

/// A fault, where it goes and how long it lasts.
#[derive(Debug, Clone, Args)]
pub(super) struct FaultArgs {
    /// Type of fault; `chaosctl faults` lists them
    #[arg(value_name = "TYPE", value_parser = fault_type)]
    fault_type: FaultType,
    /// Name for the fault [default: its type and four random digits]
    #[arg(long, value_parser = |text: &str| FaultName::new(text))]
    pub(super) name: Option<FaultName>,
    /// Network interface, e.g. eth0; every network fault needs one, and so does link_down; network_partition and timeout without one
    /// are of all packets of a --unit, --cgroup or processes
    #[arg(long, value_name = "IFACE", help_heading = "Target")]
    interface: Option<String>,
    /// systemd unit, e.g. payment.service: whose packets, calls or processes, who is paused or limited, and where cpu, memory, pids or disk_io are to be used up
    #[arg(long, value_name = "UNIT", help_heading = "Target")]
    unit: Option<String>,
    /// cgroup v2, by its path below /sys/fs/cgroup: instead of a unit
    #[arg(long, value_name = "PATH", help_heading = "Target")]
    cgroup: Option<String>,
    /// Instead of a unit: this process; but for faults of processes, its network namespace or cgroup is meant, if that is its own
    #[arg(long, help_heading = "Target")]
    pid: Option<u32>,
    /// Likewise: those that run this program, by its absolute path
    #[arg(long, value_name = "PATH", help_heading = "Target")]
    exe: Option<String>,
    /// Likewise: those in whose command line this regular expression (or word) is found
    #[arg(long, value_name = "REGEX", help_heading = "Target")]
    command: Option<String>,
    /// Likewise: those below a process in whose command line this regular expression (or word) is found, also further up
    #[arg(long, value_name = "REGEX", help_heading = "Target")]
    below: Option<String>,
    /// Likewise: those of the container of this id
    #[arg(long, value_name = "ID", help_heading = "Target")]
    container: Option<String>,
    /// Process faults: what share of those that match, e.g. 25%; never fewer than one [default: all]
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = "Target")]
    share: Option<Share>,
    /// Process faults: which of those that match make up the share; link_down: how its rhythm varies; mcp_error: also which
    /// calls meet what [default: 0]
    #[arg(long, value_name = "NUMBER", help_heading = "Target")]
    seed: Option<u64>,
    /// Network namespace: a name in /run/netns, or a path such as /proc/PID/ns/net
    #[arg(long, value_name = "NAME|PATH", help_heading = "Target")]
    netns: Option<String>,
    /// Peer addresses, e.g. 10.1.0.0/16 or 2001:db8::7; may be repeated
    #[arg(long = "cidr", value_name = "PREFIX", help_heading = "Target")]
    cidrs: Vec<String>,
    /// Peer by host name, looked up when the fault starts and again while it is active
    #[arg(long, help_heading = "Target")]
    host: Option<String>,
    /// How long after an answer --host is looked up again [default: 5]
    #[arg(long, value_name = "SECONDS", help_heading = "Target")]
    resolve_seconds: Option<u32>,
    /// Port on either end; or a range, such as 8000-8100
    #[arg(long, help_heading = "Target")]
    port: Option<PortText>,
    /// Port on this node's end, or a range; port_in_use: the one to take
    #[arg(long, value_name = "PORT", help_heading = "Target")]
    local_port: Option<PortText>,
    /// Port on the peer's end; or a range
    #[arg(long, value_name = "PORT", help_heading = "Target")]
    remote_port: Option<PortText>,
    /// tcp, udp or icmp [default: any]
    #[arg(long, help_heading = "Target")]
    protocol: Option<String>,
    /// egress, ingress or both [default: by type]
    #[arg(long, help_heading = "Target")]
    direction: Option<String>,
    /// latency, packet_reorder: delay of each packet, e.g. 300ms; mcp_error: of each answer
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    delay: Option<Duration>,
    /// Variation, either way: of the delay (with a distribution, its standard deviation), of the interval, of pause and run, of down and up
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    jitter: Option<Duration>,
    /// latency: uniform, normal, pareto or paretonormal [default: uniform]
    #[arg(long, help_heading = "Effect")]
    distribution: Option<String>,
    /// How much each roll depends on the one before, 0 to 99: for what is rolled packet by packet
    #[arg(long, value_name = "PERCENT", help_heading = "Effect")]
    correlation_percent: Option<f64>,
    /// packet_loss: share of the packets that is lost
    #[arg(long, value_name = "PERCENT", help_heading = "Effect")]
    loss_percent: Option<f64>,
    /// packet_loss: bad and good times: P,R[,1-H[,1-K]], in percent, as `loss gemodel` of tc-netem(8)
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', help_heading = "Effect")]
    gilbert_elliott: Vec<f64>,
    /// packet_loss: bursts: P13,P31[,P32[,P23[,P14]]], in percent, as `loss state` of tc-netem(8)
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', help_heading = "Effect")]
    four_state: Vec<f64>,
    /// packet_duplicate: share of the packets that is sent twice
    #[arg(long, value_name = "PERCENT", help_heading = "Effect")]
    duplicate_percent: Option<f64>,
    /// packet_corrupt: share of the packets of which a bit is turned over
    #[arg(long, value_name = "PERCENT", help_heading = "Effect")]
    corrupt_percent: Option<f64>,
    /// packet_reorder: share of the packets that overtakes, while the others are late by --delay
    #[arg(long, value_name = "PERCENT", help_heading = "Effect")]
    reorder_percent: Option<f64>,
    /// packet_reorder: every how many packets one may overtake [default: 1]
    #[arg(long, value_name = "PACKETS", help_heading = "Effect")]
    gap: Option<u32>,
    /// bandwidth: thousands of bits per second
    #[arg(long, value_name = "KBIT", help_heading = "Effect")]
    rate_kbit: Option<u64>,
    /// latency, packet_reorder: packets per second to make room for
    #[arg(long, value_name = "PER_SECOND", help_heading = "Effect")]
    packet_rate: Option<u32>,
    /// Share of the matching packets that is affected, 0 to 1
    #[arg(long, value_name = "FRACTION", help_heading = "Effect")]
    packet_probability: Option<f64>,
    /// error: reset, host_unreachable, network_unreachable, port_unreachable or admin_prohibited [default: reset]; dns_error:
    /// nxdomain, servfail, refused, wrong_address or timeout [default: nxdomain]
    #[arg(long, value_name = "NAME", help_heading = "Effect")]
    answer: Option<String>,
    /// dns_error: about which names, e.g. db.example.org, or '*.example.org' for all below [default: all]; latency: of questions
    /// about these names alone
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Effect")]
    names: Vec<String>,
    /// dns_error: the wrong addresses, at most one of IPv4 and one of IPv6
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', help_heading = "Effect")]
    addresses: Vec<String>,
    /// resource_exhaustion: cpu, memory, disk_fill, file_descriptors, pids, inodes, ports, disk_io, or cpu_limit,
    /// memory_limit, pids_limit, io_limit of a cgroup [default: cpu]
    #[arg(long, value_name = "RESOURCE", help_heading = "Effect")]
    resource: Option<String>,
    /// cpu: share of each core, or of the quota of the unit or cgroup, 1 to 100; cpu_limit: of one processor
    #[arg(long, value_name = "PERCENT", help_heading = "Effect")]
    cpu_percent: Option<f64>,
    /// cpu: how many cores
    #[arg(long, help_heading = "Effect")]
    cores: Option<u32>,
    /// cpu: which processors, e.g. 0-1,3, in place of how many cores
    #[arg(long, value_name = "LIST", help_heading = "Effect")]
    processors: Option<String>,
    /// memory: MiB to hold; memory_limit: MiB beyond which the cgroup is throttled
    #[arg(long, value_name = "MIB", help_heading = "Effect")]
    memory_mb: Option<f64>,
    /// memory: share of the host's memory, or of the limit of the unit or cgroup
    #[arg(long, value_name = "PERCENT", help_heading = "Effect")]
    memory_percent: Option<f64>,
    /// memory: MiB that stay available on the host [default: the larger of 512 and 10 %]
    #[arg(long, value_name = "MIB", help_heading = "Effect")]
    reserve_mb: Option<f64>,
    /// memory: until the kernel's OOM killer kills in the unit or cgroup, in place of an amount
    #[arg(long, help_heading = "Effect")]
    oom: bool,
    /// cpu, memory, disk_fill, file_descriptors, pids, inodes, ports, connection_load: how long it takes until all of it is used, e.g.
    /// 20s [default: no time]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    ramp: Option<Duration>,
    /// disk_fill, inodes, disk_io: a directory of the file system; file_error: a file, or a directory with all below it
    #[arg(long, help_heading = "Effect")]
    path: Option<String>,
    /// disk_fill: MiB to take
    #[arg(long, value_name = "MIB", help_heading = "Effect")]
    megabytes: Option<f64>,
    /// disk_fill: how full the file system gets
    #[arg(long, value_name = "PERCENT", help_heading = "Effect")]
    percent: Option<f64>,
    /// disk_fill: MiB that stay free [default: the less of 1024 and 5 %]
    #[arg(long, value_name = "MIB", help_heading = "Effect")]
    leave_free_mb: Option<f64>,
    /// file_descriptors, pids, inodes, ports: how many to hold
    #[arg(long, help_heading = "Effect")]
    count: Option<u64>,
    /// file_descriptors: how many of the host's table stay free [default: the larger of 1024 and 10 %]
    #[arg(long, value_name = "COUNT", help_heading = "Effect")]
    leave_free: Option<u64>,
    /// ports, port_in_use: of which address of this host [default: ports: 0.0.0.0; port_in_use: every one]
    #[arg(long, help_heading = "Effect")]
    address: Option<String>,
    /// ports: of which ports, from 1024 on [default: those for connections]
    #[arg(long, value_name = "FIRST-LAST", help_heading = "Effect")]
    port_range: Option<String>,
    /// disk_io: MiB of the file that is read and written [default: 64]
    #[arg(long, value_name = "MIB", help_heading = "Effect")]
    size_mb: Option<f64>,
    /// pids_limit: most processes and threads
    #[arg(long, value_name = "COUNT", help_heading = "Effect")]
    pids: Option<u32>,
    /// io_limit: block device, e.g. sda or 8:0
    #[arg(long, help_heading = "Effect")]
    device: Option<String>,
    /// io_limit: bytes per second, each way; disk_io: both ways together
    #[arg(long, value_name = "BYTES", help_heading = "Effect")]
    bytes_per_second: Option<u64>,
    /// io_limit, in place of --bytes-per-second: bytes read per second
    #[arg(long, value_name = "BYTES", help_heading = "Effect")]
    read_bps: Option<u64>,
    /// io_limit, likewise: bytes written per second
    #[arg(long, value_name = "BYTES", help_heading = "Effect")]
    write_bps: Option<u64>,
    /// io_limit: reads per second
    #[arg(long, value_name = "COUNT", help_heading = "Effect")]
    read_iops: Option<u64>,
    /// io_limit: writes per second
    #[arg(long, value_name = "COUNT", help_heading = "Effect")]
    write_iops: Option<u64>,
    /// clock_skew: by how many seconds the clock is wrong, forwards or back
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, help_heading = "Effect")]
    offset_seconds: Option<f64>,
    /// host_reboot, host_panic: how long after the injection it happens; a removal before that prevents it [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    countdown: Option<Duration>,
    /// host_reboot: without stopping services first
    #[arg(long, help_heading = "Effect")]
    forced: bool,
    /// host_panic: put on disk first what programs have written
    #[arg(long, help_heading = "Effect")]
    sync: bool,
    /// host_panic: also where kernel.panic is 0, so that the host stays down until somebody resets it
    #[arg(long, help_heading = "Effect")]
    stay_down: bool,
    /// process_kill: name of the signal, e.g. TERM [default: SIGKILL]; file_error and socket_error: the one that whoever makes the call is
    /// sent beside its error [default: none]
    #[arg(long, value_name = "NAME", help_heading = "Effect")]
    signal: Option<String>,
    /// process_kill: how often, each time to those that match then [default: 1]; connect_error, file_error, socket_error: how many
    /// calls fail at most [default: no limit]
    #[arg(long, value_name = "COUNT", help_heading = "Effect")]
    times: Option<u64>,
    /// process_kill: time between two volleys [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    interval: Option<Duration>,
    /// process_pause: how long they stand still, in a rhythm with --run
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    pause: Option<Duration>,
    /// process_pause: how long they run in between
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    run: Option<Duration>,
    /// link_down: how long the link is down, in a rhythm with --up
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    down: Option<Duration>,
    /// link_down: how long it is up in between
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    up: Option<Duration>,
    /// connect_error: what a call fails with, e.g. host_unreachable [default: connection_refused]; file_error: e.g. no_space
    /// [default: io_error]; socket_error: e.g. address_in_use [default: no_buffer_space]
    #[arg(long, value_name = "NAME", help_heading = "Effect")]
    errno: Option<String>,
    /// file_error: which calls fail, of open, create, read, write, mmap; socket_error: of bind, listen, accept, send, receive
    /// [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Effect")]
    operations: Vec<String>,
    /// connect_error, file_error, socket_error: share of the matching calls that fails, 0 to 1; mcp_error: that any of it is about
    #[arg(long, value_name = "FRACTION", help_heading = "Effect")]
    call_probability: Option<f64>,
    /// connect_error, file_error, socket_error: how many matching calls pass first
    #[arg(long, value_name = "COUNT", help_heading = "Effect")]
    after_calls: Option<u64>,
    /// mcp_error: share of the calls that --delay delays, 0 to 1 [default: 1]
    #[arg(long, value_name = "FRACTION", help_heading = "Effect")]
    delay_share: Option<f64>,
    /// mcp_error: share of the calls that is answered with an error, and never comes to the server
    #[arg(long, value_name = "FRACTION", help_heading = "Effect")]
    fail: Option<f64>,
    /// mcp_error: share whose answer never comes
    #[arg(long, value_name = "FRACTION", help_heading = "Effect")]
    drop: Option<f64>,
    /// mcp_error: share whose answer is cut short
    #[arg(long, value_name = "FRACTION", help_heading = "Effect")]
    truncate: Option<f64>,
    /// mcp_error: share whose answer has a wrong byte
    #[arg(long, value_name = "FRACTION", help_heading = "Effect")]
    corrupt: Option<f64>,
    /// mcp_error: methods that meet it [default: tools/call]
    #[arg(long, value_name = "METHODS", value_delimiter = ',', help_heading = "Effect")]
    methods: Vec<String>,
    /// mcp_error: only calls of these tools
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Effect")]
    tools: Vec<String>,
    /// connection_load: of which server of this host: tcp://ADDRESS:PORT, unix:/PATH, http://ADDRESS:PORT/PATH,
    /// mcp+http://ADDRESS:PORT/PATH or mcp+unix:/PATH
    #[arg(long, help_heading = "Effect")]
    url: Option<String>,
    /// connection_load: how many connections to hold
    #[arg(long, value_name = "COUNT", help_heading = "Effect")]
    sessions: Option<u64>,
    /// connection_load: how many connections to open and close, in place of --sessions
    #[arg(long, value_name = "COUNT", help_heading = "Effect")]
    connections_per_second: Option<u64>,
    /// connection_load: how long opening, and each answer, may take [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    timeout: Option<Duration>,
    /// How long the fault lasts before it ends by itself, e.g. 3m [default: 1m]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    lasts: Option<Duration>,
    /// Text reported when an error or timeout fault is injected
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

/// What the numbers of `--gilbert-elliott` are, in the order in which tc takes them.
const GILBERT_ELLIOTT: &[&str] = &["p", "r", "one_minus_h", "one_minus_k"];
/// Likewise of `--four-state`.
const FOUR_STATE: &[&str] = &["p13", "p31", "p32", "p23", "p14"];

/// A model of loss from its numbers; none without numbers.
fn model(option: &str, names: &[&str], values: &[f64]) -> Result<Option<Value>, SpecError> {
    if values.len() > names.len() {
        let problem = format!("{} numbers: give {} at most ({})", values.len(), names.len(), names.join(","));
        return Err(SpecError::new(option, problem));
    }
    let fields: Map<_, _> =
        names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    Ok(Some(fields).filter(|fields| !fields.is_empty()).map(Value::Object))
}

fn share(text: &str) -> Result<Share, String> {
    Share::parse(text).map_err(|error| error.problem)
}

fn fault_type(text: &str) -> Result<FaultType, String> {
    FaultType::parse(&text.replace('-', "_")).map_err(|error| error.problem)
}

impl FaultArgs {
    /// The request these options stand for; `probability` is rolled once per injection.
    ///
    /// # Errors
    /// Names the option that is missing or wrong.
    pub(super) fn request(&self, probability: Probability) -> Result<FaultRequest, SpecError> {
        let request = FaultRequest {
            fault_type: self.fault_type,
            probability,
            duration_seconds: self.lasts.map(|lasts| lasts.as_secs_f64()),
            error_message: self.message.clone(),
            target: TargetRequest {
                interface: self.interface.clone(),
                unit: self.unit.clone(),
                cgroup: self.cgroup.clone(),
                pid: self.pid,
                exe: self.exe.clone(),
                command: self.command.clone(),
                below: self.below.clone(),
                container: self.container.clone(),
                share: self.share,
                seed: self.seed,
                netns: self.netns.clone(),
                cidrs: self.cidrs.clone(),
                host: self.host.clone(),
                resolve_seconds: self.resolve_seconds,
                port: self.port.clone(),
                local_port: self.local_port.clone(),
                remote_port: self.remote_port.clone(),
                protocol: self.protocol.clone(),
                direction: self.direction.clone(),
                ..TargetRequest::default()
            },
            params: self.params()?,
        };
        request.parse().map_err(as_option)?;
        Ok(request)
    }

    /// What was given of the effect.
    fn params(&self) -> Result<Map<String, Value>, SpecError> {
        let mut params = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                params.insert(name.to_owned(), value);
            }
        };
        let millis = |duration: Duration| Value::from(duration.as_secs_f64() * 1e3);
        set("delay_ms", self.delay.map(millis));
        set("jitter_ms", self.jitter.map(millis));
        set("distribution", self.distribution.clone().map(Value::from));
        set("correlation_percent", self.correlation_percent.map(Value::from));
        set("loss_percent", self.loss_percent.map(Value::from));
        set("gilbert_elliott", model("--gilbert-elliott", GILBERT_ELLIOTT, &self.gilbert_elliott)?);
        set("four_state", model("--four-state", FOUR_STATE, &self.four_state)?);
        set("duplicate_percent", self.duplicate_percent.map(Value::from));
        set("corrupt_percent", self.corrupt_percent.map(Value::from));
        set("reorder_percent", self.reorder_percent.map(Value::from));
        set("gap", self.gap.map(Value::from));
        set("rate_kbit", self.rate_kbit.map(Value::from));
        set("packet_rate", self.packet_rate.map(Value::from));
        set("packet_probability", self.packet_probability.map(Value::from));
        set("answer", self.answer.clone().map(Value::from));
        let list = |given: &[String]| (!given.is_empty()).then(|| Value::from(given.to_vec()));
        set("names", list(&self.names));
        set("addresses", list(&self.addresses));
        set("cpu_percent", self.cpu_percent.map(Value::from));
        set("processors", self.processors.clone().map(Value::from));
        set("cores", self.cores.map(Value::from));
        set("resource", self.resource.clone().map(Value::from));
        set("memory_mb", self.memory_mb.map(Value::from));
        set("memory_percent", self.memory_percent.map(Value::from));
        set("reserve_mb", self.reserve_mb.map(Value::from));
        set("oom", self.oom.then_some(Value::from(true)));
        set("ramp_seconds", self.ramp.map(|ramp| Value::from(ramp.as_secs_f64())));
        set("pids", self.pids.map(Value::from));
        set("path", self.path.clone().map(Value::from));
        set("megabytes", self.megabytes.map(Value::from));
        set("percent", self.percent.map(Value::from));
        set("leave_free_mb", self.leave_free_mb.map(Value::from));
        set("count", self.count.map(Value::from));
        set("leave_free", self.leave_free.map(Value::from));
        set("address", self.address.clone().map(Value::from));
        set("port_range", self.port_range.clone().map(Value::from));
        set("size_mb", self.size_mb.map(Value::from));
        set("device", self.device.clone().map(Value::from));
        set("bytes_per_second", self.bytes_per_second.map(Value::from));
        set("read_bps", self.read_bps.map(Value::from));
        set("write_bps", self.write_bps.map(Value::from));
        set("read_iops", self.read_iops.map(Value::from));
        set("write_iops", self.write_iops.map(Value::from));
        set("errno", self.errno.clone().map(Value::from));
        set("call_probability", self.call_probability.map(Value::from));
        set("operations", list(&self.operations));
        set("after_calls", self.after_calls.map(Value::from));
        set("delay_share", self.delay_share.map(Value::from));
        set("fail", self.fail.map(Value::from));
        set("drop", self.drop.map(Value::from));
        set("truncate", self.truncate.map(Value::from));
        set("corrupt", self.corrupt.map(Value::from));
        set("methods", list(&self.methods));
        set("tools", list(&self.tools));
        set("offset_seconds", self.offset_seconds.map(Value::from));
        set("countdown_seconds", self.countdown.map(|countdown| Value::from(countdown.as_secs_f64())));
        set("forced", self.forced.then_some(Value::from(true)));
        set("sync", self.sync.then_some(Value::from(true)));
        set("stay_down", self.stay_down.then_some(Value::from(true)));
        set("signal", self.signal.clone().map(Value::from));
        set("times", self.times.map(Value::from));
        set("interval_seconds", self.interval.map(|interval| Value::from(interval.as_secs_f64())));
        set("pause_ms", self.pause.map(millis));
        set("run_ms", self.run.map(millis));
        set("down_ms", self.down.map(millis));
        set("up_ms", self.up.map(millis));
        set("url", self.url.clone().map(Value::from));
        set("sessions", self.sessions.map(Value::from));
        set("connections_per_second", self.connections_per_second.map(Value::from));
        set("timeout_ms", self.timeout.map(millis));
        Ok(params)
    }

    /// The name given, or one made up.
    ///
    /// # Errors
    /// Never for the types there are.
    pub(super) fn name(&self) -> Result<FaultName, SpecError> {
        match &self.name {
            Some(name) => Ok(name.clone()),
            None => FaultName::new(format!("{}-{:04x}", self.fault_type.name(), rand::random::<u16>())),
        }
    }
}

/// The field of a request as the option that sets it.
pub(super) fn as_option(mut error: SpecError) -> SpecError {
    let field = error.field.split('[').next().unwrap_or_default();
    let mut parts = field.split('.');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    // Of a model, the option is the whole.
    if let Some(number) = parts.next() {
        error.problem = format!("{number}: {}", error.problem);
    }
    let option = match second.unwrap_or(first) {
        "cidrs" | "cidr" => "cidr",
        "duration_seconds" => "for",
        "delay_ms" => "delay",
        "jitter_ms" => "jitter",
        "ramp_seconds" => "ramp",
        "interval_seconds" => "interval",
        "countdown_seconds" => "countdown",
        "pause_ms" => "pause",
        "run_ms" => "run",
        "down_ms" => "down",
        "up_ms" => "up",
        "timeout_ms" => "timeout",
        "error_message" => "message",
        "params" | "target" => return error,
        other => other,
    };
    error.field = format!("--{}", option.replace('_', "-"));
    error
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command, FromArgMatches};

    use super::*;
    use crate::spec::parameters;

    const EFFECT: &str = "Effect";

    fn command() -> Command {
        FaultArgs::augment_args(Command::new("inject").no_binary_name(true))
    }

    /// The parameters that the option stands for, with a value that it takes.
    fn stands_for(option: &Arg) -> Vec<String> {
        let long = format!("--{}", option.get_long().unwrap());
        let given = |value: Option<&str>| {
            let words = ["latency", &long].into_iter().chain(value);
            command().try_get_matches_from(words).ok()
        };
        let matches = given(None).or_else(|| ["1", "1s"].into_iter().find_map(|value| given(Some(value))));
        let args = FaultArgs::from_arg_matches(&matches.unwrap_or_else(|| panic!("{long} takes nothing")));
        args.unwrap().params().unwrap().keys().cloned().collect()
    }

    fn effects(command: &Command) -> impl Iterator<Item = &Arg> {
        command.get_arguments().filter(|option| option.get_help_heading() == Some(EFFECT))
    }

    #[test]
    fn every_parameter_of_every_type_has_an_option_which_an_error_about_it_names() {
        let command = command();
        let mut reached: Vec<String> = Vec::new();
        for option in effects(&command) {
            let names = stands_for(option);
            let [name] = names.as_slice() else { panic!("{:?} stands for {names:?}", option.get_long()) };
            let error = as_option(SpecError::new(format!("params.{name}"), "wrong"));
            assert_eq!(error.field, format!("--{}", option.get_long().unwrap()));
            reached.push(name.clone());
        }
        reached.sort_unstable();
        assert_eq!(reached, parameters::all());
    }

    #[test]
    fn the_help_of_an_option_says_to_which_types_it_belongs() {
        let command = command();
        for option in effects(&command) {
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            parameters::check_words(&stands_for(option)[0], &help);
        }
    }
}
