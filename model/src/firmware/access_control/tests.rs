//! As DPDK 25.11 goes about it: table, scenario and profiles at its start, a rule, all back at the
//! end. Source: DPDK 25.11 `ice_acl_filter.c`, `ice_acl_setup`; `ice_acl_ctrl.c`,
//! `ice_acl_create_tbl`, `ice_acl_destroy_tbl`.

use super::super::tests::client::{Answered, Client};
use super::*;

/// A key of thirty bytes, as for a device with fewer than four functions.
const KEY_BITS: u16 = 30 * 8;
const ENTRIES: u16 = 512;
const ACTION_PAIRS: u8 = 4;

fn entry(slice: u8, entry: u16) -> AccessEntry {
    AccessEntry {
        slice,
        entry: entry.into(),
        ..AccessEntry::zeroed()
    }
}

fn object(number: u16) -> AccessObject {
    AccessObject {
        number: number.into(),
        ..AccessObject::zeroed()
    }
}

fn allocate(client: &mut Client, key_bits: u16, entries: u16) -> Answered {
    let asked = AllocateAccessTable {
        key_bits: key_bits.into(),
        entries: entries.into(),
        action_pairs: ACTION_PAIRS,
        ..AllocateAccessTable::zeroed()
    };
    client.give(Opcode::AllocateAccessTable, &asked, &[0xFF; 30])
}

fn scenario(client: &mut Client) -> u16 {
    let content = [0x21; SCENARIO_BYTES];
    let asked = object(0);
    let made = client.give(Opcode::AllocateAccessScenario, &asked, &content);
    let made: AccessObject = made.ok().descriptor.parameters();
    made.number.get()
}

fn held(client: &Client) -> usize {
    let snapshot = client.world.with(|world| world.snapshot(0)).unwrap();
    snapshot.firmware.access_control.len()
}

#[test]
fn a_table_is_asked_for_with_bits_of_a_key_and_named_by_slices_of_five_bytes() {
    let mut client = Client::ready();
    let table: AccessTable = allocate(&mut client, KEY_BITS, ENTRIES).ok().item(0);
    assert!(table.number.get() >= FIRST_TABLE);
    assert_eq!((table.first_slice, table.last_slice), (0, 5));
    assert_eq!((table.first_entry.get(), table.last_entry.get()), (0, 511));
    let memories = table.action_memories.iter();
    assert_eq!(memories.filter(|&&at| at != NO_MEMORY).count(), 4);
    let second = allocate(&mut client, 40, 64);
    assert_eq!(second.descriptor.return_code(), ReturnCode::NoSpace);
    // Sixteen slices are all that there are.
    let mut other = Client::ready();
    let wide = allocate(&mut other, 16 * 40 + 1, ENTRIES);
    assert_eq!(wide.descriptor.return_code(), ReturnCode::Invalid);
    let deep = allocate(&mut other, 9 * 40, 2 * ENTRIES);
    assert_eq!(deep.descriptor.return_code(), ReturnCode::Invalid);
    allocate(&mut other, 8 * 40, 2 * ENTRIES).ok();
}

#[test]
fn entries_and_actions_may_be_made_empty_and_a_rule_is_refused() {
    let mut client = Client::ready();
    allocate(&mut client, KEY_BITS, ENTRIES).ok();
    let mut program =
        |opcode, at: AccessEntry, bytes: &[u8]| client.give(opcode, &at, bytes).descriptor;
    for at in [entry(0, 0), entry(5, 511)] {
        let emptied = program(Opcode::ProgramAccessEntry, at, &[0; 10]);
        assert_eq!(emptied.return_code(), ReturnCode::Ok);
    }
    let emptied = program(Opcode::ProgramAccessActions, entry(3, 511), &[0; 8]);
    assert_eq!(emptied.return_code(), ReturnCode::Ok);
    // So that the driver gives it to another engine.
    let rule = program(Opcode::ProgramAccessEntry, entry(3, 7), &[0x5A; 10]);
    assert_eq!(rule.return_code(), ReturnCode::NotImplemented);
    assert_eq!(client.breach_names(), [""; 0]);
    for (opcode, at, bytes) in [
        (Opcode::ProgramAccessEntry, entry(6, 0), [0; 10].as_slice()),
        (Opcode::ProgramAccessActions, entry(4, 0), &[0; 8]),
    ] {
        let beyond = client.give(opcode, &at, bytes).descriptor;
        assert_eq!(beyond.return_code(), ReturnCode::NoEntry);
    }
    assert_eq!(
        client.breach_names(),
        ["access control command for what does not exist"]
    );
}

