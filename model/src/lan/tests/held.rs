//! Descriptors of received frames that are written back together.

use super::rig::{self, FUNCTION_MAC, Rig, frame_to};

/// Frames of lengths that tell them apart.
fn frames(count: usize) -> Vec<Vec<u8>> {
    let lengths = 60..60 + count;
    lengths.map(|bytes| frame_to(FUNCTION_MAC, bytes)).collect()
}

fn lengths(rig: &Rig, count: u16) -> Vec<Option<usize>> {
    let received = (0..count).map(|index| rig.received(index));
    received
        .map(|one| one.map(|(_, bytes)| bytes.len()))
        .collect()
}

#[test]
fn a_burst_is_written_back_in_order_at_its_end() {
    let mut rig = Rig::new();
    rig.offer(16);
    rig.begin_burst(&frames(5));
    assert!(rig.engine.holds());
    assert_eq!(lengths(&rig, 5), [None; 5], "not before the end");
    rig.engine.write_back();
    assert!(!rig.engine.holds());
    assert_eq!(lengths(&rig, 6)[..5], [60, 61, 62, 63, 64].map(Some));
    assert_eq!(lengths(&rig, 6)[5], None);
}

#[test]
fn no_more_than_thirty_two_descriptors_wait() {
    let mut rig = Rig::new();
    rig.offer(56);
    rig.begin_burst(&frames(33));
    let known: Vec<_> = lengths(&rig, 34).into_iter().flatten().collect();
    assert_eq!(known, (60..92).collect::<Vec<_>>());
    rig.engine.write_back();
    assert_eq!(lengths(&rig, 34).into_iter().flatten().count(), 33);
}

#[test]
fn a_frame_of_several_buffers_follows_those_that_wait() {
    let mut rig = Rig::new();
    rig.offer(16);
    let mut burst = frames(2);
    burst.push(frame_to(FUNCTION_MAC, rig::BUFFER_BYTES + 100));
    burst.extend(frames(1));
    rig.begin_burst(&burst);
    let whole = Some(rig::BUFFER_BYTES);
    assert_eq!(
        lengths(&rig, 5),
        [Some(60), Some(61), whole, Some(100), None],
        "the long frame leaves none behind"
    );
    rig.engine.write_back();
    assert_eq!(lengths(&rig, 5)[4], Some(60));
}

#[test]
fn frames_beyond_the_free_descriptors_are_dropped_while_others_wait() {
    let mut rig = Rig::new();
    rig.offer(8);
    rig.receive_burst(&frames(11));
    assert_eq!(lengths(&rig, 9).into_iter().flatten().count(), 8);
    assert_eq!(rig.counters().of_vsi(rig::VSI).unwrap().dropped, 3);
}

#[test]
fn bursts_go_round_the_ring() {
    let mut rig = Rig::new();
    let mut tail = 40;
    rig.offer(tail);
    for round in 0..40u16 {
        let first = round * 24 % 64;
        rig.receive_burst(&frames(24));
        for place in 0..24 {
            let index = (first + place) % 64;
            let (_, bytes) = rig.received(index).unwrap();
            assert_eq!(bytes.len(), 60 + usize::from(place), "round {round}");
            rig.free(index);
        }
        tail = (tail + 24) % 64;
        rig.offer(tail);
    }
    assert_eq!(rig.breaches(), [""; 0]);
}
