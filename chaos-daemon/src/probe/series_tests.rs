//! Tests of series.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::probe::arguments::read;
use crate::waits::HANG;

fn series(terms: Terms<'_>) -> Series {
    Series::new(Check::tcp("", "127.0.0.1:1").unwrap(), terms).unwrap()
}

fn judged(measure: &str, asked: u64, answered: u32) -> Option<f64> {
    let times = (1..=answered).rev().map(f64::from).collect();
    let tally = Tally { asked, times, why: None, lasted: Duration::from_secs(2) };
    series(Terms { measure: Some(measure), ..Terms::default() }).judge(tally).ok()?.value
}

#[test]
fn a_share_a_percentile_and_a_rate_are_those_of_all_that_were_asked() {
    for (measure, asked, answered, value) in [
        ("failed_percent", 40, 39, Some(2.5)),
        ("failed_percent", 40, 0, Some(100.0)),
        ("failed_percent", 40, 40, Some(0.0)),
        ("failed_percent", 0, 0, None),
        ("per_second", 40, 30, Some(15.0)),
        // Nobody answers: that is no number of answers.
        ("per_second", 40, 0, None),
        ("p50", 100, 60, Some(50.0)),
        ("p99", 100, 99, Some(99.0)),
        // What failed is slower than all that was answered.
        ("p99", 100, 98, None),
        ("max", 10, 10, Some(10.0)),
    ] {
        assert_eq!(judged(measure, asked, answered), value, "{measure} of {answered} of {asked}");
    }
}

#[test]
fn what_cannot_be_asked_so_is_named() {
    let wrong = |terms| Series::new(Check::tcp("", "127.0.0.1:1").unwrap(), terms).unwrap_err().field;
    let none = Terms::default();
    let second = Some(Duration::from_secs(1));
    for (terms, field) in [
        (Terms { samples: Some(0), ..none }, "--samples"),
        (Terms { samples: Some(MOST_SAMPLES + 1), ..none }, "--samples"),
        (Terms { samples: Some(1), rate: Some(1), ..none }, "--samples"),
        (Terms { rate: Some(0), ..none }, "--rate"),
        (Terms { rate: Some(MOST_RATE + 1), window: second, ..none }, "--rate"),
        (Terms { rate: Some(2), window: Some(Duration::from_millis(400)), ..none }, "--window"),
        (Terms { each: Some(Duration::ZERO), ..none }, "--each"),
        (Terms { measure: Some("p42"), ..none }, "--measure"),
    ] {
        assert_eq!(wrong(terms), field, "{terms:?}");
    }
    let words = |line: &str| read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    for (line, why) in [
        ("series", "give --http"),
        ("series --tcp 127.0.0.1:1 --rate 5 --window 3s", "--timeout"),
        ("series --rate 5 -- /bin/true", "by --samples"),
        ("series --tcp 127.0.0.1:1 --measure failed_percent --min 101", "is never reached"),
        ("series --tcp 127.0.0.1:1 --measure p99 --each 100ms --min 100", "is never reached"),
        ("series --tcp 127.0.0.1:1 --status 200", "--http"),
    ] {
        let problem = words(line).unwrap_err();
        assert!(problem.contains(why), "{line}: {problem}");
    }
    let usual = words("series --http http://127.0.0.1:1/ --rate 20").unwrap();
    assert_eq!(usual.bounds, Bounds { min: None, max: Some(0.0) });
    assert_eq!(usual.check.to_string(), "failed_percent of 20 times a second GET http://127.0.0.1:1/");
    assert_eq!(words("series --measure p99 -- /bin/true").unwrap().bounds, Bounds::default());
}

/// Answers every fourth request with an error, and counts them.
async fn one_in_four_fails() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, count) = (format!("http://{}/", listener.local_addr().unwrap()), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let status = if counted.fetch_add(1, Ordering::SeqCst) % 4 == 3 { "500 No" } else { "200 OK" };
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream
                    .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())
                    .await;
            });
        }
    });
    (url, count)
}

async fn taken(check: Check, terms: Terms<'_>, timeout: Duration) -> Sample {
    let check = Check::Series(Series::new(check, terms).unwrap());
    let bounds = check.usual_bounds();
    Probe { check, timeout, bounds }.sample().await
}

#[tokio::test]
async fn the_share_that_fails_is_measured_in_turn_and_at_a_rate() {
    let (url, count) = one_in_four_fails().await;
    let check = || Check::http("", &url, Vec::new()).unwrap();
    let in_turn = taken(check(), Terms { samples: Some(20), ..Terms::default() }, HANG).await;
    assert_eq!((in_turn.value, in_turn.ok), (Some(25.0), false), "{}", in_turn.detail);
    assert_eq!(count.swap(0, Ordering::SeqCst), 20);
    let window = Some(Duration::from_millis(400));
    let steady = taken(check(), Terms { rate: Some(50), window, ..Terms::default() }, HANG).await;
    assert_eq!((steady.value, count.load(Ordering::SeqCst)), (Some(25.0), 20), "{}", steady.detail);
    assert!(steady.detail.contains("5 of 20 failed (25.0 %)"), "{}", steady.detail);
    assert!(steady.detail.contains("status 500"), "{}", steady.detail);
}

#[tokio::test]
async fn a_service_that_hangs_gets_no_more_connections_than_a_series_may_have_and_what_is_not_asked_has_failed()
 {
    // Accepted by the kernel, and never answered.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let check = Check::http("", &url, Vec::new()).unwrap();
    let terms = Terms { rate: Some(200), window: Some(Duration::from_millis(500)), ..Terms::default() };
    let sample = tokio::time::timeout(HANG, taken(check, terms, Duration::from_secs(1))).await.unwrap();
    assert_eq!(sample.value, Some(100.0), "{}", sample.detail);
    assert!(sample.detail.contains("100 of 100 failed"), "{}", sample.detail);
    let connections = std::iter::from_fn(|| listener.accept().ok()).count();
    assert_eq!(connections, MOST_AT_ONCE);
}

#[tokio::test]
async fn what_takes_longer_than_each_may_has_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let check = Check::http("", &url, Vec::new()).unwrap();
    let each = Some(Duration::from_millis(50));
    let sample = taken(check, Terms { samples: Some(3), each, ..Terms::default() }, HANG).await;
    assert_eq!(sample.value, Some(100.0), "{}", sample.detail);
    assert!(sample.took < Duration::from_secs(10), "{:?}", sample.took);
}
