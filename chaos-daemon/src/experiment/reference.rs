//! Activities that are said once and named elsewhere: `ref`.

use serde_json::Value;

use super::activity::Reader;
use crate::request::fields::Fields;
use crate::spec::{Mistake, SpecError};

/// Activities with a name, and where they stand.
#[derive(Debug)]
pub(super) struct Named<'a>(Vec<(String, &'a Value)>);

/// What stands beside a reference without effect.
const BESIDE: [&str; 4] = ["type", "name", "description", "tags"];

impl<'a> Named<'a> {
    /// Those of the steady state and of the method. Of two with one name the last counts, and one of the steady state before all others, as
    /// for Chaos Toolkit.
    pub(super) fn of(probes: &'a [Value], method: &'a [Value]) -> Self {
        let at = |place: &'static str| move |(index, activity)| (format!("{place}[{index}]"), activity);
        let probes = probes.iter().enumerate().map(at("steady-state-hypothesis.probes"));
        Self(method.iter().enumerate().map(at("method")).chain(probes).collect())
    }

    /// The activity that is meant by what stands at `path`, and where it stands itself.
    pub(super) fn resolve(
        &self,
        path: &str,
        activity: Value,
        reader: &Reader<'_>,
    ) -> Option<(String, Value)> {
        let told = &reader.problems;
        let Some(name) = activity.get("ref").filter(|name| !name.is_null()) else {
            return Some((path.to_owned(), activity));
        };
        let at = format!("{path}.ref");
        let is_meant = |other: &Value| other.get("name") == Some(name) && other.get("ref").is_none();
        let Some((place, meant)) = self.0.iter().rev().find(|(_, other)| name.is_string() && is_meant(other))
        else {
            let problem = format!(
                "{name} is the name of no activity: give that of a probe or an action of this document"
            );
            told.note(SpecError::new(at, problem).code(Mistake::Undeclared));
            return None;
        };
        let mut fields = told.keep(Fields::of(path, activity.clone()))?;
        fields.take("ref");
        fields.leave_out(&BESIDE);
        fields.strangers().into_iter().for_each(|stranger| told.note(stranger));
        // What is said once may be named many times.
        told.keep(reader.room.take(&at, meant))?;
        Some((place.clone(), (*meant).clone()))
    }
}
