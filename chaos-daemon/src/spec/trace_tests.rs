//! What traces are taken for, and what is refused.

use super::*;

const CLEAR: OneWay =
    OneWay { delay: Duration::ZERO, jitter: Duration::ZERO, loss: Probability::NEVER, kbit: None };

fn read(text: &str, period: Option<u64>) -> Result<Trace, String> {
    let told = Told::read("params.up_trace", text, period.map(Duration::from_millis));
    told.and_then(|told| told.over("params.up_trace", CLEAR)).map_err(|error| error.to_string())
}

/// Milliseconds and rate of each step.
fn rates(text: &str, period: Option<u64>) -> Vec<(u128, u64)> {
    let steps = read(text, period).unwrap().steps;
    steps.iter().map(|step| (step.lasts.as_millis(), step.way.kbit.unwrap())).collect()
}

#[test]
fn a_row_holds_until_the_next_and_the_last_as_long_as_the_one_before_or_until_the_period_ends() {
    let text = "# a train\ntime_s,rate_kbit\n0,2000\n\n1, 8000\r\n1.5,1000\n";
    assert_eq!(rates(text, None), [(1000, 2000), (500, 8000), (500, 1000)]);
    assert_eq!(rates(text, Some(10_000)), [(1000, 2000), (500, 8000), (8500, 1000)]);
    assert_eq!(rates("time_s,rate_kbit\n0,64", None), [(1000, 64)]);
    assert_eq!(rates("time_s,rate_kbit\n0,64\n1,64\n2,0", None), [(2000, 64), (1000, 0)], "alike are one");
}

#[test]
fn columns_are_known_by_their_names_and_what_has_none_is_as_it_was() {
    let way = OneWay { jitter: Duration::from_millis(30), kbit: Some(64), ..CLEAR };
    let told = Told::read("f", "loss_percent,time_s,delay_ms\n0,0,10\n2.5,1,40", None).unwrap();
    assert_eq!(told.quantities().collect::<Vec<_>>(), ["delay_ms", "loss_percent"]);
    let steps = told.over("f", way).unwrap().steps;
    let ms = Duration::from_millis;
    assert_eq!((steps[0].way.delay, steps[0].way.jitter, steps[0].way.kbit), (ms(10), ms(10), Some(64)));
    assert_eq!((steps[1].way.delay, steps[1].way.jitter), (ms(40), ms(30)));
    assert!((steps[1].way.loss.get() - 0.025).abs() < 1e-9 && steps[0].way.loss == Probability::NEVER);
}

#[test]
fn deliveries_are_counted_in_tenths_of_a_second_until_the_last_one() {
    // One full frame in a tenth of a second is 121.12 kbit/s.
    assert_eq!(rates("0\n50\n100\n250\n301\n400", None), [(100, 363), (100, 0), (100, 121), (100, 242)]);
    assert_eq!(rates("1", None), [(1, 12_112)], "a rate that stays");
    assert_eq!(rates("1\n1", Some(1000)), [(100, 242), (900, 0)], "nothing comes after its end");
    assert_eq!(rates("100\n350", None), [(116, 104), (116, 0), (116, 104)], "equal windows");
}

#[test]
fn a_long_trace_of_deliveries_has_longer_windows_and_as_many_packets() {
    let lines: Vec<_> = (1..=9000).map(|line| (line * 100 - line % 7).to_string()).collect();
    let steps = read(&lines.join("\n"), None).unwrap().steps;
    assert!(steps.len() <= MOST_STEPS, "{}", steps.len());
    let bits: f64 = steps.iter().map(|step| step.lasts.as_secs_f64() * step.way.kbit.unwrap() as f64).sum();
    assert!((bits / (9000.0 * 12.112) - 1.0).abs() < 0.01, "{bits}");
}

#[test]
fn a_shorter_text_of_deliveries_says_the_same() {
    let lines: Vec<_> = (1..=19_500).filter(|ms| ms / 500 % 3 != 1).map(|ms| ms.to_string()).collect();
    let text = lines.join("\n");
    let short = shortened(&text, None).unwrap();
    assert!(short.len() < text.len() / 20, "{}", short.len());
    assert_eq!(read(&short, None), read(&text, None));
    let short = shortened(&text, Some(Duration::from_secs(60))).unwrap();
    assert_eq!(read(&short, Some(60_000)), read(&text, Some(60_000)), "also with a pause at its end");
    assert_eq!(shortened("time_s,rate_kbit\n0,64", None), None);
}

