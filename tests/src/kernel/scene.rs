//! Two namespaces, a daemon, a client, and the promise that a refusal changes nothing.

use std::process::Command;

use serde_json::{Value, json};

use crate::late::HANG;
use crate::pair::INTERFACE;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

/// Where a refusal is tried.
pub(super) struct Scene {
    pub(super) pair: Pair,
    pub(super) daemon: Daemon,
    pub(super) mcp: Mcp,
    before: Residue,
}

impl Scene {
    pub(super) fn new() -> Result<Self> {
        Self::with(|_| {})
    }

    /// With more arguments for the daemon.
    pub(super) fn with(configure: impl FnOnce(&mut Command)) -> Result<Self> {
        Self::of(Daemon::start_with(configure)?)
    }

    /// With this daemon.
    pub(super) fn of(daemon: Daemon) -> Result<Self> {
        let pair = Pair::new()?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near, &pair.far])?;
        Ok(Self { pair, daemon, mcp, before })
    }

    /// Everything that a right registration of a partition has; `change` is laid over it, and its nulls are left out.
    pub(super) fn registration(&self, change: Value) -> Value {
        let target = json!({"netns": self.pair.near.name(), "interface": INTERFACE, "cidr": "10.77.0.2"});
        let mut whole = json!({"fault_name": "f", "action": "register", "fault_type": "network_partition",
            "probability": 1.0, "duration_seconds": 30, "target": target});
        lay_over(&mut whole, change);
        whole
    }

    /// Calls `chaos_inject_fault`, which has to refuse. Its error: code, message, hint.
    pub(super) fn refused(&self, arguments: Value) -> Result<[String; 3]> {
        let answer = self.mcp.call_tool("chaos_inject_fault", arguments.clone())?;
        let error = &answer.json["error"];
        if !answer.is_error || answer.json["status"] != "error" {
            return Err(Error::Different(format!("{arguments} was accepted: {}", answer.json)));
        }
        Ok(["code", "message", "hint"].map(|field| error[field].as_str().unwrap_or_default().to_owned()))
    }

    /// Registers a right fault that is changed by `change`, and injects it, which has to be refused; then forgets it.
    pub(super) fn inject_refused(&self, change: Value) -> Result<[String; 3]> {
        // By its names alone it may be refused before.
        if self.mcp.call_tool("chaos_inject_fault", self.registration(change.clone()))?.is_error {
            return self.refused(self.registration(change));
        }
        let refusal = self.refused(json!({"fault_name": "f", "action": "inject"}))?;
        self.mcp.call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "remove"}))?.ok()?;
        Ok(refusal)
    }

    /// Nothing is registered or active, nothing of ours lies about, and the links are as they were.
    pub(super) fn assert_untouched(&self) -> Result<()> {
        let status = self.mcp.call_tool("chaos_status", json!({}))?.ok()?;
        assert_eq!(status["active_faults"], json!([]), "{status}");
        let doctor = self.mcp.call_tool("chaos_doctor", json!({}))?.ok()?;
        assert_eq!(doctor["residue"], json!([]), "{doctor}");
        self.assert_links_unchanged()
    }

    /// The links, queues and filters of both namespaces are as they were.
    pub(super) fn assert_links_unchanged(&self) -> Result<()> {
        self.before.assert_unchanged_within(&[&self.pair.near, &self.pair.far], HANG)
    }
}

/// Object into object, deeply; null removes.
fn lay_over(whole: &mut Value, change: Value) {
    match (whole, change) {
        (Value::Object(whole), Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    whole.remove(&key);
                } else {
                    lay_over(whole.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (whole, change) => *whole = change,
    }
}
