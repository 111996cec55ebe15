//! target (empty for now).
