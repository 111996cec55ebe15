//! What `kills` measures of a kind of fault: how soon all is normal when it ends. Or why nothing is measured.

use super::aims::ToRequest;
use super::sign::Sign;
use crate::kernel::Attach;

/// The delay of a delaying fault, in milliseconds; what comes back within half of it was not delayed.
pub(crate) const DELAY_MS: u64 = 100;

/// A fault whose end is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// What it is called in figures, unless it is called after its type.
    pub(crate) name: Option<&'static str>,
    /// How the daemon is told to attach its programs.
    pub(crate) attach: Attach,
    /// Whether it takes a kernel with tcx.
    pub(crate) needs_tcx: bool,
    /// How it shows that it acts.
    pub(crate) sign: Sign,
    /// Its request.
    pub(crate) request: ToRequest,
}

/// Nothing: its guard ends what is supervised, which the crash matrix shows.
pub(super) const BY_ITS_GUARD: &[Ended] = &[];
/// Nothing: it would take this host down with whoever measures; the tests on systemd do so, in a VM.
pub(super) const TAKES_HOST_DOWN: &[Ended] = &[];
/// Nothing: what it does cannot be taken back.
pub(super) const NOT_TAKEN_BACK: &[Ended] = &[];

/// What shows by this sign.
pub(super) const fn ended(sign: Sign, request: ToRequest) -> Ended {
    Ended { name: None, attach: Attach::Auto, needs_tcx: false, sign, request }
}

/// What a process holds.
pub(super) const fn held(request: ToRequest) -> Ended {
    ended(Sign::Holder, request)
}

impl Ended {
    /// By another name than that of its type.
    pub(super) const fn called(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// By tcx alone.
    pub(super) const fn by_tcx(self) -> Self {
        Self { needs_tcx: true, ..self }
    }

    /// By the stub that there is without tcx.
    pub(super) const fn by_stub(self) -> Self {
        Self { attach: Attach::Clsact, ..self }
    }
}
