//! Which experiments there are, over MCP and with `chaosctl`.

use serde_json::{Value, json};

use crate::chaosctl::chaosctl;
use crate::client::Client;
use crate::double::Server;
use crate::experiments::{document, port, register};

const BUILT_IN: [&str; 6] = [
    "dependency-partition",
    "pool-exhaustion",
    "process-death",
    "process-death-alert",
    "retry-storm",
    "slow-dependency",
];

fn names(found: &Value) -> Vec<&str> {
    let experiments = found["experiments"].as_array().unwrap();
    experiments.iter().map(|experiment| experiment["experiment_name"].as_str().unwrap()).collect()
}

async fn found(client: &mut Client, filter: Value) -> Value {
    let (found, failed) = client.call("chaos_list_experiments", filter.clone()).await;
    assert!(!failed, "{filter}: {found}");
    found
}

#[tokio::test]
async fn what_is_registered_and_built_in_is_listed_in_one_order_and_page_by_page() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    assert_eq!(names(&found(&mut client, json!({})).await), BUILT_IN);
    for name in ["b", "c/d", "a"] {
        register(&mut client, document(name, "127.0.0.1:9", "1s")).await;
    }
    let all = found(&mut client, json!({})).await;
    assert_eq!(names(&all), [["a", "b", "c/d"].as_slice(), &BUILT_IN].concat());
    assert_eq!(all.get("next_cursor"), None);
    let mut pages = Vec::new();
    let mut filter = json!({"limit": 3});
    loop {
        let page = found(&mut client, filter.clone()).await;
        pages.extend(page["experiments"].as_array().unwrap().clone());
        match page.get("next_cursor") {
            Some(cursor) => filter["cursor"] = cursor.clone(),
            None => break,
        }
        // What comes before the page does not move what follows.
        register(&mut client, document("0", "127.0.0.1:9", "1s")).await;
    }
    assert_eq!(json!(pages), all["experiments"]);
    let whole = json!({"limit": 4 + BUILT_IN.len()});
    assert_eq!(found(&mut client, whole).await.get("next_cursor"), None);
}

#[tokio::test]
async fn experiments_are_found_by_their_faults_targets_tags_and_latest_verdict() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut denied = document("denied", &address, "200ms");
    denied["tags"] = json!(["odd"]);
    denied["method"][0]["provider"]["arguments"] =
        json!({"inject": "timeout", "--interface": "nosuch0", "--for": "200ms", "--name": "gone"});
    register(&mut client, denied).await;
    register(&mut client, document("holds", &address, "200ms")).await;
    register(&mut client, document("never ran", &address, "200ms")).await;
    for name in ["holds", "denied"] {
        client.call("chaos_run_experiment", json!({"experiment_name": name})).await;
    }
    let registered = |more: Value| {
        let mut filter = more;
        filter["origin"] = json!("registered");
        filter
    };
    for (filter, expected) in [
        (registered(json!({})), vec!["denied", "holds", "never ran"]),
        (json!({"last_verdict": "held"}), vec!["holds"]),
        (json!({"last_verdict": "refused"}), vec!["denied"]),
        (json!({"last_verdict": "tripped"}), vec![]),
        (json!({"tag": "odd"}), vec!["denied"]),
        (json!({"target": "NOSUCH0"}), vec!["denied"]),
        (registered(json!({"fault": "network_partition"})), vec!["holds", "never ran"]),
        (json!({"fault": "gone"}), vec!["denied"]),
        (json!({"text": "RAN", "origin": "registered"}), vec!["never ran"]),
        (json!({"text": "killed service"}), vec!["process-death"]),
        (json!({"origin": "built-in", "tag": "latency"}), vec!["slow-dependency"]),
    ] {
        assert_eq!(names(&found(&mut client, filter.clone()).await), expected, "{filter}");
    }
    let (runs, _) = client.call("chaos_list_runs", json!({"experiment_name": "holds"})).await;
    let holds =
        found(&mut client, json!({"text": "holds", "origin": "registered"})).await["experiments"][0].take();
    assert_eq!(holds["last_run"]["run_id"], runs["runs"][0]["run_id"]);
    assert_eq!(
        (&holds["last_run"]["verdict"], &holds["last_run"]["success"]),
        (&json!("held"), &json!(true))
    );
    assert_eq!(holds["digest"], runs["runs"][0]["digest"]);
    assert_eq!(holds["fault_types"], json!(["network_partition"]));
}

