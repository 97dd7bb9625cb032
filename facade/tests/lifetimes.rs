//! A process that opens and shuts down devices again and again: nothing of them stays.
#![allow(unsafe_code)] // counts the bytes that are allocated

use ringside::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;

/// Bytes that are allocated now.
static LIVE: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: each call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, first: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of this call; `alloc` got the memory from there.
        unsafe { System.dealloc(first, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WAIT: Duration = Duration::from_secs(20);

fn open(index: u16) -> Device {
    let mut config = Config::default();
    config.model.functions = 2;
    let last = index + 1;
    config.network.addresses = vec![format!("10.1.0.{last}/24").parse().unwrap()];
    ringside::open(&format!("model:{index}"), &config).unwrap()
}

/// What the process has: descriptors, threads, and mappings of its memory.
fn possessions() -> [usize; 3] {
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    [
        count("/proc/self/fd"),
        count("/proc/self/task"),
        maps.lines().count(),
    ]
}

/// One life: two devices that are connected, write to each other, and end.
fn live(round: u32) {
    let devices = [open(0), open(1)];
    let managers = devices
        .each_ref()
        .map(|one| one.connection_manager().unwrap());
    let to = "10.1.0.2:7471".parse().unwrap();
    let listener = managers[1].listen(to, 4).unwrap();
    let pair = |device: &Device| {
        let completions = device.completion_queue(16).unwrap();
        let domain = device.protection_domain().unwrap();
        let made = domain.queue_pair(QueuePairConfig::reliable(&completions));
        made.unwrap()
    };
    let settings = ringside::connect::Settings::default();
    let ends = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let request = listener.next(WAIT).expect("a request");
            request.accept(pair(&devices[1]), &settings, WAIT).unwrap()
        });
        let one = managers[0].connect(pair(&devices[0]), to, &settings, WAIT);
        (one.unwrap(), accepting.join().unwrap())
    });
    // Each order of the ends is a way of programs: all of them are allowed.
    match round % 3 {
        0 => {
            drop(ends);
            drop((listener, managers));
            for device in devices {
                let report = device.shutdown();
                assert!(report.failures.is_empty() && report.leaked_bytes == 0);
            }
        }
        1 => {
            drop(managers);
            drop(devices);
            drop(ends);
        }
        _ => {
            drop(devices);
            drop((ends, listener));
            drop(managers);
        }
    }
}

#[test]
fn devices_that_are_gone_leave_no_descriptor_thread_mapping_or_memory() {
    const ROUNDS: u32 = 60;
    /// Less than 50 bytes of each device of each round.
    const MOST_BYTES: isize = 6_000;
    // The first rounds fill what a process keeps: tables of the library, and arenas.
    for round in 0..ROUNDS / 3 {
        live(round);
    }
    let (before, bytes) = (possessions(), LIVE.load(Ordering::Relaxed));
    for round in 0..ROUNDS {
        live(round);
    }
    let (after, later) = (possessions(), LIVE.load(Ordering::Relaxed));
    for (name, (before, after)) in ["descriptors", "threads", "mappings"]
        .iter()
        .zip(before.into_iter().zip(after))
    {
        // Arenas come and go with the threads that run at a time.
        let most = before + if *name == "mappings" { 10 } else { 0 };
        assert!(after <= most, "{name}: {before}, then {after}");
    }
    let grown = later - bytes;
    assert!(grown < MOST_BYTES, "{grown} bytes in {ROUNDS} rounds");
}
