//! The way to a peer: addresses and routes.

use super::abi::{event, rdma_cm_id, space};
use super::addressing::bind;
use super::events::finish;
use super::id::{IdObject, Notice, Resolution, Step};
use super::node::{Node, State, node, push};
use super::ports::Ports;
use super::recovery::node_in_service;
use super::route;
use super::socket_address;
use crate::cancel::Uncancelled;
use crate::device::{Found, Way};
use crate::errno;
use std::collections::{BTreeSet, HashMap};
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The address of this device that packets to a peer have.
pub(super) fn local_for(node: &Node, remote: IpAddr) -> Option<IpAddr> {
    Some(node.port().source_towards(remote)?.address)
}

/// The unspecified address and localhost name this device itself, as for Linux's connection
/// manager.
fn meant(node: &Node, remote: SocketAddr) -> SocketAddr {
    let ip = remote.ip();
    match local_for(node, ip).filter(|_| ip.is_unspecified() || ip.is_loopback()) {
        Some(own) => SocketAddr::new(own, remote.port()),
        None => remote,
    }
}

/// The family of a socket address as the program wrote it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Four,
    Six,
}

/// Begins to resolve, or is done at once. Returns before the neighbour has answered: the result is
/// an event. Errors: an errno value, for ids that cannot resolve now.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn resolve(
    node: &Node,
    id: *mut rdma_cm_id,
    source: Option<SocketAddr>,
    (family, remote): (Family, SocketAddr),
    limit: Duration,
) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(id) };
    let found = local_for(node, remote.ip());
    let step = object.private().step;
    if step == Step::Made {
        // The path decides the address: a failure leaves the id without one.
        let any: IpAddr = match family {
            Family::Four => Ipv4Addr::UNSPECIFIED.into(),
            Family::Six => Ipv6Addr::UNSPECIFIED.into(),
        };
        let source = source.unwrap_or_else(|| SocketAddr::new(any, 0));
        // SAFETY: the caller's promise.
        unsafe { bind(node, id, source) }?;
    }
    node.with(|state, now| {
        let mut private = object.private();
        private.expect(Step::Bound)?;
        let bound = private.local.ok_or(libc::EINVAL)?;
        // An IPv4 address in the form of IPv6 is of either family.
        if bound.is_ipv4() != remote.is_ipv4() && bound.is_ipv4() != (family == Family::Four) {
            return Err(libc::EINVAL);
        }
        // Shown from now on, as programs name the peer in their messages about a failure.
        private.remote = Some(remote);
        // SAFETY: the caller's promise.
        unsafe { route::show_remote(id, remote) };
        let own = Some(bound.ip()).filter(|ip| !ip.is_unspecified());
        let ip = match own.or(found) {
            // SAFETY: the caller's promise.
            Some(_) if unsafe { (*id).ps } == space::IPOIB => Err(libc::EINVAL),
            Some(ip) => Ok(ip),
            None => Err(libc::ENODEV),
        };
        let ip = match ip {
            Ok(ip) => ip,
            Err(error) => {
                push(Notice::new(id as usize, event::ADDR_ERROR, -error));
                return Ok(());
            }
        };
        private.step = Step::Resolving;
        drop(private);
        let resolution = Resolution {
            local: SocketAddr::new(ip, bound.port()),
            remote,
            since: now,
            until: now + limit,
        };
        // At once if the neighbour is known, or the peer is this device. The others are the
        // thread's: a call does not wait for their lookups.
        let found = node.port().find_towards(ip, remote.ip());
        // SAFETY: the caller's promise.
        if !unsafe { is_resolved(node, &mut state.ports, now, id, &resolution, found) } {
            state.resolving.insert(id as usize, resolution);
        }
        Ok(())
    })
}

/// Time for which a neighbour that has not answered is looked at often: most answer at once.
const OFTEN: Duration = Duration::from_millis(50);
/// Pauses between two looks meanwhile, and afterwards.
const SHORT_PAUSE: Duration = Duration::from_millis(1);
const LONG_PAUSE: Duration = Duration::from_millis(10);

impl Resolution {
    fn way(&self) -> Way {
        (self.local.ip(), self.remote.ip())
    }
}

impl State {
    /// The ways that have to be looked up, each once.
    pub(super) fn unresolved(&self) -> Vec<Way> {
        let ways: BTreeSet<Way> = self.resolving.values().map(Resolution::way).collect();
        ways.into_iter().collect()
    }

    /// Ends the resolutions whose neighbours have answered, or whose time is over. Those that have
    /// begun since the lookup, at `asked`, stay. Returns the pause until the next look, if any is
    /// left.
    pub(super) fn resolve(
        &mut self,
        node: &Node,
        (asked, now): (Duration, Duration),
        found: &HashMap<Way, Found>,
    ) -> Option<Duration> {
        let ports = &mut self.ports;
        self.resolving.retain(|id, wanted| {
            let found = found.get(&wanted.way());
            let Some(found) = found.filter(|_| wanted.since <= asked) else {
                return true;
            };
            // SAFETY: an id leaves the tables before it is destroyed.
            !unsafe { is_resolved(node, ports, now, *id as *mut rdma_cm_id, wanted, *found) }
        });
        let mut left = self.resolving.values();
        let has_new = left.any(|wanted| now < wanted.since + OFTEN);
        match (has_new, self.resolving.is_empty()) {
            (true, _) => Some(SHORT_PAUSE),
            (false, false) => Some(LONG_PAUSE),
            (false, true) => None,
        }
    }

