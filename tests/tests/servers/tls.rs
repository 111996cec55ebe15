//! Addresses of https: a real nginx, with certificates that openssl has made, asked by `chaosctl` and from within the prober's sandbox.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use chaos_tests::HANG;
use chaos_tests::mounts::with_tmpfs;
use chaos_tests::netns::output;
use chaos_tests::process::wait_until;
use chaos_tests::sandbox::{Around, Role, prove};
use chaos_tests::{Daemon, Mcp, NetNs};
use serde_json::{Value, json};

use super::{Server, namespace, probe};

/// Where this host has whom it trusts; for the test something else is mounted there, where only it sees it.
const STORE: &str = "/etc/ssl/certs";
/// What is said of a server that nobody who is trusted knows.
const UNKNOWN: &str = "certificate refused: unknown issuer";

/// The servers that nginx is, by port, and whose certificate each shows.
const SERVERS: &[(u16, &str)] =
    &[(8443, "right"), (8444, "expired"), (8445, "elsewhere"), (8446, "itself"), (8448, "alone")];

/// How `openssl ca` signs.
const SIGNS: &str = "\
[ca]
default_ca = own
[own]
new_certs_dir = .
database = index
rand_serial = yes
default_md = sha256
unique_subject = no
policy = any
[any]
commonName = supplied
";

/// An authority, what it has signed, and where it all is.
struct Authority(PathBuf);

