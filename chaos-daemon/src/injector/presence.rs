//! Whether what a fault is pinned to is there still. A target that has gone takes nothing of the fault along. Programs and settings of
//! ours go on, on nobody, while another target of the same name is served as if there were no fault.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::aside::on_a_thread;
use crate::host::netns::NAMED;
use crate::host::{CgroupRef, Interface, NetNs, NetNsIdentity, ProcessId, Spared};
use crate::target::{Entrance, cgroup};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);
/// Every how many looks it is looked who is in the control group.
const WHO: u32 = 5;
/// How long a look may take for whom a fault waits that has to end.
const AT_ONCE: Duration = Duration::from_millis(300);

/// What a fault is pinned to.
#[derive(Debug, Default)]
pub(super) struct Pins {
    /// The control group.
    pub(super) group: Option<CgroupRef>,
    /// The device.
    pub(super) device: Option<Device>,
    /// Whom the fault has to spare, also who comes into the control group later.
    pub(super) spared: Option<Spared>,
}

/// A network device, and where it is.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) name: String,
    /// The network namespace; its name, as the caller gave it, and as whom it is opened. `None` is the daemon's own.
    pub(super) netns: Option<(String, NetNsIdentity, Entrance)>,
}

/// Who looks again and again, away from the loop, until nobody wants to know.
#[derive(Debug)]
pub(super) struct Watch {
    pins: Arc<Pins>,
    news: mpsc::Receiver<String>,
}

impl Watch {
    /// What has gone, once something has.
    pub(super) async fn lost(&mut self) -> String {
        match self.news.recv().await {
            Some(lost) => lost,
            None => std::future::pending().await,
        }
    }

    /// The same of a look at this moment, if it does not take long: whoever asks has a fault to end.
    pub(super) async fn lost_now(&self) -> Option<String> {
        timeout(AT_ONCE, look(&self.pins)).await.ok().flatten()
    }
}

impl Pins {
    /// Begins to look. Must be called within a `LocalSet`.
    pub(super) fn watch(self) -> Watch {
        let (tell, news) = mpsc::channel(1);
        let pins = Arc::new(self);
        if pins.group.is_some() || pins.device.is_some() {
            let pins = Arc::clone(&pins);
            spawn_local(async move {
                // Who was seen in the group and is protected.
                let mut seen = None;
                for turn in 1_u32.. {
                    tokio::select! {
                        () = sleep(LOOK) => {}
                        () = tell.closed() => return,
                    }
                    let mut lost = look(&pins).await;
                    if lost.is_none() && (turn.is_multiple_of(WHO) || seen.is_some()) {
                        lost = intruder(&pins, &mut seen).await;
                    }
                    if let Some(lost) = lost {
                        // Whoever has left meanwhile does not want to know.
                        let _ = tell.send(lost).await;
                        return;
                    }
                }
            });
        }
        Watch { pins, news }
    }

    /// What has gone, for people. What cannot be looked at is not taken for gone. Blocks.
    fn lost(&self) -> Option<String> {
        let group = self.group.as_ref().and_then(lost_group);
        let lost = group.or_else(|| self.device.as_ref().and_then(Device::lost))?;
        Some(format!("its target has gone: {lost}"))
    }
}

/// Who has come into the control group that has to be spared, once it is `seen` twice: what a service manager starts is its own program
/// for a moment.
async fn intruder(pins: &Arc<Pins>, seen: &mut Option<ProcessId>) -> Option<String> {
    let pins = Arc::clone(pins);
    let looked = on_a_thread(move || {
        let (group, spared) = pins.group.as_ref().zip(pins.spared.as_ref())?;
        // What cannot be looked at is looked at again.
        cgroup::intruder(group, spared).ok().flatten()
    });
    let (id, words) = match looked.await.ok().flatten() {
        Some(found) => found,
        None => {
            *seen = None;
            return None;
        }
    };
    (seen.replace(id) == Some(id)).then_some(words)
}

/// What has gone. Without a thread to look it is looked the next time.
async fn look(pins: &Arc<Pins>) -> Option<String> {
    let pins = Arc::clone(pins);
    on_a_thread(move || pins.lost()).await.ok().flatten()
}

fn lost_group(group: &CgroupRef) -> Option<String> {
    match group.open() {
        Ok(None) => Some(format!("cgroup {} is gone, or is another one now", group.path.display())),
        Ok(Some(_)) | Err(_) => None,
    }
}

