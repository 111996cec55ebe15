//! What experiments have to be like here, and which of it holds for single faults.

use serde::Deserialize;

use super::environment::{Environment, FIELD};
use super::refusal::Refusal;
use crate::request::facts::Precautions;
use crate::request::leave::Needed;

/// The table of the policy file about experiments.
const TABLE: &str = "experiments";
/// The one about single faults.
const SINGLE: &str = "single_faults";

/// What every experiment has to have, whoever begins it. Everything left out asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExperimentRules {
    /// Whether it has to say in which environments it may run.
    pub require_environments: bool,
    /// Whether it has to have a gate for which no data is a breach.
    pub require_gate: bool,
    /// Whether it has to name an alert that has to fire: without a monitor that sees it, it would only break things.
    pub require_alert: bool,
    /// Whether it has to have stages of its blast radius, of which a document leaves out none.
    pub require_stages: bool,
}

/// Which rules hold for a fault that is injected by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SingleFaultRules {
    /// Whether it may begin outside the windows. Default: no.
    pub any_time: bool,
    /// Whether it may be injected where experiments need something that a single fault never has. Default: no.
    pub without_requirements: bool,
}

impl ExperimentRules {
    /// What is required, each by its field, whether `has` has it, and what it is.
    fn required(&self, has: &Precautions) -> [(&'static str, bool, bool, &'static str); 4] {
        let environments = "`environments`, the list of those it may run in, in its extension chaos-daemon";
        let gate = "a gate for which no data is a breach, in `rollback_on` or `abort_when` of its extension chaos-daemon";
        let alert = "an alert with `fires_within`, in `alerts` of its extension chaos-daemon";
        let stages = "stages, by `blast_radius` of its extension chaos-daemon";
        [
            ("require_environments", self.require_environments, !has.environments.is_empty(), environments),
            ("require_gate", self.require_gate, has.gate, gate),
            ("require_alert", self.require_alert, has.alert, alert),
            ("require_stages", self.require_stages, has.stages, stages),
        ]
    }

    /// What every experiment has to have, each with the rule that asks for it.
    pub(super) fn needed(&self) -> impl Iterator<Item = Needed> {
        let needed = |(rule, required, _, what): (&str, bool, bool, &str)| {
            required.then(|| Needed { what: what.to_owned(), rule: format!("{TABLE}.{rule}") })
        };
        self.required(&Precautions::default()).into_iter().filter_map(needed)
    }

    /// Whether an experiment that says this of itself may begin.
    ///
    /// # Errors
    /// What it lacks, and the line that asks for it.
    pub(super) fn admit(&self, has: &Precautions) -> Result<(), Refusal> {
        let lacking = self.required(has).into_iter().find(|(_, required, has, _)| *required && !has);
        let Some((rule, _, _, what)) = lacking else { return Ok(()) };
        let text = format!("an experiment needs {what}, to be run here");
        Err(Refusal::new(format!("{TABLE}.{rule}"), text).but_for(format!("{TABLE}.{rule} = false")))
    }

    /// Whether a single fault may be injected where this is required of experiments.
    ///
    /// # Errors
    /// What it cannot have, and the line that would let it go without.
    pub(super) fn admit_single(&self, rules: &SingleFaultRules) -> Result<(), Refusal> {
        // The environments are the host's matter: a single fault names none.
        let required = self.required(&Precautions::default());
        let lacking = required.into_iter().skip(1).find(|(_, required, ..)| *required);
        let Some((rule, ..)) = lacking.filter(|_| !rules.without_requirements) else { return Ok(()) };
        let text = format!(
            "a single fault is refused here: `{TABLE}.{rule}` asks for what only an experiment has. Run it in an experiment"
        );
        Err(Refusal::new(SINGLE, text).but_for(format!("{SINGLE}.without_requirements = true")))
    }
}

/// Whether a document that names these environments may be run here. It narrows what the host allows, and never widens it.
///
/// # Errors
/// That this host is another, or that nobody has said what it is.
pub(super) fn admit_here(here: Option<&Environment>, environments: &[String]) -> Result<(), Refusal> {
    let allowed = environments.join(", ");
    let text = match here {
        _ if environments.is_empty() => return Ok(()),
        Some(here) if environments.iter().any(|named| named == here.name()) => return Ok(()),
        Some(here) => format!("it may run in environment {allowed} only, and this is {}", here.name()),
        None => format!("it may run in environment {allowed} only, and it is not said which this is"),
    };
    Err(Refusal::new(FIELD, text).unless("the document's `environments` has to name what this host is"))
}

#[cfg(test)]
mod tests {
    use super::super::refusal::Way;
    use super::*;

    fn rules(text: &str) -> ExperimentRules {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_document_runs_only_where_it_says_that_it_may() {
        let here = |name: &str| Environment::try_from(name.to_owned()).unwrap();
        let names = ["staging".to_owned(), "test".to_owned()];
        let said = admit_here(None, &names).unwrap_err();
        assert!(said.message.contains("staging, test only") && said.rule == "environment", "{said:?}");
        let said = admit_here(Some(&here("dev")), &names).unwrap_err();
        assert!(said.message.contains("this is dev") && matches!(said.way, Way::Otherwise(_)), "{said:?}");
        assert_eq!(admit_here(Some(&here("test")), &names), Ok(()));
        assert_eq!(admit_here(Some(&here("dev")), &[]), Ok(()));
    }

    #[test]
    fn what_is_required_and_not_there_is_named_with_its_rule() {
        let environments = vec!["test".to_owned()];
        let all =
            Precautions { environments, gate: true, alert: true, stages: true, ..Precautions::default() };
        for (rule, without, word) in [
            (
                "require_environments",
                Precautions { environments: Vec::new(), ..all.clone() },
                "`environments`",
            ),
            ("require_gate", Precautions { gate: false, ..all.clone() }, "`rollback_on`"),
            ("require_alert", Precautions { alert: false, ..all.clone() }, "`alerts`"),
            ("require_stages", Precautions { stages: false, ..all.clone() }, "`blast_radius`"),
        ] {
            let text = format!("{rule} = true");
            let said = rules(&text).admit(&without).unwrap_err();
            assert!(said.message.contains(word), "{said:?}");
            assert_eq!(said.rule, format!("experiments.{rule}"));
            assert!(
                matches!(&said.way, Way::Lines { full, .. } if *full == format!("experiments.{rule} = false"))
            );
            assert_eq!(rules(&text).admit(&all), Ok(()));
            assert_eq!(rules("").admit(&without), Ok(()));
        }
    }

    #[test]
    fn a_single_fault_has_nothing_of_what_is_required_of_experiments() {
        let strict = SingleFaultRules::default();
        assert_eq!(rules("").admit_single(&strict), Ok(()));
        assert_eq!(rules("require_environments = true").admit_single(&strict), Ok(()));
        for rule in ["require_gate", "require_alert", "require_stages"] {
            let rules = rules(&format!("{rule} = true"));
            let said = rules.admit_single(&strict).unwrap_err();
            assert!(said.message.contains(rule), "{said:?}");
            assert!(
                matches!(&said.way, Way::Lines { full, .. } if full == "single_faults.without_requirements = true")
            );
            let free = SingleFaultRules { without_requirements: true, ..strict.clone() };
            assert_eq!(rules.admit_single(&free), Ok(()));
        }
    }
}
