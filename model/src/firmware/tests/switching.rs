//! VSIs, rules, resources.

use super::client::{Client, none};
use crate::packet::MacAddress;
use ringside_spec::lan::admin::rss::{RssTableCommand, RssTableFlags, RssVsi, table};
use ringside_spec::lan::admin::switch::{
    AllocateResource, ElementNumber, GetSwitchConfig, LOOKUP_HEADER_BYTES, LookupRule, Resource,
    RuleHeader, RuleType, SingleAction, SwitchElement, SwitchRules, VsiListRule, recipe,
};
use ringside_spec::lan::admin::vsi::{
    VsiAnswer, VsiCommand, VsiNumber, VsiProperties, VsiSections, kind,
};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::registers::filters;
use zerocopy::IntoBytes;

pub(crate) fn add_vsi(client: &mut Client) -> u16 {
    add_vsi_of(client, kind::PHYSICAL_FUNCTION)
}

pub(crate) fn add_vsi_of(client: &mut Client, kind: u16) -> u16 {
    let asked = VsiCommand {
        vsi_flags: kind.into(),
        ..VsiCommand::zeroed()
    };
    let properties = VsiProperties {
        switch_id: 1,
        ..VsiProperties::zeroed()
    };
    let answer = client
        .give(Opcode::AddVsi, &asked, properties.as_bytes())
        .ok();
    let answer: VsiAnswer = answer.descriptor.parameters();
    let number = VsiNumber(answer.number.get());
    assert!(number.valid());
    number.number()
}

pub(crate) fn command_for(vsi: u16) -> VsiCommand {
    let number = VsiNumber::ZERO.with_number(vsi).with_valid(true);
    VsiCommand {
        number: number.0.into(),
        ..VsiCommand::zeroed()
    }
}

pub(crate) fn mac_rule(vsi: u16, mac: [u8; 6]) -> Vec<u8> {
    let action = SingleAction::ZERO
        .with_vsi(vsi.into())
        .with_loopback(true)
        .with_lan(true)
        .with_valid(true);
    let rule = LookupRule {
        header: RuleHeader {
            kind: 1.into(),
            status: 0.into(),
        },
        recipe: recipe::MAC.into(),
        source: vsi.into(),
        action: action.0.into(),
        index: 0.into(),
        header_length: (LOOKUP_HEADER_BYTES as u16).into(),
    };
    let mut bytes = rule.as_bytes().to_vec();
    bytes.extend(mac);
    bytes.resize(LookupRule::SIZE + LOOKUP_HEADER_BYTES, 0);
    bytes
}

fn one_rule() -> SwitchRules {
    SwitchRules {
        rule_count: 1.into(),
        ..SwitchRules::zeroed()
    }
}

pub(crate) fn add_mac_rule(client: &mut Client, vsi: u16, mac: [u8; 6]) -> u16 {
    let answer = client
        .give(Opcode::AddSwitchRules, &one_rule(), &mac_rule(vsi, mac))
        .ok();
    let rule: LookupRule = answer.item(0);
    assert_eq!(rule.header.status.get(), 0);
    rule.index.get()
}

fn owns(client: &Client, mac: [u8; 6]) -> bool {
    client
        .world
        .with(|world| world.function(0).unwrap().loops_back(MacAddress(mac)))
}

#[test]
fn switch_has_exactly_one_physical_port_and_the_vsi_of_the_firmware() {
    let mut client = Client::ready();
    let answer = client
        .ask(Opcode::GetSwitchConfig, &GetSwitchConfig::zeroed(), 2048)
        .ok();
    let config: GetSwitchConfig = answer.descriptor.parameters();
    assert_eq!((config.element_count.get(), config.element.get()), (2, 0));
    let port: SwitchElement = answer.item(0);
    assert_eq!(ElementNumber(port.number.get()).kind(), 0);
    assert_eq!(port.switch_id.get(), 1);
    let vsi: SwitchElement = answer.item(SwitchElement::SIZE);
    assert_eq!(ElementNumber(vsi.number.get()).kind(), 2);
}

