//! A netem that the kernel tells of is told to it in the same words.

use super::super::qdisc::Entry;
use super::{Netem, parse_state};
use crate::fuzzing::is_written_as_it_is;

#[expect(clippy::expect_used, reason = "options that cannot be read are what is looked for")]
pub(in crate::kernel::netlink) fn read(entry: &Entry<'_>) {
    let Ok(state) = parse_state(entry) else { return };
    let _shown = state.netem.to_string();
    is_written_as_it_is(&state.netem);
    if let Ok(options) = state.netem.encode() {
        let again = Netem::decode(&options).expect("options that cannot be read");
        assert!(again == state.netem.as_read_back(), "told as {:?}, and read as {again:?}", state.netem);
    }
}
