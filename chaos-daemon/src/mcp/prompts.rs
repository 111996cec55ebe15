//! Prompts: what a person asks a model to do with the tools, in words that have proved themselves. And completions of what they, and
//! resource templates, are given.

use rmcp::ErrorData;
use rmcp::model::{
    ArgumentInfo, CompleteResult, CompletionInfo, GetPromptResult, JsonObject, ListPromptsResult, Prompt,
    PromptArgument, PromptMessage, Reference, Role,
};
use serde_json::Value;

use super::tools::TOOLS;
use crate::probe::KINDS;
use crate::request::ApiError;
use crate::server::catalogue::Known;
use crate::server::history::Filter;
use crate::server::service::Service;
use crate::spec::{FAULT_TYPES, Owner};

/// The longest value of an argument, in bytes.
const LONGEST: usize = 2000;
/// How many values are offered.
const OFFERED: usize = 20;

/// A prompt: its name, its title, what it is for, its arguments, each with what it is, and its text, in which `{NAME}` is an argument.
struct Words {
    name: &'static str,
    title: &'static str,
    what: &'static str,
    arguments: &'static [(&'static str, &'static str)],
    text: &'static str,
}

const ALL: &[Words] = &[
    Words {
        name: "design_experiment",
        title: "Design an experiment",
        what: "From a sentence to an experiment that is fit to be run. Nothing is injected.",
        arguments: &[(
            "sentence",
            "What is to be found out, e.g. \"does the shop survive its database being cut off, stop above 5 % errors\".",
        )],
        text: "Design a chaos experiment for this host. What is to be found out: {sentence}\n\n\
               1. Call chaos_node. If you may not inject, or the kernel cannot, say so and stop.\n\
               2. Take the built-in experiment that is closest (chaos_describe_experiment), or the example of chaos_register_experiment. \
               Put in the names of this host: only those that a result has told you.\n\
               3. It needs a steady state that is measured, one fault with the narrowest target that serves, a duration, and in rollback_on a \
               gate with the number of the sentence. If the sentence has no number, ask for one.\n\
               4. Give the document to chaos_plan_experiment. Mend what is refused by the hint of the error.\n\
               5. Show the plan: whom it affects, how badly, for how long, and what ends it. Register and run nothing before a person agrees.",
    },
    Words {
        name: "review_plan",
        title: "Review a plan",
        what: "What speaks against running a registered experiment now.",
        arguments: &[("experiment_name", "A registered experiment.")],
        text: "Review the experiment {experiment_name} before it is run. Call chaos_plan_experiment and chaos_describe_experiment, and answer each with a \
               number or a name from the results:\n\
               - Whom does it affect, what share, how badly (impact)? Is a bystander among them?\n\
               - Was the steady state met just now, and what was not sampled (not_sampled)?\n\
               - Which gate ends it, at which number, and after how long? What if there is no data?\n\
               - What undoes each step, and who does if the daemon dies (lifetime, guard)?\n\
               - How did earlier runs of it and of its like go (history)?\n\
               - Does it skip a stage?\n\
               End with one line: run it, or what to change first. Do not run it.",
    },
    Words {
        name: "post_mortem",
        title: "Post-mortem, by evidence",
        what: "What a run has shown, in a paragraph, from what was recorded alone.",
        arguments: &[("run_id", "A run that has ended.")],
        text: "Write the post-mortem of run {run_id}. Call chaos_report, and chaos_get_run for what it does not say. You are in evidence mode: one \
               paragraph of what failed, which objective was breached and by how much, when it was noticed and how long recovery took. Then the \
               most likely cause, with the event or the sample that speaks for it and what speaks against it. Nothing that no result says. If the run \
               is unverified, or gates had no data, say first that it shows nothing.",
    },
    Words {
        name: "widen",
        title: "Widen after three that held",
        what: "What to try next with an experiment that has held three times.",
        arguments: &[("experiment_name", "A registered experiment.")],
        text: "{experiment_name} has held again and again. That is no resilience: the blast radius may only have been small enough. Call \
               chaos_list_runs for its last runs and chaos_describe_experiment for its document. If fewer than three runs in a row have held, say \
               so and stop. Otherwise propose one step that goes further, in this order: the next stage; the fault twice as hard, or twice as long; a \
               second fault beside it that comes with the first in earnest, such as retries without a bound; another type of fault on the \
               same dependency. Give the changed document to chaos_plan_experiment, and show what is different. chaos_search narrows down where it \
               begins to fail. Run nothing before a person agrees.",
    },
    Words {
        name: "battle_test_mcp_server",
        title: "Battle-test an MCP server",
        what: "The three experiments that an MCP server has to stand before it is in production.",
        arguments: &[
            (
                "server",
                "Where the server answers, e.g. http://127.0.0.1:8000/mcp, or the command that starts it.",
            ),
            ("dependency", "What it depends on, e.g. a database, as ADDRESS:PORT."),
        ],
        text: "Battle-test the MCP server {server}, which depends on {dependency}. Call chaos_node first, and find its processes in services. The steady state \
               of all three: no failed probe \"mcp\", p95 of its tools/list within 500 ms (probe latency --mcp), its process up for an hour, its \
               health 200 if it has one.\n\
               1. Process kill (process_kill; template process-death-alert). It has to be started again within the recovery time that its owner \
               names. The monitor has to raise the right alert within 2 minutes. A missing alert is a finding of the highest order.\n\
               2. Dependency failure (network_partition of {dependency}, 60 s; template dependency-partition). The protocol still answers, \
               tools fail with an error that says why, health says 503 with a reason, nothing restarts in a loop, and all is well again by itself.\n\
               3. Latency (latency of 2000 to 5000 ms on its port; over stdio, or where the kernel has no netem, mcp_error with delay_ms). The alert \
               on p95 fires before users notice.\n\
               One at a time, each by chaos_plan_experiment first, each with a gate, and only after a person agrees. Then chaos_report of \
               each, and one table: experiment, verdict, time until noticed, time until recovered, what to mend.",
    },
];

