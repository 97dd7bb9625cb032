use super::*;
use crate::clock::{Clock, TscClock};
use crate::doorbell::Doorbell;
use crate::function::{Backend, BarInfo, DmaLimits};
use crate::{DeviceAddress, DmaSpace};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A function with an IOMMU and nothing else. A pool needs no more.
struct Iommu {
    address: DeviceAddress,
    space: Mutex<DmaSpace>,
    refuse_map: AtomicBool,
    refuse_unmap: AtomicBool,
    /// closed while it maps: as another thread may do
    closes: Mutex<Option<Arc<DmaPool>>>,
    accepts: Range<u64>,
}

impl Iommu {
    fn new() -> Arc<Self> {
        Self::accepting(0..1 << 39)
    }

    fn accepting(accepts: Range<u64>) -> Arc<Self> {
        let mut space = DmaSpace::new();
        space.set_bus_master(true);
        Arc::new(Self {
            address: DeviceAddress::Model(0),
            space: Mutex::new(space),
            refuse_map: AtomicBool::new(false),
            refuse_unmap: AtomicBool::new(false),
            closes: Mutex::new(None),
            accepts,
        })
    }

    fn refuse<T>(&self, operation: &str) -> Result<T, FunctionError> {
        Err(FunctionError::Unsupported {
            backend: "test",
            operation: operation.into(),
        })
    }
}

impl Function for Iommu {
    fn address(&self) -> &DeviceAddress {
        &self.address
    }
    fn backend(&self) -> Backend {
        Backend::EmbeddedModel
    }
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(TscClock::new())
    }
    fn config_read(&self, _: u16, _: &mut [u8]) -> Result<(), FunctionError> {
        self.refuse("read configuration space")
    }
    fn config_write(&self, _: u16, _: &[u8]) -> Result<(), FunctionError> {
        self.refuse("write configuration space")
    }
    fn bar(&self, _: u8) -> Result<BarInfo, FunctionError> {
        self.refuse("have registers")
    }
    fn read32(&self, _: u8, _: u64) -> Result<u32, FunctionError> {
        self.refuse("have registers")
    }
    fn write32(&self, _: u8, _: u64, _: u32) -> Result<(), FunctionError> {
        self.refuse("have registers")
    }
    fn read64(&self, _: u8, _: u64) -> Result<u64, FunctionError> {
        self.refuse("have registers")
    }
    fn doorbell(self: Arc<Self>, _: u8, _: u64) -> Result<Doorbell, FunctionError> {
        self.refuse("have doorbells")
    }
    fn dma_limits(&self) -> Result<DmaLimits, FunctionError> {
        Ok(DmaLimits {
            iova_ranges: std::iter::once(self.accepts.clone()).collect(),
            mappings: 65_535,
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
        if self.refuse_map.load(Ordering::Relaxed) {
            return self.refuse("map");
        }
        if let Some(pool) = self.closes.lock().unwrap().take() {
            pool.close().unwrap();
        }
        let mut space = self.space.lock().unwrap();
        assert!(self.accepts.start <= iova.0 && iova.0 + range.len() as u64 <= self.accepts.end);
        assert!(space.map(iova, memory, range.start, range.len(), access));
        Ok(())
    }
    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        if self.refuse_unmap.load(Ordering::Relaxed) {
            return self.refuse("unmap");
        }
        assert_eq!(self.space.lock().unwrap().unmap(iova, length), 1);
        Ok(())
    }
    fn interrupt_vectors(&self) -> Result<u16, FunctionError> {
        Ok(0)
    }
    fn set_interrupts(&self, _: u16, _: &[Option<BorrowedFd<'_>>]) -> Result<(), FunctionError> {
        self.refuse("interrupt")
    }
    fn set_release_event(&self, _: Option<BorrowedFd<'_>>) -> Result<(), FunctionError> {
        self.refuse("release")
    }
    fn reset(&self) -> Result<(), FunctionError> {
        self.refuse("reset")
    }
}

fn pool(iommu: &Arc<Iommu>) -> Arc<DmaPool> {
    pool_at(iommu, Placement::Unpredictable)
}

fn pool_at(iommu: &Arc<Iommu>, placement: Placement) -> Arc<DmaPool> {
    let settings = PoolSettings {
        largest_page: PageSize::FourKiB,
        placement,
        ..PoolSettings::default()
    };
    DmaPool::new(Arc::clone(iommu) as Arc<dyn Function>, settings).unwrap()
}

#[test]
fn buffers_are_what_the_device_sees_at_their_address() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    let small = pool.allocate(100, 512).unwrap();
    let large = pool.allocate(5 << 20, 4096).unwrap();
    assert!(small.iova().0.is_multiple_of(512) && large.iova().0.is_multiple_of(4096));
    assert!(large.write((5 << 20) - 4, b"last"));
    let mut bytes = [0; 4];
    iommu
        .space
        .lock()
        .unwrap()
        .read(large.iova().add((5 << 20) - 4), &mut bytes)
        .unwrap();
    assert_eq!(&bytes, b"last");
    assert!(
        !small.write(125, b"last"),
        "outside the buffer though inside the block"
    );
    pool.close().unwrap();
}

