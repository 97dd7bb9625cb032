//! One E810 function: configuration space, registers, firmware, RDMA engine, interrupts.

mod clock;
mod config_space;
mod damaged;
mod direct;
mod errors;
mod faults;
mod interrupts;
mod lan;
mod malicious;
mod pending;
mod profiles;
mod register_file;
mod registers;
mod snapshot;
mod statistics;

pub use crate::chip::{Causes, Context, FunctionSettings, QueueCause, TimerAccess};
pub use crate::reset_kind::ResetKind;
pub use config_space::{CONFIG_BYTES, REGISTER_BAR_BYTES};
pub use snapshot::FunctionSnapshot;

use crate::chip::{ReceiveFilter, Verdict};
use crate::device::{Reply, Request};
use crate::faults::Fault;
use crate::firmware::Firmware;
use crate::frame::{Frame, Payload};
use crate::lan::LanEngine;
use crate::packet::MacAddress;
use crate::rdma::RdmaEngine;
use crate::record::{Event, Recorder, ResetSeen, Tap};
use crate::strict::Ledger;
use clock::Clock;
use config_space::{ConfigEffect, ConfigSpace};
use interrupts::Interrupts;
use register_file::RegisterFile;
use ringside_bus::function::BarInfo;
use ringside_bus::{DmaSpace, Instant, Memory};
use ringside_spec::lan::identity;
use ringside_spec::lan::registers::interrupts::OtherCauses;
use statistics::Statistics;
use std::time::Duration;

/// The duration of a reset of the function.
const FUNCTION_RESET_TAKES: Duration = Duration::from_micros(100);

/// The duration of a core or stronger reset.
const DEVICE_RESET_TAKES: Duration = Duration::from_millis(1);

/// The time after it in which the device loads from its flash.
const FLASH_LOAD_TAKES: Duration = Duration::from_millis(2);

/// Frames that a port without link throws away at once.
const DISCARD_BURST: usize = 32;

/// The state of the resets of a function.
#[derive(Debug, Default)]
struct Resets {
    /// A reset of the function ends then.
    function_until: Option<Instant>,
    /// A stronger reset ends then.
    device_until: Option<Instant>,
    /// Everything has been loaded from the flash after the last one then.
    loaded_at: Option<Instant>,
    /// The last stronger reset, and how many of each there were.
    last: Option<ResetKind>,
    core_count: u32,
    global_count: u32,
    firmware_count: u32,
}

/// See the module.
pub struct FunctionModel {
    index: usize,
    settings: FunctionSettings,
    config: ConfigSpace,
    registers: RegisterFile,
    clock: Clock,
    msix_table: RegisterFile,
    interrupts: Interrupts,
    firmware: Firmware,
    rdma: RdmaEngine,
    lan: LanEngine,
    statistics: Statistics,
    filter: ReceiveFilter,
    /// Grows with every change of the filter or the link.
    changes: u64,
    /// Frames travel between port and wire.
    link_up: bool,
    /// The MAC returns the frames of the port to it: none travels.
    looped: bool,
    resets: Resets,
    ledger: Ledger,
    faults: Vec<Fault>,
    /// A reset or the firmware may have something to do.
    pending: bool,
    /// A register on which the tables of the LAN engine depend was written: they are computed anew
    /// in the next step, or before the next frame. Hundreds of such writes may come before.
    stale: bool,
    /// The link is up, and the tables are not stale. One flag: each frame looks at it.
    passes: bool,
    /// the function does not respond on the bus
    dead: bool,
    /// another owner resets it, in the next step
    foreign_reset: Option<ResetKind>,
    causes: Causes,
    tap: Option<Tap>,
}

/// The parts of a function lent out for one call.
macro_rules! lend {
    ($function:expr, $memory:expr, $now:expr) => {
        Context {
            now: $now,
            memory: $memory,
            ledger: &mut $function.ledger,
            faults: &$function.faults,
            causes: &mut $function.causes,
        }
    };
}
use lend;

