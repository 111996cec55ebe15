//! Whose things are whose, at every tool: two users, who call theirs the same, and root.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UnixStream;

use serde_json::json;

use super::*;
use crate::probe::prober::{self, Prober};
use crate::request::claim::Claim;
use crate::request::evidence::Met;
use crate::request::facts::{Facts, Question};
use crate::request::wire::{Desk, Door};
use crate::request::{Evidence, FaultState, FaultStatus, PlanReport, Removal, Reply, Request};
use crate::server::history::Retention;
use crate::spec::{FaultRequest, LifetimeClass, Owner, QualifiedName, Reach};
use tools::Entry;

const A: u32 = 1001;
const B: u32 = 1002;
const ROOT: u32 = 0;

/// What nobody but its owner and root is to see.
const SECRET: &str = "S3CR3T";

type Active = Arc<Mutex<BTreeMap<QualifiedName, FaultRequest>>>;

/// A server, and whom it asks to inject.
struct Stage {
    service: Service,
    active: Active,
    _folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let active = Active::default();
        tokio::spawn(inject_and_remove(Desk::new(theirs), Arc::clone(&active)));
        let (server, other) = UnixStream::pair().unwrap();
        tokio::spawn(prober::serve(other, None));
        let prober = Prober::new(prober::samples(server), None);
        let folder = tempfile::tempdir().unwrap();
        let retention = Retention::default();
        let service = Service::new(Door::new(ours), prober, Some(folder.path()), retention, 8, None);
        Self { service, active, _folder: folder }
    }

    async fn call(&self, uid: u32, tool: &str, arguments: Value) -> Value {
        let (asker, _followed) = waiting::between();
        let caller = Caller::Unix { uid, gid: uid, pid: 7 };
        let arguments = arguments.as_object().unwrap().clone();
        let service = self.service.in_the_name_of(Claim::Connection(uid.into()));
        let call = Call { service: &service, caller, arguments, asker: &asker, trace: None };
        let said = Entry::named(tool).unwrap().carry_out(call).await;
        said.structured_content.unwrap()
    }

    /// What a call says that is not refused.
    async fn done(&self, uid: u32, tool: &str, arguments: Value) -> Value {
        let said = self.call(uid, tool, arguments.clone()).await;
        assert_eq!(code(&said), None, "{tool} {arguments} of {uid}: {said}");
        said
    }

    async fn fault(&self, uid: u32, name: &str, action: &str, more: Value) -> Value {
        let mut arguments = json!({"fault_name": name, "action": action});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.call(uid, "chaos_inject_fault", arguments).await
    }

    async fn register(&self, uid: u32, name: &str, kind: &str) {
        let said = self.fault(uid, name, "register", fault(kind)).await;
        assert_eq!(said["status"], "registered", "{said}");
    }

    /// The faults in this user's status: name, type and owner.
    async fn faults(&self, uid: u32) -> Vec<[String; 3]> {
        let status = self.done(uid, "chaos_status", json!({})).await;
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let told = |fault: &Value| [word(&fault["name"]), word(&fault["fault_type"]), word(&fault["owner"])];
        status["active_faults"].as_array().unwrap().iter().map(told).collect()
    }

    fn active(&self) -> Vec<(String, &'static str)> {
        let active = self.active.lock().unwrap();
        active.iter().map(|(name, fault)| (name.to_string(), fault.fault_type.name())).collect()
    }
}

/// Why a call was refused.
fn code(said: &Value) -> Option<&str> {
    said["error"]["code"].as_str().or(said["error_code"].as_str())
}

fn fault(kind: &str) -> Value {
    json!({"fault_type": kind, "probability": 1, "duration_seconds": 60, "target": {"interface": "eth0"}})
}

