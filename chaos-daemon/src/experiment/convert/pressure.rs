//! What `stress`, `stress-ng`, `kill`, `pkill`, `killall`, `systemctl` and `service` do.

use super::meaning::Meaning;

/// What `stress-ng` or `stress` does: one kind of load.
pub(super) fn stress(words: &[&str]) -> Result<Meaning, String> {
    let (mut cpu, mut load, mut memory, mut bytes, mut lasts) = (None, None, None, None, None);
    let split: Vec<&str> = words.iter().flat_map(|word| word.splitn(2, '=')).collect();
    let mut rest = split.as_slice();
    while let [option, after @ ..] = rest {
        let slot = match *option {
            "-c" | "--cpu" => &mut cpu,
            "-l" | "--cpu-load" => &mut load,
            "-m" | "--vm" => &mut memory,
            "--vm-bytes" => &mut bytes,
            "-t" | "--timeout" => &mut lasts,
            "--metrics" | "--metrics-brief" | "-q" | "--quiet" | "-v" | "--verbose" | "--vm-keep" => {
                rest = after;
                continue;
            }
            other => {
                return Err(format!(
                    "{other} of stress-ng is not known here: chaosctl inject resource-exhaustion has disk_io, disk_fill, file_descriptors and pids"
                ));
            }
        };
        let [value, after @ ..] = after else { return Err(format!("{option} needs a value")) };
        *slot = Some(*value);
        rest = after;
    }
    let mut words = vec!["resource-exhaustion".to_owned(), "--resource".to_owned()];
    let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    match (cpu, memory) {
        (Some(cores), None) => {
            add(&["cpu", "--cpu-percent", load.unwrap_or("100")]);
            // None is one on each.
            if cores != "0" {
                add(&["--cores", cores]);
            }
        }
        (None, Some("1")) => add(&["memory", "--memory-mb", &megabytes(bytes.unwrap_or("256m"))?]),
        (None, Some(_)) => return Err("stress and stress-ng share out --vm-bytes in two ways: say how much chaosctl inject resource-exhaustion --resource memory --memory-mb takes in all".to_owned()),
        (Some(_), Some(_)) => return Err("it loads processors and takes memory: give an action for each".to_owned()),
        (None, None) => return Err("it loads nothing that is known here".to_owned()),
    }
    Ok(Meaning::Fault { words, lasts: lasts.map(span).transpose()?, key: "stress".to_owned(), note: None })
}

/// A size of stress-ng(1), in MiB.
fn megabytes(text: &str) -> Result<String, String> {
    let unknown = || format!("{text:?} is no size in megabytes or gigabytes");
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let whole: u64 = number.parse().ok().ok_or_else(unknown)?;
    match text[number.len()..].to_ascii_lowercase().as_str() {
        "m" => Ok(whole.to_string()),
        "g" => Ok(whole.checked_mul(1024).ok_or_else(unknown)?.to_string()),
        _ => Err(unknown()),
    }
}

/// A time of stress-ng(1): without a unit it is seconds.
fn span(text: &str) -> Result<String, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit()) {
        return Err(format!("{text:?} is no whole number of seconds, minutes or hours"));
    }
    match &text[number.len()..] {
        "" => Ok(format!("{number}s")),
        unit @ ("s" | "m" | "h") => Ok(format!("{number}{unit}")),
        _ => Err(format!("{text:?} is no whole number of seconds, minutes or hours")),
    }
}