#[tokio::test]
async fn what_makes_no_sense_in_a_list_is_refused_by_name() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for (filter, field) in [
        (json!({"cursor": "elsewhere/a"}), "cursor:"),
        (json!({"limit": 0}), "limit:"),
        (json!({"limit": 251}), "limit:"),
        (json!({"last_verdict": "fine"}), "last_verdict:"),
        (json!({"origin": "hub"}), "origin:"),
        (json!({"tags": ["a"]}), "tags:"),
    ] {
        let (refused, failed) = client.call("chaos_list_experiments", filter.clone()).await;
        assert!(failed, "{filter}: {refused}");
        assert_eq!(refused["experiments"], json!([]));
        assert_eq!(refused["error"]["code"], "INVALID_PARAMETER", "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(field), "{message}");
    }
}

#[tokio::test]
async fn an_operator_lists_experiments() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("mine", "127.0.0.1:9", "1s")).await;
    let listed = chaosctl(&server.socket, &["experiment", "list"]).await;
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(listed.stdout.starts_with("mine [] network_partition; never run\n"), "{}", listed.stdout);
    assert!(listed.stdout.contains("process-death: a killed service"), "{}", listed.stdout);
    let listed = chaosctl(&server.socket, &["--json", "experiment", "list", "--origin", "registered"]).await;
    assert_eq!(names(&serde_json::from_str(&listed.stdout).unwrap()), ["mine"]);
    let none = chaosctl(&server.socket, &["experiment", "list", "--last-verdict", "held"]).await;
    assert_eq!(none.stdout, "nothing was found\n");
    assert_eq!(chaosctl(&server.socket, &["experiment", "list", "--origin", "hub"]).await.code, 2);
}

#[tokio::test]
async fn an_experiment_is_described_in_whole_but_for_its_secrets() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut mine = document("mine", &address, "200ms");
    mine["description"] = json!("nobody says hunter2");
    mine["configuration"] =
        json!({"interface": {"type": "env", "key": "NIC", "default": "eth0"}, "word": "hunter2"});
    mine["secrets"] = json!({"own": {"token": "hunter2"}});
    mine["method"][0]["provider"]["arguments"]["--interface"] = json!("${interface}");
    mine["method"][0]["provider"]["arguments"]["--name"] = json!("cut");
    register(&mut client, mine).await;
    for _ in 0..2 {
        client.call("chaos_run_experiment", json!({"experiment_name": "mine"})).await;
    }
    let (told, failed) = client.call("chaos_describe_experiment", json!({"experiment_name": "mine"})).await;
    assert!(!failed, "{told}");
    assert!(!told.to_string().contains("hunter2"), "{told}");
    assert_eq!(told["secrets"], json!(["own.token"]));
    assert_eq!(told["document"].get("secrets"), None);
    assert_eq!(told["document"]["method"][0]["provider"]["arguments"]["--interface"], "${interface}");
    assert_eq!(told["description"], "nobody says ***");
    let interface = json!({"name": "interface", "environment": "NIC", "default": "eth0"});
    assert_eq!(told["variables"], json!([interface, {"name": "word", "default": "***"}]));
    let probe = &told["probes"][0];
    assert_eq!((&probe["name"], &probe["role"]), (&json!("port"), &json!("steady_state")));
    let number = address.rsplit_once(':').unwrap().1;
    assert!(probe["check"].as_str().unwrap().ends_with(number), "{probe}");
    let fault = &told["faults"][0];
    assert_eq!((&fault["name"], &fault["fault_type"]), (&json!("cut"), &json!("network_partition")));
    assert!(fault["target"].as_str().unwrap().contains("eth0"), "{fault}");
    let runs = told["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &runs[0]["verdict"]), (2, &json!("held")), "{told}");
    assert!(runs[0]["started_at"].as_str() >= runs[1]["started_at"].as_str());
    assert_eq!(told["experiment"]["last_run"]["run_id"], runs[0]["run_id"]);
    // It is the digest by which its runs are known.
    assert_eq!(told["experiment"]["digest"], runs[0]["digest"]);
}

#[tokio::test]
async fn what_is_built_in_is_described_and_its_document_can_be_registered() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (told, failed) =
        client.call("chaos_describe_experiment", json!({"experiment_name": "process-death"})).await;
    assert!(!failed, "{told}");
    assert_eq!((&told["experiment"]["origin"], &told["runs"]), (&json!("built-in"), &json!([])));
    let unit = json!({"name": "unit", "environment": "CHAOS_UNIT", "default": "payment.service"});
    assert!(told["variables"].as_array().unwrap().contains(&unit), "{told}");
    register(&mut client, told["document"].clone()).await;
    let title = told["document"]["title"].clone();
    let (again, failed) = client.call("chaos_describe_experiment", json!({"experiment_name": title})).await;
    assert!(!failed, "{again}");
    assert_eq!(again["experiment"]["origin"], "registered");
    assert_eq!(again["experiment"]["digest"], told["experiment"]["digest"]);
    let (refused, failed) =
        client.call("chaos_describe_experiment", json!({"experiment_name": "nosuch"})).await;
    assert!(failed && refused["experiment_name"] == "nosuch", "{refused}");
    assert_eq!(refused["error"]["code"], "EXPERIMENT_NOT_FOUND");
}

