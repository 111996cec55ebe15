//! The maps. Sizes given as 1 are set by the loader; names are those of `chaos_common::name`.

use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LpmTrie, PerCpuArray, ProgramArray};
use chaos_common::{
    ABI_VERSION, CallRule, Counters, DnsRule, FileRule, JUMP_SLOTS, MOST_PROTECTED, Packet, PacketRule, Pin,
    Question, SocketLayout, dns,
};

#[map]
pub(crate) static ABI: Array<u32> = Array::with_max_entries(ABI_VERSION, 0);

#[map]
pub(crate) static RULE: Array<PacketRule> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static LEASE: Array<u64> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static COUNTERS: PerCpuArray<Counters> = PerCpuArray::with_max_entries(1, 0);

// Addresses are kept as they lie in the packet.
#[map]
pub(crate) static HOSTS_V4: HashMap<u32, u8> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static HOSTS_V6: HashMap<[u32; 4], u8> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static NETS_V4: LpmTrie<u32, u8> = LpmTrie::with_max_entries(1, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static NETS_V6: LpmTrie<[u32; 4], u8> = LpmTrie::with_max_entries(1, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static PROTECTED_V4: LpmTrie<u32, u8> =
    LpmTrie::with_max_entries(MOST_PROTECTED, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static PROTECTED_V6: LpmTrie<[u32; 4], u8> =
    LpmTrie::with_max_entries(MOST_PROTECTED, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static PROTECTED_PORTS: HashMap<u32, u8> =
    HashMap::with_max_entries(MOST_PROTECTED, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static JUMP: ProgramArray = ProgramArray::with_max_entries(JUMP_SLOTS, 0);

#[map]
pub(crate) static CALL: Array<CallRule> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static CALLS: Array<u64> = Array::with_max_entries(1, 0);

/// How many calls have failed, of a fault that fails so many at most.
#[map]
pub(crate) static FAILED: Array<u64> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static FILE: Array<FileRule> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static SOCKET: Array<SocketLayout> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static PIN: Array<Pin> = Array::with_max_entries(1, 0);

/// The packet that is being looked at. In a map, and not on the stack, for the verifier's sake: what is read from here
/// could be anything, so the ways to read a packet meet here again instead of multiplying with all that follows, which
/// takes ten times as long to verify. No program interrupts another on one CPU: they run with softirqs off.
#[map]
pub(crate) static PACKET: PerCpuArray<Packet> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static DNS: Array<DnsRule> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static NAMES: LpmTrie<[u8; dns::KEY], u8> =
    LpmTrie::with_max_entries(dns::MOST_NAMES, BPF_F_NO_PREALLOC);

/// The question that is being looked at; see [`PACKET`].
#[map]
pub(crate) static QUESTION: PerCpuArray<Question> = PerCpuArray::with_max_entries(1, 0);
