//! Datagram services of the library itself: queue pairs behind addresses and ports, without ids.
//!
//! Datagram sockets have their ports from the same table as the ids of programs. The connection
//! manager answers for them on its own thread, independent of the program.

use super::addressing::here;
use super::id::User;
use super::node::{State, node};
use super::ports::Owner;
use super::recovery::node_in_service;
use super::resolving::local_for;
use super::route;
use super::services::Question;
pub(crate) use super::services::{Answer, QuestionId, Service};
use super::space;
use crate::abi::{ibv_ah, ibv_ah_attr, ibv_context, ibv_pd};
use crate::address::ibv_create_ah;
use crate::channel::last_error;
use ringside_cm::{
    Event, EventKind, ListenAt, ListenerId, PortSpace, RequestError, Resolve, ServiceAnswer,
    ServiceId, ServiceStatus,
};
use ringside_pmd::rdma::address::MacAddress;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Questions that a listener may have open. Each is answered when it arrives.
const BACKLOG: usize = 1024;

/// An address and a port of this device, for datagrams. Both are free again once it has ended.
pub(crate) struct Place {
    is_over: bool,
    token: usize,
    local: SocketAddr,
    listener: Option<ListenerId>,
    _user: User,
}

/// The protection domain and the context of all datagram services.
pub(crate) fn shared() -> Result<(*mut ibv_context, *mut ibv_pd), c_int> {
    let shared = node_in_service()?.shared();
    Ok((shared.context, shared.domain))
}

/// Bytes of the longest datagram.
pub(crate) fn longest() -> Result<u32, c_int> {
    Ok(route::active_mtu(&node()?.port()))
}

/// The address of this device that a peer is reached from.
pub(crate) fn source_for(remote: IpAddr) -> Result<IpAddr, c_int> {
    local_for(node()?, remote).ok_or(libc::ENETUNREACH)
}

/// The address that a program means: localhost is the device's own on a model.
pub(crate) fn meant(address: SocketAddr) -> Result<SocketAddr, c_int> {
    match address.ip() {
        ip if ip.is_loopback() => {
            let own = here(node()?, ip).ok_or(libc::ENETUNREACH)?;
            Ok(SocketAddr::new(own, address.port()))
        }
        _ => Ok(address),
    }
}

/// The MAC address of a peer, seen from an own address; nothing while it is being asked for, or is
/// not known.
pub(crate) fn present_mac(local: IpAddr, remote: IpAddr) -> Option<MacAddress> {
    let found = node().ok()?.port().find_towards(local, remote);
    found.ok().flatten()
}

/// An address handle to a peer, and the MAC address in it. Nothing while that is being asked for.
/// Errors: an errno value.
pub(crate) fn handle_to(
    local: IpAddr,
    remote: IpAddr,
) -> Result<Option<(MacAddress, *mut ibv_ah)>, c_int> {
    let node = node()?;
    let port = node.port();
    let mac = match port.find_towards(local, remote) {
        Ok(Some(mac)) => mac,
        Ok(None) => return Ok(None),
        Err(libc::EADDRNOTAVAIL) => return Err(libc::EADDRNOTAVAIL),
        Err(_) => return Err(libc::EHOSTUNREACH),
    };
    let way = route::towards(&port, local, remote, 0);
    let mut way: ibv_ah_attr = way.ok_or(libc::EADDRNOTAVAIL)?;
    // SAFETY: the domain stays as long as there is a socket; live attributes.
    let made = unsafe { ibv_create_ah(node.shared().domain, &raw mut way) };
    if made.is_null() {
        return Err(last_error());
    }
    Ok(Some((mac, made)))
}

