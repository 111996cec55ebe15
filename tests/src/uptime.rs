//! How long the machine has been up.

use std::fs;

use crate::{Error, Result};

/// For how long, and for how long of that its processors had nothing to do, in seconds (proc(5)).
///
/// # Errors
/// When `/proc` does not say it.
pub fn uptime() -> Result<[f64; 2]> {
    let text = fs::read_to_string("/proc/uptime").map_err(Error::io("read", "/proc/uptime"))?;
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(up)), Some(Ok(idle))) => Ok([up, idle]),
        _ => Err(Error::Different(format!("/proc/uptime is {text:?}"))),
    }
}
