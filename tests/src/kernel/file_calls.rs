//! What one service gets when it asks for files: measured by a process in a control group of the test's, and by one beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use chaos_daemon::fail_point::{Action, Point, Role, Trap};
use chaos_daemon::spec::errno::FILE_ERRORS;
use chaos_daemon::spec::files::{OPERATIONS, Operation};
use nix::libc::{EACCES, EBUSY, EIO, EMFILE, ENOSPC, EROFS};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::served::{self, AT_ONCE, LEASE, Served, lack};
use super::{Attach, Context, Outcome, STANDSTILL, TestResult, tests};
use crate::caller::Caller;
use crate::cgroup::Cgroup;
use crate::daemon::binary;
use crate::fault::Fault;
use crate::late::HANG;
use crate::matrix::trap::TrapFile;
use crate::mounts::Mounted;
use crate::process::wait_until;
use crate::sweep::list;
use crate::touch::Touch;
use crate::{Daemon, Mcp, NetNs, Reason, Residue, Result};

tests![
    a_kernel_that_cannot_fail_calls_about_files_says_what_it_lacks,
    a_file_error_fails_what_one_group_asks_below_a_folder_and_nothing_else,
    a_file_error_of_a_process_or_a_container_is_of_its_group_alone,
    a_file_error_is_narrowed_to_operations,
    a_file_error_is_each_of_those_that_it_can_be,
    a_file_error_fails_its_share_of_the_calls_from_the_nth_on_and_so_many_at_most,
    the_nth_call_ends_who_makes_it_and_who_comes_in_its_place_goes_on,
    a_file_error_is_of_a_file_and_not_of_its_name,
    a_file_error_is_of_its_file_whatever_its_holder_looks_at_before,
    a_file_error_is_met_on_an_overlay_and_not_on_what_is_mounted_below,
    two_file_errors_of_one_group_are_two_and_ending_one_leaves_the_other,
    a_file_error_ends_at_its_time,
    killing_every_process_at_once_ends_a_file_error_at_once,
    stopping_every_process_ends_a_file_error_with_the_lease,
    a_holder_that_dies_takes_its_file_error_with_it,
    a_file_error_of_the_daemon_s_group_or_of_no_file_is_refused,
];

const ON_OPEN_FILES: [Touch; 3] = [Touch::Read, Touch::Write, Touch::Map];

/// Of what may fail by the test's own files as well.
type Tried<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A service in a group of its own, one beside it, a folder that the fault is about, and one that it is not about.
struct Scene {
    service: Caller,
    beside: Caller,
    daemon: Daemon,
    mcp: Mcp,
    before: Residue,
    cgroup: Cgroup,
    folder: TempDir,
    netns: NetNs,
    made: u32,
}

