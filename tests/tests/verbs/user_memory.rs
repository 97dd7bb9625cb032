//! Memory that the application brings.

use ringside_pmd::rdma::{Access, Completion, Flags, Memory, RdmaError, Status};
use ringside_testkit::Pair;

/// Bytes of a region that begins and ends anywhere.
const LENGTH: usize = 10_001;

#[test]
fn a_peer_reads_and_writes_owned_bytes_and_they_come_back() {
    let mut pair = Pair::new();
    let (mut mine, mut theirs) = pair.connect(|config| config);
    let before = pair.a.device.pool().unwrap().usage();
    let bytes: Vec<u8> = (0..LENGTH).map(|index| index as u8).collect();
    let buffer = pair.a.device.map_memory(bytes.clone()).unwrap();
    let region = pair.a.domain.register(buffer, Access::ALL).unwrap();
    assert_eq!(region.length(), LENGTH);
    let copy = pair.b.region(16_384);
    let place = [copy.slice(0..LENGTH).unwrap()];
    theirs
        .read(1, &place, region.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    theirs.ring();
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    let mut seen = vec![0; LENGTH];
    assert!(copy.read(0, &mut seen));
    assert_eq!(seen, bytes);
    assert!(copy.write(0, &[0xEE; 200]));
    let last = LENGTH as u64 - 200;
    let place = [copy.slice(0..200).unwrap()];
    theirs
        .write(2, &place, region.remote().at(last), Flags::SIGNALLED)
        .unwrap();
    theirs.ring();
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    // And it sends from it.
    let piece = [region.slice(LENGTH - 201..LENGTH).unwrap()];
    mine.write(3, &piece, copy.remote().at(8192), Flags::SIGNALLED)
        .unwrap();
    mine.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);
    let [buffer] = <[_; 1]>::try_from(region.deregister().unwrap()).unwrap();
    let bytes = buffer.into_memory().unwrap().into_boxed().unwrap();
    assert!(bytes[LENGTH - 200..].iter().all(|byte| *byte == 0xEE));
    assert_eq!(bytes[LENGTH - 201], (LENGTH - 201) as u8);
    let after = pair.a.device.pool().unwrap().usage();
    assert_eq!(after.used_bytes, before.used_bytes);
    drop((mine, theirs, copy));
    pair.finish();
}

#[test]
fn one_byte_beyond_memory_of_the_application_is_refused_to_a_peer() {
    let mut pair = Pair::new();
    let (_mine, mut theirs) = pair.connect(|config| config);
    let buffer = pair.a.device.map_memory(vec![0u8; LENGTH]).unwrap();
    let region = pair.a.domain.register(buffer, Access::ALL).unwrap();
    let from = pair.b.region(64);
    let place = region.remote().at(LENGTH as u64 - 7);
    theirs
        .write(1, &[from.slice(0..8).unwrap()], place, Flags::SIGNALLED)
        .unwrap();
    theirs.ring();
    let (mut done, mut batch) = (Vec::new(), [Completion::EMPTY; 4]);
    for _ in 0..10_000 {
        pair.b.events();
        done.extend_from_slice(pair.b.completions.poll(&mut batch));
        if !done.is_empty() {
            break;
        }
        pair.pass();
    }
    assert_eq!(done[0].status(), Status::RemoteAccess);
    drop(region);
}

#[test]
fn a_memfd_is_registered_and_seen_by_its_other_owners() {
    let mut pair = Pair::new();
    let (_mine, mut theirs) = pair.connect(|config| config);
    let file = Memory::allocate(16_384, ringside_bus::PageSize::FourKiB, None).unwrap();
    let descriptor = file.descriptor().unwrap().try_clone_to_owned().unwrap();
    let memory = Memory::from_descriptor(descriptor, 16_384).unwrap();
    let buffer = pair.a.device.map_memory(memory).unwrap();
    let region = pair.a.domain.register(buffer, Access::ALL).unwrap();
    let from = pair.b.region(64);
    assert!(from.write(0, b"through the file"));
    let place = region.remote().at(12_288);
    theirs
        .write(1, &[from.slice(0..16).unwrap()], place, Flags::SIGNALLED)
        .unwrap();
    theirs.ring();
    assert_eq!(pair.wait_b(1)[0].status(), Status::Success);
    let mut seen = [0; 16];
    assert!(file.read(12_288, &mut seen));
    assert_eq!(&seen, b"through the file");
    drop((region, from, theirs, _mine));
    pair.finish();
}

#[test]
fn a_thousand_regions_of_the_application_come_and_go_and_nothing_is_left() {
    let pair = Pair::new();
    let used = |pair: &Pair| pair.a.device.pool().unwrap().usage().mapped_bytes;
    let make = |index: usize| {
        let memory = vec![index as u8; 1 + index * 37 % 9000];
        let buffer = pair.a.device.map_memory(memory).unwrap();
        pair.a.domain.register(buffer, Access::ALL).unwrap()
    };
    drop(make(0));
    let before = used(&pair);
    for index in 0..1000 {
        drop(make(index));
    }
    assert_eq!(used(&pair), before);
    let refused = pair.a.device.map_memory(Vec::<u8>::new()).unwrap_err();
    assert!(matches!(refused.error, RdmaError::Memory(_)), "{refused}");
    assert_eq!(refused.memory.length(), 0);
    pair.finish();
}
