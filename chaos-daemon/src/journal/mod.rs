//! journal (empty for now).
