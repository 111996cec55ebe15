//! Which cause was seen for what was late: a decision from what was seen alone.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use super::look::{Look, Processor, Thread};

/// Losing so much of a time is no matter of load.
const MOST: f64 = 0.75;
/// A processor that handles packets for a larger share of the time may do so because of packets of faults, which go round.
const PACKETS: f64 = 0.5;

/// Why something was late that was not the daemon's doing, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A processor did not go on.
    Halted {
        /// Which.
        processor: usize,
        /// How long somebody else had it, by the word of whoever runs this machine.
        stolen: Duration,
        /// How long its timers were served too late.
        late: Duration,
    },
    /// A thread wanted to go on, and could not.
    Kept {
        /// Which.
        thread: String,
        /// How long it wanted to run, and had no processor.
        waited: Duration,
        /// How long the kernel kept it at a place that is known for that, and at which.
        within: Option<(Duration, &'static str)>,
    },
}

impl Cause {
    /// How much time was lost.
    pub fn time(&self) -> Duration {
        match self {
            Self::Halted { stolen, late, .. } => *stolen.max(late),
            Self::Kept { waited, within, .. } => *waited + within.map_or(Duration::ZERO, |(time, _)| time),
        }
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halted { processor, stolen, late } => write!(
                f,
                "processor {processor} did not go on: {stolen:.1?} were another machine's, its timers were {late:.1?} late"
            ),
            Self::Kept { thread, waited, within } => {
                write!(f, "{thread} waited {waited:.1?} for a processor")?;
                within.map_or(Ok(()), |(time, place)| {
                    write!(f, ", and spent {time:.1?} in the kernel, {place}")
                })
            }
        }
    }
}

/// The cause that cost the most time from `since` on, of those that took most of so long a time at once. The looks are in order.
pub(super) fn cause(looks: &[Look], since: Instant, window: Duration) -> Option<Cause> {
    // The one before shows what was lost until the first.
    let first = looks.partition_point(|look| look.at < since).saturating_sub(1);
    let looks = &looks[first..];
    stretches(looks, window).flat_map(|stretch| causes(stretch, looks, window)).max_by_key(Cause::time)
}

/// What took most of a stretch, with all that it took in these looks.
fn causes(stretch: &[Look], looks: &[Look], window: Duration) -> Vec<Cause> {
    let (Some(from), Some(to)) = (stretch.first(), stretch.last()) else { return Vec::new() };
    if are_packets_handled(from, to) {
        return Vec::new();
    }
    // Looks may be further apart.
    let needed = window.max(to.at - from.at).mul_f64(MOST);
    let took_most = |cause: Option<Cause>| cause.is_some_and(|cause| cause.time() >= needed);
    let processors = (0..to.processors.len()).filter(|number| took_most(halted(stretch, *number)));
    let threads = to.threads.iter().filter(|thread| took_most(kept(stretch, thread.id)));
    let halted = processors.filter_map(|number| halted(looks, number));
    halted.chain(threads.filter_map(|thread| kept(looks, thread.id))).collect()
}

/// From each look to the first that is a window later, or to the last.
fn stretches(looks: &[Look], window: Duration) -> impl Iterator<Item = &[Look]> {
    (0..looks.len()).map(move |from| {
        let end = looks[from].at + window;
        let to = looks.partition_point(|look| look.at < end).min(looks.len() - 1);
        &looks[from..=to]
    })
}

fn are_packets_handled(from: &Look, to: &Look) -> bool {
    let most = (to.at - from.at).mul_f64(PACKETS);
    let pairs = from.processors.iter().zip(&to.processors);
    { pairs }.any(|(from, to)| to.softirq.saturating_sub(from.softirq) > most)
}

fn halted(looks: &[Look], processor: usize) -> Option<Cause> {
    let from = looks.first()?.processors.get(processor)?;
    let to = looks.last()?.processors.get(processor)?;
    let grown = |time: fn(&Processor) -> Duration| time(to).saturating_sub(time(from));
    Some(Cause::Halted { processor, stolen: grown(|of| of.stolen), late: grown(|of| of.halted) })
}

