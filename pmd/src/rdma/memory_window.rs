//! Memory windows: a part of a region, opened to peers under a key of its own by a request of the
//! send queue, and closed again without deregistering.

use super::lifecycle::{By, Destroyed, Making};
use super::protection_domain::{Kind, Share};
use super::records::RegionRecord;
use super::{Access, MemoryRegion, ProtectionDomain, RdmaError, RemoteRegion};
use ringside_spec::rdma::commands::{AllocateStag, SteeringTag};
use std::ops::Range;

/// The way in which a window is bound and closed. Verbs: `ibv_mw_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// Type 1: can be bound again at any time; closed by a bind of no bytes.
    One,
    /// Type 2B: bound once, for the peer of one queue pair; closed by an invalidation, local or by
    /// a send of the peer, and can then be bound again.
    Two,
}

/// A memory window. Dropping it closes and frees it. Drop it before the region that it is bound to:
/// in a structure, by an earlier field. Otherwise the region stays registered until the window is
/// dropped.
#[derive(Debug)]
pub struct MemoryWindow {
    domain: ProtectionDomain,
    _share: Share,
    number: u32,
    kind: WindowKind,
    /// index of the window, and the key of its latest bind
    tag: SteeringTag,
    is_destroyed: bool,
}

/// A window that the device did not destroy.
#[derive(Debug, thiserror::Error)]
#[error("the memory window was not destroyed: {error}")]
pub struct WindowKept {
    /// The reason.
    pub error: RdmaError,
    /// The window, if it is as it was.
    pub window: Option<Box<MemoryWindow>>,
}

/// A bind that can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// Window, region and queue pair must be of one protection domain of one device.
    #[error(
        "window, region and queue pair are of the protection domains {window}, {region} and {queue_pair}; they must be one, of one device"
    )]
    ForeignDomain {
        /// The window's.
        window: u32,
        /// The region's.
        region: u32,
        /// The queue pair's.
        queue_pair: u32,
    },
    /// The region was registered without [`Access::BIND_WINDOW`].
    #[error("the region was registered without Access::BIND_WINDOW")]
    NotBindable,
    /// The region's addresses begin at 0.
    #[error("no window can be bound to a zero-based region; register it with Base::Address")]
    ZeroBased,
    /// The window would let peers write to memory that the region's own device may not write.
    #[error(
        "the window is to let peers write, but the region was registered without Access::LOCAL_WRITE"
    )]
    ReadOnly,
    /// The bytes are not in the region.
    #[error("bytes {start}..{end} are not in the region's {length_bytes} bytes")]
    OutOfBounds {
        /// First requested byte.
        start: usize,
        /// End of the requested bytes.
        end: usize,
        /// Bytes of the region.
        length_bytes: usize,
    },
}

impl ProtectionDomain {
    /// Makes a memory window. It counts against `rdma.memory_regions`.
    pub fn memory_window(&self, kind: WindowKind) -> Result<MemoryWindow, RdmaError> {
        let share = self.take_share(Kind::MemoryRegions, 1)?;
        let mut state = self.engine().open_state()?;
        let mut making = Making::<RegionRecord>::begin(&mut state)?;
        let (number, tag) = (making.number(), making.steering_tag());
        let command = AllocateStag {
            protection_domain: self.number(),
            stag_index: tag.index(),
            type_1: kind == WindowKind::One,
            ..AllocateStag::ZERO
        };
        let record = RegionRecord {
            is_window: true,
            stag_index: tag.index(),
            protection_domain: self.number(),
        };
        making.finish(command, record)?;
        Ok(MemoryWindow {
            domain: self.clone(),
            _share: share,
            number,
            kind,
            tag,
            is_destroyed: false,
        })
    }
}

impl MemoryWindow {
    /// Key for requests of peers, as of the latest bind that was posted.
    #[must_use]
    pub fn remote_key(&self) -> u32 {
        self.tag.0
    }

    /// Its binding.
    #[must_use]
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// The key of the next bind: each bind gives a new key.
    pub(super) fn next_key(&self) -> SteeringTag {
        self.tag.with_key((self.tag.key() + 1) % 256)
    }

    pub(super) fn bound_under(&mut self, key: SteeringTag) {
        self.tag = key;
    }

    /// The errors of a bind that can be found before it is posted.
    pub(super) fn check(
        &self,
        queue_pair: &ProtectionDomain,
        region: &MemoryRegion,
        range: &Range<usize>,
        access: Access,
    ) -> Result<RemoteRegion, BindError> {
        let of_region = region.protection_domain();
        if !self.domain.is(of_region) || !self.domain.is(queue_pair) {
            return Err(BindError::ForeignDomain {
                window: self.domain.number(),
                region: of_region.number(),
                queue_pair: queue_pair.number(),
            });
        }
        if region.base() == super::Base::Zero {
            return Err(BindError::ZeroBased);
        }
        if !region.access().contains(Access::BIND_WINDOW) {
            return Err(BindError::NotBindable);
        }
        let writes = access.contains(Access::REMOTE_WRITE);
        if writes && !region.access().contains(Access::LOCAL_WRITE) {
            return Err(BindError::ReadOnly);
        }
        if range.start > range.end || range.end > region.length() {
            return Err(BindError::OutOfBounds {
                start: range.start,
                end: range.end,
                length_bytes: region.length(),
            });
        }
        Ok(RemoteRegion {
            address: region.address() + range.start as u64,
            key: self.next_key().0,
            length_bytes: (range.end - range.start) as u64,
        })
    }
}

impl MemoryWindow {
    /// Closes and frees it.
    ///
    /// Errors: with the window, if the device refused: peers still reach the memory that it is
    /// bound to, and it can be destroyed again. Without it, if the device did not answer: it is out
    /// of service, and the window ends with the reset. With it as well, if the device failed and
    /// may still write: see [`Device::is_contained`](crate::Device::is_contained).
    pub fn destroy(mut self) -> Result<(), WindowKept> {
        if let Err(error) = self.domain.engine().check_process() {
            let (error, window) = (error.into(), None);
            return Err(WindowKept { error, window });
        }
        let error = match self.release() {
            Destroyed::Gone(_) => return Ok(()),
            Destroyed::DeviceFailed { cause, .. } => {
                if self.domain.engine().state().service.end.silent {
                    return Ok(());
                }
                RdmaError::DeviceFailed { cause }
            }
            Destroyed::Refused(error) => error,
            Destroyed::Unconfirmed(error) => {
                let window = None;
                return Err(WindowKept { error, window });
            }
        };
        self.is_destroyed = false;
        let window = Some(Box::new(self));
        Err(WindowKept { error, window })
    }

    fn release(&mut self) -> Destroyed<RegionRecord> {
        self.is_destroyed = true;
        let mut state = self.domain.engine().state();
        let destroyed = state.destroy::<RegionRecord>(self.number, By::Owner);
        if let Destroyed::Unconfirmed(_) = destroyed {
            state.look_after();
        }
        // The region that it was bound to may have been dropped before.
        state.destroy_refused();
        destroyed
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if self.is_destroyed || self.domain.engine().is_elsewhere() {
            return;
        }
        match self.release() {
            Destroyed::Gone(_) | Destroyed::DeviceFailed { .. } => {}
            Destroyed::Refused(error) => {
                let mut state = self.domain.engine().state();
                state.keep_refused(self.number, Vec::new(), &error);
            }
            Destroyed::Unconfirmed(error) => tracing::error!(%error, "memory window dropped"),
        }
    }
}
