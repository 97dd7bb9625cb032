//! The package and its locks.

use super::client::{Answered, Client, none};
use super::lock;
use crate::faults::Fault;
use ringside_spec::lan::admin::generic::{RequestResource, lock_status, resource};
use ringside_spec::lan::admin::package::{
    DownloadPackage, LAST_BUFFER, PackageInfo, PackageInfoList,
};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::package::section::{self, block};
use ringside_spec::lan::package::{BUFFER_BYTES, MetadataSection};
use zerocopy::IntoBytes;

fn package_list(client: &mut Client) -> Vec<PackageInfo> {
    let answer = client.ask(Opcode::GetPackageInfo, &none(), 164).ok();
    let list: PackageInfoList = answer.item(0);
    (0..list.count.get() as usize)
        .map(|n| answer.item(4 + n * PackageInfo::SIZE))
        .collect()
}

#[test]
fn package_that_is_there_is_not_downloaded_again() {
    let mut client = Client::ready();
    let global = client
        .direct(Opcode::RequestResource, &lock(resource::GLOBAL_CONFIG))
        .ok();
    let granted: RequestResource = global.descriptor.parameters();
    assert_eq!(granted.status.get(), lock_status::DONE);
    let list = package_list(&mut client);
    assert_eq!(list.len(), 1);
    assert_eq!(
        (list[0].version.major, list[0].version.minor, list[0].active),
        (1, 3, 1)
    );
    assert!(list[0].name.starts_with(b"ICE OS Default Package"));
}

#[test]
fn the_package_of_the_flash_is_active_and_another_is_downloaded() {
    let mut client = Client::ready();
    client.inject(Fault::FlashPackageOnly);
    let list = package_list(&mut client);
    assert_eq!((list[0].active, list[0].in_nvm), (1, 1));
    client
        .direct(Opcode::RequestResource, &lock(resource::GLOBAL_CONFIG))
        .ok();
    download(&mut client, LAST_BUFFER, section::METADATA).ok();
    let list = package_list(&mut client);
    assert_eq!((list[0].active, list[0].in_nvm), (1, 0));
    assert!(list[0].name.starts_with(b"TEST"));
    assert!(client.breach_names().is_empty());
}

#[test]
fn an_update_is_as_long_as_its_data() {
    let mut client = Client::ready();
    client
        .direct(Opcode::RequestResource, &lock(resource::CHANGE_LOCK))
        .ok();
    let buffer = package_buffer(section::PARSER_BOOST);
    let long = client.give(Opcode::UpdatePackage, &none(), &buffer);
    assert_eq!(long.descriptor.return_code(), ReturnCode::BadBuffer);
    client
        .give(Opcode::UpdatePackage, &none(), &buffer[..48])
        .ok();
    let expected = ["package update longer or shorter than its data"];
    assert_eq!(client.breach_names(), expected);
}

/// A buffer of one section, as long as its data.
fn section_buffer(kind: u32, content: &[u8]) -> Vec<u8> {
    let length = content.len() as u16;
    let mut buffer = vec![1, 0];
    buffer.extend((12 + length).to_le_bytes());
    buffer.extend(kind.to_le_bytes());
    buffer.extend([12, 0]);
    buffer.extend(length.to_le_bytes());
    buffer.extend(content);
    buffer
}

