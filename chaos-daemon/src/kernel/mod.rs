//! kernel (empty for now).
