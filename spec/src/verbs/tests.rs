use super::completion::{CompletionElement, CompletionExtension, CompletionHeader, QueueSide};
use super::element::ElementBreach;
use super::receive::ReceiveHeader;
use super::send::{DatagramHeader, FragmentKey, InlineTail};
use super::*;

/// A small generator, so that this crate needs none.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn write_of(pieces: &[Fragment], polarity: bool) -> Vec<u64> {
    let mut words = Vec::new();
    let first = pieces.first().copied().unwrap_or_default();
    words.extend(first.encode(polarity));
    let further = pieces.len().saturating_sub(1).next_multiple_of(2);
    let header = SendHeader::ZERO
        .with_steering_tag(0x77)
        .with_further_fragments(further as u64)
        .with_valid(polarity);
    words.extend([0x1000, header.0]);
    for index in 0..further {
        let piece = pieces.get(index + 1).copied().unwrap_or_default();
        words.extend(piece.encode(polarity));
    }
    words
}

fn pieces(count: u32) -> Vec<Fragment> {
    (1..=count)
        .map(|index| Fragment {
            address: u64::from(index) << 12,
            length_bytes: index,
            steering_tag: index * 3,
        })
        .collect()
}

#[test]
fn fragments_decode_in_order_for_any_count() {
    for count in 1..=13 {
        let wanted = pieces(count);
        let words = write_of(&wanted, true);
        let element = SendElement::new(&words).unwrap();
        let found: Vec<_> = element.fragments().take(wanted.len()).collect();
        assert_eq!(found, wanted);
        assert_eq!(element.quanta(), sizes::send_quanta(wanted.len()));
        let total: u64 = wanted
            .iter()
            .map(|piece| u64::from(piece.length_bytes))
            .sum();
        assert_eq!(element.length_bytes(), total);
        assert_eq!(element.breach(0, true, false), None);
    }
}

#[test]
fn an_element_that_is_cut_short_is_named_and_not_read() {
    let words = write_of(&pieces(13), true);
    for count in 0..words.len() {
        let error = SendElement::new(&words[..count]).map(|_| ()).unwrap_err();
        assert!(matches!(error, ElementBreach::TooLong { .. }), "{error}");
    }
}

#[test]
fn each_breach_of_the_layout_is_named() {
    let good = write_of(&pieces(5), true);
    let breach = |words: &[u64], index| SendElement::new(words).unwrap().breach(index, true, false);
    assert_eq!(breach(&good, 5), None);
    let crossing = ElementBreach::CrossesBlock {
        index: 6,
        quanta: 3,
    };
    assert_eq!(breach(&good, 6), Some(crossing));
    let mut changed = good.clone();
    changed[3] |= 1 << 43;
    let reserved = ElementBreach::ReservedBits {
        word: 3,
        bits: 1 << 43,
    };
    assert_eq!(breach(&changed, 0), Some(reserved));
    let mut changed = good.clone();
    changed[11] &= !FragmentKey::VALID_MASK;
    let wrong = ElementBreach::WrongValidBit { quantum: 2 };
    assert_eq!(breach(&changed, 0), Some(wrong));
    let mut changed = good.clone();
    changed[3] = SendHeader(changed[3]).with_further_fragments(3).0;
    assert_eq!(
        breach(&changed, 0),
        Some(ElementBreach::OddFragments { count: 3 })
    );
    let mut changed = good;
    changed[3] = SendHeader(changed[3]).with_opcode(0x3F).0;
    assert_eq!(
        breach(&changed, 0),
        Some(ElementBreach::UnknownOperation { code: 0x3F })
    );
}

