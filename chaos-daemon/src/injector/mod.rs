//! injector (empty for now).