impl Authority {
    /// One whose certificate is in `folder`.
    fn new(folder: &Path) -> Self {
        let authority = Self(folder.to_owned());
        authority.openssl(&[
            "req",
            "-x509",
            "-days",
            "2",
            "-subj",
            "/CN=authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ]);
        fs::write(folder.join("ca.cnf"), SIGNS).unwrap();
        fs::write(folder.join("index"), "").unwrap();
        authority
    }

    fn openssl(&self, words: &[&str]) {
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let key = if words[0] == "req" { &key[..] } else { &[] };
        output(Command::new("openssl").args(words).args(key).current_dir(&self.0)).unwrap();
    }

    /// A server's certificate for `name`, which is valid from the beginning of one year to that of another.
    fn sign(&self, file: &str, name: &str, years: (u32, u32)) {
        let (key, asked, signed, about) =
            (format!("{file}.key"), format!("{file}.csr"), format!("{file}.pem"), format!("{file}.ext"));
        fs::write(self.0.join(&about), format!("subjectAltName = {name}\n")).unwrap();
        self.openssl(&["req", "-new", "-subj", "/CN=server", "-keyout", &key, "-out", &asked]);
        let (from, to) = (format!("{}0101000000Z", years.0), format!("{}0101000000Z", years.1));
        self.openssl(&[
            "ca",
            "-batch",
            "-notext",
            "-config",
            "ca.cnf",
            "-cert",
            "ca.pem",
            "-keyfile",
            "ca.key",
            "-startdate",
            &from,
            "-enddate",
            &to,
            "-extfile",
            &about,
            "-in",
            &asked,
            "-out",
            &signed,
        ]);
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

/// nginx with [`SERVERS`], which answers as a service, a Prometheus, an Alertmanager and an MCP server would.
fn nginx(namespace: &NetNs, authority: &Authority) -> Server {
    let folder = authority.0.display();
    let servers: String = SERVERS
        .iter()
        .map(|(port, shown)| {
            format!(
                "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/{shown}.pem; ssl_certificate_key {folder}/{shown}.key;\n\
                 location / {{ return 200 'up'; }}\n\
                 location /api/v1/query {{ default_type application/json;\n\
                 return 200 '{{\"status\":\"success\",\"data\":{{\"resultType\":\"scalar\",\"result\":[1,\"7\"]}}}}'; }}\n\
                 location /api/v2/alerts {{ default_type application/json; return 200 '[]'; }} }}\n"
            )
        })
        .collect();
    // One process, which is all gone when it is killed.
    let text = format!(
        "daemon off; master_process off; user root; pid {folder}/pid; error_log {folder}/log;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
         server {{ listen 127.0.0.1:8080; location / {{ return 200 'plain'; }} }}\n{servers} }}\n"
    );
    let configuration = authority.0.join("nginx.conf");
    fs::write(&configuration, text).unwrap();
    let server = Server::start(namespace.command("nginx").arg("-c").arg(&configuration));
    let ready = || probe(namespace, &["http", "http://127.0.0.1:8080/"]).0 == 0;
    let log = || fs::read_to_string(authority.0.join("log")).unwrap_or_default();
    assert!(wait_until(HANG, ready), "no nginx: {}", log());
    server
}

/// Certificates of every kind, in a folder for all to read.
fn certificates(folder: &Path) -> Authority {
    let authority = Authority::new(folder);
    authority.sign("right", "DNS:localhost,IP:127.0.0.1", (2020, 2120));
    authority.sign("expired", "DNS:localhost,IP:127.0.0.1", (2020, 2021));
    authority.sign("elsewhere", "DNS:pay.test", (2020, 2120));
    // One that is an authority, as `openssl req -x509` makes them.
    for kind in ["pem", "key"] {
        fs::copy(authority.file(&format!("ca.{kind}")), authority.file(&format!("itself.{kind}"))).unwrap();
    }
    // One that nobody else has signed, and that is no authority's.
    authority.openssl(&[
        "req",
        "-x509",
        "-days",
        "2",
        "-subj",
        "/CN=alone",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        "alone.key",
        "-out",
        "alone.pem",
    ]);
    authority
}

/// What is said of a sample that is not as it should be.
fn refused((code, answer): (i32, Value)) -> String {
    let detail = answer["detail"].as_str().unwrap_or_default().to_owned();
    assert!(code == 1 && answer["answer"].is_null() && answer["value"].is_null(), "{code}: {answer}");
    detail
}

#[test]
fn a_server_is_who_it_says_by_the_word_of_an_authority_that_is_trusted_or_it_is_said_what_is_wrong() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let authority = certificates(folder.path());
    let _server = nginx(&namespace, &authority);
    let ca = authority.file("ca.pem");
    let ask = |words: &[&str]| probe(&namespace, &[&["http"], words].concat());
    let by_ca = |url: &str| ask(&[url, "--ca-file", &ca]);
    for url in ["https://localhost:8443/", "https://127.0.0.1:8443/health"] {
        let (code, right) = by_ca(url);
        assert!(code == 0 && right["answer"]["body"] == "up", "{right}");
        let unknown = refused(ask(&[url]));
        assert!(unknown.contains(UNKNOWN), "{unknown}");
        assert_eq!(ask(&[url, "--no-verify-tls"]).0, 0);
    }
    for (url, said) in [
        ("https://localhost:8444/", "certificate refused: expired: it was valid until 2021-01-01T00:00:00Z"),
        ("https://localhost:8445/", "certificate refused: name mismatch: it is for "),
        ("https://localhost:8446/", "certificate refused: it is that of an authority (CA:TRUE)"),
        ("https://localhost:8080/", "does not speak TLS"),
        ("https://localhost:8447/", "refused"),
    ] {
        let problem = refused(by_ca(url));
        assert!(problem.contains(said), "{url}: {problem}");
    }
    let mismatch = refused(by_ca("https://localhost:8445/"));
    assert!(mismatch.contains("pay.test") && mismatch.ends_with("and not for localhost"), "{mismatch}");
    for port in [8444, 8445, 8446] {
        assert_eq!(ask(&[&format!("https://localhost:{port}/"), "--no-verify-tls"]).0, 0, "{port}");
    }
    let own = authority.file("alone.pem");
    assert_eq!(ask(&["https://localhost:8448/", "--ca-file", &own]).0, 0);
    assert!(refused(by_ca("https://localhost:8448/")).contains(UNKNOWN));
    // By another's word than that of who has signed it, and by nobody's.
    assert!(
        refused(ask(&["https://localhost:8443/", "--ca-file", &authority.file("right.pem")]))
            .contains(UNKNOWN)
    );
    assert!(
        refused(ask(&["https://localhost:8443/", "--ca-file", &authority.file("ca.key")]))
            .contains("no certificate")
    );
    assert!(
        refused(ask(&["https://localhost:8443/", "--ca-file", "/nowhere.pem"])).contains("cannot be read")
    );
    // What makes no sense.
    for words in [
        ["http://localhost:8080/", "--ca-file", &ca].as_slice(),
        &["http://localhost:8080/", "--no-verify-tls"],
        &["https://localhost:8443/", "--ca-file", "ca.pem"],
        &["https://localhost:8443/", "--ca-file", &ca, "--no-verify-tls"],
    ] {
        let (code, said) = ask(words);
        assert!(code == 2 && said.to_string().contains("--"), "{words:?}: {code} {said}");
    }
}

#[test]
fn whatever_asks_an_address_does_it_by_https_too() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let authority = certificates(folder.path());
    let _server = nginx(&namespace, &authority);
    let ca = authority.file("ca.pem");
    let url = "https://localhost:8443";
    for words in [
        ["latency", "--http", url, "--samples", "5"].as_slice(),
        &["prometheus", url, "up", "--min", "7"],
        &["alert", url, "--max", "0"],
    ] {
        let unknown = refused(probe(&namespace, words));
        assert!(unknown.contains(UNKNOWN), "{unknown}");
        for trust in [["--ca-file", &ca].as_slice(), &["--no-verify-tls"]] {
            let (code, right) = probe(&namespace, &[words, trust].concat());
            assert!(code == 0 && right["value"].is_number(), "{words:?} {trust:?}: {right}");
        }
    }
    // It gets there, and finds no MCP server.
    let mcp = refused(probe(&namespace, &["mcp", url, "--ca-file", &ca]));
    assert!(mcp.contains("initialize: not a message"), "{mcp}");
    assert!(refused(probe(&namespace, &["mcp", url])).contains(UNKNOWN));
    let (code, said) = probe(&namespace, &["mcp", "--ca-file", &ca, "--", "/bin/true"]);
    assert!(code == 2 && said.to_string().contains("only with an address of https"), "{said}");
}

