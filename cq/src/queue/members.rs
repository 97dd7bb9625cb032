//! The queue pairs that report to a completion queue: they come, fail and go.

use super::CompletionQueue;
use crate::completion::Completion;
use crate::table::{AttachError, Sides};
use ringside_qp::{CompletionContext, QueuePairState};
use ringside_spec::verbs::QueueSide;
use std::sync::Arc;

impl CompletionQueue {
    /// Makes the queue accept completions of a queue pair. Call it before the queue pair's first
    /// post.
    pub fn attach(&mut self, state: Arc<QueuePairState>, sides: Sides) -> Result<(), AttachError> {
        self.table.attach(&state, sides)
    }

    /// Detaches a queue pair that the device has destroyed. Returns false if no queue pair with
    /// this context is attached. Its requests that have not completed are discarded; receives of a
    /// shared queue that messages used in a former ring are still delivered.
    pub fn detach(&mut self, context: CompletionContext) -> bool {
        self.flushed.retain(|flushed| *flushed != context);
        if self.drain.is_some_and(|drain| drain.context == context.0) {
            self.drain = None;
        }
        // Another queue pair may soon get its number, so completions from a former ring are dropped
        // too.
        let sides = [QueueSide::Send, QueueSide::Receive];
        let found = sides
            .iter()
            .find_map(|side| self.table.find(*side, context.0));
        if let Some(state) = found {
            for taken in [&mut self.backlog, &mut self.moving] {
                taken.retain_mut(|taken| outlives(taken, state));
            }
        }
        self.expect();
        self.table.detach(context)
    }

    /// Completes all outstanding requests, and all posted later, as flushed. Returns false if the
    /// queue does not report here. See
    /// [`CompletionQueueHandle::flush`](crate::CompletionQueueHandle::flush) for when to call it.
    pub fn flush(&mut self, context: CompletionContext, side: QueueSide) -> bool {
        let served = self.table.mark_flushed(side, context);
        if served && !self.flushed.contains(&context) {
            self.flushed.push(context);
        }
        self.expect();
        served
    }
}

/// True for completions of other queue pairs, and for receives of this one that a shared receive
/// queue does not take back; the latter are marked.
fn outlives(taken: &mut Completion, destroyed: &QueuePairState) -> bool {
    if taken.queue_pair() != destroyed.number() || taken.outlives_queue_pair() {
        return true;
    }
    let is_kept = destroyed.keeps_receives() && !taken.is_send() && !taken.is_flushed_receive();
    if is_kept {
        *taken = taken.outliving();
    }
    is_kept
}
