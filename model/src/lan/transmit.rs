//! Transmit queues: from descriptors to a packet and its offloads.

use super::flow_director::Programming;
use super::headers::TAG_BYTES;
use super::offload::{Ip, Layer4, Offload, Segmentation, Tunnel};
use super::ring::{Descriptor, Ring};
use super::switching::Destination;
use crate::chip::Context;
use crate::strict::Ledger;
use ringside_bus::{DmaSpace, Iova};
use ringside_spec::lan::registers::clock::phy::TRANSMIT_STAMPS;
use ringside_spec::lan::transmit::{
    ContextCommand, DESCRIPTOR_BYTES, DataCommand, FRAME_BYTES_MIN, FilterAction, FilterIdentity,
    MAX_BUFFER_BYTES, MAX_DESCRIPTORS_PER_PACKET, MAX_RING, OLD_CHECK_SEQUENCE, RING_MIN,
    RING_MULTIPLE, TransmitContext, Tunneling, destination, inner_ip, kind, layer_4, outer_ip,
    tunnel,
};

/// The most descriptors of a packet that is segmented: a bound of the model.
const MAX_DESCRIPTORS: usize = 512;

/// Longest frame, with frame check sequence.
pub(super) const MAX_FRAME_BYTES: usize = ringside_spec::lan::admin::link::MAX_FRAME_BYTES as usize;

/// Words of a descriptor.
const DESCRIPTOR_WORDS: usize = DESCRIPTOR_BYTES / 8;

/// Bits of the descriptor of a packet of one buffer that is sent as it is.
const PLAIN_BITS: u64 = DataCommand::END_OF_PACKET_MASK
    | DataCommand::REPORT_STATUS_MASK
    | DataCommand::BUFFER_BYTES_MASK;

/// Bits in which the data descriptors of a packet may differ.
/// Source: ice `ice_txrx.c`, `ice_tx_map`; DPDK `ice_rxtx.c`, `ice_xmit_pkts`.
const OWN_BITS: u64 = PLAIN_BITS | OLD_CHECK_SEQUENCE;

/// Most bytes of it: there is room for the frame check sequence.
const MAX_PLAIN_BYTES: u64 = MAX_FRAME_BYTES as u64 - 4;

/// Type of the tag that `l2tag1` becomes.
const CUSTOMER_TAG: u16 = 0x8100;

/// Type of the tag that `l2tag2` becomes, unless the VSI names another one.
const SERVICE_TAG: u16 = 0x88A8;

/// A transmit queue that the firmware added.
pub(super) struct TransmitQueue {
    pub(super) number: u16,
    /// Tells it from one before it under the same number.
    pub(super) serial: u64,
    pub(super) context: TransmitContext,
    ring: Ring<DESCRIPTOR_WORDS>,
    head: u16,
    tail: u16,
    /// The driver broke the interface, and the queue does nothing more; or a packet is not
    /// complete, until the doorbell rings again.
    stopped: Option<Stop>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    ForEver,
    UntilDoorbell,
}

/// Kinds of events of the detection of malicious drivers. The numbers are the model's own: the
/// card's are not public.
mod malicious {
    pub(super) const DESCRIPTOR: u8 = 1;
    pub(super) const FRAME_LENGTH: u8 = 2;
    pub(super) const TOO_MANY_BUFFERS: u8 = 3;
}

/// One packet of the ring. It is filled again and again: nothing is allocated for a packet.
#[derive(Clone, Debug, Default)]
pub(super) struct Packet {
    /// Its bytes; before its first buffer any.
    pub(super) bytes: Vec<u8>,
    /// The changes to make to it.
    pub(super) offload: Offload,
    /// The destination that the driver requested.
    pub(super) destination: Destination,
    /// It programs a filter and is not sent.
    pub(super) dummy: bool,
    /// The filter that it programs.
    pub(super) programming: Option<Programming>,
    /// The detection of malicious drivers stops its queue, with this kind of event.
    pub(super) malformed: Option<u8>,
    /// Index of the time stamp that it is to get where it leaves.
    pub(super) stamp: Option<u8>,
    /// Descriptors of the packet that request a report.
    reports: Vec<u16>,
    /// The bits that all data descriptors share, as the first has them.
    shared: u64,
    /// Bytes of each data descriptor.
    buffers: Vec<usize>,
    /// The sum of `buffers`.
    length: usize,
}

