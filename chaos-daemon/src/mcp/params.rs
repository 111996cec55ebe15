//! The parameters of every fault type as JSON Schema, by what the types are about.

use chaos_common::dns::MOST_NAMES;
use serde_json::{Map, Value, json};

use crate::spec::answer::ERROR_ANSWERS;
use crate::spec::calls::CONNECT_ERRORS;
use crate::spec::dns::DNS_ANSWERS;
use crate::spec::files::{self, FILE_ERRORS};
use crate::spec::mcp::MOST_NAMED;
use crate::spec::sessions::{MOST_PER_SECOND, MOST_SESSIONS};
use crate::spec::settings::RESOURCES;
use crate::spec::sockets::{self, SOCKET_ERRORS};

/// Every parameter of every type. Which of them a type takes is checked when it is registered.
pub(super) fn properties() -> Value {
    let families = [packets(), resources(), processes(), calls(), connections(), mcp()];
    Value::Object(families.into_iter().filter_map(object).flatten().collect())
}

fn object(family: Value) -> Option<Map<String, Value>> {
    match family {
        Value::Object(properties) => Some(properties),
        _ => None,
    }
}

fn packets() -> Value {
    let answers: Vec<_> = ERROR_ANSWERS.iter().map(|(word, _)| word).chain(DNS_ANSWERS).collect();
    json!({
        "answer": {"type": "string", "enum": answers, "description": "error: what packets are answered with, default reset, which is for TCP only. dns_error: what questions are answered with: nxdomain (the default), servfail, refused, wrong_address, or timeout for nothing."},
        "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_NAMES, "description": "dns_error: about which names, e.g. \"db.example.org\", or \"*.example.org\" for all below it; default all. latency: of questions to name servers about these names alone."},
        "addresses": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2, "description": "dns_error: the wrong addresses, at most one of IPv4 and one of IPv6."},
        "delay_ms": {"type": "number", "description": "latency, packet_reorder: delay of each packet. mcp_error: of each answer."},
        "jitter_ms": {"type": "number", "description": "Variation, either way: of the delay (latency; with a distribution, its standard deviation; mcp_error), of the interval (process_kill), of pause and run (process_pause), of down and up (link_down)."},
        "distribution": {"type": "string", "enum": ["uniform", "normal", "pareto", "paretonormal"], "default": "uniform", "description": "latency: how the delay varies."},
        "correlation_percent": {"type": "number", "minimum": 0, "maximum": 99, "description": "How much each roll depends on the one before."},
        "loss_percent": {"type": "number", "minimum": 0, "maximum": 100, "description": "packet_loss: share of the packets that is lost."},
        "gilbert_elliott": {
            "type": "object", "description": "packet_loss, instead of loss_percent: a good and a bad state, as `loss gemodel` of tc-netem(8).",
            "properties": {
                "p": state("From good to bad, percent at each packet."),
                "r": state("From bad to good."),
                "one_minus_h": state("Loss in the bad state; default 100."),
                "one_minus_k": state("Loss in the good state; default 0."),
            },
            "required": ["p", "r"], "additionalProperties": false,
        },
        "four_state": {
            "type": "object", "description": "packet_loss, instead of loss_percent: bursts, as `loss state` of tc-netem(8).",
            "properties": {
                "p13": state("A burst begins, percent at each packet."),
                "p31": state("A burst ends."),
                "p32": state("A packet gets through within a burst; default 0."),
                "p23": state("The burst goes on after such a packet; default 100."),
                "p14": state("A packet is lost alone; default 0."),
            },
            "required": ["p13", "p31"], "additionalProperties": false,
        },
        "duplicate_percent": {"type": "number", "minimum": 0, "maximum": 100, "description": "packet_duplicate: share of the packets that is sent twice."},
        "corrupt_percent": {"type": "number", "minimum": 0, "maximum": 100, "description": "packet_corrupt: share of the packets of which a bit is turned over."},
        "reorder_percent": {"type": "number", "minimum": 0, "maximum": 100, "description": "packet_reorder: share of the packets that overtakes the others, which are late by delay_ms."},
        "gap": {"type": "integer", "minimum": 1, "default": 1, "description": "packet_reorder: every how many packets one may overtake."},
        "rate_kbit": {"type": "integer", "minimum": 8, "description": "bandwidth: thousands of bits per second."},
        "packet_rate": {"type": "integer", "description": "latency, packet_reorder: packets per second to make room for."},
        "packet_probability": {"type": "number", "minimum": 0, "maximum": 1, "description": "Share of the matching packets that is affected."},
    })
}

