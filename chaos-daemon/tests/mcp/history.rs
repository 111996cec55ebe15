//! What has run: found again, searched, and told in whole, also by the next server.

use serde_json::{Value, json};

use crate::chaosctl::chaosctl;
use crate::client::Client;
use crate::double::Server;
use crate::experiments::{document, port, register, until};

/// A server with three runs: `holds` held, `denied` could not inject, `holds` held again.
async fn with_runs() -> (Server, tokio::net::TcpListener) {
    let server = Server::start().await;
    let (listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("holds", &address, "200ms")).await;
    let mut denied = document("denied", &address, "200ms");
    denied["method"][0]["provider"]["arguments"] =
        json!({"inject": "timeout", "--interface": "nonetem0", "--for": "200ms"});
    register(&mut client, denied).await;
    for name in ["holds", "denied", "holds"] {
        let (result, failed) = client.call("chaos_run_experiment", json!({"experiment_name": name})).await;
        assert!(!failed, "{result}");
        assert_eq!(result.get("warning"), None, "{result}");
    }
    (server, listener)
}

fn names(found: &Value) -> Vec<&str> {
    let runs = found["runs"].as_array().unwrap();
    runs.iter().map(|run| run["experiment_name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn runs_are_found_and_told_in_whole_also_after_a_restart() {
    let (server, _listener) = with_runs().await;
    let server = server.restart().await;
    let mut client = Client::open(&server.socket).await;
    let (status, _) = client.call("chaos_status", json!({"include_results": true})).await;
    assert_eq!((&status["total_runs"], status["results"].as_array().unwrap().len()), (&json!(3), 3));
    let (found, failed) = client.call("chaos_list_runs", json!({})).await;
    assert!(!failed, "{found}");
    assert_eq!(names(&found), ["holds", "denied", "holds"]);
    for (filter, expected) in [
        (json!({"experiment_name": "denied"}), vec!["denied"]),
        (json!({"fault": "network_partition"}), vec!["holds", "holds"]),
        (json!({"fault": "timeout", "verdict": "failed"}), vec!["denied"]),
        (json!({"verdict": "deviated"}), vec![]),
        (json!({"target": "nonetem0"}), vec!["denied"]),
        (json!({"text": "NEEDS SCH_NETEM"}), vec!["denied"]),
        (json!({"until": "2026-01-01T00:00:00Z", "since": "2025-01-01T00:00:00Z"}), vec![]),
        (json!({"limit": 1}), vec!["holds"]),
    ] {
        let (found, failed) = client.call("chaos_list_runs", filter.clone()).await;
        assert!(!failed, "{filter}: {found}");
        assert_eq!(names(&found), expected, "{filter}");
    }
    assert_eq!(found["runs"][0]["fault_types"], json!(["network_partition"]));
    assert_eq!(found["runs"][0]["digest"], found["runs"][2]["digest"]);

    let run_id = found["runs"][0]["run_id"].as_str().unwrap();
    let (told, failed) =
        client.call("chaos_get_run", json!({"run_id": &run_id[..12], "all_samples": true})).await;
    assert!(!failed, "{told}");
    assert_eq!((&told["run"]["run_id"], &told["run"]["verdict"]), (&json!(run_id), &json!("held")));
    assert_eq!(told["document"]["title"], "holds");
    let kinds: Vec<_> =
        told["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    let expected = [
        "started",
        "phase",
        "met",
        "phase",
        "injecting",
        "injected",
        "phase",
        "phase",
        "removing",
        "removed",
        "phase",
        "met",
        "phase",
    ];
    assert_eq!(kinds, expected);
    // By the kernel's word; what a client says of itself is nobody's business.
    let by = format!("by uid {}, pid {}", nix::unistd::getuid(), std::process::id());
    assert_eq!((&told["events"][0]["detail"], &told["events"][0]["at_seconds"]), (&json!(by), &json!(0.0)));
    let phases: Vec<_> =
        told["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "phase").collect();
    let phases: Vec<_> = phases.iter().map(|event| event["subject"].as_str().unwrap()).collect();
    assert_eq!(phases, ["before", "method", "lasting", "unwinding", "after", "finished"]);
    let samples = told["samples"].as_array().unwrap();
    // In between a partition has its recovery looked for, as often as there is time.
    let judged: Vec<_> = samples.iter().filter(|sample| sample["role"] == "steady_state").collect();
    let stages: Vec<_> = judged.iter().map(|sample| (&sample["stage"], &sample["met"])).collect();
    assert_eq!(stages, [(&json!("before"), &json!(true)), (&json!("after"), &json!(true))]);
    assert!(samples.iter().all(|sample| sample["probe"] == "port" && sample["value"].is_number()), "{told}");
    assert_eq!(told["faults"][0]["fault_type"], "network_partition");
    // From injection to removal: as long as the fault lasts.
    let at = |kind: &str| {
        let event = told["events"].as_array().unwrap().iter().find(|event| event["kind"] == kind).unwrap();
        event["at_seconds"].as_f64().unwrap()
    };
    assert!((0.15..2.0).contains(&(at("removed") - at("injected"))), "{told}");
}

#[tokio::test]
async fn what_cannot_be_looked_for_is_refused_by_name() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for (filter, field) in [
        (json!({"verdict": "green"}), "verdict"),
        (json!({"since": "yesterday"}), "since"),
        (json!({"limit": 0}), "limit"),
        (json!({"limit": 2.5}), "limit"),
        (json!({"surprise": 1}), "surprise"),
    ] {
        let (found, failed) = client.call("chaos_list_runs", filter).await;
        assert!(failed, "{found}");
        assert!(found["error"]["message"].as_str().unwrap().contains(field), "{found}");
        assert_eq!(found["runs"], json!([]));
    }
    let (told, failed) = client.call("chaos_get_run", json!({"run_id": "none"})).await;
    assert!(failed);
    assert_eq!((&told["error"]["code"], &told["run"]["run_id"]), (&json!("RUN_NOT_FOUND"), &json!("none")));
}

#[tokio::test]
async fn an_operator_searches_and_looks() {
    let (server, _listener) = with_runs().await;
    let socket = &server.socket;
    let list = async |words: &[&str]| {
        let output = chaosctl(socket, &[&["runs"], words].concat()).await;
        assert_eq!(output.code, 0, "{}", output.stderr);
        output.stdout
    };
    assert_eq!(list(&[]).await.lines().count(), 3);
    assert_eq!(
        list(&["--verdict", "held", "--fault", "network_partition", "--since", "1h"]).await.lines().count(),
        2
    );
    assert!(list(&["--text", "sch_netem"]).await.contains("  failed  denied  "));
    assert_eq!(list(&["--text", &format!(", pid {}", std::process::id())]).await.lines().count(), 3);
    assert_eq!(list(&["--text", ", pid 0"]).await, "no such run\n");
    assert_eq!(list(&["--until", "2d"]).await, "no such run\n");
    // The latest, as the last line.
    assert_eq!(
        list(&["--limit", "1"]).await,
        list(&[]).await.lines().last().map(|line| format!("{line}\n")).unwrap()
    );
    for wrong in [["--verdict", "green"], ["--since", "soon"], ["--limit", "0"]] {
        assert_eq!(chaosctl(socket, &["runs", wrong[0], wrong[1]]).await.code, 2, "{wrong:?}");
    }
    let found = chaosctl(socket, &["--json", "runs", "--experiment", "denied"]).await.stdout;
    let found: Value = serde_json::from_str(&found).unwrap();
    let run_id = found["results"][0]["run_id"].as_str().unwrap();
    let shown = chaosctl(socket, &["show", run_id]).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("injection failed: denied."), "{}", shown.stdout);
    let report = chaosctl(socket, &["report", run_id]).await;
    assert!(
        report.code == 0 && report.stdout.starts_with("# denied\n"),
        "{}{}",
        report.stdout,
        report.stderr
    );
    assert!(report.stdout.contains("failed") && report.stdout.contains("uid "), "{}", report.stdout);
    let file = server.state().join("report.html");
    let written =
        chaosctl(socket, &["report", run_id, "--format", "html", "--output", file.to_str().unwrap()]).await;
    assert_eq!((written.code, written.stdout.as_str()), (0, ""), "{}", written.stderr);
    assert!(std::fs::read_to_string(file).unwrap().contains("<svg"));
    let journal = chaosctl(socket, &["--json", "report", run_id, "--format", "journal"]).await.stdout;
    let journal: Value = serde_json::from_str(&journal).unwrap();
    assert_eq!((&journal["status"], &journal["experiment"]["title"]), (&json!("failed"), &json!("denied")));
    let shown = chaosctl(socket, &["--json", "show", run_id]).await.stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["run"]["verdict"], "failed");
    assert!(shown["events"].as_array().is_some_and(|events| events.len() > 3), "{shown}");
}

