//! Who may do what, under which policy.

use std::time::Duration;

use serde_json::json;

use jiff::Timestamp;

use super::limits::{Bounds, Recent, Together};
use super::roles::Members;
use super::*;
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::effect::Effect;
use crate::spec::sessions::{ConnectionLoad, Place, Server};
use crate::spec::{CpuLoad, Fault, FaultRequest, Hoard, HostDown, OnTargetGone, Way};

const ROOT: Caller = Caller::Unix { uid: 0, gid: 0, pid: 1 };

/// A policy of a host that is no production.
fn here(text: &str) -> Policy {
    let policy: Policy = toml::from_str(text).unwrap();
    policy.in_environment(Environment::try_from("test".to_owned()).ok()).unwrap()
}

fn permitted(policy: &Policy, caller: Caller, fault: &Fault, active: usize) -> Result<Permit, ApiError> {
    let (who, now) = (&caller.into(), Timestamp::UNIX_EPOCH);
    policy.permit(&Asked { who, fault, active, recent: Recent::default(), intent: Intent::Single, now })
}

fn fault(seconds: u64) -> Fault {
    let (ramp, processors) = (Duration::ZERO, Vec::new());
    let load = CpuLoad { percent: 50.0, cores: None, processors, ramp, whose: None };
    let (fault_type, effect) = (FaultType::ResourceExhaustion, Effect::Cpu(load));
    Fault { fault_type, duration: Duration::from_secs(seconds), effect, on_target_gone: OnTargetGone::End }
}

#[test]
fn the_default_policy_spares_ssh_and_bounds_number_and_duration() {
    let policy = here("");
    let permit = permitted(&policy, ROOT, &fault(60), 0).unwrap();
    assert_eq!(permit.protected().tcp_ports, [22]);
    assert_eq!(permitted(&policy, ROOT, &fault(60), 8).unwrap_err().code, ErrorCode::LimitReached);
    assert_eq!(permitted(&policy, ROOT, &fault(3601), 0).unwrap_err().code, ErrorCode::PolicyDenied);
}

#[test]
fn ports_that_are_spared_as_well_are_added_to_those_of_the_policy_and_not_to_each_other() {
    let permit = permitted(&here(""), ROOT, &fault(60), 0).unwrap();
    let permit = permit.sparing(&[22, 2222, 2222]);
    assert_eq!(permit.protected().tcp_ports, [22, 2222]);
    assert_eq!(permit.protected_with(&[2022]).tcp_ports, [22, 2022]);
}

#[test]
fn each_rule_denies_by_its_name() {
    let policy = here("fault_types = [\"latency\"]\nroles.operator.uids = [1000]");
    let error = permitted(&policy, ROOT, &fault(1), 0).unwrap_err();
    assert!(error.hint.unwrap().contains("`fault_types`"));
    let stranger = Caller::Unix { uid: 1001, gid: 0, pid: 1 };
    assert!(
        permitted(&policy, stranger, &fault(1), 0).unwrap_err().hint.unwrap().contains("`roles.operator`")
    );
}

#[test]
fn where_interfaces_are_listed_a_service_is_cut_off_on_one_of_those_alone() {
    let fault = |target: serde_json::Value| {
        let request = json!({"fault_type": "network_partition", "probability": 1, "target": target});
        serde_json::from_value::<FaultRequest>(request).unwrap().parse().unwrap()
    };
    let everywhere = fault(json!({"unit": "a.service"}));
    let there = fault(json!({"unit": "a.service", "interface": "eth1", "direction": "egress"}));
    assert!(permitted(&here(""), ROOT, &everywhere, 0).is_ok());
    let listing = here("interfaces = [\"eth1\"]");
    let error = permitted(&listing, ROOT, &everywhere, 0).unwrap_err();
    assert!(error.code == ErrorCode::PolicyDenied && error.hint.unwrap().contains("`interfaces`"));
    assert!(permitted(&listing, ROOT, &there, 0).is_ok());
}

#[test]
fn the_clock_is_left_alone_unless_the_policy_says_otherwise() {
    let (fault_type, effect) = (FaultType::ClockSkew, Effect::ClockSkew { offset_ns: 1 });
    let fault =
        Fault { fault_type, duration: Duration::from_secs(1), effect, on_target_gone: OnTargetGone::End };
    let error = permitted(&here(""), ROOT, &fault, 0).unwrap_err();
    assert!(error.code == ErrorCode::PolicyDenied && error.hint.unwrap().contains("`clock_skew`"));
    let allowing = here("clock_skew = true");
    assert!(permitted(&allowing, ROOT, &fault, 0).is_ok());
}

