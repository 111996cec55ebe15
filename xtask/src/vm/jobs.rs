//! What a VM is asked to do, and what it said of that: jobs, one after the other (`tests/src/jobs.rs`).

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::verdict::{Results, Verdict};

/// What booting takes at most, and how late `vm-init` may be with a line of its own, in seconds.
const BEFORE_AND_AFTER: u64 = 300;

/// A program of the image that a VM runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// For people; no two of a VM have one name.
    pub(crate) name: String,
    pub(crate) argv: Vec<String>,
    /// It is ended after so many seconds, and the next job is begun.
    pub(crate) limit: u64,
    pub(crate) report: Report,
    /// Files of the image that it reads, with what is in them.
    pub(crate) files: Vec<(&'static str, String)>,
}

impl Job {
    /// As `vm-init` reads it. `until` is how long the machine has been up when the last of all jobs begins no further cell.
    fn json(&self, until: Option<u64>) -> Value {
        let Self { name, argv, limit, report, .. } = self;
        json!({"name": name, "argv": argv, "limit": limit, "until": until, "says_results": *report == Report::Text})
    }
}

/// The list for `vm-init` of a machine that is about to be started, with the time for all of it, if that is limited.
pub(super) fn list(jobs: &[Job], left: Option<Duration>) -> String {
    let until = left.map(|left| left.as_secs());
    Value::from_iter(jobs.iter().map(|job| job.json(until))).to_string()
}

/// How a program says what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// By verdicts, a line of JSON each, which it writes to [`super::RESULTS`].
    Verdicts,
    /// By a text on standard output, which goes there instead of the console.
    Text,
    /// By its exit status alone. What it writes is on the console.
    Status,
}

/// What `vm-init` says itself.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    /// Everything is set up for the jobs. In seconds.
    Ready {
        unpacking: f64,
        set_up: f64,
    },
    Begin {
        begin: String,
        at: Uptime,
    },
    End {
        end: String,
        at: Uptime,
        status: Option<i32>,
        problems: Vec<String>,
    },
}

/// How long the VM has been up, and had nothing to do, in seconds.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Uptime(f64, f64);

impl Uptime {
    fn since(self, before: Self) -> Spent {
        let (all, waited) = (self.0 - before.0, self.1 - before.1);
        Spent { busy: (all - waited).max(0.0), waited: waited.max(0.0) }
    }
}

/// Seconds of a VM.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spent {
    /// In which its processor worked.
    pub(crate) busy: f64,
    /// In which everybody waited.
    pub(crate) waited: f64,
}

/// Where the time of a VM went before its jobs, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Start {
    /// From the start of QEMU until the kernel had started `vm-init`, but for the unpacking.
    pub(super) boot: f64,
    /// The kernel unpacked the image, and did what else it does meanwhile.
    pub(super) unpacking: f64,
    /// `vm-init` mounted file systems.
    pub(super) set_up: f64,
}

/// What a job said.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) results: Results,
    /// If it reports by a text.
    pub(super) text: String,
    begun: Option<Uptime>,
    ended: Option<Ended>,
}

impl Said {
    /// Where its time went, if it has ended.
    pub(super) fn spent(&self) -> Option<Spent> {
        self.ended.as_ref().map(|ended| ended.spent)
    }
}

#[derive(Debug)]
struct Ended {
    spent: Spent,
    problems: Vec<String>,
}

/// What a VM has said until now.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    release: &'a str,
    jobs: &'a [Job],
    started: Instant,
    pub(super) said: Vec<Said>,
    pub(super) start: Option<Start>,
    /// When `vm-init` said something itself.
    pub(super) last_word: Instant,
    /// Lines that belong to no job.
    astray: Vec<String>,
}

impl<'a> Reader<'a> {
    /// Of a VM with a kernel of this release that is started now.
    pub(super) fn new(release: &'a str, jobs: &'a [Job]) -> Self {
        let (said, started) = (jobs.iter().map(|_| Said::default()).collect(), Instant::now());
        Self { release, jobs, started, said, start: None, last_word: started, astray: Vec::new() }
    }

