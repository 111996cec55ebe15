//! What a terminal shows while something goes on: cells, which [`canvas`] makes text of. Pure but for what the terminal is.

pub(super) mod bar;
pub(super) mod canvas;
pub(super) mod frame;
pub(super) mod gauges;
pub(super) mod happened;
pub(super) mod limits;
