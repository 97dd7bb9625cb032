//! A block device over RDMA, as NVMe over Fabrics has it: commands are sends, data moves by reads
//! and writes of the target, the answer is a send.
//!
//! The host writes and reads blocks at random and compares every byte with a copy of its own.
//!
//! Run: `cargo run -p ringside-nic --example block_target`

use ringside::bus::pinning::allowed_cores;
use ringside::driver::rdma::RemoteAddress;
use ringside::prelude::*;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error + Send + Sync>;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 1024;
/// Blocks that one command moves at most.
const MAX_BLOCKS: u64 = 16;
const COMMANDS: u64 = 500;
/// Commands under way at once, each with a slot at both ends.
const DEPTH: usize = 8;
/// Bytes of a command: operation, slot, first block, blocks, address, key.
const COMMAND: usize = 32;
const LIMIT: Duration = Duration::from_secs(30);

/// Operations of a command, and marks in the ids of requests.
const READ: u32 = 1;
const WRITE: u32 = 2;

#[derive(Clone, Copy)]
struct Command {
    operation: u32,
    slot: u32,
    first: u64,
    blocks: u32,
    key: u32,
    address: u64,
}

impl Command {
    fn encode(&self) -> [u8; COMMAND] {
        let mut bytes = [0; COMMAND];
        bytes[..4].copy_from_slice(&self.operation.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.slot.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.key.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.address.to_le_bytes());
        bytes
    }

    /// Reads a command, which another machine wrote; `None` if it asks for what there is not.
    fn decode(bytes: &[u8; COMMAND]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let command = Self {
            operation: word(0)?,
            slot: word(4)?,
            first: long(8)?,
            blocks: word(16)?,
            key: word(20)?,
            address: long(24)?,
        };
        let blocks = u64::from(command.blocks);
        let inside = command.first.checked_add(blocks)? <= BLOCKS;
        let fits = (1..=MAX_BLOCKS).contains(&blocks) && (command.slot as usize) < DEPTH;
        let known = [READ, WRITE].contains(&command.operation);
        (inside && fits && known).then_some(command)
    }
}

/// One end of the connection.
struct End {
    completions: CompletionQueue,
    queue_pair: QueuePair<Connected>,
    /// receives of commands or answers, one slot each
    messages: MemoryRegion,
}

impl End {
    fn post_receive(&mut self, slot: usize) -> Result<(), Error> {
        let place = self.messages.slice(slot * COMMAND..(slot + 1) * COMMAND)?;
        Ok(self.queue_pair.receive(slot as u64, &[place])?)
    }

    fn message(&self, slot: usize) -> Result<[u8; COMMAND], Error> {
        let mut bytes = [0; COMMAND];
        match self.messages.read(slot * COMMAND, &mut bytes) {
            true => Ok(bytes),
            false => Err(format!("no slot {slot}").into()),
        }
    }

    fn poll(&mut self) -> Result<Vec<Completion>, Error> {
        let mut batch = [Completion::EMPTY; 32];
        let done = self.completions.poll(&mut batch);
        match done.iter().find(|one| !one.is_success()) {
            None => Ok(done.to_vec()),
            Some(failed) => Err(format!("request {}: {}", failed.id, failed.status()).into()),
        }
    }
}

/// The target: a pinned worker of its own owns it.
struct Target {
    end: End,
    disk: MemoryRegion,
    served: u64,
    failure: Option<String>,
}

impl Target {
    fn poll(&mut self) -> Polled {
        match self.step() {
            Ok(0) => Polled::Idle,
            Ok(_) => Polled::Worked,
            Err(error) => {
                self.failure.get_or_insert(error.to_string());
                Polled::Idle
            }
        }
    }

    fn step(&mut self) -> Result<usize, Error> {
        let done = self.end.poll()?;
        for one in &done {
            if !one.is_send() {
                self.obey(one.id as usize)?;
            } else if one.id >= DEPTH as u64 {
                // The data of a write has been fetched: only now may the host hear of it.
                self.answer((one.id - DEPTH as u64) as u32)?;
            }
        }
        Ok(done.len())
    }

    /// Starts the transfer of a command.
    fn obey(&mut self, receive: usize) -> Result<(), Error> {
        let command = Command::decode(&self.end.message(receive)?);
        self.end.post_receive(receive)?;
        let Command {
            operation,
            slot,
            first,
            blocks,
            key,
            address,
        } = command.ok_or("a command that the target does not know")?;
        let start = first as usize * BLOCK;
        let place = [self.disk.slice(start..start + blocks as usize * BLOCK)?];
        let there = RemoteAddress { address, key };
        if operation == WRITE {
            let id = u64::from(slot) + DEPTH as u64;
            self.end
                .queue_pair
                .read(id, &place, there, Flags::SIGNALLED)?;
            self.end.queue_pair.ring();
            return Ok(());
        }
        // The answer follows the data on the same connection, and arrives after it.
        self.end.queue_pair.write(0, &place, there, Flags::NONE)?;
        self.answer(slot)
    }

    fn answer(&mut self, slot: u32) -> Result<(), Error> {
        let text = slot.to_le_bytes();
        self.end
            .queue_pair
            .send_inline(0, &text, None, Flags::SIGNALLED)?;
        self.end.queue_pair.ring();
        self.served += 1;
        Ok(())
    }
}

/// The host: sends commands and compares data.
struct Host {
    end: End,
    buffers: MemoryRegion,
    /// expected contents of the disk
    copy: Vec<u8>,
    under_way: [Option<Command>; DEPTH],
    random: u64,
    compared_bytes: u64,
}

