//! What the threads do when the disk is slow, full or not there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::chain::Hash;
use crate::mutation_tests::record;
use crate::record::Who;

/// What takes so long hangs.
const HANG: Duration = Duration::from_secs(60);

/// A disk that may be full, and may take its time to sync.
#[derive(Clone, Default)]
struct Disk {
    written: Arc<Mutex<Vec<Record>>>,
    is_full: Arc<AtomicBool>,
    syncs_for: Duration,
    synced: Arc<AtomicU64>,
}

impl Sink for Disk {
    type Synced = (Self, u64);

    fn append(&mut self, records: &[Record]) -> io::Result<()> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.written.lock().unwrap().extend_from_slice(records);
        Ok(())
    }

    fn written(&self) -> io::Result<Self::Synced> {
        Ok((self.clone(), self.written.lock().unwrap().len() as u64))
    }
}

impl Written for (Disk, u64) {
    fn sync(&self) -> io::Result<Head> {
        thread::sleep(self.0.syncs_for);
        self.0.synced.store(self.1, Ordering::SeqCst);
        Ok(Head { seq: self.1, hash: Hash::NONE })
    }
}

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<News>>>);

impl Ear for Heard {
    fn record(&mut self, record: &Record) {
        self.0.lock().unwrap().push(News::Record(Box::new(record.clone())));
    }

    fn head(&mut self, head: Head) {
        self.0.lock().unwrap().push(News::Head(head));
    }

    fn trouble(&mut self, trouble: Option<&str>) {
        self.0.lock().unwrap().push(News::Trouble(trouble.map(str::to_owned)));
    }
}

fn start(disk: &Disk) -> (Audit, Heard) {
    let (heard, disk) = (Heard::default(), disk.clone());
    let options = AuditOptions {
        open: move || Ok((disk.clone(), Vec::new())),
        complete: |record: &mut Record| record.trace = Some("completed".to_owned()),
        ear: heard.clone(),
    };
    (Audit::start(options).unwrap(), heard)
}

fn before(audit: &Audit, record: Record) -> Result<(), Fallen> {
    let (tell, told) = mpsc::channel();
    audit.before(record, move |done| tell.send(done).unwrap());
    told.recv_timeout(HANG).unwrap()
}

fn of(uid: u32, act: &str) -> Record {
    Record { act: act.to_owned(), who: Some(Who { uid: Some(uid), ..Who::default() }), ..record(1) }
}

fn acts(disk: &Disk) -> Vec<String> {
    disk.written.lock().unwrap().iter().map(|record| record.act.clone()).collect()
}

#[test]
fn whoever_waits_for_a_line_goes_on_when_it_is_written_and_it_is_synced_soon() {
    let disk = Disk::default();
    let (audit, heard) = start(&disk);
    for number in 1..=20 {
        assert_eq!(before(&audit, of(0, "inject")), Ok(()));
        assert_eq!(acts(&disk).len(), number);
    }
    // By itself, and not only when it ends.
    let begun = Instant::now();
    while disk.synced.load(Ordering::SeqCst) < 20 {
        assert!(begun.elapsed() < HANG, "not synced");
        thread::sleep(Duration::from_millis(5));
    }
    audit.close();
    assert!(disk.written.lock().unwrap().iter().all(|record| record.trace.is_some()));
    let heard = heard.0.lock().unwrap();
    assert_eq!(heard.last(), Some(&News::Head(Head { seq: 20, hash: Hash::NONE })));
    assert_eq!(heard.len(), 21);
}

#[test]
fn a_disk_that_is_slow_to_sync_keeps_no_line_from_being_written() {
    let disk = Disk { syncs_for: Duration::from_secs(1), ..Disk::default() };
    let (audit, _) = start(&disk);
    let begun = Instant::now();
    for _ in 0..50 {
        before(&audit, of(0, "inject")).unwrap();
    }
    // It would be 50 s if each waited.
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
    audit.close();
    assert_eq!(disk.synced.load(Ordering::SeqCst), 50);
}

#[test]
fn on_a_full_disk_nothing_begins_and_what_ends_is_written_once_there_is_room() {
    let disk = Disk::default();
    let (audit, heard) = start(&disk);
    before(&audit, of(1001, "inject")).unwrap();
    disk.is_full.store(true, Ordering::SeqCst);
    let refused = before(&audit, of(1001, "inject")).unwrap_err();
    assert!(
        matches!(&refused, Fallen::Unwritten(why) if why.contains("full") || why.contains("space")),
        "{refused}"
    );
    // Nothing of this waits for room, of which there is none yet.
    for _ in 0..10 {
        audit.put(Kind::Act, of(1001, "stop"));
    }
    assert!(before(&audit, of(1001, "inject")).is_err());
    disk.is_full.store(false, Ordering::SeqCst);
    // At once, and not when it is tried again by itself.
    assert_eq!(before(&audit, of(1001, "inject")), Ok(()));
    audit.close();
    let acts = acts(&disk);
    assert_eq!(acts.iter().filter(|act| *act == "stop").count(), 10, "{acts:?}");
    assert_eq!(acts.iter().filter(|act| *act == "inject").count(), 2, "{acts:?}");
    let heard = heard.0.lock().unwrap();
    let troubles = heard.iter().filter(|news| matches!(news, News::Trouble(_))).count();
    assert_eq!(troubles, 2, "that it is full, and that it no longer is");
}

#[test]
fn what_does_not_fit_into_the_queue_is_counted_in_a_line_and_others_have_room_in_it() {
    let disk = Disk::default();
    let (audit, _) = start(&disk);
    before(&audit, of(0, "inject")).unwrap();
    disk.is_full.store(true, Ordering::SeqCst);
    for _ in 0..MOST_OF_ONE + 100 {
        audit.put(Kind::Start, of(1001, "ended"));
    }
    audit.put(Kind::Act, of(1002, "stop"));
    assert_eq!(before(&audit, of(1001, "inject")), Err(Fallen::Full));
    disk.is_full.store(false, Ordering::SeqCst);
    assert_eq!(before(&audit, of(1002, "inject")), Ok(()));
    audit.close();
    let written = disk.written.lock().unwrap();
    let count = |act: &str| written.iter().filter(|record| record.act == act).count();
    assert_eq!((count("ended"), count("stop")), (MOST_OF_ONE, 1));
    let lost: u64 =
        written.iter().filter(|record| record.act == "audit_lost").filter_map(|record| record.repeats).sum();
    assert_eq!(lost, 101);
}

#[test]
fn a_chain_that_cannot_be_opened_keeps_whoever_begins_from_beginning_until_it_can() {
    let (disk, may_open) = (Disk::default(), Arc::new(AtomicBool::new(false)));
    let (opens, may) = (disk.clone(), Arc::clone(&may_open));
    let options = AuditOptions {
        open: move || match may.load(Ordering::SeqCst) {
            true => Ok((opens.clone(), vec![of(0, "audit_mended")])),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        },
        complete: |_: &mut Record| {},
        ear: Heard::default(),
    };
    let audit = Audit::start(options).unwrap();
    assert!(matches!(before(&audit, of(0, "inject")), Err(Fallen::Unwritten(_))));
    may_open.store(true, Ordering::SeqCst);
    assert_eq!(before(&audit, of(0, "inject")), Ok(()));
    audit.close();
    assert_eq!(acts(&disk), ["audit_mended", "inject"]);
}
