//! Against the values that Microsoft publishes for its key.

use super::*;
use crate::lan::headers;

/// Source: Microsoft, "Verifying the RSS hash calculation".
const KEY: [u8; 40] = [
    0x6D, 0x5A, 0x56, 0xDA, 0x25, 0x5B, 0x0E, 0xC2, 0x41, 0x67, 0x25, 0x3D, 0x43, 0xA3, 0x8F, 0xB0,
    0xD0, 0xCA, 0x2B, 0xCB, 0xAE, 0x7B, 0x30, 0xB4, 0x77, 0xCB, 0x2D, 0xA3, 0x80, 0x30, 0xF2, 0x0C,
    0x6A, 0x42, 0xB7, 0x3B, 0xBE, 0xAC, 0x01, 0xFA,
];

fn spreading(scheme: Scheme) -> Spreading {
    let mut key = KEY.to_vec();
    key.extend([0; 12]);
    Spreading {
        key,
        table: (0..64).collect(),
        scheme,
    }
}

fn frame_v4(source: [u8; 4], from: u16, destination: [u8; 4], to: u16) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.resize(14 + 40, 0);
    frame
}

fn hash(spreading: &Spreading, frame: &[u8]) -> u32 {
    spreading.hash(&headers::parse(frame).unwrap().flow.unwrap())
}

#[test]
fn hashes_are_those_that_microsoft_publishes() {
    let spreading = spreading(Scheme::Toeplitz);
    let cases = [
        (
            [66, 9, 149, 187],
            2794,
            [161, 142, 100, 80],
            1766,
            0x51CC_C178,
        ),
        (
            [199, 92, 111, 2],
            14230,
            [65, 69, 140, 83],
            4739,
            0xC626_B0EA,
        ),
        (
            [24, 19, 198, 95],
            12898,
            [12, 22, 207, 184],
            38024,
            0x5C2B_394A,
        ),
        (
            [38, 27, 205, 30],
            48228,
            [209, 142, 163, 6],
            2217,
            0xAFC7_327F,
        ),
    ];
    for (source, from, destination, to, wanted) in cases {
        let frame = frame_v4(source, from, destination, to);
        assert_eq!(hash(&spreading, &frame), wanted, "{source:?}");
        assert_eq!(spreading.queue(wanted), (wanted % 64) as u16);
    }
    // the addresses alone, of another protocol
    let mut frame = frame_v4([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766);
    frame[23] = 50;
    assert_eq!(hash(&spreading, &frame), 0x323E_8FC2);
}

#[test]
fn hashes_of_ipv6_are_those_that_microsoft_publishes() {
    let source: std::net::Ipv6Addr = "3ffe:2501:200:1fff::7".parse().unwrap();
    let destination: std::net::Ipv6Addr = "3ffe:2501:200:3::1".parse().unwrap();
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 20, 6, 64]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend(2794u16.to_be_bytes());
    frame.extend(1766u16.to_be_bytes());
    frame.resize(14 + 60, 0);
    assert_eq!(hash(&spreading(Scheme::Toeplitz), &frame), 0x4020_7D3D);
}

#[test]
fn symmetric_hashes_are_the_same_both_ways() {
    let there = frame_v4([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766);
    let back = frame_v4([161, 142, 100, 80], 1766, [66, 9, 149, 187], 2794);
    let symmetric = spreading(Scheme::Symmetric);
    assert_eq!(hash(&symmetric, &there), hash(&symmetric, &back));
    assert_ne!(
        hash(&spreading(Scheme::Toeplitz), &there),
        hash(&spreading(Scheme::Toeplitz), &back)
    );
    assert_ne!(hash(&symmetric, &there), 0);
}

#[test]
fn an_empty_table_gives_the_first_queue() {
    let mut spreading = spreading(Scheme::Toeplitz);
    spreading.table.clear();
    assert_eq!(spreading.queue(u32::MAX), 0);
}
