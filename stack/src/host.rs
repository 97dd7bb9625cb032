//! A network interface of the host beside the stack: the host's own traffic goes on over a device
//! that this process has claimed.
//!
//! The interface is a TAP interface over a VSI of its own, with a MAC address of its own, so the
//! host's addresses and those of the stack do not meet. [`HostInterface`] keeps it over recoveries
//! of the device: while no port is attached, the host sees an interface without a carrier.

mod bridge;

pub use bridge::{
    Bridge, BridgeCounters, BridgeSettings, BridgedWay, InterfaceGone, PacketObserver,
};

use crate::copies::GroupCopies;
use crate::thread::Resolver;
use crate::{MacAddress, StackError};
use ringside_bus::tap::{Tap, TapError};
use ringside_lan::QueueState;
use ringside_pmd::Birth;
use ringside_pmd::admin::Loopback;
use ringside_pmd::lan::port::OpenVsi;
use ringside_pmd::lan::{Port, PortError, PortSettings, Vsi, VsiSettings};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rounds without a frame after which the thread sleeps until either side has one.
const IDLE_ROUNDS: u32 = 64;
/// Between two looks at the link.
const LINK_EVERY: Duration = Duration::from_secs(1);

/// The reason why the host has no interface over a port.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HostError {
    /// The interface cannot be made, used or configured.
    #[error("network.host_interface: {0}")]
    Tap(#[from] TapError),
    /// The port has no VSI or no queues for it.
    #[error("no VSI for the host's interface: {0}")]
    Port(#[from] PortError),
    /// The VSI came without queues.
    #[error("the VSI for the host's interface has no queues; report this as a bug")]
    NoQueues,
    /// The stack that owns the port has ended.
    #[error("no port for the host's interface: {0}")]
    Stack(#[from] StackError),
    /// The system refused a thread, or a descriptor for it.
    #[error(
        "the thread of the host's interface did not start: {0}; raise the limit of threads and open files"
    )]
    Thread(String),
}

/// The state and the counts of a host's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReport {
    /// Name of the interface.
    pub name: String,
    /// Its MAC address; `None` before it had a port.
    pub mac: Option<MacAddress>,
    /// True if it carries frames: a port is attached, in service, and has a link.
    pub is_carrying: bool,
    /// Frames and bytes since the interface was opened.
    pub counters: BridgeCounters,
}

/// The part that the thread shares.
#[derive(Debug, Default)]
struct Shared {
    is_carrying: bool,
    counters: BridgeCounters,
}

/// See the module.
#[derive(Debug)]
pub struct HostInterface {
    tap: Arc<Tap>,
    mac: Option<MacAddress>,
    /// of this attachment
    shared: Arc<Mutex<Shared>>,
    /// of this attachment
    copies: Arc<GroupCopies>,
    /// of former attachments
    former: BridgeCounters,
    pump: Option<Pump>,
    birth: Birth,
}

/// The thread of an attachment.
#[derive(Debug)]
struct Pump {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// The request that the thread ends.
#[derive(Debug)]
struct Stop {
    requested: AtomicBool,
    /// readable once it is requested: it ends a sleep
    event: OwnedFd,
}

impl HostInterface {
    /// Opens the interface `name`, or makes it for the lifetime of this value. It has no carrier
    /// until a port is attached.
    ///
    /// # Errors
    /// [`HostError::Tap`] names the remedy.
    pub fn open(name: &str) -> Result<Self, HostError> {
        let tap = Tap::open(name)?;
        // A kernel before 5.0 refuses: the interface then always has a carrier.
        let _ = tap.set_carrier(false);
        let tap = Arc::new(tap);
        Ok(Self {
            copies: Arc::new(GroupCopies::new(&tap)),
            tap,
            mac: None,
            shared: Arc::default(),
            former: BridgeCounters::default(),
            pump: None,
            birth: Birth::now(),
        })
    }

    /// Adds a VSI to the port, gives the interface its address and the MTU, brings it up, and
    /// carries frames on a thread of its own from now on. A former attachment ends first.
    ///
    /// The address is [`host_address`] of the port's, the MTU its own in bytes. A failure of the
    /// device ends the attachment: attach the port that was opened again.
    ///
    /// Control path. Errors: [`HostError`]; the VSI is removed again.
    pub fn attach(&mut self, port: &Port, mtu: u16) -> Result<(), HostError> {
        self.detach();
        let mac = host_address(port.mac());
        let opened = port.add_vsi(&VsiSettings {
            loopback: Loopback::Allowed,
            queues: PortSettings {
                mtu,
                ..PortSettings::default()
            },
            ..VsiSettings::new(mac)
        })?;
        opened.vsi.set_all_multicast(true)?;
        self.tap.configure(mac, mtu)?;
        self.mac = Some(mac);
        self.shared = Arc::default();
        self.copies = Arc::new(GroupCopies::new(&self.tap));
        let shared = (Arc::clone(&self.shared), Arc::clone(&self.copies));
        let pump = Pump::start(&self.tap, opened, mtu, shared);
        self.pump = Some(pump?);
        Ok(())
    }

