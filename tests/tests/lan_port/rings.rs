//! Rings of the largest size.

use crate::rig::{Rig, settings};
use ringside_lan::PoolSettings;
use ringside_pmd::lan::PortSettings;
use ringside_spec::lan::limits::MAX_RING;

/// Twice around both rings, in order and with the right bytes.
#[test]
fn rings_of_the_largest_size_wrap_without_loss() {
    let largest = PortSettings {
        receive_descriptors: MAX_RING,
        transmit_descriptors: MAX_RING,
        pool: PoolSettings {
            buffers: 4 * u32::from(MAX_RING),
            ..settings().pool
        },
        ..settings()
    };
    let mut rig = Rig::with(&largest, &largest);
    let mut frame = [0; 64];
    frame[..6].copy_from_slice(&rig.b.mac());
    frame[6..12].copy_from_slice(&rig.a.mac());
    frame[12..14].copy_from_slice(&0x88B5u16.to_be_bytes());
    let most = 2 * u32::from(MAX_RING) + 100;
    let mut next = 0;
    while next < most {
        let burst = (next..most).take(32);
        let count = burst.len();
        let packets: Vec<_> = burst
            .map(|number| {
                frame[14..18].copy_from_slice(&number.to_be_bytes());
                rig.a.packet(&frame)
            })
            .collect();
        rig.a.send(packets);
        for (_, packet) in rig.wait_b(count) {
            assert_eq!(packet.bytes()[14..18], next.to_be_bytes());
            next += 1;
        }
    }
    rig.finish();
}
