//! Tests of questions about names: how they are read, which names are met, and what they become.

use super::*;
use proptest::prelude::*;

/// A name as it is sent.
fn wire(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> =
        labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}

fn message(name: &[u8], kind: u8, rest: &[u8]) -> Vec<u8> {
    let additional = u8::from(!rest.is_empty());
    let head = [0xab, 0xcd, 0x01, 0x10, 0, 1, 0, 0, 0, 0, 0, additional];
    [&head, name, &[0, kind, 0, 1], rest].concat()
}

/// What becomes of the message in a buffer in which another one was before.
fn read(bytes: &[u8]) -> Option<Question> {
    let mut question = Question { message: [0x61; ROOM], ..Question::default() };
    let there = bytes.len().min(SHORTEST + MOST_SPARE);
    question.message[..there].copy_from_slice(&bytes[..there]);
    question.read(there).then_some(question)
}

fn answer(bytes: &[u8], rule: &DnsRule) -> Vec<u8> {
    let mut question = read(bytes).unwrap();
    question.answer(rule);
    assert_eq!(question.message[question.length()..][..4], [0; 4], "what is summed up beyond the end");
    question.message[..question.length()].to_vec()
}

/// As the kernel's trie finds an entry that the key begins with.
fn finds(entries: &[([u8; KEY], u32)], key: &[u8; PREFIX + KEY]) -> bool {
    let bit = |bytes: &[u8], at: u32| bytes[at as usize / 8] >> (7 - at % 8) & 1;
    let (length, key) = key.split_first_chunk().unwrap();
    let length = u32::from_ne_bytes(*length);
    entries.iter().any(|(entry, bits)| *bits <= length && (0..*bits).all(|at| bit(entry, at) == bit(key, at)))
}

/// Whether the question for this name is one for that of the fault, which may stand for those below it.
fn meets(pattern: (&str, bool), name: &[u8]) -> bool {
    let entry = key(pattern.0, pattern.1).unwrap();
    finds(&[entry], read(&message(name, A, &[])).unwrap().key().unwrap())
}

#[test]
fn a_name_is_met_in_letters_of_any_size_and_no_other_is() {
    let exact = ("db.example.org", false);
    assert!(meets(exact, &wire("db.example.org")) && meets(exact, &wire("DB.eXample.ORG")));
    for other in
        ["example.org", "a.db.example.org", "db.example.or", "db.example.orgs", "b.example.org", "", "org"]
    {
        assert!(!meets(exact, &wire(other)), "{other:?}");
    }
}

#[test]
fn all_names_below_one_are_met_and_itself_is_not() {
    let below = ("example.org", true);
    for name in ["db.example.org", "a.b.c.example.org", "_x.EXAMPLE.org"] {
        assert!(meets(below, &wire(name)), "{name:?}");
    }
    for name in ["example.org", "badexample.org", "example.org.net", "org", ""] {
        assert!(!meets(below, &wire(name)), "{name:?}");
    }
}

#[test]
fn a_label_with_bytes_that_look_like_the_end_of_one_is_one() {
    // One label "x\0example" or "x.example", and the like: not below example.org.
    for between in [0_u8, b'.', 7, 0x80, 0xff] {
        let label = [&[9, b'x', between][..], b"example\x03org\0"].concat();
        assert!(!meets(("example.org", true), &label), "{between}");
        let odd = [&[8, between][..], b"example\x03org\0"].concat();
        assert!(!meets(("example.org", false), &odd), "{between}");
    }
}

#[test]
fn what_is_no_question_is_left_alone() {
    let good = message(&wire("db.example.org"), A, &[]);
    assert!(read(&good).is_some());
    for (at, byte) in [(2, 0x81), (2, 0x29), (5, 0), (5, 2), (7, 1), (9, 1), (HEADER, 0xc0), (HEADER, 64)] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert!(read(&bad).is_none(), "byte {at} is {byte:#x}");
    }
    for end in SHORTEST - 1..good.len() {
        assert!(read(&good[..end]).is_none(), "cut off after {end}");
    }
}

#[test]
fn names_of_any_length_that_there_may_be_are_read() {
    assert!(read(&message(&[0], A, &[])).is_some(), "the root's");
    let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
    assert_eq!(wire(&longest).len(), MOST_NAME);
    assert!(meets((&longest, false), &wire(&longest)));
    assert!(meets((&longest[2..], false), &wire(&longest[2..])));
    assert!(read(&message(&wire(&format!("{longest}b")), A, &[])).is_none(), "one byte more");
    assert!(key(&format!("{longest}b"), false).is_none() && key("", true).is_none());
}

