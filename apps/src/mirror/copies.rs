//! The buffers of a mirror: copies that wait for a capture, and those that were lost.

use super::copied::{Copied, Direction, now_ns};
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use ringside_lan::{MAX_BURST, Packet};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Copies of the first packets of a burst.
#[derive(Default)]
pub(crate) struct Copies {
    copies: ArrayVec<Box<Copied>, MAX_BURST>,
    /// packets behind those for which no buffer was free
    missing: usize,
    direction: Direction,
}

/// Copies that were lost, of each direction.
#[derive(Default)]
pub(super) struct Lost {
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
}

impl Lost {
    const fn of(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Received => &self.received,
            Direction::Sent => &self.sent,
        }
    }
}

/// Buffers with copies that wait for a capture, those that are free, and the losses.
pub(crate) struct Mirror {
    attached: AtomicBool,
    pub(super) free: ArrayQueue<Box<Copied>>,
    pub(super) full: ArrayQueue<Box<Copied>>,
    pub(super) lost: Lost,
}

impl Mirror {
    pub(crate) fn new(copies: usize) -> Self {
        let mirror = Self {
            attached: AtomicBool::new(false),
            free: ArrayQueue::new(copies),
            full: ArrayQueue::new(copies),
            lost: Lost::default(),
        };
        for _ in 0..copies {
            let _ = mirror.free.push(Box::new(Copied::empty()));
        }
        mirror
    }

    /// Copies packets, if a capture is attached.
    pub(crate) fn copy(&self, port: usize, direction: Direction, packets: &[Packet]) {
        let copies = self.take(port, direction, packets);
        self.give(copies, packets.len(), 0);
    }

    /// The same, of packets of which only the first few will count: [`Mirror::give`] says how many.
    pub(crate) fn take(&self, port: usize, direction: Direction, packets: &[Packet]) -> Copies {
        let mut taken = Copies {
            direction,
            ..Copies::default()
        };
        if !self.attached.load(Ordering::Relaxed) || packets.is_empty() {
            return taken;
        }
        let time_ns = now_ns();
        for (place, packet) in packets.iter().enumerate() {
            let Some(mut copy) = self.free.pop() else {
                taken.missing = packets.len() - place;
                break;
            };
            copy.time_ns = time_ns;
            copy.port = port as u16;
            copy.direction = direction;
            copy.lost = self.lost.of(direction).load(Ordering::Relaxed);
            copy.fill(packet);
            taken.copies.push(copy);
        }
        taken
    }

    /// Passes the copies of the first `count` packets to the capture, but for those with a bit in
    /// `dropped`, and discards the others. Of the packets that count, the ones without a copy are
    /// lost.
    pub(crate) fn give(&self, taken: Copies, count: usize, dropped: u64) {
        let counts = |place: usize| place < count && dropped.wrapping_shr(place as u32) & 1 == 0;
        let of_burst = taken.copies.len()..taken.copies.len() + taken.missing;
        let lost = of_burst.filter(|place| counts(*place)).count() as u64;
        if lost > 0 {
            let of = self.lost.of(taken.direction);
            of.fetch_add(lost, Ordering::Relaxed);
        }
        for (place, copy) in taken.copies.into_iter().enumerate() {
            // Both have room for all copies that there are.
            let _ = match counts(place) {
                true => self.full.push(copy),
                false => self.free.push(copy),
            };
        }
    }

    /// Begins or ends the copies of a capture; losses count from its start.
    pub(crate) fn attach(&self, attached: bool) {
        for direction in [Direction::Received, Direction::Sent] {
            self.lost.of(direction).store(0, Ordering::Relaxed);
        }
        self.attached.store(attached, Ordering::Relaxed);
        while let Some(copy) = self.full.pop() {
            let _ = self.free.push(copy);
        }
    }

    /// Tells a capture its losses until now, the last that it hears.
    pub(super) fn write_losses(&self, to: &mut impl Write) -> io::Result<()> {
        let mut last = Copied::empty();
        for direction in [Direction::Received, Direction::Sent] {
            last.direction = direction;
            last.lost = self.lost.of(direction).load(Ordering::Relaxed);
            last.write_head(true, to)?;
        }
        to.flush()
    }
}

#[cfg(test)]
impl Mirror {
    /// Copies that wait for the capture, and those that are lost.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let lost = |direction| self.lost.of(direction).load(Ordering::Relaxed);
        let lost = lost(Direction::Received) + lost(Direction::Sent);
        (self.full.len() as u64, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(mirror: &Mirror) -> usize {
        mirror.full.len()
    }

    /// Copies of a burst of `copied + missing` packets.
    fn taken(mirror: &Mirror, copied: usize, missing: usize) -> Copies {
        let copies = (0..copied).map(|_| mirror.free.pop().unwrap()).collect();
        Copies {
            copies,
            missing,
            direction: Direction::Sent,
        }
    }

    #[test]
    fn copies_of_packets_that_were_not_sent_are_forgotten_and_their_buffers_stay() {
        let mirror = Mirror::new(4);
        mirror.give(taken(&mirror, 3, 0), 2, 0);
        assert_eq!((filled(&mirror), mirror.free.len()), (2, 2));
        mirror.lost.sent.store(7, Ordering::Relaxed);
        mirror.attach(true);
        assert_eq!(mirror.counts().1, 0, "of an earlier capture");
        assert_eq!(
            (filled(&mirror), mirror.free.len()),
            (0, 4),
            "of an earlier capture"
        );
    }

    #[test]
    fn copies_of_packets_that_the_queue_dropped_in_the_middle_are_forgotten() {
        let mirror = Mirror::new(8);
        let mut copies = taken(&mirror, 4, 4);
        for (number, copy) in (0..).zip(&mut copies.copies) {
            copy.port = number;
        }
        // Six of eight packets were taken: the second and the last of them were dropped.
        mirror.give(copies, 6, 0b10_0010);
        let ports: Vec<u16> = std::iter::from_fn(|| mirror.full.pop())
            .map(|copy| copy.port)
            .collect();
        assert_eq!(ports, [0, 2, 3]);
        assert_eq!(mirror.counts().1, 1, "the fifth was sent, and has no copy");
    }

    #[test]
    fn packets_that_were_not_sent_are_no_lost_copies() {
        let mirror = Mirror::new(4);
        let lost = || mirror.counts().1;
        for sent in 0..=2 {
            mirror.give(taken(&mirror, 2, 30), sent, 0);
            while let Some(copy) = mirror.full.pop() {
                mirror.free.push(copy).unwrap();
            }
            assert_eq!(lost(), 0, "{sent} sent, each with a copy");
        }
        mirror.give(taken(&mirror, 2, 30), 5, 0);
        assert_eq!(lost(), 3, "5 sent, 2 of them with a copy");
        mirror.give(Copies::default(), 32, 0);
        assert_eq!(lost(), 3, "no capture was attached when they were copied");
    }
}
