//! Whatever is in a journal, every whole line of it counts or is told of, and what counts is written as it was read.

use super::{BootId, DownRecord, Event, Found, VERSION, line};
use crate::fuzzing::{agree, stays_the_same};

pub(crate) fn read(bytes: &[u8]) {
    record(bytes);
    let Ok(boot) = serde_json::from_value::<BootId>("this-boot".into()) else { return };
    let found = Found::of(bytes, &boot);
    let whole = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let lines: Vec<_> = whole.map(|line| &line[..line.len() - 1]).filter(|line| !line.is_empty()).collect();
    let events: Vec<Event> = lines.iter().filter_map(|line| line::event(line).ok()).collect();
    if found.of_this_boot {
        agree(&(events.len() + found.unclear.len()), &lines.len());
        agree(&found.not_understood().is_some(), &!found.unclear.is_empty());
    } else {
        assert!(!found.is_supervised() && found.unclear.is_empty(), "what is void is not told of");
    }
    assert!(found.remedy().contains(VERSION));
    let _shown: Vec<_> = found.steps.iter().map(ToString::to_string).collect();
    // A last line without a newline may count as well: whoever goes on with the file drops it, and its object was never made.
    let last = bytes.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let events: Vec<Event> = events.into_iter().chain(line::event(last).ok()).collect();
    again(&found, &events, &boot);
}

/// Writes the events as a journal is written, and reads that.
fn again(found: &Found, events: &[Event], boot: &BootId) {
    let lines = events.iter().filter_map(|event| serde_json::to_string(event).ok());
    let text: String = lines.map(|line| line + "\n").collect();
    let again = Found::of(text.as_bytes(), boot);
    agree(&found.steps, &again.steps);
    agree(&found.fault, &again.fault);
    agree(&found.ending, &again.ending);
    assert!(again.unclear.is_empty(), "{:?}", again.unclear);
}

/// What is written down before the host goes down.
fn record(bytes: &[u8]) {
    let Some(record) = stays_the_same::<DownRecord>(bytes) else { return };
    for boot in [&record.boot, record.back.as_ref().map_or(&record.boot, |back| &back.boot)] {
        let _found = record.judge(boot, record.at, record.at);
    }
}
