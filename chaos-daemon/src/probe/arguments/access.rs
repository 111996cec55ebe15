//! The words by which a probe says whom it believes, and what it shows.

use std::fmt;

use clap::Args;

use crate::probe::credential::{self, Credential};
use crate::probe::trust::Trust;
use crate::spec::SpecError;

/// By whose word the server at an https address is who it says.
#[derive(Debug, Clone, Args)]
pub(super) struct TrustArgs {
    /// CA certificates in PEM by which the server is verified, in place of those that this host trusts; for the daemon below /etc
    #[arg(long, value_name = "PATH", conflicts_with = "no_verify_tls")]
    ca_file: Option<String>,
    /// Believe whoever answers over TLS
    #[arg(long)]
    no_verify_tls: bool,
}

impl TrustArgs {
    /// What they mean for the server at `url`; none may be given where nothing is verified.
    pub(super) fn of(&self, url: Option<&str>) -> Result<Trust, SpecError> {
        let given = match (&self.ca_file, self.no_verify_tls) {
            (None, false) => return Ok(Trust::Host),
            (Some(_), _) => "--ca-file",
            (None, true) => "--no-verify-tls",
        };
        if !url.and_then(|url| url.get(..8)).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
            return Err(SpecError::new(given, "only with an address of https"));
        }
        self.trust()
    }

    /// What they mean for a server that speaks TLS.
    pub(super) fn trust(&self) -> Result<Trust, SpecError> {
        match self.no_verify_tls {
            true => Ok(Trust::Anyone),
            false => Trust::file("--ca-file", self.ca_file.as_deref()),
        }
    }
}

/// By what the server at an address knows who asks.
#[derive(Clone, Args)]
pub(super) struct CredentialArgs {
    /// Bearer token that each request shows: in a document ${name} of its secrets; on a command line anybody can read it in ps
    #[arg(long, value_name = "TOKEN")]
    bearer: Option<String>,
    /// File that has the token in one line; the daemon shows what is in those that its policy names, to whom it says
    #[arg(long, value_name = "PATH")]
    bearer_file: Option<String>,
    /// User and password, in place of a token
    #[arg(long, value_name = "USER:PASSWORD")]
    basic: Option<String>,
    /// File that has both in one line, USER:PASSWORD
    #[arg(long, value_name = "PATH")]
    basic_file: Option<String>,
}

impl fmt::Debug for CredentialArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialArgs").finish_non_exhaustive()
    }
}

impl CredentialArgs {
    /// What they mean for the server at `url`; none may be given where nobody is shown one.
    pub(super) fn of(&self, url: Option<&str>, trust: &Trust) -> Result<Option<Credential>, SpecError> {
        let Self { bearer, bearer_file, basic, basic_file } = self;
        let (bearer, basic) = (bearer.as_deref(), basic.as_deref());
        let (bearer_file, basic_file) = (bearer_file.as_deref(), basic_file.as_deref());
        Credential::parse(credential::Terms { bearer, bearer_file, basic, basic_file }, url, trust)
    }
}