#[tokio::test]
async fn all_runs_together_have_figures_and_each_has_a_score() {
    let (server, listener) = with_runs().await;
    drop(listener);
    let mut client = Client::open(&server.socket).await;
    // The steady state is not met any more, with the same document.
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "holds"})).await;
    assert_eq!(result["verdict"], "refused");
    let (all, failed) = client.call("chaos_statistics", json!({})).await;
    assert!(!failed, "{all}");
    assert_eq!((&all["runs"], &all["successes"], &all["success_rate"]), (&json!(4), &json!(2), &json!(0.5)));
    assert_eq!(all["verdicts"][0], json!({"name": "held", "runs": 2}));
    let modes = json!([{"name": "injection_refused", "runs": 1}, {"name": "not_steady_before", "runs": 1}]);
    assert_eq!(all["failure_modes"], modes);
    let partition = &all["faults"][0];
    assert_eq!((&partition["name"], &partition["runs"]), (&json!("network_partition"), &json!(3)));
    // Refused, the third has asked for none.
    for field in ["asked", "injected", "effective", "removed_clean", "successes"] {
        assert_eq!(partition[field], 2, "{field}: {partition}");
    }
    let timeout = &all["faults"][1];
    assert_eq!(
        (&timeout["asked"], &timeout["injected"], &timeout["success_rate"]),
        (&json!(1), &json!(0), &json!(0.0))
    );
    assert_eq!(all["mean_score"], 50.0);
    let (one, _) = client.call("chaos_statistics", json!({"experiment_name": "denied"})).await;
    assert_eq!((&one["runs"], &one["mean_score"]), (&json!(1), &json!(0.0)));
    let (found, _) = client.call("chaos_list_runs", json!({"verdict": "held", "limit": 1})).await;
    assert_eq!(found["runs"][0]["score"], 100);
    let (told, _) = client.call("chaos_get_run", json!({"run_id": found["runs"][0]["run_id"]})).await;
    assert_eq!(told["resiliency"]["factors"][0]["probe_success_percent"], 100.0);
    let text = chaosctl(&server.socket, &["stats"]).await.stdout;
    assert!(
        text.starts_with("4 runs, 50 % of those that show something successful, mean resiliency score 50\n"),
        "{text}"
    );
    let line = "network_partition: 3 runs; of 2 faults 2 injected, 2 seen to act, 2 removed clean\n";
    assert!(text.contains(line), "{text}");
    let text = chaosctl(&server.socket, &["stats", "nothing"]).await.stdout;
    assert_eq!(text, "0 runs, 0 % of those that show something successful\n");
    for (words, counted) in [
        (vec!["holds"], 3),
        (vec!["holds", "--verdict", "held"], 2),
        (vec!["--fault", "timeout"], 1),
        (vec!["--target", "nonetem0", "--since", "1h"], 1),
        (vec!["--text", "needs sch_netem"], 1),
        (vec!["--until", "2d"], 0),
    ] {
        let text = chaosctl(&server.socket, &[&["stats"], words.as_slice()].concat()).await.stdout;
        assert!(text.starts_with(&format!("{counted} runs, ")), "{words:?}: {text}");
    }
    for wrong in [["--since", "soon"], ["--verdict", "green"], ["--limit", "1"]] {
        assert_eq!(chaosctl(&server.socket, &["stats", wrong[0], wrong[1]]).await.code, 2, "{wrong:?}");
    }
}

