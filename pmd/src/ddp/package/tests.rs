use super::*;

/// A buffer whose first section is of `kind`; metadata if it is section 1.
fn buffer(kind: u32) -> Vec<u8> {
    let mut bytes = vec![0; BUFFER_BYTES];
    bytes[0..2].copy_from_slice(&1u16.to_le_bytes());
    bytes[2..4].copy_from_slice(&64u16.to_le_bytes());
    bytes[4..8].copy_from_slice(&kind.to_le_bytes());
    bytes[8..10].copy_from_slice(&12u16.to_le_bytes());
    bytes[10..12].copy_from_slice(&36u16.to_le_bytes());
    if kind == section::METADATA {
        bytes[12..16].copy_from_slice(&[1, 3, 43, 0]);
        bytes[16..23].copy_from_slice(b"ICE OS ");
        bytes[44..48].copy_from_slice(&0xC000_0001u32.to_le_bytes());
    }
    bytes
}

fn segment_of(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[1, 3, 0, 0]);
    bytes.extend_from_slice(&(44 + body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 32]);
    bytes.extend_from_slice(body);
    bytes
}

fn device_segment(buffers: &[Vec<u8>]) -> Vec<u8> {
    let mut body = 1u32.to_le_bytes().to_vec();
    body.extend_from_slice(&[0x92, 0x15, 0x86, 0x80, 0, 0, 0, 0]);
    body.extend_from_slice(&1u32.to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&(buffers.len() as u32).to_le_bytes());
    body.extend(buffers.concat());
    segment_of(segment::E810, &body)
}

fn signing_segment(kind: u32, sign: u32, first: u32, count: u32, buffers: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    for number in [kind, sign, 0, first, count] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    body.extend_from_slice(&[0; 44]);
    body.extend_from_slice(&(buffers.len() as u32).to_le_bytes());
    body.extend(buffers.concat());
    segment_of(segment::SIGNING, &body)
}

fn file(segments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0];
    bytes.extend_from_slice(&(segments.len() as u32).to_le_bytes());
    let mut at = 8 + 4 * segments.len();
    for segment in segments {
        bytes.extend_from_slice(&(at as u32).to_le_bytes());
        at += segment.len();
    }
    bytes.extend(segments.concat());
    bytes
}

const DATA: u32 = section::PARSER_BOOST;
const LABELS: u32 = section::BOOST_LABELS;

fn plain() -> Vec<u8> {
    file(&[device_segment(&[
        buffer(section::METADATA),
        buffer(DATA),
        buffer(LABELS),
        buffer(DATA),
    ])])
}

fn first_kinds(package: &Package) -> Vec<u32> {
    let kind = |buffer: &[u8]| u32::from_le_bytes(buffer[4..8].try_into().unwrap());
    package.downloads().map(kind).collect()
}

#[test]
fn a_package_is_read_and_its_labels_are_not_downloaded() {
    let package = Package::parse(plain()).unwrap();
    assert_eq!(package.version, [1, 3, 43, 0]);
    assert_eq!(package.segment_format, [1, 3, 0, 0]);
    assert_eq!(package.name, "ICE OS ");
    assert_eq!(package.track_id, 0xC000_0001);
    assert_eq!(first_kinds(&package), [section::METADATA, DATA]);
    assert!(package.downloads().all(|buffer| buffer.len() == 4096));
    assert_eq!(marks(&package), [false, true]);
}

#[test]
fn a_package_that_begins_with_labels_has_nothing_to_download() {
    let bytes = file(&[device_segment(&[buffer(LABELS), buffer(section::METADATA)])]);
    assert_eq!(Package::parse(bytes).unwrap().downloads().len(), 0);
}

#[test]
fn signatures_for_the_e810_come_before_what_they_sign() {
    let buffers = [buffer(section::METADATA), buffer(DATA), buffer(DATA + 1)];
    let signature =
        |kind, sign, first, count| signing_segment(kind, sign, first, count, &[buffer(90 + first)]);
    let bytes = file(&[
        device_segment(&buffers),
        signature(segment::E810, signature::RSA_3K, 0, 3),
        signature(segment::E810, signature::RSA_2K, 0, 2),
        signature(segment::E810, signature::RSA_2K, 2, 1),
    ]);
    let package = Package::parse(bytes).unwrap();
    assert_eq!(
        first_kinds(&package),
        [90, section::METADATA, DATA, 92, DATA + 1]
    );
    // Each signed range has a last buffer, signatures have none.
    assert_eq!(marks(&package), [false, false, true, false, true]);
}

