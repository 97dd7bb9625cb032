//! The housekeeping thread: it sleeps until the device's interrupt, signals completion channels,
//! reports asynchronous events, and recovers a device that failed. Completion vectors other than
//! the first have threads of their own. Each period of service of the device has threads of its
//! own.

use crate::abi::{event, ibv_cq, ibv_qp};
use crate::claim::Failure;
use crate::completion::CompletionObject;
use crate::context_object::{ContextObject, Reported};
use crate::device::{self, Port, Registry, lock};
use crate::errno;
use crate::files;
use crate::machine::Machine;
use crate::queue_pair::QueuePairObject;
use crate::threads;
use ringside_pmd::rdma::{Event, Interrupts};
use ringside_pmd::recovery::Supervision;
use ringside_spec::rdma::ae_codes::QueuePairEvent;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The longest sleep, and so the longest delay of events after a lost interrupt.
const SLEEP: Duration = Duration::from_millis(100);

/// The link of the port, as the firmware reports it.
struct Link {
    /// nothing before the first look
    is_up: Option<bool>,
    looked: Instant,
}

impl Link {
    /// Looks for the first time: later changes are events.
    fn new(port: &Port) -> Self {
        let (is_up, looked) = (None, Instant::now());
        let mut link = Self { is_up, looked };
        link.look(port, &mut Vec::new());
        link
    }

    /// Looks for reports, which lie behind registers: once in [`SLEEP`], however many interrupts
    /// come.
    fn look(&mut self, port: &Port, events: &mut Vec<Event>) {
        if self.is_up.is_some() && self.looked.elapsed() < SLEEP {
            return;
        }
        self.looked = Instant::now();
        let Ok(device) = port.device() else { return };
        if let Err(error) = device.poll_port_events(&mut self.is_up, events) {
            tracing::debug!(%error, "reports of the firmware");
        }
    }
}

/// Starts the threads of a period of service. They end with it, or with the process.
pub(crate) fn start(port: &Arc<Port>) -> std::io::Result<()> {
    let interrupts = {
        let device = port.device().map_err(std::io::Error::from_raw_os_error)?;
        device.interrupts().map_err(std::io::Error::other)?
    };
    let link = Link::new(port);
    let supervisor = Supervisor::of(port);
    let (vectors, port) = (&port.vectors, Arc::downgrade(port));
    let watched = Weak::clone(&port);
    vectors.start_by(Box::new(move |vector| watch_vector(&watched, vector)));
    threads::start("ringside-events", move || {
        watch(&port, &interrupts, link, supervisor);
    })
}

/// Starts the thread of a completion vector.
fn watch_vector(port: &Weak<Port>, vector: u16) -> Result<(), c_int> {
    let interrupts = {
        let port = port.upgrade().ok_or(libc::ENODEV)?;
        let interrupts = port.device()?.interrupts_of(vector);
        interrupts.map_err(|error| errno::of(&error))?
    };
    let port = Weak::clone(port);
    let started = threads::start(&format!("ringside-cv{vector}"), move || {
        watch_completions(&port, &interrupts, vector);
    });
    started.map_err(|error| {
        tracing::warn!(%error, vector, "no thread for a completion vector");
        libc::EAGAIN
    })
}

/// The port after the next interrupt, or after [`SLEEP`]. `None` once the device has failed.
fn next(port: &Weak<Port>, interrupts: &Interrupts) -> Option<Arc<Port>> {
    let waited = interrupts.wait(SLEEP);
    let port = port.upgrade().filter(|port| !port.has_failed())?;
    if let Err(error) = waited {
        tracing::debug!(%error, "no interrupts");
        std::thread::sleep(SLEEP);
    }
    Some(port)
}

fn watch_completions(port: &Weak<Port>, interrupts: &Interrupts, vector: u16) {
    let mut numbers = Vec::new();
    while let Some(port) = next(port, interrupts) {
        tell_channels(&port, vector, &mut numbers);
    }
}

/// Tells the completion channels whose queues have something to poll.
fn tell_channels(port: &Port, vector: u16, numbers: &mut Vec<u32>) {
    numbers.clear();
    let Ok(in_service) = port.device() else {
        return;
    };
    if let Err(error) = in_service.poll_completion_events_of(vector, numbers) {
        tracing::debug!(%error, vector, "completion events");
    }
    drop(in_service);
    let registry = lock(&port.registry);
    for queue in numbers
        .iter()
        .filter_map(|number| registry.completion_queue(*number))
    {
        // SAFETY: it is registered, and leaves the registry before it is freed.
        unsafe { CompletionObject::of(queue) }.notify();
    }
    for own in numbers
        .iter()
        .filter_map(|number| registry.own_queues.get(number))
    {
        own.set();
    }
}