fn resources() -> Value {
    json!({
        "resource": {"type": "string", "enum": RESOURCES, "default": "cpu", "description": "resource_exhaustion: cpu is burned; memory, disk_fill, file_descriptors, pids, inodes and ports are taken and held; disk_io is a load; the limits are of a cgroup or unit."},
        "cpu_percent": {"type": "number", "minimum": 1, "description": "cpu: share of each core, or of the quota of the unit or cgroup, at most 100; cpu_limit: of one processor."},
        "cores": {"type": "integer", "minimum": 1, "description": "cpu: how many cores."},
        "processors": {"type": "string", "description": "cpu: which processors, e.g. \"0-1,3\", in place of cores."},
        "memory_mb": {"type": "number", "minimum": 1, "description": "memory: MiB to hold; memory_limit: MiB beyond which the cgroup is throttled."},
        "memory_percent": {"type": "number", "minimum": 1, "maximum": 100, "description": "memory: share of the host's memory, or of the limit of the unit or cgroup."},
        "reserve_mb": {"type": "number", "minimum": 64, "description": "memory: MiB that stay available on the host; default the larger of 512 and 10 %."},
        "oom": {"type": "boolean", "default": false, "description": "memory: in place of memory_mb, take memory of a unit or cgroup that has a limit until the kernel's OOM killer kills in it; needs process_kill to be allowed."},
        "ramp_seconds": {"type": "number", "minimum": 0, "maximum": 3600, "default": 0, "description": "cpu, memory, disk_fill, file_descriptors, pids, inodes, ports, connection_load: how long it takes until all of it is used."},
        "path": {"type": "string", "description": "disk_fill, inodes, disk_io: a directory of the file system. file_error: a file, or a directory with all below it."},
        "megabytes": {"type": "number", "minimum": 1, "description": "disk_fill: MiB to take."},
        "percent": {"type": "number", "minimum": 1, "maximum": 100, "description": "disk_fill: how full the file system gets."},
        "leave_free_mb": {"type": "number", "minimum": 0, "description": "disk_fill: MiB that stay free; default the less of 1024 and 5 %."},
        "count": {"type": "integer", "minimum": 1, "description": "file_descriptors, pids, inodes, ports: how many to hold."},
        "leave_free": {"type": "integer", "minimum": 256, "description": "file_descriptors: how many of the host's table stay free."},
        "address": {"type": "string", "description": "ports (default 0.0.0.0), port_in_use (default every one): of which address of this host."},
        "port_range": {"type": "string", "description": "ports: from 1024 on, e.g. \"20000-20999\"; default those for connections."},
        "size_mb": {"type": "number", "minimum": 1, "default": 64, "description": "disk_io: MiB of the file that is read and written."},
        "pids": {"type": "integer", "minimum": 1, "description": "pids_limit: most processes and threads."},
        "device": {"type": "string", "description": "io_limit: block device, e.g. \"sda\" or \"8:0\"."},
        "bytes_per_second": {"type": "integer", "minimum": 1024, "description": "io_limit: each way; disk_io: both ways together."},
        "read_bps": {"type": "integer", "minimum": 1024, "description": "io_limit, in place of bytes_per_second: bytes read per second. What is not limited stays as it is."},
        "write_bps": {"type": "integer", "minimum": 1024, "description": "io_limit, likewise: bytes written per second."},
        "read_iops": {"type": "integer", "minimum": 1, "description": "io_limit: reads per second."},
        "write_iops": {"type": "integer", "minimum": 1, "description": "io_limit: writes per second."},
        "countdown_seconds": {"type": "number", "minimum": 1, "maximum": 600, "default": 1, "description": "host_reboot, host_panic: how long after the injection it happens; a removal before that prevents it."},
        "forced": {"type": "boolean", "default": false, "description": "host_reboot: without stopping services first."},
        "sync": {"type": "boolean", "default": false, "description": "host_panic: put on disk first what programs have written."},
        "stay_down": {"type": "boolean", "default": false, "description": "host_panic: also where kernel.panic is 0, so that the host stays down until somebody resets it."},
        "offset_seconds": {"type": "number", "description": "clock_skew: by how much the clock is wrong, forwards or back."},
    })
}

