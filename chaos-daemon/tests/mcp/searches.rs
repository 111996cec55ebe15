//! Searches: from a document to the failure that barely happens, by runs of which the injector is a double and the service a known one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chaos_daemon::spec::{FaultRequest, QualifiedName};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::chaosctl::chaosctl;
use crate::client::Client;
use crate::double::Server;
use crate::experiments::{document, port, register};

type Active = Arc<Mutex<BTreeMap<QualifiedName, (FaultRequest, Instant)>>>;

/// At which delay the service breaks, in milliseconds: its p95 is 20 and half of the delay, and 200 is allowed.
const BREAKS_AT: f64 = 360.0;
/// How long a whole search may take here.
const SEARCH: Duration = Duration::from_secs(120);

/// The p95 of a service that is slower by half of the delay that is injected.
fn p95(active: &Active) -> f64 {
    let active = active.lock().unwrap();
    let delays = active.values().filter_map(|(fault, _)| fault.params.get("delay_ms")?.as_f64());
    20.0 + delays.sum::<f64>() / 2.0
}

/// A Prometheus that tells of that service; another server may take the place of the one whose faults it has.
async fn prometheus(service: Arc<Mutex<Active>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let active = Arc::clone(&service.lock().unwrap());
            tokio::spawn(async move {
                let (read, mut write) = stream.split();
                let mut lines = BufReader::new(read).lines();
                while lines.next_line().await.unwrap().is_some_and(|line| !line.is_empty()) {}
                let value = p95(&active).to_string();
                let now = jiff::Timestamp::now().as_second();
                let data = json!({"resultType": "scalar", "result": [now, value]});
                let body = json!({"status": "success", "data": data}).to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                // Who has asked may have gone.
                let _ = write.write_all((head + &body).as_bytes()).await;
            });
        }
    });
    address
}

/// The experiment "shop", whose delay is searched for where its p95 is missed.
async fn shop(server: &Server, address: &str, budget: Value) -> Value {
    shop_of(Arc::new(Mutex::new(Arc::clone(&server.active))), address, budget).await
}

async fn shop_of(service: Arc<Mutex<Active>>, address: &str, budget: Value) -> Value {
    let prometheus = prometheus(service).await;
    let mut shop = document("shop", address, "400ms");
    shop["method"] = json!([{"type": "action", "name": "slow", "provider": {"type": "process", "path": "chaosctl",
        "arguments": {"inject": "latency", "--interface": "eth0", "--delay": "1ms", "--for": "400ms"}}}]);
    let provider = json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "prometheus", prometheus, "p95"]});
    shop["extensions"] = json!([{"name": "chaos-daemon",
        "rollback_on": [{"name": "p95", "provider": provider, "op": "gt", "value": 200, "interval": "100ms"}],
        "search": {"parameters": [{"action": "slow", "parameter": "delay", "from": 10, "to": 1000, "unit": "ms", "scale": "log"}],
            "objective": ["p95"], "budget": budget, "seed": 7}}]);
    shop
}

async fn status(client: &mut Client, name: &str) -> Value {
    let asked = json!({"action": "status", "name": name, "picture": "text", "document": true});
    let (answer, failed) = client.call("chaos_search", asked).await;
    assert!(!failed, "{answer}");
    answer["searches"][0].clone()
}