#[test]
fn tables_are_read_back_as_they_were_written() {
    let mut client = Client::ready();
    client
        .direct(Opcode::RequestResource, &lock(resource::CHANGE_LOCK))
        .ok();
    // Two entries from the third one on. Heads have four bytes; rows have two, and their number.
    let words = (0..2 * 24u8).flat_map(|word| [word, 2 * word, 0, 0]);
    let vectors: Vec<u8> = [2, 0, 3, 0].into_iter().chain(words).collect();
    let head = [2, 0, 3, 0];
    let row = |number: u8, key: u8| [&[number, 0], &[key; 10][..], &[key]].concat();
    let rows = [vec![2, 0], row(3, 7), row(9, 8)].concat();
    for first in [section::FLOW_DIRECTOR, section::HASH] {
        for (table, content) in [
            (block::PACKET_GROUPS, [&head[..], &[7, 8]].concat()),
            (block::VSI_GROUPS, [&head[..], &[7, 0x20, 8, 0x20]].concat()),
            (block::PROFILE_TCAM, rows.clone()),
            (block::REDIRECT, [&head[..], &[7, 8]].concat()),
            (block::FIELD_VECTORS, vectors.clone()),
        ] {
            let written = section_buffer(first + table, &content);
            client.give(Opcode::UpdatePackage, &none(), &written).ok();
            let mut asked = written.clone();
            if table == block::PROFILE_TCAM {
                asked[16..27].fill(0);
                asked[29..40].fill(0);
            } else {
                asked[16..].fill(0);
            }
            let answer = client.give(Opcode::UploadSection, &none(), &asked).ok();
            assert_eq!(answer.bytes, written, "{}", first + table);
        }
    }
    // Behind the last number there is no entry: that one stays as it was asked for.
    let last = [2, 0, 0xFF, 0xFF, 7, 8];
    let written = section_buffer(section::HASH + block::PACKET_GROUPS, &last);
    client.give(Opcode::UpdatePackage, &none(), &written).ok();
    let asked = section_buffer(
        section::HASH + block::PACKET_GROUPS,
        &[2, 0, 0xFF, 0xFF, 0, 9],
    );
    let answer = client.give(Opcode::UploadSection, &none(), &asked).ok();
    assert_eq!(answer.bytes[16..18], [7, 9]);
    let cut = section_buffer(section::HASH + block::REDIRECT, &[3, 0, 3, 0, 0, 0]);
    let answer = client.give(Opcode::UploadSection, &none(), &cut);
    assert_eq!(answer.descriptor.return_code(), ReturnCode::BadBuffer);
    assert_eq!(client.breach_names(), [""; 0]);
}

#[test]
fn sections_that_the_model_does_not_hold_are_not_read_back() {
    let mut client = Client::ready();
    // As drivers ask for the mode: one entry, which has no bit here.
    let mut content = [0; 28];
    content[0] = 1;
    content[2] = 1;
    let mode = section_buffer(section::METADATA_INIT, &content);
    let answer = client.give(Opcode::UploadSection, &none(), &mode).ok();
    assert_eq!(answer.bytes, mode);
    let remarks = |client: &Client| client.world.with(|world| world.remarks(0));
    assert_eq!(remarks(&client), []);
    let other = section_buffer(section::SWITCH, &[0; 8]);
    let answer = client.give(Opcode::UploadSection, &none(), &other);
    assert_eq!(answer.descriptor.return_code(), ReturnCode::NotImplemented);
    let [remark] = &remarks(&client)[..] else {
        panic!("one remark");
    };
    assert_eq!(remark.kind, "package section that the model does not hold");
    assert_eq!(client.breach_names(), [""; 0]);
}

fn package_buffer(first_section: u32) -> Vec<u8> {
    let mut name = [0; 28];
    name[..4].copy_from_slice(b"TEST");
    let version = ringside_spec::lan::package::PackageVersion {
        major: 1,
        minor: 3,
        update: 0,
        draft: 0,
    };
    let metadata = MetadataSection {
        version,
        name,
        track_id: 7.into(),
    };
    let mut buffer = vec![1, 0, 48, 0];
    buffer.extend(first_section.to_le_bytes());
    buffer.extend([12, 0, 36, 0]);
    buffer.extend(metadata.as_bytes());
    buffer.resize(BUFFER_BYTES, 0);
    buffer
}

/// A device without a package, whose driver holds the lock.
fn loading() -> Client {
    let mut client = Client::ready();
    client.inject(Fault::NoPackageLoaded);
    client
        .direct(Opcode::RequestResource, &lock(resource::GLOBAL_CONFIG))
        .ok();
    client
}

