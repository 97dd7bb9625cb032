//! Counts of frames in one direction.

use crate::frame::{Frame, is_group};
use crate::packet::MacAddress;

/// Frames and bytes in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) bytes: u64,
    pub(crate) unicast: u64,
    pub(crate) multicast: u64,
    pub(crate) broadcast: u64,
    /// Frames of up to 64, 127, 255, 511, 1023 and 1522 bytes with frame check sequence, and
    /// longer.
    pub(crate) by_size: [u64; 7],
}

impl Traffic {
    /// Counts a frame of `length` bytes, frame check sequence included.
    #[inline]
    pub(crate) fn count(&mut self, destination: MacAddress, length: usize) {
        self.count_many(destination, length, 1);
    }

    /// Counts `frames` frames of `length` bytes each.
    #[inline]
    pub(crate) fn count_many(&mut self, destination: MacAddress, length: usize, frames: u64) {
        if !is_group(destination) {
            self.unicast += frames;
        } else if destination == MacAddress([0xFF; 6]) {
            self.broadcast += frames;
        } else {
            self.multicast += frames;
        }
        self.count_sizes(length, frames);
    }

    /// Counts `frames` frames of `length` bytes each to one station.
    #[inline]
    pub(crate) fn count_unicast(&mut self, length: usize, frames: u64) {
        self.unicast += frames;
        self.count_sizes(length, frames);
    }

    #[inline]
    fn count_sizes(&mut self, length: usize, frames: u64) {
        self.bytes += frames * length as u64;
        let class = match length {
            0..=64 => 0,
            65..=127 => 1,
            128..=255 => 2,
            256..=511 => 3,
            512..=1023 => 4,
            1024..=1522 => 5,
            1523.. => 6,
        };
        if let Some(counter) = self.by_size.get_mut(class) {
            *counter += frames;
        }
    }

    /// Counts the packets of a RoCEv2 frame.
    #[inline]
    pub(crate) fn count_packets(&mut self, frame: &Frame) {
        let destination = frame.packet.path.destination;
        self.count(destination, frame.length());
        if frame.packets > 1 {
            let further = u64::from(frame.packets) - 1;
            self.count_many(destination, frame.further_length(), further);
        }
    }

    pub(crate) fn frames(&self) -> u64 {
        self.unicast + self.multicast + self.broadcast
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        let mut by_size = self.by_size;
        for (class, more) in by_size.iter_mut().zip(other.by_size) {
            *class += more;
        }
        Self {
            bytes: self.bytes + other.bytes,
            unicast: self.unicast + other.unicast,
            multicast: self.multicast + other.multicast,
            broadcast: self.broadcast + other.broadcast,
            by_size,
        }
    }
}
