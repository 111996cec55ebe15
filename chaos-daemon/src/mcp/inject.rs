//! `chaos_inject_fault`: registers, injects and removes faults by name.

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use super::params;
use super::results::{Failure, InjectOutput, lifetime, word};
use super::schema::object;
use super::tool::{Call, Hints, Output, Tool};
use crate::request::fields::Fields;
use crate::request::{ApiError, Caller, ErrorCode, FaultStatus};
use crate::server::history::views::sees_all;
use crate::server::keys::{Begun, IdempotencyKey, LONGEST_KEY};
use crate::server::service::{Injection, Removed, Service, check};
use crate::spec::{FaultRequest, FaultType, GivenName, Probability, SpecError};

/// The fields that describe a fault, so that they mean nothing but for `register`.
pub(super) const OF_A_FAULT: [&str; 6] =
    ["fault_type", "probability", "duration_seconds", "error_message", "target", "params"];

/// What a call does with the fault that it names.
pub(super) enum Action {
    Register(Box<FaultRequest>),
    Inject(Option<IdempotencyKey>, Option<String>),
    Remove,
}

pub(super) struct InjectFault;

impl Tool for InjectFault {
    const NAME: &'static str = "chaos_inject_fault";
    const TITLE: &'static str = "Inject a fault";
    const DESCRIPTION: &'static str = "Registers, injects or removes a real fault on this Linux host, by name. register stores what the \
        fault is (fault_type is required; a network fault needs target.interface), in place of any of yours of \
        the same name; inject rolls the registered probability (default 0.1) once and, if it says so, injects \
        until duration_seconds are over; remove ends the fault and forgets it, and succeeds for an unknown \
        name. Name the narrowest target that serves.";
    const HINTS: Hints = Hints::BREAKS;
    type Output = InjectOutput;

    fn input() -> JsonObject {
        let mut properties = params::of_fault();
        properties["action"] = json!({
            "type": "string", "enum": ["register", "inject", "remove"],
        });
        properties["idempotency_key"] = key_property(
            "For inject: one with the key of an earlier one injects nothing, and is answered with what that did.",
        );
        properties["plan_digest"] = digest_property("inject");
        object(properties, &["fault_name", "action"])
    }

    async fn carry_out(call: Call<'_>) -> Result<InjectOutput, ApiError> {
        carry_out(call).await
    }

    fn failed(arguments: &Map<String, Value>, error: &ApiError) -> InjectOutput {
        let text = |field| arguments.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        InjectOutput {
            status: "error".to_owned(),
            fault_name: text("fault_name"),
            fault_type: FaultType::parse(&text("fault_type")).map_or("", FaultType::name).to_owned(),
            ..InjectOutput::refused(error)
        }
    }
}

async fn carry_out(
    Call { service, caller, arguments, asker, .. }: Call<'_>,
) -> Result<InjectOutput, ApiError> {
    let (name, action) = parse(arguments)?;
    match action {
        Action::Register(fault) => register(service, name, *fault, caller).await,
        // Whoever leaves takes it back, so that there is no fault that nobody knows of.
        Action::Inject(key, planned) => tokio::select! {
            biased;
            () = asker.left() => {
                let text = format!("inject {name}: whoever asked for it does not wait for the answer any more");
                Err(ApiError::new(ErrorCode::Unavailable, text).hint("it is taken back: ask for it again"))
            }
            injected = inject(service, &name, (key, planned), caller) => injected,
        },
        Action::Remove => remove(service, name, caller).await,
    }
}

pub(super) fn parse(arguments: Map<String, Value>) -> Result<(GivenName, Action), ApiError> {
    let mut fields = Fields::new("", arguments);
    let name = fault_name(&mut fields)?;
    let action = fields.string("action")?;
    let action = fields.need("action", action, "give \"register\", \"inject\" or \"remove\"")?;
    let action = match action.as_str() {
        "register" => Action::Register(Box::new(fault(&mut fields)?)),
        "inject" | "remove" => {
            for field in OF_A_FAULT {
                if fields.take(field).is_some() {
                    let problem =
                        format!("belongs to action \"register\": {action} takes the fault as registered");
                    return Err(SpecError::new(field, problem).into());
                }
            }
            match action.as_str() {
                "inject" => Action::Inject(idempotency_key(&mut fields)?, fields.string("plan_digest")?),
                _ => Action::Remove,
            }
        }
        other => {
            let problem = format!("{other:?} is not known: give \"register\", \"inject\" or \"remove\"");
            return Err(SpecError::new("action", problem).into());
        }
    };
    if !matches!(action, Action::Inject(..)) {
        for (field, why) in [
            ("idempotency_key", "the others can be repeated as they are"),
            ("plan_digest", "the others do nothing of what was planned"),
        ] {
            if fields.take(field).is_some() {
                return Err(SpecError::new(field, format!("belongs to action \"inject\": {why}")).into());
            }
        }
    }
    fields.finish()?;
    Ok((name, action))
}

