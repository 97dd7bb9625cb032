//! RoCEv2 without input or output: frames ([`packet`]), and the two halves of a reliable connection
//! as state machines that take packets and the time and give packets and actions.
//!
//! The crate is independent of cards, clocks, sockets and threads. Ringside's model of the E810 is
//! one user; a program that sends RoCEv2 over a UDP socket could be another.
//!
//! A connected queue pair is a [`Requester`] (its send queue's half: sends requests, receives
//! acknowledgements and read responses, completes work) and a [`Responder`] (the other half:
//! receives requests, answers). They share nothing; each serves its own queue pair only. Neither
//! holds a clock, a socket, a thread or a byte of payload, and neither allocates after it was made.
//!
//! # Payload
//! Packets carry no bytes here. [`RequestPacket`] names bytes of a work request by the token that
//! [`WorkRequest`] was posted with, [`ResponsePacket`] names the responder's memory by the value
//! that [`ResponderHost::grant`] returned. The carrier of a packet copies those bytes once,
//! directly to the place in [`RequestOutcome`] or [`ResponseOutcome`]. A retransmission reads them
//! again.
//!
//! # Calls
//! For each burst, the caller
//! 1. sorts incoming packets by [`Opcode::class`]: `Request` goes to [`Responder::on_request`],
//!    `Response` to [`Requester::on_response`];
//! 2. carries out each placement **before** it calls the same half again; if that fails it calls
//!    [`Responder::refuse_placement`] or [`Requester::stop`];
//! 3. writes the receive completion that came with it, and drains [`Requester::next_completion`];
//! 4. drains [`Responder::next_packet`] (acknowledgements are coalesced: one a burst), then
//!    [`Requester::next_packet`] as long as the wire takes packets;
//! 5. once [`Requester::deadline`] has passed, calls [`Requester::on_time`].
//!
//! # Example
//! An RDMA write of five bytes, as two frames:
//! ```
//! use ringside_clock::Instant;
//! use ringside_roce::packet::{self, Ipv4, MacAddress, Network, Packet, Path, Psn, QpNumber, UdpChecksum};
//! use ringside_roce::*;
//!
//! /// The responder's adapter: one region, key 7, at address 0x1000.
//! struct Adapter {
//!     memory: [u8; 4096],
//! }
//!
//! impl ResponderHost for Adapter {
//!     type Grant = ();
//!     fn allows(&self, _: RemoteRight) -> bool {
//!         true
//!     }
//!     fn grant(&mut self, key: u32, address: u64, bytes: u32, _: RemoteRight) -> Result<(), AccessFault> {
//!         let region = 0x1000..=0x2000;
//!         if key != 7 {
//!             return Err(AccessFault::UnallocatedKey);
//!         }
//!         let end = address.checked_add(u64::from(bytes)).ok_or(AccessFault::Wrap)?;
//!         let inside = region.contains(&address) && region.contains(&end);
//!         inside.then_some(()).ok_or(AccessFault::Bounds)
//!     }
//!     fn take_receive(&mut self) -> Receive {
//!         Receive::Empty
//!     }
//!     fn may_invalidate(&mut self, _: u32) -> Result<(), AccessFault> {
//!         Err(AccessFault::Rights)
//!     }
//! }
//!
//! let path = Path {
//!     source: MacAddress([2, 0, 0, 0, 0, 1]),
//!     destination: MacAddress([2, 0, 0, 0, 0, 2]),
//!     vlan: None,
//!     network: Network::V4(Ipv4 {
//!         source: [10, 0, 0, 1].into(),
//!         destination: [10, 0, 0, 2].into(),
//!         type_of_service: 0,
//!         time_to_live: 64,
//!         identification: 0,
//!         do_not_fragment: true,
//!     }),
//!     source_port: 0xC000,
//!     udp_checksum: UdpChecksum::Absent,
//! };
//! let (mtu, first_psn, now) = (PathMtu::Bytes1024, Psn::new(100), Instant(0));
//! let mut requester = Requester::new(&RequesterConfig::new(QpNumber::new(2), mtu, first_psn));
//! let mut responder = Responder::new(&ResponderConfig::new(QpNumber::new(1), mtu, first_psn));
//! let mut adapter = Adapter { memory: [0; 4096] };
//!
//! // The requester names its bytes by a token; the caller puts them into the frame.
//! let messages = [b"hello"];
//! let operation = Operation::Write { address: 0x1010, key: 7 };
//! requester.post(WorkRequest { token: 0, operation, length_bytes: 5, solicited: false })?;
//! let request = requester.next_packet(now).expect("one packet");
//! let MessageBytes { token, offset_bytes, length_bytes } = request.payload;
//! let payload = &messages[token as usize][offset_bytes as usize..][..length_bytes as usize];
//! let mut frame = Vec::new();
//! packet::emit(&Packet { path, transport: request.headers }, payload, &mut frame)?;
//!
//! // The responder says where they belong; the caller copies them there.
//! let (arrived, payload) = packet::parse(&frame)?;
//! let outcome = responder.on_request(&arrived.transport, payload.len() as u32, &mut adapter);
//! let RequestOutcome::Accepted { placement: Some(Placement::Remote { address, .. }), .. } = outcome
//! else {
//!     panic!("{outcome:?}");
//! };
//! let start = (address - 0x1000) as usize;
//! adapter.memory[start..start + payload.len()].copy_from_slice(&frame[payload]);
//! assert_eq!(&adapter.memory[0x10..0x15], b"hello");
//!
//! // Its acknowledgement completes the write.
//! let answer = responder.next_packet().expect("an acknowledgement");
//! let outcome = requester.on_response(now, &answer.headers, 0);
//! assert_eq!(outcome, ResponseOutcome::Acknowledged);
//! assert_eq!(requester.next_completion(), Some(Completion { token: 0, length_bytes: 5 }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Errors
//! A fault stops its half for good and is returned once, as [`RequesterFault`] or
//! [`ResponderFault`]; the adapter decides which event it raises. Every error of a peer ends in a
//! fault, a NAK or a counted drop, never in a panic.
//!
//! Source: InfiniBand Architecture Specification volume 1, 9.7 (reliable service). The
//! documentation of each field of the configuration names the field of the E810's queue pair
//! context.
//!
//! [`Opcode::class`]: crate::packet::Opcode::class

