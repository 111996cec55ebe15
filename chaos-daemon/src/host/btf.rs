//! Where this kernel keeps what tells files apart, and sockets, and under which numbers it knows its security hooks: read from its
//! own description of its types (BTF), because both differ from kernel to kernel.
//!
//! The format is that of the kernel's Documentation/bpf/btf.rst. aya-obj reads it too, but does not say where a member lies.

use std::fs;
use std::io;

use chaos_common::{FileLayout, SocketLayout};
use serde::{Deserialize, Serialize};

/// Where the kernel has it.
pub const PATH: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
// enum of include/uapi/linux/btf.h.
const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const RESTRICT: u32 = 11;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
const DECLARATION_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// How deep structures lie in each other, and how often a type is another one's name, at most: a description may go in circles.
const DEEPEST: u32 = 64;
/// How many members are looked at for one, at most.
const MOST_MEMBERS: u32 = 10_000;

/// What programs at the hooks of files have to know of this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFiles {
    /// Number of the hook `file_open` among the kernel's types.
    pub file_open: u32,
    /// Likewise of `file_permission`.
    pub file_permission: u32,
    /// Likewise of `inode_create`.
    pub inode_create: u32,
    /// Likewise of `mmap_file`.
    pub mmap_file: u32,
    /// Likewise of `inode_getattr`.
    pub inode_getattr: u32,
    /// See [`FileLayout`], whose fields these are.
    pub file_dentry: u32,
    /// As above.
    pub path_dentry: u32,
    /// As above.
    pub dentry_inode: u32,
    /// As above.
    pub dentry_parent: u32,
}

/// What programs at the hooks of sockets have to know of this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSockets {
    /// Number of the hook `socket_bind` among the kernel's types.
    pub socket_bind: u32,
    /// Likewise of `socket_listen`.
    pub socket_listen: u32,
    /// Likewise of `socket_accept`.
    pub socket_accept: u32,
    /// Likewise of `socket_sendmsg`.
    pub socket_sendmsg: u32,
    /// Likewise of `socket_recvmsg`.
    pub socket_recvmsg: u32,
    /// See [`SocketLayout`], whose fields these are.
    pub socket_sock: u32,
    /// As above.
    pub family: u32,
    /// As above.
    pub protocol: u32,
    /// As above.
    pub local_port: u32,
    /// As above.
    pub remote_port: u32,
    /// As above.
    pub remote_v4: u32,
    /// As above.
    pub remote_v6: u32,
    /// As above.
    pub message_name: u32,
}

