//! Queue pairs: their settings, queues and connection.

use super::work_queue::{ElementWords, WorkQueue};
use crate::packet::{Ipv4, Ipv6, MacAddress, Network, Path, Psn, QpNumber, UdpChecksum};
use crate::rdma::hmc::{Hmc, HmcFault};
use crate::rdma::ring::{Place, Ring};
use crate::rdma::way::Way;
use crate::roce::{PathMtu, Requester, RequesterConfig, Responder, ResponderConfig, WorkRequest};
use ringside_bus::{Direction, DmaSpace, Instant, Iova, prefetch};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{QueuePairState, QueuePairType};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits::SHADOW_BYTES;
use ringside_spec::rdma::qp_context::{
    RTO_MIN, RoceQueuePairContext, ird_entries, queue_quanta, rq_wqe_bytes,
};
use ringside_spec::verbs::{Fragment, QUANTUM_BYTES};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Work requests of a send queue that the device works on at once.
const REQUESTS_IN_FLIGHT: usize = 256;

/// Words of a context in host memory.
pub(in crate::rdma) const CONTEXT_WORDS: usize = 32;

/// Added to a context kept in the host memory cache, so that lost memory is noticed.
const SIGNATURE: u64 = 0x0051_5043_7E57_0000;

/// The reads that the peer may have outstanding.
fn inbound_reads(context: &RoceQueuePairContext) -> Result<u16, ContextFault> {
    let code = context.ird_size;
    let entries = ird_entries(code).ok_or(ContextFault::InboundReads(code))?;
    // Two entries for each read.
    Ok((entries / 2) as u16)
}

/// The time that a requester waits for an answer. The unit is not documented: what drivers write is
/// taken for 67 ms (4.096 us x 2^14, perftest's default), other values in proportion.
const fn retransmit_after(rto_min: u8) -> Duration {
    let usual_ns = 4096 * 16_384;
    let steps = if rto_min == 0 { RTO_MIN } else { rto_min } as u64;
    Duration::from_nanos(usual_ns * steps / RTO_MIN as u64)
}

/// The state of an element that the device has taken from a send queue.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rdma) struct Work {
    /// First quantum.
    pub(in crate::rdma) index: u16,
    /// Quanta.
    pub(in crate::rdma) quanta: u8,
    /// Operation code, six bits.
    pub(in crate::rdma) operation: u8,
    /// Wants a completion.
    pub(in crate::rdma) signalled: bool,
    /// Local tag that a read invalidates when it is done.
    pub(in crate::rdma) invalidates: u32,
    /// Its only fragment, where it has no other and no inline data.
    pub(in crate::rdma) single: Option<Fragment>,
}

/// An element that cannot be carried out. It waits for those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct SendFault {
    pub(in crate::rdma) code: AeCode,
    pub(in crate::rdma) index: u16,
}

