//! Memory of the application in large amounts: one region of 64 GiB, many regions, a dma-buf.

mod pair;

use pair::{End, connected};
use ringside::bus::ForeignFile;
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
    // Its pages hold other data, too.
    let memory = Memory::from(vec![0_u8; PAGE]);
    let began = Instant::now();
    for _ in 0..count {
        let buffer = left.device.map_memory(memory.clone()).unwrap();
        let region = left.domain.register(buffer, Access::LOCAL_WRITE).unwrap();
        drop(region);
    }
    let each = began.elapsed() / u32::try_from(count).unwrap();
    println!("{count} regions of 4 KiB made and dropped, {each:?} each");
    let after = (left.device.object_usage().unwrap(), pool.usage());
    assert_eq!(before, after, "nothing is left over");
}

#[test]
fn a_dma_buf_is_registered_in_process() {
    let _one = ONE.lock();
    let [mut left, right] = connected(0);
    let source = left.region(PAGE);
    // A file in memory, which is mapped as a dma-buf is.
    let memory = Memory::from_dma_buf(sparse(4 * PAGE as u64)).unwrap();
    let buffer = right.device.map_memory(memory).unwrap();
    let region = right.domain.register(buffer, Access::REMOTE_WRITE).unwrap();
    write(&mut left, &source, 0x6D, region.remote(), 3 * PAGE as u64);
    let mut page = [0; PAGE];
    assert!(region.read(3 * PAGE, &mut page));
    assert_eq!(page, [0x6D; PAGE]);
}
