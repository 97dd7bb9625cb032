//! Address handles: ways to peers, for datagrams.

use super::address::{MacAddress, as_number, multicast_mac, source_address, tag_of, unicast};
use super::lifecycle::{By, Making};
use super::numbers::within;
use super::objects::{Object, Objects, Table};
use super::protection_domain::{Kind, Share};
use super::records::AddressHandleRecord;
use super::session::Session;
use super::{Datagram, Endpoint, Gid, ProtectionDomain, RdmaError};
use ringside_spec::rdma::commands::{CreateAddressHandle, DestroyAddressHandle};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::verbs::Route;
use std::net::IpAddr;

/// The destination of datagrams, and their route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// IP address: a peer's or a multicast group's.
    pub address: IpAddr,
    /// MAC address of the peer, or of the next hop to it.
    pub mac: MacAddress,
    /// Address to send from; the device's first one of that family if there is none.
    pub local_address: Option<IpAddr>,
    /// VLAN tag: priority in bits 13 to 15, number in bits 0 to 11, 0..=4094.
    pub vlan_tag: Option<u16>,
    /// Hop limit, 1..=255.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label of a datagram over IPv6, 20 bits. The UDP source port is that of the queue pair
    /// (0xC000); it is not known if a card makes another one from the label.
    pub flow_label: u32,
    /// Service level, 0..=7: replaces the priority of the VLAN tag. It has no effect without a
    /// VLAN.
    pub service_level: Option<u8>,
}

impl Destination {
    /// A peer's address, reached through `mac`: hop limit 64, the rest 0.
    #[must_use]
    pub const fn new(address: IpAddr, mac: MacAddress) -> Self {
        Self {
            address,
            mac,
            local_address: None,
            vlan_tag: None,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            service_level: None,
        }
    }

    /// The same, sent from an entry of the GID table: its address, and its VLAN unless there is a
    /// tag already.
    #[must_use]
    pub const fn sent_from(self, gid: &Gid) -> Self {
        Self {
            local_address: Some(gid.address.address),
            vlan_tag: match self.vlan_tag {
                Some(tag) => Some(tag),
                None => gid.address.vlan,
            },
            ..self
        }
    }

    /// The same with a service level, 0..=7: the priority in the VLAN tag. It has no effect without
    /// a VLAN. The address handle refuses a higher level.
    #[must_use]
    pub const fn service_level(self, level: u8) -> Self {
        Self {
            service_level: Some(level),
            ..self
        }
    }

    /// A multicast group; nothing if the address is none's. Hop limit 1.
    #[must_use]
    pub fn group(address: IpAddr) -> Option<Self> {
        let mac = multicast_mac(address)?;
        Some(Self {
            hop_limit: 1,
            ..Self::new(address, mac)
        })
    }

    /// The address of a datagram's sender; `None` if the device did not report its source MAC
    /// address. `route` holds the 40 bytes before the payload.
    #[must_use]
    pub fn answer(datagram: &Datagram, route: &Route) -> Option<Self> {
        let to_group = multicast_mac(route.destination).is_some();
        Some(Self {
            local_address: (!to_group).then_some(route.destination),
            vlan_tag: datagram.vlan_tag,
            traffic_class: route.traffic_class,
            flow_label: route.flow_label,
            ..Self::new(route.source, datagram.source_mac?)
        })
    }
}

impl From<&Endpoint> for Destination {
    fn from(peer: &Endpoint) -> Self {
        Self::new(peer.address, peer.mac)
    }
}

/// A way to a peer or a group. Dropping it takes it out of the device: datagrams that are posted
/// through it and not sent yet then fail their queue pair.
#[derive(Debug)]
pub struct AddressHandle {
    domain: ProtectionDomain,
    _share: Share,
    number: u32,
    destination: Destination,
}

