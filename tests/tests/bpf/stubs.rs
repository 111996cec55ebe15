//! Faults end with their owner: tcx links, and the stub that jumps through a program array.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use chaos_common::PacketRule;
use chaos_daemon::fault::Attach;
use chaos_daemon::kernel::bpf::{Hook, kernel_has_tcx};
use chaos_daemon::spec::Direction;
use chaos_tests::process::wait_for;
use chaos_tests::skip::{Reason, skip};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe};

use super::arm::{armed, everything};
use super::net::{PEER_V4, arrives, at, on_a_node, on_a_node_by, udp};

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
                nix::unistd::alarm::set(600);
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

fn until(what: &str, holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    wait_for(what, holds).unwrap();
    start.elapsed()
}

#[test]
fn a_tcx_fault_ends_when_its_owner_is_killed() {
    if !kernel_has_tcx().unwrap() {
        return skip(Reason::NoTcx, "the stub's end has a test of its own");
    }
    on_a_node(|net| {
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        let flows = || arrives(&sender, at(PEER_V4, PORT), &receiver);
        let mut owner =
            Owner::start(|| Box::new(armed(net, Hook::Drop, &[Direction::Egress], &everything(), &[])));
        assert!(!flows());
        owner.kill();
        println!("tcx: flows {:?} after the kill", until("flows", flows));
    });
}

#[test]
fn a_stub_is_inert_without_its_owner_and_works_with_the_next() {
    on_a_node_by(Attach::Stub, |net| {
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        let flows = || arrives(&sender, at(PEER_V4, PORT), &receiver);
        // Each at a level of its own: the inert stubs stay before the next.
        for level in 1..=3 {
            let rule = PacketRule { level, ..everything() };
            let mut owner =
                Owner::start(|| Box::new(armed(net, Hook::Drop, &[Direction::Egress], &rule, &[])));
            assert!(!flows(), "level {level}");
            owner.kill();
            println!("stub: flows {:?} after the kill", until("flows", flows));
        }
    });
}

#[test]
fn a_stub_serves_one_program_and_detaching_empties_it() {
    on_a_node_by(Attach::Stub, |net| {
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        let flows = || arrives(&sender, at(PEER_V4, PORT), &receiver);
        let mut programs = armed(net, Hook::Drop, &[Direction::Egress], &everything(), &[]);
        programs.stub_fd(Hook::Divert, Direction::Egress).unwrap_err();
        assert!(!flows());
        programs.detach().unwrap();
        assert!(flows());
    });
}
