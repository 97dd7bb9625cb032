//! A server with a shared receive queue on a pinned worker, and several clients.
//!
//! Each client sends a number; the server answers with its square. One shared receive queue serves
//! all connections, so the server posts receives once.
//!
//! Run: `cargo run --example request_response -- [FIRST SECOND]`
//!
//! FIRST and SECOND are addresses of devices on one network, such as `0000:3b:00.0` or
//! `vfio-user:/run/e810.sock`; default `model:0` and `model:1`.

use ringside::bus::pinning::allowed_cores;
use ringside::driver::rdma::RdmaError;
use ringside::prelude::*;
use std::collections::HashMap;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error + Send + Sync>;

const CLIENTS: usize = 4;
const ROUNDS: u64 = 200;
/// Receives of the shared queue, and with them slots of its region.
const RECEIVES: usize = 32;
const SLOT: usize = 64;
const LIMIT: Duration = Duration::from_secs(20);

/// The server's state: one worker owns it.
struct Server {
    receives: SharedReceiveQueue,
    completions: CompletionQueue,
    /// slots for requests, then one slot for each answer in progress
    region: MemoryRegion,
    clients: HashMap<u32, QueuePair<Connected>>,
    answered: u64,
    failure: Option<String>,
}

impl Server {
    fn slot(&self, index: usize) -> std::ops::Range<usize> {
        index * SLOT..index * SLOT + 8
    }

    fn poll(&mut self) -> Polled {
        let mut batch = [Completion::EMPTY; 16];
        let done: Vec<Completion> = self
            .receives
            .poll(&mut self.completions, &mut batch)
            .to_vec();
        for done in &done {
            if let Err(error) = self.serve(done) {
                self.failure.get_or_insert(error.to_string());
            }
        }
        if done.is_empty() {
            Polled::Idle
        } else {
            Polled::Worked
        }
    }

    fn serve(&mut self, done: &Completion) -> Result<(), Error> {
        if !done.is_success() {
            return Err(format!("request {}: {}", done.id, done.status()).into());
        }
        if done.is_send() {
            return Ok(());
        }
        let slot = done.id as usize;
        let mut number = [0; 8];
        assert!(self.region.read(slot * SLOT, &mut number));
        let number = u64::from_le_bytes(number);
        let client = self
            .clients
            .get_mut(&done.queue_pair())
            .ok_or("an unknown client")?;
        client.send_inline(0, &(number * number).to_le_bytes(), None, Flags::SIGNALLED)?;
        client.ring();
        let place = self.region.slice(self.slot(slot))?;
        self.receives.post(done.id, &[place])?;
        self.answered += 1;
        Ok(())
    }
}

struct Client {
    completions: CompletionQueue,
    region: MemoryRegion,
    queue_pair: QueuePair<Connected>,
}

impl Client {
    fn ask(&mut self, number: u64) -> Result<u64, Error> {
        self.queue_pair.receive(1, &[self.region.slice(0..8)?])?;
        self.queue_pair
            .send_inline(2, &number.to_le_bytes(), None, Flags::SIGNALLED)?;
        self.queue_pair.ring();
        let end = Instant::now() + LIMIT;
        let mut batch = [Completion::EMPTY; 4];
        while Instant::now() < end {
            for done in self.completions.poll(&mut batch) {
                if !done.is_success() {
                    return Err(format!("request {}: {}", done.id, done.status()).into());
                }
                if !done.is_send() {
                    let mut answer = [0; 8];
                    assert!(self.region.read(0, &mut answer));
                    return Ok(u64::from_le_bytes(answer));
                }
            }
        }
        Err("no answer in time".into())
    }
}

/// Makes the server's queues and the clients, and connects them.
fn build(left: &Device, right: &Device) -> Result<(Server, Vec<Client>), Error> {
    let domain = right.protection_domain()?;
    let completions = right.completion_queue(256)?;
    let region = domain.register(right.allocate(RECEIVES * SLOT)?, Access::LOCAL_WRITE)?;
    let config = SharedReceiveConfig {
        window: 4,
        ..SharedReceiveConfig::default()
    };
    let mut receives = domain.shared_receive_queue(&config)?;
    for slot in 0..RECEIVES {
        receives.post(slot as u64, &[region.slice(slot * SLOT..slot * SLOT + 8)?])?;
    }
    let (mut served, mut clients) = (HashMap::new(), Vec::new());
    for _ in 0..CLIENTS {
        let client_domain = left.protection_domain()?;
        let client_completions = left.completion_queue(16)?;
        let buffer = left.allocate(SLOT)?;
        let client_region = client_domain.register(buffer, Access::LOCAL_WRITE)?;
        let near = client_domain.queue_pair(QueuePairConfig::reliable(&client_completions))?;
        let mut far = domain.queue_pair(QueuePairConfig::reliable(&completions))?;
        receives.attach(&mut far)?;
        let (near_end, far_end) = (near.endpoint(), far.endpoint());
        let refused = |error: ringside::driver::rdma::ConnectError| -> RdmaError { error.error };
        let far = far.connect(&near_end).map_err(refused)?;
        served.insert(far.number(), far);
        clients.push(Client {
            completions: client_completions,
            region: client_region,
            queue_pair: near.connect(&far_end).map_err(refused)?,
        });
    }
    let server = Server {
        receives,
        completions,
        region,
        clients: served,
        answered: 0,
        failure: None,
    };
    Ok((server, clients))
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let config = Config::default();
    let left = ringside::open(address(0, "model:0"), &config)?;
    let right = ringside::open(address(1, "model:1"), &config)?;
    let (server, mut clients) = build(&left, &right)?;
    // A core of those that this process may use: the last one, as most programs start on the first.
    let core = allowed_cores().last().copied();
    let worker = Worker::start(core, 16, move || server, Server::poll)?;
    match core {
        Some(core) => println!("the server's worker is pinned to core {core}"),
        None => {
            println!("the server's worker is not pinned: the cores of this process are not known")
        }
    }

    for round in 0..ROUNDS {
        for (index, client) in clients.iter_mut().enumerate() {
            let number = round * 10 + index as u64;
            let square = client.ask(number)?;
            if square != number * number {
                return Err(
                    format!("the server answered {square} for the square of {number}").into(),
                );
            }
        }
    }
    let stopped = worker.stop(Duration::from_secs(5));
    let server = stopped.map_err(|error| error.to_string())?;
    if let Some(failure) = server.failure {
        return Err(failure.into());
    }
    println!("{} requests of {CLIENTS} clients answered", server.answered);
    Ok(())
}
