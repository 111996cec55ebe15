//! Taking this host down after a countdown. Whatever ends the holder or its lease before it is over prevents all of it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use caps::Capability;

use super::arm::{Arm, ArmError, Armed, Means};
use crate::fault::DownWork;
use crate::host::privilege::SERVICE_HOLDER;
use crate::host::{BootId, boot_time_ns};
use crate::journal::DownRecord;
use crate::journal::down::wall_clock;
use crate::kernel::down::Machine;
use crate::kernel::node::Kernel;
use crate::request::evidence::Down;
use crate::request::{Evidence, chain};
use crate::spec::{FaultType, Way};

impl Arm for DownWork {
    fn needed(&self) -> &'static [Capability] {
        match self.down.way {
            Way::Reboot { .. } => SERVICE_HOLDER,
            // Root owns the file, and the folder of the record.
            Way::Panic { .. } => &[],
        }
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        Ok(Box::new(Countdown::start(self, Kernel, means.deadline_ns).map_err(ArmError::Countdown)?))
    }
}

impl Armed for Countdown {
    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        self.set_deadline(deadline_ns);
        Ok(())
    }

    fn evidence(&self) -> Result<Evidence, ArmError> {
        let host_downs = self.downs().map_err(ArmError::Down)?;
        Ok(Evidence::Down(Down { host_downs }))
    }
}

/// A countdown, called off when the value is dropped.
#[derive(Debug)]
struct Countdown {
    /// How long it takes.
    length: Duration,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Boot-time nanoseconds after which nothing is done any more.
    deadline: AtomicU64,
    phase: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// The lease was not renewed yet: whoever asked has not heard that it is under way.
    Waiting,
    /// Until then it can be called off.
    Counting(Instant),
    /// It was.
    CalledOff,
    /// The host goes down.
    Down,
    /// It stays up.
    Failed(String),
}

impl Shared {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: Phase) {
        *self.phase() = phase;
    }

    fn leased(&self) -> bool {
        boot_time_ns() < self.deadline.load(Ordering::Acquire)
    }
}

impl Countdown {
    /// Gets ready. The countdown begins with the first renewal, which comes when the injection was answered.
    ///
    /// # Errors
    /// When this boot has no identity, or there is no thread to count.
    fn start(work: &DownWork, machine: impl Machine, deadline_ns: u64) -> io::Result<Self> {
        let (deadline, phase) = (AtomicU64::new(deadline_ns), Mutex::new(Phase::Waiting));
        let shared = Arc::new(Shared { deadline, phase, changed: Condvar::new() });
        let way = work.down.way;
        let record = DownRecord {
            boot: BootId::current()?,
            name: work.name.clone(),
            fault_type: match way {
                Way::Reboot { .. } => FaultType::HostReboot,
                Way::Panic { .. } => FaultType::HostPanic,
            },
            description: work.description.clone(),
            at: wall_clock(),
            back: None,
        };
        let length = work.down.countdown;
        let (work, of_thread) = (work.clone(), Arc::clone(&shared));
        let count = move || {
            if of_thread.count() {
                of_thread.strike(&work, record, &machine);
            }
        };
        let thread = thread::Builder::new().name("countdown".into()).spawn(count)?;
        Ok(Self { length, shared, thread: Some(thread) })
    }

    /// Goes on until `deadline_ns`; 0 calls it off, if it is not too late.
    fn set_deadline(&self, deadline_ns: u64) {
        let mut phase = self.shared.phase();
        self.shared.deadline.store(deadline_ns, Ordering::Release);
        let next = match (&*phase, deadline_ns) {
            (Phase::Waiting | Phase::Counting(_), 0) => Phase::CalledOff,
            (Phase::Waiting, _) => Phase::Counting(Instant::now() + self.length),
            _ => return,
        };
        *phase = next;
        self.shared.changed.notify_all();
    }

    /// How often the host was told to go down: 0 or 1.
    ///
    /// # Errors
    /// Why it stays up although the countdown is over.
    fn downs(&self) -> Result<u64, String> {
        match &*self.shared.phase() {
            Phase::Failed(why) => Err(why.clone()),
            phase => Ok(u64::from(*phase == Phase::Down)),
        }
    }
}

impl Drop for Countdown {
    fn drop(&mut self) {
        self.set_deadline(0);
        if let Some(thread) = self.thread.take() {
            // One that has panicked takes nothing down any more, which is all that is wanted here.
            drop(thread.join());
        }
    }
}

