//! Address handles.

use crate::abi::{ibv_ah, ibv_ah_attr, ibv_context, ibv_global_route, ibv_pd, ibv_wc, wc_flags};
use crate::cancel::Uncancelled;
use crate::context_object::ContextObject;
use crate::device::Port;
use crate::errno;
use crate::gid::{address_of, gid_of};
use crate::live::{self, Kind};
use crate::memory::DomainObject;
use crate::shared_handles::SharedHandle;
use ringside_cm::gsi::HOP_LIMIT;
use ringside_config::LocalAddress;
use ringside_connect::Within;
use ringside_pmd::rdma::{Datagram, Destination, Route};
use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::Ordering;

/// Returns the destination of an address vector. Its hop limit counts for groups; that of other
/// destinations is the route's, as in Linux: programs name 1 also for peers behind a router.
///
/// Errors: `EINVAL` without a global route, for another port, an unknown GID index, or one of the
/// other family (but for groups of IPv6);
/// `ETIMEDOUT` if the peer does not answer, `EHOSTUNREACH` if there is no route to it.
pub(crate) fn destination(port: &Port, attributes: &ibv_ah_attr) -> Result<Destination, c_int> {
    let route = &attributes.grh;
    let local = port.gid(route.sgid_index.into());
    let Some(local) = local.filter(|_| attributes.is_global != 0) else {
        return Err(libc::EINVAL);
    };
    let address = address_of(&route.dgid);
    let local_address = match (local.address, address) {
        (own, peer) if own.is_ipv4() == peer.is_ipv4() => own,
        // As with Linux irdma: the GID is the source as it is.
        (IpAddr::V4(own), IpAddr::V6(group)) if group.is_multicast() => own.to_ipv6_mapped().into(),
        _ => return Err(libc::EINVAL),
    };
    if attributes.port_num != 1 {
        return Err(libc::EINVAL);
    }
    let (mac, vlan_tag) = port.way(&local, address)?;
    Ok(Destination {
        address,
        mac,
        local_address: Some(local_address),
        vlan_tag,
        hop_limit: match route.hop_limit {
            limit if address.is_multicast() && limit != 0 => limit,
            _ => HOP_LIMIT,
        },
        traffic_class: route.traffic_class,
        flow_label: route.flow_label & 0xF_FFFF,
        service_level: None,
    })
}

/// An address handle.
#[repr(C)]
pub(crate) struct HandleObject {
    public: ibv_ah,
    pub(crate) handle: SharedHandle,
}

impl HandleObject {
    /// # Safety
    /// `handle` came from [`ibv_create_ah`] and is not destroyed while the result is used.
    pub(crate) unsafe fn of<'a>(handle: *mut ibv_ah) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*handle.cast() }
    }
}

/// # Safety
/// `domain` is one of this library; `attributes` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(
    domain: *mut ibv_pd,
    attributes: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    let _call = Uncancelled::new();
    // A parent's, by fork, is refused before a lock that another thread may have held.
    if let Err(error) = live::expect_domain(domain) {
        return errno::null(error);
    }
    // SAFETY: the caller's promise.
    let (object, attributes) = unsafe { (DomainObject::of(domain), &*attributes) };
    // SAFETY: a domain's context outlives it.
    let context = unsafe { ContextObject::of(object.public.context) };
    let destination = match destination(&context.port, attributes) {
        Ok(destination) => destination,
        Err(error) => return errno::null(error),
    };
    let is_in_service = object.domain.failure().is_none();
    let made = object.handles.get(destination, is_in_service, || {
        let made = object.domain.address_handle(&destination);
        made.map_err(|error| errno::of(&error))
    });
    match made {
        Ok(handle) => {
            object.users.fetch_add(1, Ordering::Relaxed);
            let made = Box::new(HandleObject {
                public: ibv_ah {
                    context: object.public.context,
                    pd: domain,
                    handle: handle.handle().number(),
                },
                handle,
            });
            let made = Box::into_raw(made);
            // SAFETY: as for the exported call.
            let end = |handle| unsafe { ibv_destroy_ah(handle as *mut _) };
            live::enter(made, Kind::AddressHandle, object.public.context, end).cast()
        }
        Err(error) => errno::null(error),
    }
}

/// # Safety
/// `handle` came from [`ibv_create_ah`]; sends that name it are complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(handle: *mut ibv_ah) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect(handle, &[Kind::AddressHandle]) {
        return errno::failed(error);
    }
    live::leave(handle);
    // SAFETY: the caller's promise.
    let object = unsafe { Box::from_raw(handle.cast::<HandleObject>()) };
    // SAFETY: a domain outlives its handles.
    let domain = unsafe { DomainObject::of(object.public.pd) };
    domain.handles.give_back(object.handle);
    domain.users.fetch_sub(1, Ordering::Relaxed);
    0
}

