//! What an agent is told before it tries anything, how it reads what came of it, and what every refusal brings.

use serde_json::{Value, json};

use crate::chaosctl::chaosctl;
use crate::client::Client;
use crate::double::Server;
use crate::experiments::{document, port, register};

fn named<'a>(list: &'a Value, field: &str, name: &str) -> &'a Value {
    let found = list.as_array().and_then(|all| all.iter().find(|it| it[field] == name));
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[tokio::test]
async fn the_first_call_tells_who_asks_what_the_policy_lets_them_and_what_the_kernel_can_each_with_its_rule()
{
    let server = Server::start().await;
    *server.policy.lock().unwrap() = toml::from_str(
        "environment = \"staging\"\nfault_types = [\"latency\", \"clock_skew\"]\nmax_duration_seconds = 60\nmax_active = 3\n\
         interfaces = [\"eth1\"]\nwindows.only = [\"2020-01-01\"]\n[limits.everybody]\nmax_duration_seconds = 30\n\
         [experiments]\nrequire_gate = true\n",
    )
    .unwrap();
    let mut client = Client::open(&server.socket).await;
    let (node, failed) = client.call("chaos_node", json!({})).await;
    assert!(!failed, "{node}");
    let you = &node["you"];
    assert_eq!((&you["roles"], &you["environment"]), (&json!(["admin"]), &json!("staging")));
    assert!(you["caller"].as_str().unwrap().starts_with("uid 0"), "{you}");
    assert_eq!((&you["longest_seconds"], &you["most_active"]), (&json!(30), &json!(3)));
    assert_eq!((&you["interfaces"], &you["may_not"]), (&json!(["eth1"]), &json!([])));
    assert_eq!(
        (&you["windows"]["only"], &you["closed"]["rule"]),
        (&json!(["2020-01-01"]), &json!("windows"))
    );
    assert_eq!(you["experiments_need"][0]["rule"], "experiments.require_gate");
    let latency = named(&node["faults"], "fault_type", "latency");
    // The double has no netem.
    assert_eq!((&latency["possible"], &latency["allowed"]), (&json!(false), &json!(true)), "{latency}");
    let timeout = named(&node["faults"], "fault_type", "timeout");
    assert_eq!((&timeout["allowed"], &timeout["rule"]), (&json!(false), &json!("fault_types")), "{timeout}");
    let clock = named(&node["faults"], "fault_type", "clock_skew");
    assert_eq!((&clock["allowed"], &clock["rule"]), (&json!(false), &json!("clock_skew")), "{clock}");
    assert_eq!(node["stages"], json!([10, 25, 50, 100]));
    let template = named(&node["templates"], "experiment_name", "dependency-partition");
    assert_eq!(template["fault_types"], json!(["network_partition"]));
    assert!(node.to_string().len() < 16 << 10, "{} bytes", node.to_string().len());
    // In production nothing may be done, and that is said, too.
    *server.policy.lock().unwrap() = toml::from_str("environment = \"production\"").unwrap();
    let (node, failed) = client.call("chaos_node", json!({})).await;
    assert!(!failed, "{node}");
    assert_eq!(named(&node["you"]["may_not"], "what", "inject")["rule"], "environment");
    let latency = named(&node["faults"], "fault_type", "latency");
    assert_eq!((&latency["allowed"], &latency["rule"]), (&json!(false), &json!("environment")));
}

#[tokio::test]
async fn a_run_is_told_as_a_post_mortem_as_markdown_as_a_journal_and_as_a_page() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("holds", &address, "200ms")).await;
    let (run, _) = client.call("chaos_run_experiment", json!({"experiment_name": "holds"})).await;
    assert_eq!(run["state"], "ended", "{run}");
    let run_id = run["run_id"].as_str().unwrap();
    let (told, failed) = client.call("chaos_report", json!({"run_id": &run_id[..12]})).await;
    assert!(!failed, "{told}");
    let shown = chaosctl(&server.socket, &["report", run_id]).await.stdout;
    assert_eq!((&told["run_id"], &told["markdown"]), (&json!(run_id), &json!(shown)));
    assert!(told["post_mortem"].as_str().unwrap().contains("held"), "{told}");
    let (told, _) = client.call("chaos_report", json!({"run_id": run_id, "format": "journal"})).await;
    assert_eq!((&told["journal"]["status"], told.get("markdown")), (&json!("completed"), None), "{told}");
    let (told, _) = client.call("chaos_report", json!({"run_id": run_id, "format": "post_mortem"})).await;
    assert_eq!(told.get("journal"), None);
    let page = client.request("resources/read", json!({"uri": told["page"]})).await;
    let contents = &page["result"]["contents"][0];
    assert_eq!(contents["mimeType"], "text/html", "{page}");
    assert!(contents["text"].as_str().unwrap().starts_with("<!"), "{page}");
    for uri in
        ["chaos://report/7.html", "chaos://report/.html", "chaos://report/../x.html", "chaos://probe/meteor"]
    {
        let absent = client.request("resources/read", json!({"uri": uri})).await;
        assert!(
            absent["error"]["message"].as_str().unwrap().contains("chaos://report/RUN_ID.html"),
            "{absent}"
        );
    }
    for (wrong, code) in [
        (json!({"run_id": "no such"}), "RUN_NOT_FOUND"),
        (json!({"run_id": ""}), "INVALID_PARAMETER"),
        (json!({"run_id": run_id, "format": "pdf"}), "INVALID_PARAMETER"),
        (json!({}), "MISSING_PARAMETER"),
    ] {
        let (refused, failed) = client.call("chaos_report", wrong).await;
        assert!(failed && refused["error"]["code"] == code, "{refused}");
    }
}

