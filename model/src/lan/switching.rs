//! Finds the VSIs that receive a frame, and decides if it leaves through the port.
//!
//! The tables are those of the firmware, flattened when a command changes them. Source: reference
//! section 3.7; ice `ice_switch.c`, `ice_fill_sw_info`.

use super::classes::{CLASSES, ClassQueues, FrameClasses};
use super::rss::Spreading;
use super::words::{ByType, FilterProfile, HashProfile};
use crate::frame::{Cast, is_group};
use crate::packet::MacAddress;
use std::sync::Arc;

/// VLAN id of frames without tag.
pub(super) const UNTAGGED: u16 = 0;

/// The action on the first tag of frames from the switch to a VSI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TagReceived {
    /// It goes from the frame into the descriptor.
    Shown,
    /// It is removed.
    Removed,
    /// It stays in the frame.
    #[default]
    Kept,
}

/// One VSI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vsi {
    /// Number in the device.
    pub(crate) number: u16,
    /// Its frames may loop back.
    pub(crate) loopback: bool,
    /// It does not receive its own frames.
    pub(crate) source_prune: bool,
    /// Its frames may leave through the port.
    pub(crate) lan: bool,
    /// Frames with a VLAN id without rule do not get in.
    pub(crate) receive_vlan_prune: bool,
    /// Frames with a VLAN id without rule do not get out.
    pub(crate) transmit_vlan_prune: bool,
    /// Frames from an address without rule do not get out.
    pub(crate) anti_spoof: bool,
    /// Descriptors may name a destination.
    pub(crate) destination_override: bool,
    /// Frames without tag may be sent.
    pub(crate) sends_untagged: bool,
    /// Frames with tag may be sent.
    pub(crate) sends_tagged: bool,
    /// Tag that all frames without one get.
    pub(crate) port_vlan: Option<u16>,
    /// The action on tags of received frames.
    pub(crate) tag_received: TagReceived,
    /// Type of the tag that the action is for, and of outer tags that its descriptors insert, in
    /// double VLAN mode. `None`: any tag, and a service tag.
    pub(crate) outer_tag: Option<u16>,
    /// All its receive queues, in order.
    pub(crate) queues: Vec<u16>,
    /// Those of each traffic class.
    pub(crate) classes: [ClassQueues; CLASSES],
    /// The spreading of frames over those of their class.
    pub(crate) spreading: Option<Spreading>,
    /// Input of the hash of frames. `None` until a driver or a package sets it: addresses, and
    /// ports where there are any.
    pub(crate) hashed: Option<ByType<HashProfile>>,
    /// Words that filters compare.
    pub(crate) filters: ByType<FilterProfile>,
    /// Its frames are filtered.
    pub(crate) filters_enabled: bool,
    /// It may program filters.
    pub(crate) filters_programmed: bool,
    /// Queue for reports of programming, counted from its first.
    pub(crate) report_queue: u16,
}

/// The condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// Destination address.
    Address(MacAddress),
    /// Destination address and VLAN id.
    AddressVlan(MacAddress, u16),
    /// All frames to single stations, to groups, or to all stations.
    Promiscuous(Cast),
    /// The same in one VLAN.
    PromiscuousVlan(Cast, u16),
    /// Type of the payload.
    EtherType(u16),
    /// Destination address and type of the payload.
    EtherTypeAddress(u16, MacAddress),
    /// Every frame of the port.
    Port,
    /// Frames that no other rule matches.
    Default,
}

/// A rule that forwards or drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    /// Its condition.
    pub(crate) what: Match,
    /// The VSI whose frames it is for; `None`: frames from the wire.
    pub(crate) sender: Option<u16>,
    /// VSIs that get the frame.
    pub(crate) targets: Arc<[u16]>,
    /// No receiver gets it.
    pub(crate) drop: bool,
    /// Frames that are sent loop back to the targets.
    pub(crate) loopback: bool,
    /// Frames that are sent leave all the same.
    pub(crate) lan: bool,
}

