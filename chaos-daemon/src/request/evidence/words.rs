//! What faults have met, taken or done, in lines for people.

use super::{
    ConnectionEvidence, Connections, Evidence, Flaps, Met, Percentiles, Recovery, Seconds, Settings,
    Shortfall,
};
use crate::spec::FaultType;
use crate::spec::units;

/// In lines; without any while nothing is known. A fault's type says whether it meets calls or packets.
pub fn lines(evidence: &Evidence, fault_type: Option<FaultType>) -> Vec<String> {
    let line = match evidence {
        Evidence::Met(Met { matched, affected, protected }) => {
            let what = met_by(fault_type);
            format!("{what}s: {matched} matched, {affected} affected, {protected} protected")
        }
        Evidence::Burned(burned) => format!("CPU time burned: {}", show(burned.cpu_seconds)),
        Evidence::Flaps(Flaps { settings_held, link_downs }) => {
            let now = if *settings_held == 0 { "up" } else { "down" };
            format!("link set down {link_downs} times; {now} now")
        }
        Evidence::Settings(Settings { settings_held, times_held_back }) => {
            let times = times_held_back.map(|times| format!("; held its cgroup back {times} times"));
            format!("settings as the fault has set them: {settings_held}{}", times.unwrap_or_default())
        }
        Evidence::Connections(found) => return connections(found),
        Evidence::Oom(oom) => {
            let back = oom.back_after_seconds.map(|time| format!(", back after {}", show(time)));
            return vec![
                format!("holds {} MiB{}", oom.bytes_held >> 20, short(oom.shortfall)),
                format!("OOM killer: {} kills{}", oom.oom_kills, back.unwrap_or_default()),
            ];
        }
        Evidence::Memory(memory) => {
            let huge = match memory.bytes_on_huge_pages >> 20 {
                0 => String::new(),
                huge => format!(", of which {huge} MiB on huge pages"),
            };
            format!("holds {} MiB{huge}{}", memory.bytes_held >> 20, short(memory.shortfall))
        }
        Evidence::Room(room) => format!("holds {} MiB{}", room.bytes_held >> 20, short(room.shortfall)),
        Evidence::Things(things) => format!("holds {}{}", things.things_held, short(things.shortfall)),
        Evidence::Moved(moved) => {
            format!("bytes read and written: {}{}", moved.bytes_moved, short(moved.shortfall))
        }
        Evidence::Signals(signals) => {
            let recovery = &signals.recovery;
            let (sent, ended) = (signals.signals_sent, recovery.processes_ended);
            let of = if ended == 1 { "process" } else { "processes" };
            format!("signals: {sent} sent, {ended} {of} ended{}", times(recovery))
        }
        Evidence::Restart(recovery) => format!("restarted{}", times(recovery)),
        Evidence::Pauses(pauses) => {
            let (now, times) = (pauses.processes_paused, pauses.pauses);
            format!("processes standing still: {now}; made to {times} times")
        }
        Evidence::Down(down) if down.host_downs > 0 => "the host goes down".to_owned(),
        Evidence::Down(_) => "it can still be prevented".to_owned(),
        Evidence::Unknown(_) => return Vec::new(),
    };
    vec![line]
}

/// Why a fault was not seen to act, by its own figures.
pub fn why_idle(evidence: &Evidence, fault_type: FaultType) -> String {
    let what = met_by(Some(fault_type));
    let why = match evidence {
        Evidence::Met(Met { matched: 0, .. }) => return format!("no {what} matched its target"),
        Evidence::Met(Met { matched, protected, .. }) if protected >= matched => {
            return format!("all {matched} {what}s that matched are protected");
        }
        Evidence::Met(Met { matched, .. }) => {
            return format!("{matched} {what}s matched its target, and it acted on none of them");
        }
        Evidence::Burned(_) => "it had no processor time",
        Evidence::Flaps(_) => "the link was never down",
        Evidence::Settings(Settings { times_held_back: Some(_), .. }) => "nobody met its limit",
        Evidence::Settings(_) => "it holds no setting",
        Evidence::Connections(_) => "it opened no connection",
        Evidence::Oom(_) | Evidence::Memory(_) | Evidence::Room(_) => "it holds no byte",
        Evidence::Things(_) => "it holds none",
        Evidence::Moved(_) => "it moved no byte",
        Evidence::Signals(_) => "no process was sent a signal",
        Evidence::Restart(_) => "the service was not seen to end",
        Evidence::Pauses(_) => "no process stood still",
        Evidence::Down(_) => "the host did not go down",
        Evidence::Unknown(_) => "nobody knows what it met",
    };
    why.to_owned()
}

/// What a fault of this type meets.
fn met_by(fault_type: Option<FaultType>) -> &'static str {
    if fault_type.is_some_and(FaultType::fails_calls) { "call" } else { "packet" }
}

fn show(time: Seconds) -> String {
    units::show(time.0)
}

/// Why it is not more.
fn short(why: Option<Shortfall>) -> &'static str {
    match why {
        None => "",
        Some(Shortfall::Growing) => "; still growing",
        Some(Shortfall::Reserve) => "; no more, because what is left is the reserve",
        Some(Shortfall::Exhausted) => "; no more, because there is no more",
        Some(Shortfall::Lapsed) => "; given back, because the daemon stood still",
        Some(Shortfall::Struck) => "; given back, because the OOM killer has struck",
    }
}

