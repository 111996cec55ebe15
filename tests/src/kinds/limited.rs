//! What a control group without a controller is refused: limits, and what takes a share of one.

use serde_json::Value;

/// A request that needs a controller of the control group that it is aimed at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limited {
    /// What the table calls it.
    pub(crate) name: &'static str,
    /// Its parameters.
    pub(crate) params: fn() -> Value,
    /// The controller.
    pub(crate) controller: &'static str,
    /// As what the doctor knows that it needs the controller, if it does.
    pub(crate) resource: Option<&'static str>,
    /// The code of the refusal where the host has the controller, and the group has not.
    pub(crate) code: &'static str,
    /// Words of that refusal.
    pub(crate) words: &'static str,
}

/// A limit, which is called by its resource.
pub(super) const fn limit(
    resource: &'static str,
    controller: &'static str,
    params: fn() -> Value,
    words: &'static str,
) -> Limited {
    let code = "UNSUPPORTED_KERNEL";
    Limited { name: resource, params, controller, resource: Some(resource), code, words }
}

/// Memory that is counted by a limit.
pub(super) const fn of_memory(
    name: &'static str,
    resource: Option<&'static str>,
    params: fn() -> Value,
    words: &'static str,
) -> Limited {
    Limited { name, params, controller: "memory", resource, code: "INVALID_PARAMETER", words }
}
