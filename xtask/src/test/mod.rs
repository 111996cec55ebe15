//! `cargo xtask test`: every test there is, step by step, and one line at the end that says how it went. Of what takes long each
//! run takes a share (`steps.rs`), which the ledger keeps (`ledger.rs`).

mod affected;
mod chosen;
mod coverage;
mod fuzz;
mod host;
mod landing;
mod ledger;
mod load;
mod long;
mod options;
mod scripts;
mod steps;
mod tree;
mod unit;
mod vm;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::summary::Tally;
use crate::{kinds, run};
use affected::Selection;
use coverage::Coverage;
use landing::Landing;
use ledger::Book;
use load::Load;
use steps::{Lane, PHASES, Phase, Run as How, Step, steps};

pub(crate) use chosen::{Chosen, Share, quoted};
pub(crate) use host::program;
pub(crate) use options::Options;

pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    if let Some(problem) = options.problem() {
        return Err(Error::Lacking(problem));
    }
    let landing = Landing::look();
    let book = Book::open(&run::root(), steps::sets(|_| true), landing.clone())?;
    if options.coverage {
        return print_coverage(options, &landing, &book);
    }
    let folder = run::vm_dir();
    std::fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
    // What passed in another run says nothing of this one.
    host::results().for_each(|path| drop(std::fs::remove_file(path)));
    let load = options.under_load.then(Load::start).transpose()?;
    let affected = options.affected.then(|| affected::since(options.base.as_deref())).transpose()?;
    let run = Run { options, landing, book, affected, begun: Instant::now() };
    run.announce();
    let done = if options.long {
        long::go_on(&run, options.minutes.map(|minutes| Duration::from_secs(60 * minutes)))
    } else {
        run.every_phase()?
    };
    println!("== summary");
    let (mut total, mut lines) = (Tally::default(), Vec::new());
    for (title, tally, took) in done {
        lines.push(format!("{title}: {} ({:.0} s)", tally.line(), took.as_secs_f64()));
        total.merge(tally);
    }
    total.print_exceptions();
    lines.iter().for_each(|line| println!("{line}"));
    load.iter().for_each(|load| println!("{}", load.line()));
    println!("{}", total.line());
    Ok(total.exit_code())
}

fn print_coverage(options: &Options, landing: &Landing, book: &Book) -> Result<ExitCode, Error> {
    let sets = steps::sets(|step| options.wants(step));
    let coverage = Coverage::new(&sets, &book.ledger(), landing);
    let json = |source| Error::Json { what: "coverage".into(), source };
    let text = if options.json { coverage.json().map_err(json)? + "\n" } else { coverage.text() };
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}

/// What came of a step, and how long it took.
type Done = (String, Tally, Duration);

/// One run of the command.
struct Run<'a> {
    options: &'a Options,
    landing: Landing,
    book: Book,
    /// What can notice a change, if that is all that is asked for.
    affected: Option<Selection>,
    begun: Instant,
}

