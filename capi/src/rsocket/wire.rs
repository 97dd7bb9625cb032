//! The protocol of stream sockets, as bytes and numbers.
//!
//! Every transfer is an RDMA write with immediate data, which says what was written. Source:
//! rdma-core `librdmacm/docs/rsocket`, "rsocket Protocol and Design Guide", and the sizes and
//! values of `librdmacm/rsocket.c`.

/// Bytes of private data in a request and in a reply.
pub(super) const GREETING_BYTES: usize = 40;
/// Bytes of a target entry.
pub(super) const TARGET_BYTES: usize = 16;
/// Bytes of an entry that maps a buffer of the peer.
pub(super) const MAPPING_BYTES: usize = 24;
/// Target entries of each side: the receive buffer is published in halves.
pub(super) const TARGETS: usize = 2;

const VERSION: u8 = 1;
const BIG_ENDIAN_HOST: u8 = 1;
const HAS_MAPPINGS: u8 = 2;

/// A buffer of a peer: the target of RDMA writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) key: u32,
    /// bytes; of a list, entries
    pub(super) length: u32,
}

impl Target {
    /// The entry as words in the byte order of its reader.
    pub(super) fn bytes(self, is_swapped: bool) -> [u8; TARGET_BYTES] {
        let mut bytes = [0; TARGET_BYTES];
        let (address, words) = bytes.split_at_mut(8);
        let (key, length) = words.split_at_mut(4);
        if is_swapped {
            address.copy_from_slice(&self.address.swap_bytes().to_ne_bytes());
            key.copy_from_slice(&self.key.swap_bytes().to_ne_bytes());
            length.copy_from_slice(&self.length.swap_bytes().to_ne_bytes());
        } else {
            address.copy_from_slice(&self.address.to_ne_bytes());
            key.copy_from_slice(&self.key.to_ne_bytes());
            length.copy_from_slice(&self.length.to_ne_bytes());
        }
        bytes
    }

    /// The entry of two words in memory: address, then key and length.
    pub(super) const fn of_words(address: u64, rest: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = rest.to_ne_bytes();
        Self {
            address,
            key: u32::from_ne_bytes([a, b, c, d]),
            length: u32::from_ne_bytes([e, f, g, h]),
        }
    }

    fn big_endian(self) -> [u8; TARGET_BYTES] {
        self.bytes(cfg!(target_endian = "little"))
    }

    fn of_big_endian(bytes: &[u8]) -> Option<Self> {
        let (address, rest) = bytes.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_first_chunk::<4>()?;
        let (length, _) = rest.split_first_chunk::<4>()?;
        Some(Self {
            address: u64::from_be_bytes(*address),
            key: u32::from_be_bytes(*key),
            length: u32::from_be_bytes(*length),
        })
    }
}

/// A buffer of the program that its peer may write to, by an offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) offset: u64,
    pub(super) target: Target,
}

impl Mapping {
    /// The entry in the byte order of its reader.
    pub(super) fn bytes(self, is_swapped: bool) -> [u8; MAPPING_BYTES] {
        let offset = match is_swapped {
            true => self.offset.swap_bytes(),
            false => self.offset,
        };
        let mut bytes = [0; MAPPING_BYTES];
        let (first, rest) = bytes.split_at_mut(8);
        first.copy_from_slice(&offset.to_ne_bytes());
        rest.copy_from_slice(&self.target.bytes(is_swapped));
        bytes
    }

    /// The bytes of the peer's buffer at an offset, and how many there are; nothing if the buffer
    /// does not have the offset.
    pub(super) fn at(&self, offset: u64) -> Option<Target> {
        let within = offset.checked_sub(self.offset)?;
        let left = u64::from(self.target.length).checked_sub(within)?;
        (left > 0).then_some(Target {
            address: self.target.address.wrapping_add(within),
            key: self.target.key,
            length: left as u32,
        })
    }
}

/// The private data of each side when a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// receives that are posted
    pub(super) credits: u16,
    /// entries of the list of mappings behind the target entries, as 8 bits encode them
    pub(super) mappings: u8,
    /// the peer has another byte order
    pub(super) is_swapped: bool,
    /// the list of target entries
    pub(super) targets: Target,
    /// the first half of the receive buffer
    pub(super) buffer: Target,
}

impl Greeting {
    pub(super) fn bytes(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        let own_order = if cfg!(target_endian = "big") {
            BIG_ENDIAN_HOST
        } else {
            0
        };
        let [first, second] = self.credits.to_be_bytes();
        let flags = HAS_MAPPINGS | own_order;
        let (head, rest) = bytes.split_at_mut(8);
        head.copy_from_slice(&[VERSION, flags, first, second, 0, 0, 0, self.mappings]);
        let (targets, buffer) = rest.split_at_mut(TARGET_BYTES);
        targets.copy_from_slice(&self.targets.big_endian());
        buffer.copy_from_slice(&self.buffer.big_endian());
        bytes
    }

    /// Nothing if it is too short, of another version, or has no room for any data.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let [version, flags, first, second, _, _, _, mappings] = *bytes.first_chunk::<8>()?;
        let targets = Target::of_big_endian(bytes.get(8..)?)?;
        let buffer = Target::of_big_endian(bytes.get(8 + TARGET_BYTES..)?)?;
        let is_big = flags & BIG_ENDIAN_HOST != 0;
        let has_mappings = flags & HAS_MAPPINGS != 0;
        (version == VERSION && targets.length > 0).then_some(Self {
            credits: u16::from_be_bytes([first, second]),
            mappings: if has_mappings { mappings } else { 0 },
            is_swapped: is_big != cfg!(target_endian = "big"),
            targets,
            buffer,
        })
    }
}

