//! Forms that people type or copy and that are something else here: each is refused with the right form. What is not among them is left
//! to whoever parses the field.

use super::units::SpecError;

/// An interface as `ip` shows it, `eth0@if2`, or the label of an address, `eth0:1`.
pub(super) fn interface(name: &str) -> Result<(), SpecError> {
    let wrong = |problem: String| Err(SpecError::new("target.interface", problem));
    if let Some((before, _)) = name.split_once('@') {
        return wrong(format!(
            "{name:?} is the interface with what it is linked to, as `ip link` shows it: give {before:?}"
        ));
    }
    if let Some((before, _)) = name.split_once(':') {
        return wrong(format!(
            "{name:?} is the label of an address, and no interface: give {before:?}, which is all of it"
        ));
    }
    Ok(())
}

/// A host as part of something else: a URL, with a port, with an interface, a pattern.
pub(super) fn host(text: Option<&str>) -> Result<(), SpecError> {
    let Some(text) = text else { return Ok(()) };
    let wrong = |problem: String| Err(SpecError::new("target.host", format!("{text:?} is {problem}")));
    if let Some((_, rest)) = text.split_once("://") {
        let name = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let name = name.rsplit('@').next().unwrap_or_default();
        let (name, port) = without_port(name);
        let port = port.map(|port| format!(", and the port as port: {port}")).unwrap_or_default();
        return wrong(format!("a URL: give the host alone, {name:?}{port}"));
    }
    if let Some((before, _)) = text.split_once('/') {
        return wrong(format!("no name of a host: give the name alone, {before:?}, or a prefix as cidr"));
    }
    if let Some((before, zone)) = text.split_once('%') {
        return wrong(format!("an address with its interface: give {before:?}, and {zone:?} as interface"));
    }
    if text.contains('*') {
        return wrong(
            "a pattern, and nothing can be looked up by one: give one host, or prefixes as cidr".into(),
        );
    }
    if text.contains(',') {
        return wrong("several hosts: give one, or their addresses as cidrs".into());
    }
    match without_port(text) {
        (name, Some(port)) => {
            wrong(format!("a host with a port: give {name:?}, and the port as port: {port}"))
        }
        _ => Ok(()),
    }
}

/// The name and the port in `name:port` and `[address]:port`. An address of IPv6 has no port.
fn without_port(text: &str) -> (&str, Option<&str>) {
    let split = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => return (address, rest.strip_prefix(':')),
        None => text.split_once(':'),
    };
    match split {
        Some((name, port)) if !port.contains(':') => (name, Some(port)),
        _ => (text, None),
    }
}

/// What is wrong with a prefix that is none.
pub(super) fn no_prefix(text: &str) -> String {
    let example = "give e.g. \"10.0.0.0/8\", \"2001:db8::/32\" or \"10.0.0.7\"";
    let about = match text.trim() {
        text if text.contains("://") => "a URL: give the host as host",
        text if text.contains(',') => "several: give a list as cidrs, each by itself",
        text if text.contains('%') => {
            "with an interface: leave out the % and what follows, and give interface"
        }
        text if text.contains('*') => "a pattern: give a prefix, such as \"10.0.0.0/8\"",
        text if text.chars().any(|each| each.is_ascii_alphabetic()) && !text.contains(':') => {
            "a name: give it as host, without anything behind it"
        }
        _ => return format!("{text:?} is not an address prefix: {example}"),
    };
    format!("{text:?} is not an address prefix, but {about}")
}

