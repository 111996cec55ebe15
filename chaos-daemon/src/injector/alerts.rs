//! Where the daemon is told of alerts: the socket and the token are opened here, and the prober, which listens, gets both as
//! descriptors. It may open neither.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::child::CHILD_FD;

/// How long a token is, in bytes: nobody guesses it, and it fits into a pipe that nobody reads yet.
const SHORTEST_TOKEN: usize = 16;
const LONGEST_TOKEN: usize = 1024;
/// Rights of those who are neither owner nor group.
const OTHERS: u32 = 0o007;

/// An open socket, and what those who speak there have to have.
pub struct Ears {
    listener: TcpListener,
    token: Option<String>,
}

/// Why the daemon cannot be told of alerts.
#[derive(Debug, thiserror::Error)]
pub enum AlertsError {
    /// Other hosts can get there, and anybody is believed.
    #[error(
        "--alert-webhook {0} can be reached from other hosts: give --alert-webhook-token-file as well, or an address such as \
         127.0.0.1:9199"
    )]
    Open(SocketAddr),
    /// The socket.
    #[error("listen for alerts at {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file with the token.
    #[error("read --alert-webhook-token-file {path}")]
    Read {
        /// Its path.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is in it, or who may read it.
    #[error("--alert-webhook-token-file {path}: {problem}")]
    Token {
        /// Its path.
        path: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

/// Understands an address to listen at.
///
/// # Errors
/// Says what is needed.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
    address.ok_or_else(|| {
        "give an address of this host and a port, such as 127.0.0.1:9199 or [::1]:9199".to_owned()
    })
}

impl Ears {
    /// Listens at `address`, to who has the token in the file at `token`, if there is one.
    ///
    /// # Errors
    /// When the address cannot be had, or is open to everybody; or the token is none.
    pub(super) fn open(address: SocketAddr, token: Option<&Path>) -> Result<Self, AlertsError> {
        let token = token.map(read_token).transpose()?;
        if token.is_none() && !address.ip().to_canonical().is_loopback() {
            return Err(AlertsError::Open(address));
        }
        let listener =
            TcpListener::bind(address).map_err(|source| AlertsError::Listen { address, source })?;
        tracing::info!(%address, token = token.is_some(), "listening for alerts at /alerts");
        Ok(Self { listener, token })
    }

    /// Adds what the prober needs of it to the descriptors that it is to have; returns the arguments by which it finds them.
    pub(super) fn hand_over(&self, fds: &mut Vec<OwnedFd>) -> io::Result<Vec<String>> {
        let mut words = Vec::new();
        let mut add = |name: &str, fd: OwnedFd| {
            words.extend([name.to_owned(), (CHILD_FD as usize + fds.len()).to_string()]);
            fds.push(fd);
        };
        add("--alerts-fd", self.listener.try_clone()?.into());
        if let Some(token) = &self.token {
            // An argument could be read by everybody.
            let (theirs, ours) = pipe2(OFlag::O_CLOEXEC)?;
            File::from(ours).write_all(token.as_bytes())?;
            add("--token-fd", theirs);
        }
        Ok(words)
    }
}

impl fmt::Debug for Ears {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ears").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// The token in a file that nobody else may read or change, without the end of its line.
fn read_token(path: &Path) -> Result<String, AlertsError> {
    let shown = path.display().to_string();
    let read = || {
        // OPENS: root, who starts the daemon | root | named on the command line
        let file = File::open(path)?;
        let mode = file.metadata()?.mode();
        let mut text = Vec::new();
        file.take(LONGEST_TOKEN as u64 + 2).read_to_end(&mut text)?;
        Ok((mode, text))
    };
    let (mode, text) = read().map_err(|source| AlertsError::Read { path: shown.clone(), source })?;
    let wrong = |problem: String| Err(AlertsError::Token { path: shown, problem });
    if mode & OTHERS != 0 {
        return wrong(
            "others may get at it, so that it is no secret: chmod o= and give a new one".to_owned(),
        );
    }
    let token = text.trim_ascii();
    if !(SHORTEST_TOKEN..=LONGEST_TOKEN).contains(&token.len()) || !token.iter().all(u8::is_ascii_graphic) {
        return wrong(format!(
            "give one line of {SHORTEST_TOKEN} to {LONGEST_TOKEN} characters of ASCII without blanks, such as of `openssl rand -hex 32`"
        ));
    }
    Ok(String::from_utf8_lossy(token).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{Ipv4Addr, TcpStream};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn file(folder: &Path, text: &str, mode: u32) -> std::path::PathBuf {
        let path = folder.join("token");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A port of loopback that the kernel chooses when it is opened. One chosen before could be another test's by then.
    fn free() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    }

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(address("127.0.0.1:9199").unwrap().port(), 9199);
        assert!(address("[::1]:9199").unwrap().is_ipv6());
        for wrong in ["", "9199", "127.0.0.1", "127.0.0.1:0", "localhost:9199", "::1:9199", "127.0.0.1:99199"]
        {
            assert!(address(wrong).unwrap_err().contains("127.0.0.1:9199"), "{wrong}");
        }
    }

    #[test]
    fn where_other_hosts_can_speak_a_token_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let token = file(folder.path(), TOKEN, 0o600);
        for address in
            ["0.0.0.0:9199", "192.0.2.1:9199", "[::]:9199", "[2001:db8::1]:9199", "[::ffff:192.0.2.1]:9199"]
        {
            let refused = Ears::open(address.parse().unwrap(), None).unwrap_err();
            assert!(matches!(refused, AlertsError::Open(_)), "{refused}");
            assert!(refused.to_string().contains("--alert-webhook-token-file"), "{refused}");
        }
        // An address of nobody here is refused by the kernel.
        let refused = Ears::open("192.0.2.1:9199".parse().unwrap(), Some(&token)).unwrap_err();
        assert!(matches!(refused, AlertsError::Listen { .. }), "{refused}");
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = Ears::open(taken.local_addr().unwrap(), None).unwrap_err();
        assert!(matches!(refused, AlertsError::Listen { .. }), "{refused}");
    }

    #[test]
    fn a_token_that_is_no_secret_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (text, mode, said) in [
            (TOKEN, 0o604, "chmod o="),
            (TOKEN, 0o602, "chmod o="),
            ("", 0o600, "give one line"),
            ("0123456789abcde", 0o600, "give one line"),
            ("0123456789abcdef 0123456789abcdef", 0o600, "give one line"),
            ("0123456789abcdef\n0123456789abcdef\n", 0o600, "give one line"),
            ("0123456789abcdef\u{e9}", 0o600, "give one line"),
            (&"x".repeat(LONGEST_TOKEN + 1), 0o600, "give one line"),
            (&"x".repeat(1 << 20), 0o600, "give one line"),
        ] {
            let path = file(folder.path(), text, mode);
            let refused = Ears::open(free(), Some(&path)).unwrap_err().to_string();
            assert!(refused.contains(said) && (text.is_empty() || !refused.contains(text)), "{refused}");
        }
        let absent = Ears::open(free(), Some(Path::new("/nowhere"))).unwrap_err();
        assert!(matches!(absent, AlertsError::Read { .. }), "{absent}");
    }

    #[test]
    fn the_prober_gets_both_by_their_places_and_a_second_one_too() {
        let folder = tempfile::tempdir().unwrap();
        for text in [TOKEN.to_owned(), format!("{TOKEN}\n"), "x".repeat(LONGEST_TOKEN)] {
            let path = file(folder.path(), &text, 0o640);
            let ears = Ears::open(free(), Some(&path)).unwrap();
            assert!(!format!("{ears:?}").contains(text.trim()));
            for _ in 0..2 {
                let mut fds = vec![File::open("/dev/null").unwrap().into()];
                let words = ears.hand_over(&mut fds).unwrap();
                assert_eq!(words, ["--alerts-fd", "4", "--token-fd", "5"]);
                let mut token = String::new();
                File::from(fds.pop().unwrap()).read_to_string(&mut token).unwrap();
                assert_eq!(token, text.trim());
                let listener = TcpListener::from(fds.pop().unwrap());
                let _caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                listener.accept().unwrap();
            }
        }
        let ears = Ears::open(free(), None).unwrap();
        assert_eq!(ears.hand_over(&mut Vec::new()).unwrap(), ["--alerts-fd", "3"]);
    }
}
