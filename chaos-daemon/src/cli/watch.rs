//! Commands that stay: `status --watch` and `inject --wait`.

use std::io::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::client::{Client, ClientError};
use super::interrupts::Interrupts;
use super::show;
use crate::host::words;
use crate::spec::FaultName;

/// How often a status is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows the status again and again, until Ctrl-C or until the daemon is gone.
pub(super) async fn status(client: &Client, json: bool) -> Result<(), ClientError> {
    loop {
        let answer = client.call("chaos_status", Map::new()).await?;
        if json {
            println!("{answer}");
        } else {
            // Home and clear: the terminal's oldest trick, and all that is needed here.
            print!("\x1b[H\x1b[2J{}", words::plain(&show::status(&answer)));
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

/// Waits until a fault has ended, or ends it at an interrupt. Returns what to say.
pub(super) async fn until_end(
    client: &Client,
    name: &FaultName,
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
        let answer = client.call("chaos_status", Map::new()).await?;
        let active = |fault: &Value| fault["name"] == json!(name) && fault["active"] == json!(true);
        if !answer["active_faults"].as_array().is_some_and(|faults| faults.iter().any(active)) {
            return Ok(format!("{name} ended"));
        }
    }
}