#![forbid(unsafe_code)]

mod config;
mod fault;
pub mod packet;
mod requester;
mod responder;
mod work;

#[cfg(test)]
mod simulation;

pub use config::{
    PathMtu, RETRY_FOREVER, RequesterConfig, ResponderConfig, receiver_not_ready_wait,
};
pub use fault::{AccessFault, RequesterFault, RequesterFaultReason, ResponderFault};
pub use requester::{IgnoredResponse, Requester, RequesterStatistics, ResponseOutcome, ShortWrite};
pub use responder::{
    DropReason, Placement, Receive, Received, RemoteBytes, RemoteRight, RequestOutcome, Responder,
    ResponderHost, ResponderStatistics, ResponsePacket,
};
pub use work::{
    Completion, MAX_MESSAGE_BYTES, MessageBytes, Operation, PostError, RequestPacket, WorkRequest,
};

/// True if a packet's P_Key may talk to ours: same key, and not both limited members.
///
/// Source: InfiniBand Architecture Specification volume 1, 10.9.3.
#[must_use]
pub fn partition_keys_match(theirs: u16, ours: u16) -> bool {
    ringside_spec::words! {
        struct PartitionKey: u16 {
            full_member: [15],
            key: [14:0],
        }
    }
    let (theirs, ours) = (PartitionKey(theirs), PartitionKey(ours));
    theirs.key() == ours.key() && (theirs.full_member() || ours.full_member())
}
