use super::*;
use crate::memory::PageSize;

fn space() -> (DmaSpace, Memory) {
    let memory = Memory::allocate(16384, PageSize::FourKiB, None).unwrap();
    let mut space = DmaSpace::new();
    space.set_bus_master(true);
    assert!(space.map(Iova(0x10000), &memory, 0, 8192, DmaAccess::ReadWrite));
    assert!(space.map(Iova(0x12000), &memory, 8192, 4096, DmaAccess::Read));
    (space, memory)
}

#[test]
fn accesses_reach_the_mapped_memory_and_nothing_else() {
    let (space, memory) = space();
    space.write(Iova(0x10FFE), &[1, 2, 3, 4]).unwrap();
    let mut bytes = [0; 4];
    assert!(memory.read(0xFFE, &mut bytes));
    assert_eq!(bytes, [1, 2, 3, 4]);
    for (iova, length) in [
        (0xFFFF, 1),
        (0x13000, 1),
        (0x12FFF, 2),
        (u64::MAX, 2),
        (0, 1),
    ] {
        let mut buffer = vec![0; length];
        assert!(space.read(Iova(iova), &mut buffer).is_err(), "{iova:#x}");
    }
}

/// A pattern without two equal bytes side by side.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn a_few_bytes_move_at_once_as_a_read_and_a_write_of_them_would() {
    let lengths = [0, 1, 7, 8, 9, 16, 64, 65, 127, 128];
    let places = [
        0x10100, 0x10101, 0x10104, 0x10108, 0x10140, 0x10FF8, 0x11008,
    ];
    for length in lengths {
        for (from, to) in places
            .into_iter()
            .flat_map(|from| places.map(|to| (from, to)))
        {
            let (once, memory) = space();
            let (twice, other) = space();
            assert!(memory.write(0, &pattern(8192)) && other.write(0, &pattern(8192)));
            let moved = DmaSpace::copy_plainly(&once, Iova(from), &once, Iova(to), length);
            assert!(moved, "{length} bytes from {from:#x} to {to:#x}");
            let mut bytes = vec![0; length];
            twice.read(Iova(from), &mut bytes).unwrap();
            twice.write(Iova(to), &bytes).unwrap();
            let [mut moved, mut expected] = [(); 2].map(|()| vec![0; 8192]);
            assert!(memory.read(0, &mut moved) && other.read(0, &mut expected));
            assert!(
                moved == expected,
                "{length} bytes from {from:#x} to {to:#x}"
            );
        }
    }
}

#[test]
fn a_few_bytes_do_not_move_at_once_where_a_check_might_fail() {
    let (mut space, _memory) = space();
    let moves = |space: &DmaSpace, from, to, length| {
        DmaSpace::copy_plainly(space, Iova(from), space, Iova(to), length)
    };
    assert!(moves(&space, 0x10000, 0x10100, 8) && moves(&space, 0x12000, 0x10100, 8));
    let refused = [
        (0x10000, 0x12000, 8),
        (0x11FFC, 0x10000, 8),
        (0x10000, 0x11FFC, 8),
        (0x13000, 0x10000, 8),
        (0x10000, 0xFFF8, 8),
        (u64::MAX, 0x10000, 8),
        (0x10000, 0x10800, 129),
    ];
    for (from, to, length) in refused {
        assert!(!moves(&space, from, to, length), "{from:#x} to {to:#x}");
    }
    assert_eq!(space.take_refused(), []);
    space.set_bus_master(false);
    assert!(!moves(&space, 0x10000, 0x10100, 8));
    space.set_bus_master(true);
    space.set_refusals(&[Refusal {
        direction: Some(Direction::Write),
        accesses: Some(1),
        first: Iova(0x10100),
        bytes: 8,
    }]);
    assert!(!moves(&space, 0x10000, 0x10100, 8) && space.refusals() == 0);
}

#[test]
fn read_only_mappings_refuse_writes_and_copies_into_them() {
    let (space, _memory) = space();
    let error = space.write(Iova(0x12000), &[0]).unwrap_err();
    assert_eq!(
        error,
        DmaFault::ReadOnly {
            iova: Iova(0x12000),
            length: 1
        }
    );
    // half of it lies in the writable mapping beside it, which stays unchanged
    assert!(space.write(Iova(0x11FFF), &[7, 7]).is_err());
    let mut bytes = [1; 2];
    space.read(Iova(0x11FFF), &mut bytes).unwrap();
    assert_eq!(bytes, [0, 0]);
    assert!(DmaSpace::copy(&space, Iova(0x10000), &space, Iova(0x12000), 8).is_err());
    DmaSpace::copy(&space, Iova(0x12000), &space, Iova(0x10000), 8).unwrap();
}