#[test]
fn a_buffer_that_comes_again_is_zeroed() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    let first = pool.allocate(4096, 4096).unwrap();
    let iova = first.iova();
    assert!(first.fill(0, 4096, 0xAA));
    drop(first);
    let mut again = pool.allocate(4096, 4096).unwrap();
    assert_ne!(again.iova(), iova, "handed out again at once");
    // The freed place is used again before the pool maps another block.
    while again.iova() != iova {
        again = pool.allocate(4096, 4096).unwrap();
        assert_eq!(pool.usage().blocks, 1);
    }
    assert!(
        again
            .words()
            .as_slice()
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == 0)
    );
    pool.close().unwrap();
}

#[test]
fn closing_unmaps_everything_and_refuses_more() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    let kept = pool.allocate(64, 64).unwrap();
    pool.close().unwrap();
    assert_eq!(iommu.space.lock().unwrap().mappings().count(), 0);
    assert!(pool.allocate(64, 64).is_err());
    assert!(
        kept.write(0, &[1]),
        "the process can still read what it holds"
    );
}

#[test]
fn a_block_that_cannot_be_unmapped_is_leaked_and_reported() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    drop(pool.allocate(64, 64).unwrap());
    iommu.refuse_unmap.store(true, Ordering::Relaxed);
    assert!(pool.close().is_err());
    assert_eq!(pool.usage().leaked_bytes, 2 << 20);
    assert!(kept_forever_bytes() >= 2 << 20);
    assert_eq!(iommu.space.lock().unwrap().mappings().count(), 1);
}

#[test]
fn missing_huge_pages_fall_back_and_the_pool_reports_it() {
    let iommu = Iommu::new();
    let settings = PoolSettings {
        largest_page: PageSize::TwoMiB,
        ..PoolSettings::default()
    };
    let pool = DmaPool::new(Arc::clone(&iommu) as Arc<dyn Function>, settings).unwrap();
    let _buffer = pool.allocate(64, 64).unwrap();
    let usage = pool.usage();
    match usage.page_size {
        Some(PageSize::FourKiB) => assert!(usage.fallback.unwrap().contains("nr_hugepages")),
        other => assert_eq!((other, usage.fallback), (Some(PageSize::TwoMiB), None)),
    }
    pool.close().unwrap();
}

#[test]
fn impossible_requests_are_refused() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    for (length, alignment) in [(0, 64), (64, 3), (64, 2 << 30), (1 << 40, 64)] {
        assert!(
            pool.allocate(length, alignment).is_err(),
            "{length} {alignment}"
        );
    }
    pool.close().unwrap();
}

#[test]
fn a_leaked_buffer_is_never_handed_out_again() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    let buffer = pool.allocate(4096, 64).unwrap();
    let iova = buffer.iova();
    buffer.leak();
    assert_ne!(pool.allocate(4096, 64).unwrap().iova(), iova);
    assert_eq!(pool.usage().leaked_bytes, 4096);
    pool.close().unwrap();
    assert_eq!(pool.usage().leaked_bytes, 0, "its block went back");
}

/// Addresses of a few buffers of a new pool.
fn addresses(placement: Placement) -> Vec<Iova> {
    let iommu = Iommu::new();
    let pool = pool_at(&iommu, placement);
    let sizes = [4096, 2 << 20, 100, 3 << 20, 64];
    let buffers = sizes.map(|length| pool.allocate(length, 64).unwrap());
    pool.close().unwrap();
    buffers.iter().map(DmaBuffer::iova).collect()
}

