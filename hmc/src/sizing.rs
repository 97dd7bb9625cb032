//! Computes the number of each object that a function gets from the requested numbers.
//!
//! A plan requests what the wanted numbers need and no more. If that does not fit, the error names
//! the number to lower and its largest valid value; no other number is lowered silently. The counts
//! that follow from others (queues, free lists, timers, hash table) obey the rules that the device
//! is known to work with: e810-rdma reference 2.5, irdma `ctrl.c`, `irdma_cfg_fpm_val`.

use std::fmt;

use ringside_spec::rdma::fpm::{BASE_UNIT_BYTES, FpmCommit, ObjectType, PerObject};
use ringside_spec::rdma::limits::{
    FIRST_USER_COMPLETION_QUEUE, FIRST_USER_QUEUE_PAIR, MAX_INBOUND_READS,
};
use ringside_spec::rdma::segments::{PBLES_PER_LEAF, SEGMENT_BYTES};
use thiserror::Error;

use crate::limits::DeviceLimits;
use crate::table;

/// Queue pairs of one group: the hash table and the timer wheel are sized in groups.
const QUEUE_PAIR_GROUP: u64 = 512;

/// Transmit queue blocks for each queue pair.
const TRANSMIT_BLOCKS_PER_QUEUE_PAIR: u64 = 4;

/// Read responses, and pieces of out-of-order state, for each queue pair.
const RESPONSES_PER_QUEUE_PAIR: u64 = 32;

/// Inbound reads that the device reserves for any number of queue pairs (RoCEv2).
const SHARED_INBOUND_READS: u64 = 512;

/// The largest size assumed for one object, so that sums over all objects do not overflow.
const EXTENT_CEILING_BYTES: u64 = 1 << 58;

/// The number of each object that a user needs at the same time. The driver adds its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Memory regions.
    pub memory_regions: u32,
    /// Page buffer list entries.
    pub pbles: u32,
    /// Address handles: peers.
    pub address_handles: u32,
    /// ARP entries: MAC addresses of next hops.
    pub arp_entries: u32,
    /// Multicast groups.
    pub multicast_groups: u32,
}

/// One of the numbers of [`Wanted`], as the configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// `rdma.queue_pairs`
    QueuePairs,
    /// `rdma.completion_queues`
    CompletionQueues,
    /// `rdma.memory_regions`
    MemoryRegions,
    /// `rdma.pbles`
    Pbles,
    /// `rdma.address_handles`
    AddressHandles,
    /// `rdma.arp_entries`
    ArpEntries,
    /// `rdma.multicast_groups`
    MulticastGroups,
}

impl Setting {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::QueuePairs,
        Self::CompletionQueues,
        Self::MemoryRegions,
        Self::Pbles,
        Self::AddressHandles,
        Self::ArpEntries,
        Self::MulticastGroups,
    ];

    /// The key in the configuration.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::QueuePairs => "rdma.queue_pairs",
            Self::CompletionQueues => "rdma.completion_queues",
            Self::MemoryRegions => "rdma.memory_regions",
            Self::Pbles => "rdma.pbles",
            Self::AddressHandles => "rdma.address_handles",
            Self::ArpEntries => "rdma.arp_entries",
            Self::MulticastGroups => "rdma.multicast_groups",
        }
    }

    /// Returns the setting that determines an object's count; `None` for objects that take the
    /// device's maximum.
    #[must_use]
    pub fn behind(object: ObjectType) -> Option<Self> {
        match object {
            ObjectType::CompletionQueue => Some(Self::CompletionQueues),
            ObjectType::MemoryRegion => Some(Self::MemoryRegions),
            ObjectType::PageBufferList => Some(Self::Pbles),
            ObjectType::AddressVector => Some(Self::AddressHandles),
            ObjectType::Arp => Some(Self::ArpEntries),
            ObjectType::MulticastGroup => Some(Self::MulticastGroups),
            ObjectType::PortBitVector | ObjectType::Metadata => None,
            ObjectType::QueuePair
            | ObjectType::HashTableEntry
            | ObjectType::TransmitFifo
            | ObjectType::TransmitFifoFreeList
            | ObjectType::InboundRead
            | ObjectType::InboundReadFreeList
            | ObjectType::Timer
            | ObjectType::ReadResponse
            | ObjectType::ReadResponseFreeList
            | ObjectType::Header
            | ObjectType::OutOfOrder
            | ObjectType::OutOfOrderFreeList => Some(Self::QueuePairs),
        }
    }

    fn floor(self) -> u32 {
        u32::from(!matches!(self, Self::Pbles | Self::MulticastGroups))
    }
}

