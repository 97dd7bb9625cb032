//! The model as a vfio-user server: each function on its own socket, all on one switch.
//!
//! One thread does everything: it steps the world and polls the sockets in between. It never waits
//! for a socket, so a client that stalls delays no other client. When a client disconnects for any
//! reason, its function is reset and its memory unmapped; the next client finds the function in its
//! initial state.
//!
//! Clients are not trusted. Memory from clients must be sealed against shrinking, since a client
//! that truncates its file would kill the server ([`ServerSettings::accept_shrinkable_memory`]
//! lifts that for trusted clients).

mod answer;
mod connection;
mod counters;
mod mappings;
mod port;
mod refusal;
mod settings;

pub use counters::PortCounters;
pub use settings::{ServerError, ServerSettings};

use crate::attachment::{Attachment, Readiness};
use port::Port;
use ringside_bus::{Clock, Instant, TscClock};
use ringside_model::world::World;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The interval at which sockets are polled while the world is busy and no message arrived
/// recently.
const SOCKETS_EVERY: Duration = Duration::from_micros(20);

/// The same interval while messages arrive.
const SOCKETS_EVERY_ACTIVE: Duration = Duration::from_micros(2);

/// The time after a message in which further messages are expected.
const ACTIVE_FOR: Duration = Duration::from_micros(200);

/// The shortest sleep of a server with clients; a message ends a sleep, a doorbell in memory does
/// not: see [`World::nap`]. Where more processes poll than there are cores, the server loses its
/// core for longer than it spins, and work is there as soon as it sleeps: the shortest is short.
const NAP: Duration = Duration::from_micros(5);

/// The longest time without a look at every socket, for what no socket tells: the end of the
/// patience with a client that was refused.
const LOOK_WITHIN: Duration = Duration::from_millis(20);

/// Rounds without work between two readings of the clock, which takes as long as a round does.
const CLOCK_EVERY: u32 = 8;

/// The sleep of a server without clients.
const ALONE_NAP: Duration = Duration::from_millis(20);

/// A vfio-user server; see the module.
pub struct Server {
    world: World,
    clock: TscClock,
    ports: Vec<Port>,
    attachments: Vec<Box<dyn Attachment>>,
    spin: Duration,
    last_work: Instant,
    last_message: Instant,
    last_look: Instant,
    next_look: Instant,
}

/// Lets the kernel end this thread's sleeps when they are over, not up to 50 us later.
fn sleep_exactly() {
    let shortest = std::num::NonZeroU64::new(1);
    if let Err(error) = rustix::thread::set_current_timer_slack(shortest) {
        tracing::debug!(%error, "sleeps last up to 50 us longer");
    }
}

impl Server {
    /// Creates the sockets. A socket that an ended server left behind is replaced.
    ///
    /// # Errors
    /// The path is in use, is not a socket, or cannot be created.
    pub fn bind(settings: &ServerSettings) -> Result<Self, ServerError> {
        let functions = settings.world.functions.len();
        let sockets = settings.sockets.len();
        if sockets != functions {
            return Err(ServerError::Counts { sockets, functions });
        }
        let paths = settings.sockets.iter().enumerate();
        let ports = paths.map(|(index, path)| Port::bind(index, path, settings));
        let ports = ports.collect::<Result<_, _>>()?;
        Ok(Self {
            world: World::new(&settings.world),
            clock: TscClock::new(),
            ports,
            attachments: Vec::new(),
            spin: settings.spin,
            last_work: Instant(0),
            last_message: Instant(0),
            last_look: Instant(0),
            next_look: Instant(0),
        })
    }

    /// Runs an attachment too, for the lifetime of the server.
    pub fn attach(&mut self, attachment: Box<dyn Attachment>) {
        self.attachments.push(attachment);
    }

    /// Serves a client on a connected socket, for example one end of a pair, as if it had connected
    /// to the socket of function `index`. False if the function has a client or does not exist, or
    /// if the socket cannot be used; the socket is closed then.
    pub fn adopt(&mut self, index: usize, client: UnixStream) -> bool {
        let port = self.ports.get_mut(index);
        port.is_some_and(|port| !port.is_connected() && port.welcome(client, &mut self.world))
    }

    /// True while a client is served on function `index`.
    #[must_use]
    pub fn is_connected(&self, index: usize) -> bool {
        self.ports.get(index).is_some_and(Port::is_connected)
    }

    /// Runs one bounded round: a step of the world, and a poll of the sockets when that is due.
    /// True if there was any work.
    #[inline]
    pub fn round(&mut self) -> bool {
        let now = self.clock.now();
        self.round_from(now, true)
    }