/// A queue pair. Its fields are in the order of their use: what a short message needs comes first,
/// so that it is in few cache lines; see [`QueuePair::prefetch`].
#[repr(C, align(64))]
pub(in crate::rdma) struct QueuePair {
    pub(in crate::rdma) number: u32,
    pub(in crate::rdma) kind: QueuePairType,
    pub(in crate::rdma) state: QueuePairState,
    /// An error was raised; nothing moves until the queue pair is modified to ERROR.
    pub(in crate::rdma) stopped: bool,
    /// Closing or suspended: an event is due once the requests under way are done.
    pub(in crate::rdma) quiesce: bool,
    pub(in crate::rdma) suspended: bool,
    /// It has bound windows of type 2, which go with it.
    pub(in crate::rdma) has_bound: bool,
    /// The queue pair is in the list of those with work.
    pub(in crate::rdma) listed: bool,
    /// The tail was published since the queue pair rested last.
    pub(in crate::rdma) told: bool,
    /// Among the queue pairs that have a timer.
    pub(in crate::rdma) timed: bool,
    /// The ring is to be read: the queue pair was woken, or the last pass over the ring ended at a
    /// limit, not at its end.
    pub(in crate::rdma) more: bool,
    /// Payload of read responses since the turn of requests.
    pub(in crate::rdma) answered_bytes: u32,
    /// The send queue's tail in the shadow area.
    pub(in crate::rdma) told_tail: u32,
    pub(in crate::rdma) send_cq: u32,
    next_token: u32,
    stamp: (u64, u64),
    /// The function that its packets go to without a frame, once it was found.
    pub(in crate::rdma) way: Way,
    /// The lower layers of its packets by its context, without the peer's MAC address.
    path: Path,
    works: Box<[Work]>,
    pub(in crate::rdma) fault: Option<SendFault>,
    pub(in crate::rdma) send: WorkQueue,
    pub(in crate::rdma) shadow: Ring,
    pub(in crate::rdma) requester: Option<Requester>,
    pub(in crate::rdma) responder: Option<Responder<u32>>,
    pub(in crate::rdma) context: RoceQueuePairContext,
    /// Datagrams, and work in order with them, that have not left yet.
    pub(in crate::rdma) datagrams: VecDeque<WorkRequest>,
    pub(in crate::rdma) datagram_psn: Psn,
    pub(in crate::rdma) receive_cq: u32,
    pub(in crate::rdma) receive: WorkQueue,
    /// Quanta of each receive element.
    pub(in crate::rdma) receive_quanta: u32,
    pub(in crate::rdma) shadow_address: u64,
    /// The time from which the peer may be notified of congestion again.
    pub(in crate::rdma) next_notification: Instant,
    /// The receive element that was taken last: the one that a message is arriving in.
    pub(in crate::rdma) open_receive: ElementWords,
}

/// The wait that a sender without a receive request is asked for: code 20, 10.24 ms. The source of
/// the value of a card is unknown (docs/hardware.md).
const NOT_READY_TIMER: u8 = 20;

/// A context that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::rdma) enum ContextFault {
    #[error("{which} queue size code {code}")]
    QueueSize { which: &'static str, code: u8 },
    #[error("path MTU of {0} bytes")]
    PathMtu(u16),
    #[error("code {0} for the number of inbound reads")]
    InboundReads(u8),
}

impl QueuePair {
    /// A queue pair as CREATE_QP makes it.
    pub(in crate::rdma) fn new(
        number: u32,
        kind: QueuePairType,
        context: RoceQueuePairContext,
        queues_virtual: bool,
        shadow_address: u64,
    ) -> Result<Self, ContextFault> {
        let size = |which, code| queue_quanta(code).ok_or(ContextFault::QueueSize { which, code });
        let place = |address| match queues_virtual {
            true => Place::Listed(address),
            false => Place::Contiguous(Iova(address)),
        };
        let send_quanta = size("send", context.sq_size_code)?;
        let receive_quanta = size("receive", context.rq_size_code)?;
        let in_flight = (send_quanta as usize).min(REQUESTS_IN_FLIGHT);
        let path = path_of(&context);
        Ok(Self {
            number,
            kind,
            state: QueuePairState::Idle,
            send_cq: context.tx_cq_number,
            receive_cq: context.rx_cq_number,
            send: WorkQueue::new(place(context.sq_address), send_quanta),
            receive: WorkQueue::new(place(context.rq_address), receive_quanta),
            receive_quanta: rq_wqe_bytes(context.rq_wqe_size_code) / QUANTUM_BYTES as u32,
            shadow: Ring::new(
                Place::Contiguous(Iova(shadow_address)),
                SHADOW_BYTES / 8,
                Direction::Write,
            ),
            shadow_address,
            requester: None,
            responder: None,
            datagrams: VecDeque::new(),
            datagram_psn: Psn::new(context.psn_next),
            works: vec![Work::default(); in_flight].into_boxed_slice(),
            next_token: 0,
            open_receive: ElementWords::none(),
            fault: None,
            stopped: false,
            quiesce: false,
            suspended: false,
            has_bound: false,
            next_notification: Instant(0),
            listed: false,
            told: false,
            timed: false,
            more: false,
            answered_bytes: 0,
            told_tail: u32::MAX,
            stamp: (u64::MAX, u64::MAX),
            way: Way::UNKNOWN,
            context,
            path,
        })
    }

