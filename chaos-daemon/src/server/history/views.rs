//! What of a run a user sees: all of one's own, and root of everybody's; of others that it was, how it ended, and when.

use super::{ExperimentResult, Recorded, Summary};
use crate::spec::Owner;

impl Summary {
    /// It as `viewer` sees it.
    #[must_use]
    pub fn seen_by(self, viewer: Owner) -> Self {
        let run = named(self.run, self.owner, viewer);
        match sees_all(self.owner, viewer) {
            true => Self { run, ..self },
            false => Self {
                run: outline(run),
                owner: self.owner,
                digest: None,
                fault_types: Vec::new(),
                fates: Vec::new(),
                score: None,
            },
        }
    }
}

impl Recorded {
    /// Whose run it was.
    pub fn owner(&self) -> Owner {
        self.owner.as_deref().and_then(Owner::from_words).unwrap_or(Owner::ROOT)
    }

    /// It as `viewer` sees it.
    #[must_use]
    pub fn seen_by(self, viewer: Owner) -> Self {
        let owner = self.owner();
        let run = named(self.run.clone(), owner, viewer);
        match sees_all(owner, viewer) {
            true => Self { run, ..self },
            false => Self { run: outline(run), owner: self.owner, ..Self::default() },
        }
    }
}

/// Whether all of what is `owner`'s is `viewer`'s to see.
pub fn sees_all(owner: Owner, viewer: Owner) -> bool {
    viewer.is_root() || viewer == owner
}

/// With the name of the experiment as `viewer` writes it.
fn named(run: ExperimentResult, owner: Owner, viewer: Owner) -> ExperimentResult {
    ExperimentResult { experiment_name: owner.name_for(viewer, &run.experiment_name), ..run }
}

/// That it was, how it ended, and when: nothing of what its document, its target or its samples say.
fn outline(run: ExperimentResult) -> ExperimentResult {
    ExperimentResult {
        experiment_name: run.experiment_name,
        verdict: run.verdict,
        success: run.success,
        duration_seconds: run.duration_seconds,
        started_at: run.started_at,
        run_id: run.run_id,
        ..ExperimentResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Verdict;

    #[test]
    fn of_a_run_its_owner_and_root_see_all_and_others_that_it_was() {
        let owner = Owner::User(1001);
        let run = ExperimentResult {
            experiment_name: "slow".into(),
            verdict: Some(Verdict::Deviated),
            error: Some("http://user:word@host is down".into()),
            run_id: "4f1c".into(),
            packets_affected: 7,
            ..ExperimentResult::default()
        };
        let recorded = Recorded {
            run,
            owner: Some(owner.to_string()),
            digest: Some("d".into()),
            document: Some(serde_json::Map::new()),
            samples_left_out: 3,
            ..Recorded::default()
        };
        assert_eq!(recorded.clone().seen_by(owner), recorded);
        let roots = recorded.clone().seen_by(Owner::ROOT);
        assert_eq!(roots.run.experiment_name, "1001/slow");
        assert!(roots.document.is_some() && roots.run.error == recorded.run.error);
        let others = recorded.clone().seen_by(Owner::User(1002));
        let expected = ExperimentResult {
            experiment_name: "1001/slow".into(),
            verdict: Some(Verdict::Deviated),
            run_id: "4f1c".into(),
            ..ExperimentResult::default()
        };
        assert_eq!(others, Recorded { run: expected, owner: recorded.owner.clone(), ..Recorded::default() });
        // What was recorded before owners were is root's.
        assert_eq!(Recorded::default().owner(), Owner::ROOT);
    }
}
