//! The firmware of the function: the admin queue, and everything that its commands configure.

mod access_control;
mod board;
mod bridging;
mod classes;
mod command;
mod dispatch;
mod forwarding;
mod generic;
mod link;
mod logging;
mod media;
mod neighbour;
mod nvm;
mod package;
mod queues;
mod recipes;
mod recording;
mod rings;
mod rss;
mod rules;
mod scheduler;
mod switch;
mod vsi;

pub(crate) use generic::QUEUES;
pub use rules::Rule;
pub(crate) use switch::FilterEntries;

use crate::chip::{Context, FunctionSettings, Profiles, ReceiveFilter, Timer};
use crate::faults::{Fault, OnCommand};
use crate::lan::switching::Tables;
use crate::record::Tap;
use crate::reset_kind::ResetKind;
use access_control::AccessControl;
use bridging::{Agent, Receivers};
use command::{Answer, Command, needs_data};
use generic::{Locks, SharedWords};
use link::Link;
use logging::FirmwareLogging;
use neighbour::Phy;
use package::Package;
use queues::Queues;
use rings::{Rings, Switched, Which};
use ringside_bus::Instant;
use ringside_spec::lan::admin::generic::NoParameters;
use ringside_spec::lan::admin::{Descriptor, Opcode, ReturnCode};
use ringside_spec::lan::registers::interrupts::OtherCauses;
use rss::Rss;
use rules::Rules;
use scheduler::Scheduler;
use std::collections::{BTreeSet, VecDeque};
use switch::Resources;
use vsi::Vsis;

/// Commands that one step carries out at most.
const BURST: usize = 8;

/// Events that wait for a free descriptor at most; older ones are lost.
const MAX_EVENTS: usize = 64;

/// An event on its way to the receive ring.
type Event = (Descriptor, Vec<u8>);

/// See the module.
pub(crate) struct Firmware {
    settings: FunctionSettings,
    mac: [u8; 6],
    rings: Rings,
    version_asked: bool,
    shutdown_said: bool,
    /// a fault kept the driver from an answer since the ring began
    answer_withheld: bool,
    /// one of the driver's first commands was refused: it may give up without a goodbye
    refused_at_start: bool,
    /// a reset came since the admin queue was switched on: it needs no goodbye
    reset_since_start: bool,
    /// the command at the head of the admin queue is answered from then on
    delayed_until: Option<Instant>,
    pxe_cleared: bool,
    locks: Locks,
    shared_words: SharedWords,
    vsis: Vsis,
    rules: Rules,
    resources: Resources,
    scheduler: Scheduler,
    queues: Queues,
    rss: Rss,
    access_control: AccessControl,
    link: Link,
    agent: Agent,
    lldp_receivers: Receivers,
    package: Package,
    logging: FirmwareLogging,
    phy: Phy,
    events: VecDeque<Event>,
    changed: bool,
    tap: Option<Tap>,
}

/// State that a driver could leave behind in the firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareSnapshot {
    /// Rings with registers that are not zero: base low and high, length, head, tail.
    pub rings: Vec<(&'static str, [u32; 5])>,
    /// MAC address, if it was changed.
    pub mac: Option<[u8; 6]>,
    /// Locks that are held.
    pub locks: Vec<u16>,
    /// VSIs: number, kind, properties (none: only the number is kept).
    pub vsis: Vec<(u16, u16, Option<Vec<u8>>)>,
    /// Switch rules.
    pub rules: Vec<Rule>,
    /// Lists of VSIs.
    pub vsi_lists: Vec<(u16, Vec<u16>)>,
    /// VSIs that get the LLDP packets of the port.
    pub lldp_receivers: Vec<u16>,
    /// Allocated resources: type and number.
    pub resources: Vec<(u16, u16)>,
    /// Scheduler nodes added (id, parent, kind) or missing (id, no parent, 0).
    pub scheduler_nodes: Vec<(u32, u32, u8)>,
    /// Rate limit profiles: layer and id.
    pub rate_profiles: Vec<(u8, u16)>,
    /// Transmit queues.
    pub transmit_queues: Vec<u16>,
    /// RDMA queue sets.
    pub rdma_queue_sets: Vec<u16>,
    /// VSIs with a hash key, and lookup tables.
    pub rss: (Vec<u16>, Vec<(u16, u16)>),
    /// Tables and scenarios of the access control list.
    pub access_control: Vec<u16>,
    /// Link disabled, link events enabled, their mask, PHY settings changed, loopback, pause timers
    /// changed.
    pub link: (bool, bool, u16, bool, bool, bool),
}

