//! The configuration space of a function, decoded by `pci-driver` from a snapshot, in the same way
//! for every backend.

use crate::function::{Function, FunctionError};
use pci_driver::config::PciConfig;
use pci_driver::config::caps::{MsiXCapability, PciExpressCapability};
use pci_driver::regions::{
    AsPciSubregion, BackedByPciSubregion, PciMemoryRegion, PciRegion, PciSubregion,
};
use ringside_spec::words;
use std::io;

/// Bytes of configuration space that are read.
pub const SNAPSHOT_BYTES: usize = 4096;

/// Offset of the command register.
pub const COMMAND: u16 = 0x04;

words! {
    /// PCI command register.
    /// Source: PCI Express base specification, section 7.5.1.1.3.
    pub struct Command: u16 {
        /// memory space accesses are answered
        memory_space: [1],
        /// the function may start DMA and interrupts
        bus_master: [2],
        /// legacy interrupts are off
        interrupt_disable: [10],
    }
    /// MSI-X message control. Source: section 7.7.2.2.
    pub struct MsixControl: u16 {
        /// number of table entries, minus one
        table_size_minus_one: [10:0],
        /// all vectors masked
        function_mask: [14],
        /// MSI-X is on
        enable: [15],
    }
    /// Link status. Source: section 7.5.3.8.
    pub struct LinkStatus: u16 {
        /// speed code: 1 = 2.5, 2 = 5, 3 = 8, 4 = 16, 5 = 32 GT/s
        speed: [3:0],
        /// lanes
        width: [9:4],
    }
    /// Link capabilities. Source: section 7.5.3.6.
    pub struct LinkCapabilities: u32 {
        /// as [`LinkStatus::speed`]
        speed: [3:0],
        /// lanes
        width: [9:4],
    }
}

/// A PCI Express link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Speed code of the specification.
    pub speed_code: u8,
    /// Lanes.
    pub lanes: u8,
}

impl Link {
    /// The link's rate, in gigabits per second after line coding and before packet overhead.
    #[must_use]
    pub fn gigabits_per_second(self) -> f64 {
        let per_lane = match self.speed_code {
            1 => 2.5 * 0.8,
            2 => 5.0 * 0.8,
            3 => 8.0 * 128.0 / 130.0,
            4 => 16.0 * 128.0 / 130.0,
            5 => 32.0 * 128.0 / 130.0,
            _ => 0.0,
        };
        per_lane * f64::from(self.lanes)
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let speed = match self.speed_code {
            1 => "2.5",
            2 => "5",
            3 => "8",
            4 => "16",
            5 => "32",
            _ => "unknown",
        };
        write!(f, "{speed} GT/s x{}", self.lanes)
    }
}

/// The content of the configuration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSpace {
    /// Vendor id, 0x8086.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem: u16,
    /// Revision.
    pub revision: u8,
    /// Command register as found.
    pub command: Command,
    /// Offset of the MSI-X capability and its message control, if there is one.
    pub msix: Option<(u16, MsixControl)>,
    /// True if the function can be reset alone.
    pub function_level_reset: bool,
    /// The link as negotiated, if the function is a PCI Express one.
    pub link: Option<Link>,
    /// The best link that the card supports.
    pub best_link: Option<Link>,
    /// Device serial number (extended capability 3), if there is one.
    pub serial_number: Option<u64>,
}

/// The configuration space could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigSpaceError {
    /// The backend could not read it.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// All bytes are ones: no device responds.
    #[error(
        "configuration space reads all ones: no device responds; check that it is present, then claim it again"
    )]
    NoDevice,
    /// A capability list loops or points outside the configuration space.
    #[error("configuration space is malformed: {reason}; the device or its emulation is faulty")]
    Malformed {
        /// description of the fault
        reason: String,
    },
}

impl From<io::Error> for ConfigSpaceError {
    fn from(error: io::Error) -> Self {
        Self::Malformed {
            reason: error.to_string(),
        }
    }
}

impl ConfigSpace {
    /// Reads and decodes the whole space.
    pub fn read(function: &dyn Function) -> Result<Self, ConfigSpaceError> {
        let mut bytes = [0; SNAPSHOT_BYTES];
        for (index, chunk) in bytes.chunks_mut(64).enumerate() {
            function.config_read((index * 64) as u16, chunk)?;
        }
        Self::decode(&bytes)
    }

