//! The loops that `benches/instructions` counts under callgrind. Without callgrind this program
//! only executes them.
//!
//! Each measured function is not inlined, so that callgrind can count between its entry and its
//! return.

use ringside_benches::{CHAIN, OwnReceives, PooledReceives, Rig, RigError};
use ringside_qp::SendFlags;
use std::time::Instant;

const SIGNALLED: SendFlags = SendFlags::SIGNALLED;

/// Posts, rings, writes the completion and polls: one request in flight.
#[inline(never)]
fn measured_round_trips(rig: &mut Rig, rounds: u64) -> u64 {
    let mut done = 0;
    for id in 0..rounds {
        if rig.post_write(id, SIGNALLED).is_ok() {
            rig.send.ring_doorbell();
            rig.complete(1);
            done += rig.poll() as u64;
        }
    }
    done
}

/// The same round trip, polled with `poll_one`.
#[inline(never)]
fn measured_single_round_trips(rig: &mut Rig, rounds: u64) -> u64 {
    let mut done = 0;
    for id in 0..rounds {
        if rig.post_write(id, SIGNALLED).is_ok() {
            rig.send.ring_doorbell();
            rig.complete(1);
            done += u64::from(rig.poll_one());
        }
    }
    done
}

/// The same round trip, with the data in the element.
#[inline(never)]
fn measured_inline_round_trips(rig: &mut Rig, rounds: u64) -> u64 {
    let mut done = 0;
    for id in 0..rounds {
        if rig.post_write_inline(id, SIGNALLED).is_ok() {
            rig.send.ring_doorbell();
            rig.complete(1);
            done += rig.poll() as u64;
        }
    }
    done
}

/// The same round trip with sends.
#[inline(never)]
fn measured_sends(rig: &mut Rig, rounds: u64) -> u64 {
    let mut done = 0;
    for id in 0..rounds {
        if rig.post_send(id, SIGNALLED).is_ok() {
            rig.send.ring_doorbell();
            rig.complete(1);
            done += rig.poll() as u64;
        }
    }
    done
}

/// The same round trip with reads.
#[inline(never)]
fn measured_reads(rig: &mut Rig, rounds: u64) -> u64 {
    let mut done = 0;
    for id in 0..rounds {
        if rig.post_read(id, SIGNALLED).is_ok() {
            rig.send.ring_doorbell();
            rig.complete(1);
            done += rig.poll() as u64;
        }
    }
    done
}

/// The same round trip with datagrams.
#[inline(never)]
fn measured_datagrams(rig: &mut Rig, rounds: u64) -> u64 {
    let mut done = 0;
    for id in 0..rounds {
        if rig.post_datagram(id, SIGNALLED).is_ok() {
            rig.send.ring_doorbell();
            rig.complete(1);
            done += rig.poll() as u64;
        }
    }
    done
}

/// The consumer alone: the cost of the harness.
#[inline(never)]
fn measured_harness(rig: &mut Rig, rounds: u64) -> u64 {
    for id in 0..rounds {
        rig.complete(1);
        std::hint::black_box(id);
    }
    rounds
}

/// Prints nanoseconds per round trip: the median of a hundred parts of the run.
fn timed_round_trips(rig: &mut Rig, rounds: u64) {
    const PARTS: u64 = 100;
    let mut parts: Vec<_> = (0..PARTS)
        .map(|_| {
            let began = Instant::now();
            measured_round_trips(rig, rounds / PARTS);
            began.elapsed().as_nanos() as f64 / (rounds / PARTS) as f64
        })
        .collect();
    parts.sort_by(f64::total_cmp);
    println!("{:.2}", parts.get(50).copied().unwrap_or(f64::NAN));
}

#[inline(never)]
fn measured_chain_of_posts(rig: &mut Rig) -> u64 {
    let mut posted = 0;
    for id in 0..CHAIN as u64 {
        posted += u64::from(rig.post_write(id, SIGNALLED).is_ok());
    }
    rig.send.ring_doorbell();
    posted
}