#[test]
fn a_handshake_says_how_many_days_a_certificate_has_left_also_of_one_that_is_refused() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let authority = certificates(folder.path());
    let _server = nginx(&namespace, &authority);
    let ca = authority.file("ca.pem");
    let ask = |words: &[&str]| probe(&namespace, &[&["tls"], words].concat());
    let days = |answer: &Value| answer["value"].as_f64().unwrap_or_else(|| panic!("no days: {answer}"));
    let (code, right) = ask(&["localhost:8443", "--ca-file", &ca, "--min", "14"]);
    let shown = &right["answer"];
    assert!(code == 0 && days(&right) > 30_000.0, "{right}");
    assert_eq!((&shown["trusted"], &shown["not_after"]), (&json!(true), &json!("2120-01-01T00:00:00Z")));
    assert_eq!((&shown["subject"], &shown["issuer"]), (&json!("CN=server"), &json!("CN=authority")));
    assert_eq!((&shown["names"], &shown["chain"]), (&json!(["localhost", "127.0.0.1"]), &json!(1)));
    // Too few days are left for who asks, though everybody would connect.
    let (code, few) = ask(&["localhost:8443", "--ca-file", &ca, "--min", "1000000"]);
    assert!(code == 1 && few["detail"].to_string().contains("at least 1000000"), "{few}");
    for (words, said) in [
        (["localhost:8443", "--timeout", "3s"].as_slice(), UNKNOWN),
        (&["localhost:8444", "--ca-file", &ca], "expired: it was valid until 2021-01-01T00:00:00Z"),
        (&["localhost:8445", "--ca-file", &ca], "name mismatch: it is for pay.test"),
        (&["localhost:8443", "--ca-file", &ca, "--server-name", "pay.test"], "and not for pay.test"),
    ] {
        let (code, refused) = ask(words);
        assert!(code == 1 && refused["answer"]["trusted"] == false, "{words:?}: {refused}");
        assert!(refused["detail"].as_str().unwrap_or_default().contains(said), "{words:?}: {refused}");
        assert_eq!(days(&refused) < 0.0, words[0].ends_with("8444"), "{refused}");
    }
    // The name that is asked for need not be where the port is; and nobody's word may be enough.
    assert_eq!(ask(&["localhost:8445", "--ca-file", &ca, "--server-name", "pay.test"]).0, 0);
    let (code, believed) = ask(&["localhost:8444", "--no-verify-tls"]);
    assert!(code == 0 && believed["answer"]["trusted"].is_null() && days(&believed) < 0.0, "{believed}");
    assert!(
        believed["detail"].to_string().contains("not verified: a certificate of CN=server"),
        "{believed}"
    );
    assert!(refused(ask(&["localhost:8080"])).contains("does not speak TLS"));
    assert!(refused(ask(&["localhost:8447"])).contains("refused"));
}

