//! A block device of a test's own: memory behind a loop device, gone when the guard is, or the test.

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
nix::ioctl_write_ptr_bad!(
    /// Puts a file behind a loop device (`LOOP_CONFIGURE`).
    put_behind,
    0x4C0A,
    Config
);
nix::ioctl_none_bad!(
    /// Takes it away again, once nobody has the device open (`LOOP_CLR_FD`).
    take_away,
    0x4C01
);

/// A `struct loop_config` in words of 32 bits: a file's descriptor, the size of a block, a `struct loop_info64`, and zeros.
type Config = [u32; 76];

/// Which of these words has the flags.
const FLAGS: usize = 15;
/// The device is free again once nobody has it open, as when the test is killed (`LO_FLAGS_AUTOCLEAR`).
const AUTOCLEAR: u32 = 4;

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
        let mut config: Config = [0; 76];
        (config[0], config[FLAGS]) = (memory.as_raw_fd().cast_unsigned(), AUTOCLEAR);
        // SAFETY: both descriptors are open, and the kernel reads one struct, which lives until the call is over.
        let set_up = unsafe { put_behind(device.as_raw_fd(), &raw const config) };
        set_up.map_err(Error::sys("set up", &path))?;
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
