//! Questions to name servers (RFC 1035), and the answers that are made of them where they lie.
//!
//! A name is looked up in a trie in which it stands backwards, so that a name and all names below it begin alike, and one
//! look-up tells whether one of any number of names is meant.

use core::ptr;

use crate::checksum;
use crate::rule::UDP;

/// Longest name on the wire, with the lengths of its labels (RFC 1035, 2.3.4).
pub const MOST_NAME: usize = 255;
/// Most names that one fault is about.
pub const MOST_NAMES: u32 = 256;
/// Length of a UDP header.
pub const UDP_HEADER: usize = 8;
/// Where the checksum lies in a UDP header.
pub const CHECKSUM_AT: usize = 6;
/// The shortest message with a question, one for the root: header, name, type and class.
pub const SHORTEST: usize = HEADER + 1 + KIND;
/// A message is read that far beyond [`SHORTEST`], and an answer is no longer. All bits are set, for the verifier's sake.
pub const MOST_SPARE: usize = 0x1ff;
/// Room for a message, and for the longest piece that is put behind where one may end.
pub const ROOM: usize = 544;

/// The fault is about the names in [`crate::name::NAMES`] alone.
pub const NAMED: u32 = 1 << 0;
/// No answer comes.
pub const SILENT: u32 = 1 << 1;
/// Questions for an IPv4 address get [`DnsRule::v4`].
pub const V4: u32 = 1 << 2;
/// Questions for an IPv6 address get [`DnsRule::v6`].
pub const V6: u32 = 1 << 3;

/// Codes of answers (RFC 1035, 4.1.1).
pub const NO_ERROR: u32 = 0;
/// The server failed.
pub const SERVER_FAILURE: u32 = 2;
/// There is no such name.
pub const NAME_ERROR: u32 = 3;
/// The server does not want to.
pub const REFUSED: u32 = 5;

/// Length of the header of a message.
const HEADER: usize = 12;
/// Type and class, behind the name.
const KIND: usize = 4;
/// Types of questions.
const A: u8 = 1;
const AAAA: u8 = 28;
/// The pseudo record of EDNS (RFC 6891): its type, and its name, which is the root's.
const OPT: u16 = 41;
const ROOT: u8 = 0;
/// The least one there is: 1232 bytes may be sent, and nothing else is said.
const ANSWERED_OPT: [u8; 11] = [0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0];
/// Longest label; a length with other bits set is none (RFC 1035, 4.1.4).
const MOST_LABEL: u8 = 63;

/// Bytes of a key of [`crate::name::NAMES`], without its length. The kernel's tries take no more.
pub const KEY: usize = 256;
/// What a key ends with: no byte of a label is like it.
const END: u8 = 0x80;
/// Stands for every byte that no name of a fault has.
const OTHER: u8 = 0x7f;
/// The length of a key, before it.
const PREFIX: usize = 4;
/// Where the last byte but one of a key lies, while it is written from its end.
const LAST: usize = PREFIX + MOST_NAME - 1;
/// Room for a key that begins as late as one can.
const KEY_ROOM: usize = LAST + 2 + KEY;

/// The one entry of [`crate::name::DNS`]: which questions match, and what they are answered with.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DnsRule {
    /// [`NAMED`] and the like.
    pub flags: u32,
    /// [`NAME_ERROR`] and the like.
    pub code: u32,
    /// A wrong address.
    pub v4: [u8; 4],
    /// Likewise.
    pub v6: [u8; 16],
}

const _: () = assert!(size_of::<DnsRule>() == 28 && align_of::<DnsRule>() == 4);

#[cfg(feature = "user")]
// SAFETY: integers in C layout, and the size says that there is no padding between them.
unsafe impl aya::Pod for DnsRule {}

impl DnsRule {
    /// Whether any of these flags is set.
    #[inline(always)]
    pub const fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }
}

/// A number that is written to memory and read from there, each time: to the verifier it could then be anything, so that it
/// does not follow the program once for each value that it can have.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, Default)]
struct Forgotten(u32);

