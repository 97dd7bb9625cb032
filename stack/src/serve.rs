//! A stack on the port of a device in service.

use crate::{Stack, StackError, StackSettings};
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
        let config = device.config();
        let mtu = u16::try_from(config.link.mtu).map_err(|_| PortError::Invalid {
            what: "link.mtu",
            value: config.link.mtu.to_string(),
            remedy: "choose 576 to 9702 bytes",
        })?;
        let addresses = device.gids()?.iter().map(|gid| gid.address).collect();
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
        Ok(Self::new(open.port, (receive, transmit), &settings, now)?)
    }
}
