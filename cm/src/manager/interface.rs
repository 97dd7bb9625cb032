//! The input and output of the manager.

use crate::address::{AddressHeader, Gid, ServiceId};
use crate::mad::MAD_BYTES;
use crate::reason::{Reason, ServiceStatus};
use std::net::IpAddr;

/// The identity of the node.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// GUID of the node: unique, stable, not 0. Peers identify connections by it.
    pub guid: u64,
    /// time that this node takes for an acknowledgement, a code
    pub ack_delay: u8,
    /// seed of communication ids and PSNs: another one in each life of the node, since peers take
    /// ids of a former life for repeats
    pub seed: u64,
}

impl Identity {
    /// The identity of a node whose device acknowledges by itself.
    #[must_use]
    pub const fn of(guid: u64, seed: u64) -> Self {
        Self {
            guid,
            ack_delay: 0,
            seed,
        }
    }
}

/// Names a connection or service request; it is the communication id or request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) u32);

impl ConnectionId {
    /// The value in messages.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Names a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub(crate) u64);

/// The addresses at which a listener takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAt {
    /// every address of the node
    Any,
    /// every IPv4 address
    AnyIpv4,
    /// every IPv6 address
    AnyIpv6,
    /// this address
    Address(IpAddr),
}

impl ListenAt {
    /// True if it takes requests for this address.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::AnyIpv4 => address.is_ipv4(),
            Self::AnyIpv6 => address.is_ipv6(),
            Self::Address(own) => own == address,
        }
    }

    /// True if there are addresses at which both take requests.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Address(address), place) | (place, Self::Address(address)) => {
                place.contains(address)
            }
            (Self::AnyIpv4, Self::AnyIpv6) | (Self::AnyIpv6, Self::AnyIpv4) => false,
            _ => true,
        }
    }
}

/// The requests that a listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// requests for reliable connections
    Connections,
    /// questions for the queue pair behind a datagram service
    Datagrams,
}

impl From<Option<IpAddr>> for ListenAt {
    fn from(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Any, Self::Address)
    }
}

/// The next action of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// sends a MAD
    Send(OutgoingMad),
    /// report an event to the program
    Event(Event),
}

/// A MAD to send: from queue pair 1 to queue pair 1, with the keys of [`gsi`](crate::gsi).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingMad {
    /// own address
    pub source: Gid,
    /// VLAN to send it on; `None` for frames without a tag
    pub vlan: Option<u16>,
    /// address of the peer
    pub destination: Gid,
    /// traffic class, or type of service
    pub traffic_class: u8,
    /// the MAD
    pub payload: Box<[u8; MAD_BYTES]>,
}

/// An event for the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// the connection; a new one for requests
    pub id: ConnectionId,
    /// the event
    pub kind: EventKind,
}

/// An event. Private data has its full size: its length is not transmitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A peer requests a connection: answer with [`Manager::accept`](crate::Manager::accept) or
    /// [`reject`](crate::Manager::reject).
    Request {
        /// the listener
        listener: ListenerId,
        /// the peer's queue pair and limits
        parameters: Parameters,
        /// addresses and port of the caller
        header: AddressHeader,
        /// 56 bytes
        private_data: Vec<u8>,
    },
    /// The peer accepted: the program sets its queue pair and calls
    /// [`Manager::ready`](crate::Manager::ready), or `reject`.
    Reply {
        /// the peer's queue pair and limits
        parameters: Parameters,
        /// 196 bytes
        private_data: Vec<u8>,
    },
    /// The caller's side of an accepted connection is ready too.
    Established,
    /// The peer refused, or ended the connection by a refusal.
    Rejected {
        /// why
        reason: Reason,
        /// meaning depends on the reason
        additional_information: Vec<u8>,
        /// [`MAX_REJECTION_PRIVATE_BYTES`](crate::message::MAX_REJECTION_PRIVATE_BYTES), padded
        /// with zeros
        private_data: Vec<u8>,
    },
    /// No answer after all repeats.
    Unreachable,
    /// The connection has ended. A side that did not request it calls
    /// [`Manager::disconnect`](crate::Manager::disconnect) to confirm.
    Disconnected {
        /// the peer requested or confirmed it; false after repeats without an answer
        by_peer: bool,
    },
    /// The device of this node failed, and the connection's queue pair with it: see
    /// [`Manager::lose_device`](crate::Manager::lose_device).
    DeviceFailed,
    /// Packets of the former connection can no longer arrive: the queue pair number may be used
    /// again. Follows [`EventKind::Disconnected`], and no rejection.
    TimeWaitOver,
    /// A peer requests the queue pair of a service: answer with
    /// [`Manager::answer`](crate::Manager::answer).
    ServiceRequest {
        /// the listener
        listener: ListenerId,
        /// addresses and port of the caller
        header: AddressHeader,
        /// 180 bytes
        private_data: Vec<u8>,
    },
    /// The service answered.
    ServiceReply {
        /// valid, or why not
        status: ServiceStatus,
        /// queue pair of the service
        queue_pair: u32,
        /// its Q_Key
        queue_key: u32,
        /// 136 bytes
        private_data: Vec<u8>,
    },
}

