//! Having proxies spoil calls to MCP servers.

use std::io;

use caps::Capability;

use super::arm::{Arm, ArmError, Armed, Means};
use crate::fault::SpoilWork;
use crate::host::privilege::{TRACER, limit_to};
use crate::kernel::proxy::{Proxy, bytes};
use crate::request::Evidence;
use crate::request::evidence::Met;

/// Proxies that obey this process until the deadline, or until the value is dropped.
#[derive(Debug)]
struct Spoiler {
    proxies: Vec<Proxy>,
}

impl Spoiler {
    /// Claims every proxy, and only then has them begin.
    ///
    /// # Errors
    /// When none is there any more, or one of them cannot be told or obeys another fault.
    fn start(work: &SpoilWork, deadline_ns: u64) -> io::Result<Self> {
        let fault = rand::random();
        let order = bytes(&work.order)?;
        let mut proxies = Vec::new();
        for target in &work.targets {
            proxies.extend(Proxy::claim(*target, fault)?);
        }
        if proxies.is_empty() {
            return Err(io::Error::other("no proxy that is meant is there any more"));
        }
        proxies.iter().try_for_each(|proxy| proxy.order(&order, deadline_ns))?;
        Ok(Self { proxies })
    }
}

impl Arm for SpoilWork {
    /// To open descriptors of other users' processes.
    fn needed(&self) -> &'static [Capability] {
        TRACER
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        let spoiler = Spoiler::start(self, means.deadline_ns).map_err(ArmError::Spoil)?;
        limit_to(&[])?;
        Ok(Box::new(spoiler))
    }
}

impl Armed for Spoiler {
    /// Each proxy is told, whatever became of the one before. One that cannot be told goes on until the old deadline.
    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        let told: Vec<_> = self.proxies.iter().map(|proxy| proxy.renew(deadline_ns)).collect();
        told.into_iter().collect::<io::Result<()>>().map_err(ArmError::Spoil)
    }

    /// Calls that matched, and those that something was done to.
    fn evidence(&self) -> Result<Evidence, ArmError> {
        let mut sum = Met::default();
        for proxy in &self.proxies {
            let (calls, affected) = proxy.tally().map_err(ArmError::Spoil)?;
            sum.matched += calls;
            sum.affected += affected;
        }
        Ok(Evidence::Met(sum))
    }
}
