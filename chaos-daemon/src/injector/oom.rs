//! What a fault that has the kernel kill finds, and who was killed: seen from outside the control group, because the holder may be
//! among them.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::affected::Place;
use crate::fault::Ground;
use crate::fault::oom::{Member, OomGround};
use crate::host::oom::{Books, Weight, killed};
use crate::host::supply::Memory;
use crate::host::{CgroupRef, ProcessId, Running, Spared};
use crate::request::{ApiError, Caller, ErrorCode};

/// How often it is looked whether the kernel has killed: sooner than a service manager takes away the group of a service that has
/// ended by it.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked who has gone since.
const LOOK_ON: Duration = Duration::from_millis(250);

/// Looks at the group and at who is in it.
///
/// # Errors
/// When the processes of this host cannot be read.
pub(super) fn look(group: Option<CgroupRef>, memory: Memory, caller: Caller) -> Result<Ground, ApiError> {
    let failed = |what: &str| ApiError::new(ErrorCode::InjectionFailed, format!("look at {what}"));
    let cgroup = group.ok_or_else(|| failed("the cgroup: none is named"))?;
    let all = Running::all().map_err(|error| failed(&format!("the processes of this host: {error}")))?;
    let place =
        Place::group(&cgroup).map_err(|error| failed(&format!("the place of the cgroup: {error}")))?;
    let spared = Spared::of(caller.process(), &all);
    let members = all.iter().filter(|process| place.has(process)).filter_map(|process| {
        let weight = Weight::of(process.id.pid)?;
        Some(Member { id: process.id, name: process.name.clone(), weight, vital: process.vital(&spared) })
    });
    let members = members.collect();
    let own = std::process::id().cast_signed();
    let holder = Weight::of(own).ok_or_else(|| failed("the memory of the daemon"))?;
    let books = Books::read(&cgroup.path);
    Ok(Ground::Oom(Box::new(OomGround { cgroup, books, memory, members, holder })))
}

/// A control group in which the kernel is to kill.
#[derive(Debug, Clone)]
pub(super) struct Doom {
    cgroup: CgroupRef,
    before: u64,
    inside: Vec<(ProcessId, String)>,
    kills: u64,
    /// When it is looked next, however often whoever waits for it is called away meanwhile.
    due: Instant,
}

impl Doom {
    /// Of a fault that has found this; `None` of any other.
    pub(super) fn of(ground: Option<&Ground>) -> Option<Self> {
        let Some(Ground::Oom(ground)) = ground else { return None };
        let inside = ground.members.iter().map(|member| (member.id, member.name.clone())).collect();
        let due = Instant::now() + LOOK;
        Some(Self { cgroup: ground.cgroup.clone(), before: ground.books.kills, inside, kills: 0, due })
    }

    /// Waits until it is time to look; for ever without anybody to look at.
    pub(super) async fn wait(doom: Option<&Self>) {
        match doom {
            Some(doom) => sleep_until(doom.due).await,
            None => std::future::pending().await,
        }
    }

    /// How many the kernel has killed, and who of those that were there has gone, for people; `None` as long as it has not.
    pub(super) fn look(&mut self) -> Option<(u64, String)> {
        // Of a group that has gone, what was seen last.
        let events = self.cgroup.open().ok().flatten().and_then(|group| group.read("memory.events").ok());
        let now = events.as_deref().and_then(killed);
        self.kills = now.map_or(self.kills, |now| now.saturating_sub(self.before));
        self.due = Instant::now() + if self.kills == 0 { LOOK } else { LOOK_ON };
        if self.kills == 0 {
            return None;
        }
        let gone = |(id, _): &&(ProcessId, String)| Running::read(id.pid).is_none_or(|now| now.id != *id);
        let gone: Vec<_> =
            self.inside.iter().filter(gone).map(|(id, name)| format!("{} ({name})", id.pid)).collect();
        let gone = if gone.is_empty() { "nobody yet".to_owned() } else { gone.join(", ") };
        let words = format!(
            "the OOM killer has struck in cgroup {} (oom_kill of its memory.events rose by {}); of those that were there, gone are {}",
            self.cgroup.path.display(),
            self.kills,
            gone
        );
        Some((self.kills, words))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{interval, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_looked_in_time_however_often_somebody_asks_meanwhile() {
        let cgroup = CgroupRef { path: "/nowhere".into(), id: 0 };
        let doom = Doom { cgroup, before: 0, inside: Vec::new(), kills: 0, due: Instant::now() + LOOK };
        let mut asked = interval(LOOK / 2);
        let looked = timeout(LOOK * 5, async {
            loop {
                tokio::select! {
                    biased;
                    _ = asked.tick() => {}
                    () = Doom::wait(Some(&doom)) => break,
                }
            }
        });
        assert!(looked.await.is_ok(), "called away every time, it never looked");
    }
}
