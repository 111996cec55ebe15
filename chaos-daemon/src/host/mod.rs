//! host (empty for now).
