//! A capture from a port of this command's own.

use super::pcapng::Interface;
use super::sink::{End, Sink};
use crate::failure::Failure;
use crate::mirror::{Copied, now_ns};
use crate::supervised::{Brought, LOOK_EVERY, Queues, Wanted};
use ringside_lan::{Burst, MAX_BURST, Packet, ReceiveQueue};
use ringside_pmd::lan::port::MAX_MTU;
use ringside_pmd::lan::{Port, PortSettings};
use std::time::{Duration, Instant};

/// The interfaces of a capture with --device-time: of packets that the device has stamped, and not.
const STAMPED: u16 = 0;
const UNSTAMPED: u16 = 1;
/// The counter of packets for which no receive descriptor was free, or which were too long.
const DROPPED: &str = "rx_dropped";
/// Between two looks at that counter, which has 32 bits.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The pause of a thread that finds no packet.
const IDLE: Duration = Duration::from_micros(100);

/// The port of a capture.
pub(super) fn wanted(device_time: bool) -> Wanted {
    Wanted {
        own: PortSettings {
            promiscuous: true,
            mtu: MAX_MTU,
            time_stamps: device_time,
            ..PortSettings::default()
        },
        further: Vec::new(),
    }
}

/// The interfaces of a port's file.
pub(super) fn interfaces(name: &str, device_time: bool) -> Vec<Interface> {
    if !device_time {
        return vec![name.into()];
    }
    vec![
        Interface {
            name: name.to_owned(),
            description: "time of the device's clock at the arrival; not the time of day",
        },
        Interface {
            name: format!("{name} unstamped"),
            description: "not stamped by the device: time of its clock when the packet was read",
        },
    ]
}

/// Packets that did not reach the file.
#[derive(Default)]
struct Losses {
    /// of the device, since the port was opened
    device: u64,
    /// of device and queues before the port was opened again
    past: u64,
}

impl Losses {
    /// Asks the device. While it is out of service the count stays.
    fn look(&mut self, port: &Port) {
        let all = port.statistics().unwrap_or_default();
        if let Some(one) = all.iter().find(|one| one.name == DROPPED) {
            self.device = one.value;
        }
    }
}

/// Packets that a queue dropped.
fn dropped(queue: &ReceiveQueue) -> u64 {
    queue.drops().counts().iter().sum()
}

/// The times of packets: those of the device, or the time of day at which they are read.
struct Times {
    /// of the device; `Device::observe` keeps its clock known
    of_device: bool,
    last_ns: u64,
    unstamped: u64,
}

impl Times {
    /// Sets time and interface of a copy.
    fn set(&mut self, copy: &mut Copied, packet: &Packet, now_ns: u64, port: &Port) {
        (copy.time_ns, copy.port) = match packet.timestamp() {
            _ if !self.of_device => (now_ns, STAMPED),
            Some(stamp) => (stamp, STAMPED),
            None => {
                self.unstamped += 1;
                // Out of service it has no clock: the packet came after the last one.
                (port.device_time().unwrap_or(self.last_ns), UNSTAMPED)
            }
        };
        self.last_ns = copy.time_ns;
    }
}

/// See the module.
pub(super) struct Own {
    receive: Vec<ReceiveQueue>,
    times: Times,
    losses: Losses,
}

impl Own {
    pub(super) fn new(queues: Vec<Queues>, device_time: bool) -> Self {
        Self {
            receive: queues.into_iter().flat_map(|one| one.receive).collect(),
            times: Times {
                of_device: device_time,
                last_ns: 0,
                unstamped: 0,
            },
            losses: Losses::default(),
        }
    }

    /// Writes packets until the capture ends, and looks after the device. Errors: the file takes no
    /// more, or the device is gone for good.
    pub(super) fn capture(
        &mut self,
        brought: &mut Brought,
        sink: &mut Sink,
    ) -> Result<End, Failure> {
        let end = self.run(brought, sink);
        self.losses.look(&brought.controls.port);
        end
    }

    fn run(&mut self, brought: &mut Brought, sink: &mut Sink) -> Result<End, Failure> {
        let mut copy = Copied::empty();
        let mut burst = Burst::with_limit(MAX_BURST);
        let mut look = Instant::now();
        let mut count = look + COUNT_EVERY;
        loop {
            if let Some(end) = sink.end() {
                return Ok(end);
            }
            let now = Instant::now();
            if now >= look {
                look = now + LOOK_EVERY;
                if let Some(queues) = brought.supervise()? {
                    self.replace(queues);
                }
                brought.check_reachable()?;
            }
            if now >= count {
                count = now + COUNT_EVERY;
                self.losses.look(&brought.controls.port);
            }
            let queues = self.receive.iter_mut();
            let found: usize = queues.map(|queue| queue.receive(&mut burst)).sum();
            let taken = self.take(&burst, &brought.controls.port, &mut copy, sink);
            burst.clear();
            taken?;
            sink.flush_if_due()?;
            if found == 0 {
                sink.flush()?;
                std::thread::sleep(IDLE);
            }
        }
    }

    fn take(
        &mut self,
        burst: &Burst,
        port: &Port,
        copy: &mut Copied,
        sink: &mut Sink,
    ) -> Result<(), Failure> {
        let now_ns = now_ns();
        for packet in burst.packets() {
            if sink.end().is_some() {
                break;
            }
            self.times.set(copy, packet, now_ns, port);
            copy.fill(packet);
            sink.take(copy)?;
        }
        Ok(())
    }

    /// Continues with the queues of a port that was opened again; the counts go on.
    fn replace(&mut self, queues: Vec<Queues>) {
        for queue in &mut self.receive {
            // The device was reset: packets in the ring count as dropped.
            let _ = queue.stop();
        }
        self.losses.past = self.lost();
        self.losses.device = 0;
        self.receive = queues.into_iter().flat_map(|one| one.receive).collect();
    }

    /// Packets that the device or a queue dropped since the start.
    pub(super) fn lost(&self) -> u64 {
        let queues: u64 = self.receive.iter().map(dropped).sum();
        self.losses.past + self.losses.device + queues
    }

    /// Packets that the device did not stamp; nothing without --device-time.
    pub(super) fn unstamped(&self) -> Option<u64> {
        self.times.of_device.then_some(self.times.unstamped)
    }
}

#[cfg(test)]
mod tests;
