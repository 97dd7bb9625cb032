//! The switch: the function's port and switch, port parameters.

use super::read_list;
use crate::admin::{AdminError, AdminQueue, Answer, Data};
use ringside_spec::lan::admin::switch::{
    ElementNumber, GetSwitchConfig, LocalForward, RuleHeader, SWITCH_CONFIG_BUFFER_BYTES,
    SetPortParameters, SwitchElement, element,
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

impl AdminQueue {
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
    /// default way between functions of the port.
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