/// A number of MiB as people write sizes: `512`, `512M`, `1Gi`, `1GiB`. `None` of what is none.
///
/// # Errors
/// For a unit of powers of ten.
pub(super) fn mebibytes(text: &str) -> Option<Result<f64, String>> {
    let text = text.trim();
    let at = text.find(|each: char| each.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let number: f64 = number.trim().parse().ok().filter(|number: &f64| number.is_finite())?;
    let factor = match unit {
        "K" | "Ki" | "KiB" => 1.0 / 1024.0,
        "M" | "Mi" | "MiB" => 1.0,
        "G" | "Gi" | "GiB" => 1024.0,
        "T" | "Ti" | "TiB" => 1024.0 * 1024.0,
        "B" => 1.0 / (1024.0 * 1024.0),
        "kB" | "KB" | "MB" | "GB" | "TB" => {
            let binary = unit.replace('B', "iB").replace('k', "K");
            return Some(Err(format!(
                "{text:?} is in powers of ten: give powers of two, such as {number}{binary}"
            )));
        }
        _ => return None,
    };
    Some(Ok(number * factor))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::FaultRequest;

    /// Why a partition of this target is refused.
    fn refusal(target: serde_json::Value) -> String {
        let request = json!({"fault_type": "network_partition", "probability": 1.0, "target": target});
        let request: FaultRequest = serde_json::from_value(request).unwrap();
        request.parse().map(drop).unwrap_err().to_string()
    }

    #[test]
    fn an_interface_as_it_is_shown_and_a_label_are_refused_with_the_name() {
        for (given, name) in [("h0@if2", "h0"), ("eth0.5@eth0", "eth0.5"), ("eth0:1", "eth0")] {
            let refused = refusal(json!({"interface": given}));
            assert!(
                refused.starts_with("target.interface: ") && refused.contains(&format!("give {name:?}")),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_host_within_something_else_is_refused_with_the_host() {
        for (given, give) in [
            ("https://shop.example/cart", "the host alone, \"shop.example\""),
            ("https://me@shop.example:8443/x", "\"shop.example\", and the port as port: 8443"),
            ("http://[2001:db8::1]:80", "\"2001:db8::1\", and the port as port: 80"),
            ("shop.example:8080", "give \"shop.example\", and the port as port: 8080"),
            ("shop.example/cart", "give the name alone, \"shop.example\""),
            ("fe80::1%eth0", "give \"fe80::1\", and \"eth0\" as interface"),
            ("*.example", "a pattern"),
            ("a.example,b.example", "several hosts"),
        ] {
            let refused = refusal(json!({"interface": "eth0", "host": given}));
            assert!(refused.starts_with("target.host: ") && refused.contains(give), "{give}: {refused}");
        }
        for fine in ["shop.example", "10.0.0.7", "2001:db8::1", "localhost", "under_score"] {
            assert_eq!(host(Some(fine)), Ok(()), "{fine}");
        }
    }

    #[test]
    fn a_prefix_that_is_something_else_is_refused_with_where_it_belongs() {
        for (given, words) in [
            ("10.0.0.1,10.0.0.2", "a list as cidrs"),
            ("https://shop.example", "a URL: give the host as host"),
            ("fe80::1%eth0", "give interface"),
            ("10.0.*", "a pattern"),
            ("shop.example", "a name: give it as host"),
            ("10.0.0.0/33", "give e.g."),
        ] {
            let refused = refusal(json!({"interface": "eth0", "cidr": given}));
            assert!(refused.starts_with("target.cidr: ") && refused.contains(words), "{words}: {refused}");
        }
    }

    #[test]
    fn a_size_in_powers_of_two_is_mebibytes_and_one_in_powers_of_ten_is_refused() {
        for (text, number) in
            [("1Gi", 1024.0), ("512M", 512.0), ("1.5GiB", 1536.0), ("2048 KiB", 2.0), ("1T", 1_048_576.0)]
        {
            assert_eq!(mebibytes(text), Some(Ok(number)), "{text}");
        }
        let refused = mebibytes("1GB").unwrap().unwrap_err();
        assert!(refused.contains("1GiB"), "{refused}");
        for other in ["512", "many", "Gi", "1 acre", ""] {
            assert_eq!(mebibytes(other), None, "{other}");
        }
    }
}
