//! Who owns the buffers of a queue: the device, until it confirmed that the queue stopped or was
//! reset.

use crate::pool::PacketPool;
use ringside_bus::DmaBuffer;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// Direction of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueueKind {
    /// Receives packets.
    Receive,
    /// Sends packets.
    Transmit,
}

/// Why a queue did not start or stop.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StopError {
    /// The device failed; its buffers come back once it was reset.
    #[error("the device is out of service: recover it, then its queues give their packets back")]
    OutOfService,
    /// The device did not do it, or did not say so.
    #[error("{kind:?} queue {number}: {reason}; recover the device: it keeps the queue's buffers")]
    NotConfirmed {
        /// Direction.
        kind: QueueKind,
        /// Number.
        number: u16,
        /// What was seen.
        reason: String,
    },
}

/// Starts and stops one queue: implemented by the driver. Control path.
pub trait QueueControl: Send + Sync {
    /// Gives the device the ring, empty. Nothing moves yet.
    fn configure(&self) -> Result<(), StopError>;
    /// Lets the device use the ring.
    fn enable(&self) -> Result<(), StopError>;
    /// Takes the ring from the device. On success the device uses none of its buffers any more.
    fn disable(&self) -> Result<(), StopError>;
}

/// State of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// Made, or stopped: holds no packets.
    Stopped,
    /// In service.
    Running,
    /// The device failed or did not confirm a stop: it may still use the queue's buffers.
    Lost,
}

const IN_SERVICE: u8 = 0;
const FAILED: u8 = 1;
const RELEASED: u8 = 2;

/// Whether the device of a group of queues is in service. Shared by the driver and its queues.
#[derive(Debug, Default)]
pub struct Service {
    state: AtomicU8,
    kept: Mutex<Vec<Remains>>,
}

impl Service {
    /// A device in service.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Whether queues may be used.
    #[inline(always)]
    #[must_use]
    pub fn in_service(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IN_SERVICE
    }

    /// Whether the device is known to use no buffer any more.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.state.load(Ordering::Acquire) == RELEASED
    }

    /// The device failed: queues do nothing more, and keep their buffers.
    pub fn fail(&self) {
        let _ =
            self.state
                .compare_exchange(IN_SERVICE, FAILED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The device was reset or silenced, and that was confirmed: all buffers go back. Returns how
    /// many those were that dropped queues had left.
    pub fn release(&self) -> usize {
        self.state.store(RELEASED, Ordering::Release);
        let kept = std::mem::take(&mut *self.kept());
        kept.into_iter().map(Remains::give_back).sum()
    }

    /// Buffers that dropped queues left to a device that has not let go of them.
    #[must_use]
    pub fn kept_buffers(&self) -> usize {
        self.kept().iter().map(|one| one.buffers.len()).sum()
    }

    pub(crate) fn keep(&self, remains: Remains) {
        let mut kept = self.kept();
        if self.is_released() {
            drop(kept);
            remains.give_back();
            return;
        }
        kept.push(remains);
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Remains>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a queue leaves to a device that may still use it.
#[derive(Debug)]
pub struct Remains {
    pub(crate) ring: Option<DmaBuffer>,
    pub(crate) pool: PacketPool,
    pub(crate) buffers: Vec<u32>,
}

impl Remains {
    /// The device has let go: the buffers go back. Returns how many.
    fn give_back(mut self) -> usize {
        self.ring = None;
        let buffers = std::mem::take(&mut self.buffers);
        self.pool.shared().give(&buffers);
        buffers.len()
    }
}

impl Drop for Remains {
    /// Never confirmed: neither ring nor buffers are used again before a reset.
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            ring.leak();
            self.pool.shared().abandon();
        }
    }
}
