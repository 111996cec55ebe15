//! The stage of a service that is stopped. Needs a systemd that is the test's own.

use crate::Result;
use crate::fault::Fault;
use crate::process::Process;
use crate::systemd::service::Service;

use super::stage::Stage;

const NAME: &str = "chaos-struck.service";
/// `Restart=always`: who stops it has to do so by systemd. It is started more often than systemd usually lets a service be.
const UNIT: &str = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=exec\nExecStart=sleep infinity\n\
                    Restart=always\nRestartSec=200ms\n";
/// What has to be as before. That comes first which the fault changes.
const PROPERTIES: &str = "ActiveState,Job,LoadState,NRestarts,Result,SubState,UnitFileState";

pub(crate) fn stopped() -> Result<Box<dyn Stage>> {
    Ok(Box::new(Stopped(Service::start(NAME, UNIT)?)))
}

struct Stopped(Service);

impl Stage for Stopped {
    fn fault(&self) -> Fault {
        Fault::new("service_stop").aimed(serde_json::json!({"unit": NAME}))
    }

    fn acts(&mut self) -> Result<bool> {
        // By the kernel: its process, if there is one, runs.
        Ok(!Process::read(self.0.pid()).is_some_and(|process| process.runs()))
    }

    fn picture(&self) -> Result<String> {
        self.0.properties(PROPERTIES)
    }
}
