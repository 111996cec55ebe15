//! clsact and its bpf filters: where programs attach on kernels before 6.6, which have no tcx links.
//!
//! Mechanism: `sch_clsact` gives a device two hooks and touches no queue; `cls_bpf` in direct-action mode runs a
//! program on one. Neither goes away by itself, so that a filter here is only ever a stub that turns inert with
//! its fault. Kernel requirement: CONFIG_NET_CLS_ACT, CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF.
//! Reference: tc-bpf(8), net/sched/sch_ingress.c, net/sched/cls_bpf.c, net/sched/cls_api.c.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{DecodeError, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcAttribute, TcBpfFlags, TcFilterBpfOption, TcMessage, TcOption};
use nix::errno::Errno;
use nix::libc;

use super::Netlink;
use super::error::NetlinkError;
use super::marks;
use super::qdisc::{Entry, Qdisc, tc_message};
use crate::spec::Direction;

/// The handle that clsact always has.
const CLSACT_HANDLE: u32 = 0xffff_0000;

const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;

/// What is at a device's filter hooks after [`Netlink::add_clsact`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clsact {
    /// It was not there, and is now.
    Added,
    /// Somebody else's was there; it is theirs to delete.
    AlreadyThere,
    /// Somebody else's older "ingress" qdisc is in its place: there is a hook for ingress, none for egress.
    IngressOnly,
}

/// How often to try while somebody asks for a filter of the device, which keeps its clsact in use for a moment (EBUSY,
/// `qdisc_graft` in net/sched/sch_api.c, since Linux 6.4); each time after another look whether it is empty.
const BUSY_ATTEMPTS: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// A filter on a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Its preference: filters run from the lowest to the highest.
    pub pref: u16,
    /// Its number within the preference.
    pub handle: u32,
    /// What classifies, e.g. "bpf".
    pub kind: String,
    /// The name it was given, when it is a bpf filter.
    pub bpf_name: Option<String>,
    /// The id of its program, when it is a bpf filter.
    pub prog_id: Option<u32>,
}

impl Filter {
    /// For people: `bpf filter "cni" (preference 1, egress)`.
    pub fn words(&self, direction: Direction) -> String {
        let name = self.bpf_name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        format!("{} filter{name} (preference {}, {})", self.kind, self.pref, direction.name())
    }

    /// Whether it is ours, by kind, name and preference.
    pub fn is_ours(&self) -> bool {
        marks::is_our_filter(&self.kind, self.bpf_name.as_deref(), self.pref)
    }
}

fn hook(direction: Direction) -> u32 {
    match direction {
        Direction::Ingress => 0xffff_fff2,
        Direction::Egress => 0xffff_fff3,
    }
}

fn on(ifindex: u32, direction: Direction) -> String {
    format!("on interface {ifindex} {}", direction.name())
}

/// A message about one filter that sees packets of every protocol.
fn filter_message(ifindex: u32, direction: Direction, pref: u16, handle: u32) -> TcMessage {
    let mut message = tc_message(ifindex, handle, hook(direction));
    let every_protocol = (libc::ETH_P_ALL as u16).to_be();
    message.header.info = u32::from(pref) << 16 | u32::from(every_protocol);
    message.attributes.push(TcAttribute::Kind("bpf".to_owned()));
    message
}

impl Netlink {
    /// Makes sure that a device has filter hooks.
    ///
    /// # Errors
    /// [`NetlinkError::MissingModule`] on a kernel without clsact; when the device is gone.
    pub async fn add_clsact(&self, ifindex: u32) -> Result<Clsact, NetlinkError> {
        let mut message = tc_message(ifindex, CLSACT_HANDLE, Qdisc::CLSACT);
        message.attributes.push(TcAttribute::Kind("clsact".to_owned()));
        let operation = format!("add clsact to interface {ifindex}");
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        match self.request(&operation, Message::NewQueueDiscipline(message), flags).await {
            Ok(_) => return Ok(Clsact::Added),
            Err(error) if error.errno() == Some(Errno::EEXIST) => {}
            Err(error) => return Err(error.meaning_missing(Errno::ENOENT, "sch_ingress")),
        }
        match self.hook_qdisc(ifindex).await? {
            Some(qdisc) if qdisc.kind == "clsact" => Ok(Clsact::AlreadyThere),
            Some(_) => Ok(Clsact::IngressOnly),
            None => Err(NetlinkError::Vanished { operation }),
        }
    }

