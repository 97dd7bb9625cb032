//! Frames with VLAN tags.

use crate::bed::{Bed, Raw, config, settings};
use crate::frames::{echo, question, sent, tagged};
use ringside_pmd::lan::port::VlanStripping;
use smoltcp::phy::{Device as _, RxToken as _};

/// Rounds in which a stack answers.
const ROUNDS: usize = 200;

#[test]
fn a_vlan_is_answered_with_its_tag_whether_the_device_strips_tags_or_not() {
    for stripping in [VlanStripping::Off, VlanStripping::On] {
        let bed = Bed::new();
        let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24", "10.1.0.1/24@100"]));
        stack.port().strip_vlan(stripping).unwrap();
        let mut far = Raw::new(&bed, 1, &settings());
        let mac = far.port.mac();
        let peer = [10, 1, 0, 2];
        // Without a tag, with that of another VLAN, with its own and a priority.
        let request = || question(mac, peer, [10, 1, 0, 1]);
        for frame in [
            request(),
            tagged(request(), 101),
            tagged(request(), 0x6000 | 100),
        ] {
            far.send(&frame);
        }
        let frames = sent(&bed, &mut stack, &mut far, ROUNDS);
        // Each address is announced on its VLAN.
        let (announced, answers): (Vec<_>, Vec<_>) = frames
            .into_iter()
            .partition(|frame| frame[..6] == [0xFF; 6]);
        let [untagged, tagged] = announced.as_slice() else {
            panic!("{stripping:?}: {announced:x?}");
        };
        assert_eq!(untagged[12..14], [0x08, 0x06]);
        assert_eq!(tagged[12..18], [0x81, 0, 0, 100, 0x08, 0x06]);
        let [answer] = answers.as_slice() else {
            panic!("{stripping:?}: {answers:x?}");
        };
        assert_eq!(answer[..6], mac);
        assert_eq!(answer[12..18], [0x81, 0, 0, 100, 0x08, 0x06]);
        assert_eq!(
            answer[26..36],
            [stack.port().mac().as_slice(), &[10, 1, 0, 1]].concat()
        );
        assert_eq!(stack.counters().no_link, 1, "VLAN 101");
        drop(stack);
        bed.finish([near, far.into_device()]);
    }
}

/// VLAN 0 is none: IEEE 802.1Q, table 9-2.
#[test]
fn a_tag_with_a_priority_alone_counts_as_none() {
    for stripping in [VlanStripping::Off, VlanStripping::On] {
        let bed = Bed::new();
        let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24"]));
        stack.port().strip_vlan(stripping).unwrap();
        let mut far = Raw::new(&bed, 1, &settings());
        let (to, from) = (stack.port().mac(), far.port.mac());
        let frame = echo((to, from), ([192, 0, 2, 7], [192, 0, 2, 1]), b"tagged");
        far.send(&tagged(frame, 0x6000));
        sent(&bed, &mut stack, &mut far, ROUNDS);
        let counters = stack.counters();
        assert_eq!(
            (counters.received, counters.no_link),
            (1, 0),
            "{stripping:?}"
        );
        drop(stack);
        bed.finish([near, far.into_device()]);
    }
}

/// Two networks of one port may have the same addresses.
#[test]
fn a_packet_from_the_own_address_of_another_vlan_is_one_of_another_station() {
    let bed = Bed::new();
    let (near, mut stack) = bed.stack(0, &config(&["192.0.2.1/24", "10.1.0.1/24@100"]));
    let mut far = Raw::new(&bed, 1, &settings());
    let (to, from) = (stack.port().mac(), far.port.mac());
    far.send(&echo(
        (to, from),
        ([10, 1, 0, 1], [192, 0, 2, 1]),
        b"untagged",
    ));
    sent(&bed, &mut stack, &mut far, ROUNDS);
    let counters = stack.counters();
    assert_eq!((counters.received, counters.martians), (1, 0));
    far.send(&echo((to, from), ([192, 0, 2, 1], [192, 0, 2, 1]), b"own"));
    sent(&bed, &mut stack, &mut far, ROUNDS);
    assert_eq!(stack.counters().martians, 1);
    drop(stack);
    bed.finish([near, far.into_device()]);
}

#[test]
fn a_device_of_smoltcp_takes_no_frame_whose_tag_was_removed() {
    let bed = Bed::new();
    let (near, port, mut device) = bed.smoltcp(0);
    port.strip_vlan(VlanStripping::On).unwrap();
    let mut far = Raw::new(&bed, 1, &settings());
    let mut frames = Vec::new();
    for number in 1..=2 {
        let mut frame = [port.mac(), far.port.mac()].concat();
        frame.extend([0x88, 0xB5, number]);
        frame.resize(60, 0);
        frames.push(frame);
    }
    frames[0] = tagged(frames[0].clone(), 100);
    for frame in &frames {
        far.send(frame);
        bed.pass();
    }
    let mut taken = Vec::new();
    for _ in 0..200 {
        if let Some((received, _)) = device.receive(bed.now()) {
            taken.push(received.consume(|bytes| bytes[14]));
        }
        bed.pass();
    }
    assert_eq!(taken, [2]);
    drop((device, port));
    bed.finish([near, far.into_device()]);
}
