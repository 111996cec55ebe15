//! Commands that stay: `status --watch` and `inject --wait`.

use std::io::Write;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, json};
use tokio::time::sleep;

use super::client::{Answer, Client, ClientError};
use super::interrupts::Interrupts;
use super::show;
use crate::host::words;
use crate::mcp::results::StatusOutput;
use crate::spec::GivenName;

/// How often a status is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows the status again and again, until Ctrl-C or until the daemon is gone.
pub(super) async fn status(client: &Client, json: bool) -> Result<(), ClientError> {
    loop {
        let answer: Answer<StatusOutput> = client.ask("chaos_status", Map::new()).await?;
        if json {
            println!("{}", answer.json);
        } else {
            // Home and clear: the terminal's oldest trick, and all that is needed here.
            print!("\x1b[H\x1b[2J{}", words::plain(&show::status(&answer.read)));
        }
        if std::io::stdout().flush().is_err() {
            // Nobody looks any more.
            return Ok(());
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = sleep(INTERVAL) => {}
        }
    }
}

/// What is looked at of a status while a fault is waited for. Whatever else a daemon of another version says, the wait goes on.
#[derive(Deserialize)]
struct Active {
    active_faults: Vec<ActiveFault>,
}

#[derive(Deserialize)]
struct ActiveFault {
    name: String,
    active: Option<bool>,
}

/// Waits until a fault has ended, or ends it at an interrupt. Returns what to say.
pub(super) async fn until_end(
    client: &Client,
    name: &GivenName,
    interrupts: &mut Interrupts,
) -> Result<String, ClientError> {
    loop {
        tokio::select! {
            _ = interrupts.next() => {
                let arguments = Map::from_iter([("fault_name".to_owned(), json!(name))]);
                client.call("chaos_stop", arguments).await?;
                return Ok(format!("{name} stopped"));
            }
            () = sleep(INTERVAL / 2) => {}
        }
        let status: Active = client.ask("chaos_status", Map::new()).await?.read;
        let active = |fault: &ActiveFault| fault.name == name.to_string() && fault.active == Some(true);
        if !status.active_faults.iter().any(active) {
            return Ok(format!("{name} ended"));
        }
    }
}