/// Holds what is injected until it is removed.
async fn inject_and_remove(mut desk: Desk, active: Active) {
    let answers = desk.answers();
    // Who has begun what goes on.
    let mut grants = Vec::new();
    while let Ok(Some((ticket, request))) = desk.next().await {
        let mut active = active.lock().unwrap();
        let uid = match ticket.claim() {
            // Here each user has one, with its own number.
            Claim::Connection(uid) => u32::try_from(uid).ok(),
            Claim::Grant(number) => grants.get(usize::try_from(number).unwrap()).copied(),
            Claim::Nobody => None,
        };
        let caller = uid.map(|uid| Caller::Unix { uid, gid: uid, pid: 7 });
        let named = |owner: Owner| assert!(caller.is_some_and(|caller| caller.may_name(owner)), "{owner}");
        let reply = match request {
            Request::Inject { name, fault, plan_digest } => {
                named(name.owner);
                assert!(plan_digest.is_none_or(|planned| planned == digest(&fault)));
                active.insert(name.clone(), FaultRequest::clone(&fault));
                Reply::Injected(Box::new(status(&name, &fault)))
            }
            Request::Plan { name, fault } => {
                named(name.owner);
                Reply::Planned(Box::new(plan(&fault)))
            }
            Request::PlanAll { faults, .. } => {
                Reply::PlannedAll(faults.iter().map(|planned| Ok(plan(&planned.fault))).collect())
            }
            Request::Remove { name } => {
                let owner = name.owner.or_else(|| caller.map(Caller::owner)).unwrap();
                let name = QualifiedName::new(owner, name.name);
                Reply::Removed(active.remove(&name).map(|fault| removal(name, &fault)).into_iter().collect())
            }
            Request::StopAll => {
                let all = std::mem::take(&mut *active);
                Reply::Removed(all.into_iter().map(|(name, fault)| removal(name, &fault)).collect())
            }
            Request::Status => {
                Reply::Status(active.iter().map(|(name, fault)| status(name, fault)).collect())
            }
            Request::Look { question: Question::Experiment(_) } => {
                Reply::Seen(Facts::Experiment(Box::default()))
            }
            Request::Look {
                question: Question::Act(_) | Question::Named { .. } | Question::Fault { .. },
            } => Reply::Seen(Facts::Act),
            Request::Look { question: Question::Address(_) } => Reply::Seen(Facts::Address(Reach::usual())),
            Request::Look { question: Question::Naming(_) } => {
                Reply::Error(ApiError::new(ErrorCode::PolicyDenied, "of another user"))
            }
            Request::Entrust(what) => {
                named(what.owner);
                grants.push(uid.unwrap());
                Reply::Entrusted { grant: u64::try_from(grants.len() - 1).unwrap(), approved: None }
            }
            Request::Release | Request::Keep { .. } | Request::Approved(_) => Reply::Done,
            Request::Record { .. } => Reply::Recorded,
            other => panic!("{other:?}"),
        };
        drop(active);
        answers.answer(ticket, reply);
    }
}

fn digest(fault: &FaultRequest) -> String {
    format!("{} on {:?}", fault.fault_type.name(), fault.target.interface)
}

fn plan(fault: &FaultRequest) -> PlanReport {
    PlanReport {
        description: SECRET.into(),
        lifetime: LifetimeClass::Kernel,
        guard: String::new(),
        duration: Duration::from_secs(60),
        steps: Vec::new(),
        digest: digest(fault),
        targets: None,
        restarts: Vec::new(),
        warnings: Vec::new(),
    }
}

fn status(name: &QualifiedName, fault: &FaultRequest) -> FaultStatus {
    FaultStatus {
        began: None,
        name: name.clone(),
        fault_type: fault.fault_type,
        state: FaultState::Effective,
        lifetime: LifetimeClass::Kernel,
        guard: "the kernel".into(),
        description: format!("{SECRET} on eth0"),
        age: Duration::from_secs(1),
        remaining: Duration::from_secs(59),
        evidence: Evidence::Met(Met { affected: 7, ..Met::default() }),
        addresses: Vec::new(),
        likely: None,
        note: Some(SECRET.into()),
    }
}

fn removal(name: QualifiedName, fault: &FaultRequest) -> Removal {
    let evidence = Evidence::Met(Met { affected: 7, ..Met::default() });
    Removal {
        name,
        fault_type: fault.fault_type,
        evidence,
        likely: None,
        residue: Vec::new(),
        kept: Vec::new(),
    }
}

/// An experiment that is not steady, with a secret where documents declare none.
fn experiment(kind: &str) -> Value {
    json!({
        "title": "slow",
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "health", "tolerance": 200,
            "provider": {"type": "http", "url": format!("http://user:{SECRET}@127.0.0.1:9/"),
                "headers": {"Authorization": format!("Bearer {SECRET}")}, "timeout": 1}}]},
        "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": kind, "--interface": "eth0", "--name": "cut", "--for": "1s"}}}],
    })
}