/// Tells of requests of queue pairs that failed a short time ago: see [`crate::failing`].
fn tell_of_flushed(port: &Port) {
    let numbers = port.failing.numbers();
    if numbers.is_empty() {
        return;
    }
    let registry = lock(&port.registry);
    for queue_pair in numbers
        .iter()
        .filter_map(|number| registry.queue_pair(*number))
    {
        // SAFETY: it is registered, and leaves the registry, which is locked, before it is freed.
        unsafe { QueuePairObject::of(queue_pair) }.tell_of_flushed();
    }
}

/// Looks after the device, as its configuration says.
struct Supervisor {
    supervision: Supervision,
    recovers: bool,
    retry_after: Duration,
    /// the last look at the IP stack
    looked: Instant,
}

impl Supervisor {
    fn of(port: &Port) -> Self {
        let section = port.machine().housekeeping();
        let probe_every = Duration::from_millis(section.probe_ms);
        let retry_after = Duration::from_millis(section.retry_ms);
        Self {
            supervision: Supervision::new(probe_every, retry_after),
            recovers: section.recover,
            retry_after,
            looked: Instant::now(),
        }
    }

    /// Starts an IP stack again that does not run; looks as often as it tries recoveries.
    fn look_after_network(&mut self, port: &Port) {
        if self.looked.elapsed() >= self.retry_after {
            self.looked = Instant::now();
            port.renew_network();
        }
    }

    /// Takes events. True if the device has failed.
    fn observe(&mut self, port: &Port, events: &mut Vec<Event>) -> bool {
        let Ok(device) = port.device() else {
            return false;
        };
        match device.observe(&mut self.supervision, events) {
            Ok(cause) => cause.is_some(),
            Err(error) => {
                tracing::debug!(%error, "asynchronous events");
                false
            }
        }
    }

    /// Puts a device that failed into service again: a new period of service begins. It tries until
    /// that succeeds.
    fn recover(&mut self, machine: &Arc<Machine>, mut late: Late) {
        loop {
            let is_back = machine.recover(&mut self.supervision);
            late.tell(is_back || machine.is_contained());
            if is_back {
                match resume(machine) {
                    Ok(()) => return machine.set_failing(false),
                    Err(failure) => {
                        tracing::error!(reason = %failure.text, "the recovered device is not used");
                        machine.set_failing(true);
                    }
                }
            }
            std::thread::sleep(self.retry_after);
        }
    }
}

/// The requests of a failed device that did not answer: they complete once it does, or is gone. The
/// report of the failure came before, so a program that sleeps needs another.
struct Late(Option<Weak<Port>>);

impl Late {
    /// `is_contained`: the requests had completed before the report.
    fn of(port: &Arc<Port>, is_contained: bool) -> Self {
        Self((!is_contained).then(|| Arc::downgrade(port)))
    }

    /// Tells the program, once, if they can be polled now.
    fn tell(&mut self, is_contained: bool) {
        if is_contained
            && let Some(port) = self.0.take()
            && let Some(port) = port.upgrade()
        {
            port.are_requests_late.store(false, Ordering::Release);
            notify_all(&lock(&port.registry));
        }
    }

    /// Tries until they have completed, for a device that is not recovered.
    fn wait(mut self, machine: &Machine, pause: Duration) {
        while self.0.as_ref().is_some_and(|port| port.strong_count() > 0) {
            std::thread::sleep(pause);
            if let Some(device) = machine.device() {
                device.check();
            }
            self.tell(machine.is_contained());
        }
    }
}

/// Begins the next period of service of a device that was recovered.
fn resume(machine: &Arc<Machine>) -> Result<(), Failure> {
    let port = Port::begin(Arc::clone(machine))?;
    start(&port).map_err(|error| Failure::of(libc::EIO, error))?;
    files::write(&port);
    device::replace(port);
    Ok(())
}

fn watch(port: &Weak<Port>, interrupts: &Interrupts, mut link: Link, mut supervisor: Supervisor) {
    let (mut numbers, mut events) = (Vec::new(), Vec::new());
    while let Some(port) = next(port, interrupts) {
        tell_channels(&port, 0, &mut numbers);
        follow_lease(&port);
        events.clear();
        let has_failed = supervisor.observe(&port, &mut events);
        let is_contained = has_failed && port.machine().is_contained();
        let is_late = has_failed && !is_contained;
        port.are_requests_late.store(is_late, Ordering::Release);
        if !has_failed {
            link.look(&port, &mut events);
        }
        for event in &events {
            report(&port, event);
        }
        tell_of_flushed(&port);
        if has_failed {
            // Its event may have been lost in a full queue.
            if !port.has_failed() {
                report_end(&port, true);
            }
            let late = Late::of(&port, is_contained);
            let machine = Arc::clone(port.machine());
            if supervisor.recovers {
                if let Some(network) = port.network() {
                    network.end();
                }
                drop(port);
                return supervisor.recover(&machine, late);
            }
            drop(port);
            return late.wait(&machine, supervisor.retry_after);
        } else {
            supervisor.look_after_network(&port);
        }
    }
}

