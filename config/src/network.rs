//! IP addresses of the port, as text in the configuration.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// An IP address of the port, with its prefix length and its VLAN: `192.0.2.1/24`,
/// `2001:db8::1/64`, `10.1.0.1/24@100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct LocalAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix: 1..=32 for IPv4, 1..=128 for IPv6.
    pub prefix_bits: u8,
    /// The VLAN of the address, 1..=4094; `None` for untagged frames.
    pub vlan: Option<u16>,
}

/// The reason why no port can have an address. An address that was parsed has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// Its prefix length is 0, or longer than the address.
    #[error("its prefix has 1 to {most} bits")]
    Prefix {
        /// Bits of the address.
        most: u8,
    },
    /// A group, broadcast, loopback, or no address.
    #[error("a port has unicast addresses")]
    NotUnicast,
    /// The first or the last IPv4 address of its network: they name the network and all its hosts.
    #[error("the first and the last address of a network are no host's")]
    End,
    /// Of 0.0.0.0/8 or 240.0.0.0/4. Source: RFC 6890, section 2.2.2, tables 1 and 15.
    #[error("no host has an address of 0.0.0.0/8 or 240.0.0.0/4")]
    Reserved,
    /// An IPv4 address in the form of IPv6: no packet carries it, and its GID is that of the IPv4
    /// address.
    #[error("it stands for an IPv4 address: write {0}")]
    Mapped(Ipv4Addr),
    /// Its VLAN does not exist.
    #[error("a VLAN is 1 to 4094")]
    Vlan,
}

impl LocalAddress {
    /// Makes an address for untagged frames.
    #[must_use]
    pub const fn new(address: IpAddr, prefix_bits: u8) -> Self {
        Self {
            address,
            prefix_bits,
            vlan: None,
        }
    }

    /// Returns the same address on a VLAN.
    #[must_use]
    pub const fn on_vlan(self, vlan: u16) -> Self {
        Self {
            vlan: Some(vlan),
            ..self
        }
    }

    /// Refuses an address that no port can have.
    ///
    /// Errors: [`AddressFault`], the first one.
    pub fn check(&self) -> Result<(), AddressFault> {
        let ip = self.address;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        if !(1..=most).contains(&self.prefix_bits) {
            return Err(AddressFault::Prefix { most });
        }
        if !is_of_a_host(ip) {
            return Err(AddressFault::NotUnicast);
        }
        if is_reserved(ip) {
            return Err(AddressFault::Reserved);
        }
        if self.is_end(ip) {
            return Err(AddressFault::End);
        }
        if let IpAddr::V6(six) = ip
            && let Some(four) = six.to_ipv4_mapped()
        {
            return Err(AddressFault::Mapped(four));
        }
        match self.vlan.is_none_or(|vlan| (1..=4094).contains(&vlan)) {
            true => Ok(()),
            false => Err(AddressFault::Vlan),
        }
    }

    /// Returns true if `other` is in the address's network.
    #[must_use]
    pub fn is_neighbour(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix_bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix_bits)
            }
            _ => false,
        }
    }

    /// The number of an address in the address's network, and the last one there; `None` for
    /// addresses of other networks, and in those that have no broadcast address.
    #[must_use]
    pub fn place_of(&self, other: IpAddr) -> Option<(u32, u32)> {
        let IpAddr::V4(four) = other else {
            return None;
        };
        // Networks of two addresses and one have none: RFC 3021.
        let last = u32::MAX.checked_shr(self.prefix_bits.into())?;
        (last > 1 && self.is_neighbour(other)).then(|| (four.to_bits() & last, last))
    }

    /// Returns true for the first and the last address of the address's network, which name the
    /// network and all its hosts: no host has one of them. Source: RFC 1122, section 3.2.1.3.
    #[must_use]
    pub fn is_end(&self, other: IpAddr) -> bool {
        let place = self.place_of(other);
        place.is_some_and(|(of_host, last)| of_host == 0 || of_host == last)
    }
}

