//! Checks that say nothing, as far as that is known from the document and the probe: those that are met whatever comes, and those that
//! nothing could meet. A check that cannot fail is no check.

use serde_json::{Value, json};

use super::gate::{Gate, Op, Rule};
use super::tolerance::{Form, Tolerance};
use crate::probe::span::Span;
use crate::probe::{Bounds, Check};
use crate::spec::SpecError;
use crate::spec::expression::is_in_every_text;

/// What is said of a check that cannot fail.
const ALWAYS: &str = "so that this cannot fail";

/// Refuses a tolerance, which stands at `path`, that says nothing of what a probe of this form returns.
///
/// # Errors
/// Why it says nothing, and what would.
pub(super) fn tolerance(path: &str, tolerance: &Tolerance, form: Form) -> Result<(), SpecError> {
    let wrong = |problem: String| Err(SpecError::new(path, problem));
    if let Tolerance::Regex { pattern, .. } = tolerance
        && is_in_every_text(pattern.as_str())
    {
        return wrong(format!("{:?} is found in every text, also in none, {ALWAYS}", pattern.as_str()));
    }
    if let Tolerance::Range { bounds: (low, high), .. } = tolerance
        && *low <= f64::MIN
        && *high >= f64::MAX
    {
        return wrong(format!("every number is within {low:e} to {high:e}, {ALWAYS}"));
    }
    let Some(outputs) = all(tolerance, form) else { return Ok(()) };
    let met = outputs.filter(|output| tolerance.judge(output).is_ok()).count();
    let (which, out_of) = of(form);
    match met {
        0 => wrong(format!("never met: {which}; {}", instead(tolerance, form))),
        // An answer that does not come is not met, whatever would be.
        _ if met == out_of && form == Form::Process => wrong(format!("always met: {which}, {ALWAYS}")),
        _ => Ok(()),
    }
}

/// Everything that a probe of this form can return, as far as the tolerance looks at it; `None` where that is not known.
fn all(tolerance: &Tolerance, form: Form) -> Option<impl Iterator<Item = Value>> {
    let status = || Some("status");
    let looks_at = match tolerance {
        Tolerance::Equal(_) | Tolerance::List(_) => status(),
        Tolerance::Asked(_) => None,
        Tolerance::Range { target, .. } | Tolerance::Regex { target, .. } => target.as_deref(),
        Tolerance::JsonPath { target, path, .. } => {
            let path = path.to_string();
            let only_status = path == "$.status" || path == "$['status']" || path == "$[\"status\"]";
            target.as_deref().or_else(status).filter(|_| target.is_some() || only_status)
        }
    }?;
    let known = match (form, looks_at) {
        (_, "status") => true,
        (Form::Process, "stderr") => true,
        // Text for people, with its time: a number it never is.
        (Form::Process, "stdout") => matches!(tolerance, Tolerance::Range { .. }),
        _ => false,
    };
    let statuses = match form {
        Form::Process => 0..=1,
        Form::Command => -64..=255,
        Form::Http => 100..=999,
        // It returns whatever it likes.
        Form::Python => return None,
    };
    let output = move |status: i32| match form {
        Form::Http | Form::Python => json!({"status": status, "headers": {}, "body": ""}),
        Form::Process | Form::Command => json!({"status": status, "stdout": "ok: connected\n", "stderr": ""}),
    };
    known.then(|| statuses.map(output))
}

/// What probes of this form return, for people, and how many statuses there are.
fn of(form: Form) -> (&'static str, usize) {
    match form {
        Form::Process => ("chaosctl probe ends with 0 or 1, and writes a line for people to stdout alone", 2),
        Form::Command => ("a program ends with 0 to 255, or by a signal", 320),
        Form::Python => ("a function returns whatever it likes", 0),
        Form::Http => ("a status of HTTP is a whole number from 100 to 999", 900),
    }
}

/// What would say something.
fn instead(tolerance: &Tolerance, form: Form) -> &'static str {
    match (form, tolerance) {
        (Form::Process, Tolerance::Range { .. }) => "give 0, and the bounds as --min and --max of the probe",
        (Form::Process, _) => "give 0, and what is right as options of the probe, such as --status 200",
        (Form::Command, _) => "give 0, or what of stdout is right",
        (Form::Http | Form::Python, _) => "give a status, such as 200",
    }
}

/// Refuses a gate, whose parts stand in `at`, that nothing breaches, or everything.
///
/// # Errors
/// Why it says nothing, and what would.
pub(super) fn gate(at: &str, gate: &Gate) -> Result<(), SpecError> {
    match &gate.rule {
        Rule::Compare { op, value, .. } => comparison(at, gate, *op, *value),
        Rule::Tolerance(_) => {
            let ignores = !gate.no_data_is_breach;
            let only_connects =
                matches!(gate.probe.check, Check::Tcp(_)) && gate.probe.bounds == Bounds::default();
            match ignores && only_connects {
                true => Err(SpecError::new(
                    format!("{at}.noData"),
                    "a port that accepts nothing is no data, which is ignored here: nothing could breach this gate; leave it out",
                )),
                false => Ok(()),
            }
        }
    }
}

fn comparison(at: &str, gate: &Gate, op: Op, value: f64) -> Result<(), SpecError> {
    let (probe, span) = (&gate.probe, gate.probe.span());
    // What comes too late to be measured is no data.
    let late_breaches = !span.reached && gate.no_data_is_breach;
    let (can_breach, can_be_well) = outcomes(op, value, span);
    let problem = match (can_breach || late_breaches, can_be_well) {
        (true, true) => return Ok(()),
        (false, _) => "nothing could breach this gate: give a value within that, or a longer interval",
        (true, false) => "everything breaches this gate: give a value within that",
    };
    Err(SpecError::new(
        format!("{at}.value"),
        format!("{value} with {}: {}; {problem}", op.name(), probe.measured()),
    ))
}

/// Whether the comparison can be true of something in this span, and whether it can be false.
fn outcomes(op: Op, value: f64, span: Span) -> (bool, bool) {
    let (above, at_least) = (span.most > value, span.reaches(value));
    let (below, at_most) = (span.least < value, span.least <= value);
    match op {
        Op::Gt => (above, at_most),
        Op::Gte => (at_least, below),
        Op::Lt => (below, at_least),
        Op::Lte => (at_most, above),
    }
}

#[cfg(test)]
#[path = "futile_tests.rs"]
mod tests;
