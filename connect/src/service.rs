//! The general service interface: queue pair 1 of the device.

use crate::lookup::Lookup;
use ringside_cm::mad::MAD_BYTES;
use ringside_cm::{Arrived, Gid, OutgoingMad, gsi};
use ringside_pmd::Device;
use ringside_pmd::rdma::address::MacAddress;
use ringside_pmd::rdma::{
    Access, AddressHandle, Completion, CompletionQueue, Datagram, DatagramReady, Destination,
    MemoryRegion, Notify, ProtectionDomain, QueuePair, QueuePairConfig, RdmaError, Route,
    SendFlags, Status, To,
};
use ringside_pmd::recovery::{FailureCause, Watch};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Messages that may arrive before they are read.
const RECEIVES: usize = 512;
/// Messages under way.
const SENDS: usize = 64;
/// Bytes of a receive: the route and a MAD, rounded.
const RECEIVE_BYTES: usize = 320;
/// Ways to peers that are kept at most.
const MAX_HANDLES: usize = 256;
/// Ways take one of so many address handles of the device at most: the program needs some, too.
const ONE_OF: usize = 2;
/// Identifiers of sends begin here.
const FIRST_SEND: u64 = RECEIVES as u64;

/// Messages that wait for the MAC addresses of their peers.
const MAX_WAITING: usize = 64;
/// Messages that wait until others have left: a program may begin or end as many connections at
/// once.
const MAX_QUEUED: usize = 4096;
/// Between two attempts to make queue pair 1 again.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);
/// The longest wait of a message for that: longer than a neighbour is asked for.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(5);

/// Looks for the MAC address of a peer on a VLAN, or on frames without a tag, without waiting for
/// an answer.
pub type Neighbour<'a> = dyn Fn(IpAddr, Option<u16>) -> Lookup + 'a;

/// The reason why a message was not sent.
#[derive(Clone, Copy)]
enum Unsent {
    /// All sends are under way.
    Full,
    /// The peer's MAC address is being asked for, or messages under way have all address handles.
    Waits,
    Never(&'static str),
}

impl From<&'static str> for Unsent {
    fn from(reason: &'static str) -> Self {
        Self::Never(reason)
    }
}

/// A way: own address and its VLAN, the peer's address, traffic class.
type Way = (Gid, Option<u16>, Gid, u8);

/// Queue pair 1 and its memory.
#[derive(Debug)]
pub struct Service {
    /// `None` after an attempt to make it again that failed
    pair: Option<QueuePair<DatagramReady>>,
    /// no attempt before that
    next_attempt: Instant,
    /// the device did not confirm the end of the failed one
    is_lost: bool,
    /// the configuration lets a failed device be recovered
    recovers: bool,
    queue: CompletionQueue,
    region: MemoryRegion,
    handles: HashMap<Way, (MacAddress, AddressHandle)>,
    /// ways that are kept: the program needs address handles of the device, too
    handles_most: usize,
    /// handles to MAC addresses that peers had before: messages under way may name them
    former: Vec<AddressHandle>,
    /// messages to peers whose MAC addresses are being asked for, and until when they wait
    waiting: VecDeque<(OutgoingMad, Instant)>,
    /// messages that wait for a place, in their order, and until when
    queued: VecDeque<(OutgoingMad, Instant)>,
    /// places of messages that are not under way
    idle: Vec<usize>,
    domain: ProtectionDomain,
    watch: Watch,
}

/// The configuration of queue pair 1.
fn config(queue: &CompletionQueue) -> QueuePairConfig {
    QueuePairConfig::datagram(queue)
        .send_requests(SENDS as u32)
        .receive_requests(RECEIVES as u32)
}

impl Service {
    /// Takes queue pair 1 of a device. Errors: another owner has it, or no objects are left.
    pub fn open(device: &Device) -> Result<Self, RdmaError> {
        let watch = device.watch()?;
        let limit = device.object_usage()?.address_handles.limit as usize;
        let domain = device.protection_domain()?;
        let queue = domain.completion_queue((RECEIVES + SENDS) as u32)?;
        let pair = domain.service_queue_pair(config(&queue))?;
        let bytes = RECEIVES * RECEIVE_BYTES + SENDS * MAD_BYTES;
        let memory = device.allocate(bytes)?;
        let region = domain.register(memory, Access::LOCAL_READ | Access::LOCAL_WRITE);
        let region = region.map_err(|refused| refused.error)?;
        let pair = pair
            .ready(gsi::QUEUE_KEY)
            .map_err(|refused| refused.error)?;
        let mut service = Self {
            pair: Some(pair),
            next_attempt: Instant::now(),
            is_lost: false,
            recovers: device.config().housekeeping.recover,
            queue,
            region,
            handles: HashMap::new(),
            handles_most: (limit / ONE_OF).clamp(1, MAX_HANDLES),
            former: Vec::new(),
            waiting: VecDeque::new(),
            queued: VecDeque::new(),
            idle: (0..SENDS).collect(),
            domain,
            watch,
        };
        service.post_receives();
        Ok(service)
    }

