//! Packets beside RDMA: in some runs both ports are open, and bursts of packets travel in both
//! directions through every fault of the run.
//!
//! Each packet arrives once, intact, and behind the earlier ones of its flow, unless the wire or a
//! device in trouble permits another end. A packet that the application holds does not change. Each
//! buffer comes back to its pool: after a recovery and at the end, only what is held is in use.

use super::Run;
use crate::fault::{FaultEvent, FrameFault};
use crate::oracle::Moment;
use crate::random::Random;
use crate::rule::{Problem, Rule};
use ringside_lan::{Burst, Packet, PacketPath, PoolSettings};
use ringside_pmd::lan::{OpenPort, PortSettings};
use std::time::Duration;

/// The number of runs in a thousand that have packets.
const RUNS_WITH_PACKETS: usize = 250;
/// In those runs, the number of steps in a thousand after which a side sends a burst.
const BURSTS: usize = 400;
/// The most packets of a burst.
const BURST: usize = 24;
/// Flows of each direction.
const FLOWS: usize = 4;
/// Descriptors of a transmit ring. The receive ring has four times as many: all of them arrive,
/// even if each arrives twice.
const TRANSMIT_DESCRIPTORS: u16 = 64;
/// The longest frame: it needs two buffers.
const MAX_PACKET_BYTES: usize = 3800;
const SHORTEST: usize = 60;
/// Packets that an application holds at most.
const HELD: usize = 16;
/// Looks for packets at the end of a run, 200 us apart: frames that the wire holds back arrive
/// within that time.
const LAST_LOOKS: usize = 20;
/// Type of the frames: one for experiments.
const ETHERTYPE: [u8; 2] = [0x88, 0xB5];

/// A packet that was sent.
#[derive(Debug)]
struct Sent {
    flow: usize,
    /// content, once
    frame: Vec<u8>,
    /// the number of times that it was sent: clones of one packet
    times: u32,
    came: u32,
    at: Moment,
    /// frames that had arrived twice by then
    copies: u64,
    /// a device was in trouble while it travelled
    excused: bool,
}

/// A side's port, and the packets that its application holds.
struct End {
    // Packets that outlive their pool keep its memory.
    held: Vec<(Packet, Vec<u8>)>,
    open: OpenPort,
}

/// The packets of a run.
#[derive(Default)]
pub(super) struct Packets {
    ends: [Option<End>; 2],
    /// by sender
    sent: [Vec<Sent>; 2],
    /// the newest packet of each flow that has arrived, by sender
    newest: [[Option<usize>; FLOWS]; 2],
    /// frames that are no packet of the run
    mangled: usize,
}

fn settings(random: &mut Random) -> PortSettings {
    PortSettings {
        receive_descriptors: 4 * TRANSMIT_DESCRIPTORS,
        transmit_descriptors: TRANSMIT_DESCRIPTORS,
        mtu: 4000,
        pool: PoolSettings {
            buffers: 1024,
            ..PoolSettings::default()
        },
        packet_path: random.chance(500).then_some(PacketPath::Scalar),
        ..PortSettings::default()
    }
}

fn wrong(rule: Rule, side: usize, what: &str) -> Problem {
    Problem::new(rule, format!("side {side}, packets: {what}"))
}

/// Buffers that an application holds.
fn buffers(held: &[(Packet, Vec<u8>)]) -> usize {
    held.iter().map(|(packet, _)| packet.segment_count()).sum()
}