#[test]
fn update_changes_only_the_sections_that_are_valid() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let mut new = VsiProperties {
        switch_flags: 0x20,
        queue_option_flags: 1,
        ..VsiProperties::zeroed()
    };
    new.valid_sections = VsiSections::ZERO.with_queue_option(true).0.into();
    client
        .give(Opcode::UpdateVsi, &command_for(vsi), new.as_bytes())
        .ok();
    let now: VsiProperties = client
        .ask(Opcode::GetVsi, &command_for(vsi), 128)
        .ok()
        .item(0);
    assert_eq!(
        (now.queue_option_flags, now.switch_flags, now.switch_id),
        (1, 0, 1)
    );
    client.direct(Opcode::FreeVsi, &command_for(vsi)).ok();
    assert_eq!(client.breach_names(), [""; 0]);
    let gone = client.direct(Opcode::FreeVsi, &command_for(vsi));
    assert_eq!(gone.descriptor.return_code(), ReturnCode::NoEntry);
    assert_eq!(
        client.breach_names(),
        ["VSI command for a VSI that does not exist"]
    );
}

/// A section is replaced as a whole: Linux and DPDK send it as they made it, the switch's number
/// with it.
#[test]
fn an_update_of_the_switch_section_names_the_switch() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let mut update = |switch_id| {
        let new = VsiProperties {
            valid_sections: VsiSections::ZERO.with_switch(true).0.into(),
            switch_id,
            ..VsiProperties::zeroed()
        };
        client
            .give(Opcode::UpdateVsi, &command_for(vsi), new.as_bytes())
            .ok();
        client.breach_names()
    };
    assert_eq!(update(1), [""; 0]);
    assert_eq!(update(0), ["VSI on a switch that does not exist"]);
}

#[test]
fn a_rule_is_changed_by_its_number_without_a_header() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let mac = [2, 3, 4, 5, 6, 7];
    let number = add_mac_rule(&mut client, vsi, mac);
    let mut rule = mac_rule(vsi, mac);
    rule[12..14].copy_from_slice(&number.to_le_bytes());
    for header_bytes in [0u8, 16] {
        assert_eq!(client.breach_names(), [""; 0]);
        rule[14] = header_bytes;
        client
            .give(Opcode::UpdateSwitchRules, &one_rule(), &rule)
            .ok();
    }
    assert_eq!(client.breach_names(), ["switch rule changed with a header"]);
}

#[test]
fn address_rules_of_the_transmit_kind_decide_what_is_received() {
    let mut client = Client::ready();
    let mac = [2, 3, 4, 5, 6, 7];
    let vsi = add_vsi(&mut client);
    assert!(!owns(&client, mac));
    let rule = add_mac_rule(&mut client, vsi, mac);
    assert!(owns(&client, mac));
    let twice = client.give(Opcode::AddSwitchRules, &one_rule(), &mac_rule(vsi, mac));
    assert_eq!(twice.descriptor.return_code(), ReturnCode::Exists);
    let remove = LookupRule {
        header: RuleHeader {
            kind: 1.into(),
            status: 0.into(),
        },
        index: rule.into(),
        ..LookupRule::zeroed()
    };
    client
        .give(Opcode::RemoveSwitchRules, &one_rule(), remove.as_bytes())
        .ok();
    assert!(!owns(&client, mac));
    assert_eq!(client.breach_names(), [""; 0]);
    client.give(Opcode::RemoveSwitchRules, &one_rule(), remove.as_bytes());
    let orphan = client.give(Opcode::AddSwitchRules, &one_rule(), &mac_rule(700, mac));
    assert_eq!(orphan.descriptor.return_code(), ReturnCode::NoEntry);
    let expected = [
        "switch rule for a VSI that does not exist",
        "switch rule removed that does not exist",
    ];
    assert_eq!(client.breach_names(), expected);
}

/// A host that filters by VLAN adds a rule for each number. Linux: 4094 VLANs on one interface.
#[test]
fn rules_for_thousands_of_vlans_fit() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    for number in 1..=2100u16 {
        let [high, low] = number.to_be_bytes();
        add_mac_rule(&mut client, vsi, [2, 0, 0, 0, high, low]);
    }
}

#[test]
fn rules_outlive_their_vsi_but_let_nothing_in() {
    let mut client = Client::ready();
    let mac = [2, 3, 4, 5, 6, 7];
    let vsi = add_vsi(&mut client);
    add_mac_rule(&mut client, vsi, mac);
    client.direct(Opcode::FreeVsi, &command_for(vsi)).ok();
    assert!(!owns(&client, mac));
    assert_eq!(
        client
            .world
            .with(|world| world.snapshot(0))
            .unwrap()
            .firmware
            .rules
            .len(),
        1
    );
}

