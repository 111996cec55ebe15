//! The marks by which our objects are known, also without a journal: names, preferences and handles. Nothing
//! that lacks its mark is ever deleted.

/// Every device of ours has a name that starts so.
pub const DEVICE_PREFIX: &str = "chaos";

/// Every classifier of ours has a bpf name that starts so.
pub const FILTER_PREFIX: &str = "chaos_stub";

/// Every program and map of ours has a name in the kernel that starts so. The kernel keeps 15 bytes of a name.
pub const BPF_PREFIX: &str = "chaos_";

/// Preference of the filter at level 0, which does not exist; see [`filter_pref`].
pub const PREF_BASE: u16 = 30_000;

/// The highest level a fault can have on one hook.
pub const HIGHEST_LEVEL: u8 = 200;

/// Handle of every filter of ours: each has its own preference, so that one handle serves all.
pub const FILTER_HANDLE: u32 = 1;

/// Handle of every netem of ours, `c4a0:`. It only ever sits on a device of ours.
pub const NETEM_HANDLE: u32 = 0xc4a0_0000;

/// Handle of every htb of ours, likewise.
pub const HTB_HANDLE: u32 = 0xc4a1_0000;

/// Handle of the queue below it.
pub const FIFO_HANDLE: u32 = 0xc4a2_0000;

/// An end of a veth pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// In the target's namespace, beside the target device.
    Near,
    /// In the private namespace of the fault's holder.
    Far,
}

/// Name of the end of fault `id`'s veth pair that is next to the target device.
pub fn near_name(id: u32) -> String {
    format!("{DEVICE_PREFIX}{id:08x}n")
}

/// Name of the end of fault `id`'s veth pair in the holder's namespace.
pub fn far_name(id: u32) -> String {
    format!("{DEVICE_PREFIX}{id:08x}f")
}

/// The fault and the end that a device name belongs to; `None` for a name that is not ours.
pub fn recognise_device(name: &str) -> Option<(u32, End)> {
    let (id, end) = name.strip_prefix(DEVICE_PREFIX)?.split_at_checked(8)?;
    let id = u32::from_str_radix(id, 16).ok()?;
    // Comparing with the name we would give rules out signs and capitals.
    match end {
        "n" if name == near_name(id) => Some((id, End::Near)),
        "f" if name == far_name(id) => Some((id, End::Far)),
        _ => None,
    }
}

/// The fault that a folder or a nameless file belongs to (a control group, a mount point, a memfd): named as a device,
/// `chaos` and eight digits, and then nothing, or a dash or a dot and more. `None` for a name that is not ours.
pub fn recognise_folder(name: &str) -> Option<u32> {
    let (id, rest) = name.strip_prefix(DEVICE_PREFIX)?.split_at_checked(8)?;
    let ours = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && (rest.is_empty() || rest.starts_with(['-', '.']));
    ours.then(|| u32::from_str_radix(id, 16).ok()).flatten()
}

/// Preference of a fault's filter: filters on a hook run in the order of their preference, and a fault's place
/// is its level. `None` when `level` is not within 1 to [`HIGHEST_LEVEL`].
pub fn filter_pref(level: u8) -> Option<u16> {
    (1..=HIGHEST_LEVEL).contains(&level).then(|| PREF_BASE + u16::from(level))
}

/// Whether a filter is ours, by kind, name and preference.
pub fn is_our_filter(kind: &str, bpf_name: Option<&str>, pref: u16) -> bool {
    let ours = PREF_BASE + 1..=PREF_BASE + u16::from(HIGHEST_LEVEL);
    kind == "bpf" && ours.contains(&pref) && bpf_name.is_some_and(|name| name.starts_with(FILTER_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_name_fits_the_kernel_and_is_recognised() {
        for id in [0, 1, 0xdead_beef, u32::MAX] {
            assert!(near_name(id).len() <= 15 && far_name(id).len() <= 15);
            assert_eq!(recognise_device(&near_name(id)), Some((id, End::Near)));
            assert_eq!(recognise_device(&far_name(id)), Some((id, End::Far)));
        }
    }

    #[test]
    fn a_name_that_only_looks_like_ours_is_not() {
        for name in [
            "",
            "chaos",
            "chaos0",
            "eth0",
            "chaos0000000n",
            "chaos00000000",
            "chaos00000000x",
            "chaos00000000nn",
            "chaosDEADBEEFn",
            "chaos+0000001n",
            "Chaos00000000n",
            "chaosé0000000n",
            "chaos-000001n",
        ] {
            assert_eq!(recognise_device(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_folder_is_ours_by_its_whole_name_and_the_services_own_group_is_not() {
        assert_eq!(recognise_folder("chaos0000beef"), Some(0xbeef));
        assert_eq!(recognise_folder("chaos0000beef-limit"), Some(0xbeef));
        for name in ["chaos-daemon.service", "chaos0000beefs", "chaos0000BEEF", "chaos0000bee", "0000beef"] {
            assert_eq!(recognise_folder(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_filter_is_ours_only_with_kind_name_and_preference() {
        assert_eq!(filter_pref(0), None);
        assert_eq!(filter_pref(201), None);
        assert_eq!((filter_pref(1), filter_pref(200)), (Some(30_001), Some(30_200)));
        assert!(is_our_filter("bpf", Some("chaos_stub"), 30_001));
        assert!(!is_our_filter("u32", Some("chaos_stub"), 30_001));
        assert!(!is_our_filter("bpf", Some("cilium"), 30_001));
        assert!(!is_our_filter("bpf", None, 30_001));
        assert!(!is_our_filter("bpf", Some("chaos_stub"), 30_000));
        assert!(!is_our_filter("bpf", Some("chaos_stub"), 30_201));
    }
}
