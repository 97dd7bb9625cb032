//! A journal of address ranges: one writer, any number of readers, no lock and no allocation for
//! the writer.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// Ranges that the journal holds: a power of two.
pub(super) const PLACES: u64 = 1024;

/// The most ranges of one round of the writer.
pub(super) const ROUND: u64 = 16;

/// The longest wait for the writer. Afterwards a reader assumes that every range has changed.
const PATIENCE: Duration = Duration::from_millis(100);

/// The ranges that a reader has not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The address ranges, oldest first.
    Ranges(Vec<Range<u64>>),
    /// More ranges than the journal holds: the reader has to assume that every range has changed.
    Everything,
}

/// The journal; see the module.
pub(super) struct Journal {
    /// ranges written so far, times two; odd while the writer works
    state: AtomicU64,
    places: Box<[[AtomicU64; 2]]>,
}

impl Journal {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            places: (0..PLACES)
                .map(|_| [AtomicU64::new(0), AtomicU64::new(0)])
                .collect(),
        }
    }

    /// Ranges written so far.
    pub(super) fn written(&self) -> u64 {
        self.state.load(Ordering::Acquire) / 2
    }

    /// True if there are ranges after the first `read`, or if the writer is at work.
    #[inline]
    pub(super) fn has_news(&self, read: u64) -> bool {
        self.state.load(Ordering::Acquire) != read * 2
    }

    /// Marks the journal as changing, then calls `source`, which passes each range on, [`ROUND`] of
    /// them at most. One thread only.
    pub(super) fn write(&self, source: impl FnOnce(&mut dyn FnMut(Range<u64>))) {
        let mut written = self.state.fetch_or(1, Ordering::SeqCst) / 2;
        // A reader that sees a range of this round sees the mark too.
        fence(Ordering::SeqCst);
        source(&mut |range| {
            if let Some([start, end]) = self.places.get((written % PLACES) as usize) {
                start.store(range.start, Ordering::Relaxed);
                end.store(range.end, Ordering::Relaxed);
                written += 1;
            }
        });
        self.state.store(written * 2, Ordering::Release);
    }

    /// Notes that the writer has ended: readers then assume that every range has changed.
    pub(super) fn lose(&self) {
        self.state.fetch_or(1, Ordering::SeqCst);
    }

    /// The ranges after the first `read`, which is advanced. Waits while the writer works.
    pub(super) fn read(&self, read: &mut u64) -> News {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.state.load(Ordering::Acquire);
        while state % 2 == 1 {
            if Instant::now() >= deadline {
                return News::Everything;
            }
            std::thread::yield_now();
            state = self.state.load(Ordering::Acquire);
        }
        let written = state / 2;
        let from = std::mem::replace(read, written);
        if written - from > PLACES {
            return News::Everything;
        }
        let place = |at: u64| {
            let [start, end] = self.places.get((at % PLACES) as usize)?;
            Some(start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed))
        };
        let ranges = (from..written).filter_map(place).collect();
        // The writer may have wrapped around meanwhile and overwritten these entries.
        fence(Ordering::SeqCst);
        match self.still_holds(from) {
            true => News::Ranges(ranges),
            false => News::Everything,
        }
    }

    /// True if the writer cannot have overwritten the range number `from`, or a later one: neither
    /// in the rounds that it has ended, nor in the one that it may be in.
    fn still_holds(&self, from: u64) -> bool {
        let state = self.state.load(Ordering::Acquire);
        let reached = state / 2 + state % 2 * ROUND;
        reached - from <= PLACES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(journal: &Journal, ranges: impl IntoIterator<Item = Range<u64>>) {
        journal.write(|put| ranges.into_iter().for_each(put));
    }

    #[test]
    fn a_reader_gets_each_range_once_in_order() {
        let journal = Journal::new();
        let mut read = journal.written();
        assert!(!journal.has_news(read));
        put(&journal, [1..2, 3..4]);
        assert!(journal.has_news(read));
        assert_eq!(journal.read(&mut read), News::Ranges(vec![1..2, 3..4]));
        assert!(!journal.has_news(read));
        let last = 5..6;
        put(&journal, std::iter::once(last.clone()));
        assert_eq!(journal.read(&mut read), News::Ranges(Vec::from([last])));
        assert_eq!(journal.read(&mut read), News::Ranges(vec![]));
    }

    #[test]
    fn a_reader_that_is_overtaken_takes_it_that_everything_changed() {
        let journal = Journal::new();
        let mut read = journal.written();
        put(&journal, (0..PLACES).map(|at| at..at + 1));
        let News::Ranges(all) = journal.read(&mut read) else {
            panic!("the journal holds as many");
        };
        assert_eq!(all.len() as u64, PLACES);
        put(&journal, (0..PLACES + 1).map(|at| at..at + 1));
        assert_eq!(journal.read(&mut read), News::Everything);
        assert_eq!(journal.read(&mut read), News::Ranges(vec![]));
    }

    #[test]
    fn a_writer_that_goes_on_meanwhile_takes_nothing_from_a_reader_until_it_wraps_around() {
        let journal = Journal::new();
        put(&journal, [0..1, 1..2]);
        journal.write(|_| assert!(journal.still_holds(0)));
        put(&journal, (2..PLACES - ROUND).map(|at| at..at + 1));
        journal.write(|_| assert!(journal.still_holds(0)));
        put(&journal, std::iter::once(0..1));
        assert!(journal.still_holds(0));
        journal.write(|_| {
            assert!(!journal.still_holds(0), "this round may overwrite it");
            assert!(journal.still_holds(1));
        });
        put(&journal, (0..ROUND).map(|at| at..at + 1));
        assert!(!journal.still_holds(0));
        assert!(journal.still_holds(1));
    }

    #[test]
    fn a_range_in_the_making_is_news_and_a_lost_writer_is_everything() {
        let journal = Journal::new();
        let mut read = journal.written();
        journal.write(|_| assert!(journal.has_news(read)));
        assert!(!journal.has_news(read), "nothing came");
        journal.lose();
        assert!(journal.has_news(read));
        assert_eq!(journal.read(&mut read), News::Everything);
        assert!(journal.has_news(read), "and it stays so");
    }
}
