//! One engine with one VSI, one transmit and one receive queue, and the memory of its driver.

use crate::chip::Profiles;
use crate::chip::{Causes, Context, QueueCause};
use crate::lan::classes::FrameClasses;
use crate::lan::switching::{Forward, Match, Tables, Vsi};
use crate::lan::words::{ByType, FilterProfile, FilterWord};
use crate::lan::{LanCounters, LanEngine};
use crate::packet::MacAddress;
use crate::strict::Ledger;
use ringside_bus::function::DmaAccess;
use ringside_bus::{DmaSpace, Instant, Iova, Memory, PageSize};
use ringside_spec::lan::receive::{FlexDescriptor, PacketLength, ReceiveContext, Status0, profile};
use ringside_spec::lan::registers::queues::DescriptorProfile;
use ringside_spec::lan::transmit::{ContextCommand, DataCommand, TransmitContext};

pub(super) const FUNCTION_MAC: [u8; 6] = [2, 0xE8, 0x10, 0, 0, 1];
pub(super) const VSI: u16 = 16;
pub(super) const TRANSMIT_QUEUE: u16 = 3;
pub(super) const RECEIVE_QUEUE: u16 = 5;
pub(super) const BUFFER_BYTES: usize = 2048;
pub(super) const MAX_FRAME: usize = 5000;

const ENTRIES: u16 = 64;
const BASE: u64 = 0x10_0000;
const BYTES: usize = 1 << 20;
const TRANSMIT_RING: u64 = BASE;
pub(super) const RECEIVE_RING: u64 = BASE + 0x1000;
pub(super) const RECEIVE_BUFFERS: u64 = BASE + 0x2000;
/// Address of the buffers for sending.
pub(super) const BUFFERS: u64 = BASE + 0x4_0000;

pub(super) struct Rig {
    pub(super) engine: LanEngine,
    pub(super) vsi: Vsi,
    pub(super) space: DmaSpace,
    ledger: Ledger,
    causes: Causes,
    tail: u16,
    buffer: u64,
    /// the receive queue is enabled with time stamps
    pub(super) stamps: bool,
    /// Its transmit queue stamps packets, from the next time that it is added.
    pub(super) stamps_sent: bool,
    /// double VLAN mode
    pub(super) service_tags: bool,
    pub(super) now: Instant,
    /// profile of the receive queue's descriptors
    pub(super) profile: u8,
}

/// The command of a frame's only or last buffer.
pub(super) fn data() -> DataCommand {
    DataCommand::ZERO
        .with_end_of_packet(true)
        .with_report_status(true)
}

/// A frame of `length` bytes with a payload that says where each byte belongs.
pub(super) fn frame_to(destination: [u8; 6], length: usize) -> Vec<u8> {
    let mut frame = destination.to_vec();
    frame.extend([2, 9, 9, 9, 9, 9, 0x12, 0x34]);
    frame.extend((14..length).map(|index| (index % 253) as u8));
    frame
}

