//! Ports that lead out of the world, and the frames that wait there to be moved.
//!
//! A port that fills up holds back the functions whose frames fill it, so that a far end that is
//! slower loses nothing. A far end that takes nothing at all for [`PATIENCE`] holds nothing up any
//! more: frames beyond the port's room are lost then, as at the port of a switch.

use ringside_bus::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Frames that may wait at one port; a full port loses the newest, as a switch does.
const MAX_WAITING: usize = 1024;

/// The number of waiting frames from which a port holds back the functions that fill it. The other
/// places are for frames that several functions send before they are held back, and for frames of
/// other ports.
const HOLD_FROM: usize = MAX_WAITING / 2;

/// The time for which a port holds others back while its far end takes nothing: longer than a busy
/// machine keeps a process waiting. A far end that hangs costs this time once, and holds nothing up
/// afterwards.
const PATIENCE: Duration = Duration::from_millis(250);

/// Frames that wait at a port to be taken out of the world.
#[derive(Debug, Default)]
pub(super) struct OutsidePort {
    waiting: VecDeque<Vec<u8>>,
    /// a bit for each function, modulo 64, whose frames have filled it
    filled_by: u64,
    /// since when it holds back without its far end having taken a frame
    holds_since: Option<Instant>,
}

const fn bit(function: usize) -> u64 {
    1 << (function % 64)
}

impl OutsidePort {
    /// Adds a frame that came from port `from`; false if there is no room.
    pub(super) fn push(&mut self, frame: Vec<u8>, from: usize) -> bool {
        let room = self.waiting.len() < MAX_WAITING;
        if room {
            self.waiting.push_back(frame);
            self.filled_by |= bit(from);
        }
        room
    }

    /// True if `function` has to wait until the far end has taken some frames.
    pub(super) fn holds(&mut self, function: usize, now: Instant) -> bool {
        if self.waiting.len() < HOLD_FROM || self.filled_by & bit(function) == 0 {
            return false;
        }
        let since = *self.holds_since.get_or_insert(now);
        now.since(since) < PATIENCE
    }

    /// The oldest frame, which stays.
    pub(super) fn first(&self) -> Option<&[u8]> {
        self.waiting.front().map(Vec::as_slice)
    }

    /// Takes the oldest frame out.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        self.holds_since = None;
        let frame = self.waiting.pop_front();
        if self.waiting.is_empty() {
            self.filled_by = 0;
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn filled(frames: usize) -> OutsidePort {
        let mut port = OutsidePort::default();
        for _ in 0..frames {
            assert!(port.push(vec![0; 60], 1));
        }
        port
    }

    #[test]
    fn only_functions_that_fill_a_port_are_held_back() {
        assert!(!filled(HOLD_FROM - 1).holds(1, at(0)));
        let mut port = filled(HOLD_FROM);
        assert!(port.holds(1, at(0)));
        assert!(!port.holds(2, at(0)));
        while port.pop().is_some() {}
        assert!(port.push(vec![0; 60], 2));
        assert_eq!(port.filled_by, bit(2), "the earlier source is forgotten");
    }

    #[test]
    fn a_far_end_that_takes_nothing_holds_nothing_up_for_long() {
        let mut port = filled(HOLD_FROM + 10);
        assert!(port.holds(1, at(0)) && port.holds(1, at(249)));
        assert!(!port.holds(1, at(250)) && !port.holds(1, at(2000)));
        while port.push(vec![0; 60], 1) {}
        assert_eq!(port.waiting.len(), MAX_WAITING);
        // It takes one, so the rest is worth waiting for again.
        port.pop();
        assert!(port.holds(1, at(2001)) && port.holds(1, at(2250)));
        assert!(!port.holds(1, at(2251)));
    }
}
