//! The decision about approvals as a table: what holds once, and all that never does, each with its reason.

use proptest::prelude::*;

use super::*;
use crate::request::Caller;

const AGENT: u32 = 1000;
const ALICE: u32 = 2000;
const BOB: u32 = 3000;
const VALID: Duration = Duration::from_secs(1800);

fn at(seconds: u64) -> Moment {
    let wall = Timestamp::from_second(1_800_000_000).unwrap() + Duration::from_secs(seconds);
    Moment { wall, boot_ns: (500 + seconds) * 1_000_000_000 }
}

fn who(uid: u32) -> Who {
    Caller::Unix { uid, gid: uid, pid: 7 }.into()
}

fn approver(uid: u32) -> Approver {
    Approver { who: who(uid), login: None }
}

fn owner(uid: u32) -> Owner {
    Owner::User(uid)
}

fn plan(digest: &str) -> Plan {
    Plan {
        digest: digest.to_owned(),
        requester: owner(AGENT),
        login: None,
        on: "fault cut".to_owned(),
        stage: None,
        does: vec!["cuts eth0 off".to_owned()],
    }
}

fn need(persons: usize) -> Need {
    Need { rule: "approval.one.host_wide".to_owned(), persons, why: "it is the whole host's".to_owned() }
}

/// A plan that waits.
fn asked(persons: usize) -> Book {
    let mut book = Book::default();
    book.ask(plan("a"), need(persons), at(0));
    book
}

fn sign(book: &mut Book, by: Approver, window: Window, now: Moment) -> Result<Approval, ApiError> {
    book.sign(("a", None), by, (window, VALID), now)
}

fn leave(book: &Book, digest: &str, persons: usize, now: Moment) -> Result<Leave, Lack> {
    book.leave((owner(AGENT), digest), (&need(persons), "fault cut"), now, |_| true)
}

/// A plan that Alice has approved of a minute ago.
fn approved() -> Book {
    let mut book = asked(1);
    sign(&mut book, approver(ALICE), Window::default(), at(0)).unwrap();
    book
}

#[test]
fn an_approval_holds_for_the_plan_and_who_asked_for_it_within_its_time_and_is_used_once() {
    let mut book = asked(1);
    assert_eq!(leave(&book, "a", 1, at(1)), Err(Lack::Nobody));
    let told = sign(&mut book, approver(ALICE), Window::default(), at(1)).unwrap();
    assert_eq!((told.given[0].by, told.given[0].until), (owner(ALICE), at(1801).wall));
    let let_by = leave(&book, "a", 1, at(60)).unwrap();
    assert_eq!((let_by.by.as_str(), let_by.ids.as_slice()), ("uid 2000", &[told.given[0].id.clone()][..]));
    // It is asked again before it is used, which changes nothing.
    book.ask(plan("a"), need(1), at(61));
    assert_eq!(leave(&book, "a", 1, at(62)), Ok(let_by));
    book.use_up((owner(AGENT), "a"), "fault cut".to_owned());
    assert_eq!(leave(&book, "a", 1, at(63)), Err(Lack::Used("fault cut".to_owned())));
}

#[test]
fn one_person_approves_of_no_plan_of_theirs_by_whatever_users_they_become() {
    const CAROL: u32 = 4000;
    let as_user = |uid: u32, login: u32| Approver { who: who(uid), login: Some(login) };
    // Carol asks as the agent, and approves as herself, as Alice, and as Bob.
    let mut book = Book::default();
    book.ask(Plan { login: Some(CAROL), ..plan("a") }, need(1), at(0));
    // Asked again by a process without a login, it is still hers.
    book.ask(plan("a"), need(1), at(1));
    for by in [approver(CAROL), as_user(ALICE, CAROL), as_user(BOB, CAROL)] {
        let refused = sign(&mut book, by, Window::default(), at(2)).unwrap_err();
        assert!(refused.message.contains("has asked for it, as another user"), "{refused}");
    }
    sign(&mut book, as_user(ALICE, ALICE), Window::default(), at(3)).unwrap();
    // Two users with one login are one person.
    let mut book = asked(2);
    sign(&mut book, as_user(ALICE, CAROL), Window::default(), at(0)).unwrap();
    let refused = sign(&mut book, as_user(BOB, CAROL), Window::default(), at(1)).unwrap_err();
    assert!(refused.message.contains("has done so already"), "{refused}");
}

#[test]
fn nobody_approves_of_what_cannot_be_shown_whole() {
    for does in [vec!["cuts".to_owned(); MOST_LINES + 1], vec!["x".repeat(LONGEST_LINE + 1)]] {
        let mut book = Book::default();
        book.ask(Plan { does, ..plan("a") }, need(1), at(0));
        let refused = sign(&mut book, approver(ALICE), Window::default(), at(1)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::LimitReached);
    }
}