    /// The job that runs.
    pub(super) fn running(&self) -> Option<&'a Job> {
        self.index().map(|index| &self.jobs[index])
    }

    fn index(&self) -> Option<usize> {
        self.said.iter().position(|said| said.begun.is_some() && said.ended.is_none())
    }

    /// When `vm-init` has to have said its next word: it ends a job that takes too long, unless the machine hangs.
    pub(super) fn until(&self) -> Instant {
        let limit = self.running().map_or(0, |job| job.limit);
        self.last_word + Duration::from_secs(limit + BEFORE_AND_AFTER)
    }

    /// Reads a line. Returns what of it is for people.
    pub(super) fn read(&mut self, line: &str) -> Option<String> {
        let line = line.trim_end();
        match serde_json::from_str(line) {
            Ok(Line::Ready { unpacking, set_up }) => {
                let boot = (self.started.elapsed().as_secs_f64() - unpacking - set_up).max(0.0);
                self.start = Some(Start { boot, unpacking, set_up });
                self.last_word = Instant::now();
                return None;
            }
            Ok(Line::Begin { begin, at }) => {
                if let Some(next) = self.next_called(&begin) {
                    self.said[next].begun = Some(at);
                    self.last_word = Instant::now();
                    return None;
                }
            }
            Ok(Line::End { end, at, status, problems }) => {
                if let Some(running) = self.index().filter(|running| self.jobs[*running].name == end) {
                    self.end(running, at, status, problems);
                    return None;
                }
            }
            Err(_) if line.is_empty() => return None,
            Err(_) => return self.read_of_job(line),
        }
        self.astray.push(line.to_owned());
        None
    }

    fn next_called(&self, name: &str) -> Option<usize> {
        let next = self.said.iter().position(|said| said.begun.is_none())?;
        (self.index().is_none() && self.jobs[next].name == name).then_some(next)
    }

    fn end(&mut self, job: usize, at: Uptime, status: Option<i32>, problems: Vec<String>) {
        let said = &mut self.said[job];
        let spent = said.begun.map(|begun| at.since(begun)).unwrap_or_default();
        said.results.exit = status;
        said.ended = Some(Ended { spent, problems });
        self.last_word = Instant::now();
    }

    fn read_of_job(&mut self, line: &str) -> Option<String> {
        let Some(running) = self.index() else {
            self.astray.push(line.to_owned());
            return None;
        };
        let said = &mut self.said[running];
        if self.jobs[running].report == Report::Text {
            said.text.push_str(line);
            said.text.push('\n');
            // Two machines say something side by side.
            return Some(format!("{} {} | {line}", self.release, self.jobs[running].name));
        }
        said.results.read(line).map(Verdict::line)
    }

    /// Why each job failed, if it did. `broken` is what ended the VM itself, if it did not end well.
    pub(super) fn failures(&self, broken: Option<&str>) -> Vec<Option<String>> {
        let why = broken.unwrap_or("the VM ended without a word");
        let running = self.index();
        let cut_off = |index: usize| match self.running() {
            Some(_) if running == Some(index) => why.to_owned(),
            Some(job) => format!("not run: {why}, in {}", job.name),
            None => format!("not run: {why}"),
        };
        let mut failures: Vec<_> = (0..self.jobs.len())
            .map(|index| match &self.said[index].ended {
                Some(ended) => failure(&self.jobs[index], &self.said[index], ended),
                None => Some(cut_off(index)),
            })
            .collect();
        // What was wrong when all was over, or with a line that is nobody's, is laid at the last job's door.
        let after = broken.map(|why| format!("after it: {why}"));
        let astray = self.astray.first().map(|line| format!("a line of the results is no job's: {line:?}"));
        if let (Some(last @ None), Some(why)) = (failures.last_mut(), after.or(astray)) {
            *last = Some(why);
        }
        failures
    }
}

