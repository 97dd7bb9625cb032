//! The multicast groups that the stack reports, those of RDMA and those of its own addresses, and
//! the times of their reports.

use crate::filters::{ALL_NODES, ALL_SYSTEMS};
use crate::listeners::{Membership, Query};
use crate::{igmp, reports};
use ringside_clock::Instant;
use ringside_pmd::rdma::MulticastGroups;
use smoltcp::wire::{EthernetFrame, EthernetProtocol};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Reports of a change that follow each other soon. Source: RFC 3376, section 8.1, and RFC 3810,
/// section 9.1, the robustness variable.
const COUNT: u8 = 2;
/// The time between them. Source: RFC 3376, section 8.11; RFC 3810, section 9.11.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time between two reports of a group that no router asks for: less than half of the time
/// after which a switch forgets it. Source: RFC 2236, section 8.4; RFC 3810, section 9.4.
const PERIOD: Duration = Duration::from_secs(60);
/// The shortest time between two reports of a group that routers ask for: hosts that ask without
/// end do not make the stack flood the network.
const GAP: Duration = Duration::from_millis(100);
/// The time for which a router of version 1 is taken to be there after its last query. Source: RFC
/// 2236, section 8.11 (version 1 router present timeout); RFC 3810, section 9.12 (two intervals of
/// 125 s and the time to answer).
const FIRST_VERSION_V4: Duration = Duration::from_secs(400);
const FIRST_VERSION_V6: Duration = Duration::from_secs(260);
/// Groups that were left and whose departure is not reported yet, at most.
const LEAVING: usize = 256;

/// A group and its VLAN.
pub(crate) type Group = (IpAddr, Option<u16>);

#[derive(Clone, Copy, Debug)]
struct Planned {
    /// reports that follow each other soon
    left: u8,
    next: Instant,
    /// the time of the last report
    last: Option<Instant>,
    /// the port lets queries for it in
    is_open: bool,
}

/// The changes of the groups since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) joined: Vec<Group>,
    /// those of which [`Groups::opened`] was said
    pub(crate) closed: Vec<Group>,
}

/// A report that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) group: Group,
    pub(crate) membership: Membership,
    /// by the protocol of version 1
    pub(crate) is_of_first_version: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Groups {
    source: Option<Arc<MulticastGroups>>,
    /// of the list that was read last
    version: u64,
    /// those of that list that are reported
    listed: Vec<Group>,
    /// those of the stack's own addresses
    own: BTreeSet<Group>,
    has_new_own: bool,
    planned: BTreeMap<Group, Planned>,
    /// the departures that are left to report: their number, and the time of the next
    leaving: BTreeMap<Group, (u8, Instant)>,
    /// The time until which a router of version 1 is there, for IPv4 (`true`) and IPv6 of a VLAN.
    first_version: BTreeMap<(bool, Option<u16>), Instant>,
    /// state of the random delays
    random: u64,
    /// [`Groups::leave_all`] was called: with true if there was a group to leave
    end: Option<bool>,
}