fn named<const N: usize>(all: [[&str; 3]; N]) -> Vec<[String; 3]> {
    all.into_iter().map(|fault| fault.map(str::to_owned)).collect()
}

#[tokio::test]
async fn each_user_registers_overwrites_injects_and_removes_its_own_whatever_others_call_theirs() {
    let stage = Stage::new();
    for (uid, kind) in [(A, "latency"), (B, "timeout"), (ROOT, "network_partition")] {
        stage.register(uid, "slow-database", kind).await;
    }
    let own = |kind| named([["slow-database", kind, ""]]);
    assert_eq!(stage.faults(A).await, own("latency"));
    assert_eq!(stage.faults(B).await, own("timeout"));
    let all = [
        ["slow-database", "network_partition", ""],
        ["1001/slow-database", "latency", "uid 1001"],
        ["1002/slow-database", "timeout", "uid 1002"],
    ];
    assert_eq!(stage.faults(ROOT).await, named(all));
    stage.register(B, "slow-database", "error").await;
    assert_eq!(stage.faults(A).await, own("latency"));
    for uid in [A, B, ROOT] {
        let said = stage.fault(uid, "slow-database", "inject", json!({})).await;
        assert!(said["was_triggered"] == true && said["fault_name"] == "slow-database", "{said}");
    }
    let both = [
        ("slow-database".to_owned(), "network_partition"),
        ("1001/slow-database".to_owned(), "latency"),
        ("1002/slow-database".to_owned(), "error"),
    ];
    assert_eq!(stage.active(), both);
    let said = stage.fault(A, "slow-database", "remove", json!({})).await;
    assert_eq!((&said["status"], &said["fault_type"]), (&json!("removed"), &json!("latency")));
    assert_eq!(stage.active(), [both[0].clone(), both[2].clone()]);
    // What is not there is removed all the same, as the tool specification has it.
    let said = stage.fault(A, "never-there", "remove", json!({})).await;
    assert_eq!(said["status"], "removed", "{said}");
}

#[tokio::test]
async fn of_others_a_user_sees_what_is_active_so_that_it_can_be_ended_and_nothing_of_what_it_does() {
    let stage = Stage::new();
    stage.register(A, "slow", "latency").await;
    stage.register(A, "idle", "latency").await;
    stage.fault(A, "slow", "inject", json!({})).await;
    let status = stage.done(B, "chaos_status", json!({})).await;
    let [seen] = status["active_faults"].as_array().unwrap().as_slice() else { panic!("{status}") };
    let expected = json!({"name": "1001/slow", "owner": "uid 1001", "fault_type": "latency", "probability": 1.0,
        "registered": false, "active": true, "state": "effective", "remaining_seconds": 59.0});
    assert_eq!(*seen, expected);
    let root = stage.done(ROOT, "chaos_status", json!({})).await;
    let slow = &root["active_faults"].as_array().unwrap()[1];
    assert!(slow["name"] == "1001/slow" && slow["registered"] == true, "{root}");
    assert!(slow["description"].as_str().unwrap().contains(SECRET), "{root}");
    // Ending is everybody's, forgetting is not.
    let said = stage.fault(B, "1001/slow", "remove", json!({})).await;
    assert_eq!(said["status"], "removed", "{said}");
    assert!(said["message"].as_str().unwrap().contains("what is registered under it stays"), "{said}");
    assert!(said.get("evidence").is_none(), "{said}");
    assert_eq!(stage.active(), []);
    assert_eq!(stage.faults(A).await.len(), 2);
    stage.fault(A, "slow", "inject", json!({})).await;
    let said = stage.done(B, "chaos_stop", json!({"fault_name": "1001/slow"})).await;
    assert_eq!(
        (&said["stopped"][0]["name"], &said["stopped"][0]["owner"]),
        (&json!("1001/slow"), &json!("uid 1001"))
    );
    let said = stage.fault(ROOT, "1001/slow", "remove", json!({})).await;
    assert!(said["message"].as_str().unwrap().starts_with("forgotten"), "{said}");
    assert_eq!(stage.faults(A).await, named([["idle", "latency", ""]]));
}

