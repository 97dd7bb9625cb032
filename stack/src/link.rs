//! One IP interface: that of frames without a tag, or that of a VLAN.

use crate::device::{Queues, Received, Sending};
use crate::{LocalAddress, MacAddress};
use ringside_lan::Packet;
use smoltcp::iface::{
    Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet,
};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{dhcpv4, tcp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress, IpCidr, IpEndpoint, Ipv4Packet,
};
use std::net::{IpAddr, Ipv4Addr};

/// Addresses that an interface takes.
/// Source: the feature `iface-max-addr-count-8` of smoltcp in the workspace's manifest.
pub(crate) const ADDRESSES: usize = 8;
/// The time in which all fragments of a packet arrive, as Linux has it: it waits for eight packets
/// at most (the feature `reassembly-buffer-count-8` of smoltcp in the workspace's manifest).
const REASSEMBLY: Duration = Duration::from_secs(30);
/// Packets of each socket that are sent in one [`Link::maintain`], at most.
const PACKETS: usize = 8;
/// Fragments of an answer, at most: of 16 KiB (the feature `fragmentation-buffer-size-16384` of
/// smoltcp in the workspace's manifest), each with the 48 bytes that the least MTU leaves.
const FRAGMENTS: usize = 342;
/// Bytes of an IPv4 header without options.
const IPV4_BYTES: usize = 20;

/// See the module.
pub(crate) struct Link {
    pub(crate) vlan: Option<u16>,
    interface: Interface,
    sockets: SocketSet<'static>,
    dhcp: Option<SocketHandle>,
    /// the time of the last call that said it
    now: Instant,
}

/// An address that a DHCP server granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) address: LocalAddress,
    pub(crate) gateway: Option<Ipv4Addr>,
}

/// A change that DHCP brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DhcpChange {
    Granted(Lease),
    Lost,
}

/// The result of [`Link::set_addresses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// They are the same.
    None,
    /// Changed.
    Made,
    /// Refused: they are more than an interface takes.
    TooMany,
}

impl Link {
    pub(crate) fn new(
        vlan: Option<u16>,
        mac: MacAddress,
        seed: u64,
        queues: &mut Queues,
        now: Instant,
    ) -> Self {
        let mut config = Config::new(EthernetAddress(mac).into());
        config.random_seed = seed;
        let mut device = LinkDevice {
            queues,
            packet: None,
            is_answered: false,
            vlan,
        };
        let mut interface = Interface::new(config, &mut device, now);
        interface.set_reassembly_timeout(REASSEMBLY);
        Self {
            vlan,
            interface,
            sockets: SocketSet::new(Vec::new()),
            dhcp: None,
            now,
        }
    }

    /// Starts to request an address from DHCP servers.
    pub(crate) fn start_dhcp(&mut self) {
        self.dhcp = Some(self.sockets.add(dhcpv4::Socket::new()));
    }

    /// Searches for DHCP servers anew, if it does so at all.
    pub(crate) fn search_again(&mut self) {
        if let Some(handle) = self.dhcp {
            self.sockets.get_mut::<dhcpv4::Socket<'_>>(handle).reset();
        }
    }

    /// True if it requests an address from DHCP servers.
    pub(crate) const fn has_dhcp(&self) -> bool {
        self.dhcp.is_some()
    }

    /// Sets its addresses. A change makes smoltcp forget its neighbours: [teach](Self::teach) them.
    pub(crate) fn set_addresses(
        &mut self,
        addresses: impl Iterator<Item = LocalAddress>,
    ) -> Change {
        let cidr = |one: LocalAddress| IpCidr::new(one.address.into(), one.prefix_bits);
        let wanted: Vec<IpCidr> = addresses.map(cidr).collect();
        if wanted == self.interface.ip_addrs() {
            return Change::None;
        }
        if wanted.len() > ADDRESSES {
            return Change::TooMany;
        }
        self.interface.update_ip_addrs(|list| {
            list.clear();
            for one in wanted {
                // Counted above.
                let _ = list.push(one);
            }
        });
        Change::Made
    }

    /// Processes the answer of a neighbour that is known already.
    pub(crate) fn teach(&mut self, answer: &[u8]) {
        let mut device = Answers(Some(answer));
        let sockets = &mut self.sockets;
        self.interface
            .poll_ingress_single(self.now, &mut device, sockets);
    }

    /// Sets the routers for other networks.
    pub(crate) fn set_gateways(&mut self, gateways: impl Iterator<Item = IpAddr>) {
        let routes = self.interface.routes_mut();
        routes.remove_default_ipv4_route();
        routes.remove_default_ipv6_route();
        for gateway in gateways {
            // There is room: two routes were just removed.
            let _ = match gateway {
                IpAddr::V4(gateway) => routes.add_default_ipv4_route(gateway),
                IpAddr::V6(gateway) => routes.add_default_ipv6_route(gateway),
            };
        }
    }

    /// Processes one frame, and sends the answer unless the stack itself has answered.
    pub(crate) fn process(
        &mut self,
        packet: Packet,
        is_answered: bool,
        queues: &mut Queues,
        now: Instant,
    ) {
        self.now = now;
        let has_fragments = is_fragment(packet.bytes());
        let mut device = LinkDevice {
            queues,
            packet: Some(packet),
            is_answered,
            vlan: self.vlan,
        };
        // One frame: bounded work, even if more arrive meanwhile.
        let processed = self
            .interface
            .poll_ingress_single(now, &mut device, &mut self.sockets);
        if processed == PollIngressSingleResult::None {
            device.queues.unsent += 1;
        }
        if has_fragments {
            self.send_fragments(&mut device, now);
        }
    }

