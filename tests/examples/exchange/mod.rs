//! Memory of the program itself as source and target of the tests of `docs/exchange.md`: what the
//! examples `memory` and `facade` have in common.
//!
//! The other side is the scene `exchange` of `tests/guest/verbs_peer`, which listens.

use ringside_bus::memory::Memory;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Fragment, MemoryRegion, QueuePair,
    RemoteRegion, SendFlags,
};
use ringside_rendezvous::{Session, Step};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The longest wait for a completion, or for the other side.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const PAGE: usize = 4096;
pub(crate) const HUGE: usize = 2 << 20;
const GIGANTIC: usize = 1 << 30;
const GIGANTIC_PAGE: &str = "a page of 1 GiB";
/// Bytes of a message: no multiple of anything, across pages of 4 KiB.
const SIZE: usize = 70_001;
/// The distance between the first byte of the memory, which sends, and of its part that receives.
const TARGET: usize = SIZE + 12;
const BYTES: usize = TARGET + SIZE;
const ROUNDS: u32 = 3;
/// An address that is added while the device is in service.
pub(crate) const ADDED: &str = "10.77.0.9/8";

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Task {
    Write = 1,
    Read = 2,
    Send = 3,
}

/// The exceptional part of a test.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Turn {
    Plain,
    Forks,
    AddedAddress,
}

/// Memory that the process mapped itself, `skip` bytes behind the start of the mapping.
fn mapped(length: usize, flags: MapFlags, skip: usize) -> rustix::io::Result<Memory> {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses; it is never unmapped.
    let first = unsafe {
        let first = rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, rights, flags)?;
        NonNull::new_unchecked(first.cast::<u8>().add(skip))
    };
    // SAFETY: `skip + BYTES` bytes are mapped until the process ends, and only regions access them.
    Ok(unsafe { Memory::from_raw(first, BYTES) })
}

/// A file of the current folder, mapped and shared.
fn of_a_file() -> Result<Memory> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::open("memory-of-the-program", flags, Mode::RUSR | Mode::WUSR)?;
    let length = BYTES + 2 * PAGE;
    rustix::fs::ftruncate(&file, length as u64)?;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping of a file that keeps its length; it is never unmapped.
    let first = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            length,
            rights,
            MapFlags::SHARED,
            &file,
            0,
        )?
    };
    let first = NonNull::new(first.cast::<u8>()).ok_or("no mapping")?;
    // SAFETY: as many bytes are mapped behind the first page, and only regions access them.
    Ok(unsafe { Memory::from_raw(first.add(PAGE - 100), BYTES) })
}

fn of_a_descriptor() -> Result<Memory> {
    let file = rustix::fs::memfd_create("memory", MemfdFlags::CLOEXEC)?;
    let length = BYTES.next_multiple_of(PAGE);
    rustix::fs::ftruncate(&file, length as u64)?;
    Ok(Memory::from_descriptor(file, length)?)
}

/// Memory of every kind that this machine has, by name.
fn kinds() -> Result<Vec<(&'static str, Memory)>> {
    let private = MapFlags::PRIVATE;
    let mut kinds = vec![
        ("a vector", Memory::from(vec![0_u8; BYTES])),
        (
            "unaligned bytes",
            mapped(BYTES + PAGE, private, PAGE - 1237)?,
        ),
        ("a mapped file", of_a_file()?),
        ("a memfd", of_a_descriptor()?),
    ];
    let huge = private | MapFlags::HUGETLB;
    match mapped(2 * HUGE, huge, HUGE - SIZE / 3) {
        Ok(memory) => kinds.push(("two huge pages", memory)),
        Err(error) => println!("no pages of 2 MiB: {error}"),
    }
    let gigantic = private | MapFlags::HUGETLB | MapFlags::HUGE_1GB;
    match mapped(GIGANTIC, gigantic, GIGANTIC / 2 - 77) {
        Ok(memory) => kinds.push((GIGANTIC_PAGE, memory)),
        Err(error) => println!("no page of 1 GiB: {error}"),
    }
    Ok(kinds)
}

/// The pattern of a side (`docs/exchange.md`).
fn pattern(round: u32, side: u64) -> Vec<u8> {
    let seed = (SIZE as u64) << 40 | u64::from(round) << 32 | side << 31;
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(SIZE + 8);
    while bytes.len() < SIZE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend((state | 0x0101_0101_0101_0101).to_le_bytes());
    }
    bytes.truncate(SIZE);
    bytes
}

/// Asks the other side for a test of one queue pair, verified only; `None` ends the session.
pub(crate) fn ask(session: &mut Session, task: Option<Task>) -> Result<()> {
    let mut message = b"ringtest\x00\x01".to_vec();
    if let Some(task) = task {
        message.extend([task as u8, 0]);
        message.extend(1024_u32.to_be_bytes());
        message.extend((SIZE as u64).to_be_bytes());
        message.extend([0; 16]);
        message.extend(1_u16.to_be_bytes());
        message.extend((ROUNDS as u16).to_be_bytes());
        message.extend(1_u32.to_be_bytes());
        message.extend(1_u32.to_be_bytes());
    }
    message.resize(64, 0);
    session.send(&message, LIMIT)?;
    let mut answer = [0; 16];
    session.receive(&mut answer, LIMIT)?;
    match answer.starts_with(b"ringback\x00\x01\x00\x00") {
        true => Ok(()),
        false => Err(format!("the other side answers {answer:x?}").into()),
    }
}

/// A child, which writes to the memory of the test and stays for a while.
struct Child(libc::pid_t);

