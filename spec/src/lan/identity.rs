//! The identity of the function on the PCI bus.

/// PCI vendor id of Intel.
pub const VENDOR_ID: u16 = 0x8086;
/// Class code: network controller, Ethernet, no programming interface.
pub const CLASS_CODE: u32 = 0x02_0000;
/// Device id of a virtual function of any of them (driven by `iavf` in Linux).
pub const VIRTUAL_FUNCTION_DEVICE_ID: u16 = 0x1889;
/// BAR of all registers, doorbells and the RDMA engine: 64-bit, prefetchable.
pub const REGISTER_BAR: u8 = 0;
/// Bytes of the register BAR that a driver may count on; real parts have 32 MiB.
pub const REGISTER_BAR_SIZE_MIN: u64 = 8 << 20;
/// BAR of the MSI-X table and its pending bits.
pub const MSIX_BAR: u8 = 3;
/// Bytes of the MSI-X BAR.
pub const MSIX_BAR_SIZE: u64 = 64 << 10;
/// Bytes from the beginning of the MSI-X BAR to the table.
pub const MSIX_TABLE_OFFSET: u64 = 0;
/// Bytes from the beginning of the MSI-X BAR to the pending bits.
pub const MSIX_PENDING_OFFSET: u64 = 0x8000;
/// Most MSI-X vectors that a physical function has.
pub const MAX_MSIX_VECTORS: u16 = 1024;
/// Fewest MSI-X vectors with which Linux takes the function.
pub const MSIX_VECTORS_MIN: u16 = 2;
/// Virtual station interfaces (VSIs) of the whole device.
pub const VSI_COUNT: u16 = 768;
/// Physical functions that share a device at most.
pub const MAX_PHYSICAL_FUNCTIONS: u8 = 8;

/// The member of the family that a device id identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// E810-C: up to 100 Gb/s.
    E810C,
    /// E810-XXV: up to 25 Gb/s.
    E810Xxv,
}

/// The connector that a device id identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connector {
    /// backplane
    Backplane,
    /// QSFP cage
    Qsfp,
    /// SFP cage
    Sfp,
}

/// A device id that belongs to the E810 family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// PCI device id.
    pub device_id: u16,
    /// The part.
    pub part: Part,
    /// The connector.
    pub connector: Connector,
    /// Name in prose.
    pub name: &'static str,
}

/// Every E810 device id. Source: ice `ice_devids.h`.
pub const MODELS: &[Model] = &[
    model(
        0x1591,
        Part::E810C,
        Connector::Backplane,
        "E810-C backplane",
    ),
    model(0x1592, Part::E810C, Connector::Qsfp, "E810-C for QSFP"),
    model(0x1593, Part::E810C, Connector::Sfp, "E810-C for SFP"),
    model(
        0x1599,
        Part::E810Xxv,
        Connector::Backplane,
        "E810-XXV backplane",
    ),
    model(0x159A, Part::E810Xxv, Connector::Qsfp, "E810-XXV for QSFP"),
    model(0x159B, Part::E810Xxv, Connector::Sfp, "E810-XXV for SFP"),
];

const fn model(device_id: u16, part: Part, connector: Connector, name: &'static str) -> Model {
    Model {
        device_id,
        part,
        connector,
        name,
    }
}

/// Returns the model for vendor and device id, or `None` if it is not an E810.
#[must_use]
pub fn find(vendor_id: u16, device_id: u16) -> Option<&'static Model> {
    let same_id = |model: &&Model| model.device_id == device_id;
    MODELS
        .iter()
        .find(same_id)
        .filter(|_| vendor_id == VENDOR_ID)
}
