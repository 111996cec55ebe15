//! server (empty for now).