/// The number that a frame carries.
fn number_of(frame: &[u8]) -> Option<usize> {
    let number = frame.get(14..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

impl Run<'_> {
    /// Opens both ports, if the seed wants packets.
    pub(super) fn open_ports(&mut self, seed: u64) -> Result<(), Problem> {
        let mut own = Random::split(seed, 0x1A4);
        if !own.chance(RUNS_WITH_PACKETS) {
            return Ok(());
        }
        self.counts.runs_with_packets += 1;
        (0..2).try_for_each(|side| self.open_end(side, &settings(&mut own)))
    }

    fn open_end(&mut self, side: usize, settings: &PortSettings) -> Result<(), Problem> {
        let open = self.call("opening a port", |run| {
            run.side(side).device.open_port(settings)
        })?;
        let open = open.map_err(|error| wrong(Rule::CallRight, side, &error.to_string()))?;
        if let Some(end) = self.packets.ends.get_mut(side) {
            let held = Vec::new();
            *end = Some(End { open, held });
        }
        Ok(())
    }

    /// Takes what has arrived, and sends a burst now and then.
    pub(super) fn exchange_packets(&mut self) -> Result<(), Problem> {
        if self.packets.ends.iter().all(Option::is_none) {
            return Ok(());
        }
        self.receive_packets()?;
        if self.random.chance(BURSTS) {
            self.send_packets();
        }
        Ok(())
    }

    /// Packets that travel while a device is in trouble may be lost; also with faults of commands
    /// alone, as the device's filters follow from commands.
    pub(super) fn excuse_packets(&mut self) {
        self.look_at_wire();
        if self.is_troubled() {
            let travelling = self.packets.sent.iter_mut().flatten();
            travelling.for_each(|one| one.excused |= one.came < one.times);
        }
    }

    fn send_packets(&mut self) {
        self.excuse_packets();
        let side = self.random.below(2);
        let count = self.random.within(1, BURST);
        let excused = self.is_troubled();
        let macs = [0, 1].map(|side: usize| {
            let end = self.packets.ends.get(side).and_then(Option::as_ref);
            end.map_or([0; 6], |end| end.open.port.mac())
        });
        let (weather, packets) = (&self.ledger.weather, &mut self.packets);
        let (Some(Some(end)), Some(sent), [first, second]) =
            (packets.ends.get_mut(side), packets.sent.get_mut(side), macs)
        else {
            return;
        };
        let (from, to) = if side == 0 {
            (first, second)
        } else {
            (second, first)
        };
        let mut burst = Burst::with_limit(BURST);
        let mut numbers = Vec::new();
        while burst.len() < count && burst.room() > 1 {
            let length = match self.random.chance(300) {
                true => self.random.within(SHORTEST, MAX_PACKET_BYTES),
                false => self.random.within(SHORTEST, 200),
            };
            let number = sent.len();
            let mut frame = [to.as_slice(), &from, &ETHERTYPE].concat();
            frame.extend((number as u32).to_le_bytes());
            let rest = self.random.bytes(length - frame.len());
            frame.extend(rest);
            let Some(mut packet) = end.open.pool.packet_with(&frame) else {
                break;
            };
            let clone = self.random.chance(100).then(|| packet.share());
            for packet in clone.into_iter().chain([packet]) {
                numbers.push(number);
                // There is room for two.
                drop(burst.push(packet));
            }
            sent.push(Sent {
                flow: self.random.below(FLOWS),
                frame,
                times: 0,
                came: 0,
                at: weather.moment(),
                copies: weather.copies,
                excused,
            });
        }
        let taken = match end.open.transmit.first_mut() {
            Some(queue) => queue.send(&mut burst),
            None => 0,
        };
        for number in numbers.into_iter().take(taken) {
            if let Some(one) = sent.get_mut(number) {
                one.times += 1;
            }
        }
        self.counts.packets += taken as u64;
        self.note(|| format!("side {side}: {taken} of {count} packets were sent"));
    }

    fn receive_packets(&mut self) -> Result<(), Problem> {
        self.excuse_packets();
        for side in 0..2 {
            loop {
                let mut burst = Burst::with_limit(32);
                let Some(Some(end)) = self.packets.ends.get_mut(side) else {
                    return Ok(());
                };
                let queue = end.open.receive.first_mut();
                if queue.map_or(0, |queue| queue.receive(&mut burst)) == 0 {
                    break;
                }
                for packet in burst.drain() {
                    self.packet_arrived(side, packet)?;
                }
            }
            self.release_some(side)?;
        }
        Ok(())
    }

    fn packet_arrived(&mut self, side: usize, packet: Packet) -> Result<(), Problem> {
        let frame = packet.to_vec();
        self.digest.add(&[side as u64, frame.len() as u64]);
        let known = number_of(&frame).and_then(|number| {
            let sent = self.packets.sent.get(1 - side)?.get(number)?;
            (sent.frame == frame).then_some(number)
        });
        let Some(number) = known else {
            return self.mangled_packet(side, &frame);
        };
        self.judge_packet(side, number)?;
        let keeps = self.random.chance(100);
        if let Some(Some(end)) = self.packets.ends.get_mut(side)
            && keeps
            && end.held.len() < HELD
        {
            end.held.push((packet, frame));
        }
        Ok(())
    }

    /// A frame that no side sent: the wire changed it, or a device had no access to its memory.
    fn mangled_packet(&mut self, side: usize, frame: &[u8]) -> Result<(), Problem> {
        let weather = &self.ledger.weather;
        if weather.harm.iter().any(|harm| harm.lacks_memory) {
            return Ok(());
        }
        self.packets.mangled += 1;
        let book = self.wire.book();
        let is_change = |event: &&FaultEvent| {
            matches!(
                event,
                FaultEvent::Frame {
                    fault: FrameFault::Corrupt(_),
                    ..
                }
            )
        };
        // Each changed frame may arrive twice.
        let changed = 2 * book.events.iter().filter(is_change).count();
        drop(book);
        if self.packets.mangled <= changed {
            return Ok(());
        }
        let begin = frame.get(..frame.len().min(24)).unwrap_or_default();
        let text = format!("{} bytes that no side sent: {begin:02x?}...", frame.len());
        Err(wrong(Rule::BytesIntact, side, &text))
    }

    fn judge_packet(&mut self, side: usize, number: usize) -> Result<(), Problem> {
        // Receiving gives the device buffers, and it goes on meanwhile.
        self.look_at_wire();
        let weather = self.ledger.weather;
        let packets = &mut self.packets;
        let (Some(sent), Some(newest)) = (
            packets.sent.get_mut(1 - side),
            packets.newest.get_mut(1 - side),
        ) else {
            return Ok(());
        };
        let Some(one) = sent.get_mut(number) else {
            return Ok(());
        };
        one.came += 1;
        let repeated = weather.copies > one.copies;
        if one.came > one.times && !repeated {
            let text = format!(
                "packet {number} of {} bytes was sent {} times and came {} times",
                one.frame.len(),
                one.times,
                one.came
            );
            return Err(wrong(Rule::CompletesOnce, side, &text));
        }
        let held_back = weather.lost_since(one.at) > 0 || one.excused;
        let Some(newest) = newest.get_mut(one.flow) else {
            return Ok(());
        };
        match *newest {
            Some(newest) if newest > number && !repeated && !held_back => {
                let text = format!("packet {number} came after packet {newest} of its flow");
                Err(wrong(Rule::InOrder, side, &text))
            }
            _ => {
                *newest = (*newest).max(Some(number));
                Ok(())
            }
        }
    }

    /// Drops some of the packets that the application holds: their bytes are as they arrived.
    fn release_some(&mut self, side: usize) -> Result<(), Problem> {
        let all = self.random.chance(200);
        let Some(Some(end)) = self.packets.ends.get_mut(side) else {
            return Ok(());
        };
        check_held(side, &end.held)?;
        if all {
            end.held.clear();
        }
        Ok(())
    }

    /// Drops the queues of a failed device, before or after its recovery.
    pub(super) fn drop_port(&mut self, side: usize) {
        if let Some(Some(end)) = self.packets.ends.get_mut(side) {
            end.open.receive.clear();
            end.open.transmit.clear();
        }
    }

    /// Opens the port of a recovered device again; of the one before, only held packets are left.
    pub(super) fn reopen_port(&mut self, side: usize) -> Result<(), Problem> {
        if self.packets.ends.iter().all(Option::is_none) {
            return Ok(());
        }
        self.drop_port(side);
        let Some(end) = self.packets.ends.get_mut(side).and_then(Option::take) else {
            return Ok(());
        };
        check_end(side, &end)?;
        let settings = settings(&mut self.random);
        self.open_end(side, &settings)
    }

    /// Takes the last packets, and closes both ports.
    pub(super) fn close_ports(&mut self) -> Result<(), Problem> {
        if self.packets.ends.iter().all(Option::is_none) {
            return Ok(());
        }
        for _ in 0..LAST_LOOKS {
            self.receive_packets()?;
            self.clock.pause(Duration::from_micros(200));
        }
        self.receive_packets()?;
        if !self.is_troubled() {
            self.check_missing()?;
        }
        for side in 0..2 {
            self.drop_port(side);
            let end = self.packets.ends.get_mut(side).and_then(Option::take);
            if let Some(end) = end.filter(|_| !self.is_troubled()) {
                check_end(side, &end)?;
            }
        }
        Ok(())
    }

    fn check_missing(&self) -> Result<(), Problem> {
        let weather = &self.ledger.weather;
        for (side, sent) in self.packets.sent.iter().enumerate() {
            let missing = sent.iter().enumerate().find(|(_, one)| {
                one.came < one.times && !one.excused && weather.lost_since(one.at) == 0
            });
            if let Some((number, one)) = missing {
                let text = format!(
                    "packet {number} of {} was sent {} times and came {} times",
                    sent.len(),
                    one.times,
                    one.came
                );
                return Err(wrong(Rule::Completes, side, &text));
            }
        }
        Ok(())
    }
}

fn check_held(side: usize, held: &[(Packet, Vec<u8>)]) -> Result<(), Problem> {
    let changed = held.iter().any(|(packet, frame)| packet.to_vec() != *frame);
    match changed {
        true => Err(wrong(
            Rule::OutsideUntouched,
            side,
            "a packet that the application holds has changed",
        )),
        false => Ok(()),
    }
}

/// Checks that queues which are gone have given all buffers back.
fn check_end(side: usize, end: &End) -> Result<(), Problem> {
    check_held(side, &end.held)?;
    let (in_use, held) = (end.open.pool.usage().in_use as usize, buffers(&end.held));
    if in_use == held {
        return Ok(());
    }
    let text = format!("{in_use} buffers are in use, the application holds {held}");
    Err(wrong(Rule::NothingLeft, side, &text))
}
