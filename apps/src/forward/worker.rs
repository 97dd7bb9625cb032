//! The loop of one thread: a queue of every port, and the queues of VSIs that are given to it.

use super::layout::Place;
use super::mode::Mode;
use super::packets::{self, Generator};
use super::statistics::Shared;
use crate::mirror::{Direction, Mirror};
use ringside_bus::Instant as Moment;
use ringside_lan::{Burst, Drops, HangWatch, QueueState, ReceiveQueue, TransmitQueue};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Rounds without a packet after which another thread may have the core: there may be fewer cores
/// than threads.
const IDLE_ROUNDS: u32 = 64;

/// Rounds after which a thread looks at the time, to look at its transmit queues.
const WATCH_ROUNDS: u32 = 4096;
/// Between two looks at the transmit queues.
const WATCH_EVERY: Duration = Duration::from_millis(500);
/// Time after which a transmit queue that does not move is reported; Linux takes as long.
const HANG_LIMIT: Duration = Duration::from_secs(5);

/// Longest wait for packets in transmit rings when forwarding ends.
const SEND_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait for packets that still arrive then, and the time after which none does.
const ARRIVE_LIMIT: Duration = Duration::from_millis(500);
const QUIET: Duration = Duration::from_millis(100);
/// The pause of a wait.
const PAUSE: Duration = Duration::from_millis(1);

/// Has the packets in the transmit rings leave, takes those that arrive at ports which forward
/// none, and stops all queues: then each packet is in a count.
pub(super) fn drain(workers: &mut [Worker]) {
    let begin = Instant::now();
    let receive = |workers: &mut [Worker]| workers.iter_mut().map(Worker::take_arrived).sum();
    while workers.iter_mut().any(Worker::is_sending) && begin.elapsed() < SEND_LIMIT {
        if receive(workers) == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    let begin = Instant::now();
    let mut last = begin;
    while begin.elapsed() < ARRIVE_LIMIT && last.elapsed() < QUIET {
        match receive(workers) {
            0 => std::thread::sleep(PAUSE),
            1.. => last = Instant::now(),
        }
    }
    workers.iter_mut().for_each(Worker::stop_queues);
}

/// Queues that take the place of those of before.
pub(super) struct Handover {
    pub(super) station: usize,
    pub(super) queue: usize,
    pub(super) receive: ReceiveQueue,
    pub(super) transmit: TransmitQueue,
}

/// Counts of queues that were replaced.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    received: u64,
    received_bytes: u64,
    polls: u64,
    empty_polls: u64,
    no_buffers: u64,
    drops: [u64; Drops::CAUSES],
}

struct Lane {
    place: Place,
    receive: ReceiveQueue,
    transmit: TransmitQueue,
    generator: Generator,
    watch: HangWatch,
    past: Past,
    /// lane of this thread that its packets leave by
    out: usize,
}

impl Lane {
    /// Packets that its queues dropped, by cause. A cause is of one direction: the other queue's
    /// count is 0.
    fn drops(&self) -> [u64; Drops::CAUSES] {
        let (receive, transmit) = (self.receive.drops(), self.transmit.drops());
        let mut all = self.past.drops;
        let causes = receive.counts().into_iter().zip(transmit.counts());
        for (count, (received, sent)) in all.iter_mut().zip(causes) {
            *count += received + sent;
        }
        all
    }

    /// Stops its queues, or starts them; returns true if both are stopped then. Queues of a device
    /// out of service do neither.
    fn settle(&mut self, stopped: bool) -> bool {
        let _ = match stopped {
            true => self.receive.stop().and(self.transmit.stop()),
            false => self.receive.start().and(self.transmit.start()),
        };
        let states = [self.receive.state(), self.transmit.state()];
        match stopped {
            true => states == [QueueState::Stopped; 2],
            false => states != [QueueState::Running; 2],
        }
    }

    /// Continues with other queues; the counts go on.
    fn replace(&mut self, with: Handover) {
        // The device was reset: packets in the rings count as dropped, and go back to their pool.
        let _ = (self.receive.stop(), self.transmit.stop());
        let drops = self.drops();
        let counted = *self.receive.counters();
        let past = &mut self.past;
        past.received += counted.packets;
        past.received_bytes += counted.bytes;
        past.polls += counted.polls;
        past.empty_polls += counted.empty_polls;
        past.no_buffers += counted.no_buffers;
        past.drops = drops;
        self.receive = with.receive;
        self.transmit = with.transmit;
        self.watch = HangWatch::new(HANG_LIMIT);
    }
}