#[test]
fn the_host_is_left_up_unless_the_policy_says_otherwise_of_each_way() {
    let down = |way| {
        let fault_type = match way {
            Way::Reboot { .. } => FaultType::HostReboot,
            Way::Panic { .. } => FaultType::HostPanic,
        };
        let effect = Effect::Down(HostDown { way, countdown: Duration::from_secs(1) });
        Fault { fault_type, duration: Duration::from_secs(2), effect, on_target_gone: OnTargetGone::End }
    };
    let ways = [
        ("host_reboot", down(Way::Reboot { forced: false }), down(Way::Reboot { forced: true })),
        (
            "host_panic",
            down(Way::Panic { sync: false, stay_down: false }),
            down(Way::Panic { sync: true, stay_down: true }),
        ),
    ];
    for (switch, plain, other) in &ways {
        for fault in [plain, other] {
            let error = permitted(&here(""), ROOT, fault, 0).unwrap_err();
            assert_eq!(error.code, ErrorCode::PolicyDenied);
            assert!(error.hint.unwrap().contains(&format!("`{switch}`")));
            // All types are allowed by name: no reason to be allowed.
            let named = here(&format!("fault_types = [\"{switch}\"]"));
            assert_eq!(permitted(&named, ROOT, fault, 0).unwrap_err().code, ErrorCode::PolicyDenied);
        }
        let allowing = here(&format!("{switch} = true"));
        let allowed = ways.iter().filter(|(_, fault, _)| permitted(&allowing, ROOT, fault, 0).is_ok());
        assert_eq!(allowed.map(|(switch, ..)| *switch).collect::<Vec<_>>(), [*switch]);
    }
}

#[test]
fn who_may_not_kill_may_not_have_the_kernel_kill() {
    let what = Hoard::Oom { reserve: None };
    let effect = Effect::Hoard { what, ramp: Duration::ZERO, whose: None, netns: None };
    let fault_type = FaultType::ResourceExhaustion;
    let fault =
        Fault { fault_type, duration: Duration::from_secs(1), effect, on_target_gone: OnTargetGone::End };
    assert!(permitted(&here(""), ROOT, &fault, 0).is_ok());
    let policy = here("fault_types = [\"resource_exhaustion\"]");
    let refused = permitted(&policy, ROOT, &fault, 0).unwrap_err();
    assert!(refused.code == ErrorCode::PolicyDenied && refused.message.contains("process_kill"), "{refused}");
}

#[test]
fn who_may_not_kill_may_send_no_signal_with_an_error() {
    let fault = |params| {
        let request = json!({"fault_type": "file_error", "probability": 1.0, "target": {"cgroup": "a"}, "params": params});
        serde_json::from_value::<FaultRequest>(request).unwrap().parse().unwrap()
    };
    let (plain, hard) = (fault(json!({"path": "/a"})), fault(json!({"path": "/a", "signal": "SIGKILL"})));
    assert!(permitted(&here(""), ROOT, &hard, 0).is_ok());
    let policy = here("fault_types = [\"file_error\"]");
    assert!(permitted(&policy, ROOT, &plain, 0).is_ok());
    let refused = permitted(&policy, ROOT, &hard, 0).unwrap_err();
    assert!(refused.code == ErrorCode::PolicyDenied && refused.message.contains("process_kill"), "{refused}");
}

/// Lists have something, and numbers are at their defaults.
fn assert_is_whole(open: &Open) {
    let Open { programs, units, ports, file_systems, signal_paths, .. } = open;
    let named = [programs.len(), units.len(), ports.len(), file_systems.len(), signal_paths.len()];
    assert_eq!(named, [2, 1, 2, 1, 1]);
    let said = [open.least_memory_mb, open.least_disk_mb, open.least_files, open.least_tasks];
    assert!(said.iter().all(Option::is_some), "{said:?}");
    let Open { host_wide_selectors, units_at_once, least_interval_ms, most_cpu_percent, .. } =
        Open::default();
    let switches =
        (open.host_wide_selectors, open.units_at_once, open.least_interval_ms, open.most_cpu_percent);
    assert_eq!(switches, (host_wide_selectors, units_at_once, least_interval_ms, most_cpu_percent));
}

/// Each bound is given somewhere.
fn assert_bounds_all(limits: &Limits) {
    let Limits { everybody, approver, operator, admin, together, dns_names, dns_addresses, probe_addresses } =
        limits;
    let Bounds {
        max_duration_seconds,
        max_active,
        most_share_percent,
        most_loss_percent,
        most_latency_ms,
        least_rate_kbit,
        runs_per_hour,
        cool_down_seconds,
    } = everybody;
    let sizes = [max_duration_seconds, max_active, most_share_percent, most_loss_percent];
    let paces = [most_latency_ms, least_rate_kbit, runs_per_hour, cool_down_seconds];
    assert!(sizes.into_iter().chain(paces).all(Option::is_some), "{everybody:?}");
    let roles = [approver, operator, admin];
    assert!(roles.into_iter().all(|bounds| *bounds != Bounds::default()), "{limits:?}");
    let Together { runs_per_hour, cool_down_seconds } = together;
    assert!(runs_per_hour.is_some() && cool_down_seconds.is_some() && dns_names.is_some());
    assert_eq!(*dns_addresses, Limits::default().dns_addresses);
    assert_eq!(*probe_addresses, Limits::default().probe_addresses);
}

