//! Sizes as people write them: `64KiB`, `16MiB`, or bytes.

/// Parses a number of bytes.
///
/// # Errors
/// When it is none, or more than can be counted.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => 0,
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(size) if factor > 0 => Ok(size),
        _ => {
            Err(format!("{text:?} is not a size: give a number of bytes, or one with KiB or MiB, e.g. 64KiB"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_bytes_or_has_a_unit_that_leaves_no_doubt() {
        for (text, bytes) in [("4096", 4096), ("64KiB", 65_536), (" 16 MiB", 16 << 20), ("0", 0), ("7B", 7)] {
            assert_eq!(parse(text).unwrap(), bytes, "{text}");
        }
        for bad in [
            "",
            "KiB",
            "64K",
            "64kB",
            "1.5MiB",
            "-1",
            "1 acre",
            "99999999999999999999",
            "18446744073709551615MiB",
        ] {
            assert!(parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
