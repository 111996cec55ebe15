//! The loop goes on, whatever a look at this node is kept by: what callers ask for is looked at beside it.

use std::cell::RefCell;
use std::os::unix::net::UnixStream as StdStream;
use std::rc::Rc;
use std::sync::{Condvar, Mutex, PoisonError};

use serde_json::json;
use tokio::net::UnixStream;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::timeout;

use super::*;
use crate::host::{Facts, Lack, WhenAsked};
use crate::request::claim::Claim;
use crate::request::wire::Door;
use crate::request::{Caller, ErrorCode, Planned};
use crate::spec::{FaultName, FaultRequest, GivenName, Owner, QualifiedName};
use crate::waits::{HANG, see};

/// How many look, and whether what they wait for has come.
static GATE: (Mutex<(usize, bool)>, Condvar) = (Mutex::new((0, false)), Condvar::new());

/// What keeps a look: a lock of the kernel, a file system, whatever.
fn kept<T>() -> Result<T, Lack> {
    let (state, opened) = &GATE;
    let mut looks = state.lock().unwrap_or_else(PoisonError::into_inner);
    looks.0 += 1;
    let waited = opened.wait_timeout_while(looks, HANG, |(_, open)| !*open);
    let (mut looks, late) = waited.unwrap_or_else(PoisonError::into_inner);
    looks.0 -= 1;
    drop(looks);
    assert!(!late.timed_out(), "nobody has opened: the loop stands still");
    Err(Lack { what: "a gate".into(), remedy: "none".into() })
}

fn looking() -> usize {
    GATE.0.lock().unwrap_or_else(PoisonError::into_inner).0
}

/// Lets those go on who look now, and waits until they have.
async fn open() {
    let set = |open: bool| GATE.0.lock().unwrap_or_else(PoisonError::into_inner).1 = open;
    set(true);
    GATE.1.notify_all();
    see(async || looking() == 0).await;
    set(false);
}

/// An injector on a node that does not tell what it can do.
fn injector(folder: &std::path::Path) -> Rc<Injector> {
    let facts = Facts {
        call_programs: WhenAsked::new(kept),
        sever_programs: WhenAsked::new(kept),
        files: WhenAsked::new(kept),
        sockets: WhenAsked::new(kept),
        ..Facts::of_everything()
    };
    let options = Options {
        runtime_dir: folder.to_owned(),
        state_dir: folder.to_owned(),
        policy_source: PolicySource::default(),
        policy: toml::from_str("environment = \"test\"").unwrap(),
        socket_group: None,
        sockets: Vec::new(),
        vsock: None,
        alerts: None,
        attach: AttachChoice::Auto,
        keep_runs: 1,
        keep_megabytes: 1,
        keep_days: None,
        most_runs: 1,
        connections: 1,
        audit_megabytes: 16,
    };
    let journal = Journal::open(folder.join("journal")).unwrap();
    let home = NetNs::current().unwrap();
    let audit = audit::open(&options).unwrap();
    Rc::new(Injector::new(&options, (Privileges::of_a_test(), audit), facts, journal, home, Vec::new()))
}

/// Takes in what comes through the door, as the injector does.
async fn serve_door(injector: Rc<Injector>, mut desk: Desk) {
    let answers = desk.answers();
    while let Ok(Some((mut ticket, request))) = desk.next().await {
        let (injector, answers) = (Rc::clone(&injector), answers.clone());
        let epoch = injector.epoch();
        spawn_local(async move {
            let reply = reply_to(&injector, request, epoch, &mut ticket).await;
            answers.answer(ticket, reply);
        });
    }
}

fn name(name: &str, uid: u32) -> QualifiedName {
    QualifiedName::new(Owner::User(uid), FaultName::new(name).unwrap())
}

/// Users that are connected, at the door.
struct Users {
    door: Door,
    injector: Rc<Injector>,
    /// Their ends of the connections.
    ends: RefCell<Vec<StdStream>>,
}

impl Users {
    /// The door in the name of one of them, with a connection of its own.
    fn of(&self, uid: u32) -> Door {
        let (near, far) = StdStream::pair().unwrap();
        self.ends.borrow_mut().push(far);
        let who = Caller::Unix { uid, gid: 0, pid: 0 }.into();
        let connection = self.injector.claims().arrive(who, near.into(), None).unwrap();
        self.door.in_the_name_of(Claim::Connection(connection))
    }
}