#[test]
fn two_pools_place_differently_and_one_seed_places_the_same() {
    let [one, other] = [0, 1].map(|_| addresses(Placement::Unpredictable));
    // Of 2^15 places of a block, and 512 offsets in one: all equal by chance in one of 2^60 runs.
    assert_ne!(one, other);
    assert_eq!(
        addresses(Placement::Seeded(7)),
        addresses(Placement::Seeded(7))
    );
    assert_ne!(
        addresses(Placement::Seeded(7)),
        addresses(Placement::Seeded(8))
    );
}

#[test]
fn an_access_past_a_block_reaches_no_mapping() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    let buffers: Vec<_> = (0..20)
        .map(|_| pool.allocate(2 << 20, 64).unwrap())
        .collect();
    let space = iommu.space.lock().unwrap();
    for buffer in &buffers {
        let (before, behind) = (buffer.iova().0 - 1, buffer.iova().0 + (2 << 20));
        assert!(space.read(Iova(before), &mut [0]).is_err());
        assert!(space.read(Iova(behind), &mut [0]).is_err());
    }
    drop(space);
    pool.close().unwrap();
}

#[test]
fn a_narrow_address_space_is_used_to_its_last_page() {
    let start = (1 << 32) + 4096;
    let iommu = Iommu::accepting(start..start + (33 << 20));
    let pool = pool(&iommu);
    let all: Vec<_> = (0..15)
        .map(|_| pool.allocate(2 << 20, 64).unwrap())
        .collect();
    // The first multiple of 2 MiB is nearly 2 MiB in, so that 15 blocks fit and no more.
    let refused = pool.allocate(64, 64).unwrap_err();
    assert!(matches!(refused, MemoryError::NoAddressSpace { .. }));
    drop(all);
    pool.allocate(2 << 20, 64).unwrap();
    pool.close().unwrap();
}

#[test]
fn small_blocks_leave_room_for_large_ones_in_a_space_of_39_bits() {
    for seed in 0..20 {
        let mut places = Places::new(std::iter::once(0..1 << 39), Placement::Seeded(seed));
        for _ in 0..500 {
            places.take(2 << 20, 2 << 20, 2 << 20).unwrap();
        }
        for _ in 0..5 {
            places.take(64 << 30, 1 << 30, 2 << 20).unwrap();
        }
    }
}

#[test]
fn allocated_buffers_never_overlap_in_any_order_of_frees() {
    use rand::{Rng, SeedableRng};
    for seed in 0..30 {
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let narrow = seed % 2 == 0;
        let end = (1 << 32) + if narrow { 64 << 20 } else { 1 << 40 };
        let iommu = Iommu::accepting(1 << 32..end);
        let pool = pool_at(&iommu, Placement::Seeded(seed));
        let mut held: Vec<DmaBuffer> = Vec::new();
        for _ in 0..400 {
            let magnitude = random.random_range(6..=21);
            let length = random.random_range(1..=1usize << magnitude);
            let alignment = 1 << random.random_range(0..=21);
            match pool.allocate(length, alignment) {
                Ok(buffer) => held.push(buffer),
                Err(error) => assert!(narrow, "seed {seed}: {error}"),
            }
            if random.random_bool(0.45) && !held.is_empty() {
                held.swap_remove(random.random_range(0..held.len()));
            }
            held.sort_by_key(DmaBuffer::iova);
            for pair in held.windows(2) {
                let end = pair[0].iova().0 + pair[0].length() as u64;
                assert!(end <= pair[1].iova().0, "seed {seed}: {pair:?}");
            }
            let used: usize = held.iter().map(DmaBuffer::length).sum();
            assert_eq!(pool.usage().used_bytes, used, "seed {seed}");
        }
        pool.close().unwrap();
    }
}

#[test]
fn a_length_near_the_end_of_the_number_range_is_refused() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    let held = pool.allocate(64, 64).unwrap();
    for less in [0, 1, 63, 64, 4095, BLOCK - 1, BLOCK] {
        let refused = pool.allocate(usize::MAX - less, 4096).unwrap_err();
        assert!(
            matches!(refused, MemoryError::NoAddressSpace { length } if length >= usize::MAX - BLOCK),
            "{refused}"
        );
    }
    drop(held);
    pool.close().unwrap();
}

