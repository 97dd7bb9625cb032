//! The memory that the device may access: mappings of the IOMMU.
#![allow(unsafe_code)] // DMA mappings by address

use super::VfioFunction;
use crate::function::{Backend, DmaAccess};
use crate::vfio::memlock::Memlock;
use crate::{FunctionError, Iova, Memory};
use rustix::io::Errno;
use std::ops::Range;

impl VfioFunction {
    /// See [`Function::map_dma`](crate::Function::map_dma).
    pub(super) fn map(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        let length = range.end.saturating_sub(range.start);
        let refused = |reason: String| FunctionError::Mapping {
            iova,
            length: length as u64,
            reason,
        };
        if length == 0 || range.end > memory.length() {
            let reason = "the range is empty or leaves its memory; this is a bug of the caller";
            return Err(refused(reason.into()));
        }
        refuse_dma_buf(memory)?;
        warn_of_forks(memory);
        let place = memory.base().as_ptr().wrapping_add(range.start);
        // Memory of the application may begin anywhere: the kernel maps whole pages.
        let page = self.limits.page_bytes;
        if place as u64 % page != iova.0 % page {
            return Err(refused(format!(
                "address {place:p} has another offset in its page of {page} bytes; this is a bug of the caller"
            )));
        }
        let within = (iova.0 % page) as usize;
        let (iova, place) = (Iova(iova.0 - within as u64), place.wrapping_sub(within));
        let length = (length + within).next_multiple_of(page as usize);
        // Held until the mapping is noted, so that two callers cannot pass the check together.
        let mut mapped = self.mapped();
        mapped
            .check(iova.0, length as u64, &self.limits)
            .map_err(|error| refused(error.to_string()))?;
        // SAFETY: the range is inside a mapping that `memory` owns, whose bytes are only ever
        //         touched through atomics and copies that tolerate change (see `Memory`). The
        //         caller keeps it until `unmap_dma`, or for ever: `DmaPool` does. The rest of the
        //         first and the last page is mapped because the range is; this process does not
        //         touch it here.
        let result = unsafe { self.owner.map(iova.0, length, place, access) };
        if let Err(errno) = result {
            drop(mapped);
            return Err(self.not_mapped(iova, length as u64, errno));
        }
        if mapped.add(iova.0, length as u64, &self.limits) {
            let (used, allowed) = (mapped.count(), self.limits.mappings);
            tracing::warn!(
                used,
                allowed,
                "nine tenths of the DMA mappings that the kernel allows are in use; larger pages need \
                 fewer, and vfio_iommu_type1.dma_entry_limit raises the limit"
            );
        }
        Ok(())
    }

    /// See [`Function::unmap_dma`](crate::Function::unmap_dma).
    pub(super) fn unmap(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        let refused = |reason: String| FunctionError::Mapping {
            iova,
            length,
            reason,
        };
        let page = self.limits.page_bytes;
        let within = iova.0 % page;
        let (iova, length) = (
            Iova(iova.0 - within),
            (length + within).next_multiple_of(page),
        );
        let bytes = usize::try_from(length).map_err(|error| refused(error.to_string()))?;
        let mut mapped = self.mapped();
        match self.owner.unmap(iova.0, bytes) {
            Ok(()) => {
                mapped.remove(iova.0);
                Ok(())
            }
            Err(error) => Err(refused(format!("the kernel refuses to unmap: {error}"))),
        }
    }

    /// Translates the kernel's refusal of a mapping.
    fn not_mapped(&self, iova: Iova, length: u64, errno: Errno) -> FunctionError {
        let reason = match errno {
            Errno::NOMEM => {
                memlock_reason(Memlock::of_this_process(), self.mapped().bytes(), length)
            }
            Errno::NOSPC => format!(
                "the kernel allows no further mapping ({} are in use); use larger pages, or raise \
                 /sys/module/vfio_iommu_type1/parameters/dma_entry_limit",
                self.mapped().count()
            ),
            Errno::FAULT => "its pages cannot be pinned: they must be mapped and writable memory of this process".into(),
            other => format!("the kernel refuses: {other}"),
        };
        FunctionError::Mapping {
            iova,
            length,
            reason,
        }
    }
}

/// Type 1 pins pages of this process; a dma-buf has none of its own.
pub(super) fn refuse_dma_buf(memory: &Memory) -> Result<(), FunctionError> {
    match memory.is_dma_buf() {
        false => Ok(()),
        true => Err(FunctionError::Unsupported {
            backend: Backend::Vfio.name(),
            operation: "map a dma-buf for the device: type 1 maps pages of this process only; map \
                        the memory behind the dma-buf, or copy through memory of the pool"
                .into(),
        }),
    }
}

/// Logs once if a fork could separate the program's memory from the pages that the device uses.
fn warn_of_forks(memory: &Memory) {
    static SAID: std::sync::Once = std::sync::Once::new();
    if !memory.may_be_copied_on_write() {
        return;
    }
    SAID.call_once(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        if !copies_pinned_pages(&release) {
            let release = release.trim();
            tracing::warn!(
                release,
                "this kernel copies pinned pages for the parent after a fork: do not fork while the \
                 program's own memory is registered, or register a memfd"
            );
        }
    });
}

/// True if a fork copies pinned pages for the child, so that the parent keeps what the device uses:
/// Linux 5.12 and later. Source: Linux `mm/memory.c`, copy_present_page.
pub(super) fn copies_pinned_pages(release: &str) -> bool {
    let mut numbers = release.split(|one: char| !one.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    match (number(), number()) {
        (Some(major), Some(minor)) => (major, minor) >= (5, 12),
        _ => false,
    }
}

/// Explains why memory could not be pinned, from the limit of locked memory.
pub(super) fn memlock_reason(limit: Option<Memlock>, mapped: u64, length: u64) -> String {
    let wanted = mapped.saturating_add(length);
    match limit.and_then(|limit| limit.soft) {
        Some(soft) if soft < wanted => format!(
            "{wanted} bytes of locked memory are needed and the limit is {soft}; {}",
            Memlock::remedy(wanted)
        ),
        _ => format!(
            "the kernel has no memory to pin {length} bytes (locked so far: {mapped}); free memory, \
             or ask for less"
        ),
    }
}