/// See the module.
pub(super) struct Worker {
    shared: Arc<Shared>,
    lanes: Vec<Lane>,
    burst: Burst,
    mirror: Option<Arc<Mirror>>,
    /// packets have time stamps
    stamps: bool,
    replacements: Receiver<Handover>,
    /// handovers that were looked for
    handovers: u32,
    /// bursts that each lane sent before it forwarded
    first_bursts: u32,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        mirror: Option<Arc<Mirror>>,
        stamps: bool,
        replacements: Receiver<Handover>,
    ) -> Self {
        Self {
            lanes: Vec::new(),
            burst: Burst::with_limit(shared.burst()),
            shared,
            mirror,
            stamps,
            replacements,
            handovers: 0,
            first_bursts: 0,
        }
    }

    /// Adds a lane whose packets leave by itself.
    pub(super) fn add_lane(
        &mut self,
        place: Place,
        receive: ReceiveQueue,
        transmit: TransmitQueue,
        generator: Generator,
    ) {
        self.lanes.push(Lane {
            place,
            receive,
            transmit,
            generator,
            watch: HangWatch::new(HANG_LIMIT),
            past: Past::default(),
            out: self.lanes.len(),
        });
    }

    /// Lets packets leave by the queue of the same number of the station that `pair_of` names.
    pub(super) fn pair_lanes(&mut self, pair_of: impl Fn(usize) -> usize) {
        for index in 0..self.lanes.len() {
            let place = self.lanes[index].place;
            let pair = (pair_of(place.station), place.queue);
            let mut all = self.lanes.iter().map(|lane| lane.place);
            let found = all.position(|place| (place.station, place.queue) == pair);
            self.lanes[index].out = found.unwrap_or(index);
        }
    }

    /// Takes queues over that replace those of before, stops or starts queues as asked, and takes
    /// the length of a burst. Between two rounds the burst is empty.
    pub(super) fn take_over(&mut self) {
        self.handovers = self.shared.handovers.load(Ordering::Acquire);
        while let Ok(with) = self.replacements.try_recv() {
            let of = (with.station, with.queue);
            let mut lanes = self.lanes.iter_mut();
            let lane = lanes.find(|lane| (lane.place.station, lane.place.queue) == of);
            if let Some(lane) = lane {
                lane.replace(with);
            }
        }
        for lane in &mut self.lanes {
            let wanted = self.shared.is_stopped(lane.place.port);
            let counters = self.shared.counters(lane.place);
            let was_stopped = counters.map(|counters| &counters.is_stopped);
            let Some(was_stopped) = was_stopped.filter(|was| wanted || was.load(Ordering::Relaxed))
            else {
                continue;
            };
            was_stopped.store(lane.settle(wanted), Ordering::Release);
        }
        self.burst = Burst::with_limit(self.shared.burst());
    }

    #[cfg(test)]
    pub(super) const fn lanes(&self) -> usize {
        self.lanes.len()
    }

    #[cfg(test)]
    pub(super) fn transmit(&mut self, lane: usize) -> &mut TransmitQueue {
        &mut self.lanes[lane].transmit
    }

    /// Forwards until its stop is requested.
    pub(super) fn run(&mut self) {
        let mut idle = 0;
        let (begin, mut looked, mut rounds) = (Instant::now(), Instant::now(), 0);
        while !self.shared.stop.load(Ordering::Relaxed) {
            if self.shared.handovers.load(Ordering::Relaxed) != self.handovers {
                self.take_over();
            }
            if !self.shared.is_forwarding() {
                self.publish_drops();
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            self.send_first_bursts();
            let mut moved = 0;
            for lane in 0..self.lanes.len() {
                moved += self.round(lane);
            }
            rounds += 1;
            if rounds == WATCH_ROUNDS {
                rounds = 0;
                let now = Instant::now();
                if now - looked >= WATCH_EVERY {
                    looked = now;
                    self.watch(Moment((now - begin).as_nanos() as u64));
                }
            }
            idle = if moved == 0 { idle + 1 } else { 0 };
            if idle >= IDLE_ROUNDS {
                std::thread::yield_now();
            }
        }
        self.publish_drops();
    }

    /// Sends the bursts that were asked for before forwarding begins.
    fn send_first_bursts(&mut self) {
        let wanted = self.shared.first_bursts();
        while self.first_bursts != wanted {
            self.first_bursts = self.first_bursts.wrapping_add(1);
            for lane in 0..self.lanes.len() {
                self.send_generated(lane);
            }
        }
    }

    /// Sends one burst of packets as txonly makes them. Those without room in the ring are dropped.
    fn send_generated(&mut self, index: usize) {
        let Some(place) = self.lanes.get(index).map(|lane| lane.place) else {
            return;
        };
        self.generate(Mode::Txonly, index);
        let offered = self.burst.len();
        let (taken, sent) = self.send(index);
        self.publish(index, index, sent);
        self.count_drops(place, index, 0, offered - taken);
    }

    /// Looks whether the transmit queues move, and lets the reporting thread see it.
    fn watch(&mut self, now: Moment) {
        for lane in &mut self.lanes {
            let hang = lane.watch.look(&mut lane.transmit, now);
            let stuck = hang.map_or(0, |hang| u64::from(hang.descriptors));
            if let Some(counters) = self.shared.counters(lane.place) {
                counters.stuck.store(stuck, Ordering::Relaxed);
            }
        }
        self.publish_drops();
    }

    /// Publishes the packets that the queues dropped; not for each burst.
    fn publish_drops(&self) {
        for lane in &self.lanes {
            let Some(counters) = self.shared.counters(lane.place) else {
                continue;
            };
            for (place, count) in counters.by_queue.iter().zip(lane.drops()) {
                place.store(count, Ordering::Relaxed);
            }
            let short = lane.past.no_buffers + lane.receive.counters().no_buffers;
            counters.pool_empty.store(short, Ordering::Relaxed);
        }
    }

    /// Reclaims packets that have left; true if others of a device in service have not.
    fn is_sending(&mut self) -> bool {
        let mut sending = false;
        for lane in &mut self.lanes {
            lane.transmit.reclaim();
            let in_service = lane.transmit.state() == QueueState::Running;
            sending |= in_service && lane.transmit.outstanding() > 0;
        }
        sending
    }

    /// Takes a burst of each lane whose mode forwards none. Packets of the others stay in their
    /// rings: a pair of ports would pass them on without end.
    fn take_arrived(&mut self) -> usize {
        let mut all = 0;
        for index in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get_mut(index) else {
                continue;
            };
            let place = lane.place;
            let mode = self.shared.mode(place.port);
            if !matches!(mode, Mode::Rxonly | Mode::Txonly | Mode::Flowgen) {
                continue;
            }
            let received = lane.receive.receive(&mut self.burst);
            self.note_received(place);
            self.burst.clear();
            self.publish(index, index, (0, 0));
            if mode != Mode::Rxonly {
                self.count_drops(place, index, received, 0);
            }
            all += received;
        }
        all
    }

    /// Shows a received burst to the mirror, and counts its time stamps.
    fn note_received(&self, place: Place) {
        if let Some(mirror) = &self.mirror {
            mirror.copy(place.station, Direction::Received, self.burst.packets());
        }
        if self.stamps
            && let Some(counters) = self.shared.counters(place)
        {
            counters.stamps.note(self.burst.packets());
        }
    }

    /// Stops the queues, and publishes the packets that were in their rings.
    fn stop_queues(&mut self) {
        for lane in &mut self.lanes {
            // The queue of a device out of service does not stop; the drop of the queue sees to it.
            let _ = (lane.transmit.stop(), lane.receive.stop());
        }
        self.publish_drops();
    }

    /// One burst of one lane; returns how many packets moved.
    pub(super) fn round(&mut self, index: usize) -> usize {
        let Some(lane) = self.lanes.get_mut(index) else {
            return 0;
        };
        let mode = self.shared.mode(lane.place.port);
        let received = lane.receive.receive(&mut self.burst);
        let (place, pair) = (lane.place, lane.out);
        self.note_received(place);
        let out = match mode {
            Mode::Txonly | Mode::Flowgen => {
                self.burst.clear();
                index
            }
            Mode::IcmpEcho => index,
            _ => pair,
        };
        self.treat(mode, index, out);
        let offered = self.burst.len();
        let (taken, sent) = self.send(out);
        self.publish(index, out, sent);
        match mode {
            Mode::Rxonly => {}
            // Generated packets without room are generated again.
            Mode::Txonly | Mode::Flowgen => self.count_drops(place, out, received, 0),
            _ => {
                let by_mode = received.saturating_sub(offered);
                self.count_drops(place, out, by_mode, offered - taken);
            }
        }
        received + taken
    }

    /// Sends the burst by a lane, and empties it. Returns the packets that the queue took, and
    /// those that it sent, with their bytes.
    fn send(&mut self, out: usize) -> (usize, (u64, u64)) {
        let before = self.sent(out);
        let mirrored = self.mirror.as_ref().map(|mirror| {
            let station = self.lanes.get(out).map_or(0, |lane| lane.place.station);
            let copies = mirror.take(station, Direction::Sent, self.burst.packets());
            (mirror, copies)
        });
        let mut dropped = 0;
        let taken = match self.lanes.get_mut(out) {
            Some(out) => {
                let taken = out.transmit.send(&mut self.burst);
                if mirrored.is_some() {
                    dropped = out.transmit.dropped_among(taken);
                }
                taken
            }
            None => 0,
        };
        let after = self.sent(out);
        // The queue drops what it cannot send: that is taken, and not sent.
        let sent = (after.0 - before.0, after.1 - before.1);
        if let Some((mirror, copies)) = mirrored {
            // Packets without room in the ring were not sent, nor were those that the queue
            // dropped.
            mirror.give(copies, taken, dropped);
        }
        self.burst.clear();
        (taken, sent)
    }

    /// Counts packets that the mode dropped, and those that the transmit queue did not take.
    fn count_drops(&self, place: Place, out: usize, by_mode: usize, not_taken: usize) {
        let Some(counters) = self.shared.counters(place) else {
            return;
        };
        add(&counters.by_mode, by_mode as u64);
        if not_taken > 0 {
            let queue = self.lanes.get(out).map(|out| out.transmit.state());
            let place = match queue {
                Some(QueueState::Running) => &counters.queue_full,
                _ => &counters.out_of_service,
            };
            add(place, not_taken as u64);
        }
    }

    /// Packets that a lane has sent, and their bytes.
    fn sent(&self, lane: usize) -> (u64, u64) {
        let counters = self.lanes.get(lane).map(|lane| lane.transmit.counters());
        counters.map_or((0, 0), |counters| (counters.packets, counters.bytes))
    }

    /// Applies the mode to the burst.
    fn treat(&mut self, mode: Mode, index: usize, out: usize) {
        let Some(addresses) = self.lanes.get(out).map(|port| port.generator.addresses) else {
            return;
        };
        match mode {
            Mode::Io => {}
            Mode::Rxonly => self.burst.clear(),
            Mode::Macswap => self.burst.retain(packets::swap_addresses),
            Mode::Mac => self
                .burst
                .retain(|packet| packets::set_addresses(packet, addresses)),
            Mode::IcmpEcho => self
                .burst
                .retain(|packet| packets::answer(packet, addresses.own)),
            Mode::Txonly | Mode::Flowgen => self.generate(mode, index),
        }
    }

    fn generate(&mut self, mode: Mode, index: usize) {
        let Some(port) = self.lanes.get_mut(index) else {
            return;
        };
        while self.burst.room() > 0 {
            let pool = port.transmit.pool();
            let packet = match mode {
                Mode::Flowgen => port.generator.next_flow(pool),
                _ => port.generator.same(pool),
            };
            let Some(packet) = packet else {
                // All buffers are in use: reclaims those that were sent.
                port.transmit.reclaim();
                break;
            };
            if self.burst.push(packet).is_err() {
                break;
            }
        }
    }

    /// Publishes the queues' counts for the reporting thread.
    fn publish(&self, index: usize, out: usize, (sent, sent_bytes): (u64, u64)) {
        if let Some(lane) = self.lanes.get(index)
            && let Some(counters) = self.shared.counters(lane.place)
        {
            let (counted, past) = (lane.receive.counters(), &lane.past);
            let pairs = [
                (&counters.received, past.received + counted.packets),
                (
                    &counters.received_bytes,
                    past.received_bytes + counted.bytes,
                ),
                (&counters.polls, past.polls + counted.polls),
                (
                    &counters.empty_polls,
                    past.empty_polls + counted.empty_polls,
                ),
            ];
            for (place, value) in pairs {
                place.store(value, Ordering::Relaxed);
            }
        }
        let out = self.lanes.get(out).map(|lane| lane.place);
        if let Some(counters) = out.and_then(|out| self.shared.counters(out)) {
            add(&counters.sent, sent);
            add(&counters.sent_bytes, sent_bytes);
        }
    }
}

/// Adds without a locked instruction: only this thread writes.
fn add(counter: &std::sync::atomic::AtomicU64, value: u64) {
    let before = counter.load(Ordering::Relaxed);
    counter.store(before + value, Ordering::Relaxed);
}