impl Wanted {
    /// Returns the value of a setting.
    #[must_use]
    pub fn get(&self, setting: Setting) -> u32 {
        let mut copy = *self;
        *copy.number(setting)
    }

    /// Returns the same numbers with another value for one setting.
    #[must_use]
    pub fn with(mut self, setting: Setting, number: u32) -> Self {
        *self.number(setting) = number;
        self
    }

    fn number(&mut self, setting: Setting) -> &mut u32 {
        match setting {
            Setting::QueuePairs => &mut self.queue_pairs,
            Setting::CompletionQueues => &mut self.completion_queues,
            Setting::MemoryRegions => &mut self.memory_regions,
            Setting::Pbles => &mut self.pbles,
            Setting::AddressHandles => &mut self.address_handles,
            Setting::ArpEntries => &mut self.arp_entries,
            Setting::MulticastGroups => &mut self.multicast_groups,
        }
    }
}

/// The wanted numbers do not fit the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SizingError {
    /// A number of 0 where at least one is needed.
    #[error("{} = 0: at least 1 is needed", .0.key())]
    Zero(Setting),
    /// The wanted number needs more of an object than the device has.
    #[error(
        "{} = {value} takes {needed} of {}, the device has {maximum}: {}",
        .setting.key(), .object.name(), Advice { setting: *.setting, lower_to: *.lower_to }
    )]
    TooMany {
        /// The setting to lower.
        setting: Setting,
        /// Its value.
        value: u32,
        /// The object of which the device has too few.
        object: ObjectType,
        /// The number needed.
        needed: u64,
        /// The number that the device has.
        maximum: u32,
        /// The largest value that fits with the other settings unchanged; `None` if none fits.
        lower_to: Option<u32>,
    },
    /// The objects need more memory than the function may map.
    #[error(
        "the host memory cache would take {needed} segments of 2 MiB, the device has {maximum}; \
         {} = {value} takes most: {}",
        .setting.key(), Advice { setting: *.setting, lower_to: *.lower_to }
    )]
    TooMuchMemory {
        /// The setting whose reduction saves most memory.
        setting: Setting,
        /// Its value.
        value: u32,
        /// Segments needed.
        needed: u64,
        /// Segments that may be mapped.
        maximum: u32,
        /// The largest value that fits with the other settings unchanged; `None` if no value of
        /// this setting alone is low enough.
        lower_to: Option<u32>,
    },
}

struct Advice {
    setting: Setting,
    lower_to: Option<u32>,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.setting.key();
        match self.lower_to {
            Some(value) => write!(f, "lower {key} to at most {value}"),
            None => write!(
                f,
                "no value of {key} alone is low enough, lower the others too"
            ),
        }
    }
}

/// The number of each object to request from the device, within its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    wanted: Wanted,
    limits: DeviceLimits,
    counts: PerObject<u32>,
}

impl Plan {
    /// Makes a plan for the wanted numbers.
    ///
    /// Every count stays within the maximum that the device reports. Linux compares only the counts
    /// that it starts from, and commits the derived ones unchecked; it was not tested if a card
    /// accepts more of those than it reports.
    /// Errors: [`SizingError`], which names the setting to lower and the largest value that fits.
    pub fn new(limits: &DeviceLimits, wanted: &Wanted) -> Result<Self, SizingError> {
        for setting in Setting::ALL {
            if wanted.get(setting) < setting.floor() {
                return Err(SizingError::Zero(setting));
            }
        }
        let needed = needed_counts(limits, wanted);
        if let Some((object, count)) = over_maximum(limits, &needed) {
            return Err(too_many(limits, wanted, object, count));
        }
        let segments = segments_of(limits, &needed);
        if segments > u64::from(limits.max_segments()) {
            return Err(too_much_memory(limits, wanted, segments));
        }
        // Every count is at most a maximum of 32 bits here.
        let counts = PerObject::from_fn(|object| needed[object] as u32);
        Ok(Self {
            wanted: *wanted,
            limits: limits.clone(),
            counts,
        })
    }

