//! What the running kernel can do, as values. They are found out by `kernel::probe`, by trying.

use std::sync::{Arc, OnceLock};

use super::{KernelFiles, KernelSockets, Unusable};
use crate::spec::{Controller, Requirement};

/// What is found out when somebody asks for it: it takes its time, and few need it. What was found is kept; what was not is looked
/// for a second time at once, and again whenever somebody asks, for it may have been the memory of a moment that was missing.
#[derive(Debug)]
pub struct WhenAsked<T> {
    look: fn() -> Result<T, Lack>,
    found: OnceLock<T>,
}

impl<T> WhenAsked<T> {
    /// What `look` finds out.
    pub fn new(look: fn() -> Result<T, Lack>) -> Arc<Self> {
        Arc::new(Self { look, found: OnceLock::new() })
    }

    /// Finds it out, unless it is known. Blocks.
    ///
    /// # Errors
    /// What is missing.
    pub fn get(&self) -> Result<&T, Lack> {
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        let found = (self.look)().or_else(|_| (self.look)())?;
        Ok(self.found.get_or_init(|| found))
    }
}

/// What the running kernel can do.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Kernel release, as `uname -r`.
    pub release: String,
    /// Processors that this process may run on.
    pub processors: u32,
    /// tcx links (Linux 6.6).
    pub tcx: bool,
    /// Why packet programs cannot be loaded or attached; `None` when they can.
    pub packet_programs: Option<Unusable>,
    /// Why no veth pair can be made; `None` when one can.
    pub veth: Option<Unusable>,
    /// Why netem cannot be used; `None` when it can.
    pub netem: Option<Unusable>,
    /// Why control groups of version 2 cannot be used; `None` when they can.
    pub cgroup_v2: Option<String>,
    /// The controllers that they have not, and why.
    pub controllers: Vec<(Controller, Lack)>,
    /// Why processes cannot be traced; `None` when they can.
    pub tracing: Option<String>,
    /// Why descriptors of other processes cannot be taken; `None` when they can.
    pub descriptors: Option<String>,
    /// Whether rates can be changed while packets wait.
    pub htb: Arc<WhenAsked<()>>,
    /// Whether programs for control groups can be loaded.
    pub call_programs: Arc<WhenAsked<()>>,
    /// Whether programs for the packets of control groups can be loaded.
    pub sever_programs: Arc<WhenAsked<()>>,
    /// What programs at the security hooks of files have to know.
    pub files: Arc<WhenAsked<KernelFiles>>,
    /// Likewise of sockets.
    pub sockets: Arc<WhenAsked<KernelSockets>>,
    /// Why services cannot be stopped and started; `None` when they can.
    pub systemd: Option<String>,
    /// Why nothing can be written to `/proc/sysrq-trigger`; `None` when there is such a file.
    pub sysrq: Option<String>,
}

/// What is missing, and what would supply it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// Module, option or capability, by name, and what the kernel said.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl Lack {
    fn new(requirement: Requirement, reason: &str, remedy: &str) -> Self {
        Self { what: format!("{} ({reason})", requirement.name()), remedy: remedy.to_owned() }
    }

    /// That there are no control groups of version 2.
    pub fn of_cgroup_v2(reason: &str) -> Self {
        let remedy = "mount it: `mount -t cgroup2 none /sys/fs/cgroup`; systemd does so by default";
        Self::new(Requirement::CgroupV2, reason, remedy)
    }

    /// That there is no systemd to ask.
    pub fn of_systemd(reason: &str) -> Self {
        let remedy = "boot the host by systemd (`apt install systemd-sysv` and a reboot), with a message bus (`apt install dbus`, \
                      `systemctl start dbus.socket`)";
        Self::new(Requirement::Systemd, reason, remedy)
    }
}

