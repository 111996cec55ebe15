//! What one service gets when it asks for something of sockets: measured by a process in a control group of the test's, and
//! by one beside it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use chaos_daemon::spec::errno::SOCKET_ERRORS;
use chaos_daemon::spec::sockets::{OPERATIONS, Operation};
use nix::libc::{EADDRINUSE, ECONNREFUSED, ECONNRESET, EIO, ENETDOWN, ENOBUFS};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::served::{self, AT_ONCE, LEASE, Served, lack};
use super::{Context, Outcome, STANDSTILL, TestResult, tests};
use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::late::HANG;
use crate::plug::Plug;
use crate::process::wait_until;
use crate::touch::Touch;
use crate::{Daemon, Mcp, NetNs, Reason, Residue, Result};

tests![
    a_kernel_that_cannot_fail_calls_about_sockets_says_what_it_lacks,
    a_socket_error_fails_what_one_group_asks_on_both_families_and_nothing_else,
    a_socket_error_of_a_process_or_a_container_is_of_its_group_alone,
    a_call_about_a_socket_ends_who_makes_it_and_nobody_else,
    a_socket_error_is_narrowed_to_operations,
    a_socket_error_is_narrowed_by_protocol_and_ports_and_spares_what_is_protected,
    a_socket_error_is_each_of_those_that_it_can_be,
    a_socket_error_fails_its_share_of_the_calls_from_the_nth_on_and_so_many_at_most,
    a_socket_error_goes_by_who_calls_and_not_by_who_made_the_socket,
    a_socket_error_and_errors_of_connections_and_files_act_side_by_side_and_end_one_by_one,
    a_socket_error_ends_at_its_time,
    killing_every_process_at_once_ends_a_socket_error_of_one_operation_at_once,
    killing_every_process_at_once_ends_a_socket_error_of_all_operations_within_the_lease,
    stopping_every_process_ends_a_socket_error_with_the_lease,
    a_holder_that_dies_takes_its_socket_error_with_it,
    a_socket_error_of_the_daemon_s_group_or_of_what_cannot_be_met_is_refused,
];

const PORT: u16 = 9000;
/// A port that nobody has.
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const V4: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
const V6: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::LOCALHOST), PORT);

/// Everything that one operation is asked by, with the operation.
const PLUGS: [(&str, Plug); 12] = [
    ("bind", Plug::Bind),
    ("bind", Plug::BindDatagram),
    ("listen", Plug::Listen),
    ("accept", Plug::Accept),
    ("send", Plug::Send),
    ("send", Plug::Write),
    ("send", Plug::SendMessage),
    ("send", Plug::SendNamed),
    ("send", Plug::SendDatagram),
    ("receive", Plug::Receive),
    ("receive", Plug::Read),
    ("receive", Plug::ReceiveDatagram),
];

/// Of what may fail by the test's own files as well.
type Tried<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A service in a group of its own, and one beside it, which have sockets on the loopback of a namespace each.
struct Scene {
    service: Caller,
    beside: Caller,
    daemon: Daemon,
    mcp: Mcp,
    before: Residue,
    cgroup: Cgroup,
    netns: [NetNs; 2],
}

impl Scene {
    /// Skips where the kernel cannot, by what the daemon says; the VM's kernels can, and the runner excuses nothing there.
    fn with(
        addresses: &[SocketAddr],
        configure: impl FnOnce(&mut std::process::Command),
    ) -> Tried<std::result::Result<Self, String>> {
        let (netns, cgroup) = ([NetNs::new()?, NetNs::new()?], Cgroup::new()?);
        let mut service = Caller::start(&netns[0], Some(&cgroup))?;
        let mut beside = Caller::start(&netns[1], None)?;
        let daemon = Daemon::start_with(configure)?;
        let mcp = daemon.mcp()?;
        if let Some(lack) = lack(&mcp, "socket_error")? {
            return Ok(Err(lack));
        }
        for address in addresses {
            let taken = (service.plug(Plug::Take, *address)?, beside.plug(Plug::Take, *address)?);
            assert_eq!(taken, (0, 0), "{address}");
        }
        let before = Residue::take(&[&netns[0], &netns[1]])?;
        Ok(Ok(Self { service, beside, daemon, mcp, before, cgroup, netns }))
    }

