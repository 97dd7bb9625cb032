use super::*;
use crate::state::CompletionContext;
use ringside_bus::{Memory, PageSize};
use ringside_spec::verbs::ReceiveElement;

fn queue(elements: u32, shift: u32) -> (ReceiveQueue, Words) {
    let length = (elements as usize) << shift << 5;
    let memory = Memory::allocate(length.max(4096), PageSize::FourKiB, None).unwrap();
    let ring = memory.words(0, length).unwrap();
    let context = CompletionContext::new(0, 1);
    let state = Arc::new(QueuePairState::new(context, 1, 64, elements, shift));
    (ReceiveQueue::new(ring.clone(), state).unwrap(), ring)
}

fn element(ring: &Words, index: usize, shift: u32) -> Vec<u64> {
    let words = 4 << shift;
    (index * words..(index + 1) * words)
        .map(|word| ring.load(word))
        .collect()
}

fn pieces(count: u32) -> Vec<Fragment> {
    (1..=count)
        .map(|index| Fragment {
            address: u64::from(index) * 4096,
            length_bytes: index,
            steering_tag: index,
        })
        .collect()
}

#[test]
fn memory_that_is_no_ring_is_refused() {
    let memory = Memory::allocate(1 << 21, PageSize::FourKiB, None).unwrap();
    let context = CompletionContext::new(0, 1);
    let make = |quanta: usize, elements: u32, shift: u32| {
        let state = Arc::new(QueuePairState::new(context, 1, 64, elements, shift));
        let ring = memory.words(0, quanta * 32).unwrap();
        ReceiveQueue::new(ring, state).map(|_| ())
    };
    for (quanta, shift) in [(0, 0), (1, 0), (3, 0), (65_536, 0), (4, 2), (8, 3)] {
        let refused = make(quanta, 2, shift).unwrap_err();
        let RingError::WrongSize {
            minimum, maximum, ..
        } = refused
        else {
            panic!("{quanta} quanta: {refused:?}");
        };
        assert_eq!((minimum, maximum), (2 << shift, 32_768));
    }
    assert_eq!(make(2, 2, 0), Ok(()));
    assert_eq!(make(16, 2, 3), Ok(()));
    assert_eq!(
        make(8, 4, 2),
        Err(RingError::StateMismatch { ring: 2, state: 4 })
    );
}

#[test]
fn every_size_of_element_takes_its_fragments_and_no_more() {
    for (shift, maximum) in [(0, 1), (1, 3), (2, 7), (3, 13)] {
        let (mut queue, ring) = queue(4, shift);
        assert_eq!(queue.maximum_fragments(), maximum as usize);
        let wanted = pieces(maximum);
        queue.post(1, &wanted).unwrap();
        let words = element(&ring, 0, shift);
        let found = ReceiveElement::new(&words).unwrap();
        assert!(found.is_well_formed(true));
        assert_eq!(
            found.fragments().take(wanted.len()).collect::<Vec<_>>(),
            wanted
        );
        let error = queue.post(2, &pieces(maximum + 1)).unwrap_err();
        assert!(matches!(error, PostReceiveError::TooManyFragments { .. }));
        assert_eq!(queue.used(), 1);
    }
}

#[test]
fn polarity_turns_at_each_wrap_and_the_queue_never_overruns() {
    let (mut queue, ring) = queue(4, 1);
    for id in 0..40u64 {
        queue.post(id, &pieces(2)).unwrap();
        let words = element(&ring, id as usize % 4, 1);
        assert_eq!(words[3] >> 63 == 1, id / 4 % 2 == 0);
        assert_eq!(
            queue.state().receive.at(2 * id).map(|record| record.id),
            Some(id)
        );
        queue.state().receive.retire_to(2 * (id + 1));
    }
    for id in 0..3 {
        queue.post(id, &[]).unwrap();
    }
    assert_eq!(queue.post(9, &[]), Err(PostReceiveError::QueueFull));
    assert_eq!((queue.used(), queue.capacity()), (3, 3));
}

#[test]
fn the_element_after_the_last_is_invalid_for_any_earlier_content() {
    let (mut queue, ring) = queue(8, 2);
    for id in 0..200u64 {
        queue.post(id, &pieces(1 + id as u32 % 7)).unwrap();
        queue.state().receive.retire_to(4 * (id + 1));
        let next = (id + 1) as usize;
        let words = element(&ring, next % 8, 2);
        assert_ne!(words[3] >> 63 == 1, (next / 8).is_multiple_of(2), "{id}");
    }
}

#[test]
fn a_piece_beyond_31_bits_is_refused() {
    let (mut queue, _) = queue(4, 0);
    let piece = Fragment {
        length_bytes: 1 << 31,
        ..Fragment::default()
    };
    let error = queue.post(1, &[piece]).unwrap_err();
    assert_eq!(
        error,
        PostReceiveError::FragmentTooLong {
            length_bytes: 1 << 31
        }
    );
}

#[test]
fn a_piece_of_the_largest_length_is_taken() {
    let (mut queue, _) = queue(4, 0);
    let piece = Fragment {
        length_bytes: Fragment::MAX_BYTES,
        ..Fragment::default()
    };
    queue.post(1, &[piece]).unwrap();
    assert_eq!(queue.fragments_at(0), [piece]);
}

/// A shared pool takes back an unused receive with the fragments that were posted.
#[test]
fn the_pieces_of_a_request_are_found_again() {
    for (shift, maximum) in [(0, 1), (1, 3), (2, 7), (3, 13)] {
        let (mut queue, _) = queue(16, shift);
        for count in 1..=maximum {
            queue.post(count.into(), &pieces(count)).unwrap();
        }
        for count in 1..=maximum {
            let position = u64::from(count - 1) << shift;
            assert_eq!(queue.fragments_at(position), pieces(count), "shift {shift}");
        }
    }
    // A single empty fragment counts as a fragment.
    let (mut queue, _) = queue(4, 0);
    queue.post(1, &[Fragment::default()]).unwrap();
    assert_eq!(queue.fragments_at(0), [Fragment::default()]);
}
