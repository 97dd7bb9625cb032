//! The device that the program's threads and the housekeeping thread share.

use super::handoff::{EVENTS, Handoff};
use super::neighbours::Neighbours;
use crate::sync::Signal;
use ringside_bus::process::Birth;
use ringside_pmd::rdma::Event;
use ringside_pmd::recovery::{FailureCause, RecoverError, RecoveryReport};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::{Duration, Instant};

/// The interval between attempts to get exclusive use. The lock is tried, never waited for: a
/// waiting writer would block readers, one of which may hold a guard already.
const STEP: Duration = Duration::from_micros(200);

/// Intervals for which shared use waits behind a thread that wants exclusive use.
const STEPS_BEHIND: u32 = 20;

/// See the module.
pub(crate) struct Served {
    /// `None` after the shutdown
    device: RwLock<Option<ringside_pmd::Device>>,
    pub(crate) handoff: Handoff<Event>,
    observer: OnceLock<Arc<dyn Observer>>,
    /// the last life whose failure was reported to the observer; lives count bring-ups from 1
    told: AtomicU32,
    /// the life after the last recovery
    life: AtomicU32,
    /// true while a thread recovers the device
    recovering: AtomicBool,
    /// threads that wait for exclusive use of the device
    waiting: AtomicU32,
    /// the IP stack
    pub(super) neighbours: Mutex<Neighbours>,
    pub(super) birth: Birth,
}

/// Receives failures and recoveries, on the thread that detects them. An implementation must not
/// block.
pub(crate) trait Observer: Send + Sync {
    /// The device failed in this life. Called once for each life.
    fn failed(&self, life: u32, cause: FailureCause);
    /// It is in service again, in this life.
    fn recovered(&self, life: u32, cause: FailureCause);
    /// The host asks the program to release it. May be called again until it is shut down.
    fn release_requested(&self);
    /// An attempt to recover it from a failure in this life failed.
    fn not_recovered(&self, life: u32, error: &RecoverError);
}

/// Shared use of a device by one thread. The device is recovered only when no other thread uses it,
/// so drop this value soon.
pub struct Driver<'d> {
    device: RwLockReadGuard<'d, Option<ringside_pmd::Device>>,
    pub(super) served: &'d Served,
}

const TAKEN: &str = "only a shutdown takes the device, and that consumes its owner";

impl Deref for Driver<'_> {
    type Target = ringside_pmd::Device;

    fn deref(&self) -> &Self::Target {
        self.device.as_ref().expect(TAKEN)
    }
}

/// A device in exclusive use.
pub(crate) struct Exclusive<'d>(RwLockWriteGuard<'d, Option<ringside_pmd::Device>>);

impl Deref for Exclusive<'_> {
    type Target = ringside_pmd::Device;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect(TAKEN)
    }
}

impl DerefMut for Exclusive<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect(TAKEN)
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served")
            .field("device", &self.device)
            .field("handoff", &self.handoff)
            .finish_non_exhaustive()
    }
}

impl Served {
    pub(crate) fn new(device: ringside_pmd::Device) -> Result<Self, std::io::Error> {
        Ok(Self {
            life: AtomicU32::new(device.life()),
            device: RwLock::new(Some(device)),
            handoff: Handoff::new(EVENTS, Signal::new()?, Signal::new()?),
            observer: OnceLock::new(),
            told: AtomicU32::new(0),
            recovering: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            neighbours: Mutex::default(),
            birth: Birth::now(),
        })
    }

    /// Sets the observer. Only the first one is kept.
    pub(crate) fn observe_by(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    pub(crate) fn note_failure(&self, life: u32, cause: FailureCause) {
        if let Some(observer) = self.observer.get()
            && self.told.swap(life, Ordering::Relaxed) != life
        {
            observer.failed(life, cause);
        }
    }

    /// Reports requests of the host among events that were just taken from the device.
    pub(crate) fn note_requests(&self, events: &[Event]) {
        if events.contains(&Event::ReleaseRequested)
            && let Some(observer) = self.observer.get()
        {
            observer.release_requested();
        }
    }

    /// True while a thread recovers the device. The result is reported to the observer afterwards.
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::Acquire)
    }

    /// Runs a recovery of the device, of which the caller has exclusive use.
    pub(crate) fn recovering<T>(&self, recover: impl FnOnce() -> T) -> T {
        self.recovering.store(true, Ordering::Release);
        let result = recover();
        self.recovering.store(false, Ordering::Release);
        result
    }

    pub(crate) fn note_recovery(
        &self,
        life: u32,
        recovered: Result<&RecoveryReport, &RecoverError>,
    ) {
        if let Ok(report) = recovered {
            // Another thread may have recovered it again meanwhile.
            self.life.fetch_max(report.life, Ordering::Relaxed);
        }
        let Some(observer) = self.observer.get() else {
            return;
        };
        match recovered {
            Ok(report) => observer.recovered(report.life, report.cause),
            Err(error) => observer.not_recovered(life, error),
        }
    }

    /// The life after the last recovery, without a lock: in a child by fork the life at the fork.
    pub(crate) fn known_life(&self) -> u32 {
        self.life.load(Ordering::Relaxed)
    }

    /// Shared use of the device. While a thread waits for exclusive use, threads that begin shared
    /// use wait a little: otherwise many short calls kept the device from being recovered. Not
    /// until the thread has it, since the caller may have shared use already.
    pub(crate) fn driver(&self) -> Driver<'_> {
        for _ in 0..STEPS_BEHIND {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::sleep(STEP);
        }
        Driver {
            device: self.device.read().unwrap_or_else(PoisonError::into_inner),
            served: self,
        }
    }

    /// Exclusive use of the device; `None` if other threads still use it after `limit`.
    pub(crate) fn exclusive(&self, limit: Duration) -> Option<Exclusive<'_>> {
        let deadline = Instant::now() + limit;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let found = loop {
            match self.device.try_write() {
                Ok(guard) => break Some(Exclusive(guard)),
                Err(TryLockError::Poisoned(guard)) => break Some(Exclusive(guard.into_inner())),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => break None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(STEP),
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        found
    }

    /// Removes the device from this value, for its shutdown.
    pub(crate) fn take(&self) -> Option<ringside_pmd::Device> {
        match self.device.try_write() {
            Ok(mut guard) => guard.take(),
            Err(TryLockError::Poisoned(guard)) => guard.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the events that the housekeeping thread has queued, and returns their number.
    pub(crate) fn take_events(&self, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        let dropped = self.handoff.take(events);
        if dropped > 0 {
            events.push(Event::Dropped { events: dropped });
        }
        events.len() - before
    }
}

/// The events of a device with a housekeeping thread, as a descriptor that is readable while events
/// wait, and from the shutdown of the device on. It fits `tokio::io::unix::AsyncFd` and any poll
/// loop.
#[derive(Clone, Debug)]
pub struct Events(pub(crate) Arc<Served>);

impl Events {
    /// Takes the waiting events, appends them to `events` and returns their number. The descriptor
    /// is not readable afterwards, until the next event; once [`Events::is_over`] it stays
    /// readable. In a child by fork it takes nothing: the descriptor is shared, and the signal is
    /// the parent's.
    pub fn take(&self, events: &mut Vec<Event>) -> usize {
        match self.0.birth.is_here() {
            true => self.0.take_events(events),
            false => 0,
        }
    }

    /// True once no further event comes: the device was shut down or dropped, by the program or by
    /// a registry. Take the last events then, and end the loop. True in a child by fork, too.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !self.0.birth.is_here() || self.0.handoff.is_over()
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.handoff.told().as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
