//! What a policy means for an agent, in a few lines of Markdown: for the file of rules that its client reads.

use std::fmt::Display;

use super::{FaultTypeName, Policy};

/// The most lines that the rules have.
pub const MOST_LINES: usize = 18;
/// The most entries of a list that are named; of the others it is said how many there are.
const MOST_NAMED: usize = 8;

impl Policy {
    /// What callers have to keep to here: as many lines as [`MOST_LINES`] at most, none of them a mark-up of others. Who has which role,
    /// and which files, programs and credentials are named, is not in them.
    pub fn rules(&self) -> String {
        let mut lines = vec!["## Chaos Rules".to_owned(), String::new()];
        lines.push(self.here());
        let markers = named(self.production_markers.texts());
        lines.push(format!("- Never aim at production: at no name with one of {markers} in it."));
        lines.push(self.bounds());
        lines.extend(self.needed());
        lines.push(
            "- The blast radius is staged: 10, 25, 50, 100 %. Skip no stage; the daemon refuses it."
                .to_owned(),
        );
        lines.extend(self.times());
        lines.push(
            "- Three runs in a row that held are no resilience: widen the blast radius, or take another fault."
                .to_owned(),
        );
        lines.extend(["", "## Chaos Workflow", ""].map(str::to_owned));
        let steps = [
            "Say which host and environment it is (chaos_node). Refuse in production.",
            "Propose the plan (chaos_plan, chaos_plan_experiment): gate, blast radius, what ends it.",
            "Wait for a person's approval in the prompt before anything is injected or run.",
            "Watch it (chaos_status, chaos_get_run); if a gate is breached, call chaos_stop at once.",
            "Afterwards write one paragraph: what failed, which objective, the likely cause.",
        ];
        lines.extend(steps.iter().zip(1..).map(|(step, number)| format!("{number}. {step}")));
        lines.join("\n") + "\n"
    }

    fn here(&self) -> String {
        match &self.environment {
            None => {
                "- Nobody has said what this host is, so only plan here: inject and run nothing.".to_owned()
            }
            Some(here) if here.is_production() => {
                format!("- This host is {}: plan, probe, inject and run nothing here.", code(here.name()))
            }
            Some(here) => {
                format!("- This host is {}. Chaos is for it alone, never for production.", code(here.name()))
            }
        }
    }

    fn bounds(&self) -> String {
        let kinds = match &self.fault_types {
            None => "any type of fault".to_owned(),
            Some(kinds) if kinds.is_empty() => "no fault".to_owned(),
            Some(kinds) => format!("only {}", named(kinds.iter().map(|FaultTypeName(kind)| kind.name()))),
        };
        let places = match &self.interfaces {
            None => String::new(),
            Some(names) if names.is_empty() => ", on no interface".to_owned(),
            Some(names) => format!(", on interfaces {}", named(names.iter())),
        };
        format!(
            "- Inject {kinds}{places}; {} at once, each {} s at most.",
            self.max_active, self.max_duration_seconds
        )
    }

    /// What experiments have to bring; the numbers are the operator's, and a gate without a number is none.
    fn needed(&self) -> Vec<String> {
        let rules = &self.experiments;
        let what = [
            (rules.require_environments, "its `environments`"),
            (rules.require_gate, "a gate with a number, for which no data is a breach"),
            (rules.require_alert, "an alert that has to fire"),
            (rules.require_stages, "a `blast_radius`"),
        ];
        let what: Vec<_> = what.iter().filter_map(|(asked, what)| asked.then_some(*what)).collect();
        match what.as_slice() {
            [] => vec![
                "- Declare a gate with a number in every experiment, which ends it when it is breached."
                    .to_owned(),
            ],
            what => {
                let single = match self.single_faults.without_requirements {
                    true => "",
                    false => " Single faults are refused.",
                };
                vec![format!("- Every experiment needs {}.{single}", what.join(", "))]
            }
        }
    }

    fn times(&self) -> Option<String> {
        let zone = code(self.windows.time_zone.as_deref().unwrap_or("UTC"));
        let mut parts = Vec::new();
        if !self.windows.only.is_empty() {
            parts.push(format!("only {}", named(self.windows.only.iter())));
        }
        if !self.windows.never.is_empty() {
            parts.push(format!("never {}", named(self.windows.never.iter())));
        }
        (!parts.is_empty()).then(|| format!("- Begin {} ({zone}).", parts.join(", ")))
    }
}

/// A value of the policy between back quotes, in which nothing is mark-up.
fn code(text: impl Display) -> String {
    let plain: String =
        text.to_string().chars().filter(|it| !it.is_control() && *it != '`').take(64).collect();
    format!("`{plain}`")
}

fn named<T: Display>(all: impl Iterator<Item = T>) -> String {
    let all: Vec<_> = all.map(code).collect();
    match all.split_at_checked(MOST_NAMED) {
        Some((first, more)) if !more.is_empty() => format!("{} and {} more", first.join(", "), more.len()),
        _ => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> String {
        Policy::parse(text, std::path::Path::new("policy.toml")).unwrap().rules()
    }

    #[test]
    fn whatever_the_policy_says_the_rules_are_few_lines_that_say_it() {
        let full = rules(
            "environment = \"staging\"\nfault_types = [\"latency\"]\ninterfaces = [\"a\", \"b\"]\nmax_active = 3\n\
             max_duration_seconds = 60\nwindows.only = [\"mon-fri 09:00-17:00\"]\nwindows.never = [\"12-24\"]\n\
             windows.time_zone = \"Europe/Berlin\"\n[experiments]\nrequire_gate = true\nrequire_stages = true",
        );
        for words in [
            "`staging`",
            "only `latency`",
            "interfaces `a`, `b`",
            "3 at once, each 60 s",
            "a gate with a number",
            "a `blast_radius`. Single faults are refused",
            "only `mon-fri 09:00-17:00`",
            "never `12-24`",
            "(`Europe/Berlin`)",
            "`production`, `prod`, `prd`",
        ] {
            assert!(full.contains(words), "{words}: {full}");
        }
        for text in ["", "environment = \"production\"", "environment = \"test\"\nfault_types = []"] {
            assert!(rules(text).lines().count() <= MOST_LINES, "{}", rules(text));
        }
        assert!(full.lines().count() <= MOST_LINES, "{full}");
        assert!(rules("").contains("inject and run nothing"));
        assert!(rules("environment = \"production\"").contains("probe, inject and run nothing"));
    }

    #[test]
    fn a_value_is_no_mark_up_and_a_long_list_is_cut() {
        let many = (0..200).map(|number| format!("\"eth{number}\"")).collect::<Vec<_>>().join(",");
        let told = rules(&format!("environment = \"a`b <!-- c\"\ninterfaces = [{many}]"));
        assert!(told.contains("`ab <!-- c`") && told.contains("and 192 more"), "{told}");
        assert!(told.lines().count() <= MOST_LINES && told.len() < 3000, "{told}");
    }
}