/// Entries that 8 bits encode: exact up to 128, then in steps of 256.
pub(super) const fn scaled(value: u16) -> u8 {
    if value <= 128 {
        value as u8
    } else {
        128 | (value >> 8) as u8
    }
}

/// The number of entries that 8 bits stand for.
pub(super) const fn unscaled(scaled: u8) -> u16 {
    if scaled <= 128 {
        scaled as u16
    } else {
        ((scaled & 127) as u16) << 8
    }
}

/// The meaning of immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// so many bytes were written into the receive buffer
    Data(u32),
    /// messages up to this number may be sent; a target entry may have been written
    Credits(u16),
    /// an entry of the list of mappings was written
    Mapped(u16),
    /// the peer sends and receives no more
    Disconnect,
    /// the peer waited long: nothing else
    KeepAlive,
    /// the peer sends no more
    Shutdown,
    /// reserved: ignored
    Unknown(u32),
}

const CODE_SHIFT: u32 = 29;
const VALUE: u32 = (1 << CODE_SHIFT) - 1;

impl Message {
    /// The most bytes of a data message.
    pub(super) const MAX_BYTES: u32 = VALUE;

    pub(super) const fn immediate(self) -> u32 {
        match self {
            Self::Data(bytes) => bytes & VALUE,
            Self::Credits(number) => 4 << CODE_SHIFT | number as u32,
            Self::Mapped(index) => 6 << CODE_SHIFT | index as u32,
            Self::Disconnect => 7 << CODE_SHIFT,
            Self::KeepAlive => 7 << CODE_SHIFT | 1,
            Self::Shutdown => 7 << CODE_SHIFT | 2,
            Self::Unknown(immediate) => immediate,
        }
    }

    pub(super) const fn of(immediate: u32) -> Self {
        let value = immediate & VALUE;
        match (immediate >> CODE_SHIFT, value) {
            (0, bytes) => Self::Data(bytes),
            // The number counts on; its lower 16 bits matter.
            (4, number) => Self::Credits(number as u16),
            (6, index) => Self::Mapped(index as u16),
            (7, 0) => Self::Disconnect,
            (7, 1) => Self::KeepAlive,
            (7, 2) => Self::Shutdown,
            _ => Self::Unknown(immediate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Greeting, Mapping, Message, Target, scaled, unscaled};

    #[test]
    fn a_greeting_has_the_bytes_of_rdma_core() {
        // Version 1, flag of mappings, 384 credits, 16 mappings, then two entries in network order.
        let wanted = Greeting {
            credits: 384,
            mappings: 16,
            is_swapped: false,
            targets: Target {
                address: 0x7F12_3456_7000,
                key: 0xAABB_CC01,
                length: 2,
            },
            buffer: Target {
                address: 0x7F12_3460_0000,
                key: 0xAABB_CC02,
                length: 65536,
            },
        };
        let bytes = [
            1, 2, 1, 0x80, 0, 0, 0, 16, 0, 0, 0x7F, 0x12, 0x34, 0x56, 0x70, 0, 0xAA, 0xBB, 0xCC, 1,
            0, 0, 0, 2, 0, 0, 0x7F, 0x12, 0x34, 0x60, 0, 0, 0xAA, 0xBB, 0xCC, 2, 0, 1, 0, 0,
        ];
        assert_eq!(wanted.bytes(), bytes);
        // Events carry private data padded with zeros.
        let mut padded = [0; 196];
        padded[..40].copy_from_slice(&bytes);
        assert_eq!(Greeting::of(&padded), Some(wanted));
        let big = Greeting::of(&[&[1, 3], &bytes[2..]].concat()).unwrap();
        assert!(big.is_swapped);
        for refused in [
            bytes[..39].to_vec(),
            [&[2], &bytes[1..]].concat(),
            [&bytes[..23], &[0], &bytes[24..]].concat(),
        ] {
            assert_eq!(Greeting::of(&refused), None, "{refused:?}");
        }
    }

    #[test]
    fn messages_have_their_codes() {
        for (message, immediate) in [
            (Message::Data(65536), 0x0001_0000),
            (Message::Credits(0xFFFF), 0x8000_FFFF),
            (Message::Mapped(3), 0xC000_0003),
            (Message::Disconnect, 0xE000_0000),
            (Message::KeepAlive, 0xE000_0001),
            (Message::Shutdown, 0xE000_0002),
            (Message::Unknown(0x2000_0001), 0x2000_0001),
        ] {
            assert_eq!(message.immediate(), immediate);
            assert_eq!(Message::of(immediate), message);
        }
        assert_eq!(Message::of(0x8001_0005), Message::Credits(5), "counts on");
    }

    #[test]
    fn counts_of_mappings_are_scaled_to_eight_bits() {
        for (value, back) in [
            (0, 0),
            (1, 1),
            (128, 128),
            (129, 128),
            (256, 256),
            (1000, 768),
        ] {
            assert_eq!(unscaled(scaled(value)), back, "{value}");
        }
    }

    #[test]
    fn an_offset_finds_the_bytes_behind_it() {
        let mapping = Mapping {
            offset: 100,
            target: Target {
                address: 0x1000,
                key: 7,
                length: 50,
            },
        };
        let found = mapping.at(110).unwrap();
        assert_eq!((found.address, found.length), (0x100A, 40));
        assert_eq!(mapping.at(99), None);
        assert_eq!(mapping.at(150), None);
        let most = Mapping {
            offset: u64::MAX,
            ..mapping
        };
        assert_eq!(most.at(u64::MAX).unwrap().length, 50);
        assert_eq!(mapping.bytes(true)[7], 100);
    }
}
