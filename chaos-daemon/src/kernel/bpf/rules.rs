//! What the maps hold: the rule, its peers, what is protected, the lease, the counters.

use aya::Pod;
use aya::maps::{Array, MapData, MapInfo, PerCpuArray};
use chaos_common::mark::MOST_LEVEL;
use chaos_common::rule::{self, ENABLED, EVERY_PEER, LOADER_FLAGS};
use chaos_common::{ABI_VERSION, Counters, MOST_PROTECTED, PacketRule, name};
use ipnet::IpNet;

use super::dns::Name;
use super::object::Loaded;
use super::peers::{KEYED, Sets, add, keep, replace, together};
use super::{BpfError, Capacity, Programs};
use crate::sabotage::{self, Guard};

/// What has been written, so that it can be replaced.
pub(super) struct Contents {
    capacity: Capacity,
    rule: PacketRule,
    peers: Sets,
    protected: Sets,
    protected_ports: Vec<u32>,
    pub(super) names: Vec<Name>,
}

impl Contents {
    pub(super) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            rule: PacketRule::default(),
            peers: Sets::default(),
            protected: Sets::default(),
            protected_ports: Vec::new(),
            names: Vec::new(),
        }
    }

    /// The flags that say which maps are worth a look.
    fn flags(&self) -> u32 {
        [
            (rule::HOSTS_V4, self.peers.hosts_v4.is_empty()),
            (rule::HOSTS_V6, self.peers.hosts_v6.is_empty()),
            (rule::NETS_V4, self.peers.nets_v4.is_empty()),
            (rule::NETS_V6, self.peers.nets_v6.is_empty()),
            (rule::PROTECTED_V4, self.protected.nets_v4.is_empty()),
            (rule::PROTECTED_V6, self.protected.nets_v6.is_empty()),
            (rule::PROTECTED_PORTS, self.protected_ports.is_empty()),
        ]
        .iter()
        .filter(|(_, empty)| !empty)
        .fold(0, |flags, (flag, _)| flags | flag)
    }
}

impl Programs {
    /// Sets what the fault selects and does. No packet meets half of a change: the rule selects nothing while peers
    /// are replaced. An error before anything was changed leaves the old rule; a later one a rule that selects nothing.
    ///
    /// # Errors
    /// When the rule makes no sense, more peers are given than there is room for, or the kernel refuses.
    pub fn set_rule(&mut self, rule: &PacketRule, peers: &[IpNet]) -> Result<(), BpfError> {
        check(rule, peers)?;
        let sets = Sets::new(peers);
        let room = self.contents.capacity;
        for (what, wanted, room) in [
            ("IPv4 hosts", sets.hosts_v4.len(), room.hosts),
            ("IPv6 hosts", sets.hosts_v6.len(), room.hosts),
            ("IPv4 prefixes", sets.nets_v4.len(), room.prefixes),
            ("IPv6 prefixes", sets.nets_v6.len(), room.prefixes),
        ] {
            BpfError::too_many(what, wanted, room)?;
        }
        self.disable()?;
        let held = &mut self.contents.peers;
        replace(&self.loaded, name::HOSTS_V4, &mut held.hosts_v4, sets.hosts_v4)?;
        replace(&self.loaded, name::HOSTS_V6, &mut held.hosts_v6, sets.hosts_v6)?;
        replace(&self.loaded, name::NETS_V4, &mut held.nets_v4, sets.nets_v4)?;
        replace(&self.loaded, name::NETS_V6, &mut held.nets_v6, sets.nets_v6)?;
        self.contents.rule = PacketRule { flags: rule.flags | self.contents.flags(), ..*rule };
        self.enable()
    }

    /// Changes which single peers the fault is about, while it acts. Those that stay are met all the time: what is new comes
    /// first, and what has gone goes last. Prefixes stay as they are.
    ///
    /// # Errors
    /// When the fault is about every peer, there is no room for those of before and after together, or the kernel refuses.
    pub fn change_hosts(&mut self, peers: &[IpNet]) -> Result<(), BpfError> {
        if self.contents.rule.has(EVERY_PEER) || peers.is_empty() {
            return Err(BpfError::Peers);
        }
        let (sets, room) = (Sets::new(peers), self.contents.capacity.hosts);
        let held = &self.contents.peers;
        BpfError::too_many("IPv4 hosts", together(&held.hosts_v4, &sets.hosts_v4), room)?;
        BpfError::too_many("IPv6 hosts", together(&held.hosts_v6, &sets.hosts_v6), room)?;
        let held = &mut self.contents.peers;
        add(&self.loaded, name::HOSTS_V4, &mut held.hosts_v4, &sets.hosts_v4)?;
        add(&self.loaded, name::HOSTS_V6, &mut held.hosts_v6, &sets.hosts_v6)?;
        self.write_flags()?;
        let held = &mut self.contents.peers;
        keep(&self.loaded, name::HOSTS_V4, &mut held.hosts_v4, &sets.hosts_v4)?;
        keep(&self.loaded, name::HOSTS_V6, &mut held.hosts_v6, &sets.hosts_v6)?;
        self.write_flags()
    }

    /// Has the programs look where there is something to be found. Of the rule only this one word changes.
    fn write_flags(&mut self) -> Result<(), BpfError> {
        let flags = self.contents.rule.flags;
        let now = flags & (!LOADER_FLAGS | ENABLED) | self.contents.flags();
        if now == flags {
            return Ok(());
        }
        self.contents.rule.flags = now;
        self.write_rule()
    }