/// Follows the address of a DHCP server.
fn follow_lease(port: &Port) {
    if let Some(network) = port.network()
        && let Ok(device) = port.device()
        && device.config().network.dhcp
    {
        network.follow_lease(&device);
    }
}

const fn event_of(reason: QueuePairEvent) -> c_int {
    match reason {
        QueuePairEvent::Catastrophic => event::QP_FATAL,
        QueuePairEvent::AccessError => event::QP_ACCESS_ERR,
        QueuePairEvent::RequestError => event::QP_REQ_ERR,
    }
}

fn report(port: &Port, event: &Event) {
    tracing::info!(?event, "reported by the device");
    // Update the files before the event is reported: the program may read them on the event.
    match event {
        Event::PortUp | Event::PortDown => files::write_port_again(port),
        Event::GidChange { .. } => {
            port.refresh_gids();
            files::write_port_again(port);
        }
        _ => {}
    }
    let registry = lock(&port.registry);
    let (element, kind): (*mut c_void, c_int) = match event {
        Event::QueuePairFailed {
            queue_pair, reason, ..
        } => match registry.queue_pair(*queue_pair) {
            Some(object) => (object.cast(), event_of(*reason)),
            None => return,
        },
        Event::CompletionQueueFailed {
            completion_queue, ..
        } => match registry.completion_queue(*completion_queue) {
            Some(object) => {
                // SAFETY: it is registered, and the registry is locked.
                unsafe { end_users_of(&registry, object) };
                (object.cast(), event::CQ_ERR)
            }
            None => return,
        },
        Event::DeviceFailed { .. } | Event::ReleaseRequested => {
            drop(registry);
            return report_end(port, matches!(event, Event::DeviceFailed { .. }));
        }
        Event::PortUp => {
            if let Some(network) = port.network() {
                network.announce_again();
            }
            (std::ptr::null_mut(), event::PORT_ACTIVE)
        }
        Event::PortDown => (std::ptr::null_mut(), event::PORT_ERR),
        Event::GidChange { .. } => (std::ptr::null_mut(), event::GID_CHANGE),
        _ => return,
    };
    push(port, element, kind);
    if let Event::QueuePairFailed { flushed, .. } = event {
        // SAFETY: it is registered, and leaves the registry, which is locked, before it is freed.
        let queue_pair = unsafe { QueuePairObject::of(element.cast()) };
        queue_pair.note_failure();
        match flushed {
            None => queue_pair.notify_queues(),
            Some(_) => queue_pair.tell_of_failure(),
        }
    }
}

/// The queue pairs of a failed completion queue have failed with it. The library has completed
/// their requests, on that queue and perhaps on another one of theirs: the device writes no
/// completion event for that, so the channels are told here.
///
/// # Safety
/// `failed` is registered.
unsafe fn end_users_of(registry: &Registry, failed: *mut ibv_cq) {
    for queue_pair in registry.queue_pairs.values() {
        // SAFETY: it is registered, and leaves the registry, which the caller has locked, before it
        // is freed.
        let queue_pair = unsafe { QueuePairObject::of(*queue_pair as *mut ibv_qp) };
        if queue_pair.reports_to(failed) {
            queue_pair.note_failure();
            queue_pair.notify_queues();
        }
    }
}

/// Reports an asynchronous event to the contexts that it belongs to.
fn push(port: &Port, element: *mut c_void, kind: c_int) {
    let reported = Reported {
        element: element as usize,
        kind,
    };
    for context in lock(&port.contexts).iter() {
        // SAFETY: it is registered, and leaves the list before it is freed.
        let context = unsafe { ContextObject::of(*context as *mut _) };
        if context.owns(element, kind) {
            context.events.push(reported);
        }
    }
}

/// Reports that the device has failed, or that the host wants it back, as the kernel does before it
/// takes a device from a program: once, however often the host asks. The connection manager tells
/// its ids.
fn report_end(port: &Port, has_failed: bool) {
    match has_failed {
        true => port.fail(),
        false if port.note_request() => {}
        false => return,
    }
    let registry = lock(&port.registry);
    registry.own_queues.values().for_each(|own| own.set());
    if has_failed {
        notify_all(&registry);
    }
    push(port, std::ptr::null_mut(), event::DEVICE_FATAL);
}

/// The requests of all queue pairs can be polled as flushed.
fn notify_all(registry: &Registry) {
    for queue in registry.completion_queues.values() {
        // SAFETY: it is registered, and leaves the registry, which is locked, before it is freed.
        unsafe { CompletionObject::of(*queue as *mut _) }.notify();
    }
}

#[cfg(test)]
mod tests;
