//! PCI configuration space: bytes, and which of their bits a write changes.
//!
//! Source: PCI Express base specification 5.0, section 7.5 (type 0 header, power management,
//! MSI-X and PCI Express capabilities) and 7.9.3 (device serial number).

use super::FunctionSettings;
use ringside_bus::config_space::{COMMAND, Command, LinkCapabilities, LinkStatus, MsixControl};
use ringside_spec::lan::identity;

/// Bytes of configuration space.
pub const CONFIG_BYTES: usize = 4096;

/// Bytes of the register BAR, as real parts have them.
pub const REGISTER_BAR_BYTES: u64 = 32 << 20;

/// The QSFP part.
const DEVICE_ID: u16 = 0x1592;
/// Not one of the subsystems with a time stamp board.
const SUBSYSTEM_ID: u16 = 0x0005;
const REVISION: u8 = 2;

const STATUS_CAPABILITIES: u16 = 1 << 4;
const BAR_MEMORY_64_PREFETCHABLE: u32 = 0b1100;
const BAR_REGISTERS: usize = 0x10;
const BAR_MSIX: usize = 0x1C;

const POWER_MANAGEMENT: usize = 0x40;
const MSIX: usize = 0x70;
const PCI_EXPRESS: usize = 0xA0;
const SERIAL_NUMBER: usize = 0x100;

const MSIX_CONTROL: usize = MSIX + 2;
const POWER_CONTROL: usize = POWER_MANAGEMENT + 4;
const DEVICE_CONTROL: usize = PCI_EXPRESS + 8;

/// 16 GT/s.
const SPEED_CODE: u32 = 4;
const LANES: u32 = 16;

ringside_spec::words! {
    /// Device capabilities. Source: section 7.5.3.3.
    struct DeviceCapabilities: u32 {
        /// largest payload: 128 << n bytes
        payload_log2: [2:0],
        /// tags of eight bits
        extended_tag: [5],
        /// always set since 1.1
        role_based_errors: [15],
        /// function-level reset
        function_level_reset: [28],
    }
    /// Device control. Source: section 7.5.3.4.
    struct DeviceControl: u16 {
        /// everything but the reset bit that software may write
        settings: [14:0],
        /// reset the function; reads as zero
        initiate_reset: [15],
    }
    /// Capability register of the PCI Express capability. Source: section 7.5.3.2.
    struct ExpressCapability: u16 {
        /// 2 for all since PCI Express 1.1
        version: [3:0],
        /// 0 endpoint
        kind: [7:4],
    }
    /// Extended capability header. Source: section 7.6.3.
    struct ExtendedHeader: u32 {
        /// number of the capability
        id: [15:0],
        /// version of the layout
        version: [19:16],
        /// the next one, 0 at the end
        next: [31:20],
    }
}

/// The effect of a write to configuration space beyond its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigEffect {
    /// Nothing.
    None,
    /// Function-level reset.
    Reset,
}

/// See the module.
#[derive(Clone)]
pub(super) struct ConfigSpace {
    bytes: Vec<u8>,
    writable: Vec<u8>,
    after_reset: Vec<u8>,
}

impl ConfigSpace {
    pub(super) fn new(settings: &FunctionSettings) -> Self {
        let mut space = Self {
            bytes: vec![0; CONFIG_BYTES],
            writable: vec![0; CONFIG_BYTES],
            after_reset: Vec::new(),
        };
        space.header();
        space.power_management();
        space.msix();
        space.pci_express();
        space.serial_number(settings.serial_number);
        space.after_reset = space.bytes.clone();
        space
    }

    fn put(&mut self, at: usize, bytes: &[u8], writable: &[u8]) {
        for (target, source) in [(&mut self.bytes, bytes), (&mut self.writable, writable)] {
            if let Some(place) = target.get_mut(at..at + source.len()) {
                place.copy_from_slice(source);
            }
        }
    }

