use super::*;
use crate::testing::QueueParts;
use std::collections::BTreeSet;

#[test]
fn every_buffer_is_handed_out_once_and_comes_back() {
    let bench = QueueParts::new();
    // Not a multiple of a magazine.
    let pool = bench.pool(1000);
    for _ in 0..3 {
        let packets: Vec<_> = std::iter::from_fn(|| pool.packet()).collect();
        assert_eq!(packets.len(), 1000);
        let buffers: BTreeSet<u32> = packets.iter().map(|packet| packet.buffer).collect();
        assert_eq!(buffers.len(), 1000);
        assert_eq!(pool.usage().in_use, 1000);
        drop(packets);
        assert_eq!(pool.usage().in_use, 0);
    }
}

/// Sizes out of range.
#[test]
fn sizes_out_of_range_are_refused_by_name() {
    let bench = QueueParts::new();
    let with = |buffers, buffer_bytes, headroom_bytes| PoolSettings {
        buffers,
        buffer_bytes,
        headroom_bytes,
    };
    for wrong in [
        with(0, 2048, 128),
        with(64, 100, 128),
        with(64, 16384, 128),
        with(64, 2048, 100),
    ] {
        let error = PacketPool::new(&bench.dma, wrong).unwrap_err();
        assert!(matches!(error, PoolError::Size { .. }), "{error}");
    }
}

#[test]
fn buffers_given_back_by_other_threads_are_found_again() {
    let bench = QueueParts::new();
    let pool = bench.pool(4096);
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<Packet>>(4);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for packets in receiver {
                drop(packets);
            }
        });
        let mut sent = 0;
        while sent < 40_000 {
            let mut packets = Vec::new();
            for _ in 0..57 {
                packets.extend(pool.packet());
            }
            sent += packets.len();
            if packets.is_empty() {
                std::thread::yield_now();
            }
            sender.send(packets).unwrap();
        }
        drop(sender);
    });
    assert_eq!(pool.usage().in_use, 0);
}

/// Four threads take and give at random; each writes its mark into what it holds and finds it
/// there.
#[test]
fn no_buffer_is_in_two_hands() {
    use rand::{Rng, SeedableRng};
    let bench = QueueParts::new();
    let pool = bench.pool(600);
    let shelf: crossbeam_queue::ArrayQueue<(u64, Packet)> = crossbeam_queue::ArrayQueue::new(128);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (pool, shelf) = (&pool, &shelf);
            scope.spawn(move || {
                let mut random = rand::rngs::SmallRng::seed_from_u64(thread);
                let mut held: Vec<(u64, Packet)> = Vec::new();
                for step in 0..20_000u64 {
                    match random.random_range(0..4) {
                        0 | 1 => {
                            let mark = thread << 32 | step;
                            if let Some(mut packet) = pool.packet() {
                                packet.append(&mark.to_le_bytes()).unwrap();
                                held.push((mark, packet));
                            }
                        }
                        2 if !held.is_empty() => {
                            let index = random.random_range(0..held.len());
                            let (mark, packet) = held.swap_remove(index);
                            assert_eq!(packet.bytes(), mark.to_le_bytes());
                        }
                        // Hands one to another thread.
                        _ => {
                            if let Some(one) = held.pop() {
                                let _ = shelf.push(one);
                            }
                            if let Some((mark, packet)) = shelf.pop() {
                                assert_eq!(packet.bytes(), mark.to_le_bytes());
                                held.push((mark, packet));
                            }
                        }
                    }
                }
            });
        }
    });
    drop(shelf);
    assert_eq!(pool.usage().in_use, 0);
    let all: Vec<_> = std::iter::from_fn(|| pool.packet()).collect();
    assert!(all.len() >= 600 - 4 * 128, "caches of ended threads");
}

#[test]
fn a_packet_outlives_its_pool() {
    let bench = QueueParts::new();
    let pool = bench.pool(64);
    let packet = pool.packet_with(b"still here").unwrap();
    drop(pool);
    assert_eq!(packet.bytes(), b"still here");
}

