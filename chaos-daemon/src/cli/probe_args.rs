//! The options of `chaosctl probe`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::duration;
use crate::probe::{Check, DEFAULT_TIMEOUT, LONGEST_TIMEOUT, Probe};
use crate::spec::SpecError;

/// One sample, taken by this command itself.
#[derive(Debug, Clone, Args)]
pub(super) struct ProbeArgs {
    #[command(subcommand)]
    check: CheckArgs,
    /// How long the answer may take
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, global = true)]
    timeout: Option<Duration>,
}

#[derive(Debug, Clone, Subcommand)]
enum CheckArgs {
    /// Whether a port accepts a connection
    Tcp {
        /// Host name or address, and port, e.g. 127.0.0.1:5432 or [::1]:80
        #[arg(value_name = "HOST:PORT")]
        address: String,
    },
    /// Whether an address answers
    Http {
        /// Address, e.g. http://127.0.0.1:8080/health
        url: String,
        /// Status that is right; may be repeated [default: any 2xx]
        #[arg(long)]
        status: Vec<u16>,
    },
}

impl ProbeArgs {
    /// The probe these options stand for.
    ///
    /// # Errors
    /// Names what is wrong.
    pub(super) fn probe(self) -> Result<Probe, SpecError> {
        let timeout = self.timeout.unwrap_or(DEFAULT_TIMEOUT);
        if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
            return Err(SpecError::new("--timeout", format!("give up to {LONGEST_TIMEOUT:?}")));
        }
        let check = match self.check {
            CheckArgs::Tcp { address } => Check::tcp("HOST:PORT", &address)?,
            CheckArgs::Http { url, status } => Check::http("URL", &url, status)?,
        };
        Ok(Probe { check, timeout })
    }
}