/// The fields of a policy file that are behind a mark of comment.
fn taken_in(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let fields = text.lines().filter_map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')));
    fields.map(|line| format!("{line}\n")).collect()
}

/// Fields that are written out, with their defaults or with examples.
const WRITTEN: [&str; 18] = [
    "max_active",
    "max_duration_seconds",
    "clock_skew",
    "host_reboot",
    "host_panic",
    "critical_interfaces",
    "load_cidrs",
    "probe_logs",
    "probe_commands",
    "probe_python",
    "probe_kubeconfigs",
    "probe_credentials",
    "tcp_ports",
    "skipped_stage",
    "host_wide_selectors",
    "units_at_once",
    "least_interval_ms",
    "most_cpu_percent",
];

#[test]
fn the_policy_that_is_installed_is_the_default_and_names_every_field() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../systemd/policy.toml");
    let installed = Policy { digest: Policy::default().digest, ..Policy::read(Path::new(path)).unwrap() };
    assert_eq!(installed, Policy::default());
    // With each `#field = value` and `#[table]` taken in, nothing is at its "not given".
    let fields = taken_in(path);
    let Policy {
        environment,
        production_markers,
        not_production,
        roles,
        windows,
        host_limits,
        limits,
        single_faults,
        fault_types,
        interfaces,
        max_active,
        max_duration_seconds,
        clock_skew,
        host_reboot,
        host_panic,
        critical_interfaces,
        load_cidrs,
        fault_paths,
        fault_netns,
        probe_logs,
        probe_commands,
        probe_python,
        probe_kubeconfigs,
        probe_credentials,
        approval,
        experiments,
        open,
        default_target,
        protect,
        digest: _,
    } = toml::from_str(&fields).unwrap();
    assert!(default_target.is_some());
    assert!(fault_types.is_some() && interfaces.is_some() && environment.is_some());
    let members = [roles.observer, roles.approver, roles.operator, roles.admin];
    assert!(members.iter().all(|members| *members != Members::default()) && roles.others.is_some());
    let default = Policy::default();
    assert_eq!((max_active, max_duration_seconds), (default.max_active, default.max_duration_seconds));
    assert!(!clock_skew && !host_reboot && !host_panic);
    assert!(
        critical_interfaces.len() == 1
            && load_cidrs.len() == 1
            && fault_paths.len() == 1
            && fault_netns.len() == 2
            && probe_logs.len() == 2
    );
    assert_eq!((probe_commands.len(), probe_kubeconfigs.len(), probe_credentials.len()), (2, 1, 1));
    assert_eq!(probe_python.modules.len(), 2);
    assert!(windows.time_zone.is_some() && windows.only.len() == 1 && windows.never.len() == 3);
    host_limits.check("host_limits").unwrap();
    assert_eq!((host_limits.all().len(), host_limits.for_seconds, not_production.len()), (6, 10, 1));
    assert_is_whole(&open);
    assert_bounds_all(&limits);
    // Switches are at their defaults.
    assert_eq!((&experiments, &single_faults), (&default.experiments, &default.single_faults));
    assert!(approval.one.words().len() == 6 && approval.two.words().len() == 1, "{:?}", approval.words());
    assert_eq!(approval.valid_seconds, default.approval.valid_seconds);
    assert_eq!(production_markers, default.production_markers);
    assert_eq!((protect.tcp_ports, protect.cidrs.len()), (default.protect.tcp_ports, 1));
    for field in WRITTEN {
        assert!(fields.contains(field), "{field} is not there");
    }
}

#[test]
fn a_program_is_run_only_if_the_policy_names_it_and_for_nobody_who_may_not_inject() {
    let refused = here("").may_run(&ROOT.into(), "/bin/true").unwrap_err();
    assert_eq!(refused.code, ErrorCode::PolicyDenied);
    assert!(refused.message.contains("/bin/true"), "{refused}");
    assert!(refused.hint.unwrap().contains("probe_commands = [\"/bin/true\"]"));
    let policy = here("probe_commands = [\"/bin/*\"]\nroles.operator.uids = [1000]");
    assert!(policy.may_run(&ROOT.into(), "/bin/true").is_ok());
    assert!(policy.may_run(&ROOT.into(), "/bin/deep/true").is_err());
    let stranger = Caller::Unix { uid: 1001, gid: 0, pid: 1 };
    assert!(
        policy.may_run(&stranger.into(), "/bin/true").unwrap_err().hint.unwrap().contains("`roles.operator`")
    );
    let odd = here("probe_commands = [\"true\"]");
    assert_eq!(odd.check().unwrap_err().field, "probe_commands");
}

