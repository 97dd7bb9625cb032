//! Host memory cache: the memory of the host that holds the E810's RDMA objects.
//!
//! The device keeps queue pair contexts, memory regions and all its other RDMA objects in host
//! memory, in a space of its own that starts at 0 ("function private memory", FPM) and is mapped by
//! segment descriptors of 2 MiB. The memory is set up in these steps:
//!
//! 1. [`DeviceLimits`]: what the device can have at most (its answer to QUERY_FPM, checked);
//! 2. [`Plan`]: how many of each object are asked for, from the numbers that are [`Wanted`];
//! 3. [`Layout`]: how many were granted, and their addresses (the answer to COMMIT_FPM, checked);
//! 4. [`Backing`]: the segments and pages that need memory, when, and which of them have it;
//! 5. [`PbleAllocator`]: the owner of each page list entry.
//!
//! Everything here is computation: it allocates no memory for the device and sends nothing.
//! The device's answers are never trusted: every number is checked before it is used.
//!
//! ```
//! use ringside_hmc::{Backing, BackingPolicy, DeviceLimits, Layout, PbleAllocator, Plan, Wanted};
//! use ringside_spec::rdma::fpm::{FpmCommit, FpmQuery, ObjectType};
//!
//! fn size(query: &FpmQuery, commit: impl Fn([u64; 22]) -> [u64; 22])
//!     -> Result<(), Box<dyn std::error::Error>>
//! {
//!     let wanted = Wanted {
//!         queue_pairs: 64, completion_queues: 128, memory_regions: 1024, pbles: 65_536,
//!         address_handles: 256, arp_entries: 64, multicast_groups: 64,
//!     };
//!     let plan = Plan::new(&DeviceLimits::from_query(query)?, &wanted)?;
//!     let answer = commit(plan.commit_request());
//!     let layout = Layout::from_commit(plan, &FpmCommit::decode(&answer))?;
//!     println!("{layout}");
//!
//!     let mut backing = Backing::new(&layout, BackingPolicy::Sparse);
//!     let missing: Vec<_> = backing.missing_at_start().collect();
//!     for memory in missing {
//!         // allocate `memory.bytes()`, send `memory.segment_entry(address)`, then:
//!         backing.note(memory)?;
//!     }
//!     let mut pbles = PbleAllocator::new(layout.pbles());
//!     let list = pbles.allocate(1000)?;
//!     for range in list.ranges() {
//!         let missing = backing.missing(ObjectType::PageBufferList, range.indexes())?;
//!         // as above, pages too
//!         for memory in missing {
//!             backing.note(memory)?;
//!         }
//!     }
//!     pbles.free(list)?;
//!     Ok(())
//! }
//! ```
#![forbid(unsafe_code)]

mod address;
mod backing;
mod layout;
mod limits;
mod pble;
mod sizing;
mod table;

#[cfg(test)]
mod example;

pub use address::FpmAddress;
pub use backing::{Backing, BackingError, BackingPolicy, Missing, SegmentKind, may_be_sparse};
pub use layout::{CommitError, Layout, Placement};
pub use limits::{DeviceLimits, LimitsError};
pub use pble::{
    ENTRIES_PER_SEGMENT, PageList, PbleAllocator, PbleError, PbleRange, PbleSpace, PbleUsage,
    contiguous_start,
};
pub use sizing::{Plan, Setting, SizingError, Wanted};
