//! A fault that names an address as it is on the other side of a translation says so. Here and not among the kernel's tests: the VM's
//! image has no `nft`.

#![cfg(test)]

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use chaos_tests::fault::Fault;
use chaos_tests::late::HANG;
use chaos_tests::measure::Echo;
use chaos_tests::netns::output;
use chaos_tests::{Daemon, Pair};
use serde_json::json;

const SERVICE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)), 80);
const PATIENCE: Duration = Duration::from_secs(1);

#[test]
fn a_fault_by_an_address_that_is_translated_names_the_one_to_give() {
    let pair = Pair::new().unwrap();
    let nft = |words: &[&str]| output(pair.near.command("nft").args(words)).unwrap();
    nft(&["add", "table", "ip", "somebodys"]);
    nft(&["add chain ip somebodys out { type nat hook output priority -100; }"]);
    nft(&["add rule ip somebodys out ip daddr 10.96.0.10 tcp dport 80 dnat to 10.77.0.2:7"]);
    pair.near.ip(&["route", "add", "default", "via", "10.77.0.2"]).unwrap();
    let _echo = Echo::start(&pair.far, Pair::FAR_V4, 7).unwrap();
    let daemon = Daemon::start().unwrap();
    let mcp = daemon.mcp().unwrap();
    // Packets on the interface have the address behind.
    let fault = Fault::new("network_partition").on(&pair.near, json!({"cidr": "10.96.0.10"}));
    fault.inject(&mcp).unwrap();
    let began = Instant::now();
    let note = loop {
        pair.near.run(|| TcpStream::connect_timeout(&SERVICE, PATIENCE)).unwrap();
        let status = fault.status(&mcp).unwrap();
        match status["note"].as_str() {
            Some(note) => break note.to_owned(),
            None => assert!(began.elapsed() < HANG, "{status}; {}", daemon.log()),
        }
    };
    assert!(note.contains("10.96.0.10 port 80 is translated to 10.77.0.2 port 7"), "{note}");
    assert!(note.contains("name 10.77.0.2 port 7"), "{note}");
    fault.remove(&mcp).unwrap();
}
