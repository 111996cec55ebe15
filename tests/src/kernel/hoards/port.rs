//! A port that is taken: a service that wants it cannot have it, and can have it again afterwards.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};

use serde_json::json;

use super::{Context, Outcome, TestResult, tests};
use super::{ENDS, LEASE_ENDS, Taking};
use crate::fault::Fault;
use crate::process::Process;
use crate::{Daemon, Error, NetNs, Result};

tests![
    a_port_cannot_be_bound_while_the_fault_lasts,
    a_port_of_udp_cannot_be_bound_while_the_fault_lasts,
    a_port_is_free_again_when_whoever_holds_it_stands_still,
    a_port_of_one_address_and_namespace_is_free_everywhere_else,
    a_port_that_is_taken_or_protected_is_refused_by_name,
];

const PORT: u16 = 80;

fn taking(namespace: &NetNs, protocol: &str) -> Fault {
    let target = json!({"local_port": PORT, "protocol": protocol, "netns": namespace.name()});
    Fault::new("port_in_use").aimed(target)
}

/// How many of the binds that a service might try fail.
fn failing_binds(namespace: &NetNs, udp: bool) -> u64 {
    let fails = |address: std::net::IpAddr| match udp {
        true => UdpSocket::bind((address, PORT)).is_err(),
        false => TcpListener::bind((address, PORT)).is_err(),
    };
    let (four, six) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into());
    let all = [four, Ipv4Addr::LOCALHOST.into(), six, Ipv6Addr::LOCALHOST.into()];
    namespace.run(|| all.into_iter().filter(|address| fails(*address)).count()) as u64
}

fn a_port_cannot_be_bound_while_the_fault_lasts(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let used = |_: Option<&Process>| Ok(failing_binds(&namespace, false));
    Ok(Taking { fault: taking(&namespace, "tcp"), used: &used, asked: 4, give: 0 }.ends(ENDS)?)
}

fn a_port_of_udp_cannot_be_bound_while_the_fault_lasts(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let used = |_: Option<&Process>| Ok(failing_binds(&namespace, true));
    let taking = Taking { fault: taking(&namespace, "udp"), used: &used, asked: 4, give: 0 };
    let ended = taking.ends(ENDS)?;
    assert_eq!(failing_binds(&namespace, false), 0, "TCP was meant, too");
    Ok(ended)
}

fn a_port_is_free_again_when_whoever_holds_it_stands_still(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let used = |_: Option<&Process>| Ok(failing_binds(&namespace, false));
    Ok(Taking { fault: taking(&namespace, "tcp"), used: &used, asked: 4, give: 0 }.ends(LEASE_ENDS)?)
}

fn a_port_of_one_address_and_namespace_is_free_everywhere_else(_: &Context) -> TestResult {
    let (namespace, other) = (NetNs::new()?, NetNs::new()?);
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = taking(&namespace, "tcp").with(json!({"address": "127.0.0.2"}));
    let bind = |address: [u8; 4]| namespace.run(|| TcpListener::bind((Ipv4Addr::from(address), PORT)));
    assert!(bind([127, 0, 0, 1]).is_ok() && bind([127, 0, 0, 2]).is_ok(), "they are not free before");
    let answer = fault.inject(&mcp)?;
    assert_eq!(answer["evidence"]["things_held"], 1, "{answer}");
    assert!(bind([127, 0, 0, 1]).is_ok() && bind([127, 0, 0, 2]).is_err());
    assert_eq!(failing_binds(&other, false), 0);
    fault.remove(&mcp)?;
    assert!(bind([127, 0, 0, 2]).is_ok());
    Ok(Outcome::Pass)
}

fn a_port_that_is_taken_or_protected_is_refused_by_name(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let service: Result<_> = namespace
        .run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)))
        .map_err(Error::io("bind", "port 80"));
    let service = service?;
    let netns = namespace.name();
    for (target, params, words) in [
        (
            json!({"local_port": PORT, "netns": netns}),
            json!({}),
            "TCP port 80 of every address is in use already",
        ),
        (
            json!({"local_port": PORT, "netns": netns}),
            json!({"address": "192.0.2.1"}),
            "no address of this host",
        ),
        (json!({"local_port": 22, "netns": netns}), json!({}), "TARGET_PROTECTED"),
        (json!({"local_port": PORT, "netns": "none-of-this-name"}), json!({}), "TARGET_NOT_FOUND"),
        (json!({}), json!({}), "target.local_port"),
        (json!({"local_port": PORT, "protocol": "icmp"}), json!({}), "icmp has no ports"),
        (json!({"local_port": PORT, "interface": "eth0"}), json!({}), "give local_port"),
    ] {
        let answer = Fault::new("port_in_use").aimed(target).with(params).inject(&mcp);
        let named = matches!(&answer, Err(Error::Mcp { problem, .. }) if problem.contains(words));
        assert!(named, "expected {words}, got {answer:?}");
    }
    assert!(super::holder(&daemon).is_err(), "a holder is left");
    drop(service);
    assert_eq!(failing_binds(&namespace, false), 0);
    Ok(Outcome::Pass)
}
