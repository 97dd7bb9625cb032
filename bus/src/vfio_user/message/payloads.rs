//! The payloads that follow the header, message by message.

use super::{
    DecodeError, DeviceFlags, Fields, InterruptFlags, MapFlags, RegionFlags, SetInterruptsFlags,
    UnmapFlags, put_u16, put_u32, put_u64,
};

/// Capability id of sparse mmap areas. Source: `linux/vfio.h`, VFIO_REGION_INFO_CAP_SPARSE_MMAP.
const CAPABILITY_SPARSE_MMAP: u16 = 1;

/// The most areas of one region that are accepted.
const MAX_AREAS: u32 = 64;

/// Version and capabilities. Source: vfio-user.rst, `VFIO_USER_VERSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// JSON, without its terminating zero; may be empty.
    pub text: Vec<u8>,
}

impl Version {
    /// Decodes a payload.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::new("version", bytes);
        let (major, minor) = (fields.u16()?, fields.u16()?);
        let text = fields.rest.split(|byte| *byte == 0).next().unwrap_or(&[]);
        Ok(Self {
            major,
            minor,
            text: text.to_vec(),
        })
    }

    /// Encodes the payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(5 + self.text.len());
        put_u16(&mut bytes, self.major);
        put_u16(&mut bytes, self.minor);
        bytes.extend_from_slice(&self.text);
        bytes.push(0);
        bytes
    }
}

/// A DMA mapping. Source: vfio-user.rst, `VFIO_USER_DMA_MAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// The device's rights.
    pub flags: MapFlags,
    /// First byte in the descriptor that comes with it.
    pub offset: u64,
    /// First I/O virtual address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl DmaMap {
    const BYTES: u32 = 32;

    /// Decodes a payload.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::new("DMA map", bytes);
        let _size_of_this = fields.u32()?;
        Ok(Self {
            flags: MapFlags(fields.u32()?),
            offset: fields.u64()?,
            address: fields.u64()?,
            size: fields.u64()?,
        })
    }

    /// Encodes the payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES as usize);
        put_u32(&mut bytes, Self::BYTES);
        put_u32(&mut bytes, self.flags.0);
        put_u64(&mut bytes, self.offset);
        put_u64(&mut bytes, self.address);
        put_u64(&mut bytes, self.size);
        bytes
    }
}

/// The end of a DMA mapping; the reply repeats it. Source: vfio-user.rst, `VFIO_USER_DMA_UNMAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// The mappings.
    pub flags: UnmapFlags,
    /// First I/O virtual address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl DmaUnmap {
    const BYTES: u32 = 24;

    /// Decodes a payload.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::new("DMA unmap", bytes);
        let _room_for_reply = fields.u32()?;
        Ok(Self {
            flags: UnmapFlags(fields.u32()?),
            address: fields.u64()?,
            size: fields.u64()?,
        })
    }

    /// Encodes the payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES as usize);
        put_u32(&mut bytes, Self::BYTES);
        put_u32(&mut bytes, self.flags.0);
        put_u64(&mut bytes, self.address);
        put_u64(&mut bytes, self.size);
        bytes
    }
}

/// Memory of the client that the server accesses by message: a read, or a write with its bytes.
/// Source: vfio-user.rst, `VFIO_USER_DMA_READ` and `VFIO_USER_DMA_WRITE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DmaTransfer {
    /// First I/O virtual address.
    pub address: u64,
    /// Bytes.
    pub count: u64,
    /// The bytes to write; empty for a read.
    pub data: Vec<u8>,
}

impl DmaTransfer {
    /// Decodes a payload.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::new("DMA transfer", bytes);
        let (address, count) = (fields.u64()?, fields.u64()?);
        let data = bytes.get(Self::HEAD_BYTES..).unwrap_or_default().to_vec();
        Ok(Self {
            address,
            count,
            data,
        })
    }

    const HEAD_BYTES: usize = 16;

    /// Encodes the payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEAD_BYTES + self.data.len());
        put_u64(&mut bytes, self.address);
        put_u64(&mut bytes, self.count);
        bytes.extend(&self.data);
        bytes
    }
}

/// The kind of the device; as a request all zero. Source: vfio-user.rst,
/// `VFIO_USER_DEVICE_GET_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its kind.
    pub flags: DeviceFlags,
    /// The number of regions.
    pub regions: u32,
    /// The number of interrupt indexes.
    pub interrupts: u32,
}