#[test]
fn what_was_reused_forged_or_taken_from_another_plan_user_or_time_passes_in_none_of_these_cases() {
    let used = {
        let mut book = approved();
        book.use_up((owner(AGENT), "a"), "fault cut".to_owned());
        book
    };
    let asked_again = {
        let mut book = used_and_asked_again();
        assert!(book.list(owner(AGENT), false).iter().all(|told| told.used.is_none()));
        sign(&mut book, approver(AGENT), Window::default(), at(70)).unwrap_err();
        book
    };
    let later = {
        let from = Some(at(600).wall);
        let mut book = asked(1);
        sign(&mut book, approver(ALICE), Window { from, lasts: None }, at(0)).unwrap();
        book
    };
    let withdrawn = {
        let mut book = approved();
        let id = book.list(owner(ALICE), true)[0].given[0].id.clone();
        book.withdraw(&id, owner(ALICE), false).unwrap();
        book
    };
    let set_back = Moment { wall: at(60).wall, ..at(1800) };
    for (words, book, who, digest, persons, now) in [
        ("used already", &used, AGENT, "a", 1, at(60)),
        ("nobody has approved", &asked_again, AGENT, "a", 1, at(71)),
        ("another plan of it", &approved(), AGENT, "b", 1, at(60)),
        ("nobody has approved", &approved(), BOB, "a", 1, at(60)),
        ("nobody has approved", &approved(), ALICE, "a", 1, at(60)),
        ("has ended at", &approved(), AGENT, "a", 1, at(1800)),
        ("has ended at", &approved(), AGENT, "a", 1, set_back),
        ("from 2027-01-15T08:10:00Z on", &later, AGENT, "a", 1, at(599)),
        ("1 of 2 others", &approved(), AGENT, "a", 2, at(60)),
        ("nobody has approved", &withdrawn, AGENT, "a", 1, at(60)),
        ("nobody has approved", &Book::default(), AGENT, "a", 1, at(60)),
    ] {
        let refused =
            book.leave((owner(who), digest), (&need(persons), "fault cut"), now, |_| true).unwrap_err();
        assert!(refused.to_string().contains(words), "{words}: {refused}");
    }
    let refused =
        approved().leave((owner(AGENT), "a"), (&need(1), "fault cut"), at(60), |_| false).unwrap_err();
    assert_eq!(refused, Lack::NoApprover(owner(ALICE)));
    assert!(leave(&later, "a", 1, at(600)).is_ok());
}

fn used_and_asked_again() -> Book {
    let mut book = approved();
    book.use_up((owner(AGENT), "a"), "fault cut".to_owned());
    book.ask(plan("a"), need(1), at(65));
    book
}

