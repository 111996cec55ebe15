//! Faults of one unit alone, by the installed daemon: of its packets, its calls and its files, and what is used up in its control
//! group; seen by a process that is in that group, and by one that is beside it.

use std::fs;
use std::path::{Path, PathBuf};

use nix::libc::{EAGAIN, ECONNREFUSED, EIO, ENOBUFS, ENOENT};

use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::measure::Echo;
use crate::name_server::NameServer;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::rate::{burning, burns};
use crate::systemd::service::Service;
use crate::systemd::unit::{MEMBER, ROOT, chaosctl, installed, log, systemctl};
use crate::systemd::{TestResult, tests};
use crate::touch::Touch;
use crate::{Pair, Residue};

tests![
    packets_calls_and_files_of_a_unit_meet_faults_of_its_own_and_nobody_elses_do,
    processor_time_and_memory_are_used_up_in_the_group_of_a_unit_and_given_back,
    faults_of_a_unit_follow_it_over_its_restarts_and_say_for_how_long_they_were_not_there,
];

const NAME: &str = "chaos-scoped.service";
/// It is started anew, in another control group of the same name.
const COMES_BACK: &str = "[Service]\nExecStart=sleep infinity\nRestart=always\nRestartSec=200ms\n";
/// What is used up of its processor time is a share of this.
const UNIT: &str = "[Service]\nExecStart=sleep infinity\nCPUQuota=40%\nMemoryAccounting=yes\n";
const GROUP: &str = "/sys/fs/cgroup/system.slice/chaos-scoped.service";
/// Not where the daemon's sandbox sees another folder.
const FOLDER: &str = "/srv/chaos-scoped";
const MIB: f64 = 1048576.0;

/// Whoever asks in the unit and beside it, and whom they ask.
struct Scene {
    inside: Caller,
    beside: Caller,
    echo: Echo,
    _names: NameServer,
    file: PathBuf,
    before: Residue,
    pair: Pair,
    unit: Service,
}

/// Where the name server is, beside the echo.
const NAMES: u16 = 53;

/// Something to ask for.
type Asking = fn(&mut Caller, &Echo, &Path) -> Result<i32>;

const CONNECT: Asking = |caller, echo, _| caller.ask(Ask::Connect(echo.address()));
const TRIP: Asking = |caller, echo, _| caller.ask(Ask::Trip(echo.address()));
const RESOLVE: Asking = |caller, echo, _| caller.ask(Ask::Resolve((echo.address().ip(), NAMES).into()));
/// Who associates a socket binds it first.
const ASSOCIATE: Asking = |caller, echo, _| caller.ask(Ask::Associate(echo.address()));
const OPEN: Asking = |caller, _, file| caller.touch(Touch::Open, file);

impl Scene {
    fn new() -> Result<Self> {
        Self::of(UNIT)
    }

    fn of(unit: &str) -> Result<Self> {
        let unit = Service::start(NAME, unit)?;
        let pair = Pair::new()?;
        let group = Cgroup::of_others(Path::new(GROUP))?;
        let (inside, beside) = (Caller::start(&pair.near, Some(&group))?, Caller::start(&pair.near, None)?);
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let _names = NameServer::start(&pair.far, Pair::FAR_V4, NAMES)?;
        let file = Path::new(FOLDER).join("file");
        fs::create_dir_all(FOLDER)
            .and_then(|()| fs::write(&file, "some bytes"))
            .map_err(Error::io("write", FOLDER))?;
        let before = Residue::take_with(&[&pair.near], &[Path::new(GROUP)])?;
        Ok(Self { inside, beside, echo, _names, file, before, pair, unit })
    }

    /// Fails unless this gets so far in the unit, and beside it goes well.
    fn assert_unit_gets(&mut self, ask: Asking, errno: i32, when: &str) -> TestResult {
        let got =
            (ask(&mut self.inside, &self.echo, &self.file)?, ask(&mut self.beside, &self.echo, &self.file)?);
        assert_eq!(got, (errno, 0), "in the unit and beside it, {when}; {}", log());
        Ok(())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(FOLDER);
    }
}

fn packets_calls_and_files_of_a_unit_meet_faults_of_its_own_and_nobody_elses_do() -> TestResult {
    installed()?;
    let mut scene = Scene::new()?;
    let netns = scene.pair.near.name().to_owned();
    let here = ["--netns", &netns, "--interface", INTERFACE, "--direction", "egress"];
    let lost = [&here[..], &["--loss-percent", "100"]].concat();
    // For longer than anybody waits for an answer.
    let late = [&here[..], &["--delay", "2s"]].concat();
    let cases: [(&str, &[&str], Asking, i32); 9] = [
        ("connect_error", &[], CONNECT, ECONNREFUSED),
        ("network_partition", &[], TRIP, EAGAIN),
        ("timeout", &here, TRIP, EAGAIN),
        ("error", &here, CONNECT, ECONNREFUSED),
        ("dns_error", &here, RESOLVE, ENOENT),
        ("packet_loss", &lost, TRIP, EAGAIN),
        ("latency", &late, TRIP, EAGAIN),
        ("socket_error", &["--operations", "bind"], ASSOCIATE, ENOBUFS),
        ("file_error", &["--path", FOLDER, "--operations", "open"], OPEN, EIO),
    ];
    for (kind, options, ask, errno) in cases {
        scene.assert_unit_gets(ask, 0, &format!("before {kind}"))?;
        let target = ["inject", kind, "--name", "scoped", "--unit", NAME, "--for", "10m"];
        // The namespace is root's.
        chaosctl(ROOT, &[&target, options].concat())?;
        scene.assert_unit_gets(ask, errno, kind)?;
        chaosctl(MEMBER, &["remove", "scoped"])?;
        scene.assert_unit_gets(ask, 0, &format!("after {kind}"))?;
    }
    scene.before.assert_unchanged_within(&[&scene.pair.near], HANG)?;
    Ok(())
}