impl DeviceInfo {
    const BYTES: u32 = 16;

    /// Decodes a payload.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::new("device information", bytes);
        let _argument_size = fields.u32()?;
        Ok(Self {
            flags: DeviceFlags(fields.u32()?),
            regions: fields.u32()?,
            interrupts: fields.u32()?,
        })
    }

    /// Encodes the payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES as usize);
        put_u32(&mut bytes, Self::BYTES);
        put_u32(&mut bytes, self.flags.0);
        put_u32(&mut bytes, self.regions);
        put_u32(&mut bytes, self.interrupts);
        bytes
    }
}

/// A part of a region that can be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte in the region; in the descriptor it lies [`RegionInfo::offset`] further on.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// A region. Source: vfio-user.rst, `VFIO_USER_DEVICE_GET_REGION_INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Bytes that the requester has room for, or that the whole answer takes.
    pub argument_size: u32,
    /// Its rights.
    pub flags: RegionFlags,
    /// Index of the region.
    pub index: u32,
    /// Bytes.
    pub size: u64,
    /// The region's start in its descriptor.
    pub offset: u64,
    /// Parts that can be mapped.
    pub areas: Vec<Area>,
}

impl RegionInfo {
    /// Bytes without capabilities.
    pub const BYTES: u32 = 32;

    /// The request for region `index` with room for `argument_size` bytes.
    #[must_use]
    pub const fn question(index: u32, argument_size: u32) -> Self {
        Self {
            argument_size,
            flags: RegionFlags::ZERO,
            index,
            size: 0,
            offset: 0,
            areas: Vec::new(),
        }
    }

    /// Decodes a payload. An answer that was truncated to the requester's room has no areas:
    /// request it again with room for [`RegionInfo::argument_size`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::new("region information", bytes);
        let argument_size = fields.u32()?;
        let flags = RegionFlags(fields.u32()?);
        let index = fields.u32()?;
        let first_capability = fields.u32()?;
        let (size, offset) = (fields.u64()?, fields.u64()?);
        let whole = argument_size as usize <= bytes.len();
        let areas = if flags.capabilities() && whole {
            decode_areas(bytes, first_capability)?
        } else {
            Vec::new()
        };
        Ok(Self {
            argument_size,
            flags,
            index,
            size,
            offset,
            areas,
        })
    }

    /// Encodes the payload of a request.
    #[must_use]
    pub fn encode_question(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES as usize);
        put_u32(&mut bytes, self.argument_size);
        put_u32(&mut bytes, 0);
        put_u32(&mut bytes, self.index);
        bytes.resize(Self::BYTES as usize, 0);
        bytes
    }

    /// Encodes the payload, truncated to the requester's room.
    #[must_use]
    pub fn encode(&self, room: u32) -> Vec<u8> {
        let areas = u32::try_from(self.areas.len()).unwrap_or(u32::MAX);
        let whole = match areas {
            0 => Self::BYTES,
            _ => areas.saturating_mul(16).saturating_add(Self::BYTES + 16),
        };
        let mut bytes = Vec::with_capacity(whole as usize);
        put_u32(&mut bytes, whole);
        put_u32(&mut bytes, self.flags.with_capabilities(areas > 0).0);
        put_u32(&mut bytes, self.index);
        put_u32(&mut bytes, if areas > 0 { Self::BYTES } else { 0 });
        put_u64(&mut bytes, self.size);
        put_u64(&mut bytes, self.offset);
        if areas > 0 && whole <= room {
            put_u16(&mut bytes, CAPABILITY_SPARSE_MMAP);
            put_u16(&mut bytes, 1);
            put_u32(&mut bytes, 0);
            put_u32(&mut bytes, areas);
            put_u32(&mut bytes, 0);
            for area in &self.areas {
                put_u64(&mut bytes, area.offset);
                put_u64(&mut bytes, area.size);
            }
        }
        bytes
    }
}