    /// Decodes a snapshot.
    pub fn decode(bytes: &[u8; SNAPSHOT_BYTES]) -> Result<Self, ConfigSpaceError> {
        if bytes[0..4] == [0xFF; 4] {
            return Err(ConfigSpaceError::NoDevice);
        }
        let region = PciMemoryRegion::new(bytes);
        let config = PciConfig::backed_by(&region as &dyn PciRegion);
        let mut found = Self {
            vendor: config.vendor_id().read()?,
            device: config.device_id().read()?,
            subsystem_vendor: config.subsystem_vendor_id().read()?,
            subsystem: config.subsystem_id().read()?,
            revision: config.revision_id().read()?,
            command: Command(config.as_subregion().read_le_u16(u64::from(COMMAND))?),
            msix: None,
            function_level_reset: false,
            link: None,
            best_link: None,
            serial_number: serial_number(bytes),
        };
        let capabilities = config.capabilities()?;
        for msix in capabilities.of_type::<MsiXCapability>()? {
            let place: PciSubregion = msix.as_subregion();
            let control = MsixControl(place.read_le_u16(2)?);
            found.msix = Some((place.offset_in_underlying_region() as u16, control));
        }
        for express in capabilities.of_type::<PciExpressCapability>()? {
            found.function_level_reset = express
                .device_capabilities()
                .function_level_reset_capability()
                .read()?;
            let place = express.as_subregion();
            let best = LinkCapabilities(place.read_le_u32(0x0C)?);
            let now = LinkStatus(place.read_le_u16(0x12)?);
            found.best_link = Some(Link {
                speed_code: best.speed() as u8,
                lanes: best.width() as u8,
            });
            found.link = Some(Link {
                speed_code: now.speed() as u8,
                lanes: now.width() as u8,
            });
        }
        Ok(found)
    }
}

/// Walks the extended capabilities for the device serial number (id 3).
fn serial_number(bytes: &[u8; SNAPSHOT_BYTES]) -> Option<u64> {
    let dword = |at: usize| {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    };
    let mut at = 0x100;
    // Each capability takes at least 8 bytes: a walk of more steps is a loop.
    for _ in 0..(SNAPSHOT_BYTES - 0x100) / 8 {
        let header = dword(at)?;
        if header & 0xFFFF == 3 {
            return Some(u64::from(dword(at + 8)?) << 32 | u64::from(dword(at + 4)?));
        }
        at = (header >> 20) as usize & !3;
        if at < 0x100 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function with PCI Express at 0x40 and MSI-X at 0x80.
    fn snapshot() -> [u8; SNAPSHOT_BYTES] {
        let mut bytes = [0; SNAPSHOT_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(
            0x00,
            &[0x86, 0x80, 0x92, 0x15, 0x06, 0x04, 0x10, 0x00, 0x02],
        );
        put(0x34, &[0x40]);
        put(0x40, &[0x10, 0x80, 0x02, 0x00]);
        put(0x44, &0x1000_0000u32.to_le_bytes());
        put(0x4C, &0x0000_0104u32.to_le_bytes());
        put(0x52, &0x0083u16.to_le_bytes());
        put(0x80, &[0x11, 0x00, 0xFF, 0x83]);
        put(0x100, &[0x03, 0x00, 0x01, 0x00, 1, 2, 3, 4, 5, 6, 7, 8]);
        bytes
    }

    #[test]
    fn capabilities_are_found_and_decoded() {
        let found = ConfigSpace::decode(&snapshot()).unwrap();
        assert_eq!(
            (found.vendor, found.device, found.revision),
            (0x8086, 0x1592, 2)
        );
        assert!(found.function_level_reset);
        assert!(found.command.bus_master() && found.command.interrupt_disable());
        let (offset, control) = found.msix.unwrap();
        assert_eq!(
            (offset, control.table_size_minus_one(), control.enable()),
            (0x80, 0x3FF, true)
        );
        assert_eq!(
            found.link.unwrap(),
            Link {
                speed_code: 3,
                lanes: 8
            }
        );
        assert_eq!(found.best_link.unwrap().to_string(), "16 GT/s x16");
        assert_eq!(found.serial_number, Some(0x0807_0605_0403_0201));
    }

    #[test]
    fn a_capability_list_that_loops_or_leaves_is_malformed_not_endless() {
        let mut looping = snapshot();
        looping[0x81] = 0x40;
        let mut leaving = snapshot();
        leaving[0x41] = 0x20;
        for bytes in [looping, leaving] {
            let error = ConfigSpace::decode(&bytes).unwrap_err();
            assert!(
                matches!(error, ConfigSpaceError::Malformed { .. }),
                "{error}"
            );
        }
        let mut extended = snapshot();
        extended[0x100..0x104].copy_from_slice(&0x1001_0001u32.to_le_bytes());
        assert_eq!(ConfigSpace::decode(&extended).unwrap().serial_number, None);
    }

    #[test]
    fn all_ones_is_no_device() {
        assert_eq!(
            ConfigSpace::decode(&[0xFF; SNAPSHOT_BYTES]),
            Err(ConfigSpaceError::NoDevice)
        );
    }
}
