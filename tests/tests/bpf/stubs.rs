//! Faults end with their owner: tcx links, and the stub that jumps through a program array.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use chaos_daemon::kernel::bpf::Hook;
use chaos_daemon::spec::Direction;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendto, socket,
};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe};

use super::net::{DEVICE, PEER_V4, arrives, at, on_a_node, run, udp};
use super::{everything, load, renew, set_rule};

const PORT: u16 = 7000;

/// A child that owns a fault. Killed, at the latest when the test ends.
struct Owner(Option<Pid>);

impl Owner {
    /// Forks, lets the child make its fault, and waits until it says that it has.
    fn start(make: impl FnOnce() -> Box<dyn std::any::Any>) -> Self {
        let (read, write) = pipe().unwrap();
        // SAFETY: the child runs ordinary code after this, which glibc allows to a child of a threaded process as far
        // as malloc goes, and nothing else here takes locks that another thread may have held.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                drop(read);
                // Should the test die, so does its fault: the alarm outlives every other way.
                nix::unistd::alarm::set(20);
                let fault = make();
                std::fs::File::from(write).write_all(b"armed").unwrap();
                loop {
                    std::thread::sleep(Duration::from_secs(60));
                    std::hint::black_box(&fault);
                }
            }
            ForkResult::Parent { child } => {
                drop(write);
                let owner = Self(Some(child));
                let mut word = String::new();
                std::fs::File::from(read).take(5).read_to_string(&mut word).unwrap();
                assert_eq!(word, "armed", "the owner failed");
                owner
            }
        }
    }

    fn kill(&mut self) {
        if let Some(child) = self.0.take() {
            kill(child, Signal::SIGKILL).unwrap();
            waitpid(child, None).unwrap();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.kill();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(2), "still not: {what}");
    }
    start.elapsed()
}

#[test]
fn a_tcx_fault_ends_when_its_owner_is_killed() {
    on_a_node(|net| {
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        let flows = || arrives(&sender, at(PEER_V4, PORT), &receiver);
        let mut owner =
            Owner::start(|| Box::new(super::armed(Hook::Drop, &[Direction::Egress], &everything(), &[])));
        assert!(!flows());
        owner.kill();
        println!("tcx: flows {:?} after the kill", until("flows", flows));
    });
}

#[test]
fn a_stub_is_inert_without_its_owner_and_works_with_the_next() {
    on_a_node(|net| {
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        let flows = || arrives(&sender, at(PEER_V4, PORT), &receiver);
        run("tc", &format!("qdisc add dev {DEVICE} clsact"));
        for round in 1..=3u16 {
            let mut owner = Owner::start(|| {
                let mut programs = load();
                set_rule(&mut programs, &everything(), &[]);
                let stub = programs.stub_fd(Hook::Drop, Direction::Egress).unwrap();
                add_egress_filter(stub, round);
                renew(&mut programs, Duration::from_secs(60));
                Box::new(programs)
            });
            assert!(!flows(), "round {round}");
            owner.kill();
            println!("stub: flows {:?} after the kill", until("flows", flows));
        }
    });
}

#[test]
fn a_stub_serves_one_program_and_detaching_empties_it() {
    on_a_node(|net| {
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        let flows = || arrives(&sender, at(PEER_V4, PORT), &receiver);
        run("tc", &format!("qdisc add dev {DEVICE} clsact"));
        let mut programs = load();
        set_rule(&mut programs, &everything(), &[]);
        renew(&mut programs, Duration::from_secs(60));
        add_egress_filter(programs.stub_fd(Hook::Drop, Direction::Egress).unwrap(), 1);
        programs.stub_fd(Hook::Divert, Direction::Egress).unwrap_err();
        assert!(!flows());
        programs.detach().unwrap();
        assert!(flows());
    });
}

/// What the daemon's netlink code does on kernels without tcx: a direct-action cls_bpf filter (linux/pkt_cls.h).
fn add_egress_filter(program: BorrowedFd<'_>, priority: u16) {
    const RTM_NEWTFILTER: u16 = 44;
    // REQUEST | ACK | EXCL | CREATE
    const FLAGS: u16 = 0x1 | 0x4 | 0x200 | 0x400;
    const CLSACT_EGRESS: u32 = 0xffff_fff3;
    const ETH_P_ALL: u16 = 3;
    let attribute = |kind: u16, value: &[u8]| {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    // TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS (TCA_BPF_FLAG_ACT_DIRECT)
    let options = [
        attribute(6, &program.as_raw_fd().to_ne_bytes()),
        attribute(7, b"chaos-test\0"),
        attribute(8, &1u32.to_ne_bytes()),
    ]
    .concat();
    let index = nix::net::if_::if_nametoindex(DEVICE).unwrap();
    let information = u32::from(priority) << 16 | u32::from(ETH_P_ALL.to_be());
    let mut body = vec![0u8; 4];
    for word in [index, 0, CLSACT_EGRESS, information] {
        body.extend(word.to_ne_bytes());
    }
    body.extend(attribute(1, b"bpf\0"));
    body.extend(attribute(2, &options));
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(RTM_NEWTFILTER.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);

    let route =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)
            .unwrap();
    bind(route.as_raw_fd(), &NetlinkAddr::new(0, 0)).unwrap();
    sendto(route.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty()).unwrap();
    let mut answer = [0u8; 4096];
    recv(route.as_raw_fd(), &mut answer, MsgFlags::empty()).unwrap();
    let error = i32::from_ne_bytes(answer[16..20].try_into().unwrap());
    assert_eq!(error, 0, "adding the filter: {}", std::io::Error::from_raw_os_error(-error));
}
