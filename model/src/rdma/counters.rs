//! Statistics that GATHER_STATS copies to memory.

use crate::packet::Network;
use crate::wire::Frame;
use ringside_spec::rdma::statistics::{BUFFER_WORDS, Counter};

/// What the engine counts. Each field is the hardware counter that its comment names.
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
    /// RXRPCNPHANDLED
    pub(super) congestion_notifications: u64,
}

impl Counters {
    /// A frame leaves.
    #[inline]
    pub(super) fn count_sent(&mut self, frame: &Frame) {
        let bytes = frame.length() as u64;
        let path = &frame.packet.path;
        match path.network {
            Network::V4(_) => {
                self.ipv4_sent += 1;
                self.ipv4_sent_bytes += bytes;
            }
            Network::V6(_) => {
                self.ipv6_sent += 1;
                self.ipv6_sent_bytes += bytes;
            }
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
            ("RXRPCNPHANDLED", self.congestion_notifications),
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