impl Device {
    fn lost(&self) -> Option<String> {
        let Self { index, name, netns } = self;
        let (place, opened) = match netns {
            None => (String::new(), NetNs::current().ok()?),
            Some((netns, id, entrance)) => {
                let Some(opened) = find(netns, *id, entrance).ok()? else {
                    return Some(format!("network namespace {netns} is gone, or is another one now"));
                };
                (format!(" of network namespace {netns}"), opened)
            }
        };
        match opened.inside(|| Interface::is_here(*index)) {
            Ok(false) => Some(format!("interface {name}{place} is not there any more")),
            Ok(true) | Err(_) => None,
        }
    }
}

/// The namespace of this identity: by its name, or by who is in it. `None` when another one has the name, or none has and nobody is
/// in it.
fn find(name: &str, id: NetNsIdentity, entrance: &Entrance) -> io::Result<Option<NetNs>> {
    let by_process = name.starts_with("/proc/");
    match entrance.open(name) {
        Ok(opened) if opened.identity().map_err(io::Error::other)? == id => Ok(Some(opened)),
        // Another one has the name, which is the one that is meant now. The number of a process that has ended means nobody.
        Ok(_) if !by_process => Ok(None),
        Ok(_) => inhabited(id),
        // Without its name, or the process by which it was named, others may be in it still.
        Err(_) => match fs::symlink_metadata(Path::new(NAMED).join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => inhabited(id),
            other => Err(other.err().unwrap_or_else(|| io::ErrorKind::PermissionDenied.into())),
        },
    }
}

/// A network namespace, by any process in it but those of the daemon; `None` when there is nobody else.
fn inhabited(id: NetNsIdentity) -> io::Result<Option<NetNs>> {
    // The text of the link alone: the file system that the program is on may not answer.
    let program = |folder: &Path| fs::read_link(folder.join("exe")).ok();
    let ours = program(Path::new("/proc/self"));
    for entry in fs::read_dir("/proc")? {
        let folder = entry?.path();
        let is_in = fs::metadata(folder.join("ns/net")).is_ok_and(|found| found.ino() == id.inode);
        if !is_in || (ours.is_some() && program(&folder) == ours) {
            continue;
        }
        match NetNs::at(&folder.join("ns/net")) {
            Ok(opened) if opened.identity().map_err(io::Error::other)? == id => return Ok(Some(opened)),
            // It has left meanwhile, or ended.
            Ok(_) => {}
            Err(error) if error.has_gone() => {}
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_folder_that_is_made_anew_under_the_same_name_is_another_group() {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("shop");
        fs::create_dir(&path).unwrap();
        let group = CgroupRef::find(&path).unwrap();
        let pins = Pins { group, ..Pins::default() };
        assert_eq!(pins.lost(), None);
        // So that its inode is not given to the next.
        fs::rename(&path, folder.path().join("old")).unwrap();
        let lost = pins.lost().unwrap();
        assert!(lost.contains("shop is gone"), "{lost}");
        fs::create_dir(&path).unwrap();
        assert_eq!(pins.lost(), Some(lost));
    }

    #[test]
    fn a_device_that_is_there_is_not_gone_and_one_that_never_was_is() {
        let device = |index| Device { index, name: "x0".into(), netns: None };
        let here = Interface::find_here("lo").unwrap().unwrap();
        assert_eq!(device(here.index).lost(), None);
        assert_eq!(device(u32::MAX >> 1).lost().as_deref(), Some("interface x0 is not there any more"));
    }

    #[test]
    fn a_namespace_is_gone_with_its_name_or_when_nobody_is_in_it() {
        let id = NetNs::current().unwrap().identity().unwrap();
        let entrance =
            || Entrance::new(crate::request::Caller::Unix { uid: 0, gid: 0, pid: 1 }, &BTreeSet::new());
        let device = |netns: &str, id| Device {
            index: 1,
            name: "lo".into(),
            netns: Some((netns.into(), id, entrance())),
        };
        let nobody = NetNsIdentity { inode: 1, ..id };
        for name in ["no-such-name", "/proc/2147483647/ns/net"] {
            let lost = device(name, nobody).lost().unwrap();
            assert!(lost.contains(&format!("{name} is gone")), "{lost}");
            assert_eq!(device(name, id).lost(), None, "whoever has started this test is in it");
        }
    }
}