/// Networks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// All of them: the route to the peer decides.
    All,
    /// Those of the own addresses on this VLAN, or, for `None`, on frames without a tag. A peer
    /// that has sent a message is answered there: other VLANs may have another host with its
    /// address.
    Vlan(Option<u16>),
}

impl Within {
    /// True if the network of an own address is one of them.
    #[must_use]
    pub fn holds(self, own: &LocalAddress) -> bool {
        match self {
            Self::All => true,
            Self::Vlan(vlan) => own.vlan == vlan,
        }
    }
}

/// True for an address that a single host can have on a wire: not a group's, and neither the
/// unspecified, a loopback nor the broadcast address. Source: RFC 1122, section 3.2.1.3.
#[must_use]
pub fn is_of_a_host(address: IpAddr) -> bool {
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_multicast() || address.is_unspecified() || address.is_loopback() || is_broadcast)
}

/// True for an IPv4 address that other stations may refuse as that of a sender: of 0.0.0.0/8, "this
/// network", or of 240.0.0.0/4, for future use. Source: RFC 6890, section 2.2.2.
fn is_reserved(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(four) if matches!(four.octets()[0], 0 | 240..))
}

/// True for an IPv6 address that routers do not forward. Source: RFC 4291, section 2.5.6.
#[must_use]
pub const fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(six) if six.is_unicast_link_local())
}

/// The address of `own` whose network holds `peer`: of several the one with the longest prefix, of
/// those with equal prefixes the first.
#[must_use]
pub fn nearest(own: &[LocalAddress], peer: IpAddr) -> Option<LocalAddress> {
    let near = own.iter().filter(|one| one.is_neighbour(peer));
    // `max_by_key` takes the last of equal ones.
    near.rev().max_by_key(|one| one.prefix_bits).copied()
}

/// The entry of `own` with an address from which `peer` is reached: of one address on several VLANs
/// the [`nearest`] one, else the first.
#[must_use]
pub fn entry_towards(own: &[LocalAddress], address: IpAddr, peer: IpAddr) -> Option<LocalAddress> {
    let mut same = own.to_vec();
    same.retain(|one| one.address == address);
    nearest(&same, peer).or_else(|| same.first().copied())
}

/// The address of `own` that reaches `peer` where no route says which: the [`nearest`] one, else
/// the first of its IP version, link-local if the peer's address is.
#[must_use]
pub fn towards(own: &[LocalAddress], peer: IpAddr) -> Option<LocalAddress> {
    let mut same = own
        .iter()
        .filter(|one| one.address.is_ipv4() == peer.is_ipv4());
    let fitting = |one: &&LocalAddress| is_link_local(one.address) == is_link_local(peer);
    nearest(own, peer)
        .or_else(|| same.clone().find(fitting).copied())
        .or_else(|| same.next().copied())
}

impl FromStr for LocalAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "{text} is not an address of a port: {why}; write 192.0.2.1/24 or 10.1.0.1/24@100"
            )
        };
        let (network, vlan) = match text.split_once('@') {
            Some((network, vlan)) => (network, Some(vlan)),
            None => (text, None),
        };
        let (address, prefix) = network
            .split_once('/')
            .ok_or_else(|| wrong("the prefix length is missing"))?;
        let address: IpAddr = address
            .parse()
            .map_err(|_| wrong("it is not an IPv4 or IPv6 address"))?;
        // What is no number is out of range, too.
        let read = Self {
            address,
            prefix_bits: prefix.parse().unwrap_or(0),
            vlan: vlan.map(|vlan| vlan.parse().unwrap_or(0)),
        };
        match read.check() {
            Ok(()) => Ok(read),
            Err(fault) => Err(wrong(&fault.to_string())),
        }
    }
}

