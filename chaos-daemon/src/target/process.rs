//! From a selector to processes, pinned by number and start time: who matches, who is left out and why, and which of the
//! rest make up the share.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regex_lite::Regex;

use super::{cgroup, not_found};
use crate::host::cgroup::mount;
use crate::host::place::where_it_leads;
use crate::host::protected::places::{Selected, host_wide};
use crate::host::protected::{Rule, ways_in};
use crate::host::{Aim, Identity, ProcessId, Protected, Running, Spared, budget};
use crate::request::targets::{LeftOut, TargetProcess, TargetsReport};
use crate::request::{ApiError, ErrorCode};
use crate::spec::ProcessSelector;
use crate::spec::command::CommandPattern;

/// The most processes that one fault goes to: whoever matches more has hardly meant them all.
const MOST_HIT: usize = 1000;
/// How long command lines may be searched, also where a thread has no [budget]: other people have written them, and a caller the
/// expression. The last search may take about as long again, by the bounds of expressions and of command lines.
const LONGEST_SEARCH: Duration = Duration::from_secs(1);

/// What a selector comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The share that is hit, in an order that the seed makes.
    pub hit: Vec<Running>,
    /// Those that match, beyond the share.
    pub spared: Vec<Running>,
    /// Those that match and are protected, with why.
    pub left_out: Vec<(Running, Protected)>,
}

/// A selector that can be asked of processes again and again: patterns compiled, paths looked up.
pub struct Matcher {
    selector: ProcessSelector,
    /// The path of the control group below the mount.
    group: Option<PathBuf>,
    /// The program's path, and what it leads to if it is a link.
    programs: Vec<String>,
    command: Option<Regex>,
    below: Option<Regex>,
}

impl Matcher {
    /// Looks up what the selector names; where the path of a program leads, as `identity`, who has named it.
    ///
    /// # Errors
    /// [`ErrorCode::TargetNotFound`] when there is no such control group, [`ErrorCode::TargetProtected`] when somebody is in it who
    /// has to be `spared`.
    pub fn new(selector: &ProcessSelector, identity: &Identity, spared: &Spared) -> Result<Self, ApiError> {
        let mut programs: Vec<_> = selector.exe.iter().cloned().collect();
        if let Some(path) = &selector.exe
            // A path that cannot be followed may be right all the same, in another mount namespace.
            && let Ok(real) = identity.act(|| where_it_leads(Path::new(path)))
        {
            programs.extend(real.into_os_string().into_string());
        }
        Self::of_programs(selector, programs, spared)
    }

    /// The same where it is known what the path of the program leads to: [`Matcher::programs`].
    ///
    /// # Errors
    /// As [`Matcher::new`].
    pub fn of_programs(
        selector: &ProcessSelector,
        programs: Vec<String>,
        spared: &Spared,
    ) -> Result<Self, ApiError> {
        let group = match &selector.cgroup {
            // The caller is left out, and no reason to spare all others.
            Some(named) => Some(below_mount(&cgroup::resolve(named, &spared.with_session())?.0.path)?),
            None => None,
        };
        let command = compiled("target.command", selector.command.as_ref())?;
        let below = compiled("target.below", selector.below.as_ref())?;
        Ok(Self { selector: selector.clone(), group, programs, command, below })
    }

    /// The program's path, and what it leads to.
    pub fn programs(&self) -> &[String] {
        &self.programs
    }

    /// Those of `all` that match; whether they may be targets is another question. Who is above a process has to be among them.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] when searching their command lines takes too long.
    pub fn matching(&self, mut all: Vec<Running>) -> Result<Vec<Running>, ApiError> {
        let until = Instant::now() + LONGEST_SEARCH;
        let below = self.below.as_ref().map(|pattern| below(pattern, &all, until)).transpose()?;
        let is_below =
            |process: &Running| below.as_ref().is_none_or(|numbers| numbers.contains(&process.id.pid));
        all.retain(|process| self.fits(process) && is_below(process));
        if let Some(pattern) = &self.command {
            let found = found_in(pattern, &all, until)?;
            let found: BTreeSet<_> = found.into_iter().map(|process| process.id).collect();
            all.retain(|process| found.contains(&process.id));
        }
        Ok(all)
    }