    fn fault(&self, params: Value) -> Fault {
        self.narrow(json!({})).with(params)
    }

    fn narrow(&self, narrow: Value) -> Fault {
        Fault::new("socket_error").aimed(json!({"cgroup": self.cgroup.name()})).narrowed(narrow)
    }

    /// Fails unless the service gets this from whatever it asks of its sockets of IPv4 and IPv6, and nobody anything from all
    /// else.
    fn assert_service_gets(&mut self, errno: i32) -> Result<()> {
        for address in [V4, V6] {
            for (_, plug) in PLUGS {
                assert_eq!(self.service.plug(plug, address)?, errno, "{plug:?} {address} of the service");
                assert_eq!(self.beside.plug(plug, address)?, 0, "{plug:?} {address} beside the service");
            }
        }
        assert_eq!(self.service.plug(Plug::WholeUnix, V4)?, 0, "unix sockets of the service");
        Ok(())
    }
}

impl Served for Scene {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn mcp(&self) -> &Mcp {
        &self.mcp
    }

    fn is_normal(&mut self) -> Result<bool> {
        // Nothing of what there is fails.
        Ok(self.service.plug(Plug::Whole, ANYWHERE)? == 0)
    }

    fn assert_all_is_normal(&mut self) -> Result<()> {
        self.assert_service_gets(0)
    }

    fn assert_no_residue(&self) -> Result<()> {
        self.before.assert_unchanged_within(&[&self.netns[0], &self.netns[1]], HANG)
    }
}

/// Runs a test on a scene, if the kernel can have one.
fn on_scene(test: impl FnOnce(&mut Scene) -> Tried<()>) -> TestResult {
    match Scene::with(&[V4, V6], |_| {})? {
        Ok(mut scene) => test(&mut scene).map(|()| Outcome::Pass),
        Err(lack) => Ok(Outcome::Skip(Reason::NoBpfLsm, lack)),
    }
}

fn a_kernel_that_cannot_fail_calls_about_sockets_says_what_it_lacks(context: &Context) -> TestResult {
    let cgroup = Cgroup::new()?;
    let fault = Fault::new("socket_error").aimed(json!({"cgroup": cgroup.name()}));
    served::is_refused_where_it_cannot_be(context, "socket_error", &fault)
}

fn a_socket_error_fails_what_one_group_asks_on_both_families_and_nothing_else(_: &Context) -> TestResult {
    on_scene(|scene| {
        scene.assert_service_gets(0)?;
        for (name, errno) in [("no_buffer_space", ENOBUFS), ("EIO", EIO)] {
            let fault = scene.fault(json!({"errno": name}));
            let answer = fault.inject(&scene.mcp)?;
            assert_eq!(
                (&answer["lifetime"], &answer["state"]),
                (&json!("kernel"), &json!("no_traffic")),
                "{answer}"
            );
            scene.assert_service_gets(errno)?;
            let status = fault.status(&scene.mcp)?;
            assert_eq!(status["state"], "effective", "{status}");
            let (evidence, all) = (&status["evidence"], json!(2 * PLUGS.len()));
            assert_eq!(
                (&evidence["packets_matched"], &evidence["packets_affected"]),
                (&all, &all),
                "{status}"
            );
            fault.remove(&scene.mcp)?;
            scene.assert_service_gets(0)?;
            scene.assert_no_residue()?;
        }
        Ok(())
    })
}

