//! The reader of this name; see `chaos-daemon/src/fuzzing/mod.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chaos_daemon::fuzzing::read(env!("CARGO_BIN_NAME"), bytes));
