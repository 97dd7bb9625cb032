//! Reports of the multicast groups that the own IPv6 addresses need.

use super::Stack;
use crate::LocalAddress;
use crate::filters::solicited_node;
use crate::reports::{Record, report};
use ringside_clock::Instant;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The time between two reports of all groups on a port whose queue gets no queries for them: less
/// than half of the time after which a switch forgets a group. Source: RFC 3810, section 9.4.
pub(super) const REPORTS_PERIOD: Duration = Duration::from_secs(60);

impl Stack {
    /// Reports the groups of a link to the routers and switches on it.
    pub(super) fn report(&mut self, vlan: Option<u16>, record: Record, groups: &[Ipv6Addr]) {
        let of_vlan = self.addresses.iter().filter(|own| own.vlan == vlan);
        let narrow = |own: &LocalAddress| match own.address {
            IpAddr::V6(six) => Some(six).filter(Ipv6Addr::is_unicast_link_local),
            IpAddr::V4(_) => None,
        };
        // Source: RFC 3810, section 5.2.13.
        let own = of_vlan.filter_map(narrow).next();
        let own = own.unwrap_or(Ipv6Addr::UNSPECIFIED);
        if let Some(frame) = report(self.mac, own, record, groups) {
            self.queues.send(&frame, vlan);
        }
    }

    /// Reports all groups from time to time, where queries for them do not come: no rule of the
    /// device matches packets with options of each hop.
    pub(super) fn report_all(&mut self, now: Instant) {
        if self.next_report.is_none_or(|next| now < next) {
            return;
        }
        self.next_report = Some(now.plus(REPORTS_PERIOD));
        let vlans: Vec<Option<u16>> = self.links.iter().map(|link| link.vlan).collect();
        for vlan in vlans {
            let group = |own: &LocalAddress| match own.address {
                IpAddr::V6(six) if own.vlan == vlan => Some(solicited_node(six)),
                _ => None,
            };
            let groups: BTreeSet<Ipv6Addr> = self.addresses.iter().filter_map(group).collect();
            let groups: Vec<Ipv6Addr> = groups.into_iter().collect();
            if !groups.is_empty() {
                self.report(vlan, Record::Member, &groups);
            }
        }
    }
}
