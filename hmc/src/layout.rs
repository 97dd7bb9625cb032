//! The addresses of the objects: the device's answer to COMMIT_FPM, checked.

use std::fmt;

use ringside_spec::rdma::fpm::{FpmCommit, ObjectGrant, ObjectType, PerObject};
use ringside_spec::rdma::limits::{
    FIRST_USER_COMPLETION_QUEUE, FIRST_USER_QUEUE_PAIR, STAG_INDEX_MIN_BITS,
};
use ringside_spec::rdma::segments::SEGMENT_BYTES;
use thiserror::Error;

use crate::address::FpmAddress;
use crate::pble::PbleSpace;
use crate::sizing::{Plan, extent_bytes};
use crate::table;

/// Objects without which no user can be served, and the number that the driver uses for itself.
const RESERVED: [(ObjectType, u32); 4] = [
    (ObjectType::QueuePair, FIRST_USER_QUEUE_PAIR),
    (ObjectType::CompletionQueue, FIRST_USER_COMPLETION_QUEUE),
    (ObjectType::MemoryRegion, 1),
    (ObjectType::AddressVector, 1),
];

/// The device's answer contradicts the request or itself. The caller must not use it: the device
/// would read and write the memory of other objects. Reset the device and start again; if it
/// repeats the answer, its firmware is defective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CommitError {
    /// The device grants more than was requested.
    #[error("the device grants {granted} of {}, requested were {asked}", .object.name())]
    Raised {
        /// The object.
        object: ObjectType,
        /// Requested number.
        asked: u32,
        /// Granted number.
        granted: u32,
    },
    /// The device grants too few for even one user.
    #[error("the device grants {granted} of {}, the driver itself needs {reserved}", .object.name())]
    TooFew {
        /// The object.
        object: ObjectType,
        /// Granted.
        granted: u32,
        /// The number that the driver itself needs.
        reserved: u32,
    },
    /// Two objects overlap.
    #[error(
        "the device puts {} at {second_base}, within {}, which ends at {first_end}",
        .second.name(), .first.name()
    )]
    Overlap {
        /// The object with the lower base.
        first: ObjectType,
        /// Its end.
        first_end: FpmAddress,
        /// The object with the higher base.
        second: ObjectType,
        /// Its base.
        second_base: FpmAddress,
    },
    /// An object ends past the last segment that may be mapped.
    #[error(
        "the device places {} up to {end}, but only {max_segments} segments may be mapped",
        .object.name()
    )]
    OutOfSegments {
        /// The object.
        object: ObjectType,
        /// Its end.
        end: FpmAddress,
        /// Segments that may be mapped.
        max_segments: u32,
    },
}

/// One object's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The number of objects.
    pub count: u32,
    /// Bytes of one.
    pub size_bytes: u64,
    /// The address of the first one.
    pub base: FpmAddress,
}

impl Placement {
    /// The address after the last one.
    #[must_use]
    pub fn end(&self) -> FpmAddress {
        FpmAddress(self.base.0 + u64::from(self.count) * self.size_bytes)
    }

    /// Address of the object with this index; `None` if there is no such object.
    #[must_use]
    pub fn address(&self, index: u32) -> Option<FpmAddress> {
        (index < self.count).then(|| FpmAddress(self.base.0 + u64::from(index) * self.size_bytes))
    }
}

/// A plan as the device granted it: counts and places of all objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    plan: Plan,
    placements: PerObject<Placement>,
}

impl Layout {
    /// Checks the device's answer to the plan's [`Plan::commit_request`].
    ///
    /// Counts may be lower than requested ([`Layout::lowered`] names them), never higher. Bases may
    /// be in any order, but objects must not overlap.
    /// Errors: [`CommitError`].
    pub fn from_commit(plan: Plan, answer: &FpmCommit) -> Result<Self, CommitError> {
        let placements = PerObject::from_fn(|object| {
            let grant: ObjectGrant = answer.0[object];
            Placement {
                count: grant.count,
                size_bytes: plan.limits().size_bytes(object),
                base: FpmAddress(grant.base()),
            }
        });
        let layout = Self { plan, placements };
        layout.check_counts()?;
        layout.check_places()?;
        Ok(layout)
    }

