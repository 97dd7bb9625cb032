use super::*;
use ringside_bus::{Memory, PageSize};

fn memory(words: usize) -> Words {
    let memory = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
    memory.words(0, words * 8).unwrap()
}

#[test]
fn entries_come_once_in_order_through_many_wraps_of_any_size() {
    let words = memory(3 * 2);
    let mut ring = EventRing::<2>::new(words.clone()).unwrap();
    assert_eq!(ring.entries(), 3);
    assert_eq!(ring.take(), None);
    for id in 0..20u64 {
        let slot = id as usize % 3;
        let valid = u64::from(id / 3 % 2 == 0) << 63;
        assert_eq!(ring.polarity(), valid != 0);
        words.store(slot * 2, id);
        words.store_release(slot * 2 + 1, (id + 100) | valid);
        assert_eq!(ring.take(), Some([id, (id + 100) | valid]));
        assert_eq!(ring.take(), None);
        assert_eq!(ring.index(), (slot + 1) % 3);
    }
}

#[test]
fn an_entry_of_an_earlier_pass_is_not_an_event() {
    let words = memory(2);
    let mut ring = EventRing::<1>::new(words.clone()).unwrap();
    words.store(0, 1 << 63 | 5);
    words.store(1, 1 << 63 | 6);
    assert!(ring.take().is_some() && ring.take().is_some());
    assert_eq!(ring.take(), None);
    words.store(0, 7);
    assert_eq!(ring.take(), Some([7]));
}

#[test]
fn memory_that_is_no_whole_number_of_entries_is_refused() {
    let error = EventRing::<4>::new(memory(6)).unwrap_err();
    assert_eq!(
        error,
        QueueError::WrongEntries {
            words: 6,
            entry_words: 4
        }
    );
    assert!(EventRing::<4>::new(memory(0)).is_err());
}
