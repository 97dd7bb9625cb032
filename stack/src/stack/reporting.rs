//! The own addresses and multicast groups that reports of groups need.

use super::Stack;
use crate::LocalAddress;
use crate::filters::solicited_node;
use crate::link::ADDRESSES;
use ringside_pmd::rdma::address::link_local;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Stack {
    /// The source of a report by IGMP: an address of the VLAN, unspecified if there is none.
    /// Routers discard a report of another network than theirs, so the automatic address comes
    /// last. Source: RFC 2236, section 10.
    pub(super) fn source_of_igmp(&self, vlan: Option<u16>) -> Ipv4Addr {
        let leased = self.leased();
        let rank = |own: &LocalAddress| {
            let is_leased = leased.is_some_and(|leased| leased.address == own.address);
            (Some(*own) == self.automatic, !is_leased)
        };
        let of_vlan = self.addresses.iter().filter(|own| own.vlan == vlan);
        let four = of_vlan.filter_map(|own| match own.address {
            IpAddr::V4(four) => Some((rank(own), four)),
            IpAddr::V6(_) => None,
        });
        let first = four.min_by_key(|(rank, _)| *rank);
        first.map_or(Ipv4Addr::UNSPECIFIED, |(_, four)| four)
    }

    /// The source of a report by multicast listener discovery: the link-local address of the VLAN,
    /// unspecified if there is none. Source: RFC 3810, section 5.2.13.
    pub(super) fn source_of_discovery(&self, vlan: Option<u16>) -> Ipv6Addr {
        let narrow = self.narrow_address(vlan);
        narrow.unwrap_or(Ipv6Addr::UNSPECIFIED)
    }

    /// The link-local address of a VLAN.
    fn narrow_address(&self, vlan: Option<u16>) -> Option<Ipv6Addr> {
        let of_vlan = self.addresses.iter().filter(|own| own.vlan == vlan);
        let mut narrow = of_vlan.filter_map(|own| match own.address {
            IpAddr::V6(six) => Some(six).filter(Ipv6Addr::is_unicast_link_local),
            IpAddr::V4(_) => None,
        });
        narrow.next().or_else(|| self.hidden_address(vlan))
    }

    /// The link-local address that the stack has by itself on a VLAN with addresses of IPv6 and
    /// without a link-local one, if there is room. It is answered for on that VLAN, reports come
    /// from it, and nothing else does: the GID table has no such address.
    pub(super) fn hidden_address(&self, vlan: Option<u16>) -> Option<Ipv6Addr> {
        let of_vlan = self.addresses.iter().filter(|own| own.vlan == vlan);
        let six = of_vlan.clone().filter_map(|own| match own.address {
            IpAddr::V6(six) => Some(six),
            IpAddr::V4(_) => None,
        });
        let is_needed =
            six.clone().count() > 0 && !six.clone().any(|six| six.is_unicast_link_local());
        (is_needed && of_vlan.count() < ADDRESSES).then(|| link_local(self.mac))
    }

    /// Tells the groups in which the own addresses are solicited, and lets those of hidden
    /// addresses in.
    pub(super) fn follow_own_groups(&mut self) {
        let hidden = |link: &crate::link::Link| Some((self.hidden_address(link.vlan)?, link.vlan));
        let hidden: Vec<_> = self.links.iter().filter_map(hidden).collect();
        let own = self.addresses.iter().filter_map(|own| match own.address {
            IpAddr::V6(six) => Some((six, own.vlan)),
            IpAddr::V4(_) => None,
        });
        let all = own.chain(hidden.iter().copied());
        let groups: BTreeSet<_> = all
            .map(|(six, vlan)| (IpAddr::V6(solicited_node(six)), vlan))
            .collect();
        self.groups.set_own(groups);
        if let Err(error) = self.filters.hold_hidden(hidden.first().map(|one| one.0)) {
            tracing::warn!(%error, "solicitations of a link-local address do not come in");
        }
    }
}
