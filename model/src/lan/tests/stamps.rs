//! Time stamps that descriptors of sent packets request.

use super::rig::{Rig, data, frame_to};
use ringside_spec::lan::registers::clock::phy::TRANSMIT_STAMPS;
use ringside_spec::lan::transmit::{ContextCommand, kind};

/// A context descriptor that requests the time stamp of that index.
fn request(index: u8) -> ContextCommand {
    ContextCommand::ZERO
        .with_kind(kind::CONTEXT)
        .with_time_stamp(true)
        .with_payload_bytes(index.into())
}

/// Posts a packet with that request to a queue that stamps, or not; returns its breaches.
fn posted(command: ContextCommand, stamps: bool) -> Vec<&'static str> {
    let mut rig = Rig::new();
    rig.stamps_sent = stamps;
    rig.configure(2);
    rig.post_context(0, command);
    rig.post(&frame_to([2; 6], 100), data());
    assert_eq!(rig.sent().len(), 1, "the packet leaves all the same");
    rig.breaches()
}

#[test]
fn a_time_stamp_needs_a_queue_that_has_them_and_an_index_of_the_phy() {
    let last = TRANSMIT_STAMPS - 1;
    assert_eq!(posted(request(last), true), [""; 0]);
    assert_eq!(
        posted(request(last), false),
        ["time stamp from a queue that does not have any"]
    );
    assert_eq!(
        posted(request(TRANSMIT_STAMPS), true),
        ["time stamp that is not possible"]
    );
}
