use super::*;
use crate::request::{Send, SendInline, SendKind, Write, WriteInline};
use crate::state::{CompletionContext, INDEX_SHIFT};
use ringside_bus::{Memory, PageSize};
use ringside_spec::verbs::{Fragment, SendElement, SendOpcode};
use std::sync::atomic::Ordering;

struct QueueInMemory {
    queue: SendQueue,
    ring: Words,
    page: Words,
}

fn rig(quanta: u32) -> QueueInMemory {
    let length = quanta as usize * 32;
    let memory = Memory::allocate(length.max(4096), PageSize::FourKiB, None).unwrap();
    let page = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    let ring = memory.words(0, length).unwrap();
    let context = CompletionContext::new(3, 1);
    let state = Arc::new(QueuePairState::new(context, 77, quanta, 16, 0));
    let doorbell = Doorbell::mapped(&page, 0).unwrap();
    QueueInMemory {
        queue: SendQueue::new(ring.clone(), doorbell, state).unwrap(),
        ring,
        page: page.words(0, 8).unwrap(),
    }
}

fn write(fragments: &[Fragment]) -> Write<'_> {
    Write {
        fragments,
        remote_address: 0x1000,
        remote_key: 5,
        immediate: None,
    }
}

/// Acts as a device: reads elements from `index` on while their valid bit has the polarity of the
/// pass. Returns operations and positions, and stops where the hardware would stop.
fn consume(ring: &Words, position: &mut u64) -> Vec<(SendOpcode, u64)> {
    let size = ring.count() as u64 / 4;
    let mut found = Vec::new();
    loop {
        let index = *position % size;
        let polarity = (*position / size).is_multiple_of(2);
        let at = index as usize * 4;
        let header = ringside_spec::verbs::SendHeader(ring.load_acquire(at + 3));
        if header.valid() != polarity {
            return found;
        }
        let words: Vec<u64> = (at..at + header.quanta() * 4)
            .map(|i| ring.load(i))
            .collect();
        let element = SendElement::new(&words).unwrap();
        assert_eq!(element.breach(index as u32, polarity, false), None);
        found.push((element.opcode(), *position));
        *position += element.quanta() as u64;
    }
}

/// Checks the invariant of the module's documentation over the whole ring.
fn assert_invariant(rig: &QueueInMemory) {
    let size = rig.queue.state.send.slots() as u64;
    for index in 0..size {
        let bit = rig.ring.load(index as usize * 4 + 3) >> 63 == 1;
        let pass = rig.queue.state.send.head() / size;
        let behind = index < rig.queue.state.send.head() % size;
        let pass_bit = pass.is_multiple_of(2);
        assert_eq!(
            bit,
            pass_bit == behind,
            "index {index}, head {}",
            rig.queue.state.send.head()
        );
    }
}

struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn quanta_ahead_of_the_head_are_invalid_after_every_post_of_any_kind() {
    let mut rig = rig(64);
    let mut noise = Noise(0x9E37_79B9_7F4A_7C15);
    let pieces = [Fragment {
        address: 64,
        length_bytes: 8,
        steering_tag: 1,
    }; 13];
    let data = [0xFF; 101];
    for id in 0..3_000 {
        let count = noise.below(14) as usize;
        let posted = match noise.below(4) {
            0 => rig
                .queue
                .post(id, &write(&pieces[..count]), SendFlags::NONE),
            1 => {
                let length = noise.below(102) as usize;
                let send = SendInline {
                    data: &data[..length],
                    kind: SendKind::Plain,
                };
                rig.queue.post(id, &send, SendFlags::SIGNALLED)
            }
            2 => {
                let kind = SendKind::Immediate(u32::MAX);
                let send = Send {
                    fragments: &pieces[..count],
                    kind,
                };
                rig.queue.post(id, &send, SendFlags::SOLICITED)
            }
            _ => rig.queue.post(id, &Nop, SendFlags::NONE),
        };
        assert_eq!(posted, Ok(()));
        assert_invariant(&rig);
        let head = rig.queue.state.send.head();
        rig.queue.state.send.retire_to(head);
    }
}

#[test]
fn a_device_that_follows_valid_bits_sees_every_request_once_and_in_order() {
    let mut rig = rig(64);
    let mut noise = Noise(0x1234_5678_9ABC_DEF0);
    let pieces = [Fragment::default(); 13];
    let mut position = 0;
    let mut posted = 0u64;
    let mut seen = 0u64;
    while posted < 5_000 {
        let burst = 1 + noise.below(6);
        for _ in 0..burst {
            let count = noise.below(14) as usize;
            match rig
                .queue
                .post(posted, &write(&pieces[..count]), SendFlags::NONE)
            {
                Ok(()) => posted += 1,
                Err(error) => assert_eq!(error, PostSendError::QueueFull),
            }
        }
        for (opcode, at) in consume(&rig.ring, &mut position) {
            if opcode != SendOpcode::Nop {
                let record = rig.queue.state.send.at(at).unwrap();
                assert_eq!(record.id, seen);
                seen += 1;
            }
        }
        assert_eq!(seen, posted);
        assert_eq!(position, rig.queue.state.send.head());
        rig.queue.state.send.retire_to(position);
    }
}