    /// Sends the other fragments of an answer: smoltcp keeps those of one answer only, and sends
    /// one a call. The sockets have their turn in [`Link::maintain`].
    fn send_fragments(&mut self, device: &mut LinkDevice<'_>, now: Instant) {
        let mut none = SocketSet::new(Vec::new());
        for _ in 0..FRAGMENTS {
            let before = device.queues.sent;
            self.interface.poll_egress(now, device, &mut none);
            if device.queues.sent == before {
                break;
            }
        }
    }

    /// Sends due packets; returns the change by DHCP.
    pub(crate) fn maintain(&mut self, queues: &mut Queues, now: Instant) -> Option<DhcpChange> {
        self.now = now;
        let mut device = LinkDevice {
            queues,
            packet: None,
            is_answered: false,
            vlan: self.vlan,
        };
        self.interface.poll_maintenance(now);
        for _ in 0..PACKETS {
            let (interface, before) = (&mut self.interface, device.queues.sent);
            let polled = interface.poll_egress(now, &mut device, &mut self.sockets);
            // A fragment changes no socket.
            if polled == PollResult::None && device.queues.sent == before {
                break;
            }
        }
        let socket = self.sockets.get_mut::<dhcpv4::Socket<'_>>(self.dhcp?);
        match socket.poll()? {
            dhcpv4::Event::Deconfigured => Some(DhcpChange::Lost),
            dhcpv4::Event::Configured(granted) => Some(DhcpChange::Granted(Lease {
                address: LocalAddress::new(
                    IpAddr::V4(granted.address.address()),
                    granted.address.prefix_len(),
                ),
                gateway: granted.router,
            })),
        }
    }

    /// Adds a socket of TCP.
    pub(crate) fn add_tcp(&mut self, socket: tcp::Socket<'static>) -> SocketHandle {
        self.sockets.add(socket)
    }

    /// Adds a socket that asks `peer` for a connection; `None` if no station has that address.
    pub(crate) fn connect_tcp(
        &mut self,
        mut socket: tcp::Socket<'static>,
        local: IpEndpoint,
        peer: IpEndpoint,
    ) -> Option<SocketHandle> {
        let asked = socket.connect(self.interface.context(), peer, local);
        asked.is_ok().then(|| self.sockets.add(socket))
    }

    /// A socket of TCP that was added and not removed.
    pub(crate) fn tcp(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Removes a socket of TCP.
    pub(crate) fn remove_tcp(&mut self, handle: SocketHandle) {
        self.sockets.remove(handle);
    }

    /// True if an address is one of its own.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.interface.has_ip_addr(IpAddress::from(address))
    }
}

/// True for a frame of one of several fragments of an IPv4 packet, which may be the last one: the
/// answer to that packet is in fragments as a rule.
fn is_fragment(frame: &[u8]) -> bool {
    let ethernet = EthernetFrame::new_checked(frame).ok();
    let ethernet = ethernet.filter(|frame| frame.ethertype() == EthernetProtocol::Ipv4);
    ethernet.is_some_and(|frame| {
        let packet = Ipv4Packet::new_unchecked(frame.payload());
        frame.payload().len() >= IPV4_BYTES && (packet.more_frags() || packet.frag_offset() != 0)
    })
}

/// The queues of one link: at most one received frame, and the link's tag on each frame that it
/// sends.
struct LinkDevice<'a> {
    queues: &'a mut Queues,
    packet: Option<Packet>,
    /// smoltcp learns from the packet, and its answer is dropped
    is_answered: bool,
    vlan: Option<u16>,
}

impl Device for LinkDevice<'_> {
    type RxToken<'a>
        = Received
    where
        Self: 'a;
    type TxToken<'a>
        = Sending<'a>
    where
        Self: 'a;

    fn receive(&mut self, now: Instant) -> Option<(Received, Sending<'_>)> {
        let packet = self.packet.take()?;
        let sending = match self.is_answered {
            true => self.queues.muted(),
            false => self.queues.sending(self.vlan)?.of_smoltcp(now),
        };
        Some((Received(packet), sending))
    }

    fn transmit(&mut self, now: Instant) -> Option<Sending<'_>> {
        Some(self.queues.sending(self.vlan)?.of_smoltcp(now))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.queues.capabilities()
    }
}

/// One frame that arrives, and none that leaves.
struct Answers<'f>(Option<&'f [u8]>);

/// See [`Answers`].
struct Answer<'f>(&'f [u8]);

/// Takes a frame and drops it.
struct Dropped;

impl RxToken for Answer<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, process: F) -> R {
        process(self.0)
    }
}

impl TxToken for Dropped {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, fill: F) -> R {
        fill(&mut vec![0; bytes])
    }
}

impl<'f> Device for Answers<'f> {
    type RxToken<'a>
        = Answer<'f>
    where
        Self: 'a;
    type TxToken<'a>
        = Dropped
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Answer<'f>, Dropped)> {
        Some((Answer(self.0.take()?), Dropped))
    }

    fn transmit(&mut self, _: Instant) -> Option<Dropped> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities
    }
}
