//! Asynchronous events and completion events: entries that a device wrote to a ring, in any order
//! and with any polarity.
//!
//! Checked: the ring returns exactly the entries that a second, independent reader finds, and each
//! decoded entry is encoded to the same bits, except bits without a meaning.

use crate::source::Source;
use ringside_bus::{Memory, PageSize, Words};
use ringside_cq::EventRing;
use ringside_spec::rdma::events::{AsynchronousEvent, CompletionEvent};

/// Entries of the rings under test.
const ENTRIES: usize = 8;

/// The driver's decoder of one entry.
trait Entry<const WORDS: usize> {
    fn check(words: &[u64; WORDS]);
}

impl Entry<2> for AsynchronousEvent {
    fn check(words: &[u64; 2]) {
        let event = Self::decode(words);
        let defined = [words[0] & Self::DEFINED[0], words[1] & Self::DEFINED[1]];
        assert_eq!(event.encode(), defined, "{event:?}");
        assert!(event.queue_number < 1 << 19);
        // any code has a subject and a name
        let _ = (event.subject(), format!("{:?}", event.ae_code));
    }
}

impl Entry<1> for CompletionEvent {
    fn check(words: &[u64; 1]) {
        let event = Self::decode(words);
        assert_eq!(event.encode(), *words, "{event:?}");
    }
}

/// A device writes, a driver takes; the fuzzer chooses each step.
fn ring<const WORDS: usize, E: Entry<WORDS>>(bytes: &[u8]) {
    let memory = Memory::allocate(4096, PageSize::FourKiB, None).expect("a page");
    let words: Words = memory
        .words(0, ENTRIES * WORDS * 8)
        .expect("inside the page");
    let mut ring = EventRing::<WORDS>::new(words.clone()).expect("whole entries");
    let mut source = Source::new(bytes);
    // the independent reader: position and pass of the next entry
    let (mut position, mut pass) = (0, 0u64);
    while !source.is_empty() {
        let step = source.byte();
        let place = usize::from(step >> 1) % ENTRIES;
        if step & 1 == 0 {
            let entry: [u64; WORDS] = source.words();
            for (index, word) in entry.into_iter().enumerate() {
                words.store(place * WORDS + index, word);
            }
            continue;
        }
        let last = words.load(position * WORDS + WORDS - 1);
        let expected = (last >> 63 == 1) == pass.is_multiple_of(2);
        let taken = ring.take();
        assert_eq!(taken.is_some(), expected, "valid bit against polarity");
        if let Some(entry) = taken {
            let there: [u64; WORDS] = std::array::from_fn(|i| words.load(position * WORDS + i));
            assert_eq!(entry, there);
            E::check(&entry);
            position = (position + 1) % ENTRIES;
            pass += u64::from(position == 0);
        }
        assert_eq!(ring.index(), position);
        assert_eq!(ring.polarity(), pass.is_multiple_of(2));
    }
}

/// Asynchronous event queue entries (AEQE).
pub fn asynchronous_events(bytes: &[u8]) {
    ring::<2, AsynchronousEvent>(bytes);
}

/// Completion event queue entries (CEQE).
pub fn completion_events(bytes: &[u8]) {
    ring::<1, CompletionEvent>(bytes);
}
