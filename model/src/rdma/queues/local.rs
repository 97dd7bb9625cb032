//! Work that stays inside: invalidating tags, fast registration, binding windows.

use super::ActiveQueuePair;
use crate::rdma::regions::{PageListAt, Region, TagFault};
use crate::roce::{AccessFault, Received};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{AccessRights, AeSource, PageList, PageSize, SteeringTag};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::MAX_REGION_BYTES;
use ringside_spec::verbs::send::{BindTags, FastRegisterLength, FastRegisterPage};
use ringside_spec::verbs::{SendElement, SendOpcode};

impl ActiveQueuePair<'_, '_> {
    /// Carries out an element without packets.
    pub(super) fn carry_out(
        &mut self,
        opcode: SendOpcode,
        element: &SendElement<'_>,
    ) -> Result<(), AeCode> {
        match opcode {
            SendOpcode::LocalInvalidate => {
                let tag = SteeringTag(element.local_invalidate_tag());
                self.invalidate_local(tag)
            }
            SendOpcode::FastRegister => self.fast_register(element),
            _ => self.bind(element),
        }
    }

    fn write_region(&mut self, region: &Region) -> Result<(), AeCode> {
        let objects = &mut *self.objects;
        let written = objects
            .regions
            .write(region, &mut objects.hmc, self.context.memory);
        written.map_err(|fault| self.event_code(TagFault::Table(fault)))
    }

    fn lookup(&mut self, tag: SteeringTag) -> Result<Region, TagFault> {
        self.objects.tables(self.context.memory).lookup(tag)
    }

    /// The entry that a tag's index selects, valid or not.
    fn entry(&mut self, tag: SteeringTag) -> Result<Region, AeCode> {
        let objects = &mut *self.objects;
        let found = objects
            .regions
            .read(tag.index(), &mut objects.hmc, self.context.memory);
        let region = found.map_err(|fault| self.event_code(fault.into()))?;
        if !region.allocated {
            return Err(AeCode::UnallocatedStag);
        }
        if region.tag.index() != tag.index() {
            return Err(AeCode::BadStagIndex);
        }
        if region.protection_domain != self.qp.context.protection_domain {
            return Err(AeCode::BadProtectionDomain);
        }
        Ok(region)
    }

    fn invalidate_local(&mut self, tag: SteeringTag) -> Result<(), AeCode> {
        let region = self.entry(tag)?;
        if region.valid && region.tag != tag {
            return Err(AeCode::BadStagKey);
        }
        if region.window && region.type_1 {
            return Err(AeCode::InvalidateTypeOneWindow);
        }
        if self.is_anothers_window(&region) {
            return Err(AeCode::BadQueuePair);
        }
        if region.windows > 0 {
            return Err(AeCode::InvalidateWithBoundWindows);
        }
        self.make_invalid(region)
    }

    /// A window of type 2 is the business of the queue pair that it is bound to, and of no other.
    fn is_anothers_window(&self, region: &Region) -> bool {
        region.window && !region.type_1 && region.valid && region.queue_pair != self.qp.number
    }

    /// A tag may no longer be used; it stays allocated.
    fn make_invalid(&mut self, region: Region) -> Result<(), AeCode> {
        self.objects.counters.invalidates += 1;
        if region.window && region.valid {
            self.count_window(SteeringTag(region.parent), false)?;
        }
        let region = Region {
            valid: false,
            ..region
        };
        self.write_region(&region)
    }

    fn count_window(&mut self, parent: SteeringTag, more: bool) -> Result<(), AeCode> {
        let Ok(parent) = self.lookup(parent) else {
            return Ok(());
        };
        let windows = if more {
            parent.windows.saturating_add(1)
        } else {
            parent.windows.saturating_sub(1)
        };
        self.write_region(&Region { windows, ..parent })
    }

