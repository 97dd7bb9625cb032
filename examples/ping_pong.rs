//! Two functions of the model exchange messages; prints the median of half a round trip.
//!
//! Run: `cargo run --release --example ping_pong -- [ROUNDS] [FIRST SECOND]`
//! FIRST and SECOND are addresses of devices on one network, such as `0000:3b:00.0` or
//! `vfio-user:/run/e810.sock`; default `model:0` and `model:1`.

use ringside::prelude::*;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

/// Longest wait for a completion.
const LIMIT: Duration = Duration::from_secs(10);
const MESSAGE: usize = 64;

struct Side {
    completions: CompletionQueue,
    region: MemoryRegion,
    queue_pair: QueuePair<Connected>,
}

impl Side {
    /// Polls until a receive completes; checks every completion on the way.
    fn wait_for_message(&mut self) -> Result<(), Error> {
        let end = Instant::now() + LIMIT;
        let mut batch = [Completion::EMPTY; 8];
        while Instant::now() < end {
            for done in self.completions.poll(&mut batch) {
                if !done.is_success() {
                    return Err(format!("request {}: {}", done.id, done.status()).into());
                }
                if !done.is_send() {
                    return Ok(());
                }
            }
        }
        Err("no message within 10 s".into())
    }

    fn post_receive(&mut self) -> Result<(), Error> {
        let place = self.region.slice(MESSAGE..2 * MESSAGE)?;
        Ok(self.queue_pair.receive(0, &[place])?)
    }

    fn send(&mut self) -> Result<(), Error> {
        let message = self.region.slice(0..MESSAGE)?;
        self.queue_pair.send(1, &[message], Flags::SIGNALLED)?;
        self.queue_pair.ring();
        Ok(())
    }
}

fn connect(left: &Device, right: &Device) -> Result<[Side; 2], Error> {
    let make = |device: &Device| -> Result<_, Error> {
        let domain = device.protection_domain()?;
        let completions = device.completion_queue(64)?;
        let region = domain.register(device.allocate(2 * MESSAGE)?, Access::LOCAL_WRITE)?;
        let queue_pair = domain.queue_pair(QueuePairConfig::reliable(&completions))?;
        Ok((completions, region, queue_pair))
    };
    let (one, two) = (make(left)?, make(right)?);
    let (first, second) = (one.2.endpoint(), two.2.endpoint());
    let side = |(completions, region, queue_pair): (_, _, QueuePair), peer| {
        let queue_pair = queue_pair.connect(peer)?;
        Ok::<_, Error>(Side {
            completions,
            region,
            queue_pair,
        })
    };
    Ok([side(one, &second)?, side(two, &first)?])
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds: usize = arguments.first().map_or(Ok(10_000), |text| text.parse())?;
    let address = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let config = Config::default();
    let left = ringside::open(address(1, "model:0"), &config)?;
    let right = ringside::open(address(2, "model:1"), &config)?;
    let [mut one, mut two] = connect(&left, &right)?;

    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        one.post_receive()?;
        two.post_receive()?;
        let payload = (round as u64).to_le_bytes();
        assert!(one.region.write(0, &payload));
        let began = Instant::now();
        one.send()?;
        two.wait_for_message()?;
        let mut arrived = [0; 8];
        assert!(two.region.read(MESSAGE, &mut arrived));
        if arrived != payload {
            return Err(format!("round {round}: {arrived:?} arrived, {payload:?} was sent").into());
        }
        two.send()?;
        one.wait_for_message()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let median = times.get(rounds / 2).copied().unwrap_or_default() / 2;
    println!("{rounds} round trips of {MESSAGE} bytes, median of half a round trip {median:?}");
    Ok(())
}