    /// Has the part that a message needs brought into the cache.
    #[inline]
    pub(in crate::rdma) fn prefetch(&self) {
        prefetch(self);
    }

    /// Has the places that the next request takes brought into the cache.
    #[inline]
    pub(in crate::rdma) fn prefetch_places(&self) {
        if let (Some(requester), Some(first)) = (&self.requester, self.works.first()) {
            prefetch(first);
            prefetch(requester.next_place());
        }
    }

    /// Keeps a context in the host memory cache.
    pub(in crate::rdma) fn keep_context(
        &mut self,
        hmc: &mut Hmc,
        memory: &DmaSpace,
    ) -> Result<(), HmcFault> {
        let mut words = [SIGNATURE + u64::from(self.number); CONTEXT_WORDS + 1];
        for (word, kept) in words.iter_mut().zip(self.context.encode()) {
            *word = kept;
        }
        hmc.keep(ObjectType::QueuePair, self.number, &words, memory)?;
        self.stamp = (memory.generation(), hmc.generation());
        Ok(())
    }

    /// Finds its memory, and its context in the host memory cache, unless nothing has changed.
    #[inline]
    pub(in crate::rdma) fn resolve(
        &mut self,
        hmc: &mut Hmc,
        memory: &DmaSpace,
    ) -> Result<(), HmcFault> {
        if self.stamp == (memory.generation(), hmc.generation()) {
            return Ok(());
        }
        self.resolve_anew(hmc, memory)
    }

    #[cold]
    fn resolve_anew(&mut self, hmc: &mut Hmc, memory: &DmaSpace) -> Result<(), HmcFault> {
        let words: [u64; CONTEXT_WORDS + 1] =
            hmc.recall(ObjectType::QueuePair, self.number, memory)?;
        if words.last() != Some(&(SIGNATURE + u64::from(self.number))) {
            return Err(HmcFault::Lost {
                object: ObjectType::QueuePair,
                index: self.number,
            });
        }
        self.send.ring.resolve(hmc, memory)?;
        self.receive.ring.resolve(hmc, memory)?;
        self.shadow.resolve(hmc, memory)?;
        self.stamp = (memory.generation(), hmc.generation());
        Ok(())
    }

    /// True if its memory was found under the mappings of `stamp`.
    #[inline]
    pub(in crate::rdma) fn is_resolved(&self, stamp: (u64, u64)) -> bool {
        self.stamp == stamp
    }

    /// Makes it look up its memory again.
    pub(in crate::rdma) fn forget_memory(&mut self) {
        self.stamp = (u64::MAX, u64::MAX);
    }

    fn path_mtu(&self) -> Result<PathMtu, ContextFault> {
        let bytes = self.context.send_mss;
        PathMtu::from_bytes(bytes.into()).ok_or(ContextFault::PathMtu(bytes))
    }

    /// The step to RTR: the responder starts with the values of the context.
    pub(in crate::rdma) fn start_responder(&mut self) -> Result<(), ContextFault> {
        let context = &self.context;
        let config = ResponderConfig {
            partition_key: context.p_key,
            inbound_reads: inbound_reads(context)?,
            acknowledge_credits: 31,
            not_ready_timer: NOT_READY_TIMER,
            ..ResponderConfig::new(
                QpNumber::new(context.destination_qp),
                self.path_mtu()?,
                Psn::new(context.expected_psn),
            )
        };
        self.responder = Some(Responder::new(&config));
        Ok(())
    }

