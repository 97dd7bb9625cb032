//! A PCI function whose registers a test scripts. Its time passes only while a caller waits.

use crate::Iova;
use crate::address::DeviceAddress;
use crate::clock::{Clock, Instant};
use crate::doorbell::Doorbell;
use crate::error::FunctionError;
use crate::function::{Backend, BarInfo, DmaLimits, Function};
use crate::memory::{DmaAccess, Memory};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time that passes only while a caller waits.
struct WaitingTime {
    nanoseconds: AtomicU64,
    /// the least time that passes in a pause
    least: Duration,
    /// nanoseconds of the longest pause that was asked for
    longest: AtomicU64,
}

impl Clock for WaitingTime {
    fn now(&self) -> Instant {
        Instant(self.nanoseconds.load(Ordering::Relaxed))
    }

    fn pause(&self, at_most: Duration) {
        let asked = at_most.as_nanos() as u64;
        self.longest.fetch_max(asked, Ordering::Relaxed);
        let step = at_most.max(self.least).as_nanos() as u64;
        self.nanoseconds.fetch_add(step, Ordering::Relaxed);
    }
}

/// The behaviour of a [`Double`].
pub trait Script: Send {
    /// The value of a register.
    fn read(&self, offset: u64) -> u32;

    /// A register is written.
    fn write(&mut self, offset: u64, value: u32);

    /// Memory is mapped for the device.
    fn map(&mut self, _iova: Iova, _memory: &Memory, _range: Range<usize>, _access: DmaAccess) {}

    /// Memory is unmapped from the device.
    fn unmap(&mut self, _iova: Iova, _length: u64) {}

    /// A caller waits until the device has taken all writes: see [`Function::catch_up`].
    fn catch_up(&mut self) -> bool {
        false
    }
}

/// A function with scripted registers. It has no configuration space, doorbells or interrupts, and
/// does not support reset.
pub struct Double<S> {
    address: DeviceAddress,
    time: Arc<WaitingTime>,
    script: Mutex<S>,
}

impl<S: Script> Double<S> {
    /// Makes a function that follows `script`. Each pause takes at least `least_pause`, so that a
    /// deadline passes after a bounded number of polls.
    pub fn new(script: S, least_pause: Duration) -> Self {
        Self {
            address: DeviceAddress::Model(0),
            time: Arc::new(WaitingTime {
                nanoseconds: AtomicU64::new(0),
                least: least_pause,
                longest: AtomicU64::new(0),
            }),
            script: Mutex::new(script),
        }
    }

    /// The script, for inspection or change.
    pub fn script(&self) -> MutexGuard<'_, S> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest pause that callers requested. A clock in real time yields the core in pauses of
    /// 20 us or more.
    pub fn longest_pause(&self) -> Duration {
        Duration::from_nanos(self.time.longest.load(Ordering::Relaxed))
    }

    /// The time that has passed.
    pub fn now(&self) -> Instant {
        self.time.now()
    }
}

fn refuse<T>() -> Result<T, FunctionError> {
    Err(FunctionError::Unsupported {
        backend: "test",
        operation: "do that".into(),
    })
}

impl<S: Script> Function for Double<S> {
    fn address(&self) -> &DeviceAddress {
        &self.address
    }

    fn backend(&self) -> Backend {
        Backend::EmbeddedModel
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.time) as Arc<dyn Clock>
    }

    fn config_read(&self, _: u16, _: &mut [u8]) -> Result<(), FunctionError> {
        refuse()
    }

    fn config_write(&self, _: u16, _: &[u8]) -> Result<(), FunctionError> {
        refuse()
    }

    fn bar(&self, _: u8) -> Result<BarInfo, FunctionError> {
        refuse()
    }

    fn read32(&self, _: u8, offset: u64) -> Result<u32, FunctionError> {
        Ok(self.script().read(offset))
    }

    fn write32(&self, _: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        self.script().write(offset, value);
        Ok(())
    }

    fn read64(&self, _: u8, offset: u64) -> Result<u64, FunctionError> {
        let script = self.script();
        let halves = [offset, offset + 4].map(|half| u64::from(script.read(half)));
        Ok(halves[0] | halves[1] << 32)
    }

    fn catch_up(&self) -> Result<bool, FunctionError> {
        Ok(self.script().catch_up())
    }

    fn doorbell(self: Arc<Self>, _: u8, _: u64) -> Result<Doorbell, FunctionError> {
        refuse()
    }

    fn dma_limits(&self) -> Result<DmaLimits, FunctionError> {
        Ok(DmaLimits {
            iova_ranges: std::iter::once(0..1 << 36).collect(),
            mappings: 16,
            page_bytes: 4096,
        })
    }

    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        self.script().map(iova, memory, range, access);
        Ok(())
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        self.script().unmap(iova, length);
        Ok(())
    }

    fn interrupt_vectors(&self) -> Result<u16, FunctionError> {
        Ok(0)
    }

    fn set_interrupts(&self, _: u16, _: &[Option<BorrowedFd<'_>>]) -> Result<(), FunctionError> {
        refuse()
    }

    fn set_release_event(&self, _: Option<BorrowedFd<'_>>) -> Result<(), FunctionError> {
        refuse()
    }

    fn reset(&self) -> Result<(), FunctionError> {
        refuse()
    }
}
