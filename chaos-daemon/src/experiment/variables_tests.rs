//! Tests of configuration, secrets and substitution.

use serde_json::json;

use super::*;

struct Fake;

impl Outside for Fake {
    fn environment(&self, name: &str) -> Result<String, String> {
        match name {
            "PORT" => Ok("8080".to_owned()),
            "DEBUG" => Ok("no".to_owned()),
            "TOKEN" => Ok("hunter\"2".to_owned()),
            _ => Err("not set".to_owned()),
        }
    }

    fn file(&self, path: &str) -> Result<String, String> {
        match path {
            "/run/password" => Ok("two\nlines\n".to_owned()),
            _ => Err(format!("{path}: not there")),
        }
    }
}

fn object(value: Value) -> Option<Map<String, Value>> {
    value.as_object().cloned()
}

fn read(
    configuration: Option<Map<String, Value>>,
    secrets: Option<Map<String, Value>>,
    outside: &dyn Outside,
) -> Result<Variables, SpecError> {
    let problems = Problems::new(true);
    let variables = Variables::read(configuration, secrets, outside, &problems);
    problems.into_vec().into_iter().next().map_or(Ok(variables), Err)
}

fn variables() -> Variables {
    let configuration = json!({
        "host": "127.0.0.1", "share": 0.5, "ports": [1, 2], "shared": "of configuration",
        "port": {"type": "env", "key": "PORT", "env_var_type": "int"},
        "debug": {"type": "env", "key": "DEBUG", "env_var_type": "bool"},
        "absent": {"type": "env", "key": "ABSENT", "default": "otherwise"},
        "object": {"type": "other", "key": 1},
    });
    let secrets = json!({"db": {"token": {"type": "env", "key": "TOKEN"}, "shared": "of secrets"},
                         "other": {"password": {"type": "file", "path": "/run/password"}, "pin": 4711}});
    read(object(configuration), object(secrets), &Fake).unwrap()
}

fn substitute(value: Value, user: Use) -> Result<Value, SpecError> {
    let mut value = value;
    variables().substitute("at", &mut value, user, &Room::default())?;
    Ok(value)
}

#[test]
fn values_take_the_place_of_names_with_their_types() {
    for (before, after) in [
        (json!("${port}"), json!(8080)),
        (json!("${share}"), json!(0.5)),
        (json!("${ports}"), json!([1, 2])),
        (json!("${debug}"), json!(false)),
        (json!("${absent}"), json!("otherwise")),
        (json!("${object}"), json!({"type": "other", "key": 1})),
        (json!("http://${host}:${port}/"), json!("http://127.0.0.1:8080/")),
        (
            json!({"a": ["${host}", {"b": "${port}"}], "c": 1}),
            json!({"a": ["127.0.0.1", {"b": 8080}], "c": 1}),
        ),
        (json!("${shared}"), json!("of configuration")),
        (json!("Bearer ${token}"), json!("Bearer hunter\"2")),
        (json!("${password}"), json!("two\nlines")),
        // A dollar is one where no name follows, and two are one.
        (json!("^a$"), json!("^a$")),
        (json!("cost: $5, ${"), json!("cost: $5, ${")),
        (json!("$${host} $$"), json!("${host} $")),
        (json!("$host:$port $unknown"), json!("127.0.0.1:8080 $unknown")),
        (json!("${not a name}"), json!("${not a name}")),
    ] {
        assert_eq!(substitute(before.clone(), Use::Probe).unwrap(), after, "{before}");
    }
}

#[test]
fn a_name_that_nobody_declares_is_refused_and_so_is_a_secret_in_a_fault() {
    let error = substitute(json!({"a": ["x", "${hots}"]}), Use::Probe).unwrap_err();
    assert_eq!(error.field, "at.a[1]");
    assert!(error.problem.contains("${hots}"), "{error}");
    assert!(substitute(json!("${pin}"), Use::Fault).unwrap_err().problem.contains("secret"));
    assert_eq!(substitute(json!("${shared}"), Use::Fault).unwrap(), "of configuration");
}

#[test]
fn secrets_do_not_show() {
    let variables = variables();
    let text = "GET http://x/?t=hunter\"2: \"hunter\\\"2\", two, lines, 4711, of secrets; 127.0.0.1";
    assert_eq!(variables.hide(text), "GET http://x/?t=***: \"***\", ***, ***, ***, ***; 127.0.0.1");
    assert_eq!(format!("{variables:?}"), "Variables(8 of configuration, 4 secrets)");
}

#[test]
fn what_is_shown_in_place_of_secrets_is_no_secret_however_many_look_like_it() {
    let of = |secrets: Value| read(None, object(json!({"a": secrets})), &Nowhere).unwrap();
    let stars = of(json!({"a": "*", "b": "**", "c": "*\n*", "d": "***", "e": "*"}));
    assert_eq!(stars.hide("a * of **** and *"), "a *** of *** and ***");
    // Of those that overlap, nothing is left.
    assert_eq!(of(json!({"a": "abc", "b": "cde"})).hide("xabcdex"), "x***x");
}

