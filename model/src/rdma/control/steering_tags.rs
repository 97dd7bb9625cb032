//! Commands about steering tags.

use super::{CommandFailure, DONE, Executed, NO_SUCH_OBJECT, Outcome, REFUSED, cache_failure};
use crate::chip::Context;
use crate::rdma::RdmaEngine;
use crate::rdma::regions::{PageListAt, Region};
use ringside_spec::rdma::commands::{
    AllocateStag, DeallocateStag, PageList, PageSize, QueryStag, RegisterMemoryRegion, SteeringTag,
};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::MAX_REGION_BYTES;

impl RdmaEngine {
    /// Puts a new entry into the table.
    fn new_region(&mut self, region: &Region, context: &mut Context<'_>) -> Executed {
        let index = region.tag.index();
        if !self.objects.hmc.static_pages_allocated {
            return Self::refuse(
                context,
                "an object is created before its memory is there",
                CommandFailure::InvalidState,
                || format!("steering tag {index:#x} before SHMC_PAGES_ALLOCATED"),
            );
        }
        let slot = self.objects.regions.slot(index);
        if slot >= self.objects.hmc.count(ObjectType::MemoryRegion) as usize || index == 0 {
            return Self::refuse(
                context,
                "an object beyond those that were committed",
                NO_SUCH_OBJECT,
                || format!("steering tag {index:#x}"),
            );
        }
        if self.objects.regions.is_used(index) {
            return Self::refuse(
                context,
                "an object is created twice",
                NO_SUCH_OBJECT,
                || format!("steering tag {index:#x}"),
            );
        }
        let unknown = matches!(region.page_list, PageList::Unknown(_))
            || matches!(region.page_size, PageSize::Unknown(_))
            || region.length_bytes > MAX_REGION_BYTES;
        if unknown {
            return Self::refuse(context, "a memory region makes no sense", REFUSED, || {
                format!("{region:?}")
            });
        }
        self.check_page_list(region, context)?;
        self.write_region(region, context)
    }

    fn write_region(&mut self, region: &Region, context: &mut Context<'_>) -> Executed {
        let objects = &mut self.objects;
        match objects
            .regions
            .write(region, &mut objects.hmc, context.memory)
        {
            Ok(()) => DONE,
            Err(fault) => Err(cache_failure(context, "memory region table", fault)),
        }
    }

    /// The page buffer list must be within the committed entries.
    fn check_page_list(&self, region: &Region, context: &mut Context<'_>) -> Executed {
        let entries = PageListAt::of(region).entries();
        let count = self.objects.hmc.count(ObjectType::PageBufferList);
        if u64::from(region.first_entry) + entries > u64::from(count) {
            return Self::refuse(
                context,
                "an object beyond those that were committed",
                NO_SUCH_OBJECT,
                || format!("page buffer list entry {} of {count}", region.first_entry),
            );
        }
        DONE
    }

    pub(super) fn allocate_stag(
        &mut self,
        command: &AllocateStag,
        context: &mut Context<'_>,
    ) -> Executed {
        // Binds open windows to peers, and bring keys that the device need not know.
        let unknown = command.remote_access || command.bind_without_key_check;
        if unknown && !command.is_memory_region {
            context.ledger.breach(
                "ALLOC_STAG of a window with a flag that no driver sets",
                || format!("steering tag {:#x}", command.stag_index),
            );
        }
        let region = Region {
            tag: SteeringTag::ZERO.with_index(command.stag_index),
            allocated: true,
            window: !command.is_memory_region,
            type_1: command.type_1,
            length_bytes: command.length_bytes,
            capacity_bytes: command.length_bytes,
            protection_domain: command.protection_domain,
            remote_access: command.remote_access,
            page_list: command.pble_levels_code,
            page_size: command.page_size,
            first_entry: command.first_pble_index,
            list_is_fixed: command.pble_levels_code != PageList::Contiguous,
            ..Region::NONE
        };
        self.new_region(&region, context)
    }

