//! Strangers with every right to speak to the daemon, and none to anything else: whatever they say, whatever tool they say it to,
//! nothing comes of it that they could not have done themselves. `hostile` is the program.
//!
//! The tools, and what each takes, are asked of the daemon (`tools/list`): one that is new is tried without a change here.

mod canary;
mod cases;
mod flood;
mod impostor;
mod messages;
mod numbers;
mod said;
mod stage;
mod stranger;
mod values;
mod walk;

use std::time::Duration;

use chaos_daemon::experiment::schema as experiment_schema;
use chaos_daemon::spec::parameter::merged;
use chaos_daemon::spec::{FAULT_TYPES, FaultType};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::wire::Wire;

use cases::{CASES, Case};
pub use flood::Figures;
use messages::{FLOODS, Flood};
use said::{Said, Tried};
use stage::Stage;
use values::Place;

/// Of large values, one is said in every so manieth place.
const LARGE_EVERY: usize = 16;
/// What a stop may take on any build and machine; what is aimed at is measured by `bench`.
const STOP: Duration = Duration::from_secs(5);

/// How much is tried.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// Of what is said to a tool, every so manieth.
    pub stride: usize,
    /// Which of them.
    pub offset: usize,
    /// How long a flood lasts.
    pub lasting: Duration,
}

/// Something that strangers try.
#[derive(Debug)]
pub struct Cell {
    /// What.
    pub name: String,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Each value of the table in each place of a tool's input.
    Input(Tool),
    /// Many calls at once of some tools.
    Calls(Vec<Tool>),
    /// Many messages at once.
    Messages(Flood),
    /// See there.
    Case(Case),
}

/// A tool as the daemon lists it.
#[derive(Debug, Clone)]
struct Tool {
    name: String,
    schema: Value,
}

/// What a cell came to.
#[derive(Debug)]
pub struct Judged {
    /// For people.
    pub figures: String,
    /// What is wrong; nothing of a cell that has passed.
    pub problems: Vec<String>,
    /// Of a flood.
    pub flood: Option<Figures>,
}

/// Is one of the processes that these tests start, if the arguments of this process say so.
pub fn serve_if_asked() -> Option<std::process::ExitCode> {
    stranger::serve_if_asked().or_else(impostor::serve_if_asked)
}

/// Asks a daemon for its tools.
fn tools() -> Result<Vec<Tool>> {
    let daemon = Daemon::start()?;
    let mut wire = Wire::connect(&daemon.socket())?;
    wire.open()?;
    let answer = wire.request("tools/list", json!({}))?;
    let tools = answer["result"]["tools"].as_array().cloned().unwrap_or_default();
    let target = tools.iter().map(|tool| &tool["inputSchema"]["properties"]["target"]);
    let target = target.clone().find(|target| target["properties"].is_object()).cloned().unwrap_or_default();
    let tool = |tool: Value| {
        let schema = in_full(tool["inputSchema"].clone(), &target);
        Some(Tool { name: tool["name"].as_str()?.to_owned(), schema })
    };
    let tools: Vec<_> = tools.into_iter().filter_map(tool).collect();
    match tools.is_empty() {
        true => Err(Error::Different(format!("no tools: {answer}"))),
        false => Ok(tools),
    }
}

/// What a list of tools has in short, with all that is in it: what is said is said everywhere.
fn in_full(mut schema: Value, target: &Value) -> Value {
    let properties = &mut schema["properties"];
    if properties["fault_type"].is_object() {
        let of_kind = |kind: &FaultType| {
            let name = kind.name();
            kind.parameters().iter().map(move |parameter| (name, parameter))
        };
        let parameters = merged(FAULT_TYPES.iter().flat_map(of_kind)).into_iter();
        properties["params"]["properties"] =
            parameters.map(|parameter| (parameter.name.clone(), parameter.schema())).collect();
        properties["target"] = target.clone();
    }
    if properties["steady-state-hypothesis"].is_object() {
        *properties = experiment_schema::properties();
    }
    schema
}

/// Every cell there is: alike ones are neighbours.
///
/// # Errors
/// When no daemon says which tools there are.
pub fn cells() -> Result<Vec<Cell>> {
    let tools = tools()?;
    let mut cells = Vec::new();
    let mut add = |name: String, what: What| cells.push(Cell { name, what });
    tools.iter().for_each(|tool| add(format!("input of {}", tool.name), What::Input(tool.clone())));
    tools.iter().for_each(|tool| add(format!("calls of {}", tool.name), What::Calls(vec![tool.clone()])));
    add("calls of all tools".to_owned(), What::Calls(tools));
    FLOODS.iter().for_each(|flood| add(format!("messages: {}", flood.name), What::Messages(*flood)));
    CASES.iter().for_each(|case| add(case.0.to_owned(), What::Case(*case)));
    Ok(cells)
}

