//! Writes the initramfs format of the kernel: cpio "newc" (kernel `Documentation/driver-api/early-userspace/buffer-format.rst`).

use std::collections::BTreeSet;
use std::path::Path;

/// An archive under construction. Parent folders appear by themselves.
#[derive(Debug, Default, Clone)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    inode: u32,
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl Archive {
    /// Adds an empty folder.
    pub(super) fn folder(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.folders.contains(path) {
            return;
        }
        self.parent(path);
        self.folders.insert(path.to_owned());
        self.entry(path, FOLDER, (0, 0), &[]);
    }

    /// Adds a file.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.parent(path);
        self.entry(path, FILE, (0, 0), content);
    }

    /// Adds an executable file.
    pub(super) fn program(&mut self, path: &str, content: &[u8]) {
        self.parent(path);
        self.entry(path, PROGRAM, (0, 0), content);
    }

    /// Adds an executable file under each of these paths, as one file with so many hard links.
    pub(super) fn program_of_many_names(&mut self, paths: &[String], content: &[u8]) {
        paths.iter().for_each(|path| self.parent(path));
        self.inode += 1;
        let (inode, links) = (self.inode, paths.len());
        for (number, path) in paths.iter().enumerate() {
            // The kernel fills the first, and links the others to it by their number.
            let content = if number == 0 { content } else { &[] };
            self.entry_of(inode, links, path, PROGRAM, (0, 0), content);
        }
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.parent(path);
        self.entry(path, LINK, (0, 0), target.as_bytes());
    }

    /// Adds a character device.
    pub(super) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.parent(path);
        self.entry(path, CHARACTER_DEVICE, (major, minor), &[]);
    }

    /// The finished archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn parent(&mut self, path: &str) {
        if let Some(parent) = Path::new(path.trim_start_matches('/')).parent().and_then(Path::to_str) {
            self.folder(parent);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.inode += 1;
        self.entry_of(self.inode, 1, path, mode, device, content);
    }

    fn entry_of(
        &mut self,
        inode: u32,
        links: usize,
        path: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) {
        let name = path.trim_start_matches('/');
        let fields = [
            inode,
            mode,
            0, // uid
            0, // gid
            u32::try_from(links).unwrap_or(u32::MAX),
            0, // modification time: nothing in the image depends on when it was made
            u32::try_from(content.len()).unwrap_or(u32::MAX),
            0, // device of the archive, major and minor
            0,
            device.0,
            device.1,
            u32::try_from(name.len() + 1).unwrap_or(u32::MAX),
            0, // checksum, unused by newc
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_many_names_has_its_content_once_and_one_number() {
        let mut archive = Archive::default();
        archive.program_of_many_names(&["one".to_owned(), "two".to_owned()], b"content");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        let entries: Vec<_> = text.split("070701").skip(1).take(2).collect();
        let field = |entry: usize, number: usize| &entries[entry][number * 8..(number + 1) * 8];
        assert_eq!((field(0, 0), field(0, 4), field(1, 4)), (field(1, 0), "00000002", "00000002"));
        assert_eq!((field(0, 6), field(1, 6)), ("00000007", "00000000"));
        assert_eq!(text.matches("content").count(), 1);
    }

    #[test]
    fn parents_come_first_and_once_and_everything_is_aligned() {
        let mut archive = Archive::default();
        archive.file("/a/b/one", b"1");
        archive.file("/a/b/two", b"22222");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<_> = text
            .split("070701")
            .skip(1)
            .map(|entry| entry[104..].split('\0').next().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(names, ["a", "a/b", "a/b/one", "a/b/two", "TRAILER!!!"]);
    }
}
