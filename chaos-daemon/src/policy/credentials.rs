//! Which credentials probes may show, and to whom.

use std::collections::{BTreeMap, BTreeSet};

use super::refusal::{Refusal, quoted};
use super::{Policy, Who};
use crate::host::program::is_plain;
use crate::request::{Act, ApiError};
use crate::spec::origin::Origin;
use crate::spec::{Reach, SpecError};

/// The rule that names them.
const PROBE_CREDENTIALS: &str = "probe_credentials";

/// Whether all of it makes sense.
pub(super) fn check(credentials: &BTreeMap<String, BTreeSet<Origin>>) -> Result<(), SpecError> {
    for (path, origins) in credentials {
        let field = format!("{PROBE_CREDENTIALS}.{path:?}");
        if !is_plain(path) {
            let problem = "not the absolute path of a file: give e.g. \"/etc/chaos-daemon/prometheus.token\"";
            return Err(SpecError::new(field, problem));
        }
        if origins.is_empty() {
            let problem = "nobody may be shown it: give origins, e.g. [\"https://127.0.0.1:9090\"]";
            return Err(SpecError::new(field, problem));
        }
    }
    Ok(())
}

impl Policy {
    /// Decides whether a probe of somebody may ask this host, named as it is; returns which addresses it may have.
    ///
    /// # Errors
    /// The rule that forbids it.
    pub fn may_ask(&self, who: &Who, host: &str) -> Result<Reach, ApiError> {
        self.admit(who, Act::Probe)?;
        Ok(self.limits.admit_probe(host)?)
    }

    /// Decides whether a probe of somebody may show what is in the file at `path` to the server at `url`.
    ///
    /// # Errors
    /// The rule that forbids it, and what it would have to say.
    pub fn may_show(&self, who: &Who, path: &str, url: &str) -> Result<(), ApiError> {
        self.admit(who, Act::Probe)?;
        let origin = Origin::of(url);
        let origins = self.probe_credentials.get(path);
        if origin.as_ref().zip(origins).is_some_and(|(origin, origins)| origins.contains(origin)) {
            return Ok(());
        }
        let Some(origin) = origin else {
            let text = format!("{path} may not be shown to an address that has no origin");
            return Err(Refusal::new(PROBE_CREDENTIALS, text)
                .unless("give an address with scheme and host")
                .into());
        };
        let known = origins.into_iter().flatten().map(|origin| quoted(&origin.to_string()));
        let field = format!("{PROBE_CREDENTIALS}.{}", quoted(path));
        Err(Refusal::new(PROBE_CREDENTIALS, format!("{path} may not be shown to {origin}"))
            .but_for_one_more(&field, known, quoted(&origin.to_string()))
            .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Caller, ErrorCode};

    const ROOT: Caller = Caller::Unix { uid: 0, gid: 0, pid: 1 };

    #[test]
    fn a_credential_is_shown_only_where_the_policy_says_and_for_nobody_who_may_not_inject() {
        let refused = Policy::default().may_show(&ROOT.into(), "/etc/t", "https://p.test/api").unwrap_err();
        assert_eq!(refused.code, ErrorCode::PolicyDenied);
        let would = "probe_credentials.\"/etc/t\" = [\"https://p.test:443\"]";
        assert!(refused.hint.unwrap().contains(would), "{}", refused.message);
        let text = "probe_credentials = { \"/etc/t\" = [\"https://p.test\", \"http://127.0.0.1:9090\"] }\nroles.operator.uids = [1000]";
        let policy: Policy = toml::from_str(text).unwrap();
        policy.check().unwrap();
        let may = |path, url| policy.may_show(&ROOT.into(), path, url).is_ok();
        assert!(may("/etc/t", "https://p.test:443/x?y") && may("/etc/t", "http://127.0.0.1:9090"));
        for url in [
            "http://p.test",
            "https://p.test:9090",
            "https://evil/p.test",
            "https://p.test@evil",
            "http://127.0.0.1",
        ] {
            assert!(!may("/etc/t", url), "{url}");
        }
        assert!(!may("/etc/t2", "https://p.test"));
        let stranger = Caller::Unix { uid: 1001, gid: 0, pid: 1 };
        let refused = policy.may_show(&stranger.into(), "/etc/t", "https://p.test").unwrap_err();
        assert!(refused.hint.unwrap().contains("`roles.operator`"));
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_by_their_field() {
        for (path, origins) in
            [("t", "[\"https://a\"]"), ("/etc/*/../t", "[\"https://a\"]"), ("/etc/t", "[]")]
        {
            let policy: Policy =
                toml::from_str(&format!("probe_credentials = {{ {path:?} = {origins} }}")).unwrap();
            assert_eq!(policy.check().unwrap_err().field, format!("probe_credentials.{path:?}"));
        }
        for origin in ["*", "p.test", "https://a/path", "https://u:p@a"] {
            let text = format!("probe_credentials = {{ \"/etc/t\" = [{origin:?}] }}");
            let error = toml::from_str::<Policy>(&text).unwrap_err();
            assert!(error.to_string().contains("is no origin"), "{error}");
        }
    }
}
