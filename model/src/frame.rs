//! A frame on its way through the process: parsed headers, and a payload that may still lie in the
//! sender's memory.

mod ethernet;

pub(crate) use ethernet::{Cast, is_group};

use crate::packet::{
    self, EmitError, Extension, ExtensionKind, Ipv4, MacAddress, Network, Opcode, Packet,
    ParseError, Path, Psn, QpNumber, TransportHeaders, UdpChecksum,
};
use ringside_bus::{Direction, DmaFault, DmaSpace, Iova};
use std::net::Ipv4Addr;

/// Bytes that travel inside a frame.
pub const MAX_INLINE_BYTES: usize = 128;

/// Pieces of memory that one payload may be gathered from, before it is copied instead: no more
/// than make a frame as large as one that carries its bytes.
pub const MAX_PIECES: usize = 7;

/// Bytes of Ethernet, IPv4, UDP, base transport header, invariant CRC and frame check sequence.
const OVERHEAD_IPV4: usize = 14 + 20 + 8 + 12 + 4 + 4;
const OVERHEAD_IPV6: usize = OVERHEAD_IPV4 + 20;

/// Bytes of payload that one frame carries at most, where nothing on the wire needs the packets.
pub(crate) const RUN_BYTES: u32 = 1 << 16;

/// A RoCEv2 packet with its payload, or a run of packets of one message that travel as one.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its headers; those of the first packet of a run.
    pub packet: Packet,
    /// The payload, of all packets of a run.
    pub payload: Payload,
    /// The number of packets, at least 1. Those of a run have payloads of the same length.
    pub packets: u32,
}

/// The place of the payload.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // a box would be an allocation for every packet
pub enum Payload {
    /// In the frame itself.
    Inline {
        /// The bytes, `length` of them.
        bytes: [u8; MAX_INLINE_BYTES],
        /// The number of valid bytes, at most [`MAX_INLINE_BYTES`].
        length: u8,
    },
    /// In the memory of function `source`, which the wire fills in; it stays there until the frame
    /// has been received.
    Memory {
        /// Index of the function.
        source: usize,
        /// The pieces.
        pieces: Pieces,
    },
    /// In a buffer: the frame came from outside the process, or was serialised on the way.
    Bytes(Vec<u8>),
}

/// A short list of memory ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    list: [(Iova, u32); MAX_PIECES],
    count: u8,
    length: u32,
}

impl Pieces {
    /// No piece.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            list: [(Iova(0), 0); MAX_PIECES],
            count: 0,
            length: 0,
        }
    }

    /// Adds `length` bytes at `at`, joined to the piece before if that ends there. False if there
    /// are [`MAX_PIECES`] pieces already or the sum leaves 32 bits.
    #[inline]
    #[must_use]
    pub fn push(&mut self, at: Iova, length: u32) -> bool {
        let Some(total) = self.length.checked_add(length) else {
            return false;
        };
        let count = usize::from(self.count);
        if let Some((start, bytes)) = count
            .checked_sub(1)
            .and_then(|last| self.list.get_mut(last))
            && start.add(u64::from(*bytes)) == at
        {
            *bytes += length;
        } else if let Some(free) = self.list.get_mut(count) {
            *free = (at, length);
            self.count += 1;
        } else {
            return false;
        }
        self.length = total;
        true
    }

    /// The pieces: address and bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[(Iova, u32)] {
        self.list.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// Bytes of all pieces.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length as usize
    }
}

impl Default for Pieces {
    fn default() -> Self {
        Self::new()
    }
}

/// The reason why bytes of a payload could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The range leaves the payload: a bug of the caller.
    #[error("{length} bytes from {offset} are not in a payload of {available} bytes")]
    OutOfRange {
        /// First byte.
        offset: usize,
        /// Bytes.
        length: usize,
        /// Length of the payload.
        available: usize,
    },
    /// The sender's memory is no longer mapped, or never was.
    #[error("the payload cannot be read: {0}")]
    Source(DmaFault),
    /// The receiver's memory refuses.
    #[error("the payload cannot be written: {0}")]
    Target(DmaFault),
}

impl Default for Frame {
    /// A frame to be filled: an empty acknowledgement without a destination.
    fn default() -> Self {
        Self {
            packet: Packet {
                path: Path {
                    destination: MacAddress([0; 6]),
                    source: MacAddress([0; 6]),
                    vlan: None,
                    network: Network::V4(Ipv4 {
                        source: Ipv4Addr::UNSPECIFIED,
                        destination: Ipv4Addr::UNSPECIFIED,
                        type_of_service: 0,
                        time_to_live: 0,
                        identification: 0,
                        do_not_fragment: true,
                    }),
                    source_port: 0,
                    udp_checksum: UdpChecksum::Absent,
                },
                transport: TransportHeaders {
                    opcode: Opcode::ACKNOWLEDGE,
                    solicited: false,
                    migrated: true,
                    partition_key: 0,
                    forward_congestion: false,
                    backward_congestion: false,
                    destination_qp: QpNumber::new(0),
                    acknowledge_request: false,
                    psn: Psn::new(0),
                    extension: Extension::None,
                },
            },
            payload: Payload::empty(),
            packets: 1,
        }
    }
}

