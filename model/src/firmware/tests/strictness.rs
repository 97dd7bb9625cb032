//! Configuration that cannot work on a card.

use super::client::Client;
use super::scheduling::{branch, give_queue};
use super::switching::{add_mac_rule, add_vsi, mac_rule};
use ringside_spec::lan::admin::link::GetLinkStatus;
use ringside_spec::lan::admin::switch::{
    AllocateResource, LOOKUP_HEADER_BYTES, LookupRule, SingleAction, SwitchRules, action, recipe,
};
use ringside_spec::lan::admin::vsi::{QUEUES_CONTIGUOUS, VsiCommand, VsiProperties, kind};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::registers::queues::{RECEIVE_QUEUE_CONTROL, ReceiveQueueControl};
use ringside_spec::lan::transmit::TransmitContext;
use zerocopy::{FromBytes, IntoBytes};

fn rule(client: &mut Client, opcode: Opcode, bytes: &[u8]) -> ReturnCode {
    let one = SwitchRules {
        rule_count: 1.into(),
        ..SwitchRules::zeroed()
    };
    client.give(opcode, &one, bytes).descriptor.return_code()
}

/// The rule of an address with other fields.
fn changed(vsi: u16, change: impl FnOnce(&mut LookupRule)) -> Vec<u8> {
    let mut bytes = mac_rule(vsi, [2, 0, 0, 0, 0, 9]);
    let (mut head, _) = LookupRule::read_from_prefix(&bytes).unwrap();
    change(&mut head);
    bytes[..LookupRule::SIZE].copy_from_slice(head.as_bytes());
    bytes
}

#[test]
fn a_queue_is_added_below_the_layer_of_queue_groups() {
    let mut client = Client::ready();
    let path = branch(&mut client);
    let context = TransmitContext {
        ring_length: 64,
        vsi: 1,
        ..TransmitContext::zeroed()
    };
    let last = path.len() - 1;
    for (place, parent) in (0..).zip(&path) {
        let answer = give_queue(&mut client, *parent, place as u16, context);
        // The first is that of the firmware's own tree, where iPXE's queue is.
        let expected = match place == 0 || place == last {
            true => ReturnCode::Ok,
            false => ReturnCode::Invalid,
        };
        assert_eq!(answer.descriptor.return_code(), expected, "place {place}");
    }
    let breaches = ["scheduler leaf that is not in the last layer"];
    assert_eq!(client.breach_names(), breaches);
}

#[test]
fn a_command_names_no_other_port() {
    let mut client = Client::ready();
    let mut ask = |port| {
        let asked = GetLinkStatus {
            port,
            ..GetLinkStatus::zeroed()
        };
        client.give(Opcode::GetLinkStatus, &asked, &[0; 64]).ok();
        client.breach_names()
    };
    assert_eq!(ask(0), [""; 0]);
    assert_eq!(ask(3), ["command for another port"]);
}

#[test]
fn a_transmit_queue_names_its_function_and_a_vsi_that_exists() {
    let mut client = Client::ready();
    let parent = *branch(&mut client).last().unwrap();
    let context = TransmitContext {
        ring_length: 64,
        vsi: 1,
        ..TransmitContext::zeroed()
    };
    let mut give = |context| {
        let answer = give_queue(&mut client, parent, 0, context);
        answer.descriptor.return_code()
    };
    let stranger = TransmitContext {
        vsi: 700,
        ..context
    };
    assert_eq!(give(stranger), ReturnCode::NoEntry);
    let elsewhere = TransmitContext {
        function: 3,
        ..context
    };
    assert_eq!(give(elsewhere), ReturnCode::Invalid);
    assert_eq!(give(context), ReturnCode::Ok);
    let breaches = [
        "transmit queue for a VSI that does not exist",
        "transmit queue for another function",
    ];
    assert_eq!(client.breach_names(), breaches);
}

