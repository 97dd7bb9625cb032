//! Memory that was taken from the device: it is refused, reported, and nobody else notices.

use crate::pair::Pair;
use ringside_bus::function::DmaAccess;
use ringside_pmd::rdma::{Access, Completion, Event, Flags, Status};

/// Larger than any block that is there already, so that it gets one of its own.
const BYTES: usize = 8 << 20;

#[test]
fn memory_that_was_unmapped_is_refused_and_only_its_queue_pair_fails() {
    refused_when_unmapped(4096, &[]);
}

/// The device takes so little along when it looks at the request.
#[test]
fn a_short_message_from_memory_that_was_unmapped_is_refused_as_well() {
    refused_when_unmapped(64, &["the device is given memory that is not mapped"]);
}

fn refused_when_unmapped(length: usize, breaches: &[&str]) {
    let mut pair = Pair::new();
    let (good_from, to) = (pair.a.region(4096), pair.b.region(4096));
    let buffer = pair.a.device.allocate(BYTES).expect("memory");
    let iova = buffer.iova();
    let (memory, offset) = buffer.memory();
    let memory = memory.clone();
    assert_eq!((offset, memory.length()), (0, BYTES), "a block of its own");
    let from = pair
        .a
        .domain
        .register(buffer, Access::ALL)
        .expect("a region");
    let (mut doomed, doomed_peer) = pair.connect(|config| config);
    let (mut neighbour, neighbour_peer) = pair.connect(|config| config);
    let fragment = from.slice(0..length).unwrap();
    let remote = to.remote().at(0);
    doomed
        .write(1, &[fragment], remote, Flags::SIGNALLED)
        .unwrap();
    doomed.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);

    // Behind the driver's back: the region is still registered, its memory is not mapped any more.
    let function = pair.a.device.function().clone();
    function.unmap_dma(iova, BYTES as u64).expect("unmap");
    doomed
        .write(2, &[fragment], remote, Flags::SIGNALLED)
        .unwrap();
    doomed.ring();
    let (mut done, mut events) = (Vec::new(), Vec::new());
    let mut batch = [Completion::EMPTY; 16];
    for _ in 0..200_000 {
        events.extend(pair.a.events());
        done.extend_from_slice(pair.a.completions.poll(&mut batch));
        if !done.is_empty() {
            break;
        }
        pair.pass();
    }
    let ended: Vec<_> = done
        .iter()
        .map(|done| (done.id, done.is_success()))
        .collect();
    assert_eq!(ended, [(2, false)], "{events:?}");
    let told = events.iter().any(|event| {
        matches!(event, Event::QueuePairFailed { queue_pair, .. } if *queue_pair == doomed.number())
    });
    assert!(told, "{events:?}");

    // The neighbour has noticed nothing.
    let fragment = good_from.slice(0..64).unwrap();
    for id in 10..20 {
        neighbour
            .write(id, &[fragment], remote, Flags::SIGNALLED)
            .unwrap();
        neighbour.ring();
        let done = pair.wait_a(1);
        assert_eq!((done[0].id, done[0].status()), (id, Status::Success));
    }
    // Given back, so that the pool finds its block as it left it.
    function
        .map_dma(iova, &memory, 0..BYTES, DmaAccess::ReadWrite)
        .expect("map");
    drop((doomed, doomed_peer, neighbour, neighbour_peer));
    drop((from, good_from, to));
    pair.finish_with(breaches);
}
