//! The state of a connection manager: queue pair 1, the messages under way, and what the program
//! has not read yet.

use crate::addresses::Addresses;
use crate::error::{Closed, ConnectError};
use crate::farewell;
use crate::lookup::{Resolver, neighbours};
use crate::news::{News, Waiting, end_of, refused};
use crate::service::Service;
use ringside_cm::{
    Action, ConnectionId, Event, EventKind, ListenerId, Manager, OutgoingMad, RequestError,
};
use ringside_pmd::Device;
use ringside_pmd::rdma::{ProtectionDomain, QueuePair};
use ringside_pmd::recovery::FailureCause;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Messages that wait for the recovery of the device: a last one for each connection.
const MAX_KEPT: usize = ringside_cm::MAX_CONNECTIONS;
/// Ports of programs that connect.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;

/// Queue pair 1, or the reason why there is none.
enum Gsi {
    InService(Box<Service>),
    /// the device failed; these messages tell the peers of it
    Lost {
        cause: FailureCause,
        kept: VecDeque<OutgoingMad>,
        /// of the failed device: shows if it is shut down
        domain: ProtectionDomain,
    },
    /// there will be none again
    Closed(Closed),
}

/// Queue pair 1 of a manager that was dropped, with the messages to the peers of its connections.
pub(crate) struct Leave {
    service: Box<Service>,
    messages: Vec<OutgoingMad>,
    resolve: Arc<Resolver>,
}

impl Leave {
    /// Tells the peers, and waits until they confirm: see [`farewell::tell`]. Gives queue pair 1
    /// back.
    pub(crate) fn tell(mut self) {
        let neighbour = neighbours(&*self.resolve);
        let left = farewell::tell(&mut self.service, self.messages, &neighbour);
        if left > 0 {
            tracing::debug!(
                left,
                "peers have not confirmed the end of their connections"
            );
        }
    }
}

/// State that calls and the thread change.
pub(crate) struct State {
    pub(crate) manager: Manager,
    gsi: Gsi,
    /// messages from before a recovery, which are sent as there is room
    kept: VecDeque<OutgoingMad>,
    resolve: Arc<Resolver>,
    addresses: Addresses,
    /// unread news of each connection
    pub(crate) events: HashMap<ConnectionId, VecDeque<News>>,
    /// unread requests of each listener
    pub(crate) requests: HashMap<ListenerId, VecDeque<Waiting>>,
    next_port: u16,
}

impl State {
    /// The state of a manager whose queue pair 1 is in service.
    pub(crate) fn new(
        manager: Manager,
        service: Service,
        resolve: Arc<Resolver>,
        seed: u64,
    ) -> Self {
        let span = u64::from(EPHEMERAL.end - EPHEMERAL.start);
        let mut state = Self {
            manager,
            gsi: Gsi::InService(Box::new(service)),
            kept: VecDeque::new(),
            resolve,
            addresses: Addresses::default(),
            events: HashMap::new(),
            requests: HashMap::new(),
            next_port: EPHEMERAL.start + (seed % span) as u16,
        };
        state.follow_addresses();
        state
    }

    /// The resolver of the period of service.
    pub(crate) const fn resolver(&self) -> &Arc<Resolver> {
        &self.resolve
    }

