//! The general service interface: queue pair 1, which carries every message.
//!
//! Source: InfiniBand Architecture Specification volume 1, section 13.6.1.5; annex A17.

use crate::address::Gid;
use crate::mad::{Mad, MadError};

/// The queue pair on both ends.
pub const QUEUE_PAIR: u32 = 1;
/// Its Q_Key. Only privileged queue pairs may send with a key that has the highest bit set.
pub const QUEUE_KEY: u32 = 0x8001_0000;
/// The partition of RoCE, full membership.
pub const PARTITION_KEY: u16 = 0xFFFF;
/// Hop limit on a local link.
pub const HOP_LIMIT: u8 = 64;

/// A datagram that arrived at queue pair 1.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// source address
    pub source: Gid,
    /// destination address, one of the receiver's
    pub destination: Gid,
    /// VLAN of its frame; `None` for frames without a tag, or with one that carries a priority only
    pub vlan: Option<u16>,
    /// traffic class, or type of service
    pub traffic_class: u8,
    /// P_Key of the base transport header
    pub partition_key: u16,
    /// queue pair that it was sent to
    pub destination_qp: u32,
    /// Q_Key of the datagram header
    pub queue_key: u32,
    /// payload
    pub payload: &'a [u8],
}

/// The reason why a datagram is dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Discard {
    /// A datagram for another queue pair.
    #[error("a datagram for queue pair {0}, not {QUEUE_PAIR}")]
    QueuePair(u32),
    /// A datagram of another partition: only the membership bit may differ.
    #[error("P_Key {0:#06x} is of another partition than {PARTITION_KEY:#06x}")]
    PartitionKey(u16),
    /// A datagram without the right to send to queue pair 1.
    #[error("Q_Key {0:#010x}, not {QUEUE_KEY:#010x}")]
    QueueKey(u32),
    /// A datagram that is no message of the connection manager.
    #[error(transparent)]
    Mad(#[from] MadError),
    /// Sent to an address that this node does not have.
    #[error("a datagram for {0:?}, which is no address of this node")]
    Destination(Gid),
    /// Sent on a VLAN on which this node does not have the address.
    #[error("a datagram for {address:?} on VLAN {vlan}, where this node does not have the address")]
    Vlan {
        /// destination address
        address: Gid,
        /// VLAN of the frame
        vlan: u16,
    },
}

impl Arrived<'_> {
    /// The MAD that it carries, by the rules of queue pair 1. The sender's queue pair may be any:
    /// answers go to queue pair 1.
    ///
    /// Errors: [`Discard`]; nothing is answered.
    pub fn mad(&self) -> Result<Mad, Discard> {
        const MEMBERSHIP: u16 = 0x8000;
        if self.destination_qp != QUEUE_PAIR {
            return Err(Discard::QueuePair(self.destination_qp));
        }
        if (self.partition_key | MEMBERSHIP) != PARTITION_KEY {
            return Err(Discard::PartitionKey(self.partition_key));
        }
        if self.queue_key != QUEUE_KEY {
            return Err(Discard::QueueKey(self.queue_key));
        }
        Ok(Mad::decode(self.payload)?)
    }
}
