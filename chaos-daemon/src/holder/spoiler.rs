//! Having proxies spoil calls to MCP servers.

use std::io;

use crate::fault::SpoilWork;
use crate::kernel::proxy::{Proxy, bytes};
use crate::request::Evidence;

/// Proxies that obey this process until the deadline, or until the value is dropped.
#[derive(Debug)]
pub struct Spoiler {
    proxies: Vec<Proxy>,
}

impl Spoiler {
    /// Claims every proxy, and only then has them begin.
    ///
    /// # Errors
    /// When none is there any more, or one of them cannot be told or obeys another fault.
    pub fn start(work: &SpoilWork, deadline_ns: u64) -> io::Result<Self> {
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

    /// Goes on until `deadline_ns`; 0 ends it. Each is told whatever became of the one before.
    ///
    /// # Errors
    /// When one cannot be told; it goes on until the old deadline.
    pub fn renew(&self, deadline_ns: u64) -> io::Result<()> {
        let told: Vec<_> = self.proxies.iter().map(|proxy| proxy.renew(deadline_ns)).collect();
        told.into_iter().collect()
    }

    /// Calls that matched, and those that something was done to.
    ///
    /// # Errors
    /// When a proxy's count cannot be read.
    pub fn evidence(&self) -> io::Result<Evidence> {
        let mut sum = Evidence::default();
        for proxy in &self.proxies {
            let (calls, affected) = proxy.tally()?;
            sum.matched += calls;
            sum.affected += affected;
        }
        Ok(sum)
    }
}
