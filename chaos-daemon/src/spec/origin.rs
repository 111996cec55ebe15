//! Origins: scheme, host and port of an address, by which it is decided to whom a credential is shown.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An origin of HTTP, such as `https://prometheus.test:9090`: in small letters, with its port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Origin(String);

impl Origin {
    /// That of an address; `None` if it has none, or one that others could understand otherwise.
    pub fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let default = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, plain_port(port)?),
            _ => (authority, default),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_address = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '.');
        let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => !address.is_empty() && address.chars().all(is_address),
            // Among others no user and password before it.
            None => !host.is_empty() && host.chars().all(is_name),
        };
        is_host.then(|| Self(format!("{scheme}://{}:{port}", host.to_ascii_lowercase())))
    }
}

fn plain_port(digits: &str) -> Option<u16> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| is_plain && *port != 0)
}

impl TryFrom<String> for Origin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let whole = Self::of(&text).filter(|_| text.matches('/').count() == 2 && !text.contains(['?', '#']));
        whole.ok_or_else(|| {
            format!("{text:?} is no origin: give scheme, host and port, e.g. \"https://127.0.0.1:9090\"")
        })
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> Self {
        origin.0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_of_an_address_is_its_scheme_host_and_port() {
        for (url, origin) in [
            ("http://127.0.0.1:9090/api/v1/query?query=up", "http://127.0.0.1:9090"),
            ("HTTPS://Prometheus.Test/x", "https://prometheus.test:443"),
            ("http://prometheus?x", "http://prometheus:80"),
            ("https://[FD00::1]:9090#x", "https://[fd00::1]:9090"),
            ("https://[::1]/", "https://[::1]:443"),
        ] {
            assert_eq!(Origin::of(url).unwrap().to_string(), origin, "{url}");
        }
    }

    #[test]
    fn what_could_be_understood_otherwise_has_none() {
        for url in [
            "ftp://a",
            "a:9090",
            "http://",
            "http://:9090",
            "http://good:9090@evil",
            "http://good@evil:9090",
            "http://good:9090\\@evil",
            "http://good%2eevil",
            "http://a:0",
            "http://a:+80",
            "http://a:65536",
            "http://a:",
            "http://[::1",
            "http://[]",
            "http://gööd",
            " http://a",
        ] {
            assert_eq!(Origin::of(url), None, "{url:?}");
        }
        for text in ["https://a/", "https://a/path", "https://a?x", "https://a#", "a", "https://u:p@a"] {
            assert!(Origin::try_from(text.to_owned()).is_err(), "{text:?}");
        }
        assert_eq!(Origin::try_from("https://a".to_owned()).ok(), Origin::of("https://a:443/x"));
    }
}