/// The MAC address and the VLAN of the peer that an address vector names; `0xFFFF` without a VLAN.
///
/// Errors: a negative errno value, as for [`ibv_create_ah`].
///
/// # Safety
/// `context` is open, `attributes` are valid, `mac` and `vlan` are places; `vlan` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attributes: *const ibv_ah_attr,
    mac: *mut [u8; 6],
    vlan: *mut u16,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        match destination(&ContextObject::of(context).port, &*attributes) {
            Ok(found) => {
                *mac = found.mac;
                if !vlan.is_null() {
                    *vlan = found.vlan_tag.unwrap_or(u16::MAX);
                }
                0
            }
            Err(error) => -errno::failed(error),
        }
    }
}

/// Bytes that programs reserve before a datagram.
pub(crate) type RouteBytes = [u8; Datagram::PAYLOAD_OFFSET];

/// Returns the route of a received datagram, from the bytes before its payload. An IPv4 header is
/// recognised by its version and its checksum, as in Linux.
pub(crate) fn route_of(bytes: &RouteBytes) -> Option<Route> {
    let header = bytes.get(20..)?;
    let sum = header.chunks_exact(2).fold(0_u32, |sum, pair| match pair {
        [high, low] => sum + u32::from(u16::from_be_bytes([*high, *low])),
        _ => sum,
    });
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let is_four = header.first().is_some_and(|first| *first == 0x45) && folded == 0xFFFF;
    Route::parse(bytes, is_four)
}

/// The way back to the sender of a datagram; without a global route if the completion has none, as
/// from rdma-core.
///
/// Errors: `EINVAL` for another port, bytes that are no IP header, or a datagram to an address that
/// the port does not have.
///
/// # Safety
/// `bytes` are of the datagram if the completion has a global route.
unsafe fn way_back(
    port: &Port,
    port_number: u8,
    completion: &ibv_wc,
    bytes: *const RouteBytes,
) -> Result<ibv_ah_attr, c_int> {
    let mut back = ibv_ah_attr {
        grh: ibv_global_route {
            dgid: gid_of(Ipv6Addr::UNSPECIFIED.into()),
            flow_label: 0,
            sgid_index: 0,
            hop_limit: 0,
            traffic_class: 0,
        },
        dlid: completion.slid,
        sl: 0, // a completion has the kind of the IP header there
        src_path_bits: completion.dlid_path_bits,
        static_rate: 0,
        is_global: 0,
        port_num: port_number,
    };
    if completion.wc_flags & wc_flags::GRH == 0 {
        return Ok(back);
    }
    if port_number != 1 {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let route = route_of(unsafe { &*bytes }).ok_or(libc::EINVAL)?;
    let is_four = route.source.is_ipv4();
    let is_alike =
        |gid: &Option<LocalAddress>| gid.is_some_and(|own| own.address.is_ipv4() == is_four);
    let index = port.gid_index(route.destination, Within::All);
    // A message to a group is answered from an address of the group's family.
    let index = index.or_else(|| port.gids().iter().rposition(is_alike));
    back.is_global = 1;
    back.grh = ibv_global_route {
        dgid: gid_of(route.source),
        flow_label: route.flow_label,
        sgid_index: index.ok_or(libc::EINVAL)? as u8,
        hop_limit: route.hop_limit,
        traffic_class: route.traffic_class,
    };
    Ok(back)
}

/// Attributes of an address handle to the sender of a datagram.
///
/// # Safety
/// `context` is open, `completion` and `bytes` are of a received datagram, `attributes` is a place.
/// Bytes are read only if the completion has a global route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_number: u8,
    completion: *const ibv_wc,
    bytes: *const RouteBytes,
    attributes: *mut ibv_ah_attr,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        let port = &ContextObject::of(context).port;
        match way_back(port, port_number, &*completion, bytes) {
            Ok(found) => {
                *attributes = found;
                0
            }
            Err(error) => errno::minus_one(error),
        }
    }
}

/// An address handle to the sender of a datagram.
///
/// # Safety
/// `domain` is one of this library; `completion` and `bytes` are of a received datagram.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    domain: *mut ibv_pd,
    completion: *const ibv_wc,
    bytes: *const RouteBytes,
    port_number: u8,
) -> *mut ibv_ah {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise; a domain's context outlives it.
    unsafe {
        let context = ContextObject::of((*domain).context);
        match way_back(&context.port, port_number, &*completion, bytes) {
            Ok(mut attributes) => ibv_create_ah(domain, &raw mut attributes),
            Err(error) => errno::null(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::route_of;

    #[test]
    fn the_way_of_a_datagram_is_read_from_the_bytes_before_it() {
        let mut bytes = [0_u8; 40];
        bytes[0] = 0x60; // undefined before an IPv4 header: looks like IPv6
        let header = [
            0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0x26, 0xAF, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        bytes[20..].copy_from_slice(&header);
        let route = route_of(&bytes).unwrap();
        assert_eq!(route.source.to_string(), "10.0.0.1");
        bytes[30] ^= 1; // another checksum: no IPv4 header
        assert!(route_of(&bytes).unwrap().source.is_ipv6());
    }
}
