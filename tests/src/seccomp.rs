//! A system call taken from a program that a test starts, as a service manager does by `SystemCallFilter=`.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;

/// Has a command, and whatever it starts, be refused this system call (EPERM). Needs root.
pub fn forbid(command: &mut Command, call: i64) {
    let number = u32::try_from(call).unwrap_or(u32::MAX);
    let statement = |code: u32, k: u32| instruction(code, 0, k);
    // One word of `struct seccomp_data`, its first, is the number (linux/seccomp.h).
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
    ];
    // SAFETY: the closure makes one system call, which is safe between fork and exec; the filter lives in the closure.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog {
                len: u16::try_from(filter.len()).unwrap_or_default(),
                filter: filter.as_mut_ptr(),
            };
            match libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}

/// One that goes on `skip` further if it is a comparison that holds.
fn instruction(code: u32, skip: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or_default(), jt: skip, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_refused_the_call_and_no_other() {
        let works = |call: Option<i64>| {
            let mut command = Command::new("mkdir");
            command.args(["-p", "/"]);
            if let Some(call) = call {
                forbid(&mut command, call);
            }
            command.status().is_ok_and(|status| status.success())
        };
        assert!(works(None));
        // Nobody can be executed without it: the program does not even start.
        assert!(!works(Some(libc::SYS_execve)) && works(Some(libc::SYS_ptrace)));
    }
}
