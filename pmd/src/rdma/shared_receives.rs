//! A shared receive queue, in software: the E810 has none.
//!
//! Receives are posted once and serve all queue pairs of the shared queue. Each queue pair has a
//! window of them in its own receive queue; [`SharedReceiveQueue::poll`] replaces those that
//! messages have used. The unused ones of a failed or destroyed queue pair return to the others.

use super::{
    Completion, CompletionQueue, PostError, ProtectionDomain, QueuePair, RdmaError, ResetError,
    Resettable, Status,
};
use ringside_qp::{Fragment, PostReceiveError, SharedReceives, UnusedReceives};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

mod departed;
mod lending;

pub use lending::Place;

/// Settings of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveConfig {
    /// Receives that can be posted and not used, 1..=65536.
    pub receives: u32,
    /// Fragments that a receive may have, 1..=13. Queue pairs that are fed must take as many.
    pub fragments: u32,
    /// Receives that each queue pair has in its own queue at a time: the number of messages that
    /// can arrive for it between two polls. The queue pair's own limit applies too. A queue pair
    /// begins with fewer where more than half of `receives` are in others' queues: see
    /// [`SharedReceiveQueue`].
    pub window: u32,
}

impl Default for SharedReceiveConfig {
    /// 1024 receives of one fragment, windows of 16.
    fn default() -> Self {
        Self {
            receives: 1024,
            fragments: 1,
            window: 16,
        }
    }
}

/// A shared receive queue. `Send`, not `Sync`: the same core polls all completions of its queue
/// pairs, with [`SharedReceiveQueue::poll`].
///
/// A receive that a queue pair has in its own queue cannot be taken back, so some are kept for
/// queue pairs to come. Half of [`SharedReceiveConfig::receives`] goes out in full windows, the
/// next quarter in quarters of them. A queue pair that is attached after that begins with one
/// receive. One that uses its receives gets a wider window while more than a quarter of them wait.
/// So at least a quarter as many queue pairs as there are receives can be attached late and receive
/// at once, if that many are posted. Beyond that, a queue pair waits for receives that are posted
/// later, although others have unused ones: its peer is told that the receiver is not ready.
/// [`Self::begin_lending`] has no such limit.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    inner: SharedReceives,
    domain: ProtectionDomain,
    window: u32,
    /// receives of queue pairs that were destroyed while the failed device may still write to them
    late: Vec<UnusedReceives>,
    /// a queue pair that it feeds was destroyed, and its receives are still its own
    departed: Arc<AtomicBool>,
}

impl ProtectionDomain {
    /// Makes a shared receive queue for queue pairs of this domain.
    pub fn shared_receive_queue(
        &self,
        config: &SharedReceiveConfig,
    ) -> Result<SharedReceiveQueue, RdmaError> {
        use super::numbers::within;
        within("the receives of a shared queue", config.receives, 1, 65_536)?;
        within(
            "fragments of a receive",
            config.fragments,
            1,
            ringside_spec::rdma::limits::MAX_FRAGMENTS,
        )?;
        within("the window of a queue pair", config.window, 1, 16_384)?;
        let numbers = {
            let state = self.engine().open_state()?;
            state.objects.queue_pair_slots
        };
        let fragments = config.fragments as usize;
        Ok(SharedReceiveQueue {
            inner: SharedReceives::new(config.receives, fragments, numbers),
            domain: self.clone(),
            window: config.window,
            late: Vec::new(),
            departed: Arc::default(),
        })
    }
}

impl SharedReceiveQueue {
    /// Attaches a queue pair: its receives come from this queue from now on, and it refuses
    /// receives of its own. It has none yet if all that are posted are in other queue pairs'
    /// queues.
    ///
    /// Errors: [`RdmaError::Member`]; the queue pair is unchanged.
    pub fn attach<S>(&mut self, queue_pair: &mut QueuePair<S>) -> Result<(), RdmaError> {
        drop(self.domain.engine().open_state()?);
        if self.has_departed() {
            self.take_over_departed();
        }
        let number = queue_pair.number();
        let domain = queue_pair.protection_domain();
        if !self.domain.is_beside(domain) {
            return Err(domain.engine().end_or(RdmaError::ForeignDomain));
        }
        if !self.domain.is(domain) {
            return Err(RdmaError::OtherDomain { queue_pair: number });
        }
        let Some(queue) = queue_pair.take_receive_queue() else {
            let receives = 0;
            return Err(ringside_qp::MemberError::InUse { number, receives }.into());
        };
        match self.inner.add(number, queue, self.window) {
            Ok(()) => {
                let mut state = self.domain.engine().state();
                state.begin_feeding(number, &self.departed);
                Ok(())
            }
            Err((error, queue)) => {
                queue_pair.put_receive_queue(*queue);
                Err(error.into())
            }
        }
    }

