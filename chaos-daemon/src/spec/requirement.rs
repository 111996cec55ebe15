//! What faults need of the kernel.

/// Something that a fault needs of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// Loading and attaching packet programs.
    PacketPrograms,
    /// Virtual device pairs (`veth`).
    Veth,
    /// The delay queue (`sch_netem`).
    Netem,
    /// The queue whose rate can be changed while packets wait (`sch_htb`).
    Htb,
    /// Control groups, version 2.
    CgroupV2,
    /// A controller in it.
    Controller(Controller),
    /// Tracing processes of others.
    Tracing,
    /// Loading programs that look at what the sockets of a control group ask for.
    CallPrograms,
    /// Loading programs that lose packets of a control group's sockets.
    SeverPrograms,
    /// Loading programs at the security hooks of files, and being asked there.
    FilePrograms,
    /// Likewise of sockets.
    SocketPrograms,
    /// Taking descriptors of other processes.
    Descriptors,
    /// The service manager of the host.
    Systemd,
    /// Having the kernel panic by a key of its debugger.
    SysRq,
}

impl Requirement {
    /// What is asked for, by its name in the kernel; what is missing is called the same.
    pub fn name(self) -> String {
        let name = match self {
            Self::PacketPrograms => "cls_bpf",
            Self::Veth => "veth",
            Self::Netem => "sch_netem",
            Self::Htb => "sch_htb",
            Self::CgroupV2 => "cgroup2",
            Self::Controller(controller) => return format!("the cgroup controller {}", controller.name()),
            Self::Tracing => "ptrace",
            Self::CallPrograms => "programs of control groups that set what a call returns",
            Self::SeverPrograms => "programs of control groups that see packets",
            Self::FilePrograms | Self::SocketPrograms => "`bpf` among the kernel's security modules",
            Self::Descriptors => "pidfd_getfd",
            Self::Systemd => "systemd",
            Self::SysRq => "CONFIG_MAGIC_SYSRQ",
        };
        name.to_owned()
    }
}

/// What limits a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Processor time.
    Cpu,
    /// Memory.
    Memory,
    /// Processes and threads.
    Pids,
    /// Bandwidth of block devices.
    Io,
}

impl Controller {
    /// The name in `cgroup.controllers`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Io => "io",
        }
    }
}