#[test]
fn lists_of_vsis_forward_too() {
    let mut client = Client::ready();
    let (mac, vsi) = ([2, 3, 4, 5, 6, 7], add_vsi(&mut client));
    let one = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    let kind = Resource::VsiListReplication.code().to_le_bytes();
    let buffer = [kind[0], kind[1], 1, 0, 0, 0];
    let list: [u8; 2] = client
        .give(Opcode::AllocateResource, &one, &buffer)
        .ok()
        .item(4);
    let rule = VsiListRule {
        header: RuleHeader {
            kind: 3.into(),
            status: 0.into(),
        },
        list: u16::from_le_bytes(list).into(),
        count: 1.into(),
    };
    let mut bytes = rule.as_bytes().to_vec();
    bytes.extend(vsi.to_le_bytes());
    client
        .give(Opcode::AddSwitchRules, &one_rule(), &bytes)
        .ok();
    let mut forward = mac_rule(u16::from_le_bytes(list), mac);
    let action = SingleAction::ZERO
        .with_vsi(u16::from_le_bytes(list).into())
        .with_is_list(true)
        .with_loopback(true)
        .with_valid(true);
    forward[8..12].copy_from_slice(&action.0.to_le_bytes());
    client
        .give(Opcode::AddSwitchRules, &one_rule(), &forward)
        .ok();
    assert!(owns(&client, mac));
    client
        .give(
            Opcode::FreeResource,
            &one,
            &[kind[0], kind[1], 1, 0, list[0], list[1]],
        )
        .ok();
    assert!(!owns(&client, [9; 6]));
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn clearing_the_function_takes_everything_that_was_configured() {
    let mut client = Client::ready();
    let found = client.world.with(|world| world.snapshot(0));
    let vsi = add_vsi(&mut client);
    add_mac_rule(&mut client, vsi, [2, 3, 4, 5, 6, 7]);
    client.direct(Opcode::ClearFunctionConfig, &none()).ok();
    let mut now = client.world.with(|world| world.snapshot(0)).unwrap();
    let mut found = found.unwrap();
    // the ring has moved on
    now.firmware.rings.clear();
    found.firmware.rings.clear();
    assert_eq!(now, found);
}

#[test]
fn entries_of_the_flow_director_are_amounts_that_the_function_has_until_they_are_freed() {
    let mut client = Client::ready();
    let one = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    let mut change = |opcode, kind: Resource, amount: u16| {
        let mut list = kind.code().to_le_bytes().to_vec();
        list.extend(amount.to_le_bytes());
        list.extend([0, 0]);
        let code = client.give(opcode, &one, &list).descriptor.return_code();
        let size = client.read(filters::FUNCTION_FLOW_DIRECTOR_SIZE);
        (code, (size & 0x7FFF, size >> 16))
    };
    let (take, free) = (Opcode::AllocateResource, Opcode::FreeResource);
    let (own, shared) = (
        Resource::FlowDirectorGuaranteed,
        Resource::FlowDirectorShared,
    );
    let (ok, full) = (ReturnCode::Ok, ReturnCode::NoSpace);
    assert_eq!(change(take, own, 0), (ok, (0, 0)), "none before");
    assert_eq!(change(take, own, 1025), (full, (0, 0)));
    assert_eq!(change(take, own, 1024), (ok, (1024, 0)));
    assert_eq!(change(take, shared, 14336), (ok, (1024, 14336)));
    assert_eq!(change(take, shared, 1), (full, (1024, 14336)));
    assert_eq!(change(free, own, 24), (ok, (1000, 14336)));
    let refused = (ReturnCode::NoEntry, (1000, 14336));
    assert_eq!(change(free, own, 1001), refused);
    assert_eq!(
        client.breach_names(),
        ["resource freed that was not allocated"]
    );
    let size = |client: &Client| client.read(filters::FUNCTION_FLOW_DIRECTOR_SIZE);
    client.direct(Opcode::ClearFunctionConfig, &none()).ok();
    assert_eq!(size(&client), 0);
}

#[test]
fn a_resource_that_a_clearing_took_may_be_freed_once_more() {
    let mut client = Client::ready();
    let one = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    let kind = Resource::FlowDirectorCounters.code().to_le_bytes();
    let entry = [kind[0], kind[1], 1, 0, 0, 0];
    client.give(Opcode::AllocateResource, &one, &entry).ok();
    client.direct(Opcode::ClearFunctionConfig, &none()).ok();
    client.give(Opcode::FreeResource, &one, &entry).ok();
    assert!(client.breach_names().is_empty());
    let again = client.give(Opcode::FreeResource, &one, &entry);
    assert_eq!(again.descriptor.return_code(), ReturnCode::NoEntry);
    assert_eq!(
        client.breach_names(),
        ["resource freed that was not allocated"]
    );
}

/// DPDK's driver reads its table without a size in the flags. Source: ice
/// `__ice_aq_get_set_rss_lut`.
#[test]
fn a_lookup_table_is_read_without_the_size_that_it_was_written_with() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let of = |size| RssTableCommand {
        vsi: RssVsi::ZERO.with_number(vsi).with_valid(true).0.into(),
        flags: RssTableFlags::ZERO
            .with_kind(table::FUNCTION)
            .with_size(size)
            .0
            .into(),
        ..RssTableCommand::zeroed()
    };
    for (size, entries, queues) in [(table::SIZE_2048, 2048u16, 3), (table::SIZE_512, 512, 4)] {
        let written: Vec<u8> = (0..entries).map(|entry| (entry % queues) as u8).collect();
        client.give(Opcode::SetRssTable, &of(size), &written).ok();
        let read = client.ask(Opcode::GetRssTable, &of(0), entries).ok();
        assert_eq!(read.bytes[..entries.into()], written);
    }
}

