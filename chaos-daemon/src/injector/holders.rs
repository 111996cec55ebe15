//! Holders as the injector sees them: started, given work, kept alive by heartbeats, ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::child::{collect, ended, kill, start_child, status};
use crate::fault::Work;
use crate::holder::protocol::frame;
use crate::holder::{Lease, Order, Preload, Report, Unreached};
use crate::host::NetNs;
use crate::kernel::process::ProcessId;
use crate::request::descriptors::send_with_fd;

/// No report is longer, in bytes; a verifier's log is what comes close.
const LONGEST_REPORT: u32 = 16 << 20;
/// How long a holder may take to load its programs, or to answer an order. The verifier takes a second of those that read
/// names, and half a minute where the processor is emulated and busy.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A running holder. Dropping it kills the process, and with it the fault.
#[derive(Debug)]
pub struct Holder {
    child: Child,
    orders: OwnedWriteHalf,
    reports: mpsc::UnboundedReceiver<io::Result<Report>>,
    /// Its identity, for the journal.
    pub id: ProcessId,
}

/// Why a holder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HolderFailure {
    /// It could not be started.
    #[error("start a holder")]
    Start(#[source] io::Error),
    /// It ended, or its socket failed.
    #[error("talk to the holder")]
    Socket(#[source] io::Error),
    /// It did not answer in time.
    #[error("the holder did not answer in time")]
    Silent,
    /// It says why it could not do its work.
    #[error("{0}")]
    Refused(String),
    /// It says why it could not reach, as the caller, what that has named.
    #[error("{0}")]
    Unreached(String, Unreached),
}

impl HolderFailure {
    /// In a sentence, for people.
    pub fn words(&self) -> String {
        match self {
            Self::Start(source) | Self::Socket(source) => format!("{self}: {source}"),
            Self::Silent | Self::Refused(_) | Self::Unreached(..) => self.to_string(),
        }
    }
}

impl Holder {
    /// Starts a holder, and waits until it can be given work; with `preload`, until it has loaded its packet programs.
    /// Must be called on the main thread: the parent-death signal is bound to the thread that starts the child
    /// (prctl(2)).
    ///
    /// # Errors
    /// When the process cannot be started, or ends instead.
    pub async fn start(preload: Option<Preload>) -> Result<Self, HolderFailure> {
        let arguments: &[_] = if preload.is_some() { &["holder", "--packets"] } else { &["holder"] };
        let mut holder = Self::spawn(arguments)?;
        if let Some(preload) = preload {
            holder.order(&Order::Load(preload)).await?;
        }
        holder.ready().await
    }

    /// Starts the keeper of the packet hooks, see [`crate::holder::keeper`].
    ///
    /// # Errors
    /// As [`Holder::start`].
    pub async fn start_keeper() -> Result<Self, HolderFailure> {
        Self::spawn(&["keeper"])?.ready().await
    }

    async fn ready(mut self) -> Result<Self, HolderFailure> {
        match self.answer().await? {
            Report::Ready => Ok(self),
            other => Err(HolderFailure::Refused(format!("expected ready, got {other:?}"))),
        }
    }

    fn spawn(arguments: &[&str]) -> Result<Self, HolderFailure> {
        let (ours, theirs) = StdUnixStream::pair().map_err(HolderFailure::Start)?;
        ours.set_nonblocking(true).map_err(HolderFailure::Start)?;
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let child = start_child(command, vec![theirs.into()]).map_err(HolderFailure::Start)?;
        let pid = child.id().unwrap_or_default().cast_signed();
        let id = ProcessId::of(pid).map_err(|error| HolderFailure::Start(io::Error::other(error)))?;
        let (reader, orders) = UnixStream::from_std(ours).map_err(HolderFailure::Start)?.into_split();
        let (sender, reports) = mpsc::unbounded_channel();
        tokio::task::spawn_local(read_reports(reader, sender));
        Ok(Self { child, orders, reports, id })
    }

    /// Whether it has not ended.
    pub fn runs(&self) -> bool {
        matches!(status(&self.child), Ok(None))
    }

    /// Gives it work, and waits until the work is applied and read back, or refused.
    ///
    /// # Errors
    /// Says what failed. The holder must be dropped then.
    pub async fn arm(
        &mut self,
        work: &Work,
        lease: Lease,
        netns: Option<&NetNs>,
    ) -> Result<Report, HolderFailure> {
        let order = Order::Arm { work: Box::new(work.clone()), lease };
        let bytes = frame(&order).map_err(HolderFailure::Socket)?;
        self.send_bytes(&bytes, netns.map(AsFd::as_fd)).await.map_err(HolderFailure::Socket)?;
        self.answer().await
    }

    /// Sends an order without waiting for its report.
    ///
    /// # Errors
    /// When the socket fails.
    pub async fn order(&mut self, order: &Order) -> Result<(), HolderFailure> {
        let bytes = frame(order).map_err(HolderFailure::Socket)?;
        self.send_bytes(&bytes, None).await.map_err(HolderFailure::Socket)
    }

    /// The next report. Cancelling it loses nothing.
    ///
    /// # Errors
    /// When the holder has ended.
    pub async fn report(&mut self) -> Result<Report, HolderFailure> {
        match self.reports.recv().await {
            Some(report) => report.map_err(HolderFailure::Socket),
            None => Err(HolderFailure::Socket(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// The next report, waited for no longer than an answer may take; a refusal is an error.
    ///
    /// # Errors
    /// When the holder has ended, is silent, or refuses.
    pub async fn answer(&mut self) -> Result<Report, HolderFailure> {
        self.answer_within(ANSWER_LIMIT).await
    }

    /// As [`Holder::answer`], with a limit of one's own.
    ///
    /// # Errors
    /// As [`Holder::answer`].
    pub async fn answer_within(&mut self, limit: Duration) -> Result<Report, HolderFailure> {
        match tokio::time::timeout(limit, self.report()).await {
            Err(_) => Err(HolderFailure::Silent),
            Ok(Ok(Report::Failed { message, unreached: None })) => Err(HolderFailure::Refused(message)),
            Ok(Ok(Report::Failed { message, unreached: Some(why) })) => {
                Err(HolderFailure::Unreached(message, why))
            }
            Ok(other) => other,
        }
    }

    /// Kills it and waits until it is gone, but not for one that hangs in the kernel: that is collected whenever it ends, and the
    /// journal's step of it says until then that it is there.
    pub async fn end(mut self) {
        kill(&mut self.child, "holder");
        collect(self.child, "holder").await;
    }

    /// Waits until it has ended by itself, killing it after `limit`.
    pub async fn finish(mut self, limit: Duration) {
        if tokio::time::timeout(limit, ended(&mut self.child)).await.is_err() {
            return self.end().await;
        }
        collect(self.child, "holder").await;
    }

    async fn send_bytes(&mut self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut sent = 0;
        while let (Some(fd), 0) = (fd, sent) {
            let socket: &UnixStream = self.orders.as_ref();
            socket.writable().await?;
            match socket.try_io(Interest::WRITABLE, || send_with_fd(socket.as_fd(), bytes, fd)) {
                Ok(count) => sent = count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        self.orders.write_all(&bytes[sent..]).await
    }
}

/// Reads reports until the holder's end of the socket closes.
async fn read_reports(mut reader: OwnedReadHalf, reports: mpsc::UnboundedSender<io::Result<Report>>) {
    loop {
        let report = read_report(&mut reader).await;
        let last = report.is_err();
        if reports.send(report).is_err() || last {
            return;
        }
    }
}

async fn read_report(reader: &mut OwnedReadHalf) -> io::Result<Report> {
    let length = reader.read_u32_le().await?;
    if length > LONGEST_REPORT {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a report of {length} bytes is too long"),
        ));
    }
    let mut body = vec![0; length as usize];
    reader.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}
