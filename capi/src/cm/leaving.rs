//! The end of the process: the peers of all connections are told, as the kernel tells those of its
//! processes.

use super::node::{Node, State};
use super::turns::lock_until;
use crate::device::Port;
use std::time::{Duration, Instant};

/// Longest wait for the last messages to leave.
const FAREWELL: Duration = Duration::from_millis(200);
/// Longest wait for the recovery of the device, if messages wait for it.
const RECOVERY: Duration = Duration::from_secs(3);
/// Between two looks at either.
const PAUSE: Duration = Duration::from_millis(1);

impl Node {
    /// Ends all connections, unless another thread has done so or does so now; waits for it.
    pub(super) fn leave(&self) {
        let limit = Instant::now() + RECOVERY + 2 * FAREWELL;
        if let Some(mut left) = lock_until(&self.left, limit)
            && !*left
        {
            *left = self.take_leave();
        }
    }

    /// True if the process ends, and the peers were told or are being told.
    pub(super) fn has_left(&self) -> bool {
        self.left.try_lock().map_or(true, |left| *left)
    }

    /// Ends all connections. Waits until the messages have left, not for answers; those of a failed
    /// device wait for its recovery. False if another thread kept the state for too long.
    fn take_leave(&self) -> bool {
        let recovered = Instant::now() + RECOVERY;
        let mut limit = match self.port().is_over() {
            true => recovered,
            false => Instant::now() + FAREWELL,
        };
        let Some(mut state) = self.state.lock_until(limit) else {
            return false;
        };
        let now = self.began.elapsed();
        if state.lost.is_none() && self.port().is_over() {
            state.remove_device(self, now);
        }
        let open: Vec<_> = state.connections.drain().map(|(id, _)| id).collect();
        for id in open {
            state.manager.destroy(now, id);
        }
        state.act(self);
        limit = Instant::now() + FAREWELL;
        while state.has_more_to_say(&self.port()) && Instant::now() < limit {
            if state.keeps_messages() && self.port().may_recover() {
                // Another period for the messages, once the device works.
                limit = recovered.min(Instant::now() + FAREWELL);
            }
            drop(state);
            // The thread of the node, which still runs, takes up the recovered device.
            self.wake.set();
            std::thread::sleep(PAUSE);
            match self.state.lock_until(recovered) {
                Some(again) => state = again,
                None => return false,
            }
        }
        if state.has_more_to_say(&self.port()) {
            tracing::warn!("some peers were not told that this process ends");
        }
        state.farewells.end();
        true
    }
}

impl State {
    /// Sends what can be sent; true if some messages have not left.
    fn has_more_to_say(&mut self, port: &Port) -> bool {
        if self.lost.is_some() {
            return self.keeps_messages();
        }
        self.service.poll(|_| {});
        self.send_kept(port);
        let waits = self
            .service
            .retry(&|address, vlan| port.lookup(address, vlan));
        waits || self.keeps_messages() || self.service.is_sending()
    }
}
