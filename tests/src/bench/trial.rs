//! One trial of one way to block: from the call to the first packet that is lost, from the removal to the first that
//! gets through.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::probe::{Probe, first_lost, first_passed};
use super::processors::Processors;
use crate::{Error, Pair, Result};

/// Packets before and after.
const MARGIN: Duration = Duration::from_millis(15);
/// Between blocking and unblocking: what blocking started in the background is done by then.
const HOLD: Duration = Duration::from_millis(100);

/// A way to block, and to stop blocking.
pub(super) trait Way {
    /// What it is, for tables.
    fn name(&self) -> &'static str;
    /// Gets ready; not timed.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }
    /// Blocks.
    fn block(&mut self) -> Result<()>;
    /// Stops blocking.
    fn unblock(&mut self) -> Result<()>;
}

/// What one trial showed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// From the call to the first packet lost.
    pub(super) active: Duration,
    /// From the call to its return.
    pub(super) returned: Duration,
    /// From the removal to the first packet through.
    pub(super) removed: Duration,
}

/// Blocks and unblocks once, under fire.
pub(super) fn trial(way: &mut dyn Way, pair: &Pair, to: SocketAddr, processors: Processors) -> Result<Times> {
    way.prepare()?;
    let probe = Probe::start(pair, to, processors)?;
    std::thread::sleep(MARGIN);
    let called = Instant::now();
    let blocked = way.block();
    let returned = called.elapsed();
    std::thread::sleep(HOLD);
    let removing = Instant::now();
    // Also when blocking failed half way: nothing of it may stay.
    let unblocked = way.unblock();
    std::thread::sleep(MARGIN);
    let shots = probe.finish()?;
    blocked.and(unblocked)?;
    let missing = |what| Error::Different(format!("{}: {what} after the call", way.name()));
    let active = first_lost(&shots, called).ok_or_else(|| missing("no packet was lost"))?;
    let removed = first_passed(&shots, removing).ok_or_else(|| missing("no packet got through"))?;
    if called + active > removing {
        return Err(missing("packets were lost only once it was removed"));
    }
    Ok(Times { active, returned, removed })
}
