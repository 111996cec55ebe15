//! The resources that `resource_exhaustion` uses up, or limits: the one list of them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::effect::Effect;
use super::hoard::Taking;
use super::parameter::{self, Parameter, Shape, fields_of};
use super::parts::Ramp;
use super::settings::Limit;
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
    Resource {
        name: "cpu",
        parameters: || ramped(fields_of::<load::CpuParams>()),
        effect: |params, target| load::cpu(params, target).map(Effect::Cpu),
    },
    Resource {
        name: "memory",
        parameters: || ramped(fields_of::<hoard::MemoryParams>()),
        effect: |params, target| hoard::memory(params, target).map(taken),
    },
    Resource {
        name: "disk_fill",
        parameters: || ramped(fields_of::<hoard::DiskParams>()),
        effect: |params, target| hoard::disk_fill(params, target).map(taken),
    },
    Resource {
        name: "file_descriptors",
        parameters: || ramped(fields_of::<hoard::DescriptorParams>()),
        effect: |params, target| hoard::descriptors(params, target).map(taken),
    },
    Resource {
        name: "pids",
        parameters: || ramped(fields_of::<hoard::TaskParams>()),
        effect: |params, target| hoard::tasks(params, target).map(taken),
    },
    Resource {
        name: "inodes",
        parameters: || ramped(fields_of::<hoard::InodeParams>()),
        effect: |params, target| hoard::inodes(params, target).map(taken),
    },
    Resource {
        name: "ports",
        parameters: || ramped(fields_of::<hoard::PortsParams>()),
        effect: |params, target| hoard::ports(params, target).map(taken),
    },
    Resource {
        name: "disk_io",
        parameters: fields_of::<hoard::DiskIoParams>,
        effect: |params, target| hoard::disk_io(params, target).map(taken),
    },
    Resource {
        name: "cpu_limit",
        parameters: fields_of::<settings::CpuLimitParams>,
        effect: |params, target| limited(settings::cpu_limit(params)?, target),
    },
    Resource {
        name: "memory_limit",
        parameters: fields_of::<settings::MemoryLimitParams>,
        effect: |params, target| limited(settings::memory_limit(params)?, target),
    },
    Resource {
        name: "pids_limit",
        parameters: fields_of::<settings::PidsLimitParams>,
        effect: |params, target| limited(settings::pids_limit(params)?, target),
    },
    Resource {
        name: "io_limit",
        parameters: fields_of::<settings::IoLimitParams>,
        effect: |params, target| limited(settings::io_limit(params)?, target),
    },
];

fn taken(Taking { what, ramp, whose, netns }: Taking) -> Effect {
    Effect::Hoard { what, ramp, whose, netns }
}

fn limited(limit: Limit, target: &TargetRequest) -> Result<Effect, SpecError> {
    Ok(Effect::Limit { whose: settings::group(target)?, limit })
}

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
    std::iter::once(resource).chain(of_all()).collect()
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

/// The parameters of each resource, without that which names the resource.
static OF_RESOURCES: LazyLock<BTreeMap<&'static str, Vec<Parameter>>> =
    LazyLock::new(|| RESOURCES.iter().map(|resource| (resource.name, (resource.parameters)())).collect());

/// What every resource takes: each parameter once, where all that it says is the same, and else once for those of which it is.
fn of_all() -> Vec<Parameter> {
    let mut all: Vec<Parameter> = Vec::new();
    for Resource { name, .. } in RESOURCES {
        for parameter in OF_RESOURCES.get(name).into_iter().flatten() {
            let same = |known: &&mut Parameter| {
                known.name == parameter.name
                    && Parameter { resources: Vec::new(), ..(**known).clone() } == *parameter
            };
            match all.iter_mut().find(same) {
                Some(known) => known.resources.push(name),
                None => all.push(Parameter { resources: vec![name], ..parameter.clone() }),
            }
        }
    }
    all
}

/// Refuses what the named resource does not take, of what any takes.
///
/// # Errors
/// Names the parameter.
pub(super) fn check(given: &Map<String, Value>, any: &[Parameter]) -> Result<(), SpecError> {
    let mut rest = given.clone();
    let resource = Resource::take(&mut rest)?;
    let takes = OF_RESOURCES.get(resource.name).map_or(&[][..], Vec::as_slice);
    for name in rest.keys().filter(|name| !takes.iter().any(|known| known.name == **name)) {
        let others = any.iter().filter(|known| known.name == name.as_str());
        let others: Vec<_> = others.flat_map(|known| known.resources.iter().copied()).collect();
        if !others.is_empty() {
            let problem = format!("belongs to resource {}, not to {:?}", others.join(" and "), resource.name);
            return Err(SpecError::new(format!("params.{name}"), problem));
        }
    }
    parameter::check(&format!("resource {}", resource.name), takes, &rest)
}
