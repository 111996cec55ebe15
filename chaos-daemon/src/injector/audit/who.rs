//! Who has asked, as the audit has it.

use std::collections::VecDeque;
use std::fs;

use chaos_audit::{Record, Who};
use procfs::process::Process;

use crate::policy;
use crate::request::Caller;

/// Of how many processes it is remembered what they were: one may end before its line is written.
const MOST_REMEMBERED: usize = 1024;
/// What `/proc/PID/loginuid` says of whom nobody has logged in.
const NOBODY: u32 = u32::MAX;

/// A caller, as far as the kernel has said who it is. What is known only of its process is looked up when the line is written
/// ([`Looker`]).
pub(super) fn who(who: &policy::Who, role: String) -> Who {
    let role = Some(role).filter(|role| !role.is_empty());
    let groups = who.groups.clone();
    match who.caller {
        Caller::Unix { uid, gid, pid } => Who {
            uid: Some(uid),
            gid: Some(gid),
            pid: Some(pid).filter(|pid| *pid > 0),
            groups,
            socket: Some("unix".to_owned()),
            role,
            ..Who::default()
        },
        Caller::Vsock { cid } => {
            Who { cid: Some(cid), socket: Some("vsock".to_owned()), role, ..Who::default() }
        }
    }
}

/// Looks up what is known of a caller's process. It does so on the thread that writes, and not on the loop.
#[derive(Debug, Default)]
pub(super) struct Looker {
    /// User and process, and what was found, the latest last.
    known: VecDeque<((u32, i32), Who)>,
}

impl Looker {
    /// Adds to a record what is known of the process that has asked.
    pub(super) fn complete(&mut self, record: &mut Record) {
        let Some(Who { uid: Some(uid), pid: Some(pid), exe: None, .. }) = record.who else { return };
        let found = look(uid, pid);
        let key = (uid, pid);
        if let Some(found) = &found {
            self.known.retain(|(other, _)| *other != key);
            self.known.push_back((key, found.clone()));
            if self.known.len() > MOST_REMEMBERED {
                self.known.pop_front();
            }
        }
        let known = || self.known.iter().rfind(|(other, _)| *other == key).map(|(_, found)| found.clone());
        if let (Some(who), Some(found)) = (&mut record.who, found.or_else(known)) {
            let Who { exe, loginuid, groups, .. } = found;
            (who.exe, who.loginuid) = (exe, loginuid);
            if who.groups.is_empty() {
                who.groups = groups;
            }
        }
    }
}

/// As whom somebody has logged in who is a process of theirs now: nothing where the kernel does not know. `None` when the process has ended,
/// or is another user's.
pub(in crate::injector) fn login_of(uid: u32, pid: i32) -> Option<Option<u32>> {
    look(uid, pid).map(|found| found.loginuid)
}

/// What is known of a process, if it is this user's still.
fn look(uid: u32, pid: i32) -> Option<Who> {
    let process = Process::new(pid).ok()?;
    let status = process.status().ok().filter(|status| status.euid == uid)?;
    let exe = process.exe().ok().map(|exe| exe.to_string_lossy().into_owned());
    let loginuid = fs::read_to_string(format!("/proc/{pid}/loginuid")).ok();
    let loginuid = loginuid.and_then(|text| text.trim().parse().ok()).filter(|uid| *uid != NOBODY);
    Some(Who { exe, loginuid, groups: status.groups, ..Who::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_this_test() -> Record {
        let (uid, pid) = (nix::unistd::geteuid().as_raw(), std::process::id().cast_signed());
        let who = Some(who(&Caller::Unix { uid, gid: 7, pid }.into(), "operator".to_owned()));
        Record { who, ..Record::default() }
    }

    #[test]
    fn a_caller_has_its_program_and_groups_and_one_that_has_gone_those_that_it_had() {
        let (mut looker, mut record) = (Looker::default(), of_this_test());
        looker.complete(&mut record);
        let who = record.who.unwrap();
        let exe = std::env::current_exe().unwrap();
        assert_eq!(who.exe.as_deref(), exe.to_str());
        assert_eq!(
            (who.gid, who.role.as_deref(), who.socket.as_deref()),
            (Some(7), Some("operator"), Some("unix"))
        );
        // Its number is nobody's now, as that of a process that has ended.
        let key = (who.uid.unwrap(), i32::MAX);
        looker.known.push_back((key, Who { exe: Some("/was".to_owned()), ..Who::default() }));
        let mut later = of_this_test();
        later.who.as_mut().unwrap().pid = Some(i32::MAX);
        looker.complete(&mut later);
        assert_eq!(later.who.unwrap().exe.as_deref(), Some("/was"));
    }

    #[test]
    fn of_a_process_that_is_another_users_by_now_nothing_is_said() {
        let (mut looker, mut record) = (Looker::default(), of_this_test());
        record.who.as_mut().unwrap().uid = Some(47_120);
        looker.complete(&mut record);
        assert_eq!(record.who.unwrap().exe, None);
    }

    #[test]
    fn a_context_of_a_vsock_is_nobody_on_this_host() {
        let who = who(&Caller::Vsock { cid: 3 }.into(), String::new());
        assert_eq!(who, Who { cid: Some(3), socket: Some("vsock".to_owned()), ..Who::default() });
    }
}
