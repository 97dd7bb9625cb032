//! The work of a poll besides the ring: requests of other cores, and completions that software
//! writes in place of the device.

use super::CompletionQueue;
use super::slots::{flushed, passed_over};
use crate::completion::Completion;
use crate::inbox::Request;
use crate::table::{Drain, tracker};
use ringside_spec::verbs::QueueSide;

impl CompletionQueue {
    /// Carries out the requests of other cores, as the beginning of a poll does. For an owner who
    /// makes and ends many queue pairs between two polls: at most so many requests wait as the
    /// inbox has places.
    pub fn take_requests(&mut self) {
        self.read_inbox();
        self.expect();
    }

    /// Handles requests from other cores, the backlog and a drain. Returns the number of
    /// completions delivered, and true if the ring may be read.
    #[cold]
    pub(super) fn attend(&mut self, batch: &mut [Completion], count: usize) -> (usize, bool) {
        self.read_inbox();
        let count = self.deliver_backlog(batch, count);
        if !self.backlog.is_empty() {
            return (count, false);
        }
        let count = self.carry_on(batch, count);
        (count, self.drain.is_none())
    }

    #[cold]
    fn deliver_backlog(&mut self, batch: &mut [Completion], count: usize) -> usize {
        let places = batch.get_mut(count..).unwrap_or(&mut []);
        let taken = self.backlog.len().min(places.len());
        for (place, completion) in places.iter_mut().zip(self.backlog.drain(..taken)) {
            *place = completion;
        }
        self.reported = self.reported.wrapping_add(taken);
        count + taken
    }

    #[cold]
    pub(super) fn read_inbox(&mut self) {
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

    /// Continues the current drain. A finished drain is removed.
    #[cold]
    pub(super) fn carry_on(&mut self, batch: &mut [Completion], count: usize) -> usize {
        let Some(drain) = self.drain.take() else {
            return count;
        };
        let (count, done) = self.run_counted(&drain, batch, count);
        if !done {
            self.drain = Some(drain);
        }
        count
    }

    /// Completes all requests that are posted to flushed queues. The ring is empty: all completions
    /// that the device wrote for these queues have been taken.
    #[cold]
    pub(super) fn complete_flushed(&mut self, batch: &mut [Completion], mut count: usize) -> usize {
        for index in 0..self.flushed.len() {
            let Some(context) = self.flushed.get(index).copied() else {
                break;
            };
            for side in [QueueSide::Send, QueueSide::Receive] {
                if self.table.is_flushed(side, context) {
                    let drain = Drain {
                        context: context.0,
                        side,
                        at: 0,
                        named: None,
                        to_end: true,
                    };
                    (count, _) = self.run_counted(&drain, batch, count);
                }
            }
        }
        count
    }

    /// As [`Self::run`]; counts what it reports.
    fn run_counted(
        &mut self,
        drain: &Drain,
        batch: &mut [Completion],
        before: usize,
    ) -> (usize, bool) {
        let (count, done) = self.run(drain, batch, before);
        self.reported = self.reported.wrapping_add(count - before);
        (count, done)
    }

    /// Retires requests from the tail on. Returns the number of completions, and true if the drain
    /// is done.
    ///
    /// Before the request that the device named: sends that requested no completion are retired
    /// silently; signalled sends were passed over by the device and succeeded; receives were passed
    /// over. After it: all requests are flushed, but sends without completion that the device has
    /// completed ([`QueuePairState::settled_sends`]).
    fn run(&mut self, drain: &Drain, batch: &mut [Completion], mut count: usize) -> (usize, bool) {
        let anomalies = &mut self.anomalies;
        let Some(state) = self.table.find(drain.side, drain.context) else {
            return (count, true);
        };
        let number = state.number();
        let tracker = tracker(state, drain.side);
        let settled = match (drain.side, drain.named) {
            (QueueSide::Send, None) => state.settled_sends(),
            _ => 0,
        };
        while let Some(request) = tracker.next_from(tracker.tail()) {
            let at = request.position;
            let report = match at.cmp(&drain.at) {
                std::cmp::Ordering::Less => passed_over(drain.side, number, &request),
                std::cmp::Ordering::Equal if drain.named.is_some() || !drain.to_end => drain.named,
                _ if at < settled && request.info.silent() => None,
                _ => Some(flushed(drain.side, number, &request)),
            };
            if let Some(completion) = report {
                let Some(place) = batch.get_mut(count) else {
                    return (count, false);
                };
                *place = completion;
                count += 1;
                anomalies.passed_over += u64::from(at < drain.at);
            }
            tracker.retire_to(request.end());
            if at >= drain.at && !drain.to_end {
                break;
            }
        }
        (count, true)
    }
}
