//! What the plan of a kill says of who would start the processes anew.

use serde_json::json;

use crate::chaosctl::chaosctl;
use crate::client::Client;
use crate::double::Server;
use crate::experiments::document;

#[tokio::test]
async fn a_plan_of_a_kill_says_who_would_start_the_processes_anew_and_warns_when_nobody_would() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let kill = json!({"fault_name": "f", "fault_type": "process_kill", "probability": 1, "target": {"unit": "a.service"}});
    let (plan, failed) = client.call("chaos_plan", kill).await;
    assert!(!failed, "{plan}");
    assert_eq!(plan["restarts"], json!(["nobody was found: 1 process: 71 (a)"]), "{plan}");
    assert!(plan["warnings"][0].as_str().unwrap().contains("set up a supervisor first"), "{plan}");
    let pause = json!({"fault_name": "f", "fault_type": "process_pause", "probability": 1, "target": {"unit": "a.service"}});
    let (plan, _) = client.call("chaos_plan", pause).await;
    assert_eq!((plan.get("restarts"), plan.get("warnings")), (None, None), "{plan}");
    let mut document = document("kill", "127.0.0.1:9", "1s");
    document["method"][0]["provider"]["arguments"] = json!({"inject": "process_kill", "--unit": "a.service"});
    let (dry, _) = client.call("chaos_plan_experiment", json!({"document": document})).await;
    assert!(dry["plans"][0]["warnings"][0].as_str().unwrap().contains("set up a supervisor first"), "{dry}");
    let words = ["inject", "process_kill", "--unit", "a.service", "--dry-run"];
    let planned = chaosctl(&server.socket, &words).await;
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    for line in
        ["  started anew by: nobody was found", "  warning: nobody was found who would start again 1 of 1"]
    {
        assert!(planned.stdout.contains(line), "{}", planned.stdout);
    }
}
