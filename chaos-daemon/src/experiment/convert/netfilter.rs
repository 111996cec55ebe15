//! What `iptables` does: it drops packets, or answers them with an error.

use super::meaning::Meaning;

/// A rule, as far as it is known here.
#[derive(Default)]
struct Rule<'a> {
    /// Whether it is of what goes out.
    goes_out: bool,
    target: Vec<String>,
    verdict: Option<&'a str>,
    answer: Option<&'a str>,
}

/// What `iptables` does, or `ip6tables`.
pub(super) fn iptables(program: &str, words: &[&str]) -> Result<Meaning, String> {
    let mut words = words;
    // Waiting for a lock is nothing that a fault does.
    while let ["-w" | "--wait", rest @ ..] | ["-t" | "--table", "filter", rest @ ..] = words {
        words = rest;
    }
    let (verb, chain, rest) = match words {
        [verb, chain, rest @ ..] => (*verb, *chain, rest),
        _ => return Err("iptables adds no rule to a chain".to_owned()),
    };
    let key = format!("{program} {chain} {}", rest.join(" "));
    match verb {
        "-A" | "--append" => {}
        // The place in the chain says nothing of a packet.
        "-I" | "--insert" if rest.first().is_some_and(|word| word.parse::<u32>().is_ok()) => {
            return iptables(program, &[&["-A", chain][..], &rest[1..]].concat());
        }
        "-I" | "--insert" => {}
        "-D" | "--delete" => return Ok(Meaning::TakesBack(key)),
        other => return Err(format!("iptables {other} is not known here")),
    }
    let goes_out = match chain {
        "OUTPUT" => true,
        "INPUT" => false,
        other => {
            return Err(format!(
                "only the chains INPUT and OUTPUT are of this host's own traffic, and {other} is not"
            ));
        }
    };
    let rule = read(Rule { goes_out, ..Rule::default() }, rest)?;
    let direction = if goes_out { "egress" } else { "ingress" };
    let mut words: Vec<String> = match (rule.verdict, rule.answer) {
        (Some("DROP"), None) => ["network-partition", "--direction", direction].map(str::to_owned).to_vec(),
        (Some("REJECT"), answer) if goes_out => {
            let answer = match answer.unwrap_or("icmp-port-unreachable") {
                "tcp-reset" => "reset",
                "icmp-host-unreachable" => "host_unreachable",
                "icmp-net-unreachable" => "network_unreachable",
                "icmp-port-unreachable" => "port_unreachable",
                "icmp-admin-prohibited" => "admin_prohibited",
                other => return Err(format!("{other} is no answer of chaosctl inject error")),
            };
            ["error", "--answer", answer].map(str::to_owned).to_vec()
        }
        (Some("REJECT"), _) => {
            return Err(
                "it answers who comes in: chaosctl inject error answers packets on their way out".to_owned()
            );
        }
        _ => return Err("only -j DROP and -j REJECT are known here".to_owned()),
    };
    let has = |options: &[&str]| rule.target.iter().any(|word| options.contains(&word.as_str()));
    let (has_interface, has_peer) = (has(&["--interface"]), has(&["--cidr", "--host"]));
    let has_port = has(&["--remote-port", "--local-port"]);
    if has_port && !has_peer && !has_interface {
        return Err("it meets every interface: name one (-i, -o), or a peer".to_owned());
    }
    if !has_peer && !has_port {
        return Err("it meets all traffic of the host: name a peer, a port or a unit as the target of chaosctl inject network-partition".to_owned());
    }
    // Each of the two programs is about one version of IP.
    if !has_peer {
        words.extend(["--cidr", if program == "iptables" { "0.0.0.0/0" } else { "::/0" }].map(str::to_owned));
    }
    words.extend(rule.target);
    let fault = Meaning::Fault { words, lasts: None, key, note: None };
    Ok(match has_interface {
        true => fault,
        false => fault
            .noting("(on the interface of the route; iptables meets all: give --interface if it is another)"),
    })
}

fn read<'a>(mut rule: Rule<'a>, mut words: &[&'a str]) -> Result<Rule<'a>, String> {
    while let [option, rest @ ..] = words {
        let [value, rest @ ..] = rest else { return Err(format!("{option} needs a value")) };
        // A name is looked up, as iptables does it.
        let is_name = value.contains(|c: char| c.is_ascii_alphabetic()) && !value.contains(':');
        let name = match (*option, rule.goes_out) {
            ("-p" | "--protocol", _) => Some("--protocol"),
            ("-d" | "--destination", true) | ("-s" | "--source", false) if is_name => Some("--host"),
            ("-d" | "--destination", true) | ("-s" | "--source", false) => Some("--cidr"),
            ("--dport" | "--destination-port", true) | ("--sport" | "--source-port", false) => {
                Some("--remote-port")
            }
            ("--sport" | "--source-port", true) | ("--dport" | "--destination-port", false) => {
                Some("--local-port")
            }
            ("-o" | "--out-interface", true) | ("-i" | "--in-interface", false) => Some("--interface"),
            // Says once more which protocol it is.
            ("-m" | "--match", _) if matches!(*value, "tcp" | "udp") => None,
            ("-j" | "--jump", _) => {
                rule.verdict = Some(value);
                None
            }
            ("--reject-with", _) => {
                rule.answer = Some(value);
                None
            }
            (other, _) => return Err(format!("iptables {other} is not known here")),
        };
        if *value == "!" {
            return Err("a rule that is about all others is not known here".to_owned());
        }
        if let Some(name) = name {
            // A range of ports has a dash here.
            let value = if name.ends_with("port") { value.replace(':', "-") } else { (*value).to_owned() };
            rule.target.extend([name.to_owned(), value]);
        }
        words = rest;
    }
    Ok(rule)
}
