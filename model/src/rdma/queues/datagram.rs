//! Unreliable datagrams: one packet a message, to the destination of the address handle.
//!
//! A datagram completes once it was sent. Its bytes are therefore copied into the packet, because
//! software may use the sender's memory again at once.

use super::ActiveQueuePair;
use super::receive::Unplaced;
use super::send::LOCAL_WRITE;
use super::transmit::{GatherFault, parts};
use crate::frame::{Frame, MAX_INLINE_BYTES, Payload, Pieces, is_group};
use crate::packet::{
    Datagram, Extension, Ipv4, Ipv6, MacAddress, Network, Opcode, Packet, Path, QpNumber,
    TransportHeaders, UdpChecksum, global_route_header,
};
use crate::rdma::objects::Element;
use crate::rdma::objects::queue_pair::Work;
use crate::roce::{MessageBytes, Operation, Receive, WorkRequest, partition_keys_match};
use ringside_bus::DmaSpace;
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::rdma::commands::{AeSource, CreateAddressHandle, QueuePairType};
use ringside_spec::verbs::send::DatagramHeader;
use ringside_spec::verbs::{
    CompletionElement, CompletionExtension, QueueSide, ReceiveElement, SendElement,
};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes ahead of the payload in a receive buffer: the global route header, or an IPv4 header in
/// the last 20 of them.
/// Source: InfiniBand Architecture Specification, annex A17.4.5.1; rdma-core `ibv_grh`.
const ROUTE_HEADER_BYTES: usize = 40;

/// Longest message where the context gives no path MTU.
const MAX_BYTES: u32 = 4096;

/// The operation in the completion of a datagram: that of no packet, in six bits.
const UNREAD_OPERATION: u8 = 0x3F;

ringside_spec::words! {
    /// A queue key whose top bit is set means the sender's own: InfiniBand Architecture
    /// Specification volume 1, 10.2.5.
    struct QueueKey: u32 {
        own: [31],
    }
}

/// The lower layers of a datagram.
fn path(handle: &CreateAddressHandle, destination: [u8; 6], source_port: u16) -> Path {
    let network = if handle.ipv4 {
        Network::V4(Ipv4 {
            source: Ipv4Addr::from_bits(handle.source_ip as u32),
            destination: Ipv4Addr::from_bits(handle.destination_ip as u32),
            type_of_service: handle.traffic_class,
            time_to_live: handle.hop_limit,
            identification: 0,
            do_not_fragment: true,
        })
    } else {
        Network::V6(Ipv6 {
            source: Ipv6Addr::from_bits(handle.source_ip),
            destination: Ipv6Addr::from_bits(handle.destination_ip),
            traffic_class: handle.traffic_class,
            flow_label: handle.flow_label,
            hop_limit: handle.hop_limit,
        })
    };
    Path {
        destination: MacAddress(destination),
        source: MacAddress(handle.source_mac),
        vlan: handle.insert_vlan.then_some(handle.vlan_tag),
        network,
        source_port,
        udp_checksum: UdpChecksum::Absent,
    }
}

impl ActiveQueuePair<'_, '_> {
    /// Takes a request of a datagram queue pair; it leaves when the wire takes it.
    #[cold]
    pub(super) fn post_datagram(&mut self, request: WorkRequest) -> Result<(), AeCode> {
        let sends = matches!(
            request.operation,
            Operation::Send | Operation::SendWithImmediate(_) | Operation::Local
        );
        if !sends || self.qp.kind != QueuePairType::RoceUnreliableDatagram {
            return Err(AeCode::UnexpectedWqeOpcode);
        }
        let limit = match self.qp.context.send_mss {
            0 => MAX_BYTES,
            bytes => bytes.into(),
        };
        if request.length_bytes > limit {
            return Err(AeCode::DatagramTooLong);
        }
        self.qp.datagrams.push_back(request);
        Ok(())
    }

    /// The next datagram. It is complete with that, as is work without packets ahead of it.
    #[cold]
    pub(super) fn next_datagram(&mut self, into: &mut Frame) -> bool {
        while !self.qp.stopped
            && let Some(&request) = self.qp.datagrams.front()
        {
            if !self.resolve() {
                return false;
            }
            let work = self.qp.work(request.token);
            let made = match request.operation {
                Operation::Local => Ok(None),
                _ => self.datagram(&request, work),
            };
            match made {
                Ok(frame) => {
                    self.qp.datagrams.pop_front();
                    self.complete_send(work);
                    if let Some(frame) = frame {
                        *into = frame;
                        return true;
                    }
                }
                Err(code) => self.fail(code, AeSource::SendQueue, work.index),
            }
        }
        self.drain_completions();
        false
    }

