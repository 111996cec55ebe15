//! Who may do what on this host: what the operator has written down, and the decisions that follow from it ([`decision`]).

pub mod approval;
mod credentials;
pub mod decision;
pub mod environment;
mod experiments;
pub mod export;
mod leave;
pub mod limits;
pub mod logs;
mod questions;
pub mod refusal;
pub mod roles;
pub mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::host::Open;
use crate::host::program::{Foreign, Programs, is_plain, own};
use crate::host::python::Python;
use crate::spec::ip::prefixes;
use crate::spec::origin::Origin;
use crate::spec::units::{LONGEST_FAULT, SpecError};
use crate::spec::{FaultType, HostLimits, NetNsRule, TargetRequest};

use approval::ApprovalRules;
pub use decision::{Asked, Intent};
use environment::{Environment, Markers};
pub use experiments::{ExperimentRules, SingleFaultRules};
use limits::Limits;
use logs::LogRule;
pub use refusal::{Refusal, Way};
use roles::Roles;
pub use roles::{Role, Who};
use times::Times;

/// The rule that names folders and files.
const FAULT_PATHS: &str = "fault_paths";
/// The rule that names programs.
const PROBE_COMMANDS: &str = "probe_commands";
/// The rule that names modules of Python.
const PROBE_PYTHON: &str = "probe_python.modules";
/// The rule that names kubeconfigs.
const PROBE_KUBECONFIGS: &str = "probe_kubeconfigs";
/// The table of limits of this host.
pub const HOST_LIMITS: &str = "host_limits";

/// What the operator allows, from a TOML file. Everything left out has the default shown by [`Policy::default`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// What this host is, e.g. "staging". In production nothing is injected, planned or probed. Default: not said, and then there are
    /// dry runs alone.
    pub environment: Option<Environment>,
    /// By what the name of a target is known to be production's. Default: the words production, prod and prd.
    pub production_markers: Markers,
    /// Names that are not production's although they have a marker. Default: none.
    pub not_production: BTreeSet<String>,
    /// Who has which role.
    pub roles: Roles,
    /// Fault types that may be injected. Default: all.
    pub fault_types: Option<BTreeSet<FaultTypeName>>,
    /// Interfaces that may be targets; with a list, no fault goes to the packets of a service on all of them. Default: all.
    pub interfaces: Option<BTreeSet<String>>,
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
    /// Modules of Python whose functions probes may call, and who runs them. Default: none.
    pub probe_python: Python,
    /// Kubeconfigs that probes may use, by their absolute paths. Default: none.
    pub probe_kubeconfigs: BTreeSet<String>,
    /// Files with credentials that probes may show, by their absolute paths, and to whom. Default: none.
    pub probe_credentials: BTreeMap<String, BTreeSet<Origin>>,
    /// When experiments and single faults may begin. Default: at any time.
    pub windows: Times,
    /// How much of this host may be used: beyond, no run begins, and one is ended. Default: no limit.
    pub host_limits: HostLimits,
    /// How much, how often and how far, for everybody and for each role. Default: no bound, but for what is forged.
    pub limits: Limits,
    /// What others have to approve of before it is begun. Default: nothing.
    pub approval: ApprovalRules,
    /// What experiments have to have. Default: nothing.
    pub experiments: ExperimentRules,
    /// Which of these rules hold for single faults. Default: all.
    pub single_faults: SingleFaultRules,
    /// Where a fault goes that names no target and needs one. Default: nowhere.
    pub default_target: Option<TargetRequest>,
    /// What of this host is open to faults that is closed by default.
    pub open: Open,
    /// Traffic that no fault touches, whatever its rule says.
    pub protect: Protected,
    /// The beginning of the SHA-256 of its text, by which one is told from another.
    #[serde(skip)]
    pub digest: String,
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
            environment: None,
            production_markers: Markers::default(),
            not_production: BTreeSet::new(),
            roles: Roles::default(),
            fault_types: None,
            interfaces: None,
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
            probe_python: Python::default(),
            probe_kubeconfigs: BTreeSet::new(),
            probe_credentials: BTreeMap::new(),
            windows: Times::default(),
            host_limits: HostLimits::default(),
            limits: Limits::default(),
            approval: ApprovalRules::default(),
            experiments: ExperimentRules::default(),
            single_faults: SingleFaultRules::default(),
            default_target: None,
            open: Open::default(),
            protect: Protected::default(),
            digest: digest(""),
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
    /// Of a plan: why the fault would be refused by itself now.
    pub refused_now: Option<String>,
    open: Open,
}

