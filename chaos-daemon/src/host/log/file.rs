//! A log file, of which the last lines are read.
//!
//! It is opened by who is root and named by who is not. So no link is followed on the way to it, nothing but a regular file is
//! opened at all (opening a pipe or a device may already do something), and where it is found it is read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use jiff::Timestamp;
use nix::errno::Errno;
use nix::libc;
use regex::Regex;

use super::{Limit, LogError, Tally, Window};
use crate::host::place::without_links;
use crate::request::facts::LogFacts;

/// The longest beginning of a line that may be a time.
const LONGEST_TIME: usize = 40;

/// Counts the lines that match among the last `last` bytes of a file, within `window` if there is one. A line without a time
/// of its own has that of the line before it. A line that has no end yet is none.
///
/// # Errors
/// Says why it cannot be read, or why what it says would be no answer.
pub fn search(
    path: &str,
    pattern: &Regex,
    last: u64,
    window: Option<Window>,
    limit: Limit,
) -> Result<LogFacts, LogError> {
    let io = |operation| move |source| LogError::Io { operation, path: path.to_owned(), source };
    let (bytes, is_whole) = tail(&mut regular(path)?, last).map_err(io("read"))?;
    let lines = whole_lines(&bytes, is_whole).ok_or(LogError::Partial(last))?;
    let mut tally = Tally::new(pattern, window);
    let mut time = None;
    if let (Some(window), false) = (window, lines.is_empty()) {
        // Those before the first time are no later than it.
        let first = split(lines).find_map(time_of).ok_or(LogError::Timeless)?;
        if !is_whole && first > window.since {
            return Err(LogError::Short { last, first });
        }
        time = Some(first);
    }
    for line in split(lines) {
        limit.check()?;
        if window.is_some() {
            time = time_of(line).or(time);
        }
        tally.take(line, time);
    }
    Ok(tally.facts)
}

/// Opens a regular file, without any link on the way.
fn regular(path: &str) -> Result<File, LogError> {
    let named = || path.to_owned();
    let io = |operation| move |source| LogError::Io { operation, path: named(), source };
    let place = without_links(Path::new(path)).map_err(|errno| match errno {
        Errno::ENOENT | Errno::ENOTDIR => LogError::Absent(named()),
        Errno::ELOOP => LogError::Link(named()),
        Errno::EACCES => LogError::Closed(named()),
        errno => io("find")(errno.into()),
    })?;
    if !place.metadata().map_err(io("look at"))?.is_file() {
        return Err(LogError::Kind(named()));
    }
    // The same file, whatever its name stands for by now.
    // OPENS: the caller | root without CAP_DAC_OVERRIDE | the policy names it (`probe_logs`); no link is followed, and nothing
    // but a regular file is opened: the one that was looked at
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{}", place.as_raw_fd()))
        .map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => LogError::Closed(named()),
            _ => io("open")(source),
        })
}

/// The last bytes of a file, as long as it is when it is looked at, and one before them if there is one; and whether that is
/// all of it.
fn tail(file: &mut File, last: u64) -> io::Result<(Vec<u8>, bool)> {
    let length = file.metadata()?.len();
    let is_whole = length <= last;
    let start = if is_whole { 0 } else { length - last - 1 };
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    // What is cut off meanwhile is missing, and what is added is left for the next time.
    file.take(length - start).read_to_end(&mut bytes)?;
    Ok((bytes, is_whole))
}

/// From the first byte that begins a line to the last that ends one; `None` when none begins there.
fn whole_lines(bytes: &[u8], is_whole: bool) -> Option<&[u8]> {
    let begin = match (is_whole, bytes.iter().position(|byte| *byte == b'\n')) {
        (true, _) => 0,
        (false, Some(end)) => end + 1,
        // Cut off to nothing while it was read.
        (false, None) if bytes.is_empty() => 0,
        (false, None) => return None,
    };
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(begin, |end| end + 1);
    match bytes[begin..end].is_empty() && !is_whole && !bytes.is_empty() {
        true => None,
        false => Some(&bytes[begin..end]),
    }
}

fn split(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    })
}