#[test]
fn the_memory_of_a_dropped_pool_is_freed_once_its_last_packet_is_gone() {
    let bench = QueueParts::new();
    let before = bench.dma.usage().used_bytes;
    let pool = bench.pool(64);
    let with_pool = bench.dma.usage().used_bytes;
    assert!(with_pool > before);
    let mut packets = vec![pool.packet_with(b"first").unwrap()];
    let shared = packets[0].share();
    packets.push(shared);
    drop(pool);
    for left in (0..2).rev() {
        PacketPool::free_dropped();
        assert_eq!(bench.dma.usage().used_bytes, with_pool);
        assert_eq!(packets[left].bytes(), b"first");
        packets.truncate(left);
    }
    // Another pool that is made frees it too, and so does one that is dropped.
    drop(bench.pool(64));
    assert_eq!(bench.dma.usage().used_bytes, before);
}

/// Packets of a dropped pool end in another thread while pools are made and dropped here.
#[test]
fn dropped_pools_are_freed_once_while_their_packets_end_elsewhere() {
    let bench = QueueParts::new();
    let before = bench.dma.usage().used_bytes;
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Packet>(64);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for packet in receiver {
                assert_eq!(packet.bytes(), b"in flight");
            }
        });
        for _ in 0..200 {
            let pool = bench.pool(128);
            for _ in 0..32 {
                sender
                    .send(pool.packet_with(b"in flight").unwrap())
                    .unwrap();
            }
        }
        drop(sender);
    });
    PacketPool::free_dropped();
    assert_eq!(bench.dma.usage().used_bytes, before);
}

/// All buffers of a pool. Threads of other tests may have the numbers of ended ones for a while.
fn take_all(pool: &PacketPool, count: usize) -> Vec<Packet> {
    let mut all = Vec::new();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while all.len() < count {
        all.extend(pool.packet());
        assert!(std::time::Instant::now() < end, "{} of {count}", all.len());
    }
    let buffers: BTreeSet<u32> = all.iter().map(|packet| packet.buffer).collect();
    assert_eq!(buffers.len(), all.len(), "a buffer came twice");
    all
}

#[test]
fn buffers_in_the_caches_of_ended_threads_are_found_again() {
    let bench = QueueParts::new();
    let pool = bench.pool(256);
    // Alive until the end, so that this thread has a number of its own.
    drop(pool.packet());
    for _ in 0..20 {
        let all = take_all(&pool, 256);
        // Another thread gives them back: 128 of them stay in its cache when it ends.
        std::thread::scope(|scope| scope.spawn(move || drop(all)).join().unwrap());
        assert_eq!(pool.usage().in_use, 0);
    }
}

#[test]
fn threads_that_end_while_others_take_lose_no_buffer() {
    let bench = QueueParts::new();
    let pool = bench.pool(512);
    for _ in 0..50 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut held = Vec::new();
                    for round in 0..200 {
                        held.extend(pool.packet());
                        if round % 3 == 0 {
                            held.clear();
                        }
                    }
                });
            }
        });
        assert_eq!(pool.usage().in_use, 0);
    }
    let all = take_all(&pool, 512);
    let distinct: BTreeSet<u32> = all.iter().map(|packet| packet.buffer).collect();
    assert_eq!(distinct.len(), 512);
}

/// A magazine that a thread emptied goes back to the depot: else there is none to fill one day, and
/// buffers go through the queue of strays.
#[test]
fn empty_magazines_are_used_again() {
    let bench = QueueParts::new();
    let pool = bench.pool(4096);
    for _ in 0..5 {
        let packets: Vec<_> = std::iter::from_fn(|| pool.packet()).collect();
        assert_eq!(packets.len(), 4096);
        drop(packets);
        assert_eq!(pool.shared().strays(), 0);
    }
}

/// More threads than caches: those without one take whole magazines apart.
#[test]
fn threads_without_a_cache_lose_no_buffer() {
    const THREADS: usize = 80;
    let bench = QueueParts::new();
    let pool = bench.pool(640);
    let barrier = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                // All numbers are taken from here on.
                drop(pool.packet());
                barrier.wait();
                for _ in 0..4 {
                    let packets: Vec<_> = (0..8).filter_map(|_| pool.packet()).collect();
                    std::thread::yield_now();
                    drop(packets);
                }
                barrier.wait();
            });
        }
    });
    assert_eq!(pool.usage().in_use, 0);
    assert_eq!(take_all(&pool, 640).len(), 640);
}
