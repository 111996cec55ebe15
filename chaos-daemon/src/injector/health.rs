//! How this daemon and its host are, for who asks whether they are well: since when they are up, and what room there is to write.

use std::path::Path;
use std::time::Duration;

use crate::host::boot_time_ns;
use crate::host::directory::Space;
use crate::host::usage::own_age;

/// The facts, each with its name. It reads files, so that it belongs aside.
pub(super) fn facts(state: &Path) -> Vec<(String, String)> {
    let up = Duration::from_nanos(boot_time_ns());
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("host up", seconds(up)),
        fact("daemon up", own_age().map_or("unknown".to_owned(), seconds)),
        fact("room for state", room(state)),
    ]
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_secs())
}

fn room(state: &Path) -> String {
    const MIB: u64 = 1 << 20;
    match Space::at(state) {
        Ok(space) => format!("{} of {} MiB", space.available / MIB, space.bytes / MIB),
        Err(error) => format!("unknown: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_is_up_for_no_longer_than_its_host_and_room_is_counted() {
        let facts = facts(Path::new("/proc"));
        let number = |at: usize| facts[at].1.split(' ').next().unwrap().parse::<u64>().unwrap();
        assert!(number(1) <= number(0) && number(0) > 0, "{facts:?}");
        assert!(facts[2].1.ends_with(" MiB"), "{facts:?}");
        assert!(room(Path::new("/no/such")).starts_with("unknown: "));
    }
}
