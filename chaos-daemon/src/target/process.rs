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
use crate::host::{CALLER, Identity, ProcessId, Running, Spared, budget};
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
    /// Those that match and are never a target, with why.
    pub left_out: Vec<(Running, &'static str)>,
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
    /// [`ErrorCode::TargetNotFound`] when there is no such control group, [`ErrorCode::TargetProtected`] when a vital process
    /// is in it.
    pub fn new(selector: &ProcessSelector, identity: &Identity) -> Result<Self, ApiError> {
        let mut programs: Vec<_> = selector.exe.iter().cloned().collect();
        if let Some(path) = &selector.exe
            // A path that cannot be followed may be right all the same, in another mount namespace.
            && let Ok(real) = identity.act(|| where_it_leads(Path::new(path)))
        {
            programs.extend(real.into_os_string().into_string());
        }
        Self::of_programs(selector, programs)
    }

    /// The same where it is known what the path of the program leads to: [`Matcher::programs`].
    ///
    /// # Errors
    /// As [`Matcher::new`].
    pub fn of_programs(selector: &ProcessSelector, programs: Vec<String>) -> Result<Self, ApiError> {
        let group = match &selector.cgroup {
            Some(named) => Some(below_mount(&cgroup::resolve(named)?.0.path)?),
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
        if pattern.is_match(&process.command) {
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
    choose(selector, Matcher::new(selector, identity)?.matching(all)?, spared)
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

/// Why there is nobody to be hit: nobody matches, or all who do are protected. Whoever asks has what is looked for in its own command
/// line, so that it matches itself: then nobody does.
pub fn nobody(selector: &ProcessSelector, selection: &Selection) -> ApiError {
    let by_words = selector.command.is_some() || selector.below.is_some();
    let only_caller = by_words && selection.left_out.iter().all(|(_, why)| *why == CALLER);
    if only_caller && !selection.left_out.is_empty() {
        let text = format!(
            "target: no process matches {selector} but the caller and those above it, which are never hit"
        );
        return not_found(text)
            .hint("`chaosctl targets` with the same options shows what matches, once something does");
    }
    let Some((first, why)) = selection.left_out.first() else {
        return not_found(format!("target: no process matches {selector}"))
            .hint("`chaosctl targets` with the same options shows what matches, once something does");
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
    .hint("name the processes of one service")
}

impl Selection {
    /// Sorts those that match into those that are hit, those beyond the share, and those that are left out.
    fn of(selector: &ProcessSelector, matching: Vec<Running>, spared: &Spared) -> Self {
        let mut selection = Self::default();
        for process in matching {
            match process.vital(spared) {
                Some(why) => selection.left_out.push((process, why)),
                None => selection.hit.push(process),
            }
        }
        let Self { hit, spared, .. } = &mut selection;
        hit.sort_by_key(|process| rank(selector.seed, process.id));
        *spared = hit.split_off(selector.share.of(hit.len()));
        selection
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
            why: (*why).to_owned(),
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
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::unistd::geteuid;
    use proptest::prelude::*;

    use super::*;
    use crate::host::vital::Nearness;
    use crate::request::Caller;
    use crate::spec::{CgroupSelector, Share};
    use crate::waits::HANG;

    fn anybody() -> ProcessSelector {
        ProcessSelector {
            pid: None,
            cgroup: None,
            exe: None,
            command: None,
            below: None,
            container: None,
            share: Share::ALL,
            seed: 0,
        }
    }

    fn running(pid: i32, exe: &str, command: &str, group: &str) -> Running {
        Running {
            id: ProcessId { pid, start_time: 1000 },
            parent: 1,
            name: exe.rsplit('/').next().unwrap_or_default().to_owned(),
            exe: Some(exe.to_owned()),
            program: None,
            command: command.to_owned(),
            cgroup: Some(group.into()),
            of_kernel: false,
            nearness: Nearness { of_this_host: true, in_this_network: true },
            tracer: 0,
        }
    }

    fn node() -> Vec<Running> {
        vec![
            running(10, "/opt/a", "/opt/a --shard=1", "system.slice/a.service"),
            running(11, "/opt/a", "/opt/a --shard=2", "system.slice/a.service/worker"),
            running(12, "/opt/b", "/opt/b --shard=1", "system.slice/docker-0123456789abcdef.scope"),
            running(13, "/usr/sbin/sshd", "sshd: x [priv] --shard=1", "system.slice/ssh.service"),
        ]
    }

    fn pattern(text: &str) -> CommandPattern {
        CommandPattern::parse("target.command", text).unwrap()
    }

    fn pids(processes: &[Running]) -> BTreeSet<i32> {
        processes.iter().map(|process| process.id.pid).collect()
    }

    #[test]
    fn every_field_narrows_and_who_is_vital_is_left_out_with_why() {
        let nobody = Spared::default();
        let select = |selector: &ProcessSelector| {
            Matcher::new(selector, &Identity::ROOT).unwrap().select(node(), &nobody).unwrap()
        };
        let program = ProcessSelector { exe: Some("/opt/a".into()), ..anybody() };
        assert_eq!(pids(&select(&program).hit), [10, 11].into());
        let shard = pattern("--shard=1$");
        let command = ProcessSelector { command: Some(shard.clone()), ..anybody() };
        let selection = select(&command);
        assert_eq!(pids(&selection.hit), [10, 12].into());
        assert_eq!(selection.left_out[0].0.id.pid, 13);
        let both = ProcessSelector { command: Some(shard), ..program };
        assert_eq!(pids(&select(&both).hit), [10].into());
        let container = ProcessSelector { container: Some("0123456789ab".into()), ..anybody() };
        assert_eq!(pids(&select(&container).hit), [12].into());
        let group = Matcher {
            group: Some("system.slice/a.service".into()),
            ..Matcher::new(&anybody(), &Identity::ROOT).unwrap()
        };
        assert_eq!(pids(&group.select(node(), &nobody).unwrap().hit), [10, 11].into());
    }

    #[test]
    fn the_path_of_a_program_leads_where_it_leads_for_the_caller() {
        if !geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode =
            |name: &str, mode: u32| fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        mode("", 0o755);
        for (name, is) in [("roots", 0o700), ("open", 0o755)] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("program"), "").unwrap();
            symlink("program", at(name).join("link")).unwrap();
            symlink(at("roots/program"), at(name).join("into")).unwrap();
            mode(name, is);
        }
        let alice = Identity::of(Caller::Unix { uid: 47_110, gid: 47_110, pid: 0 });
        let leads = |identity: &Identity, path: &str| {
            let exe = at(path).into_os_string().into_string().ok();
            let matcher = Matcher::new(&ProcessSelector { exe, ..anybody() }, identity).unwrap();
            matcher.programs().len() == 2
        };
        // Where it leads nowhere else, that is known twice.
        for (path, hers) in [
            ("open/program", true),
            ("open/link", true),
            ("open/into", false),
            ("roots/program", false),
            ("roots/link", false),
            ("roots/../open/link", false),
        ] {
            assert!(leads(&Identity::ROOT, path), "{path}");
            assert_eq!(leads(&alice, path), hers, "{path}");
        }
        // Links of procfs lead to what is this process's own.
        assert!(leads(&Identity::ROOT, "/proc/self/exe"));
        for path in ["/proc/self/exe", "/proc/thread-self/exe"] {
            assert!(!leads(&alice, path), "{path}");
        }
        for path in ["open/none", "roots/none"] {
            assert!(!leads(&Identity::ROOT, path) && !leads(&alice, path), "{path}");
        }
    }

    /// An agent (20) with a shell (21) that has started a server (22), which has a child (23); and a server of somebody else's (30).
    fn agents() -> Vec<Running> {
        let server = "/opt/mcp-server --stdio";
        let processes = [
            (1, 0, "/sbin/init"),
            (20, 1, "/opt/agent --chat"),
            (21, 20, "sh -c mcp-server"),
            (22, 21, server),
            (23, 22, "cat"),
            (30, 1, server),
        ];
        let child = |(pid, parent, command)| Running { parent, ..running(pid, "/opt/a", command, "") };
        processes.map(child).into()
    }

    fn below_of(text: &str, command: Option<&str>, all: Vec<Running>) -> BTreeSet<i32> {
        let (below, command) = (Some(pattern(text)), command.map(pattern));
        let matcher =
            Matcher::new(&ProcessSelector { below, command, ..anybody() }, &Identity::ROOT).unwrap();
        pids(&matcher.matching(all).unwrap())
    }

    #[test]
    fn below_is_whoever_has_such_a_process_anywhere_above_and_not_that_process() {
        assert_eq!(below_of("agent", None, agents()), [21, 22, 23].into());
        assert_eq!(below_of("agent", Some("mcp-server"), agents()), [21, 22].into());
        assert_eq!(below_of("agent", Some("mcp-server --stdio"), agents()), [22].into());
        // One's own command line does not count, and that of PID 1 does.
        assert_eq!(below_of("mcp-server", Some("mcp-server"), agents()), [22].into());
        assert_eq!(below_of("init", Some("--stdio"), agents()), [22, 30].into());
        assert_eq!(below_of("nobody", None, agents()), [].into());
    }

    #[test]
    fn command_lines_are_searched_for_a_limited_time_whoever_has_written_them() {
        let pattern = pattern("agent").compile("target.below").unwrap();
        let in_time = Instant::now() + HANG;
        assert_eq!(below(&pattern, &agents(), in_time).unwrap(), [21, 22, 23].into());
        assert_eq!(found_in(&pattern, &agents(), in_time).unwrap().len(), 1);
        let late = Instant::now();
        assert_eq!(below(&pattern, &agents(), late).unwrap_err().code, ErrorCode::LimitReached);
        assert_eq!(found_in(&pattern, &agents(), late).unwrap_err().code, ErrorCode::LimitReached);
    }

    #[test]
    fn a_number_that_was_given_to_another_is_nobodys_parent_and_a_circle_has_an_end() {
        let mut later = agents();
        later[1].id.start_time = 2000;
        assert_eq!(below_of("agent", None, later), [].into());
        let mut circle = agents();
        circle[1].parent = 23;
        assert_eq!(below_of("agent", Some("mcp-server"), circle), [21, 22].into());
    }

    #[test]
    fn who_is_vital_is_left_out_below_anybody() {
        let mut all = agents();
        all[3].name = "sshd".into();
        let selector = ProcessSelector { below: Some(pattern("agent")), ..anybody() };
        let selection = resolve(&selector, &Identity::ROOT, all, &Spared::default()).unwrap();
        assert_eq!(pids(&selection.hit), [21, 23].into());
        assert_eq!(selection.left_out[0].0.id.pid, 22);
    }

    #[test]
    fn whoever_asks_for_a_command_line_has_it_in_its_own_and_is_nobody() {
        let all = vec![running(77, "/opt/shell", "shell -c inject --command nosuch", "/user.slice")];
        let session = all.iter().map(|process| process.id).collect();
        let spared = Spared { session, ..Spared::default() };
        let refused = |selector| resolve(&selector, &Identity::ROOT, all.clone(), &spared).unwrap_err();
        let by_word = refused(ProcessSelector { command: Some(pattern("nosuch")), ..anybody() });
        assert!(
            by_word.code == ErrorCode::TargetNotFound && by_word.message.contains("but the caller"),
            "{by_word}"
        );
        let by_number = refused(ProcessSelector { pid: Some(77), ..anybody() });
        assert_eq!(by_number.code, ErrorCode::TargetProtected);
    }

    #[test]
    fn nobody_and_only_vital_ones_are_told_apart() {
        let refused = |selector| resolve(&selector, &Identity::ROOT, node(), &Spared::default()).unwrap_err();
        let none = refused(ProcessSelector { pid: Some(99), ..anybody() });
        assert_eq!(none.code, ErrorCode::TargetNotFound);
        let sshd = refused(ProcessSelector { pid: Some(13), ..anybody() });
        assert!(sshd.code == ErrorCode::TargetProtected && sshd.message.contains("13 (sshd)"), "{sshd}");
        let path = ProcessSelector { cgroup: Some(CgroupSelector::Path("no/such".into())), ..anybody() };
        assert!(Matcher::new(&path, &Identity::ROOT).is_err());
    }

    proptest! {
        #[test]
        fn of_one_seed_a_larger_share_has_a_smaller_one_among_it(
            seed: u64, starts in prop::collection::vec(0u64..1_000_000, 1..200), small in 1u32..=100, large in 1u32..=100,
        ) {
            let (small, large) = (small.min(large), small.max(large));
            let node: Vec<Running> = (100..).zip(&starts).map(|(pid, start)| Running {
                id: ProcessId { pid, start_time: *start },
                ..running(pid, "/opt/a", "a", "")
            }).collect();
            let select = |percent: u32, all: Vec<Running>| {
                let share = Share::new(f64::from(percent) / 100.0).unwrap();
                let selector = ProcessSelector { share, seed, ..anybody() };
                Matcher::new(&selector, &Identity::ROOT).unwrap().select(all, &Spared::default()).unwrap()
            };
            let few = select(small, node.clone());
            let mut backwards = node.clone();
            backwards.reverse();
            let many = select(large, backwards);
            prop_assert!(!few.hit.is_empty());
            prop_assert!(pids(&few.hit).is_subset(&pids(&many.hit)));
            prop_assert_eq!(many.hit.len() + many.spared.len(), node.len());
        }
    }
}
