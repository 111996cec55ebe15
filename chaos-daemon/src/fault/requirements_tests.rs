//! What each fault is refused for on a kernel that lacks something.

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::host::controller::lacking;
use crate::host::{Unusable, WhenAsked};
use crate::spec::Controller;
use crate::spec::{FAULT_TYPES, FaultRequest, Probability, resource};

/// A kernel that has all but memory's controller, `bpf` among its security modules, programs of control groups that see packets,
/// and the key that makes it panic.
fn facts() -> Facts {
    let lack = Lack { what: "the cgroup controller memory (disabled)".into(), remedy: "boot".into() };
    Facts {
        controllers: vec![(Controller::Memory, lack)],
        sever_programs: WhenAsked::new(|| {
            Err(Lack { what: "CONFIG_CGROUP_BPF".into(), remedy: "build".into() })
        }),
        sockets: WhenAsked::new(|| Err(Lack { what: "CONFIG_BPF_LSM".into(), remedy: "boot".into() })),
        sysrq: Some("there is no /proc/sysrq-trigger".into()),
        ..Facts::of_everything()
    }
}

fn fault(fault_type: FaultType, target: Value, params: Value) -> Fault {
    let request = FaultRequest {
        fault_type,
        probability: Probability::CERTAIN,
        duration_seconds: None,
        error_message: None,
        target: serde_json::from_value(target).unwrap(),
        params: params.as_object().unwrap().clone(),
    };
    request.parse().unwrap()
}

fn refused(fault_type: FaultType, target: Value, params: Value) -> Option<ApiError> {
    require(&fault(fault_type, target, params), &facts()).err()
}

/// A kernel that has all but this. Of what is found out by trying, `kernel::probe` has the words.
fn without(requirement: Requirement) -> Facts {
    let mut facts = Facts::of_everything();
    let reason = || Some("for a reason".to_owned());
    let unusable = || Some(Unusable::NotInstalled("of_it"));
    match requirement {
        Requirement::PacketPrograms => facts.packet_programs = unusable(),
        Requirement::Veth => facts.veth = unusable(),
        Requirement::Netem => facts.netem = unusable(),
        Requirement::Htb => facts.htb = WhenAsked::new(|| Err(tried(Requirement::Htb))),
        Requirement::CgroupV2 => facts.cgroup_v2 = reason(),
        Requirement::Controller(controller) => {
            let lack = |(each, _): &(Controller, Lack)| *each == controller;
            facts.controllers = lacking(Path::new("/no/such")).into_iter().filter(lack).collect();
        }
        Requirement::Tracing => facts.tracing = reason(),
        Requirement::CallPrograms => {
            facts.call_programs = WhenAsked::new(|| Err(tried(Requirement::CallPrograms)))
        }
        Requirement::SeverPrograms => {
            facts.sever_programs = WhenAsked::new(|| Err(tried(Requirement::SeverPrograms)));
        }
        Requirement::FilePrograms => facts.files = WhenAsked::new(|| Err(tried(Requirement::FilePrograms))),
        Requirement::SocketPrograms => {
            facts.sockets = WhenAsked::new(|| Err(tried(Requirement::SocketPrograms)));
        }
        Requirement::Descriptors => facts.descriptors = reason(),
        Requirement::Systemd => facts.systemd = reason(),
        Requirement::SysRq => facts.sysrq = reason(),
    }
    facts
}

fn tried(requirement: Requirement) -> Lack {
    Lack { what: requirement.name(), remedy: "run a kernel with CONFIG_OF_IT".into() }
}