/// Every prompt.
pub(super) fn list() -> ListPromptsResult {
    let prompt = |words: &Words| {
        let argument = |(name, what): &(&str, &str)| {
            PromptArgument::new(*name).with_description(*what).with_required(true)
        };
        let arguments = words.arguments.iter().map(argument).collect();
        Prompt::new(words.name, Some(words.what), Some(arguments)).with_title(words.title)
    };
    ListPromptsResult::with_all_items(ALL.iter().map(prompt).collect())
}

/// The prompt of this name with these arguments.
pub(super) fn get(name: &str, arguments: Option<&JsonObject>) -> Result<GetPromptResult, ErrorData> {
    let wrong = |text: String| ErrorData::invalid_params(text, None);
    let Some(words) = ALL.iter().find(|words| words.name == name) else {
        let known: Vec<_> = ALL.iter().map(|words| words.name).collect();
        return Err(wrong(format!("no prompt {name:?}: there are {}", known.join(", "))));
    };
    let given = |name: &str| arguments.and_then(|arguments| arguments.get(name));
    let known = |name: &str| words.arguments.iter().any(|(known, _)| *known == name);
    if let Some(odd) = arguments.into_iter().flat_map(JsonObject::keys).find(|name| !known(name)) {
        let names: Vec<_> = words.arguments.iter().map(|(name, _)| *name).collect();
        return Err(wrong(format!("{name} takes no {odd:?}: it takes {}", names.join(", "))));
    }
    let mut text = words.text.to_owned();
    // What is put in is not looked at again.
    let mut values = Vec::new();
    for (argument, what) in words.arguments {
        match given(argument) {
            Some(Value::String(value)) if !value.is_empty() && value.len() <= LONGEST => {
                values.push((format!("{{{argument}}}"), value));
            }
            Some(_) => return Err(wrong(format!("{argument}: give text of 1 to {LONGEST} bytes"))),
            None => return Err(wrong(format!("missing {argument}: {what}"))),
        }
    }
    let mut filled = String::new();
    while let Some((at, place, value)) = values
        .iter()
        .filter_map(|(place, value)| Some((text.find(place.as_str())?, place, value)))
        .min_by_key(|(at, ..)| *at)
    {
        filled.push_str(&text[..at]);
        filled.push_str(value);
        text.drain(..at + place.len());
    }
    filled.push_str(&text);
    let message = PromptMessage::new_text(Role::User, filled);
    Ok(GetPromptResult::new(vec![message]).with_description(words.what))
}