/// Walks the list of capabilities, which may loop or point anywhere. Source: `linux/vfio.h`,
/// struct vfio_info_cap_header and vfio_region_info_cap_sparse_mmap.
fn decode_areas(bytes: &[u8], first: u32) -> Result<Vec<Area>, DecodeError> {
    let mut areas = Vec::new();
    let (mut at, mut before) = (first, RegionInfo::BYTES - 1);
    while at != 0 {
        let outside = DecodeError::Inconsistent {
            structure: "region capabilities",
            field: "next offset",
            value: at.into(),
        };
        // each must lie after the previous one: a loop would not end
        if at <= before {
            return Err(outside);
        }
        before = at;
        let rest = bytes.get(at as usize..).ok_or(outside)?;
        let mut fields = Fields::new("region capabilities", rest);
        let (id, _version) = (fields.u16()?, fields.u16()?);
        at = fields.u32()?;
        if id != CAPABILITY_SPARSE_MMAP {
            continue;
        }
        let (count, _reserved) = (fields.u32()?, fields.u32()?);
        if count > MAX_AREAS {
            return Err(fields.inconsistent("number of areas", count.into()));
        }
        for _ in 0..count {
            areas.push(Area {
                offset: fields.u64()?,
                size: fields.u64()?,
            });
        }
    }
    Ok(areas)
}

/// An interrupt index. Source: vfio-user.rst, `VFIO_USER_DEVICE_GET_IRQ_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterruptInfo {
    /// Its abilities.
    pub flags: InterruptFlags,
    /// The interrupt index.
    pub index: u32,
    /// The number of interrupts.
    pub count: u32,
}

impl InterruptInfo {
    const BYTES: u32 = 16;

    /// Decodes a payload.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::new("interrupt information", bytes);
        let _argument_size = fields.u32()?;
        Ok(Self {
            flags: InterruptFlags(fields.u32()?),
            index: fields.u32()?,
            count: fields.u32()?,
        })
    }

    /// Encodes the payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES as usize);
        put_u32(&mut bytes, Self::BYTES);
        put_u32(&mut bytes, self.flags.0);
        put_u32(&mut bytes, self.index);
        put_u32(&mut bytes, self.count);
        bytes
    }
}

/// Connects interrupts. Source: vfio-user.rst, `VFIO_USER_DEVICE_SET_IRQS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInterrupts {
    /// The action on the interrupts.
    pub flags: SetInterruptsFlags,
    /// The interrupt index.
    pub index: u32,
    /// First interrupt.
    pub start: u32,
    /// The number.
    pub count: u32,
}

impl SetInterrupts {
    const BYTES: u32 = 20;

    /// Decodes a payload; data that may follow is left alone.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::new("interrupt set-up", bytes);
        let _argument_size = fields.u32()?;
        Ok(Self {
            flags: SetInterruptsFlags(fields.u32()?),
            index: fields.u32()?,
            start: fields.u32()?,
            count: fields.u32()?,
        })
    }

    /// Encodes the payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES as usize);
        put_u32(&mut bytes, Self::BYTES);
        put_u32(&mut bytes, self.flags.0);
        put_u32(&mut bytes, self.index);
        put_u32(&mut bytes, self.start);
        put_u32(&mut bytes, self.count);
        bytes
    }
}

/// A read or write of a region. Source: vfio-user.rst, `VFIO_USER_REGION_READ` and `_WRITE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess<'a> {
    /// First byte in the region.
    pub offset: u64,
    /// The region.
    pub region: u32,
    /// Bytes.
    pub count: u32,
    /// The bytes, where the message carries them.
    pub data: &'a [u8],
}

impl<'a> RegionAccess<'a> {
    /// Decodes a payload without data: the request of a read, the answer of a write.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields::new("region access", bytes);
        Ok(Self {
            offset: fields.u64()?,
            region: fields.u32()?,
            count: fields.u32()?,
            data: &[],
        })
    }

    /// Decodes a payload with exactly as much data as its count.
    pub fn decode_with_data(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let access = Self::decode(bytes)?;
        let data = bytes.get(16..).unwrap_or(&[]);
        if data.len() as u64 != u64::from(access.count) {
            let fields = Fields::new("region access", bytes);
            return Err(fields.inconsistent("count", access.count.into()));
        }
        Ok(Self { data, ..access })
    }

    /// Encodes the payload, data included.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.data.len());
        put_u64(&mut bytes, self.offset);
        put_u32(&mut bytes, self.region);
        put_u32(&mut bytes, self.count);
        bytes.extend_from_slice(self.data);
        bytes
    }
}
