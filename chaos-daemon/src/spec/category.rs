//! What faults are about, to find one by. The words are those that shipped experiments have as tags.

use serde::Serialize;

use super::fault_type::FaultType;

/// What a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// What is sent between hosts and services.
    Network,
    /// What there is only so much of.
    Resources,
    /// Calls and questions that are answered wrongly.
    Errors,
    /// Processes and services.
    Process,
    /// The host as a whole.
    Host,
}

impl Category {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Resources => "resources",
            Self::Errors => "errors",
            Self::Process => "process",
            Self::Host => "host",
        }
    }
}

impl FaultType {
    /// What it is about, the most important first.
    pub fn categories(self) -> &'static [Category] {
        match self {
            Self::Latency
            | Self::Timeout
            | Self::NetworkPartition
            | Self::PacketLoss
            | Self::PacketDuplicate
            | Self::PacketCorrupt
            | Self::PacketReorder
            | Self::Bandwidth
            | Self::LinkDown => &[Category::Network],
            Self::Error | Self::DnsError | Self::ConnectError | Self::SocketError => {
                &[Category::Network, Category::Errors]
            }
            Self::FileError | Self::McpError => &[Category::Errors],
            Self::ResourceExhaustion => &[Category::Resources],
            Self::PortInUse | Self::ConnectionLoad => &[Category::Resources, Category::Network],
            Self::Pause
            | Self::ProcessKill
            | Self::ProcessPause
            | Self::ServiceStop
            | Self::ServiceRestart => &[Category::Process],
            Self::ClockSkew | Self::HostReboot | Self::HostPanic => &[Category::Host],
        }
    }
}
