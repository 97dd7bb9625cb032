//! The MSI-X vectors of a function: 0 for events and failures, one for each completion event queue,
//! one for the packet queues that are polled, and the rest for receive queues that interrupt.

use super::RdmaError;
use ringside_bus::DmaBuffer;
use ringside_cq::EventRing;
use ringside_spec::rdma::events::CompletionEvent;
use std::collections::BTreeSet;
use std::ops::Range;

/// The vector of asynchronous events and other causes.
pub(crate) const EVENT_VECTOR: u16 = 0;

/// The vector of completion event queue 0, where there are several. The next ones follow.
const COMPLETION_VECTOR: u16 = 1;

/// Vectors for completion event queues, of a function with `vectors` vectors: all but those for
/// events and packet queues.
const fn vectors_for_completions(vectors: u16) -> u16 {
    match vectors {
        0..=2 => 1,
        more => more - COMPLETION_VECTOR - 1,
    }
}

/// The vector of the packet queues: the first one after those of so many completion event queues.
/// `None`: the function has none left.
pub(crate) fn packet_vector(vectors: u16, event_queues: u16) -> Option<u16> {
    COMPLETION_VECTOR
        .checked_add(event_queues.max(1))
        .filter(|vector| *vector < vectors)
}

/// The vectors of receive queues that interrupt: those after the one of the packet queues.
pub(crate) fn receive_vectors(vectors: u16, event_queues: u16) -> Range<u16> {
    match packet_vector(vectors, event_queues) {
        Some(packets) => packets + 1..vectors,
        None => 0..0,
    }
}

/// The vector of a completion event queue, of a function with `vectors` vectors. `None`: it has
/// none.
pub(crate) fn completion_vector(vectors: u16, event_queue: u16) -> Option<u16> {
    match vectors {
        0 => None,
        1 => Some(EVENT_VECTOR),
        more => COMPLETION_VECTOR
            .checked_add(event_queue)
            .filter(|vector| *vector < more),
    }
}

/// A completion event queue of the device.
#[derive(Debug)]
pub(crate) struct CompletionEventQueue {
    pub(crate) ring: EventRing<1>,
    pub(crate) buffer: DmaBuffer,
    pub(crate) entries: u32,
    /// events taken from it
    pub(crate) taken: u64,
    /// completion queues whose events were taken from the ring before the program asked for them
    pub(crate) ahead: BTreeSet<u32>,
}

impl CompletionEventQueue {
    /// The number of a completion queue that has something to poll, as the device says.
    pub(crate) fn next(&mut self) -> Option<u32> {
        self.ahead.pop_first().or_else(|| self.read())
    }

    /// Takes all events out of the ring, for a program that takes them later or never. The device
    /// is not told what was taken: it would write beyond the reader, who would then see nothing
    /// until the device has gone round again. The ring has one entry for each completion queue, so
    /// this is due before one is made or asks again.
    pub(crate) fn take_ahead(&mut self) {
        for _ in 0..self.entries {
            let Some(number) = self.read() else {
                break;
            };
            self.ahead.insert(number);
        }
    }

    fn read(&mut self) -> Option<u32> {
        let words = self.ring.take()?;
        self.taken += 1;
        Some(CompletionEvent::decode(&words).completion_context as u32)
    }
}

/// The number of completion event queues to make: the least of those requested, those of the
/// device, and the remaining vectors. At least 1.
pub(crate) fn possible(asked: u16, device: u16, vectors: u16) -> u16 {
    asked
        .min(device)
        .min(vectors_for_completions(vectors))
        .max(1)
}

/// Checks the number of an event queue against those that there are.
pub(crate) fn check_event_queue(number: u16, queues: usize) -> Result<(), RdmaError> {
    if usize::from(number) < queues {
        return Ok(());
    }
    Err(RdmaError::OutOfRange {
        what: "the completion event queue (rdma.event_queues of the configuration is their number)",
        given: number.into(),
        least: 0,
        most: queues.saturating_sub(1) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::{completion_vector, packet_vector, possible, receive_vectors};

    #[test]
    fn event_queues_are_as_many_as_asked_and_possible() {
        assert_eq!(possible(8, 64, 1024), 8);
        // One vector is for events and failures, one for packets.
        assert_eq!(possible(8, 64, 5), 3);
        assert_eq!([possible(8, 64, 3), possible(8, 64, 2)], [1, 1]);
        assert_eq!(possible(8, 3, 1024), 3);
        // One vector carries everything; none leaves polling.
        assert_eq!([possible(8, 64, 1), possible(8, 64, 0)], [1, 1]);
        assert_eq!(possible(0, 0, 0), 1);
    }

    #[test]
    fn packet_queues_have_a_vector_that_no_completion_event_queue_has() {
        for vectors in 0..70 {
            for asked in 1..70 {
                let queues = possible(asked, 64, vectors);
                let taken: Vec<_> = (0..queues)
                    .map(|number| completion_vector(vectors, number))
                    .collect();
                let packets = packet_vector(vectors, queues);
                assert_eq!(packets.is_some(), vectors > 2, "{vectors} vectors");
                assert!(packets.is_none() || !taken.contains(&packets));
                assert!(packets.is_none_or(|vector| vector > 0 && vector < vectors));
                let mut own = receive_vectors(vectors, queues);
                assert!(own.all(|vector| {
                    vector < vectors && Some(vector) != packets && !taken.contains(&Some(vector))
                }));
            }
        }
        assert_eq!(packet_vector(1024, 1), Some(2));
        assert_eq!(receive_vectors(1024, 1), 3..1024);
        assert!(receive_vectors(3, 1).is_empty());
    }
}
