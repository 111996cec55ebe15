//! One sample of the outside world: does an address answer, how is this host, what does a monitoring system say. A file
//! for each kind of check.
//!
//! The daemon's probes run in a process of their own, the only one of its processes that may open connections; those that run a program
//! in another one, the only one that may start any (`runner.rs`).

mod address;
pub mod alert;
pub mod arguments;
pub mod command;
pub mod credential;
pub mod dns;
pub mod host;
pub mod http;
pub mod instruments;
pub mod kubernetes;
pub mod latency;
pub mod log;
pub mod mcp;
pub mod names;
pub mod offspring;
mod passage;
pub mod pressure;
pub mod prober;
pub mod process;
pub mod program;
pub mod prometheus;
pub mod python;
pub mod reach;
pub mod runner;
pub mod series;
pub mod sockets;
pub mod span;
pub mod tcp;
pub mod tls;
pub mod trust;
pub mod unit;

use std::fmt;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use self::alert::webhook::Hearsay;
use self::credential::Credential;
use self::passage::{DEEPEST, is_deeper, read_number, write_number};
use crate::request::facts::{Facts, Question};
use crate::spec::SpecError;
use program::Program;
use span::Span;

/// How long a probe waits when nobody says.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest a probe may wait.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why nothing is known of alerts that are told.
const DEAF: &str = "this daemon listens for no alerts: start it with --alert-webhook ADDRESS:PORT";