#[test]
fn a_refused_access_is_reported_once_with_its_first_unavailable_address() {
    let (space, memory) = space();
    let read = |iova| RefusedAccess {
        iova: Iova(iova),
        written: None,
    };
    let write = |iova, bytes: &[u8]| RefusedAccess {
        iova: Iova(iova),
        written: Some(bytes.to_vec()),
    };
    let mut buffer = [0; 16];
    assert!(space.read(Iova(0x12FF8), &mut buffer).is_err());
    assert!(space.read(Iova(0x20000), &mut buffer[..1]).is_err());
    assert!(space.write(Iova(0x11FFF), &[1, 2, 3]).is_err());
    let pattern: Vec<u8> = (0..16).collect();
    space.write(Iova(0x10000), &pattern).unwrap();
    assert!(DmaSpace::copy(&space, Iova(0x10000), &space, Iova(0x20000), 16).is_err());
    assert!(DmaSpace::copy(&space, Iova(0x10003), &space, Iova(0x20000), 1).is_err());
    assert!(DmaSpace::copy(&space, Iova(0x20000), &space, Iova(0x10000), 16).is_err());
    let told = space.take_refused();
    let expected = [
        read(0x13000),
        read(0x20000),
        write(0x12000, &[2, 3]),
        write(0x20000, &pattern[..8]),
        write(0x20000, &[3]),
        read(0x20000),
    ];
    assert_eq!(told, expected);
    // neither a view that is not available nor a call while bus mastering is off counts as an
    // access
    assert!(space.words(Iova(0x20000), 8).is_err());
    let mut off = DmaSpace::new();
    assert!(off.map(Iova(0x10000), &memory, 0, 4096, DmaAccess::ReadWrite));
    assert!(off.read(Iova(0x20000), &mut buffer).is_err());
    assert!(space.take_refused().is_empty() && off.take_refused().is_empty());
    for _ in 0..2 * MAX_REFUSED {
        assert!(space.read(Iova(0x20000), &mut buffer).is_err());
    }
    assert_eq!(space.take_refused().len(), MAX_REFUSED);
}

#[test]
fn overlapping_wrapping_and_empty_mappings_are_refused() {
    let (mut space, memory) = space();
    for (iova, offset, length) in [
        (0x11000, 0, 4096),
        (0xF000, 0, 8192),
        (0x20000, 0, 0),
        (0x20000, 16384, 1),
        (u64::MAX, 0, 4096),
    ] {
        assert!(!space.map(Iova(iova), &memory, offset, length, DmaAccess::ReadWrite));
    }
    assert_eq!(space.mappings().count(), 2);
}

#[test]
fn unmapped_memory_is_unreachable_and_the_generation_changes() {
    let (mut space, _memory) = space();
    let generation = space.generation();
    assert_eq!(
        space.unmap(Iova(0x10000), 4096),
        0,
        "a mapping is not split"
    );
    assert_eq!(space.unmap(Iova(0x10000), 8192), 1);
    assert!(space.generation() > generation);
    assert!(space.read(Iova(0x10000), &mut [0]).is_err());
}

#[test]
fn nothing_is_reached_while_bus_mastering_is_off() {
    let (mut space, _memory) = space();
    space.set_bus_master(false);
    let error = space.read(Iova(0x10000), &mut [0]).unwrap_err();
    assert_eq!(
        error,
        DmaFault::BusMasterOff {
            iova: Iova(0x10000)
        }
    );
}

#[test]
fn only_the_accesses_of_a_refusal_are_refused_until_it_is_used_up_or_lifted() {
    let (mut space, _memory) = space();
    let mut bytes = [0; 8];
    let refused = |result: Result<(), DmaFault>| match result {
        Err(DmaFault::Refused { direction, .. }) => Some(direction),
        Err(other) => panic!("{other}"),
        Ok(()) => None,
    };
    let generation = space.generation();
    space.set_refusals(&[Refusal {
        direction: Some(Direction::Write),
        accesses: Some(2),
        first: Iova(0x10100),
        bytes: 0x100,
    }]);
    assert!(space.generation() > generation);
    assert_eq!(refused(space.read(Iova(0x10100), &mut bytes)), None);
    assert_eq!(refused(space.write(Iova(0x100F8), &bytes)), None);
    assert_eq!(refused(space.write(Iova(0x10200), &bytes)), None);
    let write = Some(Direction::Write);
    assert_eq!(refused(space.write(Iova(0x100FC), &bytes)), write);
    let copied = DmaSpace::copy(&space, Iova(0x10000), &space, Iova(0x101F8), 16);
    assert_eq!(refused(copied), write);
    assert_eq!(refused(space.write(Iova(0x10100), &bytes)), None, "spent");
    assert_eq!((space.refusals(), space.take_refused().len()), (2, 0));
    space.set_refusals(&[Refusal::EVERYTHING]);
    let read = Some(Direction::Read);
    assert_eq!(refused(space.read(Iova(0x12000), &mut bytes)), read);
    assert!(space.words(Iova(0x10000), 64).is_err());
    space.set_refusals(&[]);
    assert_eq!(refused(space.write(Iova(0x10100), &bytes)), None);
    assert!(space.words(Iova(0x10000), 64).is_ok());
}

