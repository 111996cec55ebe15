//! Whatever is in a policy file, a policy that is taken decides, and always the same.

use std::path::Path;

use jiff::Timestamp;

use super::limits::Recent;
use super::{Asked, Intent, Policy};
use crate::fuzzing::agree;
use crate::request::Caller;
use crate::request::facts::Precautions;
use crate::spec::{FAULT_TYPES, FaultRequest, Probability, TargetRequest};

/// In 2026, and in the hour that some time zones do not have.
const TIMES: [i64; 3] = [1_767_225_600, 1_774_746_000, 1_792_893_600];

pub(crate) fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(policy) = Policy::parse(text, Path::new("policy.toml")) else { return };
    let again = Policy::parse(text, Path::new("policy.toml")).ok();
    assert!(again.as_ref() == Some(&policy), "read as {policy:?}, and then as {again:?}");
    assert!(policy.programs().is_ok(), "a policy of a file has programs that are none");
    for caller in [Caller::Unix { uid: 0, gid: 0, pid: 1 }, Caller::Unix { uid: 1000, gid: 100, pid: 7 }] {
        decide(&policy, caller);
    }
}

fn decide(policy: &Policy, caller: Caller) {
    let faults = FAULT_TYPES.iter().map(|fault_type| FaultRequest {
        fault_type: *fault_type,
        probability: Probability::CERTAIN,
        duration_seconds: Some(60.0),
        error_message: None,
        target: TargetRequest { interface: Some("eth0".to_owned()), ..TargetRequest::default() },
        params: serde_json::Map::new(),
    });
    let who = &caller.into();
    for fault in faults.filter_map(|fault| fault.parse().ok()) {
        let ask = |active| {
            let (fault, now) = (&fault, Timestamp::UNIX_EPOCH);
            let recent = Recent::default();
            policy.permit(&Asked { who, fault, active, recent, intent: Intent::Single, now })
        };
        let permit = ask(policy.max_active.saturating_sub(1));
        assert!(ask(policy.max_active).is_err(), "one more than the most");
        if let Ok(permit) = permit {
            let spared = permit.sparing(&[2222]);
            agree(&spared.protected().tcp_ports.contains(&2222), &true);
            let _may = (spared.may_load([10, 0, 0, 1].into()), spared.names(Path::new("/srv/data")));
        }
    }
    let _may = (policy.may_run(who, "/usr/bin/true"), policy.may_use(who, "/etc/kubeconfig"));
    let _may = policy.may_show(who, "/etc/token", "https://127.0.0.1:9090");
    for second in TIMES {
        if let Ok(now) = Timestamp::from_second(second) {
            let _may = policy.may_begin(who, &Precautions::default(), now);
        }
    }
}
