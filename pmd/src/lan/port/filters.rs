//! Filters of received packets: addresses, VLANs, promiscuous mode.

use super::shared::FrameKind;
use super::shared::{Configured, Held, Modes, PortShared};
use super::station::{check_not_zero, text};
use super::tags::{MAX_VLAN, VlanStripping};
use super::{PortError, Vsi};
use crate::admin::{AdminError, AdminQueue, Loopback, RulePackets};
use crate::lan::vsi::{VlanPruning, switch_section, tag_section};
use ringside_spec::lan::admin::vsi::{VsiProperties, vlan_receive};
use std::collections::btree_map::Entry;

impl Vsi {
    /// Delivers all unicast packets of the wire, and all to groups, or only those that other rules
    /// and [`Vsi::set_all_multicast`] let in. Not those of other VLANs, once [`Vsi::add_vlan`] has
    /// been called.
    pub fn set_promiscuous(&self, wanted: bool) -> Result<(), PortError> {
        self.shared.set_modes(|modes| modes.promiscuous = wanted)
    }

    /// Delivers all packets to groups, or only those that other rules let in. Independent of
    /// [`Vsi::set_promiscuous`], during which all of them are delivered in any case.
    pub fn set_all_multicast(&self, wanted: bool) -> Result<(), PortError> {
        self.shared.set_modes(|modes| modes.all_multicast = wanted)
    }

    /// Lets packets to one more address in; its own and broadcast are in anyway. One that is or
    /// becomes the address of [`Port::set_address`](super::Port::set_address) stays in after the
    /// next change of that.
    ///
    /// The address of a single station belongs to one VSI of a function; those of groups do not.
    ///
    /// Control path. Errors: [`PortError::Invalid`], the zero address; a refusal of the firmware.
    pub fn add_address(&self, mac: [u8; 6]) -> Result<(), PortError> {
        check_not_zero(mac)?;
        self.shared.admin()?;
        let mut configured = self.shared.configured();
        if let Some(held) = configured.held.get_mut(&mac) {
            held.alone = false;
            return Ok(());
        }
        if let Some(own) = configured.own.as_mut().filter(|own| own.mac == mac) {
            own.is_added = true;
            return Ok(());
        }
        let always = mac == self.shared.mac || mac == [0xFF; 6];
        if always || configured.addresses.contains_key(&mac) {
            return Ok(());
        }
        let rule = self.shared.add_mac_rule(mac)?;
        configured.addresses.insert(mac, rule);
        Ok(())
    }

    /// Takes that back; false if the address was not added.
    pub fn remove_address(&self, mac: [u8; 6]) -> Result<bool, PortError> {
        let admin = self.shared.admin()?;
        let mut configured = self.shared.configured();
        if let Some(held) = configured.held.get_mut(&mac) {
            return Ok(!std::mem::replace(&mut held.alone, true));
        }
        // Its packets stay in as long as it is the port's own.
        if let Some(own) = configured.own.as_mut().filter(|own| own.mac == mac) {
            return Ok(std::mem::take(&mut own.is_added));
        }
        let Some(rule) = configured.addresses.get(&mac).copied() else {
            return Ok(false);
        };
        admin.remove_rule(self.shared.vsi, rule)?;
        configured.addresses.remove(&mac);
        Ok(true)
    }

    /// Lets packets to a group in. Each call needs one [`Vsi::release_group`]. Independent of
    /// [`Vsi::add_address`] and [`Vsi::remove_address`], so that a library such as an IP stack does
    /// not disturb the program's own filters.
    ///
    /// [`Vsi::setup`] does not list the group: after a recovery its users hold it again.
    pub fn hold_group(&self, mac: [u8; 6]) -> Result<(), PortError> {
        if mac[0] & 1 == 0 {
            return Err(PortError::Invalid {
                what: "address of a group",
                value: text(mac),
                remedy: "use add_address for the address of a station",
            });
        }
        self.shared.admin()?;
        let mut configured = self.shared.configured();
        if mac == [0xFF; 6] {
            return Ok(());
        }
        if let Some(held) = configured.held.get_mut(&mac) {
            held.users += 1;
            return Ok(());
        }
        let alone = !configured.addresses.contains_key(&mac);
        if alone {
            let rule = self.shared.add_mac_rule(mac)?;
            configured.addresses.insert(mac, rule);
        }
        configured.held.insert(mac, Held { users: 1, alone });
        Ok(())
    }

