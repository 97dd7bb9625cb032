//! Faults of functions that were added to the simulation later than the others.

use super::commands::COMMANDS;
use super::event::FaultEvent;
use super::kind::FaultKind;
use crate::random::Random;
use ringside_bus::{Direction, Refusal};
use ringside_model::Fault;
use ringside_model::faults::{ANY_ADMIN_COMMAND, ANY_CONTROL_COMMAND};
use ringside_spec::lan::admin::Opcode;
use std::time::Duration;

/// Admin commands that a workload sends: for the state of a port, for multicast groups and to check
/// that the firmware responds. The last entry means all of them.
const ADMIN_COMMANDS: [u16; 5] = [
    Opcode::GetVersion.code(),
    Opcode::GetLinkStatus.code(),
    Opcode::AddSwitchRules.code(),
    Opcode::RemoveSwitchRules.code(),
    ANY_ADMIN_COMMAND,
];

/// Error codes of refusals: each is one that firmware returns.
const REFUSALS: u16 = 24;

fn refusal(random: &mut Random) -> Refusal {
    let directions = [None, Some(Direction::Read), Some(Direction::Write)];
    Refusal {
        direction: random.pick(&directions).flatten(),
        accesses: match random.below(2) {
            0 => None,
            _ => Some(random.within(1, 8) as u64),
        },
        ..Refusal::EVERYTHING
    }
}

/// Draws an event of this kind, in a run of `steps` steps.
pub(super) fn of_function(kind: FaultKind, steps: u32, random: &mut Random) -> Option<FaultEvent> {
    let step = random.below(steps as usize) as u32;
    let function = random.below(2) as u16;
    let opcode = random.pick(&ADMIN_COMMANDS).unwrap_or(ANY_ADMIN_COMMAND);
    let fault = match kind {
        FaultKind::DmaRefused => Fault::DmaRefused(refusal(random)),
        FaultKind::InterruptsLost => Fault::InterruptsLost {
            per_million: random.within(300_000, 1_000_000) as u32,
            seed: random.next(),
        },
        FaultKind::AdminFails => Fault::AdminCommandFails {
            opcode,
            code: random.within(1, REFUSALS.into()) as u16,
        },
        FaultKind::AdminSilent => Fault::AdminCommandSilent { opcode },
        FaultKind::AdminDelayed => Fault::AdminCommandDelayed {
            opcode,
            by: Duration::from_micros(random.within(10, 20_000) as u64),
        },
        FaultKind::CommandLate => Fault::ControlCompletionLate {
            opcode: random.pick(&COMMANDS).unwrap_or(ANY_CONTROL_COMMAND),
            by: Duration::from_micros(random.within(10, 20_000) as u64),
        },
        FaultKind::AdminGarbled => Fault::AdminCommandGarbled { opcode },
        _ => return None,
    };
    Some(FaultEvent::Function {
        step,
        function,
        fault,
        steps: random.within(1, 20) as u32,
    })
}
