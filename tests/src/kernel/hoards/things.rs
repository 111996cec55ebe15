//! Open files, processes and ports.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Context, Outcome, TestResult, tests};
use super::{ENDS, Taking, evidence, shows_on_the_host};
use crate::fault::Fault;
use crate::kernel::supervised::stage::cannot_fork;
use crate::late::HANG;
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
    ports_of_a_range_are_taken_and_none_beside_it,
    what_is_counted_grows_along_its_ramp,
    two_faults_that_take_open_files_at_once_leave_the_reserve,
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
    // Others open and close files, too, a thousand at a time, and so does the holder.
    let taking = Taking { fault: taking("file_descriptors", 8000), used: &open, asked: 8000, give: 2500 };
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
    let back = wait_until(HANG, || victim.read("pids.current").is_ok_and(|now| now == "1"));
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

fn ports_of_a_range_are_taken_and_none_beside_it(_: &Context) -> TestResult {
    const RANGE: (u16, u16) = (20_000, 20_031);
    let namespace = NetNs::new()?;
    namespace.ip(&["link", "set", "lo", "up"])?;
    let taken = |first: u16, last: u16| {
        let taken = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_err();
        namespace.run(|| (first..=last).filter(taken).count())
    };
    let (within, beside) =
        (|| taken(RANGE.0, RANGE.1), || taken(RANGE.0 - 8, RANGE.0 - 1) + taken(RANGE.1 + 1, RANGE.1 + 8));
    let all = usize::from(RANGE.1 - RANGE.0 + 1);
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let range = format!("{}-{}", RANGE.0, RANGE.1);
    let params = json!({"resource": "ports", "count": all, "port_range": range});
    let fault = taking("ports", 1).aimed(json!({"netns": namespace.name()})).with(params);
    assert_eq!((within(), beside()), (0, 0), "before");
    fault.inject(&mcp)?;
    assert_eq!((within(), beside()), (all, 0));
    fault.remove(&mcp)?;
    assert!(wait_until(HANG, || within() == 0), "{} are taken still", within());
    Ok(Outcome::Pass)
}

/// How many things a holder has.
type Held = fn(&Process) -> u64;

/// By the holder's own books of descriptors, and by its threads: half-way up there must not be more than half.
fn what_is_counted_grows_along_its_ramp(_: &Context) -> TestResult {
    const COUNT: u64 = 400;
    const RAMP: f64 = 2.0;
    let files: Held =
        |holder| fs::read_dir(format!("/proc/{}/fd", holder.pid)).map_or(0, |open| open.count() as u64);
    let threads: Held = |holder| holder.status("Threads");
    for (resource, held) in [("file_descriptors", files), ("pids", threads)] {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let params = json!({"resource": resource, "count": COUNT, "ramp_seconds": RAMP as u32});
        let (fault, start) = (taking(resource, COUNT).with(params), Instant::now());
        let answer = fault.inject(&mcp)?;
        assert_eq!(answer["evidence"]["shortfall"], "growing", "{answer}");
        let holder = super::holder(&daemon)?;
        while held(&holder) < COUNT {
            // It is counted before it is looked at the clock: what is there then was there by that time.
            let (now, since) = (held(&holder), start.elapsed().as_secs_f64());
            // What the holder has of its own, and a step of the ramp.
            let most = (since / RAMP).min(1.0) * COUNT as f64 + 64.0;
            assert!((now as f64) <= most, "{resource}: {now} of {COUNT} after {since:.2} s");
            assert!(start.elapsed() < HANG, "{resource}: {now} of {COUNT} after {:?}", start.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
        let took = start.elapsed().as_secs_f64();
        assert!(took > 0.7 * RAMP, "{resource}: all of it after {took:.2} s");
        fault.remove(&mcp)?;
        assert!(!holder.runs());
    }
    Ok(Outcome::Pass)
}

/// How many entries of the host's table of open files are free.
fn free_files() -> Result<u64> {
    let text = fs::read_to_string("/proc/sys/fs/file-nr").map_err(Error::io("read", "file-nr"))?;
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers.as_slice() {
        [used, _, table] => Ok(table.saturating_sub(*used)),
        _ => Err(Error::Different(format!("file-nr: {text}"))),
    }
}

/// When each of them was planned there was room for it; there is none for both.
fn two_faults_that_take_open_files_at_once_leave_the_reserve(_: &Context) -> TestResult {
    const EACH: u64 = 6000;
    const ROOM: u64 = 9000;
    // Others open and close files, too, a thousand at a time: whoever finds the reserve touched takes no more.
    const GIVE: u64 = 2500;
    const RAMP: Duration = Duration::from_secs(8);
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let params = json!({
        "resource": "file_descriptors", "count": EACH, "leave_free": free_files()?.saturating_sub(ROOM),
        "ramp_seconds": RAMP.as_secs(),
    });
    let faults =
        ["first", "second"].map(|name| Fault::new("resource_exhaustion").named(name).with(params.clone()));
    for fault in &faults {
        fault.inject(&mcp)?;
    }
    let mut seen = Vec::new();
    let grown = wait_until(HANG, || {
        seen = faults.iter().filter_map(|fault| evidence(fault, &mcp).ok()).collect();
        seen.len() == faults.len() && seen.iter().all(|evidence| evidence["shortfall"] != "growing")
    });
    assert!(grown, "{seen:?}");
    let held: u64 = seen.iter().filter_map(|evidence| evidence["things_held"].as_u64()).sum();
    assert!((ROOM - GIVE..=ROOM + GIVE).contains(&held), "{held} are held: {seen:?}");
    assert!(seen.iter().any(|evidence| evidence["shortfall"] == "reserve"), "{seen:?}");
    for fault in &faults {
        fault.remove(&mcp)?;
    }
    Ok(Outcome::Pass)
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
