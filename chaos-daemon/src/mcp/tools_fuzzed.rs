//! What the tools make of their arguments before they ask anybody, for `fuzzing`.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::Tool as _;
use super::catalogue::{self, ListExperiments};
use super::history::{self, ListRuns};
use super::inject::{self, InjectFault};
use super::schedule::{self, Scheduling};
use crate::fuzzing::is_written_as_it_is;
use crate::request::fields::Fields;
use crate::server::schedule::plan::{Plan, Words};
use crate::spec::Owner;

/// Some time in 2026, in seconds since 1970.
const NOW: i64 = 1_774_746_000;

/// Has the tool of this name read its arguments.
pub(in crate::mcp) fn read(tool: &str, arguments: Map<String, Value>) {
    let mut fields = Fields::new("", arguments.clone());
    match tool {
        InjectFault::NAME => {
            if let Some(fault) = inject::registered(arguments) {
                is_written_as_it_is(&fault);
                if let Ok(fault) = fault.parse() {
                    is_written_as_it_is(&fault);
                }
            }
        }
        Scheduling::NAME => {
            if let Ok(words) = schedule::words(&mut fields) {
                is_written_as_it_is(&words);
                fires(&words);
            }
        }
        ListRuns::NAME => drop(history::filter(&mut fields, Owner::User(1000))),
        ListExperiments::NAME => drop(catalogue::wanted(&mut fields)),
        _ => {}
    }
}

/// A schedule that is taken fires, and then again or not.
#[expect(clippy::expect_used, reason = "a schedule that never fires is what is looked for")]
fn fires(words: &Words) {
    let Ok(now) = Timestamp::from_second(NOW) else { return };
    let Ok(plan) = Plan::parse(words, now) else { return };
    let firing = plan.next(now).expect("a schedule that never fires was taken");
    assert!(now < firing.occurrence && firing.occurrence <= firing.due, "{firing:?}");
    let _then = (plan.due(now, firing.due), plan.next(firing.due));
    assert!(!plan.shown(firing.due).is_empty() && !plan.zone_name().is_empty());
}