    /// The step from RTR to RTS: the requester starts with the values of the context.
    pub(in crate::rdma) fn start_requester(&mut self) -> Result<(), ContextFault> {
        let context = &self.context;
        let config = RequesterConfig {
            partition_key: context.p_key,
            outstanding_reads: context.ord_size,
            retry_limit: context.retransmit_threshold,
            not_ready_retry_limit: context.rnr_retry_threshold,
            retransmit_after: retransmit_after(context.rto_min),
            window_packets: context.congestion_window.max(1),
            capacity: self.works.len(),
            ..RequesterConfig::new(
                QpNumber::new(context.destination_qp),
                self.path_mtu()?,
                Psn::new(context.psn_next),
            )
        };
        self.requester = Some(Requester::new(&config));
        Ok(())
    }

    /// Takes retries, timeout and numbers of reads of the context over into a queue pair that runs.
    /// The PSNs in it are not taken again.
    pub(in crate::rdma) fn change_requester(&mut self) -> Result<(), ContextFault> {
        let context = &self.context;
        let inbound_reads = inbound_reads(context)?;
        if let Some(responder) = &mut self.responder {
            responder.set_reads(inbound_reads);
        }
        if let Some(requester) = &mut self.requester {
            requester.set_reads(context.ord_size);
            requester.set_retries(
                context.retransmit_threshold,
                context.rnr_retry_threshold,
                retransmit_after(context.rto_min),
            );
        }
        Ok(())
    }

    /// The number of further elements of the send queue that may be taken.
    #[inline]
    pub(in crate::rdma) fn room(&self) -> usize {
        match &self.requester {
            Some(requester) => requester.room(),
            None if self.kind == QueuePairType::RoceUnreliableDatagram => {
                self.works.len().saturating_sub(self.datagrams.len())
            }
            None => 0,
        }
    }

    /// True where nothing that was taken from the send queue is under way. Of a queue pair that has
    /// stopped nothing is: its requests are flushed.
    #[inline]
    pub(in crate::rdma) fn is_idle(&self) -> bool {
        if self.stopped {
            return true;
        }
        match &self.requester {
            Some(requester) => requester.is_idle(),
            None => self.datagrams.is_empty(),
        }
    }

    /// True where nothing waits to be sent or to be completed.
    #[inline]
    pub(in crate::rdma) fn is_quiet(&self) -> bool {
        let answers = self.responder.as_ref().is_some_and(Responder::has_packet);
        !answers && self.requests_nothing()
    }

    /// The same, its answers aside.
    #[inline]
    fn requests_nothing(&self) -> bool {
        self.requester.as_ref().is_none_or(Requester::is_quiet) && self.datagrams.is_empty()
    }

    /// True where an acknowledgement is all that its turn would bring.
    #[inline]
    pub(in crate::rdma) fn only_acknowledges(&self, stamp: (u64, u64)) -> bool {
        let acknowledges = self.responder.as_ref().is_some_and(Responder::acknowledges);
        let has_read = self.is_resolved(stamp)
            && self.told_tail == self.send.next()
            && self.send.peek().is_none();
        acknowledges
            && self.requests_nothing()
            && self.fault.is_none()
            && !self.quiesce
            && (has_read || !self.sends())
    }

    /// True where the peer's requests are taken.
    #[inline]
    pub(in crate::rdma) fn receives(&self) -> bool {
        use QueuePairState::{Closing, ReadyToReceive, ReadyToSend};
        matches!(self.state, ReadyToReceive | ReadyToSend | Closing) && !self.stopped
    }

    /// True where new elements of the send queue are taken.
    #[inline]
    pub(in crate::rdma) fn sends(&self) -> bool {
        self.state == QueuePairState::ReadyToSend && !self.stopped && !self.suspended
    }

    /// True where a doorbell is permitted, also if the queue pair has failed and software cannot
    /// know it yet.
    pub(in crate::rdma) fn may_ring(&self) -> bool {
        use QueuePairState::{Closing, Error, ReadyToSend};
        matches!(self.state, ReadyToSend | Closing | Error)
    }