#[test]
fn inline_data_reads_back_at_every_length() {
    for length in 0..=sizes::MAX_INLINE_BYTES {
        let data: Vec<u8> = (0..length as u8).map(|byte| byte ^ 0x5A).collect();
        let mut bytes = vec![0u8; sizes::inline_quanta(length) * QUANTUM_BYTES];
        for (index, byte) in data.iter().enumerate() {
            let place = match index.checked_sub(8) {
                None => 8 + index,
                Some(rest) => 32 + rest / 31 * 32 + rest % 31,
            };
            bytes[place] = *byte;
        }
        let mut words: Vec<u64> = bytes
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        words[3] = SendHeader::ZERO
            .with_inline(true)
            .with_inline_length_bytes(length as u64)
            .0;
        let element = SendElement::new(&words).unwrap();
        let mut found = [0; 128];
        assert_eq!(element.copy_inline(&mut found), length);
        assert_eq!(found[..length], data);
        assert_eq!(element.breach(0, false, false), None, "{length}");
        if words.len() > 4 {
            let last = words.len() - 1;
            words[last] = InlineTail(words[last]).with_valid(true).0;
            assert!(
                SendElement::new(&words)
                    .unwrap()
                    .breach(0, false, false)
                    .is_some()
            );
        }
    }
}

#[test]
fn an_operation_that_moves_no_data_has_neither_fragments_nor_immediate() {
    // Bit 47 is the immediate flag of a write, and a part of the page size here.
    let header = send::FastRegisterHeader::ZERO
        .with_opcode(u64::from(SendOpcode::FastRegister.code()))
        .with_page_size(2);
    let words = [0x7000, 0x1000, 4096, header.0];
    let element = SendElement::new(&words).unwrap();
    assert_eq!(element.immediate(), None);
    assert_eq!(
        (element.fragments().count(), element.length_bytes()),
        (0, 0)
    );
}

#[test]
fn any_words_decode_without_a_panic() {
    let mut noise = Noise(0x1234_5678_9ABC_DEF1);
    for round in 0..20_000 {
        let words: Vec<u64> = (0..round % 40).map(|_| noise.next()).collect();
        if let Ok(element) = SendElement::new(&words) {
            let mut target = [0; 64];
            element.copy_inline(&mut target);
            let _ = element.fragments().count() + element.quanta();
            let _ = element.breach(noise.next() as u32, true, round % 2 == 0);
            let _ = (element.length_bytes(), element.immediate());
        }
        if let Some(element) = ReceiveElement::new(&words) {
            let _ = (element.capacity_bytes(), element.is_well_formed(true));
        }
    }
}

#[test]
fn completions_read_back_and_every_named_bit_survives() {
    let mut noise = Noise(0xDEAD_BEEF_0000_0001);
    for _ in 0..2_000 {
        let words = [noise.next(), noise.next(), noise.next(), noise.next()];
        let back = CompletionElement::decode(&words).encode(words[3] >> 63 == 1);
        assert_eq!(back[..2], words[..2]);
        assert_eq!(back[2], words[2] & completion::CompletionSource::DEFINED);
        assert_eq!(back[3], words[3] & CompletionHeader::DEFINED);
    }
}

#[test]
fn extensions_read_back() {
    for bits in 0..8u8 {
        let extension = CompletionExtension {
            immediate: (bits & 1 != 0).then_some(0x1122_3344),
            source_mac: (bits & 2 != 0).then_some(0x0250_5601_0203),
            vlan_tag: (bits & 4 != 0).then_some(0xA123),
        };
        assert_eq!(
            CompletionExtension::decode(&extension.encode(true)),
            extension
        );
    }
}

#[test]
fn a_plain_success_has_its_queue_context_and_index_only() {
    let words = CompletionElement::success(QueueSide::Send, 0x1_0000_0002, 7, 9).encode(true);
    assert_eq!(words, [0, 0x1_0000_0002, 7 << 32, 0xC000_0009_0000_0000]);
}

#[test]
fn receive_elements_hold_what_they_claim() {
    let words = [0x1000, FragmentKey::ZERO.with_length_bytes(64).0, 0, 0];
    let element = ReceiveElement::new(&words).unwrap();
    assert_eq!(element.capacity_bytes(), 64);
    assert!(element.is_well_formed(false) && !element.is_well_formed(true));
    let header = ReceiveHeader::ZERO.with_further_fragments(2).0;
    let too_short = [0, 0, 0, header];
    assert!(
        !ReceiveElement::new(&too_short)
            .unwrap()
            .is_well_formed(false)
    );
    assert!(ReceiveElement::new(&words[..3]).is_none());
}