fn calls() -> Value {
    let all = CONNECT_ERRORS.iter().chain(FILE_ERRORS).chain(SOCKET_ERRORS);
    let mut errors: Vec<_> = all.map(|(word, ..)| *word).collect();
    errors.sort_unstable();
    errors.dedup();
    let of_files = files::OPERATIONS.iter().map(|operation| operation.name());
    let of_sockets = sockets::OPERATIONS.iter().map(|operation| operation.name());
    let operations: Vec<_> = of_files.chain(of_sockets).collect();
    json!({
        "errno": {"type": "string", "enum": errors, "description": "connect_error, file_error, socket_error: what a call fails with; default connection_refused, io_error and no_buffer_space."},
        "operations": {"type": "array", "items": {"type": "string", "enum": operations}, "description": "Which calls fail; default all. file_error: of open, create, read, write, mmap; no kernel can fail fsync. socket_error: of bind, listen, accept, send, receive."},
        "call_probability": {"type": "number", "minimum": 0, "maximum": 1, "description": "connect_error, file_error, socket_error: share of the matching calls that fails. mcp_error: that any of it is about."},
        "after_calls": {"type": "integer", "minimum": 0, "description": "connect_error, file_error, socket_error: how many matching calls pass first."},
    })
}

fn connections() -> Value {
    json!({
        "url": {"type": "string", "description": "connection_load: tcp://ADDRESS:PORT, unix:/PATH, http://ADDRESS:PORT/PATH, mcp+http://ADDRESS:PORT/PATH or mcp+unix:/PATH, of this host."},
        "sessions": {"type": "integer", "minimum": 1, "maximum": MOST_SESSIONS, "description": "connection_load: how many to hold."},
        "connections_per_second": {"type": "integer", "minimum": 1, "maximum": MOST_PER_SECOND, "description": "connection_load, in place of sessions: how many to open and close."},
        "timeout_ms": {"type": "number", "minimum": 10, "maximum": 30_000, "default": 1000, "description": "connection_load: how long opening, and each answer, may take."},
    })
}

fn mcp() -> Value {
    let share = |what: &str| json!({"type": "number", "minimum": 0, "maximum": 1, "description": format!("mcp_error: share of the calls {what}")});
    let names = |what: &str| json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_NAMED, "description": format!("mcp_error: {what}")});
    json!({
        "delay_share": share("that delay_ms delays; default 1."),
        "fail": share("that is answered with an error, and never comes to the server."),
        "drop": share("whose answer never comes."),
        "truncate": share("whose answer is cut short."),
        "corrupt": share("whose answer has a wrong byte."),
        "methods": names("methods that meet it; default tools/call."),
        "tools": names("only calls of these tools; default all."),
    })
}

fn processes() -> Value {
    json!({
        "signal": {"type": "string", "description": "process_kill: name of the signal, e.g. \"SIGTERM\" (SIGKILL); file_error, socket_error: the signal that whoever makes the call is sent beside its error (none)."},
        "times": {"type": "integer", "minimum": 1, "description": "process_kill: how often, each time to those that match then; default 1. connect_error, file_error, socket_error: how many calls fail at most."},
        "interval_seconds": {"type": "number", "default": 5, "description": "process_kill: time between two volleys, if times is above 1."},
        "pause_ms": {"type": "number", "minimum": 1, "description": "process_pause: how long they stand still, in a rhythm."},
        "down_ms": {"type": "number", "minimum": 50, "description": "link_down: how long the link is down, in a rhythm (whose jitter target.seed chooses)."},
        "up_ms": {"type": "number", "minimum": 50, "description": "link_down: how long the link is up in between."},
        "run_ms": {"type": "number", "minimum": 1, "description": "process_pause: how long they run in between."},
    })
}

/// A number of percent within a model of loss.
fn state(description: &str) -> Value {
    json!({"type": "number", "minimum": 0, "maximum": 100, "description": description})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::parameters;

    #[test]
    fn the_schema_has_every_parameter_of_every_type_and_says_to_which_types_it_belongs() {
        let properties = object(properties()).unwrap();
        let mut names: Vec<_> = properties.keys().cloned().collect();
        names.sort_unstable();
        assert_eq!(names, parameters::all());
        for (name, property) in &properties {
            parameters::check_words(name, property["description"].as_str().unwrap());
        }
    }

    #[test]
    fn no_parameter_is_in_two_families() {
        let families = [packets(), resources(), processes(), calls(), connections(), mcp()];
        let sum: usize = families.into_iter().filter_map(object).map(|family| family.len()).sum();
        assert_eq!(sum, parameters::all().len());
    }
}
