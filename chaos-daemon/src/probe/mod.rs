//! probe (empty for now).
