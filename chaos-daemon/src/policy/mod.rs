//! Who may do what: a pure function from (caller, fault) to a [`Permit`] or a reason.

mod credentials;
mod experiments;
pub mod logs;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::Deserialize;

use crate::host::program::{Foreign, Programs, is_plain, own};
use crate::request::facts::Precautions;
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::effect::Effect;
use crate::spec::ip::prefixes;
use crate::spec::origin::Origin;
use crate::spec::units::{LONGEST_FAULT, SpecError};
use crate::spec::{Fault, FaultType, Hoard, HostLimits, NetNsRule};

pub use experiments::ExperimentRules;
use logs::LogRule;

/// The rule that names folders and files.
const FAULT_PATHS: &str = "fault_paths";
/// The rule that names programs.
const PROBE_COMMANDS: &str = "probe_commands";
/// The rule that names kubeconfigs.
const PROBE_KUBECONFIGS: &str = "probe_kubeconfigs";

/// What the operator allows, from a TOML file. Everything left out has the default shown by [`Policy::default`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Fault types that may be injected. Default: all.
    pub fault_types: Option<BTreeSet<FaultTypeName>>,
    /// Interfaces that may be targets; with a list, no fault goes to the packets of a service on all of them. Default: all.
    pub interfaces: Option<BTreeSet<String>>,
    /// User ids that may inject; root always may. Default: whoever may open the socket.
    pub uids: Option<BTreeSet<u32>>,
    /// Most faults active at once. Default: 8.
    pub max_active: usize,
    /// Longest fault, in seconds. Default and upper bound: 3600.
    pub max_duration_seconds: u64,
    /// Whether the wall clock may be set wrong. Default: no.
    pub clock_skew: bool,
    /// Whether the host may be rebooted. Default: no.
    pub host_reboot: bool,
    /// Whether the host's kernel may be made to panic. Default: no.
    pub host_panic: bool,
    /// Interfaces that may be set down although the host's default route or a protected connection goes through them.
    /// Default: none.
    pub critical_interfaces: BTreeSet<String>,
    /// Addresses of other hosts that connection_load may open connections to. Default: none.
    #[serde(deserialize_with = "prefixes")]
    pub load_cidrs: Vec<IpNet>,
    /// Folders and files, by their absolute paths without links, that disk_fill, inodes, disk_io and file_error may take whoever
    /// asks; any other only if the caller could. Default: none.
    pub fault_paths: BTreeSet<String>,
    /// Network namespaces into which faults may go whoever asks; into any other only if the caller could. Default: none.
    pub fault_netns: BTreeSet<NetNsRule>,
    /// Logs that probes may read. Default: none.
    pub probe_logs: BTreeSet<LogRule>,
    /// Programs that probes may run, each an absolute path, or a folder and `/*`. Default: none.
    pub probe_commands: Vec<String>,
    /// Kubeconfigs that probes may use, by their absolute paths. Default: none.
    pub probe_kubeconfigs: BTreeSet<String>,
    /// Files with credentials that probes may show, by their absolute paths, and to whom. Default: none.
    pub probe_credentials: BTreeMap<String, BTreeSet<Origin>>,
    /// What experiments have to meet before they begin. Default: nothing.
    pub experiments: ExperimentRules,
    /// Traffic that no fault touches, whatever its rule says.
    pub protect: Protected,
}

/// A fault type by its wire name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct FaultTypeName(FaultType);

/// Traffic that no fault touches: checked by the packet programs themselves, after the rule has matched.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Protected {
    /// Peers.
    #[serde(deserialize_with = "prefixes")]
    pub cidrs: Vec<IpNet>,
    /// TCP ports of this node, beside those at which sshd listens. Default: 22, so that operators keep their way in.
    pub tcp_ports: Vec<u16>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            fault_types: None,
            interfaces: None,
            uids: None,
            max_active: 8,
            max_duration_seconds: LONGEST_FAULT.as_secs(),
            clock_skew: false,
            host_reboot: false,
            host_panic: false,
            critical_interfaces: BTreeSet::new(),
            load_cidrs: Vec::new(),
            fault_paths: BTreeSet::new(),
            fault_netns: BTreeSet::new(),
            probe_logs: BTreeSet::new(),
            probe_commands: Vec::new(),
            probe_kubeconfigs: BTreeSet::new(),
            probe_credentials: BTreeMap::new(),
            experiments: ExperimentRules::default(),
            protect: Protected::default(),
        }
    }
}

impl Default for Protected {
    fn default() -> Self {
        Self { cidrs: Vec::new(), tcp_ports: vec![22] }
    }
}

/// Leave to start one fault. Only [`Policy::permit`] makes one.
#[derive(Debug)]
pub struct Permit {
    /// By the policy.
    protect: Protected,
    /// And what is spared as well.
    protected: Protected,
    critical_interfaces: BTreeSet<String>,
    load_cidrs: Vec<IpNet>,
    fault_paths: BTreeSet<String>,
    fault_netns: BTreeSet<NetNsRule>,
}