impl FunctionModel {
    /// Function `index` of its world, as power on leaves it.
    #[must_use]
    pub fn new(index: usize, settings: &FunctionSettings) -> Self {
        let vectors = u64::from(identity::MAX_MSIX_VECTORS);
        // bit 0 of the last dword of each entry: masked
        let masked = (0..vectors).map(|vector| (identity::MSIX_TABLE_OFFSET + 16 * vector + 12, 1));
        let defaults = register_file::reset_values(settings.pci_function);
        Self {
            index,
            settings: settings.clone(),
            config: ConfigSpace::new(settings),
            registers: RegisterFile::new(REGISTER_BAR_BYTES, defaults),
            clock: Clock::new(settings.timer),
            msix_table: RegisterFile::new(identity::MSIX_BAR_SIZE, masked.collect()),
            interrupts: Interrupts::new(),
            firmware: Firmware::new(settings),
            rdma: RdmaEngine::new(settings),
            lan: LanEngine::default(),
            statistics: Statistics::default(),
            filter: ReceiveFilter::default(),
            changes: 0,
            link_up: true,
            looped: false,
            resets: Resets::default(),
            ledger: Ledger::default(),
            faults: Vec::new(),
            pending: true,
            stale: false,
            passes: true,
            dead: false,
            foreign_reset: None,
            causes: Causes::default(),
            tap: None,
        }
    }

    /// Records the requests of its driver from now on.
    pub(crate) fn record(&mut self, recorder: &Recorder) {
        let tap = Tap::new(recorder.clone(), self.index);
        self.firmware.record(tap.clone());
        self.rdma.record(tap.clone());
        self.tap = Some(tap);
    }

    fn record_reset(&self, kind: &str, now: Instant) {
        if let Some(tap) = &self.tap {
            let kind = kind.to_owned();
            tap.note(now, Event::Reset(ResetSeen { kind }));
        }
    }

    /// Performs one request.
    pub fn handle(&mut self, request: Request, space: &mut DmaSpace, now: Instant) -> Reply {
        self.begin_request();
        let request = match self.answer_of_the_dead(request) {
            Ok(reply) => return reply,
            Err(request) => request,
        };
        match request {
            Request::RegisterWrite {
                bar,
                offset,
                width,
                value,
            } => self.write_bar(bar, offset, width, value, space, now),
            Request::RegisterRead { bar, offset, width } => {
                self.read_bar(bar, offset, width, space, now)
            }
            Request::ConfigRead { offset, length } => match self.config.read(offset, length) {
                Some(bytes) => Reply::Bytes(bytes),
                None => refuse_config(offset, length.into()),
            },
            Request::ConfigWrite { offset, bytes } => self.write_config(offset, &bytes, space, now),
            Request::Bar { bar } => Reply::Bar(BarInfo {
                size: bar_bytes(bar),
                mappable: Vec::new(),
            }),
            Request::MapDma {
                iova,
                memory,
                range,
                access,
            } => {
                let length = range.end.saturating_sub(range.start);
                if let Some(refused) = self.refuse_mapping(space, length as u64) {
                    return refused;
                }
                if space.map(iova, &memory, range.start, length, access) {
                    Reply::Done
                } else {
                    Reply::Refused(format!(
                        "{length:#x} bytes at {iova} are empty, overlap a mapping, or leave their memory"
                    ))
                }
            }
            Request::UnmapDma { iova, length } => {
                if space.unmap(iova, length) > 0 {
                    Reply::Done
                } else {
                    Reply::Refused(format!(
                        "no mapping lies within the {length:#x} bytes at {iova}"
                    ))
                }
            }
            Request::InterruptVectors => Reply::Vectors(identity::MAX_MSIX_VECTORS),
            Request::SetInterrupts { first, events } => {
                if self.interrupts.connect(first, events) {
                    Reply::Done
                } else {
                    Reply::Refused(format!("vectors from {first} on are more than there are"))
                }
            }
            Request::SetReleaseEvent { event } => {
                self.interrupts.connect_release(event);
                Reply::Done
            }
            Request::Reset => {
                self.function_level_reset(space, now);
                Reply::Done
            }
        }
    }

