//! The neighbours that frames name, for the table of the stack and for that of smoltcp.

use super::Stack;
use crate::header::Header;
use crate::link::Link;
use crate::{MacAddress, wire};
use ringside_clock::Instant;
use std::net::IpAddr;

impl Stack {
    /// Notes a neighbour that a frame of address resolution names, on the link at `place`.
    ///
    /// smoltcp heeds ARP for its own addresses only. A neighbour that has moved to another MAC
    /// address announces that to all stations. Source: RFC 826, packet reception: a known address
    /// is updated, whatever the target.
    pub(super) fn learn(&mut self, place: usize, said: &wire::Said, now: Instant) {
        let Some(link) = self.links.get_mut(place) else {
            return;
        };
        let (vlan, address) = (link.vlan, said.address);
        let key = (vlan, address);
        let is_own = link.has(address);
        if is_own && said.mac != self.mac {
            self.claims.warn(vlan, said, now);
        }
        // smoltcp may know one still that did not answer the stack.
        let (was_listed, former) = (self.neighbours.lists(key), self.neighbours.mac(key));
        self.neighbours
            .learn_from(vlan, said, |address| link.has(address), now);
        let is_taken = self.neighbours.mac(key) == Some(said.mac);
        if was_listed && is_taken && former != Some(said.mac) && address.is_ipv4() {
            self.teach(place, (address, said.mac));
        }
    }

    /// Tells smoltcp a neighbour that another station told of, unless the stack has heard of
    /// another MAC address.
    pub(super) fn learn_of_another(&mut self, place: usize, said: &wire::Said) {
        let Some(link) = self.links.get(place) else {
            return;
        };
        let (vlan, address) = (link.vlan, said.address);
        let mut of_vlan = self.networks.iter().filter(|own| own.vlan == vlan);
        let is_near = of_vlan.any(|own| own.is_neighbour(address));
        let heard = self.neighbours.mac((vlan, address));
        let is_named = said.how != wire::How::Confirmation;
        let is_new = heard.is_none_or(|mac| mac == said.mac);
        if is_near && !link.has(address) && is_named && is_new {
            self.teach(place, (address, said.mac));
        }
    }

    /// Tells smoltcp the MAC address of a neighbour that pings: it would drop the answer, and ask
    /// for the address first. A recent answer counts before the sender of the frame, and a TCP
    /// connection is not led elsewhere by a ping.
    pub(super) fn learn_from_ping(
        &mut self,
        (place, frame): (usize, &[u8]),
        header: &Header,
        now: Instant,
    ) {
        let Some(link) = self.links.get(place) else {
            return;
        };
        let (vlan, source) = (link.vlan, header.source);
        let mut of_vlan = self.networks.iter().filter(|own| own.vlan == vlan);
        let is_near = of_vlan.any(|own| own.is_neighbour(source));
        if !is_near || !link.has(header.destination) {
            return;
        }
        let Some(sender) = wire::pings(frame) else {
            return;
        };
        if self.tcp.talks_to(source, &mut self.links) {
            return;
        }
        let known = self.neighbours.reachable((vlan, source), now);
        self.teach(place, (source, known.unwrap_or(sender)));
    }

    /// True for an IPv6 packet to a station that is not this one, which a switch floods. smoltcp
    /// looks at the options of each hop before it looks at the destination, and would answer in
    /// that station's name. Source: RFC 4443, section 2.2.
    pub(super) fn is_of_another(&self, place: usize, header: &Header) -> bool {
        let to = header.destination;
        let is_own = self.links.get(place).is_some_and(|link| link.has(to));
        to.is_ipv6() && !to.is_multicast() && !is_own
    }

    fn teach(&mut self, place: usize, neighbour: (IpAddr, MacAddress)) {
        if let Some(link) = self.links.get_mut(place) {
            let vlan = link.vlan;
            let own = self.networks.iter().filter(|own| own.vlan == vlan);
            teach(link, &[neighbour], self.mac, own.map(|own| own.address));
        }
    }
}

/// True for an advertisement from another address than the one that it tells of: of a station that
/// answers for others, or from its link-local address. Source: RFC 4861, sections 4.4 and 7.2.8.
pub(super) fn is_by_another(said: &wire::Said, header: &Header) -> bool {
    let is_advertisement = matches!(
        said.how,
        wire::How::Answer | wire::How::Hint | wire::How::Confirmation
    );
    is_advertisement && said.address.is_ipv6() && said.address != header.source
}

/// Tells a link the neighbours that are known, which it has forgotten: else each connection waits
/// for a query, of which smoltcp sends one a second.
pub(super) fn teach(
    link: &mut Link,
    known: &[(IpAddr, MacAddress)],
    mac: MacAddress,
    own: impl Iterator<Item = IpAddr> + Clone,
) {
    for neighbour in known {
        let answer = |own| wire::answer_of(*neighbour, own, mac);
        if let Some(frame) = own.clone().find_map(answer) {
            link.teach(&frame);
        }
    }
}
