//! Counts of frames in one direction.

use crate::frame::{Frame, is_group};
use crate::packet::MacAddress;

/// Longest frame of each size class but the last, bytes with frame check sequence.
const SIZE_CLASSES: [usize; 6] = [64, 127, 255, 511, 1023, 1522];

/// Frames and bytes in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) bytes: u64,
    pub(crate) unicast: u64,
    pub(crate) multicast: u64,
    pub(crate) broadcast: u64,
    pub(crate) by_size: [u64; 7],
}

impl Traffic {
    /// Counts a frame of `length` bytes, frame check sequence included.
    #[inline]
    pub(crate) fn count(&mut self, destination: MacAddress, length: usize) {
        self.bytes += length as u64;
        if !is_group(destination) {
            self.unicast += 1;
        } else if destination == MacAddress([0xFF; 6]) {
            self.broadcast += 1;
        } else {
            self.multicast += 1;
        }
        // The shortest and the longest are most of all.
        let class = match length {
            0..=64 => 0,
            1523.. => SIZE_CLASSES.len(),
            _ => SIZE_CLASSES
                .iter()
                .filter(|longest| length > **longest)
                .count(),
        };
        if let Some(counter) = self.by_size.get_mut(class) {
            *counter += 1;
        }
    }

    /// Counts the packets of a RoCEv2 frame.
    #[inline]
    pub(crate) fn count_packets(&mut self, frame: &Frame) {
        let destination = frame.packet.path.destination;
        self.count(destination, frame.length());
        if frame.packets > 1 {
            let length = frame.further_length();
            for _ in 1..frame.packets {
                self.count(destination, length);
            }
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
