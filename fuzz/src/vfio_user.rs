//! vfio-user: its messages, and a whole server that receives any data.
//!
//! Checked: an encoded value decodes to itself; a stream of any bytes gives messages, faults or its
//! end, in at most as many steps as it has bytes; a server whose client disconnected has unmapped
//! its memory, disconnected its interrupts and continues to serve.

use crate::source::Source;
use ringside_bus::Instant;
use ringside_bus::vfio_user::message::{
    DeviceInfo, DmaMap, DmaUnmap, InterruptInfo, RegionAccess, RegionInfo, SetInterrupts, Version,
};
use ringside_bus::vfio_user::{Capabilities, Header, Received, Stream};
use ringside_server::vfio_user::{Server, ServerSettings};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn payloads(bytes: &[u8]) {
    if let Ok(version) = Version::decode(bytes) {
        assert_eq!(Version::decode(&version.encode()), Ok(version.clone()));
        if let Ok(capabilities) = Capabilities::from_text(&version.text) {
            let again = Capabilities::from_text(&capabilities.to_text());
            assert_eq!(again, Ok(capabilities));
        }
    }
    if let Ok(map) = DmaMap::decode(bytes) {
        assert_eq!(DmaMap::decode(&map.encode()), Ok(map));
    }
    if let Ok(unmap) = DmaUnmap::decode(bytes) {
        assert_eq!(DmaUnmap::decode(&unmap.encode()), Ok(unmap));
    }
    if let Ok(info) = DeviceInfo::decode(bytes) {
        assert_eq!(DeviceInfo::decode(&info.encode()), Ok(info));
    }
    if let Ok(info) = InterruptInfo::decode(bytes) {
        assert_eq!(InterruptInfo::decode(&info.encode()), Ok(info));
    }
    if let Ok(set) = SetInterrupts::decode(bytes) {
        assert_eq!(SetInterrupts::decode(&set.encode()), Ok(set));
    }
    if let Ok(access) = RegionAccess::decode_with_data(bytes) {
        assert_eq!(RegionAccess::decode_with_data(&access.encode()), Ok(access));
    }
    if let Ok(info) = RegionInfo::decode(bytes) {
        let again = RegionInfo::decode(&info.encode(u32::MAX)).expect("what was encoded");
        assert_eq!(
            (again.index, again.size, &again.areas),
            (info.index, info.size, &info.areas)
        );
    }
}

fn stream(bytes: &[u8]) {
    let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut theirs = Stream::new(theirs).expect("a stream");
    // More than a socket holds would wait for a reader.
    ours.write_all(bytes.get(..65_536).unwrap_or(bytes))
        .expect("room");
    drop(ours);
    // Each message takes at least 16 bytes.
    for _ in 0..=65_536 / 16 {
        match theirs.receive() {
            Ok(Received::Message(_) | Received::Nothing) => {}
            Ok(Received::Closed) | Err(_) => return,
        }
    }
    panic!("a stream that ended goes on");
}

/// Messages of vfio-user, in both directions.
pub fn vfio_user_messages(bytes: &[u8]) {
    payloads(bytes);
    stream(bytes);
}

/// Bytes of the memory that is sent with messages.
const MEMORY_BYTES: u64 = 1 << 16;
/// The time that passes on the server's clock in each round: longer than its polling interval.
const ROUND: Duration = Duration::from_micros(20);
/// Rounds after the client disconnected. The server processes 32 messages a round, and a socket
/// holds fewer than 32 times as many.
const LAST_ROUNDS: usize = 32;

/// A server that exists as long as the fuzzer, on its own clock.
struct Service {
    server: Server,
    now: Instant,
    memory: OwnedFd,
}

impl Service {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringside-fuzz-{}-{number}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let settings = ServerSettings::new(vec![socket]);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("fuzz", flags).expect("a file in memory");
        ftruncate(&memory, MEMORY_BYTES).expect("its length");
        fcntl_add_seals(&memory, SealFlags::SHRINK).expect("a seal");
        Self {
            server: Server::bind(&settings).expect("a socket"),
            now: Instant(0),
            memory,
        }
    }

    fn round(&mut self) {
        self.now = self.now.plus(ROUND);
        self.server.round_at(self.now);
    }

    /// A client on one end of a pair of sockets.
    fn client(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        assert!(self.server.adopt(0, theirs), "the next client is served");
        ours.set_nonblocking(true).expect("a socket");
        ours
    }

    /// Disconnects the client and checks that its memory and interrupts are released.
    fn finish(&mut self) {
        let gone = (0..LAST_ROUNDS).any(|_| {
            self.round();
            !self.server.is_connected(0)
        });
        assert!(gone, "the client's end is noticed");
        let world = self.server.world();
        let space = world.space(0).expect("one function");
        assert_eq!(space.mappings().count(), 0, "memory of a client that left");
        let left = world.snapshot(0).expect("one function").vectors;
        assert!(
            left.is_empty(),
            "interrupts of a client that left: {left:?}"
        );
    }
}

thread_local! {
    static SERVICE: RefCell<Service> = RefCell::new(Service::new());
}

/// Sends one message; some carry memory.
fn send(to: &mut Stream, source: &mut Source, memory: BorrowedFd<'_>) -> bool {
    let [command, how, length] = source.array();
    let payload = source.some(usize::from(length));
    let header = Header {
        id: 7,
        command: u16::from(command % 20),
        size: 16 + payload.len() as u32,
        flags: Default::default(),
        error: 0,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.extend_from_slice(payload);
    if how & 7 == 7 {
        // a header with a wrong field
        let at = usize::from(how >> 3) % 16;
        bytes[at] ^= source.byte();
    }
    let descriptors = match how & 0x60 {
        0 => vec![memory],
        0x20 => vec![memory, memory],
        _ => Vec::new(),
    };
    to.send(bytes, &descriptors).is_ok() && to.flush().is_ok()
}

/// A server of the model, and a client that sends any data.
pub fn vfio_user_server(bytes: &[u8]) {
    SERVICE.with_borrow_mut(|service| {
        let client = service.client();
        let mut raw = client.try_clone().expect("a descriptor");
        let mut stream = Stream::new(client).expect("a stream");
        let memory = service.memory.try_clone().expect("a descriptor");
        let mut source = Source::new(bytes);
        let version = Version {
            major: 0,
            minor: 0,
            text: Capabilities::OURS.to_text(),
        };
        if source.flag() {
            let mut greeting = Vec::new();
            let payload = version.encode();
            let header = Header {
                id: 1,
                command: 1,
                size: 16 + payload.len() as u32,
                flags: Default::default(),
                error: 0,
            };
            header.encode(&mut greeting);
            greeting.extend_from_slice(&payload);
            raw.write_all(&greeting).expect("room in the socket");
        }
        let mut answers = [0; 4096];
        while !source.is_empty() {
            let sent = match source.byte() {
                0..=15 => raw.write_all(source.some(64)).is_ok(),
                _ => send(&mut stream, &mut source, memory.as_fd()),
            };
            service.round();
            while raw.read(&mut answers).is_ok_and(|count| count > 0) {}
            if !sent {
                break;
            }
        }
        drop((raw, stream));
        service.finish();
    });
}