impl Forgotten {
    #[inline(always)]
    fn get(&self) -> usize {
        // SAFETY: a reference is valid to be read through.
        unsafe { ptr::read_volatile(&raw const self.0) as usize }
    }

    #[inline(always)]
    fn set(&mut self, value: usize) {
        // SAFETY: an exclusive reference is valid to be written through.
        unsafe { ptr::write_volatile(&raw mut self.0, value as u32) }
    }
}

/// A message with a question, which becomes its answer. Lives in a map: it is too large for the stack.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// The message, from its header on.
    pub message: [u8; ROOM],
    key: [u8; KEY_ROOM],
    /// So many bytes of a label are still to come.
    left: Forgotten,
    /// Length of the name on the wire.
    name: Forgotten,
    /// So many bytes of the message were there.
    there: Forgotten,
    /// Length of the answer beyond [`SHORTEST`].
    spare: Forgotten,
}

impl Default for Question {
    fn default() -> Self {
        let none = Forgotten(0);
        Self { message: [0; ROOM], key: [0; KEY_ROOM], left: none, name: none, there: none, spare: none }
    }
}

impl Question {
    /// Reads [`Question::message`], of which so many bytes are there: whether it is one question, and nothing else is said.
    #[inline(always)]
    pub fn read(&mut self, there: usize) -> bool {
        self.there.set(there);
        let count = |at: usize| u16::from_be_bytes([self.message[at], self.message[at + 1]]);
        // Neither an answer nor another operation than to ask; one question, and no records that answer it.
        let asks = self.message[2] & 0xf8 == 0 && count(4) == 1 && count(6) == 0 && count(8) == 0;
        asks && self.read_name() && self.end() <= self.there.get()
    }

    /// Writes the name into the key, from the key's end on. Whether there is a name.
    #[inline(always)]
    fn read_name(&mut self) -> bool {
        self.left.set(0);
        self.key[LAST + 1] = END;
        for at in 0..MOST_NAME {
            let byte = self.message[HEADER + at];
            let left = self.left.get();
            if left != 0 {
                self.key[LAST - at] = plain(byte);
                self.left.set(left - 1);
            } else if byte == 0 {
                self.name.set(at + 1);
                return true;
            } else if byte > MOST_LABEL {
                return false;
            } else {
                self.key[LAST - at] = 0;
                self.left.set(byte as usize);
            }
        }
        false
    }

    /// The name as a key of [`crate::name::NAMES`]: its length in bits, and its bytes.
    #[inline(always)]
    pub fn key(&mut self) -> Option<&[u8; PREFIX + KEY]> {
        let name = self.name.get() & 0xff;
        let start = (LAST + 2 - PREFIX).wrapping_sub(name) & 0xff;
        let key: &mut [u8; PREFIX + KEY] = self.key.get_mut(start..)?.first_chunk_mut()?;
        let [a, b, c, d] = ((name * 8) as u32).to_ne_bytes();
        (key[0], key[1], key[2], key[3]) = (a, b, c, d);
        Some(key)
    }

    /// Where the question ends.
    #[inline(always)]
    fn end(&self) -> usize {
        HEADER + (self.name.get() & 0xff) + KIND
    }

    /// Makes the question into its answer, with zeros behind it: the same question, and what the rule says to it. An address
    /// is told for no longer than the moment, so that nobody keeps it for later.
    #[inline(always)]
    pub fn answer(&mut self, rule: &DnsRule) {
        let end = self.end();
        let extended = self.is_extended(end);
        let question = [self.at(end - 4), self.at(end - 3), self.at(end - 2), self.at(end - 1)];
        let record = match question {
            [0, A, ..] if rule.has(V4) => Some(4),
            [0, AAAA, ..] if rule.has(V6) => Some(16),
            _ => None,
        };
        let (flags, more) = (self.message[2], self.message[3]);
        // An answer, by one that recurses; of what was asked for it keeps "recursion desired" and "checking disabled".
        put(&mut self.message, 2, [0x80 | flags & 0x01, 0x80 | more & 0x10 | rule.code as u8 & 0x0f]);
        let (answers, additional) = (u8::from(record.is_some()), u8::from(extended));
        put(&mut self.message, 4, [0, 1, 0, answers, 0, 0, 0, additional]);
        let mut to = end;
        if let Some(length) = record {
            let [kind_high, kind_low, class_high, class_low] = question;
            // The name is the question's.
            let front =
                [0xc0, HEADER as u8, kind_high, kind_low, class_high, class_low, 0, 0, 0, 0, 0, length];
            put(&mut self.message, to, front);
            to += front.len();
            if length == 4 {
                put(&mut self.message, to, rule.v4);
            } else {
                put(&mut self.message, to, rule.v6);
            }
            to += length as usize;
        }
        if extended {
            put(&mut self.message, to, ANSWERED_OPT);
            to += ANSWERED_OPT.len();
        }
        put(&mut self.message, to, [0; 4]);
        self.spare.set(to - SHORTEST);
    }

