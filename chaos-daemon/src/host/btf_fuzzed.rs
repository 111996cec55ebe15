//! Whatever describes a kernel's types, an end is found, within the description.

use super::{Btf, KernelFiles, KernelSockets};

/// The most functions and members that are looked at beside those that are looked for.
const MOST: usize = 32;

pub(crate) fn read(bytes: &[u8]) {
    let Some(btf) = Btf::parse(bytes) else { return };
    // What is right about them is known by their types alone.
    let _found = (KernelFiles::find(&btf), KernelSockets::find(&btf));
    for function in btf.functions.iter().take(MOST) {
        for structure in (0..3).filter_map(|number| btf.argument(*function, number)) {
            for path in [&["d"][..], &["b", "d"], &["__sk_common", "skc_num"]] {
                let _place = btf.member(structure, path);
            }
        }
    }
}