/// What is known of a search once this is so.
async fn until(client: &mut Client, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let found = status(client, name).await;
        if is_so(&found) {
            return found;
        }
        assert!(start.elapsed() < SEARCH, "{found}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn has_ended(search: &Value) -> bool {
    search["state"] != "going_on"
}

fn steps(search: &Value) -> Vec<Value> {
    search["steps"].as_array().unwrap().clone()
}

/// The delay that a candidate says, in milliseconds.
fn delay(candidate: &Value) -> f64 {
    let text = candidate.as_str().unwrap();
    let rest = text.strip_prefix("slow delay ").unwrap_or_else(|| panic!("{text}"));
    rest.split_once("ms").unwrap().0.parse().unwrap()
}

async fn start(client: &mut Client, name: &str) -> Value {
    let (begun, failed) = client.call("chaos_search", json!({"action": "start", "name": name})).await;
    assert!(!failed, "{begun}");
    begun
}

#[tokio::test]
async fn a_search_finds_the_delay_at_which_a_service_breaks_by_runs_that_are_as_any() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, shop(&server, &address, json!({"runs": 40, "time": "10m"})).await).await;
    let begun = start(&mut client, "shop").await;
    assert_eq!((&begun["message"], &begun["searches"][0]["seed"]), (&json!("begun: shop"), &json!(7)));
    let again = client.call("chaos_search", json!({"action": "start", "name": "shop"})).await;
    assert!(again.1 && again.0["error"]["code"] == "LIMIT_REACHED", "{again:?}");
    let found = until(&mut client, "shop", has_ended).await;
    assert_eq!(found["state"], "found", "{found:#}");
    let best = &found["best"];
    assert_eq!(best["confirmed"], true, "{best}");
    let at = delay(&best["candidate"]);
    assert!((BREAKS_AT..BREAKS_AT * 1.1).contains(&at), "{best}");
    let begins: Vec<f64> = best["begins"].as_array().unwrap().iter().map(delay).collect();
    assert!(begins[0] <= BREAKS_AT * 1.05 && BREAKS_AT * 0.95 <= begins[1], "{best}");
    assert!(found["picture"].as_str().unwrap().contains('◆'), "{found:#}");
    // Each step is a run of its own, and the history says of which step.
    let steps = steps(&found);
    assert_eq!(steps.len() as u64, found["runs"].as_u64().unwrap());
    assert!(steps.len() <= 40, "{found:#}");
    for step in &steps {
        let (run, _) = client.call("chaos_get_run", json!({"run_id": step["run_id"]})).await;
        assert_eq!(run["run"]["verdict"], step["verdict"], "{run}");
        let begun = run["events"][0]["detail"].as_str().unwrap();
        assert!(begun.starts_with(&format!("by search shop, step {}, of uid ", step["number"])), "{begun}");
        // On a host that is busy a run may show nothing, which counts and is repeated.
        let Some(margin) = step["margin"].as_f64() else { continue };
        let failed = margin > 0.0;
        assert_eq!(
            (&step["verdict"] == "tripped", delay(&step["candidate"]) > BREAKS_AT),
            (failed, failed),
            "{step}"
        );
    }
    assert_eq!(server.active.lock().unwrap().len(), 0);
    // The document of it is one that can be registered, and shows the same.
    register(&mut client, found["document"].clone()).await;
    let (run, _) = client.call("chaos_run_experiment", json!({"experiment_name": "shop (minimal)"})).await;
    assert_eq!(run["verdict"], "tripped", "{run}");
    assert!(found["document"]["description"].as_str().unwrap().contains("with seed 7"), "{found:#}");
}

#[tokio::test]
async fn a_search_goes_on_after_the_server_died_in_its_midst_and_keeps_to_its_budget() {
    const RUNS: u64 = 8;
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let service = Arc::new(Mutex::new(Arc::clone(&server.active)));
    let shop = shop_of(Arc::clone(&service), &address, json!({"runs": RUNS, "time": "10m"})).await;
    register(&mut client, shop).await;
    start(&mut client, "shop").await;
    // In the midst of its fourth run.
    let runs_now = |search: &Value| {
        let steps = steps(search);
        steps.len() == 4 && steps[3]["run_id"].is_string() && steps[3]["seconds"].is_null()
    };
    let before = until(&mut client, "shop", runs_now).await;
    let server = server.restart().await;
    *service.lock().unwrap() = Arc::clone(&server.active);
    let mut client = Client::open(&server.socket).await;
    let after = until(&mut client, "shop", |search| steps(search).len() > 4).await;
    assert_eq!(steps(&after)[..3], steps(&before)[..3], "no step is lost");
    let lost = &steps(&after)[3];
    assert_eq!(
        (&lost["candidate"], &lost["run_id"], &lost["no_data"]),
        (&steps(&before)[3]["candidate"], &steps(&before)[3]["run_id"], &json!("interrupted")),
        "{lost}"
    );
    let ended = until(&mut client, "shop", has_ended).await;
    let budget = &ended["state"] == "budget: runs";
    assert!(budget || ended["state"] == "found", "{ended:#}");
    assert!(ended["runs"].as_u64().unwrap() <= RUNS, "{ended:#}");
    assert!(!budget || ended["runs"] == RUNS, "{ended:#}");
    // Once more: what has ended stays so.
    let server = server.restart().await;
    let mut client = Client::open(&server.socket).await;
    assert_eq!(status(&mut client, "shop").await, ended);
}

