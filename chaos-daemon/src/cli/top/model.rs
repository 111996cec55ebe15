//! What `chaosctl top` knows, and what a key means. Pure but for the clock.

use std::collections::BTreeMap;
use std::fmt;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tokio::time::Instant;

use super::eyes::Look;
use crate::cli::live::gauges::Gauges;
use crate::mcp::results::{FaultView, RunningView, StatusOutput};

/// After how many seconds without an answer that is said.
const SILENT: u64 = 4;

/// What can be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// The fault of this name.
    Fault(String),
    /// A run.
    Run {
        /// Its handle.
        run_id: String,
        /// Its experiment.
        name: String,
    },
    /// Every fault and run.
    All,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(name) => write!(f, "fault {name}"),
            Self::Run { run_id, name } => write!(f, "run {run_id} of {name}"),
            Self::All => f.write_str("every fault and run"),
        }
    }
}

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    /// Nothing but another page.
    Nothing,
    /// To end this.
    Stop(Subject),
}

/// What was said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// Something was done.
    Done(String),
    /// Something was not.
    Failed(String),
}

/// What is known.
#[derive(Debug)]
pub(super) struct Model {
    /// The name of the host.
    pub(super) host: String,
    status: StatusOutput,
    gauges: BTreeMap<String, Gauges>,
    selected: Option<Subject>,
    /// What is to be ended, if whoever is asked says so.
    question: Option<Subject>,
    /// What is being ended.
    stopping: Vec<Subject>,
    told: Option<Told>,
    /// When the daemon has answered last, and why it has not since then.
    heard: Instant,
    trouble: Option<String>,
    /// Whether it is over once nothing is being ended any more, or at once.
    is_leaving: bool,
    is_over: bool,
}

impl Model {
    /// Nothing was seen yet.
    pub(super) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            status: StatusOutput::default(),
            gauges: BTreeMap::new(),
            selected: None,
            question: None,
            stopping: Vec::new(),
            told: None,
            heard: Instant::now(),
            trouble: None,
            is_leaving: false,
            is_over: false,
        }
    }

    /// Takes in what was seen.
    pub(super) fn look(&mut self, look: Look) {
        (self.heard, self.trouble) = (Instant::now(), None);
        let Look { mut status, new_runs } = look;
        status.active_faults.retain(|fault| fault.active == Some(true));
        self.gauges.retain(|run, _| status.running.iter().any(|running| running.run_id == *run));
        for (run, limits, samples) in new_runs {
            let gauges = self.gauges.entry(run).or_default();
            gauges.know(limits);
            gauges.take(&samples);
        }
        for running in &status.running {
            self.gauges.entry(running.run_id.clone()).or_default().take(&running.latest);
        }
        self.status = status;
        // What was selected may be gone; the next press begins at the first again.
        self.selected = self.selected.take().filter(|it| self.subjects().contains(it));
    }

    /// Takes in that the daemon cannot be asked.
    pub(super) fn lose(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Takes in what a stop has come to.
    pub(super) fn has_stopped(&mut self, subject: &Subject, outcome: Result<String, String>) {
        self.stopping.retain(|other| other != subject);
        self.told = Some(match outcome {
            Ok(said) => Told::Done(said),
            Err(why) => Told::Failed(format!("{subject} was not stopped: {why}")),
        });
    }

    /// Takes in a key, and says what it asks for.
    pub(super) fn press(&mut self, key: KeyEvent) -> Deed {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if let Some(asked) = self.question.take() {
            let is_yes = !is_control && matches!(key.code, KeyCode::Char('y' | 'Y'));
            return if is_yes { self.stop(asked) } else { Deed::Nothing };
        }
        match key.code {
            KeyCode::Char('c') if is_control => self.leave(),
            KeyCode::Char(_) if is_control => {}
            KeyCode::Char('q') | KeyCode::Esc => self.leave(),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::Char('s') | KeyCode::Delete => self.question.clone_from(&self.selected),
            KeyCode::Char('a') => self.question = Some(Subject::All),
            _ => {}
        }
        Deed::Nothing
    }

    /// The same thing is not ended twice at once.
    fn stop(&mut self, subject: Subject) -> Deed {
        self.told = None;
        if self.stopping.contains(&subject) {
            return Deed::Nothing;
        }
        self.stopping.push(subject.clone());
        Deed::Stop(subject)
    }

    /// Waits for what is being ended, when it is asked for the first time.
    fn leave(&mut self) {
        self.is_over |= self.is_leaving;
        self.is_leaving = true;
    }

    fn select(&mut self, by: isize) {
        let all = self.subjects();
        let at = self.selected.as_ref().and_then(|selected| all.iter().position(|it| it == selected));
        let next = match at {
            Some(at) => at.saturating_add_signed(by).min(all.len().saturating_sub(1)),
            None if by > 0 => 0,
            None => all.len().saturating_sub(1),
        };
        self.selected = all.into_iter().nth(next);
    }

    /// What can be selected, in the order of the page.
    fn subjects(&self) -> Vec<Subject> {
        let faults = self.status.active_faults.iter().map(Subject::of_fault);
        faults.chain(self.status.running.iter().map(Subject::of_run)).collect()
    }

    /// Whether whoever looked has seen enough.
    pub(super) fn is_over(&self) -> bool {
        self.is_over || (self.is_leaving && self.stopping.is_empty())
    }

    /// The active faults.
    pub(super) fn faults(&self) -> &[FaultView] {
        &self.status.active_faults
    }

    /// The runs that go on, with their samples.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&RunningView, Option<&Gauges>)> {
        self.status.running.iter().map(|run| (run, self.gauges.get(&run.run_id)))
    }

    /// What is selected.
    pub(super) fn selected(&self) -> Option<&Subject> {
        self.selected.as_ref()
    }

    /// Whether it is being ended.
    pub(super) fn is_stopping(&self, subject: &Subject) -> bool {
        self.stopping.contains(subject) || self.stopping.contains(&Subject::All)
    }

    /// What is asked before anything is ended.
    pub(super) fn question(&self) -> Option<String> {
        Some(format!("stop {}? y: yes, any other key: no", self.question.as_ref()?))
    }

    /// What was said last, or is wrong.
    pub(super) fn told(&self) -> Option<Told> {
        let silent = self.heard.elapsed().as_secs();
        match (&self.trouble, &self.stopping[..]) {
            (Some(why), _) => Some(Told::Failed(format!(
                "the daemon does not answer, since {silent}s; trying again: {why}"
            ))),
            (None, _) if silent >= SILENT => {
                Some(Told::Failed(format!("the daemon has not answered for {silent}s")))
            }
            (None, [first, ..]) if self.is_leaving => {
                Some(Told::Done(format!("stopping {first} before leaving; q again leaves now")))
            }
            (None, [first, ..]) => Some(Told::Done(format!("stopping {first}"))),
            (None, []) => self.told.clone(),
        }
    }
}

impl Subject {
    /// That of a fault.
    pub(super) fn of_fault(fault: &FaultView) -> Self {
        Self::Fault(fault.name.clone())
    }

    /// That of a run.
    pub(super) fn of_run(run: &RunningView) -> Self {
        Self::Run { run_id: run.run_id.clone(), name: run.experiment_name.clone() }
    }
}
