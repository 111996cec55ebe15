//! How unit tests wait: for an event, with a limit that only a hang reaches.

use std::time::{Duration, Instant};

/// What takes so long hangs, however busy the machine is.
pub(crate) const HANG: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Looks until it is so.
///
/// # Panics
/// When it hangs.
#[track_caller]
pub(crate) fn wait_for(mut event: impl FnMut() -> bool) {
    let start = Instant::now();
    while !event() {
        assert!(start.elapsed() < HANG, "not within {HANG:?}");
        std::thread::sleep(LOOK);
    }
}

/// The same, while other tasks go on.
///
/// # Panics
/// When it hangs.
pub(crate) async fn see(mut event: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !event().await {
        assert!(start.elapsed() < HANG, "not within {HANG:?}");
        tokio::time::sleep(LOOK).await;
    }
}