/// One descriptor as it lies in memory.
#[derive(Clone, Copy, Debug)]
struct Raw {
    low: u64,
    high: u64,
}

impl TransmitQueue {
    /// A queue as its context describes it; a breach if that makes no sense.
    pub(super) fn new(
        number: u16,
        serial: u64,
        bytes: &[u8; TransmitContext::SIZE],
        ledger: &mut Ledger,
    ) -> Self {
        let queue = TransmitContext::decode(bytes);
        let length = queue.ring_length;
        let fits = (RING_MIN..=MAX_RING).contains(&length) && length.is_multiple_of(RING_MULTIPLE);
        if !fits || TransmitContext::has_reserved_bits(bytes) || queue.head_write_back {
            ledger.breach("context of a transmit queue that is not possible", || {
                format!("queue {number}: {queue:?}")
            });
        }
        Self {
            number,
            serial,
            ring: Ring::new(Iova(queue.base_in_128_bytes << 7), length),
            context: queue,
            head: 0,
            tail: 0,
            stopped: (length == 0 || !fits).then_some(Stop::ForEver),
        }
    }

    /// The doorbell: the first descriptor that is not filled.
    pub(super) fn ring(&mut self, tail: u32, context: &mut Context<'_>) {
        let length = self.context.ring_length;
        match u16::try_from(tail) {
            Ok(tail) if tail < length => self.tail = tail,
            _ => context
                .ledger
                .breach("transmit doorbell beyond the ring", || {
                    format!("{tail} of {length}")
                }),
        }
        if self.stopped == Some(Stop::UntilDoorbell) {
            self.stopped = None;
        }
    }

    /// True if there are descriptors to work on.
    pub(super) fn has_work(&self) -> bool {
        self.head != self.tail && self.stopped.is_none()
    }

    /// The first byte of its ring.
    pub(super) const fn base(&self) -> Iova {
        self.ring.base()
    }

    /// The descriptor that is worked on next.
    pub(super) const fn head(&self) -> u16 {
        self.head
    }

    #[inline]
    fn fetch(&self, index: u16, memory: &DmaSpace) -> Option<Raw> {
        let descriptor = self.ring.descriptor(index, memory).ok()?;
        Some(Raw {
            low: descriptor.load(0),
            high: descriptor.load(1),
        })
    }

    /// Fills `frame` with the next packet, if that is one buffer without any offload in which
    /// nothing is wrong, and reports it. Returns true if the driver requested the report. `None`,
    /// and nothing has happened, for all other packets: [`TransmitQueue::next_packet`] takes them.
    #[inline]
    pub(super) fn next_plain(&mut self, frame: &mut Vec<u8>, memory: &DmaSpace) -> Option<bool> {
        self.ring.resolve(memory);
        let descriptor = Descriptor::Known(self.ring.known(self.head)?);
        let command = DataCommand(descriptor.load(1));
        let plain = command.0 & !PLAIN_BITS == 0 && command.end_of_packet();
        let bytes = command.buffer_bytes();
        let fits = (FRAME_BYTES_MIN..=MAX_PLAIN_BYTES).contains(&bytes);
        if !plain || !fits || !self.has_work() {
            return None;
        }
        frame.resize(bytes as usize, 0);
        if !memory.read_plainly(Iova(descriptor.load(0)), frame) {
            return None;
        }
        if command.report_status() {
            descriptor.store_release(1, DataCommand::DONE.0);
        }
        self.head = self.ring.after(self.head);
        Some(command.report_status())
    }

