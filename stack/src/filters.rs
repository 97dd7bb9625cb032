//! Frames that the port lets in for the stack.

use crate::MacAddress;
use ringside_pmd::lan::port::{FlowKind, FlowMatch, FlowRule, FlowTarget, RuleKind, RuleNumber};
use ringside_pmd::lan::{Port, PortError};
use ringside_pmd::rdma::address::multicast_mac;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// All systems of a link. Source: RFC 1112, section 4.
pub(crate) const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// All nodes of a link. Source: RFC 4291, section 2.7.1.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);

/// The group in which an address is solicited. Source: RFC 4291, section 2.7.1.
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let group = 0xFF02_0000_0000_0000_0000_0001_FF00_0000;
    Ipv6Addr::from_bits(group | (address.to_bits() & 0xFF_FFFF))
}

/// The filters that the stack has set, with their users.
#[derive(Debug)]
pub(crate) struct Filters {
    port: Port,
    groups: BTreeMap<MacAddress, usize>,
    /// queue of the stack on a port of several
    queue: Option<u16>,
    rules: Vec<Steered>,
    /// the link-local address of the port, while VLANs have it that have none of their own
    hidden: Option<Ipv6Addr>,
}

/// A rule that brings packets to the stack's queue, and its users.
#[derive(Debug)]
struct Steered {
    packets: FlowMatch,
    number: RuleNumber,
    users: usize,
}

/// Type of an ARP packet: RFC 826.
const ARP: u16 = 0x0806;
/// Protocols of IP: RFC 792, RFC 4443.
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
/// RFC 2236.
const IGMP: u8 = 2;
/// Port of DHCP clients: RFC 2131.
const DHCP_CLIENT: u16 = 68;

/// Packets to an address that the stack receives: ICMP, and fragments, which may be of ICMP.
fn packets_to(address: IpAddr) -> [FlowMatch; 2] {
    let (other, fragment, protocol) = match address {
        IpAddr::V4(_) => (FlowKind::OtherV4, FlowKind::FragmentV4, ICMP),
        IpAddr::V6(_) => (FlowKind::OtherV6, FlowKind::FragmentV6, ICMP_V6),
    };
    let to = |kind| FlowMatch {
        destination: Some(address),
        ..FlowMatch::of(RuleKind::Flow(kind))
    };
    [
        FlowMatch {
            protocol: Some(protocol),
            ..to(other)
        },
        to(fragment),
    ]
}

/// TCP segments to a port number. The address is no part of it: all rules of a kind of packets name
/// the same fields, and an unspecified address has no value for it.
fn segments_to(address: SocketAddr) -> Vec<FlowMatch> {
    let to = |kind| FlowMatch {
        destination_port: Some(address.port()),
        ..FlowMatch::of(RuleKind::Flow(kind))
    };
    let (v4, v6) = (to(FlowKind::TcpV4), to(FlowKind::TcpV6));
    match address.ip() {
        ip if ip.is_unspecified() => vec![v4, v6],
        IpAddr::V4(_) => vec![v4],
        IpAddr::V6(_) => vec![v6],
    }
}

/// Messages of IGMP to a group.
fn queries_to(group: Ipv4Addr) -> FlowMatch {
    FlowMatch {
        protocol: Some(IGMP),
        destination: Some(group.into()),
        ..FlowMatch::of(RuleKind::Flow(FlowKind::OtherV4))
    }
}

/// The address, and the groups that its solicitations come to.
fn destinations(address: IpAddr) -> Vec<IpAddr> {
    match address {
        IpAddr::V4(_) => vec![address],
        IpAddr::V6(own) => vec![address, solicited_node(own).into(), ALL_NODES.into()],
    }
}

impl Filters {
    /// Filters of a port; with `queue`, ARP comes to that queue.
    pub(crate) fn new(port: Port, queue: Option<u16>) -> Result<Self, PortError> {
        let mut filters = Self {
            port,
            groups: BTreeMap::new(),
            queue,
            rules: Vec::new(),
            hidden: None,
        };
        filters.steer(FlowMatch {
            ether_type: Some(ARP),
            ..FlowMatch::of(RuleKind::Ethernet)
        })?;
        Ok(filters)
    }

    /// Brings answers of DHCP servers to the stack's queue.
    pub(crate) fn add_dhcp(&mut self) -> Result<(), PortError> {
        self.steer(FlowMatch {
            destination_port: Some(DHCP_CLIENT),
            ..FlowMatch::of(RuleKind::Flow(FlowKind::UdpV4))
        })
    }

    /// Opens the port for the queries of routers for a group of IPv4, and for all groups. The
    /// device lets frames to the group in for its members. Not for groups of IPv6: no rule matches
    /// packets with options of each hop, and all nodes are a group of each address.
    pub(crate) fn add_queries(&mut self, group: Ipv4Addr) -> Result<(), PortError> {
        self.steer_each([ALL_SYSTEMS, group].map(queries_to))?;
        let added = self.add_group(ALL_SYSTEMS.into());
        if added.is_err() {
            self.release_queries(group);
        }
        added
    }

    fn release_queries(&mut self, group: Ipv4Addr) {
        for group in [ALL_SYSTEMS, group] {
            self.release(&queries_to(group));
        }
    }

    /// Takes that back.
    pub(crate) fn remove_queries(&mut self, group: Ipv4Addr) {
        self.release_queries(group);
        self.remove_group(ALL_SYSTEMS.into());
    }

