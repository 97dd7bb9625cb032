//! The stack of a port: interfaces, neighbour table, addresses.

mod learning;
mod leasing;
mod membership;
mod reporting;
mod sieve;

use crate::announcements::Announcements;
use crate::device::Queues;
use crate::extensions::without_extensions;
use crate::filters::Filters;
use crate::groups::Groups;
use crate::link::{ADDRESSES, Change, Link};
use crate::neighbours::{Neighbours, Question};
use crate::route::{Routes, hop};
use crate::tcp::{Table, TcpError};
use crate::wire::{TAG_AT, TAGGED};
use crate::{LocalAddress, MacAddress, Neighbour, ResolveSettings, StackError};
use crate::{bootp, wire};
use learning::teach;
use leasing::Leasing;
use ringside_clock::Instant;
use ringside_config::{AddressFault, Config, is_of_a_host, nearest};
use ringside_lan::{MAX_BURST, Packet, ReceiveQueue, TransmitQueue};
use ringside_pmd::lan::Port;
use ringside_pmd::lan::port::MTU_MIN;
use ringside_pmd::rdma::address::{
    automatic_address, link_local, local_addresses, private_address,
};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Bits of a tag that name the VLAN.
const VLAN_BITS: u16 = 0xFFF;
/// Neighbours that a link remembers. Source: the feature `iface-neighbor-cache-count-64` of smoltcp
/// in the workspace's manifest.
const TAUGHT: usize = 64;
/// The shortest time between two warnings of claimed addresses. Source: RFC 5227, section 1.1,
/// `DEFEND_INTERVAL`.
const CLAIMS_PERIOD: Duration = Duration::from_secs(10);

/// The settings of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSettings {
    /// Addresses that it answers for.
    pub addresses: Vec<LocalAddress>,
    /// The address among them that ringside made, because none of IPv4 is configured. It is the
    /// only one of its network while a DHCP server's lease lasts: the lease's router then leads to
    /// the other addresses of 10.0.0.0/8.
    pub automatic: Option<LocalAddress>,
    /// Routers for other networks, one of each IP version at most.
    pub gateways: Vec<IpAddr>,
    /// Requests an IPv4 address from a DHCP server, on frames without a tag.
    pub dhcp: bool,
    /// Bytes of a frame behind its Ethernet header: the port's MTU, 68 or more.
    pub mtu: u16,
    /// The timing of queries for neighbours.
    pub resolve: ResolveSettings,
    /// Number of the stack's receive queue on a port of several: rules bring ARP, neighbour
    /// discovery, DHCP and ICMP to it. `None` on a port of one queue.
    pub queue: Option<u16>,
    /// Seeds the identifiers of packets and of DHCP, and the first sequence numbers of TCP: a
    /// number that a peer cannot guess.
    pub seed: u64,
}

impl StackSettings {
    /// Addresses and gateways of a configuration, and the addresses that RDMA has beside them.
    #[must_use]
    pub fn of(config: &Config, mac: MacAddress, mtu: u16) -> Self {
        Self {
            addresses: local_addresses(&config.network, mac),
            automatic: automatic_address(&config.network, mac),
            gateways: config.network.gateways.clone(),
            dhcp: config.network.dhcp,
            mtu,
            resolve: ResolveSettings::default(),
            queue: None,
            seed: RandomState::new().hash_one(std::process::id()),
        }
    }
}

/// The counts of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StackCounters {
    /// Frames that arrived.
    pub received: u64,
    /// Frames that the device received with an error. They are dropped, and not among those that
    /// arrived.
    pub damaged: u64,
    /// Frames of VLANs without an address.
    pub no_link: u64,
    /// IP packets that no station can have sent: their source address is one of the port's own, a
    /// loopback, a broadcast or a multicast address. They are dropped.
    pub martians: u64,
    /// Requests for neighbours that were sent.
    pub questions: u64,
    /// Announcements of own addresses that were sent.
    pub announcements: u64,
    /// Frames that were not sent: no buffer, or a full ring.
    pub unsent: u64,
}

