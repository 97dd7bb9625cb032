//! Fast registration: a region whose tag and page list exist, and that gets its memory by a request
//! of the send queue, in order with other requests.
//!
//! The region owns its memory from [`FastRegion::load`] on. The memory is returned only when the
//! device has confirmed that the key is invalid: by the completion of an invalidation, or by a
//! command.

use super::earlier::Earlier;
use super::error::FastRegionError;
use super::lifecycle::{By, Destroyed, Making};
use super::memory_region::Pages;
use super::objects::Held;
use super::objects::Object;
use super::protection_domain::{Kind, Share};
use super::records::RegionRecord;
use super::session::Session;
use super::{Completion, Operation, ProtectionDomain, RdmaError, RemoteRegion, SliceError};
use ringside_bus::DmaBuffer;
use ringside_qp::Fragment;
use ringside_spec::rdma::commands::{AllocateStag, PageList, PageSize, SteeringTag};
use std::ops::Range;

/// The state of a fast region.
#[derive(Clone, Debug)]
enum Stage {
    /// The device has no memory of it.
    Free,
    /// A registration was posted.
    Registered,
    /// An invalidation was posted: the queue pair, the number of the request, and it with all that
    /// was posted before it.
    Invalidated {
        queue_pair: u32,
        id: u64,
        posted: Earlier,
    },
    /// The device has no tag of it, and its number may be another region's.
    Gone,
}

/// A tag that was allocated in the device, with a page list.
struct Allocated {
    number: u32,
    tag: SteeringTag,
    first_entry: u32,
}

/// A region for fast registration. Dropping it takes it out of the device.
pub struct FastRegion {
    domain: ProtectionDomain,
    _share: Share,
    number: u32,
    tag: SteeringTag,
    pages_most: u32,
    stage: Stage,
    address: u64,
    length: usize,
    first_entry: u32,
    buffers: Vec<DmaBuffer>,
}

/// The contents of a registration of the given memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registration {
    pub(super) tag: SteeringTag,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) first_entry: u32,
}

/// Memory that was not loaded.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct LoadError {
    /// The error.
    #[source]
    pub error: RdmaError,
    /// The memory.
    pub buffers: Vec<DmaBuffer>,
}

impl ProtectionDomain {
    /// Makes a region for fast registration of up to so many pages of 4 KiB, 1..=512. It counts
    /// against `rdma.memory_regions` and `rdma.pbles`.
    pub fn fast_region(&self, pages: u32) -> Result<FastRegion, RdmaError> {
        super::numbers::within("the pages of a fast region", pages, 1, 512)?;
        let share = self.take_share(Kind::MemoryRegions, 1)?;
        let mut state = self.engine().open_state()?;
        let allocated = self.allocate_tag(&mut state, pages)?;
        Ok(FastRegion {
            domain: self.clone(),
            _share: share,
            number: allocated.number,
            tag: allocated.tag,
            pages_most: pages,
            stage: Stage::Free,
            address: 0,
            length: 0,
            first_entry: allocated.first_entry,
            buffers: Vec::new(),
        })
    }

    fn allocate_tag(&self, state: &mut Session<'_>, pages: u32) -> Result<Allocated, RdmaError> {
        let mut making = Making::<RegionRecord>::begin(state)?;
        let (number, tag) = (making.number(), making.steering_tag());
        let first_entry = making.reserve_pages(pages)?;
        let command = allocation(self.number(), tag, pages, first_entry);
        let record = RegionRecord {
            is_window: false,
            stag_index: tag.index(),
            protection_domain: self.number(),
        };
        making.finish(command, record)?;
        Ok(Allocated {
            number,
            tag,
            first_entry,
        })
    }
}

fn allocation(
    protection_domain: u32,
    tag: SteeringTag,
    pages: u32,
    first_pble_index: u32,
) -> AllocateStag {
    AllocateStag {
        length_bytes: u64::from(pages) * PAGE_BYTES,
        protection_domain,
        stag_index: tag.index(),
        first_pble_index,
        is_memory_region: true,
        pble_levels_code: PageList::OneLevel,
        page_size: PageSize::FourKib,
        remote_access: true,
        ..AllocateStag::ZERO
    }
}

