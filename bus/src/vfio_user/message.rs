//! The messages, as values and as bytes.
//!
//! Decoding accepts any bytes: truncated data is a [`DecodeError`], unknown values are kept.
//! Nothing here checks that a request is valid; the receiver does that.

mod payloads;

pub use payloads::{
    Area, DeviceInfo, DmaMap, DmaTransfer, DmaUnmap, InterruptInfo, RegionAccess, RegionInfo,
    SetInterrupts, Version,
};

ringside_spec::words! {
    /// Flags of a message header. Source: vfio-user.rst, "Header".
    pub struct HeaderFlags: u32 {
        /// 0 command, 1 reply
        kind: [3:0],
        /// the sender wants no reply
        no_reply: [4],
        /// the reply is a refusal
        error: [5],
    }
    /// The rights of a DMA mapping. Source: vfio-user.rst, `VFIO_USER_DMA_MAP`.
    pub struct MapFlags: u32 {
        /// the device may read
        readable: [0],
        /// the device may write
        writable: [1],
        /// the descriptor is of an address space, the offset an address in it: it is read and
        /// written at positions. A ringside extension; other servers refuse the descriptor, which
        /// has no length.
        positional: [31],
    }
    /// Flags of an unmap. Source: `linux/vfio.h`, VFIO_DMA_UNMAP_FLAG_GET_DIRTY_BITMAP and _ALL.
    pub struct UnmapFlags: u32 {
        /// report dirty pages, for migration
        dirty_bitmap: [0],
        /// all mappings; address and size are ignored
        all: [1],
    }
    /// The kind of a device. Source: vfio-user.rst, `VFIO_USER_DEVICE_GET_INFO`.
    pub struct DeviceFlags: u32 {
        /// can be reset by message
        reset: [0],
        /// is a PCI function
        pci: [1],
    }
    /// The rights of a region. Source: vfio-user.rst, `VFIO_USER_DEVICE_GET_REGION_INFO`.
    pub struct RegionFlags: u32 {
        /// can be read
        read: [0],
        /// can be written
        write: [1],
        /// a descriptor comes with the answer, to be mapped
        mmap: [2],
        /// a list of capabilities follows
        capabilities: [3],
    }
    /// The abilities of an interrupt index. Source: vfio-user.rst, `VFIO_USER_DEVICE_GET_IRQ_INFO`.
    pub struct InterruptFlags: u32 {
        /// raised through event descriptors
        eventfd: [0],
        /// can be masked by message
        maskable: [1],
        /// masks itself when raised
        automasked: [2],
        /// only set up as a whole
        no_resize: [3],
    }
    /// The action on interrupts. Source: vfio-user.rst, `VFIO_USER_DEVICE_SET_IRQS`.
    pub struct SetInterruptsFlags: u32 {
        /// no data follows
        data_none: [0],
        /// one byte each follows
        data_bool: [1],
        /// event descriptors come beside the message
        data_eventfd: [2],
        /// mask
        action_mask: [3],
        /// unmask
        action_unmask: [4],
        /// trigger, or connect what triggers
        action_trigger: [5],
    }
}

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;

/// [`HeaderFlags::kind`] of a command.
pub const KIND_COMMAND: u32 = 0;

/// [`HeaderFlags::kind`] of a reply.
pub const KIND_REPLY: u32 = 1;

/// Most data in one read or write of a region, unless negotiated otherwise.
pub const MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// The largest message that either side of ringside accepts: a full transfer and its fields.
pub const MAX_MESSAGE_BYTES: usize = MAX_TRANSFER_BYTES as usize + 4096;

/// Major version of the protocol.
pub const VERSION_MAJOR: u16 = 0;

/// Highest minor version that is understood.
pub const VERSION_MINOR: u16 = 1;

/// Region index of base address register 0; the others follow.
pub const REGION_BAR_0: u32 = 0;
/// Region index of the expansion ROM. Source: `linux/vfio.h`, VFIO_PCI_ROM_REGION_INDEX.
pub const REGION_ROM: u32 = 6;
/// Region index of configuration space. Source: `linux/vfio.h`, VFIO_PCI_CONFIG_REGION_INDEX.
pub const REGION_CONFIG: u32 = 7;
/// Regions of a PCI function. Source: `linux/vfio.h`, VFIO_PCI_NUM_REGIONS.
pub const REGIONS: u32 = 9;
/// Interrupt index of MSI-X. Source: `linux/vfio.h`, VFIO_PCI_MSIX_IRQ_INDEX.
pub const INTERRUPT_MSIX: u32 = 2;

/// The kernel's request to release the device. Source: `linux/vfio.h`, VFIO_PCI_REQ_IRQ_INDEX.
pub const INTERRUPT_RELEASE: u32 = 4;
/// Interrupt indexes of a PCI function. Source: `linux/vfio.h`, VFIO_PCI_NUM_IRQS.
pub const INTERRUPTS: u32 = 5;