impl Firmware {
    pub(crate) fn new(settings: &FunctionSettings) -> Self {
        Self {
            settings: settings.clone(),
            mac: settings.mac,
            rings: Rings::default(),
            version_asked: false,
            shutdown_said: false,
            answer_withheld: false,
            refused_at_start: false,
            reset_since_start: false,
            delayed_until: None,
            pxe_cleared: false,
            locks: Locks::default(),
            shared_words: SharedWords::default(),
            vsis: Vsis::new(),
            rules: Rules::default(),
            resources: Resources::default(),
            scheduler: Scheduler::new(),
            queues: Queues::of_function(settings.pci_function),
            rss: Rss::default(),
            access_control: AccessControl::default(),
            link: Link::new(),
            agent: Agent::default(),
            lldp_receivers: Receivers::default(),
            package: Package::default(),
            logging: FirmwareLogging::default(),
            phy: Phy::new(settings.timer, settings.pci_function),
            events: VecDeque::new(),
            changed: false,
            tap: None,
        }
    }

    /// Records commands and events from now on.
    pub(crate) fn record(&mut self, tap: Tap) {
        self.tap = Some(tap);
    }

    pub(crate) fn snapshot(&self) -> FirmwareSnapshot {
        FirmwareSnapshot {
            rings: self.rings.in_use(),
            mac: (self.mac != self.settings.mac).then_some(self.mac),
            locks: self.locks.list(),
            vsis: self.vsis.list(),
            rules: self.rules.list(),
            vsi_lists: self.rules.vsi_lists(),
            lldp_receivers: self.lldp_receivers.list(),
            resources: self.resources.list(),
            scheduler_nodes: self.scheduler.differences(),
            rate_profiles: self.scheduler.profiles(),
            transmit_queues: self.queues.transmit(),
            rdma_queue_sets: self.queues.rdma(),
            rss: self.rss.list(),
            access_control: self.access_control.list(),
            link: self.link.differences(),
        }
    }

    /// RDMA queue sets of the port's scheduler.
    pub(crate) fn rdma_queue_sets(&self) -> BTreeSet<u16> {
        self.queues.rdma().into_iter().collect()
    }

    /// State of the exchange of bridging, as the register reports it.
    pub(crate) fn bridging_status(&self, faults: &[Fault]) -> u32 {
        self.agent.status(faults)
    }

    /// A register of the MAC's pause timers.
    pub(crate) fn pause_register(&self, offset: u64) -> Option<u32> {
        self.link.pause_register(offset)
    }

    /// A register of a ring.
    pub(crate) fn ring_register(&self, offset: u64) -> Option<u32> {
        self.rings.read(offset)
    }

