//! Memory of the application in large amounts: one region of 64 GiB, many regions, overlaps, a
//! dma-buf.
#![allow(unsafe_code)] // lends memory that the test owns

mod pair;

use pair::{End, connected};
use ringside::bus::ForeignFile;
use ringside::bus::memory::DmaAccess;
use ringside::prelude::*;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::Instant;

const PAGE: usize = 4096;

/// The functions of the model are opened by one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A file in memory without pages.
fn sparse(bytes: u64) -> OwnedFd {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("large", flags).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    file
}

/// Writes a page of `byte`s of the left end into the right one's region.
fn write(left: &mut End, source: &MemoryRegion, byte: u8, target: RemoteRegion, at: u64) {
    assert!(source.write(0, &[byte; PAGE]));
    let place = source.slice(0..PAGE).unwrap();
    left.queue_pair
        .write(at, &[place], target.at(at), Flags::SIGNALLED)
        .unwrap();
    left.queue_pair.ring();
    left.wait(at);
}

#[test]
fn a_region_of_64_gib_is_written_at_both_ends_and_at_random() {
    let _one = ONE.lock();
    const BYTES: u64 = 64 << 30;
    let [mut left, right] = connected(0);
    let source = left.region(PAGE);
    let file = sparse(BYTES);
    let copy = file.try_clone().unwrap();
    let memory = ForeignFile::inspect(file, false).unwrap().map().unwrap();
    let buffer = right.device.map_memory(memory).unwrap();
    let region = right.domain.register(buffer, Access::REMOTE_WRITE).unwrap();
    assert_eq!(region.length() as u64, BYTES);

    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut places = vec![0, BYTES - PAGE as u64];
    for _ in 0..200 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        places.push(random % (BYTES / PAGE as u64) * PAGE as u64);
    }
    places.sort_unstable();
    places.dedup();
    for (number, &at) in places.iter().enumerate() {
        write(&mut left, &source, number as u8 + 1, region.remote(), at);
    }
    for (number, &at) in places.iter().enumerate() {
        let mut page = [0; PAGE];
        rustix::io::pread(&copy, &mut page, at).unwrap();
        assert_eq!(page, [number as u8 + 1; PAGE], "page at {at:#x}");
    }
    let blocks = rustix::fs::fstat(&copy).unwrap().st_blocks as usize;
    assert_eq!(
        blocks * 512,
        places.len() * PAGE,
        "only those pages were touched"
    );

    // One byte beyond is refused.
    let place = source.slice(0..1).unwrap();
    left.queue_pair
        .write(1, &[place], region.remote().at(BYTES), Flags::SIGNALLED)
        .unwrap();
    left.queue_pair.ring();
    let end = Instant::now() + pair::LIMIT;
    let mut batch = [Completion::EMPTY; 4];
    loop {
        assert!(Instant::now() < end, "no completion");
        if let Some(done) = left.completions.poll(&mut batch).first() {
            assert!(!done.is_success());
            break;
        }
    }
}

/// 5,000 by default; `RINGSIDE_TEST_REGIONS=100000` in the nightly run.
#[test]
fn many_regions_are_made_and_dropped_in_turn() {
    let _one = ONE.lock();
    let count = std::env::var("RINGSIDE_TEST_REGIONS");
    let count: u64 = count.map_or(5_000, |text| text.parse().unwrap());
    let [left, _right] = connected(0);
    let pool = std::sync::Arc::clone(left.device.driver().pool().unwrap());
    let before = (left.device.object_usage().unwrap(), pool.usage());
    let bytes = vec![0_u8; 64 << 10];
    let began = Instant::now();
    for number in 0..count {
        let at = bytes.as_ptr().expose_provenance() + (number as usize * 97) % (60 << 10);
        // SAFETY: `bytes` outlives the region, and nothing accesses it.
        let buffer = unsafe { pool.lend(at, PAGE, DmaAccess::ReadWrite) }.unwrap();
        let region = left.domain.register(buffer, Access::LOCAL_WRITE).unwrap();
        drop(region);
    }
    let each = began.elapsed() / u32::try_from(count).unwrap();
    println!("{count} regions of 4 KiB made and dropped, {each:?} each");
    let after = (left.device.object_usage().unwrap(), pool.usage());
    assert_eq!(before, after, "nothing is left over");
}

