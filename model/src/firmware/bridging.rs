//! The firmware's LLDP agent, and the configuration of data centre bridging that it has agreed on
//! with the switch, if it runs.

use super::command::{Command, Outcome};
use super::vsi::Vsis;
use crate::chip::Context;
use crate::faults::Fault;
use crate::lan::switching::{Forward, Match};
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::lldp::{
    AgentCommand, LldpDcbAgent, LldpFilterControl, LldpGetMib, LldpStart, LldpStop,
    MIB_HEADER_BYTES, MibType, TlvHead, filter_action, mib, tlv,
};
use ringside_spec::lan::registers::reset::{DcbStatus, dcb_exchange};
use std::collections::BTreeSet;

/// Type of LLDP's packets.
const LLDP: u16 = 0x88CC;

/// Ethernet header of LLDP: multicast address, no source, type.
const HEADER: [u8; MIB_HEADER_BYTES] = [
    0x01, 0x80, 0xC2, 0x00, 0x00, 0x0E, 0, 0, 0, 0, 0, 0, 0x88, 0xCC,
];
/// Eight classes are possible. Priority 3 is in class 1, the others are in class 0. Each class has
/// half of the bandwidth, shared by its queues (2).
const CLASSES: [u8; 21] = [
    0x00, 0x00, 0x01, 0x00, 0x00, 50, 50, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0,
];
/// Eight priorities can have flow control; priority 3 has.
const FLOW_CONTROL: [u8; 2] = [0x08, 1 << 3];

/// Without a switch that wants more, all priorities are in class 0, which has all bandwidth.
const ONE_CLASS: [u8; 21] = [
    0x00, 0x00, 0x00, 0x00, 0x00, 100, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
];
const NO_FLOW_CONTROL: [u8; 2] = [0x08, 0];

/// The LLDP agent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Agent {
    /// The last request of a driver, true to run; without one it runs if the fault says so.
    asked: Option<bool>,
    /// That is valid after a reset of the firmware, too.
    persists: bool,
}

impl Agent {
    fn runs(self, faults: &[Fault]) -> bool {
        self.asked
            .unwrap_or_else(|| faults.contains(&Fault::LldpAgent))
    }

    pub(super) fn start(&mut self, command: &Command) -> Outcome {
        let asked: LldpStart = command.parameters();
        let asked = AgentCommand(asked.command);
        if asked.act() {
            (self.asked, self.persists) = (Some(true), asked.persist());
        }
        command.done()
    }

    /// Stops it, whether it is to be shut down as well or not.
    pub(super) fn stop(&mut self, command: &Command) -> Outcome {
        let asked: LldpStop = command.parameters();
        self.asked = Some(false);
        self.persists = AgentCommand(asked.command).persist();
        command.done()
    }

    /// A reset of the firmware.
    pub(super) fn reset(&mut self) {
        if !self.persists {
            self.asked = None;
        }
    }

    /// Starts or stops the exchange of bridging alone, and tells whether it runs, which it does
    /// only if the agent does.
    pub(super) fn exchange(self, command: &Command, faults: &[Fault]) -> Outcome {
        let asked: LldpDcbAgent = command.parameters();
        let runs = AgentCommand(asked.command).act() && self.runs(faults);
        command.answer(&LldpDcbAgent {
            command: AgentCommand(asked.command).with_act(runs).0,
            ..asked
        })
    }

    /// State of the exchange, as the register reports it.
    pub(super) fn status(self, faults: &[Fault]) -> u32 {
        let exchange = if self.runs(faults) {
            dcb_exchange::DONE
        } else {
            dcb_exchange::DISABLED
        };
        DcbStatus::ZERO.with_exchange(exchange).0
    }
}

/// VSIs that get the LLDP packets of the port (0x0A0A). Source: Linux ice `ice_lib.c`,
/// `ice_cfg_sw_lldp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Receivers(BTreeSet<u16>);

impl Receivers {
    /// Adds or deletes a VSI.
    pub(super) fn control(
        &mut self,
        command: &Command,
        vsis: &Vsis,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: LldpFilterControl = command.parameters();
        let vsi = asked.vsi.get();
        if !vsis.exists(vsi) {
            let kind = "LLDP filter of a VSI that does not exist";
            context.ledger.breach(kind, || format!("VSI {vsi}"));
            return Err(ReturnCode::NoEntry);
        }
        match asked.action {
            filter_action::ADD => self.0.insert(vsi),
            filter_action::DELETE => self.0.remove(&vsi),
            _ => return Err(ReturnCode::Invalid),
        };
        command.done()
    }

    /// The VSIs.
    pub(super) fn list(&self) -> Vec<u16> {
        self.0.iter().copied().collect()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets VSIs that were freed.
    pub(super) fn keep(&mut self, vsis: &Vsis) {
        self.0.retain(|vsi| vsis.exists(*vsi));
    }

    /// The rule by which they get the packets, if there are any.
    pub(super) fn forward(&self) -> Option<Forward> {
        let rule = Forward {
            what: Match::EtherType(LLDP),
            sender: None,
            targets: self.list().into(),
            drop: false,
            loopback: false,
            lan: false,
        };
        (!self.0.is_empty()).then_some(rule)
    }
}

/// The port's own configuration in the form of the newer standard; none without the agent.
pub(super) fn configuration(agent: Agent, command: &mut Command, faults: &[Fault]) -> Outcome {
    let asked: LldpGetMib = command.parameters();
    if !agent.runs(faults) || MibType(asked.kind).kind() != mib::LOCAL {
        return Err(ReturnCode::NoEntry);
    }
    let (classes, flow_control) = if faults.contains(&Fault::LldpAgent) {
        (CLASSES, FLOW_CONTROL)
    } else {
        (ONE_CLASS, NO_FLOW_CONTROL)
    };
    let mut data = HEADER.to_vec();
    for (owner, content) in [
        (tlv::CLASSES, classes.as_slice()),
        (tlv::FLOW_CONTROL, flow_control.as_slice()),
    ] {
        let length = owner.len() + content.len();
        let head = TlvHead::ZERO
            .with_kind(tlv::ORGANIZATION)
            .with_length(u16::try_from(length).unwrap_or(0));
        data.extend_from_slice(&head.0.to_be_bytes());
        data.extend_from_slice(&owner);
        data.extend_from_slice(content);
    }
    data.extend_from_slice(&[0; 2]);
    command.put_bytes(0, &data)?;
    let answer = LldpGetMib {
        local_length_bytes: u16::try_from(data.len()).unwrap_or(0).into(),
        ..asked
    };
    command.answer_with(&answer, data.len())
}
