//! A process that opens and shuts down devices again and again: nothing of them stays.

mod managed;

use cap::Cap;
use managed::{PORT, WAIT, connect_to};
use ringside::connect::Settings;
use ringside::prelude::*;
use std::alloc::System;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Counts the bytes that are allocated now, of all threads.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn open(index: u16) -> Device {
    let mut config = Config::default();
    config.model.functions = 2;
    let last = index + 1;
    config.network.addresses = vec![format!("10.1.0.{last}/24").parse().unwrap()];
    ringside::open(&format!("model:{index}"), &config).unwrap()
}

/// Descriptors and threads of the process, and mappings of its memory.
fn possessions() -> [usize; 3] {
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    [
        count("/proc/self/fd"),
        count("/proc/self/task"),
        maps.lines().count(),
    ]
}

/// One life: two devices that are connected, and end.
fn live(round: u32) {
    let devices = [open(0), open(1)];
    let managers = devices
        .each_ref()
        .map(|one| one.connection_manager().unwrap());
    let to = [10, 1, 0, 2].into();
    let listener = managers[1].listen(SocketAddr::new(to, PORT), 4).unwrap();
    let (near, far) = ((&devices[0], &managers[0]), (&devices[1], &listener));
    let ends = connect_to(near, far, to, &Settings::default());
    // Each order of the ends is a way of programs: all of them are allowed.
    match round % 3 {
        0 => {
            drop((ends, listener));
            drop(managers);
            for device in devices {
                let report = device.shutdown();
                assert!(report.failures.is_empty() && report.leaked_bytes == 0);
            }
        }
        1 => {
            drop(managers);
            drop(devices);
            drop((ends, listener));
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
    const MOST_BYTES: usize = 6_000;
    // The first rounds fill what a process keeps: tables of the library, and arenas.
    for round in 0..ROUNDS / 3 {
        live(round);
    }
    let (before, bytes) = (possessions(), ALLOCATOR.allocated());
    for round in 0..ROUNDS {
        live(round);
    }
    let later = ALLOCATOR.allocated();
    // A thread that was joined leaves /proc a moment later. Arenas come and go with the threads
    // that run at a time.
    let is_as_before = |after: [usize; 3]| {
        after[0] <= before[0] && after[1] <= before[1] && after[2] <= before[2] + 10
    };
    let limit = Instant::now() + WAIT;
    loop {
        let after = possessions();
        if is_as_before(after) {
            break;
        }
        assert!(
            Instant::now() < limit,
            "descriptors, threads, mappings: {before:?}, then {after:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let grown = later.saturating_sub(bytes);
    assert!(grown < MOST_BYTES, "{grown} bytes in {ROUNDS} rounds");
}
