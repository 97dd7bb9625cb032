//! A function whose register accesses are counted, to measure a driver's bus accesses.

use crate::around::Around;
use crate::doorbell::Doorbell;
use crate::function::{Function, FunctionError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Wraps a function and counts its register accesses.
///
/// A doorbell that it returns is a call, so that each ring is counted. The wrapped doorbell is then
/// rung as usual: by a store where the backend has mapped the register. Do not measure time with
/// it.
pub struct CountedFunction {
    inner: Arc<dyn Function>,
    so_far: Mutex<Accesses>,
}

/// Register accesses. Doorbells are registers: ringing one is a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// (base address register, offset in bytes) -> times written
    pub writes: BTreeMap<(u8, u64), u64>,
    /// the same for reads, of 32 and of 64 bits
    pub reads: BTreeMap<(u8, u64), u64>,
}

impl Accesses {
    /// The number of writes to this register.
    #[must_use]
    pub fn written(&self, bar: u8, offset: u64) -> u64 {
        self.writes.get(&(bar, offset)).copied().unwrap_or(0)
    }

    /// Writes of any register.
    #[must_use]
    pub fn all_writes(&self) -> u64 {
        self.writes.values().sum()
    }

    /// Reads of any register.
    #[must_use]
    pub fn all_reads(&self) -> u64 {
        self.reads.values().sum()
    }
}

impl CountedFunction {
    /// Counts what goes to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Function>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            so_far: Mutex::default(),
        })
    }

    /// Returns the counts since the last call, or since the beginning.
    #[must_use]
    pub fn take(&self) -> Accesses {
        self.count(std::mem::take)
    }

    fn count<T>(&self, change: impl FnOnce(&mut Accesses) -> T) -> T {
        change(&mut self.so_far.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self, bar: u8, offset: u64) {
        self.count(|so_far| *so_far.reads.entry((bar, offset)).or_default() += 1);
    }
}

impl Around for CountedFunction {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn attachment(&self) -> Vec<String> {
        let mut lines = self.inner.attachment();
        lines.push("register accesses are counted, which slows doorbells".into());
        lines
    }

    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        self.read(bar, offset);
        self.inner.read32(bar, offset)
    }

    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        self.count(|so_far| *so_far.writes.entry((bar, offset)).or_default() += 1);
        self.inner.write32(bar, offset, value)
    }

    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        self.read(bar, offset);
        self.inner.read64(bar, offset)
    }

    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError> {
        // The doorbell is requested and dropped, so that an invalid offset is refused as usual.
        Arc::clone(&self.inner).doorbell(bar, offset)?;
        Ok(crate::function::message_doorbell(self, bar, offset))
    }
}

impl std::fmt::Debug for CountedFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CountedFunction({})", self.inner.address())
    }
}