#[inline(never)]
fn measured_chain_of_polls(rig: &mut Rig) -> u64 {
    rig.poll() as u64
}

/// One post without its doorbell, for the distribution.
#[inline(never)]
fn measured_single_post(rig: &mut Rig, id: u64) -> u64 {
    u64::from(rig.post_write(id, SIGNALLED).is_ok())
}

/// One post of five fragments: three quanta, with padding before every third.
#[inline(never)]
fn measured_wide_post(rig: &mut Rig, id: u64) -> u64 {
    u64::from(rig.post_wide_write(id, SIGNALLED).is_ok())
}

/// One receive of a queue pair's own queue: completed, polled, posted again.
#[inline(never)]
fn measured_own_receives(rig: &mut OwnReceives, rounds: u64) -> u64 {
    (0..rounds).map(|id| rig.turn(id) as u64).sum()
}

/// One receive of a shared queue: completed, polled, posted again.
#[inline(never)]
fn measured_shared_receives(rig: &mut PooledReceives, rounds: u64) -> u64 {
    (0..rounds).map(|id| rig.turn(id) as u64).sum()
}

/// A poll that finds nothing.
#[inline(never)]
fn measured_empty_polls(rig: &mut Rig, rounds: u64) -> u64 {
    (0..rounds).map(|_| rig.poll() as u64 + 1).sum()
}

fn main() -> Result<(), RigError> {
    let mut arguments = std::env::args().skip(1);
    let case = arguments.next().unwrap_or_else(|| "round-trips".to_owned());
    let rounds: u64 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000);
    // "vfio-chains" is "chains" with the doorbell of the VFIO backend.
    let (mut rig, case) = match case.strip_prefix("vfio-") {
        Some(case) => (Rig::over_vfio()?, case.to_owned()),
        None => (Rig::new()?, case),
    };
    let mut done = 0;
    match case.as_str() {
        "round-trips" => done = measured_round_trips(&mut rig, rounds),
        "time-round-trips" => {
            timed_round_trips(&mut rig, rounds);
            return Ok(());
        }
        "harness" => done = measured_harness(&mut rig, rounds),
        "sends" => done = measured_sends(&mut rig, rounds),
        "reads" => done = measured_reads(&mut rig, rounds),
        "datagrams" => done = measured_datagrams(&mut rig, rounds),
        "single-round-trips" => done = measured_single_round_trips(&mut rig, rounds),
        "inline-round-trips" => done = measured_inline_round_trips(&mut rig, rounds),
        "chains" => {
            for _ in 0..rounds.div_ceil(CHAIN as u64) {
                let posted = measured_chain_of_posts(&mut rig);
                rig.complete(posted as usize);
                done += measured_chain_of_polls(&mut rig);
            }
        }
        "single-posts" => {
            for id in 0..rounds {
                done += measured_single_post(&mut rig, id);
                if id % 8 == 7 {
                    rig.complete(8);
                    rig.poll();
                }
            }
        }
        "wide-posts" => {
            for id in 0..rounds {
                done += measured_wide_post(&mut rig, id);
                rig.retire_all();
            }
        }
        "empty-polls" => done = measured_empty_polls(&mut rig, rounds),
        "own-receives" => done = measured_own_receives(&mut OwnReceives::new()?, rounds),
        "shared-receives" => done = measured_shared_receives(&mut PooledReceives::new()?, rounds),
        other => {
            let cases = "round-trips, single-round-trips, inline-round-trips, time-round-trips, \
                harness, sends, reads, datagrams, chains, single-posts, wide-posts, \
                empty-polls, own-receives, shared-receives";
            eprintln!("unknown case {other}; the cases are: {cases}");
            std::process::exit(2);
        }
    }
    println!("{done}");
    Ok(())
}
