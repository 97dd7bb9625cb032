//! The next hop to an address.

use crate::LocalAddress;
use ringside_config::{is_link_local, nearest};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The route to a destination: the neighbour to resolve, and the source address of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) next: IpAddr,
    pub(crate) own: LocalAddress,
}

/// The networks, the routers and the lease of a stack as they are now, for other threads.
#[derive(Debug, Default)]
pub(crate) struct Routes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    networks: Vec<LocalAddress>,
    gateways: Vec<IpAddr>,
    leased: Option<LocalAddress>,
}

impl Routes {
    pub(crate) fn set(
        &self,
        networks: &[LocalAddress],
        gateways: &[IpAddr],
        leased: Option<LocalAddress>,
    ) {
        *self.known() = Known {
            networks: networks.to_vec(),
            gateways: gateways.to_vec(),
            leased,
        };
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The own address that packets to a peer have; `None` without a way to it.
    pub(crate) fn source_towards(&self, peer: IpAddr) -> Option<LocalAddress> {
        let known = self.known();
        hop(&known.networks, &known.gateways, peer).map(|hop| hop.own)
    }

    /// The address that a DHCP server granted.
    pub(crate) fn leased(&self) -> Option<LocalAddress> {
        self.known().leased
    }
}

/// The way to `destination`: straight where a network of ours holds it, the longest prefix first,
/// and of several equal ones, such as one network on two VLANs, that of the first address; else
/// through the gateway of its IP version.
pub(crate) fn hop(
    addresses: &[LocalAddress],
    gateways: &[IpAddr],
    destination: IpAddr,
) -> Option<Hop> {
    let near = |next: IpAddr| nearest(addresses, next).map(|own| Hop { next, own });
    near(destination).or_else(|| {
        let same = |gateway: &&IpAddr| gateway.is_ipv4() == destination.is_ipv4();
        let mut gateways = gateways.iter().filter(same);
        let hop = gateways.find_map(|gateway| near(*gateway))?;
        let own = source_of(addresses, &hop, destination);
        Some(Hop { own, ..hop })
    })
}

/// The own address that packets to `destination` have, behind a router: the one in the router's
/// network, unless that is link-local, which routers do not forward. Then the one on the VLAN that
/// has the longest prefix in common with the destination. Source: RFC 4291, section 2.5.6; RFC
/// 6724, section 5, rules 2 and 8.
fn source_of(addresses: &[LocalAddress], hop: &Hop, destination: IpAddr) -> LocalAddress {
    let IpAddr::V6(six) = destination else {
        return hop.own;
    };
    if !is_link_local(hop.own.address) || is_link_local(destination) {
        return hop.own;
    }
    let common = |own: &&LocalAddress| match own.address {
        IpAddr::V6(address) => (address.to_bits() ^ six.to_bits()).leading_zeros(),
        IpAddr::V4(_) => 0,
    };
    let fits = |own: &&LocalAddress| {
        own.vlan == hop.own.vlan && own.address.is_ipv6() && !is_link_local(own.address)
    };
    // `max_by_key` takes the last of equal ones.
    let wide = addresses.iter().rev().filter(fits).max_by_key(common);
    wide.copied().unwrap_or(hop.own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(destination: &str) -> Option<(String, String)> {
        let addresses: Vec<LocalAddress> =
            ["10.0.0.1/8", "10.1.0.1/16@7", "10.1.0.1/16@8", "fd00::1/64"]
                .map(|one| one.parse().unwrap())
                .into();
        let gateways = ["10.0.0.254".parse().unwrap()];
        let hop = hop(&addresses, &gateways, destination.parse().unwrap())?;
        Some((hop.next.to_string(), hop.own.to_string()))
    }

    #[test]
    fn the_longest_prefix_wins_then_the_first_address_and_the_rest_goes_to_the_gateway() {
        let of = |next: &str, own: &str| Some((next.to_owned(), own.to_owned()));
        assert_eq!(next("10.2.0.9"), of("10.2.0.9", "10.0.0.1/8"));
        assert_eq!(next("10.1.0.9"), of("10.1.0.9", "10.1.0.1/16@7"));
        assert_eq!(next("192.0.2.1"), of("10.0.0.254", "10.0.0.1/8"));
        assert_eq!(next("fd00::9"), of("fd00::9", "fd00::1/64"));
        assert_eq!(next("2001:db8::1"), None);
    }

    #[test]
    fn packets_through_a_link_local_router_do_not_come_from_a_link_local_address() {
        let router = ["fe80::1".parse().unwrap()];
        let source = |own: &[&str], destination: &str| {
            let own = own.iter().map(|one| one.parse().unwrap());
            let own = own.collect::<Vec<LocalAddress>>();
            let hop = hop(&own, &router, destination.parse().unwrap()).unwrap();
            assert!(hop.next == router[0] || destination.starts_with("fe80"));
            hop.own.to_string()
        };
        let all = [
            "fe80::2/64",
            "fd00::2/64",
            "2001:db8:1::2/64",
            "2001:db8:2::2/64",
            "2001:db8:9:1::2/64@7",
            "10.0.0.2/8",
        ];
        assert_eq!(source(&all, "2001:db8:9::9"), all[2]);
        assert_eq!(source(&all, "2001:db8:2:1::9"), all[3]);
        assert_eq!(source(&all, "fd99::9"), all[1]);
        assert_eq!(source(&all, "fe80::9"), all[0]);
        assert_eq!(source(&all[..1], "2001:db8:9::9"), all[0]);
    }

    /// The first router is that of a DHCP server, on frames without a tag.
    #[test]
    fn networks_of_one_vlan_go_to_the_first_gateway_that_is_on_it() {
        let gateways = ["192.0.2.254", "fd00::fe", "10.1.0.254"].map(|one| one.parse().unwrap());
        let next = |own: &[&str], destination: &str| {
            let own = own.iter().map(|one| one.parse().unwrap());
            let own = own.collect::<Vec<LocalAddress>>();
            hop(&own, &gateways, destination.parse().unwrap()).map(|hop| hop.next)
        };
        let far = "203.0.113.1";
        assert_eq!(next(&["10.1.0.1/24@7"], far), Some(gateways[2]));
        let both = ["10.1.0.1/24@7", "192.0.2.1/24"];
        assert_eq!(next(&both, far), Some(gateways[0]));
        assert_eq!(next(&["fd00::1/64"], far), None);
    }
}
