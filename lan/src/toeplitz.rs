//! The hash that spreads packets over queues, in software: it predicts the queue of a flow.

use std::net::IpAddr;

/// Addresses and ports of a flow, in the byte order of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same version.
    pub destination: IpAddr,
    /// Source and destination port, where the hash takes them in.
    pub ports: Option<(u16, u16)>,
}

/// The Toeplitz hash with a key of 52 bytes, of which flows use the first 40. Source: Microsoft,
/// "RSS hashing types"; the E810's input order is that of the packet.
#[derive(Clone, Debug)]
pub struct Toeplitz {
    key: [u8; 52],
}

impl Toeplitz {
    /// The hash with this key.
    #[must_use]
    pub const fn new(key: [u8; 52]) -> Self {
        Self { key }
    }

    /// The hash of bytes in the order of the packet.
    #[must_use]
    pub fn hash_bytes(&self, input: impl IntoIterator<Item = u8>) -> u32 {
        let [a, b, c, d, rest @ ..] = &self.key;
        let mut window = u32::from_be_bytes([*a, *b, *c, *d]);
        let mut rest = rest.iter();
        let mut hash = 0;
        for byte in input {
            let next = rest.next().copied().unwrap_or(0);
            for bit in (0..8).rev() {
                if byte >> bit & 1 == 1 {
                    hash ^= window;
                }
                window = window << 1 | u32::from(next >> bit & 1);
            }
        }
        hash
    }

    /// Hash of a flow.
    #[must_use]
    pub fn hash(&self, flow: &Flow) -> u32 {
        let (source, destination) = (octets(flow.source), octets(flow.destination));
        let ports = flow.ports.into_iter();
        let ports = ports.flat_map(|(from, to)| [from.to_be_bytes(), to.to_be_bytes()]);
        let addresses = source.into_iter().chain(destination);
        self.hash_bytes(addresses.chain(ports.flatten()))
    }
}

/// The symmetric form: both directions of a flow have the same hash. Each word is combined with
/// that of the other end before it is hashed.
#[derive(Clone, Debug)]
pub struct SymmetricToeplitz(
    /// The hash beneath.
    pub Toeplitz,
);

impl SymmetricToeplitz {
    /// Hash of a flow.
    #[must_use]
    pub fn hash(&self, flow: &Flow) -> u32 {
        let (source, destination) = (octets(flow.source), octets(flow.destination));
        let mixed: Vec<u8> = source
            .iter()
            .zip(&destination)
            .map(|(one, other)| one ^ other)
            .collect();
        let ports = flow.ports.map(|(from, to)| (from ^ to).to_be_bytes());
        let ports = ports.into_iter().flat_map(|ports| [ports, ports]).flatten();
        let addresses = mixed.iter().chain(&mixed).copied();
        self.0.hash_bytes(addresses.chain(ports))
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key and results of Microsoft's verification suite ("Verifying the RSS hash calculation").
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn hash() -> Toeplitz {
        let mut key = [0; 52];
        key[..40].copy_from_slice(&KEY);
        Toeplitz::new(key)
    }

    #[test]
    fn hashes_are_those_of_the_published_verification_suite() {
        let mut flow = Flow {
            source: "66.9.149.187".parse().unwrap(),
            destination: "161.142.100.80".parse().unwrap(),
            ports: None,
        };
        assert_eq!(hash().hash(&flow), 0x323e_8fc2);
        flow.ports = Some((2794, 1766));
        assert_eq!(hash().hash(&flow), 0x51cc_c178);
        let mut flow = Flow {
            source: "3ffe:2501:200:1fff::7".parse().unwrap(),
            destination: "3ffe:2501:200:3::1".parse().unwrap(),
            ports: None,
        };
        assert_eq!(hash().hash(&flow), 0x2cc1_8cd5);
        flow.ports = Some((2794, 1766));
        assert_eq!(hash().hash(&flow), 0x4020_7d3d);
    }

    #[test]
    fn the_symmetric_hash_is_the_same_in_both_directions() {
        let flow = Flow {
            source: "66.9.149.187".parse().unwrap(),
            destination: "161.142.100.80".parse().unwrap(),
            ports: Some((2794, 1766)),
        };
        let back = Flow {
            source: flow.destination,
            destination: flow.source,
            ports: Some((1766, 2794)),
        };
        let symmetric = SymmetricToeplitz(hash());
        assert_eq!(symmetric.hash(&flow), symmetric.hash(&back));
        assert_ne!(hash().hash(&flow), hash().hash(&back));
        // The bytes of both ends, combined by exclusive or, in each place of the packet's order.
        let mixed = [66 ^ 161, 9 ^ 142, 149 ^ 100, 187 ^ 80u8];
        let ports = (2794u16 ^ 1766).to_be_bytes();
        let bytes = [&mixed[..], &mixed, &ports, &ports].concat();
        assert_eq!(symmetric.hash(&flow), hash().hash_bytes(bytes));
    }
}
