//! What bounds which fault of whom, with the line that would let it.

use serde_json::{Value, json};

use super::*;
use crate::policy::refusal::Way;
use crate::spec::FaultRequest;

fn limits(text: &str) -> Limits {
    let limits: Limits = toml::from_str(text).unwrap();
    limits.check().unwrap();
    limits
}

fn fault(kind: &str, seconds: f64, params: Value) -> Fault {
    let request = json!({"fault_type": kind, "probability": 1, "duration_seconds": seconds,
        "target": {"interface": "eth0"}, "params": params});
    serde_json::from_value::<FaultRequest>(request).unwrap().parse().unwrap()
}

fn roles(all: &[Role]) -> BTreeSet<Role> {
    all.iter().copied().collect()
}

/// The line that would let it, which does; nothing where it is permitted.
fn line(
    text: &str,
    by: &[Role],
    asked: impl Fn(&Limits, &BTreeSet<Role>) -> Result<(), Refusal>,
) -> Option<String> {
    let refusal = asked(&limits(text), &roles(by)).err()?;
    let Way::Lines { full, .. } = refusal.way else { panic!("nothing lets it: {refusal:?}") };
    let inside = full.strip_prefix("limits.").unwrap();
    let mut table: toml::Table = text.parse().unwrap();
    for (of, more) in inside.parse::<toml::Table>().unwrap() {
        match (table.get_mut(&of), more) {
            (Some(toml::Value::Table(known)), toml::Value::Table(more)) => known.extend(more),
            (_, more) => drop(table.insert(of, more)),
        }
    }
    assert_eq!(asked(&limits(&table.to_string()), &roles(by)), Ok(()), "{full} lets nobody");
    Some(full)
}

const OPERATOR: &[Role] = &[Role::Operator];

#[test]
fn a_fault_beyond_a_bound_is_refused_with_the_line_that_lets_it() {
    let quick = |kind: &str, params| fault(kind, 10.0, params);
    for (text, fault, expected) in [
        (
            "everybody.max_duration_seconds = 5",
            quick("timeout", json!({})),
            "everybody.max_duration_seconds = 10",
        ),
        (
            "operator.most_share_percent = 50",
            quick("timeout", json!({})),
            "operator.most_share_percent = 100",
        ),
        (
            "operator.most_loss_percent = 10",
            quick("packet_loss", json!({"loss_percent": 20})),
            "operator.most_loss_percent = 20",
        ),
        (
            "operator.most_loss_percent = 10",
            quick("network_partition", json!({})),
            "operator.most_loss_percent = 100",
        ),
        (
            "everybody.most_latency_ms = 99",
            quick("latency", json!({"delay_ms": 99.5})),
            "everybody.most_latency_ms = 100",
        ),
        (
            "everybody.least_rate_kbit = 100",
            quick("bandwidth", json!({"rate_kbit": 64})),
            "everybody.least_rate_kbit = 64",
        ),
        (
            "everybody.least_rate_kbit = 1000",
            quick("link_profile", json!({"preset": "dsl"})),
            "everybody.least_rate_kbit = 384",
        ),
    ] {
        let found = line(text, OPERATOR, |limits, roles| limits.admit(roles, &fault));
        assert_eq!(found, Some(format!("limits.{expected}")), "{text}");
    }
    for text in
        ["", "admin.most_latency_ms = 1", "operator.most_latency_ms = 100", "everybody.most_loss_percent = 0"]
    {
        let latency = quick("latency", json!({"delay_ms": 100}));
        assert_eq!(line(text, OPERATOR, |limits, roles| limits.admit(roles, &latency)), None, "{text}");
    }
}

#[test]
fn of_several_bounds_the_narrowest_holds_whoever_has_it() {
    let text = "everybody.most_latency_ms = 50\noperator.most_latency_ms = 20\nadmin.most_latency_ms = 80";
    let may = |by: &[Role], delay: u32| {
        limits(text).admit(&roles(by), &fault("latency", 1.0, json!({"delay_ms": delay}))).is_ok()
    };
    assert!(may(&[Role::Operator], 20) && !may(&[Role::Operator], 21));
    assert!(may(&[Role::Admin], 50) && !may(&[Role::Admin], 51));
    assert!(may(&[Role::Operator, Role::Admin], 20) && !may(&[Role::Operator, Role::Admin], 50));
    let words = limits(text).words(&roles(&[Role::Operator, Role::Admin]));
    assert_eq!(words[0], "most_latency_ms 20");
}