fn fault(kind: &str, params: serde_json::Value) -> FaultRequest {
    let target = json!({"cgroup": "no/such"});
    let request = json!({"fault_type": kind, "probability": 1, "target": target, "params": params});
    serde_json::from_value(request).unwrap()
}

/// Every request that has this node looked at, each of another user.
fn requests() -> Vec<(u32, Request)> {
    let faults = [
        fault("connect_error", json!({})),
        fault("network_partition", json!({})),
        fault("file_error", json!({"path": "/"})),
        fault("socket_error", json!({"operations": ["bind"]})),
    ];
    let mut all = vec![(1999, Request::Doctor)];
    for (uid, fault) in (2000..).step_by(10).zip(faults) {
        let planned = Planned { name: name("p", uid), fault: fault.clone(), beside: Vec::new() };
        all.push((uid, Request::PlanAll { faults: vec![planned] }));
        let (name, plan_digest) = (self::name("a", uid + 1), None);
        all.push((uid + 1, Request::Plan { name, fault: Box::new(fault.clone()) }));
        let (name, fault) = (self::name("i", uid + 2), Box::new(fault));
        all.push((uid + 2, Request::Inject { name, fault, plan_digest }));
    }
    all
}

type Asked = JoinHandle<Result<Reply, ApiError>>;

fn ask(door: &Door, request: Request) -> Asked {
    let door = door.clone();
    spawn_local(async move { door.call(request).await })
}

/// Waits until so many look, of which the last was asked for.
async fn until_looks(count: usize, asked: &Asked) {
    see(async || {
        assert!(!asked.is_finished(), "answered, and nothing was looked at");
        looking() == count
    })
    .await;
}

async fn soon(door: &Door, request: Request) -> Reply {
    timeout(HANG, door.call(request)).await.expect("the loop stands still").unwrap()
}

/// Runs a test with an injector and its door.
async fn with_injector(test: impl AsyncFnOnce(&Users)) {
    // One at a time: there is one gate.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    LocalSet::new()
        .run_until(async {
            let (server, ours) = UnixStream::pair().unwrap();
            let door = Door::new(server);
            let injector = injector(folder.path());
            spawn_local(serve_door(Rc::clone(&injector), Desk::new(ours)));
            test(&Users { door, injector, ends: RefCell::default() }).await;
        })
        .await;
}

