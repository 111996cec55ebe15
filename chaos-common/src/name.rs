//! Names of programs and maps in the object. Programs and maps are Rust statics there, so the kernel side repeats
//! them as identifiers; the loader fails with the name of whatever is missing.

/// Drops what leaves through the device.
pub const DROP_EGRESS: &str = "drop_egress";
/// Drops what arrives at the device.
pub const DROP_INGRESS: &str = "drop_ingress";
/// Answers TCP segments that leave with a reset.
pub const RESET_EGRESS: &str = "reset_egress";
/// Answers TCP segments that arrive with a reset.
pub const RESET_INGRESS: &str = "reset_ingress";
/// Answers what leaves with a message that it cannot arrive.
pub const REJECT_EGRESS: &str = "reject_egress";
/// Answers what arrives with a message that it cannot arrive.
pub const REJECT_INGRESS: &str = "reject_ingress";
/// Sends what leaves on a detour.
pub const DIVERT_EGRESS: &str = "divert_egress";
/// Sends what arrives on a detour.
pub const DIVERT_INGRESS: &str = "divert_ingress";
/// Turns the detour around, on ingress of its far end.
pub const HAIRPIN: &str = "hairpin";
/// Ends the detour, on ingress of its near end.
pub const COMEBACK: &str = "comeback";
/// Jumps to whatever egress program is installed, or does nothing.
pub const STUB_EGRESS: &str = "stub_egress";
/// Jumps to whatever ingress program is installed, or does nothing.
pub const STUB_INGRESS: &str = "stub_ingress";

/// Answers questions about names that leave.
pub const DNS_EGRESS: &str = "dns_egress";
/// Answers questions about names that arrive.
pub const DNS_INGRESS: &str = "dns_ingress";

/// Sends questions about names that leave on a detour.
pub const DETAIN_EGRESS: &str = "detain_egress";
/// Sends questions about names that arrive on a detour.
pub const DETAIN_INGRESS: &str = "detain_ingress";

/// Fails connect(2) to an IPv4 address.
pub const CONNECT_V4: &str = "connect4";
/// Fails connect(2) to an IPv6 address.
pub const CONNECT_V6: &str = "connect6";
/// Fails sending to an IPv4 address without a connection (UDP).
pub const SENDMSG_V4: &str = "sendmsg4";
/// Fails sending to an IPv6 address without a connection (UDP).
pub const SENDMSG_V6: &str = "sendmsg6";

/// Loses what the sockets of a control group send.
pub const SEVER_EGRESS: &str = "sever_egress";
/// Loses what arrives for the sockets of a control group.
pub const SEVER_INGRESS: &str = "sever_ingress";

/// Fails opening a file.
pub const FILE_OPEN: &str = "file_open";
/// Fails reading from an open file, and writing to it.
pub const FILE_PERMISSION: &str = "file_permission";
/// Fails making a file.
pub const INODE_CREATE: &str = "inode_create";
/// Fails mapping a file into memory.
pub const MMAP_FILE: &str = "mmap_file";
/// Notes the inode that one thread asks for.
pub const INODE_GETATTR: &str = "inode_getattr";

/// Fails binding a socket to an address.
pub const SOCKET_BIND: &str = "socket_bind";
/// Fails listening.
pub const SOCKET_LISTEN: &str = "socket_listen";
/// Fails accepting a connection.
pub const SOCKET_ACCEPT: &str = "socket_accept";
/// Fails sending.
pub const SOCKET_SENDMSG: &str = "socket_sendmsg";
/// Fails receiving.
pub const SOCKET_RECVMSG: &str = "socket_recvmsg";

/// The programs that look at packets on a device.
pub const PACKET_PROGRAMS: [&str; 10] = [
    DROP_EGRESS,
    DROP_INGRESS,
    RESET_EGRESS,
    RESET_INGRESS,
    DIVERT_EGRESS,
    DIVERT_INGRESS,
    HAIRPIN,
    COMEBACK,
    STUB_EGRESS,
    STUB_INGRESS,
];

/// The programs that make something else of a packet than a reset. They are loaded where they are needed only.
pub const ANSWER_PROGRAMS: [&str; 4] = [REJECT_EGRESS, REJECT_INGRESS, STUB_EGRESS, STUB_INGRESS];

/// The programs that look at questions about names. They are loaded where they are needed only, too.
pub const DNS_PROGRAMS: [&str; 4] = [DNS_EGRESS, DNS_INGRESS, STUB_EGRESS, STUB_INGRESS];

/// The programs that send questions about names on a detour. Likewise.
pub const DETAIN_PROGRAMS: [&str; 6] =
    [DETAIN_EGRESS, DETAIN_INGRESS, HAIRPIN, COMEBACK, STUB_EGRESS, STUB_INGRESS];

/// Never read: its size is [`crate::ABI_VERSION`].
pub const ABI: &str = "ABI";
/// Array of one [`crate::PacketRule`].
pub const RULE: &str = "RULE";
/// Array of one `u64`: the deadline, in nanoseconds of the boot-time clock; 0 is disarmed.
pub const LEASE: &str = "LEASE";
/// Per-CPU array of one [`crate::Counters`].
pub const COUNTERS: &str = "COUNTERS";
/// Hash of IPv4 peers (`[u8; 4]`, network order).
pub const HOSTS_V4: &str = "HOSTS_V4";
/// Hash of IPv6 peers (`[u8; 16]`, network order).
pub const HOSTS_V6: &str = "HOSTS_V6";
/// Trie of IPv4 peer prefixes.
pub const NETS_V4: &str = "NETS_V4";
/// Trie of IPv6 peer prefixes.
pub const NETS_V6: &str = "NETS_V6";
/// Trie of IPv4 peers that are never touched.
pub const PROTECTED_V4: &str = "PROTECTED_V4";
/// Trie of IPv6 peers that are never touched.
pub const PROTECTED_V6: &str = "PROTECTED_V6";
/// Hash of [`crate::rule::port_key`]s of this node that are never touched.
pub const PROTECTED_PORTS: &str = "PROTECTED_PORTS";
/// Program array through which the stubs jump. The kernel empties it when its last owner dies.
pub const JUMP: &str = "JUMP";
/// Array of one [`crate::DnsRule`].
pub const DNS: &str = "DNS";
/// Trie of the names of a fault that is not about all of them: see [`crate::dns::key`].
pub const NAMES: &str = "NAMES";
/// Array of one [`crate::CallRule`].
pub const CALL: &str = "CALL";
/// Array of one [`crate::FileRule`].
pub const FILE: &str = "FILE";
/// Array of one [`crate::SocketLayout`].
pub const SOCKET: &str = "SOCKET";
/// Array of one [`crate::Pin`].
pub const PIN: &str = "PIN";
/// Array of one `u64`: calls so far that matched while the lease was live.
pub const CALLS: &str = "CALLS";
