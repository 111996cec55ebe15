//! What is more than one value said once: faults that are carried out, what changes meanwhile, what is not closed, and lines that are
//! no calls.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use chaos_daemon::spec::FaultType;
use serde_json::{Value, json};

use super::flood::{Figures, stop};
use super::said::{Came, Said, Tried};
use super::stage::Stage;
use super::values::{Names, texts};
use super::walk::{document, fault};
use crate::error::{Error, Result};
use crate::pair::INTERFACE;
use crate::process::linger;

/// A case, by name.
pub(super) type Case = (&'static str, fn(&Stage) -> Result<Tried>);

pub(super) const CASES: &[Case] = &[
    ("lines that are no calls", lines),
    ("what faults are told to open", opened),
    ("mounts, and what looks like a proxy", super::impostor::tried),
    ("a link that changes while it is followed", links),
    ("a fault that is removed while it is injected", removals),
    ("a registration that is replaced while it is injected", replacements),
    ("the number of a process that is another's by now", super::numbers::reused),
    ("refusals without end", super::messages::refused),
    ("looks that are cancelled", cancelled),
    ("connections that are not closed", idle),
    ("as many registrations as are taken", registrations),
    ("the daemon's environment", environment),
];

/// Which parameters of faults name something to be opened or connected to.
const OPENED: [(FaultType, &str); 4] = [
    (FaultType::ConnectionLoad, "url"),
    (FaultType::ResourceExhaustion, "path"),
    (FaultType::FileError, "path"),
    (FaultType::PortInUse, "address"),
];

/// Injects a fault of each value of the table that it takes. Each goes nowhere but where the value leads.
fn opened(stage: &Stage) -> Result<Tried> {
    let (mut tried, names) = (Tried::default(), stage.names());
    let mut said = Said::open(stage, &stage.strangers[0])?;
    for resource in ["disk_fill", "inodes", "disk_io"] {
        for (kind, parameter) in OPENED {
            // Only exhaustion has resources.
            if kind != FaultType::ResourceExhaustion && resource != "disk_fill" {
                continue;
            }
            for value in texts(&names).into_iter().chain(more_places(&names)) {
                let value: Value = serde_json::from_slice(&value.bytes).unwrap_or_default();
                let mut whole = fault(kind, &stage.known());
                if kind == FaultType::ResourceExhaustion {
                    let much = match resource {
                        "disk_fill" => json!({"megabytes": 1, "leave_free_mb": 0}),
                        "inodes" => json!({"count": 1}),
                        _ => json!({"bytes_per_second": 4096, "size_mb": 1}),
                    };
                    whole["params"] = much;
                    whole["params"]["resource"] = json!(resource);
                }
                whole["params"][parameter] = value.clone();
                let what = || format!("{} {resource} {parameter} = {value}", kind.name());
                carry_out(stage, &mut said, whole, &mut tried, what)?;
            }
        }
    }
    Ok(tried)
}

/// Places that only a fault can be led to.
fn more_places(names: &Names) -> Vec<super::values::Hostile> {
    let Names { roots, own, .. } = names;
    let urls = [
        format!("unix:{roots}/closed/socket"),
        format!("mcp+unix:{roots}/socket"),
        format!("unix:{own}/way/socket"),
        format!("unix:{roots}/../{}/socket", roots.rsplit('/').next().unwrap_or_default()),
        format!("{own}/way"),
        format!("{roots}/closed/../closed"),
    ];
    let place = super::values::Place::Text;
    let line = |text: String| super::values::Hostile {
        what: "a place",
        place,
        bytes: json!(text).to_string().into(),
    };
    urls.into_iter().map(line).collect()
}

/// Registers a fault, injects it, sees what the daemon has open, and removes it.
pub(super) fn carry_out(
    stage: &Stage,
    said: &mut Said<'_>,
    mut whole: Value,
    tried: &mut Tried,
    what: impl Fn() -> String,
) -> Result<()> {
    whole["action"] = json!("register");
    let answer = said.call("chaos_inject_fault", whole.to_string().as_bytes())?;
    if tried.count(&what, answer.as_ref()) != Came::Served {
        return Ok(());
    }
    let act = |action: &str| json!({"fault_name": "hostile", "action": action}).to_string();
    let answer = said.call("chaos_inject_fault", act("inject").as_bytes())?;
    if tried.count(&what, answer.as_ref()) == Came::Served {
        for open in open_of_roots(stage) {
            tried.effects.push(format!("{}: {open}", what()));
        }
    }
    said.call("chaos_inject_fault", act("remove").as_bytes())?;
    Ok(())
}

/// What of root's the processes of the daemon that hold faults have open.
fn open_of_roots(stage: &Stage) -> Vec<String> {
    let (roots, mut found) = (stage.names().roots, Vec::new());
    for holder in stage.daemon.holders() {
        let open = fs::read_dir(format!("/proc/{}/fd", holder.pid)).into_iter().flatten().flatten();
        for link in open.filter_map(|entry| fs::read_link(entry.path()).ok()) {
            if link.starts_with(&roots) {
                found.push(format!("a holder has {} open", link.display()));
            }
        }
    }
    found
}

fn links(stage: &Stage) -> Result<Tried> {
    const ROUNDS: usize = 40;
    let (mut tried, own) = (Tried::default(), stage.own.path());
    let spot = own.join("spot");
    let (mine, theirs) = (own.join("mine"), stage.canary.path("closed"));
    fs::create_dir(&mine).map_err(Error::io("create", mine.display().to_string()))?;
    std::os::unix::fs::chown(&mine, Some(super::stage::USERS[0]), None)
        .map_err(Error::io("give away", mine.display().to_string()))?;
    point(&spot, &mine)?;
    let mut said = Said::open(stage, &stage.strangers[0])?;
    let over = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let swaps = scope.spawn(|| -> Result<()> {
            while !over.load(std::sync::atomic::Ordering::Acquire) {
                point(&spot, Path::new(&theirs))?;
                point(&spot, &mine)?;
            }
            Ok(())
        });
        let mut rounds = || -> Result<()> {
            for round in 0..ROUNDS {
                let mut whole = fault(FaultType::ResourceExhaustion, &stage.known());
                whole["params"]["path"] = json!(spot);
                let plan = said.call("chaos_plan", whole.to_string().as_bytes())?;
                tried.count(|| format!("plan {round}"), plan.as_ref());
                carry_out(stage, &mut said, whole, &mut tried, || format!("round {round}"))?;
            }
            Ok(())
        };
        let done = rounds();
        over.store(true, std::sync::atomic::Ordering::Release);
        swaps.join().map_err(|_panic| Error::Different("a thread broke".into()))??;
        done
    })?;
    Ok(tried)
}

