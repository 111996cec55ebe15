//! The system's service manager, asked and told over the system's message bus. (On the socket that systemd keeps for root it names
//! itself as no peer of a bus may, which zbus refuses.)
//!
//! Reference: org.freedesktop.systemd1(5).

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
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
/// How long one answer may take: it is about what systemd knows, and nothing is waited for.
const ANSWER: Duration = Duration::from_secs(5);

/// A connection to the service manager.
#[derive(Debug)]
pub struct Systemd {
    connection: zbus::Connection,
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

/// Runs `act` with a connection, on a thread of its own: the caller may be inside a runtime already. Blocks.
///
/// # Errors
/// When nobody listens, or as `act` does.
pub fn talk<T: Send>(
    act: impl AsyncFnOnce(&Systemd) -> Result<T, SystemdError> + Send,
) -> Result<T, SystemdError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(SystemdError::Runtime)?.block_on(async { act(&Systemd::connect().await?).await })
        });
        thread.map_err(SystemdError::Runtime)?.join().unwrap_or(Err(SystemdError::Thread))
    })
}

impl Systemd {
    async fn connect() -> Result<Self, SystemdError> {
        let stream = UnixStream::connect(SOCKET).map_err(SystemdError::Absent)?;
        let built = zbus::connection::Builder::unix_stream(stream).method_timeout(ANSWER).build().await;
        let connection = built.map_err(|error| failed("connect to", "the message bus", error))?;
        Ok(Self { connection })
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
        let of_service = |all: &mut Properties| Ok((take(all, "MainPID")?, take(all, "Restart")?));
        let (main_pid, restart) = of_service(&mut all).map_err(|error| failed(operation, name, error))?;
        Ok(Unit { main_pid, restart, ..unit })
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
        let answer = self.connection.call_method(Some(NAME), path, Some(interface), method, body).await;
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
    let invocation: Vec<u8> = take(all, "InvocationID")?;
    let job: Structure<'static> = take(all, "Job")?;
    Ok(Unit {
        name: take(all, "Id")?,
        load: take(all, "LoadState")?,
        active: take(all, "ActiveState")?,
        invocation: invocation.iter().map(|byte| format!("{byte:02x}")).collect(),
        job: !matches!(job.fields().first(), None | Some(Variant::U32(0))),
        transient: take(all, "Transient")?,
        on_request: take::<bool>(all, "CanStop")? && take::<bool>(all, "CanStart")?,
        takes_along,
        ..Unit::default()
    })
}
