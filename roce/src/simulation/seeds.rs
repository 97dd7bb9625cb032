//! The required results over all seeds, with each kind of fault.

use super::*;

#[test]
fn a_lossless_wire_needs_no_timeout_and_no_nak_at_any_mtu() {
    for mtu in PathMtu::ALL {
        // with receive requests always there
        let world = simulate(Setup {
            receives: 1000,
            ..small(7, mtu)
        });
        for peer in &world.peers {
            let (sent, answered) = (peer.requester.statistics(), peer.responder.statistics());
            assert_eq!(sent.timeouts, 0);
            assert_eq!(sent.missing_read_responses, 0);
            assert_eq!(
                (answered.gaps, sent.sequence_errors),
                (sent.sequence_errors, 0)
            );
        }
    }
}

#[test]
fn every_byte_arrives_once_although_packets_are_lost() {
    for mtu in PathMtu::ALL {
        for seed in 0..12 {
            let faults = Faults {
                drop: 30,
                ..Faults::default()
            };
            let world = simulate(Setup {
                faults,
                ..small(seed, mtu)
            });
            let repeated: u64 = world
                .peers
                .iter()
                .map(|peer| peer.requester.statistics().packets_repeated)
                .sum();
            assert!(repeated > 0, "seed {seed}: nothing was lost");
        }
    }
}

#[test]
fn every_byte_arrives_once_although_packets_come_twice() {
    for seed in 100..120 {
        let faults = Faults {
            duplicate: 200,
            ..Faults::default()
        };
        let world = simulate(Setup {
            faults,
            ..small(seed, PathMtu::Bytes512)
        });
        assert!(world.peers[0].responder.statistics().duplicates > 0);
    }
}

#[test]
fn every_byte_arrives_once_although_packets_overtake_each_other() {
    for seed in 200..220 {
        let faults = Faults {
            delay: 50,
            ..Faults::default()
        };
        let world = simulate(Setup {
            faults,
            ..small(seed, PathMtu::Bytes512)
        });
        assert!(world.peers[0].responder.statistics().gaps > 0);
    }
}

#[test]
fn every_byte_arrives_once_with_all_faults_together() {
    for seed in 300..360 {
        let faults = Faults {
            drop: 20,
            duplicate: 20,
            delay: 20,
        };
        let mtu = PathMtu::ALL[seed as usize % 5];
        let receives = if seed % 2 == 0 { 30 } else { 1000 };
        simulate(Setup {
            faults,
            receives,
            ..small(seed, mtu)
        });
    }
}

/// Responses of many packets are still leaving when they are asked for again, and the requester has
/// as many reads outstanding as the responder takes.
#[test]
fn every_byte_of_long_reads_arrives_over_a_slow_wire() {
    for seed in 500..540 {
        let faults = Faults {
            drop: 20,
            duplicate: 50,
            delay: 20,
        };
        let world = simulate(Setup {
            faults,
            longest_bytes: 100 * 256,
            responses: 1,
            ..small(seed, PathMtu::Bytes256)
        });
        assert!(world.peers[0].responder.statistics().duplicates > 0);
    }
}

#[test]
fn frames_carry_what_values_carry() {
    for seed in 400..410 {
        let faults = Faults {
            drop: 10,
            duplicate: 10,
            delay: 10,
        };
        let frames = Setup {
            faults,
            wire: Wire::Frames,
            ..small(seed, PathMtu::Bytes1024)
        };
        let as_frames = simulate(frames);
        let as_values = simulate(Setup {
            wire: Wire::Values,
            ..frames
        });
        assert_eq!(as_frames.now, as_values.now, "the same run");
    }
}

#[test]
fn one_seed_is_one_run() {
    let faults = Faults {
        drop: 20,
        duplicate: 20,
        delay: 20,
    };
    let setup = Setup {
        faults,
        ..small(9, PathMtu::Bytes256)
    };
    let (first, second) = (simulate(setup), simulate(setup));
    assert_eq!(first.now, second.now);
    for (a, b) in first.peers.iter().zip(&second.peers) {
        assert_eq!(a.requester.statistics(), b.requester.statistics());
        assert_eq!(a.responder.statistics(), b.responder.statistics());
    }
}

#[test]
fn long_messages_arrive_although_packets_are_lost() {
    for (seed, mtu) in [(1, PathMtu::Bytes256), (2, PathMtu::Bytes4096)] {
        let faults = Faults {
            drop: 5,
            ..Faults::default()
        };
        let requests = 12;
        let longest_bytes = 1 << 20;
        let setup = Setup {
            seed,
            faults,
            requests,
            longest_bytes,
            ..small(seed, mtu)
        };
        simulate(setup);
    }
}

#[test]
fn a_receiver_that_is_slow_to_post_is_waited_for() {
    let world = simulate(Setup {
        receives: 20,
        ..small(5, PathMtu::Bytes1024)
    });
    for peer in &world.peers {
        assert!(peer.requester.statistics().receiver_not_ready > 0);
        assert_eq!(peer.requester.statistics().timeouts, 0);
    }
}
