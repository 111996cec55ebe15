//! All addresses of some prefixes but those of others, as prefixes again.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// What is left of `from` without `except`: sorted, each once, none within another of the same origin.
pub(super) fn without(from: &[IpNet], except: &[IpNet]) -> Vec<IpNet> {
    let mut left = from.to_vec();
    for out in except {
        left = left.into_iter().flat_map(|net| less(net, out)).collect();
    }
    left.sort_unstable();
    left.dedup();
    left
}

/// A prefix without the addresses of another: halves of it, as long as that is within.
fn less(net: IpNet, out: &IpNet) -> Vec<IpNet> {
    if out.contains(&net) {
        return Vec::new();
    }
    let (mut left, mut around) = (Vec::new(), net);
    while around.contains(out) && around != *out {
        let Some([one, other]) = halves(around) else { break };
        let (within, beside) = if one.contains(out) { (one, other) } else { (other, one) };
        left.push(beside);
        around = within;
    }
    match left.is_empty() {
        true => vec![net],
        false => left,
    }
}

fn halves(net: IpNet) -> Option<[IpNet; 2]> {
    let mut halves = match net {
        IpNet::V4(net) => net.subnets(net.prefix_len() + 1).ok()?.map(IpNet::from).collect::<Vec<_>>(),
        IpNet::V6(net) => net.subnets(net.prefix_len() + 1).ok()?.map(IpNet::from).collect::<Vec<_>>(),
    };
    let other = halves.pop()?;
    Some([halves.pop()?, other])
}

/// Every address.
pub(super) fn everybody() -> [IpNet; 2] {
    [Ipv4Net::default().into(), Ipv6Net::default().into()]
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_is_taken_out_is_gone_and_all_else_is_there() {
        assert_eq!(
            without(&nets(&["10.0.0.0/30"]), &nets(&["10.0.0.1/32"])),
            nets(&["10.0.0.0/32", "10.0.0.2/31"])
        );
        assert_eq!(without(&nets(&["10.0.0.0/8"]), &nets(&["10.0.0.0/8"])), []);
        assert_eq!(without(&nets(&["10.0.0.0/8"]), &nets(&["0.0.0.0/0"])), []);
        assert_eq!(without(&nets(&["10.0.0.0/8"]), &nets(&["11.0.0.0/8", "::/0"])), nets(&["10.0.0.0/8"]));
        assert_eq!(without(&everybody(), &nets(&["10.0.0.1/32"])).len(), 33);
        assert_eq!(without(&everybody(), &nets(&["::1/128"])).len(), 129);
    }

    proptest! {
        #[test]
        fn an_address_is_left_if_it_was_there_and_is_not_taken_out(
            from in prop::collection::vec((0_u32..256, 24_u8..=32), 0..4),
            except in prop::collection::vec((0_u32..256, 23_u8..=32), 0..4),
            address in 0_u32..256,
        ) {
            let net = |&(address, length): &(u32, u8)| {
                IpNet::new(Ipv4Addr::from(0x0a00_0000 | address).into(), length).unwrap().trunc()
            };
            let (from, except): (Vec<_>, Vec<_>) = (from.iter().map(net).collect(), except.iter().map(net).collect());
            let address = IpAddr::from(Ipv4Addr::from(0x0a00_0000 | address));
            let has = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
            prop_assert_eq!(has(&without(&from, &except)), has(&from) && !has(&except));
        }

        #[test]
        fn the_same_of_version_6(out: u128, length in 0_u8..=128, address: u128) {
            let out = IpNet::new(Ipv6Addr::from(out).into(), length).unwrap().trunc();
            let address = IpAddr::from(Ipv6Addr::from(address));
            let left = without(&everybody(), &[out]);
            prop_assert_eq!(left.iter().any(|net| net.contains(&address)), !out.contains(&address));
        }
    }
}