impl Run<'_> {
    /// Says which share of each set it is about to run.
    fn announce(&self) {
        let Landing { number, commit, void } = &self.landing;
        println!("landing {number} ({commit})");
        void.iter().for_each(|why| println!("nothing is entered in the ledger: {why}"));
        if self.options.long {
            return;
        }
        if let Some(affected) = &self.affected {
            affected.lines(steps().map(|step| step.name)).iter().for_each(|line| println!("{line}"));
        }
        let mine = steps().filter(|step| self.wants(step) && self.leaves_out(step).is_none());
        for step in mine.filter(|step| step.shares > 0) {
            println!("  {}", self.chosen(step, None, None).title());
        }
    }

    fn every_phase(&self) -> Result<Vec<Done>, Error> {
        if self.options.only.is_empty() && self.affected.is_none() {
            kinds::begin()?;
        }
        Ok(PHASES.iter().flat_map(|phase| self.side_by_side(phase)).collect())
    }

    fn side_by_side(&self, phase: &'static Phase) -> Vec<Done> {
        let left = self.options.limit().map(|limit| limit.saturating_sub(self.begun.elapsed()));
        // What no later phase wants is this one's.
        let later = PHASES.iter().skip_while(|other| !std::ptr::eq(*other, phase)).skip(1);
        let is_last = !later.flat_map(|phase| phase.lanes).copied().flatten().any(|step| self.runs_set(step));
        let part = if is_last { 100 } else { phase.until };
        let until = left.map(|left| Instant::now() + left * part / 100);
        std::thread::scope(|scope| {
            let start = |lane: &'static Lane| scope.spawn(move || self.one_by_one(lane, until));
            let running: Vec<_> = phase.lanes.iter().map(start).collect();
            running
                .into_iter()
                .flat_map(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        })
    }

    /// Of the time until then each set gets an equal part of what those before it have left.
    fn one_by_one(&self, lane: Lane, until: Option<Instant>) -> Vec<Done> {
        let wanted: Vec<&Step> = lane.iter().filter(|step| self.wants(step)).collect();
        // Neighbours that run in VMs share them.
        let together = wanted.chunk_by(|one, next| one.in_vm().is_some() && next.in_vm().is_some());
        let is_set = |steps: &&[&Step]| steps.iter().any(|step| self.runs_set(step));
        let mut to_come = u32::try_from(together.clone().filter(is_set).count()).unwrap_or(u32::MAX);
        let mut done = Vec::new();
        for steps in together {
            let now = Instant::now();
            let turn = until.map(|until| now + until.saturating_duration_since(now) / to_come.max(1));
            to_come = to_come.saturating_sub(is_set(&steps).into());
            done.extend(self.carry_out(steps, None, turn));
        }
        done
    }

    fn wants(&self, step: &Step) -> bool {
        match &self.affected {
            Some(affected) => affected.has(step.name),
            None => self.options.wants(step),
        }
    }

    /// Whether it is a set that is run.
    fn runs_set(&self, step: &Step) -> bool {
        self.wants(step) && step.as_set().is_some() && self.leaves_out(step).is_none()
    }

    /// Why a step is not run, if so.
    fn leaves_out(&self, step: &Step) -> Option<String> {
        self.options.leaves_out(step, self.landing.number)
    }

    /// Says that so many cells were not begun, or that none was.
    fn owes(&self, chosen: &Chosen, cells: Option<usize>) -> String {
        let cells = cells.map_or_else(|| "no cell".to_owned(), |count| format!("{count} cells not"));
        let minutes = self.options.limit().unwrap_or_default().as_secs() / 60;
        let (title, replay) = (chosen.title(), chosen.replay_all());
        format!("{title}: {cells} begun within its part of {minutes} min; the share stays open: {replay}")
    }

    /// What of a step is run: of a set this share, or that of this landing, of which no cell is begun after then.
    fn chosen(&self, step: &Step, share: Option<Share>, until: Option<Instant>) -> Chosen {
        let one = &self.options.one;
        let turn = one.share.and_then(|number| Share::all(step.shares).nth(number as usize - 1));
        let turn = share.or(turn).unwrap_or_else(|| Share::at(self.landing.number, step.shares));
        let affected = self.affected.as_ref().map(|affected| affected.filters(step.name));
        let filters = affected.unwrap_or_else(|| one.filter.clone());
        let is_by_name = !one.cell.is_empty() || !filters.is_empty();
        Chosen {
            step: step.name,
            takes: step.takes,
            shares: step.shares,
            share: (step.shares > 0 && !is_by_name).then_some(turn),
            landing: self.landing.number,
            offset: one.offset,
            cells: one.cell.clone(),
            filters,
            minutes: self.options.minutes.filter(|_| self.options.only.len() == 1),
            until: until.filter(|_| step.shares > 0),
        }
    }

    /// Runs a step, or several that share VMs; of a set this share, or that of this landing, of which no cell is begun after then.
    fn carry_out(&self, steps: &[&Step], share: Option<Share>, until: Option<Instant>) -> Vec<Done> {
        let meant = steps.iter().map(|step| {
            let chosen = self.chosen(step, share, until);
            let is_late = chosen.time_left().is_some_and(|left| left.is_zero());
            let left_out = self.leaves_out(step).map(|why| format!("{}: {why}", step.name));
            let why = left_out.or_else(|| is_late.then(|| self.owes(&chosen, None)));
            (*step, chosen, why)
        });
        let steps: Vec<_> = meant.collect();
        steps.iter().for_each(|(_, chosen, _)| println!("== {}", chosen.title()));
        let run = steps.iter().filter(|(.., why)| why.is_none());
        let in_vm: Vec<_> = run.filter_map(|(step, chosen, _)| Some((step.in_vm()?, chosen))).collect();
        let mut heard = if in_vm.is_empty() { Ok(BTreeMap::new()) } else { vm::boot(&in_vm) };
        let done = steps.iter().map(|(step, chosen, why)| match (why, step.run) {
            (Some(why), _) => (chosen.title(), Tally::skipped(why), Duration::ZERO),
            (None, How::Alone(run)) => {
                let started = Instant::now();
                let tally = run(chosen);
                self.done(chosen, tally, started.elapsed())
            }
            (None, How::InVm(run)) => match &mut heard {
                Ok(heard) => {
                    let mine = heard.remove(step.name).unwrap_or_default();
                    let took = mine.iter().map(|heard| heard.took).max().unwrap_or_default();
                    self.done(chosen, run.judge(chosen, &mine), took)
                }
                Err(error) => {
                    let said = Error::Lacking(format!("no VM: {error}"));
                    self.done(chosen, Err(said), Duration::ZERO)
                }
            },
        });
        done.collect()
    }

    /// What came of a step. One that cannot be run is a failure of that step, not the end of the others.
    fn done(&self, chosen: &Chosen, tally: Result<Tally, Error>, took: Duration) -> Done {
        let tally = tally.and_then(|tally| self.enter(chosen, tally));
        let mut tally = tally.unwrap_or_else(|error| {
            crate::error::report(&error);
            let mut tally = Tally::default();
            tally.fail(format!("{}: {error}", chosen.step));
            tally
        });
        if tally.left > 0 {
            tally.skip(self.owes(chosen, Some(tally.left)));
        }
        tally.replay_by(&chosen.replay_all());
        (chosen.title(), tally, took)
    }

    /// Enters a share that has passed in the ledger, if nothing of it is left to do.
    fn enter(&self, chosen: &Chosen, tally: Tally) -> Result<Tally, Error> {
        if let Some(share) = chosen.share.filter(|_| tally.has_passed() && tally.left == 0) {
            self.book.enter(chosen.step, share, tally.cells, tally.seed)?;
        }
        Ok(tally)
    }
}

/// Runs a step whose tools are there. Where they cannot be had, it is left out by name, but never in CI.
fn unless_lacking(
    name: &str,
    tools: Result<(), Error>,
    step: impl FnOnce() -> Result<Tally, Error>,
) -> Result<Tally, Error> {
    match tools {
        Err(Error::Lacking(what)) if std::env::var_os("CI").is_none() => {
            let mut tally = Tally::default();
            tally.skip(format!("{name}: {what}"));
            Ok(tally)
        }
        Err(error) => Err(error),
        Ok(()) => step(),
    }
}

/// Where a step's verdicts are written.
fn results_of(step: &str) -> PathBuf {
    run::vm_dir().join(format!("{step}-results.jsonl"))
}