#[test]
fn overlapping_registrations_stand_for_themselves() {
    let _one = ONE.lock();
    let [mut left, right] = connected(0);
    let source = left.region(PAGE);
    let bytes = vec![0_u8; 8 * PAGE];
    let first = bytes.as_ptr().expose_provenance();
    let pool = std::sync::Arc::clone(right.device.driver().pool().unwrap());
    let mapped = pool.usage().mapped_bytes;
    let lend = |skip: usize, length: usize| {
        // SAFETY: `bytes` outlives the regions, and is read by volatile accesses only.
        let buffer = unsafe { pool.lend(first + skip, length, DmaAccess::ReadWrite) }.unwrap();
        right.domain.register(buffer, Access::REMOTE_WRITE).unwrap()
    };
    let whole = lend(0, 8 * PAGE);
    let part = lend(PAGE + 8, 2 * PAGE);
    let same = lend(PAGE + 8, 2 * PAGE);
    let seen = |at: usize| {
        // SAFETY: inside `bytes`; volatile, because the device writes.
        unsafe { std::ptr::with_exposed_provenance::<u8>(first + at).read_volatile() }
    };
    write(&mut left, &source, 1, part.remote(), 0);
    assert_eq!((seen(PAGE + 7), seen(PAGE + 8)), (0, 1));
    drop(part);
    write(&mut left, &source, 2, same.remote(), 0);
    assert_eq!(
        seen(PAGE + 8),
        2,
        "the same range, registered a second time"
    );
    write(&mut left, &source, 3, whole.remote(), 2 * PAGE as u64);
    assert_eq!((seen(2 * PAGE), seen(PAGE + 8)), (3, 2));
    drop((same, whole));
    assert_eq!(
        pool.usage().mapped_bytes,
        mapped,
        "each mapping was counted and is gone"
    );
}

/// A udmabuf of the pages of a sealed memfd, if the kernel has the driver.
fn dma_buf(pages: usize) -> Option<OwnedFd> {
    use rustix::fs::{Mode, OFlags, SealFlags};
    use std::os::fd::{AsRawFd, FromRawFd};
    let driver = rustix::fs::open("/dev/udmabuf", OFlags::RDWR, Mode::empty()).ok()?;
    let file = sparse((pages * PAGE) as u64);
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    #[repr(C)]
    struct Create {
        memfd: u32,
        flags: u32,
        offset: u64,
        size: u64,
    }
    // UDMABUF_CREATE. Source: linux/udmabuf.h
    const CREATE: libc::Ioctl = 0x4018_7542;
    let mut create = Create {
        memfd: file.as_raw_fd() as u32,
        flags: 1,
        offset: 0,
        size: (pages * PAGE) as u64,
    };
    // SAFETY: the request reads the struct.
    let made = unsafe { libc::ioctl(driver.as_raw_fd(), CREATE, &raw mut create) };
    assert!(made >= 0, "udmabuf: {}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just made this descriptor.
    Some(unsafe { OwnedFd::from_raw_fd(made) })
}

#[test]
fn a_dma_buf_is_registered_in_process() {
    let _one = ONE.lock();
    let [mut left, right] = connected(0);
    let source = left.region(PAGE);
    let descriptors = [Some(sparse(4 * PAGE as u64)), dma_buf(4)];
    for descriptor in descriptors.into_iter().flatten() {
        let memory = Memory::from_dma_buf(descriptor).unwrap();
        let buffer = right.device.map_memory(memory).unwrap();
        let region = right.domain.register(buffer, Access::REMOTE_WRITE).unwrap();
        write(&mut left, &source, 0x6D, region.remote(), 3 * PAGE as u64);
        let mut page = [0; PAGE];
        assert!(region.read(3 * PAGE, &mut page));
        assert_eq!(page, [0x6D; PAGE]);
    }
}