    /// Fills `packet` with the next one, its bytes read. False: there is none, or it is not
    /// complete, or the queue cannot go on.
    pub(super) fn next_packet(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> bool {
        if !context.memory.is_bus_master() {
            // The driver has cut the device off: it reaches no descriptor.
            return false;
        }
        self.ring.resolve(context.memory);
        packet.begin();
        let mut index = self.head;
        for _ in 0..MAX_DESCRIPTORS {
            if index == self.tail {
                context
                    .ledger
                    .breach("transmit doorbell in the middle of a packet", || {
                        format!("queue {}, descriptor {index}", self.number)
                    });
                self.stopped = Some(Stop::UntilDoorbell);
                return false;
            }
            let Some(raw) = self.fetch(index, context.memory) else {
                self.halt("transmit ring in memory that is not mapped", index, context);
                return false;
            };
            let ended = match DataCommand(raw.high).kind() {
                kind::DATA => match packet.add_data(raw, index, context) {
                    Ok(ended) => ended,
                    Err(what) => {
                        self.halt(what, index, context);
                        return false;
                    }
                },
                kind::CONTEXT => {
                    packet.add_context(raw, context);
                    false
                }
                kind::FILTER => {
                    packet.add_filter(raw, context);
                    false
                }
                _ => {
                    self.halt("transmit descriptor of an unknown type", index, context);
                    context
                        .causes
                        .raise_malicious(self.number, malicious::DESCRIPTOR);
                    return false;
                }
            };
            index = self.ring.after(index);
            if ended {
                self.head = index;
                packet.check(context);
                if packet.stamp.is_some() && !self.context.time_stamp_enable {
                    self.refuse_stamp(packet, context);
                }
                if let Some(kind) = packet.malformed {
                    self.stopped = Some(Stop::ForEver);
                    context.causes.raise_malicious(self.number, kind);
                }
                return true;
            }
        }
        self.halt("packet of too many descriptors", index, context);
        let kind = malicious::TOO_MANY_BUFFERS;
        context.causes.raise_malicious(self.number, kind);
        false
    }

    /// A packet requests a time stamp, and its queue's context has none.
    #[cold]
    fn refuse_stamp(&self, packet: &mut Packet, context: &mut Context<'_>) {
        packet.stamp = None;
        context
            .ledger
            .breach("time stamp from a queue that does not have any", || {
                format!("queue {}", self.number)
            });
    }

    #[cold]
    fn halt(&mut self, what: &'static str, index: u16, context: &mut Context<'_>) {
        self.stopped = Some(Stop::ForEver);
        let number = self.number;
        if context.memory.is_refusing() {
            return context.raise_pci_exception();
        }
        context
            .ledger
            .breach(what, || format!("queue {number}, descriptor {index}"));
    }

    /// Reports to the driver that a packet is done; true if a descriptor requested it.
    pub(super) fn report(&self, packet: &Packet, memory: &DmaSpace) -> bool {
        for index in &packet.reports {
            if let Ok(descriptor) = self.ring.descriptor(*index, memory) {
                descriptor.store_release(1, DataCommand::DONE.0);
            }
        }
        !packet.reports.is_empty()
    }
}

impl Packet {
    /// Forgets the packet before.
    fn begin(&mut self) {
        self.offload = Offload::default();
        self.destination = Destination::default();
        self.dummy = false;
        self.programming = None;
        self.malformed = None;
        self.stamp = None;
        self.reports.clear();
        self.buffers.clear();
        self.length = 0;
    }

