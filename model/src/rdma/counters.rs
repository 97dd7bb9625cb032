//! Statistics that GATHER_STATS copies to memory.

use crate::frame::Frame;
use crate::packet::Network;
use ringside_spec::rdma::statistics::{BUFFER_WORDS, Counter};

/// The counters of the engine. Each field is the hardware counter that its comment names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// IP4RXOCTS
    pub(super) ipv4_received_bytes: u64,
    /// IP4RXPKTS
    pub(super) ipv4_received: u64,
    /// IP4TXOCTS
    pub(super) ipv4_sent_bytes: u64,
    /// IP4TXPKTS
    pub(super) ipv4_sent: u64,
    /// IP6RXOCTS
    pub(super) ipv6_received_bytes: u64,
    /// IP6RXPKTS
    pub(super) ipv6_received: u64,
    /// IP6TXOCTS
    pub(super) ipv6_sent_bytes: u64,
    /// IP6TXPKTS
    pub(super) ipv6_sent: u64,
    /// IP4RXDISCARD: for a queue pair that does not exist, or that refuses the packet
    pub(super) ipv4_discarded: u64,
    /// IP6RXDISCARD
    pub(super) ipv6_discarded: u64,
    /// RDMARXWRS
    pub(super) writes_received: u64,
    /// RDMARXRDS
    pub(super) reads_received: u64,
    /// RDMARXSNDS
    pub(super) sends_received: u64,
    /// RDMATXWRS
    pub(super) writes_sent: u64,
    /// RDMATXRDS
    pub(super) reads_sent: u64,
    /// RDMATXSNDS
    pub(super) sends_sent: u64,
    /// RDMAVBND
    pub(super) binds: u64,
    /// RDMAVINV
    pub(super) invalidates: u64,
    /// IP4RXMCOCTS
    pub(super) ipv4_group_received_bytes: u64,
    /// IP4RXMCPKTS
    pub(super) ipv4_group_received: u64,
    /// IP4TXMCOCTS
    pub(super) ipv4_group_sent_bytes: u64,
    /// IP4TXMCPKTS
    pub(super) ipv4_group_sent: u64,
    /// IP6RXMCOCTS
    pub(super) ipv6_group_received_bytes: u64,
    /// IP6RXMCPKTS
    pub(super) ipv6_group_received: u64,
    /// IP6TXMCOCTS
    pub(super) ipv6_group_sent_bytes: u64,
    /// IP6TXMCPKTS
    pub(super) ipv6_group_sent: u64,
    /// IP4TXNOROUTE: no ARP entry where one is named
    pub(super) ipv4_no_route: u64,
    /// IP6TXNOROUTE
    pub(super) ipv6_no_route: u64,
    /// RXNPECNMARKEDPKTS
    pub(super) marked: u64,
    /// RXRPCNPHANDLED
    pub(super) notifications_handled: u64,
    /// RXRPCNPIGNORED
    pub(super) notifications_ignored: u64,
    /// TXNPCNPSENT
    pub(super) notifications_sent: u64,
}

impl Counters {
    /// A frame leaves.
    #[inline]
    pub(super) fn count_sent(&mut self, frame: &Frame) {
        let bytes = frame.total_length() as u64;
        self.count_sent_many(&frame.packet.path.network, frame.packets.into(), bytes);
    }

    /// Counts departing packets of `bytes` bytes together.
    #[inline]
    pub(super) fn count_sent_many(&mut self, network: &Network, packets: u64, bytes: u64) {
        match network {
            Network::V4(_) => {
                self.ipv4_sent += packets;
                self.ipv4_sent_bytes += bytes;
            }
            Network::V6(_) => {
                self.ipv6_sent += packets;
                self.ipv6_sent_bytes += bytes;
            }
        }
    }

    /// A datagram leaves for a group; it is counted as a frame apart from that.
    pub(super) fn count_group_sent(&mut self, frame: &Frame) {
        let bytes = frame.total_length() as u64;
        match frame.packet.path.network {
            Network::V4(_) => {
                self.ipv4_group_sent += 1;
                self.ipv4_group_sent_bytes += bytes;
            }
            Network::V6(_) => {
                self.ipv6_group_sent += 1;
                self.ipv6_group_sent_bytes += bytes;
            }
        }
    }

