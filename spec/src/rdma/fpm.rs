//! Function private memory: the objects that the host stores for the device, the most that the
//! device supports of each, and the number that it grants.

use core::ops::{Index, IndexMut};

use thiserror::Error;

use crate::words;

/// Words of the buffers of [`FpmQuery`] and [`FpmCommit`].
pub const BUFFER_WORDS: usize = 22;

/// Unit of a base in function private memory, bytes.
pub const BASE_UNIT_BYTES: u64 = 512;

/// The source of an object's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectSize {
    /// The device reports the exponent of a power of two.
    Reported,
    /// Always so many bytes.
    Fixed(u32),
}

macro_rules! objects {
    ($($(#[$outer:meta])* $variant:ident = $index:literal $name:literal
       $query:expr, $commit:literal, $size:expr;)*) => {
        /// Kind of object in function private memory.
        /// Source: irdma `hmc.h`, `enum irdma_hmc_rsrc_type`; `ctrl.c`,
        /// `irdma_sc_parse_fpm_query_buf`, `irdma_sc_parse_fpm_commit_buf`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ObjectType { $( $(#[$outer])* $variant, )* }

        impl ObjectType {
            /// Every kind, in the device's order: also that in which segments are programmed.
            pub const ALL: [Self; 20] = [ $( Self::$variant ),* ];

            /// The device's number for it.
            #[must_use]
            pub const fn index(self) -> u8 {
                match self { $( Self::$variant => $index, )* }
            }

            /// Its short name in lower case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }

            /// Word of the query buffer with its maximum; none for the port bit vector.
            #[must_use]
            pub const fn query_word(self) -> Option<usize> {
                match self { $( Self::$variant => $query, )* }
            }

            /// Word of the commit buffer.
            #[must_use]
            pub const fn commit_word(self) -> usize {
                match self { $( Self::$variant => $commit, )* }
            }

            /// The source of its size.
            #[must_use]
            pub const fn size(self) -> ObjectSize {
                match self { $( Self::$variant => $size, )* }
            }
        }
    };
}

objects! {
    /// Queue pair contexts.
    QueuePair = 0 "qp" Some(1), 0, ObjectSize::Reported;
    /// Completion queue contexts.
    CompletionQueue = 1 "cq" Some(2), 1, ObjectSize::Reported;
    /// Hash table entries (HTE).
    HashTableEntry = 3 "hte" Some(4), 3, ObjectSize::Reported;
    /// ARP entries.
    Arp = 4 "arp" Some(5), 4, ObjectSize::Reported;
    /// Accelerated port bit vector table (APBVT).
    PortBitVector = 5 "apbvt" None, 5, ObjectSize::Fixed(8192);
    /// Memory region table entries (MR).
    MemoryRegion = 6 "mr" Some(6), 6, ObjectSize::Reported;
    /// Transmit FIFO (XF).
    TransmitFifo = 7 "xf" Some(7), 7, ObjectSize::Reported;
    /// Free list of the transmit FIFO (XFFL).
    TransmitFifoFreeList = 8 "xffl" Some(8), 8, ObjectSize::Fixed(4);
    /// Inbound reads and atomics (Q1).
    InboundRead = 9 "q1" Some(9), 9, ObjectSize::Reported;
    /// Free list of inbound reads (Q1FL).
    InboundReadFreeList = 10 "q1fl" Some(10), 10, ObjectSize::Fixed(4);
    /// Timers.
    Timer = 11 "timer" Some(11), 11, ObjectSize::Reported;
    /// Multicast groups (FSIMC).
    MulticastGroup = 12 "fsimc" Some(12), 12, ObjectSize::Reported;
    /// Address vectors of address handles (FSIAV).
    AddressVector = 13 "fsiav" Some(13), 13, ObjectSize::Reported;
    /// Page buffer list entries (PBLE).
    PageBufferList = 14 "pble" Some(14), 14, ObjectSize::Fixed(8);
    /// Read responses (RRF).
    ReadResponse = 15 "rrf" Some(16), 16, ObjectSize::Reported;
    /// Free list of read responses (RRFFL).
    ReadResponseFreeList = 16 "rrffl" Some(17), 17, ObjectSize::Fixed(4);
    /// Headers (HDR).
    Header = 17 "hdr" Some(18), 18, ObjectSize::Reported;
    /// Metadata (MD).
    Metadata = 18 "md" Some(19), 19, ObjectSize::Reported;
    /// Out-of-order state, iWARP (OOISC).
    OutOfOrder = 19 "ooisc" Some(20), 20, ObjectSize::Reported;
    /// Free list of out-of-order state (OOISCFFL).
    OutOfOrderFreeList = 20 "ooiscffl" Some(21), 21, ObjectSize::Fixed(4);
}

impl ObjectType {
    const fn position(self) -> usize {
        self as usize
    }

    /// Largest count that its word can carry.
    #[must_use]
    pub const fn count_mask(self) -> u32 {
        match self {
            Self::QueuePair => (1 << 19) - 1,
            Self::CompletionQueue => (1 << 20) - 1,
            _ => u32::MAX,
        }
    }
}

/// A value for each kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PerObject<T>([T; 20]);

impl<T: Copy> PerObject<T> {
    /// The same value for all.
    #[must_use]
    pub const fn all(value: T) -> Self {
        Self([value; 20])
    }

    /// A value computed for each.
    #[must_use]
    pub fn from_fn(value: impl FnMut(ObjectType) -> T) -> Self {
        Self(ObjectType::ALL.map(value))
    }

    /// Kinds and values in the device's order.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectType, T)> {
        ObjectType::ALL.into_iter().zip(self.0)
    }
}