#[test]
fn secrets_and_what_stands_for_names_are_bounded() {
    let many = |count: usize| {
        let secrets: Map<_, _> = (0..count).map(|n| (format!("s{n}"), json!(format!("{n:x}")))).collect();
        read(None, object(json!({"a": secrets})), &Nowhere).map_err(|error| error.field)
    };
    assert!(many(MOST_SECRETS).is_ok());
    assert_eq!(many(MOST_SECRETS + 1).unwrap_err(), "secrets");

    let long = json!({"x": "a".repeat(MOST_SUBSTITUTED / 4), "y": vec!["a"; 1000]});
    let variables = read(object(long), None, &Nowhere).unwrap();
    for (text, times) in [("$x$x$x", 1), ("$x$x$x$x", 0), ("${x}", 3), ("${y}", 116)] {
        let room = Room::default();
        let put = || variables.substitute("at", &mut json!(text), Use::Probe, &room);
        for _ in 0..times {
            assert_eq!(put(), Ok(()), "{text}");
        }
        assert!(put().unwrap_err().problem.contains("more than 1024 KiB"), "{text}");
    }
}

#[test]
fn what_cannot_be_looked_up_is_named() {
    let configuration = |value: Value| read(object(json!({"a": value})), None, &Fake);
    let secrets = |value: Value| read(None, object(json!({"a": value})), &Fake);
    for (result, field) in [
        (configuration(json!({"type": "env", "key": "ABSENT"})), "configuration.a.key"),
        (configuration(json!({"type": "env"})), "configuration.a.key"),
        (
            configuration(json!({"type": "env", "key": "TOKEN", "env_var_type": "int"})),
            "configuration.a.env_var_type",
        ),
        (
            configuration(json!({"type": "env", "key": "TOKEN", "env_var_type": "x"})),
            "configuration.a.env_var_type",
        ),
        (configuration(json!({"type": "file", "path": "/no"})), "configuration.a.path"),
        (configuration(json!({"type": "file", "key": "/no"})), "configuration.a.path"),
        (configuration(json!({"type": "vault", "path": "x"})), "configuration.a.type"),
        (configuration(json!({"type": "probe", "name": "x"})), "configuration.a.type"),
        (secrets(json!("plain")), "secrets.a"),
        (secrets(json!({"type": "env", "key": "TOKEN"})), "secrets.a"),
        (secrets(json!({"b": {"type": "vault", "path": "x"}})), "secrets.a.b.type"),
    ] {
        assert_eq!(result.unwrap_err().field, field);
    }
    let daemon = read(object(json!({"a": {"type": "env", "key": "PORT"}})), None, &Nowhere);
    assert!(daemon.unwrap_err().problem.contains("chaosctl"));
}

#[test]
fn what_is_outside_can_be_put_into_the_document_for_a_reader_that_has_nothing() {
    let mut document = json!({
        "configuration": {"port": {"type": "env", "key": "PORT", "env_var_type": "int"}, "host": "::1"},
        "secrets": {"db": {"password": {"type": "file", "path": "/run/password"}}},
        "title": "untouched",
    });
    inline(document.as_object_mut().unwrap(), &Fake).unwrap();
    assert_eq!(document["configuration"], json!({"port": 8080, "host": "::1"}));
    assert_eq!(document["secrets"], json!({"db": {"password": "two\nlines"}}));
    let read = read(object(document["configuration"].clone()), object(document["secrets"].clone()), &Nowhere);
    assert_eq!(read.unwrap().hide("two\nlines"), "***");
}

#[test]
fn a_name_that_nobody_uses_may_be_any_and_one_that_is_used_is_a_name() {
    let odd = read(object(json!({"some-service": "x", "1": 2})), None, &Nowhere).unwrap();
    let put = |text: &str| {
        let mut value = json!(text);
        odd.substitute("at", &mut value, Use::Probe, &Room::default()).map(|()| value)
    };
    assert!(put("${some-service}").unwrap_err().problem.contains("rename it"));
    // Of others nothing is known: it is the text itself, as for Chaos Toolkit.
    assert_eq!(put("${other-service}").unwrap(), "${other-service}");
}

#[test]
fn every_value_that_cannot_be_read_is_named_once_and_not_again_where_it_is_used() {
    let problems = Problems::new(false);
    let absent = |key: &str| json!({"type": "env", "key": key});
    let variables =
        Variables::read(object(json!({"a": absent("A"), "b": absent("B")})), None, &Nowhere, &problems);
    let used = variables.substitute("url", &mut json!("http://${a}:${b}"), Use::Probe, &Room::default());
    problems.keep(used);
    let fields: Vec<_> = problems.into_vec().into_iter().map(|error| (error.field, error.code)).collect();
    let unset = |name: &str| (format!("configuration.{name}.key"), Mistake::Unset);
    assert_eq!(fields, [unset("a"), unset("b")]);
}