    async fn hook_qdisc(&self, ifindex: u32) -> Result<Option<Qdisc>, NetlinkError> {
        let qdiscs = self.qdiscs(ifindex).await?;
        Ok(qdiscs.into_iter().find(|qdisc| qdisc.parent == Qdisc::CLSACT))
    }

    /// Deletes a device's clsact, only when no filter of anybody's is left on either hook; then it does nothing.
    /// `false` when it stays, or is not there. Whether it is ours to delete, the caller must know.
    ///
    /// # Errors
    /// When a hook cannot be read: unknown is not empty.
    pub async fn delete_clsact(&self, ifindex: u32) -> Result<bool, NetlinkError> {
        for _ in 1..BUSY_ATTEMPTS {
            match self.delete_idle_clsact(ifindex).await {
                Err(error) if error.errno() == Some(Errno::EBUSY) => tokio::time::sleep(BUSY_PAUSE).await,
                done => return done,
            }
        }
        self.delete_idle_clsact(ifindex).await
    }

    async fn delete_idle_clsact(&self, ifindex: u32) -> Result<bool, NetlinkError> {
        match self.hook_qdisc(ifindex).await? {
            Some(qdisc) if qdisc.kind == "clsact" => {}
            _ => return Ok(false),
        }
        for direction in Direction::BOTH {
            let operation = format!("look for filters {}", on(ifindex, *direction));
            if !self.dump_hook(&operation, ifindex, *direction).await?.is_empty() {
                return Ok(false);
            }
        }
        let operation = format!("delete clsact from interface {ifindex}");
        self.delete_qdisc(&operation, tc_message(ifindex, CLSACT_HANDLE, Qdisc::CLSACT)).await
    }

    /// Adds a direct-action bpf filter, unless one is at that place. It keeps `program` alive.
    ///
    /// # Errors
    /// [`NetlinkError::MissingModule`] on a kernel without `cls_bpf`; when the device has no hooks, the place is
    /// taken (EEXIST), or `program` is no classifier.
    pub async fn add_bpf_filter(
        &self,
        ifindex: u32,
        direction: Direction,
        pref: u16,
        handle: u32,
        program: BorrowedFd<'_>,
        name: &str,
    ) -> Result<(), NetlinkError> {
        let mut message = filter_message(ifindex, direction, pref, handle);
        message.attributes.push(TcAttribute::Options(vec![
            TcOption::Bpf(TcFilterBpfOption::ProgFd(program.as_raw_fd().cast_unsigned())),
            TcOption::Bpf(TcFilterBpfOption::ProgName(name.to_owned())),
            TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ]));
        let operation = format!("add filter {name} pref {pref} {}", on(ifindex, direction));
        self.request(&operation, Message::NewTrafficFilter(message), NLM_F_CREATE | NLM_F_EXCL)
            .await
            .map(drop)
            // "TC classifier not found" (tcf_proto_lookup_ops in net/sched/cls_api.c).
            .map_err(|error| error.meaning_missing(Errno::ENOENT, "cls_bpf"))
    }

    /// The filters on a hook, in the order in which they run; none when there is no hook or no device.
    ///
    /// # Errors
    /// When an entry cannot be read.
    pub async fn list_filters(
        &self,
        ifindex: u32,
        direction: Direction,
    ) -> Result<Vec<Filter>, NetlinkError> {
        let operation = format!("list filters {}", on(ifindex, direction));
        let answers = self.dump_hook(&operation, ifindex, direction).await?;
        let filters: Result<Vec<_>, _> = answers.iter().map(|bytes| parse_filter(bytes)).collect();
        let mut filters = filters.map_err(|source| NetlinkError::Unreadable { operation, source })?;
        // Each preference is listed once for itself, with handle 0.
        filters.retain(|filter| filter.handle != 0);
        Ok(filters)
    }

