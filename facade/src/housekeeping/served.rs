//! The device that the program's threads and the housekeeping thread share.

use super::handoff::{EVENTS, Handoff};
use crate::sync::Signal;
use ringside_pmd::rdma::Event;
use ringside_pmd::recovery::{FailureCause, RecoverError, RecoveryReport};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{
    Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::{Duration, Instant};

/// The interval at which exclusive use is asked for. It is tried, never queued for: a queued writer
/// would stop readers, one of which may hold a guard already.
const STEP: Duration = Duration::from_micros(200);

/// See the module.
pub(crate) struct Served {
    /// `None` once it was shut down
    device: RwLock<Option<ringside_pmd::Device>>,
    pub(crate) handoff: Handoff<Event>,
    observer: OnceLock<Arc<dyn Observer>>,
    /// the last life whose failure the observer was told; lives begin at 1
    told: AtomicU32,
    /// a thread is in a recovery
    recovering: AtomicBool,
}

/// Is told of failures and recoveries by the thread that notices them. Does not wait.
pub(crate) trait Observer: Send + Sync {
    /// The device failed in this life; told once.
    fn failed(&self, life: u32, cause: FailureCause);
    /// It is in service again, in this life.
    fn recovered(&self, life: u32, cause: FailureCause);
    /// An attempt to recover it from a failure in this life failed.
    fn not_recovered(&self, life: u32, error: &RecoverError);
}

/// A device in use by one thread. It is recovered only when no other thread uses it, so do not keep
/// one for long.
pub struct Driver<'d>(RwLockReadGuard<'d, Option<ringside_pmd::Device>>);

const TAKEN: &str = "only a shutdown takes the device, and that consumes its owner";

impl Deref for Driver<'_> {
    type Target = ringside_pmd::Device;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect(TAKEN)
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
            device: RwLock::new(Some(device)),
            handoff: Handoff::new(EVENTS, Signal::new()?, Signal::new()?),
            observer: OnceLock::new(),
            told: AtomicU32::new(0),
            recovering: AtomicBool::new(false),
        })
    }

    /// Tells `observer` from now on; the first one stays.
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

    /// True while a thread is in a recovery. The observer is told its result afterwards.
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::Acquire)
    }

    /// Runs a recovery of the device, which the caller has for itself.
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
        let Some(observer) = self.observer.get() else {
            return;
        };
        match recovered {
            Ok(report) => observer.recovered(report.life, report.cause),
            Err(error) => observer.not_recovered(life, error),
        }
    }

    /// The device, beside other threads.
    pub(crate) fn driver(&self) -> Driver<'_> {
        Driver(self.device.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The device alone, if no other thread uses it within `limit`.
    pub(crate) fn exclusive(&self, limit: Duration) -> Option<Exclusive<'_>> {
        let deadline = Instant::now() + limit;
        loop {
            match self.device.try_write() {
                Ok(guard) => return Some(Exclusive(guard)),
                Err(TryLockError::Poisoned(guard)) => return Some(Exclusive(guard.into_inner())),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(STEP),
            }
        }
    }

    /// Takes the device out, for its shutdown.
    pub(crate) fn take(&self) -> Option<ringside_pmd::Device> {
        match self.device.try_write() {
            Ok(mut guard) => guard.take(),
            Err(TryLockError::Poisoned(guard)) => guard.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the events that the housekeeping thread has put; returns how many.
    pub(crate) fn take_events(&self, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        let dropped = self.handoff.take(events);
        if dropped > 0 {
            events.push(Event::Dropped { events: dropped });
        }
        events.len() - before
    }
}

/// The events of a device with a housekeeping thread, as a descriptor that is readable while there
/// are some. It fits `tokio::io::unix::AsyncFd` and any poll loop.
#[derive(Clone, Debug)]
pub struct Events(pub(crate) Arc<Served>);

impl Events {
    /// Takes what has come and appends it to `events`; returns how many there were. The descriptor
    /// is not readable afterwards, until the next event.
    pub fn take(&self, events: &mut Vec<Event>) -> usize {
        self.0.take_events(events)
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