impl<T> Index<ObjectType> for PerObject<T> {
    type Output = T;
    fn index(&self, object: ObjectType) -> &T {
        &self.0[object.position()]
    }
}

impl<T> IndexMut<ObjectType> for PerObject<T> {
    fn index_mut(&mut self, object: ObjectType) -> &mut T {
        &mut self.0[object.position()]
    }
}

words! {
    /// Word 0 of the query buffer.
    pub struct QuerySegments: u64 {
        /// first segment (sizes a host table only)
        first_segment: [13:0],
        /// segments that the function may map
        max_segments: [45:32],
    }

    /// Word of the query buffer for most objects; the upper half of a free list's is a block size.
    pub struct QueryObject: u64 {
        /// largest count
        max_count: [31:0],
        /// exponent of the size, or the block size
        size: [63:32],
    }

    /// Word 15 of the query buffer.
    pub struct QueryMiscellaneous: u64 {
        /// completion event queues
        max_ceqs: [9:0],
        /// multiplier of the hash table
        hash_multiplier: [19:16],
        /// timers of a bucket
        timer_bucket: [47:32],
    }

    /// Word of the commit buffer.
    pub struct CommitObject: u64 {
        /// requested, then granted count
        count: [31:0],
        /// granted base in units of 512 bytes
        base_by_512: [63:32],
    }
}

/// The device's limits for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectLimit {
    /// Largest count.
    pub max_count: u32,
    /// Bytes of one; a power of two.
    pub size_bytes: u64,
}

/// The device's answer to a query for function private memory makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FpmQueryError {
    /// A block size is 0.
    #[error("the device reports block size 0 for {}: its firmware is broken", .0.name())]
    BlockSizeZero(ObjectType),
    /// A size exponent is too large.
    #[error("the device reports size 2^{exponent} for {}: its firmware is broken", .object.name())]
    SizeExponent {
        /// The kind of object.
        object: ObjectType,
        /// The exponent.
        exponent: u32,
    },
}

