//! The port's own MAC address.

use super::shared::{Configured, OwnAddress, PortShared};
use super::station::{check_station, text};
use super::{Port, PortError, Vsi};
use crate::admin::{AdminQueue, RulePackets};

const BROADCAST: [u8; 6] = [0xFF; 6];

impl Vsi {
    /// The MAC address of a VSI. Of a port: the function's own, or that of [`Port::set_address`].
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        let own = self.shared.configured().own;
        own.map_or(self.shared.mac, |own| own.mac)
    }

    /// True in a child by fork: the port is its parent's.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.shared.pool.is_elsewhere()
    }
}

impl Port {
    /// Changes the port's MAC address while packets flow. Packets to it are let in before the
    /// device takes it over, and no longer after the next change, unless [`Vsi::add_address`] added
    /// the address.
    ///
    /// Packets to the function's own address still arrive: RDMA goes on using that one. The address
    /// of the flash stays; the device gets its own address back when the port is closed. After a
    /// recovery [`Port::restore`] asks for the address again.
    ///
    /// Control path. Errors: [`PortError::Invalid`], an address of a group or zero;
    /// [`PortError::Address`], the firmware refused it, or kept the former one's rule; the port has
    /// its former address.
    /// Source: ice `ice_main.c`, `ice_set_mac_address`.
    pub fn set_address(&self, mac: [u8; 6]) -> Result<(), PortError> {
        check_station(mac)?;
        let shared = &self.shared;
        let admin = shared.admin()?;
        let mut configured = shared.configured();
        let former = configured.own;
        let kept = former.map_or(shared.mac, |own| own.mac);
        if mac == kept {
            return Ok(());
        }
        let own = shared.own_address(&configured, mac)?;
        if former.is_none() {
            shared.registry.note_address(Some(shared.mac));
        }
        let refused = |source| PortError::Address {
            address: text(mac),
            kept: text(kept),
            source: Box::new(source),
        };
        if let Err(source) = admin.write_mac(mac) {
            shared.forget_own(admin, &mut configured, own);
            return Err(refused(source));
        }
        if let Some(former) = former {
            let OwnAddress {
                mac: address, rule, ..
            } = former;
            if former.is_added {
                configured.addresses.insert(address, rule);
            } else if let Err(source) = admin.remove_rule(shared.vsi, rule) {
                let Err(error) = admin.write_mac(address) else {
                    shared.forget_own(admin, &mut configured, own);
                    return Err(refused(source));
                };
                tracing::warn!(%source, %error, rule, "packets to the former address still arrive");
                configured.addresses.insert(address, rule);
            }
        }
        configured.addresses.remove(&mac);
        configured.own = own;
        Ok(())
    }
}

impl PortShared {
    /// The port's address `mac` with a rule that lets its packets in; `None` for the function's own
    /// address: it has a rule already.
    fn own_address(
        &self,
        configured: &Configured,
        mac: [u8; 6],
    ) -> Result<Option<OwnAddress>, PortError> {
        if mac == self.mac {
            return Ok(None);
        }
        let further = configured.addresses.get(&mac).copied();
        let rule = match further {
            Some(rule) => rule,
            None => self.add_mac_rule(mac)?,
        };
        Ok(Some(OwnAddress {
            mac,
            rule,
            is_added: further.is_some(),
        }))
    }

    /// Removes the rule of an address that the port does not get, unless the program added the
    /// address.
    fn forget_own(&self, admin: &AdminQueue, configured: &mut Configured, own: Option<OwnAddress>) {
        let Some(OwnAddress { mac, rule, .. }) = own.filter(|own| !own.is_added) else {
            return;
        };
        if let Err(error) = admin.remove_rule(self.vsi, rule) {
            tracing::warn!(%error, rule, "packets to a refused address still arrive");
            configured.addresses.insert(mac, rule);
        }
    }

    /// Lets packets to the address of a further VSI in, and to all stations.
    pub(super) fn let_own_in(&self) -> Result<(), PortError> {
        for mac in [self.mac, BROADCAST] {
            let rule = self.add_mac_rule(mac)?;
            self.configured().own_rules.push(rule);
        }
        Ok(())
    }

    /// Lets packets to `mac` in; returns the rule's number. Of a station that another VSI of the
    /// function is, the error names it.
    pub(super) fn add_mac_rule(&self, mac: [u8; 6]) -> Result<u16, PortError> {
        let packets = RulePackets::To(mac);
        let added = self.admin()?.add_rule(packets, self.vsi, self.loopback());
        Ok(added?)
    }

    /// Gives the device its own address back. Runs before the rules of the port are removed.
    pub(super) fn restore_address(&self) {
        let Ok(admin) = self.admin() else {
            return;
        };
        let mut configured = self.configured();
        let Some(own) = configured.own.take() else {
            return;
        };
        // The rule goes with those for further addresses.
        configured.addresses.insert(own.mac, own.rule);
        drop(configured);
        if let Err(error) = admin.write_mac(self.mac) {
            let address = text(own.mac);
            tracing::warn!(%error, address, "the device keeps the address of this port");
            return;
        }
        self.registry.note_address(None);
    }
}
