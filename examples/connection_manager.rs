//! A client connects to a server by IP address and port, and each message that it sends comes back.
//!
//! The connection manager does what `rdma_cm` does for C programs, and either side may be a C
//! program over librdmacm. No other channel is needed: `Settings::private_data` carries addresses
//! of memory and keys, if the program has one-sided requests.
//!
//! Run: `cargo run --example connection_manager -- [SERVER CLIENT]`
//! SERVER and CLIENT are device addresses; default `model:0` and `model:1`.

use ringside::connect::{Connection, Settings};
use ringside::prelude::*;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Longest wait for the peer.
const LIMIT: Duration = Duration::from_secs(10);
const PORT: u16 = 7471;
const MESSAGE: usize = 64;
const ROUNDS: u64 = 100;

/// One end of the connection; its region has a place to receive and, behind it, one to send.
struct End {
    completions: CompletionQueue,
    region: MemoryRegion,
    connection: Connection,
}

/// Makes a queue pair, with a receive for the peer's first message.
fn prepare(device: &Device) -> Result<(CompletionQueue, MemoryRegion, QueuePair), Error> {
    let domain = device.protection_domain()?;
    let completions = device.completion_queue(16)?;
    let region = domain.register(device.allocate(2 * MESSAGE)?, Access::LOCAL_WRITE)?;
    let mut queue_pair = domain.queue_pair(QueuePairConfig::reliable(&completions))?;
    queue_pair.receive(0, &[region.slice(0..MESSAGE)?])?;
    Ok((completions, region, queue_pair))
}

impl End {
    /// Waits for the next completion of a receive, and returns the message.
    fn next(&mut self) -> Result<u64, Error> {
        let end = Instant::now() + LIMIT;
        let mut batch = [Completion::EMPTY; 8];
        while Instant::now() < end {
            let done = self.completions.poll(&mut batch);
            if let Some(failed) = done.iter().find(|done| !done.is_success()) {
                return Err(format!("request {}: {}", failed.id, failed.status()).into());
            }
            if done.iter().any(|done| !done.is_send()) {
                let mut message = [0; 8];
                assert!(self.region.read(0, &mut message));
                let place = self.region.slice(0..MESSAGE)?;
                self.connection.queue_pair.receive(0, &[place])?;
                return Ok(u64::from_le_bytes(message));
            }
        }
        Err("no message within 10 s".into())
    }

    fn send(&mut self, number: u64) -> Result<(), Error> {
        assert!(self.region.write(MESSAGE, &number.to_le_bytes()));
        let message = self.region.slice(MESSAGE..2 * MESSAGE)?;
        let queue_pair = &mut self.connection.queue_pair;
        queue_pair.send(1, &[message], Flags::SIGNALLED)?;
        queue_pair.ring();
        Ok(())
    }
}

/// Accepts one connection, and returns each message of it.
fn serve(device: &Device, ready: &std::sync::mpsc::Sender<SocketAddr>) -> Result<(), Error> {
    let manager = device.connection_manager()?;
    let addresses = manager.addresses();
    let own = addresses.iter().find(|address| address.is_ipv4());
    let at = SocketAddr::new(*own.ok_or("no IPv4 address")?, PORT);
    let listener = manager.listen(at, 4)?;
    ready.send(at)?;
    let request = listener.next(LIMIT).ok_or("no client within 10 s")?;
    let (completions, region, queue_pair) = prepare(device)?;
    let connection = request.accept(queue_pair, &Settings::default(), LIMIT)?;
    let mut end = End {
        completions,
        region,
        connection,
    };
    for _ in 0..ROUNDS {
        let number = end.next()?;
        end.send(number)?;
    }
    // The client disconnects once it has the last message.
    if end.connection.wait_for_end(LIMIT) {
        return Ok(());
    }
    Err("the client did not disconnect".into())
}

fn ask(device: &Device, server: SocketAddr) -> Result<(), Error> {
    let manager = device.connection_manager()?;
    let (completions, region, queue_pair) = prepare(device)?;
    let connection = manager.connect(queue_pair, server, &Settings::default(), LIMIT)?;
    println!("connected to {}", connection.peer());
    let mut end = End {
        completions,
        region,
        connection,
    };
    for number in 0..ROUNDS {
        end.send(number)?;
        let returned = end.next()?;
        if returned != number {
            return Err(format!("{returned} came back, {number} was sent").into());
        }
    }
    if !end.connection.disconnect(LIMIT) {
        return Err("the server did not confirm the end".into());
    }
    println!("{ROUNDS} messages came back");
    Ok(())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let config = Config::default();
    let near = ringside::open(address(0, "model:0"), &config)?;
    let far = ringside::open(address(1, "model:1"), &config)?;
    let (ready, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&near, &ready));
        let server_at = match told.recv_timeout(LIMIT) {
            Ok(at) => at,
            Err(error) => {
                let failure = server.join().map_err(|_| "the server panicked")?;
                return Err(failure.err().unwrap_or_else(|| error.into()));
            }
        };
        ask(&far, server_at)?;
        server.join().map_err(|_| "the server panicked")?
    })
}