impl Place {
    /// Takes an address and a port, or a free port for 0. Errors: `EADDRINUSE`, `EADDRNOTAVAIL`.
    pub(crate) fn take(wanted: SocketAddr, family_only: bool) -> Result<Self, c_int> {
        static TOKENS: AtomicUsize = AtomicUsize::new(0);
        let node = node_in_service()?;
        let wanted = meant(wanted).map_err(|_| libc::EADDRNOTAVAIL)?;
        let ip = wanted.ip();
        if !ip.is_unspecified() && node.port().own(ip).is_none() {
            return Err(libc::EADDRNOTAVAIL);
        }
        // Ids are named by their addresses, which are even.
        let token = TOKENS.fetch_add(1, Ordering::Relaxed) * 2 + 1;
        let owner = Owner {
            id: token,
            ip,
            family_only: family_only || ip.is_ipv4(),
            shares: false,
        };
        let port = node.with(|state, _| state.ports.take(space::UDP, wanted.port(), owner))?;
        Ok(Self {
            is_over: false,
            token,
            local: SocketAddr::new(ip, port),
            listener: None,
            _user: User::new(),
        })
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Answers those who ask for this place with a service.
    pub(crate) fn serve(&mut self, family_only: bool, with: Service) -> Result<(), c_int> {
        let service = ServiceId::of(PortSpace::Udp, self.local.port());
        let at = match self.local.ip() {
            ip if !ip.is_unspecified() => ListenAt::Address(ip),
            IpAddr::V4(_) => ListenAt::AnyIpv4,
            IpAddr::V6(_) if family_only => ListenAt::AnyIpv6,
            IpAddr::V6(_) => ListenAt::Any,
        };
        let made = node()?.with(|state, _| {
            let made = state.manager.listen(service, at, BACKLOG);
            if let Ok(listener) = &made {
                state.served.insert(*listener, with);
            }
            made
        });
        self.listener = Some(made.map_err(|_| libc::EADDRINUSE)?);
        Ok(())
    }

    /// Asks for the service at an address and a port. `tell` is called once there is an answer, and
    /// must not call the connection manager; it is dropped with this place. Returns the question.
    /// Errors: an errno value.
    pub(crate) fn ask(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        tell: Box<dyn FnOnce(QuestionId, Answer) + Send>,
    ) -> Result<QuestionId, c_int> {
        let node = node()?;
        let question = Resolve {
            local,
            vlan: node.port().vlan_towards(local, remote.ip()),
            remote: remote.ip(),
            service: ServiceId::of(PortSpace::Udp, remote.port()),
            source_port: self.local.port(),
            traffic_class: 0,
            private_data: Vec::new(),
        };
        let token = self.token;
        node.with(|state, now| {
            let asked = state.manager.resolve(now, &question);
            let asked = asked.map_err(|error| match error {
                RequestError::Full { .. } => libc::ENOBUFS,
                RequestError::Address { .. } => libc::EADDRNOTAVAIL,
                _ => libc::EINVAL,
            })?;
            state.questions.insert(asked, Question { token, tell });
            Ok(asked)
        })
    }

    /// Ends questions of this place, without an answer. Those that were answered have ended.
    pub(crate) fn end_questions(&self, questions: &[QuestionId]) {
        let Ok(node) = node() else { return };
        node.with(|state, now| {
            for id in questions {
                if state.questions.remove(id).is_some() {
                    state.manager.destroy(now, *id);
                }
            }
        });
    }

    /// Gives address and port back, and forgets the questions.
    pub(crate) fn end(&mut self) {
        let Ok(node) = node() else { return };
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        node.with(|state, now| {
            if let Some(listener) = self.listener {
                state.served.remove(&listener);
                state.manager.unlisten(now, listener);
            }
            let open = state.questions.iter();
            let mine = open.filter(|(_, question)| question.token == self.token);
            for id in mine.map(|(id, _)| *id).collect::<Vec<_>>() {
                state.questions.remove(&id);
                state.manager.destroy(now, id);
            }
            state.ports.give(space::UDP, self.local.port(), self.token);
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    /// Answers a question for a service of the library, or passes an answer on. Returns the events
    /// of ids.
    pub(super) fn take_datagrams(&mut self, now: Duration, event: Event) -> Option<Event> {
        match event.kind {
            EventKind::ServiceRequest { listener, .. } => {
                let Some(found) = self.served.get(&listener) else {
                    return Some(event);
                };
                let answer = ServiceAnswer {
                    status: ServiceStatus::VALID,
                    queue_pair: found.queue_pair,
                    queue_key: found.queue_key,
                    private_data: Vec::new(),
                };
                if let Err(error) = self.manager.answer(event.id, &answer) {
                    tracing::debug!(%error, "a question for a datagram socket is not answered");
                }
                self.manager.destroy(now, event.id);
                None
            }
            EventKind::ServiceReply { .. } | EventKind::Unreachable | EventKind::DeviceFailed => {
                let Some(question) = self.questions.remove(&event.id) else {
                    return Some(event);
                };
                self.manager.destroy(now, event.id);
                let answer = match event.kind {
                    EventKind::ServiceReply {
                        status: ServiceStatus::VALID,
                        queue_pair,
                        queue_key,
                        ..
                    } => Some(Service {
                        queue_pair,
                        queue_key,
                    }),
                    _ => None,
                };
                (question.tell)(event.id, answer);
                None
            }
            _ => Some(event),
        }
    }
}