impl Scene {
    /// Skips where the kernel cannot, by what the daemon says; the VM's kernels can, and the runner excuses nothing there.
    fn new() -> Tried<std::result::Result<Self, String>> {
        let (netns, cgroup, folder) = (NetNs::new()?, Cgroup::new()?, tempfile::tempdir()?);
        for path in ["in/deep/er", "out"] {
            fs::create_dir_all(folder.path().join(path))?;
        }
        for path in ["in/file", "in/deep/er/file", "out/file"] {
            fs::write(folder.path().join(path), "some bytes")?;
        }
        let service = Caller::start(&netns, Some(&cgroup))?;
        let beside = Caller::start(&netns, None)?;
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        if let Some(lack) = lack(&mcp, "file_error")? {
            return Ok(Err(lack));
        }
        let before = Residue::take(&[&netns])?;
        let mut scene = Self { service, beside, daemon, mcp, before, cgroup, folder, netns, made: 0 };
        for path in ["in/file", "in/deep/er/file", "out/file"] {
            let path = scene.path(path);
            assert_eq!(
                (scene.service.touch(Touch::Take, &path)?, scene.beside.touch(Touch::Take, &path)?),
                (0, 0)
            );
        }
        Ok(Ok(scene))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// About the folder `in`, with these parameters beside it.
    fn fault(&self, params: Value) -> Fault {
        let fault = Fault::new("file_error").aimed(json!({"cgroup": self.cgroup.name()}));
        fault.with(json!({"path": self.path("in")})).and_with(params)
    }

    /// A path in a folder at which nothing is yet.
    fn fresh(&mut self, folder: &str) -> PathBuf {
        self.made += 1;
        self.path(folder).join(format!("made-{}", self.made))
    }

    /// Fails unless the service gets this from what it does below the folder, and nobody gets anything from all else.
    fn assert_service_gets(&mut self, errno: i32) -> Result<()> {
        for path in ["in/file", "in/deep/er/file", "out/file"] {
            let expected = if path.starts_with("in") { errno } else { 0 };
            let path = self.path(path);
            for touch in [Touch::Open].into_iter().chain(ON_OPEN_FILES) {
                assert_eq!(self.service.touch(touch, &path)?, expected, "{touch:?} {path:?} by the service");
                assert_eq!(self.beside.touch(touch, &path)?, 0, "{touch:?} {path:?} beside the service");
            }
        }
        for (folder, expected) in [("in", errno), ("in/deep/er", errno), ("out", 0)] {
            let path = self.fresh(folder);
            assert_eq!(self.service.touch(Touch::Create, &path)?, expected, "making {path:?} by the service");
            assert_eq!(path.exists(), expected == 0, "{path:?}");
            let path = self.fresh(folder);
            assert_eq!(self.beside.touch(Touch::Create, &path)?, 0, "making {path:?} beside the service");
        }
        Ok(())
    }
}

impl Served for Scene {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn mcp(&self) -> &Mcp {
        &self.mcp
    }

    fn is_normal(&mut self) -> Result<bool> {
        let path = self.path("in/file");
        Ok(self.service.touch(Touch::Read, &path)? == 0)
    }

    fn assert_all_is_normal(&mut self) -> Result<()> {
        self.assert_service_gets(0)
    }