/// The fault that a call registers, if it does.
#[cfg(any(test, fuzzing))]
pub(super) fn registered(arguments: Map<String, Value>) -> Option<FaultRequest> {
    match parse(arguments) {
        Ok((_, Action::Register(fault))) => Some(*fault),
        _ => None,
    }
}

pub(super) fn fault_name(fields: &mut Fields) -> Result<GivenName, SpecError> {
    let name = fields.string("fault_name")?;
    GivenName::parse(&fields.need("fault_name", name, "name the fault, e.g. \"slow-database\"")?)
}

/// The fault that the fields describe, every value within its bounds.
pub(super) fn fault(fields: &mut Fields) -> Result<FaultRequest, ApiError> {
    let fault_type = fields.string("fault_type")?;
    let fault_type = fields.need("fault_type", fault_type, "register needs one, e.g. \"latency\"")?;
    let fault_type = FaultType::parse(&fault_type)?;
    let probability = match fields.number("probability")? {
        Some(value) => Probability::new("probability", value)?,
        None => Probability::DEFAULT,
    };
    let target = Value::Object(fields.object("target")?.unwrap_or_default());
    let fault = FaultRequest {
        fault_type,
        probability,
        duration_seconds: fields.number("duration_seconds")?,
        error_message: fields.string("error_message")?,
        target: serde_json::from_value(target)
            .map_err(|error| with_usage(fault_type, SpecError::new("target", error.to_string())))?,
        params: fields.object("params")?.unwrap_or_default(),
    };
    check(&fault).map_err(|error| with_usage(fault_type, error))?;
    Ok(fault)
}

/// What would have been right, with what is wrong.
fn with_usage(kind: FaultType, error: SpecError) -> ApiError {
    let name = kind.name();
    let usage = match error.field.split('.').next() {
        Some("params") => format!("{name} takes params: {}", kind.parameter_line()),
        Some("target") => {
            let fields = kind.target_fields().join(", ");
            format!("{name} takes of a target: {fields}; chaos_targets lists what there is")
        }
        _ => return error.into(),
    };
    ApiError::from(error).hint(usage)
}

async fn register(
    service: &Service,
    name: GivenName,
    fault: FaultRequest,
    caller: Caller,
) -> Result<InjectOutput, ApiError> {
    let fault_type = fault.fault_type;
    let probability = fault.probability.get();
    let registered = service.register(&name, fault, caller).await?;
    let mut message = format!(
        "{} {name}: each inject triggers with probability {probability}",
        if registered.replaced { "replaced" } else { "registered" }
    );
    if registered.needs_target {
        message.push_str("; it names no target yet, so inject will refuse it: register it again with one");
    }
    if registered.active {
        message.push_str("; the fault of this name that is active goes on as it was injected");
    }
    if let Some(problem) = registered.problem {
        message.push_str("; ");
        message.push_str(&problem);
    }
    Ok(InjectOutput {
        status: "registered".to_owned(),
        fault_name: name.to_string(),
        fault_type: fault_type.name().to_owned(),
        message: Some(message),
        ..InjectOutput::default()
    })
}

async fn inject(
    service: &Service,
    name: &GivenName,
    (key, planned): (Option<IdempotencyKey>, Option<String>),
    caller: Caller,
) -> Result<InjectOutput, ApiError> {
    let mut output = InjectOutput {
        status: "injected".to_owned(),
        fault_name: name.to_string(),
        ..InjectOutput::default()
    };
    let injection = match key {
        None => service.inject(name, planned, caller).await?,
        Some(key) => {
            let Begun { what, repeated } = service.inject_once(name, planned, &key, caller).await?;
            output.repeated = Some(repeated.is_some());
            if let Some(ago) = repeated {
                repeat(&mut output, &what, ago);
                return Ok(output);
            }
            what
        }
    };
    match injection {
        Injection::NotTriggered(fault) => {
            output.fault_type = fault.fault_type.name().to_owned();
            let probability = fault.probability.get();
            output.message = Some(format!(
                "not triggered: the roll at probability {probability} said no; nothing was done"
            ));
        }
        Injection::Active(fault, status) => {
            output.was_triggered = true;
            output.error_message.clone_from(&fault.error_message);
            describe(&mut output, &status);
        }
    }
    Ok(output)
}

