//! What a request means, and which ones are refused.

use super::*;
use crate::spec::effect::WaysIn;
use crate::spec::{FAULT_TYPES, Ports, Protocol, Refusal};

pub(in super::super) fn parse(
    fault_type: FaultType,
    target: &str,
    params: impl ToString,
) -> Result<Fault, SpecError> {
    FaultRequest {
        fault_type,
        probability: Probability::CERTAIN,
        duration_seconds: None,
        error_message: None,
        target: serde_json::from_str(target).unwrap(),
        params: serde_json::from_str(&params.to_string()).unwrap(),
    }
    .parse()
}

#[test]
fn every_type_is_found_by_its_wire_name() {
    for kind in FAULT_TYPES {
        assert_eq!(FaultType::parse(kind.name()).unwrap(), *kind);
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
    assert!(FaultType::parse("meteor").unwrap_err().problem.contains("network_partition"));
}

#[test]
fn ports_of_operators_are_known_before_connections_end_and_soon_where_packets_are_lost() {
    let needed = |kind, target, params| parse(kind, target, params).unwrap().effect.ways_in();
    let any = r#"{"interface":"e"}"#;
    assert_eq!(needed(FaultType::NetworkPartition, any, "{}"), WaysIn::Soon);
    assert_eq!(
        needed(FaultType::Latency, r#"{"interface":"e","protocol":"tcp"}"#, r#"{"delay_ms":1}"#),
        WaysIn::Soon
    );
    assert_eq!(needed(FaultType::Timeout, r#"{"interface":"e","protocol":"udp"}"#, "{}"), WaysIn::Never);
    assert_eq!(needed(FaultType::Error, any, "{}"), WaysIn::Before);
    assert_eq!(needed(FaultType::LinkDown, any, "{}"), WaysIn::Before);
    assert_eq!(needed(FaultType::ResourceExhaustion, "{}", "{}"), WaysIn::Never);
}

#[test]
fn a_partition_goes_both_ways_and_a_timeout_only_out() {
    let partition = parse(FaultType::NetworkPartition, r#"{"interface":"e"}"#, "{}").unwrap();
    assert_eq!(partition.effect.traffic().unwrap().directions, Direction::BOTH);
    let timeout = parse(FaultType::Timeout, r#"{"interface":"e"}"#, "{}").unwrap();
    assert_eq!(timeout.effect.traffic().unwrap().directions, [Direction::Egress]);
    for (kind, directions) in
        [(FaultType::NetworkPartition, Direction::BOTH), (FaultType::Timeout, &[Direction::Egress][..])]
    {
        let effect = parse(kind, r#"{"unit":"a.service"}"#, "{}").unwrap().effect;
        let Effect::Sever { packets, .. } = &effect else { panic!("{effect:?}") };
        assert_eq!(packets.directions.as_slice(), directions, "{kind:?}");
        assert!(
            effect.ways_in() == WaysIn::Soon && effect.traffic().is_none() && effect.interface().is_none()
        );
    }
    for kind in FAULT_TYPES {
        let (target, params) = kind.example();
        assert_eq!(parse(*kind, &target.to_string(), params).unwrap().fault_type, *kind);
    }
}

#[test]
fn the_interface_is_found_by_the_route_of_who_is_named_and_asked_for_where_nobody_is() {
    for kind in [FaultType::Latency, FaultType::Error, FaultType::DnsError, FaultType::Bandwidth] {
        let params = if kind == FaultType::Bandwidth { r#"{"rate_kbit":8}"# } else { "{}" };
        for target in [r#"{"unit":"a.service"}"#, r#"{"pid":7}"#, r#"{"cidr":"10.0.0.7"}"#] {
            let effect = parse(kind, target, params).unwrap().effect;
            assert_eq!(effect.traffic().unwrap().interface, None, "{kind:?} {target}");
        }
        let refused = parse(kind, r#"{"port":80}"#, params).unwrap_err();
        assert_eq!(refused.field, "target.interface", "{kind:?}");
        assert!(refused.problem.contains("by whose route it is found"), "{refused}");
    }
    let link = parse(FaultType::LinkDown, r#"{"cidr":"10.0.0.7"}"#, "{}").unwrap_err();
    assert!(link.field.starts_with("target"), "{link}");
}

#[test]
fn what_takes_a_detour_is_of_the_loopback_only_where_it_finds_back() {
    let slow = |target: &str| parse(FaultType::Latency, target, "{}").map(drop).map_err(|error| error.field);
    let wrong = |field: &str| Err(field.to_owned());
    for (narrow, expected) in [
        ("", Ok(())),
        (r#","cidr":"127.0.0.3""#, Ok(())),
        (r#","cidr":"0.0.0.0/0""#, Ok(())),
        (r#","cidrs":["::1","2001:db8::/32"]"#, Ok(())),
        (r#","cidr":"10.0.0.1""#, wrong("target.cidr")),
        (r#","cidrs":["127.0.0.1","10.0.0.0/8"]"#, wrong("target.cidr")),
        (r#","direction":"ingress""#, wrong("target.direction")),
        (r#","direction":"both""#, wrong("target.direction")),
    ] {
        assert_eq!(slow(&format!(r#"{{"interface":"lo"{narrow}}}"#)), expected, "{narrow}");
        assert_eq!(slow(&format!(r#"{{"interface":"eth0"{narrow}}}"#)), Ok(()), "{narrow}");
    }
    assert!(parse(FaultType::NetworkPartition, r#"{"interface":"lo","cidr":"10.0.0.1"}"#, "{}").is_ok());
}

#[test]
fn a_delay_of_questions_is_of_the_port_of_name_servers() {
    let slow = |target, params| parse(FaultType::Latency, target, params);
    let named = r#"{"names":["*.example.org","DB.example.org"]}"#;
    let Effect::Impair { traffic, names, .. } = slow(r#"{"interface":"e"}"#, named).unwrap().effect else {
        panic!("no queue");
    };
    assert_eq!((traffic.ports.either, names.len()), (Some(Ports::one(53)), 2));
    let elsewhere = slow(r#"{"interface":"e","remote_port":5353}"#, named).unwrap();
    assert_eq!(elsewhere.effect.traffic().unwrap().ports.either, None);
    for (target, params, field) in [
        (r#"{"interface":"e","protocol":"tcp"}"#, named, "target.protocol"),
        (r#"{"interface":"e"}"#, r#"{"names":[]}"#, "params.names"),
        (r#"{"interface":"e"}"#, r#"{"names":["a..b"]}"#, "params.names[0]"),
    ] {
        assert_eq!(slow(target, params).unwrap_err().field, field);
    }
}

#[test]
fn a_host_is_looked_up_again_within_bounds_and_nothing_else_is() {
    let every = |target| parse(FaultType::Timeout, target, "{}").map_err(|error| error.field);
    let wrong = Err("target.resolve_seconds".to_owned());
    assert!(every(r#"{"interface":"e","host":"a","resolve_seconds":1}"#).is_ok());
    for target in [
        r#"{"interface":"e","host":"a","resolve_seconds":0}"#,
        r#"{"interface":"e","host":"a","resolve_seconds":3601}"#,
        r#"{"interface":"e","cidr":"10.0.0.1","resolve_seconds":5}"#,
    ] {
        assert_eq!(every(target).map(drop), wrong.clone(), "{target}");
    }
}

#[test]
fn unknown_and_absurd_parameters_are_named() {
    let target = r#"{"interface":"e"}"#;
    let unknown = parse(FaultType::Latency, target, r#"{"delay":5}"#).unwrap_err();
    assert_eq!(unknown.field, "params.delay");
    assert!(unknown.problem.contains("latency takes delay_ms (0.001 to 60000; 100); jitter_ms"), "{unknown}");
    for params in [
        r#"{"delay_ms":-1}"#,
        r#"{"delay_ms":1e18}"#,
        r#"{"jitter_ms":101}"#,
        r#"{"distribution":"normal"}"#,
        r#"{"correlation_percent":10}"#,
        r#"{"jitter_ms":1,"correlation_percent":100}"#,
        r#"{"jitter_ms":1,"distribution":"gauss"}"#,
        r#"{"jitter_ms":1,"distribution":"normal","correlation_percent":10}"#,
    ] {
        assert!(parse(FaultType::Latency, target, params).is_err(), "{params} was accepted");
    }
    assert!(parse(FaultType::ResourceExhaustion, "{}", r#"{"cpu_percent":101}"#).is_err());
    assert!(parse(FaultType::ResourceExhaustion, target, "{}").is_err());
}

#[test]
fn an_impairment_that_would_do_nothing_or_cannot_be_is_refused_by_its_field() {
    let target = r#"{"interface":"e"}"#;
    for (kind, params, field) in [
        (FaultType::PacketLoss, "{}", "params.loss_percent"),
        (FaultType::PacketLoss, r#"{"loss_percent":0}"#, "params.loss_percent"),
        (FaultType::PacketLoss, r#"{"loss_percent":101}"#, "params.loss_percent"),
        (
            FaultType::PacketLoss,
            r#"{"loss_percent":1,"four_state":{"p13":1,"p31":1}}"#,
            "params.loss_percent",
        ),
        (
            FaultType::PacketLoss,
            r#"{"correlation_percent":1,"four_state":{"p13":1,"p31":1}}"#,
            "params.correlation_percent",
        ),
        (FaultType::PacketLoss, r#"{"gilbert_elliott":{"p":0,"r":1}}"#, "params.gilbert_elliott.p"),
        (FaultType::PacketLoss, r#"{"gilbert_elliott":{"p":1,"r":-1}}"#, "params.gilbert_elliott.r"),
        (FaultType::PacketLoss, r#"{"four_state":{"p13":60,"p31":1,"p14":60}}"#, "params.four_state.p13"),
        (FaultType::PacketLoss, r#"{"four_state":{"p13":1,"p31":60,"p32":60}}"#, "params.four_state.p31"),
        (FaultType::PacketLoss, r#"{"gilbert_elliott":{"p":1}}"#, "params.gilbert_elliott.r"),
        (FaultType::PacketDuplicate, "{}", "params.duplicate_percent"),
        (FaultType::PacketDuplicate, r#"{"duplicate_percent":-1}"#, "params.duplicate_percent"),
        (FaultType::PacketCorrupt, r#"{"corrupt_percent":1e9}"#, "params.corrupt_percent"),
        (FaultType::PacketReorder, r#"{"reorder_percent":1,"gap":0}"#, "params.gap"),
        (FaultType::PacketReorder, r#"{"reorder_percent":1,"delay_ms":0}"#, "params.delay_ms"),
        (FaultType::Bandwidth, "{}", "params.rate_kbit"),
        (FaultType::Bandwidth, r#"{"rate_kbit":7}"#, "params.rate_kbit"),
    ] {
        assert_eq!(parse(kind, target, params).unwrap_err().field, field, "{params}");
    }
}

#[test]
fn only_tcp_can_be_reset() {
    let udp = r#"{"interface":"e","protocol":"udp"}"#;
    assert_eq!(parse(FaultType::Error, udp, "{}").unwrap_err().field, "target.protocol");
    assert!(parse(FaultType::Error, udp, r#"{"answer":"port_unreachable"}"#).is_ok());
    let any = |params| parse(FaultType::Error, r#"{"interface":"e"}"#, params).map(|fault| fault.effect);
    assert_eq!(any("{}").unwrap().traffic().unwrap().protocol, Protocol::Tcp);
    let told = any(r#"{"answer":"host_unreachable"}"#).unwrap();
    assert_eq!(told.traffic().unwrap().protocol, Protocol::Any);
    assert!(matches!(told, Effect::Refuse { refusal: Refusal::HostUnreachable, .. }));
    assert_eq!(any(r#"{"answer":"nowhere"}"#).unwrap_err().field, "params.answer");
}

#[test]
fn questions_are_on_the_port_of_name_servers_unless_another_is_named() {
    let parse = |target: &str| parse(FaultType::DnsError, target, "{}");
    let ports = |target: &str| parse(target).unwrap().effect.traffic().unwrap().ports;
    assert_eq!(ports(r#"{"interface":"e"}"#).either, Some(Ports::one(53)));
    let other = ports(r#"{"interface":"e","remote_port":5353,"protocol":"udp"}"#);
    assert_eq!((other.either, other.remote), (None, Some(Ports::one(5353))));
    for protocol in ["tcp", "icmp"] {
        let target = format!(r#"{{"interface":"e","protocol":"{protocol}"}}"#);
        assert_eq!(parse(&target).unwrap_err().field, "target.protocol");
    }
}

#[test]
fn open_files_are_not_taken_from_one_service_and_the_refusal_says_why_and_what_does_it() {
    let params = r#"{"resource":"file_descriptors","count":100}"#;
    assert!(parse(FaultType::ResourceExhaustion, "{}", params).is_ok());
    for target in [r#"{"unit":"a.service"}"#, r#"{"cgroup":"a"}"#, r#"{"pid":12}"#, r#"{"exe":"/bin/x"}"#] {
        let refused = parse(FaultType::ResourceExhaustion, target, params).unwrap_err();
        assert_eq!(refused.field, "target", "{target}: {refused}");
        for word in ["RLIMIT_NOFILE", "file_error", "socket_error", "too_many_open_files"] {
            assert!(refused.problem.contains(word), "{target}: no {word} in {refused}");
        }
    }
}
