//! A real nginx without TLS: statuses, headers and bodies.

use std::fs;
use std::path::Path;

use chaos_tests::HANG;
use chaos_tests::process::wait_until;
use chaos_tests::{Daemon, NetNs};
use serde_json::json;

use super::tls::judge;
use super::{Server, namespace, probe};

const URL: &str = "http://127.0.0.1:8080";

/// nginx at port 8080, in one process, which keeps what it has in `folder`.
fn nginx(namespace: &NetNs, folder: &Path) -> Server {
    let shown = folder.display();
    let text = format!(
        "daemon off; master_process off; user root; pid {shown}/pid; error_log {shown}/log;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {shown}/body; proxy_temp_path {shown}/proxy;\n\
         fastcgi_temp_path {shown}/fastcgi; uwsgi_temp_path {shown}/uwsgi; scgi_temp_path {shown}/scgi;\n\
         server {{ listen 127.0.0.1:8080;\n\
         location /health {{ default_type application/json; add_header X-Version 7;\n\
         return 200 '{{\"status\":\"up\",\"pool\":3}}'; }}\n\
         location /asked {{ default_type text/plain;\n\
         return 200 '$request_method $http_x_token $content_type $content_length'; }}\n\
         location /busy {{ add_header Retry-After 5 always; return 503 'no connection left'; }}\n\
         location /moved {{ return 302 {URL}/health; }} }} }}\n"
    );
    let configuration = folder.join("nginx.conf");
    fs::write(&configuration, text).unwrap();
    let server = Server::start(namespace.command("nginx").arg("-c").arg(&configuration));
    let ready = || probe(namespace, &["http", &format!("{URL}/health")]).0 == 0;
    let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert!(wait_until(HANG, ready), "no nginx: {}", log());
    server
}

#[test]
fn what_a_server_answers_is_its_status_its_headers_and_its_body_and_what_is_sent_arrives() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let _server = nginx(&namespace, folder.path());
    let ask =
        |path: &str, words: &[&str]| probe(&namespace, &[&["http", &format!("{URL}{path}")], words].concat());
    let (code, health) = ask("/health", &[]);
    let answer = &health["answer"];
    assert_eq!(
        (code, &answer["status"], &answer["headers"]["X-Version"]),
        (0, &json!(200), &json!("7")),
        "{health}"
    );
    assert_eq!(answer["body"], json!({"status": "up", "pool": 3}), "{health}");
    assert!((0.0..3000.0).contains(&health["value"].as_f64().unwrap()), "{health}");

    let (code, busy) = ask("/busy", &[]);
    let answer = &busy["answer"];
    assert_eq!(
        (code, &answer["status"], &answer["headers"]["Retry-After"]),
        (1, &json!(503), &json!("5")),
        "{busy}"
    );
    assert_eq!((&answer["body"], ask("/busy", &["--status", "503"]).0), (&json!("no connection left"), 0));
    assert_eq!(ask("/nothing", &["--status", "404"]).0, 0);
    // A redirect is an answer, and nobody goes there.
    let (code, moved) = ask("/moved", &["--status", "301", "--status", "302"]);
    assert_eq!(
        (code, &moved["answer"]["headers"]["Location"]),
        (0, &json!(format!("{URL}/health"))),
        "{moved}"
    );
    assert_eq!(ask("/moved", &[]).0, 1);

    let token = ["--header", "X-Token: t"];
    assert_eq!(ask("/asked", &token).1["answer"]["body"], "GET t  ");
    let post = ["--method", "POST", "--header", "Content-Type: application/json", "--body", "{\"a\":1}"];
    let (code, posted) = ask("/asked", &[&token[..], &post[..]].concat());
    assert_eq!((code, &posted["answer"]["body"]), (0, &json!("POST t application/json 7")), "{posted}");
    let (code, head) = ask("/health", &["--method", "head"]);
    assert_eq!((code, &head["answer"]["headers"]["X-Version"]), (0, &json!("7")), "{head}");
    assert_eq!(head["answer"]["body"], "", "{head}");
}

#[test]
fn a_document_judges_the_body_and_the_headers_of_a_server() {
    let (namespace, folder) = (namespace(), tempfile::tempdir().unwrap());
    let _server = nginx(&namespace, folder.path());
    let daemon = Daemon::start_with(|command| namespace.place(command)).unwrap();
    let mcp = daemon.mcp().unwrap();
    let http = |path: &str| json!({"type": "http", "url": format!("{URL}{path}"), "timeout": 3});
    let native = json!({"type": "process", "path": "chaosctl", "arguments":
        ["probe", "http", format!("{URL}/busy"), "--status", "503", "--header", "X-Token: t"]});
    let body =
        |state: &str| json!({"type": "jsonpath", "target": "body", "path": "$.status", "expect": state});
    for (provider, tolerance, met) in [
        (http("/health"), json!(200), true),
        (http("/busy"), json!(200), false),
        (http("/health"), body("up"), true),
        (http("/health"), body("down"), false),
        (http("/busy"), json!({"type": "regex", "target": "body", "pattern": "no connection"}), true),
        (
            http("/busy"),
            json!({"type": "jsonpath", "target": "headers", "path": "$['Retry-After']", "expect": "5"}),
            true,
        ),
        (native, json!(0), true),
    ] {
        let result = judge(&mcp, &provider, &tolerance);
        assert_eq!(result["steady_state_before"], met, "{provider} {tolerance}: {result}; {}", daemon.log());
    }
}