fn marks(package: &Package) -> Vec<bool> {
    package.marked_downloads().map(|(_, last)| last).collect()
}

#[test]
fn a_signature_that_reaches_beyond_the_buffers_is_refused() {
    for (first, count) in [(0, 2), (1, 1), (u32::MAX, 1), (0, u32::MAX)] {
        let signing = signing_segment(segment::E810, signature::RSA_2K, first, count, &[]);
        let bytes = file(&[device_segment(&[buffer(section::METADATA)]), signing]);
        let result = Package::parse(bytes);
        assert!(
            matches!(result, Err(PackageError::Malformed { .. })),
            "{result:?}"
        );
    }
}

#[test]
fn a_package_signed_for_other_devices_only_is_refused() {
    let signing = signing_segment(segment::E810, signature::RSA_3K, 0, 1, &[]);
    let bytes = file(&[device_segment(&[buffer(section::METADATA)]), signing]);
    let missing = PackageError::Missing {
        what: "signature for the E810",
    };
    assert_eq!(Package::parse(bytes), Err(missing));
}

#[test]
fn a_package_cut_short_anywhere_is_refused() {
    let whole = plain();
    for length in (0..whole.len()).step_by(61).chain([whole.len() - 1]) {
        let result = Package::parse(whole[..length].to_vec());
        assert!(
            result.is_err(),
            "{length} of {} bytes were taken",
            whole.len()
        );
    }
}

#[test]
fn other_versions_and_other_devices_are_named() {
    let mut old = plain();
    let version_at = old
        .windows(4)
        .position(|four| four == [1, 3, 43, 0])
        .unwrap();
    old[version_at + 1] = 2;
    let version = PackageError::Version {
        version: [1, 2, 43, 0],
    };
    assert_eq!(Package::parse(old), Err(version));
    let other = file(&[segment_of(0x11, &[])]);
    assert!(matches!(
        Package::parse(other),
        Err(PackageError::Missing { .. })
    ));
    let nameless = file(&[device_segment(&[buffer(DATA)])]);
    assert_eq!(
        Package::parse(nameless),
        Err(PackageError::Missing { what: "metadata" })
    );
}

#[test]
fn numbers_that_the_format_does_not_allow_are_refused() {
    let start = plain().len() - 4 * BUFFER_BYTES;
    // Within the first buffer: sections, end of data, offset and size of the first section.
    for (at, value) in [
        (0, 0u16),
        (0, 512),
        (2, 11),
        (2, 4097),
        (8, 11),
        (8, 4090),
        (10, 0),
        (10, 4085),
    ] {
        let mut bytes = plain();
        bytes[start + at..start + at + 2].copy_from_slice(&value.to_le_bytes());
        let result = Package::parse(bytes);
        assert!(
            matches!(result, Err(PackageError::Malformed { .. })),
            "{at} {value}: {result:?}"
        );
    }
    // In the file's header: format, number of segments.
    for (at, value) in [(0, 2u32), (4, 0), (4, 65), (4, u32::MAX)] {
        let mut bytes = plain();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let result = Package::parse(bytes);
        assert!(
            matches!(result, Err(PackageError::Malformed { .. })),
            "{at} {value}: {result:?}"
        );
    }
}

#[test]
fn garbage_in_any_byte_never_panics() {
    let whole = plain();
    let ends = 8 + 4 + 44 + 4 + 8 + 4 + 4 + 4 + 64;
    for at in 0..ends.min(whole.len()) {
        for value in [0x00, 0x01, 0x7F, 0x80, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Ok(package) = Package::parse(bytes) {
                assert!(package.downloads().all(|buffer| buffer.len() == 4096));
            }
        }
    }
}

#[test]
fn packet_type_groups_are_those_of_section_42() {
    let mut groups = buffer(section::HASH + block::PACKET_GROUPS);
    // Its first section begins where the entry says: three types from 24 on.
    let at = usize::from(u16::from_le_bytes([groups[8], groups[9]]));
    groups[at..at + 7].copy_from_slice(&[3, 0, 24, 0, 2, 0, 1]);
    let buffers = [buffer(section::METADATA), groups];
    let package = Package::parse(file(&[device_segment(&buffers)])).unwrap();
    let expected = [(24, 2), (25, 0), (26, 1)];
    assert_eq!(package.hash_groups(), expected.into());
}