    fn write_config(
        &mut self,
        offset: u16,
        bytes: &[u8],
        space: &mut DmaSpace,
        now: Instant,
    ) -> Reply {
        match self.config.write(offset, bytes) {
            None => return refuse_config(offset, bytes.len()),
            Some(ConfigEffect::Reset) => self.function_level_reset(space, now),
            Some(ConfigEffect::None) => {}
        }
        space.set_bus_master(self.config.command().bus_master());
        Reply::Done
    }

    /// Configuration space as after power on, the function's registers too; what the firmware holds
    /// stays, as after any reset of the function.
    fn function_level_reset(&mut self, space: &mut DmaSpace, now: Instant) {
        self.record_reset("FunctionLevel", now);
        self.ledger.excuse(false);
        self.end_stall_of_firmware();
        self.config.reset();
        space.set_bus_master(self.config.command().bus_master());
        self.registers.reset(ResetKind::Firmware);
        self.msix_table.reset(ResetKind::Firmware);
        self.interrupts.reset();
        self.interrupts.disconnect();
        self.firmware.rings_reset(ResetKind::Firmware);
        self.firmware.reset(ResetKind::Function);
        self.rdma.reset();
        self.lan.reset();
        self.causes = Causes::default();
        self.resets.function_until = None;
        self.refresh();
    }

    /// A reset of the function, or a stronger one, begins.
    fn begin_reset(&mut self, kind: ResetKind, now: Instant) {
        self.record_reset(&format!("{kind:?}"), now);
        self.end_stall_of_firmware();
        if kind == ResetKind::Function {
            self.interrupts.reset();
        } else {
            let cause = OtherCauses::ZERO.with_global_reset(true);
            self.interrupts.reset_announced(cause, &mut self.registers);
        }
        self.registers.reset(kind);
        self.firmware.rings_reset(kind);
        self.firmware.reset(kind);
        self.rdma.reset();
        self.lan.reset();
        self.causes = Causes::default();
        if kind == ResetKind::Function {
            self.resets.function_until = Some(now.plus(FUNCTION_RESET_TAKES));
        } else {
            self.resets.begin_device(kind, now.plus(DEVICE_RESET_TAKES));
            self.reset_clock();
        }
        self.refresh();
    }

    /// Recomputes all values that depend on the firmware's tables and on faults.
    fn refresh(&mut self) {
        self.changes += 1;
        self.filter = self.firmware.receive_filter();
        // A function that came back takes nothing before it was reset.
        let away = self.dead || self.foreign_reset.is_some();
        let cut = away
            || self.faults.contains(&Fault::LinkDown)
            || self.faults.contains(&Fault::ModuleAbsent);
        self.looped = self.firmware.loops_back() && !away;
        self.stale = false;
        self.set_link_up(self.firmware.link_up() && !cut && !self.looped);
        self.rdma.set_receive_enabled(self.filter.any_rdma());
        let sets = self.firmware.rdma_queue_sets();
        self.rdma.set_port_queue_sets(sets, &mut self.ledger);
        let mut tables = self.firmware.switch_tables();
        let double_vlan = self.firmware.has_double_vlan();
        profiles::add(
            &mut tables,
            self.firmware.profiles(),
            &self.registers,
            double_vlan,
        );
        for vsi in self.firmware.take_freed_vsis() {
            self.lan.check_freed(vsi, &mut self.ledger);
        }
        let queues = &mut self.firmware.transmit_queues();
        self.lan.configure(tables, queues, &mut self.ledger);
        self.lan.set_timer(*self.firmware.phy_timer());
    }

    /// Works for a bounded time; true if anything was done. `spaces` are those of the world.
    #[inline(always)]
    pub fn step(&mut self, spaces: &[DmaSpace], now: Instant) -> bool {
        let Some(memory) = spaces.get(self.index) else {
            return false;
        };
        if self.dead {
            return false;
        }
        let mut worked = self.pending && self.step_rarely(memory, now);
        if !self.rdma.rests(memory, now) {
            let mut context = lend!(self, memory, now);
            worked |= self.rdma.step(&mut context);
        }
        worked |= self.lan.has_work();
        self.deliver_causes();
        worked
    }

