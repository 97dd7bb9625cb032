//! Reports of multicast groups.

use super::Stack;
use crate::groups::{Due, Group};
use crate::{igmp, reports};
use ringside_clock::Instant;
use ringside_lan::QueueState;
use ringside_pmd::rdma::MulticastGroups;
use std::net::IpAddr;
use std::sync::Arc;

impl Stack {
    /// Reports these groups to routers and switches from now on, by IGMP and multicast listener
    /// discovery: when they change, when a router asks, and each minute. Stacks of
    /// [`Stack::of_device`] do so for the groups of their device.
    pub fn report_groups_of(&mut self, groups: Arc<MulticastGroups>) {
        self.groups.follow(groups);
    }

    /// The groups that [`Stack::report_groups_of`] named last.
    pub(crate) fn groups(&self) -> Option<Arc<MulticastGroups>> {
        self.groups.source()
    }

    /// Reports to routers and switches that the port leaves the groups of RDMA, for a stack that
    /// ends: it reports none from then on. Sends as much as the transmit ring has room for; true
    /// once the device has sent all. A stack whose queues are out of service sends nothing.
    pub(crate) fn leave_groups(&mut self, now: Instant) -> bool {
        if self.queues.receive.state() != QueueState::Running {
            return true;
        }
        self.read_groups(now);
        if !self.groups.leave_all(now) {
            return true;
        }
        self.report_due(now) && self.queues.is_sent()
    }

    /// Sends the reports that are due.
    pub(crate) fn report_groups(&mut self, now: Instant) {
        self.read_groups(now);
        self.report_due(now);
    }

    /// Lets the queries for groups that were joined in.
    fn read_groups(&mut self, now: Instant) {
        let Some(changes) = self.groups.changes(now) else {
            return;
        };
        for (group, _) in changes.closed {
            if let IpAddr::V4(four) = group {
                self.filters.remove_queries(four);
            }
        }
        for group in changes.joined {
            self.open_for_queries(group);
        }
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

    /// Sends what is due; false if the ring had no room for all.
    fn report_due(&mut self, now: Instant) -> bool {
        while self.queues.has_room() {
            let Some(due) = self.groups.due(now) else {
                return true;
            };
            self.report(due);
        }
        false
    }

    fn report(&mut self, due: Due) {
        let Due {
            group: (group, vlan),
            membership,
            is_of_first_version,
        } = due;
        let frame = match group {
            IpAddr::V4(group) => {
                let own = self.source_of_igmp(vlan);
                igmp::report(self.mac, own, membership, (group, is_of_first_version))
            }
            IpAddr::V6(group) => {
                let own = self.source_of_discovery(vlan);
                reports::report(self.mac, own, membership, (group, is_of_first_version))
            }
        };
        if let Some(frame) = frame {
            self.queues.send(&frame, vlan);
        }
    }
}
