//! Open files, processes and ports.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

use serde_json::json;

use super::{Context, Outcome, TestResult, tests};
use super::{ENDS, PROMPT, Taking, evidence, shows_on_the_host};
use crate::fault::Fault;
use crate::kernel::supervised::stage::cannot_fork;
use crate::process::{Process, wait_until};
use crate::victim::{Victim, has_controllers};
use crate::{Daemon, Error, NetNs, Reason, Result};

tests![
    open_files_of_the_host_are_taken_while_the_fault_lasts,
    threads_are_there_while_the_fault_lasts,
    the_host_has_more_tasks_while_the_fault_lasts,
    a_cgroup_full_of_threads_starts_no_process,
    no_datagram_socket_finds_a_port_while_those_of_udp_are_taken,
    ports_can_be_neither_bound_nor_connected_from_while_the_fault_lasts,
    more_than_there_may_be_is_refused_by_name,
];

fn taking(resource: &str, count: u64) -> Fault {
    Fault::new("resource_exhaustion").with(json!({"resource": resource, "count": count}))
}

fn open_files_of_the_host_are_taken_while_the_fault_lasts(_: &Context) -> TestResult {
    let open = |_: Option<&Process>| -> Result<u64> {
        let text = fs::read_to_string("/proc/sys/fs/file-nr").map_err(Error::io("read", "file-nr"))?;
        Ok(text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0))
    };
    // Others open and close files, too, and so does the holder.
    let taking = Taking { fault: taking("file_descriptors", 3000), used: &open, asked: 3000, give: 500 };
    Ok(taking.ends(ENDS)?)
}

fn threads_are_there_while_the_fault_lasts(_: &Context) -> TestResult {
    let threads = |holder: Option<&Process>| Ok(holder.map_or(0, |holder| holder.status("Threads")));
    // The holder's own are two.
    Ok(Taking { fault: taking("pids", 300), used: &threads, asked: 302, give: 2 }.ends(ENDS)?)
}

fn the_host_has_more_tasks_while_the_fault_lasts(_: &Context) -> TestResult {
    let tasks = || -> Result<u64> {
        let text = fs::read_to_string("/proc/loadavg").map_err(Error::io("read", "/proc/loadavg"))?;
        let count = text.split_whitespace().nth(3).and_then(|both| both.split_once('/')?.1.parse().ok());
        count.ok_or_else(|| Error::Different(format!("/proc/loadavg: {text}")))
    };
    Ok(shows_on_the_host(&taking("pids", 1000), 1000, tasks)?)
}

fn a_cgroup_full_of_threads_starts_no_process(_: &Context) -> TestResult {
    if !has_controllers(&["pids"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "pids is not there".into()));
    }
    let mut victim = Victim::new(&["pids"])?;
    victim.write("pids.max", "40")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    assert!(!cannot_fork(&mut victim)?, "it is full before");
    let fault = taking("pids", 300).aimed(json!({"cgroup": victim.name()}));
    fault.inject(&mcp)?;
    assert_eq!(victim.read("pids.current")?, "40");
    assert_eq!(evidence(&fault, &mcp)?["shortfall"], "exhausted");
    assert!(cannot_fork(&mut victim)?, "somebody could start a process");
    fault.remove(&mcp)?;
    let back = wait_until(PROMPT, || victim.read("pids.current").is_ok_and(|now| now == "1"));
    assert!(back, "{}", victim.read("pids.current")?);
    assert!(!cannot_fork(&mut victim)?, "it is full still");
    Ok(Outcome::Pass)
}

const FIRST: u16 = 40_000;
const LAST: u16 = 40_063;

