//! Control groups, mounts, files without a name, journals, and what cannot be read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::mount::{MsFlags, mount};
use nix::sys::memfd::{MFdFlags, memfd_create};
use tempfile::TempDir;

use chaos_daemon::kernel::netlink::marks::{far_name, near_name};

use super::super::{Context, Outcome, TestResult, tests};
use super::{Elsewhere, Verdict, number};
use crate::{Error, NetNs, Result};

tests![
    a_control_group_is_inert_while_it_is_empty_and_an_effect_with_somebody_in_it,
    a_mount_in_another_mount_namespace_is_named,
    a_file_without_a_name_that_somebody_keeps_open_is_an_effect,
    a_journal_is_named_and_what_it_lists_goes_at_the_next_start,
    a_journal_of_an_earlier_boot_is_named,
    a_journal_that_cannot_be_read_is_unknown_and_never_nothing,
    a_journal_that_another_version_wrote_is_kept_by_recovery_and_its_line_named,
];

fn a_control_group_is_inert_while_it_is_empty_and_an_effect_with_somebody_in_it(_: &Context) -> TestResult {
    let cgroup = Cgroup::new(&format!("chaos{:08x}-limit", number(1)))?;
    let place = cgroup.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    Verdict::of_node()?.names("inert", "cgroup", &place)?;
    let child = cgroup.sleeper()?;
    Verdict::of_node()?.names("effect", "cgroup", &place)?;
    drop(child);
    drop(cgroup);
    Verdict::of_node()?.is_silent_on(&place)?;
    Ok(Outcome::Pass)
}

fn a_mount_in_another_mount_namespace_is_named(_: &Context) -> TestResult {
    let folder = TempDir::new()?;
    let point = folder.path().join(format!("chaos{:08x}", number(1)));
    fs::create_dir(&point)?;
    let text = point.display().to_string();
    let elsewhere = Elsewhere::new(move || {
        let mounted = mount(Some("none"), &point, Some("tmpfs"), MsFlags::empty(), None::<&str>);
        mounted.map_err(Error::sys("mount", "tmpfs"))
    })?;
    Verdict::of_node()?.names("inert", "mount", &text)?;
    drop(elsewhere);
    Verdict::of_node()?.is_silent_on(&text)?;
    Ok(Outcome::Pass)
}

fn a_file_without_a_name_that_somebody_keeps_open_is_an_effect(_: &Context) -> TestResult {
    let name = format!("chaos{:08x}", number(1));
    let folder = TempDir::new()?;
    let path = folder.path().join(format!("{name}-fill"));
    let unlinked = fs::File::create(&path)?;
    fs::remove_file(&path)?;
    let other = tempfile::tempfile()?;
    let text = path.display().to_string();
    Verdict::of_node()?.names("effect", "process", &text)?;
    drop(unlinked);
    Verdict::of_node()?.is_silent_on(&text)?;
    let memory = memfd_create(name.as_str(), MFdFlags::MFD_CLOEXEC)?;
    Verdict::of_node()?.names("effect", "process", &format!("memfd:{name}"))?;
    drop((memory, other));
    Ok(Outcome::Pass)
}

/// A runtime directory with one journal of these lines.
fn runtime_with(fault: u32, lines: &[String]) -> Result<TempDir> {
    let folder = TempDir::new().map_err(Error::io("create", "a folder"))?;
    let journal = folder.path().join("journal");
    fs::create_dir(&journal).map_err(Error::io("create", "a journal"))?;
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(journal.join(format!("{fault:08x}.jsonl")), text).map_err(Error::io("write", "a journal"))?;
    Ok(folder)
}

