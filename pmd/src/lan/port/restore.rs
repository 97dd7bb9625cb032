//! The settings of VSIs, to be applied again to those that replace them after a recovery.

use super::rules::FlowRule;
use super::{FlowKind, HashField, Port, PortError, Spreading, VlanStripping, Vsi};
use std::collections::BTreeMap;

/// The frames that a VSI accepts, and their spreading over its queues.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct VsiSetup {
    /// All packets of the wire: [`Vsi::set_promiscuous`].
    pub promiscuous: bool,
    /// All packets to groups, whether promiscuous or not: [`Vsi::set_all_multicast`].
    pub all_multicast: bool,
    /// Further addresses, in ascending order.
    pub addresses: Vec<[u8; 6]>,
    /// VLANs.
    pub vlans: Vec<u16>,
    /// Tags of received packets.
    pub vlan_stripping: VlanStripping,
    /// Key and table, if [`Vsi::spread`] set them.
    pub spreading: Option<Spreading>,
    /// Fields of the hash, of the kinds for which these are not all.
    pub hash_fields: BTreeMap<FlowKind, Vec<HashField>>,
    /// Both directions of a flow have one hash.
    pub symmetric_hash: bool,
    /// Rules, oldest first.
    pub rules: Vec<FlowRule>,
}

/// The settings of a port: those of its own VSI, and its address.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PortSetup {
    /// Those of its own VSI.
    pub vsi: VsiSetup,
    /// The address that took the place of the function's own.
    pub address: Option<[u8; 6]>,
}

impl Vsi {
    /// The requested settings of the VSI. They can be read after a failure of the device, too.
    #[must_use]
    pub fn setup(&self) -> VsiSetup {
        let rules = self.rules().into_iter().map(|(_, rule)| rule).collect();
        let hashing = self.shared.hashing().clone();
        let hashes = hashing.programmed.iter();
        let configured = self.shared.configured();
        let asked = |mac: &&[u8; 6]| configured.held.get(*mac).is_none_or(|held| !held.alone);
        let further = configured.addresses.keys().filter(asked).copied();
        let own = configured.own.filter(|own| own.is_added);
        let mut addresses: Vec<_> = further.chain(own.map(|own| own.mac)).collect();
        addresses.sort_unstable();
        let chosen = hashes.filter(|(kind, one)| one.fields != kind.fields());
        VsiSetup {
            promiscuous: configured.modes.promiscuous,
            all_multicast: configured.modes.all_multicast,
            addresses,
            vlans: configured
                .vlans
                .keys()
                .copied()
                .filter(|vlan| *vlan != 0)
                .collect(),
            vlan_stripping: configured.vlan_stripping,
            spreading: configured.spreading.clone(),
            hash_fields: chosen
                .map(|(kind, one)| (*kind, one.fields.clone()))
                .collect(),
            symmetric_hash: hashing.is_symmetric,
            rules,
        }
    }

    /// Asks the VSI for all of that: after a recovery, the one that was added again. Promiscuous
    /// mode and the tags of received packets become those of the setup, and replace those that the
    /// VSI was added with.
    ///
    /// Control path. Errors: [`PortError`] of the first part that was not done; what came before it
    /// is done.
    pub fn restore(&self, setup: &VsiSetup) -> Result<(), PortError> {
        self.set_promiscuous(setup.promiscuous)?;
        self.set_all_multicast(setup.all_multicast)?;
        self.strip_vlan(setup.vlan_stripping)?;
        for address in &setup.addresses {
            self.add_address(*address)?;
        }
        for vlan in &setup.vlans {
            self.add_vlan(*vlan)?;
        }
        if let Some(spreading) = &setup.spreading {
            self.spread(spreading)?;
        }
        for (kind, fields) in &setup.hash_fields {
            self.set_hash_fields(*kind, fields)?;
        }
        if setup.symmetric_hash {
            self.set_symmetric_hash(true)?;
        }
        for rule in &setup.rules {
            self.add_rule(rule)?;
        }
        Ok(())
    }
}

impl Port {
    /// The requested settings of the port. They can be read after a failure of the device, too.
    /// Those of further VSIs are in [`Vsi::setup`].
    #[must_use]
    pub fn setup(&self) -> PortSetup {
        PortSetup {
            vsi: Vsi::setup(self),
            address: self.shared.configured().own.map(|own| own.mac),
        }
    }

    /// Asks the port for all of that: after a recovery, of the port that was opened again.
    ///
    /// Control path. Errors: [`PortError`] of the first part that was not done; what came before it
    /// is done.
    pub fn restore(&self, setup: &PortSetup) -> Result<(), PortError> {
        if let Some(address) = setup.address {
            self.set_address(address)?;
        }
        Vsi::restore(self, &setup.vsi)
    }
}