    fn assert_no_residue(&self) -> Result<()> {
        self.before.assert_unchanged_within(&[&self.netns], HANG)
    }
}

/// Runs a test on a scene, if the kernel can have one.
fn on_scene(test: impl FnOnce(&mut Scene) -> Tried<()>) -> TestResult {
    match Scene::new()? {
        Ok(mut scene) => test(&mut scene).map(|()| Outcome::Pass),
        Err(lack) => Ok(Outcome::Skip(Reason::NoBpfLsm, lack)),
    }
}

fn a_kernel_that_cannot_fail_calls_about_files_says_what_it_lacks(context: &Context) -> TestResult {
    let cgroup = Cgroup::new()?;
    let fault =
        Fault::new("file_error").aimed(json!({"cgroup": cgroup.name()})).with(json!({"path": "/etc"}));
    served::is_refused_where_it_cannot_be(context, "file_error", &fault)
}

fn a_file_error_fails_what_one_group_asks_below_a_folder_and_nothing_else(_: &Context) -> TestResult {
    on_scene(|scene| {
        scene.assert_service_gets(0)?;
        for (name, errno) in [("io_error", EIO), ("EROFS", EROFS)] {
            let fault = scene.fault(json!({"errno": name}));
            let answer = fault.inject(&scene.mcp)?;
            assert_eq!(answer["lifetime"], "kernel", "{answer}");
            scene.assert_service_gets(errno)?;
            let status = fault.status(&scene.mcp)?;
            assert_eq!(status["state"], "effective", "{status}");
            let evidence = &status["evidence"];
            // Two files with four calls each, and two that were to be made.
            assert_eq!(
                (&evidence["packets_matched"], &evidence["packets_affected"]),
                (&json!(10), &json!(10)),
                "{status}"
            );
            fault.remove(&scene.mcp)?;
            scene.assert_service_gets(0)?;
            scene.assert_no_residue()?;
        }
        Ok(())
    })
}

fn a_file_error_of_a_process_or_a_container_is_of_its_group_alone(_: &Context) -> TestResult {
    on_scene(|scene| {
        let (cgroup, id) = Cgroup::of_container()?;
        let mut inside = Caller::start(&scene.netns, Some(&cgroup))?;
        let path = scene.path("in/file");
        scene.assert_service_gets(0)?;
        assert_eq!(inside.touch(Touch::Open, &path)?, 0, "in the container, before");

        let of_process = scene.fault(json!({})).aimed(json!({"pid": scene.service.pid()}));
        let answer = of_process.inject(&scene.mcp)?;
        let description = answer["description"].as_str().unwrap_or_default();
        assert!(description.contains(&scene.cgroup.name()), "{answer}");
        scene.assert_service_gets(EIO)?;
        assert_eq!(inside.touch(Touch::Open, &path)?, 0, "in the container");
        of_process.remove(&scene.mcp)?;
        scene.assert_service_gets(0)?;

        let of_container = scene.fault(json!({})).aimed(json!({"container": &id[..40]}));
        of_container.inject(&scene.mcp)?;
        assert_eq!(inside.touch(Touch::Open, &path)?, EIO, "in the container");
        scene.assert_service_gets(0)?;
        of_container.remove(&scene.mcp)?;
        assert_eq!(inside.touch(Touch::Open, &path)?, 0, "in the container, after");
        // The group is the test's own, and came after the picture was taken.
        drop((inside, cgroup));
        Ok(scene.assert_no_residue()?)
    })
}

fn a_file_error_is_narrowed_to_operations(_: &Context) -> TestResult {
    on_scene(|scene| {
        let path = scene.path("in/file");
        let operations = [
            ("open", Touch::Open),
            ("create", Touch::Create),
            ("read", Touch::Read),
            ("write", Touch::Write),
            ("mmap", Touch::Map),
        ];
        let tried = |operation: &Operation| operations.iter().any(|(name, _)| *name == operation.name());
        assert!(OPERATIONS.iter().all(tried), "an operation is not tried");
        scene.assert_service_gets(0)?;
        for (operation, fails) in operations {
            let fault = scene.fault(json!({"operations": [operation], "errno": "no_space"}));
            fault.inject(&scene.mcp)?;
            for touch in [Touch::Open].into_iter().chain(ON_OPEN_FILES) {
                let expected = if touch == fails { ENOSPC } else { 0 };
                assert_eq!(scene.service.touch(touch, &path)?, expected, "{touch:?} under {operation}");
            }
            // Making a file is opening it, too; the file is there when only that failed.
            let made = scene.fresh("in");
            let expected = if [Touch::Create, Touch::Open].contains(&fails) { ENOSPC } else { 0 };
            assert_eq!(scene.service.touch(Touch::Create, &made)?, expected, "making under {operation}");
            assert_eq!(made.exists(), fails != Touch::Create, "{operation}");
            fault.remove(&scene.mcp)?;
        }
        scene.assert_service_gets(0)?;
        Ok(scene.assert_no_residue()?)
    })
}

fn a_file_error_is_each_of_those_that_it_can_be(_: &Context) -> TestResult {
    on_scene(|scene| {
        let path = scene.path("in/file");
        for (name, _, errno) in FILE_ERRORS {
            let fault = scene.fault(json!({"operations": ["open"], "errno": name}));
            fault.inject(&scene.mcp)?;
            assert_eq!(scene.service.touch(Touch::Open, &path)?, *errno, "{name}");
            assert_eq!(scene.beside.touch(Touch::Open, &path)?, 0, "{name} beside the service");
            fault.remove(&scene.mcp)?;
            assert_eq!(scene.service.touch(Touch::Open, &path)?, 0, "after {name}");
        }
        Ok(scene.assert_no_residue()?)
    })
}

fn a_file_error_fails_its_share_of_the_calls_from_the_nth_on_and_so_many_at_most(_: &Context) -> TestResult {
    on_scene(|scene| {
        let path = scene.path("in/file");
        assert_eq!(scene.service.touch_failures(8, Touch::Read, &path)?, 0, "before");
        let late = scene.fault(json!({"after_calls": 3, "times": 2})).named("late");
        late.inject(&scene.mcp)?;
        let gets: Vec<_> = (0..8).map(|_| scene.service.touch(Touch::Read, &path)).collect::<Result<_>>()?;
        assert_eq!(gets, [0, 0, 0, EIO, EIO, 0, 0, 0]);
        let evidence = &late.status(&scene.mcp)?["evidence"];
        assert_eq!((&evidence["packets_matched"], &evidence["packets_affected"]), (&json!(8), &json!(2)));
        late.remove(&scene.mcp)?;

        let half = scene.fault(json!({"call_probability": 0.5})).named("half");
        half.inject(&scene.mcp)?;
        // Outside of this once in some 10^9 runs.
        let failed = scene.service.touch_failures(400, Touch::Write, &path)?;
        assert!((140..=260).contains(&failed), "{failed} of 400 writes failed");
        assert_eq!(scene.beside.touch_failures(400, Touch::Write, &path)?, 0);
        half.remove(&scene.mcp)?;
        assert_eq!(scene.service.touch_failures(100, Touch::Write, &path)?, 0, "after");
        Ok(scene.assert_no_residue()?)
    })
}

fn the_nth_call_ends_who_makes_it_and_who_comes_in_its_place_goes_on(_: &Context) -> TestResult {
    on_scene(|scene| {
        let path = scene.path("in/file");
        scene.assert_service_gets(0)?;
        let kill = scene.fault(json!({"operations": ["write"], "after_calls": 2, "signal": "SIGKILL"}));
        let plan = json!({"fault_name": "p", "fault_type": "file_error", "target": {"cgroup": scene.cgroup.name()},
            "params": {"path": scene.path("in"), "signal": "SIGKILL"}});
        let plan = scene.mcp.call_tool("chaos_plan", plan)?.ok()?;
        let (restarts, pid) = (plan["restarts"].to_string(), scene.service.pid().to_string());
        assert!(restarts.contains(&pid), "a plan does not say who would start the service anew: {plan}");
        let answer = kill.inject(&scene.mcp)?;
        assert_eq!(answer["lifetime"], "irreversible", "{answer}");
        for _ in 0..2 {
            assert_eq!(scene.service.touch(Touch::Write, &path)?, 0);
        }
        // It does not answer any more.
        assert!(scene.service.touch(Touch::Write, &path).is_err(), "the third call came back");
        assert!(wait_until(HANG, || scene.service.ended_by() == Some(Signal::SIGKILL as i32)));
        assert_eq!(scene.beside.touch(Touch::Write, &path)?, 0, "beside the service");
        scene.service = Caller::start(&scene.netns, Some(&scene.cgroup))?;
        for touch in [Touch::Take, Touch::Write] {
            assert_eq!(scene.service.touch(touch, &path)?, 0, "{touch:?} by who came in its place");
        }
        let status = kill.status(&scene.mcp)?;
        let affected = &status["evidence"]["packets_affected"];
        assert_eq!((&status["state"], affected), (&json!("effective"), &json!(1)), "{status}");
        kill.remove(&scene.mcp)?;

        // Who outlives the signal has the error as well.
        let shake = scene.fault(json!({"operations": ["open"], "errno": "busy", "signal": "WINCH"}));
        shake.inject(&scene.mcp)?;
        for errno in [EBUSY, 0] {
            assert_eq!(scene.service.touch(Touch::Open, &path)?, errno);
        }
        shake.remove(&scene.mcp)?;
        refuses_to_end_its_caller(scene)
    })
}

/// Who asks from within the group would be ended as well.
fn refuses_to_end_its_caller(scene: &Scene) -> Tried<()> {
    let mut command = Command::new(binary("chaosctl")?);
    scene.cgroup.place(&mut command);
    command.arg("--socket").arg(scene.daemon.socket()).args(["inject", "file_error", "--signal", "KILL"]);
    command.args(["--cgroup", &scene.cgroup.name(), "--path"]).arg(scene.path("in"));
    let said = command.output()?;
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success() && words.contains("protected from signals"), "{words}");
    Ok(())
}

