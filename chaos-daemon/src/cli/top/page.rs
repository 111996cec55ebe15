//! A page of `chaosctl top`.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::model::{Model, Subject, Told};
use crate::cli::live::canvas::{Canvas, Ink, Tone, columns, text};
use crate::cli::live::frame::{heading, whole as seconds};
use crate::cli::show;
use crate::mcp::results::{FaultView, RunningView};
use crate::request::evidence::words;
use crate::spec::FaultType;

/// What the keys do.
const KEYS: &str = "up, down: select   s: stop it   a: stop all   q: quit";
/// From how many columns on a line of a fault has what it has met.
const WIDE: u16 = 100;
/// From how many lines on there is room for more of what is selected.
const TALL: u16 = 14;
/// The columns of the state of a fault, and of its time.
const STATE: u16 = 10;
const TIME: u16 = 9;
/// The most lines of one page: a host has fewer faults and runs.
const MOST_LINES: u16 = 5_000;

/// All of it as plain text, in so many columns, with nothing that asks for keys.
pub(super) fn whole(model: &Model, width: u16) -> String {
    let ink = Ink { colours: false };
    let mut lines = text((width, 1 + height(model)), ink, false, |canvas| {
        let area = canvas.cells.area;
        title(canvas, area, model);
        body(canvas, Rect { y: 1, height: area.height - 1, ..area }, model);
    });
    lines.push(String::new());
    lines.join("\n")
}

/// Draws as much as there is room for, around what is selected.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let area = canvas.cells.area;
    title(canvas, area, model);
    let more = if area.height >= TALL { more_lines(model) } else { Vec::new() };
    // A line for what was said, and one for the keys.
    let below = 2 + u16::try_from(more.len()).unwrap_or_default();
    let shown = Rect { y: area.y + 1, height: area.height.saturating_sub(1 + below), ..area };
    let mut all = Buffer::empty(Rect { x: 0, y: 0, width: area.width, height: height(model) });
    let whole = all.area;
    let selected = body(&mut Canvas { cells: &mut all, ink: canvas.ink }, whole, model);
    let first = selected.map_or(0, |line| line.saturating_sub(shown.height.saturating_sub(3)));
    let first = first.min(whole.height.saturating_sub(shown.height));
    for (y, from) in (shown.top()..shown.bottom()).zip(first..whole.height) {
        for (x, from_x) in (shown.left()..shown.right()).zip(0..) {
            canvas.cells[(x, y)] = all[(from_x, from)].clone();
        }
    }
    for (line, y) in more.iter().zip(shown.bottom()..area.bottom()) {
        canvas.put((area.x, y), area.width, line, Tone::Dim);
    }
    foot(canvas, area, model);
}

fn title(canvas: &mut Canvas<'_>, area: Rect, model: &Model) {
    let (faults, runs) = (model.faults().len(), model.runs().count());
    let count = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let counts = format!("{}, {}", count(faults, "fault"), count(runs, "run"));
    let room = area.width.saturating_sub(columns(&counts) + 2);
    canvas.put((area.x, area.y), room, &format!("chaosctl top  {}", model.host), Tone::Strong);
    canvas.put_right((area.x, area.y), area.width, &counts, Tone::Strong);
}

/// What was said last, and the keys or the question.
fn foot(canvas: &mut Canvas<'_>, area: Rect, model: &Model) {
    let (y, width) = (area.bottom().saturating_sub(1), area.width);
    if y > area.y + 1 {
        match model.told() {
            Some(Told::Failed(why)) => canvas.put((area.x, y - 1), width, &why, Tone::Bad),
            Some(Told::Done(said)) => canvas.put((area.x, y - 1), width, &said, Tone::Good),
            None => 0,
        };
    }
    let Some(question) = model.question() else {
        canvas.put((area.x, y), width, KEYS, Tone::Dim);
        return;
    };
    canvas.put((area.x, y), width, &question, Tone::Bad);
    let line = Rect { y, height: 1, ..area };
    canvas.cells.set_style(line, canvas.ink.style(Tone::Bad).add_modifier(Modifier::REVERSED));
}

/// How many lines the body has.
fn height(model: &Model) -> u16 {
    let of_run = |gauges: u16| 2_u16.saturating_add(gauges);
    let runs = model.runs().map(|(_, gauges)| of_run(gauges.map_or(0, |gauges| gauges.len())));
    let faults = u16::try_from(model.faults().len()).unwrap_or(u16::MAX).max(1);
    let runs = runs.fold(0, u16::saturating_add).max(1);
    // Two headings, and an empty line before each.
    faults.saturating_add(runs).saturating_add(4).min(MOST_LINES)
}

