//! What no stranger can reach: files, sockets and a server of root's, which know whether somebody has.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::daemon::folder_of_roots;
use crate::error::{Error, Result};
use crate::netns::NetNs;

/// In every file, variable and answer of root's: whoever sees it has read what it could not.
pub(super) const SECRET: &str = "canary-7f3a-secret-of-root";
/// The port at which a server listens in a namespace in which no stranger has a process.
pub(super) const PORT: u16 = 4747;

/// Things of root's.
#[derive(Debug)]
pub(super) struct Canary {
    folder: TempDir,
    /// As it was made.
    before: BTreeMap<PathBuf, String>,
    sockets: Vec<UnixListener>,
    server: TcpListener,
}

impl Canary {
    /// Makes them; the server is in this namespace.
    pub(super) fn new(namespace: &NetNs) -> Result<Self> {
        let folder = folder_of_roots("canary")?;
        let made = || Error::io("create", format!("a canary in {}", folder.path().display()));
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("closed")).map_err(made())?;
        for (name, mode) in [("file", 0o600), ("program", 0o700), ("readable", 0o644), ("closed/file", 0o600)]
        {
            fs::write(path(name), format!("{SECRET} {}\n", ".".repeat(8192))).map_err(made())?;
            set_mode(&path(name), mode)?;
        }
        let mut sockets = Vec::new();
        for name in ["socket", "closed/socket"] {
            let listener = UnixListener::bind(path(name)).map_err(made())?;
            listener.set_nonblocking(true).map_err(made())?;
            set_mode(&path(name), if name == "socket" { 0o600 } else { 0o666 })?;
            sockets.push(listener);
        }
        set_mode(&path("closed"), 0o700)?;
        set_mode(folder.path(), 0o755)?;
        let server = namespace.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))).map_err(made())?;
        server.set_nonblocking(true).map_err(made())?;
        let before = picture(folder.path())?;
        Ok(Self { folder, before, sockets, server })
    }

    /// The path of one of them.
    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// What has come of them: each difference, and each connection that was made.
    pub(super) fn touched(&self) -> Result<Vec<String>> {
        let mut touched = Vec::new();
        for listener in &self.sockets {
            while let Some((stream, _)) = accepted(listener.accept())? {
                touched.push(format!("a socket of root's was connected to by {}", peer(&stream)));
            }
        }
        while let Some((_, from)) = accepted(self.server.accept())? {
            touched.push(format!("the server of another namespace was connected to from {from}"));
        }
        let now = picture(self.folder.path())?;
        let paths: std::collections::BTreeSet<_> = self.before.keys().chain(now.keys()).collect();
        for path in paths {
            let (was, is) = (self.before.get(path), now.get(path));
            if was != is {
                touched.push(format!("{} was {was:?}, and is {is:?}", path.display()));
            }
        }
        Ok(touched)
    }
}

fn accepted<T>(accept: io::Result<T>) -> Result<Option<T>> {
    match accept {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(Error::io("accept at", "a canary")(error)),
    }
}

fn peer(stream: &std::os::unix::net::UnixStream) -> String {
    match nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerCredentials) {
        Ok(peer) => format!("user {}, process {}", peer.uid(), peer.pid()),
        Err(errno) => format!("nobody that is known: {errno}"),
    }
}

/// Each file with whose it is, its mode, when it was changed, and all that is in it.
fn picture(folder: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let looked = || Error::io("look at", folder.display().to_string());
        for entry in fs::read_dir(&folder).map_err(looked())? {
            let path = entry.map_err(looked())?.path();
            let is = fs::symlink_metadata(&path).map_err(looked())?;
            let text = if is.is_file() { fs::read(&path).map_err(looked())? } else { Vec::new() };
            let shown = format!(
                "{}:{} {:o} {}.{} {}",
                is.uid(),
                is.gid(),
                is.mode(),
                is.ctime(),
                is.ctime_nsec(),
                String::from_utf8_lossy(&text).trim_end()
            );
            found.insert(path.clone(), shown);
            if is.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(found)
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(Error::io("set the mode of", path.display().to_string()))
}
