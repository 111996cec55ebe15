//! The transport between a client that does its worst and rmcp, which takes whatever it gets.

use rmcp::model::ServerResult;
use rmcp::service::{RequestContext, Service, ServiceExt};
use rmcp::{ErrorData, model};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::*;
use crate::server::budget::{ALWAYS, Budget, MOST_HELD, MOST_MESSAGES, MOST_OF_ONE};

const CALLER: Caller = Caller::Vsock { cid: 9 };

/// Answers with a text of so many bytes; it has as many requests as it gets, each in a task.
#[derive(Clone)]
struct Parrot {
    bytes: usize,
    /// Until they may be answered.
    pause: Duration,
}

impl Service<RoleServer> for Parrot {
    async fn handle_request(
        &self,
        request: model::ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        if matches!(request, model::ClientRequest::InitializeRequest(_)) {
            return Ok(ServerResult::InitializeResult(self.get_info()));
        }
        tokio::select! {
            () = tokio::time::sleep(self.pause) => {}
            () = context.ct.cancelled() => {}
        }
        let text = model::ResourceContents::text("x".repeat(self.bytes), "x:x");
        Ok(ServerResult::ReadResourceResult(model::ReadResourceResult::new(vec![text])))
    }

    async fn handle_notification(
        &self,
        _: ClientNotification,
        _: rmcp::service::NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> model::ServerConfig {
        model::ServerConfig::default()
    }
}

/// A session of such a service.
struct Session {
    client: DuplexStream,
    budget: Budget,
    tally: Arc<Tally>,
    served: JoinHandle<()>,
}

impl Session {
    async fn open(parrot: Parrot) -> Self {
        let budget = Budget::default();
        let tally = budget.tally();
        let (client, server) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(server);
        let transport = LineTransport::new(reader, writer, Arc::clone(&tally), None, CALLER);
        let served = tokio::spawn(async move {
            let running = parrot.serve(transport).await.unwrap();
            running.waiting().await.unwrap();
        });
        let mut session = Self { client, budget, tally, served };
        session
            .say(&json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": {"protocolVersion": "2025-11-25",
                "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}))
            .await;
        session.hear().await;
        session
    }

    async fn say(&mut self, message: &Value) {
        self.client.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// The next line.
    async fn hear(&mut self) -> Value {
        let mut line = Vec::new();
        loop {
            match self.client.read_u8().await.unwrap() {
                b'\n' => return serde_json::from_slice(&line).unwrap(),
                byte => line.push(byte),
            }
        }
    }

    /// Says this again and again, and reads nothing, until nothing more is taken; how often.
    async fn flood(&mut self, most: usize, line: impl Fn(usize) -> String) -> usize {
        for count in 0..most {
            let line = line(count) + "\n";
            let mut rest = line.as_bytes();
            while !rest.is_empty() {
                let Ok(written) = timeout(Duration::from_secs(1), self.client.write(rest)).await else {
                    return count;
                };
                rest = &rest[written.unwrap()..];
            }
            let (messages, bytes) = self.tally.held();
            assert!(messages <= MOST_MESSAGES + 1 && bytes <= MOST_OF_ONE + ALWAYS, "{messages}, {bytes}");
            assert!(self.budget.held() <= MOST_HELD);
        }
        most
    }

    /// Goes away; nothing is held then.
    async fn end(self) {
        let Self { client, budget, tally, served } = self;
        drop(client);
        served.await.unwrap();
        // Handlers may end a moment later.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((tally.held(), budget.held()), ((0, 0), 0));
    }
}

fn ping(id: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

fn cancel(id: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

#[tokio::test(start_paused = true)]
async fn who_reads_nothing_is_not_read_from_and_what_was_held_is_given_back() {
    let small = Parrot { bytes: 10, pause: Duration::ZERO };
    let large = Parrot { bytes: 100_000, pause: Duration::ZERO };
    let slow = Parrot { bytes: 10, pause: Duration::from_secs(600) };
    let mut taken = Vec::new();
    for (what, parrot, line) in [
        ("pings", &small, (|id| ping(id)) as fn(usize) -> String),
        ("pings with large answers", &large, ping),
        ("pings that are not answered yet", &slow, ping),
        ("pings of one id", &slow, |_| ping(1)),
        ("what is no JSON", &small, |_| "{".to_owned()),
        ("what is no message", &small, |id| format!(r#"{{"id":{id}}}"#)),
        ("what is too deep", &small, |_| "[".repeat(200) + &"]".repeat(200)),
    ] {
        let mut session = Session::open(parrot.clone()).await;
        let count = session.flood(100_000, line).await;
        // What is left fits into the socket.
        assert!(count < 50_000, "{what}: {count} were taken");
        taken.push(format!("{what}: {count}, holding {:?}", session.tally.held()));
        session.end().await;
    }
    println!("taken of 100,000 before no more was read: {taken:#?}");
}

#[tokio::test(start_paused = true)]
async fn what_gets_no_answer_is_not_counted_for_ever() {
    let slow = Parrot { bytes: 10, pause: Duration::from_secs(600) };
    for (what, line) in [
        (
            "notifications",
            (|_| r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned()) as fn(usize) -> _,
        ),
        ("cancelled before they are answered", |id| format!("{}\n{}", ping(id), cancel(id))),
        ("cancelled twice", |id| format!("{}\n{}\n{}", ping(id), cancel(id), cancel(id))),
        ("cancelled, and never begun", cancel),
        ("answers to nothing", |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)),
    ] {
        let mut session = Session::open(slow.clone()).await;
        assert_eq!(session.flood(5_000, line).await, 5_000, "{what}");
        session.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_is_served_without_end() {
    let mut session = Session::open(Parrot { bytes: 100_000, pause: Duration::ZERO }).await;
    for id in 0..1_000 {
        session.say(&serde_json::from_str(&ping(id)).unwrap()).await;
        assert_eq!(session.hear().await["id"], id);
    }
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_read_ends_the_connection() {
    let mut session = Session::open(Parrot { bytes: 1_000_000, pause: Duration::ZERO }).await;
    let began = Instant::now();
    session.say(&serde_json::from_str(&ping(1)).unwrap()).await;
    session.tally.left().await;
    assert_eq!(began.elapsed(), UNREAD);
    let Session { client: _client, served, tally, .. } = session;
    served.await.unwrap();
    assert_eq!(tally.held(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_long_line_that_does_not_end_ends_the_connection() {
    let mut session = Session::open(Parrot { bytes: 10, pause: Duration::ZERO }).await;
    session.client.write_all(&vec![b'x'; SHORT_LINE * 2]).await.unwrap();
    let began = Instant::now();
    let answer = session.hear().await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("has to be whole within"), "{answer}");
    assert_eq!(began.elapsed(), LONG_LINE);
    session.end().await;
}

#[tokio::test(start_paused = true)]
async fn where_there_is_no_place_only_what_stops_and_looks_is_served() {
    let call = |tool: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"}}}}"#)
    };
    for (line, is_served) in [
        (ping(1), true),
        (call("chaos_stop"), true),
        (call("chaos_status"), true),
        (call("chaos_doctor"), false),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned(), false),
    ] {
        let tally = Budget::default().tally();
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(server);
        let narrow = Some("16 connections are open".to_owned());
        let mut transport: LineTransport<_, _> = LineTransport::new(reader, writer, tally, narrow, CALLER);
        client.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let received = tokio::spawn(async move { transport.receive().await });
        if is_served {
            assert!(received.await.unwrap().is_some(), "{line}");
            continue;
        }
        let mut answer = vec![0; 1024];
        let length = client.read(&mut answer).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer[..length]).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(NO_ROOM)));
        assert!(answer["error"]["message"].as_str().unwrap().contains("16 connections"), "{answer}");
        drop(client);
        assert!(received.await.unwrap().is_none());
    }
}