#[test]
fn nobody_approves_of_an_own_plan_twice_of_one_or_of_a_plan_that_is_not_there() {
    let logged_in = |uid, login| Approver { login: Some(login), ..approver(uid) };
    let mut book = asked(2);
    let try_it = |book: &mut Book, by: Approver, digest: &str| {
        let signed = book.sign((digest, None), by, (Window::default(), VALID), at(5));
        signed.map_err(|error| error.message)
    };
    for (by, digest, words) in [
        (approver(AGENT), "a", "it is the plan of uid 1000, who asks"),
        // By sudo, whoever they have become.
        (logged_in(0, AGENT), "a", "uid 0 has logged in as uid 1000"),
        (approver(ALICE), "", "nobody waits for an approval of plan \"\""),
        (approver(ALICE), "A", "nobody waits"),
        (approver(ALICE), "b", "nobody waits"),
    ] {
        let refused = try_it(&mut book, by, digest).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
    try_it(&mut book, logged_in(ALICE, ALICE), "a").unwrap();
    for by in [approver(ALICE), logged_in(0, ALICE)] {
        let refused = try_it(&mut book, by, "a").unwrap_err();
        assert!(refused.contains("uid 2000 has done so already"), "{refused}");
    }
    assert_eq!(leave(&book, "a", 2, at(6)), Err(Lack::TooFew(1, 2)));
    try_it(&mut book, approver(BOB), "a").unwrap();
    assert_eq!(leave(&book, "a", 2, at(6)).unwrap().by, "uid 2000 and uid 3000");
    book.use_up((owner(AGENT), "a"), "fault cut".to_owned());
    assert!(try_it(&mut book, approver(0), "a").unwrap_err().contains("carried out already"));
}

#[test]
fn an_approval_holds_no_longer_than_the_policy_lets_it_and_begins_within_a_day() {
    let window = |from: Option<u64>, lasts: Option<u64>| Window {
        from: from.map(|seconds| at(seconds).wall),
        lasts: lasts.map(Duration::from_secs),
    };
    for (window, until) in [
        (window(None, None), Some(1800)),
        (window(None, Some(60)), Some(60)),
        (window(Some(3600), Some(60)), Some(3660)),
        // What is past begins now.
        (window(Some(0), Some(60)), Some(60)),
        (window(None, Some(1801)), None),
        (window(None, Some(0)), None),
        (window(Some(86_401), None), None),
    ] {
        let signed = sign(&mut asked(1), approver(ALICE), window, at(0));
        assert_eq!(
            signed.ok().map(|told| told.given[0].until),
            until.map(|seconds| at(seconds).wall),
            "{window:?}"
        );
    }
}

#[test]
fn an_approval_is_taken_back_by_who_gave_it_whose_plan_it_is_and_admins_and_not_once_it_was_used() {
    for (by, is_admin, may) in
        [(ALICE, false, true), (AGENT, false, true), (BOB, false, false), (BOB, true, true)]
    {
        let mut book = approved();
        let id = book.list(owner(AGENT), false)[0].given[0].id.clone();
        assert_eq!(book.withdraw(&id, owner(by), is_admin).is_ok(), may, "{by}");
        assert_eq!(leave(&book, "a", 1, at(60)).is_err(), may);
        assert!(book.withdraw("none", owner(by), is_admin).is_err());
    }
    let mut used = approved();
    used.use_up((owner(AGENT), "a"), "fault cut".to_owned());
    let id = used.list(owner(AGENT), false)[0].given[0].id.clone();
    assert!(used.withdraw(&id, owner(ALICE), false).unwrap_err().message.contains("used already"));
    assert!(used.list(owner(BOB), false).is_empty() && used.list(owner(BOB), true).len() == 1);
}

#[test]
fn a_plan_of_several_users_is_approved_of_for_one_of_them() {
    let mut book = asked(1);
    book.ask(Plan { requester: owner(BOB), ..plan("a") }, need(1), at(1));
    let refused = sign(&mut book, approver(ALICE), Window::default(), at(2)).unwrap_err();
    assert!(refused.message.contains("1000, 3000") || refused.message.contains("3000, 1000"), "{refused}");
    book.sign(("a", Some(owner(BOB))), approver(ALICE), (Window::default(), VALID), at(2)).unwrap();
    assert_eq!(leave(&book, "a", 1, at(3)), Err(Lack::Nobody));
}

#[test]
fn however_much_one_user_asks_for_what_others_wait_for_stays() {
    let mut book = Book::default();
    book.ask(Plan { requester: owner(BOB), ..plan("b") }, need(1), at(0));
    for number in 0..MOST + 5 {
        book.ask(plan(&number.to_string()), need(1), at(1));
    }
    assert_eq!(book.list(owner(BOB), false).len(), 1);
    assert_eq!(book.list(owner(AGENT), false).len(), MOST_OF_ONE);
    for uid in 5000..5000 + 2 * u32::try_from(MOST).unwrap() {
        book.ask(Plan { requester: owner(uid), ..plan("c") }, need(1), at(2));
    }
    assert!(book.list(Owner::ROOT, true).len() <= MOST);
    // A day later nobody waits any more.
    book.ask(plan("d"), need(1), at(86_402 + 1));
    assert_eq!(book.list(Owner::ROOT, true).len(), 1);
}

proptest! {
    /// Whatever comes in whatever order: a plan is carried out no more often than two others have approved of it since the last time.
    #[test]
    fn nothing_is_carried_out_more_often_than_approved_of(
        deeds in prop::collection::vec((0_u8..4, prop::sample::select(vec![AGENT, ALICE, BOB, 0]), 0_u64..600), 0..60),
    ) {
        let (mut book, mut now, mut carried_out, mut signed) = (asked(2), 0, 0, 0);
        for (deed, uid, passes) in deeds {
            now += passes;
            match deed {
                0 => book.ask(plan("a"), need(2), at(now)),
                1 => signed += u32::from(sign(&mut book, approver(uid), Window::default(), at(now)).is_ok()),
                2 if leave(&book, "a", 2, at(now)).is_ok() => {
                    book.use_up((owner(AGENT), "a"), "fault cut".to_owned());
                    carried_out += 1;
                }
                _ => {}
            }
            prop_assert!(2 * carried_out <= signed);
        }
    }
}