    /// The addresses that it listens on and connects from.
    pub(crate) const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// True if there will be no queue pair 1 again.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.gsi, Gsi::Closed(_))
    }

    /// Forgets every connection and closes the manager. Returns queue pair 1 with the messages that
    /// tell the peers; nothing if it is not in service.
    pub(crate) fn take_leave(&mut self, now: Duration) -> Option<Leave> {
        let is_open = self.check_open(now).is_ok();
        let left: Vec<ConnectionId> = self.events.keys().copied().collect();
        for id in left {
            self.manager.destroy(now, id);
        }
        let mut messages: Vec<OutgoingMad> = self.kept.drain(..).collect();
        while let Some(action) = self.manager.next_action() {
            match action {
                Action::Send(message) => messages.push(message),
                Action::Event(event) => self.tell(event, now),
            }
        }
        if !is_open {
            return None;
        }
        let gsi = std::mem::replace(&mut self.gsi, Gsi::Closed(Closed::Dropped));
        self.requests.clear();
        for events in self.events.values_mut() {
            events.push_back(News::Closed(Closed::Dropped));
        }
        match gsi {
            Gsi::InService(service) => Some(Leave {
                service,
                messages,
                resolve: Arc::clone(&self.resolve),
            }),
            Gsi::Lost { .. } | Gsi::Closed(_) => None,
        }
    }

    pub(crate) fn take_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = match port + 1 {
            end if end >= EPHEMERAL.end => EPHEMERAL.start,
            next => next,
        };
        port
    }

    /// The next unread news of a connection.
    pub(crate) fn next_event(&mut self, id: ConnectionId) -> Option<News> {
        self.events.get_mut(&id)?.pop_front()
    }

    /// Errors: the device has failed, and the manager was not restored; or the manager is closed.
    pub(crate) fn check(&mut self, now: Duration) -> Result<(), ConnectError> {
        self.notice_end(now);
        match self.gsi {
            Gsi::InService(_) => Ok(()),
            Gsi::Lost { cause, .. } => Err(ConnectError::DeviceFailed { cause }),
            Gsi::Closed(closed) => Err(closed.into()),
        }
    }

    /// Errors: as of [`Self::check`], and the queue pair is none of the manager's device.
    pub(crate) fn check_pair(
        &mut self,
        now: Duration,
        pair: &QueuePair,
    ) -> Result<(), ConnectError> {
        self.check(now)?;
        match &self.gsi {
            Gsi::InService(service) if !pair.protection_domain().is_beside(service.domain()) => {
                let queue_pair = pair.number();
                Err(ConnectError::ForeignQueuePair { queue_pair })
            }
            _ => Ok(()),
        }
    }

    /// True if the manager was started on this device; false once it is closed. A recovery does not
    /// make another device of it.
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        match &self.gsi {
            Gsi::InService(service) => device.owns(service.domain()),
            Gsi::Lost { domain, .. } => device.owns(domain),
            Gsi::Closed(_) => false,
        }
    }

    /// Tells the peer that has answered a request that the queue pair is ready: the connection is
    /// made.
    ///
    /// Errors: the peer ended it after its answer, or the manager did.
    pub(crate) fn ready(&mut self, id: ConnectionId, peer: IpAddr) -> Result<(), ConnectError> {
        let Err(error) = self.manager.ready(id, &[]) else {
            return Ok(());
        };
        while let Some(news) = self.next_event(id) {
            refused(news, peer)?;
        }
        Err(match error {
            RequestError::State { .. } | RequestError::Gone => ConnectError::Ended { peer },
            other => other.into(),
        })
    }

    /// Errors: there will be no queue pair 1 again.
    pub(crate) fn check_open(&mut self, now: Duration) -> Result<(), Closed> {
        self.notice_end(now);
        match self.gsi {
            Gsi::Closed(closed) => Err(closed),
            Gsi::InService(_) | Gsi::Lost { .. } => Ok(()),
        }
    }

    /// Takes queue pair 1 out of use if the device failed or is shut down: its connections are
    /// over.
    pub(crate) fn notice_end(&mut self, now: Duration) {
        let (failure, domain) = match &self.gsi {
            Gsi::InService(service) => (service.failure(), service.domain()),
            Gsi::Lost { domain, .. } => (None, domain),
            Gsi::Closed(_) => return,
        };
        self.gsi = match failure {
            // A device that has failed is not recovered after its shutdown.
            _ if domain.is_shut_down() => {
                self.requests.clear();
                Gsi::Closed(Closed::ShutDown)
            }
            Some(cause) => Gsi::Lost {
                cause,
                kept: std::mem::take(&mut self.kept),
                domain: domain.clone(),
            },
            None => return,
        };
        self.manager.lose_device();
        self.act(now);
    }

    /// Puts queue pair 1 of the recovered device into use.
    pub(crate) fn resume(&mut self, service: Service, resolve: Arc<Resolver>) {
        if let Gsi::Lost { kept, .. } = &mut self.gsi {
            self.kept = std::mem::take(kept);
        }
        self.gsi = Gsi::InService(Box::new(service));
        self.resolve = resolve;
        self.addresses.look_again();
        self.follow_addresses();
    }

    /// Takes addresses into account that were added to the device or removed from it.
    pub(crate) fn follow_addresses(&mut self) {
        if let Gsi::InService(service) = &self.gsi {
            self.addresses.follow(service.domain(), &mut self.manager);
        }
    }

    /// Does what the manager wants.
    pub(crate) fn act(&mut self, now: Duration) {
        while let Some(action) = self.manager.next_action() {
            match (action, &mut self.gsi) {
                (Action::Send(mad), Gsi::InService(service)) => {
                    let neighbour = neighbours(&*self.resolve);
                    service.send(mad, &neighbour);
                }
                (Action::Send(mad), Gsi::Lost { kept, .. }) if kept.len() < MAX_KEPT => {
                    kept.push_back(mad);
                }
                (Action::Send(mad), Gsi::Lost { .. } | Gsi::Closed(_)) => {
                    let to = mad.destination.address();
                    tracing::debug!(%to, "a peer is not notified of the end of a connection");
                }
                (Action::Event(event), _) => self.tell(event, now),
            }
        }
    }

    /// Takes messages that arrived, and sends those that waited. True if some have arrived: more
    /// may follow, and call this again once others had the state. A peer that ends many connections
    /// sends faster than [`crate::shared`] looks at rest.
    pub(crate) fn serve(&mut self, now: Duration) -> bool {
        self.follow_addresses();
        let Gsi::InService(service) = &mut self.gsi else {
            return false;
        };
        let manager = &mut self.manager;
        let mut has_arrived = false;
        let has_more = service.poll(|arrived| {
            has_arrived = true;
            if let Err(reason) = manager.receive(now, arrived) {
                tracing::debug!(%reason, "a datagram for queue pair 1 was dropped");
            }
        });
        // While messages wait, each turn looks whether their peers have answered.
        service.retry(&neighbours(&*self.resolve));
        if service.is_lost() {
            service.give_up();
        }
        self.send_kept();
        has_more || has_arrived
    }

    /// Sends messages from before a recovery, as many as there is room for.
    fn send_kept(&mut self) {
        let Gsi::InService(service) = &mut self.gsi else {
            return;
        };
        while service.has_room()
            && let Some(mad) = self.kept.pop_front()
        {
            service.send(mad, &neighbours(&*self.resolve));
        }
    }

    fn tell(&mut self, event: Event, now: Duration) {
        match event.kind {
            EventKind::Request {
                listener,
                parameters,
                header,
                private_data,
            } => {
                let Some(requests) = self.requests.get_mut(&listener) else {
                    return;
                };
                self.events.insert(event.id, VecDeque::new());
                requests.push_back(Waiting {
                    id: event.id,
                    parameters,
                    peer: SocketAddr::new(header.source, header.source_port),
                    private_data,
                });
            }
            EventKind::DeviceFailed => {
                let news = match self.gsi {
                    Gsi::InService(_) => return,
                    Gsi::Lost { cause, .. } => News::Lost(cause),
                    Gsi::Closed(closed) => News::Closed(closed),
                };
                if let Some(events) = self.events.get_mut(&event.id) {
                    events.push_back(news);
                }
            }
            kind => {
                if matches!(kind, EventKind::Disconnected { by_peer: true }) {
                    // Confirms; an end that this side asked for needs that no more.
                    let _ = self.manager.disconnect(now, event.id);
                }
                let news = News::Event(kind);
                if end_of(&news).is_some() && self.withdraw(event.id) {
                    self.events.remove(&event.id);
                    self.manager.destroy(now, event.id);
                } else if let Some(events) = self.events.get_mut(&event.id) {
                    events.push_back(news);
                }
            }
        }
    }

    /// Takes a request that its peer has given up out of those that wait for the program; true if
    /// it was one.
    fn withdraw(&mut self, id: ConnectionId) -> bool {
        self.requests.values_mut().any(|requests| {
            let place = requests.iter().position(|waiting| waiting.id == id);
            place.and_then(|place| requests.remove(place)).is_some()
        })
    }
}

#[cfg(test)]
mod tests;