#[test]
fn a_full_queue_refuses_until_completions_free_its_places() {
    let mut rig = rig(64);
    let mut count = 0;
    while rig.queue.post(count, &Nop, SendFlags::NONE).is_ok() {
        count += 1;
    }
    assert_eq!(count, u64::from(rig.queue.capacity_quanta()));
    assert_eq!(count, 63);
    assert_eq!(rig.queue.used_quanta(), 63);
    assert_eq!(
        rig.queue.post(0, &Nop, SendFlags::NONE),
        Err(PostSendError::QueueFull)
    );
    rig.queue.state.send.retire_to(2);
    assert_eq!(rig.queue.post(0, &Nop, SendFlags::NONE), Ok(()));
    assert_eq!(rig.queue.post(0, &Nop, SendFlags::NONE), Ok(()));
    assert_eq!(
        rig.queue.post(0, &Nop, SendFlags::NONE),
        Err(PostSendError::QueueFull)
    );
}

#[test]
fn a_request_of_several_quanta_finds_places_freed_since_the_last_look() {
    let mut rig = rig(64);
    let pieces = [Fragment::default(); 5];
    // Two places are left of those that were free at the last look, and three in the block.
    for id in 0..61 {
        rig.queue.post(id, &Nop, SendFlags::NONE).unwrap();
    }
    // The completions free all of them.
    rig.queue.state.send.retire_to(61);
    let posted = rig.queue.post(100, &write(&pieces), SendFlags::NONE);
    assert_eq!(posted, Ok(()));
    assert_eq!(rig.queue.head_index(), 0, "it ends the pass");
}

#[test]
fn a_refused_request_leaves_ring_and_records_as_they_were() {
    let mut rig = rig(64);
    let pieces = [Fragment::default(); 14];
    let error = rig
        .queue
        .post(1, &write(&pieces), SendFlags::SIGNALLED)
        .unwrap_err();
    assert!(matches!(error, PostSendError::Request(_)));
    assert_eq!(rig.queue.used_quanta(), 0);
    assert!(
        rig.ring
            .as_slice()
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == 0)
    );
    assert_eq!(rig.queue.state.send.at(0), None);
}

#[test]
fn an_element_never_crosses_a_block_and_the_gap_is_nops() {
    let mut rig = rig(64);
    let pieces = [Fragment::default(); 13];
    let eight_quanta = Write {
        immediate: Some(3),
        ..write(&pieces)
    };
    rig.queue
        .post(1, &write(&pieces[..1]), SendFlags::NONE)
        .unwrap();
    rig.queue
        .post(2, &eight_quanta, SendFlags::SIGNALLED)
        .unwrap();
    assert_eq!(rig.queue.head_index(), 16);
    let mut position = 0;
    let found = consume(&rig.ring, &mut position);
    let nops = found
        .iter()
        .filter(|(opcode, _)| *opcode == SendOpcode::Nop)
        .count();
    assert_eq!(nops, 7);
    assert_eq!(found.last(), Some(&(SendOpcode::Write, 8)));
    let state = &rig.queue.state.send;
    assert_eq!(state.at(8).map(|record| record.id), Some(2));
    assert!((1..8).all(|padding| state.at(padding).is_none()));
}

#[test]
fn an_element_that_fits_only_without_its_padding_is_refused() {
    let pieces = [Fragment::default(); 2];
    let two_quanta = write(&pieces);
    assert_eq!(two_quanta.shape().unwrap().quanta, 2);
    for free in 2..=3 {
        let mut rig = rig(64);
        for id in 0..63 {
            rig.queue.post(id, &Nop, SendFlags::NONE).unwrap();
        }
        // The head is before the last place of a block, and one of the free places is for padding.
        rig.queue.state.send.retire_to(1);
        rig.queue.post(63, &Nop, SendFlags::NONE).unwrap();
        rig.queue.state.send.retire_to(8);
        for id in 64..71 {
            rig.queue.post(id, &Nop, SendFlags::NONE).unwrap();
        }
        rig.queue.state.send.retire_to(8 + free);
        let before = rig.queue.head();
        let posted = rig.queue.post(100, &two_quanta, SendFlags::NONE);
        let free_now = rig.queue.capacity_quanta() - rig.queue.used_quanta();
        match free {
            2 => {
                assert_eq!(posted, Err(PostSendError::QueueFull));
                assert_eq!((rig.queue.head(), free_now), (before, 2));
            }
            _ => {
                assert_eq!(posted, Ok(()));
                assert_eq!((rig.queue.head(), free_now), (before + 3, 0));
            }
        }
    }
}

