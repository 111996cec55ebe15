//! The resources that `resource_exhaustion` uses up, or limits: the one list of them.

use serde_json::{Map, Value};

use super::fault::Effect;
use super::parameter::{self, Parameter, Shape, fields_of};
use super::parts::Ramp;
use super::target::TargetRequest;
use super::units::SpecError;
use super::{hoard, load, settings};

/// A resource, and how a fault of it is read.
#[derive(Debug)]
pub struct Resource {
    /// As callers name it.
    pub name: &'static str,
    pub(super) parameters: fn() -> Vec<Parameter>,
    pub(super) effect: fn(&Map<String, Value>, &TargetRequest) -> Result<Effect, SpecError>,
}

/// Every resource, in the order in which people are told of them. The first need not be named.
pub const RESOURCES: &[Resource] = &[
    Resource { name: "cpu", parameters: || ramped(fields_of::<load::CpuParams>()), effect: load::cpu },
    Resource {
        name: "memory",
        parameters: || ramped(fields_of::<hoard::MemoryParams>()),
        effect: hoard::memory,
    },
    Resource {
        name: "disk_fill",
        parameters: || ramped(fields_of::<hoard::DiskParams>()),
        effect: hoard::disk_fill,
    },
    Resource {
        name: "file_descriptors",
        parameters: || ramped(fields_of::<hoard::DescriptorParams>()),
        effect: hoard::descriptors,
    },
    Resource { name: "pids", parameters: || ramped(fields_of::<hoard::TaskParams>()), effect: hoard::tasks },
    Resource {
        name: "inodes",
        parameters: || ramped(fields_of::<hoard::InodeParams>()),
        effect: hoard::inodes,
    },
    Resource {
        name: "ports",
        parameters: || ramped(fields_of::<hoard::PortsParams>()),
        effect: hoard::ports,
    },
    Resource { name: "disk_io", parameters: fields_of::<hoard::DiskIoParams>, effect: hoard::disk_io },
    Resource {
        name: "cpu_limit",
        parameters: fields_of::<settings::CpuLimitParams>,
        effect: settings::cpu_limit,
    },
    Resource {
        name: "memory_limit",
        parameters: fields_of::<settings::MemoryLimitParams>,
        effect: settings::memory_limit,
    },
    Resource {
        name: "pids_limit",
        parameters: fields_of::<settings::PidsLimitParams>,
        effect: settings::pids_limit,
    },
    Resource {
        name: "io_limit",
        parameters: fields_of::<settings::IoLimitParams>,
        effect: settings::io_limit,
    },
];

/// With how long it takes until all of it is used.
fn ramped(mut parameters: Vec<Parameter>) -> Vec<Parameter> {
    parameters.extend(fields_of::<Ramp>());
    parameters
}

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    RESOURCES.iter().map(|resource| resource.name)
}

impl Resource {
    /// Takes the name of a resource out of parameters, and finds it.
    ///
    /// # Errors
    /// Names those that there are.
    pub(super) fn take(params: &mut Map<String, Value>) -> Result<&'static Self, SpecError> {
        let named = params.remove("resource").filter(|named| !named.is_null());
        let found = match &named {
            None => RESOURCES.first(),
            Some(named) => RESOURCES.iter().find(|resource| named == resource.name),
        };
        found.ok_or_else(|| {
            let (named, known) = (named.unwrap_or_default(), names().collect::<Vec<_>>().join(", "));
            SpecError::new("params.resource", format!("{named} is not known: give one of {known}"))
        })
    }
}

/// All that `resource_exhaustion` takes: the resource, and what each takes.
pub(super) fn parameters() -> Vec<Parameter> {
    let words = names().map(ToOwned::to_owned).collect();
    let resource = Parameter {
        name: "resource".to_owned(),
        shape: Shape::Text(words),
        required: false,
        default: Some(Value::from(RESOURCES[0].name)),
        sentence: "What is used up or limited: cpu is burned; memory, disk_fill, file_descriptors, pids, inodes and ports are taken \
                   and held; disk_io is a load; the limits are of a cgroup or unit."
            .to_owned(),
        resources: Vec::new(),
    };
    std::iter::once(resource).chain(parameter::of_all_resources()).collect()
}

/// What a fault with these parameters and this target does. The parameters were checked.
///
/// # Errors
/// Names what is missing, or makes no sense.
pub(super) fn effect(params: &Map<String, Value>, target: &TargetRequest) -> Result<Effect, SpecError> {
    let mut rest = params.clone();
    let resource = Resource::take(&mut rest)?;
    (resource.effect)(&rest, target)
}
