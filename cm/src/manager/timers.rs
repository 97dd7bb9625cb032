//! Time: repeats, their end, and the end of timewait.

use super::connection::State;
use super::{EventKind, Manager};
use std::time::Duration;

impl Manager {
    /// Processes the timers that are due at `now`. Take the actions afterwards.
    pub fn tick(&mut self, now: Duration) {
        self.reject_held(now);
        while let Some(&(at, id)) = self.timers.first() {
            if at > now {
                return;
            }
            self.timers.pop_first();
            self.due(now, id);
        }
    }

    fn due(&mut self, now: Duration, id: u32) {
        let Some(one) = self.connections.get_mut(&id) else {
            return;
        };
        let path = one.path;
        // Of an address that was removed, no message leaves.
        let has_address = self.addresses.contains(&path.own());
        let (repeat, over) = match &mut one.state {
            State::RequestSent { repeat, .. }
            | State::ReplySent { repeat, .. }
            | State::ServiceSent { repeat } => (repeat, EventKind::Unreachable),
            State::DisconnectSent { repeat } => {
                (repeat, EventKind::Disconnected { by_peer: false })
            }
            State::TimeWait { is_told, .. } => {
                let is_told = *is_told;
                self.idle(id);
                if is_told {
                    self.event(id, EventKind::TimeWaitOver);
                }
                return;
            }
            _ => return,
        };
        if repeat.left > 0 && has_address {
            repeat.left -= 1;
            repeat.at = now + repeat.wait;
            let (at, mad) = (repeat.at, *repeat.mad);
            self.timers.insert((at, id));
            self.send(path, mad);
            return;
        }
        match over {
            EventKind::Disconnected { .. } => self.time_wait(now, id, None),
            _ => self.idle(id),
        }
        self.event(id, over);
    }
}