#[tokio::test]
async fn nobody_but_root_names_what_others_have_but_to_end_it() {
    let stage = Stage::new();
    let words = json!({"action": "set", "experiment": "slow", "cron": "0 10 * * *"});
    let nightly = |action: &str, name: &str| {
        let mut arguments = if action == "set" { words.clone() } else { json!({"action": action}) };
        arguments["name"] = name.into();
        ("chaos_schedule", arguments)
    };
    stage.register(A, "slow", "latency").await;
    stage.done(A, "chaos_register_experiment", experiment("latency")).await;
    let (tool, set) = nightly("set", "nightly");
    stage.done(A, tool, set).await;
    let mut register = fault("timeout");
    register["fault_name"] = "1001/slow".into();
    register["action"] = "register".into();
    for (tool, arguments) in [
        ("chaos_inject_fault", register),
        ("chaos_inject_fault", json!({"fault_name": "1001/slow", "action": "inject"})),
        ("chaos_plan", json!({"fault_name": "1001/slow"})),
        ("chaos_describe_experiment", json!({"experiment_name": "1001/slow"})),
        ("chaos_plan_experiment", json!({"experiment_name": "1001/slow"})),
        ("chaos_run_experiment", json!({"experiment_name": "1001/slow", "dry_run": true})),
        ("chaos_run_experiment", json!({"experiment_name": "1001/slow"})),
        nightly("list", "1001/nightly"),
        nightly("set", "1001/nightly"),
        nightly("pause", "1001/nightly"),
        nightly("resume", "1001/nightly"),
        nightly("delete", "1001/nightly"),
    ] {
        let refused = stage.call(B, tool, arguments.clone()).await;
        assert_eq!(code(&refused), Some("POLICY_DENIED"), "{tool} {arguments}: {refused}");
        assert!(!refused.to_string().contains(SECRET), "{refused}");
        stage.done(ROOT, tool, arguments).await;
    }
    // What root has set anew is theirs still, and of that type now.
    assert_eq!(stage.faults(A).await, named([["slow", "timeout", ""]]));
    assert!(stage.done(A, "chaos_schedule", json!({"action": "list"})).await["schedules"] == json!([]));
}

