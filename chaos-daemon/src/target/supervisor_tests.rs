//! Tests of who would start processes anew.

use super::*;
use crate::host::nearness::Nearness;

const KILL: i32 = 9;
const TERM: i32 = 15;

fn running(pid: i32, parent: i32, name: &str, group: &str) -> Running {
    let exe = Some(format!("/usr/bin/{name}"));
    Running { parent, exe, cgroup: Some(group.into()), ..Running::plain(pid, name) }
}

fn services(services: &[(&str, i32, &str)]) -> Services {
    let service = |(name, main_pid, restart): &(&str, i32, &str)| {
        ((*name).to_owned(), Service { main_pid: *main_pid, restart: (*restart).to_owned() })
    };
    Ok(services.iter().map(service).collect())
}

/// The one line, and whether it warns.
fn one(process: Running, others: &[Running], services: &Services, signal: i32) -> (String, bool) {
    let hit = vec![process.clone()];
    let told = supervision(&hit, &[hit.as_slice(), others].concat(), services, signal);
    assert_eq!(told.lines.len(), 1, "{told:?}");
    (told.lines[0].clone(), told.warning.is_some())
}

#[test]
fn systemd_starts_a_service_again_as_its_restart_has_it_for_this_signal() {
    let main = || running(71, 1, "payment", "system.slice/payment.service");
    for (restart, after_kill, after_term) in [
        ("no", false, false),
        ("on-success", false, true),
        ("on-failure", true, false),
        ("on-abnormal", true, false),
        ("on-abort", true, false),
        ("on-watchdog", false, false),
        ("always", true, true),
    ] {
        let services = services(&[("payment.service", 71, restart)]);
        for (signal, starts) in [(KILL, after_kill), (TERM, after_term)] {
            let (line, warns) = one(main(), &[], &services, signal);
            assert_eq!(warns, !starts, "{restart} and {signal}: {line}");
            assert!(line.contains(&format!("payment.service has Restart={restart}")), "{line}");
            assert_eq!(line.starts_with("systemd ("), starts, "{line}");
        }
    }
}

#[test]
fn of_a_service_whose_main_process_is_not_hit_nobody_does_unless_its_parent_may() {
    let group = "system.slice/web.service";
    let services = services(&[("web.service", 70, "always")]);
    let same = Some((1, 7));
    let master = Running { program: same, ..running(70, 1, "nginx", group) };
    let worker = Running { program: same, ..running(71, 70, "nginx", group) };
    let (line, warns) = one(worker.clone(), std::slice::from_ref(&master), &services, KILL);
    assert_eq!(
        line,
        "perhaps the parent, process 70 (nginx), which runs the same program: 1 process: 71 (nginx)"
    );
    assert!(!warns);
    let child = running(72, 70, "helper", group);
    let (line, warns) = one(child, std::slice::from_ref(&master), &services, KILL);
    assert!(warns && line.contains("the main process of web.service is not hit"), "{line}");
    // With its main process all of a service is started again.
    let both = vec![master, worker];
    let told = supervision(&both, &both, &services, KILL);
    assert_eq!(told.lines, ["systemd (web.service has Restart=always): 2 processes: 70 (nginx), 71 (nginx)"]);
    assert_eq!(told.warning, None);
}

#[test]
fn supervisors_and_container_runtimes_are_found_and_what_cannot_be_known_is_no_warning() {
    let none = Ok(BTreeMap::new());
    let runsv = running(60, 1, "runsv", "");
    let (line, warns) = one(running(71, 60, "payment", ""), &[runsv], &none, TERM);
    assert!(line.starts_with("the supervisor runsv (process 60): ") && !warns, "{line}");
    let id = "0123456789abcdef".repeat(4);
    for group in [
        format!("system.slice/docker-{id}.scope"),
        format!("docker/{id}"),
        format!("machine.slice/libpod-{id}.scope/container"),
        format!("system.slice/containerd.service/kubepods-pod7.slice:cri-containerd:{id}"),
    ] {
        let (line, warns) = one(running(71, 1, "payment", &group), &[], &none, KILL);
        assert!(line.contains("container runtime") && line.contains("0123456789ab)") && !warns, "{line}");
    }
    let nearness = Nearness { of_this_host: false, in_this_network: false };
    let apart = Running { nearness, ..running(71, 1, "payment", "") };
    assert!(one(apart, &[], &none, KILL).0.contains("a pid namespace of its own"));
    let user = running(71, 60, "app", "user.slice/user-7.slice/user@7.service/app.slice/app.service");
    let (line, warns) = one(user, &[], &none, KILL);
    assert!(line.starts_with("not known: a user's own systemd") && !warns, "{line}");
    let unasked = running(71, 1, "payment", "system.slice/payment.service");
    let (line, warns) = one(unasked.clone(), &[], &Err("systemd does not answer".to_owned()), KILL);
    assert!(line.starts_with("not known: systemd does not answer") && !warns, "{line}");
    assert!(!one(unasked, &[], &none, KILL).1);
}

#[test]
fn when_nobody_is_found_it_is_said_whom_that_is_about_and_what_to_do_first() {
    let none = Ok(BTreeMap::new());
    let session = "user.slice/user-7.slice/session-2.scope";
    let hit: Vec<_> = (71..76).map(|pid| running(pid, 60, "sleep", session)).collect();
    let told = supervision(&hit, &[hit.clone(), vec![running(60, 1, "bash", session)]].concat(), &none, KILL);
    assert_eq!(
        told.warning.unwrap(),
        "nobody was found who would start again 5 of 5 (5 processes: 71 (sleep), 72 (sleep), 73 (sleep), …): set up a \
         supervisor first, such as Restart= of a systemd service"
    );
    assert_eq!(told.lines, ["nobody was found: 5 processes: 71 (sleep), 72 (sleep), 73 (sleep), …"]);
    assert_eq!(supervision(&[], &[], &none, KILL), Supervision::default());
}

#[test]
fn the_services_of_the_hosts_systemd_are_asked_for_once_each() {
    let hit = [
        running(1, 1, "a", "system.slice/b.service"),
        running(2, 1, "a", "system.slice/b.service/worker"),
        running(3, 1, "a", "system.slice/a.service"),
        running(4, 1, "a", "user.slice/user@7.service/c.service"),
        running(5, 1, "a", "user.slice/session-1.scope"),
        running(6, 1, "a", &format!("system.slice/docker.service/{}", "ab".repeat(32))),
    ];
    assert_eq!(super::services(&hit), ["a.service", "b.service"]);
}