#[test]
fn what_is_no_trace_is_refused_by_its_line() {
    for (text, says) in [
        ("", "is empty"),
        ("# nothing\n\n", "is empty"),
        ("@up.csv", "line 1: \"@up.csv\" is no column"),
        ("@up.csv", "only `chaosctl inject` and `chaosctl targets` read a @FILE"),
        (
            "time_s,speed\n0,1",
            "line 1: \"speed\" is no column: give time_s, and of rate_kbit, delay_ms, loss_percent",
        ),
        ("rate_kbit\n8", "line 1: the column time_s is missing"),
        ("time_s\n0", "line 1: no column beside time_s"),
        ("time_s,rate_kbit,rate_kbit\n0,8,8", "line 1: the column rate_kbit is there twice"),
        ("time_s,rate_kbit", "has no row"),
        ("time_s,rate_kbit\n0,8,9", "line 2: 3 values for 2 columns"),
        ("time_s,rate_kbit\n0,", "line 2: rate_kbit: \"\" is no number"),
        ("time_s,rate_kbit\n0,8\nx,8", "line 3: time_s: \"x\" is no number"),
        ("time_s,rate_kbit\n0,NaN", "line 2: rate_kbit: NaN is out of bounds: give 8 to 100000000, or 0"),
        ("time_s,rate_kbit\n0,7", "line 2: rate_kbit: 7 is out of bounds"),
        ("time_s,rate_kbit\n0,-1", "line 2: rate_kbit: -1 is out of bounds"),
        ("time_s,rate_kbit\n0,inf", "line 2: rate_kbit: inf is out of bounds"),
        ("time_s,delay_ms\n0,20001", "line 2: delay_ms: 20001 is out of bounds: give 0 to 20000"),
        ("time_s,loss_percent\n0,101", "line 2: loss_percent: 101 is out of bounds: give 0 to 100"),
        ("time_s,loss_percent\n-1,1", "line 2: time_s: -1 is out of bounds: give 0 to 3600"),
        ("time_s,loss_percent\n1,1", "line 2: the first row is at 1s: let it be at 0"),
        ("time_s,loss_percent\n0,1\n2,1\n1,1", "line 4: time does not go on, from 2s to 1s"),
        ("time_s,loss_percent\n0,1\n0.05,1", "line 3: 50ms after the row before: 100ms is the least"),
        ("time_s,loss_percent\n0,1\n3600,2", "its last row is at 3600s"),
        ("1\n2\nx", "line 3: \"x\" is no whole number of milliseconds"),
        ("1\n2.5", "line 2: \"2.5\" is no whole number of milliseconds"),
        ("5\n4", "line 2: time goes back, from 5 to 4 ms"),
        ("3600001", "line 1: 3600001 ms is more than 3600 s"),
        ("99999999999999999999", "line 1: \"99999999999999999999\" is no whole number"),
        ("0\n0", "its last line is at 0 ms"),
    ] {
        let error = read(text, None).unwrap_err();
        assert!(error.starts_with("params.up_trace: ") && error.contains(says), "{text:?}: {error}");
    }
    for (text, period, says) in [
        ("time_s,rate_kbit\n0,8\n2,9", 2000, "its last row is at 2s: the period of 2s"),
        ("1\n5000", 1000, "its last line is at 5s, after the period of 1s"),
    ] {
        let error = read(text, Some(period)).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_trace_cuts_off_where_all_is_lost_or_nothing_gets_through_for_a_second() {
    let cuts_off = |text| read(text, None).unwrap().cuts_off();
    assert!(cuts_off("time_s,loss_percent\n0,0\n1,100"));
    assert!(cuts_off("time_s,rate_kbit\n0,8\n1,0"));
    assert!(cuts_off("time_s,rate_kbit,delay_ms\n0,8,0\n1,0,0\n1.6,0,5\n2.2,8,0"));
    assert!(cuts_off("time_s,rate_kbit\n0,0\n0.6,8\n2,0\n2.6,0"));
    assert!(!cuts_off("time_s,rate_kbit\n0,8\n0.9,0"));
}
