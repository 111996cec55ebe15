//! The system's service manager, asked and told over the system's message bus. (On the socket that systemd keeps for root it names
//! itself as no peer of a bus may, which zbus refuses.)
//!
//! Reference: org.freedesktop.systemd1(5).

#[cfg(test)]
mod fake;
mod needed;

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use zbus::wire::{DynamicType, OwnedObjectPath, OwnedVariant, Structure, Variant};

/// Where the system's message bus listens.
const SOCKET: &str = "/run/dbus/system_bus_socket";
/// There only where systemd has booted the host (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
const NAME: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// What systemd starts for a reboot in order (systemd.special(7)).
const REBOOT: &str = "reboot.target";
/// How long one answer may take: it is about what systemd knows, and nothing is waited for.
const ANSWER: Duration = Duration::from_secs(5);

/// A connection to the service manager.
#[derive(Debug)]
pub struct Systemd {
    line: Line,
}

/// Who answers.
#[derive(Debug)]
enum Line {
    Bus(zbus::Connection),
    #[cfg(test)]
    Fake(fake::FakeBus),
}

/// Why the service manager cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    /// Nobody listens.
    #[error("connect to the message bus at {SOCKET}")]
    Absent(#[source] io::Error),
    /// No thread or runtime to talk in.
    #[error("start a thread for D-Bus")]
    Runtime(#[source] io::Error),
    /// The thread that talks.
    #[error("the thread that talks to systemd panicked")]
    Thread,
    /// It refused, or did not answer.
    #[error("{operation} {subject}: {source}")]
    Call {
        /// What was asked.
        operation: &'static str,
        /// Of what.
        subject: String,
        /// What it said.
        #[source]
        source: Box<zbus::Error>,
    },
}

/// One unit, as systemd knows it now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unit {
    /// Its own name, also if it was asked for by an alias.
    pub name: String,
    /// Whether its file was read: "loaded", "not-found", "masked" and so on.
    pub load: String,
    /// "active", "reloading", "inactive", "failed", "activating" or "deactivating".
    pub active: String,
    /// The state in the words of its kind, such as "running" or "auto-restart".
    pub sub: String,
    /// When it became active, since boot without the time asleep (`CLOCK_MONOTONIC`); zero when it never did.
    pub active_since: Duration,
    /// How often systemd has started it again by itself; `None` of what is no service.
    pub restarts: Option<u32>,
    /// Identity of its last start, in hexadecimal digits; empty when it never was, or systemd has forgotten it.
    pub invocation: String,
    /// Whether something is about to be done with it.
    pub job: bool,
    /// Whether there is no file of it, so that it is gone once it is stopped.
    pub transient: bool,
    /// Whether it may be stopped and started on request.
    pub on_request: bool,
    /// Units that would be stopped with it, and not started with it.
    pub takes_along: Vec<String>,
    /// Those of them that a restart of it stops as well, and does not start.
    pub left_by_restart: Vec<String>,
    /// Number of its main process; 0 when there is none.
    pub main_pid: u32,
    /// When systemd starts it again by itself: "no", "always", "on-failure" and so on.
    pub restart: String,
}

impl Unit {
    /// Whether it runs, or is about to.
    pub fn is_up(&self) -> bool {
        !matches!(self.active.as_str(), "inactive" | "failed" | "deactivating")
    }
}

/// Why there is no systemd to ask; `None` when there is one.
pub fn absent() -> Option<String> {
    [BOOTED, SOCKET].into_iter().find(|path| !Path::new(path).exists()).map(|path| format!("no {path}"))
}

impl Systemd {
    pub(super) async fn connect() -> Result<Self, SystemdError> {
        let stream = UnixStream::connect(SOCKET).map_err(SystemdError::Absent)?;
        let built = zbus::connection::Builder::unix_stream(stream).method_timeout(ANSWER).build().await;
        let connection = built.map_err(|error| failed("connect to", "the message bus", error))?;
        Ok(Self { line: Line::Bus(connection) })
    }

    /// Looks at a unit, whether it is active or not.
    ///
    /// # Errors
    /// When the name is no unit's, or systemd does not answer.
    pub async fn unit(&self, name: &str) -> Result<Unit, SystemdError> {
        let operation = "look at unit";
        let answer = self.ask(PATH, MANAGER, "LoadUnit", &(name,), operation, name).await?;
        let path: OwnedObjectPath =
            answer.body().deserialize().map_err(|error| failed(operation, name, error))?;
        let mut all = self.properties(&path, UNIT, name).await?;
        let unit = read_unit(&mut all).map_err(|error| failed(operation, name, error))?;
        if !name.ends_with(".service") {
            return Ok(unit);
        }
        let mut all = self.properties(&path, SERVICE, name).await?;
        read_service(&mut all, unit).map_err(|error| failed(operation, name, error))
    }

