//! What each type of fault, and each resource of `resource_exhaustion`, needs of the kernel.

use super::{
    connect_error, cpu, detour, dns_error, error, file_error, host_panic, host_reboot, limit, mcp_error, oom,
    packet_drop, pause, process_pause, service_stop, sever, socket_error,
};
use crate::host::{Facts, Lack, Requirement};
use crate::request::{ApiError, ErrorCode};
use crate::spec::fault::Effect;
use crate::spec::settings::RESOURCES;
use crate::spec::{FaultType, Hoard};

/// What a fault type needs of the kernel.
pub fn requirements(fault_type: FaultType) -> &'static [Requirement] {
    match fault_type {
        FaultType::Latency
        | FaultType::PacketLoss
        | FaultType::PacketDuplicate
        | FaultType::PacketCorrupt
        | FaultType::PacketReorder
        | FaultType::Bandwidth => detour::REQUIREMENTS,
        FaultType::Error => error::REQUIREMENTS,
        FaultType::DnsError => dns_error::REQUIREMENTS,
        FaultType::Timeout | FaultType::NetworkPartition => packet_drop::REQUIREMENTS,
        FaultType::ResourceExhaustion => cpu::REQUIREMENTS,
        FaultType::Pause => pause::REQUIREMENTS,
        FaultType::ProcessPause => process_pause::REQUIREMENTS,
        FaultType::McpError => mcp_error::REQUIREMENTS,
        FaultType::ConnectError => connect_error::REQUIREMENTS,
        FaultType::FileError => file_error::REQUIREMENTS,
        FaultType::SocketError => socket_error::REQUIREMENTS,
        FaultType::ServiceStop | FaultType::ServiceRestart => service_stop::REQUIREMENTS,
        FaultType::HostReboot => host_reboot::REQUIREMENTS,
        FaultType::HostPanic => host_panic::REQUIREMENTS,
        FaultType::LinkDown
        | FaultType::ClockSkew
        | FaultType::ProcessKill
        | FaultType::PortInUse
        | FaultType::ConnectionLoad => &[],
    }
}

/// The parts of a fault type that need something else than the whole, each with what it needs of the kernel.
pub fn parts(fault_type: FaultType) -> Vec<(&'static str, &'static [Requirement])> {
    match fault_type {
        FaultType::ResourceExhaustion => resources(),
        FaultType::Timeout | FaultType::NetworkPartition => vec![(OF_SERVICE, sever::REQUIREMENTS)],
        _ => Vec::new(),
    }
}

/// What `resource_exhaustion` can be about, in the order of [`RESOURCES`], each with what it needs of the kernel; memory a second
/// time, until it kills.
fn resources() -> Vec<(&'static str, &'static [Requirement])> {
    let mut all = Vec::new();
    for resource in RESOURCES {
        all.push((*resource, of_resource(resource)));
        if *resource == "memory" {
            all.push((WITH_OOM, oom::REQUIREMENTS));
        }
    }
    all
}

const WITH_OOM: &str = "memory with oom";
const OF_SERVICE: &str = "a service without an interface";

fn of_resource(resource: &str) -> &'static [Requirement] {
    match resource {
        "cpu_limit" => limit::OF_CPU,
        "memory_limit" => limit::OF_MEMORY,
        "pids_limit" => limit::OF_PIDS,
        "io_limit" => limit::OF_IO,
        // What is held within a cgroup needs one that is there, and no controller.
        _ => requirements(FaultType::ResourceExhaustion),
    }
}

/// What of this is not there on this kernel.
pub fn lacks(requirements: &[Requirement], facts: &Facts) -> Vec<Lack> {
    requirements.iter().filter_map(|requirement| facts.lack(*requirement)).collect()
}

/// Refuses what this kernel cannot do.
///
/// # Errors
/// [`ErrorCode::UnsupportedKernel`] names everything that is missing, and what would supply the first of it.
pub fn require(effect: &Effect, facts: &Facts) -> Result<(), ApiError> {
    let fault_type = effect.fault_type();
    let (resource, needed) = match effect {
        Effect::Sever { .. } => (Some(OF_SERVICE), sever::REQUIREMENTS),
        Effect::Limit { limit, .. } => (Some(limit.resource()), of_resource(limit.resource())),
        Effect::Hoard { what: Hoard::Oom { .. }, .. } => (Some(WITH_OOM), oom::REQUIREMENTS),
        _ => (None, requirements(fault_type)),
    };
    let lacks = lacks(needed, facts);
    let Some(first) = lacks.first() else { return Ok(()) };
    let names: Vec<_> = lacks.iter().map(|lack| lack.what.as_str()).collect();
    let of = resource.map_or_else(String::new, |resource| format!(" ({resource})"));
    Err(ApiError::new(
        ErrorCode::UnsupportedKernel,
        format!(
            "{}{of} is not possible on kernel {}: missing {}",
            fault_type.name(),
            facts.release,
            names.join(", ")
        ),
    )
    .hint(first.remedy.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::host::{Controller, WhenAsked};
    use crate::spec::{FaultRequest, Probability};

    /// A kernel that has all but memory's controller and the key that makes it panic.
    fn facts() -> Facts {
        let lack = Lack { what: "the cgroup controller memory (disabled)".into(), remedy: "boot".into() };
        Facts {
            release: "6.1".into(),
            processors: 2,
            tcx: true,
            packet_programs: None,
            veth: None,
            netem: None,
            cgroup_v2: None,
            controllers: vec![(Controller::Memory, lack)],
            tracing: None,
            descriptors: None,
            call_programs: WhenAsked::new(|| Ok(())),
            sever_programs: WhenAsked::new(|| {
                Err(Lack { what: "CONFIG_CGROUP_BPF".into(), remedy: "build".into() })
            }),
            files: WhenAsked::new(|| Err(Lack { what: String::new(), remedy: String::new() })),
            sockets: WhenAsked::new(|| Err(Lack { what: "CONFIG_BPF_LSM".into(), remedy: "boot".into() })),
            systemd: None,
            sysrq: Some("there is no /proc/sysrq-trigger".into()),
        }
    }

    fn refused(
        fault_type: FaultType,
        target: serde_json::Value,
        params: serde_json::Value,
    ) -> Option<ApiError> {
        let request = FaultRequest {
            fault_type,
            probability: Probability::CERTAIN,
            duration_seconds: None,
            error_message: None,
            target: serde_json::from_value(target).unwrap(),
            params: params.as_object().unwrap().clone(),
        };
        require(&request.parse().unwrap().effect, &facts()).err()
    }

    #[test]
    fn each_resource_is_missing_what_it_needs_and_an_injection_is_refused_with_the_same_words() {
        let missing = |name: &str| {
            let found = resources().into_iter().find(|(resource, _)| *resource == name).unwrap();
            lacks(found.1, &facts())
        };
        for possible in RESOURCES.iter().filter(|resource| **resource != "memory_limit") {
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
        assert!(
            error.message.contains("socket_error") && error.message.contains("CONFIG_BPF_LSM"),
            "{error}"
        );
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
        assert_eq!(lacks(requirements(FaultType::NetworkPartition), &facts()), []);
    }

    #[test]
    fn a_panic_needs_the_key_that_makes_the_kernel_panic() {
        let error = refused(FaultType::HostPanic, json!({}), json!({})).unwrap();
        assert!(error.message.contains("CONFIG_MAGIC_SYSRQ"), "{error}");
        assert_eq!(refused(FaultType::ClockSkew, json!({}), json!({"offset_seconds": 5})), None);
    }
}
