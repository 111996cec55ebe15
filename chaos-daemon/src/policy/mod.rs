//! policy (empty for now).
