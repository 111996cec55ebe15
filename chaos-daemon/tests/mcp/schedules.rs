//! Experiments that run by themselves: set, told, stopped, fired, missed, and refused.

use std::time::Duration;

use serde_json::{Value, json};

use crate::chaosctl::chaosctl;
use crate::client::{Client, PATIENCE};
use crate::double::Server;
use crate::experiments::{document, port, register};

/// A schedule of the experiment `holds` at each full minute.
fn minutely(name: &str) -> Value {
    json!({"action": "set", "name": name, "experiment": "holds", "cron": "* * * * *"})
}

async fn the_one(client: &mut Client, name: &str) -> Value {
    let (answer, failed) = client.call("chaos_schedule", json!({"action": "list", "name": name})).await;
    assert!(!failed, "{answer}");
    answer["schedules"][0].clone()
}

/// Between two times of the schedules here.
const MINUTE: Duration = Duration::from_secs(60);

/// The outcomes of a schedule, once there is one.
async fn outcomes(client: &mut Client, name: &str) -> Vec<Value> {
    let start = std::time::Instant::now();
    loop {
        let outcomes = the_one(client, name).await["outcomes"].as_array().unwrap().clone();
        if !outcomes.is_empty() {
            return outcomes;
        }
        assert!(start.elapsed() < MINUTE + PATIENCE, "{name} has no outcome");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Has the next server find that all was dealt with up to this time only.
fn set_back(server: &Server, handled: &str) {
    let path = server.state().join("schedules.json");
    let mut kept: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for schedule in kept.as_object_mut().unwrap().values_mut() {
        schedule["handled"] = json!(handled);
    }
    std::fs::write(path, kept.to_string()).unwrap();
}

#[tokio::test]
async fn a_firing_is_a_run_as_any_that_says_by_what_it_was_begun() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut holds = document("holds", &address, "200ms");
    let unit = json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "unit", "a.service"]});
    let probe = json!({"type": "probe", "name": "unit", "tolerance": 0, "provider": unit});
    holds["steady-state-hypothesis"]["probes"].as_array_mut().unwrap().push(probe);
    register(&mut client, holds).await;
    let (set, failed) = client.call("chaos_schedule", minutely("nightly")).await;
    assert!(!failed, "{set}");
    let schedule = &set["schedules"][0];
    assert_eq!((&schedule["name"], &schedule["time_zone"]), (&json!("nightly"), &json!("UTC")));
    assert_eq!(schedule["next"].as_array().unwrap().len(), 3);
    // The clock on the wall, and nothing else, has it fire.
    let fired = outcomes(&mut client, "nightly").await;
    assert_eq!((&fired[0]["became"], &fired[0]["times"]), (&json!("fired"), &json!(1)), "{fired:?}");
    let time: jiff::Timestamp = fired[0]["time"].as_str().unwrap().parse().unwrap();
    assert_eq!(time.as_second() % 60, 0);
    assert!(jiff::Timestamp::now().duration_since(time).as_secs() < 30, "{fired:?}");
    let stopped = client.call("chaos_schedule", json!({"action": "pause"})).await.0;
    assert_eq!(
        (&stopped["message"], &stopped["schedules"][0]["paused"]),
        (&json!("stands still: nightly"), &json!(true))
    );
    let run_id = &fired[0]["run_id"];
    let (told, _) = client.call("chaos_get_run", json!({"run_id": run_id, "wait_seconds": 9})).await;
    assert_eq!(told["run"]["verdict"], "held", "{told}");
    let begun = &told["events"][0];
    assert_eq!(begun["kind"], "started");
    assert!(begun["detail"].as_str().unwrap().starts_with("by schedule nightly, of uid "), "{begun}");
    assert!(!begun["detail"].as_str().unwrap().contains("pid"), "{begun}");
    assert_eq!(told["events"][1]["kind"], "phase");
    let (found, _) = client.call("chaos_list_runs", json!({"text": "schedule nightly"})).await;
    assert_eq!(&found["runs"][0]["run_id"], run_id);
    let (looks, asked): (Vec<_>, Vec<_>) =
        server.take_asked().into_iter().partition(|asked| asked.starts_with("look"));
    assert!(asked[0].starts_with("inject holds.") && asked[1].starts_with("remove holds."), "{asked:?}");
    // In the name of who has set it; the process that was on the line may be another one by now.
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    let by = format!(" for Unix {{ uid: {uid}, gid: {gid}, pid: 0 }}");
    assert!(!looks.is_empty() && looks.iter().all(|look| look.ends_with(&by)), "{looks:?}");
}

