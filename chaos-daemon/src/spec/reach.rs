//! Which addresses probes may ask.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Where clouds tell a host its secrets: link-local addresses (RFC 3927, RFC 4291), and the others of Amazon, Google, Alibaba and Azure.
/// A prefix that is wider says nothing about them.
const SECRET: [&str; 6] = [
    "169.254.0.0/16",
    "fe80::/10",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
    "100.100.100.200/32",
    "168.63.129.16/32",
];

/// Addresses that may be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// All within these, but for the addresses at which clouds tell secrets. Those need a prefix of their own.
    pub prefixes: Vec<IpNet>,
}

impl Reach {
    /// All addresses but those with secrets.
    pub fn usual() -> Self {
        Self { prefixes: ["0.0.0.0/0", "::/0"].iter().filter_map(|text| text.parse().ok()).collect() }
    }

    /// All addresses.
    pub fn all() -> Self {
        let secret = SECRET.iter().filter_map(|text| text.parse().ok());
        Self { prefixes: Self::usual().prefixes.into_iter().chain(secret).collect() }
    }

    /// Whether this address may be asked.
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let secret =
            SECRET.iter().filter_map(|text| text.parse::<IpNet>().ok()).find(|net| net.contains(&address));
        let is_wide = |prefix: &IpNet| secret.is_some_and(|secret| !secret.contains(prefix));
        self.prefixes.iter().any(|prefix| prefix.contains(&address) && !is_wide(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(prefixes: &[&str]) -> Reach {
        Reach { prefixes: prefixes.iter().map(|text| text.parse().unwrap()).collect() }
    }

    #[test]
    fn where_clouds_tell_secrets_is_asked_by_a_prefix_of_its_own_alone() {
        let has = |reach: &Reach, text: &str| reach.has(text.parse().unwrap());
        let usual = Reach::usual();
        for address in ["127.0.0.1", "10.0.0.7", "8.8.8.8", "::1", "2001:db8::1"] {
            assert!(has(&usual, address) && has(&Reach::all(), address), "{address}");
        }
        for address in
            ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200"]
        {
            assert!(!has(&usual, address) && has(&Reach::all(), address), "{address}");
        }
        let opened = reach(&["127.0.0.0/8", "169.254.169.254/32"]);
        assert!(has(&opened, "169.254.169.254") && has(&opened, "127.0.0.1"));
        assert!(!has(&opened, "169.254.169.253") && !has(&opened, "10.0.0.7") && !has(&opened, "::1"));
    }
}