impl Permit {
    /// Traffic that the fault must spare.
    pub fn protected(&self) -> &Protected {
        &self.protected
    }

    /// Leave to do less: beside what the policy protects, these TCP ports of this node are spared.
    #[must_use]
    pub fn sparing(self, tcp_ports: &[u16]) -> Self {
        Self { protected: self.protected_with(tcp_ports), ..self }
    }

    /// What the policy protects, and these TCP ports of this node.
    pub fn protected_with(&self, tcp_ports: &[u16]) -> Protected {
        let mut all = self.protect.clone();
        for port in tcp_ports {
            if !all.tcp_ports.contains(port) {
                all.tcp_ports.push(*port);
            }
        }
        all
    }

    /// Whether this interface may be set down even if the host is reached through it.
    pub fn spares_not(&self, interface: &str) -> bool {
        self.critical_interfaces.contains(interface)
    }

    /// Whether the policy names this folder or file, so that it is opened whoever asks.
    pub fn names(&self, path: &Path) -> bool {
        path.to_str().is_some_and(|path| self.fault_paths.contains(path))
    }

    /// The network namespaces that the policy names, so that they are entered whoever asks.
    pub fn fault_netns(&self) -> &BTreeSet<NetNsRule> {
        &self.fault_netns
    }

    /// Whether connections may be opened to this address of another host.
    pub fn may_load(&self, address: IpAddr) -> bool {
        self.load_cidrs.iter().any(|prefix| prefix.contains(&address))
    }
}

