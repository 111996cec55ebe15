//! Tests of conversions: what means the same becomes a fault, and everything else is a gap that is named.

use serde_json::json;

use super::commands::understand;
use super::meaning::Meaning;
use super::*;
use crate::experiment::Experiment;
use crate::experiment::schema::example;
use crate::experiment::source::Source;
use crate::experiment::variables::Nowhere;
use crate::spec::{FaultType, Mistake};

fn line(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// A document whose method are these actions, each a provider and its pauses.
fn acting(actions: &[(Value, Value)]) -> Map<String, Value> {
    let mut document = example();
    let action = |(number, (provider, pauses)): (usize, &(Value, Value))| json!({"type": "action", "name": format!("action {number}"), "provider": provider, "pauses": pauses});
    document["method"] = actions.iter().enumerate().map(action).collect();
    let Value::Object(document) = document else { panic!("no object") };
    document
}

fn process(words: &str) -> Value {
    let (path, arguments) = words.split_once(' ').unwrap();
    json!({"type": "process", "path": path, "arguments": arguments})
}

#[test]
fn a_command_line_becomes_the_fault_that_does_the_same() {
    for (command, fault) in [
        (
            "tc qdisc add dev eth0 root netem delay 100ms",
            "latency --delay 100ms --interface eth0 --direction egress",
        ),
        (
            "sudo /sbin/tc qdisc replace dev eth0 root handle 1: netem delay 0.1s 20ms 25% distribution normal",
            "latency --delay 100ms --jitter 20ms --distribution normal --interface eth0 --direction egress",
        ),
        (
            "tc qdisc add dev eth0 root netem delay 1500000ns",
            "latency --delay 1500us --interface eth0 --direction egress",
        ),
        (
            "tc qdisc add dev eth0 root netem loss 5%",
            "packet-loss --loss-percent 5 --interface eth0 --direction egress",
        ),
        (
            "tc qdisc add dev eth0 root netem loss random 5% 25%",
            "packet-loss --loss-percent 5 --correlation-percent 25 --interface eth0 --direction egress",
        ),
        (
            "tc qdisc add dev eth0 root netem corrupt 0.1%",
            "packet-corrupt --corrupt-percent 0.1 --interface eth0 --direction egress",
        ),
        (
            "tc qdisc add dev eth0 root netem duplicate 1%",
            "packet-duplicate --duplicate-percent 1 --interface eth0 --direction egress",
        ),
        ("ip link set dev eth1 down", "link-down --interface eth1"),
        (
            "iptables -A OUTPUT -o eth0 -p tcp -d 192.0.2.10 --dport 5432 -j DROP",
            "network-partition --direction egress --interface eth0 --protocol tcp --cidr 192.0.2.10 --remote-port 5432",
        ),
        (
            "iptables -I INPUT 1 -i eth0 -p tcp -m tcp --dport 8000:8100 -j DROP",
            "network-partition --direction ingress --cidr 0.0.0.0/0 --interface eth0 --protocol tcp --local-port 8000-8100",
        ),
        (
            "iptables -w -A OUTPUT -o eth0 -p tcp --dport 443 -j REJECT --reject-with tcp-reset",
            "error --answer reset --cidr 0.0.0.0/0 --interface eth0 --protocol tcp --remote-port 443",
        ),
        (
            "ip6tables -A OUTPUT -o eth0 -p tcp --dport 443 -j DROP",
            "network-partition --direction egress --cidr ::/0 --interface eth0 --protocol tcp --remote-port 443",
        ),
        (
            "stress-ng --cpu 2 --cpu-load 80 --timeout 30s",
            "resource-exhaustion --resource cpu --cpu-percent 80 --cores 2",
        ),
        ("stress-ng --cpu=0 -t 30", "resource-exhaustion --resource cpu --cpu-percent 100"),
        ("stress -m 1 --vm-bytes 2G", "resource-exhaustion --resource memory --memory-mb 2048"),
        ("kill -9 4711", "process-kill --pid 4711 --signal SIGKILL"),
        ("kill -s TERM 4711", "process-kill --pid 4711 --signal SIGTERM"),
        ("pkill -f my-worker", "process-kill --command my-worker --signal SIGTERM"),
        ("pkill -x -f my-worker", "process-kill --command ^(my-worker)$ --signal SIGTERM"),
        ("pkill -KILL -x nginx", "process-kill --command ^(\\S*/)?nginx( |$) --signal SIGKILL"),
        ("killall nginx", "process-kill --command ^(\\S*/)?nginx( |$) --signal SIGTERM"),
        ("kill -STOP 4711", "process-pause --pid 4711"),
        ("systemctl stop payment", "service-stop --unit payment.service"),
        ("service payment restart", "service-restart --unit payment.service"),
    ] {
        let understood = understand(&line(command));
        let Ok(Meaning::Fault { words, .. }) = &understood else { panic!("{command}: {understood:?}") };
        assert_eq!(words.join(" "), fault, "{command}");
        // And it is a fault.
        let arguments: Vec<_> = words.iter().cloned().map(Value::String).collect();
        let mut document = example();
        document["method"][0]["provider"]["arguments"] = [vec![json!("inject")], arguments].concat().into();
        let read = Experiment::parse(document.as_object().unwrap(), &Nowhere);
        assert!(read.is_ok(), "{command}: {}", read.unwrap_err());
    }
}

#[test]
fn a_command_line_that_no_fault_means_is_a_gap_that_says_why() {
    for (command, why) in [
        ("tc qdisc add dev eth0 root tbf rate 1mbit", "bandwidth"),
        ("tc qdisc add dev eth0 parent 1:3 netem delay 100ms", "below a class"),
        ("tc qdisc add dev eth0 root netem delay 100ms loss 5%", "an action for each"),
        ("tc qdisc add dev eth0 root netem delay slow", "delay"),
        ("tc qdisc add dev eth0 root netem delay 1500", "two ways"),
        ("tc qdisc del dev eth0 ingress", "not known here"),
        ("sh -c tc qdisc add dev eth0 root netem delay 1ms", "the one word after -c"),
        ("iptables -A INPUT -p tcp --dport 5432 -j DROP", "name one"),
        ("pkill -s 9 x", "sessions"),
        ("iptables -A OUTPUT -j DROP", "meets all traffic"),
        ("iptables -A FORWARD -d 192.0.2.10 -j DROP", "FORWARD"),
        ("iptables -F OUTPUT", "-F"),
        ("iptables -A OUTPUT -p tcp --dport 1 -m owner --uid-owner 0 -j DROP", "-m"),
        ("iptables -A OUTPUT -d ! 192.0.2.10 -j DROP", "all others"),
        ("stress-ng --hdd 1", "disk_io"),
        ("stress-ng --vm 4 --vm-bytes 1G", "two ways"),
        ("stress-ng --vm 1 --vm-bytes 80%", "no size"),
        ("stress-ng --cpu 1 --vm 1", "an action for each"),
        ("kill -9 1", "no process"),
        ("kill -9 4711 4712", "several"),
        ("pkill ng.nx", "expression"),
        ("docker kill web", "--container"),
        ("sh -c something", "something"),
        ("pkill -u root", "no option"),
        ("rm -rf /", "nobody could undo"),
    ] {
        let understood = understand(&line(command));
        assert!(matches!(&understood, Err(told) if told.contains(why)), "{command}: {understood:?}");
    }
}

#[test]
fn what_comes_near_is_a_fault_that_there_is() {
    let told = others::told();
    for text in &told {
        for after in text.split("chaosctl inject ").skip(1) {
            let word = after.split([' ', ',']).next().unwrap();
            assert!(matches!(word, "has" | "does") || FaultType::of_word(word).is_ok(), "{text}: {word}");
        }
    }
    assert!(told.len() > 20);
}

#[test]
fn a_document_keeps_what_it_is_about_and_what_it_has_is_valid() {
    let document = acting(&[
        (process("sudo tc qdisc add dev eth0 root netem delay 100ms"), json!({"after": 10})),
        (process("stress-ng --cpu 1 --timeout 20s"), json!({"before": 5})),
        (process("tc qdisc del dev eth0 root netem"), json!({})),
    ]);
    let mut document = document;
    document.insert("configuration".into(), json!({"a": 1}));
    document.insert("runtime".into(), json!({"rollbacks": {"strategy": "deviated"}}));
    document.insert(
        "rollbacks".into(),
        json!([{"type": "action", "name": "undo", "provider": process("tc qdisc del dev eth0 root")}]),
    );
    let Converted { document: converted, gaps, notes } = convert(&document);
    assert_eq!(gaps, []);
    for key in ["title", "description", "steady-state-hypothesis", "configuration"] {
        assert_eq!(converted.get(key), document.get(key));
    }
    let arguments = |index: usize| converted["method"][index]["provider"]["arguments"].clone();
    assert_eq!(
        arguments(0),
        json!(line(
            "inject latency --delay 100ms --interface eth0 --direction egress --name converted-1 --for 95s"
        ))
    );
    assert!(arguments(1).to_string().contains("\"--for\",\"20s\""));
    assert_eq!(arguments(2), json!(["remove", "converted-1"]));
    // It is waited for, as a program in the foreground is.
    assert_eq!(converted["method"][1]["pauses"], json!({"before": 5}));
    assert_eq!(converted["runtime"], json!({"rollbacks": {"strategy": "always"}}));
    assert_eq!(converted["rollbacks"], json!([]));
    let paths: Vec<_> = notes.iter().map(|note| note.path.as_str()).collect();
    assert_eq!(paths, ["runtime.rollbacks.strategy", "method[0]", "method[1]", "method[2]", "rollbacks[0]"]);
    assert!(Experiment::parse(&converted, &Nowhere).is_ok());
}

#[test]
fn the_steady_state_is_looked_at_under_a_fault_that_nothing_in_the_method_takes_back() {
    let stays = acting(&[(process("tc qdisc add dev eth0 root netem delay 100ms"), json!({}))]);
    let Converted { document: converted, gaps, notes } = convert(&stays);
    assert_eq!((gaps, notes.len()), (vec![], 2));
    assert_eq!(converted["runtime"]["hypothesis"]["strategy"], "continuously");
    assert_eq!(converted["method"][0]["pauses"]["after"], json!(LOOK));
    assert!(Experiment::parse(&converted, &Nowhere).is_ok());
    // What a document says itself stays.
    let mut stays = acting(&[(process("ip link set dev eth1 down"), json!({"after": 20}))]);
    stays.insert("runtime".into(), json!({"hypothesis": {"strategy": "default"}}));
    let converted = convert(&stays).document;
    assert_eq!(converted["runtime"]["hypothesis"]["strategy"], "default");
    assert_eq!(converted["method"][0]["pauses"]["after"], 20);
}

#[test]
fn what_runs_in_the_foreground_takes_its_time_and_in_the_background_takes_none() {
    let mut document = acting(&[
        (process("stress-ng --cpu 1 --timeout 1m"), json!({"after": 5})),
        (process("stress-ng --cpu 1 --timeout 20s"), json!({})),
    ]);
    document["method"][1]["background"] = json!(true);
    let converted = convert(&document).document;
    assert_eq!(converted["method"][0]["pauses"]["after"], json!(65.0));
    assert_eq!(converted["method"][1]["pauses"]["after"], 0);
}

#[test]
fn what_changes_a_fault_that_is_there_or_starts_what_was_killed_is_a_gap() {
    let document = acting(&[
        (process("tc qdisc add dev eth0 root netem delay 100ms"), json!({"after": 5})),
        (process("tc qdisc change dev eth0 root netem delay 300ms"), json!({"after": 5})),
        (process("tc qdisc del dev eth0 root"), json!({})),
        (process("systemctl kill payment"), json!({})),
        (process("systemctl start payment"), json!({})),
    ]);
    let gaps = convert(&document).gaps;
    let paths: Vec<_> = gaps.iter().map(|gap| gap.path.as_str()).collect();
    assert_eq!(paths, ["method[1]", "method[4]"]);
    assert!(gaps[0].text.contains("take that back first"), "{gaps:?}");
}

#[test]
fn every_gap_is_marked_where_it_is_and_validate_names_exactly_those() {
    let python = json!({"type": "python", "module": "chaosk8s.pod.actions", "func": "terminate_pods"});
    let mut document = acting(&[
        (python.clone(), json!({"after": 10})),
        (process("kill -9 4711"), json!({"after": "${pause}"})),
        (process("kill -CONT 4711"), json!({})),
        (json!({"type": "http", "url": "http://x"}), json!({})),
    ]);
    document.insert("configuration".into(), json!({"pause": 3}));
    document.insert("controls".into(), json!([{"name": "tracing", "provider": python}]));
    document["method"][1]["controls"] = json!([{"name": "inner"}]);
    document.insert("rollbacks".into(), json!([{"type": "action", "name": "undo", "provider": python}]));
    let converted = convert(&document);
    assert_eq!(converted.gaps.len(), 6);
    let Err(problems) = Experiment::check(&converted.document, &Nowhere) else { panic!("accepted") };
    let told: Vec<_> = problems.iter().map(|problem| (problem.field.as_str(), problem.code)).collect();
    let gap = |path| (path, Mistake::Gap);
    assert_eq!(
        told,
        [
            gap("x-gap[0]"),
            gap("x-gap[1]"),
            gap("method[0].x-gap"),
            gap("method[2].x-gap"),
            gap("method[3].x-gap"),
            gap("rollbacks[0].x-gap"),
        ]
    );
    // A pause that is not known leaves the fault long enough.
    assert!(converted.document["method"][1].to_string().contains("\"600s\""));
}

#[test]
fn a_document_that_chaos_daemon_runs_is_not_changed() {
    let Value::Object(document) = example() else { panic!("no object") };
    let converted = convert(&document);
    assert!(converted.notes.is_empty() && converted.gaps.is_empty());
    assert_eq!(converted.document, document);
}

#[test]
fn what_is_written_is_read_as_the_same() {
    let odd = json!({
        "title": "a: b # c", "description": "", "name": "on", "tags": ["1", "no", "plain", "~"],
        "configuration": {"--x": {"y z": [1, 2.5, null, true, {"a": []}, [1, [2]]]}, "": {}, "e": "é\n\"\\\u{1}"},
        "method": [{"type": "action", "name": "a", "pauses": {"after": 1}, "provider": {"arguments": ["--for", "10s"]}}, {}, [], "x"],
    });
    for document in [odd, example()] {
        let text = yaml::write(document.as_object().unwrap());
        let read = Source::read(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(Value::Object(read.document().clone()), document, "{text}");
    }
    let text = yaml::write(example().as_object().unwrap());
    assert!(text.starts_with("title: the shop answers while its database is slow\ndescription: "), "{text}");
}
