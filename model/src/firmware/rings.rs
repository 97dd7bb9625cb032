//! The rings of the control queues: their registers, and moving descriptors.

use super::command::Command;
use crate::chip::Context;
use crate::reset_kind::ResetKind;
use ringside_bus::{DmaFault, Iova};
use ringside_spec::lan::admin::{
    BUFFER_SIZE, DESCRIPTOR_SIZE, Descriptor, DescriptorFlags, LARGE_BUFFER_BYTES,
};
use ringside_spec::lan::registers::control_queues::{
    RING_ALIGNMENT, RINGS, RingIndex, RingLength, RingRegister,
};
use zerocopy::{FromBytes, IntoBytes};

/// One ring as its registers have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ring {
    base_low: u32,
    base_high: u32,
    length: u32,
    head: u32,
    tail: u32,
    /// A descriptor could not be fetched, the firmware keeps silent, or the driver took the head:
    /// nothing moves any more until the length is written.
    stalled: bool,
    /// memory of it could not be reached, since the length was written
    failed: bool,
    /// the driver took the head while the ring was on
    taken: bool,
}

/// A ring, as an index into [`RINGS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    AdminSend = 0,
    AdminReceive = 1,
    MailboxSend = 2,
    SidebandSend = 4,
}

/// The effect of a write on the admin send ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switched {
    /// none: it is on or off as before, or another ring was meant
    Not,
    On,
    /// switched off, or set up anew while it was on
    Off,
}

/// All rings of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rings {
    rings: [Ring; RINGS.len()],
}

impl Ring {
    fn length(&self) -> RingLength {
        RingLength(self.length)
    }

    fn entries(&self) -> u32 {
        self.length().entries()
    }

    pub(super) fn enabled(&self) -> bool {
        self.length().enable() && self.entries() > 0
    }

    fn waiting(&self) -> bool {
        self.head != self.tail && self.enabled() && !self.stalled
    }

    fn address_of(&self, index: u32) -> Iova {
        let base = u64::from(self.base_high) << 32 | u64::from(self.base_low);
        Iova(base).add(u64::from(index) * DESCRIPTOR_SIZE as u64)
    }

    fn value(&self, register: RingRegister) -> u32 {
        match register {
            RingRegister::BaseLow => self.base_low,
            RingRegister::BaseHigh => self.base_high,
            RingRegister::Length => self.length,
            RingRegister::Head => self.head,
            RingRegister::Tail => self.tail,
        }
    }

    fn fail(&mut self) {
        self.length = self.length().with_critical_error(true).0;
        self.stalled = true;
        self.failed = true;
    }

    /// True if head and tail lie in the ring. Drivers zero both before they write the length.
    /// Source: ice `ice_controlq.c`, `ice_cfg_cq_regs`.
    fn holds_its_indices(&self) -> bool {
        self.head < self.entries() && self.tail < self.entries()
    }

    /// Writes the length; true if that sets the ring up anew without switching it off.
    fn write_length(&mut self, value: u32, offset: u64, context: &mut Context<'_>) -> bool {
        let new = RingLength(value);
        if value & RingLength::RESERVED != 0 || new.enable() && new.entries() == 0 {
            let kind = "control queue length not valid";
            let ledger = &mut context.ledger;
            ledger.breach(kind, || format!("{value:#x} to {offset:#x}"));
        }
        let was_enabled = self.enabled();
        self.length = value & RingLength::DEFINED;
        // A write that only clears error bits does not start the ring again. A driver that finds
        // the ring of another one on, after a reset of the function, sets it up anew without
        // switching it off: head, tail, length.
        let restarted = was_enabled && self.enabled() && self.taken;
        if restarted || !(was_enabled && self.enabled()) {
            self.stalled = false;
            self.failed = false;
            self.taken = false;
        }
        if self.enabled() && !self.holds_its_indices() {
            let kind = "control queue enabled with head or tail beyond the ring";
            let ledger = &mut context.ledger;
            ledger.breach(kind, || format!("{self:?}, {value:#x} to {offset:#x}"));
            // The head would never come to the tail.
            self.fail();
        }
        restarted
    }

    fn advance(&mut self) {
        let next = self.head + 1;
        self.head = if next >= self.entries() { 0 } else { next };
    }
}

impl Rings {
    fn position(offset: u64) -> Option<(usize, RingRegister)> {
        let rings = RINGS.iter().enumerate();
        let mut found = rings.filter_map(|(ring, all)| Some((ring, all.register_at(offset)?)));
        found.next()
    }

