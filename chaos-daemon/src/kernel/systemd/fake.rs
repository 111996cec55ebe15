//! The service manager of a node that is not there: it answers the calls of the message bus from what the node has. An order
//! whose answer has come is carried out; one whose caller has died, or has lost the answer, is still under way.

use std::sync::Arc;

use nix::errno::Errno;
use zbus::Message;
use zbus::wire::{DynamicType, ObjectPath, OwnedObjectPath, OwnedVariant, Variant};

use super::{Line, Properties, SERVICE, Systemd, UNIT};
use crate::kernel::fake::{FakeKernel, FakeUnit, Job, Objects};

/// A connection to it.
#[derive(Debug)]
pub(super) struct FakeBus(Arc<FakeKernel>);

impl Systemd {
    /// A connection to the service manager of this node.
    pub(in crate::kernel) fn fake(kernel: &Arc<FakeKernel>) -> Self {
        Self { line: Line::Fake(FakeBus(Arc::clone(kernel))) }
    }
}

impl FakeBus {
    pub(super) fn call<B: serde::Serialize + DynamicType>(
        &self,
        path: &str,
        method: &str,
        body: &B,
    ) -> zbus::Result<Message> {
        let call = Message::method_call(path, method).build(body)?;
        let answer = self.0.operate(|objects| answer(objects, path, method, &call));
        let answer = answer.map_err(|errno| zbus::Error::Failure(errno.to_string()))?;
        if matches!(method, "StopUnit" | "StartUnit") {
            self.0.change(Objects::carry_out_orders);
        }
        Ok(answer)
    }
}

fn answer(objects: &mut Objects, path: &str, method: &str, call: &Message) -> Result<Message, Errno> {
    let body = call.body();
    let wrong = |_| Errno::EINVAL;
    match method {
        "LoadUnit" => {
            let (name,): (&str,) = body.deserialize().map_err(wrong)?;
            reply(call, &path_of(name))
        }
        "GetAll" => {
            let (interface,): (&str,) = body.deserialize().map_err(wrong)?;
            let mut units = objects.units.iter();
            let (name, unit) = units.find(|(name, _)| path_of(name).as_str() == path).ok_or(Errno::ENOENT)?;
            match interface {
                UNIT => reply(call, &of_unit(name, unit)),
                SERVICE => reply(call, &of_service()),
                _ => Err(Errno::EINVAL),
            }
        }
        "Get" => {
            let state = if objects.is_stopping { "stopping" } else { "running" };
            reply(call, &Variant::from(state))
        }
        "StopUnit" | "StartUnit" => {
            let (name, mode): (&str, &str) = body.deserialize().map_err(wrong)?;
            let unit = objects.units.get(name).ok_or(Errno::ENOENT)?;
            let job = if method == "StopUnit" { Job::Stop } else { Job::Start };
            if mode != "replace" || job == Job::Start && unit.load != "loaded" {
                return Err(Errno::EINVAL);
            }
            objects.orders.push((job, name.to_owned()));
            reply(call, &job_path(1))
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn reply<B: serde::Serialize + DynamicType>(call: &Message, body: &B) -> Result<Message, Errno> {
    Message::method_return(&call.header()).build(body).ok().ok_or(Errno::EINVAL)
}

/// As systemd makes it of a name.
fn path_of(name: &str) -> ObjectPath<'static> {
    let escaped: String = name
        .bytes()
        .map(|byte| match byte.is_ascii_alphanumeric() {
            true => char::from(byte).to_string(),
            false => format!("_{byte:02x}"),
        })
        .collect();
    ObjectPath::try_from(format!("/org/freedesktop/systemd1/unit/{escaped}")).unwrap()
}

fn job_path(number: u32) -> OwnedObjectPath {
    OwnedObjectPath::try_from(format!("/org/freedesktop/systemd1/job/{number}")).unwrap()
}

pub(super) fn property<'a>(name: &str, value: impl Into<Variant<'a>>) -> (String, OwnedVariant) {
    (name.to_owned(), OwnedVariant::try_from(value.into()).unwrap())
}

fn of_unit(name: &str, unit: &FakeUnit) -> Properties {
    let number = u32::from(unit.job.is_some());
    let mut all = Properties::from([
        property("Id", name),
        property("LoadState", unit.load),
        property("ActiveState", unit.active),
        property("SubState", unit.active),
        property("ActiveEnterTimestampMonotonic", 1_u64),
        property("InvocationID", vec![unit.start]),
        property("Job", (number, job_path(number))),
        property("Transient", false),
        property("CanStop", true),
        property("CanStart", true),
    ]);
    for relation in ["RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf"] {
        all.extend([property(relation, Vec::<String>::new())]);
    }
    all
}

fn of_service() -> Properties {
    Properties::from([property("MainPID", 1_u32), property("Restart", "no"), property("NRestarts", 0_u32)])
}