impl Shared {
    /// Waits until the countdown is over; false when it was called off.
    fn count(&self) -> bool {
        let mut phase = self.phase();
        loop {
            phase = match &*phase {
                Phase::Waiting => self.changed.wait(phase).unwrap_or_else(PoisonError::into_inner),
                Phase::Counting(due) => match due.checked_duration_since(Instant::now()) {
                    Some(rest) if !rest.is_zero() => {
                        self.changed.wait_timeout(phase, rest).unwrap_or_else(PoisonError::into_inner).0
                    }
                    _ => return true,
                },
                _ => return false,
            }
        }
    }

    /// Writes down what is about to be done, and does it, unless it was called off meanwhile.
    fn strike(&self, work: &DownWork, record: DownRecord, machine: &impl Machine) {
        let way = work.down.way;
        if matches!(way, Way::Panic { sync: true, .. }) {
            machine.sync();
        }
        {
            let mut phase = self.phase();
            if *phase == Phase::CalledOff {
                return;
            }
            // Nothing is written down of a host that stays up.
            if !self.leased() {
                *phase = lease_ran_out();
                return;
            }
        }
        if let Err(error) = (DownRecord { at: wall_clock(), ..record }).write(&work.record) {
            let path = work.record.display();
            forget(work);
            return self.set(Phase::Failed(format!("write down in {path} what is done: {error}")));
        }
        // Held until it is done: from here on it cannot be called off.
        let mut phase = self.phase();
        *phase = match &*phase {
            Phase::CalledOff => Phase::CalledOff,
            _ if !self.leased() => lease_ran_out(),
            _ => match machine.go_down(way) {
                Ok(()) => Phase::Down,
                Err(error) => Phase::Failed(chain(&error)),
            },
        };
        if *phase != Phase::Down {
            forget(work);
        }
    }
}

fn lease_ran_out() -> Phase {
    Phase::Failed("its lease had run out when its countdown was over".to_owned())
}

