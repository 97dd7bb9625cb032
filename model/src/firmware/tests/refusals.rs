//! Requests that fail halfway take nothing.

use super::client::Client;
use super::scheduling::{add_nodes, branch};
use super::switching::{add_vsi, mac_rule};
use ringside_spec::lan::admin::queues::{
    AddRdmaQueueSets, AddTransmitQueues, RdmaQueueSet, RdmaQueueSetGroup, TransmitQueue,
    TransmitQueueGroup,
};
use ringside_spec::lan::admin::scheduler::{Element, RateLimitCommand, RateLimitProfile};
use ringside_spec::lan::admin::switch::{AllocateResource, Resource, SwitchRules};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::transmit::TransmitContext;
use zerocopy::IntoBytes;

fn allocate(client: &mut Client, count: u16) -> ReturnCode {
    let one = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    let kind = Resource::FlowDirectorProfile.code().to_le_bytes();
    let mut bytes = [kind, count.to_le_bytes()].concat();
    bytes.resize(4 + 2 * usize::from(count), 0);
    let answer = client.give(Opcode::AllocateResource, &one, &bytes);
    answer.descriptor.return_code()
}

#[test]
fn more_resources_than_there_are_take_none() {
    let mut client = Client::ready();
    assert_eq!(allocate(&mut client, 100), ReturnCode::Ok);
    assert_eq!(allocate(&mut client, 29), ReturnCode::NoSpace);
    let found = client.world.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(found.firmware.resources.len(), 100);
    assert_eq!(allocate(&mut client, 28), ReturnCode::Ok);
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn more_nodes_queues_and_queue_sets_than_there_is_room_for_take_none() {
    let mut client = Client::ready();
    let parent = *branch(&mut client).last().unwrap();
    let before = client.world.with(|world| world.snapshot(0)).unwrap();
    let refused = add_nodes(&mut client, parent, 9);
    assert_eq!(refused.descriptor.return_code(), ReturnCode::NoSpace);
    let group = TransmitQueueGroup {
        parent: parent.into(),
        count: 9,
        reserved: [0; 3],
    };
    let mut bytes = group.as_bytes().to_vec();
    for number in 0u16..9 {
        let context = TransmitContext {
            ring_length: 64,
            vsi: 1,
            ..TransmitContext::zeroed()
        };
        let queue = TransmitQueue {
            queue: number.into(),
            element: Element::unlimited(),
            context: context.encode(),
            ..TransmitQueue::zeroed()
        };
        bytes.extend(queue.as_bytes());
    }
    let one = AddTransmitQueues {
        group_count: 1,
        ..AddTransmitQueues::zeroed()
    };
    let refused = client.give(Opcode::AddTransmitQueues, &one, &bytes);
    assert_eq!(refused.descriptor.return_code(), ReturnCode::NoSpace);
    let group = RdmaQueueSetGroup {
        parent: parent.into(),
        count: 9.into(),
        ..RdmaQueueSetGroup::zeroed()
    };
    let mut bytes = group.as_bytes().to_vec();
    for number in 1u16..10 {
        let set = RdmaQueueSet {
            queue_set: number.into(),
            element: Element::unlimited(),
            ..RdmaQueueSet::zeroed()
        };
        bytes.extend(set.as_bytes());
    }
    let one = AddRdmaQueueSets {
        group_count: 1,
        ..AddRdmaQueueSets::zeroed()
    };
    let refused = client.give(Opcode::AddRdmaQueueSets, &one, &bytes);
    assert_eq!(refused.descriptor.return_code(), ReturnCode::NoSpace);
    let mut after = client.world.with(|world| world.snapshot(0)).unwrap();
    after.firmware.rings = before.firmware.rings.clone();
    assert_eq!(after.firmware, before.firmware);
    add_nodes(&mut client, parent, 8).ok();
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn profiles_with_a_wrong_one_among_them_take_none() {
    let mut client = Client::ready();
    let profile = |level| RateLimitProfile {
        level,
        ..RateLimitProfile::zeroed()
    };
    let bytes = [profile(1), profile(0)];
    let two = RateLimitCommand {
        count: 2.into(),
        ..RateLimitCommand::zeroed()
    };
    let refused = client.give(Opcode::AddRateLimitProfiles, &two, bytes.as_bytes());
    assert_eq!(refused.descriptor.return_code(), ReturnCode::Invalid);
    let found = client.world.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(found.firmware.rate_profiles, []);
}

#[test]
fn rules_with_a_wrong_one_among_them_take_none() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let first = mac_rule(vsi, [2, 0, 0, 0, 0, 1]);
    let wrong = mac_rule(vsi + 1, [2, 0, 0, 0, 0, 2]);
    let two = SwitchRules {
        rule_count: 2.into(),
        ..SwitchRules::zeroed()
    };
    let both = [&first[..], &wrong].concat();
    let refused = client.give(Opcode::AddSwitchRules, &two, &both);
    assert_eq!(refused.descriptor.return_code(), ReturnCode::NoEntry);
    let found = client.world.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(found.firmware.rules, []);
}