    /// Has a unit stopped; returns when that is on its way.
    ///
    /// # Errors
    /// When systemd refuses.
    pub async fn stop(&self, name: &str) -> Result<(), SystemdError> {
        self.job("StopUnit", "stop", name).await
    }

    /// Has a unit started; returns when that is on its way.
    ///
    /// # Errors
    /// When systemd refuses.
    pub async fn start(&self, name: &str) -> Result<(), SystemdError> {
        self.job("StartUnit", "start", name).await
    }

    /// Has a unit stopped and started again; returns when that is on its way.
    ///
    /// # Errors
    /// When systemd refuses.
    pub async fn restart(&self, name: &str) -> Result<(), SystemdError> {
        self.job("RestartUnit", "restart", name).await
    }

    /// Has the host rebooted: every service stopped first, in order, or `forced`, as its last step alone. Returns when that is
    /// on its way.
    ///
    /// # Errors
    /// When systemd refuses.
    pub async fn reboot(&self, forced: bool) -> Result<(), SystemdError> {
        let (operation, subject) = ("reboot", "this host");
        let asked = match forced {
            // What systemctl(1) asks for with --force.
            true => self.ask(PATH, MANAGER, "Reboot", &(), operation, subject).await,
            // "replace-irreversibly": what somebody starts meanwhile does not call it off.
            false => {
                let body = (REBOOT, "replace-irreversibly");
                self.ask(PATH, MANAGER, "StartUnit", &body, operation, subject).await
            }
        };
        asked.map(drop)
    }

    /// Whether the host is shutting down: then nothing can be started any more.
    ///
    /// # Errors
    /// When systemd does not answer.
    pub async fn is_stopping(&self) -> Result<bool, SystemdError> {
        let (operation, subject) = ("look at", "the state of systemd");
        let answer = self.ask(PATH, PROPERTIES, "Get", &(MANAGER, "SystemState"), operation, subject).await?;
        let wrong = |error| failed(operation, subject, error);
        let state: OwnedVariant = answer.body().deserialize().map_err(wrong)?;
        Ok(String::try_from(state).map_err(wrong)? == "stopping")
    }

    async fn job(&self, method: &str, operation: &'static str, name: &str) -> Result<(), SystemdError> {
        // "replace": what was about to be done with it is not.
        self.ask(PATH, MANAGER, method, &(name, "replace"), operation, name).await.map(drop)
    }

    async fn properties(
        &self,
        path: &OwnedObjectPath,
        interface: &str,
        name: &str,
    ) -> Result<Properties, SystemdError> {
        let operation = "look at unit";
        let answer = self.ask(path.as_str(), PROPERTIES, "GetAll", &(interface,), operation, name).await?;
        answer.body().deserialize().map_err(|error| failed(operation, name, error))
    }

    async fn ask<B: serde::Serialize + DynamicType>(
        &self,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
        operation: &'static str,
        subject: &str,
    ) -> Result<zbus::Message, SystemdError> {
        let answer = match &self.line {
            Line::Bus(connection) => {
                connection.call_method(Some(NAME), path, Some(interface), method, body).await
            }
            #[cfg(test)]
            Line::Fake(bus) => bus.call(path, method, body),
        };
        answer.map_err(|error| failed(operation, subject, error))
    }
}

type Properties = HashMap<String, OwnedVariant>;

fn failed(operation: &'static str, subject: &str, error: zbus::Error) -> SystemdError {
    SystemdError::Call { operation, subject: subject.to_owned(), source: Box::new(error) }
}

fn take<T: TryFrom<OwnedVariant, Error = zbus::Error>>(
    all: &mut Properties,
    name: &str,
) -> Result<T, zbus::Error> {
    let value = all.remove(name).ok_or_else(|| zbus::Error::Failure(format!("a unit without {name}")))?;
    T::try_from(value)
}