/// Why this kernel does not say.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// There is no description, or it cannot be read.
    #[error("read {PATH}")]
    Read(#[source] io::Error),
    /// It is not as it should be.
    #[error("{PATH} is not as this program knows it")]
    Malformed,
    /// The kernel has no such hook.
    #[error("the kernel has no hook {0}")]
    NoHook(&'static str),
    /// A structure has changed.
    #[error("the kernel's {0} is not where it was")]
    NoMember(&'static str),
}

impl KernelFiles {
    /// Reads it. Takes some milliseconds.
    ///
    /// # Errors
    /// When the kernel has no description of its types, or no such hooks.
    pub fn read() -> Result<Self, BtfError> {
        Self::find(&Btf::parse(&read()?).ok_or(BtfError::Malformed)?)
    }

    fn find(btf: &Btf<'_>) -> Result<Self, BtfError> {
        let (file_open, inode_create) = (btf.hook("bpf_lsm_file_open")?, btf.hook("bpf_lsm_inode_create")?);
        let inode_getattr = btf.hook("bpf_lsm_inode_getattr")?;
        let (file, path) = (btf.taken(file_open, 0)?, btf.taken(inode_getattr, 0)?);
        let dentry = btf.taken(inode_create, 1)?;
        Ok(Self {
            file_open,
            inode_create,
            inode_getattr,
            file_permission: btf.hook("bpf_lsm_file_permission")?,
            mmap_file: btf.hook("bpf_lsm_mmap_file")?,
            file_dentry: btf.place(file, &["f_path", "dentry"], "file.f_path.dentry")?,
            path_dentry: btf.place(path, &["dentry"], "path.dentry")?,
            dentry_inode: btf.place(dentry, &["d_inode"], "dentry.d_inode")?,
            dentry_parent: btf.place(dentry, &["d_parent"], "dentry.d_parent")?,
        })
    }

    /// What the programs are told.
    pub fn layout(&self) -> FileLayout {
        FileLayout {
            file_dentry: self.file_dentry,
            path_dentry: self.path_dentry,
            dentry_inode: self.dentry_inode,
            dentry_parent: self.dentry_parent,
        }
    }
}

impl KernelSockets {
    /// Reads it. Takes some milliseconds.
    ///
    /// # Errors
    /// When the kernel has no description of its types, or no such hooks.
    pub fn read() -> Result<Self, BtfError> {
        Self::find(&Btf::parse(&read()?).ok_or(BtfError::Malformed)?)
    }

    fn find(btf: &Btf<'_>) -> Result<Self, BtfError> {
        let (socket_bind, socket_sendmsg) =
            (btf.hook("bpf_lsm_socket_bind")?, btf.hook("bpf_lsm_socket_sendmsg")?);
        // No hook for what is failed takes this one.
        let sock = btf.taken(btf.hook("bpf_lsm_socket_sock_rcv_skb")?, 0)?;
        let (socket, message) = (btf.taken(socket_bind, 0)?, btf.taken(socket_sendmsg, 1)?);
        let common = |name, words| btf.place(sock, &["__sk_common", name], words);
        Ok(Self {
            socket_bind,
            socket_sendmsg,
            socket_listen: btf.hook("bpf_lsm_socket_listen")?,
            socket_accept: btf.hook("bpf_lsm_socket_accept")?,
            socket_recvmsg: btf.hook("bpf_lsm_socket_recvmsg")?,
            socket_sock: btf.place(socket, &["sk"], "socket.sk")?,
            family: common("skc_family", "sock.skc_family")?,
            protocol: btf.place(sock, &["sk_protocol"], "sock.sk_protocol")?,
            local_port: common("skc_num", "sock.skc_num")?,
            remote_port: common("skc_dport", "sock.skc_dport")?,
            remote_v4: common("skc_daddr", "sock.skc_daddr")?,
            // A kernel without IPv6 has none, and no socket for which it would be looked at.
            remote_v6: common("skc_v6_daddr", "sock.skc_v6_daddr").unwrap_or_default(),
            message_name: btf.place(message, &["msg_name"], "msghdr.msg_name")?,
        })
    }

    /// What the programs are told.
    pub fn layout(&self) -> SocketLayout {
        SocketLayout {
            socket_sock: self.socket_sock,
            family: self.family,
            protocol: self.protocol,
            local_port: self.local_port,
            remote_port: self.remote_port,
            remote_v4: self.remote_v4,
            remote_v6: self.remote_v6,
            message_name: self.message_name,
        }
    }
}

fn read() -> Result<Vec<u8>, BtfError> {
    fs::read(PATH).map_err(BtfError::Read)
}

/// A description of types, with where each of them starts.
struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// By number; number 0 is `void`, and has none.
    starts: Vec<usize>,
    /// Numbers of the functions.
    functions: Vec<u32>,
}

/// The head of a type.
#[derive(Clone, Copy)]
struct Head {
    name: u32,
    kind: u32,
    /// How many members or parameters follow.
    count: usize,
    /// Whether a member's offset shares its word with the width of a bit field.
    has_widths: bool,
    /// Size, or the type that this one is about.
    other: u32,
    /// Where what follows the head is.
    body: usize,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

impl<'a> Btf<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        if u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let length = word(bytes, 4)? as usize;
        let part = |at| {
            let start = length.checked_add(word(bytes, at)? as usize)?;
            bytes.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
        };
        let (types, strings) = (part(8)?, part(16)?);
        let mut found = Self { types, strings, starts: vec![0], functions: Vec::new() };
        let mut at = 0;
        while at < types.len() {
            let head = found.head_at(at)?;
            if head.kind == FUNCTION {
                found.functions.push(u32::try_from(found.starts.len()).ok()?);
            }
            found.starts.push(at);
            at = head.body + following(head)?;
        }
        Some(found)
    }

    fn head_at(&self, at: usize) -> Option<Head> {
        let info = word(self.types, at + 4)?;
        Some(Head {
            name: word(self.types, at)?,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            has_widths: info >> 31 != 0,
            other: word(self.types, at + 8)?,
            body: at + 12,
        })
    }

    fn head(&self, number: u32) -> Option<Head> {
        self.head_at(*self.starts.get(number as usize).filter(|_| number != 0)?)
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let Some(text) = self.strings.get(name as usize..) else { return false };
        text.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The number of the function of this name.
    fn function(&self, name: &str) -> Option<u32> {
        let is_it = |number: &&u32| self.head(**number).is_some_and(|head| self.is_named(head.name, name));
        self.functions.iter().find(is_it).copied()
    }

    /// What a type is, without what is only said of it: `const`, a name by typedef, a tag.
    fn plain(&self, mut number: u32) -> Option<(u32, Head)> {
        for _ in 0..DEEPEST {
            let head = self.head(number)?;
            match head.kind {
                TYPEDEF..=RESTRICT | TYPE_TAG => number = head.other,
                _ => return Some((number, head)),
            }
        }
        None
    }

    /// The structure to which an argument of a function points.
    fn argument(&self, function: u32, number: usize) -> Option<u32> {
        let prototype = self.head(self.head(function)?.other).filter(|head| head.kind == PROTOTYPE)?;
        if number >= prototype.count {
            return None;
        }
        let (_, pointer) = self.plain(word(self.types, prototype.body + number * 8 + 4)?)?;
        let (found, head) = self.plain(Some(pointer.other).filter(|_| pointer.kind == POINTER)?)?;
        (head.kind == STRUCT).then_some(found)
    }

    fn hook(&self, name: &'static str) -> Result<u32, BtfError> {
        self.function(name).ok_or(BtfError::NoHook(name))
    }

    /// The structure that a hook takes, whatever else of the kernel has its name.
    fn taken(&self, hook: u32, number: usize) -> Result<u32, BtfError> {
        self.argument(hook, number).ok_or(BtfError::Malformed)
    }

    /// Where a structure has a member; `words` is what messages call it.
    fn place(&self, structure: u32, path: &[&str], words: &'static str) -> Result<u32, BtfError> {
        self.member(structure, path).ok_or(BtfError::NoMember(words))
    }

    /// How many bytes after its start a structure has a member of a member. Members without a name count as if theirs were
    /// the structure's own.
    fn member(&self, structure: u32, path: &[&str]) -> Option<u32> {
        let mut left = MOST_MEMBERS;
        self.member_within(structure, path, DEEPEST, &mut left)
    }

    /// The same, so deep at most, and among so many members as are `left`.
    fn member_within(&self, structure: u32, path: &[&str], depth: u32, left: &mut u32) -> Option<u32> {
        let Some((first, rest)) = path.split_first() else { return Some(0) };
        let (_, head) = self.plain(structure)?;
        if ![STRUCT, UNION].contains(&head.kind) {
            return None;
        }
        let depth = depth.checked_sub(1)?;
        (0..head.count).find_map(|number| {
            *left = left.checked_sub(1)?;
            let at = head.body + number * 12;
            let (name, kind, offset) =
                (word(self.types, at)?, word(self.types, at + 4)?, word(self.types, at + 8)?);
            let bits = if head.has_widths { offset & 0x00ff_ffff } else { offset };
            let within = match name {
                0 => self.member_within(kind, path, depth, left),
                name if self.is_named(name, first) => self.member_within(kind, rest, depth, left),
                _ => None,
            };
            (bits / 8).checked_add(within?)
        })
    }
}

/// How many bytes follow the head of a type; `None` for a kind that this program does not know.
fn following(head: Head) -> Option<usize> {
    Some(match head.kind {
        INT | VARIABLE | DECLARATION_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | SECTION | ENUM64 => head.count * 12,
        ENUM | PROTOTYPE => head.count * 8,
        POINTER..=TYPE_TAG => 0,
        _ => return None,
    })
}

#[cfg(any(test, fuzzing))]
#[path = "btf_fuzzed.rs"]
pub(crate) mod fuzzed;

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct outer { int a; union { const struct inner b; }; }`, `struct inner { int c; int d; }`, `void f(struct outer *)`.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0outer\0a\0inner\0b\0c\0d\0f\0";
        let at = |name: &str| {
            let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
            strings.windows(wanted.len()).position(|part| part == wanted).unwrap() as u32 + 1
        };
        let kind = |kind: u32, count: u32| kind << 24 | count;
        let types: Vec<u32> = [
            vec![at("int"), kind(INT, 0), 4, 32],
            vec![at("inner"), kind(STRUCT, 2), 8, at("c"), 1, 0, at("d"), 1, 32],
            vec![0, kind(10, 0), 2],
            vec![0, kind(UNION, 1), 8, at("b"), 3, 0],
            vec![at("outer"), kind(STRUCT, 2), 12, at("a"), 1, 0, 0, 4, 32],
            vec![0, kind(POINTER, 0), 5],
            vec![0, kind(PROTOTYPE, 1), 0, 0, 6],
            vec![at("f"), kind(FUNCTION, 0), 7],
        ]
        .concat();
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (length, rest) = (types.len() as u32, strings.len() as u32);
        let header: Vec<u8> =
            [24, 0, length, length, rest].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        [&MAGIC.to_ne_bytes()[..], &[1, 0], &header, &types, strings].concat()
    }

    #[test]
    fn a_member_is_found_through_members_without_a_name_and_what_is_constant() {
        let bytes = sample();
        let btf = Btf::parse(&bytes).unwrap();
        let function = btf.function("f").unwrap();
        assert_eq!(function, 8);
        let outer = btf.argument(function, 0).unwrap();
        assert_eq!((btf.member(outer, &["b", "d"]), btf.member(outer, &["a"])), (Some(8), Some(0)));
        assert_eq!((btf.member(outer, &["d"]), btf.member(outer, &["a", "c"])), (None, None));
        assert_eq!((btf.argument(function, 1), btf.function("g")), (None, None));
    }

    /// A description of these types, with the names `a` at 1 and `f` at 3.
    fn described(types: &[&[u32]]) -> Vec<u8> {
        let types: Vec<u8> = types.concat().iter().flat_map(|word| word.to_ne_bytes()).collect();
        let length = types.len() as u32;
        let header = [24, 0, length, length, 5].map(u32::to_ne_bytes).concat();
        [&MAGIC.to_ne_bytes()[..], &[1, 0], &header, &types, b"\0a\0f\0"].concat()
    }

    #[test]
    fn a_description_that_goes_in_circles_or_doubles_again_and_again_has_an_end() {
        // The function is number 1, its prototype 2, the pointer that it takes 3.
        let head: [&[u32]; 3] =
            [&[3, FUNCTION << 24, 2], &[0, PROTOTYPE << 24 | 1, 0, 0, 3], &[0, POINTER << 24, 4]];
        let in_itself = [4, STRUCT << 24 | 1, 8, 0, 4, 0];
        let own_name = [1, TYPEDEF << 24, 4];
        let doubling: Vec<_> =
            (5..45).map(|next| [0, STRUCT << 24 | 2, 8, 0, next, 0, 0, next, 32]).collect();
        let doubling: Vec<&[u32]> = doubling.iter().map(<[u32; 9]>::as_slice).collect();
        for (types, has_argument) in
            [(vec![&in_itself[..]], true), (vec![&own_name[..]], false), (doubling, true)]
        {
            let bytes = described(&[&head[..], &types].concat());
            let btf = Btf::parse(&bytes).unwrap();
            let argument = btf.argument(btf.function("f").unwrap(), 0);
            assert_eq!(argument.is_some(), has_argument);
            assert_eq!(argument.and_then(|structure| btf.member(structure, &["a"])), None);
        }
    }

    #[test]
    fn what_is_cut_off_or_something_else_is_refused() {
        let bytes = sample();
        for length in 0..bytes.len() {
            assert!(Btf::parse(&bytes[..length]).is_none(), "{length} bytes");
        }
        assert!(Btf::parse(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0").is_none());
    }

    #[test]
    fn this_kernel_says_where_it_keeps_what_or_why_not() {
        match KernelFiles::read() {
            Ok(found) => {
                assert!(
                    found.file_open != found.file_permission && found.dentry_inode != found.dentry_parent
                );
            }
            Err(error) => assert!(matches!(error, BtfError::Read(_) | BtfError::NoHook(_)), "{error}"),
        }
        match KernelSockets::read() {
            Ok(found) => {
                assert!(found.socket_bind != found.socket_listen && found.local_port != found.remote_port);
            }
            Err(error) => assert!(matches!(error, BtfError::Read(_) | BtfError::NoHook(_)), "{error}"),
        }
    }
}