/// Faults that stand for a type: one of each part of it that needs something else, and where it can be, one that names a cgroup.
fn examples(fault_type: FaultType) -> Vec<Fault> {
    let some = |all: &[(Value, Value)]| {
        all.iter().map(|(target, params)| fault(fault_type, target.clone(), params.clone())).collect()
    };
    let (none, service) = (json!({}), json!({"unit": "a.service"}));
    let of_service = json!({"interface": "eth0", "unit": "a.service", "direction": "egress"});
    match fault_type {
        FaultType::ResourceExhaustion => some(&[
            (service.clone(), json!({"resource": "cpu"})),
            (service.clone(), json!({"resource": "memory", "memory_mb": 1})),
            (service.clone(), json!({"resource": "memory", "oom": true})),
            (service.clone(), json!({"resource": "pids", "count": 1})),
            (service.clone(), json!({"resource": "disk_io", "path": "/a", "bytes_per_second": 1 << 20})),
            (none.clone(), json!({"resource": "disk_fill", "path": "/a", "megabytes": 1})),
            (none.clone(), json!({"resource": "file_descriptors", "count": 1})),
            (none.clone(), json!({"resource": "ports", "count": 1})),
            (none, json!({"resource": "inodes", "path": "/a", "count": 1})),
            (service.clone(), json!({"resource": "cpu_limit", "cpu_percent": 10})),
            (service.clone(), json!({"resource": "memory_limit", "memory_mb": 64})),
            (service.clone(), json!({"resource": "pids_limit", "pids": 5})),
            (service, json!({"resource": "io_limit", "device": "8:0", "read_bps": 4096})),
        ]),
        _ => {
            let (target, params) = fault_type.example();
            let on_device = target.get("interface").is_some();
            let mut all = vec![(target, params.clone())];
            if fault_type.target_fields().contains(&"unit") {
                all.push((if on_device { of_service } else { service.clone() }, params.clone()));
            }
            if fault_type == FaultType::LinkProfile {
                let trace = json!({"up_trace": "time_s,rate_kbit\n0,100\n1,200"});
                all.push((json!({"interface": "eth0"}), trace));
            }
            if matches!(fault_type, FaultType::Timeout | FaultType::NetworkPartition) {
                all.push((service, params));
            }
            some(&all)
        }
    }
}

#[test]
fn whatever_is_missing_the_refusal_names_the_fault_and_it_and_a_command_or_an_option_that_supplies_it() {
    for fault_type in FAULT_TYPES {
        let examples = examples(*fault_type);
        for example in &examples {
            let (part, needed) = needs(example);
            assert_eq!(require(example, &Facts::of_everything()), Ok(()), "{fault_type:?}");
            for requirement in needed {
                let error = require(example, &without(requirement)).unwrap_err();
                assert_eq!(error.code, ErrorCode::UnsupportedKernel, "{error}");
                for words in [fault_type.name(), part.unwrap_or_default(), &requirement.name()] {
                    assert!(error.message.contains(words), "{words}: {error}");
                }
                let hint = error.hint.unwrap_or_default();
                assert!(hint.contains('`') || hint.contains("CONFIG_"), "{requirement:?}: {hint}");
            }
        }
        let tried = |requirement: &Requirement| examples.iter().any(|one| needs(one).1.contains(requirement));
        let of_parts = parts(*fault_type).into_iter().flat_map(|(_, needed)| needed);
        let untried: Vec<_> =
            fault_type.needs().iter().chain(of_parts).filter(|needed| !tried(needed)).collect();
        assert!(untried.is_empty(), "{fault_type:?}: {untried:?}");
    }
}

#[test]
fn whatever_names_a_cgroup_needs_cgroups_and_what_goes_to_the_host_does_not() {
    let missing = without(Requirement::CgroupV2);
    let refused = |kind, target, params| {
        let refusal = require(&fault(kind, target, params), &missing);
        refusal.is_err_and(|error| error.hint.is_some_and(|hint| hint.contains("`mount -t cgroup2")))
    };
    let egress =
        |field: &str, value: Value| json!({"interface": "eth0", field: value, "direction": "egress"});
    for group in ["cgroup", "unit"] {
        assert!(refused(FaultType::Latency, egress(group, "a.service".into()), json!({})));
        for kind in [FaultType::ResourceExhaustion, FaultType::ProcessKill, FaultType::ProcessPause] {
            assert!(refused(kind, json!({group: "a.service"}), json!({})), "{kind:?}");
        }
    }
    // Processes have their own group found for what is used up, and their network namespace for packets.
    assert!(refused(FaultType::ResourceExhaustion, json!({"pid": 7}), json!({})));
    assert!(!refused(FaultType::Latency, egress("pid", 7.into()), json!({})));
    assert!(!refused(FaultType::ProcessKill, json!({"pid": 7}), json!({})));
    assert!(!refused(FaultType::Latency, json!({"interface": "eth0"}), json!({})));
    assert!(!refused(FaultType::ResourceExhaustion, json!({}), json!({})));
}