fn forget(work: &DownWork) {
    if let Err(error) = DownRecord::forget(&work.record) {
        tracing::warn!(path = %work.record.display(), %error, "cannot take back what did not happen");
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::kernel::down::DownError;
    use crate::spec::{HostDown, QualifiedName};
    use crate::waits::{HANG, wait_for};

    const FAR: u64 = u64::MAX;
    const COUNTDOWN: Duration = Duration::from_millis(50);
    /// Long enough to be called off meanwhile.
    const LONG: Duration = Duration::from_secs(2);

    /// A host that only notes what is done to it, and what was written down by then.
    #[derive(Clone)]
    struct Fake {
        record: PathBuf,
        refuses: bool,
        done: Arc<Mutex<Vec<String>>>,
    }

    impl Fake {
        fn note(&self, what: &str) {
            let written = DownRecord::read(&self.record).unwrap().is_some();
            self.done.lock().unwrap().push(format!("{what}, written down: {written}"));
        }
    }

    impl Machine for Fake {
        fn sync(&self) {
            self.note("sync");
        }

        fn go_down(&self, way: Way) -> Result<(), DownError> {
            self.note(match way {
                Way::Reboot { .. } => "reboot",
                Way::Panic { .. } => "panic",
            });
            if self.refuses { Err(DownError::Test) } else { Ok(()) }
        }
    }

    struct Stage {
        _folder: tempfile::TempDir,
        work: DownWork,
        fake: Fake,
    }

    impl Stage {
        fn new(way: Way) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let record = folder.path().join(crate::journal::down::FILE);
            let fake = Fake { record: record.clone(), refuses: false, done: Arc::default() };
            let down = HostDown { way, countdown: COUNTDOWN };
            let name = QualifiedName::parse("a").unwrap();
            Self { _folder: folder, work: DownWork { down, name, record, description: "d".into() }, fake }
        }

        fn start(&self, deadline_ns: u64) -> Countdown {
            self.start_for(COUNTDOWN, deadline_ns)
        }

        fn start_for(&self, countdown: Duration, deadline_ns: u64) -> Countdown {
            let mut work = self.work.clone();
            work.down.countdown = countdown;
            Countdown::start(&work, self.fake.clone(), deadline_ns).unwrap()
        }

        fn done(&self) -> Vec<String> {
            self.fake.done.lock().unwrap().clone()
        }

        fn written(&self) -> Option<DownRecord> {
            DownRecord::read(&self.work.record).unwrap()
        }
    }

    const REBOOT: Way = Way::Reboot { forced: false };

    #[test]
    fn the_host_goes_down_after_the_countdown_and_it_is_on_disk_by_then() {
        let panic = |sync| Way::Panic { sync, stay_down: false };
        for (way, expected) in [
            (REBOOT, vec!["reboot, written down: true"]),
            (panic(false), vec!["panic, written down: true"]),
            (panic(true), vec!["sync, written down: false", "panic, written down: true"]),
        ] {
            let stage = Stage::new(way);
            let countdown = stage.start(FAR);
            let began = Instant::now();
            countdown.set_deadline(FAR);
            wait_for(|| countdown.downs() == Ok(1));
            assert!(began.elapsed() >= COUNTDOWN);
            assert_eq!(stage.done(), expected);
            drop(countdown);
            // The next boot has to find it.
            let written = stage.written().unwrap();
            assert_eq!((written.name, written.boot), (stage.work.name.clone(), BootId::current().unwrap()));
        }
    }

    #[test]
    fn nothing_begins_before_the_injection_was_answered() {
        let stage = Stage::new(REBOOT);
        let countdown = stage.start(FAR);
        thread::sleep(3 * COUNTDOWN);
        assert_eq!((countdown.downs(), stage.done().len()), (Ok(0), 0));
    }

    #[test]
    fn a_removal_before_it_is_over_prevents_all_of_it() {
        let stage = Stage::new(REBOOT);
        let countdown = stage.start_for(LONG, FAR);
        countdown.set_deadline(FAR);
        thread::sleep(COUNTDOWN);
        countdown.set_deadline(0);
        // Nor does a renewal bring it back.
        countdown.set_deadline(FAR);
        thread::sleep(2 * LONG);
        assert_eq!(countdown.downs(), Ok(0));
        // Waits for the end of the thread.
        drop(countdown);
        assert_eq!((stage.done().len(), stage.written()), (0, None));
    }

    #[test]
    fn the_end_of_the_holder_prevents_it_as_well() {
        let stage = Stage::new(REBOOT);
        let countdown = stage.start_for(HANG, FAR);
        countdown.set_deadline(FAR);
        // Waits for the end of the thread.
        drop(countdown);
        assert_eq!((stage.done().len(), stage.written()), (0, None));
    }

    #[test]
    fn a_lease_that_has_run_out_prevents_it_for_good() {
        let stage = Stage::new(REBOOT);
        let countdown = stage.start(1);
        countdown.set_deadline(1);
        wait_for(|| countdown.downs().is_err());
        countdown.set_deadline(FAR);
        thread::sleep(2 * COUNTDOWN);
        assert!(countdown.downs().unwrap_err().contains("lease"));
        assert_eq!((stage.done().len(), stage.written()), (0, None));
    }

    #[test]
    fn of_a_lease_that_has_run_out_nothing_is_written_down_even_for_a_moment() {
        let mut stage = Stage::new(REBOOT);
        // A write would fail, and say so.
        stage.work.record = stage.work.record.join("no-such-folder");
        let countdown = stage.start(1);
        countdown.set_deadline(1);
        wait_for(|| countdown.downs().is_err());
        let why = countdown.downs().unwrap_err();
        assert!(why.contains("lease"), "{why}");
    }

    #[test]
    fn what_cannot_be_written_down_is_not_done() {
        let mut stage = Stage::new(REBOOT);
        stage.work.record = stage.work.record.join("no-such-folder");
        let countdown = stage.start(FAR);
        countdown.set_deadline(FAR);
        wait_for(|| countdown.downs().is_err());
        assert!(countdown.downs().unwrap_err().contains("no-such-folder"));
        assert_eq!(stage.done().len(), 0);
    }

    #[test]
    fn a_host_that_refuses_stays_up_and_nothing_else_is_told_of_it() {
        let mut stage = Stage::new(REBOOT);
        stage.fake.refuses = true;
        let countdown = stage.start(FAR);
        countdown.set_deadline(FAR);
        wait_for(|| countdown.downs().is_err());
        assert_eq!((stage.done().len(), stage.written()), (1, None));
    }
}
