//! What a test has for faults to be aimed at, and how a request names it.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::pair::INTERFACE;

/// A unit that no machine has.
pub(crate) const NOBODYS_UNIT: &str = "ct-nobodys.service";

/// Target and parameters of a fault.
pub(crate) type Request = (Value, Value);

/// Makes the request of a kind.
pub(crate) type ToRequest = fn(&Aims) -> Request;

/// What is there to be aimed at. All of it is the test's, or nobody's.
#[derive(Debug)]
pub(crate) struct Aims {
    /// Where devices and ports are meant, unless that is where the daemon is.
    pub(crate) netns: Option<String>,
    /// Packets to and from it are meant.
    pub(crate) peer: &'static str,
    /// It answers datagrams on this port, and takes connections.
    pub(crate) server: SocketAddr,
    /// Where the server's address is one of its own, unless that is where the daemon is.
    pub(crate) netns_of_server: Option<String>,
    /// A port that nobody has taken.
    pub(crate) port: u16,
    /// A service.
    pub(crate) unit: &'static str,
    /// A control group.
    pub(crate) group: String,
    /// A process.
    pub(crate) process: i32,
    /// A proxy of MCP.
    pub(crate) proxy: i32,
    /// A file that can be opened.
    pub(crate) file: PathBuf,
    /// A folder with room.
    pub(crate) folder: PathBuf,
}

impl Aims {
    /// A device.
    pub(super) fn device(&self) -> Value {
        let target = json!({"interface": INTERFACE});
        within(target, self.netns.as_deref())
    }

    /// Packets to and from the peer.
    pub(super) fn packets(&self) -> Value {
        let mut target = self.device();
        target["cidr"] = json!(self.peer);
        target
    }

    /// A port of TCP.
    pub(super) fn port(&self) -> Value {
        let target = json!({"local_port": self.port, "protocol": "tcp"});
        within(target, self.netns.as_deref())
    }

    /// The network namespace of devices and ports as a whole.
    pub(super) fn netns(&self) -> Value {
        within(json!({}), self.netns.as_deref())
    }

    /// Where the server is, which [`Aims::url`] names.
    pub(super) fn around_server(&self) -> Value {
        within(json!({}), self.netns_of_server.as_deref())
    }

    /// The server.
    pub(super) fn url(&self) -> String {
        format!("tcp://{}", self.server)
    }

    /// The service.
    pub(super) fn unit(&self) -> Value {
        json!({"unit": self.unit})
    }

    /// The control group.
    pub(super) fn group(&self) -> Value {
        json!({"cgroup": self.group})
    }

    /// The process.
    pub(super) fn process(&self) -> Value {
        json!({"pid": self.process})
    }

    /// The proxy.
    pub(super) fn proxy(&self) -> Value {
        json!({"pid": self.proxy})
    }
}

fn within(mut target: Value, netns: Option<&str>) -> Value {
    if let Some(netns) = netns {
        target["netns"] = json!(netns);
    }
    target
}

/// Aims the parameters of the daemon's own example at something that is there.
pub(crate) type Aim = fn(&Aims, Value) -> Request;

/// At the device.
pub(super) fn at_device(aims: &Aims, params: Value) -> Request {
    (aims.device(), params)
}

/// At the control group.
pub(super) fn at_group(aims: &Aims, params: Value) -> Request {
    (aims.group(), params)
}

/// At the process.
pub(super) fn at_process(aims: &Aims, params: Value) -> Request {
    (aims.process(), params)
}

/// At the service.
pub(super) fn at_unit(aims: &Aims, params: Value) -> Request {
    (aims.unit(), params)
}

/// At the host, of which a target says nothing.
pub(super) fn at_host(_: &Aims, params: Value) -> Request {
    (json!({}), params)
}