/// The text is parsed while it is visited, so that a fault has the position of its element in a
/// list.
impl<'de> Deserialize<'de> for LocalAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = LocalAddress;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address with prefix length, such as 192.0.2.1/24")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LocalAddress, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// Reads IP addresses; a text that is none is named, at its place in the list.
pub(crate) fn named_addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpAddr>, D::Error> {
    struct Named(IpAddr);

    impl<'de> Deserialize<'de> for Named {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Text;

            impl Visitor<'_> for Text {
                type Value = Named;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an IP address, such as 192.0.2.254")
                }

                fn visit_str<E: de::Error>(self, text: &str) -> Result<Named, E> {
                    let read = text.parse().map(Named);
                    read.map_err(|_| {
                        E::custom(format!(
                            "{text} is not an IP address; write 192.0.2.254 or fe80::1"
                        ))
                    })
                }
            }

            deserializer.deserialize_str(Text)
        }
    }

    let named = Vec::<Named>::deserialize(from)?;
    Ok(named.into_iter().map(|one| one.0).collect())
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)?;
        match self.vlan {
            Some(vlan) => write!(f, "@{vlan}"),
            None => Ok(()),
        }
    }
}

impl From<LocalAddress> for String {
    fn from(address: LocalAddress) -> Self {
        address.to_string()
    }
}

impl JsonSchema for LocalAddress {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "LocalAddress".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An IP address with prefix length, and @VLAN where it is on one.",
            "type": "string",
            "pattern": "^[0-9a-fA-F:.]+/[0-9]{1,3}(@[0-9]{1,4})?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_as_it_is_written() {
        for text in [
            "192.0.2.1/24",
            "2001:db8::1/64",
            "10.1.0.1/8@100",
            // Networks without ends, and of another prefix.
            "192.0.2.0/31",
            "192.0.2.255/31",
            "192.0.2.255/32",
            "192.0.2.255/23",
            "2001:db8::/64",
        ] {
            let address: LocalAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        let wrong = [
            ("192.0.2.1", "prefix length is missing"),
            ("192.0.2.1/33", "1 to 32 bits"),
            ("192.0.2.1/0", "1 to 32 bits"),
            ("2001:db8::1/129", "1 to 128 bits"),
            ("192.0.2/24", "not an IPv4 or IPv6 address"),
            ("224.0.0.1/24", "unicast"),
            ("255.255.255.255/24", "unicast"),
            ("192.0.2.255/24", "the first and the last address"),
            ("10.0.0.0/24", "the first and the last address"),
            ("10.0.3.255/22", "the first and the last address"),
            ("0.0.0.1/8", "no host has an address of 0.0.0.0/8"),
            ("240.0.0.1/4", "or 240.0.0.0/4"),
            ("192.0.2.1/24@0", "1 to 4094"),
            ("192.0.2.1/24@4095", "1 to 4094"),
        ];
        for (text, why) in wrong {
            let error = text.parse::<LocalAddress>().unwrap_err();
            assert!(error.contains(why) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_neighbour_shares_the_prefix() {
        let own: LocalAddress = "10.1.2.3/22".parse().unwrap();
        assert!(own.is_neighbour("10.1.0.200".parse().unwrap()));
        assert!(!own.is_neighbour("10.1.4.1".parse().unwrap()));
        assert!(!own.is_neighbour("::10.1.0.200".parse().unwrap()));
        let own: LocalAddress = "fd00:0:0:1::3/64".parse().unwrap();
        assert!(own.is_neighbour("fd00:0:0:1:ffff::".parse().unwrap()));
        assert!(!own.is_neighbour("fd00:0:0:2::3".parse().unwrap()));
    }

    #[test]
    fn the_ends_of_a_network_are_those_of_no_host() {
        let is = |own: &str, address: &str| {
            let own: LocalAddress = own.parse().unwrap();
            own.is_end(address.parse().unwrap())
        };
        for address in ["10.1.0.0", "10.1.0.255"] {
            assert!(is("10.1.0.1/24", address), "{address}");
            assert!(!is("10.1.0.1/16", "10.1.0.255"));
        }
        for address in ["10.1.0.9", "10.2.0.0", "10.2.0.255", "fd00::"] {
            assert!(!is("10.1.0.1/24", address), "{address}");
        }
        assert!(!is("10.1.0.1/31", "10.1.0.0"));
        assert!(!is("10.1.0.1/32", "10.1.0.1"));
        assert!(!is("fd00::1/64", "fd00::"));
    }
}