    /// Destroys a queue pair that it feeds; its unused receives serve the others. Returns the
    /// number of those receives: 0 if the device has failed and may still write to them. They are
    /// reported as flushed then, once it writes nothing more.
    ///
    /// One that is destroyed or dropped without this leaves them, too: at the next
    /// [`Self::attach`], or [`Self::poll`] that finds no completion. It counts as a queue pair
    /// until then.
    ///
    /// Errors: the device did not confirm, so the receives may still be written to. They, too, are
    /// reported as flushed once the device has failed and writes nothing more.
    pub fn destroy<S>(&mut self, queue_pair: QueuePair<S>) -> Result<usize, RdmaError> {
        let number = queue_pair.number();
        let destroyed = queue_pair.destroy();
        let count = self.take_over(number);
        destroyed.map(|()| count)
    }

    /// Receives that a member has not used; `None` if it is none. A child of a fork has no member:
    /// its copy of the engine may be locked for ever.
    fn unused(&self, number: u32) -> Option<UnusedReceives> {
        match self.domain.engine().is_elsewhere() {
            true => None,
            false => self.inner.unused(number),
        }
    }

    /// True if the device has failed and may still write to receives that queue pairs had.
    fn may_be_written_to(&self) -> bool {
        let end = &self.domain.engine().state().service.end;
        end.cause.is_some() && !end.silent
    }

    /// Takes a queue pair that it feeds back to the state in which it was made, as
    /// [`QueuePair::reset`] does, and feeds it again. Receives that it had not used serve the
    /// others meanwhile.
    ///
    /// Control path. Errors: [`ResetError`]; a queue pair that still exists is fed as before. The
    /// receives of one that the device did not confirm to have destroyed are lost.
    pub fn reset<S: Resettable>(
        &mut self,
        queue_pair: QueuePair<S>,
    ) -> Result<QueuePair<S::After>, ResetError<S>> {
        let number = queue_pair.number();
        let mut made = match self.unused(number) {
            Some(unused) => self.make_again(queue_pair, &unused)?,
            None if self.domain.engine().is_elsewhere() => queue_pair.make_again()?,
            None => queue_pair.reset()?,
        };
        match self.attach(&mut made) {
            Ok(()) => Ok(made),
            Err(error) => Err(ResetError::destroyed(error)),
        }
    }

    /// Makes a member again, without receives. `unused` are the receives that it had.
    fn make_again<S: Resettable>(
        &mut self,
        queue_pair: QueuePair<S>,
        unused: &UnusedReceives,
    ) -> Result<QueuePair<S::After>, ResetError<S>> {
        let number = queue_pair.number();
        self.domain.engine().state().stop_feeding(number);
        let made = queue_pair.make_again();
        let mut state = self.domain.engine().state();
        if let Err(error) = &made
            && error.still_exists()
        {
            state.begin_feeding(number, &self.departed);
            return made;
        }
        let is_gone = made.is_ok() || !state.objects.queue_pairs.is_unconfirmed(number);
        drop(state);
        // Its ring is no longer its own.
        self.inner.forget(number);
        if is_gone {
            self.inner.put_back(unused);
        }
        made
    }

