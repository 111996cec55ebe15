//! cli (empty for now).