    /// Whether the process matches by what it is itself, but for its command line.
    fn fits(&self, process: &Running) -> bool {
        let in_container = |id: &str| {
            let path = process.cgroup.iter().flat_map(|path| path.iter());
            path.filter_map(|part| part.to_str()).any(|part| part.contains(id))
        };
        let of_program = |exe: &str| self.programs.iter().any(|program| program == exe);
        self.selector.pid.is_none_or(|pid| process.id.pid == pid)
            && self
                .group
                .as_ref()
                .is_none_or(|group| process.cgroup.as_ref().is_some_and(|path| path.starts_with(group)))
            && (self.programs.is_empty() || process.exe.as_deref().is_some_and(of_program))
            && self.selector.container.as_deref().is_none_or(in_container)
    }

    /// Sorts processes into those that are hit, those beyond the share, and those that are left out.
    ///
    /// # Errors
    /// As [`Matcher::matching`].
    pub fn select(&self, all: Vec<Running>, spared: &Spared) -> Result<Selection, ApiError> {
        Ok(Selection::of(&self.selector, self.matching(all)?, spared))
    }
}

fn compiled(field: &str, pattern: Option<&CommandPattern>) -> Result<Option<Regex>, ApiError> {
    Ok(pattern.map(|pattern| pattern.compile(field)).transpose()?)
}

/// What of a process is searched: its command line. Of PID 1 it is the first word alone, since a shell or a small init has there what
/// all of a container is for.
fn searched(process: &Running) -> &str {
    match process.id.pid {
        1 => process.command.split(' ').next().unwrap_or_default(),
        _ => &process.command,
    }
}

/// Those in whose command line the pattern is found, all of them looked at before `until`.
fn found_in<'a>(
    pattern: &Regex,
    processes: &'a [Running],
    until: Instant,
) -> Result<Vec<&'a Running>, ApiError> {
    let mut found = Vec::new();
    for process in processes {
        budget::check()?;
        if Instant::now() >= until {
            let text = format!("target: not every command line was searched within {LONGEST_SEARCH:?}");
            return Err(ApiError::new(ErrorCode::LimitReached, text)
                .hint("give a simpler expression, or name unit, cgroup or exe beside it"));
        }
        if pattern.is_match(searched(process)) {
            found.push(process);
        }
    }
    Ok(found)
}

/// The numbers of those who are below a process in whose command line the pattern is found: its children, theirs, and so on.
fn below(pattern: &Regex, all: &[Running], until: Instant) -> Result<BTreeSet<i32>, ApiError> {
    let mut children: BTreeMap<i32, Vec<&Running>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut parents = found_in(pattern, all, until)?;
    let mut below = BTreeSet::new();
    while let Some(parent) = parents.pop() {
        // Taken out, so that nobody's children are looked at twice.
        for child in children.remove(&parent.id.pid).unwrap_or_default() {
            // A parent is never the younger one: it has ended, and its number was given to another.
            if parent.id.start_time <= child.id.start_time {
                below.insert(child.id.pid);
                parents.push(child);
            }
        }
    }
    Ok(below)
}

/// Where a process stands among those that match: the share is the first so many, so that a larger share of the same seed has
/// those of a smaller one among it. Mixed as by SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014).
fn rank(seed: u64, id: ProcessId) -> (u64, ProcessId) {
    let mix = |value: u64| {
        let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    };
    (mix(mix(mix(seed) ^ u64::from(id.pid.unsigned_abs())) ^ id.start_time), id)
}