fn a_call_about_a_socket_ends_who_makes_it_and_nobody_else(_: &Context) -> TestResult {
    on_scene(|scene| {
        scene.assert_service_gets(0)?;
        let kill = scene.fault(json!({"operations": ["listen"], "signal": "TERM"}));
        let answer = kill.inject(&scene.mcp)?;
        assert_eq!(answer["lifetime"], "irreversible", "{answer}");
        assert!(scene.service.plug(Plug::Whole, ANYWHERE).is_err(), "the call came back");
        assert!(wait_until(HANG, || scene.service.ended_by() == Some(Signal::SIGTERM as i32)));
        assert_eq!(scene.beside.plug(Plug::Whole, ANYWHERE)?, 0, "beside the service");
        let status = kill.status(&scene.mcp)?;
        let affected = &status["evidence"]["packets_affected"];
        assert_eq!((&status["state"], affected), (&json!("effective"), &json!(1)), "{status}");
        kill.remove(&scene.mcp)?;
        Ok(())
    })
}

fn a_socket_error_of_a_process_or_a_container_is_of_its_group_alone(_: &Context) -> TestResult {
    on_scene(|scene| {
        let (cgroup, id) = Cgroup::of_container()?;
        let other = NetNs::new()?;
        let mut inside = Caller::start(&other, Some(&cgroup))?;
        scene.assert_service_gets(0)?;
        assert_eq!(inside.plug(Plug::Whole, ANYWHERE)?, 0, "in the container, before");

        let of_process = scene.fault(json!({})).aimed(json!({"pid": scene.service.pid()}));
        let answer = of_process.inject(&scene.mcp)?;
        let description = answer["description"].as_str().unwrap_or_default();
        assert!(description.contains(&scene.cgroup.name()), "{answer}");
        scene.assert_service_gets(ENOBUFS)?;
        assert_eq!(inside.plug(Plug::Whole, ANYWHERE)?, 0, "in the container");
        of_process.remove(&scene.mcp)?;
        scene.assert_service_gets(0)?;

        let of_container = scene.fault(json!({})).aimed(json!({"container": &id[..40]}));
        of_container.inject(&scene.mcp)?;
        assert_eq!(inside.plug(Plug::Whole, ANYWHERE)?, ENOBUFS, "in the container");
        scene.assert_service_gets(0)?;
        of_container.remove(&scene.mcp)?;
        assert_eq!(inside.plug(Plug::Whole, ANYWHERE)?, 0, "in the container, after");
        // They are the test's own, and came after the picture was taken.
        drop((inside, cgroup, other));
        Ok(scene.assert_no_residue()?)
    })
}

fn a_socket_error_is_narrowed_to_operations(_: &Context) -> TestResult {
    on_scene(|scene| {
        let tried = |operation: &Operation| PLUGS.iter().any(|(name, _)| *name == operation.name());
        assert!(OPERATIONS.iter().all(tried), "an operation is not tried");
        scene.assert_service_gets(0)?;
        for operation in OPERATIONS.iter().map(|operation| operation.name()) {
            let fault = scene.fault(json!({"operations": [operation], "errno": "address_in_use"}));
            fault.inject(&scene.mcp)?;
            for (of, plug) in PLUGS {
                let expected = if of == operation { EADDRINUSE } else { 0 };
                assert_eq!(scene.service.plug(plug, V4)?, expected, "{plug:?} under {operation}");
            }
            fault.remove(&scene.mcp)?;
        }
        scene.assert_service_gets(0)?;
        Ok(scene.assert_no_residue()?)
    })
}

