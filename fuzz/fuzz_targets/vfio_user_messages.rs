//! The messages of vfio-user: any bytes decode to a value or an error, and a value that is encoded
//! decodes to itself. A stream of any bytes gives messages, faults or its end.
//!
//! Run: `cargo +nightly fuzz run vfio_user_messages`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringside_bus::vfio_user::message::{
    DeviceInfo, DmaMap, DmaUnmap, InterruptInfo, RegionAccess, RegionInfo, SetInterrupts, Version,
};
use ringside_bus::vfio_user::{Capabilities, Received, Stream};
use std::io::Write;
use std::os::unix::net::UnixStream;

fn payloads(bytes: &[u8]) {
    if let Ok(version) = Version::decode(bytes) {
        assert_eq!(Version::decode(&version.encode()), Ok(version.clone()));
        if let Ok(capabilities) = Capabilities::from_text(&version.text) {
            let again = Capabilities::from_text(&capabilities.to_text());
            assert_eq!(again, Ok(capabilities));
        }
    }
    if let Ok(map) = DmaMap::decode(bytes) {
        assert_eq!(DmaMap::decode(&map.encode()), Ok(map));
    }
    if let Ok(unmap) = DmaUnmap::decode(bytes) {
        assert_eq!(DmaUnmap::decode(&unmap.encode()), Ok(unmap));
    }
    if let Ok(info) = DeviceInfo::decode(bytes) {
        assert_eq!(DeviceInfo::decode(&info.encode()), Ok(info));
    }
    if let Ok(info) = InterruptInfo::decode(bytes) {
        assert_eq!(InterruptInfo::decode(&info.encode()), Ok(info));
    }
    if let Ok(set) = SetInterrupts::decode(bytes) {
        assert_eq!(SetInterrupts::decode(&set.encode()), Ok(set));
    }
    if let Ok(access) = RegionAccess::decode_with_data(bytes) {
        assert_eq!(RegionAccess::decode_with_data(&access.encode()), Ok(access));
    }
    if let Ok(info) = RegionInfo::decode(bytes) {
        let again = RegionInfo::decode(&info.encode(u32::MAX)).expect("what was encoded");
        assert_eq!(
            (again.index, again.size, &again.areas),
            (info.index, info.size, &info.areas)
        );
    }
}

fn stream(bytes: &[u8]) {
    let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut theirs = Stream::new(theirs).expect("a stream");
    // More than a socket takes would wait for a reader.
    ours.write_all(bytes.get(..65_536).unwrap_or(bytes))
        .expect("room");
    drop(ours);
    // Each message takes 16 bytes at least.
    for _ in 0..=65_536 / 16 {
        match theirs.receive() {
            Ok(Received::Message(_) | Received::Nothing) => {}
            Ok(Received::Closed) | Err(_) => return,
        }
    }
    panic!("a stream that ended goes on");
}

fuzz_target!(|bytes: &[u8]| {
    payloads(bytes);
    stream(bytes);
});
