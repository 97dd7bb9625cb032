//! The device's limits: its answer to QUERY_FPM, checked.

use ringside_spec::rdma::fpm::{FpmQuery, ObjectLimit, ObjectSize, ObjectType, PerObject};
use ringside_spec::rdma::limits::{COMPLETION_QUEUES, QUEUE_PAIRS};
use ringside_spec::rdma::segments::SegmentCommand;
use thiserror::Error;

/// The largest exponent of an object's size: the device's registers hold four bits.
/// Source: DPDK `ice_hw_autogen.h`, GLHMC_*OBJSZ.
const MAX_SIZE_EXPONENT: u32 = 15;

/// Segments that a segment command can name.
const NAMEABLE_SEGMENTS: u32 = SegmentCommand::SEGMENT_INDEX_MASK as u32 + 1;

/// Objects that a driver needs, and the fewest of each for the driver itself and one user. Source:
/// e810-rdma reference 2.5, "driver-side floor".
const FLOORS: [(ObjectType, u32); 5] = [
    (ObjectType::QueuePair, 4),
    (ObjectType::CompletionQueue, 4),
    (ObjectType::MemoryRegion, 2),
    (ObjectType::AddressVector, 2),
    (ObjectType::Arp, 2),
];

/// The device's maxima, in ranges that arithmetic can rely on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    objects: PerObject<ObjectLimit>,
    first_segment: u32,
    max_segments: u32,
    max_completion_event_queues: u16,
    hash_multiplier: u32,
    timer_bucket: u32,
    blocks: Blocks,
}

/// Objects of one block of each first-in-first-out queue; 0 where the device has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) transmit_fifo: u32,
    pub(crate) inbound_read: u32,
    pub(crate) read_response: u32,
    pub(crate) out_of_order: u32,
}

/// The device reports limits that no driver can work with. No configuration helps: the firmware is
/// defective or implements another version of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LimitsError {
    /// The size of an object is beyond what the device's registers can hold.
    #[error("the device reports {size_bytes} bytes for each {}: at most 32768 are possible", .object.name())]
    Size {
        /// The object.
        object: ObjectType,
        /// Its reported size.
        size_bytes: u64,
    },
    /// Too few of an object for even one user.
    #[error("the device offers {maximum} of {}, at least {floor} are needed", .object.name())]
    TooFew {
        /// The object.
        object: ObjectType,
        /// Reported maximum.
        maximum: u32,
        /// The fewest that a driver needs.
        floor: u32,
    },
    /// No segment can be mapped.
    #[error("the device lets this function map no memory segment (is RDMA enabled for it?)")]
    NoSegments,
    /// No completion event queue.
    #[error("the device offers no completion event queue (is RDMA enabled for it?)")]
    NoEventQueues,
    /// The multiplier of the hash table is 0.
    #[error("the device reports a hash table of no entries (multiplier 0)")]
    HashMultiplierZero,
    /// A block size is 0 although its queue is there.
    #[error("the device reports blocks of size 0 for {}", .0.name())]
    BlockSizeZero(ObjectType),
}

impl DeviceLimits {
    /// Checks the device's answer to QUERY_FPM.
    ///
    /// Counts beyond the range of queue pair and completion queue numbers, and segments that a
    /// command cannot name, are not used.
    ///
    /// Errors: [`LimitsError`] for the first limit that no driver can work with.
    pub fn from_query(query: &FpmQuery) -> Result<Self, LimitsError> {
        let mut objects = query.objects;
        for (object, limit) in query.objects.iter() {
            let sensible = limit.size_bytes > 0
                && limit.size_bytes <= 1 << MAX_SIZE_EXPONENT
                && (limit.size_bytes.is_power_of_two() || object.size() != ObjectSize::Reported);
            if !sensible {
                return Err(LimitsError::Size {
                    object,
                    size_bytes: limit.size_bytes,
                });
            }
        }
        let queue_pairs = &mut objects[ObjectType::QueuePair].max_count;
        *queue_pairs = QUEUE_PAIRS.min(*queue_pairs);
        let completion_queues = &mut objects[ObjectType::CompletionQueue].max_count;
        *completion_queues = COMPLETION_QUEUES.min(*completion_queues);
        let limits = Self {
            objects,
            first_segment: query.first_segment.into(),
            max_segments: u32::from(query.max_segments)
                .min(NAMEABLE_SEGMENTS.saturating_sub(query.first_segment.into())),
            max_completion_event_queues: query.max_ceqs,
            hash_multiplier: u32::from(query.hash_multiplier),
            timer_bucket: u32::from(query.timer_bucket),
            blocks: Blocks {
                transmit_fifo: query.transmit_fifo_block,
                inbound_read: query.inbound_read_block,
                read_response: query.read_response_block,
                out_of_order: query.out_of_order_block,
            },
        };
        limits.check()?;
        Ok(limits)
    }

    fn check(&self) -> Result<(), LimitsError> {
        for (object, floor) in FLOORS {
            let maximum = self.maximum(object);
            if maximum < floor {
                return Err(LimitsError::TooFew {
                    object,
                    maximum,
                    floor,
                });
            }
        }
        if self.max_segments == 0 {
            return Err(LimitsError::NoSegments);
        }
        if self.max_completion_event_queues == 0 {
            return Err(LimitsError::NoEventQueues);
        }
        if self.hash_multiplier == 0 {
            return Err(LimitsError::HashMultiplierZero);
        }
        let blocks = [
            (
                ObjectType::TransmitFifoFreeList,
                self.blocks.transmit_fifo,
                true,
            ),
            (
                ObjectType::InboundReadFreeList,
                self.blocks.inbound_read,
                true,
            ),
            (
                ObjectType::ReadResponseFreeList,
                self.blocks.read_response,
                self.maximum(ObjectType::ReadResponseFreeList) != 0,
            ),
            (
                ObjectType::OutOfOrderFreeList,
                self.blocks.out_of_order,
                self.maximum(ObjectType::OutOfOrderFreeList) != 0,
            ),
        ];
        match blocks
            .into_iter()
            .find(|&(_, size, used)| used && size == 0)
        {
            Some((object, ..)) => Err(LimitsError::BlockSizeZero(object)),
            None => Ok(()),
        }
    }

    /// Returns the most of an object that the device supports.
    #[must_use]
    pub fn maximum(&self, object: ObjectType) -> u32 {
        self.objects[object].max_count
    }

    /// Bytes of one object, 1..=32768.
    #[must_use]
    pub fn size_bytes(&self, object: ObjectType) -> u64 {
        self.objects[object].size_bytes
    }

    /// Segments of 2 MiB that may be mapped, 1..=4096.
    #[must_use]
    pub fn max_segments(&self) -> u32 {
        self.max_segments
    }

    /// The first segment of the function; those before it are others'.
    #[must_use]
    pub fn first_segment(&self) -> u32 {
        self.first_segment
    }

    /// The end of the segments that the function may map, at most 4096.
    /// Source: irdma `ctrl.c`, irdma_sc_parse_fpm_query_buf (`sd_cnt`).
    #[must_use]
    pub fn segments_end(&self) -> u32 {
        self.first_segment + self.max_segments
    }

    /// Completion event queues, at least 1.
    #[must_use]
    pub fn max_completion_event_queues(&self) -> u16 {
        self.max_completion_event_queues
    }

    pub(crate) fn hash_multiplier(&self) -> u32 {
        self.hash_multiplier
    }

    pub(crate) fn timer_bucket(&self) -> u32 {
        self.timer_bucket
    }

    pub(crate) fn blocks(&self) -> Blocks {
        self.blocks
    }
}

#[cfg(test)]
mod tests;