/// Bytes of its pages.
const PAGE_BYTES: u64 = 4096;

impl FastRegion {
    /// Sets the memory that the next request registers: buffers that form one range without
    /// gaps, as for [`ProtectionDomain::register_all`]. Control path.
    pub fn load(&mut self, buffers: Vec<DmaBuffer>) -> Result<(), LoadError> {
        match self.try_load(&buffers) {
            Ok(()) => {
                self.buffers = buffers;
                Ok(())
            }
            Err(error) => Err(LoadError { error, buffers }),
        }
    }

    fn try_load(&mut self, buffers: &[DmaBuffer]) -> Result<(), RdmaError> {
        if self.is_gone() {
            let (what, number) = (RegionRecord::NAME, self.number);
            return Err(RdmaError::Gone { what, number });
        }
        if !self.buffers.is_empty() {
            return Err(RdmaError::FastRegion(FastRegionError::Registered));
        }
        let plan = Pages::of(buffers, &self.domain.engine().pool)?;
        let mut pages = plan.small_pages(buffers);
        let given = pages.len() as u32;
        super::numbers::within("the pages of the memory", given, 1, self.pages_most)?;
        let Some(last) = pages.last().copied() else {
            return Err(RdmaError::FastRegion(FastRegionError::Empty));
        };
        // Entries behind the end are never reached: the length is checked before.
        pages.resize(self.pages_most as usize, last);
        let mut state = self.domain.engine().open_state()?;
        state.objects.regions.must(self.number)?;
        if let Some(list) = state.objects.regions.take_pages(self.number) {
            let written =
                state.memory(|memory, control| memory.write_pages(control, &list, &pages));
            state.objects.regions.hold(self.number, Held::Pages(list));
            written?;
        }
        (self.address, self.length) = (plan.address, plan.length as usize);
        Ok(())
    }

    /// The registration to post, and the key that it gives.
    pub(super) fn to_register(
        &self,
        domain: &ProtectionDomain,
    ) -> Result<Registration, FastRegionError> {
        self.check_domain(domain)?;
        if self.buffers.is_empty() {
            return Err(FastRegionError::Empty);
        }
        if !matches!(self.stage, Stage::Free) {
            return Err(FastRegionError::Registered);
        }
        Ok(Registration {
            tag: self.tag.with_key((self.tag.key() + 1) % 256),
            address: self.address,
            length: self.length as u64,
            first_entry: self.first_entry,
        })
    }

    fn check_domain(&self, queue_pair: &ProtectionDomain) -> Result<(), FastRegionError> {
        if self.domain.is(queue_pair) {
            return Ok(());
        }
        Err(FastRegionError::ForeignDomain {
            region: self.domain.number(),
            queue_pair: queue_pair.number(),
        })
    }

    pub(super) fn registered(&mut self, tag: SteeringTag) {
        self.tag = tag;
        self.stage = Stage::Registered;
    }

    /// The key to invalidate.
    pub(super) fn to_invalidate(&self, domain: &ProtectionDomain) -> Result<u32, FastRegionError> {
        self.check_domain(domain)?;
        match self.stage {
            Stage::Free | Stage::Gone => Err(FastRegionError::NotRegistered),
            Stage::Registered | Stage::Invalidated { .. } => Ok(self.tag.0),
        }
    }

    pub(super) fn invalidated(&mut self, queue_pair: u32, id: u64, posted: Earlier) {
        self.stage = Stage::Invalidated {
            queue_pair,
            id,
            posted,
        };
    }

    fn is_gone(&self) -> bool {
        matches!(self.stage, Stage::Gone)
    }

