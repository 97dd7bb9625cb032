use super::*;

/// Bytes in the layout of another implementation: offsets and widths from the protocol's tables.
fn golden(fields: &[(usize, u64)]) -> Vec<u8> {
    let fields = fields.iter();
    fields
        .flat_map(|(width, value)| value.to_le_bytes().into_iter().take(*width))
        .collect()
}

#[test]
fn headers_lie_as_the_protocol_has_them() {
    let bytes = Header::command(0x1234, Command::RegionWrite, true, &[1, 2]);
    let wanted = golden(&[
        (2, 0x1234),
        (2, 10),
        (4, 18),
        (4, 0x10),
        (4, 0),
        (1, 1),
        (1, 2),
    ]);
    assert_eq!(bytes, wanted);
    let header = Header::decode(bytes[..HEADER_BYTES].try_into().unwrap());
    assert_eq!((header.id, header.command, header.size), (0x1234, 10, 18));
    assert!(header.flags.no_reply() && !header.flags.error());
    let wanted = golden(&[(2, 0x1234), (2, 10), (4, 16), (4, 0x21), (4, 22)]);
    assert_eq!(header.refusal(22), wanted);
}

#[test]
fn a_refusal_never_carries_errno_zero() {
    let header = Header::decode([0; HEADER_BYTES]);
    let refusal = Header::decode(header.refusal(0)[..].try_into().unwrap());
    assert!(refusal.flags.error());
    assert_ne!(refusal.error, 0);
}

#[test]
fn payloads_lie_as_the_protocol_has_them() {
    let map = DmaMap {
        flags: MapFlags::ZERO.with_readable(true).with_writable(true),
        offset: 0x1000,
        address: 0x2000,
        size: 0x3000,
    };
    let wanted = golden(&[(4, 32), (4, 3), (8, 0x1000), (8, 0x2000), (8, 0x3000)]);
    assert_eq!(map.encode(), wanted);
    assert_eq!(DmaMap::decode(&wanted), Ok(map));

    let unmap = DmaUnmap {
        flags: UnmapFlags::ZERO.with_all(true),
        address: 1,
        size: 2,
    };
    let wanted = golden(&[(4, 24), (4, 2), (8, 1), (8, 2)]);
    assert_eq!(unmap.encode(), wanted);
    assert_eq!(DmaUnmap::decode(&wanted), Ok(unmap));

    let set = SetInterrupts {
        flags: SetInterruptsFlags::ZERO
            .with_data_eventfd(true)
            .with_action_trigger(true),
        index: 2,
        start: 3,
        count: 4,
    };
    let wanted = golden(&[(4, 20), (4, 0x24), (4, 2), (4, 3), (4, 4)]);
    assert_eq!(set.encode(), wanted);
    assert_eq!(SetInterrupts::decode(&wanted), Ok(set));

    let access = RegionAccess {
        offset: 0x10,
        region: 7,
        count: 2,
        data: &[5, 6],
    };
    let wanted = golden(&[(8, 0x10), (4, 7), (4, 2), (1, 5), (1, 6)]);
    assert_eq!(access.encode(), wanted);
    assert_eq!(RegionAccess::decode_with_data(&wanted), Ok(access));
}

fn doorbells() -> RegionInfo {
    RegionInfo {
        argument_size: 0,
        flags: RegionFlags::ZERO
            .with_read(true)
            .with_write(true)
            .with_mmap(true),
        index: 0,
        size: 0x200_0000,
        offset: 0,
        areas: vec![Area {
            offset: 0x7F_0000,
            size: 0x1000,
        }],
    }
}

#[test]
fn areas_follow_their_region_where_there_is_room() {
    let wanted = golden(&[
        (4, 64),
        (4, 0xF),
        (4, 0),
        (4, 32),
        (8, 0x200_0000),
        (8, 0),
        (2, 1),
        (2, 1),
        (4, 0),
        (4, 1),
        (4, 0),
        (8, 0x7F_0000),
        (8, 0x1000),
    ]);
    assert_eq!(doorbells().encode(64), wanted);
    assert_eq!(doorbells().encode(32), wanted[..32]);
    let whole = RegionInfo::decode(&wanted).unwrap();
    assert_eq!(whole.areas, doorbells().areas);
    let cut = RegionInfo::decode(&wanted[..32]).unwrap();
    assert_eq!((cut.argument_size, cut.areas.len()), (64, 0));
}

#[test]
fn a_list_of_capabilities_that_loops_or_leaves_is_an_error() {
    let whole = doorbells().encode(64);
    let with = |at: usize, value: u32| {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        RegionInfo::decode(&bytes)
    };
    for (at, value) in [
        (12, 31),       // inside the structure before it
        (12, 65),       // behind the end
        (12, u32::MAX), // far behind the end
        (36, 32),       // next: itself
        (36, 40),       // next: forward, into numbers that are no list
        (40, 2),        // more areas than there are
        (40, u32::MAX),
    ] {
        assert!(with(at, value).is_err(), "{value} at {at}");
    }
    // an unknown capability is skipped
    assert_eq!(with(32, 0x0001_0009).unwrap().areas, []);
}

#[test]
fn every_payload_cut_short_is_an_error() {
    let whole = [0xFF; 64];
    for length in 0..64 {
        let bytes = &whole[..length];
        assert_eq!(DmaMap::decode(bytes).is_ok(), length >= 32);
        assert_eq!(DmaUnmap::decode(bytes).is_ok(), length >= 24);
        assert_eq!(DeviceInfo::decode(bytes).is_ok(), length >= 16);
        assert_eq!(InterruptInfo::decode(bytes).is_ok(), length >= 16);
        assert_eq!(SetInterrupts::decode(bytes).is_ok(), length >= 20);
        assert_eq!(RegionInfo::decode(bytes).is_ok(), length >= 32);
        assert_eq!(RegionAccess::decode(bytes).is_ok(), length >= 16);
        assert!(RegionAccess::decode_with_data(bytes).is_err());
        assert_eq!(Version::decode(bytes).is_ok(), length >= 4);
    }
}

#[test]
fn a_version_ends_at_its_zero_and_may_have_none() {
    let version = Version {
        major: 0,
        minor: 1,
        text: b"{}".to_vec(),
    };
    let bytes = golden(&[(2, 0), (2, 1), (1, 0x7B), (1, 0x7D), (1, 0)]);
    assert_eq!(version.encode(), bytes);
    assert_eq!(Version::decode(&bytes), Ok(version.clone()));
    assert_eq!(Version::decode(&bytes[..6]), Ok(version));
    assert_eq!(Version::decode(&bytes[..4]).unwrap().text, b"");
}

#[test]
fn commands_are_known_by_their_numbers() {
    for code in 0..32 {
        let known = Command::from_code(code);
        assert_eq!(
            known.map(Command::code),
            (1..=18).contains(&code).then_some(code)
        );
    }
}
