//! GIDs and address handles.

use crate::abi::{ibv_ah, ibv_ah_attr, ibv_gid, ibv_pd};
use crate::context_object::ContextObject;
use crate::device::Port;
use crate::errno;
use crate::memory::DomainObject;
use ringside_pmd::rdma::{AddressHandle, Destination};
use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::Ordering;

/// An address as a GID: IPv4 in its mapped form.
pub(crate) fn gid_of(address: IpAddr) -> ibv_gid {
    let raw = match address {
        IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
        IpAddr::V6(six) => six.octets(),
    };
    ibv_gid { raw, align: [] }
}

/// The address that a GID is.
pub(crate) fn address_of(gid: &ibv_gid) -> IpAddr {
    let six = Ipv6Addr::from(gid.raw);
    six.to_ipv4_mapped().map_or(IpAddr::V6(six), IpAddr::V4)
}

/// Where an address vector leads.
///
/// Errors: `EINVAL` without a global route, for another port or an unknown GID index;
/// `EHOSTUNREACH` if the MAC address of the peer is not known.
pub(crate) fn destination(port: &Port, attributes: &ibv_ah_attr) -> Result<Destination, c_int> {
    let route = &attributes.grh;
    let local = port.gid(route.sgid_index.into());
    let Some(local) = local.filter(|_| attributes.is_global == 1) else {
        return Err(libc::EINVAL);
    };
    let address = address_of(&route.dgid);
    if address.is_ipv4() != local.is_ipv4() || attributes.port_num > 1 {
        return Err(libc::EINVAL);
    }
    let mac = port.neighbour(address).ok_or(libc::EHOSTUNREACH)?;
    Ok(Destination {
        address,
        mac,
        local_address: Some(local),
        vlan_tag: None,
        hop_limit: if route.hop_limit == 0 {
            64
        } else {
            route.hop_limit
        },
        traffic_class: route.traffic_class,
        flow_label: route.flow_label & 0xF_FFFF,
    })
}

/// An address handle.
#[repr(C)]
pub(crate) struct HandleObject {
    public: ibv_ah,
    pub(crate) handle: AddressHandle,
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
    // SAFETY: the caller's promise.
    let (object, attributes) = unsafe { (DomainObject::of(domain), &*attributes) };
    // SAFETY: a domain's context outlives it.
    let context = unsafe { ContextObject::of(object.public.context) };
    let destination = match destination(&context.port, attributes) {
        Ok(destination) => destination,
        Err(error) => return errno::null(error),
    };
    match object.domain.address_handle(&destination) {
        Ok(handle) => {
            object.users.fetch_add(1, Ordering::Relaxed);
            let made = Box::new(HandleObject {
                public: ibv_ah {
                    context: object.public.context,
                    pd: domain,
                    handle: handle.number(),
                },
                handle,
            });
            Box::into_raw(made).cast()
        }
        Err(error) => errno::null(errno::of(&error)),
    }
}

/// # Safety
/// `handle` came from [`ibv_create_ah`]; sends that name it are complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(handle: *mut ibv_ah) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { Box::from_raw(handle.cast::<HandleObject>()) };
    // SAFETY: a domain outlives its handles.
    let domain = unsafe { DomainObject::of(object.public.pd) };
    domain.users.fetch_sub(1, Ordering::Relaxed);
    0
}