fn first_line(boot: &str) -> String {
    format!(r#"{{"fault":{{"boot":"{boot}","name":"slow","fault_type":"latency"}}}}"#)
}

fn a_journal_is_named_and_what_it_lists_goes_at_the_next_start(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let fault = number(1);
    let near = near_name(fault);
    namespace.ip(&["link", "add", &near, "type", "veth", "peer", "name", &far_name(fault)])?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let netns = chaos_daemon::host::NetNs::open(namespace.name())?;
    let netns = chaos_daemon::kernel::step::NetNsRef::new(Some(namespace.name().to_owned()), &netns)?;
    let step = chaos_daemon::kernel::step::Step::NearEnd { netns, id: fault };
    let intent = serde_json::json!({"intent": step}).to_string();
    let runtime = runtime_with(fault, &[first_line(boot.trim()), intent])?;
    let verdict = Verdict::ask(runtime.path())?;
    let text = format!("fault slow (latency) with 1 steps to undo, still there: device {near}");
    let journal = verdict.names("inert", "journal", &text)?;
    assert!(
        journal["place"]
            .as_str()
            .is_some_and(|place| place.starts_with(&runtime.path().display().to_string()))
    );
    let device = verdict.names("inert", "device", &near)?;
    assert!(device["goes"].as_str().is_some_and(|goes| goes.contains("next start")), "{device}");
    let mut recover = Command::new(crate::daemon::binary("chaos-daemon")?);
    let said = crate::netns::output(recover.arg("recover").arg("--runtime-dir").arg(runtime.path()))?;
    assert!(said.contains(&format!("removed device {near}")), "{said}");
    let verdict = Verdict::ask(runtime.path())?;
    verdict.is_silent_on(&runtime.path().display().to_string())?;
    verdict.is_silent_on(&near)?;
    Ok(Outcome::Pass)
}

fn a_journal_of_an_earlier_boot_is_named(_: &Context) -> TestResult {
    let runtime = runtime_with(number(1), &[first_line("another")])?;
    let verdict = Verdict::ask(runtime.path())?;
    let left = verdict.names("inert", "journal", &runtime.path().display().to_string())?;
    assert_eq!(left["what"], "of fault slow (latency) in an earlier boot");
    Ok(Outcome::Pass)
}

fn a_journal_that_cannot_be_read_is_unknown_and_never_nothing(_: &Context) -> TestResult {
    let runtime = TempDir::new()?;
    fs::create_dir_all(runtime.path().join("journal/00000001.jsonl"))?;
    let verdict = Verdict::ask(runtime.path())?;
    verdict.names("unknown", "look", &runtime.path().display().to_string())?;
    Ok(Outcome::Pass)
}

fn a_journal_that_another_version_wrote_is_kept_by_recovery_and_its_line_named(_: &Context) -> TestResult {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let lines = [
        first_line(boot.trim()).replace("latency\"", "latency\",\"version\":\"99.0.0\""),
        r#"{"intent":{"Teapot":{}}}"#.into(),
    ];
    let runtime = runtime_with(number(1), &lines)?;
    let place = runtime.path().display().to_string();
    let line = "line 2 (unknown variant `Teapot`";
    for _ in 0..2 {
        let verdict = Verdict::ask(runtime.path())?;
        let left = verdict.names("unknown", "journal", &place)?;
        let what = left["what"].as_str().unwrap_or_default();
        assert!(what.contains(line) && what.contains("fault slow (latency)"), "{left}");
        assert!(left["goes"].as_str().is_some_and(|goes| goes.contains("version 99.0.0;")), "{left}");
        let mut recover = Command::new(crate::daemon::binary("chaos-daemon")?);
        let said = recover.arg("recover").arg("--runtime-dir").arg(runtime.path()).output()?;
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.code() == Some(5) && text.contains("STUCK journal"), "{said:?}");
        assert!(text.contains(line) && text.contains("version 99.0.0;"), "{text}");
    }
    Ok(Outcome::Pass)
}

/// A control group of the unified hierarchy, gone when this is.
pub(in crate::kernel) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    pub(in crate::kernel) fn new(name: &str) -> Result<Self> {
        let root = hierarchy()?;
        let path = root.join(name);
        fs::create_dir(&path).map_err(Error::io("create", path.display().to_string()))?;
        Ok(Self { path })
    }

    pub(in crate::kernel) fn path(&self) -> &Path {
        &self.path
    }

    /// A process in it.
    fn sleeper(&self) -> Result<Sleeper> {
        let child = Sleeper(Command::new("sleep").arg("600").spawn().map_err(Error::io("start", "sleep"))?);
        let procs = self.path.join("cgroup.procs");
        fs::write(&procs, child.0.id().to_string())
            .map_err(Error::io("write", procs.display().to_string()))?;
        Ok(child)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.path) {
            eprintln!("clean up {}: {error}", self.path.display());
        }
    }
}

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the unified hierarchy is mounted.
fn hierarchy() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(Error::io("read", "/proc/self/mounts"))?;
    let of_v2 = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let point = fields.next()?;
        (fields.next() == Some("cgroup2")).then(|| PathBuf::from(point))
    };
    let found = mounts.lines().find_map(of_v2);
    found.ok_or_else(|| Error::Different("no cgroup2 hierarchy is mounted".into()))
}