#[test]
fn receive_queues_are_those_of_the_function() {
    let mut client = Client::ready();
    let asked = VsiCommand {
        vsi_flags: kind::PHYSICAL_FUNCTION.into(),
        ..VsiCommand::zeroed()
    };
    let mut add = |first: u16, count: u16| {
        let mut properties = VsiProperties {
            switch_id: 1,
            mapping_flags: QUEUES_CONTIGUOUS.into(),
            ..VsiProperties::zeroed()
        };
        properties.queue_mapping[0] = first.into();
        properties.queue_mapping[1] = count.into();
        let answer = client.give(Opcode::AddVsi, &asked, properties.as_bytes());
        answer.descriptor.return_code()
    };
    assert_eq!(add(256, 256), ReturnCode::Ok);
    assert_eq!(add(0, 0), ReturnCode::Ok);
    assert_eq!(add(511, 2), ReturnCode::Invalid);
    let enable = ReceiveQueueControl::ZERO.with_enable_request(true);
    // Only to switch one on is wrong.
    client.write(RECEIVE_QUEUE_CONTROL.at(512), 0);
    client.write(RECEIVE_QUEUE_CONTROL.at(512), enable.0);
    let breaches = [
        "VSI with a receive queue that the function does not have",
        "receive queue enabled that the function does not have",
    ];
    assert_eq!(client.breach_names(), breaches);
}

#[test]
fn a_rule_names_a_list_that_is_allocated_and_a_vsi_that_exists() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let own = add_mac_rule(&mut client, vsi, [2, 0, 0, 0, 0, 1]);
    let of = |kind, number: u16| {
        let action = SingleAction::ZERO.with_kind(kind).with_valid(true);
        let action = action
            .with_vsi(number.into())
            .with_is_list(kind != 0 || number == 77);
        move |head: &mut LookupRule| head.action = action.0.into()
    };
    for kind in [action::FORWARD, action::PRUNE] {
        let bytes = changed(vsi, of(kind, 77));
        let refused = rule(&mut client, Opcode::AddSwitchRules, &bytes);
        assert_eq!(refused, ReturnCode::NoEntry);
    }
    let before = client.world.with(|world| world.snapshot(0)).unwrap();
    for number in [77, 700] {
        let update = changed(vsi, |head| {
            of(action::FORWARD, number)(head);
            head.index = own.into();
            head.header_length = 0.into();
        });
        let update = &update[..update.len() - LOOKUP_HEADER_BYTES];
        let refused = rule(&mut client, Opcode::UpdateSwitchRules, update);
        assert_eq!(refused, ReturnCode::NoEntry);
    }
    let after = client.world.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(after.firmware.rules, before.firmware.rules);
    let found = client.breaches();
    let found: Vec<_> = found.iter().map(|one| (one.kind, one.count)).collect();
    let breaches = [
        ("switch rule for a VSI list that is not allocated", 3),
        ("switch rule for a VSI that does not exist", 1),
    ];
    assert_eq!(found, breaches);
}

#[test]
fn a_rule_that_would_do_nothing_is_refused() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let to_queue = SingleAction::ZERO.with_kind(action::QUEUE);
    let wrong = [
        changed(vsi, |head| head.recipe = 33.into()),
        changed(vsi, |head| head.recipe = (recipe::LOGICAL_PORT + 1).into()),
        changed(vsi, |head| head.action = to_queue.0.into()),
    ];
    for bytes in wrong {
        let refused = rule(&mut client, Opcode::AddSwitchRules, &bytes);
        assert_eq!(refused, ReturnCode::NotImplemented);
    }
    let found = client.world.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(found.firmware.rules, []);
    assert_eq!(client.breach_names(), [""; 0]);
    let remarks = client.world.with(|world| world.remarks(0));
    let remarks: Vec<_> = remarks.iter().map(|one| (one.kind, one.count)).collect();
    let expected = [
        ("switch rule of a recipe that the model does not execute", 2),
        (
            "switch rule with an action that the model does not execute",
            1,
        ),
    ];
    assert_eq!(remarks, expected);
}

#[test]
fn a_resource_has_a_type_that_exists() {
    let mut client = Client::ready();
    let one = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    let answer = client.give(Opcode::AllocateResource, &one, &[0x7E, 0, 1, 0, 0, 0]);
    assert_eq!(answer.descriptor.return_code(), ReturnCode::Invalid);
    assert_eq!(
        client.breach_names(),
        ["resource of a type that does not exist"]
    );
}
