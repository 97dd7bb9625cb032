//! Frames of ARP and neighbour discovery, as the stack's neighbour table reads them.
//!
//! Checked: a neighbour is one host: no group address, no broadcast, no unspecified address.

use ringside_stack::neighbour_in;
use std::net::IpAddr;

/// A frame of address resolution.
pub fn neighbours(bytes: &[u8]) {
    let Some((address, mac)) = neighbour_in(bytes) else {
        return;
    };
    assert_eq!(mac[0] & 1, 0, "a group has no neighbour entry: {mac:02x?}");
    assert!(!address.is_unspecified() && !address.is_multicast());
    if let IpAddr::V4(address) = address {
        assert!(!address.is_broadcast());
    }
}