#[tokio::test]
async fn a_run_that_a_server_did_not_end_is_found_with_its_faults() {
    let server = Server::start().await;
    drop(Client::open(&server.socket).await);
    let note = json!({"feed": {"experiment": "broke off", "started_at": "2026-02-05T10:00:00.000Z", "faults": ["cut"],
        "described": [{"name": "cut", "fault_type": "network_partition", "target": "{}", "seconds": 60.0}],
        "digest": "d1"}});
    std::fs::write(server.state().join("runs.json"), note.to_string()).unwrap();
    let server = server.restart().await;
    let mut client = Client::open(&server.socket).await;
    let filter = json!({"fault": "network_partition", "verdict": "interrupted"});
    let (found, _) = client.call("chaos_list_runs", filter).await;
    assert_eq!(names(&found), ["broke off"]);
    assert_eq!((&found["runs"][0]["run_id"], &found["runs"][0]["digest"]), (&json!("feed"), &json!("d1")));
    let (told, failed) = client.call("chaos_get_run", json!({"run_id": "feed"})).await;
    assert!(!failed && told["run"]["error"].as_str().unwrap().contains("(cut)"), "{told}");
    // Once.
    let server = server.restart().await;
    let mut client = Client::open(&server.socket).await;
    assert_eq!(client.call("chaos_status", json!({})).await.0["total_runs"], 1);
}

