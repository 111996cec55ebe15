//! What a fault that has the kernel kill finds, and who was killed: seen from outside the control group, because the holder may be
//! among them.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::aside::on_a_thread;
use crate::fault::OomGround;
use crate::host::oom::killed;
use crate::host::{CgroupRef, ProcessId};

/// How often it is looked whether the kernel has killed: sooner than a service manager takes away the group of a service that has
/// ended by it.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked who has gone since.
const LOOK_ON: Duration = Duration::from_millis(250);
/// How long the last look may take: whoever reads of a group without memory may have to wait, and the fault has to end.
const LAST: Duration = Duration::from_secs(1);

/// A control group in which the kernel is to kill.
#[derive(Debug, Clone)]
pub(super) struct Doom {
    cgroup: CgroupRef,
    before: u64,
    inside: Vec<(ProcessId, String)>,
    kills: u64,
}

/// Who looks again and again at such a group, away from the loop.
#[derive(Debug)]
pub(super) struct Watch {
    news: mpsc::UnboundedReceiver<(u64, String)>,
    /// It goes on for as long as this is there, and looks once more then.
    goes_on: oneshot::Sender<()>,
}

impl Watch {
    /// How many the kernel has killed, and who has gone since, when there is something to tell; of no group, never.
    pub(super) async fn next(watch: Option<&mut Self>) -> (u64, String) {
        let told = match watch {
            Some(watch) => watch.news.recv().await,
            None => None,
        };
        match told {
            Some(told) => told,
            None => std::future::pending().await,
        }
    }

    /// The same of a last look, if there is something to tell, and that can be seen soon.
    pub(super) async fn last(self) -> Option<(u64, String)> {
        let Self { mut news, goes_on } = self;
        drop(goes_on);
        let all = async {
            let mut last = None;
            while let Some(told) = news.recv().await {
                last = Some(told);
            }
            last
        };
        timeout(LAST, all).await.ok().flatten()
    }
}

impl Doom {
    /// Of a fault that has found this.
    pub(super) fn of(ground: &OomGround) -> Self {
        let inside = ground.members.iter().map(|member| (member.id, member.name.clone())).collect();
        Self { cgroup: ground.cgroup.clone(), before: ground.books.kills, inside, kills: 0 }
    }

    /// Begins to look. Must be called within a `LocalSet`.
    pub(super) fn watch(self) -> Watch {
        let (tell, news) = mpsc::unbounded_channel();
        let (goes_on, mut over) = oneshot::channel();
        tokio::task::spawn_local(async move {
            let mut doom = self;
            loop {
                let pause = if doom.kills == 0 { LOOK } else { LOOK_ON };
                let is_over = tokio::select! {
                    _ = &mut over => true,
                    () = sleep(pause) => false,
                };
                let mut looks = doom.clone();
                let looked = on_a_thread(move || {
                    let told = looks.look();
                    (looks, told)
                });
                // Without a thread it is looked the next time.
                if let Ok((looked, told)) = looked.await {
                    doom = looked;
                    // Who has left meanwhile does not want to know.
                    told.map(|told| tell.send(told));
                }
                if is_over {
                    return;
                }
            }
        });
        Watch { news, goes_on }
    }

    /// How many the kernel has killed, and who of those that were there has gone, for people; `None` as long as it has not. Blocks:
    /// what is read of a group, and of a process in it, may have to wait for memory.
    fn look(&mut self) -> Option<(u64, String)> {
        // Of a group that has gone, what was seen last.
        let events = self.cgroup.open().ok().flatten().and_then(|group| group.read("memory.events").ok());
        let now = events.as_deref().and_then(killed);
        self.kills = now.map_or(self.kills, |now| now.saturating_sub(self.before));
        if self.kills == 0 {
            return None;
        }
        // By its first thread alone: what else there is to read of a process may wait for memory that it waits for itself.
        let gone = |(id, _): &&(ProcessId, String)| !id.runs();
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
    use tokio::task::LocalSet;
    use tokio::time::timeout;

    use super::*;
    use crate::waits::HANG;

    fn doom(path: &std::path::Path) -> Doom {
        Doom { cgroup: CgroupRef { path: path.to_owned(), id: 0 }, before: 0, inside: Vec::new(), kills: 0 }
    }

    #[tokio::test]
    async fn a_group_in_which_nobody_was_killed_has_no_news_also_at_the_end() {
        let local = LocalSet::new();
        let watched = local.run_until(async {
            let mut watch = doom("/nowhere".as_ref()).watch();
            assert!(timeout(LOOK * 5, Watch::next(Some(&mut watch))).await.is_err());
            watch.last().await
        });
        assert_eq!(timeout(HANG, watched).await.unwrap(), None);
        assert!(timeout(LOOK, Watch::next(None)).await.is_err());
    }
}
