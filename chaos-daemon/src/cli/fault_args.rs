//! The options that describe a fault: one grammar for `chaosctl inject`, experiments and agents.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};

use super::duration;
use crate::spec::units::Probability;
use crate::spec::{FaultName, FaultRequest, FaultType, SpecError, TargetRequest};

/// A fault, where it goes and how long it lasts.
#[derive(Debug, Clone, Args)]
pub(super) struct FaultArgs {
    /// Type of fault; `chaosctl faults` lists them
    #[arg(value_name = "TYPE", value_parser = fault_type)]
    fault_type: FaultType,
    /// Name for the fault [default: its type and four random digits]
    #[arg(long, value_parser = |text: &str| FaultName::new(text))]
    pub(super) name: Option<FaultName>,
    /// Network interface, e.g. eth0; every network fault needs one, and so does link_down
    #[arg(long, value_name = "IFACE", help_heading = "Target")]
    interface: Option<String>,
    /// systemd unit, e.g. payment.service: whose packets or calls, who is paused or limited
    #[arg(long, value_name = "UNIT", help_heading = "Target")]
    unit: Option<String>,
    /// cgroup v2, by its path below /sys/fs/cgroup: instead of a unit
    #[arg(long, value_name = "PATH", help_heading = "Target")]
    cgroup: Option<String>,
    /// Network namespace: a name below /run/netns, or the path of a namespace file
    #[arg(long, value_name = "NAME|PATH", help_heading = "Target")]
    netns: Option<String>,
    /// Peer addresses, e.g. 10.1.0.0/16 or 2001:db8::7; may be repeated
    #[arg(long = "cidr", value_name = "PREFIX", help_heading = "Target")]
    cidrs: Vec<String>,
    /// Peer by host name, resolved when the fault starts
    #[arg(long, help_heading = "Target")]
    host: Option<String>,
    /// Port on either end
    #[arg(long, help_heading = "Target")]
    port: Option<u16>,
    /// Port on this node's end
    #[arg(long, value_name = "PORT", help_heading = "Target")]
    local_port: Option<u16>,
    /// Port on the peer's end
    #[arg(long, value_name = "PORT", help_heading = "Target")]
    remote_port: Option<u16>,
    /// tcp, udp or icmp [default: any]
    #[arg(long, help_heading = "Target")]
    protocol: Option<String>,
    /// egress, ingress or both [default: by type]
    #[arg(long, help_heading = "Target")]
    direction: Option<String>,
    /// latency: delay of each packet, e.g. 300ms
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    delay: Option<Duration>,
    /// latency: variation of the delay, either way
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, help_heading = "Effect")]
    jitter: Option<Duration>,
    /// latency: packets per second to make room for
    #[arg(long, value_name = "PER_SECOND", help_heading = "Effect")]
    packet_rate: Option<u32>,
    /// Share of the matching packets that is affected, 0 to 1
    #[arg(long, value_name = "FRACTION", help_heading = "Effect")]
    packet_probability: Option<f64>,
    /// resource_exhaustion: cpu (burned), or cpu_limit, memory_limit, pids_limit, io_limit of a cgroup [default: cpu]
    #[arg(long, value_name = "RESOURCE", help_heading = "Effect")]
    resource: Option<String>,
    /// cpu: share of each core, 1 to 100; cpu_limit: of one processor
    #[arg(long, value_name = "PERCENT", help_heading = "Effect")]
    cpu_percent: Option<f64>,
    /// cpu: how many cores
    #[arg(long, help_heading = "Effect")]
    cores: Option<u32>,
    /// memory_limit: MiB beyond which the cgroup is throttled
    #[arg(long, value_name = "MIB", help_heading = "Effect")]
    memory_mb: Option<f64>,
    /// pids_limit: most processes and threads
    #[arg(long, value_name = "COUNT", help_heading = "Effect")]
    pids: Option<u32>,
    /// io_limit: block device, e.g. sda or 8:0
    #[arg(long, help_heading = "Effect")]
    device: Option<String>,
    /// io_limit: bytes per second, each way
    #[arg(long, value_name = "BYTES", help_heading = "Effect")]
    bytes_per_second: Option<u64>,
    /// clock_skew: by how many seconds the clock is wrong, forwards or back
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, help_heading = "Effect")]
    offset_seconds: Option<f64>,
    /// connect_error: what a call fails with, e.g. host_unreachable [default: connection_refused]
    #[arg(long, value_name = "NAME", help_heading = "Effect")]
    errno: Option<String>,
    /// connect_error: share of the matching calls that fails, 0 to 1
    #[arg(long, value_name = "FRACTION", help_heading = "Effect")]
    call_probability: Option<f64>,
    /// connect_error: how many matching calls pass first
    #[arg(long, value_name = "COUNT", help_heading = "Effect")]
    after_calls: Option<u64>,
    /// How long the fault lasts before it ends by itself, e.g. 3m [default: 1m]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    lasts: Option<Duration>,
    /// Text reported when an error or timeout fault is injected
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
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
        let mut params = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                params.insert(name.to_owned(), value);
            }
        };
        let millis = |duration: Duration| Value::from(duration.as_secs_f64() * 1e3);
        set("delay_ms", self.delay.map(millis));
        set("jitter_ms", self.jitter.map(millis));
        set("packet_rate", self.packet_rate.map(Value::from));
        set("packet_probability", self.packet_probability.map(Value::from));
        set("cpu_percent", self.cpu_percent.map(Value::from));
        set("cores", self.cores.map(Value::from));
        set("resource", self.resource.clone().map(Value::from));
        set("memory_mb", self.memory_mb.map(Value::from));
        set("pids", self.pids.map(Value::from));
        set("device", self.device.clone().map(Value::from));
        set("bytes_per_second", self.bytes_per_second.map(Value::from));
        set("errno", self.errno.clone().map(Value::from));
        set("call_probability", self.call_probability.map(Value::from));
        set("after_calls", self.after_calls.map(Value::from));
        set("offset_seconds", self.offset_seconds.map(Value::from));
        let request = FaultRequest {
            fault_type: self.fault_type,
            probability,
            duration_seconds: self.lasts.map(|lasts| lasts.as_secs_f64()),
            error_message: self.message.clone(),
            target: TargetRequest {
                interface: self.interface.clone(),
                unit: self.unit.clone(),
                cgroup: self.cgroup.clone(),
                netns: self.netns.clone(),
                cidrs: self.cidrs.clone(),
                host: self.host.clone(),
                port: self.port,
                local_port: self.local_port,
                remote_port: self.remote_port,
                protocol: self.protocol.clone(),
                direction: self.direction.clone(),
                ..TargetRequest::default()
            },
            params,
        };
        request.parse().map_err(as_option)?;
        Ok(request)
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
fn as_option(mut error: SpecError) -> SpecError {
    let field = error.field.split('[').next().unwrap_or_default();
    let option = match field.rsplit('.').next().unwrap_or_default() {
        "cidrs" | "cidr" => "cidr",
        "duration_seconds" => "for",
        "delay_ms" => "delay",
        "jitter_ms" => "jitter",
        "error_message" => "message",
        "params" | "target" => return error,
        other => other,
    };
    error.field = format!("--{}", option.replace('_', "-"));
    error
}
