//! Durations as people write them: `300ms`, `3m`, `1h 30m`, `0.5s`.

pub(super) use crate::spec::options::duration as parse;
pub(super) use crate::spec::units::show;
