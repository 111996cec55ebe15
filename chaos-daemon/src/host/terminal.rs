//! The terminal that somebody sits at.

use std::os::fd::{AsFd, AsRawFd};

use nix::libc;

nix::ioctl_read_bad!(
    /// Reads the size of a terminal, ioctl_tty(2).
    read_size,
    libc::TIOCGWINSZ,
    libc::winsize
);

/// How many columns a terminal has now; `None` where it is none, or does not say.
pub fn columns(terminal: impl AsFd) -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes a winsize, to a place that is one.
    unsafe { read_size(terminal.as_fd().as_raw_fd(), &raw mut size) }.ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use nix::pty::openpty;

    use super::*;

    #[test]
    fn a_terminal_says_how_wide_it_is_and_a_file_does_not() {
        for (columns, expected) in [(40, Some(40)), (200, Some(200)), (0, None)] {
            let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            let terminal = openpty(Some(&size), None).unwrap();
            assert_eq!(super::columns(&terminal.slave), expected);
        }
        assert_eq!(columns(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