    /// The request's packet; none if its destination has no ARP entry.
    fn datagram(&mut self, request: &WorkRequest, work: Work) -> Result<Option<Frame>, AeCode> {
        let words = self.qp.send.read(work.index.into(), work.quanta.into());
        let element = SendElement::new(words.as_slice()).map_err(|_| AeCode::InvalidWqeFragment)?;
        let (header, to) = (element.datagram_header(), element.datagram_destination());
        let Some((path, loopback)) = self.datagram_path(header)? else {
            return Ok(None);
        };
        let context = &self.qp.context;
        let queue_key = to.queue_key() as u32;
        let datagram = Datagram {
            queue_key: match QueueKey(queue_key).own() {
                true => context.q_key,
                false => queue_key,
            },
            source_qp: QpNumber::new(self.qp.number),
        };
        let (opcode, extension) = match request.operation {
            Operation::SendWithImmediate(immediate) => (
                Opcode::DATAGRAM_WITH_IMMEDIATE,
                Extension::DatagramImmediate(datagram, immediate),
            ),
            _ => (Opcode::DATAGRAM, Extension::Datagram(datagram)),
        };
        let transport = TransportHeaders {
            opcode,
            solicited: request.solicited,
            migrated: true,
            partition_key: context.p_key,
            forward_congestion: false,
            backward_congestion: false,
            destination_qp: QpNumber::new(to.queue_pair() as u32),
            acknowledge_request: false,
            psn: self.qp.datagram_psn,
            extension,
        };
        let payload = self.datagram_payload(request, &element)?;
        self.qp.datagram_psn = self.qp.datagram_psn.plus(1);
        let frame = Frame {
            packet: Packet { path, transport },
            payload,
            packets: 1,
        };
        self.objects.counters.count_sent(&frame);
        if is_group(path.destination) {
            self.objects.counters.count_group_sent(&frame);
            if loopback {
                self.objects.looped_back.push_back(frame.clone());
            }
        }
        Ok(Some(frame))
    }

    /// Destination of the element's address handle, and whether its packets are looped back. None
    /// if the handle's ARP entry does not exist (any more).
    ///
    /// That is no error of the queue pair: Linux deletes the entry of a neighbour that does not
    /// answer while address handles still name it (`irdma_net_event`), also those of queue pair 1,
    /// whose failure ends all connection management until the driver is loaded again. Since 7.x it
    /// takes errors of single datagrams in the completion for a success (reference, section 10).
    fn datagram_path(&mut self, header: DatagramHeader) -> Result<Option<(Path, bool)>, AeCode> {
        let number = header.address_handle() as u32;
        let handle = self.objects.address_handles.get(&number);
        let handle = handle.ok_or(AeCode::InvalidAddressHandle)?;
        if handle.protection_domain != self.qp.context.protection_domain {
            return Err(AeCode::DatagramBadProtectionDomain);
        }
        let Some(destination) = self.objects.arp.get(handle.arp_index) else {
            self.objects.counters.count_no_route(handle.ipv4);
            return Ok(None);
        };
        // Address handles have no port.
        let port = self.qp.context.source_port;
        Ok(Some((path(handle, destination, port), handle.loopback)))
    }

    /// The message's bytes, taken along.
    fn datagram_payload(
        &mut self,
        request: &WorkRequest,
        element: &SendElement<'_>,
    ) -> Result<Payload, AeCode> {
        let length_bytes = request.length_bytes;
        let gathered = if element.header().inline() || length_bytes as usize <= MAX_INLINE_BYTES {
            let message = MessageBytes {
                token: request.token,
                offset_bytes: 0,
                length_bytes,
            };
            let mut payload = Payload::empty();
            self.gather_message(&message, &mut payload)
                .map(|()| payload)
        } else {
            let access = self.local_access(super::send::LOCAL_READ);
            let parts = parts(element.fragments(), 0, length_bytes);
            self.gather_bytes(parts, length_bytes, &access)
        };
        gathered.map_err(|fault| self.gather_code(fault))
    }

