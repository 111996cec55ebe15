//! How many lines of the log one caller may cause: a journal keeps so many of a service and drops the rest, whoever's they are
//! (`RateLimitBurst=`, journald.conf(5)). What is left out is counted, and told in one line.
//!
//! An event is somebody's if it has a field `caller`, with whom [`crate::request::Caller`] shows. Levels are counted apart, so that
//! nobody hides what was done for them behind what was refused to them.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// So many lines of one caller and level may come at once.
const BURST: u32 = 100;
/// One more after each.
const EVERY: Duration = Duration::from_millis(100);
/// How often it is said what was left out.
pub const TOLD: Duration = Duration::from_secs(10);
/// So many callers are told apart; all others are one.
const MOST_CALLERS: usize = 1000;
/// The field by which an event is somebody's.
const CALLER: &str = "caller";

/// Whose lines, and how urgent.
type Kind = (String, Level);

/// How many lines each caller has caused.
#[derive(Debug, Default)]
struct Rates(BTreeMap<Kind, Bucket>);

/// A bucket of the generic cell rate algorithm (ITU-T I.371): it is full when all that has come would be through `until` at the steady
/// rate.
#[derive(Debug)]
struct Bucket {
    until: Instant,
    left_out: u64,
}

impl Bucket {
    /// Whether another line may come now.
    fn admits(&mut self, now: Instant) -> bool {
        let until = self.until.max(now);
        if until.duration_since(now) > EVERY * (BURST - 1) {
            self.left_out += 1;
            return false;
        }
        self.until = until + EVERY;
        true
    }
}

impl Rates {
    /// Whether a line of this caller, as [`crate::request::Caller`] shows them, is written now.
    fn admits(&mut self, caller: &str, level: Level, now: Instant) -> bool {
        // Whatever process of theirs it is.
        let who = caller.split(',').next().unwrap_or_default();
        let mut kind = (who.to_owned(), level);
        if self.0.len() >= MOST_CALLERS && !self.0.contains_key(&kind) {
            "others".clone_into(&mut kind.0);
        }
        self.0.entry(kind).or_insert(Bucket { until: now, left_out: 0 }).admits(now)
    }

    /// What was left out since this was asked last, in words. Who has caused no line for a while is forgotten.
    fn left_out(&mut self, now: Instant) -> Option<String> {
        let mut words = String::new();
        for ((who, level), bucket) in &mut self.0 {
            if bucket.left_out > 0 {
                let comma = if words.is_empty() { "" } else { ", " };
                // Writing to a string cannot fail.
                let _ = write!(words, "{comma}{who}: {} of level {level}", bucket.left_out);
                bucket.left_out = 0;
            }
        }
        self.0.retain(|_, bucket| bucket.until > now);
        (!words.is_empty()).then_some(words)
    }
}

static RATES: LazyLock<Mutex<Rates>> = LazyLock::new(Mutex::default);

/// Keeps events of a caller who has caused too many from being written.
#[derive(Debug, Clone, Copy)]
pub struct ByCaller;

impl<S: Subscriber> Layer<S> for ByCaller {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let mut caller = CallerOf::default();
        event.record(&mut caller);
        caller.0.is_none_or(|caller| {
            let mut rates = RATES.lock().unwrap_or_else(PoisonError::into_inner);
            rates.admits(&caller, *event.metadata().level(), Instant::now())
        })
    }
}

/// Whose an event is, as it is shown.
#[derive(Default)]
struct CallerOf(Option<String>);

impl Visit for CallerOf {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == CALLER {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

/// Says what was left out since it was said last, if anything was. To be called every [`TOLD`].
pub fn tell_left_out() {
    let left_out = RATES.lock().unwrap_or_else(PoisonError::into_inner).left_out(Instant::now());
    if let Some(left_out) = left_out {
        tracing::warn!(left_out, "lines are not in the log: callers have caused too many");
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use tracing_subscriber::fmt::MakeWriter;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::request::Caller;

    #[test]
    fn of_each_caller_and_level_so_many_lines_are_written_at_once_and_one_more_after_each_while() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        let mut written = |caller: &str, level, after: Duration, lines: u32| {
            (0..lines).filter(|_| rates.admits(caller, level, start + after)).count()
        };
        let second = Duration::from_secs(1);
        for (caller, level, after, lines, expected) in [
            ("uid 1001, pid 7", Level::WARN, Duration::ZERO, 100_000, 100),
            // Another process of the same user, and its other lines.
            ("uid 1001, pid 8", Level::WARN, Duration::ZERO, 10, 0),
            ("uid 1001", Level::INFO, Duration::ZERO, 10, 10),
            // Others are not concerned.
            ("uid 100", Level::WARN, Duration::ZERO, 10, 10),
            ("vsock context 1001", Level::WARN, Duration::ZERO, 10, 10),
            ("uid 1001, pid 7", Level::WARN, second, 1000, 10),
            ("uid 1001, pid 7", Level::WARN, 3600 * second, 1000, 100),
        ] {
            assert_eq!(written(caller, level, after, lines), expected, "{caller}, {level}, {after:?}");
        }
        let told = "uid 1001: 101800 of level WARN";
        assert_eq!(rates.left_out(start + 3600 * second).as_deref(), Some(told));
        assert_eq!(rates.left_out(start + 3600 * second), None);
        rates.left_out(start + 7200 * second);
        assert!(rates.0.is_empty());
    }

    #[test]
    fn however_many_callers_there_are_those_beyond_the_most_are_one() {
        let (mut rates, now) = (Rates::default(), Instant::now());
        let written = (0..10_000).filter(|uid| rates.admits(&format!("uid {uid}"), Level::WARN, now)).count();
        assert_eq!((written, rates.0.len()), (MOST_CALLERS + BURST as usize, MOST_CALLERS + 1));
        assert!(rates.left_out(now).is_some_and(|told| told.starts_with("others: 8900 of")));
    }

    /// What is logged, as a whole.
    #[derive(Debug, Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn a_flood_of_one_caller_leaves_the_lines_of_others_and_of_the_daemon_in_the_log_and_is_counted() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        let caller = |uid: u32, pid: i32| Caller::Unix { uid, gid: 0, pid };
        tracing::subscriber::with_default(subscriber.with(ByCaller), || {
            for pid in 1..=20_000 {
                tracing::warn!(caller = %caller(47_120, pid), "refused");
                if pid % 1000 == 0 {
                    tracing::warn!(caller = %caller(47_121, pid), "of another");
                    tracing::error!("of the daemon");
                }
            }
            tracing::info!(caller = %caller(47_120, 1), "injected");
            tell_left_out();
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
        // However slow this machine is: some more than the burst.
        let written = count("refused");
        assert!((100..1000).contains(&written), "{written}");
        assert_eq!((count("of another"), count("of the daemon"), count("injected")), (20, 20, 1));
        let left_out = format!("uid 47120: {} of level WARN", 20_000 - written);
        assert!(text.contains(&left_out), "{left_out}, and the log ends with: {:?}", text.lines().last());
    }
}