impl ProtectionDomain {
    /// Makes an address handle, for queue pairs of this domain.
    ///
    /// Errors: [`RdmaError::AddressFamily`], [`RdmaError::Capacity`], [`RdmaError::OutOfRange`],
    /// [`RdmaError::NotUnicast`], [`RdmaError::InvalidAddressHandle`] and others; nothing is left
    /// over.
    pub fn address_handle(&self, destination: &Destination) -> Result<AddressHandle, RdmaError> {
        within("the flow label", destination.flow_label, 0, (1 << 20) - 1)?;
        within("the hop limit", destination.hop_limit.into(), 1, 255)?;
        let vlan_tag = tag_of(destination.vlan_tag, destination.service_level)?;
        let to_group = multicast_mac(destination.address).is_some();
        if !to_group {
            unicast(destination.address)?;
        }
        let facts = &self.engine().facts;
        let source = match destination.local_address {
            Some(address) => source_address(address)?,
            None => self.source_for(destination.address)?,
        };
        if source.is_ipv4() != destination.address.is_ipv4() {
            return Err(RdmaError::AddressFamily {
                local: source,
                peer: destination.address,
            });
        }
        let command = CreateAddressHandle {
            source_mac: facts.mac,
            vlan_tag: vlan_tag.unwrap_or(0),
            traffic_class: destination.traffic_class,
            protection_domain: self.number(),
            flow_label: destination.flow_label,
            hop_limit: destination.hop_limit,
            ipv4: source.is_ipv4(),
            insert_vlan: vlan_tag.is_some(),
            // As Linux requests it: for itself, and for every group.
            loopback: to_group || source == destination.address,
            destination_ip: as_number(destination.address),
            source_ip: as_number(source),
            ..CreateAddressHandle::ZERO
        };
        let share = self.take_share(Kind::AddressHandles, 1)?;
        let mut state = self.engine().open_state()?;
        let number = state.create_address_handle(command, destination)?;
        Ok(AddressHandle {
            domain: self.clone(),
            _share: share,
            number,
            destination: *destination,
        })
    }

    /// The device's first address of the family of `peer`.
    fn source_for(&self, peer: IpAddr) -> Result<IpAddr, RdmaError> {
        let addresses = self.engine().gids().addresses();
        let same = addresses
            .iter()
            .find(|address| address.is_ipv4() == peer.is_ipv4());
        if let Some(address) = same {
            return Ok(*address);
        }
        match addresses.first() {
            Some(local) => Err(RdmaError::AddressFamily {
                local: *local,
                peer,
            }),
            None => Err(RdmaError::Unavailable {
                reason: "the device has no IP address".to_owned(),
            }),
        }
    }
}

impl AddressHandle {
    /// Its number, 17 bits.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its destination.
    #[must_use]
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Its protection domain.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.domain
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        if self.domain.engine().is_elsewhere() {
            return;
        }
        let mut state = self.domain.engine().state();
        let result = state.destroy_with_memory::<AddressHandleRecord>(self.number, By::Owner);
        if let Err(error) = result {
            tracing::error!(%error, number = self.number, "address handle dropped");
        }
    }
}

impl Session<'_> {
    fn create_address_handle(
        &mut self,
        command: CreateAddressHandle,
        destination: &Destination,
    ) -> Result<u32, RdmaError> {
        let mut making = Making::<AddressHandleRecord>::begin(self)?;
        let number = making.number();
        let command = CreateAddressHandle {
            ah_number: number,
            arp_index: making.take_address(destination.mac)?,
            ..command
        };
        let completed = making.finish(command, AddressHandleRecord { command })?;
        if completed.return_value == 0 {
            return Ok(number);
        }
        self.destroy_with_memory::<AddressHandleRecord>(number, By::Owner)?;
        Err(RdmaError::InvalidAddressHandle {
            destination: destination.address,
            value: completed.return_value,
        })
    }
}

impl Object for AddressHandleRecord {
    const NAME: &'static str = "address handle";
    const CONTEXT: ObjectType = ObjectType::AddressVector;
    type Destroy = DestroyAddressHandle;

    fn table(objects: &mut Objects) -> &mut Table<Self> {
        &mut objects.address_handles
    }

    fn destruction(&self, _number: u32) -> DestroyAddressHandle {
        let made = self.command;
        DestroyAddressHandle {
            source_mac: made.source_mac,
            vlan_tag: made.vlan_tag,
            traffic_class: made.traffic_class,
            protection_domain: made.protection_domain,
            flow_label: made.flow_label,
            hop_limit: made.hop_limit,
            arp_index: made.arp_index,
            ah_number: made.ah_number,
            ipv4: made.ipv4,
            insert_vlan: made.insert_vlan,
            loopback: made.loopback,
            destination_ip: made.destination_ip,
            source_ip: made.source_ip,
        }
    }
}