fn a_socket_error_is_narrowed_by_protocol_and_ports_and_spares_what_is_protected(_: &Context) -> TestResult {
    let policy = tempfile::NamedTempFile::new()?;
    std::fs::write(policy.path(), "[protect]\ncidrs = [\"127.0.0.2/32\"]\ntcp_ports = [2222]\n")?;
    let at = |address: [u8; 4], port| SocketAddr::from((address, port));
    let (other, guarded, peer) =
        (at([127, 0, 0, 1], 9100), at([127, 0, 0, 1], 2222), at([127, 0, 0, 2], 9200));
    let mapped = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2).to_ipv6_mapped(), 9300));
    let with_policy = |command: &mut std::process::Command| {
        command.arg("--policy").arg(policy.path());
    };
    let mut scene = match Scene::with(&[V4, other, guarded, peer, mapped], with_policy)? {
        Ok(scene) => scene,
        Err(lack) => return Ok(Outcome::Skip(Reason::NoBpfLsm, lack)),
    };
    use Plug::{Accept, Bind, BindDatagram, Listen, Receive, ReceiveDatagram, Send, SendDatagram, SendNamed};
    let all = [Bind, BindDatagram, Listen, Accept, Send, SendNamed, SendDatagram, Receive, ReceiveDatagram];
    for (narrow, address, failing) in [
        (json!({"protocol": "tcp"}), V4, &[Bind, Listen, Accept, Send, SendNamed, Receive][..]),
        (json!({"protocol": "udp"}), V4, &[BindDatagram, SendDatagram, ReceiveDatagram]),
        // What is bound there; the client of the connection has another.
        (json!({"local_port": 9000}), V4, &[Listen, Accept, SendDatagram, Receive, ReceiveDatagram]),
        (json!({"local_port": 9001}), V4, &[Bind, BindDatagram]),
        (
            json!({"local_port": "8999-9001"}),
            V4,
            &[Bind, BindDatagram, Listen, Accept, SendDatagram, Receive, ReceiveDatagram],
        ),
        (json!({"local_port": "8999-9001"}), other, &[]),
        // What is connected there, or sent there without a connection.
        (json!({"remote_port": 9000}), V4, &[Send, SendNamed, SendDatagram]),
        (json!({"remote_port": 9}), V4, &[]),
        (json!({"port": 9000, "protocol": "tcp"}), V4, &[Listen, Accept, Send, SendNamed, Receive]),
        (json!({"port": 9000}), other, &[]),
        // What the policy protects: a port of this host, over TCP, whichever end of a connection has it.
        (json!({}), guarded, &[Bind, BindDatagram, SendDatagram, ReceiveDatagram]),
        // And a peer: what is sent to it, with or without a connection, whatever a connection is told, also in the clothes of IPv6.
        (json!({}), peer, &[Bind, BindDatagram, Listen, Accept, Receive, ReceiveDatagram]),
        (json!({}), mapped, &[Bind, BindDatagram, Listen, Accept, Receive, ReceiveDatagram]),
    ] {
        let fault = scene.narrow(narrow.clone()).with(json!({"errno": "network_down"}));
        fault.inject(&scene.mcp)?;
        for plug in all {
            let expected = if failing.contains(&plug) { ENETDOWN } else { 0 };
            assert_eq!(scene.service.plug(plug, address)?, expected, "{narrow}: {plug:?} {address}");
        }
        let evidence = &fault.status(&scene.mcp)?["evidence"];
        let spared = if narrow == json!({}) { all.len() - failing.len() } else { 0 };
        assert_eq!(evidence["packets_protected"], spared, "{narrow} {address}: {evidence}");
        assert_eq!(evidence["packets_affected"], failing.len(), "{narrow} {address}: {evidence}");
        fault.remove(&scene.mcp)?;
        for plug in all {
            assert_eq!(scene.service.plug(plug, address)?, 0, "after {narrow}: {plug:?} {address}");
        }
    }
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

fn a_socket_error_is_each_of_those_that_it_can_be(_: &Context) -> TestResult {
    on_scene(|scene| {
        for (name, _, errno) in SOCKET_ERRORS {
            let fault = scene.fault(json!({"errno": name}));
            fault.inject(&scene.mcp)?;
            for plug in [Plug::Bind, Plug::SendDatagram] {
                assert_eq!(scene.service.plug(plug, V4)?, *errno, "{name}: {plug:?}");
                assert_eq!(scene.beside.plug(plug, V4)?, 0, "{name} beside the service: {plug:?}");
            }
            fault.remove(&scene.mcp)?;
            assert_eq!(scene.service.plug(Plug::Bind, V4)?, 0, "after {name}");
        }
        Ok(scene.assert_no_residue()?)
    })
}

