//! The lines of what comes through the door: what the injector decides, and what the server says that it does.

use chaos_audit::{Kind, Outcome, Record, Who as AuditWho};
use jiff::Timestamp;

use super::super::state::Injector;
use crate::policy::Who;
use crate::request::approvals::ApprovalRequest;
use crate::request::claim::Claim;
use crate::request::facts::Question;
use crate::request::{ApiError, Reply, Request};

/// What was asked, to be recorded when it is answered.
pub(in crate::injector) struct Noted {
    record: Record,
    kind: Recorded,
}

/// What is recorded of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// That it was asked for, and what came of it.
    Both,
    /// What came of it.
    Answer,
    /// Why it was refused; that it was not, once a minute.
    Refusal,
    /// Why it was refused, and nothing else: what was allowed has lines of its own.
    RefusalAlone,
}

impl Noted {
    /// What is to be recorded of a request; of what is only looked at by the daemon itself, nothing. That something is to end is
    /// recorded at once, and nobody waits for it.
    pub(in crate::injector) fn of(injector: &Injector, request: &Request, claim: Claim) -> Option<Self> {
        let (act, on, what, kind) = told_of(request)?;
        let speaker = injector.claims().speaker(claim).ok();
        let mut record =
            Record { on, what, ..injector.record(act, speaker.as_ref().map(|speaker| &*speaker.who)) };
        if kind == Recorded::Both {
            record.id = Some(format!("{:016x}", rand::random::<u64>()));
            let outcome = Outcome::Intent;
            injector.audit.put(Kind::Act, Record { outcome, ..record.clone() });
        }
        Some(Self { record, kind })
    }

    /// Records what was answered.
    pub(in crate::injector) fn answered(self, injector: &Injector, reply: &mut Reply) {
        let Self { record, kind } = self;
        let record = Record { time: Timestamp::now(), ..record };
        let (done, line) = match reply {
            Reply::Error(error) => return injector.refused(record, error),
            Reply::Removed(removals) => {
                let left: Vec<_> = removals.iter().flat_map(|removal| removal.residue.clone()).collect();
                let names: Vec<_> = removals.iter().map(|removal| removal.name.to_string()).collect();
                let (outcome, reason) = match (left.is_empty(), names.is_empty()) {
                    (false, _) => (Outcome::Failed, format!("left behind: {}", left.join("; "))),
                    (true, true) => (Outcome::Done, "nothing was active".to_owned()),
                    (true, false) => (Outcome::Done, format!("ended: {}", names.join(", "))),
                };
                (Record { outcome, reason: Some(reason), ..record }, Kind::Act)
            }
            Reply::Planned(plan) => (Record { plan_digest: Some(plan.digest.clone()), ..record }, Kind::Act),
            Reply::PlannedAll(plans) => {
                let refused = plans.iter().filter_map(|plan| plan.as_ref().err()).count();
                let reason = Some(format!("{refused} of {} would be refused", plans.len()));
                (Record { reason, ..record }, Kind::Act)
            }
            // It may outlive whoever has begun it.
            Reply::Entrusted { .. } => (record, Kind::Start),
            _ => (record, Kind::Look),
        };
        if kind != Recorded::RefusalAlone {
            injector.audit.put(line, done);
        }
    }
}

