//! The terminal that somebody sits at.

use std::os::fd::{AsFd, AsRawFd};

use nix::libc;

nix::ioctl_read_bad!(
    /// Reads the size of a terminal, ioctl_tty(2).
    read_size,
    libc::TIOCGWINSZ,
    libc::winsize
);

/// How many columns and lines a terminal has now; `None` where it is none, or does not say how many columns. One that says nothing of
/// its lines has 24.
pub fn size(terminal: impl AsFd) -> Option<(u16, u16)> {
    const LINES: u16 = 24;
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes a winsize, to a place that is one.
    unsafe { read_size(terminal.as_fd().as_raw_fd(), &raw mut size) }.ok()?;
    let lines = if size.ws_row > 0 { size.ws_row } else { LINES };
    (size.ws_col > 0).then_some((size.ws_col, lines))
}

#[cfg(test)]
mod tests {
    use nix::pty::openpty;

    use super::*;

    #[test]
    fn a_terminal_says_how_large_it_is_and_a_file_does_not() {
        for (columns, lines, expected) in [(40, 10, Some((40, 10))), (200, 0, Some((200, 24))), (0, 24, None)]
        {
            let size = libc::winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            let terminal = openpty(Some(&size), None).unwrap();
            assert_eq!(super::size(&terminal.slave), expected);
        }
        assert_eq!(size(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