#[test]
fn an_answer_is_the_question_with_a_code() {
    let question = message(&wire("a.b"), AAAA, &[]);
    let said = answer(&question, &DnsRule { code: NAME_ERROR, ..DnsRule::default() });
    assert_eq!(said[..12], [0xab, 0xcd, 0x81, 0x93, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(said[12..], question[12..]);
}

#[test]
fn an_address_is_told_to_who_asks_for_one_of_its_version_and_nothing_to_others() {
    let rule = DnsRule { flags: V4 | V6, v4: [192, 0, 2, 7], v6: [7; 16], ..DnsRule::default() };
    let said = |kind, rule| answer(&message(&wire("a.b"), kind, &[]), &rule)[7..].to_vec();
    let v4 = said(A, rule);
    assert_eq!((v4[0], &v4[14..]), (1, &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, 7][..]));
    let v6 = said(AAAA, rule);
    assert_eq!((v6[0], v6[25], &v6[26..]), (1, 16, &[7; 16][..]));
    assert_eq!(said(15, rule)[0], 0, "who asks for mail");
    let only_v4 = DnsRule { flags: V4, ..rule };
    assert_eq!((said(AAAA, only_v4)[0], said(AAAA, only_v4).len()), (0, 14));
}

#[test]
fn who_knows_edns_reads_it_of_the_answer_and_what_else_was_added_is_gone() {
    let cookie = [0, 0, 41, 16, 0, 0, 0, 0x80, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    let rule = DnsRule { flags: V4, v4: [1, 2, 3, 4], ..DnsRule::default() };
    let said = answer(&message(&wire("a.b"), A, &cookie), &rule);
    assert_eq!((said[7], said[11], said.len()), (1, 1, 12 + 5 + 4 + 16 + 11));
    assert_eq!(said[said.len() - 11..], ANSWERED_OPT);
    // A signature, say.
    let other = [0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 3, 1, 2, 3];
    let said = answer(&message(&wire("a.b"), A, &other), &rule);
    assert_eq!((said[11], said.len()), (0, 12 + 5 + 4 + 16));
}

fn names() -> impl Strategy<Value = String> {
    proptest::collection::vec("[abA-B0-9-]{1,3}", 1..5).prop_map(|labels| labels.join("."))
}

proptest! {
    #[test]
    fn a_trie_of_names_finds_what_reading_them_one_by_one_does(
        patterns in proptest::collection::vec((names(), any::<bool>()), 1..6), name in names(), longer in any::<bool>(),
    ) {
        let name = if longer { format!("{name}.{}", patterns[0].0) } else { name };
        let small = name.to_lowercase();
        let expected = patterns.iter().any(|(pattern, below)| {
            let pattern = pattern.to_lowercase();
            if *below { small.ends_with(&format!(".{pattern}")) } else { small == pattern }
        });
        let entries: Vec<_> =
            patterns.iter().map(|(name, below)| key(&name.to_lowercase(), *below).unwrap()).collect();
        let mut question = read(&message(&wire(&name), A, &[])).unwrap();
        prop_assert_eq!(finds(&entries, question.key().unwrap()), expected);
    }

    #[test]
    fn no_message_is_too_strange_to_be_read_and_answered(
        head in any::<[u8; 4]>(), body in proptest::collection::vec(any::<u8>(), 0..600), flags in 0u32..16, asks: bool,
    ) {
        let mut bytes = [&head[..], &[0, 1, 0, 0, 0, 0, 0, 1], &body].concat();
        if asks {
            bytes[2] &= 0x07;
        }
        if let Some(mut question) = read(&bytes) {
            question.answer(&DnsRule { flags, ..DnsRule::default() });
            prop_assert!(question.length() <= SHORTEST + MOST_SPARE);
            prop_assert!(question.key().is_some());
        }
    }

    #[test]
    fn the_header_of_an_answer_sums_to_all_ones(
        peer: [u32; 4], node: [u32; 4], ports: [u16; 2], words in proptest::collection::vec(any::<u32>(), 5..70),
    ) {
        let sum = |words: &[u32]| words.iter().fold(0, |sum, word| checksum::add(sum, *word));
        let raw = |ports: [u16; 2]| u32::from_ne_bytes([ports[0].to_ne_bytes(), ports[1].to_ne_bytes()].concat().try_into().unwrap());
        let addresses = sum(&peer) + sum(&node);
        let length = words.len() * 4 - 3;
        let made = header(raw(ports), length, addresses, sum(&words), false);
        prop_assert_eq!(made[0], raw([ports[1], ports[0]]));
        let size = (length + UDP_HEADER) as u32;
        let pseudo = addresses + sum(&[u32::from(UDP).to_be(), size.to_be()]);
        prop_assert_eq!(checksum::fold(pseudo + sum(&made) + sum(&words)), 0xffff);
        let bytes = made[1].to_ne_bytes();
        prop_assert_eq!(u32::from(u16::from_be_bytes([bytes[0], bytes[1]])), size);
        prop_assert_ne!(&bytes[2..], &[0, 0][..], "which says that there is no sum");
        let partial = header(raw(ports), length, addresses, sum(&words), true)[1].to_ne_bytes();
        prop_assert_eq!(u16::from_ne_bytes([partial[2], partial[3]]), checksum::fold(pseudo));
    }
}