    /// Writes a register of a ring; false if it is none.
    pub(crate) fn write_ring_register(
        &mut self,
        offset: u64,
        value: u32,
        context: &mut Context<'_>,
    ) -> bool {
        // A ring that has failed takes no shutdown, and a driver without answers sends none. It
        // zeroes the indices before the length: a command that waits is looked for before each
        // write.
        let stalled = context.faults.contains(&Fault::FirmwareStall);
        let unheard = stalled || !context.memory.is_bus_master();
        self.answer_withheld |= unheard && self.rings.waiting(Which::AdminSend);
        let deaf = self.rings.has_failed(Which::AdminSend)
            || self.answer_withheld
            || self.delayed_until.is_some();
        match self.rings.write(offset, value, context) {
            None => return false,
            Some(Switched::Not) => {}
            // Drivers reset the function first and set the queue up then.
            Some(Switched::On) => self.reset_since_start = false,
            Some(Switched::Off) => {
                // A driver that is refused at its first commands gives up without a word.
                // Source: ice `ice_controlq.c`, `ice_init_check_adminq`; iPXE `intelxl.c`,
                // `intelxl_open_admin`.
                let served = self.version_asked && !self.refused_at_start;
                if served && !self.shutdown_said && !self.reset_since_start && !deaf {
                    let kind = "admin queue switched off without a queue shutdown";
                    let ledger = &mut context.ledger;
                    ledger.breach(kind, || format!("{value:#x} to {offset:#x}"));
                }
                self.version_asked = false;
                self.shutdown_said = false;
                self.answer_withheld = false;
                self.refused_at_start = false;
                self.reset_since_start = false;
                self.delayed_until = None;
            }
        }
        true
    }

    pub(crate) fn rings_reset(&mut self, kind: ResetKind) {
        self.rings.reset(kind);
    }

    /// A reset: of the function takes its queues and locks; a stronger one all that was configured.
    pub(crate) fn reset(&mut self, kind: ResetKind) {
        self.reset_since_start = true;
        self.delayed_until = None;
        self.locks.clear();
        self.queues.clear(&mut self.scheduler);
        self.resources.take_entries();
        self.changed = true;
        self.link.reset_function();
        self.events.clear();
        if kind >= ResetKind::Core {
            self.clear_config();
            self.package.lose();
            self.phy = Phy::new(self.settings.timer, self.settings.pci_function);
            self.link = Link::new();
            self.pxe_cleared = false;
        }
        if kind == ResetKind::Firmware {
            self.version_asked = false;
            self.shutdown_said = false;
            self.refused_at_start = false;
            self.mac = self.settings.mac;
            self.agent.reset();
            self.logging = FirmwareLogging::default();
        }
    }

    /// The package as it is.
    pub(crate) fn package(&self) -> Package {
        self.package.clone()
    }

    /// Records a package that another function has loaded.
    pub(crate) fn set_package(&mut self, package: Package) {
        self.package = package;
    }

    fn clear_config(&mut self) {
        self.vsis.clear();
        self.rules.clear();
        self.lldp_receivers.clear();
        self.resources.clear();
        self.queues.clear(&mut self.scheduler);
        self.scheduler = Scheduler::new();
        self.rss.clear();
        self.access_control.clear();
        self.package.forget_changes();
        self.changed = true;
    }

    pub(crate) fn receive_filter(&self) -> ReceiveFilter {
        let mut filter = self.rules.receive_filter(&self.vsis);
        if let Some(vlans) = forwarding::rdma_vlans(&self.vsis, &self.rules) {
            filter.prune_rdma(vlans);
        }
        filter
    }

    /// The tables that decide the destination of frames of the LAN engine.
    pub(crate) fn switch_tables(&self) -> Tables {
        let mut tables = forwarding::tables(&self.vsis, &self.rules, &self.rss);
        if self.has_double_vlan() {
            for (number, properties) in self.vsis.with_properties() {
                forwarding::look_at_outer_tag(&mut tables, number, properties);
            }
        }
        tables.forwards.extend(self.lldp_receivers.forward());
        tables.filter_room = self.resources.entries().room();
        tables.service_tags = self.has_double_vlan();
        tables.classes = self.scheduler.frame_classes();
        tables
    }

    /// True if the card is in double VLAN mode.
    pub(crate) const fn has_double_vlan(&self) -> bool {
        self.settings.double_vlan
    }

    /// Entries of the flow director that the function has.
    pub(crate) const fn filter_entries(&self) -> FilterEntries {
        self.resources.entries()
    }

    /// The tables that turn packets into keys.
    pub(crate) const fn profiles(&self) -> &Profiles {
        self.package.profiles()
    }

