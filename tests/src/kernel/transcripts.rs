//! From a sentence to its answer, by an agent that has only the tools: in few calls, and none of them refused.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Context, Outcome, TestResult, tests};
use crate::agent::Agent;
use crate::cgroup::{Cgroup, root};
use crate::daemon::binary;
use crate::late::HANG;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, Pair, Result, shop};

tests![
    from_what_can_be_broken_to_a_post_mortem_of_a_service_that_is_cut_off_from_its_database_in_eight_calls,
    from_a_sentence_to_a_service_that_stands_still_for_a_while_in_twelve_calls,
    from_a_sentence_to_an_experiment_that_runs_each_night_in_twelve_calls,
    from_a_sentence_to_sessions_that_are_held_and_to_a_host_on_which_nothing_is_left_in_twelve_calls,
];

/// A host of its own network, on which a service runs that has a database elsewhere. Nobody knows the names beforehand.
struct Town {
    service: Child,
    unit: Cgroup,
    mcp: Mcp,
    daemon: Daemon,
    _pair: Pair,
    _folder: TempDir,
}

impl Town {
    fn new() -> Result<Self> {
        let pair = Pair::new()?;
        let interface = unknown_word()?;
        pair.near.ip_batch(&format!(
            "link set dev {INTERFACE} down\nlink set dev {INTERFACE} name {interface}\nlink set dev {interface} up\n"
        ))?;
        pair.near.ip(&["link", "set", "dev", "lo", "up"])?;
        let address = format!("{}:0", Pair::FAR_V4);
        let database =
            pair.far.run(|| TcpListener::bind(address)).map_err(Error::io("bind", "a database"))?;
        let database_at = database.local_addr().map_err(Error::io("ask", "a database"))?;
        shop::database(database);
        let folder = TempDir::with_prefix("chaos-test-").map_err(Error::io("create", "a folder"))?;
        let unit = Cgroup::at(root()?.join(format!("{}.service", unknown_word()?)))?;
        let file = folder.path().join("port");
        let mut command = Command::new(binary("chaos-worker")?);
        command.arg(&file).arg("--shop").arg(Pair::NEAR_V4.to_string()).arg(database_at.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        pair.near.place(&mut command);
        unit.place(&mut command);
        let service = command.spawn().map_err(Error::io("start", "a service"))?;
        let daemon = Daemon::start_with(|command| pair.near.place(command))?;
        let town = Self { service, unit, mcp: daemon.mcp()?, daemon, _pair: pair, _folder: folder };
        // What was just connected takes a moment.
        match wait_until(HANG, || file.exists() && town.answers(&file)) {
            true => Ok(town),
            false => {
                Err(Error::Hung { what: format!("a service with a database; log:\n{}", town.daemon.log()) })
            }
        }
    }

    fn answers(&self, file: &std::path::Path) -> bool {
        let Ok(port) = fs::read_to_string(file) else { return false };
        let url = format!("http://{}:{port}/", Pair::NEAR_V4);
        let sample = self.mcp.call_tool("chaos_probe", json!({"arguments": ["http", url]}));
        sample.is_ok_and(|sample| sample.json["ok"] == true)
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        let _ = self.unit.kill();
        let _ = self.service.wait();
    }
}

/// A word that nobody could have guessed, short enough for an interface.
fn unknown_word() -> Result<String> {
    const FILE: &str = "/proc/sys/kernel/random/uuid";
    let text = fs::read_to_string(FILE).map_err(Error::io("read", FILE))?;
    Ok(format!("u{}", text.get(..8).unwrap_or_default()))
}

fn has(value: &Value, what: &str) -> Result<Value> {
    match value {
        Value::Null => Err(Error::Different(format!("no result tells {what}"))),
        value => Ok(value.clone()),
    }
}

/// What the agent takes from its first look.
struct Seen {
    target: Value,
    listens: String,
    url: String,
    peer: Value,
    templates: Value,
}

fn look(agent: &mut Agent<'_>) -> Result<Seen> {
    let node = agent.call("chaos_node", json!({}))?;
    let connected = |service: &&Value| service["peers"].as_array().is_some_and(|peers| !peers.is_empty());
    let service =
        node["services"].as_array().and_then(|all| all.iter().find(connected)).unwrap_or(&Value::Null);
    has(service, &format!("of a service that is connected to its database: {node}"))?;
    let listens = has(&service["listens"][0], "where it listens")?;
    let listens = listens.as_str().unwrap_or_default().to_owned();
    let able = |kind: &str| {
        let all = node["faults"].as_array();
        all.is_some_and(|all| {
            all.iter().any(|it| it["fault_type"] == kind && it["possible"] == true && it["allowed"] == true)
        })
    };
    for kind in ["network_partition", "process_pause", "connection_load"] {
        if !able(kind) {
            return Err(Error::Different(format!("{kind} is not for this agent: {node}")));
        }
    }
    Ok(Seen {
        target: service["target"].clone(),
        url: format!("http://{listens}/"),
        listens,
        peer: service["peers"][0].clone(),
        templates: node["templates"].clone(),
    })
}

/// The document of what is asked: that of a template, with the names of this host, and the gate of the sentence.
fn document(agent: &mut Agent<'_>, seen: &Seen, title: &str) -> Result<Value> {
    let cuts = |template: &&Value| template["fault_types"] == json!(["network_partition"]);
    let template = seen.templates.as_array().and_then(|all| all.iter().find(cuts)).unwrap_or(&Value::Null);
    let name = has(&template["experiment_name"], "of a template that cuts something off")?;
    let mut document =
        agent.call("chaos_describe_experiment", json!({"experiment_name": name}))?["document"].clone();
    document["title"] = json!(title);
    let values = [
        ("interface", &seen.peer["interface"]),
        ("dependency", &seen.peer["address"]),
        ("dependency_port", &seen.peer["port"]),
        ("unit", &seen.target["unit"]),
    ];
    for (name, value) in values {
        document["configuration"][name] = has(value, name)?;
    }
    document["configuration"]["service"] = json!(seen.listens);
    document["configuration"]["health"] = json!(seen.url);
    // It has not been up for long, and nobody has asked whether it is started again.
    let asks_for_age = |it: &Value| it.to_string().contains("oldest");
    for list in ["/steady-state-hypothesis/probes", "/extensions/0/rollback_on"] {
        if let Some(all) = document.pointer_mut(list).and_then(Value::as_array_mut) {
            all.retain(|it| !asks_for_age(it));
        }
    }
    let share = json!({"name": "stop above 5 % errors", "op": "gt", "value": 5, "provider": {"type": "process", "path": "chaosctl",
        "arguments": ["probe", "series", "--http", seen.url, "--samples", 10]}});
    if let Some(gates) = document["extensions"][0]["rollback_on"].as_array_mut() {
        gates.insert(0, share);
    }
    Ok(document)
}

fn from_what_can_be_broken_to_a_post_mortem_of_a_service_that_is_cut_off_from_its_database_in_eight_calls(
    _: &Context,
) -> TestResult {
    let town = Town::new()?;
    let sentence =
        "What can I break here? Does my service survive its database being cut off? stop above 5 % errors";
    let mut agent = Agent::new(&town.mcp, sentence, 8)?;
    let seen = look(&mut agent)?;
    let title = "Does my service survive its database being cut off";
    let document = document(&mut agent, &seen, title)?;
    let plan = agent.call("chaos_plan_experiment", json!({"document": document}))?;
    assert_eq!((&plan["state"], &plan["steady_state_before"]), (&json!("planned"), &json!(true)), "{plan}");
    let registered = agent.call("chaos_register_experiment", document)?;
    let run = json!({"experiment_name": registered["experiment_name"], "plan_digest": plan["plan_digest"]});
    let run = agent.call("chaos_run_experiment", run)?;
    assert_eq!((&run["state"], &run["verdict"]), (&json!("ended"), &json!("tripped")), "{run}");
    let report = agent.call("chaos_report", json!({"run_id": run["run_id"]}))?;
    let told = report["post_mortem"].as_str().unwrap_or_default();
    for words in ["tripped", "stop above 5 % errors"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let markdown = report["markdown"].as_str().unwrap_or_default();
    assert!(markdown.contains(title), "{markdown}");
    Ok(Outcome::Pass)
}

fn from_a_sentence_to_a_service_that_stands_still_for_a_while_in_twelve_calls(_: &Context) -> TestResult {
    let town = Town::new()?;
    let sentence = "Pause my service for 3 seconds. Does it answer again afterwards?";
    let mut agent = Agent::new(&town.mcp, sentence, 12)?;
    let seen = look(&mut agent)?;
    let fault = json!({"fault_name": "Pause", "fault_type": "process_pause", "probability": 1, "duration_seconds": 3,
        "target": seen.target});
    let plan = agent.call("chaos_plan", fault.clone())?;
    assert_eq!(plan["targets"]["matching"], 1, "{plan}");
    let mut register = fault;
    register["action"] = json!("register");
    agent.call("chaos_inject_fault", register)?;
    let injected = agent.call("chaos_inject_fault", json!({"fault_name": "Pause", "action": "inject"}))?;
    assert_eq!(injected["was_triggered"], true, "{injected}");
    let status = agent.call("chaos_status", json!({}))?;
    assert_eq!(status["active_faults"][0]["active"], true, "{status}");
    let probe = json!({"arguments": ["latency", "--http", seen.url, "--samples", 1]});
    // Whoever asks meanwhile waits for as long as it stands still.
    let meanwhile = agent.call("chaos_probe", probe)?;
    assert!(meanwhile["value"].as_f64().is_none_or(|ms| ms > 500.0), "{meanwhile}");
    let mut again = Value::Null;
    for _ in 0..3 {
        again = agent.call("chaos_probe", json!({"arguments": ["http", seen.url]}))?;
        if again["ok"] == true {
            break;
        }
    }
    assert_eq!(again["ok"], true, "{again}");
    Ok(Outcome::Pass)
}

fn from_a_sentence_to_an_experiment_that_runs_each_night_in_twelve_calls(_: &Context) -> TestResult {
    let town = Town::new()?;
    let sentence =
        "Each night at 3 see whether my service survives its database being cut off; stop above 5 % errors";
    let mut agent = Agent::new(&town.mcp, sentence, 12)?;
    let seen = look(&mut agent)?;
    let title = "Each night see whether my service survives its database being cut off";
    let document = document(&mut agent, &seen, title)?;
    let plan = agent.call("chaos_plan_experiment", json!({"document": document}))?;
    let registered = agent.call("chaos_register_experiment", document)?;
    assert_eq!(plan["experiment_name"], registered["experiment_name"], "{plan}");
    let set = json!({"action": "set", "name": "night", "experiment": registered["experiment_name"], "cron": "0 3 * * *"});
    let set = agent.call("chaos_schedule", set)?;
    let listed = agent.call("chaos_schedule", json!({"action": "list"}))?;
    let next = listed["schedules"][0]["next"][0].as_str().unwrap_or_default().to_owned();
    assert!(next.contains("T03:00:00"), "{listed} after {set}");
    Ok(Outcome::Pass)
}

fn from_a_sentence_to_sessions_that_are_held_and_to_a_host_on_which_nothing_is_left_in_twelve_calls(
    _: &Context,
) -> TestResult {
    let town = Town::new()?;
    let sentence =
        "Hold 20 sessions with my service for 60 seconds. Does it take another one? Then stop everything.";
    let mut agent = Agent::new(&town.mcp, sentence, 12)?;
    let seen = look(&mut agent)?;
    let url = format!("tcp://{}", seen.listens);
    let fault = json!({"fault_name": "Hold", "fault_type": "connection_load", "probability": 1, "duration_seconds": 60,
        "params": {"url": url, "sessions": 20}});
    agent.call("chaos_plan", fault.clone())?;
    let mut register = fault;
    register["action"] = json!("register");
    agent.call("chaos_inject_fault", register)?;
    agent.call("chaos_inject_fault", json!({"fault_name": "Hold", "action": "inject"}))?;
    let probe = agent.call("chaos_probe", json!({"arguments": ["tcp", seen.listens]}))?;
    assert_eq!(probe["ok"], true, "{probe}");
    let status = agent.call("chaos_status", json!({}))?;
    assert_eq!(status["active_faults"][0]["fault_type"], "connection_load", "{status}");
    let stopped = agent.call("chaos_stop", json!({}))?;
    assert_eq!(stopped["stopped"][0]["residue"], json!([]), "{stopped}");
    Ok(Outcome::Pass)
}