    /// Raises the interrupts of the causes that wait, once what they tell of is in memory.
    #[inline(always)]
    pub(crate) fn deliver_causes(&mut self) {
        let causes = &self.causes;
        let raised = causes.asynchronous_event | causes.admin_event | (causes.other != 0);
        let queues = !causes.completion_event_queues.is_empty() || !causes.queues.is_empty();
        if raised || queues {
            self.raise_causes();
        }
    }

    /// Its own function: inlined, it costs every step without a cause 40 instructions.
    #[inline(never)]
    fn raise_causes(&mut self) {
        // A frame that waits for it has raised the cause of its queue.
        self.lan.write_back();
        if !self.causes.malicious.is_empty() {
            self.name_malicious();
        }
        self.interrupts
            .deliver(&mut self.causes, &mut self.registers);
    }

    /// True if it may have a frame for the wire.
    #[inline(always)]
    pub(crate) fn may_send(&self) -> bool {
        self.has_packets() || self.has_frames()
    }

    /// True if its network stack may have a frame for the wire.
    #[inline(always)]
    pub(crate) fn has_frames(&self) -> bool {
        self.lan.has_work()
    }

    /// True if frames have left its RDMA engine that are not on the wire yet.
    #[inline(always)]
    pub(crate) fn has_sent(&self) -> bool {
        self.rdma.has_sent()
    }

    /// True if its RDMA engine may have a frame for the wire.
    #[inline(always)]
    pub(crate) fn has_packets(&self) -> bool {
        self.rdma.may_send()
    }

    /// Puts the next frame for the wire into `frame`; false if there is none or the link is down.
    ///
    /// Of long messages up to `run_bytes` travel in one frame; 0: each packet by itself.
    #[inline]
    pub fn next_frame(
        &mut self,
        spaces: &[DmaSpace],
        now: Instant,
        run_bytes: u32,
        frame: &mut Frame,
    ) -> bool {
        let Some(memory) = spaces.get(self.index) else {
            return false;
        };
        let mut context = lend!(self, memory, now);
        if !self.rdma.fill_next(run_bytes, frame, &mut context) {
            return false;
        }
        if let Payload::Memory { source, .. } = &mut frame.payload {
            *source = self.index;
        }
        if !self.link_up {
            self.keep_off_the_wire(frame, spaces, now);
            return false;
        }
        self.statistics.sent.count_packets(frame);
        true
    }

    /// Returns the RDMA engine's frame to the port, or drops it and those that follow.
    #[cold]
    fn keep_off_the_wire(&mut self, frame: &Frame, spaces: &[DmaSpace], now: Instant) {
        if self.looped {
            self.statistics.sent.count_packets(frame);
            self.take(frame, spaces, now);
        } else if let Some(memory) = spaces.get(self.index) {
            self.discard_frames(memory, now);
        }
    }

    #[cold]
    fn discard_frames(&mut self, memory: &DmaSpace, now: Instant) {
        self.statistics.sent_link_down += 1;
        for _ in 0..DISCARD_BURST {
            let mut context = lend!(self, memory, now);
            if self.rdma.next_frame(&mut context).is_none() {
                break;
            }
            self.statistics.sent_link_down += 1;
        }
    }

    /// A frame from the wire; the rules of the switch decide whether it gets in.
    #[inline]
    pub fn receive(&mut self, frame: &Frame, spaces: &[DmaSpace], now: Instant) {
        if self.link_up {
            self.take(frame, spaces, now);
        }
    }

