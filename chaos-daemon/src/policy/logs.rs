//! Logs that probes may read: what an experiment sees of them, everybody sees who may use the daemon.

use std::fmt;

use serde::Deserialize;

use super::refusal::{Refusal, quoted};
use super::{Policy, Who};
use crate::request::{Act, ApiError};
use crate::spec::log::{check_path, check_unit};
use crate::spec::{Log, SpecError};

/// The rule that names logs.
const PROBE_LOGS: &str = "probe_logs";
/// What comes before the name of a unit.
const UNIT: &str = "unit:";
/// What stands for every file of a folder, and for none of the folders in it.
const ANY: &str = "/*";

/// A log, or the logs of a folder, as the policy file has them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum LogRule {
    /// `unit:payment.service`
    Unit(String),
    /// `/var/log/payment.log`
    File(String),
    /// `/var/log/payment/*`: the folder.
    Folder(String),
}

impl TryFrom<String> for LogRule {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        let field = PROBE_LOGS;
        if let Some(name) = text.strip_prefix(UNIT) {
            return check_unit(field, name).map(|()| Self::Unit(name.to_owned()));
        }
        let (path, is_folder) = match text.strip_suffix(ANY) {
            Some(folder) => (folder, true),
            None => (&*text, false),
        };
        check_path(field, path)?;
        if path.contains('*') {
            let problem = format!("{text:?}: * is all of the last part of a path, or none of it");
            return Err(SpecError::new(field, problem));
        }
        Ok(if is_folder { Self::Folder(path.to_owned()) } else { Self::File(path.to_owned()) })
    }
}

impl fmt::Display for LogRule {
    /// As the policy file has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(name) => write!(f, "{UNIT}{name}"),
            Self::File(path) => f.write_str(path),
            Self::Folder(path) => write!(f, "{path}{ANY}"),
        }
    }
}

impl LogRule {
    fn covers(&self, log: &Log) -> bool {
        match (self, log) {
            (Self::Unit(known), Log::Unit { name, .. }) => known == name,
            (Self::File(known), Log::File { path, .. }) => known == path,
            (Self::Folder(known), Log::File { path, .. }) => {
                path.rsplit_once('/').is_some_and(|(folder, _)| known == folder)
            }
            _ => false,
        }
    }
}

impl Policy {
    /// Decides whether somebody may be told what is in a log, which says nothing of where its path leads.
    ///
    /// # Errors
    /// The rule that forbids it, and what it would have to say.
    pub fn may_read(&self, who: &Who, log: &Log) -> Result<(), ApiError> {
        self.admit(who, Act::Probe)?;
        if self.probe_logs.iter().any(|rule| rule.covers(log)) {
            return Ok(());
        }
        let (what, rule) = match log {
            Log::Unit { name, .. } => (format!("the journal of {name}"), format!("{UNIT}{name}")),
            Log::File { path, .. } => (path.clone(), path.clone()),
        };
        let known = self.probe_logs.iter().map(|rule| quoted(&rule.to_string()));
        Err(Refusal::new(PROBE_LOGS, format!("{what} may not be read"))
            .but_for_one_more(PROBE_LOGS, known, quoted(&rule))
            .into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::request::{Caller, ErrorCode};

    const ROOT: Caller = Caller::Unix { uid: 0, gid: 0, pid: 1 };

    fn file(path: &str) -> Log {
        Log::File { path: path.into(), last: 1, within: None }
    }

    fn unit(name: &str) -> Log {
        Log::Unit { name: name.into(), within: Duration::from_secs(1), priority: None }
    }

    #[test]
    fn no_log_may_be_read_unless_the_policy_names_it_and_it_is_said_how() {
        let refused = Policy::default().may_read(&ROOT.into(), &file("/var/log/a.log")).unwrap_err();
        assert_eq!(refused.code, ErrorCode::PolicyDenied);
        assert!(refused.hint.as_ref().unwrap().contains("probe_logs = [\"/var/log/a.log\"]"), "{refused}");
        assert!(refused.hint.unwrap().contains("`probe_logs`"));
        let refused = Policy::default().may_read(&ROOT.into(), &unit("a.service")).unwrap_err();
        assert!(refused.hint.unwrap().contains("probe_logs = [\"unit:a.service\"]"));
    }

    #[test]
    fn what_is_named_may_be_read_and_nothing_beside_it() {
        let policy: Policy =
            toml::from_str("probe_logs = [\"/var/log/pay/*\", \"/srv/a.log\", \"unit:a.service\"]").unwrap();
        let may = |log: Log| policy.may_read(&ROOT.into(), &log).is_ok();
        for path in ["/var/log/pay/a.log", "/var/log/pay/.b", "/var/log/pay/*", "/srv/a.log"] {
            assert!(may(file(path)), "{path}");
        }
        for path in [
            "/var/log/pay",
            "/var/log/pay/a/b.log",
            "/var/log/payment/a.log",
            "/srv/a.log.1",
            "/srv/a",
            "/a.log",
        ] {
            assert!(!may(file(path)), "{path}");
        }
        assert!(may(unit("a.service")) && !may(unit("b.service")) && !may(unit("a.scope")));
    }

    #[test]
    fn who_may_not_inject_may_not_read_either() {
        let policy: Policy =
            toml::from_str("probe_logs = [\"/a.log\"]\nroles.operator.uids = [1000]").unwrap();
        let user = |uid| Caller::Unix { uid, gid: uid, pid: 7 };
        assert!(policy.may_read(&user(1000).into(), &file("/a.log")).is_ok());
        let refused = policy.may_read(&user(1001).into(), &file("/a.log")).unwrap_err();
        assert!(refused.hint.unwrap().contains("`roles.operator`"));
    }

    #[test]
    fn what_names_no_log_is_no_policy() {
        for rule in [
            "",
            "*",
            "/*",
            "/",
            "a.log",
            "/var/log/*.log",
            "/var/*/a.log",
            "/var/log/**",
            "/var/log/../a",
            "/var/log/",
            "unit:",
            "unit:*.service",
            "unit:a",
            "unit: a.service",
        ] {
            let error = toml::from_str::<Policy>(&format!("probe_logs = [{rule:?}]")).err();
            let error = error.unwrap_or_else(|| panic!("{rule:?} was accepted")).to_string();
            assert!(error.contains("probe_logs: "), "{rule:?}: {error}");
        }
    }
}
