//! Addresses of stations.

/// A MAC address, first octet first.
pub type MacAddress = [u8; 6];