/// The request of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// Negotiate version and capabilities.
    Version = 1,
    /// Let the device reach memory.
    DmaMap = 2,
    /// Remove a DMA mapping.
    DmaUnmap = 3,
    /// Query the kind of device.
    DeviceInfo = 4,
    /// Query a region.
    RegionInfo = 5,
    /// Request descriptors for parts of a region.
    RegionDescriptors = 6,
    /// Query an interrupt index.
    InterruptInfo = 7,
    /// Connect interrupts.
    SetInterrupts = 8,
    /// Read a region.
    RegionRead = 9,
    /// Write a region.
    RegionWrite = 10,
    /// Server to client: read memory.
    DmaRead = 11,
    /// Server to client: write memory.
    DmaWrite = 12,
    /// Reset the device.
    Reset = 13,
    /// Dirty pages, of older drafts.
    DirtyPages = 14,
    /// Several writes in one message.
    RegionWriteMultiple = 15,
    /// Device features.
    DeviceFeature = 16,
    /// Read migration data.
    MigrationRead = 17,
    /// Write migration data.
    MigrationWrite = 18,
}

impl Command {
    const ALL: [Self; 18] = [
        Self::Version,
        Self::DmaMap,
        Self::DmaUnmap,
        Self::DeviceInfo,
        Self::RegionInfo,
        Self::RegionDescriptors,
        Self::InterruptInfo,
        Self::SetInterrupts,
        Self::RegionRead,
        Self::RegionWrite,
        Self::DmaRead,
        Self::DmaWrite,
        Self::Reset,
        Self::DirtyPages,
        Self::RegionWriteMultiple,
        Self::DeviceFeature,
        Self::MigrationRead,
        Self::MigrationWrite,
    ];

    /// The command with that number, if the protocol has one.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.code() == code)
    }

    /// Its number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }
}

/// The bytes are not the expected structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are too few.
    #[error("{structure}: {length} bytes are too few")]
    Truncated {
        /// The structure.
        structure: &'static str,
        /// Bytes available.
        length: usize,
    },
    /// A count or an offset does not fit the message.
    #[error("{structure}: {field} is {value}, which does not fit the message")]
    Inconsistent {
        /// The structure.
        structure: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// Reads fields from the front of a byte slice.
struct Fields<'a> {
    structure: &'static str,
    length: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    const fn new(structure: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            structure,
            length: bytes.len(),
            rest: bytes,
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (field, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated {
                structure: self.structure,
                length: self.length,
            })?;
        self.rest = rest;
        Ok(*field)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_ne_bytes)
    }

    const fn inconsistent(&self, field: &'static str, value: u64) -> DecodeError {
        DecodeError::Inconsistent {
            structure: self.structure,
            field,
            value,
        }
    }
}

fn put_u16(to: &mut Vec<u8>, value: u16) {
    to.extend_from_slice(&value.to_ne_bytes());
}

fn put_u32(to: &mut Vec<u8>, value: u32) {
    to.extend_from_slice(&value.to_ne_bytes());
}

fn put_u64(to: &mut Vec<u8>, value: u64) {
    to.extend_from_slice(&value.to_ne_bytes());
}

/// The first 16 bytes of every message. Source: vfio-user.rst, "Header".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the sender and repeated in the reply.
    pub id: u16,
    /// [`Command::code`].
    pub command: u16,
    /// Bytes of the whole message, this header included.
    pub size: u32,
    /// Kind of the message; reply not wanted; reply is a refusal.
    pub flags: HeaderFlags,
    /// The errno of a refusal.
    pub error: u32,
}

impl Header {
    /// Reads 16 bytes.
    #[must_use]
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Self {
            id: u16::from_ne_bytes([a, b]),
            command: u16::from_ne_bytes([c, d]),
            size: u32::from_ne_bytes([e, f, g, h]),
            flags: HeaderFlags(u32::from_ne_bytes([i, j, k, l])),
            error: u32::from_ne_bytes([m, n, o, p]),
        }
    }

    /// Appends 16 bytes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        put_u16(to, self.id);
        put_u16(to, self.command);
        put_u32(to, self.size);
        put_u32(to, self.flags.0);
        put_u32(to, self.error);
    }

    /// A command with its payload, ready to be sent.
    #[must_use]
    pub fn command(id: u16, command: Command, no_reply: bool, payload: &[u8]) -> Vec<u8> {
        let flags = HeaderFlags::ZERO.with_no_reply(no_reply);
        Self::message(id, command.code(), flags, 0, payload)
    }

    /// Returns the reply to this command.
    #[must_use]
    pub fn reply(&self, payload: &[u8]) -> Vec<u8> {
        let flags = HeaderFlags::ZERO.with_kind(KIND_REPLY);
        Self::message(self.id, self.command, flags, 0, payload)
    }

    /// Returns the refusal of this command. Some clients treat an errno of zero as success, so it
    /// is sent as EIO.
    #[must_use]
    pub fn refusal(&self, errno: u32) -> Vec<u8> {
        self.refusal_with(errno, &[])
    }

    /// As [`Self::refusal`], with `payload` behind the header.
    #[must_use]
    pub fn refusal_with(&self, errno: u32, payload: &[u8]) -> Vec<u8> {
        let flags = HeaderFlags::ZERO.with_kind(KIND_REPLY).with_error(true);
        let errno = if errno == 0 { EIO } else { errno };
        Self::message(self.id, self.command, flags, errno, payload)
    }

    fn message(id: u16, command: u16, flags: HeaderFlags, error: u32, payload: &[u8]) -> Vec<u8> {
        let length = HEADER_BYTES + payload.len();
        let mut bytes = Vec::with_capacity(length);
        let header = Self {
            id,
            command,
            size: u32::try_from(length).unwrap_or(u32::MAX),
            flags,
            error,
        };
        header.encode(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }
}

const EIO: u32 = 5;

#[cfg(test)]
mod tests;