/// What a thread lost between the first and the last of these looks at it.
fn kept(looks: &[Look], id: i32) -> Option<Cause> {
    let seen = || looks.iter().filter_map(|look| look.threads.iter().find(|thread| thread.id == id));
    let (from, to) = (seen().next()?, seen().next_back()?);
    let grown = |time: fn(&Thread) -> Duration| time(to).saturating_sub(time(from));
    let within = seen().find_map(|thread| thread.place).map(|place| (grown(|of| of.kernel), place));
    let thread = format!("{} ({id})", to.name);
    Some(Cause::Kept { thread, waited: grown(|of| of.waited), within })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);

    fn thread(id: i32) -> Thread {
        let none = Duration::ZERO;
        Thread { id, name: "rcu_preempt".into(), waited: none, kernel: none, place: None }
    }

    /// So many looks, a tenth of a second apart, of which each changes what the one before saw.
    fn looks(count: usize, change: impl Fn(usize, &mut Look)) -> Vec<Look> {
        let processors = vec![Processor::default(); 2];
        let mut look = Look { at: Instant::now(), processors, threads: vec![thread(1), thread(2)] };
        let mut looks = vec![look.clone()];
        for number in 1..count {
            look.at += TENTH;
            change(number, &mut look);
            looks.push(look.clone());
        }
        looks
    }

    fn cause_of(looks: &[Look]) -> Option<Cause> {
        cause(looks, looks[0].at, TENTH * 10)
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_is_a_cause_with_all_its_time() {
        let looks = looks(40, |number, look| {
            if number < 20 {
                look.threads[1].waited += TENTH;
            }
        });
        let expected = Cause::Kept { thread: "rcu_preempt (2)".into(), waited: TENTH * 19, within: None };
        assert_eq!(cause_of(&looks), Some(expected.clone()));
        assert_eq!(expected.to_string(), "rcu_preempt (2) waited 1.9s for a processor");
        assert_eq!(cause(&looks, looks[30].at, TENTH * 10), None, "it was before");
    }

    #[test]
    fn what_took_most_of_a_second_did_not_take_most_of_two() {
        let looks = looks(60, |number, look| {
            if number % 30 < 10 {
                look.threads[0].waited += TENTH;
            }
        });
        let causes = [10, 20].map(|tenths| cause(&looks, looks[0].at, TENTH * tenths).is_some());
        assert_eq!(causes, [true, false]);
    }

    #[test]
    fn what_is_always_a_little_late_is_load() {
        let loses = |share: f64| looks(60, move |_, look| look.threads[0].waited += TENTH.mul_f64(share));
        assert_eq!(cause_of(&loses(0.6)), None);
        assert!(cause_of(&loses(0.8)).is_some());
    }

    #[test]
    fn looks_that_are_far_apart_show_a_cause_only_if_most_of_the_time_was_lost() {
        let loses = |share: f64| {
            looks(3, move |_, look| {
                look.at += TENTH * 99;
                look.threads[0].waited += TENTH.mul_f64(100.0 * share);
            })
        };
        assert_eq!(cause_of(&loses(0.5)), None);
        assert!(cause_of(&loses(0.9)).is_some());
    }

    #[test]
    fn time_in_the_kernel_counts_at_a_place_that_is_known_and_together_with_waiting() {
        let spends = |place| {
            looks(30, move |number, look| {
                look.threads[0].kernel += TENTH / 2;
                look.threads[0].waited += TENTH / 2;
                look.threads[0].place = if number % 5 == 0 { place } else { None };
            })
        };
        assert_eq!(cause_of(&spends(None)), None);
        let Some(Cause::Kept { waited, within: Some((time, "there")), .. }) =
            cause_of(&spends(Some("there")))
        else {
            panic!("no cause");
        };
        assert_eq!((waited, time), (TENTH / 2 * 29, TENTH / 2 * 29));
    }

    #[test]
    fn a_processor_that_is_taken_away_or_does_not_go_on_is_a_cause() {
        let stolen = looks(30, |_, look| look.processors[1].stolen += TENTH);
        let late = looks(30, |number, look| {
            if number == 20 {
                look.processors[1].halted += TENTH * 15;
            }
        });
        let halted = |stolen, late| Some(Cause::Halted { processor: 1, stolen, late });
        assert_eq!(cause_of(&stolen), halted(TENTH * 29, Duration::ZERO));
        assert_eq!(cause_of(&late), halted(Duration::ZERO, TENTH * 15));
    }

    #[test]
    fn nothing_is_excused_while_packets_keep_a_processor_busy() {
        let waits_beside = |packets: f64| {
            looks(30, move |_, look| {
                look.threads[0].waited += TENTH;
                look.processors[0].softirq += TENTH.mul_f64(packets);
            })
        };
        assert_eq!(cause_of(&waits_beside(0.9)), None);
        assert!(cause_of(&waits_beside(0.1)).is_some());
    }

    #[test]
    fn what_nobody_has_seen_is_no_cause() {
        assert_eq!(cause(&[], Instant::now(), TENTH * 10), None);
        assert_eq!(cause_of(&looks(100, |_, _| ())), None);
        // A thread that was not there before, or is gone.
        let comes = looks(30, |number, look| {
            look.threads[0].id = number.try_into().unwrap();
            look.threads[0].waited += TENTH * 10;
        });
        assert_eq!(cause_of(&comes), None);
    }
}
