//! How it shows that a fault acts. Whoever looks has the means: a bench (`sweep/bench/signs.rs`), or a dense flow of packets (`kills`).

/// How it shows that a fault acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// A datagram does not come back, or late.
    Echoes,
    /// The same of most datagrams: it is a matter of chance.
    SomeEchoes,
    /// A datagram comes back twice.
    Twins,
    /// A connection is reset.
    Resets,
    /// A question about a name is answered by somebody else than whom it is sent to.
    Questions,
    /// A call of a process in a control group fails.
    Calls,
    /// A datagram of such a process does not come back, or late.
    Trips,
    /// What such a process asks of a file fails.
    Files,
    /// A call to an MCP server behind a proxy fails.
    Proxy,
    /// A process is traced, and stands still.
    Traced,
    /// A process that was stopped has gone on.
    Continued,
    /// A port cannot be bound.
    Port,
    /// A server has so many clients.
    Clients(usize),
    /// A process of the daemon's holds what is taken, and with its end all of it is free.
    Holder,
    /// Such a process has taken so much.
    Holds(Thing, u64),
}

/// What a process takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thing {
    /// Nanoseconds on a processor, since it is looked.
    Time,
    /// Bytes read and written, since it is looked.
    Transfer,
    /// Bytes of memory.
    Memory,
    /// Threads.
    Threads,
    /// Descriptors.
    Descriptors,
    /// Sockets.
    Sockets,
    /// Files without a name in the folder.
    Files,
    /// Bytes of these.
    Room,
}