    /// Ends one [`Vsi::hold_group`]; false if there is none.
    pub fn release_group(&self, mac: [u8; 6]) -> Result<bool, PortError> {
        let admin = self.shared.admin()?;
        let mut configured = self.shared.configured();
        let Some(held) = configured.held.get_mut(&mac) else {
            return Ok(false);
        };
        held.users = held.users.saturating_sub(1);
        let Held { users, alone } = *held;
        if users > 0 {
            return Ok(true);
        }
        if alone && let Some(rule) = configured.addresses.get(&mac).copied() {
            admin.remove_rule(self.shared.vsi, rule)?;
            configured.addresses.remove(&mac);
        }
        configured.held.remove(&mac);
        Ok(true)
    }

    /// Lets packets of a VLAN in. The first one shuts out all VLANs that were not added, on the
    /// port's own VSI also for RDMA and the device's IP stack: the switch drops such packets before
    /// an engine sees them. Packets without a tag (VLAN 0) stay in, and VLAN 0 is refused.
    ///
    /// Control path. Errors: [`PortError::Invalid`]; a refusal of the firmware, and the VLANs are
    /// those from before.
    pub fn add_vlan(&self, vlan: u16) -> Result<(), PortError> {
        if !(1..=MAX_VLAN).contains(&vlan) {
            return Err(PortError::Invalid {
                what: "VLAN",
                value: vlan.to_string(),
                remedy: "choose 1 to 4094; packets without a tag come in always",
            });
        }
        let admin = self.shared.admin()?;
        let mut configured = self.shared.configured();
        let before: Vec<u16> = configured.vlans.keys().copied().collect();
        let added = self.shared.let_vlans_in(admin, &mut configured, vlan);
        if added.is_err() {
            self.shared.keep_vlans(admin, &mut configured, &before);
        }
        Ok(added?)
    }

    /// Takes that back; false if the VLAN was not added. The last one lets all VLANs in again.
    ///
    /// Control path. Errors: a refusal of the firmware, and the VLAN stays.
    pub fn remove_vlan(&self, vlan: u16) -> Result<bool, PortError> {
        let admin = self.shared.admin()?;
        let mut configured = self.shared.configured();
        let Some(rule) = configured.vlans.get(&vlan).copied().filter(|_| vlan != 0) else {
            return Ok(false);
        };
        let vsi = self.shared.vsi;
        let is_last = configured.vlans.len() == 2;
        if is_last {
            admin.update_vsi(vsi, &self.shared.pruning(VlanPruning::Off))?;
        }
        if let Err(refusal) = admin.remove_rule(vsi, rule) {
            if is_last
                && let Err(error) = admin.update_vsi(vsi, &self.shared.pruning(VlanPruning::On))
            {
                tracing::warn!(%error, vlan, "packets of all VLANs come in");
            }
            return Err(refusal.into());
        }
        configured.vlans.remove(&vlan);
        Ok(true)
    }

    /// Makes the device remove the tags of received packets, or keep them.
    pub fn strip_vlan(&self, wanted: VlanStripping) -> Result<(), PortError> {
        let receive = match wanted {
            VlanStripping::On => vlan_receive::STRIP_BOTH,
            VlanStripping::Off => vlan_receive::NOTHING,
        };
        let properties = tag_section(self.shared.vlan_mode, receive);
        let admin = self.shared.admin()?;
        let mut configured = self.shared.configured();
        admin.update_vsi(self.shared.vsi, &properties)?;
        configured.vlan_stripping = wanted;
        Ok(())
    }
}

impl PortShared {
    /// The switch section, as the VSI was added, with pruning by VLAN or without.
    fn pruning(&self, pruning: VlanPruning) -> VsiProperties {
        switch_section(self.switch_id, self.loopback(), pruning)
    }