#[tokio::test]
async fn an_operator_is_shown_an_experiment() {
    let server = Server::start().await;
    let shown = chaosctl(&server.socket, &["experiment", "show", "process-death"]).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for line in [
        "process-death: a killed service is started again and recovers [process, recovery] process_kill; built-in\n",
        "  variable unit from CHAOS_UNIT: \"payment.service\"\n",
        "  probe health (steady state): ",
        "  fault process_kill process-death at {\"unit\":\"payment.service\"",
    ] {
        assert!(shown.stdout.contains(line), "{line}: {}", shown.stdout);
    }
    assert_eq!(chaosctl(&server.socket, &["experiment", "show", "nosuch"]).await.code, 1);
}

#[tokio::test]
async fn the_page_of_a_fault_says_what_it_does_and_needs_and_who_undoes_it_alike_in_the_shell_and_over_mcp() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let shown = chaosctl(&server.socket, &["hub", "show", "network-partition"]).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for line in [
        "network_partition: drops matching packets silently, both ways; of an interface, or of a unit, cgroup or processes on every interface",
        "categories: network",
        "parameters (what may be given; default):",
        "  packet_probability (0 to 1; 1): Share of the matching packets that is affected.",
        "lifetime class: kernel; undone, if the daemon cannot, by the kernel: it goes with the process that holds it",
        "severity: degraded or outage, by what it is told",
        "share: of packets, by params.packet_probability",
        "needs of the kernel: cls_bpf; cgroup2, programs of control groups that see packets (of a service without an interface)",
        "experiments with it: dependency-partition",
    ] {
        assert!(shown.stdout.lines().any(|shown| shown == line), "{line}: {}", shown.stdout);
    }
    let shown = chaosctl(&server.socket, &["hub", "show", "resource_exhaustion"]).await.stdout;
    assert!(
        shown.contains(
            "lifetime class of limits: supervised; undone, if the daemon cannot, by chaos-daemon guard"
        ),
        "{shown}"
    );
    assert!(
        shown.contains("share: all or nothing, or by its parameters")
            && shown.contains("cgroup2, the cgroup controller cpu (of cpu_limit)"),
        "{shown}"
    );

    let shown = chaosctl(&server.socket, &["--json", "hub", "show", "process-kill"]).await.stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        shown["lifetimes"],
        json!([{"class": "irreversible", "undone_by": "nobody: it cannot be taken back"}])
    );
    assert_eq!(shown["share"], json!({"of": "processes", "field": "target.share"}));
    assert_eq!((&shown["severities"], &shown["needs"]), (&json!(["outage"]), &json!([])));
    assert_eq!(shown["experiments"], json!(["process-death", "process-death-alert"]));
    let read = client.request("resources/read", json!({"uri": "chaos://fault/process_kill"})).await;
    let page: Value = serde_json::from_str(read["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(page, shown);
}

#[tokio::test]
async fn a_category_has_experiments_and_faults() {
    let server = Server::start().await;
    let listed = async |category: &str| {
        chaosctl(&server.socket, &["--json", "hub", "list", "--category", category]).await.stdout
    };
    for (category, experiment, fault, other) in [
        ("network", "slow-dependency", "bandwidth", "clock_skew"),
        ("process", "process-death", "service_stop", "latency"),
        ("resources", "pool-exhaustion", "port_in_use", "host_panic"),
    ] {
        let found: Value = serde_json::from_str(&listed(category).await).unwrap();
        let names = |list: &str, field: &str| -> Vec<_> {
            let list = found[list].as_array().unwrap().iter();
            list.map(|entry| entry[field].as_str().unwrap().to_owned()).collect()
        };
        assert!(names("experiments", "name").contains(&experiment.to_owned()), "{category}: {found}");
        let faults = names("faults", "fault_type");
        assert!(
            faults.contains(&fault.to_owned()) && !faults.contains(&other.to_owned()),
            "{category}: {faults:?}"
        );
    }
    let shown = chaosctl(&server.socket, &["hub", "list", "--category", "host"]).await.stdout;
    assert!(shown.lines().count() == 3 && shown.contains("[fault: host] "), "{shown}");
}