/// IP on one receive and one transmit queue. It does something only inside [`Stack::poll`] and
/// [`Stack::resolve`].
pub struct Stack {
    pub(crate) mac: MacAddress,
    mtu: u16,
    pub(crate) queues: Queues,
    pub(crate) links: Vec<Link>,
    pub(crate) tcp: Table,
    pub(crate) neighbours: Neighbours,
    pub(crate) filters: Filters,
    pub(crate) addresses: Vec<LocalAddress>,
    /// the addresses with the networks that they reach: see [`Stack::apply`]
    pub(crate) networks: Vec<LocalAddress>,
    pub(crate) gateways: Vec<IpAddr>,
    /// both and the lease, for other threads
    pub(crate) routes: Arc<Routes>,
    automatic: Option<LocalAddress>,
    leasing: Leasing,
    announcements: Announcements,
    /// the groups of RDMA and of the own addresses
    groups: Groups,
    claims: Claims,
    seed: u64,
    counters: StackCounters,
}

/// Warnings of stations that claim an address of ours.
#[derive(Debug, Default)]
struct Claims {
    last: Option<Instant>,
}

impl Claims {
    /// Logs one claim in ten seconds: a peer must not fill the log.
    fn warn(&mut self, vlan: Option<u16>, said: &wire::Said, now: Instant) {
        if self
            .last
            .is_some_and(|last| now.since(last) < CLAIMS_PERIOD)
        {
            return;
        }
        self.last = Some(now);
        let [a, b, c, d, e, f] = said.mac;
        let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        tracing::warn!(
            address = %said.address, ?vlan, mac,
            "another station has an address of this port: give one of them another address"
        );
    }
}

impl Stack {
    /// A stack on two queues of `port`, which must be running; sets the filters that its addresses
    /// need.
    ///
    /// Control path. Errors: [`StackError`]; the filters are removed again.
    pub fn new(
        port: Port,
        (receive, transmit): (ReceiveQueue, TransmitQueue),
        settings: &StackSettings,
        now: Instant,
    ) -> Result<Self, StackError> {
        // smoltcp counts with what an MTU leaves behind the headers of IPv4 and UDP.
        if settings.mtu < MTU_MIN {
            return Err(StackError::Mtu {
                given: settings.mtu,
            });
        }
        let mut stack = Self {
            mac: port.mac(),
            mtu: settings.mtu,
            queues: Queues::new(receive, transmit, settings.mtu),
            links: Vec::new(),
            tcp: Table::new(settings.seed),
            neighbours: Neighbours::new(settings.resolve),
            filters: Filters::new(port, settings.queue)?,
            addresses: Vec::new(),
            networks: Vec::new(),
            gateways: Vec::new(),
            routes: Arc::default(),
            automatic: settings.automatic,
            leasing: Leasing::default(),
            announcements: Announcements::default(),
            groups: Groups::new(settings.seed),
            claims: Claims::default(),
            seed: settings.seed,
            counters: StackCounters::default(),
        };
        stack.add_all(&settings.addresses, now)?;
        for gateway in &settings.gateways {
            stack.set_gateway(*gateway)?;
        }
        if settings.dhcp {
            stack.filters.add_dhcp()?;
            stack.link(None, now).start_dhcp();
        }
        Ok(stack)
    }

    /// Adds the addresses of the settings. Those that ringside made itself come last: the stack
    /// does without them where the others leave no room.
    fn add_all(&mut self, all: &[LocalAddress], now: Instant) -> Result<(), StackError> {
        let made = [
            IpAddr::V6(link_local(self.mac)),
            IpAddr::V4(private_address(self.mac)),
        ];
        let is_made = |one: &&LocalAddress| made.contains(&one.address);
        for address in all.iter().filter(|one| !is_made(one)) {
            self.add_address(*address, now)?;
        }
        for address in all.iter().filter(is_made) {
            match self.add_address(*address, now) {
                Err(error @ StackError::TooMany { .. }) => {
                    tracing::warn!(%error, "an automatic address of the port is not answered for");
                }
                added => added?,
            }
        }
        Ok(())
    }

