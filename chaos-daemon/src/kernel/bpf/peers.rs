//! Sets of addresses as the maps want them: full-length prefixes apart, which are looked up faster.

use std::os::fd::AsFd as _;

use aya::Pod;
use aya::maps::lpm_trie::Key;
use chaos_common::{dns, name};
use ipnet::IpNet;

use super::object::Loaded;
use super::{BpfError, sys};

/// An address as it lies in a packet.
type V4 = [u8; 4];
type V6 = [u8; 16];

/// Keys for the four peer maps, in order and without duplicates.
#[derive(Default)]
pub(super) struct Sets {
    pub(super) hosts_v4: Vec<V4>,
    pub(super) hosts_v6: Vec<V6>,
    pub(super) nets_v4: Vec<Key<V4>>,
    pub(super) nets_v6: Vec<Key<V6>>,
}

impl Sets {
    /// Whether both hold the same keys.
    pub(super) fn same(&self, other: &Self) -> bool {
        fn keys<K: Pod>(nets: &[Key<K>]) -> impl Iterator<Item = (u32, K)> {
            nets.iter().map(|key| (key.prefix_len(), key.data()))
        }
        self.hosts_v4 == other.hosts_v4
            && self.hosts_v6 == other.hosts_v6
            && keys(&self.nets_v4).eq(keys(&other.nets_v4))
            && keys(&self.nets_v6).eq(keys(&other.nets_v6))
    }

    /// Sorts peers into hosts and prefixes.
    pub(super) fn new(peers: &[IpNet]) -> Self {
        let mut sets = Self::default();
        for net in unique(peers) {
            match net {
                IpNet::V4(net) if net.prefix_len() == 32 => sets.hosts_v4.push(net.addr().octets()),
                IpNet::V6(net) if net.prefix_len() == 128 => sets.hosts_v6.push(net.addr().octets()),
                IpNet::V4(net) => sets.nets_v4.push(key_v4(net)),
                IpNet::V6(net) => sets.nets_v6.push(key_v6(net)),
            }
        }
        sets
    }

    /// As [`Sets::new`], with everything as a prefix.
    pub(super) fn prefixes(nets: &[IpNet]) -> Self {
        let mut sets = Self::default();
        for net in unique(nets) {
            match net {
                IpNet::V4(net) => sets.nets_v4.push(key_v4(net)),
                IpNet::V6(net) => sets.nets_v6.push(key_v6(net)),
            }
        }
        sets
    }
}

/// Host bits off, each once: removing a key twice would fail.
fn unique(nets: &[IpNet]) -> Vec<IpNet> {
    let mut nets: Vec<IpNet> = nets.iter().map(IpNet::trunc).collect();
    nets.sort_unstable();
    nets.dedup();
    nets
}

fn key_v4(net: ipnet::Ipv4Net) -> Key<V4> {
    Key::new(u32::from(net.prefix_len()), net.addr().octets())
}

fn key_v6(net: ipnet::Ipv6Net) -> Key<V6> {
    Key::new(u32::from(net.prefix_len()), net.addr().octets())
}

/// Makes a map hold exactly `new`, given that it holds `held`. On an error it may hold any part of both, and `held`
/// says so: nothing is forgotten that might be there.
pub(super) fn replace<K: Pod>(
    loaded: &Loaded,
    map: &'static str,
    held: &mut Vec<K>,
    new: Vec<K>,
) -> Result<(), BpfError> {
    let data = loaded.data(map)?;
    let batch = |operation, count| move |source| BpfError::Batch { operation, count, map, source };
    let fd = data.fd().as_fd();
    sys::remove_all(fd, held).map_err(batch("removing", held.len()))?;
    held.clear();
    match sys::insert_all(fd, &new) {
        Ok(()) => {
            *held = new;
            Ok(())
        }
        Err(source) => {
            let count = new.len();
            // Part of the batch may be in. One by one, since a batch stops at the first key that is absent.
            for key in &new {
                let _absent = sys::remove_all(fd, std::slice::from_ref(key));
            }
            Err(batch("writing", count)(source))
        }
    }
}

/// How many keys there are in either, each once.
pub(super) fn together<K: Eq>(held: &[K], wanted: &[K]) -> usize {
    held.len() + wanted.iter().filter(|key| !held.contains(key)).count()
}

/// Adds to a map what it lacks of `wanted`, given that it holds `held`. On an error `held` has all that may be there.
pub(super) fn add<K: Pod + Ord>(
    loaded: &Loaded,
    map: &'static str,
    held: &mut Vec<K>,
    wanted: &[K],
) -> Result<(), BpfError> {
    let new: Vec<K> = wanted.iter().filter(|key| !held.contains(key)).copied().collect();
    let fd = loaded.data(map)?.fd().as_fd();
    held.extend_from_slice(&new);
    // A batch writes what is there already once more.
    let failed = |source| BpfError::Batch { operation: "writing", count: new.len(), map, source };
    sys::insert_all(fd, &new).map_err(failed)
}

/// Removes from a map what is not `wanted`, given that it holds `held`, one by one: a key that is absent would end a batch.
pub(super) fn keep<K: Pod + Ord>(
    loaded: &Loaded,
    map: &'static str,
    held: &mut Vec<K>,
    wanted: &[K],
) -> Result<(), BpfError> {
    let fd = loaded.data(map)?.fd().as_fd();
    let mut refused = None;
    held.retain(|key| {
        if wanted.contains(key) {
            return true;
        }
        match sys::remove_all(fd, std::slice::from_ref(key)) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                refused = Some(source);
                true
            }
            _ => false,
        }
    });
    let failed = |source| BpfError::Batch { operation: "removing", count: 1, map, source };
    refused.map_or(Ok(()), |source| Err(failed(source)))
}

/// Every map that [`replace`] may be given, with the size of its key.
pub(super) const KEYED: [(&str, u32); 8] = [
    (name::HOSTS_V4, 4),
    (name::HOSTS_V6, 16),
    (name::NETS_V4, 8),
    (name::NETS_V6, 20),
    (name::PROTECTED_V4, 8),
    (name::PROTECTED_V6, 20),
    (name::PROTECTED_PORTS, 4),
    (name::NAMES, 4 + dns::KEY as u32),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_length_prefixes_become_hosts_and_duplicates_go() {
        let peers: Vec<IpNet> =
            ["10.0.0.1/32", "10.0.0.1/32", "10.1.2.3/16", "10.1.0.0/16", "2001:db8::1/128"]
                .iter()
                .map(|net| net.parse().unwrap())
                .collect();
        let sets = Sets::new(&peers);
        assert_eq!(sets.hosts_v4, [[10, 0, 0, 1]]);
        assert_eq!(sets.hosts_v6.len(), 1);
        assert!(sets.nets_v6.is_empty());
        let nets: Vec<_> = sets.nets_v4.iter().map(|key| (key.prefix_len(), key.data())).collect();
        assert_eq!(nets, [(16, [10, 1, 0, 0])]);
        assert_eq!(Sets::prefixes(&peers).nets_v4.len(), 2);
        assert_eq!(together(&sets.hosts_v4, &[[10, 0, 0, 1], [10, 0, 0, 2]]), 2);
    }
}
