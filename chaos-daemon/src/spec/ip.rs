//! Addresses and prefixes as packets have them. IPv4 can be written as IPv6 (`::ffff:10.0.0.5`, RFC 4291, 2.5.5.2), which only
//! sockets understand: whatever compares addresses would find it in no prefix of IPv4, and in `::/0`.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Deserializer};

/// Bits before an IPv4 address that is written as one of IPv6.
const MAPPED: u8 = 96;

/// An address; that of IPv4 where it is one. `None` when the text is none.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// The same prefix; that of IPv4 where it is one.
pub fn canonical(net: IpNet) -> IpNet {
    if let IpNet::V6(six) = net
        && let Some(length) = six.prefix_len().checked_sub(MAPPED)
        && let Some(four) = six.addr().to_ipv4_mapped()
        && let Ok(four) = Ipv4Net::new(four, length)
    {
        return IpNet::V4(four);
    }
    net
}

/// Prefixes of a file, each as [`canonical`] has it.
///
/// # Errors
/// When one is none.
pub fn prefixes<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<IpNet>, D::Error> {
    Ok(Vec::<IpNet>::deserialize(source)?.into_iter().map(canonical).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_ipv4_is_one_of_ipv4_however_it_is_written_and_others_stay_as_they_are() {
        for (given, expected) in [
            ("::ffff:10.0.0.5/128", "10.0.0.5/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:0:0/95", "::ffff:0:0/95"),
            ("::/0", "::/0"),
            ("::1/128", "::1/128"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
        ] {
            assert_eq!(canonical(given.parse().unwrap()), expected.parse::<IpNet>().unwrap(), "{given}");
        }
        assert_eq!(address("::ffff:10.0.0.5"), "10.0.0.5".parse().ok());
        assert_eq!(address("::1"), "::1".parse().ok());
        assert_eq!(address("localhost"), None);
    }
}