    /// Transmit queues of the LAN engine: number, serial, context.
    pub(crate) fn transmit_queues(&self) -> impl Iterator<Item = (u16, u64, [u8; 22])> + '_ {
        self.queues.contexts()
    }

    /// The PHY's copy of the device's timer.
    pub(crate) const fn phy_timer(&self) -> &Timer {
        self.phy.timer()
    }

    /// A packet leaves through the PHY that is to be stamped. Returns true if it was.
    pub(crate) fn stamp_sent(&mut self, index: u8, now: Instant) -> bool {
        self.phy.stamp(index, now)
    }

    /// The PHY carries out the timer command that was prepared; false if it cannot.
    pub(crate) fn execute_phy_command(&mut self, now: Instant) -> bool {
        self.phy.execute(now)
    }

    /// Number of the function's own VSI.
    pub(crate) fn function_vsi(&self) -> Option<u16> {
        self.vsis.of_function()
    }

    /// The VSIs that were freed since this was asked last.
    pub(crate) fn take_freed_vsis(&mut self) -> Vec<u16> {
        self.vsis.take_freed()
    }

    pub(crate) const fn link_up(&self) -> bool {
        self.link.wanted()
    }

    /// True while the MAC returns frames to the port.
    pub(crate) const fn loops_back(&self) -> bool {
        self.link.loops_back()
    }

    /// A fault came or went.
    pub(crate) fn link_may_have_changed(&mut self) {
        self.link.check = true;
    }

    /// True once after something changed on which the data path depends.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.link.check
            || self.link.training_until().is_some()
            || self.rings.waiting(Which::AdminSend)
            || self.rings.waiting(Which::MailboxSend)
            || self.rings.waiting(Which::SidebandSend)
            || (!self.events.is_empty() && self.rings.can_receive())
    }

    /// Carries out waiting commands and delivers events; true if anything was done.
    pub(crate) fn step(&mut self, context: &mut Context<'_>) -> bool {
        // Without bus mastering it reaches no ring, as the RDMA engine does not.
        let stalled = context.faults.contains(&Fault::FirmwareStall);
        if stalled || !context.memory.is_bus_master() {
            return false;
        }
        let mut worked = false;
        for _ in 0..BURST {
            if !self.rings.waiting(Which::AdminSend) || self.delays(context.now) {
                break;
            }
            worked |= self.serve_admin(context);
        }
        for ring in [Which::MailboxSend, Which::SidebandSend] {
            if self.rings.waiting(ring) {
                worked |= self.refuse_message(ring, context);
            }
        }
        if self.link.end_training(context.now) || self.link.check {
            self.report_link(context);
            worked = true;
        }
        while self.rings.can_receive() {
            let Some((event, body)) = self.events.pop_front() else {
                break;
            };
            self.rings.deliver_event(&event, &body, context);
            self.record_event(&event, &body, context);
            worked = true;
        }
        worked
    }

    /// The command at the head is not answered yet.
    fn delays(&self, now: Instant) -> bool {
        self.delayed_until.is_some_and(|until| now < until)
    }

    /// The moment of the next action that needs no request.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let timers = [self.delayed_until, self.link.training_until()];
        timers.into_iter().flatten().min()
    }

    /// There are no virtual functions to talk to, and no sideband on this part.
    fn refuse_message(&mut self, ring: Which, context: &mut Context<'_>) -> bool {
        let Some(command) = self.rings.fetch(ring, context) else {
            return false;
        };
        let parameters = NoParameters {
            reserved: command.descriptor.parameters,
        };
        let answer = command
            .descriptor
            .answered(ReturnCode::NoEntry, &parameters, 0);
        self.rings.complete(ring, &answer, &[], context);
        true
    }

    fn report_link(&mut self, context: &mut Context<'_>) {
        let Some(status) = self.link.changed(context.faults) else {
            return;
        };
        self.changed = true;
        context.causes.other |= OtherCauses::ZERO.with_link_change(true).0;
        if self.link.take_event_request() {
            let event = Descriptor {
                opcode: Opcode::GetLinkStatus.code().into(),
                ..Descriptor::zeroed()
            };
            if self.events.len() >= MAX_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back((event, Link::event_body(&status)));
        }
    }

    fn serve_admin(&mut self, context: &mut Context<'_>) -> bool {
        let Some(mut command) = self.rings.fetch(Which::AdminSend, context) else {
            return false;
        };
        let begun = self.begin_record(&command);
        let opcode = command.descriptor.opcode();
        let code = opcode.code();
        let faults = context.faults.iter();
        let on_command = OnCommand::of(faults.filter_map(|fault| fault.on_admin_command(code)));
        match on_command {
            Some(OnCommand::Silent) => {
                self.answer_withheld = true;
                self.rings.stall(Which::AdminSend);
                self.end_record(begun, None, &[], context);
                return true;
            }
            Some(OnCommand::Delay(by)) if self.delayed_until.is_none() => {
                self.delayed_until = Some(context.now.plus(by));
                return true;
            }
            _ => self.delayed_until = None,
        }
        let complete = self.check(&command, context);
        let outcome = match on_command {
            Some(OnCommand::Fail(failure, _)) => Err(ReturnCode::from_code(failure as u8)),
            _ if !complete => Err(ReturnCode::Invalid),
            _ => self.execute(opcode, &mut command, context),
        };
        let first = matches!(opcode, Opcode::GetVersion | Opcode::DriverVersion);
        self.refused_at_start |= first && outcome.is_err();
        let (answer, length) = answered(&command, &outcome);
        let answer = match on_command {
            Some(OnCommand::Garble) => {
                self.answer_withheld = true;
                Descriptor {
                    opcode: (!code).into(),
                    ..answer
                }
            }
            _ => answer,
        };
        tracing::trace!(opcode = opcode.c_name(), failed = ?outcome.err(), "admin command");
        let written = command.buffer.get(..length).unwrap_or_default();
        self.rings
            .complete(Which::AdminSend, &answer, written, context);
        if on_command == Some(OnCommand::Garble) || self.rings.has_failed(Which::AdminSend) {
            self.rules.answer_lost();
        }
        self.end_record(begun, Some(&answer), written, context);
        true
    }

    /// True if the command can be carried out; one that is merely out of order only counts as a
    /// breach.
    fn check(&self, command: &Command, context: &mut Context<'_>) -> bool {
        let opcode = command.descriptor.opcode();
        let free = matches!(opcode, Opcode::GetVersion | Opcode::QueueShutdown);
        if !self.version_asked && !free {
            context
                .ledger
                .breach("admin command before the version was asked for", || {
                    opcode.c_name().to_owned()
                });
        }
        if self.shutdown_said && opcode != Opcode::QueueShutdown {
            context
                .ledger
                .breach("admin command after the queue shutdown", || {
                    opcode.c_name().to_owned()
                });
        }
        let complete = !needs_data(opcode) || command.descriptor.flags().read_buffer();
        if !complete {
            context
                .ledger
                .breach("admin command without the data that it needs", || {
                    opcode.c_name().to_owned()
                });
        }
        complete
    }
}

/// The descriptor that answers a command, and the bytes of data that go with it.
fn answered(command: &Command, outcome: &Result<Answer, ReturnCode>) -> (Descriptor, usize) {
    let reserved = match outcome {
        Ok(answer) => answer.parameters,
        Err(_) => command.descriptor.parameters,
    };
    let parameters = NoParameters { reserved };
    let (code, told, length) = match outcome {
        Ok(answer) => {
            let length = answer.length.min(command.buffer.len());
            (ReturnCode::Ok, length as u16, length)
        }
        Err(code) => (*code, command.descriptor.data_length.get(), 0),
    };
    (command.descriptor.answered(code, &parameters, told), length)
}

#[cfg(test)]
pub(crate) mod tests;