    /// The port that it runs on.
    #[must_use]
    pub const fn port(&self) -> &Port {
        self.filters.port()
    }

    /// The number of its receive queue, counted from the port's first.
    pub(crate) fn queue(&self) -> u16 {
        self.filters.queue()
    }

    /// The port's MTU, bytes.
    #[must_use]
    pub const fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Its addresses, with the one that a DHCP server granted.
    #[must_use]
    pub fn addresses(&self) -> &[LocalAddress] {
        &self.addresses
    }

    /// Its routers. Of two of one IP version the first, a DHCP server's, is used.
    #[must_use]
    pub fn gateways(&self) -> &[IpAddr] {
        &self.gateways
    }

    /// The neighbour table.
    #[must_use]
    pub fn neighbours(&self, now: Instant) -> Vec<Neighbour> {
        self.neighbours.list(now)
    }

    /// Its counts.
    #[must_use]
    pub fn counters(&self) -> StackCounters {
        StackCounters {
            unsent: self.queues.unsent,
            damaged: self.queues.damaged,
            ..self.counters
        }
    }

    /// Answers for one more address from now on, and announces it twice in [`Stack::poll`]:
    /// stations that knew it by another MAC address take the present one.
    ///
    /// An address is one of a VLAN: each of several VLANs may have the same one. Control path.
    pub fn add_address(&mut self, address: LocalAddress, now: Instant) -> Result<(), StackError> {
        // smoltcp panics at addresses that no station can have.
        address.check().map_err(|fault| match fault {
            AddressFault::NotUnicast => StackError::NotUnicast(address.address),
            fault => StackError::Address { address, fault },
        })?;
        if self.place(address.address, address.vlan).is_some() {
            return Err(StackError::Duplicate(address));
        }
        let of_vlan = self.addresses.iter().filter(|own| own.vlan == address.vlan);
        if of_vlan.count() >= ADDRESSES {
            return Err(StackError::TooMany {
                address,
                limit: ADDRESSES,
            });
        }
        self.filters.add_address(address.address)?;
        self.addresses.push(address);
        self.announcements.add(address, now);
        self.link(address.vlan, now);
        self.apply();
        Ok(())
    }

    /// Announces every address again in [`Stack::poll`]: for a link that came up, whose other
    /// stations may have missed the announcements. It may be that of another network: a stack with
    /// DHCP searches for servers at once, and announces the address of a lease once the server has
    /// granted it again. Control path.
    pub fn announce_again(&mut self, now: Instant) {
        let unverified = self.verify_lease();
        for address in &self.addresses {
            self.announcements.remove(address.address, address.vlan);
            if Some(*address) != unverified {
                self.announcements.add(*address, now);
            }
        }
        self.groups.report_again(now);
    }

    fn place(&self, address: IpAddr, vlan: Option<u16>) -> Option<usize> {
        let is_same = |own: &LocalAddress| own.address == address && own.vlan == vlan;
        self.addresses.iter().position(is_same)
    }

    /// Answers for an address of a VLAN no more. Control path.
    pub fn remove_address(&mut self, address: IpAddr, vlan: Option<u16>) -> Result<(), StackError> {
        let place = self.place(address, vlan);
        let place = place.ok_or(StackError::Unknown { address, vlan })?;
        let removed = self.addresses.remove(place);
        self.filters.remove_address(address);
        self.announcements.remove(address, vlan);
        self.forget_lease_of(&removed);
        self.apply();
        Ok(())
    }

    /// Sets the router for all networks that no address names; it takes the place of an earlier
    /// one.
    ///
    /// A DHCP server's router goes before it while the lease lasts. Set during a lease, it replaces
    /// the lease's router until the server grants another lease.
    pub fn set_gateway(&mut self, gateway: IpAddr) -> Result<(), StackError> {
        self.check_gateway(gateway)?;
        if gateway.is_ipv4() {
            self.drop_leased_gateway();
        }
        self.gateways
            .retain(|other| other.is_ipv4() != gateway.is_ipv4());
        self.gateways.push(gateway);
        self.apply();
        Ok(())
    }

