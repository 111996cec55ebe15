//! Two network namespaces with a veth pair between them, for one test: the node, in which the test's own thread is,
//! and its peer. Everything is gone when the test's threads and sockets are.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use chaos_daemon::fault::Attach;
use chaos_tests::HANG;
use chaos_tests::process::{wait_for, wait_until};
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};

use super::arm::{runtime, ways};

/// The node's end of the pair, and its addresses.
pub(crate) const DEVICE: &str = "node0";
pub(crate) const NODE_V4: &str = "10.9.0.1";
pub(crate) const NODE_V6: &str = "fd09::1";
/// The peer, and others that live beside it.
pub(crate) const PEER_V4: &str = "10.9.0.2";
pub(crate) const PEER_V6: &str = "fd09::2";
pub(crate) const OTHER_V4: &str = "10.9.7.3";
pub(crate) const OTHER_V6: &str = "fd09::7:3";

/// Link-layer address of both ends of every detour. No frame with it may leave the node.
pub(crate) const STRANGE: [u8; 6] = [2, 0xc4, 0xa0, 0x50, 0, 1];
const STRANGE_TEXT: &str = "02:c4:a0:50:00:01";

/// How long nothing must arrive until nothing more will. Packets between veths take microseconds.
const QUIET: Duration = Duration::from_millis(60);

pub(crate) struct Net {
    /// How faults of this test are attached.
    pub(crate) attach: Attach,
    peer: File,
    far: File,
}

/// One test at a time: a child between its fork and its exec keeps the descriptors of every thread open, and a link
/// whose descriptor is open is attached.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a test in a thread of its own, inside a namespace of its own, with faults attached as the daemon would.
pub(crate) fn on_a_node(test: impl FnOnce(&Net) + Send) {
    on_a_node_by(ways()[0], test);
}

/// Runs a test as [`on_a_node`] does, once for each way in which faults can be attached here.
pub(crate) fn on_a_node_each_way(test: impl Fn(&Net) + Send + Sync) {
    for attach in ways() {
        on_a_node_by(*attach, &test);
    }
}

/// Runs a test as [`on_a_node`] does, with faults attached in this way.
pub(crate) fn on_a_node_by(attach: Attach, test: impl FnOnce(&Net) + Send) {
    println!("attached by {attach:?}");
    assert!(
        nix::unistd::geteuid().is_root(),
        "these tests make network namespaces and load eBPF: run them as root"
    );
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let run = || {
        // The first runtime makes sockets that stay: not in the test's namespace.
        drop(runtime());
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        test(&Net::new(attach));
    };
    if let Err(panic) = thread::scope(|scope| scope.spawn(run).join()) {
        std::panic::resume_unwind(panic);
    }
}

impl Net {
    fn new(attach: Attach) -> Self {
        ip("link set lo up");
        let (peer, peer_thread) = namespace();
        let (far, _) = namespace();
        ip(&format!("link add {DEVICE} type veth peer name peer0 netns {peer_thread}"));
        let net = Self { attach, peer, far };
        address(DEVICE, NODE_V4, NODE_V6);
        net.on_peer(|| {
            ip("link set lo up");
            address("peer0", PEER_V4, PEER_V6);
            // Never the source of what the peer sends of its own.
            ip(&format!("addr add {OTHER_V4}/16 dev peer0"));
            ip(&format!("addr add {OTHER_V6}/64 dev peer0 nodad preferred_lft 0"));
        });
        // Neighbours, so that the first packet of a test does not wait for an answer.
        for peer in [PEER_V4, OTHER_V4, PEER_V6, OTHER_V6] {
            // The kernel takes a moment to notice that the pair is up.
            assert!(answers(peer), "no way to {peer}");
        }
        net
    }

    /// Does something in the peer's namespace. Sockets made there stay there.
    pub(crate) fn on_peer<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.peer, work)
    }

    /// Does something in a third namespace, without connection.
    pub(crate) fn on_far_end<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.far, work)
    }

    /// Makes the veth pair of a detour: `near` on the node, `far` in the third namespace.
    pub(crate) fn detour(&self, near: &str, far: &str) {
        let (send, receive) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                setns(&self.far, CloneFlags::CLONE_NEWNET).unwrap();
                send.send(nix::unistd::gettid()).unwrap();
                ended.recv().unwrap();
            });
            let thread = receive.recv().unwrap();
            ip(&format!("link add {near} type veth peer name {far} netns {thread}"));
            end.send(()).unwrap();
        });
        ip(&format!("link set {near} address {STRANGE_TEXT} up"));
        self.on_far_end(|| ip(&format!("link set {far} address {STRANGE_TEXT} up")));
        wait_for(&format!("{near} and {far} up"), || is_up(near) && self.on_far_end(|| is_up(far))).unwrap();
    }
}

fn inside<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn address(device: &str, v4: &str, v6: &str) {
    ip(&format!("addr add {v4}/16 dev {device}"));
    ip(&format!("addr add {v6}/64 dev {device} nodad"));
    ip(&format!("link set {device} up"));
}