    /// Brings the TCP segments to a port number to the stack's queue: of the address's IP version,
    /// or of both if it is unspecified.
    pub(crate) fn add_tcp(&mut self, address: SocketAddr) -> Result<(), PortError> {
        self.steer_each(segments_to(address))
    }

    /// Takes that back.
    pub(crate) fn remove_tcp(&mut self, address: SocketAddr) {
        for packets in segments_to(address) {
            self.release(&packets);
        }
    }

    /// Brings packets to the stack's queue, on a port of several.
    fn steer(&mut self, packets: FlowMatch) -> Result<(), PortError> {
        let Some(queue) = self.queue else {
            return Ok(());
        };
        if let Some(rule) = self.rules.iter_mut().find(|rule| rule.packets == packets) {
            rule.users += 1;
            return Ok(());
        }
        let number = self.port.add_rule(&FlowRule {
            packets: packets.clone(),
            target: FlowTarget::Queue(queue),
            mark: None,
            count: false,
        })?;
        self.rules.push(Steered {
            packets,
            number,
            users: 1,
        });
        Ok(())
    }

    fn release(&mut self, packets: &FlowMatch) {
        let place = self.rules.iter().position(|rule| rule.packets == *packets);
        let Some(place) = place else {
            return;
        };
        let Some(rule) = self.rules.get_mut(place) else {
            return;
        };
        rule.users -= 1;
        if rule.users > 0 {
            return;
        }
        let rule = self.rules.remove(place);
        if let Err(error) = self.port.remove_rule(rule.number) {
            tracing::warn!(%error, ?packets, "packets go on coming to the stack's queue");
        }
    }

    fn steer_all(&mut self, address: IpAddr) -> Result<(), PortError> {
        self.steer_each(destinations(address).into_iter().flat_map(packets_to))
    }

    /// Brings packets of several kinds, or none.
    fn steer_each(&mut self, wanted: impl IntoIterator<Item = FlowMatch>) -> Result<(), PortError> {
        let mut done = Vec::new();
        for packets in wanted {
            if let Err(error) = self.steer(packets.clone()) {
                for packets in &done {
                    self.release(packets);
                }
                return Err(error);
            }
            done.push(packets);
        }
        Ok(())
    }

    pub(crate) const fn port(&self) -> &Port {
        &self.port
    }

    /// The stack's queue.
    pub(crate) fn queue(&self) -> u16 {
        self.queue.unwrap_or(0)
    }

    /// Opens the port for an address: solicitations in its groups. On a port of several queues,
    /// its ICMP comes to the stack's.
    pub(crate) fn add_address(&mut self, address: IpAddr) -> Result<(), PortError> {
        self.steer_all(address)?;
        let added = self.add_groups(address);
        if added.is_err() {
            self.release_all(address);
        }
        added
    }

    fn add_groups(&mut self, address: IpAddr) -> Result<(), PortError> {
        let IpAddr::V6(address) = address else {
            return Ok(());
        };
        self.add_group(ALL_NODES.into())?;
        let added = self.add_group(solicited_node(address).into());
        if added.is_err() {
            self.remove_group(ALL_NODES.into());
        }
        added
    }

    fn release_all(&mut self, address: IpAddr) {
        for packets in destinations(address).into_iter().flat_map(packets_to) {
            self.release(&packets);
        }
    }

    /// Takes that back.
    pub(crate) fn remove_address(&mut self, address: IpAddr) {
        self.release_all(address);
        if let IpAddr::V6(address) = address {
            self.remove_group(solicited_node(address).into());
            self.remove_group(ALL_NODES.into());
        }
    }

    /// Opens the port for this address, or for it no more if there is none: see `Stack`.
    pub(crate) fn hold_hidden(&mut self, hidden: Option<Ipv6Addr>) -> Result<(), PortError> {
        if self.hidden == hidden {
            return Ok(());
        }
        if let Some(former) = self.hidden.take() {
            self.remove_address(former.into());
        }
        if let Some(address) = hidden {
            self.add_address(address.into())?;
        }
        self.hidden = hidden;
        Ok(())
    }

    fn add_group(&mut self, group: IpAddr) -> Result<(), PortError> {
        let Some(mac) = multicast_mac(group) else {
            return Ok(());
        };
        if !self.groups.contains_key(&mac) {
            self.port.hold_group(mac)?;
        }
        *self.groups.entry(mac).or_default() += 1;
        Ok(())
    }

    fn remove_group(&mut self, group: IpAddr) {
        let Some(mac) = multicast_mac(group) else {
            return;
        };
        let Some(users) = self.groups.get_mut(&mac) else {
            return;
        };
        *users = users.saturating_sub(1);
        if *users > 0 {
            return;
        }
        self.groups.remove(&mac);
        if let Err(error) = self.port.release_group(mac) {
            tracing::warn!(%error, %group, "the port continues to receive a group");
        }
    }

    /// Removes all of them.
    pub(crate) fn clear(&mut self) {
        for rule in std::mem::take(&mut self.rules) {
            if let Err(error) = self.port.remove_rule(rule.number) {
                tracing::debug!(%error, "a rule of the stack goes with the port");
            }
        }
        let groups: Vec<_> = std::mem::take(&mut self.groups).into_keys().collect();
        for mac in groups {
            if let Err(error) = self.port.release_group(mac) {
                tracing::debug!(%error, "a filter of the stack goes with the port");
            }
        }
    }
}

impl Drop for Filters {
    /// Removes the filters of a stack that was dropped or did not start. In a child by fork they
    /// are the parent's.
    fn drop(&mut self) {
        if !self.port.is_elsewhere() {
            self.clear();
        }
    }
}
