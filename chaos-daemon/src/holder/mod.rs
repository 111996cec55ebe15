//! holder (empty for now).