/// What `kill`, `pkill` or `killall` does.
pub(super) fn signal(program: &str, words: &[&str]) -> Result<Meaning, String> {
    let (mut signal, mut whole_line, mut exact, mut who) = ("SIGTERM".to_owned(), false, false, Vec::new());
    let mut rest = words;
    while let [word, after @ ..] = rest {
        rest = after;
        match *word {
            "-f" | "--full" if program == "pkill" => whole_line = true,
            "-x" | "--exact" if program == "pkill" => exact = true,
            "-e" | "-q" | "--" => {}
            // To pkill it is a session.
            "-s" if program == "pkill" => return Err("pkill -s is about sessions: give --signal".to_owned()),
            "-s" | "--signal" => {
                let [given, after @ ..] = rest else { return Err(format!("{word} needs a signal")) };
                (signal, rest) = (signal_of(given)?, after);
            }
            option if option.starts_with('-') => signal = signal_of(&option[1..])?,
            name => who.push(name),
        }
    }
    let [who] = who.as_slice() else {
        return Err(format!("{program} is of several at once: give an action for each"));
    };
    if matches!(*who, "stress" | "stress-ng") && matches!(signal.as_str(), "SIGTERM" | "SIGKILL" | "SIGINT") {
        return Ok(Meaning::TakesBack("stress".to_owned()));
    }
    let (option, value) = match program {
        "kill" if who.parse::<u32>().is_ok_and(|pid| pid > 1) => ("--pid", (*who).to_owned()),
        "kill" => {
            return Err(format!(
                "{who:?} is no process that could be known before a run: name it by --unit, --exe or --command"
            ));
        }
        _ if whole_line && exact => ("--command", format!("^({who})$")),
        _ if whole_line => ("--command", (*who).to_owned()),
        _ if plain_name(who) != *who => {
            return Err(format!(
                "{who:?} is an expression about names: give one about command lines as --command"
            ));
        }
        _ if exact || program == "killall" => ("--command", format!("^(\\S*/)?{who}( |$)")),
        _ => ("--command", format!("^(\\S*/)?[^ /]*{who}[^ /]*( |$)")),
    };
    let key = format!("stopped {who}");
    let fault = match signal.as_str() {
        "SIGSTOP" => Meaning::fault(&["process-pause", option, &value], key),
        "SIGCONT" => return Ok(Meaning::TakesBack(key)),
        "SIGTSTP" => return Err("a signal that only stops is chaosctl inject process-pause".to_owned()),
        signal => {
            Meaning::fault(&["process-kill", option, &value, "--signal", signal], format!("killed {who}"))
        }
    };
    Ok(match option == "--command" && !whole_line {
        true => {
            fault.noting("(by the first word of the command line, and not by the name that the kernel has)")
        }
        false => fault,
    })
}

/// A name that stands for itself in an expression.
fn plain_name(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).collect()
}

/// Signals, by their names.
const SIGNALS: [&str; 14] = [
    "HUP", "INT", "QUIT", "ABRT", "KILL", "USR1", "SEGV", "USR2", "TERM", "CONT", "STOP", "TSTP", "ALRM",
    "PIPE",
];

/// A signal by its name, whichever way it was given.
fn signal_of(text: &str) -> Result<String, String> {
    let number = match text {
        "1" => "HUP",
        "2" => "INT",
        "3" => "QUIT",
        "6" => "ABRT",
        "9" => "KILL",
        "10" => "USR1",
        "11" => "SEGV",
        "12" => "USR2",
        "15" => "TERM",
        "18" => "CONT",
        "19" => "STOP",
        other => other,
    };
    let name = number.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    match SIGNALS.contains(&name) {
        true => Ok(format!("SIG{name}")),
        false => Err(format!("{text:?} is no option or signal that is known here")),
    }
}

/// What `systemctl` or `service` does.
pub(super) fn service(program: &str, words: &[&str]) -> Result<Meaning, String> {
    let words: Vec<_> =
        words.iter().copied().filter(|word| !matches!(*word, "--no-block" | "-q" | "--quiet")).collect();
    let (verb, unit) = match (program, words.as_slice()) {
        ("systemctl", [verb, unit]) => (*verb, *unit),
        ("service", [unit, verb]) => (*verb, *unit),
        _ => return Err(format!("{program} is of several at once, or has options that are not known here")),
    };
    let unit = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    // A start takes back a stop alone: nothing that ends a fault starts what was killed.
    let key = |what: &str| format!("{what} {unit}");
    match verb {
        "stop" => Ok(Meaning::fault(&["service-stop", "--unit", &unit], key("stopped"))),
        "restart" => Ok(Meaning::fault(&["service-restart", "--unit", &unit], key("restarted"))),
        "kill" => {
            Ok(Meaning::fault(&["process-kill", "--unit", &unit, "--signal", "SIGTERM"], key("killed")))
        }
        "start" => Ok(Meaning::TakesBack(key("stopped"))),
        other => Err(format!("{program} {other} is not known here")),
    }
}