    /// Runs a round at a time given by the caller instead of the machine's. Time never runs
    /// backwards.
    #[inline]
    pub fn round_at(&mut self, now: Instant) -> bool {
        self.round_from(now, false)
    }

    /// A round that begins at `now`, and goes on by the machine's time if `is_live`.
    #[inline]
    fn round_from(&mut self, now: Instant, is_live: bool) -> bool {
        let mut worked = self.world.step(now);
        for attachment in &mut self.attachments {
            if attachment.has_news(&mut self.world) {
                worked |= attachment.turn(&mut self.world, now);
            }
        }
        if now >= self.next_look {
            let messages = self.look(now, is_live);
            worked |= messages;
            if messages {
                self.last_message = now;
            }
            let active = now.since(self.last_message) < ACTIVE_FOR;
            let pause = if active {
                SOCKETS_EVERY_ACTIVE
            } else {
                SOCKETS_EVERY
            };
            self.last_look = now;
            self.next_look = now.plus(pause);
        }
        if worked {
            self.last_work = now;
        }
        worked
    }

    fn look(&mut self, now: Instant, is_live: bool) -> bool {
        let mut worked = false;
        let clock = is_live.then_some(&self.clock);
        for port in &mut self.ports {
            worked |= port.look(&mut self.world, now, clock);
        }
        for attachment in &mut self.attachments {
            worked |= attachment.turn(&mut self.world, now);
        }
        worked
    }

    /// Serves until `stop` is set. `each_second` is called with the world about once a second.
    pub fn run(&mut self, stop: &AtomicBool, mut each_second: impl FnMut(&mut World)) {
        sleep_exactly();
        let mut now = self.clock.now();
        let mut next_second = now.plus(Duration::from_secs(1));
        let (mut rounds, mut idle) = (0u32, 0u32);
        while !stop.load(Ordering::Relaxed) {
            let worked = self.round_from(now, true);
            rounds = rounds.wrapping_add(1);
            idle = if worked { 0 } else { idle.wrapping_add(1) };
            if !idle.is_multiple_of(CLOCK_EVERY) {
                continue;
            }
            now = self.clock.now();
            if worked && !rounds.is_multiple_of(1024) {
                continue;
            }
            if now >= next_second {
                next_second = now.plus(Duration::from_secs(1));
                each_second(&mut self.world);
            }
            if !worked && self.rest(now) {
                now = self.clock.now();
                // One round tells whether there is work.
                idle = CLOCK_EVERY - 1;
            }
        }
    }

    /// Serves for about `time`.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.clock.now().plus(time);
        loop {
            let worked = self.round();
            let now = self.clock.now();
            if now >= until {
                return;
            }
            if !worked {
                self.rest(now);
            }
        }
    }

    /// Spins for a while after the last work, then naps; a message ends the nap. It spins without
    /// a pause, which would delay what it waits for. True after a nap.
    fn rest(&mut self, now: Instant) -> bool {
        let idle = now.since(self.last_work);
        if idle < self.spin {
            return false;
        }
        let nap = match self.ports.iter().any(Port::is_connected) {
            true => self.world.nap(now, idle, NAP),
            false => ALONE_NAP.min(self.world.until_timer(now)),
        };
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: nap.subsec_nanos().into(),
        };
        let mut awaited: Vec<_> = self.ports.iter().flat_map(Port::sockets).collect();
        for attachment in &self.attachments {
            attachment.descriptors(&mut awaited);
        }
        let mut sockets: Vec<_> = awaited
            .into_iter()
            .map(|(descriptor, readiness)| {
                let flags = match readiness {
                    Readiness::Readable => PollFlags::IN,
                    Readiness::Writable => PollFlags::OUT,
                };
                PollFd::from_borrowed_fd(descriptor, flags)
            })
            .collect();
        match rustix::event::poll(&mut sockets, Some(&limit)) {
            // No socket has anything to read: a look at each would be as many system calls.
            Ok(0)
                if self.last_look >= self.last_work && now.since(self.last_look) < LOOK_WITHIN =>
            {
                self.next_look = self.clock.now().plus(SOCKETS_EVERY);
            }
            Ok(_) => self.next_look = now,
            // A failure concerns this call only: the next round polls every socket anyway.
            Err(_) => {
                std::thread::yield_now();
                self.next_look = now;
            }
        }
        true
    }

    /// The world, for inspection or change between rounds.
    pub const fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// Ends the service: drops sockets and attachments, and returns the world for inspection.
    #[must_use]
    pub fn into_world(self) -> World {
        self.world
    }

    /// The counts of the socket of function `index`.
    #[must_use]
    pub fn counters(&self, index: usize) -> Option<PortCounters> {
        self.ports.get(index).map(Port::counters)
    }
}

#[cfg(test)]
mod tests;
