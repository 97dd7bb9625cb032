//! Socket addresses of the C interface.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;

/// The address behind a pointer; `None` if it is null or of another family than IP.
///
/// # Safety
/// `address` is null or a socket address of the size of its family.
pub(crate) unsafe fn read(address: *const libc::sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    match c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the caller's promise.
            let four = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(four.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the caller's promise.
            let six = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(six.sin6_addr.s6_addr);
            let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
            Some(SocketAddr::new(ip, u16::from_be(six.sin6_port)))
        }
        _ => None,
    }
}

/// Bytes of the address in a storage.
pub(crate) fn length(storage: &libc::sockaddr_storage) -> libc::socklen_t {
    let bytes = match c_int::from(storage.ss_family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => size_of::<libc::sa_family_t>(),
    };
    bytes as libc::socklen_t
}

/// Writes an address into the storage of an id. A link-local one names the device's interface, as
/// from Linux, if programs find that.
pub(crate) fn write(storage: &mut libc::sockaddr_storage, address: SocketAddr) {
    static INTERFACE: OnceLock<u32> = OnceLock::new();
    let interface = *INTERFACE.get_or_init(crate::interface::index);
    write_beside(storage, address, interface);
}

/// An address as a socket of a family shows it: to one of IPv6 an IPv4 address is a mapped one.
pub(crate) fn shown_to(family: c_int, address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: numbers: all zero is a value.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let ip = match (family, address.ip()) {
        (libc::AF_INET6, IpAddr::V4(four)) => four.to_ipv6_mapped().into(),
        (_, ip) => ip,
    };
    write(&mut storage, SocketAddr::new(ip, address.port()));
    storage
}

/// As [`write`], with the index of the interface.
fn write_beside(storage: &mut libc::sockaddr_storage, address: SocketAddr, interface: u32) {
    // SAFETY: numbers: all zero is a value.
    *storage = unsafe { std::mem::zeroed() };
    let place: *mut libc::sockaddr_storage = storage;
    match address {
        SocketAddr::V4(four) => {
            // SAFETY: the storage is as large as any socket address, and aligned for it.
            let place = unsafe { &mut *place.cast::<libc::sockaddr_in>() };
            place.sin_family = libc::AF_INET as libc::sa_family_t;
            place.sin_port = four.port().to_be();
            place.sin_addr.s_addr = u32::from(*four.ip()).to_be();
        }
        SocketAddr::V6(six) => {
            // SAFETY: as above.
            let place = unsafe { &mut *place.cast::<libc::sockaddr_in6>() };
            place.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            place.sin6_port = six.port().to_be();
            place.sin6_addr.s6_addr = six.ip().octets();
            if six.ip().is_unicast_link_local() {
                place.sin6_scope_id = interface;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{read, write, write_beside};
    use std::net::SocketAddr;

    #[test]
    fn addresses_survive_the_way_through_c() {
        for text in ["10.0.0.1:7174", "[fe80::1]:80", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            // SAFETY: numbers: all zero is a value.
            let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
            write(&mut storage, address);
            // SAFETY: a live storage.
            assert_eq!(unsafe { read((&raw const storage).cast()) }, Some(address));
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(std::ptr::null()) }, None);
    }

    #[test]
    fn link_local_addresses_name_their_interface_and_others_none() {
        for (text, scope) in [("[fe80::1]:80", 7), ("[fd00::1]:80", 0)] {
            // SAFETY: numbers: all zero is a value.
            let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
            write_beside(&mut storage, text.parse().unwrap(), 7);
            // SAFETY: a storage holds any socket address.
            let six = unsafe { (&raw const storage).cast::<libc::sockaddr_in6>().read() };
            assert_eq!(six.sin6_scope_id, scope, "{text}");
        }
    }
}
