//! A connection on which HTTP/1.1 is spoken, and which stays open after an answer.

use std::error::Error as _;
use std::io;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::session::{Stream, answering, timed};
use super::tally::{Outcome, Tally, Timed};
use crate::spec::sessions::Place;

/// No answer that has to be understood is longer, in bytes.
const LONGEST: usize = 4 << 20;

/// The connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Http {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinSet<()>,
    host: String,
}

impl Http {
    /// Takes a connected socket over.
    pub(super) async fn new(stream: Box<dyn Stream>, place: &Place) -> Result<Self, Outcome> {
        let io = TokioIo::new(stream);
        let (sender, connection) = http1::handshake(io).await.map_err(|error| why(&error))?;
        let mut driver = JoinSet::new();
        // Why it ended is told to who waits for an answer.
        driver.spawn(async move { drop(connection.await) });
        let host = match place {
            Place::Tcp(address) => address.to_string(),
            Place::Unix(_) => "localhost".to_owned(),
        };
        Ok(Self { sender, driver, host })
    }

    /// A GET, whose answer is read to its end and not kept.
    pub(super) async fn get(&mut self, path: &str, tally: &Tally) -> Result<(), Outcome> {
        let request = self.request("GET", path).body(Full::default());
        let response = self.ask(request, tally).await?;
        let status = response.status();
        let mut body = response.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame.map_err(|error| why(&error))?.data_ref().map_or(0, Bytes::len);
        }
        let says_nothing = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT].contains(&status);
        if status.is_success() && length == 0 && !says_nothing {
            return Err(Outcome::Empty);
        }
        Ok(())
    }

    /// The beginning of a request.
    pub(super) fn request(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        let agent = concat!("chaos-daemon/", env!("CARGO_PKG_VERSION"));
        let request = Request::builder().method(method).uri(path);
        request.header(header::HOST, &self.host).header(header::USER_AGENT, agent)
    }

    /// Sends a request, and waits for the head of its answer; a status that says no is an error.
    pub(super) async fn ask(
        &mut self,
        request: hyper::http::Result<Request<Full<Bytes>>>,
        tally: &Tally,
    ) -> Result<Response<Incoming>, Outcome> {
        let request = request.map_err(|_invalid| Outcome::Unopened)?;
        let answer = async {
            self.sender.ready().await.map_err(|error| why(&error))?;
            self.sender.send_request(request).await.map_err(|error| why(&error))
        };
        let response = timed(tally, Timed::FirstByte, answer).await?;
        let no = response.status().is_client_error() || response.status().is_server_error();
        if no { Err(Outcome::ErrorAnswer) } else { Ok(response) }
    }

    /// Waits until the server closes it.
    pub(super) async fn closed(&mut self) -> Outcome {
        self.driver.join_next().await;
        Outcome::Lost
    }
}

/// All of an answer.
pub(super) async fn whole(body: Incoming) -> Result<Bytes, Outcome> {
    let collected = Limited::new(body, LONGEST).collect().await;
    Ok(collected.map_err(|_cut| Outcome::ErrorAnswer)?.to_bytes())
}

/// Why no answer came.
fn why(error: &hyper::Error) -> Outcome {
    // The server has closed it without a byte, before or after it had the request.
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return Outcome::Empty;
    }
    error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .map_or(Outcome::ErrorAnswer, answering)
}