fn a_file_error_is_of_a_file_and_not_of_its_name(_: &Context) -> TestResult {
    on_scene(|scene| {
        let fault = scene.fault(json!({}));
        fault.inject(&scene.mcp)?;
        // The folder goes by another name, and another has its own; a link leads to it as well.
        let (old, new, link) = (scene.path("in"), scene.path("moved"), scene.path("link"));
        fs::rename(&old, &new)?;
        fs::create_dir(&old)?;
        fs::write(old.join("file"), "another")?;
        std::os::unix::fs::symlink(&new, &link)?;
        for (folder, expected) in [(&new, EIO), (&link, EIO), (&old, 0)] {
            assert_eq!(scene.service.touch(Touch::Open, &folder.join("file"))?, expected, "{folder:?}");
        }
        fault.remove(&scene.mcp)?;
        fs::remove_file(&link)?;
        // And of one file only, by any of its names.
        let (file, second) = (new.join("file"), scene.path("out/second"));
        fs::hard_link(&file, &second)?;
        let one = scene.fault(json!({"path": file, "errno": "EACCES"})).named("one");
        one.inject(&scene.mcp)?;
        for (path, expected) in [(&file, EACCES), (&second, EACCES), (&new.join("deep/er/file"), 0)] {
            assert_eq!(scene.service.touch(Touch::Open, path)?, expected, "{path:?}");
        }
        one.remove(&scene.mcp)?;
        assert_eq!(scene.service.touch(Touch::Open, &file)?, 0);
        Ok(scene.assert_no_residue()?)
    })
}