impl Cell {
    /// Whether it is a flood of calls, during which root stops and has faults.
    pub fn is_of_calls(&self) -> bool {
        matches!(self.what, What::Calls(_))
    }

    /// Tries it, against a daemon of its own.
    ///
    /// # Errors
    /// When it cannot be tried.
    pub fn run(&self, how: &How) -> Result<Judged> {
        let stage = Stage::new()?;
        let mut judged = match &self.what {
            What::Input(tool) => judged(say_everything(&stage, tool, how)?),
            What::Case((_, case)) => judged(case(&stage)?),
            What::Calls(tools) => {
                let lines: Vec<_> =
                    tools.iter().flat_map(|tool| flood::calls(&tool.name, &tool.schema)).collect();
                // Of all of them together there is more to be seen.
                let lasting = how.lasting * if tools.len() > 1 { 3 } else { 1 };
                judged_flood(flood::flood(&stage, &lines, lasting)?)
            }
            What::Messages(flood) => judged_flood(messages::run(&stage, flood, how.lasting)?),
        };
        judged.problems.extend(stage.effects()?.into_iter().map(|effect| format!("effect: {effect}")));
        if !judged.problems.is_empty() {
            judged.problems.push(format!("log: {}", stage.log_end()));
        }
        Ok(judged)
    }
}

fn judged(tried: Tried) -> Judged {
    Judged { figures: tried.figures(), problems: tried.problems(), flood: None }
}

fn judged_flood(figures: Figures) -> Judged {
    let mib = |bytes: u64| bytes >> 20;
    let text = format!(
        "{} answers to strangers; root's stop: n {}, refused {}, p50 {:.1?}, p99 {:.1?}; server {} MiB at most, then {}; faults \
         of root's that ended early: {} of {}{}",
        figures.answers,
        figures.stops.len(),
        figures.refused.len(),
        figures.stop(50),
        figures.stop(99),
        mib(figures.peak),
        mib(figures.left),
        figures.early.len(),
        figures.faults,
        if cfg!(debug_assertions) { "; a build for tests" } else { "" },
    );
    let mut problems = Vec::new();
    if figures.peak > flood::MOST || figures.left > flood::LEFT {
        problems.push(format!("the server had {} MiB, and then {}", mib(figures.peak), mib(figures.left)));
    }
    problems.extend(figures.refused.first().map(|refused| format!("root's stop was refused: {refused}")));
    problems.extend(figures.early.first().cloned());
    if figures.stop(99) > STOP {
        problems.push(format!("root's stop took {:?}", figures.stop(99)));
    }
    Judged { figures: text, problems, flood: Some(figures) }
}

/// Says each value of the table in each place of a tool's input that takes it.
fn say_everything(stage: &Stage, tool: &Tool, how: &How) -> Result<Tried> {
    let (mut tried, table) = (Tried::default(), values::table(&stage.names()));
    let spots = walk::spots(&tool.name, &tool.schema, &stage.known());
    let mut said = Said::open(stage, &stage.strangers[0])?;
    said.call("chaos_register_experiment", walk::document(walk::DOCUMENT, 10).to_string().as_bytes())?;
    let mut number = 0_usize;
    for (at, spot) in spots.iter().enumerate() {
        for value in table.iter().filter(|value| spot.takes(value)) {
            if value.place == Place::Large && at % LARGE_EVERY != how.offset % LARGE_EVERY {
                continue;
            }
            number += 1;
            if number % how.stride != how.offset % how.stride {
                continue;
            }
            let arguments = spot.arguments(&value.bytes, number / how.stride);
            let answer = said.call(&tool.name, &arguments)?;
            tried.count(|| format!("{}.{} = {}", tool.name, spot.path, value.what), answer.as_ref());
        }
    }
    tried.notes.push(format!("{} places, {} values", spots.len(), table.len()));
    Ok(tried)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_in_short_is_tried_in_full() {
        let target = json!({"type": "object", "properties": {"cidr": {"type": "string"}}});
        let fault = json!({"properties": {"fault_type": {"type": "string"}, "params": {}, "target": {"type": "object"}}});
        let full = in_full(fault, &target);
        assert!(full["properties"]["params"]["properties"]["delay_ms"]["maximum"].is_number(), "{full}");
        assert_eq!(full["properties"]["target"], target);
        let document =
            in_full(json!({"properties": {"steady-state-hypothesis": {"type": "object"}}}), &target);
        let action = &document["properties"]["method"]["items"]["anyOf"][0]["properties"];
        assert!(action["provider"].is_object(), "{document}");
        let other = json!({"properties": {"name": {"type": "string"}}});
        assert_eq!(in_full(other.clone(), &target), other);
    }
}