#[test]
fn the_doorbell_gets_the_queue_pair_number_each_time_it_is_rung() {
    let mut rig = rig(64);
    rig.queue.post(1, &Nop, SendFlags::SIGNALLED).unwrap();
    assert_eq!(rig.page.load(0), 0);
    rig.queue.ring_doorbell();
    assert_eq!(rig.page.load(0), 77);
    rig.page.store(0, 0);
    rig.queue.ring_doorbell();
    assert_eq!(rig.page.load(0), 77);
}

#[test]
fn records_keep_number_and_length_and_know_the_next_to_be_reported() {
    let mut rig = rig(64);
    let inline = WriteInline {
        data: b"12345678",
        remote_address: 0,
        remote_key: 0,
        immediate: None,
    };
    for (id, flags) in [
        (10, SendFlags::NONE),
        (11, SendFlags::SIGNALLED),
        (12, SendFlags::SIGNALLED),
    ] {
        rig.queue.post(id, &inline, flags).unwrap();
    }
    let records: Vec<_> = (0..3)
        .map(|at| rig.queue.state.send.at(at).unwrap())
        .collect();
    let ids: Vec<_> = records.iter().map(|record| record.id).collect();
    assert_eq!(ids, [10, 11, 12]);
    // The oldest request is silent: the one to be reported comes after it.
    let state = &rig.queue.state.send;
    assert_eq!(state.take_next(0, 0), None);
    assert_eq!(state.take_next(1 << INDEX_SHIFT, 0), None);
    assert_eq!(
        state.take_behind_silent(2),
        None,
        "1 is to be reported first"
    );
    let taken = state.take_behind_silent(1).unwrap();
    assert_eq!(taken, (11, records[1].info));
    assert_eq!(state.tail(), 2);
    assert_eq!(state.at(1), None);
    assert_eq!(
        state.take_next((2 + 64) << INDEX_SHIFT, 0),
        None,
        "the index of another pass"
    );
    assert_eq!(
        state.take_next(2 << INDEX_SHIFT, 0),
        Some((12, records[2].info))
    );
    assert_eq!(
        (state.tail(), state.take_next(3 << INDEX_SHIFT, 0)),
        (3, None)
    );
    assert!(records.iter().all(|record| record.info.length_bytes() == 8));
    assert!(!records[0].info.signalled());
}

#[test]
fn a_place_inside_an_element_or_in_padding_holds_no_request_of_an_earlier_pass() {
    let mut rig = rig(64);
    let piece = Fragment::default();
    // A whole pass of requests of one quantum each, so that each place has begun an element.
    for id in 0..64 {
        rig.queue
            .post(id, &write(&[piece]), SendFlags::SIGNALLED)
            .unwrap();
        rig.queue.state.send.retire_to(id + 1);
    }
    // Three quanta, three more, and two of padding before the third.
    for id in 100..103 {
        let pieces = [piece; 5];
        rig.queue
            .post(id, &write(&pieces), SendFlags::SIGNALLED)
            .unwrap();
    }
    let state = &rig.queue.state.send;
    let found: Vec<_> = (0..64)
        .map(|index| state.find(index).map(|request| request.id))
        .collect();
    let mut wanted = vec![None; 64];
    (wanted[0], wanted[3], wanted[8]) = (Some(100), Some(101), Some(102));
    assert_eq!(found, wanted);
}

#[test]
fn a_request_long_after_the_last_reported_one_is_found_and_is_never_taken_for_an_earlier_one() {
    let mut rig = rig(64);
    let piece = Fragment::default();
    for id in 0..70_000 {
        rig.queue
            .post(id, &write(&[piece]), SendFlags::NONE)
            .unwrap();
        rig.queue.state.send.retire_to(id + 1);
    }
    rig.queue
        .post(1, &write(&[piece]), SendFlags::SIGNALLED)
        .unwrap();
    assert_eq!(rig.queue.state.send.at(70_000).unwrap().id, 1);
    for index in 0..64 {
        let found = rig.queue.state.send.find(index).is_some();
        assert_eq!(found, index == 70_000 % 64);
    }
}

#[test]
fn memory_that_is_no_ring_is_refused() {
    let memory = Memory::allocate(1 << 21, PageSize::FourKiB, None).unwrap();
    let doorbell = Doorbell::mapped(&memory, 0).unwrap();
    let context = CompletionContext::new(0, 1);
    let make = |quanta: usize, state_quanta: u32| {
        let state = Arc::new(QueuePairState::new(context, 1, state_quanta, 2, 0));
        let ring = memory.words(0, quanta * 32).unwrap();
        SendQueue::new(ring, doorbell.clone(), state).map(|_| ())
    };
    for quanta in [0, 8, 32, 65, 96, 65_536] {
        assert!(
            matches!(make(quanta, 64), Err(RingError::WrongSize { .. })),
            "{quanta}"
        );
    }
    assert_eq!(
        make(128, 64),
        Err(RingError::StateMismatch {
            ring: 128,
            state: 64
        })
    );
    assert_eq!(make(128, 128), Ok(()));
}