    /// Ends all of them: the device is gone.
    pub(super) fn end_resolutions(&mut self) {
        for id in std::mem::take(&mut self.resolving).into_keys() {
            // SAFETY: an id leaves the tables before it is destroyed.
            unsafe { fail(id as *mut rdma_cm_id, libc::ENODEV) };
        }
    }
}

/// True if the resolution of an id has ended; the program gets its event.
///
/// # Safety
/// `id` is an id of this library.
unsafe fn is_resolved(
    node: &Node,
    ports: &mut Ports,
    now: Duration,
    id: *mut rdma_cm_id,
    wanted: &Resolution,
    found: Found,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match found {
            Ok(Some(_)) => succeed(node, ports, id, wanted),
            Ok(None) if now < wanted.until => return false,
            Ok(None) => fail(id, libc::ETIMEDOUT),
            Err(error) => fail(id, error),
        }
    }
    true
}

/// # Safety
/// `id` is an id of this library.
unsafe fn succeed(node: &Node, ports: &mut Ports, id: *mut rdma_cm_id, found: &Resolution) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut private = IdObject::of(id).private();
        private.local = Some(found.local);
        private.remote = Some(found.remote);
        private.step = Step::Addressed;
        private.device = node.shared().context as usize;
        drop(private);
        // The port is taken for this address alone now.
        if let Some(owner) = ports.owner((*id).ps, found.local.port(), id as usize) {
            owner.ip = found.local.ip();
        }
        route::show_local(id, found.local);
        route::show_remote(id, found.remote);
        route::show_device(id, node.shared());
    }
    push(Notice::new(id as usize, event::ADDR_RESOLVED, 0));
}

/// # Safety
/// `id` is an id of this library.
unsafe fn fail(id: *mut rdma_cm_id, error: c_int) {
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(id) };
    // The program may try another address.
    object.private().step = Step::Bound;
    push(Notice::new(id as usize, event::ADDR_ERROR, -error));
}

/// Begins to resolve the address of a peer. The result is `RDMA_CM_EVENT_ADDR_RESOLVED`, or
/// `RDMA_CM_EVENT_ADDR_ERROR` with `-ETIMEDOUT` after the milliseconds or if the neighbour does not
/// answer, with `-EHOSTUNREACH` if there is no route, or with `-EINVAL` in the port space of IP
/// over InfiniBand, which RoCE does not have. A negative number of milliseconds is one of 32 bits
/// without a sign, so no limit, as for the kernel. Errors: `EINVAL` for addresses of two families,
/// or one that is neither null nor of IP.
///
/// # Safety
/// `id` is an id of this library; the addresses are null or socket addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *const libc::sockaddr,
    destination: *const libc::sockaddr,
    milliseconds: c_int,
) -> c_int {
    let _call = Uncancelled::new();
    let limit = Duration::from_millis(milliseconds.cast_unsigned().into());
    // SAFETY: the caller's promise.
    unsafe {
        let Some(remote) = socket_address::read(destination) else {
            return errno::minus_one(libc::EINVAL);
        };
        let from = socket_address::read(source);
        if from.is_none() && !source.is_null() {
            return errno::minus_one(libc::EINVAL);
        }
        let family = match c_int::from((*destination).sa_family) {
            libc::AF_INET => Family::Four,
            _ => Family::Six,
        };
        let begun = node_in_service().and_then(|node| {
            let remote = meant(node, remote);
            resolve(node, id, from, (family, remote), limit)
        });
        match begun {
            Ok(()) => finish(id),
            Err(error) => errno::minus_one(error),
        }
    }
}

/// # Safety
/// `id` is an id of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ringside_rdma_resolve_route(
    id: *mut rdma_cm_id,
    _milliseconds: c_int,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        match show_route(id) {
            Ok(()) => finish(id),
            Err(error) => errno::minus_one(error),
        }
    }
}

/// The route of an id that has its address: the event is there at once.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn show_route(id: *mut rdma_cm_id) -> Result<(), c_int> {
    let node = node().map_err(|_| libc::ENODEV)?;
    // SAFETY: the caller's promise.
    let object = unsafe { IdObject::of(id) };
    node.with(|_, _| {
        let mut private = object.private();
        private.expect(Step::Addressed)?;
        private.step = Step::Routed;
        let class = private.traffic_class;
        drop(private);
        // SAFETY: the caller's promise.
        unsafe { route::show_path(id, route::path_mtu(&node.port()), class) };
        push(Notice::new(id as usize, event::ROUTE_RESOLVED, 0));
        Ok(())
    })
}
