//! Numbers of completion event queues and of their MSI-X vectors.

use super::RdmaError;
use ringside_bus::DmaBuffer;
use ringside_cq::EventRing;

/// The vector of asynchronous events and other causes.
pub(crate) const EVENT_VECTOR: u16 = 0;

/// The vector of completion event queue 0, where there are several. The next ones follow.
const COMPLETION_VECTOR: u16 = 1;

/// Vectors that a function with so many has for completion event queues.
pub(crate) const fn vectors_for_completions(vectors: u16) -> u16 {
    match vectors {
        0 | 1 => 1,
        more => more - COMPLETION_VECTOR,
    }
}

/// The vector of a completion event queue, of a function with so many. `None`: it has none.
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
    use super::possible;

    #[test]
    fn event_queues_are_as_many_as_asked_and_possible() {
        assert_eq!(possible(8, 64, 1024), 8);
        // One vector is for events and failures.
        assert_eq!(possible(8, 64, 5), 4);
        assert_eq!(possible(8, 3, 1024), 3);
        // One vector carries everything; none leaves polling.
        assert_eq!([possible(8, 64, 1), possible(8, 64, 0)], [1, 1]);
        assert_eq!(possible(0, 0, 0), 1);
    }
}
