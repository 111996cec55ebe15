//! The words of `chaosctl probe series`.

use std::time::Duration;

use clap::Args;

use super::access::{CredentialArgs, TrustArgs};
use super::{address, names};
use crate::probe::command::Command;
use crate::probe::series::{MEASURES, Series, Terms};
use crate::probe::{Check, http};
use crate::spec::SpecError;
use crate::spec::options::duration;

#[derive(Debug, Clone, Args)]
pub(super) struct SeriesArgs {
    /// Address that is got
    #[arg(long, value_name = "URL")]
    http: Option<String>,
    /// Port that is connected to
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "http")]
    tcp: Option<String>,
    /// MCP server with which a session is opened, and which lists its tools
    #[arg(long, value_name = "URL", conflicts_with_all = ["http", "tcp"])]
    mcp: Option<String>,
    /// Of --http: status that is right; may be repeated [default: any 2xx]
    #[arg(long)]
    status: Vec<u16>,
    /// What is measured [default: failed_percent, and that nothing fails]
    #[arg(long, value_parser = names(MEASURES))]
    measure: Option<String>,
    /// How many, one after the other [default: 20]
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["rate", "window"])]
    samples: Option<u32>,
    /// How many a second, whether or not those before have been answered; 1 to 200 [default: 10, with --window]
    #[arg(long, value_name = "NUMBER")]
    rate: Option<u32>,
    /// For how long they are begun; --timeout is for all of it [default: 1s, or half of the timeout if it is less, with --rate]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    window: Option<Duration>,
    /// How long each may take: what takes longer has failed [default: what is left of the timeout]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    each: Option<Duration>,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    credential: CredentialArgs,
    /// A program that ends with 0, with its absolute path; the daemon runs those that its policy names
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["http", "tcp", "mcp"])]
    program: Vec<String>,
}

impl SeriesArgs {
    pub(super) fn check(self) -> Result<Check, SpecError> {
        if self.http.is_none() && !self.status.is_empty() {
            return Err(SpecError::new("--status", "only with --http"));
        }
        let url = self.http.as_deref().or(self.mcp.as_deref());
        let trust = self.trust.of(url)?;
        let credential = self.credential.of(url, &trust)?;
        let check = match (self.http, self.program.is_empty()) {
            (Some(url), _) => {
                let request = http::Request { url, trust, credential, ..http::Request::default() };
                Check::request("--http", request, self.status)?
            }
            (None, true) => {
                address(None, self.tcp.as_deref(), self.mcp.as_deref(), Vec::new(), (trust, credential))?
            }
            (None, false) => Command::parse(self.program, Vec::new(), None, None).map(Check::Command)?,
        };
        let Self { measure, samples, rate, window, each, .. } = self;
        let terms = Terms { measure: measure.as_deref(), samples, rate, window, each };
        Series::new(check, terms).map(Check::Series)
    }
}