fn download(client: &mut Client, flags: u8, first_section: u32) -> Answered {
    let parameters = DownloadPackage {
        flags,
        ..DownloadPackage::zeroed()
    };
    let buffer = package_buffer(first_section);
    client.give(Opcode::DownloadPackage, &parameters, &buffer)
}

#[test]
fn signed_package_brings_its_signature_before_its_metadata() {
    let mut client = loading();
    for first in [2, 3, section::METADATA] {
        download(&mut client, 0, first).ok();
        assert!(package_list(&mut client).is_empty());
    }
    download(&mut client, LAST_BUFFER, section::PARSER_BOOST).ok();
    assert!(package_list(&mut client)[0].name.starts_with(b"TEST"));
    assert!(client.breach_names().is_empty());
}

#[test]
fn a_second_signature_comes_after_the_last_buffer_of_the_first_range() {
    for (flags, expected) in [(LAST_BUFFER, ReturnCode::Ok), (0, ReturnCode::BadManifest)] {
        let mut client = loading();
        download(&mut client, 0, 2).ok();
        download(&mut client, flags, section::METADATA).ok();
        let second = download(&mut client, 0, 2);
        assert_eq!(second.descriptor.return_code(), expected);
        assert_eq!(client.breach_names().is_empty(), flags == LAST_BUFFER);
    }
}

#[test]
fn package_without_metadata_is_refused_at_its_last_buffer() {
    let mut client = loading();
    let answer = download(&mut client, LAST_BUFFER, 2);
    assert_eq!(answer.descriptor.return_code(), ReturnCode::BadManifest);
    assert!(package_list(&mut client).is_empty());
    assert_eq!(
        client.breach_names(),
        ["package download without its metadata"]
    );
}

#[test]
fn package_that_is_missing_is_taken_in_order_and_becomes_active() {
    let mut client = Client::ready();
    client.inject(Fault::NoPackageLoaded);
    assert!(package_list(&mut client).is_empty());
    let early = download(&mut client, LAST_BUFFER, section::METADATA);
    assert_eq!(early.descriptor.return_code(), ReturnCode::NotPermitted);
    let global = client
        .direct(Opcode::RequestResource, &lock(resource::GLOBAL_CONFIG))
        .ok();
    let granted: RequestResource = global.descriptor.parameters();
    assert_eq!(granted.status.get(), lock_status::GRANTED);
    let wrong = download(&mut client, LAST_BUFFER, section::PARSER_BOOST);
    assert_eq!(wrong.descriptor.return_code(), ReturnCode::Invalid);
    download(&mut client, 0, section::METADATA).ok();
    assert!(
        package_list(&mut client).is_empty(),
        "not before the last buffer"
    );
    download(&mut client, LAST_BUFFER, section::PARSER_BOOST).ok();
    client
        .direct(Opcode::ReleaseResource, &lock(resource::GLOBAL_CONFIG))
        .ok();
    assert!(package_list(&mut client)[0].name.starts_with(b"TEST"));
    let expected = [
        "package download that does not begin with its metadata or signature",
        "package download without the global configuration lock",
    ];
    assert_eq!(client.breach_names(), expected);
}

#[test]
fn only_the_global_lock_has_a_status() {
    let mut client = Client::ready();
    client.inject(Fault::NoPackageLoaded);
    let mut status = |which: u16| {
        let answer = client.direct(Opcode::RequestResource, &lock(which)).ok();
        let granted: RequestResource = answer.descriptor.parameters();
        granted.status.get()
    };
    assert_eq!(status(resource::GLOBAL_CONFIG), lock_status::GRANTED);
    let others = [
        lock_status::GRANTED,
        lock_status::IN_PROGRESS,
        lock_status::DONE,
    ];
    assert!(!others.contains(&status(resource::CHANGE_LOCK)));
}