/// What an argument of a prompt, or a part of a resource's address, may be, of what begins with what is written already.
pub(super) async fn complete(
    service: &Service,
    of: &Reference,
    argument: &ArgumentInfo,
    viewer: Owner,
) -> Result<CompleteResult, ErrorData> {
    let known = match of {
        Reference::Prompt(prompt) => ALL.iter().any(|words| words.name == prompt.name),
        Reference::Resource(template) => super::resources::is_template(&template.uri),
        _ => false,
    };
    if !known {
        return Err(ErrorData::invalid_params("no prompt and no resource template is called so", None));
    }
    let broken = |error: ApiError| ErrorData::internal_error(error.to_string(), None);
    let all: Vec<String> = match argument.name.as_str() {
        "kind" => KINDS.iter().map(|kind| (*kind).to_owned()).collect(),
        "tool" => TOOLS.iter().map(|tool| tool.name.to_owned()).collect(),
        "fault_type" => FAULT_TYPES.iter().map(|kind| kind.name().to_owned()).collect(),
        "experiment_name" => {
            let begins = argument.value.clone();
            let name = move |known: Known| {
                (known.registered.is_some() && known.place.name.starts_with(&begins))
                    .then_some(known.place.name)
            };
            service.catalogue(viewer, OFFERED + 1, name).await.map_err(broken)?
        }
        "run_id" => {
            let limit = Some(100);
            let filter = Filter { owner: (!viewer.is_root()).then_some(viewer), limit, ..Filter::default() };
            let found = service.history().search(filter).await.map_err(broken)?;
            found.into_iter().map(|found| found.run.run_id).collect()
        }
        _ => Vec::new(),
    };
    let mut values: Vec<_> = all.into_iter().filter(|value| value.starts_with(&argument.value)).collect();
    let more = values.len() > OFFERED;
    values.truncate(OFFERED);
    let mut info = CompletionInfo::new(values).map_err(|problem| ErrorData::internal_error(problem, None))?;
    info.has_more = Some(more);
    Ok(CompleteResult::new(info))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(words: &Words, value: &str) -> JsonObject {
        words.arguments.iter().map(|(name, _)| ((*name).to_owned(), json!(value))).collect()
    }

    fn said(result: &GetPromptResult) -> String {
        serde_json::to_value(result).unwrap()["messages"][0]["content"]["text"].as_str().unwrap().to_owned()
    }

    #[test]
    fn every_prompt_names_tools_that_there_are_and_has_all_that_it_is_given() {
        for words in ALL {
            let text = said(&get(words.name, Some(&given(words, "{x} {sentence}"))).unwrap());
            assert!(text.contains("{x} {sentence}") && !text.contains("{experiment_name}"), "{text}");
            let named = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
            let mut named = named.filter(|word| word.starts_with("chaos_")).peekable();
            assert!(named.peek().is_some(), "{}", words.name);
            for tool in named {
                assert!(TOOLS.iter().any(|known| known.name == tool), "{}: {tool}", words.name);
            }
        }
    }

    #[test]
    fn a_prompt_refuses_what_it_lacks_or_does_not_take_by_name() {
        let words = &ALL[0];
        let refused = |name: &str, arguments: Option<&JsonObject>| {
            get(name, arguments).unwrap_err().message.to_string()
        };
        assert!(refused("nosuch", None).contains("design_experiment"));
        assert!(refused(words.name, None).contains("missing sentence"));
        let mut more = given(words, "x");
        more.insert("other".to_owned(), json!("x"));
        assert!(refused(words.name, Some(&more)).contains("takes no \"other\""));
        let long = given(words, &"x".repeat(LONGEST + 1));
        assert!(refused(words.name, Some(&long)).contains("1 to 2000 bytes"));
    }
}
