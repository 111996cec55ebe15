//! The protocol in every revision, and what clients need to find in it.

use chaos_daemon::spec::FAULT_TYPES;
use serde_json::{Value, json};

use crate::client::Client;
use crate::double::Server;

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

async fn lists_and_calls(mut client: Client) {
    let list = client.request("tools/list", json!({})).await;
    let names: Vec<_> =
        list["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    for name in ["chaos_inject_fault", "chaos_run_experiment", "chaos_status"] {
        assert!(names.contains(&json!(name)), "{names:?}");
    }
    client.fault("f", "register", json!({"fault_type": "resource_exhaustion", "probability": 1})).await;
    assert_eq!(client.fault("f", "inject", json!({})).await["was_triggered"], true);
    assert_eq!(client.fault("f", "remove", json!({})).await["status"], "removed");
}

#[tokio::test]
async fn tools_are_listed_and_called_in_every_revision() {
    let server = Server::start().await;
    for revision in LEGACY {
        lists_and_calls(Client::legacy(&server.socket, revision).await).await;
    }
    lists_and_calls(Client::modern(&server.socket).await).await;
}

#[tokio::test]
async fn the_server_says_who_it_is_in_both_eras() {
    let server = Server::start().await;
    let mut modern = Client::modern(&server.socket).await;
    let discovered = modern.request("server/discover", json!({})).await["result"].clone();
    let mut legacy = Client::raw(&server.socket).await;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let initialized = legacy.request("initialize", params).await["result"].clone();
    assert_eq!(
        initialized["serverInfo"],
        json!({"name": "chaos-daemon", "version": env!("CARGO_PKG_VERSION")})
    );
    assert!(discovered.to_string().contains("\"chaos-daemon\""), "{discovered}");
    for info in [&initialized, &discovered] {
        assert!(info["instructions"].as_str().unwrap().contains("chaos_stop"));
        assert!(info["capabilities"]["tools"].is_object());
        assert_eq!(info["capabilities"]["resources"], json!({"subscribe": true}));
        assert!(
            info["capabilities"]["prompts"].is_object() && info["capabilities"]["completions"].is_object()
        );
        let said = info["instructions"].as_str().unwrap();
        assert!(said.len() < 1500, "{} bytes", said.len());
        let way = [
            "chaos_node",
            "chaos_plan_experiment",
            "chaos_register_experiment",
            "chaos_run_experiment",
            "chaos_get_run",
            "chaos_report",
        ];
        let places = way.map(|tool| said.find(tool).unwrap_or_else(|| panic!("{tool}: {said}")));
        assert!(places.is_sorted(), "{said}");
    }
    assert!(
        discovered["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")),
        "{discovered}"
    );
}