    /// Takes a frame that has come to the port.
    #[inline]
    fn take(&mut self, frame: &Frame, spaces: &[DmaSpace], now: Instant) {
        let Some(memory) = spaces.get(self.index) else {
            return;
        };
        let path = &frame.packet.path;
        self.statistics.received.count_packets(frame);
        let Verdict::Accepted { rdma } = self.filter.judge(path.destination, path.vlan) else {
            self.statistics.not_for_us += u64::from(frame.packets);
            return;
        };
        if rdma && self.rdma.claims(&frame.packet) {
            self.statistics.vsi_received.count_packets(frame);
            let mut context = lend!(self, memory, now);
            self.rdma.receive(frame, spaces, &mut context);
            self.deliver_causes();
        } else {
            for index in 0..frame.packets {
                self.receive_unclaimed(&frame.part(index), spaces, now);
            }
        }
    }

    /// True if the function's own switch delivers its frames to `destination`.
    #[inline]
    #[must_use]
    pub fn loops_back(&self, destination: MacAddress) -> bool {
        self.filter.loops_back(destination)
    }

    /// The moment of the next action that needs no request. `space` is the memory that the function
    /// reaches: without bus mastering, firmware and RDMA engine are stopped, and only resets end.
    #[must_use]
    pub fn next_timer(&self, space: &DmaSpace) -> Option<Instant> {
        if self.dead {
            return None;
        }
        let moves = space.is_bus_master();
        let endless = self.faults.contains(&Fault::ResetNeverEnds);
        let stalled = self.faults.contains(&Fault::FirmwareStall);
        let firmware = self.firmware.next_timer();
        let function = self.resets.function_until.filter(|_| !endless);
        let timers = [
            function,
            self.resets.device_until,
            self.rdma.next_timer().filter(|_| moves),
            firmware.filter(|_| moves && !stalled),
        ];
        timers.into_iter().flatten().min()
    }

    /// The doorbell page of the RDMA engine, shared with clients that ring by plain stores.
    pub fn share_doorbell_page(&mut self, page: Memory) {
        self.rdma.share_doorbell_page(page);
    }

    /// The number of times that a vector fired.
    #[must_use]
    pub fn interrupts_fired(&self, vector: u16) -> u64 {
        self.interrupts.fired(vector)
    }

    /// Signals the host's request to release the function. False if it is not connected.
    pub(crate) fn request_release(&self) -> bool {
        self.interrupts.request_release()
    }

    /// Frames from the wire that matched no rule of the function.
    #[must_use]
    pub const fn frames_not_for_us(&self) -> u64 {
        self.statistics.not_for_us
    }

    /// The RDMA engine, for inspection.
    #[must_use]
    pub const fn rdma(&self) -> &RdmaEngine {
        &self.rdma
    }

    /// Everything that a driver could have left behind; `space` is the function's own.
    #[must_use]
    pub fn snapshot(&self, space: &DmaSpace) -> FunctionSnapshot {
        FunctionSnapshot {
            configuration: self.config.differences(),
            registers: self.registers.differences(),
            msix_table: self.msix_table.differences(),
            vectors: self.interrupts.connected(),
            mappings: space.mappings().collect(),
            firmware: self.firmware.snapshot(),
            rdma: self.rdma.snapshot(),
        }
    }
}

impl Resets {
    fn begin_device(&mut self, kind: ResetKind, until: Instant) {
        self.device_until = Some(until);
        self.loaded_at = Some(until.plus(FLASH_LOAD_TAKES));
        self.last = Some(kind);
        let count = match kind {
            ResetKind::Function => return,
            ResetKind::Core => &mut self.core_count,
            ResetKind::Global => &mut self.global_count,
            ResetKind::Firmware => &mut self.firmware_count,
        };
        *count = count.wrapping_add(1);
    }
}

/// Bytes of a base address register; 0 if there is none.
fn bar_bytes(bar: u8) -> u64 {
    match bar {
        identity::REGISTER_BAR => REGISTER_BAR_BYTES,
        identity::MSIX_BAR => identity::MSIX_BAR_SIZE,
        _ => 0,
    }
}

#[cold]
fn refuse_config(offset: u16, length: usize) -> Reply {
    Reply::Refused(format!(
        "{length} bytes at {offset:#x} are not in the {CONFIG_BYTES} bytes of configuration space"
    ))
}

#[cfg(test)]
mod tests;