fn read_unit(all: &mut Properties) -> Result<Unit, zbus::Error> {
    let mut takes_along = Vec::new();
    for relation in ["RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf"] {
        takes_along.extend(take::<Vec<String>>(all, relation)?);
    }
    let left_by_restart = passed_on(all)?;
    takes_along.extend_from_slice(&left_by_restart);
    let invocation: Vec<u8> = take(all, "InvocationID")?;
    let job: Structure<'static> = take(all, "Job")?;
    Ok(Unit {
        name: take(all, "Id")?,
        load: take(all, "LoadState")?,
        active: take(all, "ActiveState")?,
        sub: take(all, "SubState")?,
        active_since: Duration::from_micros(take(all, "ActiveEnterTimestampMonotonic")?),
        invocation: invocation.iter().map(|byte| format!("{byte:02x}")).collect(),
        job: !matches!(job.fields().first(), None | Some(Variant::U32(0))),
        transient: take(all, "Transient")?,
        on_request: take::<bool>(all, "CanStop")? && take::<bool>(all, "CanStart")?,
        takes_along,
        left_by_restart,
        ..Unit::default()
    })
}

/// Units to which it passes its stop on (`PropagatesStopTo=`, systemd 249 and later), but for those that its start starts, too.
/// From systemd 253 on the stop within a restart is passed on likewise, and these stay stopped; what follows it by the other
/// relations is restarted.
fn passed_on(all: &mut Properties) -> Result<Vec<String>, zbus::Error> {
    let mut listed = |relation: &str| match all.remove(relation) {
        Some(value) => Vec::<String>::try_from(value),
        None => Ok(Vec::new()),
    };
    let mut stopped = listed("PropagatesStopTo")?;
    for relation in ["Requires", "BindsTo", "Wants", "Upholds"] {
        let started = listed(relation)?;
        stopped.retain(|unit| !started.contains(unit));
    }
    Ok(stopped)
}

fn read_service(all: &mut Properties, unit: Unit) -> Result<Unit, zbus::Error> {
    let (main_pid, restart) = (take(all, "MainPID")?, take(all, "Restart")?);
    Ok(Unit { main_pid, restart, restarts: Some(take(all, "NRestarts")?), ..unit })
}

#[cfg(test)]
mod tests {
    use super::fake::property;
    use super::*;

    /// What systemd says of a service that it is about to start again, and of which a socket is to be stopped with it.
    fn unit() -> Properties {
        let nobody = Vec::<String>::new;
        HashMap::from([
            property("Id", "a.service"),
            property("LoadState", "loaded"),
            property("ActiveState", "activating"),
            property("SubState", "auto-restart"),
            property("ActiveEnterTimestampMonotonic", 1_500_000_u64),
            property("InvocationID", vec![0x0a_u8, 0xff]),
            property("Job", (7_u32, OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/7").unwrap())),
            property("Transient", false),
            property("CanStop", true),
            property("CanStart", true),
            property("RequiredBy", vec!["b.service".to_owned()]),
            property("RequisiteOf", nobody()),
            property("BoundBy", nobody()),
            property("ConsistsOf", nobody()),
        ])
    }

    #[test]
    fn a_unit_is_read_with_its_states_and_since_when_it_is_active() {
        let read = read_unit(&mut unit()).unwrap();
        assert_eq!((read.active.as_str(), read.sub.as_str()), ("activating", "auto-restart"));
        assert_eq!((read.active_since, read.restarts), (Duration::from_millis(1500), None));
        assert!(read.job && read.on_request && !read.transient && read.is_up());
        assert_eq!((read.invocation.as_str(), read.takes_along), ("0aff", vec!["b.service".to_owned()]));
        let mut service = HashMap::from([
            property("MainPID", 71_u32),
            property("Restart", "always"),
            property("NRestarts", 3_u32),
        ]);
        let read = read_service(&mut service, Unit::default()).unwrap();
        assert_eq!((read.main_pid, read.restart.as_str(), read.restarts), (71, "always", Some(3)));
    }

    #[test]
    fn who_is_stopped_with_a_unit_and_not_started_with_it_is_known_also_where_only_the_stop_is_passed_on() {
        let units = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        // Before systemd 249 there is no such property.
        let read = read_unit(&mut unit()).unwrap();
        assert_eq!((read.takes_along, read.left_by_restart), (units(&["b.service"]), units(&[])));
        let mut all = unit();
        all.extend([
            property("PropagatesStopTo", units(&["c.service", "d.service", "e.service"])),
            property("Wants", units(&["d.service"])),
            property("Requires", units(&["e.service"])),
        ]);
        let read = read_unit(&mut all).unwrap();
        assert_eq!(read.takes_along, ["b.service", "c.service"]);
        assert_eq!(read.left_by_restart, ["c.service"]);
    }

    #[test]
    fn what_systemd_does_not_say_is_named() {
        let mut all = unit();
        all.remove("SubState");
        assert!(read_unit(&mut all).unwrap_err().to_string().contains("SubState"));
    }
}