    fn check_gateway(&self, gateway: IpAddr) -> Result<(), StackError> {
        if self.addresses.iter().any(|own| own.address == gateway) {
            return Err(StackError::OwnGateway(gateway));
        }
        let near = nearest(&self.networks, gateway);
        if !is_of_a_host(gateway) || near.is_some_and(|own| own.is_end(gateway)) {
            return Err(StackError::GatewayOfNone(gateway));
        }
        match near {
            Some(_) => Ok(()),
            None => Err(StackError::FarGateway(gateway)),
        }
    }

    /// Tells every link its addresses and routers.
    fn apply(&mut self) {
        let leased = self.leased();
        let automatic = self.automatic.filter(|_| leased.is_some());
        let of_one = |own: &LocalAddress| match Some(*own) == automatic {
            true => LocalAddress::new(own.address, u32::BITS as u8),
            false => *own,
        };
        self.networks = self.addresses.iter().map(of_one).collect();
        self.routes.set(&self.networks, &self.gateways, leased);
        self.follow_own_groups();
        let vlans = self.links.iter().map(|link| link.vlan);
        let hidden: Vec<_> = vlans.map(|vlan| self.hidden_address(vlan)).collect();
        let (networks, gateways) = (&self.networks, &self.gateways);
        for (link, hidden) in self.links.iter_mut().zip(hidden) {
            let vlan = link.vlan;
            let hidden = hidden.map(|address| LocalAddress::new(address.into(), 64));
            let own = networks.iter().filter(move |own| own.vlan == vlan);
            let own = own.copied().chain(hidden);
            match link.set_addresses(own.clone()) {
                Change::None => {}
                Change::Made => {
                    let known = self.neighbours.known(vlan, TAUGHT);
                    teach(link, &known, self.mac, own.map(|own| own.address));
                }
                Change::TooMany => {
                    tracing::error!(?vlan, "an interface has more addresses than it takes");
                }
            }
            let is_near = |gateway: &&IpAddr| {
                hop(networks, &[], **gateway).is_some_and(|hop| hop.own.vlan == vlan)
            };
            // One of each IP version: the first that is on this link.
            let mut near = gateways.iter().filter(is_near);
            let four = near.clone().find(|gateway| gateway.is_ipv4());
            let six = near.find(|gateway| gateway.is_ipv6());
            link.set_gateways(four.into_iter().chain(six).copied());
        }
    }

    /// The link of a VLAN, made if there is none.
    fn link(&mut self, vlan: Option<u16>, now: Instant) -> &mut Link {
        let place = self.links.iter().position(|link| link.vlan == vlan);
        let place = place.unwrap_or_else(|| {
            let seed = self.seed.wrapping_add(vlan.map_or(0, u64::from));
            let moment = moment(now);
            let link = Link::new(vlan, self.mac, seed, &mut self.queues, moment);
            self.links.push(link);
            self.links.len() - 1
        });
        &mut self.links[place]
    }

    /// Processes arrived frames, at most a burst, and sends due ones; returns the number of arrived
    /// frames.
    pub fn poll(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while count < MAX_BURST
            && self.queues.has_room()
            && let Some(packet) = self.queues.next()
        {
            count += 1;
            self.process(packet, now);
        }
        self.counters.received += count as u64;
        for question in self.neighbours.due(now) {
            self.ask(&question);
        }
        while let Some(own) = self.announcements.due(now) {
            self.announce(own);
        }
        self.report_groups(now);
        self.pump_tcp(now);
        for place in 0..self.links.len() {
            let change = self
                .links
                .get_mut(place)
                .and_then(|link| link.maintain(&mut self.queues, moment(now)));
            if let Some(change) = change {
                self.apply_lease(change, now);
            }
        }
        self.retry_lease(now);
        self.end_unverified_lease(now);
        count
    }

