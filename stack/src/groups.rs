//! The multicast groups of RDMA that the stack reports, and the times of their reports.

use crate::filters::{ALL_NODES, ALL_SYSTEMS};
use crate::{igmp, reports};
use ringside_clock::Instant;
use ringside_pmd::rdma::MulticastGroups;
use smoltcp::wire::{EthernetFrame, EthernetProtocol};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Reports of a group that was joined. Source: RFC 3376, section 8.1, the robustness variable.
const COUNT: u8 = 2;
/// The time between them. Source: RFC 3376, section 8.11.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time between two reports of a group that no router asks for: less than half of the time
/// after which a switch forgets it. Source: RFC 2236, section 8.4.
const PERIOD: Duration = Duration::from_secs(60);

/// A group and its VLAN.
pub(crate) type Group = (IpAddr, Option<u16>);

#[derive(Clone, Copy, Debug)]
struct Planned {
    /// reports that follow each other soon
    left: u8,
    next: Instant,
    /// the port lets queries for it in
    is_open: bool,
}

/// The changes of the groups since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) joined: Vec<Group>,
    /// each with true if [`Groups::opened`] was said of it
    pub(crate) left: Vec<(Group, bool)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    source: Option<Arc<MulticastGroups>>,
    /// of the list that was read last
    version: u64,
    planned: BTreeMap<Group, Planned>,
}

impl Groups {
    /// The groups come from here.
    pub(crate) fn follow(&mut self, source: Arc<MulticastGroups>) {
        // Another version than that of the list, so that the next look reads it.
        self.version = source.version().wrapping_sub(1);
        self.source = Some(source);
    }

    /// Reads the groups if they changed.
    pub(crate) fn changes(&mut self, now: Instant) -> Option<Changes> {
        let source = self.source.as_ref()?;
        let version = source.version();
        if version == self.version {
            return None;
        }
        self.version = version;
        let mut groups = source.list();
        groups.retain(|(group, _)| is_reported(*group));
        Some(self.set(&groups, now))
    }

    fn set(&mut self, groups: &[Group], now: Instant) -> Changes {
        let gone = |group: &Group, _: &mut Planned| !groups.contains(group);
        let gone = self.planned.extract_if(.., gone);
        let left = gone.map(|(group, plan)| (group, plan.is_open)).collect();
        let mut joined = Vec::new();
        for group in groups {
            self.planned.entry(*group).or_insert_with(|| {
                joined.push(*group);
                Planned {
                    left: COUNT,
                    next: now,
                    is_open: false,
                }
            });
        }
        Changes { joined, left }
    }

    /// The port lets queries for a group in.
    pub(crate) fn opened(&mut self, group: Group) {
        if let Some(plan) = self.planned.get_mut(&group) {
            plan.is_open = true;
        }
    }

    /// A group whose report is to be sent now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Group> {
        let mut planned = self.planned.iter_mut();
        let (group, plan) = planned.find(|(_, plan)| plan.next <= now)?;
        plan.left = plan.left.saturating_sub(1);
        plan.next = now.plus(match plan.left {
            0 => PERIOD,
            _ => INTERVAL,
        });
        Some(*group)
    }

    /// Reports what a frame without a tag asks for, if it is the query of a router.
    pub(crate) fn hear(&mut self, frame: &[u8], vlan: Option<u16>, now: Instant) {
        if self.planned.is_empty() {
            return;
        }
        let Some(asked) = asked(frame) else {
            return;
        };
        for ((group, own_vlan), plan) in &mut self.planned {
            let is_asked = match asked.is_unspecified() {
                true => group.is_ipv4() == asked.is_ipv4(),
                false => *group == asked,
            };
            if is_asked && *own_vlan == vlan {
                plan.next = now;
            }
        }
    }

    /// Reports all groups again, twice: for a link that came up.
    pub(crate) fn report_again(&mut self, now: Instant) {
        for plan in self.planned.values_mut() {
            (plan.left, plan.next) = (COUNT, now);
        }
    }
}

/// The groups of all stations, and those that stay in the station or on no link, are not reported.
/// Source: RFC 2236, section 6; RFC 3810, section 6.
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != ALL_SYSTEMS,
        IpAddr::V6(group) => group != ALL_NODES && group.octets()[1] & 0xF > 1,
    }
}

/// The group that a query asks for; an unspecified address if it asks for all of its IP version.
fn asked(frame: &[u8]) -> Option<IpAddr> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    match frame.ethertype() {
        EthernetProtocol::Ipv4 => igmp::asked(frame.payload()).map(IpAddr::V4),
        EthernetProtocol::Ipv6 => reports::asked(frame.payload()).map(IpAddr::V6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> Group {
        (text.parse().unwrap(), None)
    }

    #[test]
    fn a_joined_group_is_reported_twice_then_each_minute_and_when_it_is_asked_for() {
        let (first, second) = (group("239.1.1.1"), (group("ff05::7").0, Some(9)));
        let begin = Instant(1_000_000);
        let mut groups = Groups::default();
        let changes = groups.set(&[first, second], begin);
        assert_eq!((changes.joined.len(), changes.left.len()), (2, 0));
        let due = |groups: &mut Groups, now| {
            let mut all = Vec::new();
            while let Some(group) = groups.due(now) {
                all.push(group);
            }
            all
        };
        assert_eq!(due(&mut groups, begin), [first, second]);
        assert_eq!(due(&mut groups, Instant(begin.0 + 999_999_999)), []);
        let again = begin.plus(INTERVAL);
        assert_eq!(due(&mut groups, again), [first, second]);
        assert_eq!(due(&mut groups, Instant(again.plus(PERIOD).0 - 1)), []);
        assert_eq!(due(&mut groups, again.plus(PERIOD)), [first, second]);
        let changes = groups.set(&[second], begin);
        assert_eq!(
            (changes.joined, changes.left),
            (vec![], vec![(first, false)])
        );
        let later = again.plus(PERIOD + PERIOD);
        assert_eq!(due(&mut groups, later), [second]);
        groups.report_again(later);
        assert_eq!(due(&mut groups, later), [second]);
        assert_eq!(due(&mut groups, later.plus(INTERVAL)), [second]);
    }

    #[test]
    fn groups_of_all_stations_and_of_the_station_itself_are_not_reported() {
        for (text, expected) in [
            ("224.0.0.1", false),
            ("224.0.0.251", true),
            ("239.1.1.1", true),
            ("ff02::1", false),
            ("ff01::5", false),
            ("ff10::5", false),
            ("ff02::5", true),
            ("ff15::5", true),
        ] {
            assert_eq!(is_reported(text.parse().unwrap()), expected, "{text}");
        }
    }
}
