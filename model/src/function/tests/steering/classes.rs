//! Traffic classes of received frames: a MIB and the queues of each class, as drivers set them.

use super::*;
use ringside_spec::lan::admin::lldp::LldpSetLocalMib;

/// The MIB of a driver: records with their owner, subtype and content.
fn set_mib(steering: &mut Steering, records: &[([u8; 4], Vec<u8>)]) {
    let mut bytes = Vec::new();
    for (owner, content) in records {
        let head = 127u16 << 9 | (owner.len() + content.len()) as u16;
        bytes.extend(head.to_be_bytes());
        bytes.extend(owner);
        bytes.extend(content);
    }
    let parameters = LldpSetLocalMib {
        length_bytes: (bytes.len() as u16).into(),
        ..LldpSetLocalMib::zeroed()
    };
    let client = &mut steering.client;
    client
        .give(Opcode::LldpSetLocalMib, &parameters, &bytes)
        .ok();
}

/// Replaces the map of the main VSI's receive queues: first queue and its number as a power of two
/// for each class.
fn map_classes(steering: &mut Steering, classes: &[(u16, u16)]) {
    let mut properties = VsiProperties::zeroed();
    let sections = VsiSections::ZERO.with_receive_queue_map(true);
    properties.valid_sections = sections.0.into();
    properties.queue_mapping[0] = 1.into();
    properties.queue_mapping[1] = QUEUES.into();
    for (place, (first, log2)) in properties.class_mapping.iter_mut().zip(classes) {
        let mapping = ClassMapping::ZERO.with_offset(*first);
        *place = mapping.with_count_log2(*log2).0.into();
    }
    let asked = VsiCommand {
        number: VsiNumber::ZERO.with_number(MAIN).with_valid(true).0.into(),
        ..VsiCommand::zeroed()
    };
    let client = &mut steering.client;
    client
        .give(Opcode::UpdateVsi, &asked, properties.as_bytes())
        .ok();
}

/// A frame with a customer tag.
fn tagged(frame: &[u8], tag: u16) -> Vec<u8> {
    let [high, low] = tag.to_be_bytes();
    [&frame[..12], &[0x81, 0, high, low], &frame[12..]].concat()
}

fn queue(steering: &mut Steering, frame: &[u8]) -> usize {
    steering.come_in(frame).unwrap().queue
}

/// Priority 3 in class 1 with the last two of four queues, all others in class 0 with the first
/// two.
fn two_classes() -> Steering {
    let mut steering = Steering::new();
    map_classes(&mut steering, &[(0, 1), (2, 1)]);
    let mut content = vec![8, 0x00, 0x01, 0, 0, 50, 50, 0, 0, 0, 0, 0, 0];
    content.extend([2; 8]);
    set_mib(&mut steering, &[([0x00, 0x80, 0xC2, 9], content)]);
    steering
}

#[test]
fn the_priority_of_the_tag_chooses_the_class_and_the_hash_one_of_its_queues() {
    let mut steering = two_classes();
    let frame = v4(UDP, 7, 8);
    assert_eq!(queue(&mut steering, &frame), 0, "no tag");
    assert_eq!(queue(&mut steering, &tagged(&frame, 0x4005)), 0);
    assert_eq!(queue(&mut steering, &tagged(&frame, 0x6005)), 2);
    // The tag of a service is payload in single VLAN mode.
    let mut service = tagged(&frame, 0x6005);
    service[12..14].copy_from_slice(&[0x88, 0xA8]);
    assert_eq!(queue(&mut steering, &service), 0);

    steering.spread();
    steering.replay("rss.01");
    let mut seen = [0; 2];
    for source in 1..9 {
        let frame = between([10, 0, 0, source], [10, 0, 0, 2], UDP, 7, 8);
        let within = toeplitz(&frame[26..34]) as usize & 1;
        seen[within] += 1;
        assert_eq!(queue(&mut steering, &frame), within);
        assert_eq!(queue(&mut steering, &tagged(&frame, 0x6005)), 2 + within);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    steering.no_breach();
}

#[test]
fn a_filter_reaches_the_queues_of_every_class() {
    let mut steering = two_classes();
    steering.replay("fdir_profile.1");
    let done = steering.program("queue_3_mark_count", "ipv4_udp");
    assert_eq!(done, Some(ADDED));
    let frame = v4(UDP, 7, 0x2222);
    assert_eq!(queue(&mut steering, &frame), 3);
    assert_eq!(queue(&mut steering, &tagged(&frame, 0x6005)), 3);
    steering.no_breach();
}

#[test]
fn the_dscp_chooses_the_class_where_the_mib_maps_it() {
    let mut steering = Steering::new();
    let each: Vec<_> = (0..8).map(|class| (class, 0)).collect();
    map_classes(&mut steering, &each);
    let mut content: Vec<u8> = (0..64).map(|dscp| dscp / 8).collect();
    content.resize(80, 0);
    content.extend((0..64).map(|dscp| 7 - dscp / 8));
    let shares = [vec![8, 0, 0, 0, 0, 16], vec![12; 7], vec![2; 8]].concat();
    let records = [
        ([0xFF, 0xFF, 0xFF, 0x41], content),
        ([0xFF, 0xFF, 0xFF, 0x42], vec![0; 128]),
        ([0xFF, 0xFF, 0xFF, 0x43], shares),
        ([0xFF, 0xFF, 0xFF, 0x44], vec![8, 0]),
    ];
    set_mib(&mut steering, &records);
    for dscp in [0u8, 7, 8, 46, 63] {
        let mut four = v4(UDP, 7, 8);
        four[15] = dscp << 2 | 3;
        let class = usize::from(dscp / 8);
        assert_eq!(queue(&mut steering, &four), class, "{dscp}");
        assert_eq!(queue(&mut steering, &tagged(&four, 0x6005)), class);
        let mut six = v6(7, 8);
        six[14] |= dscp >> 2;
        six[15] = dscp << 6 | 0x3F;
        assert_eq!(queue(&mut steering, &six), 7 - class, "{dscp}");
    }
    let mut other = v4(UDP, 7, 8);
    other[12..14].copy_from_slice(&[0x12, 0x34]);
    other[15] = 0xFF;
    assert_eq!(queue(&mut steering, &other), 0, "no IP");
    steering.no_breach();
}