    /// Gives the host the frames to groups that a stack sends as well, until the attachment ends:
    /// the card's switch brings it those of the wire only. `stack` runs on the port that this is
    /// attached to.
    ///
    /// Control path. Errors: those of [`Resolver::with`].
    pub fn hear_groups_of(&self, stack: &Resolver) -> Result<(), StackError> {
        let copies = Arc::clone(&self.copies);
        stack.with(move |stack| stack.queues.copies = Some(copies))
    }

    /// Ends the attachment: the VSI is removed, and the interface has no carrier.
    ///
    /// In a child by fork it does nothing: thread and interface are the parent's.
    pub fn detach(&mut self) {
        let Some(pump) = self.pump.take() else {
            return;
        };
        if !self.birth.is_here() {
            std::mem::forget(pump);
            return;
        }
        drop(pump);
        let shared = std::mem::take(&mut self.shared);
        self.former.add(&lock(&shared).counters);
        add_copies(&mut self.former, &self.copies);
        self.copies = Arc::new(GroupCopies::new(&self.tap));
        let _ = self.tap.set_carrier(false);
    }

    /// The present state and counts.
    #[must_use]
    pub fn report(&self) -> HostReport {
        let shared = lock(&self.shared);
        let mut counters = self.former;
        counters.add(&shared.counters);
        add_copies(&mut counters, &self.copies);
        HostReport {
            name: self.tap.name().to_owned(),
            mac: self.mac,
            is_carrying: shared.is_carrying,
            counters,
        }
    }
}

impl Drop for HostInterface {
    fn drop(&mut self) {
        self.detach();
    }
}

fn add_copies(counters: &mut BridgeCounters, copies: &GroupCopies) {
    let counts = copies.counts();
    let way = &mut counters.to_host;
    way.packets += counts.packets;
    way.bytes += counts.bytes;
    way.dropped += counts.dropped;
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The MAC address of the host's interface over a port: locally administered, and another one than
/// the port's.
#[must_use]
pub const fn host_address(port: MacAddress) -> MacAddress {
    /// Source: IEEE 802, section 8.4, U/L address bit.
    const LOCAL: u8 = 0x02;
    let [first, b, c, d, e, f] = port;
    [(first | LOCAL) ^ 0x04, b, c, d, e, f]
}

impl Pump {
    fn start(
        tap: &Arc<Tap>,
        opened: OpenVsi,
        mtu: u16,
        (shared, copies): (Arc<Mutex<Shared>>, Arc<GroupCopies>),
    ) -> Result<Self, HostError> {
        let OpenVsi {
            vsi,
            receive,
            transmit,
            ..
        } = opened;
        let queues = receive.into_iter().zip(transmit).next();
        let queues = queues.ok_or(HostError::NoQueues)?;
        let settings = BridgeSettings { mtu, vlan: None };
        let mut bridge = Bridge::new(Arc::clone(tap), queues, settings, ());
        // Without an interrupt, as on a function with few vectors, it polls.
        bridge.set_interrupt(vsi.receive_interrupt(&[0]).ok());
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(Stop {
            requested: AtomicBool::new(false),
            event: event.map_err(|error| HostError::Thread(error.to_string()))?,
        });
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("ringside-host".to_owned())
            .spawn(move || carry(bridge, &vsi, &seen, (&shared, &copies)))
            .map_err(|error| HostError::Thread(error.to_string()))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.stop.requested.store(true, Ordering::Release);
        // A descriptor that is full is readable, too.
        let _ = rustix::io::write(&self.stop.event, &1u64.to_ne_bytes());
        let ended = self.thread.take().map(JoinHandle::join);
        if ended.is_some_and(|ended| ended.is_err()) {
            tracing::error!("the thread of the host's interface panicked");
        }
    }
}

/// Carries frames until `stop` is requested or the interface is gone.
fn carry(
    mut bridge: Bridge<()>,
    vsi: &Vsi,
    stop: &Stop,
    (shared, copies): (&Mutex<Shared>, &GroupCopies),
) {
    let mut look = Instant::now();
    let mut idle = 0u32;
    while !stop.requested.load(Ordering::Acquire) {
        let now = Instant::now();
        if now >= look {
            look = now + LINK_EVERY;
            let carries =
                vsi.state() == QueueState::Running && vsi.port().link().is_ok_and(|link| link.up);
            bridge.set_carrier(carries);
            copies.set_carrying(carries);
            bridge.look_at(vsi);
            let mut shared = lock(shared);
            shared.is_carrying = carries;
            shared.counters = *bridge.counters();
        }
        match bridge.round() {
            Ok(0) => idle = idle.saturating_add(1),
            Ok(_) => idle = 0,
            Err(error) => {
                tracing::error!(%error, "the host has no interface until the device is opened again");
                break;
            }
        }
        if idle >= IDLE_ROUNDS {
            lock(shared).counters = *bridge.counters();
            let limit = look.saturating_duration_since(Instant::now());
            bridge.sleep(limit, Some(stop.event.as_fd()));
        }
    }
    copies.set_carrying(false);
    bridge.look_at(vsi);
    bridge.end();
    let mut shared = lock(shared);
    shared.is_carrying = false;
    shared.counters = *bridge.counters();
}
