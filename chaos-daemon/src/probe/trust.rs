//! TLS of what is asked at an `https` address: by whose word a server is who it says, and what is wrong with one that is not.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::libc;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, RootCertStore};
use serde::{Deserialize, Serialize};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsConfigBuilder, parse_pem};

use crate::spec::SpecError;

/// The most of a file of certificates that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 20;
/// How long what this host trusts is kept in memory, so that one sample after the other need not read it.
const KEPT: Duration = Duration::from_secs(60);

/// By whose word a server at an `https` address is who it says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trust {
    /// That of the authorities which this host trusts.
    #[default]
    Host,
    /// That of the authorities in this file, and of no others.
    File(String),
    /// Nobody's: whoever answers is believed.
    Anyone,
}

impl Trust {
    /// The authorities in the file at `path`, which stands at `field`; those of the host when none is given.
    ///
    /// # Errors
    /// When the path is not absolute: nobody could tell from where.
    pub fn file(field: &str, path: Option<&str>) -> Result<Self, SpecError> {
        match path {
            None => Ok(Self::Host),
            Some(path) if path.starts_with('/') => Ok(Self::File(path.to_owned())),
            Some(path) => {
                let problem =
                    format!("{path:?} is not an absolute path: give e.g. \"/etc/ssl/payment-ca.pem\"");
                Err(SpecError::new(field, problem))
            }
        }
    }

    /// How a server is looked at.
    ///
    /// # Errors
    /// When there is no authority to believe.
    pub(super) fn config(&self) -> Result<TlsConfigBuilder, String> {
        Ok(match self {
            Self::Host => builder().root_certs(RootCerts::Specific(of_this_host()?)),
            Self::File(path) => builder().root_certs(RootCerts::from(authorities(path)?)),
            Self::Anyone => builder().disable_verification(true),
        })
    }

    /// The authorities that are believed; `None` where everybody is.
    ///
    /// # Errors
    /// When there is no authority to believe.
    pub(super) fn roots(&self) -> Result<Option<RootCertStore>, String> {
        let found = match self {
            Self::Host => of_this_host()?,
            Self::File(path) => Arc::new(authorities(path)?),
            Self::Anyone => return Ok(None),
        };
        let mut roots = RootCertStore::empty();
        // As the client of HTTP does: one that cannot be read is believed by nobody.
        roots.add_parsable_certificates(found.iter().map(|found| CertificateDer::from(found.der())));
        Ok(Some(roots))
    }
}

/// The settings of TLS that do not say who is believed.
pub(super) fn builder() -> TlsConfigBuilder {
    TlsConfig::builder().unversioned_rustls_crypto_provider(ring::default_provider().into())
}

/// What this host trusts. In the prober it is read from within the sandbox, which lets it see `/etc` (`host/sandbox.rs`).
fn of_this_host() -> Result<Arc<Vec<Certificate<'static>>>, String> {
    static READ: Mutex<Option<(Instant, Arc<Vec<Certificate<'static>>>)>> = Mutex::new(None);
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, roots)) = read.as_ref().filter(|(when, _)| when.elapsed() < KEPT) {
        return Ok(Arc::clone(roots));
    }
    // What cannot be read is not trusted: the links of a folder, which the sandbox keeps shut, are in the file as well.
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        let problem = "this host trusts no authority that can be read: install the package ca-certificates, or give a CA file";
        return Err(problem.to_owned());
    }
    let roots = found.iter().map(|certificate| Certificate::from_der(certificate).to_owned());
    let roots = Arc::new(roots.collect());
    *read = Some((Instant::now(), Arc::clone(&roots)));
    Ok(roots)
}

/// The certificates in a file.
fn authorities(path: &str) -> Result<Vec<Certificate<'static>>, String> {
    let text = contents(path).map_err(|error| {
        let place = "the daemon sees those that everybody may read below /etc";
        format!("the CA file {path} cannot be read: {error} ({place})")
    })?;
    certificates(&text).map_err(|problem| format!("the CA file {path} {problem}"))
}

fn contents(path: &str) -> io::Result<Vec<u8>> {
    // A pipe is not waited for.
    // OPENS: the caller | the prober | a process without rights, shut in by Landlock
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut text = Vec::new();
    match file.take(LARGEST_FILE + 1).read_to_end(&mut text)? as u64 {
        0..=LARGEST_FILE => Ok(text),
        _ => Err(io::Error::other("it is larger than 1 MiB")),
    }
}

/// The certificates in a text, which must have one.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            // What it says of the text is not shown: it may be a secret that was mistaken for certificates.
            Err(_) => return Err("is not in the form PEM".to_owned()),
        }
    }
    match found.is_empty() {
        false => Ok(found),
        true => Err("has no certificate in the form PEM".to_owned()),
    }
}