fn processor_time_and_memory_are_used_up_in_the_group_of_a_unit_and_given_back() -> TestResult {
    installed()?;
    let _unit = Service::start(NAME, UNIT)?;
    let read = |file: &str| fs::read_to_string(Path::new(GROUP).join(file)).map_err(Error::io("read", file));
    let burned = || -> Result<f64> {
        let text = read("cpu.stat")?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse::<f64>().ok());
        used.map(|used| used / 1e6).ok_or_else(|| Error::Different(format!("cpu.stat: {text}")))
    };
    let held = || -> Result<f64> {
        let text = read("memory.current")?;
        text.trim().parse().map_err(|error| Error::Different(format!("memory.current: {text}: {error}")))
    };
    let inject = |options: &[&str]| {
        let fault = ["inject", "resource_exhaustion", "--name", "used", "--unit", NAME, "--for", "10m"];
        chaosctl(MEMBER, &[&fault, options].concat())
    };
    inject(&["--cpu-percent", "50"])?;
    let members = read("cgroup.procs")?;
    let burner = members.lines().filter_map(|pid| pid.parse().ok()).find(|pid| !burning(*pid).is_empty());
    // Half of 0.4 processors.
    burns(0.2, burner.ok_or("nobody in the group burns")?, burned)?;
    chaosctl(MEMBER, &["remove", "used"])?;
    let after = burned()?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(burned()? - after < 0.05, "it still burns");

    let before = held()?;
    inject(&["--resource", "memory", "--memory-mb", "64"])?;
    // It takes them step by step, and answers before it has the last.
    let more = || held().map(|now| (now - before) / MIB);
    assert!(
        wait_until(HANG, || more().is_ok_and(|more| more >= 60.0)),
        "asked for 64 MiB, and there are {:.1} more",
        more()?
    );
    assert!(more()? < 90.0, "asked for 64 MiB, and there are {:.1} more", more()?);
    chaosctl(MEMBER, &["remove", "used"])?;
    assert!(wait_until(HANG, || held().is_ok_and(|now| now - before < 8.0 * MIB)), "it still holds them");
    Ok(())
}

fn faults_of_a_unit_follow_it_over_its_restarts_and_say_for_how_long_they_were_not_there() -> TestResult {
    installed()?;
    let mut scene = Scene::of(COMES_BACK)?;
    let limit = || fs::read_to_string(Path::new(GROUP).join("pids.max")).unwrap_or_default();
    let inject = |kind: &str, options: &[&str]| {
        let name = ["--name", kind, "--unit", NAME, "--for", "10m"];
        chaosctl(ROOT, &[&["inject", kind], &name[..], options].concat())
    };
    inject("network_partition", &[])?;
    inject("resource_exhaustion", &["--resource", "pids_limit", "--pids", "50"])?;
    for round in 0..2 {
        scene.assert_unit_gets(TRIP, EAGAIN, &format!("restarts: {round}"))?;
        let before = scene.unit.pid();
        systemctl(&["kill", "--signal=KILL", NAME])?;
        scene.unit.time_to_normal(before, HANG)?;
        scene.inside = Caller::start(&scene.pair.near, Some(&Cgroup::of_others(Path::new(GROUP))?))?;
        let followed = || -> Result<bool> {
            let told = chaosctl(MEMBER, &["status"])?;
            let waits = told.contains("waits for it") || told.matches("was there again").count() < 2;
            Ok(!waits && limit().trim() == "50")
        };
        // That they have not noticed yet that it has gone looks the same the second time.
        let acts = wait_until(HANG, || {
            followed().unwrap_or(false)
                && scene.inside.ask(Ask::Trip(scene.echo.address())).is_ok_and(|got| got == EAGAIN)
        });
        assert!(acts, "restarts: {round}; {:?}; {}", chaosctl(MEMBER, &["status"]), log());
    }
    for kind in ["network_partition", "resource_exhaustion"] {
        chaosctl(MEMBER, &["remove", kind])?;
    }
    scene.assert_unit_gets(TRIP, 0, "afterwards")?;
    assert_ne!(limit().trim(), "50");
    scene.before.assert_unchanged_within(&[&scene.pair.near], HANG)?;
    Ok(())
}
