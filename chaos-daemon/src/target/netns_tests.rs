//! Where a caller may go is where a process of the caller's could look.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

use super::*;
use crate::waits::wait_for;

/// Users that this host does not have.
const ALICE: u32 = 47_110;
const BOB: u32 = 47_111;

/// A process of a user's in a network namespace of its own, which is of another user namespace if `apart`; `None` where that is not
/// allowed.
fn sleeper(user: u32, apart: bool) -> Option<Sleeper> {
    let mut command = Command::new("sleep");
    command.arg("600").uid(user).gid(user);
    // Before the user is changed, or after it with a namespace in which it may.
    let own =
        if apart { CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET } else { CloneFlags::CLONE_NEWNET };
    match apart {
        // SAFETY: between fork and exec a system call is made.
        true => unsafe { command.pre_exec(move || Ok(unshare(own)?)) },
        false => {
            let unshared = std::thread::spawn(move || {
                unshare(own).unwrap();
                command.spawn()
            });
            return unshared.join().unwrap().ok().map(Sleeper);
        }
    };
    command.spawn().ok().map(Sleeper)
}

struct Sleeper(Child);

impl Sleeper {
    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    /// It executes its program a moment after it is there, and can be traced from then on.
    fn until_it_sleeps(self) -> Self {
        let comm = format!("/proc/{}/comm", self.0.id());
        wait_for(|| std::fs::read_to_string(&comm).is_ok_and(|name| name.trim() == "sleep"));
        self
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may have ended.
        drop((self.0.kill(), self.0.wait()));
    }
}

fn entrance(uid: u32, rules: &[&str]) -> Entrance {
    let named = rules.iter().map(|rule| NetNsRule::try_from((*rule).to_owned()).unwrap());
    Entrance::new(Caller::Unix { uid, gid: uid, pid: 0 }, &named.collect())
}

/// Whether a process of this user's may see it, by a program that opens it.
fn could(user: u32, path: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3< \"$1\"", "sh", path]).uid(user).gid(user);
    command.stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn a_namespace_is_entered_where_a_process_of_the_caller_could_look_into_it_or_the_policy_names_it() {
    if !geteuid().is_root() {
        return;
    }
    let mut entered = 0;
    for (owner, apart) in [(ALICE, false), (ALICE, true), (BOB, false), (BOB, true), (0, false)] {
        let Some(process) = sleeper(owner, apart).map(Sleeper::until_it_sleeps) else {
            println!("no user namespace for {owner}");
            continue;
        };
        let path = process.path();
        for user in [ALICE, BOB] {
            let opened = entrance(user, &[]).open(&path);
            let words = format!("{user} of {owner}'s, apart: {apart}: {opened:?}");
            assert_eq!(opened.is_ok(), could(user, &path), "{words}");
            assert_eq!(opened.is_ok(), user == owner, "{words}");
            entered += u32::from(opened.is_ok());
            if let Err(refused) = opened {
                assert_eq!(refused.code, ErrorCode::PolicyDenied, "{words}");
                assert!(refused.hint.is_some_and(|hint| hint.contains("fault_netns")), "{words}");
            }
            assert!(entrance(user, &["*"]).open(&path).is_ok());
            // What the policy names is another one, or not there.
            let other = entrance(user, &["no-such-namespace", "/run/docker/netns/*"]).open(&path);
            assert_eq!(other.is_ok(), user == owner, "{words}");
        }
        assert!(entrance(0, &[]).open(&path).is_ok());
        let nobody = Entrance::new(Caller::Vsock { cid: 3 }, &BTreeSet::new());
        assert_eq!(nobody.open(&path).unwrap_err().code, ErrorCode::PolicyDenied);
    }
    assert!(entered >= 2, "{entered}");
    // Whether there is one under a name of root's is told to nobody whom the policy gives no leave.
    for name in ["no-such-namespace", "/run/netns/no-such-namespace"] {
        assert_eq!(entrance(ALICE, &[]).open(name).unwrap_err().code, ErrorCode::PolicyDenied);
        assert_eq!(entrance(ALICE, &["other"]).open(name).unwrap_err().code, ErrorCode::TargetNotFound);
        assert_eq!(entrance(0, &[]).open(name).unwrap_err().code, ErrorCode::TargetNotFound);
    }
    // This process is the daemon here: neither it nor a thread of it, which may be in a namespace of somebody else's.
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        tell.send(nix::unistd::gettid()).unwrap();
        let _ = ended.recv();
    });
    let (process, thread_id) = (process::id(), told.recv().unwrap());
    for own in [
        format!("/proc/{process}/ns/net"),
        format!("/proc/{process}/task/{thread_id}/ns/net"),
        format!("/proc/{thread_id}/ns/net"),
    ] {
        assert!(entrance(0, &[]).open(&own).is_ok(), "{own}");
        let refused = entrance(ALICE, &[]).open(&own).unwrap_err();
        assert_eq!(refused.code, ErrorCode::PolicyDenied, "{own}");
    }
    drop(end);
    thread.join().unwrap();
}
