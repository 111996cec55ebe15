//! `chaosctl inject`: first what it would do, then that it does it, and perhaps until it has ended.

use clap::Args;
use serde_json::{Map, Value, json};

use super::client::{Answer, Client};
use super::failure::Failure;
use super::fault_args::{self, OfFault};
use super::interrupts::Interrupts;
use super::runs::object;
use super::{show, watch};
use crate::mcp::plan::PlanOutput;
use crate::mcp::results::InjectOutput;
use crate::spec::GivenName;

/// How a fault is injected.
#[derive(Debug, Args)]
pub(super) struct InjectArgs {
    /// Probability of this injection, 0 to 1
    #[arg(long, value_name = "FRACTION", default_value_t = 1.0)]
    pub(super) probability: f64,
    /// Only show what would be done
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do nothing but what was planned: the plan digest that --dry-run has shown
    #[arg(long, value_name = "DIGEST", conflicts_with = "dry_run")]
    pub(super) plan_digest: Option<String>,
    /// Stay until the fault has ended; Ctrl-C, or SIGTERM, ends it at once
    #[arg(long, conflicts_with = "dry_run")]
    pub(super) wait: bool,
}

/// Injects, or says what that would do: text for people, and the answer. While it stays, what was injected is `told`.
pub(super) async fn inject(
    client: &Client,
    args: &OfFault<InjectArgs>,
    mut fields: Map<String, Value>,
    told: impl FnOnce(&str),
) -> Result<(String, Value), Failure> {
    let name = GivenName { owner: args.owner, name: fault_args::name(&args.fault)? };
    fields.insert("fault_name".to_owned(), json!(name));
    // First without doing it: what will be refused shall not take the place of what is registered under the name.
    let plan: Answer<PlanOutput> = client.ask("chaos_plan", fields.clone()).await?;
    if args.more.dry_run {
        return Ok((show::plan(&plan.read), plan.json));
    }
    let planned = args.more.plan_digest.as_deref();
    if planned.is_some_and(|planned| planned != plan.read.plan_digest) {
        let text = format!(
            "what would be done now is not what was planned; it has the plan digest {}: look at it with --dry-run",
            plan.read.plan_digest
        );
        return Err(Failure::Other(text));
    }
    // From before there is anything to end.
    let interrupts = args.more.wait.then(Interrupts::new).transpose().map_err(Failure::Other)?;
    fields.insert("action".to_owned(), json!("register"));
    client.call("chaos_inject_fault", fields).await?;
    let order = |action: &str| object(json!({"fault_name": name, "action": action}));
    let mut inject = order("inject");
    inject.extend(planned.map(|planned| ("plan_digest".to_owned(), json!(planned))));
    let answer: Answer<InjectOutput> = match client.ask("chaos_inject_fault", inject).await {
        Ok(answer) => answer,
        Err(error) => {
            if args.fault.name.is_none() {
                // A name that nobody knows shall not stay; the first error is the one to tell.
                let _ = client.call("chaos_inject_fault", order("remove")).await;
            }
            return Err(error.into());
        }
    };
    let Some(mut interrupts) = interrupts.filter(|_| answer.read.was_triggered) else {
        return Ok((show::injected(&answer.read), answer.json));
    };
    told(&show::injected(&answer.read));
    let ended = watch::until_end(client, &name, &mut interrupts).await?;
    let answer = client.call("chaos_inject_fault", order("remove")).await?;
    Ok((format!("{ended}\n"), answer))
}