fn a_socket_error_fails_its_share_of_the_calls_from_the_nth_on_and_so_many_at_most(
    _: &Context,
) -> TestResult {
    on_scene(|scene| {
        let plug = Plug::Bind;
        assert_eq!(scene.service.plug_failures(8, plug, V4)?, 0, "before");
        let late = scene.fault(json!({"after_calls": 3, "times": 2})).named("late");
        late.inject(&scene.mcp)?;
        let gets: Vec<_> = (0..8).map(|_| scene.service.plug(plug, V4)).collect::<Result<_>>()?;
        assert_eq!(gets, [0, 0, 0, ENOBUFS, ENOBUFS, 0, 0, 0]);
        let evidence = &late.status(&scene.mcp)?["evidence"];
        assert_eq!((&evidence["packets_matched"], &evidence["packets_affected"]), (&json!(8), &json!(2)));
        late.remove(&scene.mcp)?;

        let half = scene.fault(json!({"call_probability": 0.5})).named("half");
        half.inject(&scene.mcp)?;
        // Outside of this once in some 10^9 runs.
        let failed = scene.service.plug_failures(400, plug, V6)?;
        assert!((140..=260).contains(&failed), "{failed} of 400 calls failed");
        assert_eq!(scene.beside.plug_failures(400, plug, V6)?, 0);
        half.remove(&scene.mcp)?;
        assert_eq!(scene.service.plug_failures(100, plug, V6)?, 0, "after");
        Ok(scene.assert_no_residue()?)
    })
}

fn a_socket_error_goes_by_who_calls_and_not_by_who_made_the_socket(_: &Context) -> TestResult {
    on_scene(|scene| {
        let elsewhere = Cgroup::new()?;
        let fault = scene.fault(json!({}));
        fault.inject(&scene.mcp)?;
        // Both have made their sockets already, one in the group and one outside of it. They change places, and then back.
        for (of_service, of_beside) in
            [((&elsewhere, 0), (&scene.cgroup, ENOBUFS)), ((&scene.cgroup, ENOBUFS), (&elsewhere, 0))]
        {
            of_service.0.set("cgroup.procs", &scene.service.pid().to_string())?;
            of_beside.0.set("cgroup.procs", &scene.beside.pid().to_string())?;
            for plug in
                [Plug::Bind, Plug::Listen, Plug::Accept, Plug::Send, Plug::SendDatagram, Plug::Receive]
            {
                assert_eq!(scene.service.plug(plug, V4)?, of_service.1, "{plug:?} of the service");
                assert_eq!(scene.beside.plug(plug, V4)?, of_beside.1, "{plug:?} beside the service");
            }
        }
        fault.remove(&scene.mcp)?;
        scene.assert_service_gets(0)?;
        // With who is in it; it came after the picture was taken.
        drop(elsewhere);
        Ok(scene.assert_no_residue()?)
    })
}

fn a_socket_error_and_errors_of_connections_and_files_act_side_by_side_and_end_one_by_one(
    _: &Context,
) -> TestResult {
    on_scene(|scene| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("file");
        std::fs::write(&file, "some bytes")?;
        let group = json!({"cgroup": scene.cgroup.name()});
        let sockets = scene.fault(json!({"errno": "connection_reset"}));
        let twice = scene.fault(json!({"operations": ["listen"], "errno": "no_memory"})).named("twice");
        let calls = Fault::new("connect_error").aimed(group.clone());
        let files = Fault::new("file_error").aimed(group).with(json!({"path": folder.path()}));
        // What a datagram, a connection and an opened file get.
        let gets = |scene: &mut Scene| -> Result<_> {
            let connection = scene.service.ask(Ask::Connect(V4))?;
            Ok((
                scene.service.plug(Plug::SendDatagram, V4)?,
                connection,
                scene.service.touch(Touch::Open, &file)?,
            ))
        };
        assert_eq!(gets(scene)?, (0, 0, 0));
        for fault in [&calls, &files, &sockets, &twice] {
            fault.inject(&scene.mcp)?;
        }
        // Where two would fail one call, that at the security hook is asked first.
        assert_eq!(gets(scene)?, (ECONNRESET, ECONNREFUSED, EIO));
        twice.remove(&scene.mcp)?;
        assert_eq!(scene.service.plug(Plug::Listen, V4)?, ECONNRESET);
        sockets.remove(&scene.mcp)?;
        assert_eq!(gets(scene)?, (ECONNREFUSED, ECONNREFUSED, EIO));
        sockets.inject(&scene.mcp)?;
        calls.remove(&scene.mcp)?;
        assert_eq!(gets(scene)?, (ECONNRESET, 0, EIO));
        files.remove(&scene.mcp)?;
        assert_eq!(gets(scene)?, (ECONNRESET, 0, 0));
        sockets.remove(&scene.mcp)?;
        assert_eq!(gets(scene)?, (0, 0, 0));
        scene.assert_service_gets(0)?;
        Ok(scene.assert_no_residue()?)
    })
}

