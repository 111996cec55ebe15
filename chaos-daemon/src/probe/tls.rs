//! Whether a port speaks TLS with a certificate that is right for its name, and how many days that certificate has left.
//!
//! One handshake is made (RFC 8446, RFC 5246), and nothing is sent in it. The certificate is verified as for `https` addresses
//! (`trust.rs`); one that is refused is read all the same, so that the days are known of an expired one, too.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::tcp::Connection;
use super::trust::{self, Trust};
use super::{Sampler, Seen, blocking, late};
use crate::spec::SpecError;

const SECONDS_PER_DAY: f64 = 86_400.0;
const ENDED: &str = "the server has ended the connection within the handshake";
/// How many names of a certificate are in an answer.
const MOST_NAMES: usize = 100;
/// The longest name in an answer, in characters.
const LONGEST_NAME: usize = 256;

/// A port, the name that its certificate has to be for, and by whose word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshake {
    port: Connection,
    name: String,
    trust: Trust,
}

impl Handshake {
    /// Understands `HOST:PORT`, and the name that is asked for there (the host).
    ///
    /// # Errors
    /// Names what is not of that form.
    pub fn parse(address: &str, name: Option<&str>, trust: Trust) -> Result<Self, SpecError> {
        let port = Connection::parse("HOST:PORT", address)?;
        let (field, name) = name.map_or(("HOST:PORT", &*port.host), |name| ("--server-name", name));
        server_name(name).map_err(|problem| SpecError::new(field, problem))?;
        let name = name.to_owned();
        Ok(Self { port, name, trust })
    }

    async fn shake(&self, limit: Duration) -> Result<(ClientConnection, Shown), String> {
        let trust = self.trust.clone();
        let verifier = blocking(limit, move || Verifier::new(&trust)).await??;
        let verifier = Arc::new(verifier);
        let config = ClientConfig::builder_with_provider(Arc::clone(&verifier.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        let name = server_name(&self.name)?;
        let mut session = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
        let failed = exchange(&mut session, self.port.open(limit).await?).await.err();
        let shown = verifier.shown.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (shown, failed) {
            (Some(shown), failed) => Ok((session, Shown { failed, ..shown })),
            (None, Some(failed)) => Err(failed),
            (None, None) => Err("the server has shown no certificate".to_owned()),
        }
    }
}

/// A name as it is asked for.
fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_owned())
        .map_err(|error| format!("{name:?} is no name of a server ({error}): give e.g. \"example.org\""))
}

/// Sends and receives until the handshake is done.
async fn exchange(session: &mut ClientConnection, mut stream: TcpStream) -> Result<(), String> {
    let mut buffer = vec![0; 16 * 1024];
    while session.is_handshaking() || session.wants_write() {
        let mut out = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut out).map_err(|error| error.to_string())?;
        }
        stream.write_all(&out).await.map_err(|error| error.to_string())?;
        if !session.is_handshaking() {
            break;
        }
        let read = stream.read(&mut buffer).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err(ENDED.to_owned());
        }
        let mut rest = &buffer[..read];
        // What follows the handshake is of no interest, and after an end nothing more is taken.
        while !rest.is_empty() && session.is_handshaking() {
            if session.read_tls(&mut rest).map_err(|error| error.to_string())? == 0 {
                return Err(ENDED.to_owned());
            }
            session.process_new_packets().map_err(|error| trust::refused(&error))?;
        }
    }
    Ok(())
}

impl Sampler for Handshake {
    async fn take(&self, limit: Duration) -> Seen {
        match timeout(limit, self.shake(limit)).await {
            Ok(Ok((session, shown))) => shown.judge(&self.name, &session),
            Ok(Err(why)) => Seen::nothing(why),
            Err(_) => Seen::nothing(late(limit)),
        }
    }

    fn host(&self) -> Option<String> {
        self.port.host()
    }

    fn unit(&self) -> &'static str {
        "days"
    }
}

impl fmt::Display for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connection { host, port } = &self.port;
        write!(f, "TLS with {host} port {port}")?;
        if self.name == *host { Ok(()) } else { write!(f, " as {}", self.name) }
    }
}

/// What the server has shown, and whether it is believed.
#[derive(Debug)]
struct Shown {
    certificate: Vec<u8>,
    /// How many certificates there were.
    chain: usize,
    /// Whether it is right; `None` when whoever answers is believed.
    verdict: Option<Result<(), rustls::Error>>,
    /// Why the handshake was not finished, if it was not.
    failed: Option<String>,
}

