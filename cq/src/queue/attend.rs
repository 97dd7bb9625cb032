//! What a poll has to attend to besides the ring: requests of other cores, and what software
//! completes in the device's place.

use super::CompletionQueue;
use super::slots::{after, flushed, passed_over};
use crate::completion::Completion;
use crate::inbox::Request;
use crate::table::Drain;
use ringside_spec::verbs::QueueSide;

impl CompletionQueue {
    /// Polls when there are requests from other cores, or a drain is not done.
    #[cold]
    pub(super) fn attend(&mut self, batch: &mut [Completion]) -> usize {
        if self.inbox.is_waiting() {
            self.read_inbox();
        }
        let count = self.deliver_backlog(batch);
        if !self.backlog.is_empty() {
            self.note_irregular();
            return count;
        }
        let count = self.carry_on(batch, count);
        if self.drain.is_some() {
            self.note_irregular();
            return count;
        }
        self.poll_run(batch, count)
    }

    #[cold]
    fn deliver_backlog(&mut self, batch: &mut [Completion]) -> usize {
        let count = self.backlog.len().min(batch.len());
        for (place, completion) in batch.iter_mut().zip(self.backlog.drain(..count)) {
            *place = completion;
        }
        count
    }

    #[cold]
    pub(super) fn read_inbox(&mut self) {
        self.inbox.seen();
        while let Some(request) = self.inbox.take() {
            match request {
                Request::Attach(state, sides) => {
                    let refused = self.attach(state, sides).is_err();
                    self.anomalies.attach_refused += u64::from(refused);
                }
                Request::Detach(context) => {
                    self.detach(context);
                }
                Request::Flush(context, side) => {
                    self.flush(context, side);
                }
            }
        }
    }

    /// Goes on with the drain at hand; it is gone when it is done.
    #[cold]
    pub(super) fn carry_on(&mut self, batch: &mut [Completion], count: usize) -> usize {
        let Some(drain) = self.drain.take() else {
            return count;
        };
        let (count, done) = self.run(&drain, batch, count);
        if !done {
            self.drain = Some(drain);
        }
        count
    }

    /// Everything that is posted to flushed queues. The ring is empty: the device's own
    /// completions of these queues have all been taken.
    #[cold]
    pub(super) fn complete_flushed(&mut self, batch: &mut [Completion], mut count: usize) -> usize {
        for index in 0..self.flushed.len() {
            let Some(context) = self.flushed.get(index).copied() else {
                break;
            };
            for side in [QueueSide::Send, QueueSide::Receive] {
                let flushed = self
                    .table
                    .find(side, context.0)
                    .is_some_and(|entry| entry.flushed);
                if flushed {
                    let drain = Drain {
                        context: context.0,
                        side,
                        at: 0,
                        named: None,
                        to_end: true,
                    };
                    (count, _) = self.run(&drain, batch, count);
                }
            }
        }
        count
    }

    /// Retires requests from the tail on, and says whether the drain is done.
    ///
    /// Before the named one: sends that asked for no completion are retired silently; signalled
    /// ones were passed over by the device and succeeded; receives were passed over. After it:
    /// flushed.
    fn run(&mut self, drain: &Drain, batch: &mut [Completion], mut count: usize) -> (usize, bool) {
        let anomalies = &mut self.anomalies;
        let Some(entry) = self.table.find(drain.side, drain.context) else {
            return (count, true);
        };
        let number = entry.state.number();
        let tracker = entry.tracker(drain.side);
        let head = tracker.head();
        let mut tail = tracker.tail();
        while tail < head {
            let Some(request) = tracker.at(tail) else {
                // Padding between elements: there is no request.
                tail += 1;
                continue;
            };
            let report = match tail.cmp(&drain.at) {
                std::cmp::Ordering::Less => passed_over(drain.side, number, &request),
                std::cmp::Ordering::Equal if drain.named.is_some() || !drain.to_end => drain.named,
                _ => Some(flushed(drain.side, number, &request)),
            };
            if let Some(completion) = report {
                let Some(place) = batch.get_mut(count) else {
                    tracker.retire_to(tail);
                    return (count, false);
                };
                *place = completion;
                count += 1;
                anomalies.passed_over += u64::from(tail < drain.at);
            }
            let is_named = tail == drain.at;
            tail = after(drain.side, &request);
            if is_named && !drain.to_end {
                break;
            }
        }
        tracker.retire_to(tail);
        (count, true)
    }
}