    /// Takes its memory back after an invalidation: `completion` must be that request's success;
    /// nothing happens otherwise.
    pub fn take_back(&mut self, completion: &Completion) -> Option<Vec<DmaBuffer>> {
        let Stage::Invalidated {
            queue_pair,
            id,
            posted,
        } = &self.stage
        else {
            return None;
        };
        // Other regions' invalidations may have the same number.
        let is_it = completion.is_success()
            && completion.operation() == Operation::LocalInvalidate
            && (completion.queue_pair(), completion.id) == (*queue_pair, *id)
            && posted.are_complete();
        if !is_it {
            return None;
        }
        self.stage = Stage::Free;
        Some(std::mem::take(&mut self.buffers))
    }

    /// Takes its memory back by commands, independent of the state of its queue pairs: for one
    /// whose queue pair failed. Control path.
    ///
    /// The region gets a new number and new keys. A registration or an invalidation of it that was
    /// posted and is not done fails, and its queue pair fails with it: the device could otherwise
    /// open memory to peers that was returned here.
    ///
    /// Errors: the memory stays with the region, which is unusable until a further reset succeeds.
    /// If the device refused to free the old key, the region is as it was.
    pub fn reset(&mut self) -> Result<Vec<DmaBuffer>, RdmaError> {
        let mut state = self.domain.engine().open_state()?;
        if !self.is_gone() {
            match state.destroy::<RegionRecord>(self.number, By::Owner) {
                Destroyed::Gone(_) => self.stage = Stage::Gone,
                Destroyed::Refused(error) => return Err(error),
                Destroyed::Unconfirmed(error) => {
                    state.look_after();
                    return Err(error);
                }
                Destroyed::DeviceFailed { cause, .. } => {
                    return Err(RdmaError::DeviceFailed { cause });
                }
            }
        }
        let allocated = self.domain.allocate_tag(&mut state, self.pages_most)?;
        (self.number, self.tag) = (allocated.number, allocated.tag);
        self.first_entry = allocated.first_entry;
        self.stage = Stage::Free;
        Ok(std::mem::take(&mut self.buffers))
    }

    /// Key for requests, local and of peers, as of the latest registration that was posted.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.tag.0
    }

    /// The facts that a peer needs about it.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion {
            address: self.address,
            key: self.tag.0,
            length_bytes: self.length as u64,
        }
    }

    /// A piece of it for a request: a range of bytes.
    pub fn slice(&self, range: Range<usize>) -> Result<Fragment, SliceError> {
        let (start, end) = (range.start, range.end);
        if start > end || end > self.length {
            return Err(SliceError {
                start,
                end,
                length_bytes: self.length,
            });
        }
        Ok(Fragment {
            address: self.address + start as u64,
            length_bytes: (end - start) as u32,
            steering_tag: self.tag.0,
        })
    }

    /// The memory that is loaded.
    #[must_use]
    pub fn buffers(&self) -> &[DmaBuffer] {
        &self.buffers
    }
}

impl Drop for FastRegion {
    fn drop(&mut self) {
        if self.is_gone() || self.domain.engine().is_elsewhere() {
            return;
        }
        let buffers = std::mem::take(&mut self.buffers);
        let mut state = self.domain.engine().state();
        let number = self.number;
        let error = match state.destroy::<RegionRecord>(number, By::Owner) {
            Destroyed::Gone(_) => return,
            Destroyed::DeviceFailed { .. } => return state.free_after_reset(buffers),
            Destroyed::Refused(error) => return state.keep_refused(number, buffers, &error),
            Destroyed::Unconfirmed(error) => error,
        };
        state.set_apart::<RegionRecord>(number, &error);
        state.set_memory_apart(RegionRecord::NAME, number, buffers, &error);
        state.look_after();
    }
}

impl std::fmt::Debug for FastRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastRegion")
            .field("key", &self.tag.0)
            .field("stage", &self.stage)
            .field("address", &self.address)
            .field("length", &self.length)
            .field("pages_most", &self.pages_most)
            .field("buffers", &self.buffers.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadError")
            .field("error", &self.error)
            .field("buffers", &self.buffers.len())
            .finish()
    }
}