    /// Takes a buffer; true if it is the packet's last. An error names what the queue cannot
    /// survive.
    fn add_data(
        &mut self,
        raw: Raw,
        index: u16,
        context: &mut Context<'_>,
    ) -> Result<bool, &'static str> {
        let command = DataCommand(raw.high);
        if raw.high & DataCommand::RESERVED & !OLD_CHECK_SEQUENCE != 0 {
            context
                .ledger
                .breach("reserved bit set in a transmit descriptor", || {
                    format!("{:#018x}", raw.high)
                });
        }
        let bytes = command.buffer_bytes();
        if bytes == 0 || bytes > MAX_BUFFER_BYTES {
            context
                .ledger
                .breach("transmit descriptor without a buffer", || {
                    format!("descriptor {index}: {bytes} bytes")
                });
        }
        let start = self.length;
        self.length += bytes as usize;
        self.bytes.resize(self.length, 0);
        let place = self.bytes.get_mut(start..).unwrap_or_default();
        let at = Iova(raw.low);
        if !context.memory.read_plainly(at, place) && context.memory.read(at, place).is_err() {
            return Err("transmit buffer in memory that is not mapped");
        }
        self.buffers.push(bytes as usize);
        if command.report_status() {
            self.reports.push(index);
        }
        let shared = raw.high & !OWN_BITS;
        if self.buffers.len() == 1 {
            self.shared = shared;
            self.take_command(command, context);
        } else if shared != self.shared {
            let kind = "data descriptors of one packet with different commands";
            context.ledger.breach(kind, || format!("{command:?}"));
        }
        Ok(command.end_of_packet())
    }

    /// The command of the first data descriptor; the others repeat it.
    fn take_command(&mut self, command: DataCommand, context: &mut Context<'_>) {
        self.dummy = command.dummy();
        let offload = &mut self.offload;
        offload.layer_2_bytes = command.layer_2_length_2() as usize * 2;
        offload.ip_bytes = command.ip_length_4() as usize * 4;
        offload.layer_4_bytes = command.layer_4_length_4() as usize * 4;
        offload.ip = match command.inner_ip() {
            inner_ip::V6 => Ip::V6,
            inner_ip::V4 => Ip::V4 { checksum: false },
            inner_ip::V4_CHECKSUM => Ip::V4 { checksum: true },
            _ => Ip::None,
        };
        offload.layer_4 = match command.layer_4() {
            layer_4::TCP => Layer4::Tcp,
            layer_4::SCTP => Layer4::Sctp,
            layer_4::UDP => Layer4::Udp,
            _ => Layer4::None,
        };
        if offload.ip == Ip::None && offload.layer_4 != Layer4::None {
            context
                .ledger
                .breach("layer 4 checksum without an IP header", || {
                    format!("{command:?}")
                });
        }
        if command.insert_l2tag1() {
            let [_, inner] = &mut offload.tags;
            *inner = Some((CUSTOMER_TAG, command.l2tag1() as u16));
        }
    }

    fn add_filter(&mut self, raw: Raw, context: &mut Context<'_>) {
        let programming = Programming {
            action: FilterAction(raw.low),
            identity: FilterIdentity(raw.high),
        };
        if !self.buffers.is_empty() || self.programming.is_some() {
            context
                .ledger
                .breach("filter descriptor in the middle of a packet", || {
                    format!("{programming:?}")
                });
        }
        self.programming = Some(programming);
    }

    fn add_context(&mut self, raw: Raw, context: &mut Context<'_>) {
        let command = ContextCommand(raw.high);
        let tunneling = Tunneling(raw.low as u32);
        if !self.buffers.is_empty() {
            context
                .ledger
                .breach("context descriptor in the middle of a packet", || {
                    format!("{command:?}")
                });
        }
        let reserved = raw.high & ContextCommand::RESERVED != 0
            || tunneling.0 & Tunneling::RESERVED != 0
            || raw.low >> 48 != 0;
        if reserved {
            context
                .ledger
                .breach("reserved bit set in a transmit context descriptor", || {
                    format!("{:#018x} {:#018x}", raw.low, raw.high)
                });
        }
        if command.segmentation() {
            self.offload.segmentation = Some(Segmentation {
                payload_bytes: command.payload_bytes() as usize,
                segment_bytes: command.segment_bytes() as usize,
            });
        }
        if command.time_stamp() {
            self.add_stamp(command, context);
        }
        if command.insert_l2tag2() {
            let [outer, _] = &mut self.offload.tags;
            *outer = Some((SERVICE_TAG, (raw.low >> 32) as u16));
        }
        if tunneling.outer_checksum() && tunneling.kind() != tunnel::UDP {
            // Source: DPDK `ice_rxtx.c`, ice_parse_tunneling_params.
            let kind = "checksum of an outer UDP header that is none";
            context.ledger.breach(kind, || format!("{tunneling:?}"));
        }
        self.offload.tunnel = outer_headers(tunneling);
        self.destination = match command.destination() {
            destination::UPLINK => Destination::Uplink,
            destination::LOCAL => Destination::Local,
            destination::VSI => Destination::Vsi(command.segment_bytes() as u16),
            _ => Destination::Switch,
        };
    }

