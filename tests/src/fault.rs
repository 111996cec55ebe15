//! Faults through the daemon's MCP tools, as a client sees them.

use std::time::Duration;

use chaos_daemon::spec::{FaultType, TargetRequest};
use serde_json::{Value, json};

use crate::late::HANG;
use crate::pair::INTERFACE;
use crate::{Error, Mcp, NetNs, Result};

/// Longer than anybody waits for an end: one that comes is not by the fault's own time.
pub const LONG: Duration = Duration::from_secs(10 * HANG.as_secs());

/// A fault to inject, on `eth0` of a namespace or on the host.
#[derive(Debug, Clone)]
pub struct Fault {
    name: String,
    kind: &'static str,
    target: Value,
    params: Value,
    duration: Duration,
}

impl Fault {
    /// A fault of a type, named after it, for [`LONG`].
    pub fn new(kind: &'static str) -> Self {
        Self { name: kind.to_owned(), kind, target: json!({}), params: json!({}), duration: LONG }
    }

    /// On `eth0` of a namespace, for what `narrow` says (an object of target fields).
    #[must_use]
    pub fn on(mut self, namespace: &NetNs, narrow: Value) -> Self {
        self = self.here(narrow);
        self.target["netns"] = json!(namespace.name());
        self
    }

    /// On `eth0` of the namespace that the daemon is in, for what `narrow` says.
    #[must_use]
    pub fn here(mut self, narrow: Value) -> Self {
        self.target = json!({"interface": INTERFACE});
        self.narrowed(narrow)
    }

    /// At exactly this target.
    #[must_use]
    pub fn aimed(mut self, target: Value) -> Self {
        self.target = target;
        self
    }

    /// At its target, for what `narrow` says (an object of target fields).
    #[must_use]
    pub fn narrowed(mut self, narrow: Value) -> Self {
        extend(&mut self.target, narrow);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// With parameters.
    #[must_use]
    pub fn with(mut self, params: Value) -> Self {
        self.params = params;
        self
    }

    /// With further parameters.
    #[must_use]
    pub fn and_with(mut self, params: Value) -> Self {
        extend(&mut self.params, params);
        self
    }

    /// Under another name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// For so long.
    #[must_use]
    pub fn lasting(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// Registers it.
    ///
    /// # Errors
    /// When the daemon refuses.
    pub fn register(&self, mcp: &Mcp) -> Result<Value> {
        mcp.call_tool(
            "chaos_inject_fault",
            json!({
                "fault_name": self.name, "action": "register", "fault_type": self.kind, "probability": 1.0,
                "duration_seconds": self.duration.as_secs_f64(), "target": self.target, "params": self.params,
            }),
        )?
        .ok()
    }

    /// Registers and injects it; the daemon must say that it was triggered.
    ///
    /// # Errors
    /// When the daemon refuses.
    pub fn inject(&self, mcp: &Mcp) -> Result<Value> {
        self.register(mcp)?;
        let answer = mcp
            .call_tool("chaos_inject_fault", json!({"fault_name": self.name, "action": "inject"}))?
            .ok()?;
        match &answer["was_triggered"] {
            Value::Bool(true) => Ok(answer),
            _ => Err(Error::Different(format!("not triggered: {answer}"))),
        }
    }

    /// Removes it; the daemon must say that nothing was left.
    ///
    /// # Errors
    /// When the daemon fails, or something is left.
    pub fn remove(&self, mcp: &Mcp) -> Result<Value> {
        let answer = mcp
            .call_tool("chaos_inject_fault", json!({"fault_name": self.name, "action": "remove"}))?
            .ok()?;
        match answer["residue"].as_array() {
            Some(residue) if !residue.is_empty() => Err(Error::Different(format!("residue: {answer}"))),
            _ => Ok(answer),
        }
    }

    /// An action of an experiment that injects it, as the document has it.
    ///
    /// # Errors
    /// When the daemon knows no fault of this type.
    pub fn action(&self) -> Result<Value> {
        let kind = FaultType::parse(self.kind).map_err(|error| Error::Different(error.to_string()))?;
        let mut arguments = json!({"inject": self.kind, "--name": self.name, "--for": format!("{}s", self.duration.as_secs_f64())});
        let given = [(&self.target, TargetRequest::fields()), (&self.params, kind.parameters())];
        for (name, value, fields) in given.iter().flat_map(|(object, fields)| {
            object.as_object().into_iter().flatten().map(|(k, v)| (k, v, *fields))
        }) {
            let field = fields.iter().find(|field| field.name == *name);
            let field = field.ok_or_else(|| Error::Different(format!("{} has no {name}", self.kind)))?;
            let unit = if name.ends_with("_ms") { "ms" } else { "s" };
            let value = if field.is_duration() { json!(format!("{value}{unit}")) } else { value.clone() };
            arguments[format!("--{}", field.option())] = value;
        }
        let provider = json!({"type": "process", "path": "chaosctl", "arguments": arguments});
        Ok(json!({"type": "action", "name": self.name, "provider": provider}))
    }

    /// Its entry in the daemon's status.
    ///
    /// # Errors
    /// When there is none.
    pub fn status(&self, mcp: &Mcp) -> Result<Value> {
        let status = mcp.call_tool("chaos_status", json!({}))?.ok()?;
        let faults = status["active_faults"].as_array().cloned().unwrap_or_default();
        let mine = faults.into_iter().find(|fault| fault["name"] == self.name.as_str());
        mine.ok_or_else(|| Error::Different(format!("no {} in {status}", self.name)))
    }
}

fn extend(object: &mut Value, by: Value) {
    if let (Value::Object(object), Value::Object(by)) = (object, by) {
        object.extend(by);
    }
}
