//! The switch: the function's port and switch, port parameters.

use super::{read_at, read_list};
use crate::admin::{AdminError, AdminQueue, Answer, Data};
use ringside_spec::lan::admin::generic::NoParameters;
use ringside_spec::lan::admin::switch::{
    DOUBLE_VLAN_MODE, ElementNumber, GetSwitchConfig, GetVlanMode, LocalForward, RuleHeader,
    SWITCH_CONFIG_BUFFER_BYTES, SetPortParameters, SwitchElement, element,
};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use serde::Serialize;

/// The most elements of one answer: as many as fit into its buffer.
const MAX_ELEMENTS: usize = SWITCH_CONFIG_BUFFER_BYTES / SwitchElement::SIZE;
/// Answers at most: the index of an element has 16 bits, so each answer has at least one.
const MAX_ANSWERS: usize = 64;

/// The port that the function is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchPort {
    /// Logical port, 0..=7.
    pub port: u8,
    /// The switch of the port.
    pub switch_id: u16,
}

/// VLAN tags that the device looks at in a packet: the same for all functions of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum VlanMode {
    /// One.
    #[default]
    Single,
    /// Two; that of a packet with one tag counts as the outer one.
    Double,
}

impl AdminQueue {
    /// The mode that the driver of the package chose for the card (0x020D). Firmware that does not
    /// know the command has the single one. Source: ice `ice_vlan_mode.c`, `ice_aq_is_dvm_ena`.
    pub fn vlan_mode(&self) -> Result<VlanMode, AdminError> {
        let opcode = Opcode::GetVlanMode;
        let data = Data::Receive(GetVlanMode::SIZE);
        let answer = match self.execute(opcode, &NoParameters::zeroed(), data) {
            Err(error) if error.code().is_some() => return Ok(VlanMode::Single),
            answer => answer?,
        };
        let found: GetVlanMode = read_at(opcode, &answer.data, 0)?;
        Ok(match found.mode & DOUBLE_VLAN_MODE {
            0 => VlanMode::Single,
            _ => VlanMode::Double,
        })
    }

    /// Port and switch of the function (0x0200).
    pub fn switch_port(&self) -> Result<SwitchPort, AdminError> {
        let opcode = Opcode::GetSwitchConfig;
        let mut elements = Vec::new();
        let mut next = 0;
        for _ in 0..MAX_ANSWERS {
            let parameters = GetSwitchConfig {
                element: next.into(),
                ..GetSwitchConfig::zeroed()
            };
            let data = Data::Receive(SWITCH_CONFIG_BUFFER_BYTES);
            let answer = self.execute(opcode, &parameters, data)?;
            elements.extend(decode_elements(&answer)?);
            next = answer.parameters::<GetSwitchConfig>().element.get();
            if next == 0 {
                return find_port(&elements);
            }
        }
        let reason = format!("the list does not end after {MAX_ANSWERS} answers");
        Err(AdminError::malformed(opcode, reason))
    }

    /// Sets the port's parameters to their plain values (0x0203): single VLAN mode, the
    /// default way between functions of the port. Not for a card in [`VlanMode::Double`].
    pub fn set_port_parameters(&self) -> Result<(), AdminError> {
        let parameters = SetPortParameters {
            local_forward_mode: LocalForward::ZERO.with_valid(true).0,
            ..SetPortParameters::zeroed()
        };
        self.execute(Opcode::SetPortParameters, &parameters, Data::None)?;
        Ok(())
    }
}

/// Each rule has a status of its own; 0 is success.
pub(super) fn check_status(opcode: Opcode, header: RuleHeader) -> Result<(), AdminError> {
    let [low, _] = header.status.get().to_le_bytes();
    match header.status.get() {
        0 => Ok(()),
        _ => Err(AdminError::Refused {
            opcode,
            code: ReturnCode::from_code(low.max(1)),
        }),
    }
}

pub(super) fn decode_elements(answer: &Answer) -> Result<Vec<SwitchElement>, AdminError> {
    let head: GetSwitchConfig = answer.parameters();
    let count = head.element_count.get().into();
    read_list(
        Opcode::GetSwitchConfig,
        &answer.data,
        0,
        count,
        MAX_ELEMENTS,
    )
}

/// The one physical port.
pub(super) fn find_port(elements: &[SwitchElement]) -> Result<SwitchPort, AdminError> {
    let opcode = Opcode::GetSwitchConfig;
    let mut ports = elements
        .iter()
        .filter(|one| ElementNumber(one.number.get()).kind() == element::PHYSICAL_PORT);
    let (Some(port), None) = (ports.next(), ports.next()) else {
        return Err(AdminError::malformed(
            opcode,
            "it does not list exactly one physical port",
        ));
    };
    let number = ElementNumber(port.number.get()).number();
    match u8::try_from(number) {
        Ok(number) if number < 8 => Ok(SwitchPort {
            port: number,
            switch_id: port.switch_id.get(),
        }),
        _ => {
            let reason = format!("logical port {number} is beyond 7");
            Err(AdminError::malformed(opcode, reason))
        }
    }
}
