//! The loop of one thread: a queue of every port.

use super::mode::Mode;
use super::packets::{self, Generator};
use super::statistics::Shared;
use crate::mirror::{Direction, Mirror};
use ringside_bus::Instant as Moment;
use ringside_lan::{Burst, HangWatch, QueueState, ReceiveQueue, TransmitQueue};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Rounds without a packet after which another thread may have the core: there may be fewer cores than
/// threads.
const IDLE_ROUNDS: u32 = 64;

/// Rounds after which a thread looks at the time, to look at its transmit queues.
const WATCH_ROUNDS: u32 = 4096;
/// Between two looks at the transmit queues.
const WATCH_EVERY: Duration = Duration::from_millis(500);
/// Time after which a transmit queue that does not move is reported; Linux takes as long.
const HANG_LIMIT: Duration = Duration::from_secs(5);

struct PortQueues {
    receive: ReceiveQueue,
    transmit: TransmitQueue,
    generator: Generator,
    watch: HangWatch,
    /// port that its packets leave by
    pair: usize,
}

/// See the module.
pub(super) struct Worker {
    number: usize,
    shared: Arc<Shared>,
    ports: Vec<PortQueues>,
    burst: Burst,
    mirror: Option<Arc<Mirror>>,
    /// packets have time stamps
    stamps: bool,
}

impl Worker {
    pub(super) fn new(
        number: usize,
        shared: Arc<Shared>,
        burst: usize,
        mirror: Option<Arc<Mirror>>,
        stamps: bool,
    ) -> Self {
        Self {
            number,
            shared,
            ports: Vec::new(),
            burst: Burst::with_limit(burst),
            mirror,
            stamps,
        }
    }

    pub(super) fn add_port(
        &mut self,
        receive: ReceiveQueue,
        transmit: TransmitQueue,
        generator: Generator,
        pair: usize,
    ) {
        self.ports.push(PortQueues {
            receive,
            transmit,
            generator,
            watch: HangWatch::new(HANG_LIMIT),
            pair,
        });
    }

    #[cfg(test)]
    pub(super) fn transmit(&mut self, port: usize) -> &mut TransmitQueue {
        &mut self.ports[port].transmit
    }

    /// Forwards until its stop is requested.
    pub(super) fn run(&mut self) {
        let mut idle = 0;
        let (begin, mut looked, mut rounds) = (Instant::now(), Instant::now(), 0);
        while !self.shared.stop.load(Ordering::Relaxed) {
            if !self.shared.forwarding.load(Ordering::Relaxed) {
                self.publish_drops();
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let mut moved = 0;
            for port in 0..self.ports.len() {
                moved += self.round(port);
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

    /// Looks whether the transmit queues move, and lets the reporting thread see it.
    fn watch(&mut self, now: Moment) {
        for (index, port) in self.ports.iter_mut().enumerate() {
            let hang = port.watch.look(&mut port.transmit, now);
            let stuck = hang.map_or(0, |hang| u64::from(hang.descriptors));
            if let Some(counters) = self.shared.counters(index, self.number) {
                counters.stuck.store(stuck, Ordering::Relaxed);
            }
        }
        self.publish_drops();
    }

    /// Publishes the packets that the queues dropped; not for each burst.
    fn publish_drops(&self) {
        for (index, port) in self.ports.iter().enumerate() {
            let Some(counters) = self.shared.counters(index, self.number) else {
                continue;
            };
            let (receive, transmit) = (port.receive.drops(), port.transmit.drops());
            // A cause is of one direction: the other queue's count is 0.
            let causes = receive.counts().into_iter().zip(transmit.counts());
            for (place, (received, sent)) in counters.by_queue.iter().zip(causes) {
                place.store(received + sent, Ordering::Relaxed);
            }
            let short = port.receive.counters().no_buffers;
            counters.pool_empty.store(short, Ordering::Relaxed);
        }
    }

    /// One burst of one port; returns how many packets moved.
    pub(super) fn round(&mut self, index: usize) -> usize {
        let mode = self.shared.mode(index);
        let Some(port) = self.ports.get_mut(index) else {
            return 0;
        };
        let received = port.receive.receive(&mut self.burst);
        if let Some(mirror) = &self.mirror {
            mirror.copy(index, Direction::Received, self.burst.packets());
        }
        let pair = port.pair;
        if self.stamps
            && let Some(counters) = self.shared.counters(index, self.number)
        {
            counters.stamps.note(self.burst.packets());
        }
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
        let before = self.sent(out);
        let mirrored = self.mirror.as_ref().map(|mirror| {
            let copies = mirror.take(out, Direction::Sent, self.burst.packets());
            (mirror, copies)
        });
        let taken = match self.ports.get_mut(out) {
            Some(out) => out.transmit.send(&mut self.burst),
            None => 0,
        };
        if let Some((mirror, copies)) = mirrored {
            // Packets without room in the ring were not sent.
            mirror.give(copies, offered - self.burst.len());
        }
        self.burst.clear();
        let after = self.sent(out);
        // The queue drops what it cannot send: that is taken, and not sent.
        let sent = (after.0 - before.0, after.1 - before.1);
        self.publish(index, out, sent);
        match mode {
            Mode::Rxonly => {}
            // Generated packets without room are generated again.
            Mode::Txonly | Mode::Flowgen => self.count_drops(index, out, received, 0),
            _ => {
                let by_mode = received.saturating_sub(offered);
                self.count_drops(index, out, by_mode, offered - taken);
            }
        }
        received + taken
    }

    /// Counts packets that the mode dropped, and those that the transmit queue did not take.
    fn count_drops(&self, index: usize, out: usize, by_mode: usize, not_taken: usize) {
        let Some(counters) = self.shared.counters(index, self.number) else {
            return;
        };
        add(&counters.by_mode, by_mode as u64);
        if not_taken > 0 {
            let queue = self.ports.get(out).map(|out| out.transmit.state());
            let place = match queue {
                Some(QueueState::Running) => &counters.queue_full,
                _ => &counters.out_of_service,
            };
            add(place, not_taken as u64);
        }
    }

    /// Packets that a port has sent, and their bytes.
    fn sent(&self, port: usize) -> (u64, u64) {
        let counters = self.ports.get(port).map(|port| port.transmit.counters());
        counters.map_or((0, 0), |counters| (counters.packets, counters.bytes))
    }

    /// Applies the mode to the burst.
    fn treat(&mut self, mode: Mode, index: usize, out: usize) {
        let Some(addresses) = self.ports.get(out).map(|port| port.generator.addresses) else {
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
        let Some(port) = self.ports.get_mut(index) else {
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
        if let (Some(port), Some(counters)) = (
            self.ports.get(index),
            self.shared.counters(index, self.number),
        ) {
            let counted = port.receive.counters();
            let pairs = [
                (&counters.received, counted.packets),
                (&counters.received_bytes, counted.bytes),
                (&counters.polls, counted.polls),
                (&counters.empty_polls, counted.empty_polls),
            ];
            for (place, value) in pairs {
                place.store(value, Ordering::Relaxed);
            }
        }
        if let Some(counters) = self.shared.counters(out, self.number) {
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
