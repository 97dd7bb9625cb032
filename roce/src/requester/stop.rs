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
