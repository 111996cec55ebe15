//! The service manager, when there is one: what it is told (sd_notify(3)) and the socket that it may have opened for
//! us (sd_listen_fds(3)). Without one, nothing here does anything.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::{SockType, UnixAddr, getsockname, getsockopt, sockopt};
use tokio::time::{MissedTickBehavior, interval};

use super::state::Injector;
use crate::policy::Role;

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST_FD: i32 = 3;
/// What systemd calls a socket without a name (sd_listen_fds(3)).
const UNNAMED: &str = "unknown";
/// The most sockets that are taken over.
const MOST_SOCKETS: usize = 8;
/// How often the manager hears of us when it has no watchdog.
const UNWATCHED: Duration = Duration::from_secs(60);

/// The manager, as the environment describes it.
#[derive(Debug, Default)]
pub struct ServiceManager {
    /// Our socket, and the manager's address. Not connected, so that a manager that starts anew still hears us.
    notify: Option<(UnixDatagram, SocketAddr)>,
    /// The manager ends us when it has not heard of us for so long.
    watchdog: Option<Duration>,
    /// Each with what nobody who comes by it is more than.
    listeners: Vec<(OwnedFd, Role)>,
}

/// What the environment says of a service manager cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// A variable has no meaning that we know.
    #[error("{name}={value:?} makes no sense")]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: OsString,
    },
    /// Of several sockets it is not said which is which.
    #[error(
        "{0} sockets were passed: each needs a name (FileDescriptorName=), and there may be {MOST_SOCKETS}"
    )]
    Sockets(u32),
    /// The passed descriptor is not a listening unix stream socket.
    #[error("the passed socket is not a listening unix stream socket")]
    NotListening,
    /// The operating system refused something.
    #[error("{operation}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ServiceManager {
    /// Reads this process's environment, and takes over the socket that was passed, if one was. Every other descriptor that this
    /// process has inherited, but for those of standard input, output and errors, is closed.
    ///
    /// # Safety
    /// To be called once, and before anything else in this process takes a descriptor that it did not open.
    ///
    /// # Errors
    /// When the environment makes no sense; without any of the variables there is no error.
    pub unsafe fn from_environment() -> Result<Self, ManagerError> {
        let passed = passed_sockets(|name| std::env::var_os(name))?;
        let sockets: Vec<(i32, Role)> = (FIRST_FD..).zip(passed).collect();
        let first = sockets.last().map_or(FIRST_FD, |(last, _)| last + 1);
        // SAFETY: the caller's promise: nothing in this process has taken one of them.
        if unsafe { libc::close_range(first.unsigned_abs(), u32::MAX, 0) } < 0 {
            let source = io::Error::last_os_error();
            return Err(ManagerError::Io { operation: "close what was inherited", source });
        }
        // Only now: the socket to the manager would be closed as well.
        let mut manager = Self::told_by(|name| std::env::var_os(name))?;
        for (socket, ceiling) in sockets {
            // SAFETY: the caller's promise; and the variables are meant for this process.
            manager.listeners.push((unsafe { take_listener(socket) }?, ceiling));
        }
        Ok(manager)
    }

    fn told_by(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ManagerError> {
        let notify = match variable("NOTIFY_SOCKET") {
            None => None,
            Some(value) => Some(notify_socket(&value)?),
        };
        let meant = number::<u32>(&variable, "WATCHDOG_PID")?.is_none_or(|pid| pid == std::process::id());
        let watchdog = number::<u64>(&variable, "WATCHDOG_USEC")?.filter(|usec| meant && *usec > 0);
        Ok(Self { notify, watchdog: watchdog.map(Duration::from_micros), listeners: Vec::new() })
    }

    /// The sockets that the manager opened for us, once.
    pub(super) fn take_listeners(&mut self) -> Vec<(OwnedFd, Role)> {
        std::mem::take(&mut self.listeners)
    }

    /// Tells the manager something, if there is one. Never waits: what it cannot take now is lost.
    pub fn tell(&self, what: &str) {
        let Some((socket, address)) = &self.notify else { return };
        if let Err(error) = socket.send_to_addr(what.as_bytes(), address) {
            tracing::warn!(%error, what, "cannot tell the service manager");
        }
    }
}