    /// A datagram to a group arrives; it is counted as a frame apart from that.
    pub(super) fn count_group_received(&mut self, frame: &Frame) {
        let bytes = frame.total_length() as u64;
        match frame.packet.path.network {
            Network::V4(_) => {
                self.ipv4_group_received += 1;
                self.ipv4_group_received_bytes += bytes;
            }
            Network::V6(_) => {
                self.ipv6_group_received += 1;
                self.ipv6_group_received_bytes += bytes;
            }
        }
    }

    /// A frame arrives.
    #[inline]
    pub(super) fn count_received(&mut self, frame: &Frame) {
        let bytes = frame.total_length() as u64;
        self.count_received_many(&frame.packet.path.network, frame.packets.into(), bytes);
    }

    /// Counts arriving packets of `bytes` bytes together.
    #[inline]
    pub(super) fn count_received_many(&mut self, network: &Network, packets: u64, bytes: u64) {
        match network {
            Network::V4(_) => {
                self.ipv4_received += packets;
                self.ipv4_received_bytes += bytes;
            }
            Network::V6(_) => {
                self.ipv6_received += packets;
                self.ipv6_received_bytes += bytes;
            }
        }
    }

    /// No queue pair takes a frame.
    #[cold]
    pub(super) fn count_discarded(&mut self, frame: &Frame) {
        match frame.packet.path.network {
            Network::V4(_) => self.ipv4_discarded += u64::from(frame.packets),
            Network::V6(_) => self.ipv6_discarded += u64::from(frame.packets),
        }
    }

    /// A packet whose invariant CRC or headers are wrong.
    pub(super) fn count_damaged(&mut self, is_ipv4: bool) {
        match is_ipv4 {
            true => self.ipv4_discarded += 1,
            false => self.ipv6_discarded += 1,
        }
    }

    /// Counts a packet that cannot be sent because its destination has no ARP entry.
    pub(super) fn count_no_route(&mut self, ipv4: bool) {
        if ipv4 {
            self.ipv4_no_route += 1;
        } else {
            self.ipv6_no_route += 1;
        }
    }

    /// The buffer as the device writes it.
    pub(super) fn to_words(self) -> [u64; BUFFER_WORDS] {
        let values = [
            ("IP4RXOCTS", self.ipv4_received_bytes),
            ("IP4RXPKTS", self.ipv4_received),
            ("IP4RXDISCARD", self.ipv4_discarded),
            ("IP4TXOCTS", self.ipv4_sent_bytes),
            ("IP4TXPKTS", self.ipv4_sent),
            ("IP6RXOCTS", self.ipv6_received_bytes),
            ("IP6RXPKTS", self.ipv6_received),
            ("IP6RXDISCARD", self.ipv6_discarded),
            ("IP6TXOCTS", self.ipv6_sent_bytes),
            ("IP6TXPKTS", self.ipv6_sent),
            ("UDPRXPKTS", self.ipv4_received + self.ipv6_received),
            ("UDPTXPKTS", self.ipv4_sent + self.ipv6_sent),
            ("RDMARXWRS", self.writes_received),
            ("RDMARXRDS", self.reads_received),
            ("RDMARXSNDS", self.sends_received),
            ("RDMATXWRS", self.writes_sent),
            ("RDMATXRDS", self.reads_sent),
            ("RDMATXSNDS", self.sends_sent),
            ("RDMAVBND", self.binds),
            ("RDMAVINV", self.invalidates),
            ("IP4RXMCOCTS", self.ipv4_group_received_bytes),
            ("IP4RXMCPKTS", self.ipv4_group_received),
            ("IP4TXMCOCTS", self.ipv4_group_sent_bytes),
            ("IP4TXMCPKTS", self.ipv4_group_sent),
            ("IP6RXMCOCTS", self.ipv6_group_received_bytes),
            ("IP6RXMCPKTS", self.ipv6_group_received),
            ("IP6TXMCOCTS", self.ipv6_group_sent_bytes),
            ("IP6TXMCPKTS", self.ipv6_group_sent),
            ("IP4TXNOROUTE", self.ipv4_no_route),
            ("IP6TXNOROUTE", self.ipv6_no_route),
            ("RXNPECNMARKEDPKTS", self.marked),
            ("RXRPCNPHANDLED", self.notifications_handled),
            ("RXRPCNPIGNORED", self.notifications_ignored),
            ("TXNPCNPSENT", self.notifications_sent),
        ];
        let mut words = [0; BUFFER_WORDS];
        for (name, value) in values {
            if let Some(counter) = Counter::named(name) {
                counter.write(&mut words, value);
            }
        }
        words
    }
}
