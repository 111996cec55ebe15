//! What a fault is pinned to: what it acts on is known by an identity of the kernel's, which another one in its place does not have.

use super::work::{Match, Work};
use crate::host::CgroupRef;
use crate::kernel::setting::{LinkSetting, Setting};

impl Work {
    /// The control group whose packets, calls, processes or values it is about, if it is about one.
    pub fn group(&self) -> Option<&CgroupRef> {
        match self {
            Self::Calls(work) => Some(&work.callers.cgroup),
            Self::Sever(work) => Some(&work.callers.cgroup),
            Self::Sockets(work) => Some(&work.callers.cgroup),
            Self::Files(work) => Some(&work.cgroup),
            Self::Settings(settings) => settings.iter().find_map(|setting| match setting {
                Setting::Cgroup(setting) => Some(&setting.cgroup),
                Setting::Link(_) | Setting::Clock(_) | Setting::Service(_) => None,
            }),
            _ => self.packets().and_then(|packets| Some(&packets.service.as_ref()?.cgroup)),
        }
    }

    /// The units that it stops or has restarted, by the names that systemd knows them by.
    pub fn units(&self) -> impl Iterator<Item = &str> {
        let settings = match self {
            Self::Settings(settings) => settings.as_slice(),
            _ => &[],
        };
        let stopped = settings.iter().filter_map(|setting| match setting {
            Setting::Service(setting) => Some(setting.unit.as_str()),
            Setting::Cgroup(_) | Setting::Link(_) | Setting::Clock(_) => None,
        });
        let restarted = match self {
            Self::Restart(work) => Some(work.unit.as_str()),
            _ => None,
        };
        stopped.chain(restarted)
    }

    /// The network device that it is about, by its index and its name, if it is about one.
    pub fn device(&self) -> Option<(u32, &str)> {
        match self {
            Self::Packets(_) | Self::Loop(_) => {
                self.packets().map(|packets| (packets.ifindex, packets.interface.as_str()))
            }
            _ => self.link().map(|link| (link.ifindex, link.name.as_str())),
        }
    }

    /// The device that it sets down, if it does.
    pub fn link(&self) -> Option<&LinkSetting> {
        match self {
            Self::Settings(settings) => settings.iter().find_map(link),
            Self::Flap(work) => link(&work.setting),
            _ => None,
        }
    }

    /// The packets that it matches on a device.
    fn packets(&self) -> Option<&Match> {
        match self {
            Self::Packets(work) => Some(&work.packets),
            Self::Loop(work) => Some(&work.packets),
            _ => None,
        }
    }
}

fn link(setting: &Setting) -> Option<&LinkSetting> {
    match setting {
        Setting::Link(setting) => Some(setting),
        Setting::Cgroup(_) | Setting::Clock(_) | Setting::Service(_) => None,
    }
}