/// A new namespace and the id of a thread that is in it until the namespace's first use as a target.
fn namespace() -> (File, i32) {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let file = File::open("/proc/thread-self/ns/net").unwrap();
        send.send((file, nix::unistd::gettid().as_raw())).unwrap();
        // Long enough for `ip` to move a device here; then the open file alone keeps the namespace.
        thread::sleep(HANG);
    });
    receive.recv().unwrap()
}

/// Runs `ip` in the calling thread's namespace.
pub(crate) fn ip(arguments: &str) {
    run("ip", arguments);
}

/// Runs a program in the calling thread's namespace and insists that it succeeds.
pub(crate) fn run(program: &str, arguments: &str) {
    let done = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments}: {complaint}");
}

/// Whether a device of the calling thread's namespace is up and has a carrier.
fn is_up(device: &str) -> bool {
    let shown = Command::new("ip").args(["-brief", "link", "show", "dev", device]).output().unwrap();
    String::from_utf8_lossy(&shown.stdout).split_whitespace().nth(1) == Some("UP")
}

/// Whether one ping from the calling thread's namespace is answered within a second.
pub(crate) fn ping(to: &str) -> bool {
    Command::new("ping").args(["-c1", "-W1", "-q", to]).output().unwrap().status.success()
}

/// Whether pings from there are answered.
pub(crate) fn answers(to: &str) -> bool {
    wait_until(HANG, || ping(to))
}

/// A socket address from its parts.
pub(crate) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// A UDP socket for both IP versions on a port; 0 is any.
pub(crate) fn udp(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((IpAddr::from(Ipv6Addr::UNSPECIFIED), port)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// How many of some packets arrive. The sender must not notice when they do not.
pub(crate) fn arrivals(from: &UdpSocket, to: SocketAddr, receiver: &UdpSocket, count: usize) -> usize {
    let to = match to {
        SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        SocketAddr::V6(_) => to,
    };
    let mut arrived = 0;
    let drain = |arrived: &mut usize| {
        let mut packet = [0u8; 64];
        loop {
            match receiver.recv(&mut packet) {
                Ok(_) => *arrived += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("receiving: {error}"),
            }
        }
    };
    for _ in 0..count {
        from.send_to(b"chaos", to).expect("the sender noticed");
        drain(&mut arrived);
    }
    // In short naps: on a machine that stands still nothing arrives, and this is no quiet.
    for _ in 0..QUIET.as_millis() {
        if arrived >= count {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        drain(&mut arrived);
    }
    arrived
}

/// Whether one packet arrives.
pub(crate) fn arrives(from: &UdpSocket, to: SocketAddr, receiver: &UdpSocket) -> bool {
    arrivals(from, to, receiver, 1) == 1
}

/// Connects within a second.
pub(crate) fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(HANG))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A listener for both IP versions that sends back what it reads, on every connection.
pub(crate) fn echo(port: u16) {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().take(64) {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(HANG)).unwrap();
            thread::spawn(move || {
                let mut buffer = [0u8; 65536];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// Sends bytes and reads as many back.
pub(crate) fn round_trip(stream: &mut TcpStream, length: usize) -> std::io::Result<Duration> {
    let start = Instant::now();
    let mut reader = stream.try_clone()?;
    let data = vec![7u8; length];
    thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut back = vec![0u8; length];
            reader.read_exact(&mut back).map(|()| back)
        });
        stream.write_all(&data)?;
        assert_eq!(reading.join().unwrap()?, data);
        Ok(start.elapsed())
    })
}

/// Turns every offload of a device in the calling thread's namespace off, so that what leaves it is checksummed.
pub(crate) fn offloads_off(device: &str) {
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        value: *mut [u32; 2],
        rest: [u64; 2],
    }
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    // ETHTOOL_STSO, SGSO, STXCSUM, SRXCSUM (linux/ethtool.h)
    for command in [0x1f, 0x24, 0x17, 0x15] {
        let mut value = [command, 0];
        let mut request = Request { name: [0; 16], value: &raw mut value, rest: [0; 2] };
        request.name[..device.len()].copy_from_slice(device.as_bytes());
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // SAFETY: the layout is that of struct ifreq, and `value` that of struct ethtool_value; both live on.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        assert_eq!(done, 0, "ethtool {command:#x} {device}: {}", std::io::Error::last_os_error());
    }
}

/// Everything that a device of the calling thread's namespace sends and receives from now on.
pub(crate) fn sniff(device: &str) -> OwnedFd {
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_NONBLOCK, SockProtocol::EthAll).unwrap();
    let index = nix::net::if_::if_nametoindex(device).unwrap();
    // SAFETY: all zeros is a value of this struct of integers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let length = size_of_val(&address) as u32;
    // SAFETY: the address is one of this length.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    socket
}

/// How many of the sniffed frames have this source address.
pub(crate) fn frames_from(sniffer: &OwnedFd, source: [u8; 6]) -> usize {
    let mut ours = 0;
    let mut frame = [0u8; 2048];
    loop {
        match recv(sniffer.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            Ok(length) => ours += usize::from(length >= 12 && frame[6..12] == source),
            // The device went down and up, which the socket tells once.
            Err(Errno::ENETDOWN) => {}
            Err(_) => return ours,
        }
    }
}