#[tokio::test]
async fn stopping_everything_names_the_schedules_that_go_on() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("holds", &address, "200ms")).await;
    let set = json!({"action": "set", "name": "yearly", "experiment": "holds", "cron": "30 4 1 1 *"});
    assert!(!client.call("chaos_schedule", set).await.1);
    let (stopped, failed) = client.call("chaos_stop", json!({})).await;
    assert!(!failed, "{stopped}");
    assert_eq!(stopped["schedules"], json!(["yearly"]));
    assert!(
        stopped["message"].as_str().unwrap().contains("chaos_schedule with action \"pause\": yearly"),
        "{stopped}"
    );
    assert!(!client.call("chaos_schedule", json!({"action": "pause"})).await.1);
    let (stopped, _) = client.call("chaos_stop", json!({})).await;
    assert_eq!((&stopped["schedules"], &stopped["message"]), (&Value::Null, &json!("nothing was active")));
}

#[tokio::test]
async fn a_schedule_survives_a_restart_and_what_came_meanwhile_is_missed() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("holds", &address, "200ms")).await;
    let set = json!({"action": "set", "name": "yearly", "experiment": "holds", "cron": "30 4 1 1 *", "seed": 7,
        "time_zone": "europe/berlin", "jitter_seconds": 600, "windows": {"only": [{"from": "04:00", "to": "05:00"}],
        "never": [{"days": "sat,sun", "from": "22:00", "to": "04:00"}]}});
    let (answer, failed) = client.call("chaos_schedule", set).await;
    assert!(!failed, "{answer}");
    let before = the_one(&mut client, "yearly").await;
    assert_eq!((&before["time_zone"], &before["seed"]), (&json!("Europe/Berlin"), &json!(7)));
    let server = server.restart().await;
    let mut client = Client::open(&server.socket).await;
    assert_eq!(the_one(&mut client, "yearly").await, before);
    set_back(&server, "2020-06-01T00:00:00Z");
    let server = server.restart().await;
    let mut client = Client::open(&server.socket).await;
    let missed = outcomes(&mut client, "yearly").await;
    assert_eq!((missed.len(), &missed[0]["became"]), (1, &json!("missed")), "{missed:?}");
    assert_eq!(missed[0]["time"], "2021-01-01T03:30:00Z");
    assert!(missed[0]["times"].as_u64().unwrap() >= 6, "{missed:?}");
    assert_eq!(the_one(&mut client, "yearly").await["next"], before["next"]);
    // Nothing was made up for.
    assert_eq!(client.call("chaos_status", json!({})).await.0["total_runs"], 0);
}