/// Why a policy file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("read policy {path}")]
    Read {
        /// Its path.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Others could change it.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// The file is not a policy.
    #[error("parse policy {path}")]
    Parse {
        /// Its path.
        path: String,
        /// Line, column and problem.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A value is out of bounds.
    #[error("check policy {path}")]
    Bounds {
        /// Its path.
        path: String,
        /// Field and bounds.
        #[source]
        source: SpecError,
    },
}

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// When others could change it, it cannot be read, has unknown fields, or a value out of bounds.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        own("the policy file", path)?;
        Self::read(path)
    }

    fn read(path: &Path) -> Result<Self, PolicyError> {
        // OPENS: root, who starts the daemon | root | it is root's, with all above it (`own`)
        let text = std::fs::read_to_string(path)
            .map_err(|source| PolicyError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, PolicyError> {
        let policy: Self = toml::from_str(text).map_err(|source| PolicyError::Parse {
            path: path.display().to_string(),
            source: Box::new(source),
        })?;
        policy.check().map_err(|source| PolicyError::Bounds { path: path.display().to_string(), source })?;
        Ok(policy)
    }

    fn check(&self) -> Result<(), SpecError> {
        if !(1..=LONGEST_FAULT.as_secs()).contains(&self.max_duration_seconds) {
            return Err(SpecError::new("max_duration_seconds", "give 1 to 3600"));
        }
        if !(1..=64).contains(&self.max_active) {
            return Err(SpecError::new("max_active", "give 1 to 64"));
        }
        if let Some(odd) = self.fault_paths.iter().find(|path| !is_plain(path)) {
            let problem =
                format!("{odd:?} is not the absolute path of a folder or file: give e.g. \"/srv/data\"");
            return Err(SpecError::new(FAULT_PATHS, problem));
        }
        if let Some(odd) = self.probe_kubeconfigs.iter().find(|path| !is_plain(path)) {
            let problem = format!(
                "{odd:?} is not the absolute path of a file: give e.g. \"/etc/chaos-daemon/kubeconfig\""
            );
            return Err(SpecError::new(PROBE_KUBECONFIGS, problem));
        }
        credentials::check(&self.probe_credentials)?;
        self.experiments.check()?;
        self.programs().map(|_| ())
    }

    /// Programs that probes may run.
    ///
    /// # Errors
    /// Names what is none; never of a policy that was read from a file.
    pub fn programs(&self) -> Result<Programs, SpecError> {
        Programs::parse(PROBE_COMMANDS, &self.probe_commands)
    }

    /// Decides whether `caller` may start `fault` while `active` faults are active.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn permit(&self, caller: Caller, fault: &Fault, active: usize) -> Result<Permit, ApiError> {
        let fault_type = fault.fault_type;
        self.check_user(caller)?;
        if !self.allows(fault_type) {
            return Err(denied(format!("{} is not allowed", fault_type.name()), "fault_types"));
        }
        if let (Some(allowed), Some(interface)) = (&self.interfaces, fault.effect.interface())
            && !allowed.contains(interface)
        {
            return Err(denied(format!("interface {interface:?} is not allowed"), "interfaces"));
        }
        if self.interfaces.is_some() && matches!(fault.effect, Effect::Sever { .. }) {
            let text = "packets of a service on every interface are not allowed: name one that is allowed";
            return Err(denied(text.to_owned(), "interfaces"));
        }
        if let Some(switch) = self.switched_off(fault_type) {
            return Err(denied(format!("{switch} is off unless it is allowed"), switch));
        }
        if matches!(&fault.effect, Effect::Hoard { what: Hoard::Oom { .. }, .. })
            && !self.allows(FaultType::ProcessKill)
        {
            return Err(denied("oom kills, and process_kill is not allowed".to_owned(), "fault_types"));
        }
        if let Effect::Files { failure, .. } | Effect::Sockets { failure, .. } = &fault.effect
            && failure.signal.is_some()
            && !self.allows(FaultType::ProcessKill)
        {
            let text = "a signal may kill, and process_kill is not allowed";
            return Err(denied(text.to_owned(), "fault_types"));
        }
        let longest = Duration::from_secs(self.max_duration_seconds);
        if fault.duration > longest {
            let asked = fault.duration.as_secs_f64();
            return Err(denied(
                format!("{asked} s is longer than the {} s allowed", longest.as_secs()),
                "max_duration_seconds",
            ));
        }
        if active >= self.max_active {
            return Err(ApiError::new(
                ErrorCode::LimitReached,
                format!("{active} faults are active, and the policy allows {}", self.max_active),
            )
            .hint("remove one first, or wait until one ends"));
        }
        let Self { protect, critical_interfaces, load_cidrs, fault_paths, fault_netns, .. } = self.clone();
        let protected = protect.clone();
        Ok(Permit { protected, protect, critical_interfaces, load_cidrs, fault_paths, fault_netns })
    }

    /// Decides whether `caller` may be told what a preview of a fault of one of these types would tell.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn may_look(&self, caller: Caller, previews: &[FaultType]) -> Result<(), ApiError> {
        self.check_user(caller)?;
        match previews.iter().any(|preview| self.allows(*preview)) {
            true => Ok(()),
            false => {
                let names: Vec<_> = previews.iter().map(|preview| preview.name()).collect();
                let text = format!("none of {} is allowed, which would tell as much", names.join(", "));
                Err(denied(text, "fault_types"))
            }
        }
    }

    /// Decides whether `caller` may have the program at `path` run by a probe.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn may_run(&self, caller: Caller, path: &str) -> Result<(), ApiError> {
        self.check_user(caller)?;
        match self.programs()?.contains(path) {
            true => Ok(()),
            false => Err(ApiError::new(
                ErrorCode::PolicyDenied,
                format!("{path:?} is not among the programs that probes may run"),
            )
            .hint(format!(
                "rule `{PROBE_COMMANDS}` of the daemon's policy file; only the operator changes it: \
                 {PROBE_COMMANDS} = [{path:?}]"
            ))),
        }
    }

    /// Decides whether a cluster may be asked by a probe of `caller` with the kubeconfig at `path`.
    ///
    /// # Errors
    /// The rule that forbids it, and what it would have to say.
    pub fn may_use(&self, caller: Caller, path: &str) -> Result<(), ApiError> {
        self.check_user(caller)?;
        match self.probe_kubeconfigs.contains(path) {
            true => Ok(()),
            false => Err(denied(
                format!(
                    "{path} may not be used unless the daemon's policy file has it: {PROBE_KUBECONFIGS} = [{path:?}]"
                ),
                PROBE_KUBECONFIGS,
            )),
        }
    }

    /// Decides whether an experiment of `caller` that says this of itself may begin `now`; returns the limits of this host that it has
    /// to stay within.
    ///
    /// # Errors
    /// The rule that forbids it, and what would be right.
    pub fn may_begin(
        &self,
        caller: Caller,
        has: &Precautions,
        now: Timestamp,
    ) -> Result<&HostLimits, ApiError> {
        self.check_user(caller)?;
        self.experiments.admit(has, now)?;
        Ok(&self.experiments.host_limits)
    }

    /// Decides whether `caller` may ask for anything that the policy decides on.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn check_user(&self, caller: Caller) -> Result<(), ApiError> {
        match (&self.uids, caller) {
            (Some(uids), Caller::Unix { uid, .. }) if uid != 0 && !uids.contains(&uid) => {
                Err(denied(format!("user id {uid} may not inject"), "uids"))
            }
            _ => Ok(()),
        }
    }

    /// The switch that has to be on for a type of fault, and is not; each has the name of its type.
    fn switched_off(&self, fault_type: FaultType) -> Option<&'static str> {
        let on = match fault_type {
            FaultType::ClockSkew => self.clock_skew,
            FaultType::HostReboot => self.host_reboot,
            FaultType::HostPanic => self.host_panic,
            _ => true,
        };
        (!on).then(|| fault_type.name())
    }

    fn allows(&self, fault_type: FaultType) -> bool {
        self.fault_types.as_ref().is_none_or(|allowed| allowed.contains(&FaultTypeName(fault_type)))
    }
}

fn denied(message: String, rule: &str) -> ApiError {
    ApiError::new(ErrorCode::PolicyDenied, message)
        .hint(format!("rule `{rule}` of the daemon's policy file; only the operator changes it"))
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed;
#[cfg(test)]
mod tests;
