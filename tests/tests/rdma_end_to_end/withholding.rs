//! A function that does not map a certain block of memory, though it reports success: the driver
//! then gives the device addresses that no IOMMU maps.

use ringside_bus::function::{DmaAccess, FunctionError};
use ringside_bus::{Around, Function, Iova, Memory};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct Withholding {
    inner: Arc<dyn Function>,
    /// Blocks of so many bytes are not mapped.
    block_bytes: usize,
    withheld: Mutex<Vec<Iova>>,
    count: AtomicU64,
}

impl Withholding {
    pub(crate) fn new(inner: Arc<dyn Function>, block_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            inner,
            block_bytes,
            withheld: Mutex::default(),
            count: AtomicU64::new(0),
        })
    }

    /// Blocks that were not mapped so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn withheld<T>(&self, look: impl FnOnce(&mut Vec<Iova>) -> T) -> T {
        look(&mut self.withheld.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Around for Withholding {
    fn inner(&self) -> &Arc<dyn Function> {
        &self.inner
    }

    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        if range.len() == self.block_bytes {
            self.withheld(|withheld| withheld.push(iova));
            self.count.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.inner.map_dma(iova, memory, range, access)
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        let found = self.withheld(|withheld| {
            let place = withheld.iter().position(|one| *one == iova);
            place.map(|place| withheld.swap_remove(place))
        });
        match found {
            Some(_) => Ok(()),
            None => self.inner.unmap_dma(iova, length),
        }
    }
}
