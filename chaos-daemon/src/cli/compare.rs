//! `chaosctl compare`: two runs side by side, such as before and after a fix.

use clap::Args;
use serde_json::{Value, json};

use super::client::Client;
use super::failure::{FAILED, Failure};
use super::history;
use crate::report::compare::{Change, Comparison};
use crate::server::history::Recorded;

/// The exit codes of `chaosctl compare`.
pub(super) const EXIT_CODES: &str = "Exit codes:
  0  the second run held
  1  it did not, one of them has shown nothing, or the daemon has refused or failed
  2  the command line makes no sense
  3  the daemon cannot be reached, or went away
  4  not permitted";

/// Which runs.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// Handle of the run before, or the beginning of it
    #[arg(value_name = "RUN")]
    before: String,
    /// Handle of the run after, or the beginning of it
    #[arg(value_name = "RUN")]
    after: String,
}

/// Asks for both, and compares: text, the same for programs, and the exit code.
pub(super) async fn carry_out(client: &Client, args: &CompareArgs) -> Result<(String, Value, u8), Failure> {
    let [before, after] = both(client, [&args.before, &args.after]).await?;
    let found = Comparison::of(&before, &after);
    let code = if matches!(found.change, Change::Fixed | Change::StillHeld) { 0 } else { FAILED };
    Ok((found.page(), json!(found), code))
}

/// What is recorded of two runs.
pub(super) async fn both(client: &Client, [before, after]: [&str; 2]) -> Result<[Recorded; 2], Failure> {
    let one = history::recorded(history::run(client, before).await?).map_err(Failure::Other)?;
    let other = history::recorded(history::run(client, after).await?).map_err(Failure::Other)?;
    Ok([one, other])
}
