//! The RC protocol of RoCEv2, sans-IO: packets and `now` in, packets and actions out.
//!
//! A connected queue pair is a [`Requester`] (its send queue's half: sends requests, receives
//! acknowledgements and read responses, completes work) and a [`Responder`] (the other half:
//! receives requests, answers). They share nothing; each works for its own queue pair only.
//! Neither holds a clock, a socket, a thread or a byte of payload, and neither allocates after it
//! was made.
//!
//! # Payload
//! Packets carry no bytes here. [`RequestPacket`] names bytes of a work request by the token that
//! [`WorkRequest`] was posted with, [`ResponsePacket`] names the responder's memory by what
//! [`ResponderHost::grant`] gave. Whoever carries a packet copies those bytes once, straight to
//! where [`RequestOutcome`] or [`ResponseOutcome`] says that they belong. A retransmission reads
//! them again.
//!
//! # Who calls what
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
//! # Errors
//! A fault stops its half for good and is given out once, as [`RequesterFault`] or
//! [`ResponderFault`], which know the asynchronous event to raise. Everything that a peer can do
//! wrong ends in a fault, a NAK or a counted drop, never in a panic.
//!
//! Source: InfiniBand Architecture Specification volume 1, 9.7 (reliable service); which fields of
//! the E810's queue pair context feed the configuration is said at each field.
//!
//! [`Opcode::class`]: crate::packet::Opcode::class

mod config;
mod fault;
mod requester;
mod responder;
mod work;

#[cfg(test)]
mod simulation;
#[cfg(test)]
pub(crate) use responder::table::listed;

pub use config::{
    PathMtu, RETRY_FOREVER, RequesterConfig, ResponderConfig, receiver_not_ready_wait,
};
pub use fault::{AccessFault, EventSource, RequesterFault, RequesterFaultReason, ResponderFault};
pub use requester::{IgnoredResponse, Requester, RequesterStatistics, ResponseOutcome};
pub use responder::{
    DropReason, Placement, Receive, Received, RemoteBytes, RemoteRight, RequestOutcome, Responder,
    ResponderHost, ResponderStatistics, ResponsePacket,
};
pub use work::{
    Completion, MAXIMUM_MESSAGE_BYTES, MessageBytes, Operation, PostError, RequestPacket,
    WorkRequest,
};

/// Whether a packet's P_Key may talk to ours: same key, and not both limited members.
///
/// Source: InfiniBand Architecture Specification volume 1, 10.9.3.
pub(crate) fn partition_keys_match(theirs: u16, ours: u16) -> bool {
    ringside_spec::words! {
        struct PartitionKey: u16 {
            full_member: [15],
            key: [14:0],
        }
    }
    let (theirs, ours) = (PartitionKey(theirs), PartitionKey(ours));
    theirs.key() == ours.key() && (theirs.full_member() || ours.full_member())
}