#[test]
fn memory_of_the_application_is_mapped_at_its_place_in_a_page_until_it_is_dropped() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    let mut held = Vec::new();
    for length in [1, 7, 100, 4096, 10_001] {
        let memory = Memory::from(vec![length as u8; length]);
        let within = memory.virtual_address() % 4096;
        let buffer = pool.map(memory).unwrap();
        assert_eq!((buffer.iova().0 % 4096, buffer.length()), (within, length));
        let words = buffer.words();
        assert!(words.count() * 8 <= length && words.count() * 8 + 16 > length);
        let mut last = [0];
        assert!(buffer.read(length - 1, &mut last) && !buffer.read(length, &mut last));
        assert_eq!(last, [length as u8]);
        held.push(buffer);
    }
    let all: usize = held.iter().map(DmaBuffer::length).sum();
    assert_eq!(pool.usage().used_bytes, all);
    let mapped = || iommu.space.lock().unwrap().mappings().count();
    assert_eq!(mapped(), 5);
    let bytes = held.pop().unwrap().into_memory().unwrap();
    assert_eq!(bytes.into_boxed().unwrap()[10_000], 10_001u32 as u8);
    held.pop();
    assert_eq!(mapped(), 3);
    // Memory that the device may still write to stays mapped until the device has stopped.
    held.pop().unwrap().leak();
    assert_eq!((mapped(), pool.usage().leaked_bytes), (3, 100));
    assert_eq!(pool.reclaim_leaked(), 100);
    assert_eq!(mapped(), 2);
    pool.close().unwrap();
    assert_eq!(mapped(), 0);
    drop(held);
    let (refused, memory) = pool.map(vec![1u8].into()).unwrap_err();
    assert!(matches!(refused, MemoryError::Closed));
    assert_eq!(&memory.into_boxed().unwrap()[..], [1]);
}

#[test]
fn memory_of_the_application_that_cannot_be_unmapped_stays_in_the_pool() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    iommu.refuse_unmap.store(true, Ordering::Relaxed);
    let buffer = pool.map(vec![1u8; 64].into()).unwrap();
    let buffer = buffer.into_memory().unwrap_err();
    drop(buffer);
    assert_eq!(pool.usage().used_bytes, 64);
    iommu.refuse_unmap.store(false, Ordering::Relaxed);
    pool.close().unwrap();
}

#[test]
fn memory_mapped_into_a_closing_pool_is_unmapped_or_kept() {
    let iommu = Iommu::new();
    for refuses in [false, true] {
        let pool = pool(&iommu);
        *iommu.closes.lock().unwrap() = Some(Arc::clone(&pool));
        iommu.refuse_unmap.store(refuses, Ordering::Relaxed);
        let (error, memory) = pool.map(vec![7u8; 64].into()).unwrap_err();
        assert!(matches!(error, MemoryError::Closed));
        let mapped = iommu.space.lock().unwrap().mappings().count();
        assert_eq!(mapped, usize::from(refuses));
        // Memory that the device may still reach is not given back.
        assert_eq!(pool.usage().leaked_bytes, 64 * mapped);
        assert_eq!(memory.into_boxed().is_ok(), !refuses);
    }
}

/// Addresses for `pages` pages, from the first that a pool uses.
fn narrow(pages: u64) -> Arc<Iommu> {
    let first = 1 << 32;
    Iommu::accepting(first..first + pages * PAGE)
}

#[test]
fn addresses_of_memory_that_the_device_refuses_are_free_again() {
    let iommu = narrow(4);
    let pool = pool(&iommu);
    iommu.refuse_map.store(true, Ordering::Relaxed);
    for _ in 0..10 {
        let (refused, _) = pool.map(vec![1u8; 64].into()).unwrap_err();
        assert!(matches!(refused, MemoryError::Function(_)), "{refused}");
    }
    assert_eq!(pool.usage(), PoolUsage::default());
    iommu.refuse_map.store(false, Ordering::Relaxed);
    let held = pool.map(vec![1u8; 64].into()).unwrap();
    pool.close().unwrap();
    drop(held);
}

#[test]
fn memory_that_ends_with_its_page_gives_no_more_than_its_pages_back() {
    let iommu = narrow(3);
    let pool = pool(&iommu);
    let page = || Memory::allocate(PAGE as usize, PageSize::FourKiB, None).unwrap();
    let mut held: Vec<_> = (0..3).map(|_| pool.map(page()).unwrap()).collect();
    held.sort_by_key(|buffer| buffer.iova().0);
    let first = held.remove(0).iova();
    let again = pool.map(page()).unwrap();
    assert_eq!(again.iova(), first);
    assert!(pool.map(page()).is_err(), "all pages are in use");
    pool.close().unwrap();
}