/// Makes a frame a UDP datagram over IPv4; `unfinished`: with the sum that drivers leave to the
/// device, else with its checksum.
pub(super) fn make_udp(frame: &mut [u8], unfinished: bool) {
    let length = frame.len();
    frame[12..34].copy_from_slice(&[
        8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    let header = super::super::bytes::Sum::default().bytes(&frame[14..34]);
    frame[24..26].copy_from_slice(&header.checksum().to_be_bytes());
    frame[34..42].copy_from_slice(&[0x10, 0, 0x20, 0, 0, 0, 0, 0]);
    frame[38..40].copy_from_slice(&((length - 34) as u16).to_be_bytes());
    let pseudo = super::super::bytes::Sum::default()
        .bytes(&frame[26..34])
        .number(17);
    // Segmentation leaves the length out; everything else puts it in.
    let segmented = length > 2000;
    let pseudo = pseudo.number(if segmented { 0 } else { (length - 34) as u32 });
    let sum = if unfinished {
        pseudo.folded()
    } else {
        pseudo.bytes(&frame[34..]).checksum()
    };
    frame[40..42].copy_from_slice(&sum.to_be_bytes());
}

impl Rig {
    pub(super) fn new() -> Self {
        let memory = Memory::allocate(BYTES, PageSize::FourKiB, None).unwrap();
        let mut space = DmaSpace::new();
        space.set_bus_master(true);
        assert!(space.map(Iova(BASE), &memory, 0, BYTES, DmaAccess::ReadWrite));
        let mut rig = Self {
            engine: LanEngine::default(),
            vsi: Vsi {
                number: VSI,
                lan: true,
                sends_tagged: true,
                sends_untagged: true,
                queues: vec![RECEIVE_QUEUE],
                ..Vsi::default()
            },
            space,
            ledger: Ledger::default(),
            causes: Causes::default(),
            tail: 0,
            stamps: false,
            stamps_sent: false,
            service_tags: false,
            now: Instant(0),
            profile: profile::NIC,
            buffer: BUFFERS,
        };
        rig.configure(1);
        let context = ReceiveContext {
            base_in_128_bytes: RECEIVE_RING >> 7,
            ring_length: ENTRIES,
            data_buffer_in_128_bytes: (BUFFER_BYTES / 128) as u8,
            descriptors_of_32_bytes: true,
            strip_crc: true,
            tag_in_l2tag1: true,
            frame_bytes_max: MAX_FRAME as u16,
            ..ReceiveContext::zeroed()
        };
        rig.enable_receive(context.dwords(), 0);
        for index in 0..ENTRIES {
            rig.free(index);
        }
        rig
    }

    /// Each packet of the parser has a filter profile, and the VSI may program filters.
    pub(super) fn filter_everything(&mut self) {
        let mut profiles = Profiles::default();
        let mut vectors = vec![1, 0, 0, 0];
        for word in 0..24u8 {
            vectors.extend([
                [1, 9, 16, 32, 40, 49, 53, 255][usize::from(word % 8)],
                2 * word,
                0,
                0,
            ]);
        }
        // One row that everything fits.
        let mut row = vec![1, 0, 0, 0];
        row.extend([0xFF; 10]);
        row.push(0);
        profiles.apply(36, &vectors).unwrap();
        profiles.apply(34, &row).unwrap();
        self.vsi.filters_enabled = true;
        self.vsi.filters_programmed = true;
        self.vsi.filters = ByType::of(&profiles.flow_director, VSI, |number, words| {
            let words = words.iter().map(|word| FilterWord {
                received: *word,
                programmed: *word,
                mask: 0xFF,
            });
            FilterProfile {
                number,
                words: words.collect(),
            }
        });
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut LanEngine, &mut Context<'_>) -> T) -> T {
        let result = self.within_burst(work);
        self.engine.write_back();
        result
    }

    /// The same in a burst that goes on: descriptors are not written back yet.
    fn within_burst<T>(&mut self, work: impl FnOnce(&mut LanEngine, &mut Context<'_>) -> T) -> T {
        let mut context = Context {
            now: self.now,
            memory: &self.space,
            ledger: &mut self.ledger,
            faults: &[],
            causes: &mut self.causes,
        };
        work(&mut self.engine, &mut context)
    }

    /// Hands over the tables, and the transmit queue under a serial number.
    pub(super) fn configure(&mut self, serial: u64) {
        self.configure_transmit(Some(serial));
    }

    /// The same without the transmit queue.
    pub(super) fn remove_transmit(&mut self) {
        self.configure_transmit(None);
    }

    fn configure_transmit(&mut self, serial: Option<u64>) {
        let own = Forward {
            what: Match::Address(MacAddress(FUNCTION_MAC)),
            sender: Some(VSI),
            targets: [VSI].into(),
            drop: false,
            loopback: true,
            lan: false,
        };
        let tables = Tables {
            vsis: vec![self.vsi.clone()],
            forwards: vec![own],
            vlans: Vec::new(),
            filter_room: usize::MAX,
            service_tags: self.service_tags,
            classes: FrameClasses::One,
        };
        let context = TransmitContext {
            base_in_128_bytes: TRANSMIT_RING >> 7,
            ring_length: ENTRIES,
            vsi: VSI,
            time_stamp_enable: self.stamps_sent,
            ..TransmitContext::zeroed()
        };
        let queue = serial.map(|serial| (TRANSMIT_QUEUE, serial, context.encode()));
        let queues = &mut queue.into_iter();
        self.engine.configure(tables, queues, &mut self.ledger);
    }

    pub(super) fn enable_receive(&mut self, dwords: [u32; ReceiveContext::DWORDS], tail: u32) {
        let layout = DescriptorProfile::ZERO
            .with_profile(self.profile.into())
            .with_time_stamp(self.stamps);
        self.with(|engine, context| {
            engine.enable_receive(RECEIVE_QUEUE.into(), dwords, layout, tail, context);
        });
    }

    pub(super) fn disable_receive(&mut self) {
        self.engine.disable_receive(RECEIVE_QUEUE.into());
    }

    /// Takes all memory away from the device.
    pub(super) fn unmap(&mut self) {
        assert_eq!(self.space.unmap(Iova(BASE), BYTES as u64), 1);
    }

    /// Gives the device other memory at the same addresses, with empty receive descriptors.
    pub(super) fn remap(&mut self) {
        self.unmap();
        let memory = Memory::allocate(BYTES, PageSize::FourKiB, None).unwrap();
        let access = DmaAccess::ReadWrite;
        assert!(self.space.map(Iova(BASE), &memory, 0, BYTES, access));
        for index in 0..ENTRIES {
            self.free(index);
        }
    }

    pub(super) fn set_transmit(&mut self, index: u16, low: u64, high: u64) {
        let at = Iova(TRANSMIT_RING + u64::from(index) * 16);
        self.space.write_words(at, &[low, high]).unwrap();
    }

    pub(super) fn transmit_word(&self, index: u16) -> u64 {
        let at = Iova(TRANSMIT_RING + u64::from(index) * 16);
        let [_, high] = self.space.read_words::<2>(at).unwrap();
        high
    }

    pub(super) fn ring(&mut self, tail: u32) {
        self.ring_queue(TRANSMIT_QUEUE.into(), tail);
    }

    pub(super) fn ring_queue(&mut self, queue: u32, tail: u32) {
        self.with(|engine, context| engine.ring(queue, tail, context));
    }

    /// Posts a buffer at an address and rings.
    pub(super) fn post_at(&mut self, address: u64, bytes: usize, command: DataCommand) {
        self.write_data(address, bytes, command);
        self.ring(self.tail.into());
    }

    fn write_data(&mut self, address: u64, bytes: usize, command: DataCommand) {
        let command = command.with_buffer_bytes(bytes as u64);
        self.set_transmit(self.tail, address, command.0);
        self.tail = (self.tail + 1) % ENTRIES;
    }

    /// Posts bytes as one buffer and rings.
    pub(super) fn post(&mut self, bytes: &[u8], command: DataCommand) {
        self.post_buffers(&[(bytes, command)]);
    }

    /// Posts buffers and rings once.
    pub(super) fn post_buffers(&mut self, buffers: &[(&[u8], DataCommand)]) {
        for (bytes, command) in buffers {
            if self.buffer + 0x4000 > BASE + BYTES as u64 {
                self.buffer = BUFFERS;
            }
            self.space.write(Iova(self.buffer), bytes).unwrap();
            self.write_data(self.buffer, bytes.len(), *command);
            self.buffer += bytes.len() as u64;
        }
        self.ring(self.tail.into());
    }

    /// Posts a context descriptor, without ringing.
    pub(super) fn post_context(&mut self, low: u64, command: ContextCommand) {
        self.set_transmit(self.tail, low, command.0);
        self.tail = (self.tail + 1) % ENTRIES;
    }

    /// All frames that go out now.
    pub(super) fn sent(&mut self) -> Vec<Vec<u8>> {
        self.with(|engine, context| {
            let next = || engine.next_frame(context).map(|frame| frame.bytes);
            std::iter::from_fn(next).collect()
        })
    }

    /// Gives a receive descriptor its buffer.
    pub(super) fn free(&mut self, index: u16) {
        let buffer = RECEIVE_BUFFERS + u64::from(index) * BUFFER_BYTES as u64;
        self.set_buffer(index, buffer);
    }

    pub(super) fn set_buffer(&mut self, index: u16, buffer: u64) {
        let at = Iova(RECEIVE_RING + u64::from(index) * 32);
        self.space.write_words(at, &[buffer, 0, 0, 0]).unwrap();
    }

    /// Writes the receive tail.
    pub(super) fn offer(&mut self, tail: u32) {
        self.with(|engine, context| engine.receive_tail(RECEIVE_QUEUE.into(), tail, context));
    }

    pub(super) fn receive(&mut self, frame: &[u8]) -> bool {
        self.with(|engine, context| engine.receive(frame, context))
    }

    /// Frames from the wire, in one burst: descriptors are written back after the last one.
    pub(super) fn receive_burst(&mut self, frames: &[Vec<u8>]) {
        self.begin_burst(frames);
        self.engine.write_back();
    }

    /// Frames from the wire; the burst goes on.
    pub(super) fn begin_burst(&mut self, frames: &[Vec<u8>]) {
        self.within_burst(|engine, context| {
            for frame in frames {
                assert!(engine.receive(frame, context));
            }
        });
    }

    /// A receive descriptor that was written back, and the bytes in its buffer.
    pub(super) fn received(&self, index: u16) -> Option<(FlexDescriptor, Vec<u8>)> {
        let at = Iova(RECEIVE_RING + u64::from(index) * 32);
        let mut bytes = [0; 32];
        self.space.read(at, &mut bytes).unwrap();
        let descriptor = FlexDescriptor::read(&bytes)?;
        if !Status0(descriptor.status_0.get()).done() {
            return None;
        }
        let length = PacketLength(descriptor.packet_length.get()).bytes();
        let mut packet = vec![0; length.into()];
        let buffer = RECEIVE_BUFFERS + u64::from(index) * BUFFER_BYTES as u64;
        self.space.read(Iova(buffer), &mut packet).unwrap();
        Some((descriptor, packet))
    }

    /// Causes raised since the last call.
    pub(super) fn causes(&mut self) -> Vec<QueueCause> {
        std::mem::take(&mut self.causes.queues)
    }

    pub(super) fn counters(&self) -> &LanCounters {
        self.engine.counters()
    }

    /// The words of a receive descriptor.
    pub(super) fn receive_words(&self, index: u16) -> [u64; 4] {
        let at = Iova(RECEIVE_RING + u64::from(index) * 32);
        self.space.read_words(at).unwrap()
    }

    pub(super) fn remarks(&self) -> Vec<String> {
        let remarks = self.ledger.remarks();
        remarks.into_iter().map(|remark| remark.first).collect()
    }

    pub(super) fn breaches(&self) -> Vec<&'static str> {
        let breaches = self.ledger.breaches();
        breaches.iter().map(|breach| breach.kind).collect()
    }
}
