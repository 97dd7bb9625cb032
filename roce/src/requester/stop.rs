//! The end of a requester, and where a flush starts.

use super::{Phase, Requester};

impl Requester {
    /// Stops it permanently: it sends and takes no more packets. Completions can still be drained.
    pub fn stop(&mut self) {
        self.phase = Phase::Stopped;
    }

    /// Stops it because the host could not place the bytes of this request's response, which
    /// [`Requester::on_response`] gave last. The request is not complete then: a flush starts with
    /// it.
    #[cold]
    pub fn refuse_placement(&mut self, token: u32) {
        // Local work behind it counts as done, too.
        let mut index = self.done;
        while index != self.head {
            index = index.wrapping_sub(1);
            let slot = self.slot(index);
            if slot.is_read() && slot.request.token == token {
                self.done = index;
                break;
            }
        }
        self.stop();
    }

    /// Takes packets back that [`Requester::next_run_into`] gave last, because the host could not
    /// have their payload: they have not left. They are the next ones to send again. `mark` is the
    /// [`Requester::mark`] before they were given. True if their request is the oldest that is not
    /// complete: the host then ends the requester, and a flush starts with it. Otherwise the
    /// requests before it complete first.
    #[cold]
    pub fn take_back(&mut self, token: u32, packets: u32, mark: u64) -> bool {
        let packets = u64::from(packets);
        self.next -= packets;
        let repeated = mark.saturating_sub(self.next).min(packets);
        self.statistics.packets_sent -= packets;
        self.statistics.packets_repeated -= repeated;
        self.sent_end = mark;
        // Local work behind the request was skipped with it.
        while self.cursor != self.done && self.is_behind_next(self.cursor) {
            self.cursor = self.cursor.wrapping_sub(1);
        }
        self.oldest() == Some(token)
    }

    /// The end of the packets that have left, for [`Requester::take_back`].
    #[inline]
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.sent_end
    }

    /// True if the request at an index starts behind the next packet, or has none.
    fn is_behind_next(&self, index: u32) -> bool {
        let slot = self.slot(index);
        index == self.tail || slot.packets == 0 || slot.first > self.next
    }

    /// Stops it because the host could not do its own part of the request whose completion
    /// [`Requester::next_completion`] gave last. That request is not complete then: a flush starts
    /// with it.
    #[cold]
    pub fn refuse_completion(&mut self) {
        self.head = self.head.wrapping_sub(1);
        self.done = self.head;
        self.stop();
    }

    /// The oldest work request that is not complete: where a flush starts.
    #[must_use]
    pub fn oldest(&self) -> Option<u32> {
        (self.done != self.tail).then(|| self.slot(self.done).request.token)
    }
}
