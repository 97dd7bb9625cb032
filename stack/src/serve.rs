//! A stack on the port of a device in service.

use crate::{LeasedGid, LocalAddress, Stack, StackError, StackSettings};
use ringside_pmd::Device;
use ringside_pmd::lan::{PortError, PortSettings};
use ringside_pmd::rdma::RdmaError;

/// The reason why a device's port got no stack.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port's queues could not be opened.
    #[error("no queues for the IP stack: {0}")]
    Port(#[from] PortError),
    /// The device is out of service, or has no RDMA.
    #[error(transparent)]
    Device(#[from] RdmaError),
    /// The stack refused the port or the addresses.
    #[error(transparent)]
    Stack(#[from] StackError),
}

impl Stack {
    /// Opens the port of `device` with one queue of each kind, and makes a stack on it: with the
    /// addresses of the GID table, and the gateways and DHCP of the device's configuration.
    ///
    /// Control path. Errors: [`ServeError`]; the port is closed again.
    pub fn of_device(device: &Device) -> Result<Self, ServeError> {
        Self::of_device_without(device, None)
    }

    /// As [`Self::of_device`], for a device whose GID table follows the leases of DHCP servers,
    /// through recoveries and ends of its stack.
    ///
    /// Control path. Errors: as from [`Self::of_device`].
    pub fn of_device_following(device: &Device, gid: &mut LeasedGid) -> Result<Self, ServeError> {
        let stack = Self::of_device_without(device, gid.added())?;
        gid.begin(device.function().clock().now());
        Ok(stack)
    }

    /// As [`Self::of_device`], without an address of the GID table that a DHCP server granted to a
    /// former stack: it is this one's once the server grants it again.
    ///
    /// Control path. Errors: as from [`Self::of_device`].
    pub fn of_device_without(
        device: &Device,
        leased: Option<LocalAddress>,
    ) -> Result<Self, ServeError> {
        let config = device.config();
        let mtu = u16::try_from(config.link.mtu).map_err(|_| PortError::Invalid {
            what: "link.mtu",
            value: config.link.mtu.to_string(),
            remedy: "choose 576 to 9702 bytes",
        })?;
        let is_leased = |own: &LocalAddress| {
            leased.is_some_and(|one| (one.address, one.vlan) == (own.address, own.vlan))
        };
        let gids = device.gids()?;
        let own = gids.iter().map(|gid| gid.address);
        let addresses = own.filter(|own| !is_leased(own)).collect();
        let mut open = device.open_port(&PortSettings {
            mtu,
            ..PortSettings::default()
        })?;
        let (receive, transmit) = (open.receive.swap_remove(0), open.transmit.swap_remove(0));
        let settings = StackSettings {
            addresses,
            ..StackSettings::of(config, open.port.mac(), mtu)
        };
        let now = device.function().clock().now();
        let mut stack = Self::new(open.port, (receive, transmit), &settings, now)?;
        stack.report_groups_of(device.multicast_groups()?);
        Ok(stack)
    }
}