#[tokio::test]
async fn whatever_a_look_is_kept_by_status_and_removals_are_answered_and_the_loop_beats() {
    with_injector(async |users| {
        let door = &users.door;
        for (uid, request) in requests() {
            let words = format!("{request:?}");
            let asked = ask(&users.of(uid), request);
            until_looks(1, &asked).await;
            let beat = spawn_local(tokio::time::sleep(watch::BEAT));
            assert!(matches!(soon(door, Request::Status).await, Reply::Status(_)), "{words}");
            let remove = Request::Remove { name: GivenName::parse("nobodys").unwrap() };
            assert!(matches!(soon(&users.of(5000), remove).await, Reply::Removed(_)), "{words}");
            beat.await.unwrap();
            assert!(looking() == 1 && !asked.is_finished(), "{words}");
            // What is missing is looked for a second time at once.
            see(async || {
                open().await;
                asked.is_finished()
            })
            .await;
            match asked.await.unwrap() {
                Err(error) => assert_eq!(error.code, ErrorCode::UnsupportedKernel, "{words}"),
                Ok(Reply::PlannedAll(plans)) => assert!(plans[0].is_err()),
                Ok(Reply::Doctor(report)) => {
                    assert!(report.faults.iter().any(|each| !each.missing.is_empty()))
                }
                Ok(other) => panic!("{words}: {other:?}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_second_look_of_one_user_waits_and_one_that_is_taken_back_is_out_of_the_way() {
    with_injector(async |users| {
        let door = &users.door;
        let plan = |uid: u32| {
            let fault = Box::new(fault("connect_error", json!({})));
            ask(&users.of(uid), Request::Plan { name: name("a", uid), fault })
        };
        let first = plan(3000);
        until_looks(1, &first).await;
        let waits = plan(3000);
        let other = plan(3001);
        until_looks(2, &other).await;
        waits.abort();
        waits.await.unwrap_err();
        soon(door, Request::Status).await;
        assert!(looking() == 2 && !first.is_finished() && !other.is_finished());
        see(async || {
            open().await;
            first.is_finished() && other.is_finished()
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn an_injection_that_is_looked_at_comes_to_nothing_when_it_is_removed_all_are_ended_or_who_asked_leaves()
 {
    with_injector(async |users| {
        let door = &users.door;
        let name = |text: &str| GivenName::parse(text).unwrap();
        let inject = |uid: u32| Request::Inject {
            name: self::name("a", uid),
            fault: Box::new(fault("connect_error", json!({}))),
            plan_digest: None,
        };
        for (uid, ends, words) in [
            (4000, Request::Remove { name: name("4000/a") }, "it was removed after it was asked for"),
            (4001, Request::StopAll, "every fault was ended after it was asked for"),
            (4002, Request::Remove { name: name("b") }, "missing a gate"),
        ] {
            let asked = ask(&users.of(uid), inject(uid));
            until_looks(1, &asked).await;
            soon(&users.of(5000), ends).await;
            see(async || {
                open().await;
                asked.is_finished()
            })
            .await;
            let refused = asked.await.unwrap().unwrap_err();
            assert!(refused.message.contains(words), "{refused}");
        }
        let asked = ask(&users.of(4003), inject(4003));
        until_looks(1, &asked).await;
        asked.abort();
        asked.await.unwrap_err();
        open().await;
        assert!(matches!(soon(door, Request::Status).await, Reply::Status(faults) if faults.is_empty()));
    })
    .await;
}

#[tokio::test]
async fn whatever_the_server_says_nobody_but_root_begins_anything_under_a_name_of_anothers() {
    with_injector(async |users| {
        let of_others = |owner: u32| {
            let (name, fault) = (name("a", owner), Box::new(fault("connect_error", json!({}))));
            let planned = Planned { name: name.clone(), fault: *fault.clone(), beside: Vec::new() };
            [
                Request::PlanAll { faults: vec![planned] },
                Request::Plan { name: name.clone(), fault: fault.clone() },
                Request::Inject { name, fault, plan_digest: None },
            ]
        };
        let codes = async |owner: u32, caller: u32| {
            let mut codes = Vec::new();
            for request in of_others(owner) {
                let asked = ask(&users.of(caller), request);
                see(async || {
                    open().await;
                    asked.is_finished()
                })
                .await;
                codes.push(match asked.await.unwrap() {
                    Ok(Reply::PlannedAll(mut plans)) => plans.remove(0).unwrap_err().code,
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => error.code,
                });
            }
            codes
        };
        assert_eq!(codes(6000, 6001).await, [ErrorCode::PolicyDenied; 3]);
        assert_eq!(codes(0, 6001).await, [ErrorCode::PolicyDenied; 3]);
        assert_eq!(codes(6000, 0).await, [ErrorCode::UnsupportedKernel; 3]);
    })
    .await;
}

#[tokio::test]
async fn whoever_asks_the_doctor_again_and_again_keeps_no_other_user_from_being_looked_at() {
    with_injector(async |users| {
        let doctor = |uid: u32| ask(&users.of(uid), Request::Doctor);
        let asked: Vec<_> = (0..20).map(|_| doctor(5000)).collect();
        let ended = || asked.iter().filter(|asked| asked.is_finished()).count();
        // One looks, 16 wait, and the others are refused.
        see(async || ended() >= 3 && looking() == 1).await;
        let other = doctor(5001);
        until_looks(2, &other).await;
        see(async || {
            open().await;
            ended() == asked.len() && other.is_finished()
        })
        .await;
        assert!(matches!(other.await.unwrap(), Ok(Reply::Doctor(_))));
        let mut refused = 0;
        for asked in asked {
            refused +=
                usize::from(asked.await.unwrap().is_err_and(|error| error.code == ErrorCode::LimitReached));
        }
        assert!(refused >= 3, "{refused}");
    })
    .await;
}