/// As a container has its files: what stat(2) says of them is not what the kernel has.
fn a_file_error_is_of_its_file_whatever_its_holder_looks_at_before(context: &Context) -> TestResult {
    let Some(kind) = list::here(context).find(|kind| kind.name == "file_error") else {
        return Ok(Outcome::Skip(Reason::NoBpfLsm, "no programs at the security hooks of files".into()));
    };
    let file = TrapFile::new()?;
    let mut bench = file.bench(Attach::Auto)?;
    let fault = bench.fault(kind.name)?;
    let (_, mcp) = bench.ready()?;
    // Nobody comes to this trap: for that the holder looks at the trap's file before and after each of its calls.
    file.set(&Trap {
        point: Point::AfterCall,
        role: Role::Holder,
        first: u32::MAX,
        times: None,
        action: Action::Fail,
    })?;
    fault.inject(mcp)?;
    bench.assert_acts(kind, || false)?;
    bench.remove(&fault)?;
    Ok(Outcome::Pass)
}

fn a_file_error_is_met_on_an_overlay_and_not_on_what_is_mounted_below(_: &Context) -> TestResult {
    on_scene(|scene| {
        let merged = scene.path("merged");
        fs::create_dir(scene.path("upper"))?;
        fs::create_dir(scene.path("work"))?;
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            scene.path("in").display(),
            scene.path("upper").display(),
            scene.path("work").display()
        );
        let overlay = Mounted::new("overlay", &merged, &options)?;
        let below = Mounted::new("tmpfs", &merged.join("mounted"), "size=64k")?;
        for path in ["upper-file", "mounted/file"] {
            fs::write(merged.join(path), "some bytes")?;
        }
        let paths = ["file", "deep/er/file", "upper-file", "mounted/file"].map(|path| merged.join(path));
        for path in &paths {
            assert_eq!(scene.service.touch(Touch::Take, path)?, 0, "{path:?}");
        }
        let fault = scene.fault(json!({"path": merged}));
        fault.inject(&scene.mcp)?;
        for path in &paths {
            let expected = if path.ends_with("mounted/file") { 0 } else { EIO };
            for touch in [Touch::Open].into_iter().chain(ON_OPEN_FILES) {
                assert_eq!(scene.service.touch(touch, path)?, expected, "{touch:?} {path:?}");
                assert_eq!(scene.beside.touch(Touch::Open, path)?, 0, "{path:?} beside the service");
            }
        }
        fault.remove(&scene.mcp)?;
        for path in &paths {
            assert_eq!(scene.service.touch(Touch::Read, path)?, 0, "{path:?}");
        }
        drop((below, overlay));
        scene.assert_service_gets(0)?;
        Ok(scene.assert_no_residue()?)
    })
}