/// Adds a VSI with these receive queues.
fn add_with_queues(client: &mut Client, first: u16, count: u16) -> u16 {
    let asked = VsiCommand {
        vsi_flags: kind::VIRTUAL_MACHINE.into(),
        ..VsiCommand::zeroed()
    };
    let mut properties = VsiProperties {
        switch_id: 1,
        ..VsiProperties::zeroed()
    };
    properties.queue_mapping[0] = first.into();
    properties.queue_mapping[1] = count.into();
    let answer = client
        .give(Opcode::AddVsi, &asked, properties.as_bytes())
        .ok();
    VsiNumber(answer.descriptor.parameters::<VsiAnswer>().number.get()).number()
}

#[test]
fn a_receive_queue_belongs_to_one_vsi() {
    const SHARED: &str = "VSI with a receive queue of another VSI";
    let mut client = Client::ready();
    let first = add_with_queues(&mut client, 0, 4);
    let second = add_with_queues(&mut client, 4, 4);
    assert_eq!(client.breach_names(), [""; 0]);
    add_with_queues(&mut client, 7, 2);
    assert_eq!(client.breach_names(), [SHARED]);
    let mut wider = VsiProperties::zeroed();
    wider.valid_sections = VsiSections::ZERO.with_receive_queue_map(true).0.into();
    wider.queue_mapping[1] = 5.into();
    client
        .give(Opcode::UpdateVsi, &command_for(first), wider.as_bytes())
        .ok();
    let found = client.world.with(|world| world.breaches(0));
    assert_eq!(found.iter().map(|one| one.count).sum::<u64>(), 2);
    // Of a VSI that is gone the queues are free.
    client.direct(Opcode::FreeVsi, &command_for(second)).ok();
    let mut narrow = wider;
    narrow.queue_mapping[1] = 6.into();
    client
        .give(Opcode::UpdateVsi, &command_for(first), narrow.as_bytes())
        .ok();
    let found = client.world.with(|world| world.breaches(0));
    assert_eq!(found.iter().map(|one| one.count).sum::<u64>(), 2);
}

#[test]
fn vsis_share_the_rule_of_an_address_by_a_list() {
    let mut client = Client::ready();
    let group = [0x33, 0x33, 0, 0, 0, 1];
    let first = add_vsi(&mut client);
    let second = add_with_queues(&mut client, 8, 1);
    add_mac_rule(&mut client, first, group);
    assert_eq!(client.breach_names(), [""; 0]);
    let twice = client.give(
        Opcode::AddSwitchRules,
        &one_rule(),
        &mac_rule(second, group),
    );
    assert_eq!(twice.descriptor.return_code(), ReturnCode::Exists);
    assert_eq!(
        client.breach_names(),
        ["switch rule for the packets of another one"]
    );
}

/// Allocates a list of a kind and puts a VSI into it; returns its number.
fn add_list(client: &mut Client, resource: Resource, set: RuleType, vsi: u16) -> u16 {
    let one = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    let [low, high] = resource.code().to_le_bytes();
    let list: [u8; 2] = client
        .give(Opcode::AllocateResource, &one, &[low, high, 1, 0, 0, 0])
        .ok()
        .item(4);
    let list = u16::from_le_bytes(list);
    let changed = change_list(client, Opcode::AddSwitchRules, set, list, vsi);
    assert_eq!(changed, ReturnCode::Ok);
    list
}