#[tokio::test]
async fn whoever_stops_a_search_its_run_or_everything_ends_it_and_its_faults() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut shop = shop(&server, &address, json!({"runs": 40, "time": "10m"})).await;
    shop["method"][0]["provider"]["arguments"]["--for"] = json!("30s");
    register(&mut client, shop).await;
    for way in ["search", "run", "everything"] {
        start(&mut client, "shop").await;
        let running = until(&mut client, "shop", |search| {
            steps(search).last().is_some_and(|step| step["run_id"].is_string())
        })
        .await;
        let run = &steps(&running)[0]["run_id"];
        let (tool, arguments) = match way {
            "search" => ("chaos_search", json!({"action": "stop", "name": "shop"})),
            "run" => ("chaos_stop", json!({"run_id": run})),
            _ => ("chaos_stop", json!({})),
        };
        let (answer, failed) = client.call(tool, arguments).await;
        assert!(!failed, "{way}: {answer}");
        let ended =
            until(&mut client, "shop", |search| has_ended(search) && !steps(search)[0]["seconds"].is_null())
                .await;
        assert_eq!((&ended["state"], steps(&ended).len()), (&json!("stopped"), 1), "{way}: {ended:#}");
        assert_eq!(steps(&ended)[0]["verdict"], "aborted", "{way}: {ended:#}");
        assert_eq!(server.active.lock().unwrap().len(), 0, "{way}");
    }
}

#[tokio::test]
async fn a_failure_is_minimised_from_the_run_that_showed_it() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut shop = shop(&server, &address, json!({"runs": 40, "time": "10m"})).await;
    // As much may be predicted as the harshest shows, which is tried first of all.
    shop["extensions"][0]["search"]["repeats"] = json!(1);
    register(&mut client, shop).await;
    let none = client.call("chaos_search", json!({"action": "minimise", "name": "shop"})).await;
    assert!(none.1 && none.0["error"]["code"] == "SEARCH_NOT_FOUND", "{none:?}");
    start(&mut client, "shop").await;
    let found = until(&mut client, "shop", has_ended).await;
    let failed = |step: &&Value| step["margin"].as_f64().is_some_and(|margin| margin > 0.0);
    let steps = steps(&found);
    let harsh =
        steps.iter().filter(failed).max_by(|a, b| delay(&a["candidate"]).total_cmp(&delay(&b["candidate"])));
    let asked = json!({"action": "minimise", "name": "shop", "run_id": harsh.unwrap()["run_id"]});
    let (begun, refused) = client.call("chaos_search", asked).await;
    assert!(!refused, "{begun}");
    assert_eq!(begun["message"], "begun: shop (minimal)");
    let minimal = until(&mut client, "shop (minimal)", has_ended).await;
    assert_eq!(minimal["state"], "found", "{minimal:#}");
    let at = delay(&minimal["best"]["candidate"]);
    assert!((BREAKS_AT..BREAKS_AT * 1.1).contains(&at), "{minimal:#}");
    let (all, _) = client.call("chaos_search", json!({"action": "list"})).await;
    let names: Vec<_> =
        all["searches"].as_array().unwrap().iter().map(|search| search["name"].clone()).collect();
    assert_eq!(names, ["shop", "shop (minimal)"]);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_its_field() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("plain", &address, "200ms")).await;
    for (arguments, code, text) in [
        (json!({}), "MISSING_PARAMETER", "action: "),
        (json!({"action": "explode", "name": "plain"}), "INVALID_PARAMETER", "action: "),
        (json!({"action": "start"}), "MISSING_PARAMETER", "name: "),
        (json!({"action": "start", "name": "none"}), "EXPERIMENT_NOT_FOUND", "no experiment is registered"),
        (json!({"action": "start", "name": "plain"}), "INVALID_PARAMETER", "extensions: there is no search"),
        (json!({"action": "start", "name": "plain", "seed": -1}), "INVALID_PARAMETER", "seed: "),
        (json!({"action": "status", "name": "plain"}), "SEARCH_NOT_FOUND", "there is no search \"plain\""),
        (json!({"action": "status", "name": "plain", "picture": "oil"}), "INVALID_PARAMETER", "picture: "),
        (json!({"action": "list", "surprise": 1}), "INVALID_PARAMETER", "surprise: "),
    ] {
        let (answer, failed) = client.call("chaos_search", arguments.clone()).await;
        assert!(failed, "{arguments}: {answer}");
        let (seen, message) = (&answer["error"]["code"], answer["error"]["message"].as_str().unwrap());
        assert!(*seen == json!(code) && message.starts_with(text), "{arguments}: {answer}");
    }
    assert!(!server.state().join("search-0.json").exists());
}