    fn post_receives(&mut self) {
        for place in 0..RECEIVES {
            self.receive(place);
        }
    }

    /// Makes queue pair 1 again if it alone has failed, such as by an access to memory that the
    /// host refused. Messages that were lost are repeated by the connection managers.
    fn make_again(&mut self) {
        let has_failed = self.pair.as_ref().is_none_or(QueuePair::has_failed);
        if !has_failed || self.watch.has_failed() {
            return;
        }
        let now = Instant::now();
        if now < self.next_attempt {
            return;
        }
        self.next_attempt = now + BETWEEN_ATTEMPTS;
        match self.made_again() {
            Ok(pair) => {
                tracing::warn!("queue pair 1 had failed, and was made again");
                self.pair = Some(pair);
                // A reset drops what was outstanding, with its completions.
                self.idle = (0..SENDS).collect();
                self.post_receives();
            }
            // The failure of the device itself: its recovery makes another one.
            Err(RdmaError::DeviceFailed { .. }) => {}
            Err(error) => {
                let is_kept = matches!(error, RdmaError::FixedInUse { .. });
                self.is_lost = self.pair.is_none() && is_kept;
                tracing::warn!(%error, "queue pair 1 has failed");
            }
        }
    }

    /// True if queue pair 1 has failed, and cannot be made again before the device is recovered:
    /// the device did not confirm that the failed one is gone.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Takes the device out of service because queue pair 1 is lost: without it no connection is
    /// made or ended any more, and a recovery makes it again. Does nothing if the configuration
    /// does not let the device be recovered.
    pub(crate) fn give_up(&self) {
        if !self.recovers {
            return;
        }
        match self.domain.give_up() {
            Ok(()) => tracing::error!("queue pair 1 is lost: the device is to be recovered"),
            Err(error) => tracing::debug!(%error, "queue pair 1 is lost"),
        }
    }

    fn made_again(&mut self) -> Result<QueuePair<DatagramReady>, RdmaError> {
        if self.queue.query()?.failed {
            // Nothing comes through it any more. Its queue pair reports to it, and goes first.
            self.pair = None;
            self.queue = self.domain.completion_queue((RECEIVES + SENDS) as u32)?;
        }
        let pair = match self.pair.take() {
            Some(pair) => pair.reset().map_err(|refused| {
                let error = refused.error.clone();
                self.pair = refused.into_queue_pair();
                error
            })?,
            None => self.domain.service_queue_pair(config(&self.queue))?,
        };
        pair.ready(gsi::QUEUE_KEY).map_err(|refused| refused.error)
    }

    /// Number of its completion queue. It may be another one after each [`Self::poll`], which makes
    /// a failed queue again.
    #[must_use]
    pub fn queue_number(&self) -> u32 {
        self.queue.number()
    }

    /// Asks for an interrupt at the next completion.
    pub fn arm(&mut self) {
        self.queue.arm(Notify::Next);
    }

