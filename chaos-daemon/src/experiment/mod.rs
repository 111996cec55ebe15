//! experiment (empty for now).