/// What an earlier call has begun. How the fault is now it does not say: another one of its name may have come.
fn repeat(output: &mut InjectOutput, injection: &Injection, ago: Duration) {
    let ago = ago.as_secs_f64();
    let (fault, was) = match injection {
        Injection::NotTriggered(fault) => (fault, "the roll said no".to_owned()),
        Injection::Active(fault, status) => {
            output.was_triggered = true;
            output.error_message.clone_from(&fault.error_message);
            output.description = Some(status.description.clone());
            output.lifetime = Some(lifetime(status.lifetime));
            output.guard = Some(status.guard.clone());
            (fault, format!("{}; chaos_status says how it is now", status.description))
        }
    };
    output.fault_type = fault.fault_type.name().to_owned();
    output.message =
        Some(format!("nothing was done now; the first call with this key, {ago:.1} s ago: {was}"));
}

fn describe(output: &mut InjectOutput, status: &FaultStatus) {
    let seconds = status.remaining.as_secs_f64();
    output.fault_type = status.fault_type.name().to_owned();
    output.message = Some(format!("{}; ends by itself in {seconds:.1} s", status.description));
    output.description = Some(status.description.clone());
    output.state = Some(word(status.state));
    output.lifetime = Some(lifetime(status.lifetime));
    output.guard = Some(status.guard.clone());
    output.ends_in_seconds = Some(seconds);
    output.note.clone_from(&status.note);
    output.evidence = Some(status.evidence);
}

async fn remove(service: &Service, name: GivenName, caller: Caller) -> Result<InjectOutput, ApiError> {
    let Removed { removals, forgotten, stays, others } = service.remove(&name, caller).await?;
    let mut output = InjectOutput {
        status: "removed".to_owned(),
        fault_name: name.to_string(),
        fault_type: forgotten.map(|fault| fault.fault_type.name().to_owned()).unwrap_or_default(),
        ..InjectOutput::default()
    };
    let known = match (output.fault_type.is_empty(), stays) {
        (_, true) => "what is registered under it stays: its owner and root alone can remove that",
        (true, false) => "no such fault was registered",
        (false, false) => "forgotten",
    };
    let Some(removal) = removals.first() else {
        let others = others.map(|others| format!("; {others}")).unwrap_or_default();
        output.message = Some(format!("{known}; none was active{others}"));
        return Ok(output);
    };
    output.fault_type = removal.fault_type.name().to_owned();
    let sees_all = sees_all(removal.name.owner, caller.owner());
    output.evidence = sees_all.then_some(removal.evidence);
    output.note = removal.likely.clone().filter(|_| sees_all);
    output.residue = Some(removal.residue.clone());
    if removal.residue.is_empty() {
        let kept = removal.kept.iter().filter(|_| sees_all).map(|kept| format!("; {kept}"));
        let forgotten = if stays { known } else { "forgotten" };
        let found = format!("ended and {forgotten}; residue was looked for and none found");
        output.message = Some(std::iter::once(found).chain(kept).collect());
    } else {
        let text = format!("removing {name}: left behind: {}", removal.residue.join(", "));
        output.error = Some(Failure::from(
            &ApiError::new(ErrorCode::RevertFailed, text).hint("it is being retried: look at chaos_status"),
        ));
        output.status = "error".to_owned();
    }
    Ok(output)
}

/// The digest of what was planned, as JSON Schema.
pub(super) fn digest_property(of: &str) -> Value {
    json!({"type": "string",
        "description": format!("For {of}: the plan_digest of a plan. Anything else is refused.")})
}

/// Understands the key of what is to be begun once.
pub(super) fn idempotency_key(fields: &mut Fields) -> Result<Option<IdempotencyKey>, SpecError> {
    fields.string("idempotency_key")?.map(IdempotencyKey::new).transpose()
}

/// The key of what is to be begun once, as JSON Schema.
pub(super) fn key_property(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]+$",
        "description": format!("{description} Known for an hour.")})
}
