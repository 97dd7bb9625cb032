//! The settings of a port, to be applied again to the port that replaces it after a recovery.

use super::rules::FlowRule;
use super::{Port, PortError};

/// The frames that a port accepts, and its rules.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PortSetup {
    /// All packets to single stations.
    pub promiscuous: bool,
    /// All packets to groups.
    pub all_multicast: bool,
    /// The address that took the place of the function's own.
    pub address: Option<[u8; 6]>,
    /// Further addresses.
    pub addresses: Vec<[u8; 6]>,
    /// VLANs.
    pub vlans: Vec<u16>,
    /// Rules, oldest first.
    pub rules: Vec<FlowRule>,
}

impl Port {
    /// The requested settings of the port. They can be read after a failure of the device, too.
    #[must_use]
    pub fn setup(&self) -> PortSetup {
        let rules = self.rules().into_iter().map(|(_, rule)| rule).collect();
        let configured = self.shared.configured();
        PortSetup {
            promiscuous: configured.promiscuous.contains_key(&false),
            all_multicast: configured.promiscuous.contains_key(&true),
            address: configured.own.map(|(address, _)| address),
            addresses: configured.addresses.keys().copied().collect(),
            vlans: configured
                .vlans
                .keys()
                .copied()
                .filter(|vlan| *vlan != 0)
                .collect(),
            rules,
        }
    }

    /// Asks the port for all of that: after a recovery, of the port that was opened again.
    ///
    /// Control path. Errors: [`PortError`] of the first part that was not done; what came before it
    /// is done.
    pub fn restore(&self, setup: &PortSetup) -> Result<(), PortError> {
        if setup.promiscuous {
            self.set_promiscuous(true)?;
        }
        self.set_all_multicast(setup.all_multicast)?;
        if let Some(address) = setup.address {
            self.set_address(address)?;
        }
        for address in &setup.addresses {
            self.add_address(*address)?;
        }
        for vlan in &setup.vlans {
            self.add_vlan(*vlan)?;
        }
        for rule in &setup.rules {
            self.add_rule(rule)?;
        }
        Ok(())
    }
}
