//! Brings the object into the kernel: creates the maps, points the programs at them, has the programs verified.
//!
//! aya's own loader parses the kernel's BTF first, whether or not the object asks for it, which costs a holder
//! 20 MB and more time than all the rest. A holder needs at most two numbers of it, so this uses aya's parser and maps only.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use aya::maps::{Map, MapData};
use aya_obj::Object;
use chaos_common::name;

use super::sys::ProgramKind;
use super::{BpfError, Family, calls, files, sever, sockets, sys};
use crate::kernel::netlink::marks::BPF_PREFIX;

/// The maps and programs of one object in the kernel. Closed with this.
pub(super) struct Loaded {
    maps: HashMap<String, Map>,
    programs: HashMap<&'static str, OwnedFd>,
}

impl Loaded {
    /// Loads the programs of a family from an ELF object, with these maps in another size than it says.
    pub(super) fn new(elf: &[u8], family: Family, sizes: &[(&str, u32)]) -> Result<Self, BpfError> {
        let mut object = Object::parse(elf).map_err(|source| BpfError::Object(source.into()))?;
        let mut made = Vec::new();
        for (name, mut definition) in object.maps.drain() {
            if let Some((_, size)) = sizes.iter().find(|(sized, _)| *sized == name) {
                definition.set_max_entries(*size);
            }
            // In the kernel they are told from those of others by their name.
            let data = MapData::create(definition.clone(), &format!("{BPF_PREFIX}{name}"), None)
                .map_err(|source| BpfError::CreateMap { map: name.clone(), source: Box::new(source) })?;
            made.push((name, definition, data));
        }
        let text = object.functions.keys().map(|(section, _)| *section).collect();
        let places = made
            .iter()
            .map(|(name, definition, data)| (name.as_str(), data.fd().as_fd().as_raw_fd(), definition));
        object
            .relocate_maps(places, &text)
            .and_then(|()| object.relocate_calls(&text))
            .map_err(|source| BpfError::Object(source.into()))?;
        let mut maps = HashMap::new();
        for (name, _, data) in made {
            let map = Map::from_map_data(data)
                .map_err(|source| BpfError::CreateMap { map: name.clone(), source: Box::new(source) })?;
            maps.insert(name, map);
        }
        let mut programs = HashMap::new();
        for (name, kind) in members(family) {
            programs.insert(name, load(&object, name, kind)?);
        }
        Ok(Self { maps, programs })
    }

    /// A map by name.
    pub(super) fn map(&self, name: &'static str) -> Result<&Map, BpfError> {
        self.maps.get(name).ok_or(BpfError::Missing { name })
    }

    /// A map by name, to be changed.
    pub(super) fn map_mut(&mut self, name: &'static str) -> Result<&mut Map, BpfError> {
        self.maps.get_mut(name).ok_or(BpfError::Missing { name })
    }

    /// A map by name, whatever its type.
    pub(super) fn data(&self, name: &'static str) -> Result<&MapData, BpfError> {
        match self.map(name)? {
            Map::Array(data) | Map::HashMap(data) | Map::LpmTrie(data) | Map::ProgramArray(data) => Ok(data),
            _ => Err(BpfError::Missing { name }),
        }
    }

    /// A program by name.
    pub(super) fn program(&self, name: &'static str) -> Result<BorrowedFd<'_>, BpfError> {
        Ok(self.programs.get(name).ok_or(BpfError::Missing { name })?.as_fd())
    }
}

/// The programs of a family.
fn members(family: Family) -> Vec<(&'static str, ProgramKind)> {
    match family {
        Family::Packets => name::PACKET_PROGRAMS.map(|name| (name, ProgramKind::CLASSIFIER)).to_vec(),
        Family::Stubs => {
            [name::STUB_EGRESS, name::STUB_INGRESS].map(|name| (name, ProgramKind::CLASSIFIER)).to_vec()
        }
        Family::Answers => name::ANSWER_PROGRAMS.map(|name| (name, ProgramKind::CLASSIFIER)).to_vec(),
        Family::Dns => name::DNS_PROGRAMS.map(|name| (name, ProgramKind::CLASSIFIER)).to_vec(),
        Family::DnsDetour => name::DETAIN_PROGRAMS.map(|name| (name, ProgramKind::CLASSIFIER)).to_vec(),
        Family::Calls => {
            calls::HOOKS.map(|(name, attach_type)| (name, ProgramKind::address(attach_type))).to_vec()
        }
        Family::Severance => {
            sever::HOOKS.map(|(name, attach_type)| (name, ProgramKind::packet(attach_type))).to_vec()
        }
        Family::Files(kernel) => files::members(kernel),
        Family::Sockets(kernel) => sockets::members(kernel),
    }
}

fn load(object: &Object, name: &'static str, kind: ProgramKind) -> Result<OwnedFd, BpfError> {
    let program = object.programs.get(name).ok_or(BpfError::Missing { name })?;
    let function = object.functions.get(&program.function_key()).ok_or(BpfError::Missing { name })?;
    sys::load_program(kind, &format!("{BPF_PREFIX}{name}"), &program.license, &function.instructions)
        .map_err(|(source, log)| BpfError::Program { program: name, log, source })
}
