//! The unprivileged server as a child of the injector: another user, no capability, two sockets.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::net::{UnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::Options;
use super::holders::{CHILD_FD, die_with_parent};
use crate::host::accounts;

/// The user that an installed daemon has for its server.
const USER: &str = "chaos";
/// The user without rights that every system has.
const NOBODY: (u32, u32) = (65_534, 65_534);

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
}

/// Everything that is needed to start the server, and to start it again.
#[derive(Debug)]
pub struct Recipe {
    listener: UnixListener,
    directory: PathBuf,
    user: (u32, u32),
    vsock: Option<(OwnedFd, Vec<u32>)>,
}

impl Recipe {
    /// Prepares the server's directory below the state directory.
    ///
    /// # Errors
    /// When it cannot be made or given to the server's user.
    pub fn new(
        options: &Options,
        listener: UnixListener,
        vsock: Option<(OwnedFd, Vec<u32>)>,
    ) -> io::Result<Self> {
        let user = accounts::user(USER)?.unwrap_or(NOBODY);
        let directory = options.state_dir.join("server");
        own_directory(&directory, user)?;
        Ok(Self { listener, directory, user, vsock })
    }

    /// Starts the server; returns it and the injector's end of the only door between the two.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(&self) -> io::Result<(ServerProcess, UnixStream)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("server").arg("--state-dir").arg(&self.directory);
        command.arg("--listener-fd").arg(CHILD_FD.to_string());
        command.arg("--door-fd").arg((CHILD_FD + 1).to_string());
        let mut fds = vec![self.listener.try_clone()?.into(), theirs.into()];
        if let Some((vsock, cids)) = &self.vsock {
            fds.push(vsock.try_clone()?);
            command.arg("--vsock-fd").arg((CHILD_FD + 2).to_string());
            for cid in cids {
                command.arg("--vsock-cid").arg(cid.to_string());
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command.uid(self.user.0).gid(self.user.1);
        die_with_parent(&mut command, fds);
        let child = command.spawn()?;
        Ok((ServerProcess { child }, UnixStream::from_std(ours)?))
    }
}

impl ServerProcess {
    /// Waits until it has ended, and says how.
    pub async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Kills it and waits until it is gone.
    pub async fn end(&mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::warn!(%error, "cannot kill the server");
        }
    }
}

/// The directories above stay open to passers-by: the server has to get through. One that has its owner already is left
/// alone, for which no capability is needed.
fn own_directory(directory: &Path, (uid, gid): (u32, u32)) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    match fs::DirBuilder::new().mode(0o750).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let now = fs::metadata(directory)?;
    if (now.uid(), now.gid()) == (uid, gid) {
        return Ok(());
    }
    chown(directory, Some(uid), Some(gid))
}