#[tokio::test]
async fn an_operator_searches_looks_lists_and_keeps_what_was_found() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let shop = shop(&server, &address, json!({"runs": 40, "time": "10m"})).await;
    std::fs::write(file("shop.json"), shop.to_string()).unwrap();
    let socket = &server.socket;
    assert_eq!(chaosctl(socket, &["search", "list"]).await.stdout, "no search\n");
    let arguments = [
        "search",
        &file("shop.json"),
        "--seed",
        "9",
        "--svg",
        &file("a.svg"),
        "--document",
        &file("minimal.json"),
    ];
    let searched = chaosctl(socket, &arguments).await;
    assert_eq!(searched.code, 0, "{}{}", searched.stdout, searched.stderr);
    assert!(searched.stderr.starts_with("chaosctl: searching shop, with seed 9;"), "{}", searched.stderr);
    let (first, second) = (searched.stdout.lines().next().unwrap(), searched.stdout.lines().nth(1).unwrap());
    assert!(
        first.starts_with("  1  slow delay ") && second.starts_with("  2  slow delay "),
        "{}",
        searched.stdout
    );
    for text in ["◆", "shop: found, after ", "  the mildest failure: slow delay ", "the picture: "] {
        assert!(searched.stdout.contains(text), "{text}: {}", searched.stdout);
    }
    assert!(std::fs::read_to_string(file("a.svg")).unwrap().starts_with("<svg"));
    let shown = chaosctl(socket, &["search", "status", "shop"]).await;
    assert_eq!(shown.code, 0);
    assert!(shown.stdout.starts_with(first), "{}", shown.stdout);
    let list = chaosctl(socket, &["search", "list"]).await.stdout;
    assert!(list.starts_with("shop  found  "), "{list}");
    assert_eq!(chaosctl(socket, &["search", "stop", "shop"]).await.stdout, "shop had ended\n");
    // What was kept shows it, wherever it is run.
    let run = chaosctl(socket, &["run", &file("minimal.json")]).await;
    assert_eq!(run.code, 4, "tripped: {}{}", run.stdout, run.stderr);
    assert_eq!(chaosctl(socket, &["search", "none"]).await.code, 1);
    assert_eq!(chaosctl(socket, &["search", "status", "none"]).await.code, 1);
    for wrong in
        [&["search"][..], &["search", "x", "--run", "y"], &["search", "x", "--minimise", "--seed", "1"]]
    {
        assert_eq!(chaosctl(socket, wrong).await.code, 2, "{wrong:?}");
    }
}