/// Answer to QUERY_FPM: the maxima of the function private memory.
/// Source: irdma `ctrl.c`, `irdma_sc_parse_fpm_query_buf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpmQuery {
    /// First segment.
    pub first_segment: u16,
    /// Segments of 2 MiB that the function may map.
    pub max_segments: u16,
    /// Completion event queues.
    pub max_ceqs: u16,
    /// Multiplier of the hash table.
    pub hash_multiplier: u8,
    /// Timers of a bucket.
    pub timer_bucket: u16,
    /// Objects of a block of the transmit FIFO.
    pub transmit_fifo_block: u32,
    /// Objects of a block of inbound reads.
    pub inbound_read_block: u32,
    /// Objects of a block of read responses.
    pub read_response_block: u32,
    /// Objects of a block of out-of-order state.
    pub out_of_order_block: u32,
    /// Maxima and sizes.
    pub objects: PerObject<ObjectLimit>,
}

impl FpmQuery {
    /// Reads the device's answer.
    ///
    /// # Errors
    /// See [`FpmQueryError`].
    #[allow(clippy::cast_possible_truncation)]
    pub fn decode(words: &[u64; BUFFER_WORDS]) -> Result<Self, FpmQueryError> {
        let segments = QuerySegments(words[0]);
        let miscellaneous = QueryMiscellaneous(words[15]);
        let block = |object: ObjectType| match object.query_word() {
            Some(word) => QueryObject(words[word]).size() as u32,
            None => 0,
        };
        let mut objects = PerObject::all(ObjectLimit {
            max_count: 0,
            size_bytes: 0,
        });
        for object in ObjectType::ALL {
            objects[object] = Self::decode_object(object, words)?;
        }
        let query = Self {
            first_segment: segments.first_segment() as u16,
            max_segments: segments.max_segments() as u16,
            max_ceqs: miscellaneous.max_ceqs() as u16,
            hash_multiplier: miscellaneous.hash_multiplier() as u8,
            timer_bucket: miscellaneous.timer_bucket() as u16,
            transmit_fifo_block: block(ObjectType::TransmitFifoFreeList),
            inbound_read_block: block(ObjectType::InboundReadFreeList),
            read_response_block: block(ObjectType::ReadResponseFreeList),
            out_of_order_block: block(ObjectType::OutOfOrderFreeList),
            objects,
        };
        query.check_blocks()?;
        Ok(query)
    }

    #[allow(clippy::cast_possible_truncation)]
    fn decode_object(
        object: ObjectType,
        words: &[u64; BUFFER_WORDS],
    ) -> Result<ObjectLimit, FpmQueryError> {
        let Some(word) = object.query_word() else {
            return Ok(ObjectLimit {
                max_count: 1,
                size_bytes: 8192,
            });
        };
        let word = QueryObject(words[word]);
        let size_bytes = match object.size() {
            ObjectSize::Fixed(bytes) => u64::from(bytes),
            ObjectSize::Reported => {
                let exponent = word.size() as u32;
                if exponent > 31 {
                    return Err(FpmQueryError::SizeExponent { object, exponent });
                }
                1 << exponent
            }
        };
        let max_count = word.max_count() as u32 & object.count_mask();
        Ok(ObjectLimit {
            max_count,
            size_bytes,
        })
    }

    fn check_blocks(&self) -> Result<(), FpmQueryError> {
        use ObjectType::{
            InboundReadFreeList, OutOfOrderFreeList, ReadResponseFreeList, TransmitFifoFreeList,
        };
        let always = |_: ObjectType| true;
        let used = |object: ObjectType| self.objects[object].max_count != 0;
        let broken = [
            (
                TransmitFifoFreeList,
                self.transmit_fifo_block,
                always(TransmitFifoFreeList),
            ),
            (
                InboundReadFreeList,
                self.inbound_read_block,
                always(InboundReadFreeList),
            ),
            (
                ReadResponseFreeList,
                self.read_response_block,
                used(ReadResponseFreeList),
            ),
            (
                OutOfOrderFreeList,
                self.out_of_order_block,
                used(OutOfOrderFreeList),
            ),
        ]
        .into_iter()
        .find(|(_, block, needed)| *needed && *block == 0);
        match broken {
            Some((object, ..)) => Err(FpmQueryError::BlockSizeZero(object)),
            None => Ok(()),
        }
    }

