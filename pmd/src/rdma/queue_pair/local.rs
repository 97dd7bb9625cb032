//! Requests about keys: invalidation, fast registration, memory windows; and operations that the
//! card lacks.

use super::{Connected, PostError, QueuePair};
use crate::rdma::{
    Access, FastRegion, MemoryRegion, MemoryWindow, RemoteAddress, RemoteRegion, WindowKind,
};
use ringside_qp::request::PageSizeCode;
use ringside_qp::{BindWindow, FastRegister, Fragment, LocalInvalidate, Nop, Read, SendFlags};
use ringside_spec::rdma::commands::PageList;
use std::ops::Range;

/// Code of a page list of one level.
const ONE_LEVEL: u8 = PageList::OneLevel.code();

impl QueuePair<Connected> {
    /// A request that does nothing: its completion means that all requests before it are done.
    pub fn no_operation(&mut self, id: u64, flags: SendFlags) -> Result<(), PostError> {
        self.post(id, &Nop, flags)
    }

    /// RDMA read that invalidates the key of the first fragment once the data is in.
    pub fn read_and_invalidate(
        &mut self,
        id: u64,
        fragments: &[Fragment],
        remote: RemoteAddress,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let request = Read {
            fragments,
            remote_address: remote.address,
            remote_key: remote.key,
            invalidate_local: true,
        };
        self.post(id, &request, flags)
    }

    /// Invalidates a local key. A region stays registered but cannot be used until it is dropped; a
    /// window of type 2 can be bound again; for a fast region see [`QueuePair::invalidate_fast`].
    #[inline]
    pub fn invalidate(&mut self, id: u64, key: u32, flags: SendFlags) -> Result<(), PostError> {
        self.post(id, &LocalInvalidate { key }, flags.of_invalidation())
    }

    /// Opens bytes of a region to peers through a window, with [`Access::REMOTE_READ`],
    /// [`Access::REMOTE_WRITE`] or both. The returned key is valid once the request has completed.
    /// A bind of no bytes closes a window of type 1.
    ///
    /// Errors: [`PostError::Bind`] and those of every post. Errors that only the device detects (a
    /// window of type 2 that is bound already) fail the request with
    /// [`Status::WindowBind`](crate::rdma::Status::WindowBind).
    pub fn bind_window(
        &mut self,
        id: u64,
        window: &mut MemoryWindow,
        (region, range): (&MemoryRegion, Range<usize>),
        access: Access,
        flags: SendFlags,
    ) -> Result<RemoteRegion, PostError> {
        let bound = window.check(&self.inner.domain, region, &range, access)?;
        let key = window.next_key();
        let request = BindWindow {
            address: bound.address,
            length_bytes: bound.length_bytes,
            region_key: region.local_key(),
            window_key: key.0,
            remote_read: access.contains(Access::REMOTE_READ),
            remote_write: access.rights().remote_write(),
            virtual_address_based: true,
            window_type_1: window.kind() == WindowKind::One,
        };
        self.post(id, &request.without_rights_if_empty(), flags)?;
        window.bound_under(key);
        Ok(bound)
    }

    /// Registers the memory that was loaded into a fast region, under a new key, after all requests
    /// before it. Requests behind it may use it.
    ///
    /// Errors: [`PostError::FastRegion`] and those of every post.
    pub fn register_fast(
        &mut self,
        id: u64,
        region: &mut FastRegion,
        access: Access,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let registration = region.to_register(&self.inner.domain)?;
        let request = FastRegister {
            virtual_address: registration.address,
            page_address: 0,
            length_bytes: registration.length,
            first_entry: registration.first_entry,
            page_list_levels: ONE_LEVEL,
            page_size: PageSizeCode::FourKiB,
            index: registration.tag.index(),
            key: registration.tag.key() as u8,
            access_rights: access.rights().0,
            virtual_address_based: true,
        };
        self.post(id, &request, flags | SendFlags::LOCAL_FENCE)?;
        region.registered(registration.tag);
        Ok(())
    }

    /// Invalidates the key of a fast region. The request is always signalled; after its completion
    /// [`FastRegion::take_back`] returns the memory.
    pub fn invalidate_fast(
        &mut self,
        id: u64,
        region: &mut FastRegion,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let key = region.to_invalidate(&self.inner.domain)?;
        let flags = flags | SendFlags::SIGNALLED | SendFlags::LOCAL_FENCE;
        self.post(id, &LocalInvalidate { key }, flags)?;
        region.invalidated(self.number(), id, self.outstanding_sends());
        Ok(())
    }

    /// Always refused: the E810 has no atomic operations.
    pub fn fetch_and_add(
        &mut self,
        _id: u64,
        _result: Fragment,
        _remote: RemoteAddress,
        _add: u64,
        _flags: SendFlags,
    ) -> Result<(), PostError> {
        Err(PostError::NoAtomics)
    }

    /// Always refused: the E810 has no atomic operations.
    pub fn compare_and_swap(
        &mut self,
        _id: u64,
        _result: Fragment,
        _remote: RemoteAddress,
        (_expected, _new): (u64, u64),
        _flags: SendFlags,
    ) -> Result<(), PostError> {
        Err(PostError::NoAtomics)
    }
}