    pub(super) fn get(&self, which: Which) -> Ring {
        self.rings.get(which as usize).copied().unwrap_or_default()
    }

    fn get_mut(&mut self, which: Which) -> &mut Ring {
        // `Which` names places of the array
        let [admin_send, admin_receive, mailbox_send, _, sideband_send, _] = &mut self.rings;
        match which {
            Which::AdminSend => admin_send,
            Which::AdminReceive => admin_receive,
            Which::MailboxSend => mailbox_send,
            Which::SidebandSend => sideband_send,
        }
    }

    pub(super) fn read(&self, offset: u64) -> Option<u32> {
        let (ring, register) = Self::position(offset)?;
        Some(self.rings.get(ring)?.value(register))
    }

    /// Writes a register; `None` if it is not one of a ring.
    pub(super) fn write(
        &mut self,
        offset: u64,
        value: u32,
        context: &mut Context<'_>,
    ) -> Option<Switched> {
        let (number, register) = Self::position(offset)?;
        let ring = self.rings.get_mut(number)?;
        let was_enabled = ring.enabled();
        let mut restarted = false;
        match register {
            RingRegister::BaseLow => {
                let low = (RING_ALIGNMENT - 1) as u32;
                if value & low != 0 {
                    context
                        .ledger
                        .breach("control queue base not aligned to 64 bytes", || {
                            format!("{value:#x} to {offset:#x}")
                        });
                }
                ring.base_low = value & !low;
            }
            RingRegister::BaseHigh => ring.base_high = value,
            RingRegister::Length => restarted = ring.write_length(value, offset, context),
            RingRegister::Head => {
                // Drivers zero the indices of a ring before they switch it off: what lies between
                // them then is no work.
                ring.stalled |= was_enabled;
                ring.taken |= was_enabled;
                ring.head = value & RingIndex::DEFINED;
            }
            RingRegister::Tail => {
                if ring.enabled() && value >= ring.entries() {
                    context
                        .ledger
                        .breach("control queue tail beyond the ring", || {
                            format!("{value} of {} entries, to {offset:#x}", ring.entries())
                        });
                    return Some(Switched::Not);
                }
                ring.tail = value & RingIndex::DEFINED;
            }
        }
        Some(match (was_enabled, ring.enabled()) {
            _ if number != Which::AdminSend as usize => Switched::Not,
            (false, true) => Switched::On,
            (true, false) => Switched::Off,
            _ if restarted => Switched::Off,
            _ => Switched::Not,
        })
    }

    pub(super) fn reset(&mut self, kind: ResetKind) {
        let [_, _, others @ ..] = &mut self.rings;
        match kind {
            ResetKind::Function => others.iter_mut().for_each(|ring| ring.length = 0),
            ResetKind::Core | ResetKind::Global => others.fill(Ring::default()),
            ResetKind::Firmware => self.rings.fill(Ring::default()),
        }
    }

    pub(super) fn waiting(&self, which: Which) -> bool {
        self.get(which).waiting()
    }

    /// Registers that are not zero: ring, register values.
    pub(super) fn in_use(&self) -> Vec<(&'static str, [u32; 5])> {
        let rings = RINGS.iter().zip(&self.rings);
        let values = rings.map(|(names, ring)| {
            (
                names.c_name,
                RingRegister::ALL.map(|register| ring.value(register)),
            )
        });
        values.filter(|(_, values)| *values != [0; 5]).collect()
    }

    /// The next command of a ring, with its buffer.
    pub(super) fn fetch(&mut self, which: Which, context: &mut Context<'_>) -> Option<Command> {
        let ring = self.get_mut(which);
        let mut bytes = [0; DESCRIPTOR_SIZE];
        if let Err(fault) = context.memory.read(ring.address_of(ring.head), &mut bytes) {
            unreached(context, "control queue descriptor cannot be read", fault);
            ring.fail();
            return None;
        }
        let descriptor = Descriptor::read_from_bytes(&bytes).ok()?;
        match fetch_buffer(&descriptor, context) {
            Some(buffer) => Some(Command { descriptor, buffer }),
            None => {
                self.get_mut(which).fail();
                None
            }
        }
    }

    /// Stops a ring until a reset: the command at its head is never answered.
    pub(super) fn stall(&mut self, which: Which) {
        self.get_mut(which).stalled = true;
    }

    /// True if the memory of a ring could not be reached: the ring has stopped.
    pub(super) fn has_failed(&self, which: Which) -> bool {
        self.get(which).failed
    }