#[tokio::test]
async fn a_run_that_is_not_admitted_and_an_experiment_that_is_another_one_now_are_refused() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("holds", &address, "200ms")).await;
    let mut other = document("other", &address, "200ms");
    register(&mut client, other.clone()).await;
    for (name, experiment) in [("same", "holds"), ("twin", "holds"), ("changed", "other")] {
        let mut set = minutely(name);
        set["experiment"] = json!(experiment);
        assert!(!client.call("chaos_schedule", set).await.1);
    }
    let pinned = |name: &str| {
        let path = server.state().join("schedules.json");
        let kept: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        kept[name]["digest"].as_str().unwrap().to_owned()
    };
    assert_ne!(pinned("same"), pinned("changed"));
    // Somebody else has something else done under the name.
    other["method"][0]["provider"]["arguments"]["--interface"] = json!("eth1");
    register(&mut client, other).await;
    // The last full minute is not so long ago that it would be missed.
    let mut now = jiff::Timestamp::now().as_second();
    while now % 60 > 50 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        now = jiff::Timestamp::now().as_second();
    }
    set_back(&server, &jiff::Timestamp::from_second(now - now % 60 - 1).unwrap().to_string());
    let server = server.restart().await;
    let mut client = Client::open(&server.socket).await;
    let changed = outcomes(&mut client, "changed").await;
    assert_eq!(changed[0]["became"], "refused", "{changed:?}");
    assert!(changed[0]["reason"].as_str().unwrap().contains("was registered anew"), "{changed:?}");
    let same = outcomes(&mut client, "same").await;
    assert_eq!(same[0]["became"], "fired", "{same:?}");
    // As a run by hand would be.
    let twin = outcomes(&mut client, "twin").await;
    assert_eq!(twin[0]["became"], "refused", "{twin:?}");
    assert!(twin[0]["reason"].as_str().unwrap().contains("is running already"), "{twin:?}");
    // Set again, it is pinned to what is there now.
    let (set, failed) = client
        .call(
            "chaos_schedule",
            json!({"action": "set", "name": "changed", "experiment": "other",
        "cron": "0 4 * * *", "paused": true}),
        )
        .await;
    assert!(!failed, "{set}");
    assert_eq!((&set["schedules"][0]["outcomes"], &set["schedules"][0]["next"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_its_field() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("holds", &address, "200ms")).await;
    let with = |field: &str, value: Value| {
        let mut set = minutely("x");
        set[field] = value;
        set
    };
    let only = |window: Value| with("windows", json!({"only": [window]}));
    for (arguments, code, text) in [
        (json!({}), "MISSING_PARAMETER", "action: "),
        (json!({"action": "explode"}), "INVALID_PARAMETER", "action: "),
        (json!({"action": "set"}), "MISSING_PARAMETER", "name: "),
        (json!({"action": "delete"}), "MISSING_PARAMETER", "name: "),
        (json!({"action": "list", "cron": "* * * * *"}), "INVALID_PARAMETER", "cron: "),
        (json!({"action": "list", "name": "none"}), "SCHEDULE_NOT_FOUND", "there is no schedule \"none\""),
        (json!({"action": "pause", "name": "none"}), "SCHEDULE_NOT_FOUND", "there is no schedule \"none\""),
        (with("name", json!("two words")), "INVALID_PARAMETER", "name: "),
        (
            with("experiment", json!("none")),
            "EXPERIMENT_NOT_FOUND",
            "no experiment is registered as \"none\"",
        ),
        (with("experiment", Value::Null), "MISSING_PARAMETER", "experiment: "),
        (with("cron", json!("61 * * * *")), "INVALID_PARAMETER", "cron: minute: \"61\": give 0 to 59"),
        (with("cron", json!("0 0 30 2 *")), "INVALID_PARAMETER", "cron: "),
        (with("time_zone", json!("Mars/Olympus")), "INVALID_PARAMETER", "time_zone: "),
        (with("jitter_seconds", json!(100_000)), "INVALID_PARAMETER", "jitter_seconds: "),
        (with("jitter_seconds", json!(-1)), "INVALID_PARAMETER", "jitter_seconds: "),
        (with("seed", json!(0.5)), "INVALID_PARAMETER", "seed: "),
        (with("surprise", json!(1)), "INVALID_PARAMETER", "surprise: "),
        (with("windows", json!({"sometimes": []})), "INVALID_PARAMETER", "windows.sometimes: "),
        (only(json!({"from": "09:00"})), "MISSING_PARAMETER", "windows.only[0].to: "),
        (only(json!({"from": "9", "to": "17:00"})), "INVALID_PARAMETER", "windows.only[0].from: "),
        (
            only(json!({"days": "someday", "from": "09:00", "to": "17:00"})),
            "INVALID_PARAMETER",
            "windows.only[0].days: ",
        ),
        (
            with("windows", json!({"never": [{"from": "00:00", "to": "24:00"}]})),
            "INVALID_PARAMETER",
            "windows: ",
        ),
    ] {
        let (answer, failed) = client.call("chaos_schedule", arguments.clone()).await;
        assert!(failed, "{arguments}: {answer}");
        let (seen, message) = (&answer["error"]["code"], answer["error"]["message"].as_str().unwrap());
        assert!(*seen == json!(code) && message.starts_with(text), "{arguments}: {answer}");
    }
    let (all, failed) = client.call("chaos_schedule", json!({"action": "list"})).await;
    assert_eq!((failed, &all["schedules"]), (false, &json!([])));
    assert!(!server.state().join("schedules.json").exists());
}

#[tokio::test]
async fn an_operator_sets_looks_stops_and_deletes() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("holds", &address, "200ms")).await;
    let socket = &server.socket;
    assert_eq!(chaosctl(socket, &["schedule", "list"]).await.stdout, "no schedule\n");
    let arguments = "schedule set office --experiment holds --time-zone Europe/Berlin --jitter 5m --seed 7";
    let mut arguments: Vec<_> = arguments.split(' ').collect();
    arguments.extend(["--cron", "0 10 * * 1-5", "--only", "mon-fri 09:00-17:00", "--never", "12:00-13:00"]);
    let set = chaosctl(socket, &arguments).await;
    assert_eq!(set.code, 0, "{}", set.stderr);
    let text = "set: office\noffice: holds at \"0 10 * * 1-5\", Europe/Berlin\n  set by uid ";
    assert!(set.stdout.starts_with(text), "{}", set.stdout);
    for part in
        ["  only mon-fri 09:00-17:00\n  never 12:00-13:00\n  up to 5m later, by seed 7\n  next 20", "T10:0"]
    {
        assert!(set.stdout.contains(part), "{part}: {}", set.stdout);
    }
    let shown = chaosctl(socket, &["schedule", "show", "office"]).await.stdout;
    assert_eq!(format!("set: office\n{shown}"), set.stdout);
    let list = chaosctl(socket, &["schedule", "list"]).await.stdout;
    assert!(list.starts_with("office  0 10 * * 1-5  Europe/Berlin  holds  next 20"), "{list}");
    let json: Value =
        serde_json::from_str(&chaosctl(socket, &["--json", "schedule", "list"]).await.stdout).unwrap();
    assert_eq!(
        (&json["schedules"][0]["jitter_seconds"], &json["schedules"][0]["seed"]),
        (&json!(300), &json!(7))
    );
    assert_eq!(
        json["schedules"][0]["windows"]["only"][0],
        json!({"days": "mon-fri", "from": "09:00", "to": "17:00"})
    );
    assert_eq!(chaosctl(socket, &["schedule", "pause", "--all"]).await.stdout, "stands still: office\n");
    let list = chaosctl(socket, &["schedule", "list"]).await.stdout;
    assert_eq!(list, "office  0 10 * * 1-5  Europe/Berlin  holds  paused\n");
    assert_eq!(chaosctl(socket, &["schedule", "resume", "office"]).await.stdout, "goes on: office\n");
    assert_eq!(chaosctl(socket, &["schedule", "resume", "--all"]).await.stdout, "nothing stood still\n");
    assert_eq!(chaosctl(socket, &["schedule", "delete", "office"]).await.stdout, "deleted: office\n");
    assert_eq!(chaosctl(socket, &["schedule", "show", "office"]).await.code, 1);
    for wrong in [
        &["schedule", "pause"][..],
        &["schedule", "pause", "x", "--all"],
        &["schedule", "set", "x", "--experiment", "holds"],
        &["schedule", "set", "x", "--experiment", "holds", "--cron", "* * * * *", "--only", "always"],
        &["schedule", "set", "x", "--experiment", "holds", "--cron", "* * * * *", "--jitter", "5"],
    ] {
        assert_eq!(chaosctl(socket, wrong).await.code, 2, "{wrong:?}");
    }
    let refused =
        chaosctl(socket, &["schedule", "set", "x", "--experiment", "holds", "--cron", "0 25 * * *"]).await;
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.starts_with("chaosctl: cron: hour: \"25\": give 0 to 23"), "{}", refused.stderr);
}
