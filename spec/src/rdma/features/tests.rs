use super::*;

#[test]
fn a_list_longer_than_the_buffer_names_the_bytes_to_ask_for() {
    let first = FirmwareInfo::ZERO.with_entry_count(40).0;
    assert_eq!(
        Features::decode(&[first, 0]),
        Err(FeaturesError::BufferTooSmall {
            entries: 40,
            bytes: 320
        })
    );
}

#[test]
fn a_list_without_entries_or_without_firmware_version_is_refused() {
    assert_eq!(Features::decode(&[]), Err(FeaturesError::TooFew(0)));
    let other = Feature::ZERO.with_kind(7).0;
    assert_eq!(
        Features::decode(&[other, 0]),
        Err(FeaturesError::NoFirmwareInfo(7))
    );
}
