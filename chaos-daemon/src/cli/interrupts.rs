//! Ctrl-C and SIGTERM, which a command minds in its own way.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals; from its making on neither ends this process by itself.
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// # Errors
    /// When the system does not let them be caught.
    pub(super) fn new() -> Result<Self, String> {
        let caught = |kind| signal(kind).map_err(|error| format!("catching SIGINT and SIGTERM: {error}"));
        Ok(Self { interrupt: caught(SignalKind::interrupt())?, terminate: caught(SignalKind::terminate())? })
    }

    /// Waits for the next one, and names it.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
