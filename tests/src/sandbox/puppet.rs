//! Making a running process call the kernel with what we choose (ptrace(2)): what it is refused then, it is refused
//! whatever becomes of its code.

use std::ffi::CString;
use std::time::{Duration, Instant};

use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::late::HANG;

/// The instruction `syscall`, and `int 0x80`, by which programs for i386 call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const INT_80: [u8; 2] = [0xcd, 0x80];
const EPOLL: [i64; 2] = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
/// Below the stack pointer, out of the way of what the process itself has there.
const SCRATCH: u64 = 2048;

/// One argument of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument {
    /// A number.
    Number(u64),
    /// A path, which is put into the memory of the process.
    Path(&'static str),
    /// Zeros to read from or write to, 256 bytes.
    Memory,
}

/// A process whose main thread waits in a system call, and is ours to use until this is dropped.
#[derive(Debug)]
pub(super) struct Puppet {
    pid: Pid,
    /// As it was, and will be again.
    saved: user_regs_struct,
}

impl Puppet {
    /// Takes the process once its main thread waits for events, which it does when it is ready and idle.
    ///
    /// # Errors
    /// When it cannot be traced, or never waits.
    pub(super) fn take(pid: i32) -> Result<Self> {
        let until = Instant::now() + HANG;
        loop {
            let puppet = Self::stop(pid)?;
            let code = puppet.peek(puppet.saved.rip - 2)?.to_ne_bytes();
            let waits = EPOLL.contains(&puppet.saved.orig_rax.cast_signed());
            if waits && code[..2] == SYSCALL {
                return Ok(puppet);
            }
            if Instant::now() >= until {
                return Err(Error::Hung { what: format!("wait for events by process {pid}") });
            }
            drop(puppet);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(pid: i32) -> Result<Self> {
        let traced = |operation| Error::sys(operation, format!("process {pid}"));
        let pid = Pid::from_raw(pid);
        ptrace::seize(pid, Options::empty()).map_err(traced("trace"))?;
        ptrace::interrupt(pid).map_err(traced("stop"))?;
        waitpid(pid, Some(WaitPidFlag::__WALL)).map_err(traced("wait for"))?;
        let saved = ptrace::getregs(pid).map_err(traced("read the registers of"))?;
        Ok(Self { pid, saved })
    }

    /// Makes the call; returns what the kernel does, an errno as a negative number.
    ///
    /// # Errors
    /// When the process cannot be moved.
    pub(super) fn call(&self, number: i64, arguments: &[Argument]) -> Result<i64> {
        let mut place = (self.saved.rsp - SCRATCH) & !0xf;
        let mut values = [0; 6];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = match argument {
                Argument::Number(number) => *number,
                Argument::Path(path) => {
                    let path = CString::new(*path)
                        .map_err(|error| Error::Different(format!("{path:?}: {error}")))?;
                    self.write(&mut place, path.as_bytes_with_nul())?
                }
                Argument::Memory => self.write(&mut place, &[0; 256])?,
            };
        }
        let [rdi, rsi, rdx, r10, r8, r9] = values;
        // No call is under way any more (`orig_rax`), so that none is begun again.
        let registers = user_regs_struct {
            rip: self.saved.rip - 2,
            rax: number.cast_unsigned(),
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.saved
        };
        match self.step(registers)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {
                let registers = ptrace::getregs(self.pid).map_err(self.error("read the registers of"))?;
                Ok(registers.rax.cast_signed())
            }
            other => Err(Error::Different(format!("call {number}: {other:?}"))),
        }
    }

    /// Makes a call as programs for i386 do, which has to be the end of the process; returns the signal.
    ///
    /// # Errors
    /// When it is not.
    pub(super) fn call_as_i386(self) -> Result<Signal> {
        let at = self.saved.rip - 2;
        let mut code = self.peek(at)?.to_ne_bytes();
        code[..2].copy_from_slice(&INT_80);
        ptrace::write(self.pid, at as ptrace::AddressType, i64::from_ne_bytes(code))
            .map_err(self.error("write code of"))?;
        // getpid(2) is 20 there.
        let mut status =
            self.step(user_regs_struct { rip: at, rax: 20, orig_rax: u64::MAX, ..self.saved })?;
        // A signal that ends it passes by its tracer first.
        if let WaitStatus::Stopped(_, signal) = status
            && signal != Signal::SIGTRAP
        {
            ptrace::cont(self.pid, signal).map_err(self.error("continue"))?;
            status = self.wait()?;
        }
        match status {
            WaitStatus::Signaled(_, signal, _) => Ok(signal),
            other => Err(Error::Different(format!("a call of i386 was answered: {other:?}"))),
        }
    }

    fn step(&self, registers: user_regs_struct) -> Result<WaitStatus> {
        ptrace::setregs(self.pid, registers).map_err(self.error("set the registers of"))?;
        ptrace::step(self.pid, None).map_err(self.error("step"))?;
        self.wait()
    }

    fn wait(&self) -> Result<WaitStatus> {
        waitpid(self.pid, Some(WaitPidFlag::__WALL)).map_err(self.error("wait for"))
    }

    fn peek(&self, at: u64) -> Result<libc::c_long> {
        ptrace::read(self.pid, at as ptrace::AddressType).map_err(self.error("read memory of"))
    }

    /// Puts bytes below what was put there before; returns where.
    fn write(&self, place: &mut u64, bytes: &[u8]) -> Result<u64> {
        *place -= bytes.len().next_multiple_of(16) as u64;
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let at = *place + index as u64 * 8;
            ptrace::write(self.pid, at as ptrace::AddressType, i64::from_ne_bytes(word))
                .map_err(self.error("write memory of"))?;
        }
        Ok(*place)
    }

    fn error(&self, operation: &'static str) -> impl FnOnce(nix::Error) -> Error {
        Error::sys(operation, format!("process {}", self.pid))
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        // Fails when it has ended, which is all right.
        let _ = ptrace::setregs(self.pid, self.saved);
        let _ = ptrace::detach(self.pid, None);
    }
}