    /// The bpf filter at this place of a hook that sees packets of every protocol; `None` when there is none such, or no hook,
    /// or no device. To know of one, ask here: a list comes in pieces, each of which begins at a number in it, so that one is
    /// left out when another before it goes meanwhile (`tc_dump_tfilter`).
    ///
    /// # Errors
    /// When the answer cannot be read: unknown is never absent.
    pub async fn bpf_filter(
        &self,
        ifindex: u32,
        direction: Direction,
        pref: u16,
        handle: u32,
    ) -> Result<Option<Filter>, NetlinkError> {
        let operation = format!("look for filter pref {pref} {}", on(ifindex, direction));
        let message = Message::GetTrafficFilter(filter_message(ifindex, direction, pref, handle));
        let answers = match self.request(&operation, message, 0).await {
            Ok(answers) => answers,
            Err(error) if means_no_filter(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(bytes) = answers.first() else { return Err(NetlinkError::NoAnswer { operation }) };
        let filter = parse_filter(bytes);
        filter.map(Some).map_err(|source| NetlinkError::Unreadable { operation, source })
    }

    async fn dump_hook(
        &self,
        operation: &str,
        ifindex: u32,
        direction: Direction,
    ) -> Result<Vec<Vec<u8>>, NetlinkError> {
        let message = || Message::GetTrafficFilter(tc_message(ifindex, 0, hook(direction)));
        self.dump(operation, message).await
    }

    /// Deletes the bpf filter at this place if it has this name. `false` when there is none such.
    ///
    /// # Errors
    /// When the hook cannot be read, or the kernel refuses.
    pub async fn delete_bpf_filter(
        &self,
        ifindex: u32,
        direction: Direction,
        pref: u16,
        handle: u32,
        name: &str,
    ) -> Result<bool, NetlinkError> {
        let found = self.bpf_filter(ifindex, direction, pref, handle).await?;
        if found.is_none_or(|filter| filter.bpf_name.as_deref() != Some(name)) {
            return Ok(false);
        }
        let message = filter_message(ifindex, direction, pref, handle);
        let operation = format!("delete filter {name} pref {pref} {}", on(ifindex, direction));
        match self.request(&operation, Message::DelTrafficFilter(message), 0).await {
            Ok(_) => Ok(true),
            // Somebody else was faster.
            Err(error) if means_no_filter(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether the kernel says that a place is empty: no such filter or preference (ENOENT), no hook or chain, or a filter of another
/// kind or protocol there (EINVAL), no device (`tc_get_tfilter` and `tc_del_tfilter` in net/sched/cls_api.c).
fn means_no_filter(error: &NetlinkError) -> bool {
    matches!(error.errno(), Some(Errno::ENOENT | Errno::EINVAL | Errno::ENODEV))
}

pub(super) fn parse_filter(bytes: &[u8]) -> Result<Filter, DecodeError> {
    let entry = Entry::parse(bytes)?;
    // The options of other kinds are laid out in other ways, and none of our business.
    let options = match entry.kind.as_str() {
        "bpf" => entry.attributes.nested(TCA_OPTIONS)?,
        _ => None,
    };
    let (mut bpf_name, mut prog_id) = (None, None);
    if let Some(options) = options {
        bpf_name = options.text(TCA_BPF_NAME)?;
        prog_id = options.u32(TCA_BPF_ID)?;
    }
    Ok(Filter {
        pref: (entry.header.info >> 16) as u16,
        handle: entry.header.handle.into(),
        kind: entry.kind,
        bpf_name,
        prog_id,
    })
}
