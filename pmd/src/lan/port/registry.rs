//! The open port of a device, its further VSIs, and leftovers of earlier ones.

use super::PortError;
use super::vectors::ReceiveVectors;
use crate::Registers;
use crate::admin::AdminError;
use ringside_lan::{QueueKind, Service};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A VSI, with the port's own among them.
pub(super) trait Registered: std::fmt::Debug + Send + Sync {
    /// Tells the queues if the device is in service, and keeps what they leave to it.
    fn service(&self) -> &Arc<Service>;
    /// The registers that it writes until its period of service ends.
    fn registers(&self) -> &Registers;
    /// Takes the queues out of service and retires their doorbells.
    fn cut_off(&self);
    /// Removes the configuration. Only the first call has an effect.
    fn shut_down(&self);
    /// Reads the device's clock, if the packets have time stamps.
    fn refresh_clock(&self);
    /// Reads the counters, before they wrap. False if they could not be read.
    fn sample_counters(&self) -> bool;
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PortRegistry {
    ports: Mutex<Ports>,
    /// the function's own address, while a port has put another in its place
    own_address: Mutex<Option<[u8; 6]>>,
    /// held while the driver itself visits VSIs that are open, of which it has handles meanwhile
    visits: Mutex<()>,
    /// vectors of receive queues that interrupt
    pub(super) vectors: ReceiveVectors,
}

#[derive(Debug, Default)]
struct Ports {
    open: Option<Weak<dyn Registered>>,
    /// of the port that was opened last; gone once it is closed
    place: Weak<Place>,
    /// further VSIs, by place; a place is taken before its VSI exists, and until it is freed
    further: BTreeMap<u16, (Taken, Option<Further>)>,
    /// of this port and of earlier ones, whose queues may have left buffers to the device, and the
    /// registers that they write
    services: Vec<(Arc<Service>, Registers)>,
}

/// The place of a port, of which a device has one: an open port and its VSIs keep it until they are
/// closed. The last handle of a port that is being closed is gone before that.
#[derive(Debug, Default)]
pub(super) struct Place;

/// A further VSI that exists.
#[derive(Debug)]
struct Further {
    number: u16,
    vsi: Weak<dyn Registered>,
}

/// Place and queues of a further VSI.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// 1 for the first one beside the port's own
    pub(super) place: u16,
    /// receive queues, counted from the function's first
    pub(super) receive: Range<u16>,
    /// the same of transmit queues
    pub(super) transmit: Range<u16>,
}

/// Queues of one kind: those that further VSIs may have, and the number that one asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) among: Range<usize>,
    pub(super) count: usize,
}

/// The registry while a port is being opened: no other one can be.
pub(super) struct Opening<'a> {
    ports: MutexGuard<'a, Ports>,
}

impl Opening<'_> {
    /// The port is open.
    pub(super) fn opened(mut self, port: &Arc<impl Registered + 'static>, place: &Arc<Place>) {
        self.ports.open = Some(weak(port));
        self.ports.place = Arc::downgrade(place);
        self.ports.add_service(&**port);
    }
}

impl Ports {
    fn add_service(&mut self, of: &dyn Registered) {
        self.services
            .retain(|(service, _)| Arc::strong_count(service) > 1 || service.kept_buffers() > 0);
        self.services
            .push((Arc::clone(of.service()), of.registers().clone()));
    }
}