    /// Remembers an element under a token.
    #[inline]
    pub(in crate::rdma) fn remember(&mut self, work: Work) -> u32 {
        // As the requester does with its places: see `Requester::post`.
        if self.requester.as_ref().is_some_and(Requester::is_empty) {
            self.next_token = 0;
        }
        let token = self.next_token;
        self.next_token = token.wrapping_add(1);
        let mask = self.works.len().wrapping_sub(1);
        if let Some(place) = self.works.get_mut(token as usize & mask) {
            *place = work;
        }
        token
    }

    /// The request of `token`.
    #[inline]
    pub(in crate::rdma) fn work(&self, token: u32) -> Work {
        *self.work_at(token)
    }

    /// A reference to the request of `token`.
    #[inline]
    pub(in crate::rdma) fn work_at(&self, token: u32) -> &Work {
        const NONE: Work = Work {
            index: 0,
            quanta: 0,
            operation: 0,
            signalled: false,
            invalidates: 0,
            single: None,
        };
        // The number of slots is a power of two.
        let mask = self.works.len().wrapping_sub(1);
        self.works.get(token as usize & mask).unwrap_or(&NONE)
    }

    /// The time at which the connection's timer is due.
    #[inline]
    pub(in crate::rdma) fn deadline(&self) -> Option<Instant> {
        self.requester.as_ref().and_then(Requester::deadline)
    }

    /// Stops sending and receiving; the last answer of the responder is still sent.
    pub(in crate::rdma) fn stop(&mut self) {
        self.stopped = true;
        self.fault = None;
        if let Some(requester) = &mut self.requester {
            requester.stop();
        }
        if let Some(responder) = &mut self.responder {
            responder.stop();
        }
    }

    /// The lower layers of its packets, towards the peer's MAC address.
    #[inline]
    pub(in crate::rdma) fn path(&self, destination: [u8; 6]) -> Path {
        Path {
            destination: MacAddress(destination),
            ..self.path
        }
    }

    /// Takes the addresses of a changed context over.
    pub(in crate::rdma) fn take_path(&mut self) {
        self.path = path_of(&self.context);
        self.way = Way::UNKNOWN;
    }

    /// The lower layers of its packets, without the peer's MAC address.
    #[inline]
    pub(in crate::rdma) fn lower_layers(&self) -> &Path {
        &self.path
    }

    /// The IP header of its packets.
    #[inline]
    pub(in crate::rdma) fn network(&self) -> &Network {
        &self.path.network
    }

    /// True if a packet comes from the peer that it is connected to.
    #[inline]
    pub(in crate::rdma) fn is_from_peer(&self, network: &Network) -> bool {
        match network {
            Network::V4(ip) => {
                self.context.ipv4 && ip.source.to_bits() == self.context.destination_ip as u32
            }
            Network::V6(ip) => {
                !self.context.ipv4 && ip.source.to_bits() == self.context.destination_ip
            }
        }
    }
}

/// The lower layers of packets by a context, without the peer's MAC address.
fn path_of(context: &RoceQueuePairContext) -> Path {
    let network = if context.ipv4 {
        Network::V4(Ipv4 {
            source: Ipv4Addr::from_bits(context.local_ip as u32),
            destination: Ipv4Addr::from_bits(context.destination_ip as u32),
            type_of_service: context.tos,
            time_to_live: context.ttl,
            identification: 0,
            do_not_fragment: true,
        })
    } else {
        Network::V6(Ipv6 {
            source: Ipv6Addr::from_bits(context.local_ip),
            destination: Ipv6Addr::from_bits(context.destination_ip),
            traffic_class: context.tos,
            flow_label: context.flow_label,
            hop_limit: context.ttl,
        })
    };
    Path {
        destination: MacAddress([0; 6]),
        source: MacAddress(context.source_mac),
        vlan: context.insert_vlan.then_some(context.vlan_tag),
        network,
        source_port: context.source_port,
        udp_checksum: UdpChecksum::Absent,
    }
}