    fn process(&mut self, mut packet: Packet, now: Instant) {
        let Some(vlan) = take_tag(&mut packet) else {
            return;
        };
        let Some(place) = self.links.iter().position(|link| link.vlan == vlan) else {
            self.counters.no_link += 1;
            return;
        };
        // A long frame is in several buffers; those that are read here are mostly in one.
        if packet.segment_count() == 1
            && let Some(plain) = without_extensions(packet.bytes())
            && let Some(plain) = self.queues.transmit.pool().packet_with(&plain)
        {
            packet = plain;
        }
        let copy = (packet.segment_count() > 1).then(|| packet.to_vec());
        let frame = copy.as_deref().unwrap_or_else(|| packet.bytes());
        if !self.admits(place, frame, now) {
            return;
        }
        // smoltcp answers neither stations of other networks nor those without an address.
        let link = self.links.get(place);
        let is_own = |address| link.is_some_and(|link| link.has(address));
        let answer = wire::answer(frame, self.mac, is_own);
        if let Some(frame) = &answer {
            self.queues.send(frame, vlan);
        }
        let request = self.tcp.request(frame);
        if let Some(request) = &request {
            self.pump_tcp(now);
            let parts = (&mut self.links[..], &mut self.filters);
            self.tcp.prepare(request, vlan, parts);
        }
        let lease = bootp::understandable(frame);
        if let Some(lease) = lease.and_then(|frame| self.queues.transmit.pool().packet_with(&frame))
        {
            packet = lease;
        }
        if let Some(link) = self.links.get_mut(place) {
            link.process(packet, answer.is_some(), &mut self.queues, moment(now));
        }
        if request.is_some() {
            // A socket that heard no request goes.
            self.pump_tcp(now);
        }
    }

    pub(crate) fn pump_tcp(&mut self, now: Instant) {
        let parts = (&mut self.links[..], &mut self.filters);
        self.tcp.pump(self.queues.receive.state(), parts, now);
    }

    fn announce(&mut self, own: LocalAddress) {
        if let Some(frame) = wire::announcement(self.mac, own.address) {
            self.queues.send(&frame, own.vlan);
            self.counters.announcements += 1;
        }
    }

    fn ask(&mut self, question: &Question) {
        let Question {
            vlan,
            own,
            target,
            to,
        } = *question;
        if let Some(frame) = wire::question(self.mac, own, target, to) {
            self.queues.send(&frame, vlan);
            self.counters.questions += 1;
        }
    }

    /// Ends the stack: ends its TCP connections, removes its filters, and gives its queues back.
    #[must_use]
    pub fn into_queues(mut self) -> (ReceiveQueue, TransmitQueue) {
        self.tcp.clear(&TcpError::Ended, &mut self.links, None);
        self.filters.clear();
        (self.queues.receive, self.queues.transmit)
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack")
            .field("addresses", &self.addresses)
            .field("gateways", &self.gateways)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

fn moment(now: Instant) -> smoltcp::time::Instant {
    // Microseconds of 292 thousand years fit.
    smoltcp::time::Instant::from_micros(i64::try_from(now.0 / 1000).unwrap_or(i64::MAX))
}

/// The VLAN of a frame, whose tag is removed; `None` if the frame is shorter than its headers.
///
/// A tag of VLAN 0 carries a priority only: the frame counts as one without a tag.
#[expect(clippy::option_option, reason = "no frame, and a frame without VLAN")]
fn take_tag(packet: &mut Packet) -> Option<Option<u16>> {
    let some = |tag: u16| Some(tag & VLAN_BITS).filter(|vlan| *vlan != 0);
    if let Some(tag) = packet.vlan() {
        return Some(some(tag));
    }
    let frame = packet.bytes();
    if frame.get(TAG_AT..TAG_AT + 2)? != TAGGED {
        return Some(None);
    }
    let tag = u16::from_be_bytes(frame.get(14..16)?.try_into().ok()?);
    // The addresses move up to the ethertype behind the tag.
    packet.bytes_mut()?.copy_within(..12, 4);
    packet.remove_front(4)?;
    Some(some(tag))
}