#[tokio::test]
async fn what_a_run_has_seen_is_known_whatever_becomes_of_its_server() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("cut off", &address, "10m")).await;
    let run = json!({"experiment_name": "cut off", "wait_seconds": 0});
    let (begun, _) = client.call("chaos_run_experiment", run).await;
    let run_id = begun["run_id"].as_str().unwrap().to_owned();
    let diary = format!("run-{run_id}.jsonl");
    let written = || std::fs::read_to_string(server.state().join(&diary)).unwrap_or_default();
    // The fault was looked at, and a beat has passed.
    until(|| written().contains("\"affected\":7") || written().contains("packets_affected\":7")).await;
    let last = || {
        let written = written();
        let times =
            written.split("at_seconds\":").filter_map(|rest| rest.split([',', '}']).next()?.parse().ok());
        times.fold(0.0, f64::max)
    };
    until(|| last() >= 1.0).await;
    let left = [&diary, "runs.json"]
        .map(|file| (file.to_owned(), std::fs::read(server.state().join(file)).unwrap()));
    // A server that finds what this one would leave if it died now, and much later.
    let next = Server::start().await;
    drop(Client::open(&next.socket).await);
    for (file, bytes) in left {
        std::fs::write(next.state().join(file), bytes).unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let next = next.restart().await;
    let mut asking = Client::open(&next.socket).await;
    let (told, failed) = asking.call("chaos_get_run", json!({"run_id": run_id, "all_samples": true})).await;
    assert!(!failed, "{told}");
    let run = &told["run"];
    assert_eq!(
        (&run["verdict"], &run["steady_state_before"]),
        (&json!("interrupted"), &json!(true)),
        "{told}"
    );
    assert_eq!(run["verified"], json!(["before"]), "{told}");
    let events: Vec<_> =
        told["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    let expected = ["started", "phase", "met", "phase", "injecting", "injected", "phase", "abort"];
    assert_eq!(events, expected, "{told}");
    let end = told["events"].as_array().unwrap().last().unwrap()["at_seconds"].as_f64().unwrap();
    assert_eq!(run["duration_seconds"].as_f64(), Some(end), "the last beat is the end");
    assert!((0.9..10.0).contains(&end), "{end}");
    let fault = &told["faults"][0];
    assert_eq!((&fault["injected"], &fault["effective"]), (&json!(true), &json!(true)), "{told}");
    assert_eq!(
        (fault.get("removed_clean"), told.get("resiliency")),
        (None, None),
        "nobody has seen that: {told}"
    );
    assert!(!told["samples"].as_array().unwrap().is_empty(), "{told}");
    let shown = chaosctl(&next.socket, &["show", &run_id]).await.stdout;
    assert!(shown.contains("steady state before: met, after: not verified"), "{shown}");
    let report = chaosctl(&next.socket, &["report", &run_id]).await.stdout;
    assert!(report.contains("was active from") && !report.contains("was not injected"), "{report}");
    // It is told once, and its diary is gone.
    assert!(!next.state().join(&diary).exists());
    // One that ends by itself leaves none either.
    client.call("chaos_stop", json!({"run_id": run_id})).await;
    until(|| !server.state().join(&diary).exists()).await;
}

#[tokio::test]
async fn results_of_before_there_was_a_history_are_taken_over_once() {
    let server = Server::start().await;
    drop(Client::open(&server.socket).await);
    let registry = json!({"faults": {}, "experiments": {}, "results": [{"experiment_name": "old", "success": true,
        "steady_state_before": true, "steady_state_after": true, "duration_seconds": 1.0, "error": null,
        "started_at": "2026-02-05T10:00:00.000Z", "run_id": "0ld"}], "totals": {"old": {"runs": 900, "successes": 450}}});
    std::fs::write(server.state().join("registry.json"), registry.to_string()).unwrap();
    let mut server = server.restart().await;
    for _ in 0..2 {
        let mut client = Client::open(&server.socket).await;
        let (status, _) = client.call("chaos_status", json!({"include_results": true})).await;
        assert_eq!((&status["total_runs"], &status["success_rate"]), (&json!(900), &json!(0.5)));
        assert_eq!(status["results"][0]["run_id"], "0ld");
        let kept = std::fs::read_to_string(server.state().join("registry.json")).unwrap();
        assert!(!kept.contains("0ld"), "{kept}");
        server = server.restart().await;
    }
}

#[tokio::test]
async fn a_history_that_is_broken_keeps_nothing_from_running() {
    let server = Server::start().await;
    drop(Client::open(&server.socket).await);
    let path = server.state().join("history.db");
    std::fs::write(&path, b"what a disk made of it ".repeat(500)).unwrap();
    let server = server.restart().await;
    let mut client = Client::open(&server.socket).await;
    assert!(path.with_extension("db.broken").exists());
    let (_listener, address) = port().await;
    register(&mut client, document("holds", &address, "200ms")).await;
    let (result, failed) = client.call("chaos_run_experiment", json!({"experiment_name": "holds"})).await;
    assert!(!failed && result["success"] == true && result.get("warning").is_none(), "{result}");
}

#[tokio::test]
async fn a_run_that_cannot_be_recorded_ends_as_any_and_says_so() {
    let server = Server::start().await;
    drop(Client::open(&server.socket).await);
    // Nobody can make a file of a folder.
    let path = server.state().join("history.db");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let server = server.restart().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("holds", &address, "200ms")).await;
    let (result, failed) = client.call("chaos_run_experiment", json!({"experiment_name": "holds"})).await;
    assert!(!failed && result["success"] == true, "{result}");
    assert!(result["warning"].as_str().unwrap().starts_with("not recorded, so it is forgotten"), "{result}");
    assert!(server.active.lock().unwrap().is_empty());
    // As long as the daemon runs it is found.
    assert_eq!(names(&client.call("chaos_list_runs", json!({})).await.0), ["holds"]);
}