/// Tells the manager how many faults are active, whenever that changes, and at least twice in every span of its
/// watchdog: this task runs on the loop that ends faults, so that one that hangs is noticed.
pub(super) async fn keep_informed(manager: Rc<ServiceManager>, injector: Rc<Injector>) {
    if manager.notify.is_none() {
        return;
    }
    let mut due = interval(manager.watchdog.map_or(UNWATCHED, |span| span / 2));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = due.tick() => {}
            () = injector.changed.notified() => {}
        }
        let count = injector.active.borrow().len();
        manager.tell(&format!("WATCHDOG=1\nSTATUS={count} faults are active\n"));
    }
}

fn notify_socket(value: &OsString) -> Result<(UnixDatagram, SocketAddr), ManagerError> {
    let io = |source| ManagerError::Io { operation: "open a socket to the service manager", source };
    let address = match value.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(value),
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => return Err(ManagerError::Variable { name: "NOTIFY_SOCKET", value: value.clone() }),
    };
    let socket = UnixDatagram::unbound().map_err(io)?;
    socket.set_nonblocking(true).map_err(io)?;
    Ok((socket, address.map_err(io)?))
}

/// The sockets that were passed to this very process, each with what nobody who comes by it is more than.
fn passed_sockets(variable: impl Fn(&str) -> Option<OsString>) -> Result<Vec<Role>, ManagerError> {
    // Without the process id, or with another's, the variables were inherited from somebody they were meant for.
    if number::<u32>(&variable, "LISTEN_PID")? != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let count = number::<u32>(&variable, "LISTEN_FDS")?.unwrap_or(0);
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let said = names.to_string_lossy();
    let ceilings = said.split(':').map(ceiling).collect::<Option<Vec<_>>>();
    match (count, ceilings) {
        (0, _) => Ok(Vec::new()),
        (1, _) if said.is_empty() => Ok(vec![Role::Admin]),
        (_, _) if said.is_empty() => Err(ManagerError::Sockets(count)),
        (_, None) => Err(ManagerError::Variable { name: "LISTEN_FDNAMES", value: names }),
        (_, Some(ceilings)) if ceilings.len() == count as usize && ceilings.len() <= MOST_SOCKETS => {
            Ok(ceilings)
        }
        _ => Err(ManagerError::Sockets(count)),
    }
}

/// What nobody is more than who comes by a socket of this name: a role, or everything where it has the name of its unit, or none.
fn ceiling(name: &str) -> Option<Role> {
    let is_of_all = Path::new(name).extension().is_some_and(|end| end == "socket") || name == UNNAMED;
    let role = Role::ALL.into_iter().find(|role| role.name() == name);
    role.or_else(|| is_of_all.then_some(Role::Admin))
}

fn number<T: std::str::FromStr>(
    variable: &impl Fn(&str) -> Option<OsString>,
    name: &'static str,
) -> Result<Option<T>, ManagerError> {
    let Some(value) = variable(name) else { return Ok(None) };
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(ManagerError::Variable { name, value }),
    }
}

/// # Safety
/// Nothing else in this process may use the descriptor.
unsafe fn take_listener(fd: i32) -> Result<OwnedFd, ManagerError> {
    // Closed at exec, as everything that the daemon opens itself; and known to be open before it is owned.
    // SAFETY: fcntl takes any number.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        let source = io::Error::last_os_error();
        return Err(ManagerError::Io { operation: "take over the passed socket", source });
    }
    // SAFETY: it is open, and the caller's promise.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    listening(socket)
}

