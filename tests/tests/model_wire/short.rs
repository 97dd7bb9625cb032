//! Short writes, which need no frames where nothing on the wire looks at packets, leave the counts
//! that their frames leave.

use super::{Seen, pair};
use ringside_model::wire::SwitchCounters;
use ringside_pmd::rdma::{Flags, Statistic};
use ringside_spec::lan::identity::VSI_COUNT;
use ringside_spec::lan::registers::statistics::VSI;
use ringside_testkit::{Bed, Pair};

/// The way of packets between the two functions.
#[derive(Clone, Copy, Debug)]
enum Way {
    Direct,
    Frames,
    Bytes,
}

/// Everything that counts packets.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    switch: SwitchCounters,
    statistics: Vec<Vec<Statistic>>,
    vsi: Vec<Vec<u64>>,
}

fn vsi_counts(world: &Bed, function: u16) -> Vec<u64> {
    let function = world.function(function);
    let counts = VSI.iter().flat_map(|counter| {
        (0..VSI_COUNT as u32).map(|index| {
            let at = counter.registers.at(index);
            function.read32(0, at).unwrap().into()
        })
    });
    counts.collect()
}

fn traffic(pair: &mut Pair) {
    let length = 4096;
    let (from, to) = (pair.a.region(length), pair.b.region(length));
    let (mut a, mut b) = pair.connect(|config| config);
    let (mut other, _peer) = pair.connect(|config| config);
    for size in [8, 1, 0, 64, 128, 129, 1500] {
        for id in 0..20 {
            let (near, far) = (from.slice(0..size).unwrap(), to.slice(0..size).unwrap());
            a.write(id, &[near], to.remote().at(0), Flags::SIGNALLED)
                .unwrap();
            other
                .write(id, &[near], to.remote().at(0), Flags::SIGNALLED)
                .unwrap();
            b.write(id, &[far], from.remote().at(0), Flags::SIGNALLED)
                .unwrap();
            if id % 3 == 0 {
                a.ring();
                other.ring();
            }
        }
        a.ring();
        other.ring();
        b.ring();
        assert!(pair.wait_a(40).iter().all(|done| done.is_success()));
        assert!(pair.wait_b(20).iter().all(|done| done.is_success()));
    }
}

fn counts(way: Way) -> (Counts, usize) {
    let (mut pair, seen) = pair(matches!(way, Way::Bytes));
    if matches!(way, Way::Direct) {
        pair.world.with(|world| world.switch().set_tap(None));
    }
    traffic(&mut pair);
    let counts = Counts {
        switch: pair.world.with(|world| world.switch().counters()),
        statistics: [&pair.a, &pair.b]
            .map(|end| end.device.statistics().unwrap())
            .to_vec(),
        vsi: [0, 1].map(|index| vsi_counts(&pair.world, index)).to_vec(),
    };
    pair.finish();
    let seen: Vec<Seen> = std::mem::take(&mut seen.lock().unwrap());
    (counts, seen.len())
}

#[test]
fn short_writes_count_the_same_with_frames_and_without() {
    let (direct, _) = counts(Way::Direct);
    for way in [Way::Frames, Way::Bytes] {
        let (framed, seen) = counts(way);
        assert!(seen > 420, "{way:?}: {seen} frames");
        assert_eq!(direct.switch, framed.switch, "{way:?}");
        assert_eq!(direct.statistics, framed.statistics, "{way:?}");
        assert!(direct.vsi == framed.vsi, "{way:?}");
    }
    let received: u64 = direct.vsi.concat().iter().sum();
    assert!(received > 420, "the counters of a VSI count");
}
