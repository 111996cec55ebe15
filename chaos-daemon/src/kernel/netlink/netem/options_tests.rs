//! The bytes of netem's options are tc's.

use std::time::Duration;

use super::options::{Chance, Loss, Netem, QOPT};
use crate::spec::{Distribution, Probability};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// Length of two attributes of 64 bits.
const NANOSECONDS: usize = 24;

fn share(percent: f64) -> u32 {
    Probability::new("p", percent / 100.0).unwrap().threshold()
}

fn chance(percent: f64, correlation: f64) -> Chance {
    Chance { share: share(percent), correlation: share(correlation) }
}

/// What iproute2-6.1.0 (libbpf 1.1.2) sends as the value of TCA_OPTIONS, taken with
/// `strace -e sendmsg -xx -s 4096 tc qdisc add dev d0 root handle c4a0: netem ...`. Here it sends the structure
/// only, so that ours begins with it; the times in nanoseconds follow. The bytes are a little-endian machine's.
#[test]
fn the_structure_has_the_bytes_that_tc_sends() {
    let lossy = Netem {
        loss: Loss::Random(chance(1.5, 0.0)),
        duplicate: chance(2.0, 0.0),
        ..Netem::delay(MS(100), MS(10), 5000)
    };
    let golden: [(&str, Netem, &[u8; QOPT]); 5] = [
        (
            "delay 100ms 10ms limit 5000",
            Netem::delay(MS(100), MS(10), 5000),
            b"\x84\xd7\x17\x00\x88\x13\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x5a\x62\x02\x00",
        ),
        (
            "delay 100ms",
            Netem::delay(MS(100), MS(0), 1000),
            b"\x84\xd7\x17\x00\xe8\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        ),
        (
            "delay 5s limit 1000000",
            Netem::delay(MS(5000), MS(0), 1_000_000),
            b"\xc8\x17\xa8\x04\x40\x42\x0f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        ),
        (
            "delay 1us",
            Netem::delay(Duration::from_micros(1), MS(0), 1000),
            b"\x0f\x00\x00\x00\xe8\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        ),
        (
            "delay 100ms 10ms loss 1.5% duplicate 2% limit 5000",
            lossy,
            b"\x84\xd7\x17\x00\x88\x13\x00\x00\x3d\x0a\xd7\x03\x00\x00\x00\x00\x52\xb8\x1e\x05\x5a\x62\x02\x00",
        ),
    ];
    for (command, netem, bytes) in golden {
        let ours = netem.encode().unwrap();
        assert_eq!(&ours[..QOPT], bytes, "tc qdisc add dev d0 root handle c4a0: netem {command}");
        assert_eq!(Netem::decode(&ours).unwrap(), netem, "{command}");
    }
}

/// Taken likewise; what follows the structure follows the nanoseconds in ours. tc 6.1 forgets the correlation of
/// `duplicate` unless something else is correlated, too.
#[test]
fn the_attributes_behind_it_have_the_bytes_that_tc_sends() {
    let none = Netem { limit: 2000, ..Netem::default() };
    let golden: [(&str, Netem, &[u8]); 8] = [
        (
            "delay 100ms 10ms 25% limit 2000",
            Netem { delay_correlation: share(25.0), ..Netem::delay(MS(100), MS(10), 2000) },
            b"\x84\xd7\x17\x00\xd0\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x5a\x62\x02\x00\x10\x00\x01\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00\x00",
        ),
        (
            "loss 10% 20% duplicate 5% 10% limit 2000",
            Netem { loss: Loss::Random(chance(10.0, 20.0)), duplicate: chance(5.0, 10.0), ..none },
            b"\x00\x00\x00\x00\xd0\x07\x00\x00\x9a\x99\x99\x19\x00\x00\x00\x00\xcd\xcc\xcc\x0c\x00\x00\x00\x00\x10\x00\x01\x00\x00\x00\x00\x00\x33\x33\x33\x33\x9a\x99\x99\x19",
        ),
        (
            "loss gemodel 1% 10% 75% 0.1% limit 2000",
            Netem {
                loss: Loss::GilbertElliott {
                    p: share(1.0),
                    r: share(10.0),
                    h: u32::MAX - share(75.0),
                    k1: share(0.1),
                },
                ..none
            },
            b"\x00\x00\x00\x00\xd0\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x18\x00\x05\x80\x14\x00\x02\x00\x29\x5c\x8f\x02\x9a\x99\x99\x19\x00\x00\x00\x40\x37\x89\x41\x00",
        ),
        (
            "loss state 1% 10% 25% 50% 2% limit 2000",
            Netem {
                loss: Loss::FourState {
                    p13: share(1.0),
                    p31: share(10.0),
                    p32: share(25.0),
                    p23: share(50.0),
                    p14: share(2.0),
                },
                ..none
            },
            b"\x00\x00\x00\x00\xd0\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x1c\x00\x05\x80\x18\x00\x01\x00\x29\x5c\x8f\x02\x9a\x99\x99\x19\x00\x00\x00\x40\x52\xb8\x1e\x05\x00\x00\x00\x80",
        ),
        (
            "delay 10ms reorder 25% 50% gap 5 limit 2000",
            Netem { reorder: chance(25.0, 50.0), gap: 5, ..Netem::delay(MS(10), MS(0), 2000) },
            b"\x5a\x62\x02\x00\xd0\x07\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0c\x00\x03\x00\x00\x00\x00\x40\x00\x00\x00\x80",
        ),
        (
            "corrupt 5% limit 2000",
            Netem { corrupt: chance(5.0, 0.0), ..none },
            b"\x00\x00\x00\x00\xd0\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0c\x00\x04\x00\xcd\xcc\xcc\x0c\x00\x00\x00\x00",
        ),
        (
            "rate 1mbit limit 2000",
            Netem { rate: 125_000, ..none },
            b"\x00\x00\x00\x00\xd0\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x14\x00\x06\x00\x48\xe8\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        ),
        (
            "rate 40gbit limit 2000",
            Netem { rate: 5_000_000_000, ..none },
            b"\x00\x00\x00\x00\xd0\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0c\x00\x08\x00\x00\xf2\x05\x2a\x01\x00\x00\x00\x14\x00\x06\x00\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        ),
    ];
    for (command, netem, bytes) in golden {
        let ours = netem.encode().unwrap();
        let behind = QOPT + NANOSECONDS;
        assert_eq!(&ours[..QOPT], &bytes[..QOPT], "{command}");
        assert_eq!(&ours[behind..], &bytes[QOPT..], "{command}");
        assert_eq!(Netem::decode(&ours).unwrap(), netem, "{command}");
        // What the kernel gives back has no structure of ours around it: tc's own bytes mean the same.
        assert_eq!(Netem::decode(bytes).unwrap(), netem, "{command}");
        assert_eq!(
            command.replace("1mbit", "125000bps").replace("40gbit", "5000000000bps"),
            netem.to_string()
        );
    }
}

/// The kernel takes a table, and gives none back. tc sends the same attribute, with entries from a file.
#[test]
fn a_distribution_is_sent_and_not_expected_back() {
    let netem = Netem { distribution: Distribution::Normal, ..Netem::delay(MS(100), MS(10), 2000) };
    let bytes = netem.encode().unwrap();
    // Length 8196, type 2: 4096 entries of 16 bits.
    assert_eq!(bytes[QOPT + NANOSECONDS..][..4], *b"\x04\x20\x02\x00");
    assert_eq!(bytes.len(), QOPT + NANOSECONDS + 8196);
    assert_eq!(Netem::decode(&bytes).unwrap(), netem.as_read_back());
}

#[test]
fn the_nanoseconds_follow_the_structure() {
    let bytes = Netem::delay(MS(100), MS(10), 5000).encode().unwrap();
    // struct nlattr: length 12, type; then 100,000,000 and 10,000,000 in 64 bits.
    let expected =
        b"\x0c\x00\x0a\x00\x00\xe1\xf5\x05\x00\x00\x00\x00\x0c\x00\x0b\x00\x80\x96\x98\x00\x00\x00\x00\x00";
    assert_eq!(&bytes[QOPT..], expected);
}

#[test]
fn without_nanoseconds_the_ticks_are_read() {
    let bytes = Netem::delay(MS(100), MS(10), 5000).encode().unwrap();
    assert_eq!(Netem::decode(&bytes[..QOPT]).unwrap(), Netem::delay(MS(100), MS(10), 5000));
    assert!(Netem::decode(&bytes[..QOPT - 1]).is_err());
    assert!(Netem::decode(&bytes[..QOPT + 5]).is_err());
}

#[test]
fn a_value_that_the_kernel_would_change_in_silence_is_refused() {
    let over = Netem::LONGEST_JITTER + Duration::from_nanos(1);
    assert!(Netem::delay(MS(5000), over, 10).encode().unwrap_err().contains("a jitter of"));
    assert!(Netem::delay(MS(5000), Netem::LONGEST_JITTER, 10).encode().is_ok());
    assert!(Netem::delay(MS(1), MS(0), 0).encode().unwrap_err().contains("limit"));
    assert!(Netem::delay(Duration::MAX, MS(0), 1).encode().unwrap_err().contains("a delay of"));
}
