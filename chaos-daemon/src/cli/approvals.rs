//! `chaosctl approve` and `chaosctl approvals`: what others want to do, and may not do alone.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::client::{Client, ClientError};
use super::duration;
use crate::host::words;
use crate::mcp::approvals::{ApprovalsOutput, METHOD};
use crate::request::approvals::{Approval, ApprovalRequest};
use crate::spec::Owner;

#[derive(Debug, Args)]
pub(super) struct ApproveArgs {
    /// The whole digest of the plan, as `chaosctl approvals` has it
    plan: String,
    /// Whose plan it is, by number, where several users have it
    #[arg(long, value_name = "UID")]
    of: Option<u32>,
    /// From when on it holds, such as 2026-02-05T10:00:00Z, up to a day ahead [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// For how long it holds, e.g. 10m [default: as long as the policy lets it]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    lasts: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct ApprovalsArgs {
    #[command(subcommand)]
    command: Option<ApprovalsCommand>,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// List what waits for an approval or has one: all of it for approvers, your own for others
    List,
    /// Take an approval back that was not used yet: one that you have given, or one of a plan of yours
    Withdraw {
        /// Its number, as the list has it
        id: String,
    },
}

/// Approves of a plan. Returns text for people, and the answer.
pub(super) async fn approve(client: &Client, args: &ApproveArgs) -> Result<(String, Value), ClientError> {
    let ApproveArgs { plan, of, from, lasts } = args;
    let of = of.map(Owner::User);
    let what = ApprovalRequest::Approve { plan: plan.clone(), of, from: *from, lasts: *lasts };
    let all = ask(client, &what).await?;
    let mut text = lines(&all);
    for approval in &all {
        let left = approval.persons.saturating_sub(approval.given.len());
        let _ = match left {
            0 => writeln!(text, "approved: {} may carry it out once", approval.requester),
            left => writeln!(text, "approved; {left} more has to approve of it"),
        };
    }
    Ok((text, json!(all)))
}

/// Lists approvals, or takes one back.
pub(super) async fn carry_out(client: &Client, args: &ApprovalsArgs) -> Result<(String, Value), ClientError> {
    Ok(match &args.command {
        None | Some(ApprovalsCommand::List) => {
            let all = ask(client, &ApprovalRequest::List).await?;
            let text =
                if all.is_empty() { "nothing waits for an approval\n".to_owned() } else { lines(&all) };
            (text, json!(all))
        }
        Some(ApprovalsCommand::Withdraw { id }) => {
            let all = ask(client, &ApprovalRequest::Withdraw { id: id.clone() }).await?;
            (format!("withdrawn: {id}\n"), json!(all))
        }
    })
}

async fn ask(client: &Client, what: &ApprovalRequest) -> Result<Vec<Approval>, ClientError> {
    let (answer, json): (ApprovalsOutput, Value) = client.custom(METHOD, json!(what)).await?;
    match answer.error {
        None => Ok(answer.approvals),
        Some(error) => {
            let (code, message, hint) = (error.code, error.message, error.hint);
            Err(ClientError::Refused { code, message, hint, answer: json })
        }
    }
}

/// What waits, for people: what would be done before whose wish it is.
fn lines(all: &[Approval]) -> String {
    let mut text = String::new();
    for approval in all {
        let Approval { plan, requester, on, stage, does, rule, why, persons, given, used, .. } = approval;
        let stage = stage.map(|stage| format!(", stage {stage} %")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{plan}");
        let _ = writeln!(text, "  {} of {requester}{stage}", words::line(on));
        for line in does {
            let _ = writeln!(text, "  does     {}", words::line(line));
        }
        let _ = writeln!(text, "  because  {} ({rule})", words::line(why));
        for given in given {
            let (id, by, from, until) = (&given.id, given.by, given.from, given.until);
            let _ = writeln!(text, "  {id} by {by}, from {from:.0} until {until:.0}");
        }
        let _ = match used {
            Some(used) => writeln!(text, "  used     by {}", words::line(used)),
            None => writeln!(text, "  {} of {persons} have approved", given.len()),
        };
    }
    text
}
