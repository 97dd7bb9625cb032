//! A frame on its way through the process: parsed headers, and a payload that may still lie in the
//! sender's memory.

mod ethernet;

pub use ethernet::EthernetFrame;
pub(crate) use ethernet::{Cast, is_group};

use crate::packet::{self, EmitError, Network, Packet, ParseError};
use ringside_bus::{Direction, DmaFault, DmaSpace, Iova};

/// Bytes that travel inside a frame.
pub const INLINE_BYTES_MAX: usize = 128;

/// Pieces of memory that one payload may be gathered from, before it is copied instead: no more
/// than make a frame as large as one that carries its bytes.
pub const PIECES_MAX: usize = 7;

/// Bytes of Ethernet, IPv4, UDP, base transport header, invariant CRC and frame check sequence.
const OVERHEAD_IPV4: usize = 14 + 20 + 8 + 12 + 4 + 4;
const OVERHEAD_IPV6: usize = OVERHEAD_IPV4 + 20;

/// A RoCEv2 packet with its payload.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its headers.
    pub packet: Packet,
    /// The payload.
    pub payload: Payload,
}

/// The place of the payload.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // a box would be an allocation for every packet
pub enum Payload {
    /// In the frame itself.
    Inline {
        /// The bytes, `length` of them.
        bytes: [u8; INLINE_BYTES_MAX],
        /// The number of valid bytes, at most [`INLINE_BYTES_MAX`].
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
    /// In a buffer: what came from outside of the process, or was serialised on the way.
    Bytes(Vec<u8>),
}

/// A short list of memory ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    list: [(Iova, u32); PIECES_MAX],
    count: u8,
    length: u32,
}

impl Pieces {
    /// No piece.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            list: [(Iova(0), 0); PIECES_MAX],
            count: 0,
            length: 0,
        }
    }

    /// Adds `length` bytes at `at`, joined to the piece before if that ends there. False if there
    /// are [`PIECES_MAX`] pieces already or the sum leaves 32 bits.
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

/// Why bytes of a payload could not be had or placed.
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
    /// The sender's memory is gone or was never there.
    #[error("the payload cannot be read: {0}")]
    Source(DmaFault),
    /// The receiver's memory refuses.
    #[error("the payload cannot be written: {0}")]
    Target(DmaFault),
}

impl Payload {
    /// No payload.
    #[inline]
    #[must_use]
    pub const fn empty() -> Self {
        Self::Inline {
            bytes: [0; INLINE_BYTES_MAX],
            length: 0,
        }
    }

    /// A payload in the frame itself; `None` if it is longer than [`INLINE_BYTES_MAX`].
    #[inline]
    #[must_use]
    pub fn inline(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; INLINE_BYTES_MAX];
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
                if let DmaFault::Refused { direction, .. } = fault {
                    return match direction {
                        Direction::Read => PayloadError::Source(fault),
                        Direction::Write => PayloadError::Target(fault),
                    };
                }
                // else `copy` does not say which side refused
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

/// Why a frame has no bytes.
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
    /// Bytes on the wire, from the Ethernet header to the frame check sequence.
    #[inline]
    #[must_use]
    pub fn length(&self) -> usize {
        let overhead = match self.packet.path.network {
            Network::V4(_) => OVERHEAD_IPV4,
            Network::V6(_) => OVERHEAD_IPV6,
        };
        let tag = if self.packet.path.vlan.is_some() {
            4
        } else {
            0
        };
        let extension = self.packet.transport.extension.kind().length_bytes();
        let padded = self.payload.length().next_multiple_of(4);
        (overhead + tag + extension + padded).max(64)
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
        Ok(Self { packet, payload })
    }
}

#[cfg(test)]
pub(crate) mod tests;