    /// The wanted numbers of the plan.
    #[must_use]
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// The device's limits.
    #[must_use]
    pub fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// The requested number of an object.
    #[must_use]
    pub fn count(&self, object: ObjectType) -> u32 {
        self.counts[object]
    }

    /// Bytes that an object takes in function private memory, whole units of 512.
    #[must_use]
    pub fn object_bytes(&self, object: ObjectType) -> u64 {
        extent_bytes(&self.limits, object, u64::from(self.counts[object]))
    }

    /// Segments of 2 MiB that all objects take, laid out back to back.
    #[must_use]
    pub fn segments(&self) -> u32 {
        let counts = PerObject::from_fn(|object| u64::from(self.counts[object]));
        u32::try_from(segments_of(&self.limits, &counts)).unwrap_or(u32::MAX)
    }

    /// The buffer of COMMIT_FPM with the counts of this plan.
    #[must_use]
    pub fn commit_request(&self) -> [u64; ringside_spec::rdma::fpm::BUFFER_WORDS] {
        FpmCommit::encode_request(&self.counts)
    }
}

/// Prints a table: requested, the device's maximum, size of one, memory.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = ObjectType::ALL.into_iter().map(|object| table::Row {
            object,
            asked: self.count(object),
            granted: None,
            maximum: self.limits.maximum(object),
            size_bytes: self.limits.size_bytes(object),
            base: None,
            bytes: self.object_bytes(object),
        });
        table::write(f, rows, self.segments(), self.limits.max_segments())
    }
}

/// Bytes of `count` objects, in whole units of 512, limited to a ceiling far above any device.
pub(crate) fn extent_bytes(limits: &DeviceLimits, object: ObjectType, count: u64) -> u64 {
    count
        .saturating_mul(limits.size_bytes(object))
        .min(EXTENT_CEILING_BYTES)
        .next_multiple_of(BASE_UNIT_BYTES)
}

/// The counts that the wanted numbers need, without regard to the device's maxima.
fn needed_counts(limits: &DeviceLimits, wanted: &Wanted) -> PerObject<u64> {
    use ObjectType as Object;
    let power = |number: u32| u64::from(number).next_power_of_two();
    // Where the count need not be a power of two, the device's maximum serves as well.
    let power_within = |object: ObjectType, number: u64| {
        number
            .next_power_of_two()
            .min(number.max(u64::from(limits.maximum(object))))
    };
    let queue_pairs = power(wanted.queue_pairs.saturating_add(FIRST_USER_QUEUE_PAIR));
    let completion_queues =
        u64::from(wanted.completion_queues) + u64::from(FIRST_USER_COMPLETION_QUEUE);
    // Index 0 of each kind is never allocated.
    let multicast = power_within(
        Object::MulticastGroup,
        u64::from(wanted.multicast_groups) + 1,
    );
    let groups = queue_pairs.div_ceil(QUEUE_PAIR_GROUP);
    let hashed = (queue_pairs + multicast).next_multiple_of(QUEUE_PAIR_GROUP);
    let reads_per_queue_pair = 2 * u64::from(MAX_INBOUND_READS);
    let inbound_reads =
        (reads_per_queue_pair * queue_pairs + SHARED_INBOUND_READS).next_power_of_two();
    let blocks = limits.blocks();
    let transmit_blocks = TRANSMIT_BLOCKS_PER_QUEUE_PAIR * queue_pairs;
    let has = |object: ObjectType| limits.maximum(object) != 0;
    let of_response = |object| {
        if has(object) {
            RESPONSES_PER_QUEUE_PAIR * queue_pairs
        } else {
            0
        }
    };
    let free_list = |object, entries: u64, block: u32| {
        if has(object) && block != 0 {
            entries / u64::from(block)
        } else {
            0
        }
    };
    let responses = of_response(Object::ReadResponse);
    let out_of_order = of_response(Object::OutOfOrder);

    PerObject::from_fn(|object| match object {
        Object::QueuePair | Object::Header => queue_pairs,
        Object::CompletionQueue => power_within(object, completion_queues),
        Object::HashTableEntry => hashed.next_power_of_two() * u64::from(limits.hash_multiplier()),
        // The port's own address takes an entry as well.
        Object::Arp => power_within(object, u64::from(wanted.arp_entries) + 2),
        Object::PortBitVector => 1,
        Object::MemoryRegion => power_within(object, u64::from(wanted.memory_regions) + 1),
        Object::TransmitFifo => transmit_blocks.saturating_mul(u64::from(blocks.transmit_fifo)),
        Object::TransmitFifoFreeList => transmit_blocks,
        Object::InboundRead => inbound_reads,
        Object::InboundReadFreeList => inbound_reads / u64::from(blocks.inbound_read.max(1)),
        Object::Timer => (groups + 1) * u64::from(limits.timer_bucket()),
        Object::MulticastGroup => multicast,
        Object::AddressVector => power_within(object, u64::from(wanted.address_handles) + 1),
        Object::PageBufferList => {
            let whole = u64::from(wanted.pbles).next_multiple_of(u64::from(PBLES_PER_LEAF));
            whole.min(u64::from(wanted.pbles.max(limits.maximum(object))))
        }
        Object::ReadResponse => responses,
        Object::ReadResponseFreeList => free_list(object, responses, blocks.read_response),
        Object::Metadata => u64::from(limits.maximum(object)),
        Object::OutOfOrder => out_of_order,
        Object::OutOfOrderFreeList => free_list(object, out_of_order, blocks.out_of_order),
    })
}

