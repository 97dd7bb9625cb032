//! Ports that lead out of the world: what waits there for whoever moves it.

use std::collections::VecDeque;

/// Frames that may wait at one port; a full port loses the newest, as a switch does.
const WAITING_MAX: usize = 1024;

/// Frames that wait at a port to be taken out of the world.
#[derive(Debug, Default)]
pub(super) struct OutsidePort {
    waiting: VecDeque<Vec<u8>>,
}

impl OutsidePort {
    /// Adds a frame; false if there is no room.
    pub(super) fn push(&mut self, frame: Vec<u8>) -> bool {
        let room = self.waiting.len() < WAITING_MAX;
        if room {
            self.waiting.push_back(frame);
        }
        room
    }

    /// The oldest frame, which stays.
    pub(super) fn first(&self) -> Option<&[u8]> {
        self.waiting.front().map(Vec::as_slice)
    }

    /// Takes the oldest frame out.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }
}