/// Has a link lead elsewhere, at once.
fn point(link: &Path, to: &Path) -> Result<()> {
    let new = link.with_extension("new");
    symlink(to, &new)
        .and_then(|()| fs::rename(&new, link))
        .map_err(Error::io("point elsewhere", link.display().to_string()))
}

/// Two connections of a stranger's, of which one does one thing again and again, and the other another.
fn race(
    stage: &Stage,
    one: impl Fn(&mut Said<'_>, &mut Tried) -> Result<()> + Send,
    other: impl Fn(&mut Said<'_>, &mut Tried) -> Result<()> + Send,
) -> Result<Tried> {
    const ROUNDS: usize = 40;
    let go_on = |work: &(dyn Fn(&mut Said<'_>, &mut Tried) -> Result<()> + Send)| -> Result<Tried> {
        let (mut said, mut tried) = (Said::open(stage, &stage.strangers[0])?, Tried::default());
        (0..ROUNDS).try_for_each(|_| work(&mut said, &mut tried))?;
        Ok(tried)
    };
    let (mut first, second) = std::thread::scope(|scope| -> Result<_> {
        let other = scope.spawn(move || go_on(&other));
        let first = go_on(&one)?;
        let second = other.join().map_err(|_panic| Error::Different("a thread broke".into()))??;
        Ok((first, second))
    })?;
    first.add(second);
    Ok(first)
}

fn act(said: &mut Said<'_>, tried: &mut Tried, arguments: &Value) -> Result<Option<Value>> {
    let answer = said.call("chaos_inject_fault", arguments.to_string().as_bytes())?;
    tried.count(|| arguments.to_string(), answer.as_ref());
    Ok(answer)
}

fn registration(kind: FaultType, stage: &Stage) -> Value {
    let mut whole = fault(kind, &stage.known());
    whole["action"] = json!("register");
    whole
}

fn removals(stage: &Stage) -> Result<Tried> {
    let whole = &registration(FaultType::Timeout, stage);
    let action = |action: &str| json!({"fault_name": "hostile", "action": action});
    race(
        stage,
        |said, tried| {
            act(said, tried, whole)?;
            act(said, tried, &action("inject")).map(drop)
        },
        |said, tried| {
            linger(Duration::from_millis(20));
            act(said, tried, &action("remove")).map(drop)
        },
    )
}

fn replacements(stage: &Stage) -> Result<Tried> {
    let (one, two) = (&registration(FaultType::Timeout, stage), &registration(FaultType::PortInUse, stage));
    let action = |action: &str| json!({"fault_name": "hostile", "action": action});
    race(
        stage,
        |said, tried| {
            act(said, tried, one)?;
            act(said, tried, &action("inject"))?;
            let status = said.call("chaos_status", b"{}")?.unwrap_or_default();
            for fault in
                status["result"]["structuredContent"]["active_faults"].as_array().into_iter().flatten()
            {
                let text = fault["description"].as_str().unwrap_or_default();
                // A fault is one of the two, as a whole.
                let is_one =
                    fault["fault_type"] == "timeout" && text.contains(INTERFACE) && !text.contains("4748");
                let is_two = fault["fault_type"] == "port_in_use" && text.contains("4748");
                if fault["name"] == "hostile" && !is_one && !is_two {
                    tried.effects.push(format!("a fault that nobody has registered: {fault}"));
                }
            }
            act(said, tried, &action("remove")).map(drop)
        },
        |said, tried| act(said, tried, two).map(drop),
    )
}

fn cancelled(stage: &Stage) -> Result<Tried> {
    const ROUNDS: usize = 100;
    const SOON: Duration = Duration::from_secs(5);
    let mut tried = Tried::default();
    let mut said = Said::open(stage, &stage.strangers[0])?;
    let plan =
        json!({"fault_name": "h", "fault_type": "process_kill", "target": {"command": "(?:[a-z]?){90}Z"}});
    let looks = [
        ("chaos_plan", plan),
        ("chaos_doctor", json!({"residue": true})),
        ("chaos_probe", json!({"arguments": ["tcp", "10.77.0.2:9"]})),
    ];
    for round in 0..ROUNDS {
        let (tool, arguments) = &looks[round % looks.len()];
        let id = format!("cancelled-{round}");
        let params = json!({"name": tool, "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        said.tell(format!("{call}\n{cancel}\n").as_bytes())?;
        tried.tried += 1;
    }
    // What was cancelled is out of the way of whoever comes next, also of the same user.
    let mut next = Said::open(stage, &stage.strangers[0])?;
    let begun = Instant::now();
    let whole = fault(FaultType::Timeout, &stage.known());
    let answer = next.call("chaos_plan", whole.to_string().as_bytes())?;
    let took = begun.elapsed();
    if tried.count(|| "a plan after those that were cancelled".into(), answer.as_ref()) != Came::Served
        || took > SOON
    {
        tried.effects.push(format!("a plan after those that were cancelled took {took:?}: {answer:?}"));
    }
    Ok(tried)
}

/// Connections of strangers that say nothing, or open a session and then say nothing. Root stops, and everybody may look.
fn idle(stage: &Stage) -> Result<Tried> {
    const OF_EACH: usize = 40;
    let (mut tried, socket, mut held) = (Tried::default(), stage.daemon.socket(), Vec::new());
    for stranger in &stage.strangers {
        for number in 0..OF_EACH {
            let connection = stranger.connect(&socket)?;
            tried.tried += 1;
            let mut wire = crate::Wire::over(connection)?;
            // Those beyond their share are refused, which is an answer.
            if number % 2 == 0 && wire.open().is_err() {
                tried.closed += 1;
            }
            held.push(wire);
        }
    }
    let mut figures = Figures::default();
    for _ in 0..20 {
        stop(&socket, &mut figures)?;
    }
    figures.stops.sort_unstable();
    tried.effects.extend(figures.refused.iter().map(|refused| format!("root's stop was refused: {refused}")));
    let root = stage.root()?;
    root.call_tool("chaos_list_experiments", json!({}))?.ok()?;
    tried.notes.push(format!("root's stop beside {} of them: p99 {:.1?}", held.len(), figures.stop(99)));
    Ok(tried)
}

/// As many as are taken. Root registers and injects all the same.
fn registrations(stage: &Stage) -> Result<Tried> {
    let (mut tried, mut whole) = (Tried::default(), registration(FaultType::Timeout, stage));
    for stranger in &stage.strangers {
        let mut said = Said::open(stage, stranger)?;
        for number in 0..=500 {
            whole["fault_name"] = json!(format!("hostile-{}-{number}", stranger.pid()));
            if matches!(act_once(&mut said, &mut tried, &whole)?, Came::Refused(_)) {
                break;
            }
        }
        for number in 0..=250 {
            let arguments = document(&format!("flood {} {number}", stranger.pid()), 1000);
            let answer = said.call("chaos_register_experiment", arguments.to_string().as_bytes())?;
            if tried.count(|| format!("document {number}"), answer.as_ref()) != Came::Served {
                break;
            }
        }
    }
    let root = stage.root()?;
    let mine = crate::fault::Fault::new("timeout").here(json!({"cidr": "10.77.9.9"})).named("roots");
    if let Err(error) = mine.inject(&root).and_then(|_| mine.remove(&root)) {
        tried.effects.push(format!("root cannot register and inject: {error}"));
    }
    Ok(tried)
}

fn act_once(said: &mut Said<'_>, tried: &mut Tried, arguments: &Value) -> Result<Came> {
    let answer = said.call("chaos_inject_fault", arguments.to_string().as_bytes())?;
    Ok(tried.count(|| arguments["fault_name"].to_string(), answer.as_ref()))
}

/// No variable of the daemon's is in a child of it, or in what a document makes of it.
fn environment(stage: &Stage) -> Result<Tried> {
    let mut tried = Tried::default();
    let mut said = Said::open(stage, &stage.strangers[0])?;
    for (number, value) in [
        json!({"type": "env", "key": "CANARY"}),
        json!({"type": "env", "key": "CANARY", "default": "x"}),
        json!({"type": "file", "path": stage.canary.path("file")}),
        json!("${CANARY}"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut whole = document(&format!("flood {number}"), 10);
        whole["configuration"] = json!({"canary": value});
        whole["steady-state-hypothesis"]["probes"][0]["provider"]["arguments"] =
            json!(["probe", "http", "http://127.0.0.1:9/${canary}"]);
        for (tool, arguments) in [
            ("chaos_register_experiment", whole.clone()),
            ("chaos_plan_experiment", json!({"document": whole})),
            ("chaos_describe_experiment", json!({"experiment_name": format!("flood {number}")})),
        ] {
            let answer = said.call(tool, arguments.to_string().as_bytes())?;
            tried.count(|| format!("{tool}: {value}"), answer.as_ref());
        }
    }
    for process in stage.daemon.processes() {
        let variables = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let has_it = String::from_utf8_lossy(&variables).contains(super::canary::SECRET);
        if has_it && process.pid != stage.daemon.injector_pid() {
            tried.effects.push(format!("a child has the daemon's variables: {:?}", process.arguments));
        }
    }
    Ok(tried)
}

/// Lines that are no calls; after each that leaves the connection open, a call is served.
fn lines(stage: &Stage) -> Result<Tried> {
    let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
    let digits = "9".repeat(100_000);
    let request = |rest: &str| format!(r#"{{"jsonrpc":"2.0",{rest}}}"#).into_bytes();
    let mut table: Vec<(&str, Vec<u8>)> = vec![
        ("no JSON", b"x".to_vec()),
        ("bytes that are no text", b"\xff\xfe\x00".to_vec()),
        ("a batch", br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#.to_vec()),
        ("a text", br#""ping""#.to_vec()),
        ("half a request", br#"{"jsonrpc":"2.0","id":1"#.to_vec()),
        ("two requests in a line", br#"{"jsonrpc":"2.0","id":1,"method":"ping"}{"id":2}"#.to_vec()),
        ("another protocol", br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#.to_vec()),
        ("an id that is an object", request(r#""id":{},"method":"ping""#)),
        ("an id that is a fraction", request(r#""id":1.5,"method":"ping""#)),
        ("a method twice", request(r#""id":1,"method":"ping","method":"tools/list""#)),
        ("an id twice", request(r#""id":1,"id":2,"method":"ping""#)),
        ("a method that is a number", request(r#""id":1,"method":7"#)),
        ("no method", request(r#""id":1"#)),
        ("parameters that are a list", request(r#""id":1,"method":"tools/call","params":[1]"#)),
        ("a tool that is none", request(r#""id":1,"method":"tools/call","params":{"name":"rm -rf"}"#)),
        (
            "a resource by a way up",
            request(r#""id":1,"method":"resources/read","params":{"uri":"chaos://../../etc/shadow"}"#),
        ),
        (
            "a resource that is a file",
            request(r#""id":1,"method":"resources/read","params":{"uri":"file:///etc/shadow"}"#),
        ),
        ("a method that is none", request(r#""id":1,"method":"chaos/../admin""#)),
        (
            "a line of the log as a method",
            request(&format!(r#""id":1,"method":{}"#, json!(format!("a\n{}", super::values::FORGED)))),
        ),
        ("100,000 levels", request(&format!(r#""id":1,"method":"ping","params":{deep}"#))),
    ];
    table.push(("an id of 100,000 digits", request(&format!(r#""id":{digits},"method":"ping""#))));
    table.push(("a method of 1 MiB", request(&format!(r#""id":1,"method":"{}""#, "A".repeat(1 << 20)))));
    table.push(("a line that is too long", "A".repeat(5 << 20).into_bytes()));
    let (mut tried, mut said) = (Tried::default(), Said::open(stage, &stage.strangers[0])?);
    for (what, mut line) in table {
        line.push(b'\n');
        let answer = said.say(&line)?;
        if tried.count(|| what.to_owned(), answer.as_ref()) == Came::Served {
            tried.wrong.push(format!("{what} was served: {answer:?}"));
        }
        let status = said.call("chaos_status", b"{}")?;
        if status.is_none_or(|status| status["result"]["isError"] == json!(true)) {
            tried.effects.push(format!("after {what} nothing is served"));
        }
    }
    Ok(tried)
}