fn over_maximum(limits: &DeviceLimits, counts: &PerObject<u64>) -> Option<(ObjectType, u64)> {
    counts
        .iter()
        .find(|&(object, count)| count > u64::from(limits.maximum(object)))
}

fn segments_of(limits: &DeviceLimits, counts: &PerObject<u64>) -> u64 {
    let bytes: u64 = counts
        .iter()
        .map(|(object, count)| extent_bytes(limits, object, count))
        .sum();
    bytes.div_ceil(SEGMENT_BYTES)
}

fn too_many(
    limits: &DeviceLimits,
    wanted: &Wanted,
    object: ObjectType,
    needed: u64,
) -> SizingError {
    // A count without a setting equals the device's maximum, so it never exceeds it.
    let setting = Setting::behind(object).unwrap_or(Setting::QueuePairs);
    let concerned = |object| Setting::behind(object) == Some(setting);
    let fits = |wanted: &Wanted| {
        let counts = needed_counts(limits, wanted);
        let over = |(object, count)| concerned(object) && count > u64::from(limits.maximum(object));
        !counts.iter().any(over)
    };
    SizingError::TooMany {
        setting,
        value: wanted.get(setting),
        object,
        needed,
        maximum: limits.maximum(object),
        lower_to: largest(wanted, setting, fits),
    }
}

fn too_much_memory(limits: &DeviceLimits, wanted: &Wanted, needed: u64) -> SizingError {
    let maximum = limits.max_segments();
    let segments = |wanted: &Wanted| segments_of(limits, &needed_counts(limits, wanted));
    let fits = |wanted: &Wanted| segments(wanted) <= u64::from(maximum);
    let mut candidates = Setting::ALL;
    // The setting that saves most comes first.
    candidates.sort_by_key(|&setting| segments(&wanted.with(setting, setting.floor())));
    let [most, ..] = candidates;
    let fitting = candidates
        .into_iter()
        .find_map(|setting| Some((setting, largest(wanted, setting, fits)?)));
    let setting = fitting.map_or(most, |(setting, _)| setting);
    SizingError::TooMuchMemory {
        setting,
        value: wanted.get(setting),
        needed,
        maximum,
        lower_to: fitting.map(|(_, value)| value),
    }
}

/// Returns the largest number up to the wanted one for which `fits` holds. If it holds for a
/// number, it holds for all lower ones.
fn largest(wanted: &Wanted, setting: Setting, fits: impl Fn(&Wanted) -> bool) -> Option<u32> {
    let mut low = setting.floor();
    let mut high = wanted.get(setting);
    if !fits(&wanted.with(setting, low)) {
        return None;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(&wanted.with(setting, middle)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests;
