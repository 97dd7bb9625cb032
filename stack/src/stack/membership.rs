//! Reports of the multicast groups that queue pairs are in.

use super::Stack;
use crate::groups::Group;
use crate::igmp::{self, Membership};
use crate::reports::Record;
use ringside_clock::Instant;
use ringside_pmd::rdma::MulticastGroups;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

impl Stack {
    /// Reports these groups to routers and switches from now on, by IGMP and multicast listener
    /// discovery: when they change, when a router asks, and each minute. Stacks of
    /// [`Stack::of_device`] do so for the groups of their device.
    pub fn report_groups_of(&mut self, groups: Arc<MulticastGroups>) {
        self.groups.follow(groups);
    }

    /// Sends the reports that are due.
    pub(super) fn report_groups(&mut self, now: Instant) {
        if let Some(changes) = self.groups.changes(now) {
            for (group, is_open) in changes.left {
                self.leave(group, is_open);
            }
            for group in changes.joined {
                self.open_for_queries(group);
            }
        }
        while self.queues.has_room()
            && let Some((group, vlan)) = self.groups.due(now)
        {
            self.report_member((group, vlan), Membership::Member);
        }
    }

    fn leave(&mut self, group: Group, is_open: bool) {
        if let (IpAddr::V4(four), true) = (group.0, is_open) {
            self.filters.remove_queries(four);
        }
        self.report_member(group, Membership::Leaves);
    }

    /// Without it the group is reported each minute only.
    fn open_for_queries(&mut self, group: Group) {
        let IpAddr::V4(four) = group.0 else {
            return;
        };
        match self.filters.add_queries(four) {
            Ok(()) => self.groups.opened(group),
            Err(error) => {
                tracing::warn!(%error, group = %four, "routers' queries for a group do not come in");
            }
        }
    }

    fn report_member(&mut self, (group, vlan): Group, membership: Membership) {
        match group {
            IpAddr::V4(group) => {
                let of_vlan = self.addresses.iter().filter(|own| own.vlan == vlan);
                let four = |own: IpAddr| match own {
                    IpAddr::V4(four) => Some(four),
                    IpAddr::V6(_) => None,
                };
                let own = of_vlan.filter_map(|own| four(own.address)).next();
                let own = own.unwrap_or(Ipv4Addr::UNSPECIFIED);
                if let Some(frame) = igmp::report(self.mac, own, membership, group) {
                    self.queues.send(&frame, vlan);
                }
            }
            IpAddr::V6(group) => {
                let record = match membership {
                    Membership::Member => Record::Joins,
                    Membership::Leaves => Record::Leaves,
                };
                self.report(vlan, record, &[group]);
            }
        }
    }
}
