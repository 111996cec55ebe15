//! Queueing disciplines of a device: what is there, and deleting a root of ours.
//!
//! Reference: tc(8), net/sched/sch_api.c.

use netlink_packet_core::DecodeError;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcHandle, TcHeader, TcMessage};
use nix::errno::Errno;

use super::Netlink;
use super::error::NetlinkError;
use super::wire::Attributes;

/// Length of `struct tcmsg`.
const HEADER: usize = 20;

/// `TCA_KIND` (linux/rtnetlink.h).
const TCA_KIND: u16 = 1;

/// A queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// Device it is on.
    pub ifindex: u32,
    /// What it does, e.g. "fq_codel".
    pub kind: String,
    /// Its handle, major number in the upper half; 0 for one the kernel made by default.
    pub handle: u32,
    /// Where it is: [`Qdisc::ROOT`], [`Qdisc::CLSACT`], or the class above it.
    pub parent: u32,
}

impl Qdisc {
    /// Parent of the qdisc that the device sends through.
    pub const ROOT: u32 = u32::MAX;
    /// Parent of clsact, or of its elder relative "ingress".
    pub const CLSACT: u32 = 0xffff_fff1;
}

/// One entry of a traffic control list: its header, kind, and all attributes.
pub(super) struct Entry<'a> {
    pub(super) header: TcHeader,
    pub(super) kind: String,
    pub(super) attributes: Attributes<'a>,
}

impl<'a> Entry<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let header = TcHeader::parse(bytes)?;
        let attributes = Attributes::behind(bytes, HEADER)?;
        let kind = attributes.text(TCA_KIND)?.ok_or_else(|| DecodeError::from("no TCA_KIND"))?;
        Ok(Self { header, kind, attributes })
    }
}

pub(super) fn tc_message(ifindex: u32, handle: u32, parent: u32) -> TcMessage {
    let mut message = TcMessage::with_index(ifindex.cast_signed());
    message.header.handle = TcHandle::from(handle);
    message.header.parent = TcHandle::from(parent);
    message
}

impl Netlink {
    /// The queueing disciplines of a device; none when the device is gone.
    ///
    /// # Errors
    /// When an entry cannot be read.
    pub async fn qdiscs(&self, ifindex: u32) -> Result<Vec<Qdisc>, NetlinkError> {
        let mut all = self.all_qdiscs().await?;
        all.retain(|qdisc| qdisc.ifindex == ifindex);
        Ok(all)
    }

    /// The queueing disciplines of every device of the namespace.
    ///
    /// # Errors
    /// As [`Netlink::qdiscs`].
    pub async fn all_qdiscs(&self) -> Result<Vec<Qdisc>, NetlinkError> {
        self.each_qdisc(|entry| {
            Ok(Qdisc {
                ifindex: entry.header.index.cast_unsigned(),
                kind: entry.kind.clone(),
                handle: entry.header.handle.into(),
                parent: entry.header.parent.into(),
            })
        })
        .await
    }

    /// Reads the list and maps each entry. The kernel cannot narrow it to a device.
    pub(super) async fn each_qdisc<T>(
        &self,
        read: impl Fn(&Entry<'_>) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, NetlinkError> {
        let operation = "list queueing disciplines";
        let answers = self.dump(operation, || Message::GetQueueDiscipline(TcMessage::default())).await?;
        answers
            .iter()
            .map(|bytes| read(&Entry::parse(bytes)?))
            .collect::<Result<_, _>>()
            .map_err(|source| NetlinkError::Unreadable { operation: operation.to_owned(), source })
    }

    /// Deletes a device's root if it has this handle: the kernel compares. `false` when there is none such.
    /// What is queued in it is lost.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub async fn delete_root(&self, ifindex: u32, handle: u32) -> Result<bool, NetlinkError> {
        let operation = format!("delete the root {:x}: of interface {ifindex}", handle >> 16);
        self.delete_qdisc(&operation, tc_message(ifindex, handle, Qdisc::ROOT)).await
    }

    pub(super) async fn delete_qdisc(
        &self,
        operation: &str,
        message: TcMessage,
    ) -> Result<bool, NetlinkError> {
        match self.request(operation, Message::DelQueueDiscipline(message), 0).await {
            Ok(_) => Ok(true),
            // No such qdisc, another handle, no such device (tc_get_qdisc in net/sched/sch_api.c).
            Err(error) if matches!(error.errno(), Some(Errno::ENOENT | Errno::EINVAL | Errno::ENODEV)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