fn two_file_errors_of_one_group_are_two_and_ending_one_leaves_the_other(_: &Context) -> TestResult {
    on_scene(|scene| {
        let path = scene.path("in/file");
        let full = scene.fault(json!({"operations": ["write"], "errno": "ENOSPC"})).named("full");
        let many = scene.fault(json!({"operations": ["open"], "errno": "too_many_open_files"})).named("many");
        full.inject(&scene.mcp)?;
        many.inject(&scene.mcp)?;
        let gets = |scene: &mut Scene| -> Result<_> {
            Ok((scene.service.touch(Touch::Write, &path)?, scene.service.touch(Touch::Open, &path)?))
        };
        assert_eq!(gets(scene)?, (ENOSPC, EMFILE));
        full.remove(&scene.mcp)?;
        assert_eq!(gets(scene)?, (0, EMFILE));
        many.remove(&scene.mcp)?;
        scene.assert_service_gets(0)?;
        Ok(scene.assert_no_residue()?)
    })
}

fn a_file_error_ends_at_its_time(_: &Context) -> TestResult {
    on_scene(|scene| {
        let fault = scene.fault(json!({}));
        Ok(served::ends_at_its_time(scene, &fault)?)
    })
}

fn survives(blow: Signal, limit: Duration) -> TestResult {
    on_scene(|scene| {
        let fault = scene.fault(json!({}));
        Ok(served::survives(scene, &fault, blow, limit)?)
    })
}

fn killing_every_process_at_once_ends_a_file_error_at_once(_: &Context) -> TestResult {
    survives(Signal::SIGKILL, AT_ONCE)
}

fn stopping_every_process_ends_a_file_error_with_the_lease(_: &Context) -> TestResult {
    survives(Signal::SIGSTOP, LEASE + STANDSTILL)
}

fn a_holder_that_dies_takes_its_file_error_with_it(_: &Context) -> TestResult {
    on_scene(|scene| {
        let fault = scene.fault(json!({}));
        Ok(served::ends_with_its_holder(scene, &fault)?)
    })
}

fn a_file_error_of_the_daemon_s_group_or_of_no_file_is_refused(_: &Context) -> TestResult {
    let (cgroup, other, folder) = (Cgroup::new()?, Cgroup::new()?, tempfile::tempdir()?);
    let daemon = Daemon::start_with(|command| cgroup.place(command))?;
    let mcp = daemon.mcp()?;
    let there = folder.path();
    // What the kernel lacks is said before any target is looked at.
    let lacking = lack(&mcp, "file_error")?.is_some();
    let refused = |target: Value, path: &Path, params: Value, expected: &str| -> Result<()> {
        let fault = Fault::new("file_error").aimed(target.clone());
        let fault = fault.with(json!({"path": path})).and_with(params.clone());
        let answer = match fault.register(&mcp) {
            Ok(_) => {
                mcp.call_tool("chaos_inject_fault", json!({"fault_name": "file_error", "action": "inject"}))?
            }
            // What cannot be meant is refused before it has a name.
            Err(error) if error.to_string().contains(expected) => return Ok(()),
            Err(error) => return Err(error),
        };
        let looked = expected != "MISSING_PARAMETER";
        let expected = if lacking && looked { "UNSUPPORTED_KERNEL" } else { expected };
        assert!(
            answer.is_error && answer.json["error"]["code"] == expected,
            "{target}, {path:?}, {params}: {}",
            answer.json
        );
        Ok(())
    };
    let free = json!({"cgroup": other.name()});
    refused(json!({"cgroup": cgroup.name()}), there, json!({}), "TARGET_PROTECTED")?;
    refused(json!({"cgroup": "/"}), there, json!({}), "INVALID_PARAMETER")?;
    refused(free.clone(), &there.join("none"), json!({}), "TARGET_NOT_FOUND")?;
    refused(free.clone(), there, json!({"operations": ["fsync"]}), "no security hook")?;
    refused(json!({}), there, json!({}), "MISSING_PARAMETER")?;
    Ok(Outcome::Pass)
}