fn failure(job: &Job, said: &Said, ended: &Ended) -> Option<String> {
    if !ended.problems.is_empty() {
        return Some(ended.problems.join("; "));
    }
    match (job.report, said.results.exit) {
        (Report::Verdicts, _) => said.results.doubt(),
        // What it says has to agree with its status.
        (Report::Text, Some(_)) | (Report::Status, Some(0)) => None,
        (_, status) => {
            Some(format!("exit {}", status.map_or_else(|| "unknown".to_owned(), |status| status.to_string())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: &str = r#"{"kernel":"6.1","test":"a","outcome":"pass","reason":"","ms":3}"#;

    fn job(name: &str, report: Report) -> Job {
        Job { name: name.to_owned(), argv: vec!["x".to_owned()], limit: 9, report, files: Vec::new() }
    }

    fn jobs() -> [Job; 3] {
        [job("tests", Report::Verdicts), job("matrix", Report::Text), job("kills", Report::Verdicts)]
    }

    fn begin(name: &str, up: u32, idle: u32) -> String {
        format!(r#"{{"begin":"{name}","at":[{up}.5,{idle}.25]}}"#)
    }

    fn end(name: &str, up: u32, idle: u32, rest: &str) -> String {
        format!(r#"{{"end":"{name}","at":[{up}.5,{idle}.25],{rest}}}"#)
    }

    const WELL: &str = r#""status":0,"problems":[]"#;
    const DONE: &str = r#"{"done":true,"count":1}"#;

    fn read<'a>(jobs: &'a [Job], lines: &[&str]) -> Reader<'a> {
        let mut reader = Reader::new("6.1", jobs);
        lines.iter().for_each(|line| drop(reader.read(line)));
        reader
    }

    #[test]
    fn each_line_is_the_jobs_that_runs() {
        let jobs = jobs();
        let lines = [
            r#"{"unpacking":2.5,"set_up":0.25}"#,
            &begin("tests", 5, 1),
            PASS,
            "",
            DONE,
            &end("tests", 15, 4, WELL),
            &begin("matrix", 15, 4),
            "latency: 3 cells\r",
            "3 passed, 0 failed, 0 skipped\r",
            &end("matrix", 20, 4, WELL),
            &begin("kills", 20, 4),
            PASS,
            DONE,
            &end("kills", 21, 5, WELL),
        ];
        let reader = read(&jobs, &lines);
        assert_eq!(reader.failures(None), [None, None, None]);
        assert_eq!(reader.said[1].text, "latency: 3 cells\n3 passed, 0 failed, 0 skipped\n");
        assert_eq!([0, 2].map(|job: usize| reader.said[job].results.verdicts.len()), [1, 1]);
        let spent: Vec<_> =
            reader.said.iter().filter_map(Said::spent).map(|spent| (spent.busy, spent.waited)).collect();
        assert_eq!(spent, [(7.0, 3.0), (5.0, 0.0), (0.0, 1.0)]);
        assert!(reader.start.is_some_and(|start| (start.unpacking, start.set_up) == (2.5, 0.25)));
    }

    #[test]
    fn a_vm_is_given_as_long_as_the_job_that_runs_may_take() {
        let jobs = jobs();
        let left = |lines: &[&str]| {
            let reader = read(&jobs, lines);
            reader.until().duration_since(reader.last_word).as_secs()
        };
        assert_eq!(left(&[]), BEFORE_AND_AFTER);
        assert_eq!(left(&[&begin("tests", 5, 1), PASS]), BEFORE_AND_AFTER + 9);
        assert_eq!(left(&[&begin("tests", 5, 1), &end("tests", 15, 4, WELL)]), BEFORE_AND_AFTER);
    }

    #[test]
    fn a_panic_fails_the_job_that_ran_and_those_that_had_not_begun() {
        let jobs = jobs();
        let lines = [
            &begin("tests", 5, 1),
            PASS,
            DONE,
            &end("tests", 15, 4, WELL),
            &begin("matrix", 15, 4),
            "a part",
        ];
        let failures = read(&jobs, &lines).failures(Some("Kernel panic"));
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(failures, [None, said("Kernel panic"), said("not run: Kernel panic, in matrix")]);
        let failures = read(&jobs, &[]).failures(None);
        assert_eq!(failures, ["not run: the VM ended without a word"; 3].map(said));
    }

    #[test]
    fn a_panic_when_all_was_over_and_a_line_of_no_job_are_failures_too() {
        let jobs = [job("matrix", Report::Text)];
        let (begin, end) = (begin("matrix", 5, 1), end("matrix", 15, 4, WELL));
        let failure = |lines: &[&str], broken| read(&jobs, lines).failures(broken).remove(0);
        assert_eq!(failure(&[&begin, &end], None), None);
        assert!(failure(&[&begin, &end], Some("Kernel panic")).is_some());
        assert!(failure(&[&begin, &end, "garbled"], None).is_some());
        assert!(failure(&[&begin, &end, &begin], None).is_some());
    }

    #[test]
    fn a_job_that_was_ended_or_left_something_or_said_too_little_has_failed() {
        let jobs = [job("tests", Report::Verdicts), job("command", Report::Status)];
        let failures = |tests: &str, command: &str| {
            let lines = [begin("tests", 1, 1), PASS.to_owned(), end("tests", 2, 1, tests)];
            let lines = lines.into_iter().chain([begin("command", 3, 1), end("command", 4, 1, command)]);
            let lines: Vec<_> = lines.collect();
            read(&jobs, &lines.iter().map(String::as_str).collect::<Vec<_>>()).failures(None)
        };
        let late = r#""status":null,"problems":["not done after 9 s: ended","left process 7"]"#;
        let [tests, command] = failures(late, r#""status":3,"problems":[]"#).try_into().unwrap();
        assert_eq!(tests.as_deref(), Some("not done after 9 s: ended; left process 7"));
        assert_eq!(command.as_deref(), Some("exit 3"));
        let [tests, command] = failures(WELL, WELL).try_into().unwrap();
        assert!(tests.unwrap().contains("without saying so") && command.is_none());
    }
}