    /// The answer as a device writes it. Sizes are rounded down to a power of two.
    #[must_use]
    pub fn encode(&self) -> [u64; BUFFER_WORDS] {
        let mut words = [0; BUFFER_WORDS];
        words[0] = QuerySegments::ZERO
            .with_first_segment(u64::from(self.first_segment))
            .with_max_segments(u64::from(self.max_segments))
            .0;
        words[15] = QueryMiscellaneous::ZERO
            .with_max_ceqs(u64::from(self.max_ceqs))
            .with_hash_multiplier(u64::from(self.hash_multiplier))
            .with_timer_bucket(u64::from(self.timer_bucket))
            .0;
        for (object, limit) in self.objects.iter() {
            let Some(word) = object.query_word() else {
                continue;
            };
            let size = match (object.size(), object) {
                (ObjectSize::Reported, _) => limit.size_bytes.checked_ilog2().unwrap_or(0),
                (_, ObjectType::TransmitFifoFreeList) => self.transmit_fifo_block,
                (_, ObjectType::InboundReadFreeList) => self.inbound_read_block,
                (_, ObjectType::ReadResponseFreeList) => self.read_response_block,
                (_, ObjectType::OutOfOrderFreeList) => self.out_of_order_block,
                (ObjectSize::Fixed(_), _) => 0,
            };
            words[word] = QueryObject::ZERO
                .with_max_count(u64::from(limit.max_count & object.count_mask()))
                .with_size(u64::from(size))
                .0;
        }
        words
    }
}

/// Count and place of an object in function private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectGrant {
    /// Wanted, then granted count.
    pub count: u32,
    /// Place in function private memory, in units of 512 bytes; 0 in a request.
    pub base_by_512: u32,
}

impl ObjectGrant {
    /// Place in function private memory, bytes.
    #[must_use]
    pub const fn base(self) -> u64 {
        self.base_by_512 as u64 * BASE_UNIT_BYTES
    }
}

/// Buffer of COMMIT_FPM: counts that the host requests, overwritten by those that the device
/// grants.
/// Source: irdma `ctrl.c`, `irdma_sc_cfg_iw_fpm`, `irdma_sc_parse_fpm_commit_buf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpmCommit(pub PerObject<ObjectGrant>);

impl FpmCommit {
    /// The host's request. The port bit vector is not counted: there is always one.
    #[must_use]
    pub fn encode_request(counts: &PerObject<u32>) -> [u64; BUFFER_WORDS] {
        let mut words = [0; BUFFER_WORDS];
        for (object, count) in counts.iter() {
            if object != ObjectType::PortBitVector {
                words[object.commit_word()] = CommitObject::ZERO.with_count(u64::from(count)).0;
            }
        }
        words
    }

    /// The device's answer.
    #[must_use]
    pub fn encode(&self) -> [u64; BUFFER_WORDS] {
        let mut words = [0; BUFFER_WORDS];
        for (object, grant) in self.0.iter() {
            let count = if object == ObjectType::PortBitVector {
                0
            } else {
                grant.count
            };
            words[object.commit_word()] = CommitObject::ZERO
                .with_count(u64::from(count))
                .with_base_by_512(u64::from(grant.base_by_512))
                .0;
        }
        words
    }

    /// Reads a request or an answer. The port bit vector always counts 1.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub fn decode(words: &[u64; BUFFER_WORDS]) -> Self {
        Self(PerObject::from_fn(|object| {
            let word = CommitObject(words[object.commit_word()]);
            let count = match object {
                ObjectType::PortBitVector => 1,
                _ => word.count() as u32 & object.count_mask(),
            };
            ObjectGrant {
                count,
                base_by_512: word.base_by_512() as u32,
            }
        }))
    }
}

#[cfg(test)]
mod tests;