    /// Posts a receive of up to as many fragments as the queue was made for.
    ///
    /// Once the device failed or was shut down, the queue takes receives until
    /// [`SharedReceiveQueue::poll`] has begun to report the flushed ones, and refuses them then:
    /// each receive that was taken is reported.
    ///
    /// Errors: [`PostError::QueueFull`], [`PostError::DeviceFailed`], and those about fragments.
    #[inline]
    pub fn post(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostError> {
        match self.inner.post(id, fragments) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.refusal(error)),
        }
    }

    #[cold]
    fn refusal(&self, error: PostReceiveError) -> PostError {
        match self.inner.is_closed() {
            true => PostError::DeviceFailed,
            false => error.into(),
        }
    }

    /// Everything that is left, once the device failed and the completion queue is empty: receives
    /// that were in no queue pair's queue are of queue pair 0. Those of destroyed queue pairs
    /// follow once the device writes nothing more.
    #[cold]
    fn flush(&mut self, batch: &mut [Completion]) -> usize {
        self.inner.close();
        if !self.late.is_empty() && !self.may_be_written_to() {
            for unused in std::mem::take(&mut self.late) {
                self.inner.put_back(&unused);
            }
        }
        let mut count = 0;
        while let Some(place) = batch.get_mut(count)
            && let Some(id) = self.inner.take_waiting()
        {
            *place = Completion::flushed_receive(0, id);
            count += 1;
        }
        count
    }

    /// Polls a completion queue that queue pairs report to which it feeds, and feeds them. Receives
    /// that were flushed unused are not reported: they serve others, until the device fails; then
    /// all are.
    #[inline]
    pub fn poll<'b>(
        &mut self,
        queue: &mut CompletionQueue,
        batch: &'b mut [Completion],
    ) -> &'b [Completion] {
        let kept = loop {
            let count = queue.poll_count(batch);
            let kept = self.take_batch(queue, batch, count);
            // A batch of which nothing is left does not mean that the queue is empty.
            if kept > 0 || count == 0 {
                break kept;
            }
        };
        if kept == 0 && self.is_to_attend() {
            let flushed = self.attend(batch);
            return batch.get(..flushed).unwrap_or(&[]);
        }
        batch.get(..kept).unwrap_or(&[])
    }

    /// True if the device failed, or a queue pair that it feeds was destroyed.
    #[inline]
    fn is_to_attend(&self) -> bool {
        self.domain.engine().over.load(Ordering::Relaxed) || self.has_departed()
    }

    /// The rest of a poll that found no completion. Returns the number of flushed receives.
    #[cold]
    fn attend(&mut self, batch: &mut [Completion]) -> usize {
        if self.has_departed() {
            self.take_over_departed();
        }
        match self.domain.engine().over.load(Ordering::Relaxed) {
            true => self.flush(batch),
            false => 0,
        }
    }

    /// Counts the receives of a batch of completions; returns how many completions are left of it.
    #[inline]
    fn take_batch(
        &mut self,
        queue: &CompletionQueue,
        batch: &mut [Completion],
        count: usize,
    ) -> usize {
        let mut failed = None;
        for (index, done) in batch.get(..count).unwrap_or(&[]).iter().enumerate() {
            if done.is_received_by_member() {
                self.inner.consumed(done.queue_pair());
            } else if !done.is_send() {
                failed = Some(index);
                break;
            }
        }
        match failed {
            None => count,
            Some(index) => self.sort_failed(queue, batch, index, count),
        }
    }

    /// Goes through the rest of a batch in which receives failed; returns how many completions are
    /// left of it.
    #[cold]
    fn sort_failed(
        &mut self,
        queue: &CompletionQueue,
        batch: &mut [Completion],
        from: usize,
        count: usize,
    ) -> usize {
        let mut kept = from;
        for index in from..count {
            let Some(done) = batch.get(index).copied() else {
                break;
            };
            if !done.is_send() && !done.outlives_queue_pair() {
                let number = done.queue_pair();
                let same = |other: &&Completion| !other.is_send() && other.queue_pair() == number;
                // Completions of this queue pair after this one.
                let later = batch.get(index..count).unwrap_or(&[]).iter().filter(same);
                let behind = later.count() + queue.backlog().filter(same).count();
                if done.status() == Status::Flushed
                    && let Some(retired) = self.inner.retired(number)
                    && self
                        .inner
                        .returned(number, done.id, retired - behind as u64)
                {
                    continue;
                }
                match done.is_consumed() {
                    true => self.inner.consumed(number),
                    false => self.inner.failed(number),
                }
            }
            if let Some(place) = batch.get_mut(kept) {
                *place = done;
                kept += 1;
            }
        }
        kept
    }

    /// Arms the limit event: it is due once fewer than `receives` receives are left; 0 disarms it.
    /// Verbs: `srq_limit`.
    pub fn arm_limit(&mut self, receives: u32) {
        self.inner.arm_limit(receives);
    }

    /// True if the limit was reached since it was armed; once. Verbs:
    /// `IBV_EVENT_SRQ_LIMIT_REACHED`.
    pub fn take_limit_event(&mut self) -> bool {
        self.inner.take_limit()
    }

    /// Receives posted and not used.
    #[must_use]
    pub fn left(&self) -> u32 {
        let late = self.late.iter().map(UnusedReceives::count).sum::<usize>();
        self.inner.left() + late as u32
    }

    /// Queue pairs that it feeds, with those that were dropped and that it has not noticed yet.
    #[must_use]
    pub fn queue_pairs(&self) -> usize {
        self.inner.members()
    }
}

impl Drop for SharedReceiveQueue {
    /// The queue pairs that it fed get no further receives; rings of destroyed ones are freed.
    fn drop(&mut self) {
        if self.domain.engine().is_elsewhere() {
            return;
        }
        let mut state = self.domain.engine().state();
        for number in self.inner.numbers() {
            state.stop_feeding(number);
        }
    }
}
