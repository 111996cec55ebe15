//! What a [`Caller`](crate::caller::Caller) does with files: each as one system call whose errno is the answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Something to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Opens it to read and write, and closes it.
    Open,
    /// Makes it, which must not be there.
    Create,
    /// Opens it to read and write, and keeps it for what follows.
    Take,
    /// Reads a byte of one that was taken.
    Read,
    /// Writes a byte to one that was taken.
    Write,
    /// Maps one that was taken into memory, and takes that back.
    Map,
}

/// Everything, with its word.
const TOUCHES: [(&str, Touch); 6] = [
    ("open-file", Touch::Open),
    ("create-file", Touch::Create),
    ("take-file", Touch::Take),
    ("read-file", Touch::Read),
    ("write-file", Touch::Write),
    ("map-file", Touch::Map),
];

thread_local! {
    static TAKEN: RefCell<HashMap<String, File>> = RefCell::default();
}

impl Touch {
    pub(crate) fn word(self) -> &'static str {
        TOUCHES.iter().find(|(_, touch)| *touch == self).map_or("", |(word, _)| word)
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        TOUCHES.iter().find(|(known, _)| *known == word).map(|(_, touch)| *touch)
    }

    /// Does it, in the process that was asked.
    pub(crate) fn carry_out(self, path: &str) -> io::Result<()> {
        let both = || OpenOptions::new().read(true).write(true).open(path);
        match self {
            Self::Open => both().map(drop),
            Self::Create => OpenOptions::new().write(true).create_new(true).open(path).map(drop),
            Self::Take => both().map(|file| {
                TAKEN.with_borrow_mut(|taken| taken.insert(path.to_owned(), file)).map_or((), drop)
            }),
            Self::Read => with(path, |file| file.read_at(&mut [0], 0).map(drop)),
            Self::Write => with(path, |file| file.write_at(b"x", 0).map(drop)),
            Self::Map => with(path, map),
        }
    }
}

fn with(path: &str, act: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    TAKEN.with_borrow(|taken| act(taken.get(path).ok_or(io::ErrorKind::InvalidInput)?))
}

fn map(file: &File) -> io::Result<()> {
    // SAFETY: a mapping of its own, at an address that the kernel chooses, which nobody reads, and which is taken back at once.
    unsafe {
        let at = mmap(None, NonZeroUsize::MIN, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, file, 0)?;
        munmap(at, 1)?;
    }
    Ok(())
}