/// What a dry run says of a steady state of one probe.
pub(super) fn judge(mcp: &Mcp, provider: &Value, tolerance: &Value) -> Value {
    let probe = json!({"type": "probe", "name": "answers", "tolerance": tolerance, "provider": provider});
    let action = json!({"type": "action", "name": "burn", "provider": {"type": "process", "path": "chaosctl",
        "arguments": {"inject": "resource_exhaustion", "--cpu-percent": 5, "--for": "300ms"}}});
    let document = json!({"title": "answers", "description": "a probe of a server", "method": [action], "rollbacks": [],
        "steady-state-hypothesis": {"title": "up", "probes": [probe]}});
    mcp.call_tool("chaos_register_experiment", document).unwrap().ok().unwrap();
    let run = json!({"experiment_name": "answers", "dry_run": true});
    mcp.call_tool("chaos_run_experiment", run).unwrap().ok().unwrap()
}

#[test]
fn the_prober_sees_whom_the_host_trusts_from_within_its_sandbox_and_files_below_etc() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let authority = certificates(folder.path());
    let _server = nginx(&namespace, &authority);
    let ca = authority.file("ca.pem");
    let done = with_tmpfs(Path::new(STORE), "mode=755", || {
        let store = Path::new(STORE);
        fs::write(store.join("somebody.pem"), "").unwrap();
        let daemon = Daemon::start_with(|command| namespace.place(command))?;
        let mcp = daemon.mcp()?;
        let of = |more: Value| {
            let mut provider = json!({"type": "http", "url": "https://localhost:8443/health", "timeout": 3});
            provider.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            judge(&mcp, &provider, &json!(200))
        };
        let unmet = |more: Value, said: &str| {
            let result = of(more);
            let error = result["error"].as_str().unwrap_or_default();
            assert!(
                result["steady_state_before"] == false && error.contains(said),
                "{said}: {result}; {}",
                daemon.log()
            );
        };
        let met = |more: Value| {
            let result = of(more);
            assert_eq!(result["steady_state_before"], true, "{result}; {}", daemon.log());
        };
        // A host that trusts nobody, and then one that trusts the authority.
        unmet(json!({}), "install the package ca-certificates");
        fs::copy(&ca, store.join("ca-certificates.crt")).unwrap();
        met(json!({}));
        met(json!({"verify_tls": true}));
        unmet(json!({"url": "https://localhost:8444/"}), "certificate refused: expired");
        unmet(json!({"url": "https://localhost:8445/"}), "certificate refused: name mismatch");
        met(json!({"url": "https://localhost:8445/", "verify_tls": false}));
        // By a file: below /etc, by nobody whom it does not name, and not where only modes would let it.
        fs::copy(&ca, store.join("own.pem")).unwrap();
        met(json!({"verify_tls": format!("{STORE}/own.pem")}));
        fs::copy(authority.file("right.pem"), store.join("other.pem")).unwrap();
        unmet(json!({"verify_tls": format!("{STORE}/other.pem")}), UNKNOWN);
        unmet(json!({"verify_tls": ca}), "Permission denied (os error 13) (the daemon sees");
        // It is shut in as ever.
        let prober = daemon.prober().unwrap();
        prove(&prober, Role::Prober, Around::Nothing)?;
        Ok(())
    });
    done.unwrap();
}
