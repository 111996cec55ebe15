//! Lists of targets to block, the same for everybody, and the commands that block them with iptables and nft.

use std::net::{IpAddr, Ipv4Addr};

use crate::{NetNs, Pair, Result};

/// The one target that exists, so that it can be shown to be blocked.
pub(super) const BLOCKED: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
/// Odd, so that multiplying by it permutes the numbers below any power of two: spread, but no number twice.
const SPREAD: u32 = 2_654_435_761;

/// What a list is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Single addresses.
    Hosts,
    /// Half single addresses, 40 % /24, 10 % /20.
    Mixed,
}

/// A list of so many targets, [`BLOCKED`] among them. No two overlap, which nft would refuse.
pub(super) fn list(kind: Kind, count: u32) -> Vec<String> {
    let spread = |number: u32, bits: u32| number.wrapping_mul(SPREAD) & ((1 << bits) - 1);
    // Single addresses from 32.0.0.0/4, /24 from 48.0.0.0/4, /20 from 64.0.0.0/4.
    let host = |number| Ipv4Addr::from_bits((32 << 24) | spread(number, 28)).to_string();
    let wide = |number, first: u32, length: u32| {
        let bits = (first << 24) | (spread(number, length - 4) << (32 - length));
        format!("{}/{length}", Ipv4Addr::from_bits(bits))
    };
    let one = |number: u32| match (kind, number % 10) {
        (Kind::Hosts, _) | (Kind::Mixed, 0..5) => host(number),
        (Kind::Mixed, 5..9) => wide(number, 48, 24),
        (Kind::Mixed, _) => wide(number / 10, 64, 20),
    };
    (1..count).map(one).chain(std::iter::once(BLOCKED.to_string())).collect()
}

/// A cable whose far end also has [`BLOCKED`].
pub(super) fn pair() -> Result<Pair> {
    let pair = Pair::new()?;
    pair.far.ip(&["address", "add", &format!("{BLOCKED}/32"), "dev", "lo"])?;
    let IpAddr::V4(gateway) = Pair::FAR_V4 else { unreachable!("FAR_V4 is an IPv4 address") };
    pair.near.ip(&["route", "add", &format!("{BLOCKED}/32"), "via", &gateway.to_string()])?;
    Ok(pair)
}

/// Input for `iptables-restore`: a rule per target.
pub(super) fn iptables(targets: &[String]) -> String {
    let rules: String = targets.iter().map(|target| format!("-A OUTPUT -d {target} -j DROP\n")).collect();
    format!("*filter\n{rules}COMMIT\n")
}

/// A shell script that runs `iptables` for each target.
pub(super) fn script(targets: &[String]) -> String {
    targets.iter().map(|target| format!("iptables -A OUTPUT -d {target} -j DROP\n")).collect()
}

/// Input for `nft -f`: a set and one rule.
pub(super) fn nft(kind: Kind, targets: &[String]) -> String {
    let flags = if kind == Kind::Mixed { "flags interval; " } else { "" };
    let elements = targets.join(", ");
    format!(
        "table inet bench {{ set blocked {{ type ipv4_addr; {flags}elements = {{ {elements} }}; }}\n\
         chain out {{ type filter hook output priority 0; ip daddr @blocked drop;\n}}\n}}\n"
    )
}

/// Runs a tool in a namespace with this file as its last argument.
pub(super) fn run(namespace: &NetNs, words: &[&str], file: &std::path::Path) -> Result<()> {
    let (program, rest) = words.split_first().map_or(("true", &[][..]), |(first, rest)| (*first, rest));
    crate::netns::output(namespace.command(program).args(rest).arg(file)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ipnet::Ipv4Net;

    use super::*;

    #[test]
    fn targets_are_as_many_as_asked_for_and_do_not_overlap() {
        for kind in [Kind::Hosts, Kind::Mixed] {
            let list = list(kind, 20_000);
            let distinct: HashSet<_> = list.iter().collect();
            assert_eq!((list.len(), distinct.len()), (20_000, 20_000), "{kind:?}");
            for target in list.iter().filter(|target| target.contains('/')) {
                let net: Ipv4Net = target.parse().unwrap();
                assert_eq!(net, net.trunc());
            }
        }
        assert!(list(Kind::Hosts, 100).iter().all(|target| !target.contains('/')));
    }
}