impl Child {
    fn start(region: &MemoryRegion) -> Result<Self> {
        // SAFETY: the child stores to its own copy of memory, sleeps and ends.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let wrote = region.write(0, &[0xEE; PAGE]) && region.write(TARGET, &[0xEE; PAGE]);
            std::thread::sleep(Duration::from_millis(300));
            // SAFETY: ends the child without anything else.
            unsafe { libc::_exit(i32::from(!wrote)) }
        }
        match process > 0 {
            true => Ok(Self(process)),
            false => Err(format!("fork: {}", std::io::Error::last_os_error()).into()),
        }
    }

    fn ended(self) -> Result<()> {
        let mut status = 0;
        // SAFETY: waits for a child of this process.
        let found = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        match found == self.0 && status == 0 {
            true => Ok(()),
            false => Err(format!("the child ended with {status}").into()),
        }
    }
}

/// One test under way.
pub(crate) struct End {
    pub(crate) session: Session,
    pub(crate) task: Task,
    pub(crate) turn: Turn,
    pub(crate) region: MemoryRegion,
    pub(crate) completions: CompletionQueue,
    pub(crate) queue_pair: QueuePair<Connected>,
    pub(crate) target: RemoteRegion,
}

impl End {
    fn place(&self, at: usize) -> Result<Fragment> {
        Ok(self.region.slice(at..at + SIZE)?)
    }

    fn prepare(&mut self, round: u32) -> Result<()> {
        let (filled, cleared) = match self.task {
            Task::Read => (TARGET, 0),
            Task::Write | Task::Send => (0, TARGET),
        };
        let fits =
            self.region.write(filled, &pattern(round, 0)) && self.region.write(cleared, &[0; SIZE]);
        if self.task == Task::Send {
            let place = self.place(TARGET)?;
            self.queue_pair.receive(2, &[place])?;
        }
        fits.then_some(())
            .ok_or_else(|| "the region is too small".into())
    }

    fn transfer(&mut self) -> Result<()> {
        let pieces = [self.place(0)?];
        let flags = SendFlags::SIGNALLED;
        match self.task {
            Task::Write => self
                .queue_pair
                .write(1, &pieces, self.target.at(0), flags)?,
            Task::Read => self.queue_pair.read(1, &pieces, self.target.at(0), flags)?,
            Task::Send => self.queue_pair.send(1, &pieces, flags)?,
        }
        self.queue_pair.ring();
        let mut left = 1 + usize::from(self.task == Task::Send);
        let end = Instant::now() + LIMIT;
        let mut batch = [Completion::EMPTY; 2];
        while left > 0 {
            for done in self.completions.poll(&mut batch) {
                if !done.is_success() {
                    return Err(format!("request {}: {}", done.id, done.status()).into());
                }
                left -= 1;
            }
            if Instant::now() > end {
                return Err("requests do not complete".into());
            }
        }
        Ok(())
    }

    fn compare(&self, round: u32) -> Result<()> {
        let at = if self.task == Task::Read { 0 } else { TARGET };
        let (mut found, wanted) = (vec![0; SIZE], pattern(round, 1));
        if !self.region.read(at, &mut found) {
            return Err("the region is too small".into());
        }
        match found
            .iter()
            .zip(&wanted)
            .position(|(one, other)| one != other)
        {
            None => Ok(()),
            Some(byte) => Err(format!("round {round}: byte {byte} is {:#x}", found[byte]).into()),
        }
    }

    fn rounds(&mut self) -> Result<()> {
        for round in 0..ROUNDS {
            // Each child begins with the pages of its parent: the first one of both to write gets
            // others.
            let first = self.fork()?;
            self.prepare(round)?;
            self.session.synchronise(Step::Prepared, LIMIT)?;
            let second = self.fork()?;
            self.transfer()?;
            self.session.synchronise(Step::Transferred, LIMIT)?;
            self.compare(round)?;
            for child in [first, second].into_iter().flatten() {
                child.ended()?;
            }
        }
        self.session.synchronise(Step::Done, LIMIT)?;
        Ok(())
    }

    /// All rounds; returns the session for the next test.
    pub(crate) fn run(mut self) -> Result<Session> {
        match self.rounds() {
            Ok(()) => Ok(self.session),
            Err(error) => {
                self.session.fail(&error.to_string());
                Err(error)
            }
        }
    }

    fn fork(&self) -> Result<Option<Child>> {
        let forks = self.turn == Turn::Forks;
        forks.then(|| Child::start(&self.region)).transpose()
    }
}

pub(crate) fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

/// The target, as the other side may use it: from its first byte on.
pub(crate) fn offered(region: &MemoryRegion) -> RemoteRegion {
    let whole = region.remote();
    RemoteRegion {
        address: whole.address + TARGET as u64,
        length_bytes: SIZE as u64,
        ..whole
    }
}

/// Every task on each kind of memory, in each turn that makes sense; `one` makes the objects of a
/// test and returns the session for the next one. Returns the number of tests.
pub(crate) fn all(
    mut session: Session,
    mut one: impl FnMut(Session, &Memory, Task, Turn) -> Result<Session>,
) -> Result<(usize, Session)> {
    let mut count = 0;
    for (name, memory) in kinds()? {
        for task in [Task::Write, Task::Read, Task::Send] {
            for turn in [Turn::Plain, Turn::Forks, Turn::AddedAddress] {
                // A child that writes to shared memory writes to its parent's. A fork copies a
                // whole page of 1 GiB, which takes an emulated processor 10 s.
                let shares = name.starts_with("a mapped") || name.starts_with("a memfd");
                if turn == Turn::Forks && (shares || name == GIGANTIC_PAGE) {
                    continue;
                }
                session = one(session, &memory, task, turn)
                    .map_err(|error| format!("{name}: {error}"))?;
                count += 1;
            }
        }
        println!("verified: {name}");
    }
    ask(&mut session, None)?;
    Ok((count, session))
}