/// Makes the enum of the kinds of checks, and the list of their names.
macro_rules! checks {
    ($($(#[doc = $doc:literal])+ $kind:ident($sampler:ty) = $name:literal $(if $feature:literal)?,)+
     documents: $($(#[doc = $only:literal])+ $of_documents:ident($other:ty),)+) => {
        /// Names of the checks, as `chaosctl probe` and documents have them.
        pub const KINDS: &[&str] = &[$($(#[cfg(feature = $feature)])? $name,)+];

        /// What is asked of the world.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Check {
            $($(#[doc = $doc])+ $kind($sampler),)+
            $($(#[doc = $only])+ $of_documents($other),)+
        }

        impl Check {
            fn sampler(&self) -> &dyn Sampler {
                match self {
                    $(Self::$kind(sampler) => sampler,)+
                    $(Self::$of_documents(sampler) => sampler,)+
                }
            }

            fn sampler_mut(&mut self) -> &mut dyn Sampler {
                match self {
                    $(Self::$kind(sampler) => sampler,)+
                    $(Self::$of_documents(sampler) => sampler,)+
                }
            }

            /// Boxed, because one kind of check takes samples of another.
            fn take(&self, limit: Duration) -> BoxFuture<'_, Seen> {
                match self {
                    $(Self::$kind(sampler) => sampler.take(limit).boxed(),)+
                    $(Self::$of_documents(sampler) => sampler.take(limit).boxed(),)+
                }
            }
        }
    };
}

checks! {
    /// This port accepts a connection.
    Tcp(tcp::Connection) = "tcp",
    /// This request is answered with a status that is right.
    Http(http::Exchange) = "http",
    /// This port speaks TLS, with a certificate that is right.
    Tls(tls::Handshake) = "tls",
    /// How long answers take, over several.
    Latency(latency::Latency) = "latency",
    /// What share of several requests fails, or how long they take.
    Series(series::Series) = "series",
    /// This name has an address.
    Dns(dns::Lookup) = "dns",
    /// This MCP server opens a session, and lists its tools.
    Mcp(mcp::Dialogue) = "mcp",
    /// A number about this host.
    Host(host::Number) = "host",
    /// How much work waits for a resource of this host.
    Pressure(pressure::Gauge) = "pressure",
    /// How many sockets this host has.
    Sockets(sockets::Count) = "sockets",
    /// How a systemd unit is.
    Unit(unit::Unit) = "unit",
    /// What the processes of a service are like.
    Processes(process::Processes) = "process",
    /// How many entries of a log match.
    Log(log::Entries) = "log",
    /// What this program says.
    Command(command::Command) = "command",
    /// What a Prometheus server knows.
    Prometheus(prometheus::Query) = "prometheus",
    /// Which alerts an Alertmanager has, or has told of.
    Alert(alert::Alert) = "alert",
    /// Whether a resource of a Kubernetes cluster is there, or ready.
    Kubernetes(kubernetes::Resource) = "kubernetes" if "kubernetes",
    documents:
    /// What a function of Python returns.
    Python(python::Call),
}

/// Takes samples of one kind. What a kind does not say is as it is here.
trait Sampler: fmt::Display {
    /// Takes one, for no longer than `limit`.
    fn take(&self, limit: Duration) -> impl Future<Output = Seen> + Send
    where
        Self: Sized;

    /// Whether asking may change something: a request that is to be carried out, a tool that is called, a program.
    fn may_change(&self) -> bool {
        false
    }

    /// Whether what it measures is the time until the answer, in milliseconds.
    fn measures_time(&self) -> bool {
        false
    }

    /// In what it measures; empty for a mere number, or where nobody knows.
    fn unit(&self) -> &'static str {
        if self.measures_time() { "ms" } else { "" }
    }

    /// Between which numbers what it measures is, in a sample that may take `limit`.
    fn span(&self, limit: Duration) -> Span {
        if self.measures_time() { Span::until(limit) } else { Span::ANY }
    }

    /// What it counts as that there is nothing to measure, if the probe itself says so.
    fn no_data(&self) -> Option<NoData> {
        None
    }

    /// What the value has to be when nobody says.
    fn usual_bounds(&self) -> Bounds {
        Bounds::default()
    }

    /// Sees that a sample may take as long as it has to, where `field` says that it may take `limit`.
    ///
    /// # Errors
    /// Says how long it has to be.
    fn fits(&self, _field: &str, _limit: Duration) -> Result<(), SpecError> {
        Ok(())
    }

    /// The program that is run for it, if one is.
    fn program(&self) -> Option<&Program> {
        None
    }

    fn program_mut(&mut self) -> Option<&mut Program> {
        None
    }

    /// The modules of Python that are called for it, if any are.
    fn python(&self) -> Option<Vec<String>> {
        None
    }

    /// The kubeconfig with which somebody is asked for it, if one is.
    fn kubeconfig(&self) -> Option<&str> {
        None
    }

    /// What is shown to whoever is asked, and at which address.
    fn credential(&self) -> Option<(&Credential, &str)> {
        None
    }

    /// The host that is connected to, by its name or its address, if the probe names one.
    fn host(&self) -> Option<String> {
        None
    }

    /// What is to be asked of the injector for it, which may take `limit`; `None` when whoever takes the sample sees by itself.
    fn injector_question(&self, _limit: Duration) -> Option<Question> {
        None
    }

    /// Whether only the daemon can take a sample of it.
    fn is_the_daemons(&self) -> bool {
        false
    }

    /// What the injector's answer means; `None` when it does not fit the question.
    fn injector_answer(&self, _facts: &Facts) -> Option<Seen> {
        None
    }
}

/// What a measured value has to be. Both bounds belong to what is right; without any, every value is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// At least.
    pub min: Option<f64>,
    /// At most.
    pub max: Option<f64>,
}

impl Bounds {
    /// Understands bounds, which stand at `--min` and `--max`.
    ///
    /// # Errors
    /// When no value is within them.
    pub fn new(min: Option<f64>, max: Option<f64>) -> Result<Self, SpecError> {
        for (field, bound) in [("--min", min), ("--max", max)] {
            if bound.is_some_and(|bound| !bound.is_finite()) {
                return Err(SpecError::new(field, "a number is needed here"));
            }
        }
        match (min, max) {
            (Some(min), Some(max)) if min > max => {
                Err(SpecError::new("--max", format!("{max} is less than --min {min}")))
            }
            _ => Ok(Self { min, max }),
        }
    }

    /// What is wrong with `value`.
    fn problem(self, value: f64) -> Option<String> {
        match (self.min.filter(|min| value < *min), self.max.filter(|max| value > *max)) {
            (Some(min), _) => Some(format!("{value:.3}, where at least {min} is right")),
            (_, Some(max)) => Some(format!("{value:.3}, where at most {max} is right")),
            _ => None,
        }
    }
}

/// A check with a time limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// What is asked.
    pub check: Check,
    /// How long the answer may take.
    pub timeout: Duration,
    /// What the measured value has to be.
    pub bounds: Bounds,
}

/// What it counts as that there is nothing to measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoData {
    /// As not being as it should be.
    #[default]
    Breach,
    /// As being as it should be.
    Ok,
    /// As a probe that does not work.
    Error,
}

/// What a check came to.
struct Seen {
    /// What was seen, for people; `Ok` means that it is as it should be.
    verdict: Result<String, String>,
    /// What came back.
    answer: Option<Value>,
    /// What was measured.
    value: Option<f64>,
    /// When there was nothing to measure, what that counts as.
    no_data: Option<NoData>,
}

impl Seen {
    fn nothing(why: String) -> Self {
        Self { verdict: Err(why), answer: None, value: None, no_data: None }
    }

    fn of_the_daemon() -> Self {
        Self::nothing("only the daemon can see this".to_owned())
    }

    fn measured(value: f64, what: String) -> Self {
        Self { verdict: Ok(what), answer: None, value: Some(value), no_data: None }
    }

    /// The same, unless nobody else could read what came back.
    fn readable(self) -> Self {
        match self.answer.as_ref().is_some_and(|answer| is_deeper(answer, DEEPEST)) {
            true => Self::nothing(format!("an answer that is nested more than {DEEPEST} levels deep")),
            false => self,
        }
    }
}

impl From<Result<Self, String>> for Seen {
    fn from(seen: Result<Self, String>) -> Self {
        seen.unwrap_or_else(Self::nothing)
    }
}

/// What a probe saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was seen, for people.
    pub detail: String,
    /// How long it took.
    pub took: Duration,
    /// What was measured; of what answers the milliseconds until it did. `None` when nothing was.
    #[serde(serialize_with = "write_number", deserialize_with = "read_number")]
    pub value: Option<f64>,
    /// What came back: of HTTP an object with `status`, `headers` and `body`. `None` when nothing did.
    pub answer: Option<Value>,
    /// When there was nothing to measure and the probe says what that counts as: what.
    pub no_data: Option<NoData>,
}

impl Sample {
    /// A sample that could not be taken.
    pub fn failed(detail: String) -> Self {
        Self { ok: false, detail, took: Duration::ZERO, value: None, answer: None, no_data: None }
    }

    /// What `chaosctl probe` prints of it.
    pub fn line(&self) -> String {
        let word = match (self.ok, self.no_data) {
            (true, _) => "ok",
            (false, Some(NoData::Error)) => "error",
            (false, _) => "failed",
        };
        format!("{word}: {} ({:.1} ms)", self.detail, self.took.as_secs_f64() * 1e3)
    }

    /// What a process that took it returns: `chaosctl probe`, run by Chaos Toolkit.
    pub fn as_process(&self) -> Value {
        json!({"status": u8::from(!self.ok), "stdout": format!("{}\n", self.line()), "stderr": ""})
    }
}

impl Check {
    /// Whether asking may change something: a request that is to be carried out, a tool that is called, a program.
    pub fn may_change(&self) -> bool {
        self.sampler().may_change()
    }

    /// What it counts as that there is nothing to measure, if the probe itself says so.
    pub fn no_data(&self) -> Option<NoData> {
        self.sampler().no_data()
    }

    /// What the value has to be when nobody says.
    pub fn usual_bounds(&self) -> Bounds {
        self.sampler().usual_bounds()
    }

    /// The program that is run for it, if one is.
    pub fn program(&self) -> Option<&Program> {
        self.sampler().program()
    }

    fn program_mut(&mut self) -> Option<&mut Program> {
        self.sampler_mut().program_mut()
    }

    /// The modules of Python that are called for it, if any are.
    pub fn python(&self) -> Option<Vec<String>> {
        self.sampler().python()
    }

    /// The kubeconfig with which somebody is asked for it, if one is.
    pub fn kubeconfig(&self) -> Option<&str> {
        self.sampler().kubeconfig()
    }

    /// What is shown to whoever is asked, and at which address.
    pub fn credential(&self) -> Option<(&Credential, &str)> {
        self.sampler().credential()
    }

    /// The host that is connected to, by its name or its address, if the probe names one.
    pub fn host(&self) -> Option<String> {
        self.sampler().host()
    }

    /// What is to be asked of the injector for it, which may take `limit`; `None` when whoever takes the sample sees by itself.
    pub fn question(&self, limit: Duration) -> Option<Question> {
        self.sampler().injector_question(limit)
    }

    /// Whether only the daemon can take a sample of it.
    pub fn is_the_daemons(&self) -> bool {
        self.sampler().is_the_daemons()
    }

    /// What the injector's answer means.
    fn understand(&self, facts: &Facts) -> Seen {
        let odd = || Seen::nothing(format!("the injector's answer does not fit the question: {facts:?}"));
        self.sampler().injector_answer(facts).unwrap_or_else(odd)
    }

    /// An HTTP check: a GET of `url`, which stands at `field` of the request.
    ///
    /// # Errors
    /// When `url` is not an address of HTTP.
    pub fn http(field: &str, url: &str, status: Vec<u16>) -> Result<Self, SpecError> {
        Self::request(field, http::Request { url: url.to_owned(), ..http::Request::default() }, status)
    }

    /// An HTTP check, the address of which stands at `field` of the request.
    ///
    /// # Errors
    /// As [`Check::http`].
    pub fn request(field: &str, request: http::Request, status: Vec<u16>) -> Result<Self, SpecError> {
        http::Exchange::new(field, request, status).map(Self::Http)
    }

    /// A TCP check of `address`, as `HOST:PORT` or `[IPV6]:PORT`, which stands at `field` of the request.
    ///
    /// # Errors
    /// When `address` is not of that form.
    pub fn tcp(field: &str, address: &str) -> Result<Self, SpecError> {
        tcp::Connection::parse(field, address).map(Self::Tcp)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sampler().fmt(f)
    }
}

impl Probe {
    /// Takes one sample. Never waits much longer than the probe's time limit, and never fails: what goes wrong is
    /// what was seen.
    pub async fn sample(&self) -> Sample {
        let start = Instant::now();
        let seen = reach::of_sample(self.check.take(self.timeout)).await;
        let sample = self.judge(seen, start.elapsed());
        match self.check.credential() {
            Some((credential, url)) => credential.hide(url, sample),
            None => sample,
        }
    }

    /// Sees that a sample may take as long as it has to, where `field` says how long it may take. What it measures can be within its
    /// bounds, too.
    ///
    /// # Errors
    /// Says how long it has to be, or which bound nothing can keep.
    pub fn fits(&self, field: &str) -> Result<(), SpecError> {
        self.check.sampler().fits(field, self.timeout)?;
        let (span, Bounds { min, max }) = (self.span(), self.bounds);
        if let Some(min) = min.filter(|min| !span.reaches(*min)) {
            let problem = format!("--min {min} is never reached: {}", self.measured());
            return Err(SpecError::new(field, problem));
        }
        match max.filter(|max| *max < span.least) {
            Some(max) => {
                Err(SpecError::new(field, format!("--max {max} is never kept: {}", self.measured())))
            }
            None => Ok(()),
        }
    }

    /// Between which numbers what it measures is.
    pub fn span(&self) -> Span {
        self.check.sampler().span(self.timeout)
    }

    /// The unit of what it measures; empty for a mere number, or where nobody knows.
    pub fn unit(&self) -> &'static str {
        self.check.sampler().unit()
    }

    /// Between which numbers that is, for people.
    pub fn measured(&self) -> String {
        let Span { least, most, reached } = self.span();
        match reached {
            false => format!("a sample may take {:?}, and what takes longer is no data", self.timeout),
            true if most.is_finite() => format!("what {} measures is {least} to {most}", self.check),
            true => format!("what {} measures is at least {least}", self.check),
        }
    }

    /// The sample of a check that was asked of the injector.
    fn informed(&self, facts: Result<Facts, String>, took: Duration) -> Sample {
        let seen = facts.map(|facts| self.check.understand(&facts));
        self.judge(seen.into(), took)
    }

    /// The sample of a check of what the daemon was told, if it is one.
    fn hearsay(&self, hearsay: Option<&Hearsay>) -> Option<Sample> {
        let Check::Alert(alert) = &self.check else { return None };
        let start = Instant::now();
        let deaf = || Seen::nothing(DEAF.to_owned());
        let seen = alert.is_told().then(|| hearsay.map_or_else(deaf, |hearsay| hearsay.seen(alert)))?;
        Some(self.judge(seen, start.elapsed()))
    }

    fn judge(&self, seen: Seen, took: Duration) -> Sample {
        let seen = seen.readable();
        let answered = seen.verdict.is_ok() || seen.answer.is_some();
        let value = match self.check.sampler().measures_time() {
            true => answered.then_some(milliseconds(took)),
            false => seen.value,
        };
        let wrong = value.and_then(|value| self.bounds.problem(value));
        let (ok, detail) = match (seen.verdict, wrong) {
            (Ok(seen), None) => (true, seen),
            (Ok(seen), Some(wrong)) => (false, format!("{seen}; {wrong}")),
            (Err(seen), _) => (false, seen),
        };
        let detail = format!("{}: {detail}", self.check);
        Sample { ok, detail, took, value, answer: seen.answer, no_data: seen.no_data }
    }
}

/// What a name of `known` stands for, given at `option`; the default when none is given.
fn named<T: Copy + Default>(
    option: &str,
    known: &[(&'static str, T)],
    given: Option<&str>,
) -> Result<T, SpecError> {
    let Some(given) = given else { return Ok(T::default()) };
    let found = known.iter().find(|(name, _)| *name == given).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        SpecError::new(option, format!("{given:?} is not one of {}", names.join(", ")))
    })
}

fn late(limit: Duration) -> String {
    format!("no answer within {limit:?}")
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Does what may block, and gives it up after `limit`, at the price of a thread that outlives the sample.
async fn blocking<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    match timeout(limit, spawn_blocking(reach::carried(work))).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(format!("the probe broke: {error}")),
        Err(_) => Err(late(limit)),
    }
}

#[cfg(test)]
mod tests;