#[test]
fn of_several_things_that_are_missing_all_are_named_and_each_remedy_once() {
    let lacking = |what: &str, remedy: &str| Lack { what: what.into(), remedy: remedy.into() };
    let lacks = [lacking("a", "load it"), lacking("b", "boot"), lacking("c", "load it")];
    assert_eq!(remedy(&lacks).as_deref(), Some("load it; and boot"));
    assert_eq!(remedy(&[]), None);
    let facts = Facts { veth: without(Requirement::Veth).veth, ..without(Requirement::Netem) };
    let latency = fault(FaultType::Latency, json!({"interface": "eth0"}), json!({}));
    let error = require(&latency, &facts).unwrap_err();
    assert!(error.message.contains("veth (") && error.message.contains("sch_netem ("), "{error}");
    let hint = error.hint.unwrap_or_default();
    assert!(hint.contains("CONFIG_VETH") && hint.contains("CONFIG_NET_SCH_NETEM"), "{hint}");
}

#[test]
fn each_resource_is_missing_what_it_needs_and_an_injection_is_refused_with_the_same_words() {
    let missing = |name: &str| {
        let found = resources().into_iter().find(|(resource, _)| *resource == name).unwrap();
        lacks(found.1, &facts())
    };
    for possible in resource::names().filter(|resource| *resource != "memory_limit") {
        assert_eq!(missing(possible), [], "{possible}");
    }
    let (limited, killed) = (missing("memory_limit"), missing(WITH_OOM));
    assert_eq!((limited.len(), &limited), (1, &killed));
    let target = json!({"cgroup": "a"});
    for params in
        [json!({"resource": "memory_limit", "memory_mb": 64}), json!({"resource": "memory", "oom": true})]
    {
        let error = refused(FaultType::ResourceExhaustion, target.clone(), params).unwrap();
        assert_eq!(
            (error.code, error.hint.as_ref()),
            (ErrorCode::UnsupportedKernel, Some(&limited[0].remedy))
        );
        assert!(error.message.contains(&limited[0].what) && error.message.contains("(memory"), "{error}");
    }
    let pids = json!({"resource": "pids_limit", "pids": 5});
    assert_eq!(refused(FaultType::ResourceExhaustion, target, pids), None);
}

#[test]
fn errors_of_sockets_need_the_security_hooks_that_those_of_connections_do_not() {
    let refused = |kind| refused(kind, json!({"cgroup": "a"}), json!({}));
    let error = refused(FaultType::SocketError).unwrap();
    assert_eq!((error.code, error.hint.as_deref()), (ErrorCode::UnsupportedKernel, Some("boot")));
    assert!(error.message.contains("socket_error") && error.message.contains("CONFIG_BPF_LSM"), "{error}");
    assert_eq!(refused(FaultType::ConnectError), None);
}

#[test]
fn a_partition_of_a_service_needs_programs_of_groups_only_where_it_names_no_interface() {
    let of_service = json!({"cgroup": "a"});
    let error = refused(FaultType::NetworkPartition, of_service.clone(), json!({})).unwrap();
    assert_eq!((error.code, error.hint.as_deref()), (ErrorCode::UnsupportedKernel, Some("build")));
    assert!(error.message.contains("(a service without an interface)"), "{error}");
    assert!(refused(FaultType::Timeout, of_service, json!({})).is_some());
    let on_interface = json!({"cgroup": "a", "interface": "eth0", "direction": "egress"});
    assert_eq!(refused(FaultType::NetworkPartition, on_interface, json!({})), None);
    let parts = parts(FaultType::NetworkPartition);
    assert_eq!(lacks(parts[0].1, &facts()).len(), 1);
    assert_eq!(lacks(FaultType::NetworkPartition.needs(), &facts()), []);
}

#[test]
fn a_panic_needs_the_key_that_makes_the_kernel_panic() {
    let error = refused(FaultType::HostPanic, json!({}), json!({})).unwrap();
    assert!(error.message.contains("CONFIG_MAGIC_SYSRQ"), "{error}");
    assert_eq!(refused(FaultType::ClockSkew, json!({}), json!({"offset_seconds": 5})), None);
}