/// Faults, runs and their samples. In which line what is selected is.
fn body(canvas: &mut Canvas<'_>, area: Rect, model: &Model) -> Option<u16> {
    let (x, width, mut y, mut selected) = (area.x, area.width, area.y + 1, None);
    let is_selected = |subject: &Subject| model.selected() == Some(subject);
    canvas.put((x, y), width, "FAULTS", Tone::Dim);
    y += 1;
    if model.faults().is_empty() {
        canvas.put((x + 2, y), width.saturating_sub(2), "none is active", Tone::Dim);
        y += 1;
    }
    let name = model.faults().iter().map(|fault| columns(&fault.name)).max().unwrap_or_default();
    for fault in model.faults() {
        let subject = Subject::of_fault(fault);
        mark(canvas, (x, y), is_selected(&subject));
        if is_selected(&subject) {
            selected = Some(y - area.y);
        }
        let line = Rect { x: x + 2, y, width: width.saturating_sub(2), height: 1 };
        fault_line(canvas, line, fault, (name, model.is_stopping(&subject)));
        y += 1;
    }
    y += 1;
    canvas.put((x, y), width, "RUNS", Tone::Dim);
    y += 1;
    if model.runs().next().is_none() {
        canvas.put((x + 2, y), width.saturating_sub(2), "none goes on", Tone::Dim);
    }
    for (run, gauges) in model.runs() {
        let subject = Subject::of_run(run);
        mark(canvas, (x, y), is_selected(&subject));
        if is_selected(&subject) {
            selected = Some(y - area.y);
        }
        let line = Rect { x: x + 2, y, width: width.saturating_sub(2), height: 1 };
        run_lines(canvas, line, run, model.is_stopping(&subject));
        y += 2;
        if let Some(gauges) = gauges {
            let height = gauges.len().min(area.bottom().saturating_sub(y));
            gauges.draw(canvas, Rect { x: x + 4, y, width: width.saturating_sub(4), height });
            y += height;
        }
    }
    selected
}

fn mark(canvas: &mut Canvas<'_>, at: (u16, u16), is_selected: bool) {
    if is_selected {
        canvas.put(at, 1, ">", Tone::Strong);
    }
}

/// `slow-db  latency  effective  48s left  packets: 12 matched, 12 affected, 0 protected`
fn fault_line(canvas: &mut Canvas<'_>, area: Rect, fault: &FaultView, (name, is_stopping): (u16, bool)) {
    let Rect { x, y, width, .. } = area;
    let name = name.clamp(8, (width / 3).max(8));
    let state = fault.state.as_deref().unwrap_or_default();
    let (state, tone) = match (is_stopping, state) {
        (true, _) => ("stopping", Tone::Doubt),
        (false, "effective") => (state, Tone::Strong),
        (false, "no_traffic" | "waiting") => (state, Tone::Doubt),
        (false, "stuck") => (state, Tone::Bad),
        (false, _) => (state, Tone::Plain),
    };
    let met = if width + 2 >= WIDE { evidence(fault).join("; ") } else { String::new() };
    let rest = width.saturating_sub(name + 2 + STATE + 2 + TIME + 2);
    let kind = rest.min(if met.is_empty() { 24 } else { 19 });
    let mut at = x;
    canvas.put((at, y), name, &fault.name, Tone::Plain);
    at += name + 2;
    canvas.put((at, y), kind, &fault.fault_type, Tone::Plain);
    at += kind + 2;
    canvas.put((at, y), STATE, state, tone);
    at += STATE + 2;
    let left = fault.remaining_seconds.map(seconds).unwrap_or_default();
    canvas.put_right((at, y), TIME.min((x + width).saturating_sub(at)), &left, Tone::Plain);
    at += TIME + 2;
    canvas.put((at, y), (x + width).saturating_sub(at), &met, Tone::Dim);
}

fn run_lines(canvas: &mut Canvas<'_>, area: Rect, run: &RunningView, is_stopping: bool) {
    heading(canvas, area, run);
    let state = if is_stopping { ", stopping" } else { "" };
    let owner = run.owner.as_ref().map(|owner| format!(", of {owner}")).unwrap_or_default();
    let faults = run.fault_names.join(", ");
    let words = format!("run {}{state}{owner}; faults: {faults}", run.run_id);
    canvas.put((area.x, area.y + 1), area.width, &words, if is_stopping { Tone::Doubt } else { Tone::Dim });
}

fn evidence(fault: &FaultView) -> Vec<String> {
    words::lines(&fault.evidence.unwrap_or_default(), FaultType::parse(&fault.fault_type).ok())
}

/// More of the fault that is selected.
fn more_lines(model: &Model) -> Vec<String> {
    let Some(Subject::Fault(name)) = model.selected() else { return Vec::new() };
    let Some(fault) = model.faults().iter().find(|fault| fault.name == *name) else { return Vec::new() };
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    if fault.description.is_none() {
        return vec![String::new(), format!("{}, of {}", fault.fault_type, word(&fault.owner))];
    }
    let began = fault.began_by.as_ref().map(|who| format!("; begun by {who}")).unwrap_or_default();
    let since = fault.age_seconds.map(show::seconds).unwrap_or_default();
    let mut lines = vec![
        String::new(),
        word(&fault.description),
        format!("since {since}{began}; {}; guard: {}", word(&fault.lifetime), word(&fault.guard)),
    ];
    lines.push(evidence(fault).join("; "));
    lines.extend(fault.note.clone());
    lines
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
