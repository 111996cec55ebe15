//! The readers of what others have written, each as a function of bytes. cargo-fuzz looks for bytes that one of them does not
//! bear (`fuzz/`), and a unit test gives them what was found so far (`fuzz/corpus/`).
//!
//! Only builds for tests and those of cargo-fuzz have this module, and each `fuzzed` that a room has for it. It is no room.

mod memory;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use memory::peak_of;

/// Takes any bytes.
///
/// # Panics
/// When it does not do with them what it promises.
pub type Reader = fn(&[u8]);

/// Every reader, by the name of its target and of its corpus.
pub const READERS: &[(&str, Reader)] = &[
    ("btf", crate::host::btf::fuzzed::read),
    ("experiment", crate::experiment::fuzzed::read),
    ("ipc", ipc),
    ("journal", crate::journal::fuzzed::read),
    ("netlink", crate::kernel::netlink::fuzzed::read),
    ("policy", crate::policy::fuzzed::read),
    ("request", crate::mcp::fuzzed::read),
];

/// The most memory that one input may take, in bytes: as much as the server may, whatever callers do.
const MOST_MEMORY: usize = 256 << 20;
/// The most processor time.
const LONGEST: Duration = Duration::from_secs(1);

/// Has the reader of this name take these bytes.
///
/// # Panics
/// When it does, takes more than [`MOST_MEMORY`] or longer than [`LONGEST`], or there is none.
pub fn read(name: &str, bytes: &[u8]) {
    let Some((_, reader)) = READERS.iter().find(|(known, _)| *known == name) else {
        // Only in builds for tests and fuzzing, where a panic is the finding.
        panic!("there is no reader {name}")
    };
    within(MOST_MEMORY, LONGEST, || reader(bytes));
}

/// Does this.
///
/// # Panics
/// When it takes more than so much memory, in bytes, or processor time.
fn within(most: usize, longest: Duration, work: impl FnOnce()) {
    let start = processor_time();
    let peak = peak_of(work);
    let took = processor_time().saturating_sub(start);
    assert!(peak <= most, "it takes {peak} bytes, and may take {most}");
    assert!(took <= longest, "it takes {took:?} of the processor, and may take {longest:?}");
}

/// Time of the processor that this thread has had: how busy the machine is does not count.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// What the daemon's own processes say to each other.
fn ipc(bytes: &[u8]) {
    crate::request::wire::fuzzed::read(bytes);
    crate::request::line::fuzzed::read::<crate::probe::Probe, crate::probe::Sample>(bytes);
    crate::holder::protocol::fuzzed::read(bytes);
    stays_the_same::<crate::injector::runtime::Claimant>(bytes);
    stays_the_same::<crate::request::WentDown>(bytes);
}

/// Reads a value, if this is one, writes it, and reads that.
///
/// # Panics
/// When it is another value then.
pub(crate) fn stays_the_same<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    is_written_as_it_is(&value);
    Some(value)
}

/// Writes a value and reads that.
///
/// # Panics
/// When it is another value then.
#[expect(clippy::expect_used, reason = "what cannot be written, or read again, is what is looked for")]
pub(crate) fn is_written_as_it_is<T: Serialize + DeserializeOwned>(value: &T) {
    let text = serde_json::to_string(value).expect("a value that cannot be written");
    let again: T = serde_json::from_str(&text).expect("a value that cannot be read again");
    let again = serde_json::to_string(&again).expect("a value that cannot be written again");
    let [one, other]: [Value; 2] =
        [&text, &again].map(|text| serde_json::from_str(text).expect("what was written is no JSON"));
    assert!(are_alike(&one, &other), "written as {text}, and read as {again}");
}

/// Whether two values are the same. Of a number with a fraction the last digit does not count, in which `serde_json` may be wrong.
pub(crate) fn are_alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other
                || one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| {
                    (one - other).abs() <= one.abs().max(other.abs()) * 4.0 * f64::EPSILON
                })
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| are_alike(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| are_alike(one, other)))
        }
        _ => one == other,
    }
}

/// Says that two readings of the same are the same.
///
/// # Panics
/// When they are not.
pub(crate) fn agree<T: Debug + PartialEq>(one: &T, other: &T) {
    assert!(one == other, "read as {one:?}, and then as {other:?}");
}
