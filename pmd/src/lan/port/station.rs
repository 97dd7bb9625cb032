//! MAC addresses of single stations.

use super::PortError;

/// Bit of the first byte: a group of stations.
const GROUP: u8 = 1;

/// Refuses an address that is not that of a single station.
pub(super) fn check_station(mac: [u8; 6]) -> Result<(), PortError> {
    let [first, ..] = mac;
    if first & GROUP != 0 || mac == [0; 6] {
        return Err(PortError::Invalid {
            what: "MAC address",
            value: text(mac),
            remedy: "choose the address of a single station: an even first byte, not all zero",
        });
    }
    Ok(())
}

/// Refuses the address that no station and no group has.
pub(super) fn check_not_zero(mac: [u8; 6]) -> Result<(), PortError> {
    if mac == [0; 6] {
        return Err(PortError::Invalid {
            what: "MAC address",
            value: text(mac),
            remedy: "choose the address of a station or of a group",
        });
    }
    Ok(())
}

pub(super) fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