/// The settings of a connection's queue pair. Sources: the local request or answer and the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// queue pair of the peer
    pub queue_pair: u32,
    /// PSN of the first packet to send
    pub send_psn: u32,
    /// PSN of the first packet to receive
    pub receive_psn: u32,
    /// reads and atomics that this side may have to answer: the peer's initiator depth
    pub responder_resources: u8,
    /// reads and atomics that this side may have outstanding: the peer's responder resources
    pub initiator_depth: u8,
    /// transport retries
    pub retry_count: u8,
    /// receiver-not-ready retries
    pub rnr_retry_count: u8,
    /// true if the peer implements end-to-end flow control
    pub flow_control: bool,
    /// true if the peer's queue pair has a shared receive queue
    pub shared_receive_queue: bool,
    /// path MTU: 1 = 256 to 5 = 4096 bytes
    pub path_mtu: u8,
    /// local ACK timeout, a code of at most 22 (17 s)
    pub ack_timeout: u8,
    /// flow label, 20 bits
    pub flow_label: u32,
    /// traffic class
    pub traffic_class: u8,
    /// own address
    pub local: Gid,
    /// VLAN of the own address on which the messages came or go; `None` for frames without a tag
    pub vlan: Option<u16>,
    /// address of the peer
    pub remote: Gid,
}

/// A connection request.
#[derive(Clone, Debug)]
pub struct Connect {
    /// own address, one of the manager's
    pub local: IpAddr,
    /// VLAN of the own address
    pub vlan: Option<u16>,
    /// address of the listener
    pub remote: IpAddr,
    /// its service
    pub service: ServiceId,
    /// own port
    pub source_port: u16,
    /// own queue pair
    pub queue_pair: u32,
    /// true if it has a shared receive queue
    pub shared_receive_queue: bool,
    /// reads and atomics that it answers at a time
    pub responder_resources: u8,
    /// reads and atomics that it has outstanding at a time
    pub initiator_depth: u8,
    /// carried for the program, without a meaning here
    pub flow_control: bool,
    /// transport retries of both sides, 0..=7; larger values count as 7
    pub retry_count: u8,
    /// receiver-not-ready retries of the peer, 0..=7; 7 is for ever
    pub rnr_retry_count: u8,
    /// path MTU: 1 = 256 to 5 = 4096 bytes
    pub path_mtu: u8,
    /// traffic class, or type of service
    pub traffic_class: u8,
    /// local ACK timeout instead of the default, a code
    pub ack_timeout: Option<u8>,
    /// at most 56 bytes
    pub private_data: Vec<u8>,
}

/// An answer to a request.
#[derive(Clone, Debug)]
pub struct Accept {
    /// own queue pair, ready to receive
    pub queue_pair: u32,
    /// true if it has a shared receive queue
    pub shared_receive_queue: bool,
    /// reads and atomics that it answers at a time
    pub responder_resources: u8,
    /// reads and atomics that it has outstanding at a time
    pub initiator_depth: u8,
    /// carried for the program, without a meaning here
    pub flow_control: bool,
    /// receiver-not-ready retries of the peer, 0..=7; 7 is for ever
    pub rnr_retry_count: u8,
    /// at most 196 bytes
    pub private_data: Vec<u8>,
}