    fn put16(&mut self, at: usize, value: u16, writable: u16) {
        self.put(at, &value.to_le_bytes(), &writable.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32, writable: u32) {
        self.put(at, &value.to_le_bytes(), &writable.to_le_bytes());
    }

    fn header(&mut self) {
        self.put16(0x00, identity::VENDOR_ID, 0);
        self.put16(0x02, DEVICE_ID, 0);
        // Memory space is on, as a host's firmware and VFIO leave it.
        let writable = Command::DEFINED | 1 << 6 | 1 << 8;
        self.put16(
            usize::from(COMMAND),
            Command::ZERO.with_memory_space(true).0,
            writable,
        );
        self.put16(0x06, STATUS_CAPABILITIES, 0);
        self.put32(0x08, identity::CLASS_CODE << 8 | u32::from(REVISION), 0);
        self.put(0x0C, &[16], &[0xFF]);
        self.bar(BAR_REGISTERS, REGISTER_BAR_BYTES);
        self.bar(BAR_MSIX, identity::MSIX_BAR_SIZE);
        self.put16(0x2C, identity::VENDOR_ID, 0);
        self.put16(0x2E, SUBSYSTEM_ID, 0);
        self.put(0x34, &[POWER_MANAGEMENT as u8], &[0]);
        self.put(0x3C, &[0xFF, 0], &[0xFF, 0]);
    }

    fn bar(&mut self, at: usize, size: u64) {
        let mask = !(size - 1);
        self.put32(at, BAR_MEMORY_64_PREFETCHABLE, mask as u32);
        self.put32(at + 4, 0, (mask >> 32) as u32);
    }

    fn power_management(&mut self) {
        self.put(POWER_MANAGEMENT, &[0x01, MSIX as u8], &[0, 0]);
        self.put16(POWER_MANAGEMENT + 2, 0x0003, 0);
        // no soft reset; power state and PME enable are the driver's
        self.put16(POWER_CONTROL, 1 << 3, 0b11 | 1 << 8);
    }

    fn msix(&mut self) {
        self.put(MSIX, &[0x11, PCI_EXPRESS as u8], &[0, 0]);
        let entries = identity::MAX_MSIX_VECTORS - 1;
        let control = MsixControl::ZERO.with_table_size_minus_one(entries);
        let writable = MsixControl::ZERO.with_enable(true).with_function_mask(true);
        self.put16(MSIX_CONTROL, control.0, writable.0);
        let bar = u32::from(identity::MSIX_BAR);
        self.put32(MSIX + 4, identity::MSIX_TABLE_OFFSET as u32 | bar, 0);
        self.put32(MSIX + 8, identity::MSIX_PENDING_OFFSET as u32 | bar, 0);
    }

    fn pci_express(&mut self) {
        self.put(PCI_EXPRESS, &[0x10, 0], &[0, 0]);
        self.put16(
            PCI_EXPRESS + 2,
            ExpressCapability::ZERO.with_version(2).0,
            0,
        );
        let capabilities = DeviceCapabilities::ZERO
            .with_payload_log2(2)
            .with_extended_tag(true)
            .with_role_based_errors(true)
            .with_function_level_reset(true);
        self.put32(PCI_EXPRESS + 4, capabilities.0, 0);
        self.put16(DEVICE_CONTROL, 0x2810, DeviceControl::SETTINGS_MASK);
        let link = LinkCapabilities::ZERO
            .with_speed(SPEED_CODE)
            .with_width(LANES);
        self.put32(PCI_EXPRESS + 0x0C, link.0, 0);
        self.put16(PCI_EXPRESS + 0x10, 0, 0x01FB);
        let status = LinkStatus::ZERO
            .with_speed(SPEED_CODE as u16)
            .with_width(LANES as u16);
        self.put16(PCI_EXPRESS + 0x12, status.0, 0);
        self.put16(PCI_EXPRESS + 0x28, 0, 0x041F);
        // 2.5, 5, 8 and 16 GT/s
        self.put32(PCI_EXPRESS + 0x2C, 0b1111 << 1, 0);
        self.put16(PCI_EXPRESS + 0x30, SPEED_CODE as u16, 0x000F);
    }

    fn serial_number(&mut self, serial: u64) {
        let header = ExtendedHeader::ZERO.with_id(3).with_version(1);
        self.put32(SERIAL_NUMBER, header.0, 0);
        self.put32(SERIAL_NUMBER + 4, serial as u32, 0);
        self.put32(SERIAL_NUMBER + 8, (serial >> 32) as u32, 0);
    }

    /// Bytes from `offset`; `None` if they leave configuration space.
    pub(super) fn read(&self, offset: u16, length: u16) -> Option<Vec<u8>> {
        let start = usize::from(offset);
        Some(self.bytes.get(start..start + usize::from(length))?.to_vec())
    }

    /// Writes the writable bits; `None` if the range leaves configuration space.
    pub(super) fn write(&mut self, offset: u16, bytes: &[u8]) -> Option<ConfigEffect> {
        let start = usize::from(offset);
        let end = start + bytes.len();
        let (old, mask) = (
            self.bytes.get_mut(start..end)?,
            self.writable.get(start..end)?,
        );
        for ((old, mask), new) in old.iter_mut().zip(mask).zip(bytes) {
            *old = *old & !mask | new & mask;
        }
        let [_, reset_bits] = DeviceControl::ZERO
            .with_initiate_reset(true)
            .0
            .to_le_bytes();
        let reset_byte = (DEVICE_CONTROL + 1)
            .checked_sub(start)
            .and_then(|at| bytes.get(at));
        let reset = reset_byte.is_some_and(|byte| byte & reset_bits != 0);
        Some(if reset {
            ConfigEffect::Reset
        } else {
            ConfigEffect::None
        })
    }

    fn word(&self, at: usize) -> u16 {
        let bytes = self
            .bytes
            .get(at..at + 2)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u16::from_le_bytes)
    }

    pub(super) fn command(&self) -> Command {
        Command(self.word(usize::from(COMMAND)))
    }

    pub(super) fn reset(&mut self) {
        // A host restores the addresses that it gave; nothing here depends on them.
        self.bytes.copy_from_slice(&self.after_reset);
    }

    /// Bytes that are not as reset leaves them: offset and value.
    pub(super) fn differences(&self) -> Vec<(u16, u8)> {
        let pairs = self.bytes.iter().zip(&self.after_reset).enumerate();
        let changed = pairs.filter(|(_, (now, then))| now != then);
        changed.map(|(at, (now, _))| (at as u16, *now)).collect()
    }
}