fn listening(socket: OwnedFd) -> Result<OwnedFd, ManagerError> {
    use std::os::fd::AsRawFd;
    let stream = getsockopt(&socket.as_fd(), sockopt::SockType) == Ok(SockType::Stream);
    let accepts = getsockopt(&socket.as_fd(), sockopt::AcceptConn) == Ok(true);
    // Fails for the address of another family.
    let unix = getsockname::<UnixAddr>(socket.as_raw_fd()).is_ok();
    if stream && accepts && unix { Ok(socket) } else { Err(ManagerError::NotListening) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn environment(pairs: &[(&'static str, String)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    #[test]
    fn without_variables_there_is_no_manager_and_telling_it_does_nothing() {
        let manager = ServiceManager::told_by(environment(&[])).unwrap();
        assert!(manager.notify.is_none() && manager.watchdog.is_none());
        manager.tell("READY=1");
        assert!(passed_sockets(environment(&[])).unwrap().is_empty());
    }

    #[test]
    fn the_manager_is_told_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("chaos-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let ears = [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&address).unwrap()];
        for (ear, value) in ears.iter().zip([path.display().to_string(), format!("@{name}")]) {
            let manager = ServiceManager::told_by(environment(&[("NOTIFY_SOCKET", value)])).unwrap();
            manager.tell("READY=1");
            let mut heard = [0; 64];
            let length = ear.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"READY=1");
        }
    }

    #[test]
    fn what_was_meant_for_another_process_is_not_taken() {
        let me = std::process::id();
        let watchdog = |pid: u32| {
            let pairs = [("WATCHDOG_USEC", "3000000".to_owned()), ("WATCHDOG_PID", pid.to_string())];
            ServiceManager::told_by(environment(&pairs)).unwrap().watchdog
        };
        assert_eq!(watchdog(me), Some(Duration::from_secs(3)));
        assert_eq!(watchdog(me + 1), None);
        let sockets = |pid: u32, count: &str| {
            passed_sockets(environment(&[("LISTEN_PID", pid.to_string()), ("LISTEN_FDS", count.into())]))
        };
        assert_eq!(sockets(me, "1").unwrap(), [Role::Admin]);
        assert_eq!(sockets(me + 1, "1").unwrap(), []);
        assert!(matches!(sockets(me, "2"), Err(ManagerError::Sockets(2))));
        assert!(matches!(sockets(me, "-1"), Err(ManagerError::Variable { name: "LISTEN_FDS", .. })));
    }

    #[test]
    fn of_several_sockets_each_is_for_the_role_that_it_is_named_by() {
        let named = |count: &str, names: &str| {
            let pid = std::process::id().to_string();
            let pairs = [("LISTEN_PID", pid), ("LISTEN_FDS", count.into()), ("LISTEN_FDNAMES", names.into())];
            passed_sockets(environment(&pairs))
        };
        assert_eq!(named("2", "chaos-daemon.socket:observer").unwrap(), [Role::Admin, Role::Observer]);
        assert_eq!(named("2", "operator:unknown").unwrap(), [Role::Operator, Role::Admin]);
        for (count, names) in [("1", "observers"), ("2", "chaos-daemon.socket:"), ("2", "observer:x")] {
            let refused = named(count, names);
            assert!(matches!(refused, Err(ManagerError::Variable { name: "LISTEN_FDNAMES", .. })), "{names}");
        }
        assert!(matches!(named("2", "observer"), Err(ManagerError::Sockets(2))));
    }

    #[test]
    fn an_address_of_an_unknown_kind_is_refused_by_name() {
        let refused = ServiceManager::told_by(environment(&[("NOTIFY_SOCKET", "vsock:2:1".into())]));
        assert!(matches!(refused, Err(ManagerError::Variable { name: "NOTIFY_SOCKET", .. })));
    }

    #[test]
    fn only_a_listening_unix_stream_socket_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("a")).unwrap();
        assert!(listening(listener.into()).is_ok());
        let (connected, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(listening(connected.into()), Err(ManagerError::NotListening)));
        let inet = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(listening(inet.into()), Err(ManagerError::NotListening)));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(listening(file.into()), Err(ManagerError::NotListening)));
    }
}
