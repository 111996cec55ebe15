//! fault (empty for now).
