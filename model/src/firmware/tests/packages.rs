//! The package and its locks.

use super::client::{Answered, Client, none};
use super::lock;
use crate::faults::Fault;
use ringside_spec::lan::admin::generic::{RequestResource, lock_status, resource};
use ringside_spec::lan::admin::package::{
    DownloadPackage, LAST_BUFFER, PackageInfo, PackageInfoList,
};
use ringside_spec::lan::admin::{Opcode, ReturnCode};
use ringside_spec::lan::package::{BUFFER_BYTES, MetadataSection, section};
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
