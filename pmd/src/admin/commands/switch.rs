//! The switch: the function's port and switch, port parameters, filter rules.

use super::{read_at, read_list};
use crate::admin::{AdminError, AdminQueue, Answer, Data};
use ringside_spec::lan::admin::switch::{
    ElementNumber, GetSwitchConfig, LOOKUP_HEADER_BYTES, LocalForward, LookupRule, RuleHeader,
    RuleType, SWITCH_CONFIG_BUFFER_BYTES, SetPortParameters, SingleAction, SwitchElement,
    SwitchRules, action, element, recipe,
};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use serde::Serialize;
use zerocopy::IntoBytes;

/// The most elements of one answer: as many as fit into its buffer.
const MAX_ELEMENTS: usize = SWITCH_CONFIG_BUFFER_BYTES / SwitchElement::SIZE;
/// Answers at most: the index of an element has 16 bits, so each answer has at least one.
const MAX_ANSWERS: usize = 64;
/// Bytes of a rule with its header.
const RULE_BYTES: usize = LookupRule::SIZE + LOOKUP_HEADER_BYTES;

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

    /// Delivers frames to `mac` to VSI `vsi`; returns the rule's number. A further caller for the same
    /// address gets the rule that exists, and has to remove it too.
    ///
    /// Errors: those of the command, for a rule that does not exist yet.
    pub fn add_mac_rule(&self, vsi: u16, mac: [u8; 6]) -> Result<u16, AdminError> {
        let make = || self.make_mac_rule(vsi, mac);
        self.mac_rules.add(vsi, mac, make)
    }

    /// Removes rule `index`; one of a MAC address with its last caller.
    ///
    /// Errors: those of the command; the rule counts as not removed then.
    pub fn remove_rule(&self, index: u16) -> Result<(), AdminError> {
        self.mac_rules.remove(index, || self.unmake_rule(index))
    }

    /// Delivers frames to `mac` to VSI `vsi` (0x02A0); returns the rule's number.
    ///
    /// The rule is a transmit rule and applies to received frames too. Frames that the device sends
    /// to a unicast address of its own stay inside; others also go to the wire.
    fn make_mac_rule(&self, vsi: u16, mac: [u8; 6]) -> Result<u16, AdminError> {
        let opcode = Opcode::AddSwitchRules;
        let rule = mac_rule(vsi, mac);
        let answer = self.execute(opcode, &one_rule(), Data::Send(&rule))?;
        let done: LookupRule = read_at(opcode, &answer.data, 0)?;
        check_status(opcode, done.header)?;
        Ok(done.index.get())
    }

    /// Removes rule `index` (0x02A2). The firmware goes by the number alone.
    fn unmake_rule(&self, index: u16) -> Result<(), AdminError> {
        let opcode = Opcode::RemoveSwitchRules;
        let rule = LookupRule {
            index: index.into(),
            ..LookupRule::zeroed()
        };
        let answer = self.execute(opcode, &one_rule(), Data::Send(rule.as_bytes()))?;
        let done: RuleHeader = read_at(opcode, &answer.data, 0)?;
        check_status(opcode, done)
    }
}

fn one_rule() -> SwitchRules {
    SwitchRules {
        rule_count: 1.into(),
        ..SwitchRules::zeroed()
    }
}

fn lookup_transmit() -> RuleHeader {
    RuleHeader {
        kind: RuleType::LookupTransmit.code().into(),
        status: 0.into(),
    }
}

/// The rule and the header that it matches.
fn mac_rule(vsi: u16, mac: [u8; 6]) -> [u8; RULE_BYTES] {
    let [first, ..] = mac;
    let unicast = first.is_multiple_of(2);
    let act = SingleAction::ZERO
        .with_kind(action::FORWARD)
        .with_vsi(vsi.into())
        .with_valid(true)
        .with_loopback(true)
        .with_lan(!unicast);
    let rule = LookupRule {
        header: lookup_transmit(),
        recipe: recipe::MAC.into(),
        source: vsi.into(),
        action: act.0.into(),
        index: 0.into(),
        header_length: (LOOKUP_HEADER_BYTES as u16).into(),
    };
    let mut bytes = [0; RULE_BYTES];
    let (head, packet) = bytes.split_at_mut(LookupRule::SIZE);
    head.copy_from_slice(rule.as_bytes());
    for (to, from) in packet.iter_mut().zip(mac) {
        *to = from;
    }
    // The EtherType of a tag follows both addresses; the recipe does not compare it.
    for (to, from) in packet.iter_mut().skip(12).zip([0x81, 0x00]) {
        *to = from;
    }
    bytes
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