    pub(super) fn register_region(
        &mut self,
        command: &RegisterMemoryRegion,
        context: &mut Context<'_>,
    ) -> Executed {
        if !command.is_memory_region {
            context
                .ledger
                .breach("REG_MR without the memory region bit", || {
                    format!("steering tag {:#x}", command.stag_index)
                });
        }
        let rights = command.access_rights;
        if (rights.remote_read() || rights.remote_write()) != command.remote_access {
            context.ledger.breach(
                "remote rights and remote access contradict each other",
                || format!("steering tag {:#x}: {rights:?}", command.stag_index),
            );
        }
        if rights.remote_write() && !rights.local_write() {
            // Source: irdma `type.h`, IRDMA_ACCESS_FLAGS_REMOTEWRITE, which holds both.
            context
                .ledger
                .breach("a region that a peer may write and its owner not", || {
                    format!("steering tag {:#x}: {rights:?}", command.stag_index)
                });
        }
        let region = Region {
            tag: SteeringTag::ZERO
                .with_index(command.stag_index)
                .with_key(command.stag_key.into()),
            allocated: true,
            valid: true,
            virtual_address: command.virtual_address,
            length_bytes: command.length_bytes,
            capacity_bytes: command.length_bytes,
            protection_domain: command.protection_domain,
            rights,
            remote_access: command.remote_access,
            va_based: command.va_based,
            page_list: command.pble_levels_code,
            page_size: command.page_size,
            first_block: command.first_block_address,
            first_entry: command.first_pble_index,
            list_is_fixed: command.pble_levels_code != PageList::Contiguous,
            ..Region::NONE
        };
        let page_bytes = region.page_bytes();
        if region.page_list == PageList::Contiguous
            && !region.first_block.is_multiple_of(page_bytes)
        {
            return Self::refuse(
                context,
                "a structure in memory is misaligned",
                REFUSED,
                || {
                    format!(
                        "first block at {:#x} of {page_bytes} bytes",
                        region.first_block
                    )
                },
            );
        }
        self.new_region(&region, context)
    }

    /// The entry of a tag that exists, by all bits of its index.
    fn existing(
        &mut self,
        index: u32,
        context: &mut Context<'_>,
    ) -> Result<Region, CommandFailure> {
        let objects = &mut self.objects;
        let found = objects
            .regions
            .read(index, &mut objects.hmc, context.memory);
        match found {
            Ok(region) if region.allocated && region.tag.index() == index => Ok(region),
            Ok(_) => {
                context
                    .ledger
                    .breach("a command for an object that does not exist", || {
                        format!("steering tag {index:#x}")
                    });
                Err(NO_SUCH_OBJECT)
            }
            Err(fault) => Err(cache_failure(context, "memory region table", fault)),
        }
    }

    pub(super) fn deallocate_stag(
        &mut self,
        command: &DeallocateStag,
        context: &mut Context<'_>,
    ) -> Executed {
        let region = self.existing(command.stag_index, context)?;
        if region.window == command.is_memory_region
            || region.protection_domain != command.protection_domain
        {
            context
                .ledger
                .breach("DEALLOC_STAG does not fit what was allocated", || {
                    format!("{command:?}, {region:?}")
                });
        }
        // The user of the driver decides that, so it is not a breach of the interface.
        if region.windows > 0 {
            return Err(CommandFailure::InvalidState);
        }
        if region.window && region.valid {
            self.unbind(region.parent, context);
        }
        let gone = Region {
            tag: SteeringTag::ZERO.with_index(command.stag_index),
            ..Region::NONE
        };
        self.write_region(&gone, context)
    }

    /// A queue pair was destroyed: its bound windows may no longer be used.
    #[cold]
    pub(super) fn unbind_all(&mut self, queue_pair: u32, context: &mut Context<'_>) {
        let tags: Vec<u32> = self.objects.regions.in_use().collect();
        for index in tags {
            let Ok(window) = self.existing(index, context) else {
                continue;
            };
            if !window.window || window.type_1 || !window.valid || window.queue_pair != queue_pair {
                continue;
            }
            self.unbind(window.parent, context);
            let unbound = Region {
                valid: false,
                ..window
            };
            // The entry was just read, so it can be written.
            let _ = self.write_region(&unbound, context);
        }
    }

    fn unbind(&mut self, parent: u32, context: &mut Context<'_>) {
        let index = SteeringTag(parent).index();
        if let Ok(region) = self.existing(index, context) {
            let windows = region.windows.saturating_sub(1);
            // The entry was just read, so it can be written.
            let _ = self.write_region(&Region { windows, ..region }, context);
        }
    }

    pub(super) fn query_stag(
        &mut self,
        command: &QueryStag,
        context: &mut Context<'_>,
    ) -> Executed {
        let region = self.existing(command.stag_index, context)?;
        // "STag invalid" is minor code 1, without error.
        let minor = u16::from(!region.valid);
        Ok(Outcome { value: 0, minor })
    }
}