/// A driver reads its scenario, stops its look-ups, and only then frees it and its table.
#[test]
fn a_scenario_is_read_as_it_was_written_and_everything_can_be_given_back() {
    let mut client = Client::ready();
    let table: AccessTable = allocate(&mut client, KEY_BITS, ENTRIES).ok().item(0);
    let number = scenario(&mut client);
    assert_eq!(held(&client), 2);
    let room = SCENARIO_BYTES as u16;
    let read = |client: &mut Client| {
        let answer = client.ask(Opcode::QueryAccessScenario, &object(number), room);
        answer.ok().bytes
    };
    assert_eq!(read(&mut client), [0x21; SCENARIO_BYTES]);
    let stopped = [1; SCENARIO_BYTES];
    client
        .give(Opcode::UpdateAccessScenario, &object(number), &stopped)
        .ok();
    assert_eq!(read(&mut client), stopped);
    let short = client.give(Opcode::UpdateAccessScenario, &object(number), &[0; 100]);
    assert_eq!(short.descriptor.return_code(), ReturnCode::Invalid);
    client
        .direct(Opcode::FreeAccessScenario, &object(number))
        .ok();
    let of_table = object(table.number.get());
    client.ask(Opcode::FreeAccessTable, &of_table, 28).ok();
    assert_eq!(held(&client), 0);
    assert_eq!(client.breach_names(), [""; 0]);
    for (opcode, gone) in [
        (Opcode::FreeAccessScenario, object(number)),
        (Opcode::QueryAccessScenario, object(number)),
        (Opcode::FreeAccessTable, of_table),
    ] {
        let answer = client.ask(opcode, &gone, room);
        assert_eq!(answer.descriptor.return_code(), ReturnCode::NoEntry);
    }
}

/// A driver learns from a profile whether another function uses it: zeros say that none does.
#[test]
fn profiles_and_their_ranges_are_read_as_they_were_written() {
    let mut client = Client::ready();
    let about = |profile| AccessProfile {
        profile,
        ..AccessProfile::zeroed()
    };
    let profile = (Opcode::ProgramAccessProfile, Opcode::QueryAccessProfile);
    let ranges = (Opcode::ProgramAccessRanges, Opcode::QueryAccessRanges);
    for ((program, query), bytes) in [(profile, PROFILE_BYTES), (ranges, RANGES_BYTES)] {
        let read = |client: &mut Client, number| {
            let answer = client.ask(query, &about(number), bytes as u16);
            answer.ok().bytes
        };
        assert_eq!(read(&mut client, 3), vec![0; bytes]);
        let written: Vec<u8> = (0..bytes as u8).collect();
        client.give(program, &about(3), &written).ok();
        assert_eq!(read(&mut client, 3), written);
        assert_eq!(read(&mut client, 4), vec![0; bytes]);
        let long = client.give(program, &about(3), &vec![0; bytes + 1]);
        assert_eq!(long.descriptor.return_code(), ReturnCode::Invalid);
    }
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn a_scenario_that_is_not_there_may_be_asked_for() {
    let mut client = Client::ready();
    let room = SCENARIO_BYTES as u16;
    let gone = client.ask(Opcode::QueryAccessScenario, &object(3), room);
    assert_eq!(gone.descriptor.return_code(), ReturnCode::NoEntry);
    assert_eq!(client.breach_names(), [""; 0]);
}