fn below_mount(path: &Path) -> Result<PathBuf, ApiError> {
    let failed = |error: io::Error| not_found(format!("target.cgroup: look for it: {error}"));
    let mount = mount().map_err(failed)?.unwrap_or_default();
    Ok(path.strip_prefix(&mount).unwrap_or(path).to_owned())
}

/// Finds the processes that are selected, each by its identity. At least one is hit. `identity` is that of who has named them.
///
/// # Errors
/// [`ErrorCode::TargetNotFound`] when none matches, [`ErrorCode::TargetProtected`] when none of those that do may be a target,
/// [`ErrorCode::LimitReached`] when they are too many, or looking for them takes too long.
pub fn resolve(
    selector: &ProcessSelector,
    identity: &Identity,
    all: Vec<Running>,
    spared: &Spared,
) -> Result<Selection, ApiError> {
    choose(selector, Matcher::new(selector, identity, spared)?.matching(all)?, spared)
}

/// The same of processes that match.
///
/// # Errors
/// As [`resolve`].
pub fn choose(
    selector: &ProcessSelector,
    matching: Vec<Running>,
    spared: &Spared,
) -> Result<Selection, ApiError> {
    let selection = Selection::of(selector, matching, spared);
    selection.refuse_host_wide(selector, spared)?;
    if selection.hit.is_empty() {
        return Err(nobody(selector, &selection));
    }
    if selection.hit.len() > MOST_HIT {
        let count = selection.hit.len();
        return Err(ApiError::new(
            ErrorCode::LimitReached,
            format!("{selector} selects {count} processes, and a fault goes to {MOST_HIT} at most"),
        )
        .hint("narrow it, or give a share"));
    }
    Ok(selection)
}

/// Whether a program has the name of a script.
fn is_script(program: &str) -> bool {
    let ending = program.rsplit_once('.').map(|(_, ending)| ending);
    matches!(ending, Some("sh" | "bash" | "py" | "pl" | "rb" | "js" | "mjs" | "php" | "jar"))
}

/// Why there is nobody to be hit: nobody matches, or all who do are protected. Whoever asks has what is looked for in its own command
/// line, so that it matches itself: then nobody does.
pub fn nobody(selector: &ProcessSelector, selection: &Selection) -> ApiError {
    let by_words = selector.command.is_some() || selector.below.is_some();
    let only_caller = by_words && selection.left_out.iter().all(|(_, why)| why.rule == Rule::Session);
    if only_caller && !selection.left_out.is_empty() {
        let text = format!(
            "target: no process matches {selector} but the caller and those above it, which are never hit"
        );
        return not_found(text)
            .hint("chaos_plan with the same target shows what matches, once something does");
    }
    let Some((first, why)) = selection.left_out.first() else {
        let script = selector.exe.as_deref().is_some_and(is_script);
        let hint = match script {
            true => {
                "a script is run by its interpreter, which is its program: give words of its command line as command"
            }
            false => "chaos_plan with the same target shows what matches, once something does",
        };
        return not_found(format!("target: no process matches {selector}")).hint(hint);
    };
    let more = match selection.left_out.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let id = first.id.pid;
    ApiError::new(
        ErrorCode::TargetProtected,
        format!("who matches {selector} is protected: process {id} ({}), because {why}{more}", first.name),
    )
    .hint(why.remedy())
}

/// Marks those of the processes that let operators in.
///
/// # Errors
/// When that cannot be looked at.
pub fn mark_ways_in(processes: &mut [Running]) -> Result<(), ApiError> {
    ways_in::mark(processes).map_err(|error| {
        ApiError::new(
            ErrorCode::InjectionFailed,
            format!("look who listens where operators come in: {error}"),
        )
    })
}