impl Payload {
    /// Makes it one of `length` bytes in the frame itself, and gives these; `None` if they are too
    /// many. Bytes that the caller does not write are those of a payload before.
    #[inline]
    pub(crate) fn start_inline(&mut self, length: usize) -> Option<&mut [u8]> {
        if !matches!(self, Self::Inline { .. }) {
            *self = Self::empty();
        }
        let Self::Inline {
            bytes,
            length: held,
        } = self
        else {
            return None;
        };
        let bytes = bytes.get_mut(..length)?;
        *held = length as u8;
        Some(bytes)
    }

    /// No payload.
    #[inline]
    #[must_use]
    pub const fn empty() -> Self {
        Self::Inline {
            bytes: [0; MAX_INLINE_BYTES],
            length: 0,
        }
    }

    /// A payload in the frame itself; `None` if it is longer than [`MAX_INLINE_BYTES`].
    #[inline]
    #[must_use]
    pub fn inline(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_INLINE_BYTES];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self::Inline {
            bytes,
            length: from.len() as u8,
        })
    }

    /// Bytes.
    #[inline]
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Inline { length, .. } => usize::from(*length),
            Self::Memory { pieces, .. } => pieces.length(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// The bytes, where the payload holds them itself.
    #[inline]
    #[must_use]
    pub fn own_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Inline { bytes, length } => bytes.get(..usize::from(*length)),
            Self::Bytes(bytes) => Some(bytes),
            Self::Memory { .. } => None,
        }
    }

    /// Calls `visit` for each stretch of memory that makes up `length` bytes from `offset`: address
    /// in the source's space, bytes, and bytes from `offset` on.
    fn for_each_piece(
        pieces: &Pieces,
        offset: usize,
        length: usize,
        mut visit: impl FnMut(Iova, usize, usize) -> Result<(), PayloadError>,
    ) -> Result<(), PayloadError> {
        let (mut skip, mut done) = (offset, 0);
        for &(start, bytes) in pieces.as_slice() {
            let bytes = bytes as usize;
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let take = (bytes - skip).min(length - done);
            if take == 0 {
                break;
            }
            visit(start.add(skip as u64), take, done)?;
            done += take;
            skip = 0;
        }
        Ok(())
    }

    /// `length` bytes from `offset`; nothing where they leave the payload.
    fn part(&self, offset: usize, length: usize) -> Self {
        if let Some(bytes) = self.own_bytes() {
            let part = bytes.get(offset..offset + length).unwrap_or_default();
            return Self::inline(part).unwrap_or_else(|| Self::Bytes(part.to_vec()));
        }
        let Self::Memory { source, pieces } = self else {
            return Self::empty();
        };
        let mut part = Pieces::new();
        let found = Self::for_each_piece(pieces, offset, length, |at, bytes, _| {
            // No more pieces than there are.
            let _ = part.push(at, bytes as u32);
            Ok(())
        });
        match found {
            Ok(()) => Self::Memory {
                source: *source,
                pieces: part,
            },
            Err(_) => Self::empty(),
        }
    }

    fn check(&self, offset: usize, length: usize) -> Result<(), PayloadError> {
        let available = self.length();
        match offset.checked_add(length) {
            Some(end) if end <= available => Ok(()),
            _ => Err(PayloadError::OutOfRange {
                offset,
                length,
                available,
            }),
        }
    }

    /// Copies the whole payload out; `into` must be as long as it.
    pub fn read(&self, spaces: &[DmaSpace], into: &mut [u8]) -> Result<(), PayloadError> {
        self.check(0, into.len())?;
        if let Some(bytes) = self.own_bytes() {
            if let Some(bytes) = bytes.get(..into.len()) {
                into.copy_from_slice(bytes);
            }
            return Ok(());
        }
        let Self::Memory { source, pieces } = self else {
            return Ok(());
        };
        let space = source_space(spaces, *source)?;
        let length = into.len();
        Self::for_each_piece(pieces, 0, length, |at, bytes, done| {
            let Some(part) = into.get_mut(done..done + bytes) else {
                return Ok(());
            };
            space.read(at, part).map_err(PayloadError::Source)
        })
    }

    /// Copies a payload that lies in the sender's memory into the frame.
    pub(crate) fn take_along(&mut self, memory: &DmaSpace) -> Result<(), PayloadError> {
        if self.own_bytes().is_none() {
            let mut bytes = vec![0; self.length()];
            self.read(std::slice::from_ref(memory), &mut bytes)?;
            *self = Self::Bytes(bytes);
        }
        Ok(())
    }

    /// Moves `length` bytes from `offset` of the payload to `target_at` in `target`: one copy, from
    /// memory to memory where the payload lies in memory.
    pub fn copy_to(
        &self,
        spaces: &[DmaSpace],
        offset: usize,
        target: &DmaSpace,
        target_at: Iova,
        length: usize,
    ) -> Result<(), PayloadError> {
        self.check(offset, length)?;
        if let Some(bytes) = self.own_bytes() {
            let part = bytes.get(offset..offset + length).unwrap_or_default();
            return target.write(target_at, part).map_err(PayloadError::Target);
        }
        let Self::Memory { source, pieces } = self else {
            return Ok(());
        };
        let space = source_space(spaces, *source)?;
        Self::for_each_piece(pieces, offset, length, |at, bytes, done| {
            let to = target_at.add(done as u64);
            DmaSpace::copy(space, at, target, to, bytes).map_err(|fault| {
                if let DmaFault::Refused { direction, .. } | DmaFault::Gone { direction, .. } =
                    fault
                {
                    return match direction {
                        Direction::Read => PayloadError::Source(fault),
                        Direction::Write => PayloadError::Target(fault),
                    };
                }
                // else `copy` does not report which side refused
                match space.check(at, bytes, ringside_bus::function::DmaAccess::Read) {
                    Err(fault) => PayloadError::Source(fault),
                    Ok(()) => PayloadError::Target(fault),
                }
            })
        })
    }
}