#[test]
fn each_refusal_has_a_count_of_its_own_and_one_that_is_used_up_hides_no_other() {
    let (mut space, _memory) = space();
    let mut bytes = [0; 8];
    let one = |direction, accesses| Refusal {
        direction: Some(direction),
        accesses,
        ..Refusal::EVERYTHING
    };
    let (spent, reads) = (
        one(Direction::Write, Some(1)),
        one(Direction::Read, Some(2)),
    );
    space.set_refusals(&[spent]);
    assert!(space.write(Iova(0x10100), &bytes).is_err());
    assert!(space.write(Iova(0x10100), &bytes).is_ok());
    space.set_refusals(&[spent, reads]);
    assert!(space.read(Iova(0x10100), &mut bytes).is_err());
    assert!(space.write(Iova(0x10100), &bytes).is_ok(), "spent before");
    assert_eq!(space.refusals(), 2);
    let lasting = one(Direction::Write, None);
    space.set_refusals(&[spent, reads, lasting]);
    assert!(space.write(Iova(0x10100), &bytes).is_err());
    assert!(space.read(Iova(0x10100), &mut bytes).is_err());
    assert!(space.read(Iova(0x10100), &mut bytes).is_ok(), "spent");
    // The same once more counts again.
    space.set_refusals(&[spent, lasting, reads, reads]);
    assert!(space.read(Iova(0x10100), &mut bytes).is_err());
    assert!(space.read(Iova(0x10100), &mut bytes).is_err());
    assert!(space.read(Iova(0x10100), &mut bytes).is_ok(), "spent");
    space.set_refusals(&[spent]);
    assert!(space.write(Iova(0x10100), &bytes).is_ok());
}

#[test]
fn a_range_over_adjacent_mappings_is_accessed_as_one() {
    let memories = [0; 4].map(|_: i32| Memory::allocate(4096, PageSize::FourKiB, None).unwrap());
    let mut space = DmaSpace::new();
    space.set_bus_master(true);
    for (index, memory) in memories.iter().enumerate().take(3) {
        let iova = Iova(0x10000 + index as u64 * 0x1000);
        assert!(space.map(iova, memory, 0, 4096, DmaAccess::ReadWrite));
    }
    assert!(space.map(Iova(0x20000), &memories[3], 0, 4096, DmaAccess::ReadWrite));
    let pattern: Vec<u8> = (0..8000).map(|at| (at % 251) as u8).collect();
    space.write(Iova(0x10F00), &pattern).unwrap();
    let mut arrived = vec![0; 8000];
    space.read(Iova(0x10F00), &mut arrived).unwrap();
    assert!(arrived == pattern);
    let copied = DmaSpace::copy(&space, Iova(0x10F00), &space, Iova(0x20000), 4096);
    assert_eq!(copied, Ok(()));
    let mut copy = vec![0; 4096];
    space.read(Iova(0x20000), &mut copy).unwrap();
    assert!(copy == pattern[..4096]);
    // A range with a gap is not accessed at all, neither before the gap nor after it.
    let before = arrived.clone();
    let fault = space.write(Iova(0x12F00), &[0xEE; 4096]).unwrap_err();
    assert!(matches!(fault, DmaFault::NotMapped { .. }), "{fault}");
    space.read(Iova(0x10F00), &mut arrived).unwrap();
    assert!(arrived == before);
    assert!(space.check(Iova(0x20800), 4096, DmaAccess::Read).is_err());
    let left = DmaSpace::copy(&space, Iova(0x10000), &space, Iova(0x20001), 4096);
    assert!(left.is_err());
}

#[test]
fn memory_that_a_program_unmapped_without_telling_is_named_with_its_direction() {
    let own = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/proc/self/mem");
    let own = std::sync::Arc::new(own.unwrap().into());
    // Nothing is ever mapped at the second page of an address space.
    let nowhere = Memory::of_peer(own, 4096, 4096).unwrap();
    let (mut space, _memory) = space();
    assert!(space.map(Iova(0x20000), &nowhere, 0, 4096, DmaAccess::ReadWrite));
    let mut bytes = [0; 8];
    let faults = [
        space.read(Iova(0x20010), &mut bytes),
        space.write(Iova(0x20010), &bytes),
        DmaSpace::copy(&space, Iova(0x20010), &space, Iova(0x10000), 8),
        DmaSpace::copy(&space, Iova(0x10000), &space, Iova(0x20010), 8),
    ];
    use Direction::{Read, Write};
    for (fault, direction) in faults.into_iter().zip([Read, Write, Read, Write]) {
        let expected = DmaFault::Gone {
            iova: Iova(0x20010),
            length: 8,
            direction,
            owner_ended: false,
        };
        assert_eq!(fault, Err(expected));
    }
}
