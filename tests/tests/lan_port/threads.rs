//! Control calls from several threads take turns: the firmware sees the commands of one at a time.

use crate::rig::{Rig, settings};
use ringside_model::Fault;
use ringside_pmd::lan::PortSettings;
use ringside_pmd::lan::port::{
    FlowKind, FlowMatch, FlowRule, FlowTarget, HashField, RuleKind, Vsi,
};
use ringside_spec::lan::admin::Opcode;
use std::sync::Barrier;

const ROUNDS: usize = 150;
const ENDS: [&[HashField]; 2] = [&[HashField::SourcePort], &[HashField::DestinationPort]];

fn rig() -> Rig {
    let receiver = PortSettings {
        receive_queues: 4,
        ..settings()
    };
    Rig::with(&settings(), &receiver)
}

/// A rule for a port of UDP.
fn rule(port: u16) -> FlowRule {
    FlowRule {
        packets: FlowMatch {
            destination_port: Some(port),
            ..FlowMatch::of(RuleKind::Flow(FlowKind::UdpV4))
        },
        target: FlowTarget::Queue(1),
        mark: None,
        count: false,
    }
}

fn change_fields(vsi: &Vsi, kind: FlowKind, round: usize) {
    vsi.set_hash_fields(kind, ENDS[round % 2])
        .unwrap_or_else(|error| panic!("round {round}: {error}"));
}

/// Runs both at the same time, on threads of their own, in each of `ROUNDS` rounds.
fn together(rig: &Rig, one: impl Fn(&Vsi, usize) + Sync, other: impl Fn(&Vsi, usize) + Sync) {
    let port = &*rig.b.open.port;
    for round in 0..ROUNDS {
        let both_are_there = Barrier::new(2);
        let begin = |call: &dyn Fn(&Vsi, usize)| {
            both_are_there.wait();
            call(port, round);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| begin(&one));
            scope.spawn(|| begin(&other));
        });
    }
}

#[test]
fn fields_that_two_threads_set_free_each_profile_once() {
    let rig = rig();
    let change = |vsi: &Vsi, round| change_fields(vsi, FlowKind::UdpV4, round);
    together(&rig, change, |vsi, round| change(vsi, round + 1));
    // The state is whole: other kinds change, too.
    for kind in [FlowKind::TcpV4, FlowKind::OtherV6] {
        let field = [HashField::SourceAddress];
        rig.b.open.port.set_hash_fields(kind, &field).expect("set");
    }
    rig.b.open.port.set_symmetric_hash(true).expect("set");
    rig.finish();
}

#[test]
fn fields_and_rules_of_two_threads_take_turns_at_the_change_lock() {
    let rig = rig();
    let change = |vsi: &Vsi, round| change_fields(vsi, FlowKind::TcpV4, round);
    together(&rig, change, |vsi, round| {
        let number = vsi.add_rule(&rule(9)).expect("added");
        assert_eq!(vsi.remove_rule(number), Ok(true), "round {round}");
    });
    rig.finish();
}

#[test]
fn a_change_lock_that_was_not_released_is_released_before_the_next_change() {
    let rig = rig();
    let fault = Fault::AdminCommandFails {
        opcode: Opcode::ReleaseResource.code(),
        code: 12,
    };
    for round in 0..3 {
        rig.world.with(move |world| world.inject(1, fault));
        // The tables have changed: the call succeeded.
        change_fields(&rig.b.open.port, FlowKind::UdpV4, round);
        let fields = rig.b.open.port.hash_fields(FlowKind::UdpV4);
        assert_eq!(fields.as_deref(), Some(ENDS[round % 2]));
        rig.world.with(|world| world.clear_faults(1));
        change_fields(&rig.b.open.port, FlowKind::UdpV4, round + 1);
    }
    rig.finish();
}

/// A change that the firmware refuses leaves the fields as they were, in the device and here.
#[test]
fn fields_that_the_firmware_refuses_are_not_those_of_the_kind() {
    let rig = rig();
    let port = &rig.b.open.port;
    port.set_hash_fields(FlowKind::UdpV4, ENDS[0]).expect("set");
    let before = port.setup();
    for opcode in [Opcode::AllocateResource, Opcode::UpdatePackage] {
        let opcode = opcode.code();
        let fault = Fault::AdminCommandFails { opcode, code: 12 };
        rig.world.with(move |world| world.inject(1, fault));
        port.set_hash_fields(FlowKind::UdpV4, ENDS[1])
            .expect_err("refused");
        rig.world.with(|world| world.clear_faults(1));
        assert_eq!(port.setup(), before);
    }
    port.set_hash_fields(FlowKind::UdpV4, ENDS[1]).expect("set");
    rig.finish();
}
