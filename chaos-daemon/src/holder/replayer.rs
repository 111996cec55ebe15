//! Replaying a trace: one thread that changes the queues of a detour from step to step. It goes on until it is told to let everything
//! out, or the value is dropped. It needs no lease: what it changes dies with this process, and takes no packets once the lease is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::runtime::Builder;

use super::arm::ArmError;
use crate::fault::Replay;
use crate::host::NetNs;
use crate::kernel::netlink::marks::NETEM_HANDLE;
use crate::kernel::netlink::{Device, Netem, Netlink, NetlinkError};
use crate::request::chain;

/// What is replayed, and where.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) replay: Replay,
    /// What netem does beside that.
    pub(super) base: Netem,
    /// The end with netem, and its namespace.
    pub(super) near: (Device, NetNs),
    /// The end with the rate, and its namespace.
    pub(super) far: (Device, NetNs),
}

/// A trace that is replayed.
#[derive(Debug)]
pub(super) struct Replayer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    /// Why it does not go on.
    failure: Mutex<Option<String>>,
}

impl Replayer {
    /// Goes on from the first step, which the queues have already.
    ///
    /// # Errors
    /// When there is no thread to be had, or no connection to the kernel.
    pub(super) fn start(scene: Scene) -> Result<Self, ArmError> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let begun = Instant::now();
        let play = move || {
            if let Err(error) = play(scene, begun, &of_thread.over) {
                let text = chain(&error);
                *of_thread.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
            }
        };
        let thread = thread::Builder::new().name("replay".into()).spawn(play).map_err(ArmError::Runtime)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Whether it goes on.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(&self) -> Result<(), ArmError> {
        match self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(failure) => Err(ArmError::Rhythm(failure)),
            None => Ok(()),
        }
    }

    /// Has everything that waits for its turn let out, and ends.
    pub(super) fn end(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // What one that has panicked leaves waiting is lost with the queue.
            drop(thread.join());
        }
    }
}

impl Drop for Replayer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Changes the queues when a step is over. Each time is reckoned from the beginning, so that lateness does not add up; what is missed
/// is left out.
fn play(scene: Scene, begun: Instant, over: &AtomicBool) -> Result<(), NetlinkError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(NetlinkError::Open)?;
    let Scene { replay, base, near: (near, target), far: (far, private) } = scene;
    let connect = async || Ok::<_, NetlinkError>((Netlink::open_in(target)?, Netlink::open_in(private)?));
    let (here, there) = runtime.block_on(connect())?;
    let mut current = replay.moments.first();
    while !over.load(Ordering::Acquire) {
        let (index, left) = replay.at(begun.elapsed());
        let next = replay.moments.get(index);
        if next == current {
            thread::park_timeout(left);
            continue;
        }
        if let (Some(was), Some(is)) = (current, next) {
            let netem = is.netem(&base);
            if netem != was.netem(&base) {
                runtime.block_on(here.change_root_netem(&near, NETEM_HANDLE, &netem))?;
            }
            if let Some(pace) = is.pace.filter(|pace| Some(*pace) != was.pace) {
                runtime.block_on(there.change_pace(&far, pace))?;
            }
        }
        current = next;
    }
    match replay.all_out() {
        Some(pace) => runtime.block_on(there.change_pace(&far, pace)),
        None => Ok(()),
    }
}
