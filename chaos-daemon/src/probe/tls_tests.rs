//! Handshakes with servers that do not keep to the rules; those that do are in `tests/tests/servers/tls.rs`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::*;
use crate::waits::HANG;

/// The certificate of a.test, by itself, of the key [`key`]; valid until 2126.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBSDCB+6ADAgECAhQnCoESM5cBHMxxr3y9fUFyPotPWzAFBgMrZXAwETEPMA0G\n\
A1UEAwwGYS50ZXN0MCAXDTI2MTEyOTE5NDgyMVoYDzIxMjYxMTA1MTk0ODIxWjAR\n\
MQ8wDQYDVQQDDAZhLnRlc3QwKjAFBgMrZXADIQDqSmxj4pxSCr71UHsTLsX5lUd2\n\
rr6+e5JCHuppFEbSLKNjMGEwHQYDVR0OBBYEFExezkAjoDQe4qz/zE0XFUqFTwLl\n\
MB8GA1UdIwQYMBaAFExezkAjoDQe4qz/zE0XFUqFTwLlMBEGA1UdEQQKMAiCBmEu\n\
dGVzdDAMBgNVHRMBAf8EAjAAMAUGAytlcANBAM/FDDmiwHfG5mPm8WBrmehKjcAb\n\
SYZTi8q9RDrgn4SGIGdd0tkFjnUDjUUkrf1JhgwkBAREdG0iEbNFdl+cOAs=\n\
-----END CERTIFICATE-----";

/// A key of Ed25519 (RFC 8410) that is no secret.
fn key() -> PrivateKeyDer<'static> {
    let front = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    PrivateKeyDer::try_from([front.as_slice(), &[7; 32]].concat()).unwrap()
}

fn server(version: &'static SupportedProtocolVersion) -> ServerConnection {
    let shown = trust::certificates(CERTIFICATE.as_bytes()).unwrap();
    let shown = shown.iter().map(|shown| CertificateDer::from(shown.der().to_vec())).collect();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(shown, key());
    ServerConnection::new(Arc::new(config.unwrap())).unwrap()
}

/// What is seen of a server that answers the first words of a client so.
fn seen_of(name: &str, trust: Trust, answer: impl FnOnce(&[u8]) -> Vec<u8> + Send + 'static) -> Seen {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 4096];
        let read = stream.read(&mut hello).unwrap();
        stream.write_all(&answer(&hello[..read])).unwrap();
        // Until the client ends, lest what it has not read is lost by a reset.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let handshake = Handshake::parse(&address, Some(name), trust).unwrap();
    // On a thread of its own: one that never waits would keep this one, too.
    let (done, seen) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = done.send(runtime.block_on(handshake.take(HANG)));
    });
    let seen = seen.recv_timeout(HANG).expect("a server keeps the prober");
    server.join().unwrap();
    seen
}

/// All that a server says after the first words of the client, and that it ends the connection.
fn answer_and_end(version: &'static SupportedProtocolVersion, hello: &[u8]) -> Vec<u8> {
    let (mut server, mut out) = (server(version), Vec::new());
    server.read_tls(&mut &*hello).unwrap();
    server.process_new_packets().unwrap();
    server.send_close_notify();
    while server.wants_write() {
        server.write_tls(&mut out).unwrap();
    }
    out
}

#[test]
fn a_name_that_is_none_is_refused_where_it_stands() {
    let parse = |address, name| Handshake::parse(address, name, Trust::Host);
    let field = |address, name| parse(address, name).unwrap_err().field;
    assert_eq!(field("example.org", None), "HOST:PORT");
    assert_eq!(field("a b:443", None), "HOST:PORT");
    assert_eq!(field("127.0.0.1:443", Some("a b")), "--server-name");
    let right = parse("127.0.0.1:443", Some("example.org")).unwrap();
    assert_eq!(right.to_string(), "TLS with 127.0.0.1 port 443 as example.org");
    assert_eq!(parse("[::1]:443", None).unwrap().to_string(), "TLS with ::1 port 443");
}

#[test]
fn a_strangers_text_is_shown_as_it_is_but_for_what_steers_a_terminal() {
    assert_eq!(plain(r#"O=Let's "Encrypt"\, Inc."#), r#"O=Let's "Encrypt"\, Inc."#);
    assert_eq!(plain("CN=a\u{1b}[31m\nb"), r"CN=a\u{1b}[31m\nb");
    assert_eq!(plain(&"x".repeat(1000)).len(), LONGEST_NAME);
}

#[test]
fn what_speaks_no_tls_and_what_ends_the_connection_is_told_apart() {
    for (said, expected) in
        [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "does not speak TLS"), (b"", "has ended")]
    {
        let seen = seen_of("a.test", Trust::Anyone, |_| said.to_vec());
        let why = seen.verdict.unwrap_err();
        assert!(why.contains(expected), "{why}");
        assert!(seen.answer.is_none() && seen.value.is_none());
    }
}

#[test]
fn a_server_that_ends_at_once_and_goes_on_talking_keeps_nobody() {
    let talk = |hello: &[u8]| [answer_and_end(&TLS13, hello), vec![0; 8192]].concat();
    let seen = seen_of("a.test", Trust::Anyone, talk);
    let words = seen.verdict.unwrap();
    assert!(words.contains("not verified: a certificate of CN=a.test by CN=a.test"), "{words}");
    assert!(seen.answer.is_some_and(|answer| answer["trusted"].is_null()) && seen.value > Some(30_000.0));
}

#[test]
fn of_a_handshake_that_breaks_off_the_certificate_is_told_all_the_same() {
    // Of TLS 1.2 the server has not finished by then.
    let seen = seen_of("a.test", Trust::Anyone, |hello| answer_and_end(&TLS12, hello));
    assert!(seen.verdict.unwrap_err().contains("has ended") && seen.value > Some(30_000.0));
}

#[test]
fn one_that_nobody_has_signed_is_refused_and_its_days_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, CERTIFICATE).unwrap();
    let trust = |path: &std::path::Path| Trust::File(path.display().to_string());
    // By its own word, for another name.
    let seen = seen_of("b.test", trust(&file), |hello| answer_and_end(&TLS13, hello));
    let why = seen.verdict.unwrap_err();
    assert!(why.contains("certificate refused"), "{why}");
    assert!(seen.answer.is_some_and(|answer| answer["trusted"] == false) && seen.value > Some(30_000.0));
}
