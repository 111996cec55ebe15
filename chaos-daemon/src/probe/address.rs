//! Addresses of HTTP: as people write them, and as they are sent.

use std::fmt::Write as _;

use crate::spec::SpecError;

/// What stands for itself beside letters and digits, RFC 3986, sections 2.2 (sub-delims) and 2.3, and 3.3 (pchar).
const PLAIN: &str = "-._~!$&'()*+,;=:@/";

/// The address, which stands at `field`, with its scheme as everybody writes it.
///
/// # Errors
/// When it is no address of HTTP.
pub(super) fn known(field: &str, url: &str) -> Result<String, SpecError> {
    let wrong = || {
        let problem = format!("{url:?} is not an address: give e.g. \"http://127.0.0.1:8080/health\"");
        SpecError::new(field, problem)
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
    let scheme = scheme.to_ascii_lowercase();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_known = matches!(scheme.as_str(), "http" | "https");
    let is_plain = !authority.is_empty() && !authority.contains(char::is_whitespace);
    match is_known && is_plain && !rest.contains(char::is_control) {
        true => Ok(format!("{scheme}://{rest}")),
        false => Err(wrong()),
    }
}

/// The host of an address, without the brackets of one of IPv6.
pub(super) fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = authority.rsplit('@').next().unwrap_or_default();
    match place.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => place.split(':').next().unwrap_or_default(),
    }
}

/// The address as it is sent. What has no place in a path or a query stands there in percent, as RFC 3986 has it; what does already
/// stays. A fragment is not sent.
pub(super) fn sent(url: &str) -> String {
    let start = url.find("://").map_or(0, |scheme| scheme + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |end| start + end);
    let (origin, rest) = url.split_at(end);
    let rest = rest.split('#').next().unwrap_or_default();
    let mut sent = origin.to_owned();
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    encode(path, PLAIN, &mut sent);
    if let Some(query) = query {
        sent.push('?');
        encode(query, &format!("{PLAIN}?"), &mut sent);
    }
    sent
}

fn encode(part: &str, plain: &str, out: &mut String) {
    let bytes = part.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let is_code = || bytes.get(at + 1..at + 3).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit));
        let c = char::from(*byte);
        if c.is_ascii_alphanumeric() || plain.contains(c) || (c == '%' && is_code()) {
            out.push(c);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_sent_as_rfc_3986_has_it() {
        for (url, expected) in [
            ("http://a", "http://a"),
            ("http://a:1?x=1", "http://a:1?x=1"),
            (
                "http://a:9090/api/v1/query?query=sum(rate(x{job=\"a\"}[1m]))",
                "http://a:9090/api/v1/query?query=sum(rate(x%7Bjob=%22a%22%7D%5B1m%5D))",
            ),
            ("http://a/b c|d?q=<e f>&x=%41%zz%2", "http://a/b%20c%7Cd?q=%3Ce%20f%3E&x=%41%25zz%252"),
            ("http://a/ü?q=日#top", "http://a/%C3%BC?q=%E6%97%A5"),
            ("http://[::1]:80/[x]", "http://[::1]:80/%5Bx%5D"),
            ("http://a#only", "http://a"),
        ] {
            assert_eq!(sent(url), expected, "{url}");
            assert_eq!(sent(&sent(url)), expected, "sent twice: {url}");
        }
    }

    #[test]
    fn the_host_of_an_address_is_what_is_connected_to() {
        for (url, host) in [
            ("http://a:80/b", "a"),
            ("https://[::1]:9/", "::1"),
            ("http://[::1]", "::1"),
            ("http://127.0.0.1@169.254.169.254:80/x@y", "169.254.169.254"),
            ("http://a?x", "a"),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }

    #[test]
    fn the_case_of_a_scheme_does_not_matter_and_what_is_no_address_is_refused() {
        assert_eq!(known("url", "HTTP://A/b c").unwrap(), "http://A/b c");
        assert_eq!(known("url", "Https://a?x").unwrap(), "https://a?x");
        for url in [
            "",
            "a",
            "a/b",
            "ftp://a",
            "http://",
            "http:///b",
            "http:// a/",
            "http://a b/",
            "http://a/\n",
            "://a",
        ] {
            let wrong = known("url", url).unwrap_err();
            assert!(wrong.field == "url" && wrong.problem.contains("is not an address"), "{url}");
        }
    }
}