    /// The index of a time stamp takes the place of the payload's length.
    fn add_stamp(&mut self, command: ContextCommand, context: &mut Context<'_>) {
        let index = u8::try_from(command.payload_bytes()).ok();
        self.stamp = index.filter(|index| *index < TRANSMIT_STAMPS && !command.segmentation());
        if self.stamp.is_none() {
            context
                .ledger
                .breach("time stamp that is not possible", || format!("{command:?}"));
        }
    }

    /// Limits that the card has; a driver that breaks them is stopped by its detection of
    /// malicious drivers.
    fn check(&mut self, context: &mut Context<'_>) {
        if self.programming.is_some() != self.dummy {
            context.ledger.breach(
                "filter descriptor and packet do not belong together",
                || format!("{:?}, dummy {}", self.programming, self.dummy),
            );
        }
        let length = self.bytes.len();
        let buffers = match &self.offload.segmentation {
            None => self.buffers.len(),
            Some(cut) => self.buffers_of_a_segment(cut),
        };
        if buffers > usize::from(MAX_DESCRIPTORS_PER_PACKET) {
            context
                .ledger
                .breach("frame gathered from more than 8 buffers", || {
                    format!("{buffers} buffers")
                });
            self.malformed = Some(malicious::TOO_MANY_BUFFERS);
        }
        let tags = self.offload.tags.iter().flatten().count() * TAG_BYTES;
        // Room for the frame check sequence.
        let too_long = self.offload.segmentation.is_none() && length + tags + 4 > MAX_FRAME_BYTES;
        if (length as u64) < FRAME_BYTES_MIN || too_long {
            context
                .ledger
                .breach("frame too short or too long to be sent", || {
                    format!("{length} bytes")
                });
            self.malformed = Some(malicious::FRAME_LENGTH);
        }
    }

    /// Most buffers that one segment is gathered from, the headers counted with each.
    fn buffers_of_a_segment(&self, cut: &Segmentation) -> usize {
        let headers = self.offload.header_bytes();
        let mut end = 0;
        let ends: Vec<usize> = self
            .buffers
            .iter()
            .map(|bytes| {
                end += bytes;
                end
            })
            .collect();
        let buffer_of = |byte: usize| ends.partition_point(|end| *end <= byte);
        let header_buffers = 1 + buffer_of(headers.saturating_sub(1));
        let step = cut.segment_bytes.max(1);
        let starts = (headers..self.bytes.len()).step_by(step);
        let most = starts
            .map(|start| {
                let last = (start + step).min(self.bytes.len()) - 1;
                let (first, last) = (buffer_of(start), buffer_of(last));
                let shared = usize::from(first < header_buffers);
                header_buffers + (last + 1 - first) - shared
            })
            .max();
        most.unwrap_or(header_buffers)
    }
}

fn outer_headers(tunneling: Tunneling) -> Option<Tunnel> {
    let ip = match tunneling.outer_ip() {
        outer_ip::V6 => Ip::V6,
        outer_ip::V4 => Ip::V4 { checksum: false },
        outer_ip::V4_CHECKSUM => Ip::V4 { checksum: true },
        _ => return None,
    };
    Some(Tunnel {
        ip,
        ip_bytes: tunneling.outer_ip_length_4() as usize * 4,
        udp: tunneling.kind() == tunnel::UDP,
        bytes: tunneling.length_2() as usize * 2,
        keep_identification: tunneling.keep_ip_id(),
        checksum: tunneling.outer_checksum() && tunneling.kind() == tunnel::UDP,
    })
}