    fn check_counts(&self) -> Result<(), CommitError> {
        for (object, placement) in self.placements.iter() {
            let (asked, granted) = (self.plan.count(object), placement.count);
            if granted > asked {
                return Err(CommitError::Raised {
                    object,
                    asked,
                    granted,
                });
            }
        }
        for (object, reserved) in RESERVED {
            let granted = self.placements[object].count;
            if granted <= reserved {
                return Err(CommitError::TooFew {
                    object,
                    granted,
                    reserved,
                });
            }
        }
        Ok(())
    }

    fn check_places(&self) -> Result<(), CommitError> {
        let max_segments = self.plan.limits().max_segments();
        let limit = FpmAddress(u64::from(self.plan.limits().segments_end()) * SEGMENT_BYTES);
        let mut used: Vec<_> = self
            .placements
            .iter()
            .filter(|(_, placement)| placement.count > 0)
            .collect();
        used.sort_by_key(|(_, placement)| placement.base);
        for (object, placement) in &used {
            let end = placement.end();
            if end > limit {
                return Err(CommitError::OutOfSegments {
                    object: *object,
                    end,
                    max_segments,
                });
            }
        }
        for pair in used.windows(2) {
            if let &[(first, lower), (second, upper)] = pair
                && lower.end() > upper.base
            {
                return Err(CommitError::Overlap {
                    first,
                    first_end: lower.end(),
                    second,
                    second_base: upper.base,
                });
            }
        }
        Ok(())
    }

    /// The plan that was granted.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Count, size and base of an object.
    #[must_use]
    pub fn placement(&self, object: ObjectType) -> Placement {
        self.placements[object]
    }

    /// The granted number of an object.
    #[must_use]
    pub fn count(&self, object: ObjectType) -> u32 {
        self.placements[object].count
    }

    /// Returns the objects of which the device granted fewer than requested: object, requested,
    /// granted.
    pub fn lowered(&self) -> impl Iterator<Item = (ObjectType, u32, u32)> {
        self.placements
            .iter()
            .map(|(object, placement)| (object, self.plan.count(object), placement.count))
            .filter(|(_, asked, granted)| granted < asked)
    }

    /// Segments from 0 to the end of the last object.
    #[must_use]
    pub fn segments(&self) -> u32 {
        let used = self
            .placements
            .iter()
            .filter(|(_, placement)| placement.count > 0);
        let end = used
            .map(|(_, placement)| placement.end().0)
            .max()
            .unwrap_or(0);
        // At most `segments_end`, as checked when the layout was made.
        end.div_ceil(SEGMENT_BYTES) as u32
    }

    /// The page buffer list entries, for an allocator.
    #[must_use]
    pub fn pbles(&self) -> PbleSpace {
        let Placement { base, count, .. } = self.placements[ObjectType::PageBufferList];
        PbleSpace::new(base, count)
    }

    /// Width of the index within a steering tag, in bits: the rest is random.
    /// Source: e810-rdma reference 2.5; irdma `hw.c`, `irdma_initialize_hw_rsrc`.
    #[must_use]
    pub fn steering_tag_index_bits(&self) -> u32 {
        let count = self.count(ObjectType::MemoryRegion);
        count
            .next_power_of_two()
            .trailing_zeros()
            .max(STAG_INDEX_MIN_BITS)
    }
}

/// Prints a table: requested, granted, the device's maximum, size of one, base, memory.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.plan.limits();
        let rows = self
            .placements
            .iter()
            .map(|(object, placement)| table::Row {
                object,
                asked: self.plan.count(object),
                granted: Some(placement.count),
                maximum: limits.maximum(object),
                size_bytes: placement.size_bytes,
                base: Some(placement.base),
                bytes: extent_bytes(limits, object, u64::from(placement.count)),
            });
        let used = self.segments().saturating_sub(limits.first_segment());
        table::write(f, rows, used, limits.max_segments())
    }
}

#[cfg(test)]
mod tests;