#[test]
fn memory_of_the_application_that_cannot_be_unmapped_is_kept_when_the_pool_closes() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    // A length that no other test has.
    let buffer = pool.map(vec![1u8; 12_347].into()).unwrap();
    iommu.refuse_unmap.store(true, Ordering::Relaxed);
    assert!(pool.close().is_err());
    assert_eq!(pool.usage().leaked_bytes, 12_347);
    let kept = kept();
    assert!(kept.iter().any(|memory| memory.length() == 12_347));
    drop((kept, buffer));
}

#[test]
fn memory_that_was_reclaimed_no_longer_counts_as_leaked() {
    let iommu = Iommu::new();
    let pool = pool(&iommu);
    pool.allocate(4096, 64).unwrap().leak();
    pool.map(vec![1u8; 100].into()).unwrap().leak();
    assert_eq!(pool.usage().leaked_bytes, 4196);
    assert_eq!(pool.reclaim_leaked(), 4196);
    let usage = pool.usage();
    assert_eq!((usage.leaked_bytes, usage.used_bytes), (0, 0));
    assert_eq!(pool.reclaim_leaked(), 0, "each piece once");
    pool.close().unwrap();
}

#[test]
fn no_memory_lies_at_an_address_of_32_bits() {
    for seed in 0..64 {
        let first = addresses(Placement::Seeded(seed)).into_iter().min();
        assert!(first.unwrap().0 >= 1 << 32, "seed {seed}: {first:?}");
    }
}

/// Pages of 1 GiB, which hardly any machine has free.
#[test]
fn addresses_of_a_block_that_gets_no_memory_are_free_again() {
    const GIB: u64 = 1 << 30;
    let first = 4 * GIB;
    let iommu = Iommu::accepting(first..first + 2 * GIB);
    let settings = PoolSettings {
        largest_page: PageSize::OneGiB,
        exact: true,
        ..PoolSettings::default()
    };
    let pool = DmaPool::new(Arc::clone(&iommu) as Arc<dyn Function>, settings).unwrap();
    for turn in 0..6 {
        match pool.allocate(GIB as usize, 64) {
            // The machine has such pages.
            Ok(_) => return pool.close().unwrap(),
            Err(error) => assert!(
                !matches!(error, MemoryError::NoAddressSpace { .. }),
                "turn {turn}: {error}"
            ),
        }
    }
    assert_eq!(pool.usage(), PoolUsage::default());
    pool.close().unwrap();
}

/// A block of one small buffer, which would fit a smaller page.
#[test]
fn a_pool_that_insists_on_a_page_size_takes_no_smaller_one() {
    for largest_page in [PageSize::OneGiB, PageSize::TwoMiB] {
        let iommu = Iommu::accepting(1 << 32..1 << 40);
        let settings = PoolSettings {
            largest_page,
            exact: true,
            ..PoolSettings::default()
        };
        let pool = DmaPool::new(Arc::clone(&iommu) as Arc<dyn Function>, settings).unwrap();
        match pool.allocate(64, 64) {
            // The machine has such pages.
            Ok(buffer) => assert_eq!(buffer.memory.page_size(), largest_page),
            Err(error) => assert!(
                matches!(error, MemoryError::NoHugePages { .. }),
                "{largest_page:?}: {error}"
            ),
        }
        pool.close().unwrap();
    }
}

/// The memory before and behind the area's whole pages is other objects' too.
#[test]
fn a_permit_for_static_memory_lends_its_whole_pages_and_nothing_else() {
    const PAGE: usize = 4096;
    static AREA: [AtomicU8; 4 * PAGE] = [const { AtomicU8::new(0) }; 4 * PAGE];
    let permit = LendPermit::for_static(&AREA);
    let first = AREA.as_ptr().expose_provenance();
    let whole = first.next_multiple_of(PAGE);
    let end = (first + AREA.len()) / PAGE * PAGE;
    let pool = pool(&Iommu::new());
    let lend = |address, length| {
        let lent = pool.lend_permitted(&permit, address, length, DmaAccess::ReadWrite);
        lent.map(|buffer| buffer.length())
    };
    assert_eq!(lend(whole, end - whole).unwrap(), end - whole);
    assert_eq!(lend(whole + 5, 10).unwrap(), 10);
    for (address, length) in [
        (whole - 1, 2),
        (end - 1, 2),
        (end, 1),
        (whole, usize::MAX),
        (8 * PAGE, 1),
    ] {
        let refused = lend(address, length).unwrap_err();
        assert!(
            matches!(refused, MemoryError::NotPermitted { .. }),
            "{refused}"
        );
    }
}
