//! Tests of the host's numbers: what kernels have said, and what this one says beside df(1) and sysinfo(2).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::sysinfo::sysinfo;
use tokio::sync::Semaphore;

use super::cpu::Times;
use super::*;
use crate::host::directory::Space;
use crate::waits::HANG as LIMIT;

const MIB: u64 = 1 << 20;

/// Of a host with 24 GiB and 4 GiB of swap.
const MEMINFO: &str = "MemTotal:       24684084 kB
MemFree:         2107372 kB
MemAvailable:    6171021 kB
Buffers:            7736 kB
Cached:          1619948 kB
SwapCached:         1024 kB
SwapTotal:       4194304 kB
SwapFree:        3145728 kB
HugePages_Total:       0
";

/// Of a host with two processors, and the same one a second later.
const STAT: [&str; 2] = [
    "cpu  2087564 1049220 865760 1786933 15457 0 10079 4028 700 0
cpu0 1025020 508915 427708 936714 5313 0 3273 2039 0 0
cpu1 1062543 540305 438051 850219 10144 0 6805 1989 700 0
intr 65425812 0 0 0
ctxt 128311111
",
    "cpu  2087604 1049230 865780 1787003 15487 10 10089 4038 720 0
cpu0 1025040 508920 427718 936749 5328 5 3278 2044 0 0
",
];

fn number_of(metric: &str, path: Option<&str>) -> Number {
    Number::parse(metric, path, None).unwrap()
}

fn value(seen: Result<Seen, String>) -> f64 {
    seen.unwrap().value.unwrap()
}

#[track_caller]
fn near(seen: f64, wanted: f64, most: f64) {
    assert!((seen - wanted).abs() <= most, "{seen}, where {wanted} is right, give or take {most}");
}