#[tokio::test]
async fn the_schema_of_an_experiment_and_the_pages_of_faults_are_resources_in_every_revision() {
    let server = Server::start().await;
    let mut clients = vec![Client::modern(&server.socket).await];
    for revision in LEGACY {
        clients.push(Client::legacy(&server.socket, revision).await);
    }
    for mut client in clients {
        let list = client.request("resources/list", json!({})).await["result"]["resources"].clone();
        assert_eq!(list.as_array().unwrap().len(), 3 + FAULT_TYPES.len(), "{list}");
        assert_eq!(list[1]["uri"], "chaos://policy");
        assert_eq!(list[2]["uri"], "chaos://audit");
        let uri = &list[0]["uri"];
        assert_eq!(uri, "chaos://schema/experiment");
        let read = client.request("resources/read", json!({"uri": uri})).await;
        let contents = &read["result"]["contents"][0];
        assert_eq!((&contents["uri"], &contents["mimeType"]), (uri, &list[0]["mimeType"]), "{read}");
        let schema: Value = serde_json::from_str(contents["text"].as_str().unwrap()).unwrap();
        assert_eq!(schema, chaos_daemon::experiment::schema::document());
        for fault in &list.as_array().unwrap()[3..] {
            let read = client.request("resources/read", json!({"uri": fault["uri"]})).await;
            let page: Value =
                serde_json::from_str(read["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!((&page["fault_type"], &page["summary"]), (&fault["name"], &fault["description"]));
        }
        for uri in ["chaos://schema/other", "chaos://fault/other", "chaos://fault/"] {
            let absent = client.request("resources/read", json!({"uri": uri})).await;
            let message = absent["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains("chaos://schema/experiment"), "{absent}");
        }
    }
}

#[tokio::test]
async fn prompts_are_listed_and_filled_in_and_arguments_completed_in_every_revision() {
    let server = Server::start().await;
    let mut clients = vec![Client::modern(&server.socket).await];
    for revision in LEGACY {
        clients.push(Client::legacy(&server.socket, revision).await);
    }
    for mut client in clients {
        let prompts = client.request("prompts/list", json!({})).await["result"]["prompts"].clone();
        let names: Vec<_> = prompts.as_array().unwrap().iter().map(|prompt| prompt["name"].clone()).collect();
        assert_eq!(
            names,
            ["design_experiment", "review_plan", "post_mortem", "widen", "battle_test_mcp_server"]
        );
        for prompt in prompts.as_array().unwrap() {
            let arguments = prompt["arguments"].as_array().unwrap().iter();
            let given: serde_json::Map<_, _> = arguments
                .map(|argument| (argument["name"].as_str().unwrap().to_owned(), json!("x1")))
                .collect();
            let params = json!({"name": prompt["name"], "arguments": given});
            let got = client.request("prompts/get", params).await;
            assert!(
                got["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("x1"),
                "{got}"
            );
        }
        let refused = client.request("prompts/get", json!({"name": "post_mortem"})).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let complete = async |client: &mut Client, of: Value, name: &str, value: &str| {
            let params = json!({"ref": of, "argument": {"name": name, "value": value}});
            client.request("completion/complete", params).await["result"]["completion"].clone()
        };
        let probe = json!({"type": "ref/resource", "uri": "chaos://probe/{kind}"});
        assert_eq!(complete(&mut client, probe, "kind", "se").await["values"], json!(["series"]));
        let fault = json!({"type": "ref/resource", "uri": "chaos://fault/{fault_type}"});
        let found = complete(&mut client, fault, "fault_type", "packet_").await;
        assert_eq!((&found["values"].as_array().unwrap().len(), &found["hasMore"]), (&4, &json!(false)));
        let prompt = json!({"type": "ref/prompt", "name": "post_mortem"});
        assert_eq!(complete(&mut client, prompt, "run_id", "").await["values"], json!([]));
        let params =
            json!({"ref": {"type": "ref/prompt", "name": "nosuch"}, "argument": {"name": "a", "value": ""}});
        let unknown = client.request("completion/complete", params).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    }
}

#[tokio::test]
async fn annotations_are_true() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let tools = client.request("tools/list", json!({})).await["result"]["tools"].clone();
    for tool in tools.as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let hints = &tool["annotations"];
        let looks = [
            "chaos_advise",
            "chaos_node",
            "chaos_report",
            "chaos_status",
            "chaos_plan",
            "chaos_plan_experiment",
            "chaos_doctor",
            "chaos_list_experiments",
            "chaos_describe_experiment",
            "chaos_list_runs",
            "chaos_get_run",
            "chaos_statistics",
            "chaos_targets",
        ]
        .contains(&name);
        let breaks = [
            "chaos_inject_fault",
            "chaos_run_experiment",
            "chaos_schedule",
            "chaos_search",
            "chaos_probe",
            "chaos_register_experiment",
        ]
        .contains(&name);
        assert_eq!(hints["readOnlyHint"], looks, "{name}");
        assert_eq!(hints["destructiveHint"], breaks, "{name}");
        // To set a schedule again, or to register a document again, changes nothing.
        let again = ["chaos_schedule", "chaos_register_experiment"].contains(&name);
        assert_eq!(hints["idempotentHint"], !breaks || again, "{name}");
    }
}

#[tokio::test]
async fn the_schemas_have_the_specifications_fields_types_and_defaults() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let tools = client.request("tools/list", json!({})).await["result"]["tools"].clone();
    let tool =
        |name: &str| tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap().clone();
    let types = |schema: &Value, fields: &[(&str, &str)]| {
        for (field, kind) in fields {
            assert_eq!(schema["properties"][field]["type"], *kind, "{field} in {schema}");
        }
    };
    let inject = tool("chaos_inject_fault");
    types(
        &inject["inputSchema"],
        &[
            ("fault_name", "string"),
            ("action", "string"),
            ("fault_type", "string"),
            ("probability", "number"),
            ("duration_seconds", "number"),
            ("error_message", "string"),
        ],
    );
    assert_eq!(inject["inputSchema"]["required"], json!(["fault_name", "action"]));
    assert_eq!(inject["inputSchema"]["properties"]["probability"]["default"], 0.1);
    assert_eq!(
        inject["inputSchema"]["properties"]["action"]["enum"],
        json!(["register", "inject", "remove"])
    );
    // Those of the specification first; ours follow.
    let types_known = inject["inputSchema"]["properties"]["fault_type"]["enum"].as_array().unwrap();
    assert_eq!(
        types_known[..5],
        ["latency", "error", "timeout", "resource_exhaustion", "network_partition"].map(|name| json!(name))
    );
    let all: Vec<_> = FAULT_TYPES.iter().map(|kind| json!(kind.name())).collect();
    assert_eq!(*types_known, all);
    types(
        &inject["outputSchema"],
        &[
            ("status", "string"),
            ("fault_name", "string"),
            ("fault_type", "string"),
            ("was_triggered", "boolean"),
        ],
    );
    let run = tool("chaos_run_experiment");
    types(&run["inputSchema"], &[("experiment_name", "string"), ("dry_run", "boolean")]);
    types(
        &run["outputSchema"],
        &[
            ("experiment_name", "string"),
            ("success", "boolean"),
            ("steady_state_before", "boolean"),
            ("steady_state_after", "boolean"),
            ("duration_seconds", "number"),
            ("started_at", "string"),
        ],
    );
    assert!(run["outputSchema"]["required"].as_array().unwrap().contains(&json!("error")));
    let status = tool("chaos_status");
    types(&status["inputSchema"], &[("include_results", "boolean"), ("experiment_name", "string")]);
    types(
        &status["outputSchema"],
        &[
            ("active_faults", "array"),
            ("registered_experiments", "integer"),
            ("results", "array"),
            ("total_runs", "integer"),
            ("success_rate", "number"),
        ],
    );
}

#[tokio::test]
async fn the_schemas_are_such_that_every_client_takes_them() {
    fn check(path: &str, schema: &Value) {
        match schema {
            Value::Object(object) => {
                assert!(!object.get("type").is_some_and(Value::is_array), "{path}: a list of types");
                for word in ["$ref", "format"] {
                    assert!(!object.get(word).is_some_and(Value::is_string), "{path}: {word}");
                }
                object.iter().for_each(|(key, value)| check(&format!("{path}.{key}"), value));
            }
            Value::Array(items) => items.iter().for_each(|item| check(path, item)),
            _ => {}
        }
    }
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let tools = client.request("tools/list", json!({})).await["result"]["tools"].clone();
    for tool in tools.as_array().unwrap() {
        check(tool["name"].as_str().unwrap(), tool);
        assert_eq!(tool["inputSchema"]["additionalProperties"], false);
        assert_eq!(
            (&tool["inputSchema"]["type"], &tool["outputSchema"]["type"]),
            (&json!("object"), &json!("object"))
        );
    }
}

/// What every model reads before its first call.
#[tokio::test]
async fn the_list_of_tools_is_small() {
    const MOST: usize = 32 << 10;
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let list = client.request("tools/list", json!({})).await["result"].clone();
    let size = |value: &Value| value.to_string().len();
    let tools = list["tools"].as_array().unwrap().iter();
    let sizes: Vec<_> = tools
        .map(|tool| {
            (tool["name"].clone(), size(&tool["inputSchema"]), size(&tool["outputSchema"]), size(tool))
        })
        .collect();
    assert!(size(&list) <= MOST, "{} bytes: {sizes:#?}", size(&list));
}
