//! What `matrix` and `sweep` have in common: they go through their cells, and say what they found.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::HANG;
use crate::asked::{Asked, Tally};
use crate::cells;
use crate::kernel::Context;
use crate::kinds::Machine;
use crate::runner;
use crate::sweep::Found;
use crate::sweep::cell::{Cell, in_order};

/// One of the two.
pub(super) struct Program {
    /// What it is called.
    pub(super) name: &'static str,
    /// How long it may take, if nothing is said.
    pub(super) limit: Duration,
    /// Whether it has events, of which a share can be asked for.
    pub(super) shares: bool,
    /// Every cell that there can be.
    pub(super) cells: fn(&Asked, &Context) -> Vec<Cell>,
}

impl Program {
    pub(super) fn main(&self) -> ExitCode {
        if let Some(code) = crate::aftermath::outlive() {
            return code;
        }
        let context = Context::new();
        let asked = Asked::read(std::env::args().skip(1), self.limit).map_err(|it| format!("what is {it}?"));
        match asked.and_then(|asked| Ok((self.chosen(&asked, &context)?, asked))) {
            Ok((cells, asked)) => run(cells, &asked, &context),
            Err(problem) => {
                eprintln!("{}: {problem}", self.name);
                ExitCode::from(2)
            }
        }
    }

    /// The cells that are asked for, of those that this kernel has.
    fn chosen(&self, asked: &Asked, context: &Context) -> Result<Vec<Cell>, String> {
        if asked.share > 1 && !self.shares {
            return Err("what is --share?".into());
        }
        let mut cells = in_order((self.cells)(asked, context));
        cells.retain(|cell| asked.wants(&cell.name, cell.kind.is_rare()));
        if cells.is_empty() {
            return Err(format!("no cell has any of {:?} in its name", asked.only));
        }
        let mut chosen = asked.choice.of(cells, |cell| &cell.name)?;
        chosen.retain(|cell| cell.attach.is_none_or(|attach| context.attachments().contains(&attach)));
        Ok(chosen)
    }
}

fn run(cells: Vec<Cell>, asked: &Asked, context: &Context) -> ExitCode {
    let machine = Machine::of(context);
    let (cells, lacking): (Vec<_>, Vec<_>) =
        cells.into_iter().partition(|cell| cell.kind.lacks(&machine).is_none());
    if asked.choice.is_list {
        return cells::print(&cells.iter().map(|cell| &cell.name).collect::<Vec<_>>());
    }
    let mut tally = Tally::default();
    lacking.iter().for_each(|cell| tally.skip(cell.kind.name, cell.kind.lacks(&machine).unwrap_or_default()));
    if cells.is_empty() && lacking.is_empty() {
        tally.skip("every cell", "this kernel has none of those that are asked for");
    }
    asked.print_choice();
    let deadline = Instant::now() + asked.limit;
    let mut normal = Vec::new();
    let left = asked.choice.each(&cells, |cell| {
        let started = Instant::now();
        let cannot = |error: crate::Error| Found { failures: vec![error.to_string()], ..Found::default() };
        let mut found = cell.run(deadline).unwrap_or_else(cannot);
        // What one cell leaves is not to be found by the next, which then fails only behind this one.
        found.failures.extend(runner::end_children(HANG));
        normal.append(&mut found.normal);
        tally.add(cell.kind, &cell.name, found, started);
    });
    tally.leave(left);
    if !normal.is_empty() {
        print_quantiles(normal);
    }
    tally.end()
}

/// How soon traffic was normal after the strikes of which that is known.
fn print_quantiles(mut normal: Vec<Duration>) {
    normal.sort();
    let at = |share: f64| normal[((normal.len() - 1) as f64 * share).round() as usize];
    println!("strike to normal: p50 {:?}, p99 {:?}, max {:?}", at(0.5), at(0.99), at(1.0));
}