/// What has become of the connections of a load, and how long they took.
fn connections(found: &Connections) -> Vec<String> {
    let ConnectionEvidence {
        opened,
        refused,
        timeouts,
        empty_answers,
        error_answers,
        lost,
        unopened,
        connect,
        first_byte,
        initialize,
    } = found.connections;
    let mut first = format!("connections: {} held, {opened} opened", found.things_held);
    for (count, name) in [
        (refused, "refused"),
        (timeouts, "timed out"),
        (empty_answers, "answered with nothing"),
        (error_answers, "answered with an error"),
        (lost, "ended by the server"),
        (unopened, "not to be opened from here"),
    ] {
        if count > 0 {
            first.push_str(&format!(", {count} {name}"));
        }
    }
    let took = [("connect", connect), ("first byte", first_byte), ("initialize", initialize)];
    let took = took.into_iter().filter_map(|(name, times)| {
        let Percentiles { p50, p90, p99 } = times?;
        let [p50, p90, p99] = [p50, p90, p99].map(f64::from);
        Some(format!("{name}: p50 {p50:.1} ms, p90 {p90:.1}, p99 {p99:.1}"))
    });
    std::iter::once(first).chain(took).collect()
}

/// `, gone after 3ms, back after 120ms`, as far as it is known.
fn times(recovery: &Recovery) -> String {
    let known = [("gone", recovery.gone_after_seconds), ("back", recovery.back_after_seconds)];
    let words = known.into_iter().filter_map(|(word, time)| Some(format!(", {word} after {}", show(time?))));
    words.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(evidence: Value) -> String {
        lines(&serde_json::from_value(evidence).unwrap(), Some(FaultType::ConnectError)).join("; ")
    }

    #[test]
    fn each_family_is_told_by_its_own_figures() {
        for (evidence, expected) in [
            (
                json!({"packets_matched": 3, "packets_affected": 2, "packets_protected": 1}),
                "calls: 3 matched, 2 affected, 1 protected",
            ),
            (json!({"cpu_seconds": 1.25}), "CPU time burned: 1s 250ms"),
            (json!({"settings_held": 1, "link_downs": 4}), "link set down 4 times; down now"),
            (json!({"settings_held": 1}), "settings as the fault has set them: 1"),
            (
                json!({"settings_held": 1, "times_held_back": 7}),
                "settings as the fault has set them: 1; held its cgroup back 7 times",
            ),
            (json!({"bytes_held": 8_u64 << 20, "shortfall": "growing"}), "holds 8 MiB; still growing"),
            (
                json!({"bytes_held": 8_u64 << 20, "bytes_on_huge_pages": 2_u64 << 20}),
                "holds 8 MiB, of which 2 MiB on huge pages",
            ),
            (
                json!({"bytes_held": 0, "oom_kills": 2, "back_after_seconds": 0.5, "shortfall": "struck"}),
                "holds 0 MiB; given back, because the OOM killer has struck; OOM killer: 2 kills, back after 500ms",
            ),
            (json!({"things_held": 20}), "holds 20"),
            (json!({"bytes_moved": 4096}), "bytes read and written: 4096"),
            (
                json!({"signals_sent": 2, "processes_ended": 2, "gone_after_seconds": 0.003, "nobody_came_back": false}),
                "signals: 2 sent, 2 processes ended, gone after 3ms",
            ),
            (
                json!({"processes_ended": 1, "gone_after_seconds": 0.01, "back_after_seconds": 2}),
                "restarted, gone after 10ms, back after 2s",
            ),
            (json!({"processes_paused": 1, "pauses": 3}), "processes standing still: 1; made to 3 times"),
            (json!({"host_downs": 0}), "it can still be prevented"),
            (json!({"host_downs": 1}), "the host goes down"),
            (json!({}), ""),
        ] {
            assert_eq!(of(evidence.clone()), expected, "{evidence}");
        }
    }

    #[test]
    fn a_load_is_told_by_what_became_of_its_connections() {
        let connections = json!({"opened": 7, "refused": 0, "timeouts": 2, "empty_answers": 0, "error_answers": 0,
            "lost": 0, "unopened": 0, "connect_ms": {"p50": 1, "p90": 2.25, "p99": 3}});
        assert_eq!(
            of(json!({"things_held": 5, "connections": connections})),
            "connections: 5 held, 7 opened, 2 timed out; connect: p50 1.0 ms, p90 2.2, p99 3.0"
        );
    }

    #[test]
    fn a_fault_that_was_not_seen_to_act_says_why_by_its_own_figures() {
        let met = |matched, protected| Evidence::Met(Met { matched, affected: 0, protected });
        for (evidence, expected) in [
            (met(0, 0), "no packet matched its target"),
            (met(4, 4), "all 4 packets that matched are protected"),
            (met(4, 1), "4 packets matched its target, and it acted on none of them"),
            (
                Evidence::Settings(Settings { settings_held: 1, times_held_back: Some(0) }),
                "nobody met its limit",
            ),
            (Evidence::default(), "nobody knows what it met"),
        ] {
            assert_eq!(why_idle(&evidence, FaultType::NetworkPartition), expected);
        }
        assert_eq!(why_idle(&met(0, 0), FaultType::ConnectError), "no call matched its target");
    }
}