    /// Lets packets of VLAN 0 and `vlan` in, and shuts out those that were not added.
    fn let_vlans_in(
        &self,
        admin: &AdminQueue,
        configured: &mut Configured,
        vlan: u16,
    ) -> Result<(), AdminError> {
        for vlan in [0, vlan] {
            if let Entry::Vacant(place) = configured.vlans.entry(vlan) {
                let packets = RulePackets::Vlan(vlan);
                place.insert(admin.add_rule(packets, self.vsi, Loopback::Allowed)?);
            }
        }
        admin.update_vsi(self.vsi, &self.pruning(VlanPruning::On))
    }

    /// Removes the rules of other VLANs than these. A rule that stays keeps its VLAN in
    /// [`Vsi::setup`].
    fn keep_vlans(&self, admin: &AdminQueue, configured: &mut Configured, kept: &[u16]) {
        configured.vlans.retain(|vlan, rule| {
            if kept.contains(vlan) {
                return true;
            }
            let removed = admin.remove_rule(self.vsi, *rule);
            removed
                .inspect_err(|error| tracing::warn!(%error, vlan, "the rule of a VLAN stays"))
                .is_err()
        });
    }

    /// Changes the requested modes, and the rules that they need. They stay as they were if a rule
    /// fails.
    fn set_modes(&self, change: impl FnOnce(&mut Modes)) -> Result<(), PortError> {
        let admin = self.admin()?;
        let mut configured = self.configured();
        let mut modes = configured.modes;
        change(&mut modes);
        let Modes {
            promiscuous,
            all_multicast,
        } = modes;
        let stations = configured.promiscuous.contains_key(&FrameKind::Unicast);
        self.set_all(admin, &mut configured, FrameKind::Unicast, promiscuous)?;
        let groups = promiscuous || all_multicast;
        if let Err(refusal) = self.set_all(admin, &mut configured, FrameKind::Group, groups) {
            if let Err(error) = self.set_all(admin, &mut configured, FrameKind::Unicast, stations) {
                tracing::warn!(%error, "packets to single stations come in as in the refused mode");
            }
            return Err(refusal);
        }
        configured.modes = modes;
        Ok(())
    }

    /// Adds the rule that lets all these frames in, or removes it, unless that is so already.
    fn set_all(
        &self,
        admin: &AdminQueue,
        configured: &mut Configured,
        frames: FrameKind,
        wanted: bool,
    ) -> Result<(), PortError> {
        match (configured.promiscuous.get(&frames).copied(), wanted) {
            (None, true) => {
                let port = self.port;
                let packets = match frames {
                    FrameKind::Unicast => RulePackets::AllUnicast { port },
                    FrameKind::Group => RulePackets::AllGroups { port },
                };
                let rule = admin.add_rule(packets, self.vsi, self.loopback())?;
                configured.promiscuous.insert(frames, rule);
            }
            (Some(rule), false) => {
                admin.remove_rule(self.vsi, rule)?;
                configured.promiscuous.remove(&frames);
            }
            (None, false) | (Some(_), true) => {}
        }
        Ok(())
    }

    /// Removes all rules of the port.
    pub(super) fn remove_filters(&self) {
        let Ok(admin) = self.admin() else {
            return;
        };
        let mut configured = self.configured();
        let mut rules: Vec<u16> = configured.promiscuous.values().copied().collect();
        rules.extend(configured.addresses.values());
        rules.extend(configured.vlans.values());
        rules.append(&mut configured.own_rules);
        let had_vlans = !configured.vlans.is_empty();
        configured.promiscuous.clear();
        configured.modes = Modes::default();
        configured.addresses.clear();
        configured.held.clear();
        configured.vlans.clear();
        drop(configured);
        if had_vlans && let Err(error) = admin.update_vsi(self.vsi, &self.pruning(VlanPruning::Off))
        {
            tracing::warn!(%error, "the VSI continues to prune VLANs");
        }
        for rule in rules {
            if let Err(error) = admin.remove_rule(self.vsi, rule) {
                tracing::warn!(%error, rule, "a switch rule stays until the next reset");
            }
        }
    }
}