    /// Writes buffer and descriptor back, in that order, and then moves the head.
    pub(super) fn complete(
        &mut self,
        which: Which,
        answer: &Descriptor,
        buffer: &[u8],
        context: &mut Context<'_>,
    ) {
        let ring = self.get_mut(which);
        let buffer_written = if buffer.is_empty() {
            Ok(())
        } else {
            context.memory.write(Iova(answer.buffer_address()), buffer)
        };
        let place = ring.address_of(ring.head);
        let written = buffer_written.and_then(|()| context.memory.write(place, answer.as_bytes()));
        if let Err(fault) = written {
            unreached(context, "control queue answer cannot be written", fault);
            ring.fail();
            return;
        }
        ring.advance();
    }

    /// True if the receive ring has a free descriptor.
    pub(super) fn can_receive(&self) -> bool {
        self.waiting(Which::AdminReceive)
    }

    /// Fills the next free descriptor of the receive ring with an event.
    pub(super) fn deliver_event(
        &mut self,
        event: &Descriptor,
        body: &[u8],
        context: &mut Context<'_>,
    ) {
        let ring = self.get_mut(Which::AdminReceive);
        let place = ring.address_of(ring.head);
        let mut bytes = [0; DESCRIPTOR_SIZE];
        if let Err(fault) = context.memory.read(place, &mut bytes) {
            unreached(context, "control queue descriptor cannot be read", fault);
            ring.fail();
            return;
        }
        let Ok(free) = Descriptor::read_from_bytes(&bytes) else {
            return;
        };
        if !free.flags().buffer() || usize::from(free.data_length.get()) < body.len() {
            context
                .ledger
                .breach("receive descriptor without a buffer for events", || {
                    format!("{free:?}")
                });
        }
        let room = body.len().min(free.data_length.get().into());
        let body = body.get(..room).unwrap_or_default();
        let mut filled = event.with_buffer_address(free.buffer_address());
        let flags = free.flags().with_done(true).with_complete(true);
        filled.flags = flags.0.into();
        filled.data_length = (room as u16).into();
        self.complete(Which::AdminReceive, &filled, body, context);
        context.causes.admin_event = true;
    }
}

/// Counts a breach for an access that is the driver's fault, or reports that the host refused it.
#[cold]
fn unreached(context: &mut Context<'_>, what: &'static str, fault: DmaFault) {
    if !context.refused(fault) {
        context.ledger.breach(what, || fault.to_string());
    }
}

/// The buffer of a command: read from memory if the descriptor's flags announce data, else zeros.
/// `None` if it cannot be read.
fn fetch_buffer(descriptor: &Descriptor, context: &mut Context<'_>) -> Option<Vec<u8>> {
    let (flags, length) = (
        descriptor.flags(),
        usize::from(descriptor.data_length.get()),
    );
    let opcode = descriptor.opcode.get();
    let mut check = |wrong: bool, kind: &'static str| {
        if wrong {
            context.ledger.breach(kind, || {
                format!(
                    "opcode {opcode:#06x}, flags {:#06x}, {length} bytes",
                    flags.0
                )
            });
        }
    };
    let device_flags = DescriptorFlags::ZERO
        .with_done(true)
        .with_complete(true)
        .with_error(true);
    let foreign = DescriptorFlags::RESERVED | device_flags.0;
    check(
        flags.0 & foreign != 0,
        "admin descriptor flags that are not the driver's",
    );
    check(
        flags.large_buffer() && length <= LARGE_BUFFER_BYTES,
        "admin descriptor with a wrong large-buffer flag",
    );
    check(
        flags.buffer() != (length > 0),
        "admin descriptor whose buffer flag contradicts its length",
    );
    check(
        flags.read_buffer() && !flags.buffer(),
        "admin descriptor with data but no buffer",
    );
    check(
        length > BUFFER_SIZE,
        "admin descriptor with a buffer of more than 4096 bytes",
    );
    // iPXE never sets the flag and runs on the card (`ice.c`, `ice_admin_schedule`).
    if !flags.large_buffer() && length > LARGE_BUFFER_BYTES {
        let kind = "admin descriptor with a large buffer without its flag";
        let ledger = &mut context.ledger;
        ledger.remark(kind, || format!("opcode {opcode:#06x}, {length} bytes"));
    }
    let length = if flags.buffer() {
        length.min(BUFFER_SIZE)
    } else {
        0
    };
    let mut buffer = vec![0; length];
    if flags.read_buffer() && length > 0 {
        let address = Iova(descriptor.buffer_address());
        if let Err(fault) = context.memory.read(address, &mut buffer) {
            unreached(context, "admin buffer cannot be read", fault);
            return None;
        }
    }
    Some(buffer)
}
