use super::*;
use std::iter;

/// Effects of every kind that a command may have from several faults.
const EFFECTS: [OnCommand; 4] = [
    OnCommand::Fail(1, 2),
    OnCommand::Silent,
    OnCommand::Garble,
    OnCommand::Delay(Duration::from_micros(3)),
];

#[test]
fn a_command_without_an_answer_is_neither_refused_nor_garbled() {
    for other in EFFECTS {
        for both in [[OnCommand::Silent, other], [other, OnCommand::Silent]] {
            assert_eq!(OnCommand::of(both.into_iter()), Some(OnCommand::Silent));
        }
    }
    let all = EFFECTS.into_iter();
    assert_eq!(OnCommand::of(all), Some(OnCommand::Silent));
}

#[test]
fn of_other_effects_the_first_counts() {
    assert_eq!(OnCommand::of(iter::empty()), None);
    let answered = EFFECTS
        .iter()
        .filter(|effect| **effect != OnCommand::Silent);
    for first in answered.clone() {
        for next in answered.clone() {
            let both = [*first, *next].into_iter();
            assert_eq!(
                OnCommand::of(both),
                Some(*first),
                "{first:?} before {next:?}"
            );
        }
    }
}

#[test]
fn silence_of_every_command_covers_the_refusal_of_one() {
    let admin = [
        Fault::AdminCommandFails {
            opcode: 0x0601,
            code: 5,
        },
        Fault::AdminCommandSilent {
            opcode: ANY_ADMIN_COMMAND,
        },
    ];
    let effects = admin
        .iter()
        .filter_map(|fault| fault.on_admin_command(0x0601));
    assert_eq!(OnCommand::of(effects), Some(OnCommand::Silent));
    let control = [
        Fault::ControlCommandGarbled {
            opcode: ANY_CONTROL_COMMAND,
        },
        Fault::ControlCommandSilent { opcode: 0x01 },
    ];
    let of = |code| {
        let effects = control
            .iter()
            .filter_map(|fault| fault.on_control_command(code));
        OnCommand::of(effects)
    };
    assert_eq!(of(0x01), Some(OnCommand::Silent));
    assert_eq!(of(0x02), Some(OnCommand::Garble));
}
