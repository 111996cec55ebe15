//! Which questions about names a fault is about, and what it says to them.

use aya::maps::lpm_trie::Key;
use chaos_common::dns::{self, KEY, MOST_NAMES, NAMED};
use chaos_common::{DnsRule, name};

use super::peers::replace;
use super::{BpfError, Programs};

/// A name, or all names below one, as the map has it.
pub(super) type Name = Key<[u8; KEY]>;

impl Programs {
    /// Sets what questions are answered with, if they are, and those about which names: each in small letters and without its last dot,
    /// and whether it stands for all names below it instead. None is every name. To be called before the rule is set, which
    /// has the programs act.
    ///
    /// # Errors
    /// When there are more than [`MOST_NAMES`], a name is too long, or the kernel refuses.
    pub fn set_names(&mut self, rule: &DnsRule, names: &[(String, bool)]) -> Result<(), BpfError> {
        let mut sorted: Vec<_> = names.iter().collect();
        // Removing a key twice would fail.
        sorted.sort_unstable();
        sorted.dedup();
        BpfError::too_many("names", sorted.len(), MOST_NAMES)?;
        let keys = sorted.into_iter().map(|(name, below)| {
            let (key, bits) = dns::key(name, *below).ok_or_else(|| BpfError::Name(name.clone()))?;
            Ok(Key::new(bits, key))
        });
        let keys = keys.collect::<Result<Vec<Name>, BpfError>>()?;
        let named = if keys.is_empty() { 0 } else { NAMED };
        replace(&self.loaded, name::NAMES, &mut self.contents.names, keys)?;
        self.set_one(name::DNS, DnsRule { flags: rule.flags | named, ..*rule })
    }
}