#[test]
fn memory_is_used_as_far_as_it_is_not_available() {
    near(value(Memory::UsedPercent.find(MEMINFO)), 75.0, 0.01);
    near(value(Memory::AvailableBytes.find(MEMINFO)), 6_171_021.0 * 1024.0, 0.1);
    near(value(Memory::SwapUsedPercent.find(MEMINFO)), 25.0, 0.01);
    let detail = Memory::UsedPercent.find(MEMINFO).unwrap().verdict.unwrap();
    assert_eq!(detail, "75.0 %, 6026 MiB of 24105 MiB available");
    let without = MEMINFO.replace("4194304", "0").replace("3145728", "0");
    let seen = Memory::SwapUsedPercent.find(&without).unwrap();
    assert_eq!((seen.value, seen.verdict.unwrap()), (Some(0.0), "0 %, this host has no swap".to_owned()));
    for (text, said) in [
        (MEMINFO.replace("MemAvailable", "MemElsewhere"), "no MemAvailable"),
        (MEMINFO.replace("24684084 kB", "a lot"), "no MemTotal"),
        (String::new(), "no MemAvailable"),
    ] {
        let error = Memory::UsedPercent.find(&text).err().unwrap();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn processors_are_busy_unless_they_idle_or_wait_for_a_disk() {
    let [before, after] = STAT.map(|text| Times::parse(text).unwrap());
    // Of 200 ticks 70 were idle and 30 iowait; what guests took is in user.
    near(after.busy_since(&before).unwrap(), 50.0, 1e-9);
    assert_eq!(before.busy_since(&before), None);
    // iowait may go back.
    let back = Times::parse("cpu  2087574 1049220 865760 1786943 15400 0 10079 4028 0 0\n").unwrap();
    near(back.busy_since(&before).unwrap(), 50.0, 1e-9);
    for text in ["", "cpu0 1 2 3 4 5 6 7 8\n", "cpu  1 2 3 4\n", "cpu  1 2 3 4 5 6 7 many\n"] {
        assert_eq!(Times::parse(text), None, "{text:?}");
    }
}

#[test]
fn load_open_files_and_threads_are_told_apart() {
    let text = "2.06 1.68 1.43 3/107 21220\n";
    assert_eq!(
        [Count::Load1, Count::Load5, Count::Load15].map(|load| load.load(text)),
        [Some(2.06), Some(1.68), Some(1.43)]
    );
    assert_eq!(count::tasks(text), Some(107));
    assert_eq!(count::files("791\t11\t2466170\n"), Some((780, 2_466_170)));
    assert_eq!(count::files("791\t0\t9223372036854775807\n"), Some((791, u64::try_from(i64::MAX).unwrap())));
    for text in ["", "2.06", "many more than that", "2.06 1.68 1.43 107 1"] {
        assert_eq!((Count::Load15.load(text).is_some(), count::tasks(text)), (text.ends_with('1'), None));
        assert_eq!(count::files(text), None, "{text:?}");
    }
}

#[test]
fn a_file_system_is_as_full_as_df_says() {
    // Of 100 MiB five are for root only: 57 of 95 are used.
    let space = Space {
        bytes: 100 * MIB,
        used: 57 * MIB,
        available: 38 * MIB,
        inodes: 4000,
        available_inodes: 3000,
        in_memory: false,
    };
    near(value(Disk::UsedPercent.find(&space)), 60.0, 1e-9);
    near(value(Disk::AvailableBytes.find(&space)), 38.0 * 1_048_576.0, 0.1);
    near(value(Disk::InodesUsedPercent.find(&space)), 25.0, 1e-9);
    let detail = |disk: Disk| disk.find(&space).unwrap().verdict.unwrap();
    assert_eq!(detail(Disk::UsedPercent), "60.0 %, 38 MiB of 100 MiB available");
    assert_eq!(detail(Disk::InodesUsedPercent), "25.0 %, 3000 of 4000 available");
    // Full to the last block: nothing is left, and that is a number.
    let full = Space { used: 95 * MIB, available: 0, ..space };
    near(value(Disk::UsedPercent.find(&full)), 100.0, 1e-9);
    near(value(Disk::AvailableBytes.find(&full)), 0.0, 0.0);
    // procfs has no blocks, btrfs counts no inodes.
    let none = Space { bytes: 0, used: 0, available: 0, inodes: 0, available_inodes: 0, ..space };
    for disk in [Disk::UsedPercent, Disk::AvailableBytes, Disk::InodesUsedPercent] {
        assert!(disk.find(&none).is_err(), "{disk:?}");
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    let second = Some(Duration::from_secs(1));
    for (metric, path, window, field) in [
        ("memory", None, None, "METRIC"),
        ("disk_used_percent", None, None, "--path"),
        ("disk_used_percent", Some("var"), None, "--path"),
        ("inodes_used_percent", Some(""), None, "--path"),
        ("disk_available_bytes", Some("/a\0b"), None, "--path"),
        ("memory_used_percent", Some("/"), None, "--path"),
        ("load1", None, second, "--window"),
        ("disk_used_percent", Some("/"), second, "--window"),
        ("cpu_busy_percent", None, Some(Duration::from_millis(99)), "--window"),
        ("cpu_busy_percent", None, Some(Duration::from_secs(16)), "--window"),
    ] {
        assert_eq!(Number::parse(metric, path, window).unwrap_err().field, field, "{metric} {path:?}");
    }
    let long = format!("/{}", "x".repeat(LONGEST_PATH));
    assert_eq!(Number::parse("disk_used_percent", Some(&long), None).unwrap_err().field, "--path");
    assert_eq!(number_of("disk_used_percent", Some("/var")).to_string(), "host disk_used_percent of /var");
}

#[test]
fn a_window_is_at_most_half_of_what_a_sample_may_take() {
    let watched = |millis: Option<u64>| {
        Number::parse("cpu_busy_percent", None, millis.map(Duration::from_millis)).unwrap()
    };
    for (window, limit, fits) in
        [(Some(1000), 2000, true), (Some(1000), 1999, false), (None, 200, true), (None, 199, false)]
    {
        let fit = watched(window).fits("interval", Duration::from_millis(limit));
        assert_eq!(fit.is_ok(), fits, "{window:?} {limit}");
        assert!(
            fit.err().is_none_or(|error| error.field == "interval" && error.problem.contains("at least"))
        );
    }
    assert!(number_of("load1", None).fits("interval", Duration::from_millis(10)).is_ok());
}

#[tokio::test]
async fn every_metric_is_read_on_this_host() {
    for (name, metric) in METRICS {
        let path = matches!(metric, Metric::Disk(_)).then_some("/tmp");
        let seen = number_of(name, path).take(LIMIT).await;
        // A file system may have no fixed number of inodes, which is said.
        match (seen.value, seen.verdict) {
            (Some(value), Ok(_)) => {
                assert!(value >= 0.0 && value.is_finite(), "{name}: {value}");
                assert!(!name.ends_with("_percent") || value <= 100.0, "{name}: {value}");
            }
            (None, Err(why)) => assert!(why.contains("without a fixed number of inodes"), "{name}: {why}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn memory_and_load_are_what_sysinfo_says() {
    let take = async |name| number_of(name, None).take(LIMIT).await.value.unwrap();
    let available = take("memory_available_bytes").await;
    let info = sysinfo().unwrap();
    let (total, unused) = (number(info.ram_total()), number(info.ram_unused()));
    // What is unused is available but for the kernel's reserve, and caches are available, too.
    assert!(available > 0.0 && available < total, "{available} of {total}");
    assert!(available > unused * 0.5 - 256e6, "{available}, and {unused} are unused");
    near(take("memory_used_percent").await, 100.0 - available * 100.0 / total, 20.0);
    let swap = percent(info.swap_total() - info.swap_free(), info.swap_total());
    near(take("swap_used_percent").await, swap.unwrap_or(0.0), 20.0);
    let (one, five, fifteen) = info.load_average();
    for (name, load) in [("load1", one), ("load5", five), ("load15", fifteen)] {
        near(take(name).await, load, 5.0 + load);
    }
}

#[tokio::test]
async fn room_and_inodes_are_what_df_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let output = Command::new("df")
        .env("LC_ALL", "C")
        .args(["--block-size=1", "--output=pcent,avail,ipcent", path])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let words: Vec<_> = said.lines().nth(1).unwrap().split_whitespace().collect();
    let [used, available, inodes] = words[..] else { panic!("{said}") };
    let take = async |name| number_of(name, Some(path)).take(LIMIT).await.value;
    let percent = |word: &str| word.strip_suffix('%').map(|number| number.parse::<f64>().unwrap());
    // df rounds up.
    near(take("disk_used_percent").await.unwrap(), percent(used).unwrap(), 3.0);
    let available: f64 = available.parse().unwrap();
    near(take("disk_available_bytes").await.unwrap(), available, available * 0.2 + 1e9);
    assert_eq!(take("inodes_used_percent").await.is_some(), percent(inodes).is_some());
    if let Some(inodes) = percent(inodes) {
        near(take("inodes_used_percent").await.unwrap(), inodes, 3.0);
    }
}

#[test]
fn a_thread_that_never_rests_keeps_processors_busy() {
    let (rest, spins) = (AtomicBool::new(false), AtomicBool::new(false));
    let watched = Number::parse("cpu_busy_percent", None, Some(WINDOW)).unwrap();
    let busy = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !rest.load(Ordering::Relaxed) {
                spins.store(true, Ordering::Relaxed);
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let seen = scope.spawn(move || runtime.block_on(watched.take(LIMIT))).join();
        rest.store(true, Ordering::Relaxed);
        seen.unwrap().value.unwrap()
    });
    assert!(spins.into_inner());
    // It runs all the time, or others do in its place. A quarter of that, for who gives it less.
    let processors = processors();
    assert!((25.0 / processors..=100.0).contains(&busy), "{busy} % of {processors} processors");
}

/// As `/proc/stat` has them, a line each.
fn processors() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let lines = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    number(lines.count() as u64)
}

#[tokio::test]
async fn what_is_not_there_or_hidden_is_said_and_is_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("hidden")).unwrap();
    fs::set_permissions(path("hidden"), Permissions::from_mode(0o000)).unwrap();
    fs::write(path("file"), "").unwrap();
    for (path, said) in [
        (path("none"), "there is no "),
        (path("hidden"), "ProtectHome="),
        (path("file/below"), "file/below"),
        ("/proc".to_owned(), "no file system with room of its own"),
    ] {
        let seen = number_of("disk_available_bytes", Some(&path)).take(LIMIT).await;
        let why = seen.verdict.unwrap_err();
        assert!(seen.value.is_none() && why.contains(said), "{path}: {why}");
    }
    // A file is on a file system as well.
    assert!(number_of("disk_used_percent", Some(&path("file"))).take(LIMIT).await.value.is_some());
}

#[tokio::test]
async fn file_systems_that_do_not_answer_take_no_more_than_their_places() {
    static TWO: Semaphore = Semaphore::const_new(2);
    let short = Duration::from_millis(50);
    let (answer, answers) = std::sync::mpsc::channel::<()>();
    let (again, waits) = std::sync::mpsc::channel::<()>();
    for silent in [answers, waits] {
        let stuck = timeout(short, disk::in_place(&TWO, short, move || silent.recv().is_ok())).await;
        assert!(!matches!(stuck, Ok(Ok(_))), "{stuck:?}");
    }
    assert!(timeout(short, disk::in_place(&TWO, short, || ())).await.is_err());
    answer.send(()).unwrap();
    drop(again);
    assert_eq!(disk::in_place(&TWO, LIMIT, || 7).await, Ok(7));
}
