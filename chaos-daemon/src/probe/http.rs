//! The HTTP sample: one GET, without proxies or redirects, so that what answers is what was asked.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Gets `url`. `Ok` and `Err` both say what was seen; `Ok` means that the status was right.
pub(super) async fn get(url: &str, status: &[u16], limit: Duration) -> Result<String, String> {
    let (url, status) = (url.to_owned(), status.to_vec());
    let blocking = spawn_blocking(move || fetch(&url, &status, limit));
    // The client's own limit does not cover a name service that hangs; ours does, at the price of a thread
    // that outlives the sample.
    match timeout(limit + Duration::from_millis(250), blocking).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => Err(format!("the probe broke: {error}")),
        Err(_) => Err(format!("no answer within {limit:?}")),
    }
}

fn fetch(url: &str, status: &[u16], limit: Duration) -> Result<String, String> {
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .build()
        .new_agent();
    let seen = agent.get(url).call().map_err(|error| error.to_string())?.status();
    let right = if status.is_empty() { seen.is_success() } else { status.contains(&seen.as_u16()) };
    match right {
        true => Ok(format!("status {}", seen.as_u16())),
        false if status.is_empty() => Err(format!("status {}, where 2xx is right", seen.as_u16())),
        false => Err(format!("status {}, where {status:?} is right", seen.as_u16())),
    }
}