impl Host {
    /// A number below `limit`, by xorshift.
    fn draw(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    /// Sends a command on a free slot; false if there is none, or if its blocks are in use.
    fn send(&mut self) -> Result<bool, Error> {
        let Some(slot) = self.under_way.iter().position(Option::is_none) else {
            return Ok(false);
        };
        let blocks = 1 + self.draw(MAX_BLOCKS);
        let first = self.draw(BLOCKS - blocks + 1);
        let meets =
            |one: &Command| one.first < first + blocks && first < one.first + u64::from(one.blocks);
        if self.under_way.iter().flatten().any(meets) {
            return Ok(false);
        }
        let operation = if self.draw(2) == 0 { READ } else { WRITE };
        let start = slot * MAX_BLOCKS as usize * BLOCK;
        if operation == WRITE {
            let seed = self.draw(u64::MAX);
            let at = first as usize * BLOCK;
            let bytes = &mut self.copy[at..at + blocks as usize * BLOCK];
            for (index, byte) in bytes.iter_mut().enumerate() {
                *byte =
                    (seed.rotate_left(index as u32 % 64) as u8).wrapping_add((index / 64) as u8);
            }
            assert!(self.buffers.write(start, bytes), "the buffers have room");
        }
        let remote = self.buffers.remote().at(start as u64);
        let command = Command {
            operation,
            slot: slot as u32,
            first,
            blocks: blocks as u32,
            key: remote.key,
            address: remote.address,
        };
        self.end
            .queue_pair
            .send_inline(0, &command.encode(), None, Flags::SIGNALLED)?;
        self.end.queue_pair.ring();
        self.under_way[slot] = Some(command);
        Ok(true)
    }

    /// Takes answers; returns how many.
    fn take(&mut self) -> Result<u64, Error> {
        let mut answers = 0;
        for done in self.end.poll()? {
            if done.is_send() {
                continue;
            }
            let bytes = self.end.message(done.id as usize)?;
            self.end.post_receive(done.id as usize)?;
            let slot = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
            let command = self.under_way.get_mut(slot).and_then(Option::take);
            let command = command.ok_or("an answer without a command")?;
            let length = command.blocks as usize * BLOCK;
            let mut data = vec![0; length];
            assert!(
                self.buffers
                    .read(slot * MAX_BLOCKS as usize * BLOCK, &mut data)
            );
            let at = command.first as usize * BLOCK;
            if data != self.copy[at..at + length] {
                return Err(format!("block {}: other data than was written", command.first).into());
            }
            self.compared_bytes += length as u64;
            answers += 1;
        }
        Ok(answers)
    }
}

fn connect(target: &Device, host: &Device) -> Result<(Target, Host), Error> {
    let (far, near) = (target.protection_domain()?, host.protection_domain()?);
    let make = |device: &Device, domain: &ProtectionDomain| -> Result<_, Error> {
        let completions = device.completion_queue(256)?;
        let queue_pair = domain.queue_pair(QueuePairConfig::reliable(&completions))?;
        let messages = device.allocate(2 * DEPTH * COMMAND)?;
        let messages = domain.register(messages, Access::LOCAL_WRITE)?;
        Ok((completions, queue_pair, messages))
    };
    let (one, two) = (make(target, &far)?, make(host, &near)?);
    let (there, here) = (one.1.endpoint(), two.1.endpoint());
    let end = |(completions, queue_pair, messages): (_, QueuePair, _), peer| {
        let queue_pair = queue_pair.connect(peer).map_err(|error| error.error)?;
        let mut end = End {
            completions,
            queue_pair,
            messages,
        };
        for slot in 0..2 * DEPTH {
            end.post_receive(slot)?;
        }
        Ok::<_, Error>(end)
    };
    let bytes = BLOCKS as usize * BLOCK;
    let disk = far.register(target.allocate(bytes)?, Access::LOCAL_WRITE)?;
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let buffers = host.allocate(DEPTH * MAX_BLOCKS as usize * BLOCK)?;
    let target = Target {
        end: end(one, &here)?,
        disk,
        served: 0,
        failure: None,
    };
    let host = Host {
        end: end(two, &there)?,
        buffers: near.register(buffers, rights)?,
        copy: vec![0; bytes],
        under_way: [None; DEPTH],
        random: 0x9E37_79B9_7F4A_7C15,
        compared_bytes: 0,
    };
    Ok((target, host))
}

fn main() -> Result<(), Error> {
    let config = Config::default();
    let left = ringside::open("model:0", &config)?;
    let right = ringside::open("model:1", &config)?;
    let (target, mut host) = connect(&right, &left)?;
    // A core of those that this process may use: the last one, as most programs start on the first.
    let core = allowed_cores().last().copied();
    let worker = Worker::start(core, 16, move || target, Target::poll)?;
    match core {
        Some(core) => println!("the target's worker is pinned to core {core}"),
        None => {
            println!("the target's worker is not pinned: the cores of this process are not known")
        }
    }

    let began = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    while answered < COMMANDS {
        if sent < COMMANDS && host.send()? {
            sent += 1;
        }
        answered += host.take()?;
        if began.elapsed() > LIMIT {
            let target = worker.stop(LIMIT).map_err(|error| error.to_string())?;
            let cause = target.failure.unwrap_or_else(|| "no answer".into());
            return Err(format!("{answered} of {sent} commands within 30 s: {cause}").into());
        }
    }
    let target = worker.stop(LIMIT).map_err(|error| error.to_string())?;
    println!(
        "{} commands, {} MiB compared, all equal, in {:?}",
        target.served,
        host.compared_bytes >> 20,
        began.elapsed()
    );
    Ok(())
}