/// What kept a request from being answered.
pub(super) fn problem(error: &ureq::Error) -> String {
    cause(error).map_or_else(|| error.to_string(), refused)
}

/// What was wrong with a handshake.
pub(super) fn refused(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => format!("certificate refused: {}", refusal(why)),
        rustls::Error::InvalidMessage(_) => "what answers there does not speak TLS".to_owned(),
        other => format!("TLS: {other}"),
    }
}

fn cause(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

fn refusal(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => {
            "unknown issuer: no authority that is trusted here has signed it".into()
        }
        CertificateError::Expired => "expired".into(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("expired: it was valid until {}", date(*not_after))
        }
        CertificateError::NotValidYet => "not valid yet".into(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("not valid yet: it will be from {}", date(*not_before))
        }
        CertificateError::NotValidForName => "name mismatch".into(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let shown = presented.iter().take(SHOWN_NAMES).map(|name| bare(name).escape_debug().to_string());
            let mut names: Vec<_> = shown.collect();
            match presented.len().saturating_sub(SHOWN_NAMES) {
                0 if names.is_empty() => names.push("nobody".to_owned()),
                0 => {}
                more => names.push(format!("{more} more")),
            }
            let names = names.join(", ");
            format!("name mismatch: it is for {names}, and not for {}", expected.to_str())
        }
        CertificateError::Revoked => "revoked".into(),
        CertificateError::BadSignature => "its signature is wrong".into(),
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "it is that of an authority (CA:TRUE), which no server may show as its own".into()
        }
        other => other.to_string(),
    }
}

/// How many names of a certificate are shown.
const SHOWN_NAMES: usize = 5;

/// The name in `DnsName("a.test")`.
fn bare(name: &str) -> &str {
    name.split('"').nth(1).unwrap_or(name)
}

fn date(time: UnixTime) -> String {
    let date = i64::try_from(time.as_secs()).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    date.map_or_else(|| "a time that has no date".to_owned(), |date| date.to_string())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn a_path_that_could_be_anywhere_is_named() {
        assert_eq!(Trust::file("--ca-file", None), Ok(Trust::Host));
        assert_eq!(Trust::file("--ca-file", Some("/a.pem")), Ok(Trust::File("/a.pem".into())));
        for path in ["", "a.pem", "./a.pem", "~/a.pem"] {
            assert_eq!(Trust::file("--ca-file", Some(path)).unwrap_err().field, "--ca-file", "{path}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_named_and_nothing_of_it_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem").display().to_string();
        let refused = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            Trust::File(path.clone()).config().err().unwrap()
        };
        for (text, said) in [
            ("hunter2", "has no certificate"),
            ("", "has no certificate"),
            ("-----BEGIN CERTIFICATE-----\nhunter2\n", "is not in the form PEM"),
            (&"hunter2 ".repeat(1 << 18), "larger than 1 MiB"),
        ] {
            let problem = refused(text.as_bytes());
            assert!(
                problem.contains(said) && problem.contains(&path) && !problem.contains("hunter2"),
                "{problem}"
            );
        }
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.display().to_string(), format!("{path}.none"), "/".to_owned()] {
            let problem = Trust::File(path.clone()).config().err().unwrap();
            assert!(problem.contains(&path), "{problem}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_said_in_words() {
        let (time, long_ago) = (UnixTime::now(), UnixTime::since_unix_epoch(Duration::from_secs(86_400)));
        let expected = ServerName::try_from("db.test").unwrap();
        for (why, said) in [
            (CertificateError::UnknownIssuer, "unknown issuer"),
            (
                CertificateError::ExpiredContext { time, not_after: long_ago },
                "expired: it was valid until 1970-01-02T00:00:00Z",
            ),
            (
                CertificateError::NotValidYetContext { time, not_before: long_ago },
                "not valid yet: it will be from 1970-01-02",
            ),
            (
                CertificateError::NotValidForNameContext {
                    expected,
                    presented: vec!["DnsName(\"a.test\")".into()],
                },
                "name mismatch: it is for a.test, and not for db.test",
            ),
            (
                CertificateError::NotValidForNameContext {
                    expected: ServerName::try_from("db.test").unwrap(),
                    presented: (0..12).map(|number| format!("DnsName(\"\u{1b}{number}\")")).collect(),
                },
                "it is for \\u{1b}0, \\u{1b}1, \\u{1b}2, \\u{1b}3, \\u{1b}4, 7 more, and not",
            ),
            (CertificateError::BadEncoding, "BadEncoding"),
        ] {
            let error = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(why));
            let problem = problem(&ureq::Error::Io(error));
            assert!(problem.starts_with("certificate refused: ") && problem.contains(said), "{problem}");
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(problem(&ureq::Error::Io(refused)).contains("refused"));
    }
}
