//! Keys and tables of receive side scaling.

use super::client::Client;
use super::switching::{add_vsi, command_for};
use ringside_spec::lan::admin::rss::{RssTableCommand, RssTableFlags, RssVsi, table};
use ringside_spec::lan::admin::switch::{AllocateResource, Resource};
use ringside_spec::lan::admin::{Opcode, ReturnCode};

fn set(client: &mut Client, vsi: u16, flags: u16, queue: u8) -> ReturnCode {
    let asked = asked(vsi, flags);
    let entries = [queue; table::FUNCTION_ENTRIES];
    let answer = client.give(Opcode::SetRssTable, &asked, &entries);
    answer.descriptor.return_code()
}

fn asked(vsi: u16, flags: u16) -> RssTableCommand {
    RssTableCommand {
        vsi: RssVsi::ZERO.with_number(vsi).with_valid(true).0.into(),
        flags: flags.into(),
        ..RssTableCommand::zeroed()
    }
}

fn tables(client: &Client) -> Vec<(u16, u16)> {
    let found = client.world.with(|world| world.snapshot(0)).unwrap();
    found.firmware.rss.1
}

/// Each of them would be a further table, as often as there are values of the flags.
#[test]
fn a_hash_table_with_flags_that_have_no_meaning_is_refused() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let third_kind = RssTableFlags::ZERO.with_kind(3).with_size(table::SIZE_512);
    let wrong = [0x100, 0x200, 0x8000, third_kind.0];
    for flags in wrong {
        assert_eq!(set(&mut client, vsi, flags, 1), ReturnCode::Invalid);
        let read = client.ask(Opcode::GetRssTable, &asked(vsi, flags), 64);
        assert_eq!(read.descriptor.return_code(), ReturnCode::Invalid);
    }
    assert_eq!(tables(&client), []);
    let breach = "hash table with flags that have no meaning";
    let found = client.breaches();
    assert_eq!((found.len(), found[0].kind, found[0].count), (1, breach, 8));
}

#[test]
fn a_function_has_one_hash_table_and_a_vsi_one_of_its_own() {
    let mut client = Client::ready();
    let (first, second) = (add_vsi(&mut client), add_vsi(&mut client));
    let function = RssTableFlags::ZERO
        .with_kind(table::FUNCTION)
        .with_size(table::SIZE_512);
    // The index counts for global tables only.
    for index in 0..16 {
        let ignored = RssTableFlags::ZERO.with_global_index(index);
        assert_eq!(set(&mut client, first, ignored.0, 1), ReturnCode::Ok);
        let ignored = function.with_global_index(index);
        assert_eq!(set(&mut client, first, ignored.0, 2), ReturnCode::Ok);
    }
    assert_eq!(set(&mut client, second, 0, 3), ReturnCode::Ok);
    assert_eq!(set(&mut client, second, function.0, 4), ReturnCode::Ok);
    let kind = table::FUNCTION;
    assert_eq!(tables(&client), [(first, 0), (second, 0), (second, kind)]);
    let read = client.ask(Opcode::GetRssTable, &asked(first, function.0), 512);
    assert_eq!(read.ok().bytes, [4; 512]);
    client.direct(Opcode::FreeVsi, &command_for(second)).ok();
    assert_eq!(tables(&client), [(first, 0)]);
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn a_global_hash_table_belongs_to_its_resource() {
    let mut client = Client::ready();
    let vsi = add_vsi(&mut client);
    let one = AllocateResource {
        entry_count: 1.into(),
        ..AllocateResource::zeroed()
    };
    let [low, high] = Resource::GlobalHash.code().to_le_bytes();
    let taken = client
        .give(Opcode::AllocateResource, &one, &[low, high, 1, 0, 0, 0])
        .ok();
    let index = u16::from_le_bytes([taken.bytes[4], taken.bytes[5]]);
    let of = |index| {
        let flags = RssTableFlags::ZERO.with_kind(table::GLOBAL);
        flags.with_size(table::SIZE_512).with_global_index(index).0
    };
    assert_eq!(set(&mut client, vsi, of(index), 1), ReturnCode::Ok);
    assert_eq!(tables(&client).len(), 1);
    assert_eq!(client.breach_names(), [""; 0]);
    let other = of(index + 1);
    assert_eq!(set(&mut client, vsi, other, 1), ReturnCode::NoEntry);
    let breach = "global hash table that is not allocated";
    assert_eq!(client.breach_names(), [breach]);
    let entry = [low, high, 1, 0, taken.bytes[4], taken.bytes[5]];
    client.give(Opcode::FreeResource, &one, &entry).ok();
    assert_eq!(tables(&client), []);
}