    /// A read with local invalidation is done: its sink's tag goes. If it may not go, the read
    /// fails; false then.
    pub(super) fn invalidate_after_read(&mut self, tag: u32, wqe_index: u16) -> bool {
        let Err(code) = self.invalidate_local(SteeringTag(tag)) else {
            return true;
        };
        if let Some(requester) = &mut self.qp.requester {
            requester.refuse_completion();
        }
        self.fail(code, AeSource::SendQueue, wqe_index);
        false
    }

    /// Invalidates the tag that a message names, now that its payload is in its place. False if
    /// that failed.
    #[cold]
    pub(super) fn invalidated(&mut self, received: &Received) -> bool {
        let tag = received.invalidated.unwrap_or(0);
        let Err(access) = self.invalidate_remote(tag) else {
            return true;
        };
        if let Some(responder) = &mut self.qp.responder {
            let fault = responder.refuse_invalidation(received, access);
            self.responder_failed(fault);
        }
        false
    }

    /// The peer's send names a tag of ours, and its payload is in its place: the tag goes. It was
    /// checked when the packet came.
    fn invalidate_remote(&mut self, tag: u32) -> Result<(), AccessFault> {
        let region = self.remotely_invalidated(tag)?;
        let made = self.make_invalid(region);
        made.map_err(|_| AccessFault::InvalidKey)
    }

    /// The region of a tag of ours that the peer's send invalidates, if it may.
    pub(super) fn remotely_invalidated(&mut self, tag: u32) -> Result<Region, AccessFault> {
        let region = match self.lookup(SteeringTag(tag)) {
            Ok(region) => region,
            Err(TagFault::Access(fault)) => return Err(fault),
            Err(_) => return Err(AccessFault::InvalidKey),
        };
        if region.protection_domain != self.qp.context.protection_domain {
            return Err(AccessFault::BadProtectionDomain);
        }
        if self.is_anothers_window(&region) {
            return Err(AccessFault::BadQueuePair);
        }
        if !region.remote_access || region.windows > 0 || region.type_1 {
            return Err(AccessFault::Rights);
        }
        Ok(region)
    }

    fn fast_register(&mut self, element: &SendElement<'_>) -> Result<(), AeCode> {
        if !self.qp.context.fast_register_enable {
            return Err(AeCode::PrivilegedOperationDenied);
        }
        let header = element.fast_register_header();
        let [virtual_address, page, length] = element.operands();
        let tag = SteeringTag::ZERO
            .with_key(header.steering_tag_key() as u32)
            .with_index(header.steering_tag_index() as u32);
        let region = self.entry(tag)?;
        if region.window {
            return Err(AeCode::FastRegisterWindowStag);
        }
        if region.valid {
            return Err(AeCode::FastRegisterValidStag);
        }
        let length_bytes = FastRegisterLength(length).length_bytes();
        // An allocation of no length sets no limit but that of its page list.
        let limit = match region.capacity_bytes {
            0 => MAX_REGION_BYTES,
            bytes => bytes,
        };
        if length_bytes == 0 || length_bytes > limit {
            return Err(AeCode::FastRegisterInvalidLength);
        }
        let page_size = PageSize::from_code(header.page_size() as u8);
        let page_list = PageList::from_code(header.page_list_levels() as u8);
        if page_size != region.page_size {
            return Err(AeCode::FastRegisterBadPageSize);
        }
        let first_entry = element.fast_register_first_entry();
        let list = PageListAt::of(&Region {
            virtual_address,
            length_bytes,
            page_list,
            first_entry,
            ..region
        });
        if !self.may_use(list, &region) {
            return Err(AeCode::FastRegisterPageListMismatch);
        }
        let first_block = FastRegisterPage(page).page_number() * 4096;
        if page_list == PageList::Contiguous && !first_block.is_multiple_of(region.page_bytes()) {
            self.context
                .ledger
                .breach("a structure in memory is misaligned", || {
                    format!("first block at {first_block:#x}, {page_size:?}")
                });
        }
        let rights = AccessRights(header.access_rights() as u8);
        if rights.remote_write() && !rights.local_write() {
            return Err(AeCode::FastRegisterInvalidRights);
        }
        self.write_region(&Region {
            tag,
            valid: true,
            virtual_address,
            length_bytes,
            rights,
            remote_access: rights.remote_read() || rights.remote_write(),
            va_based: header.virtual_address_based(),
            page_list,
            first_block,
            first_entry: match page_list {
                PageList::Contiguous => region.first_entry,
                _ => first_entry,
            },
            ..region
        })
    }