impl Shown {
    fn judge(self, name: &str, session: &ClientConnection) -> Seen {
        let protocol = session.protocol_version().and_then(|version| version.as_str()).unwrap_or("TLS");
        let is_trusted = self.verdict.as_ref().map(Result::is_ok);
        let refused = match (self.verdict, self.failed) {
            (Some(Err(error)), _) => Some(trust::refused(&error)),
            (_, failed) => failed,
        };
        let read = match Certificate::from_der(&self.certificate) {
            Ok(certificate) => Read::of(&certificate, SystemTime::now()),
            Err(error) => {
                let why = || format!("the certificate cannot be read: {error}");
                return Seen::nothing(refused.unwrap_or_else(why));
            }
        };
        let Read { subject, issuer, not_after, days_left, .. } = &read;
        let whose = match is_trusted {
            Some(_) => format!("a certificate for {name}"),
            None => format!("not verified: a certificate of {subject}"),
        };
        let words = format!("{protocol}, {whose} by {issuer}, valid until {not_after}, {days_left:.1} days");
        let answer = read.answer(protocol, self.chain, is_trusted);
        let verdict = refused.map_or(Ok(words), Err);
        Seen { answer: Some(answer), value: Some(read.days_left), verdict, no_data: None }
    }
}

/// What a certificate says.
#[derive(Debug)]
struct Read {
    subject: String,
    issuer: String,
    names: Vec<String>,
    not_before: String,
    not_after: String,
    /// Fewer than none of one that has expired.
    days_left: f64,
}

impl Read {
    fn of(certificate: &Certificate, now: SystemTime) -> Self {
        let tbs = certificate.tbs_certificate();
        let validity = tbs.validity();
        let end = validity.not_after.to_unix_duration().as_secs_f64();
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let names = match tbs.get_extension::<SubjectAltName>() {
            Ok(Some((_, SubjectAltName(names)))) => names.iter().filter_map(name).take(MOST_NAMES).collect(),
            _ => Vec::new(),
        };
        Self {
            subject: plain(&tbs.subject().to_string()),
            issuer: plain(&tbs.issuer().to_string()),
            names,
            not_before: validity.not_before.to_string(),
            not_after: validity.not_after.to_string(),
            days_left: (end - now) / SECONDS_PER_DAY,
        }
    }

    fn answer(&self, protocol: &str, chain: usize, is_trusted: Option<bool>) -> Value {
        let Self { subject, issuer, names, not_before, not_after, days_left } = self;
        json!({
            "protocol": protocol, "trusted": is_trusted, "chain": chain, "subject": subject, "issuer": issuer,
            "names": names, "not_before": not_before, "not_after": not_after, "days_left": days_left,
        })
    }
}

/// A name that a server can be asked by.
fn name(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(plain(name.as_str())),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// A text of a stranger's, such that it can be shown.
fn plain(text: &str) -> String {
    let shown = |c: char| match c {
        '\'' | '"' | '\\' => c.to_string(),
        c => c.escape_debug().to_string(),
    };
    text.chars().take(LONGEST_NAME).map(shown).collect()
}

/// Notes what a server shows and what is to be said of it, and lets the handshake go on.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None` when whoever answers is believed.
    inner: Option<Arc<WebPkiServerVerifier>>,
    shown: Mutex<Option<Shown>>,
}

impl Verifier {
    fn new(trust: &Trust) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let verifier = |roots: RootCertStore| {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            builder.build().map_err(|error| error.to_string())
        };
        let inner = trust.roots()?.map(verifier).transpose()?;
        Ok(Self { provider, inner, shown: Mutex::default() })
    }

    /// Takes note of a signature by the server's key, and lets the handshake go on. Of whom everybody believes none is verified.
    fn note(
        &self,
        verify: impl FnOnce() -> Result<HandshakeSignatureValid, rustls::Error>,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Shown { verdict: Some(verdict), .. }) = shown.as_mut()
            && verdict.is_ok()
        {
            *verdict = verify().map(drop);
        }
        Ok(HandshakeSignatureValid::assertion())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verdict = self.inner.as_ref().map(|inner| {
            inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now).map(drop)
        });
        let (certificate, chain) = (end_entity.to_vec(), 1 + intermediates.len());
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = Some(Shown { certificate, chain, verdict, failed: None });
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.note(|| verify_tls12_signature(message, certificate, signed, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.note(|| verify_tls13_signature(message, certificate, signed, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
