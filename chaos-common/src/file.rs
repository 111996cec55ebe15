//! Files: what the processes of a control group ask of those at or below one place, and where the kernel keeps what
//! tells them from others.

/// Opening a file, also to run it.
pub const OPEN: u32 = 1 << 0;
/// Making a file.
pub const CREATE: u32 = 1 << 1;
/// Reading from an open file, or the names in an open directory.
pub const READ: u32 = 1 << 2;
/// Writing to an open file.
pub const WRITE: u32 = 1 << 3;
/// Mapping an open file into memory.
pub const MAP: u32 = 1 << 4;

/// So many folders above a file are looked at; what lies deeper below the place is not found.
pub const MOST_DEPTH: usize = 64;

/// `MAY_WRITE`, include/linux/fs.h: what `file_permission` is asked for.
const MAY_WRITE: u32 = 2;
/// `MAY_READ`, likewise.
const MAY_READ: u32 = 4;

/// The one entry of [`crate::name::FILE`]: which calls match. All offsets in bytes, read from the kernel's BTF, because
/// they differ between kernels.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileRule {
    /// Address of the place's inode, as [`crate::name::PIN`] has found it; 0 selects nothing. It is this place's as long as
    /// somebody has it open.
    pub inode: u64,
    /// [`OPEN`] and the like.
    pub operations: u32,
    /// Where the kernel keeps what.
    pub layout: FileLayout,
    /// Zero. Keeps the size a multiple of 8.
    pub reserved: u32,
}

/// Offsets in structures of the kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileLayout {
    /// `f_path.dentry` in `struct file`.
    pub file_dentry: u32,
    /// `dentry` in `struct path`.
    pub path_dentry: u32,
    /// `d_inode` in `struct dentry`.
    pub dentry_inode: u32,
    /// `d_parent` in `struct dentry`.
    pub dentry_parent: u32,
}

/// The one entry of [`crate::name::PIN`]: whoever wants to know the address of an inode writes who it is, asks for the
/// attributes of the file, and reads the address.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pin {
    /// Device of the process-id namespace in which `thread` is counted.
    pub namespace_device: u64,
    /// Inode of it.
    pub namespace_inode: u64,
    /// The thread that asks.
    pub thread: u64,
    /// Address of the inode it has asked for; 0 until then.
    pub inode: u64,
    /// Where the kernel keeps what.
    pub layout: FileLayout,
}

const _: () = assert!(size_of::<FileRule>() == 32 && align_of::<FileRule>() == 8);
const _: () = assert!(size_of::<Pin>() == 48 && align_of::<Pin>() == 8);

#[cfg(feature = "user")]
// SAFETY: integers in C layout, and the size says that there is no padding between them.
unsafe impl aya::Pod for FileRule {}

#[cfg(feature = "user")]
// SAFETY: as above.
unsafe impl aya::Pod for Pin {}

impl FileRule {
    /// Whether calls of this kind match, wherever the file is.
    #[inline(always)]
    pub const fn selects(&self, operation: u32) -> bool {
        self.inode != 0 && self.operations & operation != 0
    }
}

/// The operations that `file_permission` is asked for.
#[inline(always)]
pub const fn permission(mask: u32) -> u32 {
    let read = if mask & MAY_READ != 0 { READ } else { 0 };
    let write = if mask & MAY_WRITE != 0 { WRITE } else { 0 };
    read | write
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_selects_its_operations_once_it_has_a_place() {
        let rule = FileRule { inode: 1, operations: OPEN | WRITE, ..FileRule::default() };
        assert!(rule.selects(OPEN) && rule.selects(WRITE | READ) && !rule.selects(READ));
        assert!(!FileRule { inode: 0, ..rule }.selects(OPEN));
    }

    #[test]
    fn a_mask_is_what_is_read_and_written() {
        assert_eq!((permission(4), permission(2), permission(6)), (READ, WRITE, READ | WRITE));
        assert_eq!((permission(0), permission(1)), (0, 0));
    }
}
