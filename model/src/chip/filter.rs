//! The filter of frames from the wire, computed from the switch rules and VSIs of the function.

use crate::frame::{Cast, is_group};
use crate::packet::MacAddress;

/// The decision about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No rule matches.
    Rejected,
    /// It gets in.
    Accepted {
        /// A VSI that receives it passes RDMA packets to the RDMA engine.
        rdma: bool,
    },
}

/// An address that a rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilteredAddress {
    pub(crate) address: MacAddress,
    /// a VSI behind it lets RDMA have packets
    pub(crate) rdma: bool,
    /// the switch delivers packets of the function itself to it
    pub(crate) loopback: bool,
}

/// The VLAN's bits of a tag.
const VLAN_ID: u16 = 0xFFF;

/// So few addresses are compared one after the other.
const FEW: usize = 8;

/// See the module. Built when rules change, consulted for each frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceiveFilter {
    /// in order
    addresses: Vec<FilteredAddress>,
    unicast: Option<bool>,
    multicast: Option<bool>,
    broadcast: Option<bool>,
    otherwise: Option<bool>,
    /// VLANs whose packets the RDMA engine gets, 0 for packets without a tag; `None`: all
    rdma_vlans: Option<Vec<u16>>,
}

impl ReceiveFilter {
    /// Frames to this address get in. An address that several rules name has what any of them
    /// gives it.
    pub(crate) fn add_address(&mut self, new: FilteredAddress) {
        match self.search(new.address) {
            Ok(place) => {
                if let Some(known) = self.addresses.get_mut(place) {
                    known.rdma |= new.rdma;
                    known.loopback |= new.loopback;
                }
            }
            Err(place) => self.addresses.insert(place, new),
        }
    }

    /// All frames of a kind get in.
    pub(crate) fn add_promiscuous(&mut self, cast: Cast, rdma: bool) {
        let wanted = match cast {
            Cast::Unicast => &mut self.unicast,
            Cast::Multicast => &mut self.multicast,
            Cast::Broadcast => &mut self.broadcast,
        };
        *wanted = Some(wanted.unwrap_or(false) | rdma);
    }

    /// Accepts frames that match no other rule.
    pub(crate) fn add_default(&mut self, rdma: bool) {
        self.otherwise = Some(self.otherwise.unwrap_or(false) | rdma);
    }

    /// The RDMA engine gets packets of these VLANs only; 0 for those without a tag.
    pub(crate) fn prune_rdma(&mut self, vlans: Vec<u16>) {
        self.rdma_vlans = Some(vlans);
    }

    /// True if no rule keeps packets with this tag from the RDMA engine.
    #[inline]
    fn lets_tag_in(&self, tag: Option<u16>) -> bool {
        let vlan = tag.map_or(0, |tag| tag & VLAN_ID);
        self.rdma_vlans
            .as_ref()
            .is_none_or(|vlans| vlans.contains(&vlan))
    }

    /// True if RDMA packets could get in at all.
    pub(crate) fn any_rdma(&self) -> bool {
        let general = [self.unicast, self.multicast, self.broadcast, self.otherwise];
        self.addresses.iter().any(|known| known.rdma) || general.contains(&Some(true))
    }

    /// True if a rule names the address, that of a station or a group, and passes its packets with
    /// this tag to the RDMA engine.
    pub(crate) fn is_for_rdma(&self, address: MacAddress, tag: Option<u16>) -> bool {
        let rdma = self.rule(address).is_some_and(|known| known.rdma);
        rdma && Cast::of(address) != Cast::Broadcast && self.lets_tag_in(tag)
    }

    #[inline]
    fn rule(&self, address: MacAddress) -> Option<&FilteredAddress> {
        if self.addresses.len() <= FEW {
            return self.addresses.iter().find(|known| known.address == address);
        }
        self.addresses.get(self.search(address).ok()?)
    }

    fn search(&self, address: MacAddress) -> Result<usize, usize> {
        let key = |known: &FilteredAddress| known.address.0;
        self.addresses.binary_search_by_key(&address.0, key)
    }

    /// True if a rule names the address, that of a single station, and lets packets loop back to
    /// it.
    #[inline]
    pub(crate) fn loops_back(&self, address: MacAddress) -> bool {
        !is_group(address) && self.rule(address).is_some_and(|known| known.loopback)
    }

    /// The decision about a frame to `destination` with this tag.
    #[inline]
    pub(crate) fn judge(&self, destination: MacAddress, tag: Option<u16>) -> Verdict {
        match self.by_address(destination) {
            Verdict::Accepted { rdma: true } => Verdict::Accepted {
                rdma: self.lets_tag_in(tag),
            },
            verdict => verdict,
        }
    }

    #[inline]
    fn by_address(&self, destination: MacAddress) -> Verdict {
        let named = self.rule(destination).map(|known| known.rdma);
        let promiscuous = match Cast::of(destination) {
            Cast::Unicast => self.unicast,
            Cast::Multicast => self.multicast,
            Cast::Broadcast => self.broadcast,
        };
        match (named, promiscuous) {
            (None, None) => match self.otherwise {
                Some(rdma) => Verdict::Accepted { rdma },
                None => Verdict::Rejected,
            },
            (named, promiscuous) => {
                let rdma = named.unwrap_or(false) | promiscuous.unwrap_or(false);
                Verdict::Accepted { rdma }
            }
        }
    }
}