#[test]
fn a_module_is_called_only_if_the_policy_names_it_and_for_nobody_who_may_not_inject() {
    let call = |module: &str| [module.to_owned()];
    let refused = here("").may_call(&ROOT.into(), &call("os.path")).unwrap_err();
    assert_eq!(refused.code, ErrorCode::PolicyDenied);
    assert!(refused.message.contains("os.path"), "{refused}");
    assert!(refused.hint.unwrap().contains("probe_python.modules = [\"os.path\"]"));
    let policy = here("probe_python.modules = [\"chaosprometheus\"]\nroles.operator.uids = [1000]");
    assert!(policy.may_call(&ROOT.into(), &call("chaosprometheus.probes")).is_ok());
    assert!(policy.may_call(&ROOT.into(), &["chaosprometheus".to_owned(), "os".to_owned()]).is_err());
    let stranger = Caller::Unix { uid: 1001, gid: 0, pid: 1 };
    assert!(policy.may_call(&stranger.into(), &call("chaosprometheus")).is_err());
    let odd = here("probe_python.interpreter = \"python3\"");
    assert_eq!(odd.check().unwrap_err().field, "probe_python.interpreter");
}

#[test]
fn a_kubeconfig_is_used_only_if_the_policy_names_it_and_for_nobody_who_may_not_inject() {
    let refused = here("").may_use(&ROOT.into(), "/etc/k").unwrap_err();
    assert_eq!(refused.code, ErrorCode::PolicyDenied);
    assert!(refused.hint.unwrap().contains("probe_kubeconfigs = [\"/etc/k\"]"));
    let policy = here("probe_kubeconfigs = [\"/etc/k\"]\nroles.operator.uids = [1000]");
    assert!(policy.may_use(&ROOT.into(), "/etc/k").is_ok() && policy.check().is_ok());
    assert!(policy.may_use(&ROOT.into(), "/etc/k2").is_err());
    let stranger = Caller::Unix { uid: 1001, gid: 0, pid: 1 };
    assert!(
        policy.may_use(&stranger.into(), "/etc/k").unwrap_err().hint.unwrap().contains("`roles.operator`")
    );
    for odd in ["k", "/etc/*/../k", "~/.kube/config", ""] {
        let odd = here(&format!("probe_kubeconfigs = [{odd:?}]"));
        assert_eq!(odd.check().unwrap_err().field, "probe_kubeconfigs");
    }
}

#[test]
fn a_policy_with_an_unknown_field_is_refused() {
    assert!(toml::from_str::<Policy>("fault_type = []").is_err());
}

#[test]
fn a_look_is_allowed_to_whom_a_preview_is() {
    let previews = [FaultType::ProcessKill, FaultType::ProcessPause];
    assert!(here("").may_look(&ROOT.into(), &previews).is_ok());
    let pauses = here("fault_types = [\"process_pause\"]\nroles.operator.uids = [1000]");
    let user = |uid| Caller::Unix { uid, gid: uid, pid: 7 };
    assert!(pauses.may_look(&user(1000).into(), &previews).is_ok());
    let refused = pauses.may_look(&user(1001).into(), &previews).unwrap_err();
    assert!(refused.code == ErrorCode::PolicyDenied && refused.message.contains("1001"), "{refused}");
    let delays = here("fault_types = [\"latency\"]");
    let refused = delays.may_look(&ROOT.into(), &previews).unwrap_err();
    assert!(refused.message.contains("process_kill, process_pause"), "{refused}");
}

#[test]
fn an_address_of_ipv4_is_met_by_rules_of_ipv4_alone_however_either_is_written() {
    let policy = here("load_cidrs = [\"::/0\"]\n[protect]\ncidrs = [\"::ffff:10.0.0.0/104\"]");
    let permit = permitted(&policy, ROOT, &fault(60), 0).unwrap();
    let request = json!({"fault_type": "connection_load", "probability": 1,
        "params": {"url": "tcp://[::ffff:10.0.0.5]:80", "sessions": 1}});
    let load = serde_json::from_value::<FaultRequest>(request).unwrap().parse().unwrap().effect;
    let Effect::Load(ConnectionLoad { server: Server { place: Place::Tcp(address), .. }, .. }) = load else {
        panic!("{load:?}")
    };
    assert!(!permit.may_load(address.ip()));
    assert!(permit.protected().cidrs.iter().any(|prefix| prefix.contains(&address.ip())));
    assert!(permit.may_load("2001:db8::1".parse().unwrap()));
}