/// A refusal.
#[derive(Clone, Debug)]
pub struct Refused {
    /// why
    pub reason: Reason,
    /// at most 72 bytes, by reason
    pub additional_information: Vec<u8>,
    /// at most [`MAX_REJECTION_PRIVATE_BYTES`](crate::message::MAX_REJECTION_PRIVATE_BYTES)
    pub private_data: Vec<u8>,
}

impl Refused {
    /// A refusal without further data.
    #[must_use]
    pub const fn because(reason: Reason) -> Self {
        Self {
            reason,
            additional_information: Vec::new(),
            private_data: Vec::new(),
        }
    }
}

/// A question for the queue pair of a datagram service.
#[derive(Clone, Debug)]
pub struct Resolve {
    /// own address, one of the manager's
    pub local: IpAddr,
    /// VLAN of the own address
    pub vlan: Option<u16>,
    /// address of the service
    pub remote: IpAddr,
    /// the service
    pub service: ServiceId,
    /// own port
    pub source_port: u16,
    /// traffic class, or type of service
    pub traffic_class: u8,
    /// at most 180 bytes
    pub private_data: Vec<u8>,
}

/// An answer to such a question.
#[derive(Clone, Debug)]
pub struct ServiceAnswer {
    /// valid, or why not
    pub status: ServiceStatus,
    /// own queue pair
    pub queue_pair: u32,
    /// its Q_Key
    pub queue_key: u32,
    /// at most 136 bytes
    pub private_data: Vec<u8>,
}

/// The state of a connection, by the standard's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateName {
    /// over, or not begun
    Idle,
    /// REQ sent
    RequestSent,
    /// REQ sent, the peer needs longer
    RequestAcknowledged,
    /// REP received, the queue pair is being set
    ReplyReceived,
    /// REQ received, the program decides
    RequestReceived,
    /// REP sent
    ReplySent,
    /// REP sent, the peer needs longer
    ReplyAcknowledged,
    /// connected
    Established,
    /// DREQ sent
    DisconnectSent,
    /// DREQ received, the program has not confirmed
    DisconnectReceived,
    /// over, packets may still be under way
    TimeWait,
    /// SIDR_REQ sent
    ServiceSent,
    /// SIDR_REQ received, the program decides
    ServiceReceived,
}

/// The reason why the manager does not listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another listener has the port.
    #[error("{service} has a listener: choose another port")]
    InUse {
        /// the service
        service: ServiceId,
    },
    /// The address is not one of the node.
    #[error("{address} is no address of this node: listen on one that is, or on all")]
    AddressNotLocal {
        /// the address
        address: IpAddr,
    },
    /// RDMA_PS_IPOIB needs InfiniBand.
    #[error("datagrams beside IP over InfiniBand do not exist on RoCE: use RDMA_PS_UDP")]
    NotOnRoce,
}

/// The reason why the manager refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The connection no longer exists.
    #[error("the connection does not exist any more")]
    Gone,
    /// The connection is in another state.
    #[error("not possible in the state {state:?}")]
    State {
        /// the state
        state: StateName,
    },
    /// Private data or additional information does not fit.
    #[error("{length_bytes} bytes do not fit: the message has room for {maximum_bytes}")]
    TooLong {
        /// bytes given
        length_bytes: usize,
        /// bytes that fit
        maximum_bytes: usize,
    },
    /// The own address is not one of the node, or of another family than the peer's.
    #[error("{local} is no address of this node that reaches {remote}")]
    Address {
        /// own address
        local: IpAddr,
        /// address of the peer
        remote: IpAddr,
    },
    /// Too many connections.
    #[error("{maximum} connections exist: end some")]
    Full {
        /// limit
        maximum: usize,
    },
    /// RDMA_PS_IPOIB needs InfiniBand.
    #[error("datagrams beside IP over InfiniBand do not exist on RoCE: use RDMA_PS_UDP")]
    NotOnRoce,
}