#[test]
fn codes_go_both_ways_and_unknown_ones_are_kept() {
    for code in 0..64 {
        assert_eq!(SendOpcode::from_code(code).code(), code);
    }
    for code in [0, 1, 5, 11, 12, 0xFFFF] {
        assert_eq!(FlushCode::from_code(code).code(), code);
    }
    assert_eq!(SendOpcode::from_code(0x3E), SendOpcode::Unknown(0x3E));
}

#[test]
fn datagram_and_plain_headers_agree_on_the_bits_that_they_share() {
    let header = SendHeader::ZERO
        .with_opcode(3)
        .with_immediate(true)
        .with_signalled(true)
        .with_valid(true);
    let datagram = DatagramHeader(header.0);
    assert_eq!(datagram.opcode(), 3);
    assert!(datagram.immediate() && datagram.signalled() && datagram.valid());
}

#[test]
fn a_send_ring_holds_the_requested_depth_for_any_mix_of_sizes() {
    let mut noise = Noise(0xABCD_EF01_2345_6789);
    for _ in 0..3_000 {
        let shift = (noise.next() % 4) as u32;
        let requests = 1 + (noise.next() % 300) as u32;
        let ring = u64::from(sizes::send_ring_quanta(requests, shift).unwrap());
        let start = noise.next() % 8;
        let mut head = start;
        for _ in 0..requests {
            let quanta = 1 + noise.next() % (1 << shift);
            if head % 8 + quanta > 8 {
                head = head.next_multiple_of(8);
            }
            head += quanta;
        }
        assert!(
            head - start < ring,
            "{requests} of up to {} quanta",
            1 << shift
        );
    }
    assert_eq!(sizes::send_ring_quanta(32_753, 0), None);
    assert_eq!(sizes::send_ring_quanta(u32::MAX, 3), None);
    for shift in 0..=4 {
        let (sends, receives) = (sizes::most_sends(shift), sizes::most_receives(shift));
        assert!(sizes::send_ring_quanta(sends, shift).is_some());
        assert_eq!(sizes::send_ring_quanta(sends + 1, shift), None);
        assert!(sizes::receive_ring_quanta(receives, shift).is_some());
        assert_eq!(sizes::receive_ring_quanta(receives + 1, shift), None);
    }
}

#[test]
fn an_element_that_is_plain_at_a_glance_has_no_breach_on_a_closer_look() {
    let mut state = 7u64;
    let mut bits = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 40
    };
    let mut plain = 0;
    for round in 0..200_000u32 {
        let polarity = round % 2 == 0;
        let opcode = bits() % 24;
        let mut header = SendHeader::ZERO.with_opcode(opcode).with_valid(polarity);
        let mut key = FragmentKey::ZERO.with_valid(polarity);
        // One bit wrong, in every second element.
        match bits() % 4 {
            0 => header.0 ^= 1 << (bits() % 64),
            1 => key.0 ^= 1 << (bits() % 64),
            _ => {}
        }
        let words = [bits(), key.0, bits(), header.0];
        let decoded = PlainElement::new(header, &words, polarity);
        let Ok(element) = SendElement::new(&words) else {
            assert_eq!(decoded, None, "{words:x?}");
            continue;
        };
        let Some(found) = decoded else {
            continue;
        };
        plain += 1;
        let expected = PlainElement {
            reads: element.opcode() == SendOpcode::Read,
            fragment: element.fragments().next().unwrap(),
            remote_address: element.remote_address(),
        };
        assert_eq!(found, expected, "{words:x?}");
        assert_eq!((element.quanta(), element.fragments().count()), (1, 1));
        for datagram in [false, true] {
            let breach = element.breach(round % 512, polarity, datagram);
            assert_eq!(breach, None, "{words:x?}");
        }
    }
    assert!(plain > 1000, "{plain} elements were plain");
}

#[test]
fn a_ring_for_more_requests_than_32_bits_count_is_refused() {
    for shift in 0..=3 {
        assert_eq!(sizes::receive_ring_quanta(u32::MAX, shift), None);
        assert_eq!(sizes::receive_ring_quanta(1 << 31, shift), None);
        assert_eq!(sizes::send_ring_quanta(1 << 31, shift), None);
    }
    assert_eq!(sizes::receive_ring_quanta(7, 1), Some(16));
}