#[tokio::test]
async fn schedules_are_each_users_own() {
    let stage = Stage::new();
    let set = json!({"action": "set", "name": "nightly", "experiment": "slow", "cron": "0 10 * * *"});
    for uid in [A, B] {
        stage.done(uid, "chaos_register_experiment", experiment("latency")).await;
        stage.done(uid, "chaos_schedule", set.clone()).await;
    }
    let names = async |uid: u32, arguments: Value| {
        let said = stage.done(uid, "chaos_schedule", arguments).await;
        let told = |it: &Value| {
            format!("{} {} {}", it["name"].as_str().unwrap(), it["set_by"].as_str().unwrap(), it["paused"])
        };
        said["schedules"].as_array().unwrap().iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(names(B, json!({"action": "pause"})).await, ["nightly uid 1002 true"]);
    assert_eq!(names(A, json!({"action": "list"})).await, ["nightly uid 1001 false"]);
    let all = ["1001/nightly uid 1001 false", "1002/nightly uid 1002 true"];
    assert_eq!(names(ROOT, json!({"action": "list"})).await, all);
    let roots = json!({"action": "set", "name": "nightly", "experiment": "1001/slow", "cron": "0 10 * * *"});
    let refused = stage.call(ROOT, "chaos_schedule", roots).await;
    assert!(
        refused["message"].as_str().unwrap().contains("a schedule of uid 0 runs theirs alone"),
        "{refused}"
    );
    // Whoever stops everything is told of what comes again.
    let said = stage.done(A, "chaos_stop", json!({})).await;
    assert_eq!(said["schedules"], json!(["nightly"]));
    let said = stage.done(ROOT, "chaos_stop", json!({})).await;
    assert_eq!(said["schedules"], json!(["1001/nightly"]));
}

#[tokio::test]
async fn of_experiments_and_runs_of_others_a_user_sees_that_they_were_and_how_they_ended() {
    let stage = Stage::new();
    for (uid, kind) in [(A, "latency"), (B, "timeout")] {
        stage.done(uid, "chaos_register_experiment", experiment(kind)).await;
    }
    let run = stage.done(A, "chaos_run_experiment", json!({"experiment_name": "slow"})).await;
    assert!(run["verdict"] == "refused" && run["experiment_name"] == "slow", "{run}");
    let id = run["run_id"].as_str().unwrap();
    let details = json!({"run_id": id, "all_samples": true});
    let described = stage.done(A, "chaos_describe_experiment", json!({"experiment_name": "slow"})).await;
    assert!(described.to_string().contains(SECRET), "a test that sees nothing: {described}");
    let of_others = [
        ("chaos_status", json!({"include_results": true})),
        ("chaos_list_experiments", json!({"origin": "registered"})),
        ("chaos_list_runs", json!({})),
        ("chaos_get_run", details.clone()),
        ("chaos_statistics", json!({})),
    ];
    for (tool, arguments) in &of_others {
        let said = stage.done(B, tool, arguments.clone()).await.to_string();
        assert!(
            !said.contains(SECRET) && !said.contains("latency") && !said.contains("eth0"),
            "{tool}: {said}"
        );
    }
    let listed = stage.done(B, "chaos_list_runs", json!({})).await;
    let [seen] = listed["runs"].as_array().unwrap().as_slice() else { panic!("{listed}") };
    assert_eq!((&seen["experiment_name"], &seen["owner"]), (&json!("1001/slow"), &json!("uid 1001")));
    assert_eq!((&seen["verdict"], &seen["run_id"]), (&run["verdict"], &run["run_id"]));
    assert!(seen["error"].is_null() && seen.get("digest").is_none(), "{seen}");
    // What is looked for within runs is found in one's own.
    for inside in [json!({"fault": "latency"}), json!({"target": "eth0"}), json!({"text": "slow"})] {
        let found = async |uid| {
            stage.done(uid, "chaos_list_runs", inside.clone()).await["runs"].as_array().unwrap().len()
        };
        assert_eq!([found(A).await, found(B).await, found(ROOT).await], [1, 0, 1], "{inside}");
    }
    let named = async |uid, name: &str| {
        let said = stage.done(uid, "chaos_list_runs", json!({"experiment_name": name})).await;
        said["runs"].as_array().unwrap().len()
    };
    assert_eq!([named(A, "slow").await, named(B, "slow").await, named(B, "1001/slow").await], [1, 0, 1]);
    let seen = stage.done(B, "chaos_get_run", details.clone()).await;
    assert_eq!(seen["owner"], "uid 1001");
    for hidden in ["events", "samples", "faults"] {
        assert_eq!(seen[hidden], json!([]), "{seen}");
    }
    for uid in [A, ROOT] {
        let all = stage.done(uid, "chaos_get_run", details.clone()).await;
        assert!(all["document"].is_object() && all["events"][0].is_object(), "{all}");
    }
    let listed = stage.done(B, "chaos_list_experiments", json!({"origin": "registered"})).await;
    assert_eq!(listed["experiments"].as_array().unwrap().len(), 1);
    assert_eq!(listed["experiments"][0]["fault_types"], json!(["timeout"]));
    assert!(listed["experiments"][0].get("last_run").is_none(), "{listed}");
    let listed = stage.done(ROOT, "chaos_list_experiments", json!({"origin": "registered"})).await;
    let names: Vec<_> =
        listed["experiments"].as_array().unwrap().iter().map(|it| &it["experiment_name"]).collect();
    assert_eq!(names, ["1001/slow", "1002/slow"]);
    assert_eq!(listed["experiments"][0]["last_run"]["run_id"], run["run_id"]);
    // A plan tells of like runs, and of others' not even that there are any.
    let plan = stage.done(B, "chaos_plan_experiment", json!({"document": experiment("latency")})).await;
    assert_eq!(
        (&plan["history"]["same_document"]["runs"], &plan["history"]["similar"]),
        (&json!(0), &json!([]))
    );
    let plan = stage.done(ROOT, "chaos_plan_experiment", json!({"document": experiment("latency")})).await;
    assert_eq!(plan["history"]["same_document"]["runs"], 1);
    assert_eq!(plan["history"]["similar"][0]["experiment_name"], "1001/slow");
}

#[tokio::test]
async fn what_root_runs_of_another_users_is_that_users_and_says_who_has_begun_it() {
    let stage = Stage::new();
    stage.done(A, "chaos_register_experiment", experiment("latency")).await;
    let run = stage.done(ROOT, "chaos_run_experiment", json!({"experiment_name": "1001/slow"})).await;
    assert_eq!((&run["experiment_name"], &run["owner"]), (&json!("1001/slow"), &json!("uid 1001")));
    let details = stage.done(A, "chaos_get_run", json!({"run_id": run["run_id"]})).await;
    assert_eq!((&details["owner"], &details["run"]["experiment_name"]), (&json!("uid 1001"), &json!("slow")));
    assert!(details["events"][0]["detail"].as_str().unwrap().contains("uid 0"), "{details}");
}

#[tokio::test]
async fn what_was_planned_is_injected_and_run_and_nothing_else() {
    let stage = Stage::new();
    stage.register(A, "slow", "latency").await;
    let planned = stage.done(A, "chaos_plan", json!({"fault_name": "slow"})).await["plan_digest"].clone();
    let said = stage.fault(A, "slow", "inject", json!({"plan_digest": planned})).await;
    assert_eq!(said["was_triggered"], true, "{said}");
    for action in ["register", "remove"] {
        let more = if action == "register" { fault("latency") } else { json!({}) };
        let mut more = more;
        more["plan_digest"] = planned.clone();
        assert_eq!(code(&stage.fault(A, "slow", action, more).await), Some("INVALID_PARAMETER"));
    }
    stage.done(A, "chaos_register_experiment", experiment("latency")).await;
    let name = json!({"experiment_name": "slow"});
    let digest = stage.done(A, "chaos_plan_experiment", name.clone()).await["plan_digest"].clone();
    // The same document plans the same, registered or not.
    let same = stage.done(A, "chaos_plan_experiment", json!({"document": experiment("latency")})).await;
    assert_eq!(same["plan_digest"], digest);
    let run = json!({"experiment_name": "slow", "plan_digest": digest});
    stage.done(A, "chaos_run_experiment", run.clone()).await;
    stage.done(A, "chaos_register_experiment", experiment("timeout")).await;
    let refused = stage.call(A, "chaos_run_experiment", run).await;
    assert_eq!(code(&refused), Some("PLAN_CHANGED"), "{refused}");
    let dry = json!({"experiment_name": "slow", "dry_run": true, "plan_digest": "x"});
    assert_eq!(code(&stage.call(A, "chaos_run_experiment", dry).await), Some("INVALID_PARAMETER"));
}

#[tokio::test]
async fn a_run_that_is_named_by_its_experiment_is_ones_own_or_said_whose() {
    let stage = Stage::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut document = experiment("latency");
    document["steady-state-hypothesis"]["probes"][0] = json!({"type": "probe", "name": "up", "tolerance": 0,
        "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", listener.local_addr().unwrap().to_string()]}});
    document["method"][0]["provider"]["arguments"]["--for"] = "30s".into();
    stage.done(A, "chaos_register_experiment", document).await;
    let begun =
        stage.done(A, "chaos_run_experiment", json!({"experiment_name": "slow", "wait_seconds": 0})).await;
    crate::waits::see(async || stage.active() == [("1001/cut".to_owned(), "latency")]).await;
    let status = stage.done(B, "chaos_status", json!({})).await;
    let running = &status["running"][0];
    assert_eq!(
        (&running["experiment_name"], &running["fault_names"]),
        (&json!("1001/slow"), &json!(["1001/cut"]))
    );
    assert_eq!(
        (&running["run_id"], &running["latest"], &running["activities"]),
        (&begun["run_id"], &json!([]), &json!([]))
    );
    let refused = stage.call(B, "chaos_stop", json!({"experiment_name": "slow"})).await;
    assert_eq!(code(&refused), Some("RUN_NOT_FOUND"));
    assert!(refused["error"]["hint"].as_str().unwrap().contains("1001/slow"), "{refused}");
    let said = stage.done(B, "chaos_stop", json!({"experiment_name": "1001/slow"})).await;
    assert_eq!(
        (&said["runs"][0]["experiment_name"], &said["runs"][0]["verdict"]),
        (&json!("1001/slow"), &json!("aborted"))
    );
    assert_eq!(stage.active(), []);
}
