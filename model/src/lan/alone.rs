//! The engine by itself, with one VSI: a door for the fuzz target `lan`. Everything behind it is
//! private to the model.

use super::classes::FrameClasses;
use super::headers::{Parsed, parse};
use super::switching::{Forward, Match, Tables, TagReceived, VlanMembers, Vsi};
use super::{LanEngine, Scheme, Spreading, hash};
use crate::chip::{Causes, Context};
use crate::packet::MacAddress;
use crate::strict::{Breach, Ledger};
use ringside_bus::{DmaSpace, Instant};
use ringside_spec::lan::receive::ReceiveContext;
use ringside_spec::lan::registers::queues::DescriptorProfile;
use ringside_spec::lan::transmit::TransmitContext;

/// The VSI, and the number of its transmit queue and of its receive queue.
pub const ALONE_NUMBER: u16 = 3;

/// Settings of the VSI.
#[derive(Clone, Debug, Default)]
pub struct AloneSettings {
    /// Its address: it receives frames to it, also its own.
    pub address: [u8; 6],
    /// Tag that sent frames without one get.
    pub port_vlan: Option<u16>,
    /// Tags of received frames: 0 shown, 1 removed, else kept.
    pub tag: u8,
    /// Descriptors may name a destination.
    pub destination_override: bool,
    /// Only frames of VLAN 1 are received and sent.
    pub prune: bool,
    /// Only frames from its own address are sent.
    pub anti_spoof: bool,
    /// Frames are hashed: with this key, and alike in both directions if so.
    pub hash: Option<([u8; 52], bool)>,
}

/// The result of the parser for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AloneHeaders {
    /// See [`ringside_spec::lan::receive::packet_type`].
    pub packet_type: u16,
    /// Type and value of the first tag.
    pub tag: Option<(u16, u16)>,
    /// The checksum of the IPv4 header is wrong.
    pub ip_wrong: bool,
    /// The checksum of layer 4 is wrong.
    pub layer_4_wrong: bool,
    /// The hash, if there is a flow and the VSI hashes.
    pub hash: Option<u32>,
}

/// See the module.
pub struct LanAlone {
    engine: LanEngine,
    vsi: Vsi,
    ledger: Ledger,
    causes: Causes,
}

impl LanAlone {
    /// An engine with a transmit queue that has this context.
    #[must_use]
    pub fn new(settings: &AloneSettings, transmit: &[u8; TransmitContext::SIZE]) -> Self {
        let spreading = settings.hash.map(|(key, symmetric)| Spreading {
            key: key.to_vec(),
            table: vec![0; 64],
            scheme: match symmetric {
                true => Scheme::Symmetric,
                false => Scheme::Toeplitz,
            },
        });
        let vsi = Vsi {
            number: ALONE_NUMBER,
            loopback: true,
            lan: true,
            receive_vlan_prune: settings.prune,
            transmit_vlan_prune: settings.prune,
            anti_spoof: settings.anti_spoof,
            destination_override: settings.destination_override,
            sends_untagged: true,
            sends_tagged: true,
            port_vlan: settings.port_vlan,
            tag_received: match settings.tag {
                0 => TagReceived::Shown,
                1 => TagReceived::Removed,
                _ => TagReceived::Kept,
            },
            queues: vec![ALONE_NUMBER],
            spreading,
            ..Vsi::default()
        };
        let own = Forward {
            what: Match::Address(MacAddress(settings.address)),
            sender: Some(ALONE_NUMBER),
            targets: [ALONE_NUMBER].into(),
            drop: false,
            loopback: true,
            lan: false,
        };
        let members = VlanMembers {
            vlan: 1,
            ingress: true,
            egress: true,
            lan: true,
            members: [ALONE_NUMBER].into(),
        };
        let tables = Tables {
            vsis: vec![vsi.clone()],
            forwards: vec![own],
            vlans: vec![members],
            filter_room: usize::MAX,
            service_tags: true,
            classes: FrameClasses::One,
        };
        let mut bench = Self {
            engine: LanEngine::default(),
            vsi,
            ledger: Ledger::default(),
            causes: Causes::default(),
        };
        let queues = &mut std::iter::once((ALONE_NUMBER, 1, *transmit));
        bench.engine.configure(tables, queues, &mut bench.ledger);
        bench
    }

    fn with<T>(
        &mut self,
        memory: &DmaSpace,
        work: impl FnOnce(&mut LanEngine, &mut Context<'_>) -> T,
    ) -> T {
        let mut context = Context {
            now: Instant(0),
            memory,
            ledger: &mut self.ledger,
            faults: &[],
            causes: &mut self.causes,
        };
        let result = work(&mut self.engine, &mut context);
        self.engine.write_back();
        result
    }

    /// Enables the receive queue with the values of its registers.
    pub fn enable_receive(
        &mut self,
        registers: [u32; ReceiveContext::DWORDS],
        profile: u8,
        tail: u32,
        memory: &DmaSpace,
    ) {
        self.with(memory, |engine, context| {
            let layout = DescriptorProfile::ZERO.with_profile(profile.into());
            engine.enable_receive(ALONE_NUMBER.into(), registers, layout, tail, context);
        });
    }

    /// Writes the receive tail.
    pub fn receive_tail(&mut self, tail: u32, memory: &DmaSpace) {
        self.with(memory, |engine, context| {
            engine.receive_tail(ALONE_NUMBER.into(), tail, context);
        });
    }

    /// Rings the doorbell of the transmit queue.
    pub fn ring(&mut self, tail: u32, memory: &DmaSpace) {
        self.with(memory, |engine, context| {
            engine.ring(ALONE_NUMBER.into(), tail, context);
        });
    }

    /// The next frame for the wire.
    pub fn next_frame(&mut self, memory: &DmaSpace) -> Option<Vec<u8>> {
        let next = self.with(memory, LanEngine::next_frame);
        next.map(|frame| frame.bytes)
    }

    /// Takes a frame from the wire. False: no receiver accepts it.
    pub fn receive(&mut self, frame: &[u8], memory: &DmaSpace) -> bool {
        self.with(memory, |engine, context| engine.receive(frame, context))
    }

    /// The result of the parser for a frame; `None` if it has no Ethernet header.
    #[must_use]
    pub fn parse(&self, frame: &[u8]) -> Option<AloneHeaders> {
        let parsed: Parsed = parse(frame)?;
        // Both schemes of this bench are computed, so there is nothing to count.
        let hash = hash(&self.vsi, frame, &parsed, &mut Ledger::default());
        Some(AloneHeaders {
            packet_type: parsed.packet_type,
            tag: parsed.tag,
            ip_wrong: parsed.checks.ip_wrong,
            layer_4_wrong: parsed.checks.layer_4_wrong,
            hash,
        })
    }

    /// Breaches of the interface by the driver.
    #[must_use]
    pub fn breaches(&self) -> Vec<Breach> {
        self.ledger.breaches()
    }
}