/// VSIs that a VLAN id is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VlanMembers {
    /// VLAN id.
    pub(crate) vlan: u16,
    /// Counts for frames that are received.
    pub(crate) ingress: bool,
    /// Counts for frames that are sent.
    pub(crate) egress: bool,
    /// Frames that are sent may leave through the port.
    pub(crate) lan: bool,
    /// The VSIs.
    pub(crate) members: Arc<[u16]>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    /// All VSIs.
    pub(crate) vsis: Vec<Vsi>,
    /// All rules that forward or drop.
    pub(crate) forwards: Vec<Forward>,
    /// All rules for VLAN ids.
    pub(crate) vlans: Vec<VlanMembers>,
    /// Filters of the flow director that fit.
    pub(crate) filter_room: usize,
    /// Service tags count: double VLAN mode. In single VLAN mode they are payload. Source: ice
    /// `ice_main.c`, `ice_set_netdev_features`, which offers neither to strip nor to filter them
    /// there.
    pub(crate) service_tags: bool,
    /// Traffic classes of received frames.
    pub(crate) classes: FrameClasses,
}

/// The parts of a frame that rules compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) destination: MacAddress,
    pub(super) source: MacAddress,
    /// Id of the first tag, or [`UNTAGGED`].
    pub(super) vlan: u16,
    pub(super) tagged: bool,
    /// The first tag is a service tag.
    pub(super) service: bool,
    pub(super) ether_type: u16,
}

/// Destination of a frame by its descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Destination {
    /// The destinations of the matching rules.
    #[default]
    Switch,
    /// To the wire, independent of the rules.
    Uplink,
    /// The VSIs of the function only.
    Local,
    /// To one VSI.
    Vsi(u16),
}

/// Destination of a sent frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    /// To the wire.
    pub(super) wire: bool,
    /// VSIs of the function that receive the frame.
    pub(super) local: Vec<u16>,
}

/// Why a VSI may not send a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// A rule drops it.
    ByRule,
    /// Its source address is not one of the VSI's.
    Spoofed,
    /// Its VLAN id has no rule.
    Pruned,
    /// It has a tag, or has none, and may not.
    TagMode,
    /// The descriptors name a destination and may not.
    Override,
}

impl Match {
    fn fits(self, key: &Key) -> bool {
        match self {
            Self::Address(address) => address == key.destination,
            Self::AddressVlan(address, vlan) => address == key.destination && vlan == key.vlan,
            Self::Promiscuous(cast) => cast == Cast::of(key.destination),
            Self::PromiscuousVlan(cast, vlan) => {
                cast == Cast::of(key.destination) && vlan == key.vlan
            }
            Self::EtherType(kind) => kind == key.ether_type,
            Self::EtherTypeAddress(kind, address) => {
                kind == key.ether_type && address == key.destination
            }
            Self::Port => true,
            Self::Default => false,
        }
    }

    const fn is_address(self) -> bool {
        matches!(self, Self::Address(_) | Self::AddressVlan(..))
    }
}

impl Vsi {
    /// The queue of the function that a frame of a class goes to by its hash.
    pub(super) fn queue_of_class(&self, class: usize, hash: Option<u32>) -> Option<u16> {
        let spreading = self.spreading.as_ref();
        let index = spreading.map_or(0, |spreading| spreading.queue(hash.unwrap_or(0)));
        let class = self.classes.get(class)?;
        let place = usize::from(class.first) + usize::from(index & class.mask);
        self.queues.get(place).copied()
    }

    /// The same for a frame whose filter names a group: the first of its queues, and their number,
    /// a power of two.
    pub(super) fn queue_of_group(
        &self,
        (first, count): (u16, u16),
        hash: Option<u32>,
    ) -> Option<u16> {
        let index = first + (hash.unwrap_or(0) as u16 & (count - 1));
        self.queues.get(usize::from(index)).copied()
    }

    /// True if its action on tags is for tags of a type.
    #[inline]
    pub(super) fn takes(&self, kind: u16) -> bool {
        self.outer_tag.is_none_or(|own| own == kind)
    }
}

fn add_all(found: &mut Vec<u16>, targets: &[u16]) {
    for target in targets {
        if !found.contains(target) {
            found.push(*target);
        }
    }
}

impl Tables {
    /// The VSI of that number.
    pub(super) fn vsi(&self, number: u16) -> Option<&Vsi> {
        self.vsis.iter().find(|vsi| vsi.number == number)
    }

    /// True if the frame's first tag counts as payload.
    pub(super) const fn overlooks_tag(&self, key: &Key) -> bool {
        key.service && !self.service_tags
    }

    /// The key as rules see it.
    fn seen(&self, key: &Key) -> Key {
        if self.overlooks_tag(key) {
            return Key {
                vlan: UNTAGGED,
                tagged: false,
                ..*key
            };
        }
        *key
    }

