//! Copies of frames to groups, for the host's interface.
//!
//! The host's VSI receives the groups of the wire by one rule of the card's switch, which is for
//! frames of the wire alone. Frames that the port itself sends follow the rules for their
//! destination, and the groups of the host are not known: so the stack hands its own frames to
//! groups over.

use crate::wire::{TAG_AT, TAGGED};
use ringside_bus::tap::Tap;
use ringside_lan::Packet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The switch delivers frames to all stations by a rule of both VSIs.
const ALL_STATIONS: [u8; 6] = [0xFF; 6];

/// The way of copies to the host: what one attachment of its interface shares with the stack of the
/// port.
#[derive(Debug)]
pub(crate) struct GroupCopies {
    /// The stack may outlive the interface, which goes with its last owner.
    tap: Weak<Tap>,
    is_carrying: AtomicBool,
    packets: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
}

/// The counts of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct CopyCounts {
    /// copies that the host has
    pub(crate) packets: u64,
    /// their bytes
    pub(crate) bytes: u64,
    /// copies for which the host had no room, or that came while its interface was down
    pub(crate) dropped: u64,
}

impl GroupCopies {
    /// Copies to `tap`, none before [`GroupCopies::set_carrying`].
    pub(crate) fn new(tap: &Arc<Tap>) -> Self {
        Self {
            tap: Arc::downgrade(tap),
            is_carrying: AtomicBool::new(false),
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Hands frames over from now on, or none.
    pub(crate) fn set_carrying(&self, is_carrying: bool) {
        self.is_carrying.store(is_carrying, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> CopyCounts {
        CopyCounts {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// Hands a frame that the port sends with this tag over to the host, if it is one to a group.
    /// Does not wait.
    pub(crate) fn give(&self, packet: &Packet, tag: Option<u16>) {
        if !is_to_group(packet.bytes()) || !self.is_carrying.load(Ordering::Relaxed) {
            return;
        }
        let Some(tap) = self.tap.upgrade() else {
            return;
        };
        let frame = with_tag(packet.to_vec(), tag);
        match tap.send(&frame) {
            Ok(()) => {
                self.packets.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
            }
            Err(_) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// True for a frame to several stations that is not one to all.
fn is_to_group(frame: &[u8]) -> bool {
    let destination = frame.first_chunk::<6>();
    destination.is_some_and(|to| to[0] & 1 == 1 && *to != ALL_STATIONS)
}

/// The frame as it is on the wire: the device inserts the tag.
fn with_tag(mut frame: Vec<u8>, tag: Option<u16>) -> Vec<u8> {
    if let Some(tag) = tag.filter(|_| frame.len() >= TAG_AT) {
        let [high, low] = tag.to_be_bytes();
        frame.splice(TAG_AT..TAG_AT, [TAGGED[0], TAGGED[1], high, low]);
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_to_groups_are_those_to_several_stations_but_not_to_all() {
        for (first, last, is_group) in [
            ([0x33, 0x33, 0xFF], [0, 0, 1], true),
            ([1, 0, 0x5E], [0, 0, 0xFB], true),
            ([0xFF; 3], [0xFF; 3], false),
            ([2, 0, 0], [0, 0, 1], false),
        ] {
            let frame = [&first[..], &last, &[0; 54]].concat();
            assert_eq!(is_to_group(&frame), is_group, "{first:x?}");
        }
        assert!(!is_to_group(&[1, 0, 0, 0, 0]));
    }

    #[test]
    fn a_copy_has_the_tag_that_the_device_inserts() {
        let frame: Vec<u8> = (0..20).collect();
        assert_eq!(with_tag(frame.clone(), None), frame);
        let tagged = with_tag(frame.clone(), Some(0x6005));
        assert_eq!(tagged[..12], frame[..12]);
        assert_eq!(tagged[12..16], [0x81, 0, 0x60, 5]);
        assert_eq!(tagged[16..], frame[12..]);
        assert_eq!(with_tag(vec![1; 6], Some(5)), [1; 6]);
    }
}
