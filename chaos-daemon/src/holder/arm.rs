//! Carrying out work: what every kind of it has to say of itself, and the one list of them.

use std::io;

use caps::Capability;
use ipnet::IpNet;

use crate::fault::Work;
use crate::host::privilege::LimitError;
use crate::host::{NetNs, NetNsError};
use crate::kernel::bpf::{BpfError, Programs};
use crate::kernel::netlink::NetlinkError;
use crate::kernel::node::StepError;
use crate::kernel::systemd::SystemdError;
use crate::kernel::trace::TraceError;
use crate::request::Evidence;

use super::protocol::Unreached;

/// One kind of work.
pub trait Arm {
    /// The capabilities that this work needs, and no other fault's.
    fn needed(&self) -> &'static [Capability];

    /// Carries the work out: from inert plumbing to the one write that arms it.
    ///
    /// # Errors
    /// Names the operation that failed; nothing of the work is left then.
    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError>;
}

/// What work is carried out with.
pub struct Means {
    /// Programs that are loaded already, when there are some.
    pub warm: Option<Programs>,
    /// The network namespace that the work is about.
    pub netns: Option<NetNs>,
    /// When it ends unless it is renewed, in boot-time nanoseconds.
    pub deadline_ns: u64,
}

impl Means {
    /// The network namespace, of work that is about one.
    ///
    /// # Errors
    /// When the order came without.
    pub fn netns(&self) -> Result<&NetNs, ArmError> {
        self.netns.as_ref().ok_or(ArmError::NoNamespace)
    }
}

/// What a holder holds while its fault is active. Dropping it takes the fault away.
pub trait Armed {
    /// Whether what the fault was applied to is still where it was. Most go with their target, or say themselves what has become of it.
    ///
    /// # Errors
    /// When it is not.
    fn check(&self) -> Result<(), ArmError> {
        Ok(())
    }

    /// Goes on until `deadline_ns`, in boot-time nanoseconds; 0 is the end. From then on nothing new is affected.
    ///
    /// # Errors
    /// When the deadline cannot be written; the fault then ends at the old one.
    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError>;

    /// Is about these peers from now on, if it is about peers. Those that stay are met all the time.
    ///
    /// # Errors
    /// When there is no room for them, or the kernel refuses.
    fn aim(&mut self, _peers: &[IpNet]) -> Result<(), ArmError> {
        Ok(())
    }

    /// Spares these peers, and these TCP ports of this node, and no others from now on, if it is in the way of packets.
    ///
    /// # Errors
    /// When there is no room for them, or the kernel refuses.
    fn spare(&mut self, _peers: &[IpNet], _tcp_ports: &[u16]) -> Result<(), ArmError> {
        Ok(())
    }

    /// What the fault has met so far.
    ///
    /// # Errors
    /// When the counters cannot be read.
    fn evidence(&self) -> Result<Evidence, ArmError>;

    /// Stops acting: from here on no new packet is affected.
    ///
    /// # Errors
    /// When the deadline cannot be written; it then ends by itself.
    fn disarm(&mut self) -> Result<(), ArmError> {
        self.renew(0)
    }

    /// Lets packets that are still queued out, for at most the longest delay they can have.
    ///
    /// # Errors
    /// When the queue cannot be read.
    fn drain(&self) -> Result<(), ArmError> {
        Ok(())
    }
}

/// The kind of this work.
pub fn kind_of(work: &Work) -> &dyn Arm {
    match work {
        Work::Packets(work) => work,
        Work::Loop(work) => work,
        Work::Cpu(work) => work,
        Work::Hoard(work) => work,
        Work::Calls(work) => work,
        Work::Sever(work) => work,
        Work::Files(work) => work,
        Work::Sockets(work) => work,
        Work::Settings(settings) => settings,
        Work::Flap(work) => work,
        Work::Signals(work) => work,
        Work::Pause(work) => work,
        Work::Restart(work) => work,
        Work::Spoil(work) => work,
        Work::Down(work) => work,
    }
}

/// Why work could not be carried out. Whatever had been done goes with the values that held it.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The order came without a namespace.
    #[error("the order names a device but brings no network namespace")]
    NoNamespace,
    /// The namespace cannot be entered or made.
    #[error("enter a network namespace")]
    Namespace(#[source] NetNsError),
    /// A packet program.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// A device, queue or filter.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// What was read back is not what was asked for.
    #[error("read back {subject}: asked for {asked}, found {found}")]
    ReadBack {
        /// What was read.
        subject: String,
        /// What it should be.
        asked: String,
        /// What it is.
        found: String,
    },
    /// The device has an "ingress" qdisc of somebody else's, where clsact would be.
    #[error("attach to the egress of {0}: an `ingress` qdisc is in the place of clsact; remove it first")]
    IngressOnly(String),
    /// The control group has gone since it was resolved.
    #[error("attach to cgroup {0}: it is gone")]
    NoCgroup(String),
    /// The file or folder cannot be opened, or is another by now.
    #[error("take hold of {path}")]
    Place {
        /// Its path.
        path: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// The control group cannot be opened.
    #[error("open cgroup {path}")]
    Cgroup {
        /// Its path.
        path: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// No runtime to talk to the kernel in.
    #[error("start a runtime for netlink")]
    Runtime(#[source] io::Error),
    /// A setting of the node.
    #[error(transparent)]
    Setting(#[from] StepError),
    /// Signals.
    #[error("send signals")]
    Signals(#[source] io::Error),
    /// Tracing processes.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Processes could not be stopped again, or a link not be set down or up again.
    #[error("{0}")]
    Rhythm(String),
    /// A restart.
    #[error(transparent)]
    Restart(#[from] SystemdError),
    /// A proxy.
    #[error("have a proxy spoil calls")]
    Spoil(#[source] io::Error),
    /// A countdown.
    #[error("count down")]
    Countdown(#[source] io::Error),
    /// Why the host is still there.
    #[error("{0}")]
    Down(String),
    /// A burning thread.
    #[error("start burning")]
    Burn(#[source] io::Error),
    /// Capabilities.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// What was to be taken.
    #[error("take and hold")]
    Hoard(#[source] io::Error),
}

impl ArmError {
    /// Why what the caller has named could not be reached, if that is it: only what is taken and held is reached as the caller.
    pub fn unreached(&self) -> Option<Unreached> {
        let Self::Hoard(error) = self else { return None };
        match error.kind() {
            io::ErrorKind::PermissionDenied => Some(Unreached::Denied),
            io::ErrorKind::NotFound => Some(Unreached::Gone),
            _ => None,
        }
    }
}