    /// Puts the VSIs that get a frame from the wire into `found`.
    pub(super) fn receivers(&self, key: &Key, found: &mut Vec<u16>) {
        let key = &self.seen(key);
        found.clear();
        for rule in &self.forwards {
            // Drivers install the rules for their own addresses as transmit rules.
            let counts = rule.sender.is_none() || rule.what.is_address();
            if !counts || !rule.what.fits(key) {
                continue;
            }
            if rule.drop {
                found.clear();
                return;
            }
            add_all(found, &rule.targets);
        }
        if found.is_empty() {
            let last = |rule: &&Forward| rule.what == Match::Default && rule.sender.is_none();
            for rule in self.forwards.iter().filter(last) {
                add_all(found, &rule.targets);
            }
        }
        found.retain(|number| {
            self.vsi(*number)
                .is_some_and(|vsi| !vsi.receive_vlan_prune || self.member(*number, key.vlan, true))
        });
    }

    fn member(&self, vsi: u16, vlan: u16, ingress: bool) -> bool {
        self.vlans.iter().any(|rule| {
            let counts = if ingress { rule.ingress } else { rule.egress };
            counts && rule.vlan == vlan && rule.members.contains(&vsi)
        })
    }

    /// Destination of a frame of `sender`.
    ///
    /// Errors: [`Refused`]; it goes nowhere.
    pub(super) fn route(
        &self,
        sender: &Vsi,
        key: &Key,
        wanted: Destination,
    ) -> Result<Route, Refused> {
        let key = &self.seen(key);
        if wanted != Destination::Switch && !sender.destination_override {
            return Err(Refused::Override);
        }
        let mode_fits = if key.tagged {
            sender.sends_tagged
        } else {
            sender.sends_untagged
        };
        if !mode_fits {
            return Err(Refused::TagMode);
        }
        if sender.anti_spoof && !self.owns(sender.number, key.source) {
            return Err(Refused::Spoofed);
        }
        if sender.transmit_vlan_prune && !self.member(sender.number, key.vlan, false) {
            return Err(Refused::Pruned);
        }
        match wanted {
            Destination::Uplink => Ok(Route {
                wire: true,
                local: Vec::new(),
            }),
            Destination::Vsi(number) => Ok(Route {
                wire: false,
                local: vec![number],
            }),
            Destination::Local => {
                let mut route = self.follow(sender, key)?;
                route.wire = false;
                Ok(route)
            }
            Destination::Switch => self.follow(sender, key),
        }
    }

    /// True if a rule for the VLAN id of a frame that a VSI sends keeps it inside. Source: ice
    /// `ice_switch.c`, `ice_fill_sw_info`, which lets the frames of each such rule out.
    fn stays_in_vlan(&self, sender: u16, vlan: u16) -> bool {
        let mut rules = self.vlans.iter();
        rules.any(|rule| {
            let counts = rule.egress && rule.vlan == vlan && rule.members.contains(&sender);
            counts && !rule.lan
        })
    }

    fn owns(&self, vsi: u16, address: MacAddress) -> bool {
        self.forwards.iter().any(|rule| match rule.what {
            Match::Address(known) | Match::AddressVlan(known, _) => {
                known == address && rule.targets.contains(&vsi)
            }
            _ => false,
        })
    }

    fn follow(&self, sender: &Vsi, key: &Key) -> Result<Route, Refused> {
        let mut route = Route {
            wire: sender.lan,
            local: Vec::new(),
        };
        let mut stays = self.stays_in_vlan(sender.number, key.vlan);
        for rule in &self.forwards {
            let own = rule.sender == Some(sender.number);
            let counts = own || (rule.sender.is_some() && rule.what.is_address());
            if !counts || !rule.what.fits(key) {
                continue;
            }
            if rule.drop {
                return Err(Refused::ByRule);
            }
            if sender.loopback && rule.loopback {
                add_all(&mut route.local, &rule.targets);
                stays |= !rule.lan && !is_group(key.destination);
            }
        }
        if sender.source_prune {
            route.local.retain(|number| *number != sender.number);
        }
        route.local.retain(|number| {
            self.vsi(*number)
                .is_some_and(|vsi| !vsi.receive_vlan_prune || self.member(*number, key.vlan, true))
        });
        route.wire &= !stays;
        Ok(route)
    }
}

#[cfg(test)]
mod tests;