/// A rule that puts a VSI into a list, or takes it out.
fn change_list(
    client: &mut Client,
    opcode: Opcode,
    kind: RuleType,
    list: u16,
    vsi: u16,
) -> ReturnCode {
    let rule = VsiListRule {
        header: RuleHeader {
            kind: kind.code().into(),
            status: 0.into(),
        },
        list: list.into(),
        count: 1.into(),
    };
    let bytes = [rule.as_bytes(), &vsi.to_le_bytes()].concat();
    let answer = client.give(opcode, &one_rule(), &bytes);
    answer.descriptor.return_code()
}

#[test]
fn only_lists_that_are_allocated_can_be_changed() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let kinds = [
        (
            Resource::VsiListReplication,
            RuleType::VsiListSet,
            RuleType::VsiListClear,
        ),
        (
            Resource::VsiListPrune,
            RuleType::PruneListSet,
            RuleType::PruneListClear,
        ),
    ];
    let one = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    let mut refused = 0;
    for (resource, set, clear) in kinds {
        let kept = add_list(&mut client, resource, set, vsi);
        let freed = add_list(&mut client, resource, set, vsi);
        let update = Opcode::UpdateSwitchRules;
        let code = change_list(&mut client, update, clear, freed, vsi);
        assert_eq!(code, ReturnCode::Ok, "a list is cleared before it is freed");
        let [low, high] = resource.code().to_le_bytes();
        let [number, zero] = freed.to_le_bytes();
        client
            .give(Opcode::FreeResource, &one, &[low, high, 1, 0, number, zero])
            .ok();
        for list in [freed, kept + 9, 1024, u16::MAX] {
            for kind in [set, clear] {
                for opcode in [Opcode::AddSwitchRules, update] {
                    let code = change_list(&mut client, opcode, kind, list, vsi);
                    assert_eq!(code, ReturnCode::NoEntry, "{kind:?} {list}");
                    refused += 1;
                }
            }
        }
        assert_eq!(
            change_list(&mut client, update, clear, kept, vsi),
            ReturnCode::Ok
        );
    }
    let found = client.breaches();
    let found: Vec<_> = found.iter().map(|one| (one.kind, one.count)).collect();
    let kind = "switch rule for a VSI list that is not allocated";
    assert_eq!(found, [(kind, refused)]);
    let lists = client.world.with(|world| world.snapshot(0)).unwrap();
    assert!(lists.firmware.vsi_lists.is_empty());
}

#[test]
fn lists_to_replicate_to_and_lists_to_prune_by_are_counted_apart() {
    let mut client = Client::ready();
    let first = add_vsi(&mut client);
    let second = add_with_queues(&mut client, 8, 1);
    let kinds = [
        (Resource::VsiListReplication, RuleType::VsiListSet, first),
        (Resource::VsiListPrune, RuleType::PruneListSet, second),
    ];
    let [replicated, pruned] =
        kinds.map(|(resource, set, vsi)| add_list(&mut client, resource, set, vsi));
    assert_eq!(replicated, pruned, "each kind begins with the same number");
    let found = client.world.with(|world| world.snapshot(0)).unwrap();
    let lists = [(replicated, vec![first]), (pruned, vec![second])];
    assert_eq!(found.firmware.vsi_lists, lists);
    let one = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    let [low, high] = Resource::VsiListPrune.code().to_le_bytes();
    let [number, zero] = pruned.to_le_bytes();
    client
        .give(Opcode::FreeResource, &one, &[low, high, 1, 0, number, zero])
        .ok();
    let found = client.world.with(|world| world.snapshot(0)).unwrap();
    assert_eq!(found.firmware.vsi_lists, lists[..1]);
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn the_hash_table_of_a_vsi_names_sixteen_queues_at_most() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let asked = RssTableCommand {
        vsi: RssVsi::ZERO.with_number(vsi).with_valid(true).0.into(),
        flags: RssTableFlags::ZERO.with_kind(table::VSI).0.into(),
        ..RssTableCommand::zeroed()
    };
    client.give(Opcode::SetRssTable, &asked, &[15; 64]).ok();
    assert_eq!(client.breach_names(), [""; 0]);
    let refused = client.give(Opcode::SetRssTable, &asked, &[16; 64]);
    assert_eq!(refused.descriptor.return_code(), ReturnCode::Invalid);
    assert_eq!(
        client.breach_names(),
        ["hash table of a VSI with a queue beyond 15"]
    );
}