/// The time with which a line begins, as RFC 3339 has it: with an offset, with or without a bracket before it.
fn time_of(line: &[u8]) -> Option<Timestamp> {
    let line = line.strip_prefix(b"[").unwrap_or(line);
    let belongs = |(at, byte): (usize, &u8)| match byte {
        b' ' => at == 10,
        byte => byte.is_ascii_digit() || b"-:.+TtZz".contains(byte),
    };
    let head = &line[..line.len().min(LONGEST_TIME)];
    let end = head.iter().enumerate().position(|byte| !belongs(byte)).unwrap_or(head.len());
    let text = std::str::from_utf8(&head[..end]).ok()?;
    text.trim_end_matches([':', '.', '-']).parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use tempfile::TempDir;

    use super::*;
    use crate::waits::HANG as LIMIT;

    const NOW: &str = "2026-05-04T10:01:00Z";

    fn folder() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        // What leads to it may be a link, which is none of ours.
        let path = fs::canonicalize(folder.path()).unwrap();
        (folder, path)
    }

    fn count(text: &[u8], last: u64, within: Option<u64>) -> Result<LogFacts, LogError> {
        let (_folder, path) = folder();
        fs::write(path.join("a.log"), text).unwrap();
        count_in(&path.join("a.log"), last, within)
    }

    fn count_in(path: &std::path::Path, last: u64, within: Option<u64>) -> Result<LogFacts, LogError> {
        let window = within.map(|seconds| Window::before(NOW.parse().unwrap(), Duration::from_secs(seconds)));
        search(path.to_str().unwrap(), &Regex::new("error").unwrap(), last, window, Limit::of(LIMIT))
    }

    fn said(result: Result<LogFacts, LogError>) -> String {
        result.err().unwrap().to_string()
    }

    #[test]
    fn whole_lines_that_match_among_the_last_bytes_are_counted() {
        let text = b"error 1\nfine\nerror 2\r\n\nerror 3";
        for (last, count, seen) in [
            (1000, 2, 4),
            // All of it, and one byte less.
            (30, 2, 4),
            (29, 1, 3),
            // A line begins exactly there, and one byte before.
            (22, 1, 3),
            (21, 1, 2),
            (17, 1, 2),
            (16, 0, 1),
            (8, 0, 1),
        ] {
            let facts = count_bytes(text, last);
            assert_eq!((facts.count, facts.seen), (count, seen), "{last}: {facts:?}");
        }
        assert_eq!(count_bytes(text, 1000).last, ["error 1", "error 2"], "without what ends a line");
        // Too short for any line: not none.
        for last in [1, 7] {
            assert!(said(count(text, last, None)).contains("--last"), "{last}");
        }
        for (empty, seen) in [(&b""[..], 0), (b"error", 0), (b"\n", 1)] {
            assert_eq!(count_bytes(empty, 10).seen, seen);
        }
    }

    fn count_bytes(text: &[u8], last: u64) -> LogFacts {
        count(text, last, None).unwrap()
    }

    #[test]
    fn within_a_time_a_line_without_one_belongs_to_the_one_before() {
        let text = b"error before any time\n2026-05-04T09:59:00Z error: old\n  error of the same\n\
            2026-05-04T12:00:30.5+02:00 error: new\n  error of the new one\n2026-05-04T10:00:40Z fine\n\
            [2026-05-04 10:00:50Z] error: bracketed\n2026-05-04T10:02:00Z error: not yet\n";
        let facts = count(text, 10_000, Some(60)).unwrap();
        assert_eq!((facts.count, facts.seen, facts.ahead), (3, 4, 1), "{facts:?}");
        assert_eq!(count(text, 10_000, Some(3600)).unwrap().count, 6);
        assert_eq!(count(text, 10_000, None).unwrap().count, 7);
    }

    #[test]
    fn what_does_not_go_back_far_enough_or_has_no_time_is_no_zero() {
        let text = b"2026-05-04T10:00:30Z fine\n2026-05-04T10:00:40Z fine\n";
        assert_eq!(count(text, 1000, Some(60)).unwrap().count, 0);
        assert!(said(count(text, 30, Some(60))).contains("go back to 2026-05-04T10:00:40Z only"));
        assert_eq!(count(text, 30, Some(20)).unwrap().seen, 1);
        for timeless in [&b"fine\n"[..], b"2026-05-04 10:00:30 fine\n", b"1714816830 fine\n", b"\xff\xfe\n"] {
            assert!(said(count(timeless, 1000, Some(60))).contains("RFC 3339"), "{timeless:?}");
        }
        // One that was just begun.
        assert_eq!(count(b"", 1000, Some(60)).unwrap(), LogFacts::default());
    }

    #[test]
    fn times_are_read_as_rfc_3339_has_them_and_as_loggers_end_them() {
        let expected: Timestamp = "2026-05-04T10:00:30Z".parse().unwrap();
        for line in [
            "2026-05-04T10:00:30Z",
            "2026-05-04T10:00:30Z: said",
            "2026-05-04t10:00:30z\tsaid",
            "2026-05-04T10:00:30+00:00 said",
            "2026-05-04T06:00:30.000000-04:00 said",
            "2026-05-04 10:00:30Z said",
            "[2026-05-04T10:00:30Z] said",
            "2026-05-04T10:00:30Z - said",
        ] {
            assert_eq!(time_of(line.as_bytes()), Some(expected), "{line}");
        }
        for line in
            ["", "[", "said", "2026-05-04", "2026-13-04T10:00:30Z", "10:00:30Z", " 2026-05-04T10:00:30Z"]
        {
            assert_eq!(time_of(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn what_is_no_regular_file_or_behind_a_link_is_refused_at_once() {
        let (_folder, path) = folder();
        fs::create_dir(path.join("folder")).unwrap();
        fs::write(path.join("folder/a.log"), "error\n").unwrap();
        mkfifo(&path.join("pipe"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(path.join("socket")).unwrap();
        symlink(path.join("folder/a.log"), path.join("link")).unwrap();
        symlink("folder", path.join("way")).unwrap();
        symlink("nowhere", path.join("dangling")).unwrap();
        for (name, words) in [
            ("folder", "no regular file"),
            ("pipe", "no regular file"),
            ("socket", "no regular file"),
            ("link", "symbolic link"),
            ("way/a.log", "symbolic link"),
            ("dangling", "symbolic link"),
            ("none", "there is no"),
            ("folder/a.log/b", "there is no"),
        ] {
            let said = said(count_in(&path.join(name), 1000, None));
            assert!(said.contains(words) && said.contains(name), "{name}: {said}");
        }
        assert!(said(count_in(std::path::Path::new("/dev/null"), 1000, None)).contains("no regular file"));
        assert_eq!(count_in(&path.join("folder/a.log"), 1000, None).unwrap().count, 1);
    }

    #[test]
    fn what_was_rotated_away_or_cut_off_does_not_count_and_what_came_after_does() {
        let (_folder, path) = folder();
        let log = path.join("a.log");
        fs::write(&log, "error 1\nerror 2\n").unwrap();
        fs::rename(&log, path.join("a.log.1")).unwrap();
        assert!(said(count_in(&log, 1000, None)).contains("there is no"));
        fs::write(&log, "error 3\n").unwrap();
        assert_eq!(count_in(&log, 1000, None).unwrap().last, ["error 3"]);
        // As `copytruncate` does it.
        OpenOptions::new().write(true).open(&log).unwrap().set_len(0).unwrap();
        assert_eq!(count_in(&log, 1000, None).unwrap().seen, 0);
        // Cut off after its length was asked for: what is there by then.
        assert_eq!(whole_lines(b"", false), Some(&b""[..]));
    }

    #[test]
    fn a_hole_of_gigabytes_is_read_by_its_end_and_what_takes_too_long_is_given_up() {
        let (_folder, path) = folder();
        let log = path.join("a.log");
        fs::write(&log, "error\n").unwrap();
        let file = OpenOptions::new().append(true).open(&log).unwrap();
        file.set_len(8 << 30).unwrap();
        assert!(said(count_in(&log, 16 << 20, None)).contains("no whole line"));
        let mut file = file;
        io::Write::write_all(&mut file, b"\nerror\n").unwrap();
        assert_eq!(count_in(&log, 7, None).unwrap().count, 1);
        let over = Limit::of(Duration::ZERO);
        let late = search(log.to_str().unwrap(), &Regex::new("x").unwrap(), 7, None, over);
        assert!(said(late).contains("ask for less"));
    }

    #[test]
    fn what_is_closed_to_its_reader_is_refused_by_name() {
        let (_folder, path) = folder();
        let log = path.join("a.log");
        fs::write(&log, "error\n").unwrap();
        fs::set_permissions(&log, fs::Permissions::from_mode(0o000)).unwrap();
        // A thread's capabilities are its own, and who is not root has none.
        let on_a_thread = move || {
            caps::clear(None, caps::CapSet::Effective).unwrap();
            said(count_in(&log, 1000, None))
        };
        let said = std::thread::spawn(on_a_thread).join().unwrap();
        assert!(said.contains("cannot be read by the daemon"), "{said}");
    }
}