    /// Length of the answer, in bytes.
    #[inline(always)]
    pub fn length(&self) -> usize {
        SHORTEST + (self.spare.get() & MOST_SPARE)
    }

    /// Whether the question is followed by what says that its sender knows EDNS, who then expects to read that of the
    /// answer.
    #[inline(always)]
    fn is_extended(&self, end: usize) -> bool {
        end + ANSWERED_OPT.len() <= self.there.get()
            && self.at(end) == ROOT
            && u16::from_be_bytes([self.at(end + 1), self.at(end + 2)]) == OPT
    }

    #[inline(always)]
    fn at(&self, at: usize) -> u8 {
        self.message[at & MOST_SPARE]
    }
}

/// Puts bytes into a message.
#[inline(always)]
fn put<const COUNT: usize>(message: &mut [u8; ROOM], at: usize, bytes: [u8; COUNT]) {
    let mut index = 0;
    while index < COUNT {
        message[(at & MOST_SPARE) + index] = bytes[index];
        index += 1;
    }
}

/// A byte of a label as keys have it: letters are small, and what no name of a fault has is all alike. Without branches,
/// each of which would have the verifier go two ways.
#[inline(always)]
const fn plain(byte: u8) -> u8 {
    let other = (byte.wrapping_sub(1) | byte) >> 7;
    let byte = (byte | other.wrapping_neg() & OTHER) & OTHER;
    let letter = (b'A' as i32 - 1 - byte as i32) & (byte as i32 - b'Z' as i32 - 1);
    byte | (letter as u32 >> 31 << 5) as u8
}

/// The key of a name in [`crate::name::NAMES`], and its length in bits; with `below`, of every name below this one, and not
/// of itself. `name` is in small letters of ASCII, without the last dot; `None` if it is too long.
pub fn key(name: &str, below: bool) -> Option<([u8; KEY], u32)> {
    let mut key = [0; KEY];
    let length = name.len() + 2;
    if name.is_empty() || length > MOST_NAME {
        return None;
    }
    for (to, from) in key.iter_mut().zip(name.bytes().rev()) {
        *to = if from == b'.' { 0 } else { from };
    }
    if below {
        // What follows is a byte of a label, whose first bit is 0, and not the end.
        return Some((key, (length - 1) as u32 * 8 + 1));
    }
    key[length - 1] = END;
    Some((key, length as u32 * 8))
}

/// The UDP header of an answer of `length` bytes, as it lies in memory. `ports` are those of the question, `addresses` and
/// `message` the sums of these; `partial`: the device completes the checksum and wants only the pseudo header's.
#[inline(always)]
pub fn header(ports: u32, length: usize, addresses: u64, message: u64, partial: bool) -> [u32; 2] {
    let turned = ports.rotate_left(16);
    let size = (UDP_HEADER + length) as u32;
    let pseudo = checksum::add(checksum::add(addresses, u32::from(UDP).to_be()), size.to_be());
    let second = (size << 16).to_be();
    let field = if partial {
        checksum::fold(pseudo)
    } else {
        match !checksum::fold(checksum::add(checksum::add(pseudo + message, turned), second)) {
            // Which would say that there is none.
            0 => 0xffff,
            sum => sum,
        }
    };
    [turned, checksum::with(second, field)]
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;
