//! The loops over packet queues that `benches/instructions` counts under callgrind.
//!
//! Each measured function is not inlined, so that callgrind can count between its entry and its
//! return. `time-forward` and `time-receive` print nanoseconds a packet instead, medians.

use ringside_benches::RigError;
use ringside_benches::lan::{BURST, LanRig, burst};
use ringside_lan::Burst;
use std::time::Instant;

#[inline(never)]
fn measured_receive(rig: &mut LanRig, burst: &mut Burst) -> u64 {
    rig.receive.receive(burst) as u64
}

#[inline(never)]
fn measured_send(rig: &mut LanRig, burst: &mut Burst) -> u64 {
    rig.send.send(burst) as u64
}

#[inline(never)]
fn measured_drop(burst: &mut Burst) {
    burst.clear();
}

/// Nanoseconds a packet: the median of bursts. `turn` is timed, `prepare` is not.
fn timed(
    rig: &mut LanRig,
    rounds: u64,
    mut turn: impl FnMut(&mut LanRig, &mut Burst),
    mut after: impl FnMut(&mut LanRig, &mut Burst),
) -> f64 {
    let mut packets = burst();
    let mut samples: Vec<u64> = (0..rounds)
        .map(|_| {
            rig.arrive();
            let began = Instant::now();
            turn(rig, &mut packets);
            let took = began.elapsed().as_nanos() as u64;
            after(rig, &mut packets);
            took
        })
        .collect();
    samples.sort_unstable();
    let median = samples.get(samples.len() / 2).copied().unwrap_or(0);
    median as f64 / BURST as f64
}

fn main() -> Result<(), RigError> {
    let mut arguments = std::env::args().skip(1);
    let case = arguments.next().unwrap_or_else(|| "forward".to_owned());
    let packets: u64 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_240);
    let rounds = packets.div_ceil(BURST as u64);
    let mut rig = LanRig::new()?;
    let mut packets = burst();
    let mut done = 0;
    match case.as_str() {
        "receive" => {
            for _ in 0..rounds {
                rig.arrive();
                done += measured_receive(&mut rig, &mut packets);
                measured_drop(&mut packets);
            }
        }
        "forward" => {
            for _ in 0..rounds {
                rig.arrive();
                done += measured_receive(&mut rig, &mut packets);
                measured_send(&mut rig, &mut packets);
                rig.complete();
            }
        }
        "time-receive" => {
            let turn = |rig: &mut LanRig, packets: &mut Burst| {
                rig.receive.receive(packets);
            };
            let ns = timed(&mut rig, rounds, turn, |_, packets| packets.clear());
            println!("{ns:.2}");
            return Ok(());
        }
        "time-forward" => {
            let turn = |rig: &mut LanRig, packets: &mut Burst| {
                rig.receive.receive(packets);
                rig.send.send(packets);
            };
            let ns = timed(&mut rig, rounds, turn, |rig, _| rig.complete());
            println!("{ns:.2}");
            return Ok(());
        }
        other => {
            eprintln!(
                "unknown case {other}; the cases are: receive, forward, time-receive, time-forward"
            );
            std::process::exit(2);
        }
    }
    println!("{done}");
    Ok(())
}
