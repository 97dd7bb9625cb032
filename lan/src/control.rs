//! Ownership of a queue's buffers: the device owns them until it confirmed that the queue stopped,
//! or until it was reset.

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

/// The reason why a queue did not start or stop.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StopError {
    /// The device failed; its buffers are returned after a reset.
    #[error("the device is out of service: recover it, then its queues give their packets back")]
    OutOfService,
    /// The device did not do it, or did not confirm it.
    #[error("{kind:?} queue {number}: {reason}; recover the device: it keeps the queue's buffers")]
    NotConfirmed {
        /// Direction.
        kind: QueueKind,
        /// Number.
        number: u16,
        /// The observation.
        reason: String,
    },
}

/// The reason why a receive queue's interrupt was not armed or disarmed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArmError {
    /// The device failed or was shut down.
    #[error("the device is out of service: recover it, then open the port again")]
    OutOfService,
    /// The queue is stopped: no packet arrives.
    #[error("the receive queue is stopped: start it first")]
    Stopped,
    /// The queue has no interrupt.
    #[error("the receive queue has no interrupt: connect one with Vsi::receive_interrupt first")]
    NotConnected,
    /// The device was not reached.
    #[error("the interrupt of a receive queue: {reason}")]
    Failed {
        /// The observation.
        reason: String,
    },
}

/// Starts and stops one queue: implemented by the driver. Control path.
pub trait QueueControl: Send + Sync {
    /// Writes the context of the empty ring to the device. The queue is not started yet.
    fn configure(&self) -> Result<(), StopError>;
    /// Lets the device use the ring.
    fn enable(&self) -> Result<(), StopError>;
    /// Takes the ring from the device. On success the device uses none of its buffers any more.
    fn disable(&self) -> Result<(), StopError>;
    /// True if the device inserts an outer tag into a packet without an inner one: in double VLAN
    /// mode.
    fn inserts_outer_tag_alone(&self) -> bool {
        true
    }
    /// Lets the next packet raise the interrupt of the queue, once.
    fn arm(&self) -> Result<(), ArmError> {
        Err(ArmError::NotConnected)
    }
    /// Ends that: the queue is polled again.
    fn disarm(&self) -> Result<(), ArmError> {
        Err(ArmError::NotConnected)
    }
}

/// Confirms each request: for queues that have no device, as in benchmarks and fuzzers.
impl QueueControl for () {
    fn configure(&self) -> Result<(), StopError> {
        Ok(())
    }
    fn enable(&self) -> Result<(), StopError> {
        Ok(())
    }
    fn disable(&self) -> Result<(), StopError> {
        Ok(())
    }
}

/// State of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// Made, or stopped: holds no packets.
    Stopped,
    /// The queue is in service.
    Running,
    /// The device failed or did not confirm a stop: it may still use the queue's buffers.
    Lost,
}

const IN_SERVICE: u8 = 0;
const FAILED: u8 = 1;
const RELEASED: u8 = 2;

/// True while the device of a group of queues is in service. Shared by the driver and its queues.
#[derive(Debug, Default)]
pub struct Service {
    state: AtomicU8,
    kept: Mutex<Vec<Remains>>,
    memory: Mutex<Vec<KeptMemory>>,
}

impl Service {
    /// A device in service.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// True if queues may be used.
    #[inline(always)]
    #[must_use]
    pub fn in_service(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IN_SERVICE
    }

    /// True if the device certainly uses no buffer any more.
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
        let memory = std::mem::take(&mut *self.memory());
        memory.into_iter().for_each(KeptMemory::give_back);
        let kept = std::mem::take(&mut *self.kept());
        kept.into_iter().map(Remains::give_back).sum()
    }

    /// Buffers of dropped queues that the device may still use.
    #[must_use]
    pub fn kept_buffers(&self) -> usize {
        self.kept().iter().map(Remains::buffer_count).sum()
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

    /// Memory that the device may still use: it goes back once the device was reset, at once if
    /// that was confirmed already.
    pub(crate) fn keep_memory(&self, memory: DmaBuffer) {
        let mut kept = self.memory();
        if self.is_released() {
            return;
        }
        kept.push(KeptMemory(Some(memory)));
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Vec<KeptMemory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Remains>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of a device that may still use it; never confirmed, it is not used again.
#[derive(Debug)]
struct KeptMemory(Option<DmaBuffer>);

impl KeptMemory {
    fn give_back(mut self) {
        self.0 = None;
    }
}

impl Drop for KeptMemory {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            memory.leak();
        }
    }
}

/// The resources that a queue leaves to a device that may still use them.
#[derive(Debug)]
pub struct Remains {
    pub(crate) ring: Option<DmaBuffer>,
    pub(crate) pool: PacketPool,
    /// buffers of packets with one handle, which was the queue's
    pub(crate) buffers: Vec<u32>,
    /// first buffers of packets of which the queue had one handle of several
    pub(crate) shared: Vec<u32>,
}

impl Remains {
    /// Returns the buffers to the pool, after the device has stopped. Returns their number.
    fn give_back(mut self) -> usize {
        self.ring = None;
        let count = self.buffer_count();
        let pool = self.pool.shared();
        pool.give(&std::mem::take(&mut self.buffers));
        let shared = std::mem::take(&mut self.shared);
        shared.into_iter().for_each(|first| pool.give_share(first));
        count
    }

    /// The buffers that the device may still use.
    fn buffer_count(&self) -> usize {
        let chains = self.shared.iter();
        let in_chains = chains.map(|first| self.pool.shared().count_chain(*first));
        self.buffers.len() + in_chains.sum::<usize>()
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