#[tokio::test]
async fn a_plan_tells_how_it_went_before_and_what_was_like_it_and_an_empty_history_is_said_to_be() {
    let (server, listener) = with_runs().await;
    let address = listener.local_addr().unwrap().to_string();
    let mut client = Client::open(&server.socket).await;
    let (plan, failed) = client.call("chaos_plan_experiment", json!({"experiment_name": "holds"})).await;
    assert!(!failed, "{plan}");
    let history = &plan["history"];
    let held = json!([{"name": "held", "runs": 2}]);
    for field in ["same_name", "same_document"] {
        assert_eq!((&history[field]["runs"], &history[field]["verdicts"]), (&json!(2), &held), "{plan}");
    }
    let (runs, _) = client.call("chaos_list_runs", json!({"limit": 1})).await;
    let latest = &history["same_name"]["latest"];
    assert_eq!(
        (&latest["run_id"], &latest["verdict"]),
        (&runs["runs"][0]["run_id"], &json!("held")),
        "{plan}"
    );
    assert_eq!(history["similar"], json!([]), "the fault of `denied` has another type and target: {plan}");

    // Of the same fault of the same target, and one more, under another name.
    let mut wider = document("wider", &address, "200ms");
    let more = wider["method"][0].clone();
    wider["method"].as_array_mut().unwrap().push(more);
    wider["method"][1]["provider"]["arguments"] =
        json!({"inject": "timeout", "--interface": "eth1", "--for": "200ms"});
    let (dry, failed) = client.call("chaos_plan_experiment", json!({"document": wider})).await;
    assert!(!failed, "{dry}");
    let history = &dry["history"];
    assert_eq!(
        (&history["same_name"]["runs"], history["same_name"].get("latest")),
        (&json!(0), None),
        "{dry}"
    );
    let similar = history["similar"].as_array().unwrap();
    let names: Vec<_> = similar.iter().map(|run| run["experiment_name"].as_str().unwrap()).collect();
    assert_eq!(names, ["holds", "denied"], "{dry}");
    assert_eq!(similar[0]["run_id"], runs["runs"][0]["run_id"], "{dry}");
    assert_eq!(similar[0]["why"], json!(["network_partition of interface eth0"]), "{dry}");
    assert_eq!(similar[1]["why"], json!(["timeout"]), "{dry}");
    assert!(similar[0]["similarity"].as_f64() > similar[1]["similarity"].as_f64(), "{dry}");

    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (plan, _) =
        client.call("chaos_plan_experiment", json!({"document": document("new", &address, "1s")})).await;
    let empty = json!({"runs": 0, "verdicts": []});
    let summary = "no run of this experiment is recorded; no run of another one is like it";
    let nothing = json!({"summary": summary, "same_name": empty, "same_document": empty, "similar": []});
    assert_eq!(plan["history"], nothing, "{plan}");
    // Nothing of a run itself.
    register(&mut client, document("new", &address, "200ms")).await;
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "new"})).await;
    assert_eq!(result.get("history"), None, "{result}");
}

#[tokio::test]
async fn an_operator_sees_in_a_plan_how_it_went_before() {
    let (server, listener) = with_runs().await;
    let address = listener.local_addr().unwrap().to_string();
    let file = server.state().join("plan.json");
    std::fs::write(&file, document("holds", &address, "200ms").to_string()).unwrap();
    let planned = chaosctl(&server.socket, &["plan", file.to_str().unwrap()]).await;
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let history = "  history: this experiment ran 2 times (held 2), this document 2 times (held 2); no run of another one is like it\n    the latest held (run ";
    assert!(planned.stdout.contains(history), "{}", planned.stdout);
}
