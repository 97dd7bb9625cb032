//! Receive descriptors of the driver's packet queues: words that a device wrote, in any order, with
//! any length, layout and chain.
//!
//! Checked: each packet lies in buffers of the pool, has at most five of them, and is as long as
//! they say; its time stamp is near the device's time; packets that are dropped are counted; each
//! buffer is in one hand, and comes back once.

use crate::hostile::Rig;
use crate::source::Source;
use ringside_bus::Doorbell;
use ringside_lan::{Burst, PacketPool, PoolSettings, ReceiveQueue, ReceiveSettings, Service};
use ringside_spec::lan::receive::{
    DESCRIPTOR_BYTES, MAX_BUFFERS_PER_PACKET, WriteBack0, WriteBack1, profile,
};
use std::sync::Arc;

const DESCRIPTORS: u16 = 64;
const BUFFERS: u32 = 192;
const BUFFER_BYTES: u16 = 256;

/// The time that completes time stamps.
const DEVICE_TIME: u64 = 5 << 32;

thread_local! {
    static RIG: Rig = Rig::new();
}

/// The first two words of a descriptor of the queue's layout: a length and an end of the fuzzer's.
fn likely(source: &mut Source<'_>) -> [u64; 2] {
    let end = source.flag();
    let bytes = u64::from(source.half() & 0x1FF);
    let first = WriteBack0::ZERO
        .with_profile(profile::NIC.into())
        .with_bytes(bytes);
    let status = WriteBack1::ZERO.with_done(true).with_end_of_packet(end);
    [first.0, status.0]
}

/// Takes what has come and looks at all of it.
fn take(queue: &mut ReceiveQueue, burst: &mut Burst) {
    let before = queue.counters().packets;
    let count = queue.receive(burst);
    assert_eq!(queue.counters().packets - before, count as u64);
    for packet in burst.packets_mut() {
        let segments: Vec<usize> = packet.segments().map(|one| one.length()).collect();
        assert!(
            segments.len() <= usize::from(MAX_BUFFERS_PER_PACKET),
            "{segments:?}"
        );
        assert!(
            segments.iter().all(|length| (1..=256).contains(length)),
            "{segments:?}"
        );
        assert_eq!(segments.iter().sum::<usize>(), packet.length());
        assert_eq!(packet.to_vec().len(), packet.length());
        let near = |stamp: u64| stamp.abs_diff(DEVICE_TIME) <= 1 << 31;
        assert!(packet.timestamp().is_none_or(near));
        packet.bytes_mut().expect("the only handle").fill(0xA5);
    }
}

/// See the module.
pub fn receive_descriptors(bytes: &[u8]) {
    RIG.with(|rig| {
        let sizes = PoolSettings {
            buffers: BUFFERS,
            buffer_bytes: BUFFER_BYTES,
            headroom_bytes: 64,
        };
        let pool = PacketPool::new(&rig.pool, sizes).expect("memory");
        pool.note_device_time(Some(DEVICE_TIME));
        let ring = rig
            .pool
            .allocate(usize::from(DESCRIPTORS) * DESCRIPTOR_BYTES, 4096);
        let ring = ring.expect("memory");
        let words = ring.words();
        let settings = ReceiveSettings {
            descriptors: DESCRIPTORS,
            frame_bytes_max: BUFFER_BYTES * MAX_BUFFERS_PER_PACKET,
            path: None,
        };
        let bell = Doorbell::message(|_| {});
        let control = Arc::new(());
        let made = ReceiveQueue::new(settings, ring, pool.clone(), bell, Service::new(), control);
        let mut queue = made.expect("possible sizes");
        queue.start().expect("no device refuses it");
        let mut source = Source::new(bytes);
        let mut next = 0;
        while !source.is_empty() {
            let step = source.byte();
            match step & 3 {
                // Anything, anywhere.
                0 => {
                    let place = usize::from(step >> 2) * 4;
                    for (index, word) in source.words::<4>().into_iter().enumerate() {
                        words.store(place + index, word);
                    }
                }
                // What a device would write, where it would write it.
                1 | 2 => {
                    let [first, status] = likely(&mut source);
                    words.store(next * 4, first);
                    words.store_release(next * 4 + 1, status);
                    next = (next + 1) % usize::from(DESCRIPTORS);
                }
                _ => {
                    let mut burst = Burst::with_limit(1 + usize::from(step >> 2));
                    take(&mut queue, &mut burst);
                    assert!(pool.usage().in_use <= BUFFERS);
                }
            }
        }
        take(&mut queue, &mut Burst::with_limit(64));
        queue.stop().expect("no device refuses it");
        assert_eq!(pool.usage().in_use, 0, "a buffer is missing");
    });
}
