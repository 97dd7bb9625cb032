//! Memory of the application: owned bytes, or a range whose validity the application guarantees.

use super::mapping::{Mapping, Origin};
use super::{Memory, PageSize};
use std::ptr::NonNull;
use std::sync::Arc;

impl Memory {
    /// Memory of the application, `length` bytes from `first`; any alignment.
    ///
    /// Copies access these bytes only. A device that accesses the memory through an IOMMU can also
    /// reach the rest of the first and the last page.
    ///
    /// # Safety
    /// 1. The range stays valid for reads and writes until the last clone of this value is gone. A
    ///    region whose deregistration the device never confirmed keeps a clone until the device's
    ///    shutdown.
    /// 2. Until then the device may write to it at any time. The application reads and writes it by
    ///    atomics, by volatile accesses or after a completion that says that the device is done,
    ///    and holds no reference to bytes that the device may write.
    #[must_use]
    pub unsafe fn from_raw(first: NonNull<u8>, length: usize) -> Self {
        Self(Arc::new(Mapping {
            base: first,
            length,
            page_size: PageSize::FourKiB,
            origin: Origin::Application,
        }))
    }

    /// Returns the owned bytes. Returns the memory unchanged if it is still shared or has another
    /// origin.
    pub fn into_boxed(self) -> Result<Box<[u8]>, Self> {
        if !matches!(self.0.origin, Origin::Owned) {
            return Err(self);
        }
        let mut mapping = Arc::try_unwrap(self.0).map_err(Self)?;
        mapping.origin = Origin::Application;
        // SAFETY: the range came from a box in `From`, this is its only owner, and no drop frees it
        //         any more.
        Ok(unsafe { Box::from_raw(mapping.slice()) })
    }
}

impl From<Box<[u8]>> for Memory {
    fn from(bytes: Box<[u8]>) -> Self {
        let length = bytes.len();
        let first = NonNull::from(Box::leak(bytes)).cast();
        Self(Arc::new(Mapping {
            base: first,
            length,
            page_size: PageSize::FourKiB,
            origin: Origin::Owned,
        }))
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.into_boxed_slice().into()
    }
}