fn a_socket_error_ends_at_its_time(_: &Context) -> TestResult {
    on_scene(|scene| {
        let fault = scene.fault(json!({}));
        Ok(served::ends_at_its_time(scene, &fault)?)
    })
}

fn survives(params: &Value, blow: Signal, limit: Duration) -> TestResult {
    on_scene(|scene| {
        let fault = scene.fault(params.clone());
        Ok(served::survives(scene, &fault, blow, limit)?)
    })
}

fn killing_every_process_at_once_ends_a_socket_error_of_one_operation_at_once(_: &Context) -> TestResult {
    survives(&json!({"operations": ["bind"]}), Signal::SIGKILL, AT_ONCE)
}

/// The kernel lets go of one hook after the other, and waits in between.
fn killing_every_process_at_once_ends_a_socket_error_of_all_operations_within_the_lease(
    _: &Context,
) -> TestResult {
    survives(&json!({}), Signal::SIGKILL, LEASE)
}

fn stopping_every_process_ends_a_socket_error_with_the_lease(_: &Context) -> TestResult {
    survives(&json!({}), Signal::SIGSTOP, LEASE + STANDSTILL)
}

fn a_holder_that_dies_takes_its_socket_error_with_it(_: &Context) -> TestResult {
    on_scene(|scene| {
        let fault = scene.fault(json!({"operations": ["bind"]}));
        Ok(served::ends_with_its_holder(scene, &fault)?)
    })
}

fn a_socket_error_of_the_daemon_s_group_or_of_what_cannot_be_met_is_refused(_: &Context) -> TestResult {
    let (cgroup, other) = (Cgroup::new()?, Cgroup::new()?);
    let daemon = Daemon::start_with(|command| cgroup.place(command))?;
    let mcp = daemon.mcp()?;
    let free = json!({"cgroup": other.name()});
    // What the kernel lacks is said before any target is looked at.
    let lacking = lack(&mcp, "socket_error")?.is_some();
    for (target, params, expected) in [
        (json!({"cgroup": cgroup.name()}), json!({}), "TARGET_PROTECTED"),
        (json!({"cgroup": "/"}), json!({}), "INVALID_PARAMETER"),
        (json!({"cgroup": "no/such"}), json!({}), "TARGET_NOT_FOUND"),
        (json!({}), json!({}), "MISSING_PARAMETER"),
        (free.clone(), json!({"operations": ["connect"]}), "connect_error"),
        (json!({"cgroup": other.name(), "cidr": "10.0.0.0/8"}), json!({}), "no peer"),
        (
            json!({"cgroup": other.name(), "protocol": "udp"}),
            json!({"operations": ["accept"]}),
            "accept is of connections",
        ),
    ] {
        let fault = Fault::new("socket_error").aimed(target.clone()).with(params.clone());
        let answer = match fault.register(&mcp) {
            Ok(_) => mcp
                .call_tool("chaos_inject_fault", json!({"fault_name": "socket_error", "action": "inject"}))?,
            // What cannot be meant is refused before it has a name.
            Err(error) if error.to_string().contains(expected) => continue,
            Err(error) => return Err(error.into()),
        };
        let code = &answer.json["error"]["code"];
        let looked = expected != "MISSING_PARAMETER";
        let expected = if lacking && looked { "UNSUPPORTED_KERNEL" } else { expected };
        assert!(answer.is_error && code == expected, "{target}, {params}: {}", answer.json);
    }
    Ok(Outcome::Pass)
}