fn source_space(spaces: &[DmaSpace], source: usize) -> Result<&DmaSpace, PayloadError> {
    let gone = DmaFault::NotMapped {
        iova: Iova(0),
        length: 0,
    };
    spaces.get(source).ok_or(PayloadError::Source(gone))
}

/// Bytes on the wire of a packet, from the Ethernet header to the frame check sequence.
#[inline]
pub(crate) fn wire_length(path: &Path, extension: ExtensionKind, payload: usize) -> usize {
    let overhead = match path.network {
        Network::V4(_) => OVERHEAD_IPV4,
        Network::V6(_) => OVERHEAD_IPV6,
    };
    let tag = if path.vlan.is_some() { 4 } else { 0 };
    let padded = payload.next_multiple_of(4);
    (overhead + tag + extension.length_bytes() + padded).max(64)
}

/// The reason why a frame has no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SerialiseError {
    /// Its payload cannot be read.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// Its headers contradict each other.
    #[error(transparent)]
    Emit(#[from] EmitError),
}

impl Frame {
    /// Bytes on the wire, from the Ethernet header to the frame check sequence; of a run those of
    /// the first packet.
    #[inline]
    #[must_use]
    pub fn length(&self) -> usize {
        let payload = match self.packets {
            1 => self.payload.length(),
            _ => self.packet_bytes(),
        };
        self.length_with(self.packet.transport.extension.kind(), payload)
    }

    /// Bytes on the wire of each packet of a run but the first.
    #[must_use]
    pub fn further_length(&self) -> usize {
        self.length_with(ExtensionKind::None, self.packet_bytes())
    }

    /// Bytes on the wire of all packets.
    #[inline]
    #[must_use]
    pub fn total_length(&self) -> usize {
        match self.packets {
            1 => self.length(),
            packets => self.length() + (packets as usize - 1) * self.further_length(),
        }
    }

    /// Bytes of payload of each packet of a run.
    #[must_use]
    pub fn packet_bytes(&self) -> usize {
        self.payload.length() / self.packets.max(1) as usize
    }

    /// Packet `index` of a run by itself.
    #[must_use]
    pub fn part(&self, index: u32) -> Self {
        let bytes = self.packet_bytes();
        let transport = self.packet.transport.of_run(index, self.packets);
        Self {
            packet: Packet {
                transport,
                ..self.packet
            },
            payload: self.payload.part(index as usize * bytes, bytes),
            packets: 1,
        }
    }

    #[inline]
    fn length_with(&self, extension: ExtensionKind, payload: usize) -> usize {
        wire_length(&self.packet.path, extension, payload)
    }

    /// Copies the payload out.
    pub fn read(&self, spaces: &[DmaSpace], into: &mut [u8]) -> Result<(), PayloadError> {
        self.payload.read(spaces, into)
    }

    /// Moves a part of the payload into memory; see [`Payload::copy_to`].
    #[inline]
    pub fn copy_to(
        &self,
        spaces: &[DmaSpace],
        offset: usize,
        target: &DmaSpace,
        target_at: Iova,
        length: usize,
    ) -> Result<(), PayloadError> {
        self.payload
            .copy_to(spaces, offset, target, target_at, length)
    }

    /// Appends the frame's bytes, invariant CRC included, without frame check sequence.
    pub fn serialise(&self, spaces: &[DmaSpace], into: &mut Vec<u8>) -> Result<(), SerialiseError> {
        if let Some(bytes) = self.payload.own_bytes() {
            return Ok(packet::emit(&self.packet, bytes, into)?);
        }
        let mut payload = vec![0; self.payload.length()];
        self.payload.read(spaces, &mut payload)?;
        Ok(packet::emit(&self.packet, &payload, into)?)
    }

    /// Reads a frame from bytes, all checks included.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (packet, range) = packet::parse(bytes)?;
        let payload = bytes.get(range).unwrap_or_default();
        let payload = Payload::inline(payload).unwrap_or_else(|| Payload::Bytes(payload.to_vec()));
        Ok(Self {
            packet,
            payload,
            packets: 1,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