impl Permit {
    fn of(policy: &Policy, refused_now: Option<String>) -> Self {
        let Policy { protect, critical_interfaces, load_cidrs, fault_paths, fault_netns, open, .. } =
            policy.clone();
        let protected = protect.clone();
        Self {
            protected,
            protect,
            critical_interfaces,
            load_cidrs,
            fault_paths,
            fault_netns,
            open,
            refused_now,
        }
    }

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

    /// What of this host is open.
    pub fn open(&self) -> &Open {
        &self.open
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
    /// It says of the host something else than the command line.
    #[error(transparent)]
    Environment(#[from] SpecError),
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

    /// The same on a host that was said to be this as well, when the daemon was started.
    ///
    /// # Errors
    /// When the policy says something else.
    pub fn in_environment(self, named: Option<Environment>) -> Result<Self, SpecError> {
        match (&self.environment, named) {
            (Some(here), Some(named)) if *here != named => {
                let problem = format!(
                    "it is {:?} in the policy file and {:?} on the command line: say it once",
                    here.name(),
                    named.name()
                );
                Err(SpecError::new(environment::FIELD, problem))
            }
            (None, Some(named)) => Ok(Self { environment: Some(named), ..self }),
            _ => Ok(self),
        }
    }

    /// Reads a policy file, whoever could change it.
    ///
    /// # Errors
    /// When it cannot be read, has unknown fields, or a value out of bounds.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        // OPENS: root, who starts the daemon | root | it is root's, with all above it (`own`)
        let text = std::fs::read_to_string(path)
            .map_err(|source| PolicyError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, PolicyError> {
        let mut policy: Self = toml::from_str(text).map_err(|source| PolicyError::Parse {
            path: path.display().to_string(),
            source: Box::new(source),
        })?;
        policy.digest = digest(text);
        policy.check().map_err(|source| PolicyError::Bounds { path: path.display().to_string(), source })?;
        Ok(policy)
    }

    /// The first rule by which this policy gives more leave than `other` to a fault that has begun.
    pub fn exceeds(&self, other: &Self) -> Option<&'static str> {
        let more = |ours: &BTreeSet<String>, theirs: &BTreeSet<String>| !ours.is_subset(theirs);
        let loads = |prefix: &IpNet| other.load_cidrs.iter().any(|wider| wider.contains(prefix));
        let spares = |prefix: &IpNet| self.protect.cidrs.iter().any(|wider| wider.contains(prefix));
        let spares_port = |port: &u16| self.protect.tcp_ports.contains(port);
        [
            ("critical_interfaces", more(&self.critical_interfaces, &other.critical_interfaces)),
            (FAULT_PATHS, more(&self.fault_paths, &other.fault_paths)),
            ("fault_netns", !self.fault_netns.is_subset(&other.fault_netns)),
            ("load_cidrs", !self.load_cidrs.iter().all(loads)),
            ("protect.cidrs", !other.protect.cidrs.iter().all(spares)),
            ("open", self.open != other.open),
            ("protect.tcp_ports", !other.protect.tcp_ports.iter().all(spares_port)),
        ]
        .into_iter()
        .find_map(|(rule, exceeds)| exceeds.then_some(rule))
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
        self.probe_python.check("probe_python")?;
        credentials::check(&self.probe_credentials)?;
        self.windows.check()?;
        self.host_limits.check(HOST_LIMITS)?;
        self.open.check()?;
        self.limits.check()?;
        self.approval.check()?;
        self.programs().map(|_| ())
    }

    /// Programs that probes may run.
    ///
    /// # Errors
    /// Names what is none; never of a policy that was read from a file.
    pub fn programs(&self) -> Result<Programs, SpecError> {
        Programs::parse(PROBE_COMMANDS, &self.probe_commands)
    }
}

/// The first 16 hexadecimal digits of the SHA-256 of a text.
fn digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed;
#[cfg(test)]
mod tests;