impl Selection {
    /// Sorts those that match into those that are hit, those beyond the share, and those that are left out.
    fn of(selector: &ProcessSelector, matching: Vec<Running>, spared: &Spared) -> Self {
        let mut selection = Self::default();
        let named = selector.cgroup.is_some() || selector.container.is_some();
        let aim = if named { Aim::AtPlace } else { Aim::AtProcess };
        for process in matching {
            match process.protected(aim, spared) {
                Some(why) => selection.left_out.push((process, why)),
                None => selection.hit.push(process),
            }
        }
        let Self { hit, spared, .. } = &mut selection;
        hit.sort_by_key(|process| rank(selector.seed, process.id));
        *spared = hit.split_off(selector.share.of(hit.len()));
        selection
    }

    /// Refuses what means the whole host.
    fn refuse_host_wide(&self, selector: &ProcessSelector, spared: &Spared) -> Result<(), ApiError> {
        let matching: Vec<_> = self.hit.iter().chain(&self.spared).collect();
        let left_out = self.left_out.iter().map(|(_, why)| why.rule).collect();
        let selected = Selected { selector, matching: &matching, left_out: &left_out };
        match host_wide(&selected, spared) {
            None => Ok(()),
            Some((problem, opens)) => {
                let text = format!("{selector} is no target: {problem}");
                let hint = format!("name unit, cgroup, container, exe or pid beside it; {opens}");
                Err(ApiError::new(ErrorCode::TargetProtected, text).hint(hint))
            }
        }
    }

    /// Lets go of the command lines, which were read to be searched: they may be of megabytes.
    pub fn forget_commands(&mut self) {
        let Self { hit, spared, left_out } = self;
        let all = hit.iter_mut().chain(spared).chain(left_out.iter_mut().map(|(process, _)| process));
        all.for_each(|process| process.command = String::new());
    }

    /// The identities of those that are hit.
    pub fn ids(&self) -> Vec<ProcessId> {
        self.hit.iter().map(|process| process.id).collect()
    }

    /// `2 of 4 processes (unit a.service): 71 (nginx), 74 (nginx)`.
    pub fn words(&self, selector: &ProcessSelector) -> String {
        let few = self.hit.iter().take(3).map(|process| format!("{} ({})", process.id.pid, process.name));
        let few: Vec<_> = few.collect();
        let more = if self.hit.len() > few.len() { ", …" } else { "" };
        let (hit, matching) = (self.hit.len(), self.hit.len() + self.spared.len());
        let plural = if matching == 1 { "" } else { "es" };
        format!("{hit} of {matching} process{plural} ({selector}): {}{more}", few.join(", "))
    }

    /// What callers are shown; `seed` is the one that has chosen.
    pub fn report(&self, seed: u64) -> TargetsReport {
        let (hit, matching) = (self.hit.len(), self.hit.len() + self.spared.len());
        let shown = |process: &Running, hit: bool| TargetProcess {
            pid: process.id.pid,
            start_time: process.id.start_time,
            name: process.name.clone(),
            exe: process.exe.clone().unwrap_or_default(),
            cgroup: process.cgroup.as_ref().map_or(String::new(), |path| path.display().to_string()),
            unit: process.unit().unwrap_or_default().to_owned(),
            hit,
        };
        let listed = self.hit.iter().map(|process| shown(process, true));
        let listed = listed.chain(self.spared.iter().map(|process| shown(process, false)));
        let left_out = self.left_out.iter().map(|(process, why)| LeftOut {
            pid: process.id.pid,
            name: process.name.clone(),
            why: why.to_string(),
        });
        #[expect(clippy::cast_precision_loss, reason = "there are no 2^52 processes")]
        let share = if matching == 0 { 0.0 } else { hit as f64 / matching as f64 };
        TargetsReport {
            matching,
            hit,
            share,
            seed,
            processes: listed.take(TargetsReport::MOST_LISTED).collect(),
            protected: self.left_out.len(),
            left_out: left_out.take(TargetsReport::MOST_LISTED).collect(),
            groups: self
                .hit
                .iter()
                .filter_map(|process| process.cgroup.as_ref()?.to_str().map(str::to_owned))
                .collect(),
        }
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