    /// A tag that was allocated with a page list keeps to it. One that was allocated without may
    /// bring any list of the function, as those of irdma do, which names the list only here.
    /// Source: irdma `verbs.c`, `irdma_hw_alloc_stag`, `irdma_post_send`.
    fn may_use(&self, list: PageListAt, region: &Region) -> bool {
        match list.levels {
            PageList::Contiguous => return true,
            PageList::Unknown(_) => return false,
            PageList::OneLevel | PageList::TwoLevels => {}
        }
        let count = self.objects.hmc.count(ObjectType::PageBufferList);
        let end = u64::from(list.first_entry) + list.entries();
        (!region.list_is_fixed || list.first_entry == region.first_entry) && end <= u64::from(count)
    }

    fn bind(&mut self, element: &SendElement<'_>) -> Result<(), AeCode> {
        if !self.qp.context.bind_enable {
            return Err(AeCode::BindDisabled);
        }
        let header = element.bind_header();
        let [virtual_address, tags, length_bytes] = element.operands();
        let tags = BindTags(tags);
        let tag = SteeringTag(tags.window() as u32);
        let window = self.entry(tag)?;
        if !window.window {
            return Err(AeCode::BindOfMemoryRegion);
        }
        if window.type_1 != header.window_type_1() {
            return Err(AeCode::BindWrongType);
        }
        if window.valid && !window.type_1 {
            return Err(AeCode::BindAlreadyValid);
        }
        if window.type_1 && !header.virtual_address_based() {
            return Err(AeCode::ZeroBasedTypeOneBind);
        }
        if length_bytes > MAX_REGION_BYTES {
            return Err(AeCode::BindInvalidBounds);
        }
        let parent = SteeringTag(tags.region() as u32);
        let Ok(region) = self.lookup(parent) else {
            return Err(AeCode::BindInvalidParent);
        };
        let rights = AccessRights(header.access_rights() as u8);
        self.check_bind(&region, rights, virtual_address, length_bytes)?;
        if window.valid {
            self.count_window(SteeringTag(window.parent), false)?;
        }
        self.objects.counters.binds += 1;
        self.qp.has_bound |= !window.type_1;
        let bound = length_bytes > 0;
        if bound {
            self.count_window(parent, true)?;
        }
        self.write_region(&Region {
            tag,
            valid: bound,
            virtual_address,
            length_bytes,
            rights,
            remote_access: true,
            va_based: header.virtual_address_based(),
            parent: parent.0,
            queue_pair: self.qp.number,
            ..window
        })
    }

    fn check_bind(
        &self,
        region: &Region,
        rights: AccessRights,
        address: u64,
        length: u64,
    ) -> Result<(), AeCode> {
        if region.window {
            return Err(AeCode::BindToWindow);
        }
        if !region.va_based {
            return Err(AeCode::BindToZeroBased);
        }
        if region.protection_domain != self.qp.context.protection_domain {
            return Err(AeCode::BindInvalidParent);
        }
        let is_writable = !rights.remote_write() || region.rights.local_write();
        if !region.rights.bind_window() || !is_writable {
            return Err(AeCode::BindInvalidRights);
        }
        let inside = address >= region.virtual_address
            && address.checked_add(length).is_some_and(|end| {
                region.is_all_of_memory()
                    || region
                        .virtual_address
                        .checked_add(region.length_bytes)
                        .is_some_and(|limit| end <= limit)
            });
        if inside {
            Ok(())
        } else {
            Err(AeCode::BindInvalidBounds)
        }
    }
}