/// The act, on what, in which words, and how much of it is recorded.
type ToldOf = (&'static str, Option<String>, Option<String>, Recorded);

/// What is recorded of a request.
fn told_of(request: &Request) -> Option<ToldOf> {
    let words = |fault: &crate::spec::FaultRequest| Some(fault.fault_type.name().to_owned());
    Some(match request {
        // That it begins is recorded when it is decided.
        Request::Inject { name, fault, .. } => {
            ("inject", Some(name.to_string()), words(fault), Recorded::RefusalAlone)
        }
        Request::Plan { name, fault } => ("plan", Some(name.to_string()), words(fault), Recorded::Answer),
        Request::PlanAll { faults } => {
            let names: Vec<_> = faults.iter().take(8).map(|fault| fault.name.to_string()).collect();
            ("plan_all", Some(names.join(", ")), None, Recorded::Answer)
        }
        Request::Remove { name } => ("stop", Some(name.to_string()), None, Recorded::Both),
        Request::StopAll => ("stop_all", None, None, Recorded::Both),
        Request::Look { question } => {
            let (act, on, kind) = asked(question)?;
            (act, on, None, kind)
        }
        Request::Entrust(what) => {
            let on = format!("{}/{}", what.owner, what.name);
            let words = format!("{:?} of document {}", what.what, what.document).to_lowercase();
            ("entrust", Some(on), Some(words), Recorded::Answer)
        }
        // Of what is approved there are lines of its own.
        Request::Approvals(what) => {
            let (act, on) = match what {
                ApprovalRequest::List => return None,
                ApprovalRequest::Approve { plan, .. } => ("approve", plan),
                ApprovalRequest::Withdraw { id } => ("withdraw_approval", id),
            };
            (act, Some(on.clone()), None, Recorded::RefusalAlone)
        }
        // What only looks whether a run would be let.
        Request::Approved(_)
        | Request::Status
        | Request::Release
        | Request::Keep { .. }
        | Request::Doctor
        | Request::Residue
        | Request::Record { .. }
        | Request::Audit { .. } => return None,
    })
}

/// What is recorded of a question. Whether somebody may do something at all is recorded with what they do.
fn asked(question: &Question) -> Option<(&'static str, Option<String>, Recorded)> {
    Some(match question {
        // What is done then is recorded, and what is only judged beforehand is not.
        Question::Act(_)
        | Question::Naming(_)
        | Question::Named { .. }
        | Question::Fault { .. }
        | Question::Skipping
        | Question::Rules
        | Question::Leave => return None,
        Question::Services(_) => ("look_at_services", None, Recorded::Refusal),
        Question::Experiment(_) => ("may_run", None, Recorded::RefusalAlone),
        Question::Address(host) => ("ask_address", Some(host.clone()), Recorded::RefusalAlone),
        Question::Unit(name) => ("look_at_unit", Some(name.clone()), Recorded::Refusal),
        Question::Processes(_) => ("look_at_processes", None, Recorded::Refusal),
        Question::Log { request, .. } => {
            ("read_log", request.unit.clone().or(request.file.clone()), Recorded::Refusal)
        }
        Question::Targets(_) => ("list_targets", None, Recorded::Refusal),
        Question::Command(path) => ("run_program", Some(path.clone()), Recorded::Refusal),
        Question::Python(modules) => ("call_python", Some(modules.join(", ")), Recorded::Refusal),
        Question::Kubeconfig(path) => ("use_kubeconfig", Some(path.clone()), Recorded::Refusal),
        Question::Credential { path, url } => {
            ("show_credential", Some(format!("{path} to {}", origin(url))), Recorded::Refusal)
        }
    })
}

/// An address without what may be secret in it.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    format!("{scheme}://{}", host.rsplit('@').next().unwrap_or_default())
}

/// Records what the server says that it does for a caller. Who that is, the injector knows itself; of one who has left by then the
/// line has no more than the server says, and nothing begins in such a name.
///
/// # Errors
/// When it is to begin after that, and cannot be written.
pub(in crate::injector) async fn told(
    injector: &Injector,
    (kind, told): (Kind, Record),
    who: Option<&Who>,
) -> Result<(), ApiError> {
    let own = injector.record(&told.act, who);
    // Of who has left there is what the server says, and never the daemon itself.
    let left = told.who.clone().unwrap_or_default();
    let left = AuditWho { uid: left.uid, cid: left.cid, ..AuditWho::default() };
    // Runs alone have lines that are never counted together, and those of somebody.
    let kind = if kind == Kind::Start && (told.act != "run" || who.is_none()) { Kind::Act } else { kind };
    let record = Record {
        time: Timestamp::now(),
        who: own.who.or(Some(left)),
        policy: own.policy,
        told_by_server: true,
        // Of the chain itself the server says nothing.
        dropped: None,
        mended: None,
        ..told
    }
    .bounded();
    if kind == Kind::Start && record.outcome == Outcome::Intent {
        return injector.before(record).await;
    }
    injector.audit.put(kind, record);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_address_nothing_is_told_that_may_be_secret() {
        for (url, told) in [
            ("https://user:secret@host:8443/path?token=secret#x", "https://host:8443"),
            ("http://[::1]:9090?a@b", "http://[::1]:9090"),
            ("secret", "://secret"),
        ] {
            assert_eq!(origin(url), told);
        }
    }
}
