//! What `tc` and `ip` do to an interface.

use super::meaning::Meaning;

/// What `tc` does: one kind of netem at the root of a device, which acts on what goes out.
pub(super) fn tc(words: &[&str]) -> Result<Meaning, String> {
    let ["qdisc", verb, rest @ ..] = words else {
        return Err("tc does something else than to set a qdisc".to_owned());
    };
    let Some(at) = rest.iter().position(|word| *word == "dev") else {
        return Err("tc names no device".to_owned());
    };
    let Some(device) = rest.get(at + 1) else { return Err("tc names no device".to_owned()) };
    let key = format!("tc {device}");
    match *verb {
        "del" | "delete" if rest.contains(&"root") => return Ok(Meaning::TakesBack(key)),
        "add" | "replace" | "change" => {}
        other => return Err(format!("tc qdisc {other} is not known here")),
    }
    let Some(kind) = rest.iter().position(|word| *word == "netem") else {
        return Err("only netem is known here: of a rate chaosctl inject bandwidth comes near".to_owned());
    };
    if !rest[..kind].contains(&"root") {
        return Err(
            "it is below a class of tc: name the peers or ports in the target of a fault instead".to_owned()
        );
    }
    let mut words = netem(&rest[kind + 1..])?;
    words.extend([
        "--interface".to_owned(),
        (*device).to_owned(),
        "--direction".to_owned(),
        "egress".to_owned(),
    ]);
    Ok(Meaning::Fault { words, lasts: None, key, note: None })
}

/// The words behind `netem`, tc-netem(8).
fn netem(words: &[&str]) -> Result<Vec<String>, String> {
    let odd = |word: &str| {
        format!("netem {word:?} is not known here, or beside what stands before it: give an action for each")
    };
    let (kind, rest) = words.split_first().ok_or("netem is told to do nothing")?;
    let numbers = rest.iter().copied().take_while(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let given: Vec<_> = numbers.collect();
    let after = &rest[given.len()..];
    let mut out = Vec::new();
    let mut option = |name: &str, value: String| out.extend([name.to_owned(), value]);
    let percent = |text: &&str| text.strip_suffix('%').unwrap_or(text).to_owned();
    match (*kind, given.as_slice()) {
        ("delay", [delay, more @ ..]) if more.len() <= 2 => {
            option("latency --delay", time(delay)?);
            if let Some(jitter) = more.first() {
                option("--jitter", time(jitter)?);
            }
            match after {
                [] | ["distribution", "uniform"] => {
                    if let Some(correlation) = more.get(1) {
                        option("--correlation-percent", percent(correlation));
                    }
                }
                // netem has no use for a correlation then.
                ["distribution", name @ ("normal" | "pareto" | "paretonormal")] => {
                    option("--distribution", (*name).to_owned());
                }
                [word, ..] => return Err(odd(word)),
            }
        }
        ("loss" | "duplicate" | "corrupt", [share, more @ ..]) if more.len() <= 1 => {
            if let Some(word) = after.first() {
                return Err(odd(word));
            }
            option(&format!("packet-{kind} --{kind}-percent"), percent(share));
            if let Some(correlation) = more.first() {
                option("--correlation-percent", percent(correlation));
            }
        }
        ("loss", []) if after.first() == Some(&"random") => {
            return netem(&[&["loss"][..], &after[1..]].concat());
        }
        _ => return Err(odd(kind)),
    }
    // The type of the fault stands before its first option.
    let first = out.remove(0);
    let words = first.split(' ').map(str::to_owned).chain(out);
    Ok(words.collect())
}

/// A time of tc(8). Without a unit it is microseconds to older versions of it, and nanoseconds to newer ones.
fn time(text: &str) -> Result<String, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok().ok_or_else(|| format!("{text:?} is no time"))?;
    let milliseconds = match &text[end..] {
        "s" | "sec" | "secs" => number * 1e3,
        "ms" | "msec" | "msecs" => number,
        "us" | "usec" | "usecs" => number / 1e3,
        "ns" | "nsec" | "nsecs" => number / 1e6,
        "" => {
            return Err(format!("{text} has no unit, which versions of tc read in two ways: give us or ms"));
        }
        other => return Err(format!("{other:?} is no unit of time")),
    };
    Ok(match milliseconds.fract() == 0.0 {
        true => format!("{milliseconds}ms"),
        false => format!("{}us", milliseconds * 1e3),
    })
}

/// What `ip` does: a device goes down, or up.
pub(super) fn ip(words: &[&str]) -> Result<Meaning, String> {
    let words: Vec<_> = words.iter().copied().filter(|word| *word != "dev").collect();
    match words.as_slice() {
        ["link", "set", device, "down"] => {
            Ok(Meaning::fault(&["link-down", "--interface", device], format!("link {device}")))
        }
        ["link", "set", device, "up"] => Ok(Meaning::TakesBack(format!("link {device}"))),
        _ => Err("ip does something else than to set a device down or up".to_owned()),
    }
}