    /// True if the device has yet to send a message.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.idle.len() < SENDS
    }

    /// The protection domain of queue pair 1.
    pub(crate) const fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// The cause for which the device failed, and queue pair 1 with it; `None` while it is in
    /// service.
    pub(crate) fn failure(&self) -> Option<FailureCause> {
        match self.watch.has_failed() {
            true => self.domain.failure(),
            false => None,
        }
    }

    /// True if no message leaves any more: the device has failed, or is shut down.
    pub(crate) fn is_out(&self) -> bool {
        self.watch.has_failed() || self.domain.is_shut_down()
    }

    /// The messages that it takes now without dropping one, if each has to wait for the MAC address
    /// of its peer.
    pub(crate) fn room(&self) -> usize {
        match self.queued.is_empty() {
            true => MAX_WAITING.saturating_sub(self.waiting.len()),
            false => 0,
        }
    }

    /// True if it takes a message that is in no hurry, and leaves room for others.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queued.is_empty()
            && self.idle.len() > SENDS / 2
            && self.waiting.len() < MAX_WAITING / 2
    }

    fn receive(&mut self, place: usize) {
        let begin = place * RECEIVE_BYTES;
        let posted = match self.region.slice(begin..begin + RECEIVE_BYTES) {
            Ok(fragment) => {
                let pair = self.pair.as_mut();
                pair.is_some_and(|pair| pair.receive(place as u64, &[fragment]).is_ok())
            }
            Err(_) => false,
        };
        if !posted {
            tracing::warn!(place, "queue pair 1 has a receive less");
        }
    }

    /// Sends a message; `neighbour` looks for the MAC address of a peer that is new. A message to a
    /// peer that is being asked for it waits, and so does one that finds too many under way: see
    /// [`Self::retry`]. One that cannot be sent is dropped: the connection manager repeats it,
    /// after seconds.
    pub fn send(&mut self, mad: OutgoingMad, neighbour: &Neighbour<'_>) {
        let limit = Instant::now() + MAX_WAIT;
        match self.queued.is_empty() {
            true => self.send_until(mad, limit, neighbour),
            // It does not overtake the others.
            false => self.enqueue(mad, limit),
        }
    }

    fn enqueue(&mut self, mad: OutgoingMad, limit: Instant) {
        if self.queued.len() < MAX_QUEUED {
            self.queued.push_back((mad, limit));
        } else {
            not_sent(&mad, "too many messages wait for others to leave");
        }
    }

    fn send_until(&mut self, mad: OutgoingMad, limit: Instant, neighbour: &Neighbour<'_>) {
        let reason = match self.try_send(&mad, neighbour) {
            Ok(()) => return,
            Err(Unsent::Full) => return self.enqueue(mad, limit),
            Err(Unsent::Never(reason)) => reason,
            Err(Unsent::Waits) if self.waiting.len() >= MAX_WAITING => "too many messages wait",
            Err(Unsent::Waits) if Instant::now() >= limit => {
                "no MAC address of the peer, or no address handle, in time"
            }
            Err(Unsent::Waits) => {
                self.waiting.push_back((mad, limit));
                return;
            }
        };
        not_sent(&mad, reason);
    }

    /// Sends the waiting messages for which there is room, and whose peers' MAC addresses are known
    /// by now. True if some still wait: call this again soon.
    pub fn retry(&mut self, neighbour: &Neighbour<'_>) -> bool {
        while !self.idle.is_empty()
            && let Some((mad, limit)) = self.queued.pop_front()
        {
            match Instant::now() < limit {
                true => self.send_until(mad, limit, neighbour),
                false => not_sent(&mad, "others have not left in time"),
            }
        }
        for _ in 0..self.waiting.len() {
            if let Some((mad, limit)) = self.waiting.pop_front() {
                self.send_until(mad, limit, neighbour);
            }
        }
        !self.waiting.is_empty() || !self.queued.is_empty()
    }

    fn try_send(&mut self, mad: &OutgoingMad, neighbour: &Neighbour<'_>) -> Result<(), Unsent> {
        let way = (mad.source, mad.vlan, mad.destination, mad.traffic_class);
        if self.idle.is_empty() {
            return Err(Unsent::Full);
        }
        self.prepare(neighbour, way)?;
        let place = self.idle.pop().ok_or(Unsent::Full)?;
        let begin = RECEIVES * RECEIVE_BYTES + place * MAD_BYTES;
        let posted = self.post(way, begin, place, mad);
        if posted.is_err() {
            self.idle.push(place);
        }
        Ok(posted?)
    }

    fn post(
        &mut self,
        way: Way,
        begin: usize,
        place: usize,
        mad: &OutgoingMad,
    ) -> Result<(), &'static str> {
        if !self.region.write(begin, mad.payload.as_slice()) {
            return Err("the message has no place");
        }
        let fragment = self.region.slice(begin..begin + MAD_BYTES);
        let fragment = fragment.map_err(|_| "the message has no place")?;
        let to = To {
            handle: &self.handles.get(&way).ok_or("no way to the peer")?.1,
            queue_pair: gsi::QUEUE_PAIR,
            queue_key: gsi::QUEUE_KEY,
        };
        let id = FIRST_SEND + place as u64;
        let pair = self.pair.as_mut().ok_or("queue pair 1 has failed")?;
        pair.post_send_to(id, &to, &[fragment], None, SendFlags::SIGNALLED)
            .map_err(|_| "queue pair 1 accepts no further send")?;
        pair.ring();
        Ok(())
    }

    /// Makes an address handle for a way, unless there is one to the peer's present MAC address.
    fn prepare(&mut self, neighbour: &Neighbour<'_>, way: Way) -> Result<(), Unsent> {
        let (local, vlan_tag, remote, traffic_class) = way;
        let address = remote.address();
        let known = self.handles.get(&way).map(|(mac, _)| *mac);
        let mac = match (neighbour(address, vlan_tag), known) {
            (Lookup::Found(mac), Some(known)) if mac == known => return Ok(()),
            (Lookup::Found(mac), _) => mac,
            // A repetition of the message takes the answer.
            (_, Some(_)) => return Ok(()),
            (Lookup::Asked, None) => return Err(Unsent::Waits),
            (Lookup::Unknown, None) => return Err("the peer's MAC address is not known".into()),
        };
        // A handle must outlive the messages that name it.
        if self.idle.len() == SENDS {
            self.former.clear();
        }
        if self.handles.len() + self.former.len() >= self.handles_most {
            self.forget_ways()?;
        }
        let destination = Destination {
            local_address: Some(local.address()),
            vlan_tag,
            traffic_class,
            hop_limit: gsi::HOP_LIMIT,
            ..Destination::new(address, mac)
        };
        let mut handle = self.domain.address_handle(&destination);
        if matches!(handle, Err(RdmaError::Capacity { .. })) && !self.handles.is_empty() {
            // The program has the other ones.
            self.forget_ways()?;
            handle = self.domain.address_handle(&destination);
        }
        let handle = handle.map_err(|error| {
            tracing::warn!(%error, peer = %address, "a message of the connection manager is not sent");
            "no address handle"
        })?;
        if let Some((_, former)) = self.handles.insert(way, (mac, handle)) {
            self.former.push(former);
        }
        Ok(())
    }

    /// Gives all address handles back to the device. Messages under way, which name them, are
    /// waited for.
    fn forget_ways(&mut self) -> Result<(), Unsent> {
        if self.idle.len() < SENDS {
            return Err(Unsent::Waits);
        }
        self.former.clear();
        self.handles.clear();
        Ok(())
    }

    /// Delivers the datagrams that arrived, 512 at most. Makes queue pair 1 again if it has failed.
    ///
    /// Returns true if it stopped at that limit: call it again soon. Peers may send faster than
    /// this host reads, and the caller has other work, such as the answers.
    pub fn poll(&mut self, mut arrived: impl FnMut(&Arrived<'_>)) -> bool {
        self.make_again();
        let mut batch = [Completion::EMPTY; 16];
        let mut left = RECEIVES;
        while left > 0 {
            let room = left.min(batch.len());
            let taken = self.queue.poll(&mut batch[..room]).len();
            for completion in batch.iter().take(taken) {
                if completion.id >= FIRST_SEND {
                    self.idle.push((completion.id - FIRST_SEND) as usize);
                    continue;
                }
                left -= 1;
                let place = completion.id as usize;
                if completion.status() == Status::Success {
                    self.hand_out(place, completion, &mut arrived);
                    self.receive(place);
                }
            }
            if taken < room {
                return false;
            }
        }
        true
    }

    fn hand_out(
        &self,
        place: usize,
        completion: &Completion,
        arrived: &mut impl FnMut(&Arrived<'_>),
    ) {
        let mut bytes = [0; RECEIVE_BYTES];
        let begin = place * RECEIVE_BYTES;
        let Some(datagram) = completion.datagram() else {
            return;
        };
        if !self.region.read(begin, &mut bytes) {
            return;
        }
        let Some((head, rest)) = bytes.split_first_chunk::<{ Datagram::PAYLOAD_OFFSET }>() else {
            return;
        };
        let payload = rest.get(..datagram.payload_bytes as usize);
        if let (Some(route), Some(payload)) = (Route::parse(head, datagram.ipv4), payload) {
            arrived(&Arrived {
                source: route.source.into(),
                destination: route.destination.into(),
                vlan: datagram.vlan_tag.and_then(vlan_in),
                traffic_class: route.traffic_class,
                // The device has compared both keys and the queue pair.
                partition_key: gsi::PARTITION_KEY,
                destination_qp: gsi::QUEUE_PAIR,
                queue_key: gsi::QUEUE_KEY,
                payload,
            });
        }
    }
}

fn not_sent(mad: &OutgoingMad, reason: &str) {
    tracing::debug!(to = %mad.destination.address(), reason, "a message was not sent");
}

/// The VLAN that a tag names; a tag of VLAN 0 carries a priority only.
fn vlan_in(tag: u16) -> Option<u16> {
    Some(tag & 0xFFF).filter(|vlan| *vlan != 0)
}

#[cfg(test)]
mod tests;
