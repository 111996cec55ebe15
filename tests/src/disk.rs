//! A block device of a test's own: memory behind a loop device, gone when the guard is.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;
use std::process::Command;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{major, minor};

use crate::error::{Error, Result};
use crate::netns::output;

nix::ioctl_none_bad!(
    /// The number of a loop device that nobody uses (`LOOP_CTL_GET_FREE` of `include/uapi/linux/loop.h`; loop(4)).
    free_number,
    0x4C82
);
nix::ioctl_write_int_bad!(
    /// Puts a file behind a loop device (`LOOP_SET_FD`).
    put_behind,
    0x4C00
);
nix::ioctl_none_bad!(
    /// Takes it away again, once nobody has the device open (`LOOP_CLR_FD`).
    take_away,
    0x4C01
);

/// A disk in memory.
#[derive(Debug)]
pub struct Disk {
    device: File,
    path: String,
    number: String,
}

impl Disk {
    /// Makes one of so many bytes.
    ///
    /// # Errors
    /// When the kernel has no loop devices, or refuses.
    pub fn new(bytes: u64) -> Result<Self> {
        // Not yet known to /dev where nobody has used one; a kernel that has it built in knows no module.
        if fs::metadata("/dev/loop-control").is_err() {
            output(Command::new("modprobe").arg("loop"))?;
        }
        let memory =
            memfd_create("chaos-test-disk", MFdFlags::MFD_CLOEXEC).map_err(Error::sys("make", "memory"))?;
        let memory = File::from(memory);
        memory.set_len(bytes).map_err(Error::io("size", "memory"))?;
        let control = open("/dev/loop-control")?;
        // SAFETY: it takes no argument.
        let number =
            unsafe { free_number(control.as_raw_fd()) }.map_err(Error::sys("find", "a free loop device"))?;
        let path = format!("/dev/loop{number}");
        let device = open(&path)?;
        // SAFETY: both descriptors are open.
        unsafe { put_behind(device.as_raw_fd(), memory.as_raw_fd()) }.map_err(Error::sys("set up", &path))?;
        let rdev = device.metadata().map_err(Error::io("look at", &path))?.st_rdev();
        Ok(Self { device, number: format!("{}:{}", major(rdev), minor(rdev)), path })
    }

    /// Where it is.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its number, as `MAJOR:MINOR`.
    pub fn number(&self) -> &str {
        &self.number
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: it takes no argument. The kernel does it when the last who has the device open closes it.
        if let Err(error) = unsafe { take_away(self.device.as_raw_fd()) } {
            eprintln!("clean up: {}: {error}", self.path);
        }
    }
}

fn open(path: &str) -> Result<File> {
    File::options().read(true).write(true).open(path).map_err(Error::io("open", path.to_owned()))
}
