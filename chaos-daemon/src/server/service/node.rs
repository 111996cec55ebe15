//! What there is to know of this host before anything is tried, in one look.

use tokio::join;

use super::Service;
use crate::experiment::driver::unexpected;
use crate::request::facts::{Facts, Question};
use crate::request::host_targets::{HostTargets, MOST_TOLD, Wanted};
use crate::request::leave::Leave;
use crate::request::services::{ServicesSeen, ServicesWanted};
use crate::request::{ApiError, DoctorReport, Reply, Request};

/// What there is to know of this host.
pub struct Node {
    /// What the caller may do.
    pub leave: Leave,
    /// What the kernel can do.
    pub doctor: DoctorReport,
    /// What can be aimed at, or why that is not told.
    pub targets: Result<HostTargets, ApiError>,
    /// What services are like, or why that is not told.
    pub services: Result<ServicesSeen, ApiError>,
}

impl Service {
    /// What there is to know of this host, as far as the caller may know it.
    ///
    /// # Errors
    /// When the injector is gone, or cannot find out what the kernel can do.
    pub async fn node(&self) -> Result<Node, ApiError> {
        let wanted = Wanted { text: None, limit: MOST_TOLD };
        let (leave, doctor, targets, services) =
            join!(self.leave_here(), self.doctor(), self.host_targets(wanted), self.services());
        Ok(Node { leave: leave?, doctor: doctor?, targets, services })
    }

    async fn services(&self) -> Result<ServicesSeen, ApiError> {
        let question = Question::Services(ServicesWanted::default());
        match self.door.call(Request::Look { question }).await? {
            Reply::Seen(Facts::Services(seen)) => Ok(*seen),
            other => Err(unexpected(&other)),
        }
    }
}