impl Facts {
    /// What is missing for `requirement`; `None` when it is there.
    pub fn lack(&self, requirement: Requirement) -> Option<Lack> {
        let module = |found: &Option<Unusable>, options: &str| {
            found.as_ref().map(|why| {
                let name = requirement.name();
                let remedy = why.remedy(&name, options, &self.release);
                Lack { what: format!("{name} ({why})"), remedy }
            })
        };
        let because =
            |reason: &Option<String>, remedy| reason.as_ref().map(|why| Lack::new(requirement, why, remedy));
        match requirement {
            Requirement::PacketPrograms => {
                module(&self.packet_programs, "CONFIG_NET_CLS_BPF, CONFIG_CGROUP_BPF and CONFIG_BPF_SYSCALL")
            }
            Requirement::Veth => module(&self.veth, "CONFIG_VETH"),
            Requirement::Netem => module(&self.netem, "CONFIG_NET_SCH_NETEM"),
            Requirement::Htb => self.htb.get().err(),
            Requirement::CgroupV2 => self.cgroup_v2.as_ref().map(|reason| Lack::of_cgroup_v2(reason)),
            Requirement::Controller(needed) => {
                let lack = self.controllers.iter().find(|(lacking, _)| *lacking == needed);
                lack.map(|(_, lack)| lack.clone())
            }
            Requirement::Tracing => because(
                &self.tracing,
                "allow it: where `sysctl kernel.yama.ptrace_scope` says 3, boot without what sets that, for it holds until the next \
                 boot; in a unit, `SystemCallFilter=ptrace`",
            ),
            Requirement::CallPrograms => self.call_programs.get().err(),
            Requirement::SeverPrograms => self.sever_programs.get().err(),
            Requirement::FilePrograms => self.files.get().err(),
            Requirement::SocketPrograms => self.sockets.get().err(),
            Requirement::Descriptors => because(
                &self.descriptors,
                "run a kernel of 5.6 or newer; in a unit, allow it: `SystemCallFilter=pidfd_getfd`",
            ),
            Requirement::Systemd => self.systemd.as_ref().map(|reason| Lack::of_systemd(reason)),
            Requirement::SysRq => because(
                &self.sysrq,
                "run a kernel with CONFIG_MAGIC_SYSRQ, and mount /proc; no module has it",
            ),
        }
    }
}

#[cfg(test)]
impl Facts {
    /// A kernel that can do everything.
    pub fn of_everything() -> Self {
        Self {
            release: "6.1".into(),
            processors: 2,
            tcx: true,
            packet_programs: None,
            veth: None,
            netem: None,
            cgroup_v2: None,
            controllers: Vec::new(),
            tracing: None,
            descriptors: None,
            htb: WhenAsked::new(|| Ok(())),
            call_programs: WhenAsked::new(|| Ok(())),
            sever_programs: WhenAsked::new(|| Ok(())),
            files: WhenAsked::new(|| {
                Ok(KernelFiles {
                    file_open: 1,
                    file_permission: 2,
                    inode_create: 3,
                    mmap_file: 4,
                    inode_getattr: 5,
                    file_dentry: 6,
                    path_dentry: 7,
                    dentry_inode: 8,
                    dentry_parent: 9,
                })
            }),
            sockets: WhenAsked::new(|| {
                Ok(KernelSockets {
                    socket_bind: 1,
                    socket_listen: 2,
                    socket_accept: 3,
                    socket_sendmsg: 4,
                    socket_recvmsg: 5,
                    socket_sock: 6,
                    family: 7,
                    protocol: 8,
                    local_port: 9,
                    remote_port: 10,
                    remote_v4: 11,
                    remote_v6: 12,
                    message_name: 13,
                })
            }),
            systemd: None,
            sysrq: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn what_was_missing_is_looked_for_again_and_what_was_found_is_kept() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let missing = || Lack { what: "memory".into(), remedy: "wait".into() };
        let fact = WhenAsked::new(|| match ASKED.fetch_add(1, Ordering::Relaxed) {
            0..=2 => Err(Lack { what: "memory".into(), remedy: "wait".into() }),
            number => Ok(number),
        });
        assert_eq!(fact.get(), Err(missing()));
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
        assert_eq!((fact.get(), fact.get()), (Ok(&3), Ok(&3)));
        assert_eq!(ASKED.load(Ordering::Relaxed), 4);
    }
}
