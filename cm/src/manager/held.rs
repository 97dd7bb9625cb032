//! Requests held for a listener that may be a moment late.
//!
//! Programs that make one connection after another often listen again between two. A peer that asks
//! in that gap would be rejected, and many programs do not repeat a request. So a request for a
//! service
//! without a listener waits for [`LISTENER_WAIT`] before it is rejected. A peer repeats a request
//! after 4 seconds; it does not notice the wait.

use super::Manager;
use super::connection::{Path, ServiceKey};
use crate::address::ServiceId;
use crate::message::{ConnectionRequest, ServiceRequest};
use crate::reason::ServiceStatus;
use std::collections::VecDeque;
use std::time::Duration;

/// Time that a request waits for a listener of its service.
pub const LISTENER_WAIT: Duration = Duration::from_millis(300);
/// Requests that wait at a time; those beyond are rejected at once.
pub(super) const MAX_HELD: usize = 256;

/// A request that waits for a listener.
#[derive(Clone, Debug)]
pub(super) struct Held {
    at: Duration,
    from: Path,
    transaction: u64,
    request: Request,
}

/// A request of either kind.
#[derive(Clone, Debug)]
pub(super) enum Request {
    /// for a connection
    Connection(Box<ConnectionRequest>),
    /// for the queue pair behind a service
    Service(Box<ServiceRequest>),
}

impl Request {
    const fn service_id(&self) -> u64 {
        match self {
            Self::Connection(request) => request.service_id,
            Self::Service(request) => request.service_id,
        }
    }
}

impl Held {
    fn until(&self) -> Duration {
        self.at + LISTENER_WAIT
    }
}

impl Manager {
    /// Holds a request until there is a listener, or rejects it at once if there is no room for it.
    pub(super) fn hold(&mut self, at: Duration, from: Path, transaction: u64, request: Request) {
        let held = Held {
            at,
            from,
            transaction,
            request,
        };
        if self.held.len() >= MAX_HELD {
            self.refuse_held(&held);
        } else {
            self.held.push_back(held);
        }
    }

    /// True if a request of this GUID and communication id is held.
    pub(super) fn is_held(&self, peer: (u64, u32)) -> bool {
        self.held.iter().any(|held| match &held.request {
            Request::Connection(one) => (one.local_ca_guid, one.local_comm_id) == peer,
            Request::Service(_) => false,
        })
    }

    /// True if a service request of this peer and request id is held.
    pub(super) fn is_service_held(&self, key: ServiceKey) -> bool {
        self.held.iter().any(|held| match &held.request {
            Request::Connection(_) => false,
            Request::Service(one) => (held.from.vlan, held.from.remote, one.request_id) == key,
        })
    }

    /// The peer gives a request up that waits here: no listener gets it.
    pub(super) fn drop_held(&mut self, peer: (u64, u32)) {
        self.held.retain(|held| match &held.request {
            Request::Connection(one) => (one.local_ca_guid, one.local_comm_id) != peer,
            Request::Service(_) => true,
        });
    }

    fn refuse_held(&mut self, held: &Held) {
        let (from, transaction) = (held.from, held.transaction);
        match &held.request {
            Request::Connection(request) => self.refuse_unserved(from, transaction, request),
            Request::Service(request) => {
                let status = ServiceStatus::UNSUPPORTED;
                self.refuse_service(from, transaction, request, status);
            }
        }
    }

    /// A service has a listener: its requests are taken as if they had just arrived.
    pub(super) fn take_held(&mut self, service: ServiceId) {
        let (found, rest): (VecDeque<_>, _) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|held| held.request.service_id() == service.0);
        self.held = rest;
        for held in found {
            let (at, from, transaction) = (held.at, held.from, held.transaction);
            match held.request {
                Request::Connection(request) => self.on_request(at, from, transaction, &request),
                Request::Service(request) => {
                    self.on_service_request(at, from, transaction, &request);
                }
            }
        }
    }

    /// Rejects the requests whose time is over.
    pub(super) fn reject_held(&mut self, now: Duration) {
        while self.held.front().is_some_and(|held| held.until() <= now) {
            if let Some(held) = self.held.pop_front() {
                self.refuse_held(&held);
            }
        }
    }

    /// The time at which the first one is rejected.
    pub(super) fn held_until(&self) -> Option<Duration> {
        self.held.front().map(Held::until)
    }
}