#[test]
fn what_was_lately_bounds_what_begins() {
    let lately = |begun, active, since: Option<u64>| Lately {
        begun,
        active,
        since_end: since.map(Duration::from_secs),
    };
    let recent = Recent { own: lately(3, 0, Some(40)), all: lately(9, 1, Some(10)) };
    let pace = |text: &str| line(text, OPERATOR, |limits, roles| limits.admit_pace(roles, &recent));
    for (text, expected) in [
        ("everybody.runs_per_hour = 3", Some("limits.everybody.runs_per_hour = 4")),
        ("operator.runs_per_hour = 4", None),
        ("together.runs_per_hour = 9", Some("limits.together.runs_per_hour = 10")),
        ("operator.cool_down_seconds = 60", Some("limits.operator.cool_down_seconds = 40")),
        ("operator.cool_down_seconds = 40", None),
        ("together.cool_down_seconds = 5", Some("limits.together.cool_down_seconds = 0")),
        ("admin.cool_down_seconds = 3600", None),
    ] {
        assert_eq!(pace(text).as_deref(), expected, "{text}");
    }
    let busy = Recent { own: lately(1, 2, None), ..recent };
    let active = |text: &str| line(text, OPERATOR, |limits, roles| limits.admit_active(roles, &busy));
    assert_eq!(active("operator.max_active = 2").as_deref(), Some("limits.operator.max_active = 3"));
    assert_eq!(active("operator.max_active = 3"), None);
}

#[test]
fn a_name_is_forged_only_with_addresses_at_which_nobody_is_unless_the_operator_says() {
    let forged = |names: Option<&str>, address: &str| {
        let mut params = json!({"answer": "wrong_address", "addresses": [address]});
        if let Some(name) = names {
            params["names"] = json!([name]);
        }
        fault("dns_error", 1.0, params)
    };
    let ask = |text: &str, fault: &Fault| line(text, OPERATOR, |limits, roles| limits.admit(roles, fault));
    for nobodys in ["192.0.2.1", "203.0.113.255", "2001:db8::7", "100::1"] {
        assert_eq!(ask("", &forged(None, nobodys)), None, "{nobodys}");
    }
    for somebodys in ["127.0.0.1", "10.0.0.1", "0.0.0.0", "::1", "::ffff:192.168.0.1", "2001:4860::8888"] {
        assert!(
            ask("", &forged(Some("db.test"), somebodys)).unwrap().starts_with("limits.dns_addresses = ["),
            "{somebodys}"
        );
    }
    let named = "dns_names = [\"*.staging.test\", \"db\"]";
    for name in ["a.staging.test", "*.staging.test", "*.b.staging.test", "db"] {
        assert_eq!(ask(named, &forged(Some(name), "192.0.2.1")), None, "{name}");
    }
    for name in ["staging.test", "*.test", "xstaging.test", "*.db", "a.db"] {
        assert!(
            ask(named, &forged(Some(name), "192.0.2.1")).unwrap().contains(&format!("\"{name}\"")),
            "{name}"
        );
    }
    let all = limits(named).admit(&roles(OPERATOR), &forged(None, "192.0.2.1")).unwrap_err();
    assert!(matches!(all.way, Way::Otherwise(_)), "{all:?}");
    // What fails is bounded by names, too.
    let fails = fault("dns_error", 1.0, json!({"names": ["shop.test"]}));
    assert!(ask(named, &fails).is_some());
}

#[test]
fn a_probe_asks_no_address_at_which_clouds_tell_secrets_unless_the_operator_says() {
    let ask = |text: &str, host: &str| line(text, OPERATOR, |limits, _| limits.admit_probe(host).map(drop));
    for host in ["127.0.0.1", "10.0.0.7", "::1", "db.test", "metadata.test"] {
        assert_eq!(ask("", host), None, "{host}");
    }
    for host in ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254"] {
        assert!(ask("", host).unwrap().starts_with("limits.probe_addresses = [\"0.0.0.0/0\""), "{host}");
    }
    let own = "probe_addresses = [\"127.0.0.0/8\"]";
    assert_eq!(ask(own, "127.0.0.1"), None);
    let expected = "limits.probe_addresses = [\"127.0.0.0/8\", \"10.0.0.7/32\"]";
    assert_eq!(ask(own, "10.0.0.7").as_deref(), Some(expected));
}

#[test]
fn bounds_that_make_no_sense_are_refused_by_their_field() {
    for (text, field) in [
        ("everybody.max_duration_seconds = 3601", "limits.everybody.max_duration_seconds"),
        ("operator.most_loss_percent = 101", "limits.operator.most_loss_percent"),
        ("admin.runs_per_hour = 0", "limits.admin.runs_per_hour"),
        ("together.cool_down_seconds = 86401", "limits.together.cool_down_seconds"),
        ("dns_names = [\"a b\"]", "limits.dns_names"),
    ] {
        let limits: Limits = toml::from_str(text).unwrap();
        assert_eq!(limits.check().unwrap_err().field, field, "{text}");
    }
    assert!(toml::from_str::<Limits>("observer.max_active = 1").is_err());
    assert!(toml::from_str::<Limits>("everybody.most_los_percent = 1").is_err());
}
