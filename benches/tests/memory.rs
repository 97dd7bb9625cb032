//! The memory of a queue pair besides the pages of its rings: on the heap, in DMA memory, in the
//! host memory cache, and its share of everything that grows with the number of queue pairs.

use ringside_pmd::Device;
use ringside_pmd::rdma::QueuePairConfig;
use ringside_spec::verbs::sizes::{element_shift, receive_ring_quanta, send_ring_quanta};
use ringside_testkit::{bring_up_all, config, shut_down, threaded};

const COUNT: usize = 500;
const DEPTH: u32 = 64;

/// Bytes in use: of the pool, and in the host memory cache.
fn in_use(device: &Device) -> (usize, u64) {
    let cache = device.object_usage().unwrap().host_memory_cache_bytes;
    (device.pool().unwrap().usage().used_bytes, cache)
}

/// Bytes of the pages of both rings, one fragment a request.
fn ring_bytes() -> usize {
    let send = send_ring_quanta(DEPTH, element_shift(2, 0)).unwrap();
    let receive = receive_ring_quanta(DEPTH, element_shift(1, 0)).unwrap();
    [send, receive]
        .map(|quanta| (quanta as usize * 32).next_multiple_of(4096))
        .iter()
        .sum()
}

#[test]
fn a_queue_pair_of_depth_64_takes_at_most_16_kib_besides_its_rings() {
    let model = threaded();
    let mut config = config();
    config.rdma.queue_pairs = COUNT as u32;
    let [device] = bring_up_all(|index| model.function(index), &config);
    let domain = device.protection_domain().unwrap();
    let completions = device.completion_queue(4096).unwrap();
    let wanted = QueuePairConfig::reliable(&completions)
        .send_requests(DEPTH)
        .receive_requests(DEPTH);
    let before = in_use(&device);
    let mut made = Vec::with_capacity(COUNT);
    let counted = allocation_counter::measure(|| {
        made.extend((0..COUNT).map(|_| domain.queue_pair(wanted.clone()).unwrap()));
    });
    let after = in_use(&device);
    let heap = counted.bytes_current as usize / COUNT;
    let dma = (after.0 - before.0) / COUNT;
    let cache = (after.1 - before.1) as usize / COUNT;
    println!(
        "{} bytes besides rings of {}: {heap} on the heap, {} of DMA memory, {cache} of host memory cache",
        heap + dma + cache - ring_bytes(),
        ring_bytes(),
        dma - ring_bytes(),
    );
    assert!(dma >= ring_bytes(), "{dma} bytes with the rings");
    assert!(heap + dma + cache - ring_bytes() <= 16 << 10);
    // and all of it is freed
    drop(made);
    assert_eq!(in_use(&device).0, before.0);
    drop((completions, domain));
    shut_down([device]);
}