    /// Sets which peers, and which of this node's ports (IP protocol number, port), no fault touches. Replaces what
    /// was protected before; writes nothing when that was the same.
    ///
    /// # Errors
    /// When there are more than [`MOST_PROTECTED`] of a kind, or the kernel refuses.
    pub fn protect(&mut self, nets: &[IpNet], ports: &[(u8, u16)]) -> Result<(), BpfError> {
        if sabotage::without(Guard::Exclusions) {
            return Ok(());
        }
        let sets = Sets::prefixes(nets);
        let mut keys: Vec<u32> =
            ports.iter().map(|&(protocol, port)| rule::port_key(protocol, port)).collect();
        keys.sort_unstable();
        keys.dedup();
        for (what, wanted) in [
            ("protected IPv4 prefixes", sets.nets_v4.len()),
            ("protected IPv6 prefixes", sets.nets_v6.len()),
            ("protected ports", keys.len()),
        ] {
            BpfError::too_many(what, wanted, MOST_PROTECTED)?;
        }
        let held = &self.contents;
        if held.protected.same(&sets) && held.protected_ports == keys {
            return Ok(());
        }
        let enabled = held.rule.has(ENABLED);
        self.disable()?;
        let held = &mut self.contents;
        replace(&self.loaded, name::PROTECTED_V4, &mut held.protected.nets_v4, sets.nets_v4)?;
        replace(&self.loaded, name::PROTECTED_V6, &mut held.protected.nets_v6, sets.nets_v6)?;
        replace(&self.loaded, name::PROTECTED_PORTS, &mut held.protected_ports, keys)?;
        held.rule.flags = held.rule.flags & !LOADER_FLAGS | held.flags();
        if enabled { self.enable() } else { self.write_rule() }
    }

    /// Lets the fault act until this time of [`crate::host::boot_time_ns`]: one write of 8 bytes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn renew(&mut self, deadline_boot_ns: u64) -> Result<(), BpfError> {
        self.set_one(name::LEASE, deadline_boot_ns)
    }

    /// Writes the one entry of a map.
    pub(super) fn set_one<T: Pod>(&mut self, name: &'static str, value: T) -> Result<(), BpfError> {
        let mut map: Array<&mut MapData, T> =
            Array::try_from(self.loaded.map_mut(name)?).map_err(|source| BpfError::map(name, source))?;
        map.set(0, value, 0).map_err(|source| BpfError::map(name, source))
    }

    /// Stops the fault from acting, with its links in place.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn disarm(&mut self) -> Result<(), BpfError> {
        self.renew(0)
    }

    /// The deadline as the kernel has it, in nanoseconds of [`crate::host::boot_time_ns`]; 0 is disarmed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn lease(&self) -> Result<u64, BpfError> {
        let lease: Array<&MapData, u64> = Array::try_from(self.loaded.map(name::LEASE)?)
            .map_err(|source| BpfError::map(name::LEASE, source))?;
        lease.get(&0, 0).map_err(|source| BpfError::map(name::LEASE, source))
    }

    /// The rule as the kernel has it, with the loader's flags.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn rule(&self) -> Result<PacketRule, BpfError> {
        let rule: Array<&MapData, PacketRule> = Array::try_from(self.loaded.map(name::RULE)?)
            .map_err(|source| BpfError::map(name::RULE, source))?;
        rule.get(&0, 0).map_err(|source| BpfError::map(name::RULE, source))
    }

    /// Packets counted since the programs were loaded.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn counters(&self) -> Result<Counters, BpfError> {
        let counters: PerCpuArray<&MapData, Counters> =
            PerCpuArray::try_from(self.loaded.map(name::COUNTERS)?)
                .map_err(|source| BpfError::map(name::COUNTERS, source))?;
        let per_cpu = counters.get(&0, 0).map_err(|source| BpfError::map(name::COUNTERS, source))?;
        Ok(per_cpu.iter().copied().sum())
    }

    /// Level and way back stay: packets that are on the detour now still have to find home.
    fn disable(&mut self) -> Result<(), BpfError> {
        self.contents.rule.flags &= !ENABLED;
        self.write_rule()
    }

    /// Two writes: the kernel copies the rule word by word under the eyes of the programs.
    fn enable(&mut self) -> Result<(), BpfError> {
        self.write_rule()?;
        self.contents.rule.flags |= ENABLED;
        self.write_rule()
    }

    fn write_rule(&mut self) -> Result<(), BpfError> {
        self.set_one(name::RULE, self.contents.rule)
    }
}

fn check(rule: &PacketRule, peers: &[IpNet]) -> Result<(), BpfError> {
    if rule.has(LOADER_FLAGS) {
        return Err(BpfError::Flags(rule.flags & LOADER_FLAGS));
    }
    if !(1..=MOST_LEVEL).contains(&rule.level) {
        return Err(BpfError::Level(rule.level));
    }
    if rule.has(EVERY_PEER) != peers.is_empty() {
        return Err(BpfError::Peers);
    }
    Ok(())
}

/// Checks that the object is of this contract, and its maps have the keys that are written here without a check.
pub(super) fn check_contract(loaded: &Loaded) -> Result<(), BpfError> {
    let found = info(loaded, name::ABI)?.max_entries();
    if found != ABI_VERSION {
        return Err(BpfError::Abi { found });
    }
    for (name, size) in KEYED {
        let info = info(loaded, name)?;
        if (info.key_size(), info.value_size()) != (size, 1) {
            return Err(BpfError::Missing { name });
        }
    }
    Ok(())
}

fn info(loaded: &Loaded, name: &'static str) -> Result<MapInfo, BpfError> {
    loaded.data(name)?.info().map_err(|source| BpfError::map(name, source))
}
