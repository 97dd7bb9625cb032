//! Rules of the switch that were made here, and the VSIs that share them.
//!
//! The switch takes a rule for the same packets once. Callers ask for rules independently: the
//! packet path and the multicast groups of RDMA for the same VSI, and several VSIs for broadcast. A
//! rule of one VSI forwards to it; a rule of several names a list of VSIs. Rules with the same VSIs
//! share a list. Source: ice `ice_switch.c`, `ice_add_update_vsi_list`.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The packets that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulePackets {
    /// To this address.
    To([u8; 6]),
    /// All from a port to single stations.
    AllUnicast {
        /// the logical port
        port: u8,
    },
    /// All from a port to groups.
    AllGroups {
        /// the logical port
        port: u8,
    },
    /// Of this VLAN; 0 for packets without a tag.
    Vlan(u16),
}

/// The way of packets that a VSI of the function sends to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loopback {
    /// The switch delivers them, if their sender may loop back.
    Allowed,
    /// They leave through the port.
    Refused,
}

/// Kinds of lists of VSIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) enum ListKind {
    /// Each VSI gets the packet.
    Replication,
    /// The packet passes to these VSIs.
    Prune,
}

/// A VSI that asked for a rule.
#[derive(Clone, Copy, Debug)]
pub(in crate::admin) struct Member {
    pub(in crate::admin) vsi: u16,
    pub(in crate::admin) loopback: Loopback,
    /// callers that have asked for it
    pub(in crate::admin) users: u32,
}

/// A rule, with at least one member.
#[derive(Clone, Debug)]
pub(in crate::admin) struct SharedRule {
    pub(in crate::admin) packets: RulePackets,
    /// the firmware's number
    pub(in crate::admin) number: u16,
    pub(in crate::admin) members: Vec<Member>,
    /// the list that it names; `None`: it names its one member
    pub(in crate::admin) list: Option<ListName>,
}

/// Kind and number: each kind counts its lists by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) struct ListName {
    pub(in crate::admin) kind: ListKind,
    pub(in crate::admin) number: u16,
}

/// A list of VSIs in the device.
#[derive(Clone, Debug)]
pub(in crate::admin) struct VsiList {
    pub(in crate::admin) name: ListName,
    pub(in crate::admin) vsis: BTreeSet<u16>,
    /// rules that name it
    pub(in crate::admin) users: u32,
}

/// Rules and lists that were made here and not removed.
#[derive(Debug, Default)]
pub(in crate::admin) struct Made {
    pub(in crate::admin) rules: Vec<SharedRule>,
    pub(in crate::admin) lists: Vec<VsiList>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SwitchRules(Mutex<Made>);

impl SwitchRules {
    /// All of them, for one change.
    pub(in crate::admin) fn made(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all: a reset has removed them from the device.
    pub(super) fn forget(&self) {
        *self.made() = Made::default();
    }
}

impl RulePackets {
    /// True for the address of a single station.
    pub(in crate::admin) const fn is_station(self) -> bool {
        matches!(self, Self::To([first, ..]) if first.is_multiple_of(2))
    }
}

impl SharedRule {
    /// The list that the rule needs, if it needs one.
    pub(in crate::admin) fn wanted_list(&self) -> Option<(ListKind, BTreeSet<u16>)> {
        let vsis: BTreeSet<u16> = self.members.iter().map(|member| member.vsi).collect();
        match self.packets {
            RulePackets::Vlan(_) => Some((ListKind::Prune, vsis)),
            _ if vsis.len() > 1 => Some((ListKind::Replication, vsis)),
            _ => None,
        }
    }

    /// A packet loops back only if each of its receivers allows it: the rule has one flag for all.
    pub(in crate::admin) fn loops_back(&self) -> bool {
        let allows = |member: &Member| member.loopback == Loopback::Allowed;
        self.members.iter().all(allows)
    }
}