    /// Takes a datagram for this queue pair. False if it cannot: a wrong key, no receive request,
    /// or one that is too small. No error is reported, as the unreliable service requires.
    #[cold]
    pub(in crate::rdma) fn receive_datagram(&mut self, frame: &Frame, spaces: &[DmaSpace]) -> bool {
        let headers = &frame.packet.transport;
        let (datagram, immediate) = match headers.extension {
            Extension::Datagram(datagram) => (datagram, None),
            Extension::DatagramImmediate(datagram, value) => (datagram, Some(value)),
            _ => return false,
        };
        let context = &self.qp.context;
        if self.qp.kind != QueuePairType::RoceUnreliableDatagram
            || !self.qp.receives()
            || !partition_keys_match(headers.partition_key, context.p_key)
            || datagram.queue_key != context.q_key
            || !self.resolve()
        {
            return false;
        }
        let mut bytes = vec![0; ROUTE_HEADER_BYTES + frame.payload.length()];
        let (route, payload) = bytes.split_at_mut(ROUTE_HEADER_BYTES);
        route.copy_from_slice(&global_route_header(&frame.packet, frame.payload.length()));
        if frame.read(spaces, payload).is_err() {
            return false;
        }
        let (index, capacity_bytes) = match self.look_at_receive() {
            Receive::Empty => return false,
            Receive::Malformed { code } => {
                let index = self.qp.receive.next() as u16;
                let code = AeCode::from_code(code);
                self.fail(code, AeSource::ReceiveQueue, index);
                return true;
            }
            Receive::Ready {
                token,
                capacity_bytes,
            } => (token as u16, capacity_bytes),
        };
        if bytes.len() as u64 > u64::from(capacity_bytes) {
            return false;
        }
        if let Err(unplaced) = self.place_datagram(&bytes) {
            let code = match unplaced {
                Unplaced::Gather(fault) => self.gather_code(fault),
                Unplaced::Target | Unplaced::Source | Unplaced::OwnerEnded => AeCode::InvalidStag,
            };
            self.fail(code, AeSource::ReceiveQueue, index);
            return true;
        }
        self.qp.receive.advance(self.qp.receive_quanta);
        self.objects.counters.sends_received += 1;
        self.complete_datagram(frame, datagram.source_qp, immediate, index, bytes.len());
        true
    }

    /// Writes route header and payload to the receive request that was read last.
    fn place_datagram(&mut self, bytes: &[u8]) -> Result<(), Unplaced> {
        let access = self.local_access(LOCAL_WRITE);
        let words = self.qp.open_receive.words;
        let Some(element) = ReceiveElement::new(&words) else {
            return Err(Unplaced::Gather(GatherFault::Element));
        };
        let mut left = bytes;
        for part in parts(element.fragments(), 0, bytes.len() as u32) {
            let mut pieces = Pieces::new();
            match self.locate(&part, &access, &mut pieces) {
                Ok(true) => {}
                Ok(false) => return Err(Unplaced::Gather(GatherFault::Element)),
                Err(fault) => return Err(Unplaced::Gather(fault)),
            }
            for &(at, length) in pieces.as_slice() {
                let Some((here, rest)) = left.split_at_checked(length as usize) else {
                    return Err(Unplaced::Gather(GatherFault::Element));
                };
                left = rest;
                if let Err(fault) = self.context.memory.write(at, here) {
                    crate::rdma::access::unreached(self.context, "received datagram", fault);
                    return Err(Unplaced::at_target(fault));
                }
            }
        }
        Ok(())
    }

    fn complete_datagram(
        &mut self,
        frame: &Frame,
        source_qp: QpNumber,
        immediate: Option<u32>,
        index: u16,
        length: usize,
    ) {
        let path = &frame.packet.path;
        let headers = &frame.packet.transport;
        let [a, b, c, d, e, f] = path.source.0;
        let extension = CompletionExtension {
            immediate,
            source_mac: Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f])),
            vlan_tag: path.vlan,
        };
        let element = CompletionElement {
            payload_bytes: length as u32,
            // No driver reads it, so that the value of a card is not known.
            operation: UNREAD_OPERATION,
            extended: true,
            invalidated_or_ipv4: matches!(path.network, Network::V4(_)),
            invalidated_or_source: source_qp.value(),
            solicited: headers.solicited,
            ..CompletionElement::success(
                QueueSide::Receive,
                self.qp.context.completion_context,
                self.qp.number,
                index,
            )
        };
        let element = Element {
            words: element.encode(false),
            extension: Some(extension.encode(false)),
            notable: headers.solicited,
        };
        self.objects
            .complete(self.qp.receive_cq, &element, self.context);
    }
}