#[tokio::test]
async fn of_a_run_that_goes_on_the_state_is_running_and_its_report_can_be_had_later() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("long", &address, "10s")).await;
    let begin = json!({"experiment_name": "long", "wait_seconds": 0});
    let (run, failed) = client.call("chaos_run_experiment", begin).await;
    assert!(!failed && run["state"] == "running" && run["success"] == false, "{run}");
    let (told, _) = client.call("chaos_get_run", json!({"run_id": run["run_id"]})).await;
    assert_eq!((&told["run"]["state"], &told["ended"]), (&json!("running"), &json!(false)), "{told}");
    let (early, failed) = client.call("chaos_report", json!({"run_id": run["run_id"]})).await;
    assert!(failed && early["error"]["retryable"] == true, "{early}");
    let (plan, _) = client.call("chaos_plan_experiment", json!({"experiment_name": "long"})).await;
    assert_eq!(plan["state"], "planned", "{plan}");
    let (refused, failed) = client.call("chaos_run_experiment", json!({"experiment_name": "long"})).await;
    assert!(failed && refused["state"] == "refused" && refused["retryable"] == true, "{refused}");
    client.call("chaos_stop", json!({})).await;
}

/// No tool of an agent is a shell.
fn assert_is_of_the_tools(text: &str, of: &Value) {
    for command in ["chaosctl", "`ip ", "systemctl"] {
        assert!(!text.contains(command), "{command}: {of}");
    }
}

#[tokio::test]
async fn every_refusal_has_a_code_a_hint_that_speaks_of_tools_and_whether_to_try_again() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (_listener, address) = port().await;
    register(&mut client, document("dependency cut", &address, "200ms")).await;
    client
        .fault("slow-db", "register", json!({"fault_type": "port_in_use", "target": {"local_port": 80}}))
        .await;
    for (tool, arguments, code, words) in [
        (
            "chaos_inject_fault",
            json!({"fault_name": "slow-bd", "action": "inject"}),
            "FAULT_NOT_FOUND",
            "\"slow-db\"",
        ),
        (
            "chaos_inject_fault",
            json!({"fault_name": "f", "action": "register"}),
            "MISSING_PARAMETER",
            "schema",
        ),
        (
            "chaos_run_experiment",
            json!({"experiment_name": "dependncy cut"}),
            "EXPERIMENT_NOT_FOUND",
            "\"dependency cut\"",
        ),
        (
            "chaos_describe_experiment",
            json!({"experiment_name": "proces-death"}),
            "EXPERIMENT_NOT_FOUND",
            "\"process-death\"",
        ),
        ("chaos_get_run", json!({"run_id": "7"}), "RUN_NOT_FOUND", "chaos_list_runs"),
        ("chaos_report", json!({"run_id": "7"}), "RUN_NOT_FOUND", "chaos_list_runs"),
        ("chaos_schedule", json!({"action": "resume", "name": "x"}), "SCHEDULE_NOT_FOUND", "\"list\""),
        ("chaos_search", json!({"action": "status", "name": "x"}), "SEARCH_NOT_FOUND", "\"list\""),
        ("chaos_probe", json!({"arguments": ["http", "--help"]}), "INVALID_PARAMETER", "--header"),
        ("chaos_probe", json!({"arguments": ["error_rate"]}), "INVALID_PARAMETER", "series"),
        ("chaos_stop", json!({"run_id": "7"}), "RUN_NOT_FOUND", "chaos_"),
        ("chaos_node", json!({"all": true}), "INVALID_PARAMETER", "schema"),
    ] {
        let (refused, failed) = client.call(tool, arguments.clone()).await;
        assert!(failed, "{tool} {arguments}: {refused}");
        // Of a run the words are beside the rest.
        let error = if refused["error"].is_object() { &refused["error"] } else { &refused };
        let told = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        assert_eq!(told(if refused["error"].is_object() { "code" } else { "error_code" }), code, "{refused}");
        assert!(told("hint").contains(words), "{words}: {refused}");
        assert!(error["retryable"].is_boolean(), "{refused}");
        assert_is_of_the_tools(&told("hint"), &refused);
    }
    // Who sits at a shell hears of commands.
    let said = chaosctl(&server.socket, &["show", "7"]).await.stderr;
    assert!(said.contains("chaosctl runs lists them") && !said.contains("chaos_"), "{said}");
}