impl PortRegistry {
    fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to open a port; refuses a second one, also while the first is being closed: its end
    /// would stop the queues of the second.
    ///
    /// Waits for the end of a visit to a port whose owner has dropped it: it closes with the visit.
    pub(super) fn open_port(&self) -> Result<Opening<'_>, PortError> {
        self.try_open_port().or_else(|_| {
            drop(self.visit());
            self.try_open_port()
        })
    }

    fn visit(&self) -> MutexGuard<'_, ()> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_open_port(&self) -> Result<Opening<'_>, PortError> {
        let ports = self.ports();
        let port = ports.open.as_ref().and_then(Weak::upgrade);
        let is_taken = match port {
            Some(port) => port.service().in_service(),
            None => ports.place.strong_count() > 0,
        };
        if is_taken {
            return Err(PortError::AlreadyOpen);
        }
        Ok(Opening { ports })
    }

    /// All VSIs of the open port, its own last.
    fn open(&self) -> Vec<Arc<dyn Registered>> {
        self.known().iter().filter_map(Weak::upgrade).collect()
    }

    fn known(&self) -> Vec<Weak<dyn Registered>> {
        let ports = self.ports();
        let further = ports.further.values();
        let further = further.filter_map(|(_, further)| further.as_ref());
        let all = further.map(|further| &further.vsi).chain(&ports.open);
        all.cloned().collect()
    }

    /// Takes a place and queues for one more VSI of the port.
    pub(super) fn take(
        &self,
        vsis_max: usize,
        receive: Wanted,
        transmit: Wanted,
    ) -> Result<Taken, PortError> {
        let mut ports = self.ports();
        // The port's own is one of them.
        let vsis = ports.further.len() + 2;
        if vsis > vsis_max {
            return Err(PortError::TooMany {
                what: "VSIs",
                wanted: vsis,
                limit: vsis_max,
            });
        }
        let used = |which: fn(&Taken) -> &Range<u16>| -> Vec<Range<u16>> {
            let all = ports.further.values();
            all.map(|(taken, _)| which(taken).clone()).collect()
        };
        let what = "receive queues in a row beside those in use";
        let receive = free_range(what, receive, &used(|taken| &taken.receive))?;
        let what = "transmit queues in a row beside those in use";
        let transmit = free_range(what, transmit, &used(|taken| &taken.transmit))?;
        let free = (1..).find(|place| !ports.further.contains_key(place));
        let taken = Taken {
            place: free.unwrap_or(u16::MAX),
            receive,
            transmit,
        };
        ports.further.insert(taken.place, (taken.clone(), None));
        Ok(taken)
    }

    /// A further VSI exists, with this number in the device.
    pub(super) fn added(&self, taken: Taken, number: u16, vsi: &Arc<impl Registered + 'static>) {
        let mut ports = self.ports();
        let further = Further {
            number,
            vsi: weak(vsi),
        };
        ports.further.insert(taken.place, (taken, Some(further)));
        ports.add_service(&**vsi);
    }

    /// The further VSI with this queue of the function, and the queue's number in it.
    pub(super) fn further_of(&self, kind: QueueKind, queue: u16) -> Option<(u16, u16)> {
        let ports = self.ports();
        // Nothing is upgraded here: a VSI whose last handle goes takes this lock.
        ports.further.values().find_map(|(taken, further)| {
            let queues = match kind {
                QueueKind::Receive => &taken.receive,
                QueueKind::Transmit => &taken.transmit,
            };
            let number = further.as_ref()?.number;
            let place = queues.contains(&queue).then(|| queue - queues.start);
            place.map(|place| (number, place))
        })
    }

    /// Place and queues of a VSI may be taken again.
    pub(super) fn give(&self, taken: &Taken) {
        self.ports().further.remove(&taken.place);
    }

    /// Notes the function's own address before a port changes it; `None`: it has it back.
    pub(super) fn note_address(&self, own: Option<[u8; 6]>) {
        *self.own_address() = own;
    }

    /// Writes the function's own address and returns it, if a port had changed it and a reset or a
    /// refusal came before the port could give it back.
    pub(crate) fn return_address(
        &self,
        write: impl FnOnce([u8; 6]) -> Result<(), AdminError>,
    ) -> Result<Option<[u8; 6]>, AdminError> {
        let own = *self.own_address();
        if let Some(own) = own {
            write(own)?;
            self.note_address(None);
        }
        Ok(own)
    }

    fn own_address(&self) -> MutexGuard<'_, Option<[u8; 6]>> {
        let address = self.own_address.lock();
        address.unwrap_or_else(PoisonError::into_inner)
    }

    /// The device failed: its queues do nothing more.
    pub(crate) fn fail(&self) {
        for vsi in self.open() {
            vsi.cut_off();
        }
        self.close_registers();
    }

    /// A port that another thread is dropping is not among the open ones, and writes registers
    /// until its end: not from now on.
    fn close_registers(&self) {
        for (_, registers) in &self.ports().services {
            registers.close();
        }
    }

    /// The function was reset, and that was confirmed: every packet goes back.
    pub(crate) fn release(&self) {
        self.fail();
        let services = {
            let mut ports = self.ports();
            ports.further.clear();
            std::mem::take(&mut ports.services)
        };
        self.vectors.release();
        for (service, _) in services {
            service.release();
        }
    }

    /// Reads the device's clock for the time stamps of packets, where they have any.
    pub(crate) fn refresh_clock(&self) {
        let _visit = self.visit();
        for vsi in self.open() {
            vsi.refresh_clock();
        }
    }

    /// Reads the counters of the port and its VSIs, before they wrap. False if some could not be
    /// read: the others are not tried then.
    pub(crate) fn sample_counters(&self) -> bool {
        let _visit = self.visit();
        // One at a time: a port whose owner drops it meanwhile is to be closed at once.
        let all = self.known();
        let mut open = all.iter().filter_map(Weak::upgrade);
        open.all(|vsi| vsi.sample_counters())
    }

    /// The device is being shut down: the queues are stopped, rules and VSIs removed.
    ///
    /// Twice: a VSI may be added until its port is closed, which is the last one of the first
    /// round.
    pub(crate) fn shut_down(&self) {
        for _ in 0..2 {
            for vsi in self.open() {
                vsi.shut_down();
            }
        }
        // A reset follows.
        self.close_registers();
    }
}

/// The first free range of that many queues.
fn free_range(
    what: &'static str,
    wanted: Wanted,
    used: &[Range<u16>],
) -> Result<Range<u16>, PortError> {
    let Wanted { among, count } = wanted;
    let (mut free, mut longest) = (0, 0);
    for queue in among {
        let number = queue as u16;
        free = match used.iter().any(|range| range.contains(&number)) {
            true => 0,
            false => free + 1,
        };
        longest = longest.max(free);
        if free == count {
            return Ok(number + 1 - count as u16..number + 1);
        }
    }
    Err(PortError::TooMany {
        what,
        wanted: count,
        limit: longest,
    })
}

fn weak<V: Registered + 'static>(vsi: &Arc<V>) -> Weak<dyn Registered> {
    let weak: Weak<V> = Arc::downgrade(vsi);
    weak
}

#[cfg(test)]
mod tests;