impl Groups {
    /// No groups yet; `seed` is that of the delays.
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            source: None,
            version: 0,
            listed: Vec::new(),
            own: BTreeSet::new(),
            has_new_own: false,
            planned: BTreeMap::new(),
            leaving: BTreeMap::new(),
            first_version: BTreeMap::new(),
            // The state must not be 0.
            random: seed | 1,
            end: None,
        }
    }

    /// The groups of RDMA come from here.
    pub(crate) fn follow(&mut self, source: Arc<MulticastGroups>) {
        // Another version than that of the list, so that the next look reads it.
        self.version = source.version().wrapping_sub(1);
        self.source = Some(source);
    }

    /// The list that [`Groups::follow`] named last.
    pub(crate) fn source(&self) -> Option<Arc<MulticastGroups>> {
        self.source.clone()
    }

    /// The groups that the stack's own addresses need.
    pub(crate) fn set_own(&mut self, groups: BTreeSet<Group>) {
        self.has_new_own |= self.own != groups;
        self.own = groups;
    }

    /// Reads the groups if they changed.
    pub(crate) fn changes(&mut self, now: Instant) -> Option<Changes> {
        if self.end.is_some() {
            return None;
        }
        let mut is_new = std::mem::take(&mut self.has_new_own);
        if let Some(source) = &self.source
            && source.version() != self.version
        {
            self.version = source.version();
            self.listed = source.list();
            is_new = true;
        }
        is_new.then(|| self.update(now))
    }

    fn update(&mut self, now: Instant) -> Changes {
        let mut groups = self.own.clone();
        groups.extend(&self.listed);
        groups.retain(|(group, _)| is_reported(*group));
        let gone: Vec<Group> = self.planned.keys().copied().collect();
        let gone = gone.into_iter().filter(|group| !groups.contains(group));
        let closed = gone.filter(|group| self.leave(*group, now)).collect();
        let mut joined = Vec::new();
        for group in groups {
            self.leaving.remove(&group);
            self.planned.entry(group).or_insert_with(|| {
                joined.push(group);
                Planned {
                    left: COUNT,
                    next: now,
                    last: None,
                    is_open: false,
                }
            });
        }
        Changes { joined, closed }
    }

    /// Reports a departure from now on; true if [`Groups::opened`] was said of the group.
    fn leave(&mut self, group: Group, now: Instant) -> bool {
        let plan = self.planned.remove(&group);
        if self.leaving.len() < LEAVING {
            // Departures of IGMP have an answer, by which routers notice that one was lost.
            let count = if group.0.is_ipv4() { 1 } else { COUNT };
            self.leaving.insert(group, (count, now));
        }
        plan.is_some_and(|plan| plan.is_open)
    }

    /// Leaves the groups of RDMA for ever, and reports each departure once; true if there are or
    /// were such groups. Those of the own addresses are not left: another stack may have them next.
    pub(crate) fn leave_all(&mut self, now: Instant) -> bool {
        if let Some(had_groups) = self.end {
            return had_groups;
        }
        let planned = std::mem::take(&mut self.planned);
        let left = planned
            .into_keys()
            .filter(|group| !self.own.contains(group));
        self.leaving.extend(left.map(|group| (group, (1, now))));
        for plan in self.leaving.values_mut() {
            *plan = (1, now);
        }
        let had_groups = !self.leaving.is_empty();
        self.end = Some(had_groups);
        had_groups
    }

    /// The port lets queries for a group in.
    pub(crate) fn opened(&mut self, group: Group) {
        if let Some(plan) = self.planned.get_mut(&group) {
            plan.is_open = true;
        }
    }

    /// The next report that is to be sent now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Due> {
        let (group, membership) = match self.due_departure(now) {
            Some(group) => (group, Membership::Leaves),
            None => self.due_member(now)?,
        };
        let until = self.first_version.get(&(group.0.is_ipv4(), group.1));
        Some(Due {
            group,
            membership,
            is_of_first_version: until.is_some_and(|until| now < *until),
        })
    }

    fn due_departure(&mut self, now: Instant) -> Option<Group> {
        let mut leaving = self.leaving.iter_mut();
        let (group, (count, next)) = leaving.find(|(_, (_, next))| *next <= now)?;
        let group = *group;
        *count = count.saturating_sub(1);
        *next = now.plus(INTERVAL);
        if *count == 0 {
            self.leaving.remove(&group);
        }
        Some(group)
    }

    fn due_member(&mut self, now: Instant) -> Option<(Group, Membership)> {
        let mut planned = self.planned.iter_mut();
        let (group, plan) = planned.find(|(_, plan)| plan.next <= now)?;
        let membership = match plan.left {
            0 => Membership::Member,
            _ => Membership::Joins,
        };
        plan.left = plan.left.saturating_sub(1);
        plan.next = now.plus(match plan.left {
            0 => PERIOD,
            _ => INTERVAL,
        });
        plan.last = Some(now);
        Some((*group, membership))
    }

    /// Reports what a frame without a tag asks for, if it is the query of a router: each group
    /// after a delay of its own, so that the hosts of a network do not answer all at once.
    pub(crate) fn hear(&mut self, frame: &[u8], vlan: Option<u16>, now: Instant) {
        let Some(query) = asked(frame) else {
            return;
        };
        let is_ipv4 = query.group.is_ipv4();
        if query.is_of_first_version {
            let until = now.plus(match is_ipv4 {
                true => FIRST_VERSION_V4,
                false => FIRST_VERSION_V6,
            });
            self.first_version.insert((is_ipv4, vlan), until);
        }
        for ((group, own_vlan), plan) in &mut self.planned {
            let is_asked = match query.group.is_unspecified() {
                true => group.is_ipv4() == is_ipv4,
                false => *group == query.group,
            };
            if is_asked && *own_vlan == vlan {
                let answer = now.plus(delay(&mut self.random, query.limit));
                let earliest = plan.last.map_or(now, |last| last.plus(GAP));
                // A report that is planned for an earlier time answers this query, too.
                plan.next = plan.next.min(answer.max(earliest));
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

/// A random time within three quarters of `limit`: the answer has to be there by then. Source: RFC
/// 2236, section 3; RFC 3810, section 6.2.
fn delay(random: &mut u64, limit: Duration) -> Duration {
    // Marsaglia, "Xorshift RNGs", section 3.
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let most = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX) / 4 * 3;
    Duration::from_nanos(*random % (most + 1))
}

/// The groups of all stations, and those that stay in the station or on no link, are not reported.
/// Source: RFC 2236, section 6; RFC 3810, section 6.
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != ALL_SYSTEMS,
        IpAddr::V6(group) => group != ALL_NODES && group.octets()[1] & 0xF > 1,
    }
}

fn asked(frame: &[u8]) -> Option<Query> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    match frame.ethertype() {
        EthernetProtocol::Ipv4 => igmp::asked(frame.payload()),
        EthernetProtocol::Ipv6 => reports::asked(frame.payload()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
