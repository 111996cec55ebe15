//! The options of `chaosctl mcp-proxy`.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::super::duration;
use crate::spec::SpecError;
use crate::spec::mcp::Spoiling;
use crate::spec::options::as_option;

/// Options of `chaosctl mcp-proxy`.
#[derive(Debug, Args)]
pub(in super::super) struct ProxyArgs {
    /// Answers come so much later
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    delay: Option<Duration>,
    /// Vary the delay by at most so much, either way
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    jitter: Option<Duration>,
    /// Share of the calls that is delayed, 0 to 1 [default: 1]
    #[arg(long, value_name = "FRACTION")]
    delay_share: Option<f64>,
    /// Share that is answered with an error, and never comes to the server
    #[arg(long, value_name = "FRACTION")]
    fail: Option<f64>,
    /// Share whose answer never comes
    #[arg(long, value_name = "FRACTION")]
    drop: Option<f64>,
    /// Share whose answer is cut short
    #[arg(long, value_name = "FRACTION")]
    truncate: Option<f64>,
    /// Share whose answer has a wrong byte
    #[arg(long, value_name = "FRACTION")]
    corrupt: Option<f64>,
    /// Methods that meet faults; may be repeated [default: tools/call]
    #[arg(long = "method", value_name = "METHOD")]
    methods: Vec<String>,
    /// Only calls of this tool; may be repeated
    #[arg(long = "tool", value_name = "NAME")]
    tools: Vec<String>,
    /// Faults end after so long; calls pass from then on
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    pub(super) lasting: Option<Duration>,
    /// The same seed, calls and version meet the same faults. Default: another one each time, which is printed at the end
    #[arg(long, value_name = "NUMBER")]
    pub(super) seed: Option<u64>,
    /// The server's command line
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

impl ProxyArgs {
    /// What becomes of which calls.
    ///
    /// # Errors
    /// Names the option that makes no sense.
    pub(super) fn spoiling(&self) -> Result<Spoiling, SpecError> {
        let millis = |time: Option<Duration>| json!(time.map(|time| time.as_secs_f64() * 1e3));
        let params = [
            ("delay_ms", millis(self.delay)),
            ("jitter_ms", millis(self.jitter)),
            ("delay_share", json!(self.delay_share)),
            ("fail", json!(self.fail)),
            ("drop", json!(self.drop)),
            ("truncate", json!(self.truncate)),
            ("corrupt", json!(self.corrupt)),
            ("methods", json!(self.methods)),
            ("tools", json!(self.tools)),
        ];
        let params = params.into_iter().filter(|(_, value)| !value.is_null());
        Spoiling::parse(&params.map(|(name, value)| (name.to_owned(), value)).collect()).map_err(
            |mut error| {
                // Here each is one of several options.
                error.field = error.field.replace("params.methods", "method").replace("params.tools", "tool");
                as_option(error)
            },
        )
    }
}