fn ports_can_be_neither_bound_nor_connected_from_while_the_fault_lasts(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let address = Ipv4Addr::LOCALHOST;
    let (server, server_port) = namespace.run(|| -> Result<_> {
        let path = "/proc/sys/net/ipv4/ip_local_port_range";
        fs::write(path, format!("{FIRST} {LAST}")).map_err(Error::io("write", path))?;
        let server = TcpListener::bind((address, 7)).map_err(Error::io("bind", "port 7"))?;
        let port = server.local_addr().map_err(Error::io("ask", "a socket"))?.port();
        Ok((server, port))
    })?;
    let ports = |_: Option<&Process>| {
        let taken = |port: &u16| TcpListener::bind((address, *port)).is_err();
        Ok(namespace.run(|| (FIRST..=LAST).filter(taken).count()) as u64)
    };
    let connect = || namespace.run(|| TcpStream::connect((address, server_port)));
    let all = u64::from(LAST - FIRST + 1);
    let fault = taking("ports", all).aimed(json!({"netns": namespace.name()}));
    // First by what a client meets.
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let reserved = connect().map_err(Error::io("connect", "before"));
    drop(reserved?);
    // The client's end of a connection that is over keeps its port for a minute.
    let most = fault.clone().with(json!({"resource": "ports", "count": all - 1, "address": "127.0.0.1"}));
    most.inject(&mcp)?;
    assert_eq!(evidence(&most, &mcp)?["things_held"], all - 1, "{}", evidence(&most, &mcp)?);
    let refused = connect();
    assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::AddrNotAvailable), "{refused:?}");
    most.remove(&mcp)?;
    connect().map_err(Error::io("connect", "after"))?;
    drop((mcp, daemon, server));
    let half = taking("ports", all / 2).aimed(json!({"netns": namespace.name()}));
    Ok(Taking { fault: half, used: &ports, asked: all / 2, give: 0 }.ends(ENDS)?)
}

fn no_datagram_socket_finds_a_port_while_those_of_udp_are_taken(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let address = Ipv4Addr::LOCALHOST;
    let server = namespace.run(|| -> Result<_> {
        let path = "/proc/sys/net/ipv4/ip_local_port_range";
        fs::write(path, format!("{FIRST} {LAST}")).map_err(Error::io("write", path))?;
        TcpListener::bind((address, 7)).map_err(Error::io("bind", "port 7"))
    })?;
    let to = server.local_addr().map_err(Error::io("ask", "a socket"))?;
    let any = || namespace.run(|| UdpSocket::bind((address, 0)));
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    any().map_err(Error::io("bind", "any port before"))?;
    let all = u64::from(LAST - FIRST + 1);
    let fault = taking("ports", all).aimed(json!({"netns": namespace.name(), "protocol": "udp"}));
    fault.inject(&mcp)?;
    assert_eq!(evidence(&fault, &mcp)?["things_held"], all, "{}", evidence(&fault, &mcp)?);
    let refused = any();
    assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::AddrInUse), "{refused:?}");
    // Those of TCP are others.
    namespace.run(|| TcpStream::connect(to)).map_err(Error::io("connect", "meanwhile"))?;
    fault.remove(&mcp)?;
    any().map_err(Error::io("bind", "any port after"))?;
    Ok(Outcome::Pass)
}

fn more_than_there_may_be_is_refused_by_name(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    for (fault, words) in [
        (taking("file_descriptors", 1_048_576), "a process of the daemon may have"),
        (taking("pids", 15_001), "give 1 to 15000"),
        (taking("ports", 65_535).aimed(json!({"netns": "none-of-this-name"})), "TARGET_NOT_FOUND"),
        (taking("ports", 5).aimed(json!({"cgroup": "a"})), "give netns, or nothing"),
        (
            Fault::new("resource_exhaustion")
                .with(json!({"resource": "ports", "count": 5, "address": "192.0.2.1"})),
            "INJECTION_FAILED",
        ),
    ] {
        let answer = fault.inject(&mcp);
        let named = matches!(&answer, Err(Error::Mcp { problem, .. }) if problem.contains(words));
        assert!(named, "expected {words}, got {answer:?}");
    }
    assert!(super::holder(&daemon).is_err(), "a holder is left");
    Ok(Outcome::Pass)
}
