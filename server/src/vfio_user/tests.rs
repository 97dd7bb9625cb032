//! A server and clients: one that follows the protocol, and one that sends arbitrary data.

mod bad_input;
mod idle;
mod late;
mod refused;
mod service;

use super::*;
use ringside_bus::vfio_user::message::{HEADER_BYTES, Version};
use ringside_bus::vfio_user::{
    Capabilities, ClientLimits, Command, Header, Message, Received, Stream, VfioUserFunction,
};
use ringside_bus::{FunctionError, TscClock};
use ringside_model::world::World;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// The end of a wait that failed.
const LIMIT: Duration = Duration::from_secs(60);

type Look = Box<dyn FnOnce(&mut World) + Send>;

/// A server on a thread of its own, with its sockets in a directory of its own.
struct Rig {
    _directory: tempfile::TempDir,
    settings: ServerSettings,
    stop: Arc<AtomicBool>,
    looks: mpsc::Sender<Look>,
    thread: Option<JoinHandle<()>>,
}

impl Rig {
    fn start(functions: usize, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sockets = (0..functions).map(|index| directory.path().join(format!("{index}.sock")));
        let mut settings = ServerSettings::new(sockets.collect());
        change(&mut settings);
        let mut server = Server::bind(&settings).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (looks, asked) = mpsc::channel::<Look>();
        let inside = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !inside.load(Ordering::Relaxed) {
                if !server.round() {
                    let now = server.clock.now();
                    server.rest(now);
                }
                while let Ok(look) = asked.try_recv() {
                    look(server.world());
                }
            }
        });
        Self {
            _directory: directory,
            settings,
            stop,
            looks,
            thread: Some(thread),
        }
    }

    fn path(&self, index: usize) -> &Path {
        &self.settings.sockets[index]
    }

    fn client(&self, index: usize) -> Result<Arc<VfioUserFunction>, FunctionError> {
        let clock = Arc::new(TscClock::new());
        let limits = ClientLimits::default();
        VfioUserFunction::connect(self.path(index), clock, limits).map(Arc::new)
    }

    fn raw(&self, index: usize) -> Raw {
        let socket = UnixStream::connect(self.path(index)).unwrap();
        Raw(Stream::new(socket).unwrap())
    }

    /// A raw client that has negotiated.
    fn negotiated(&self, index: usize) -> Raw {
        let mut raw = self.raw(index);
        let reply = raw
            .ask(Command::Version as u16, &Raw::version(), &[])
            .unwrap();
        let version = Version::decode(&reply.body).unwrap();
        // The client speaks no later one.
        assert_eq!((version.major, version.minor), (0, 0));
        raw
    }

    fn with<T: Send + 'static>(&self, look: impl FnOnce(&mut World) -> T + Send + 'static) -> T {
        let (sender, receiver) = mpsc::channel();
        let look: Look = Box::new(move |world| sender.send(look(world)).unwrap());
        self.looks.send(look).unwrap();
        receiver.recv_timeout(LIMIT).unwrap()
    }

    /// Has the server do nothing until the result is sent something or dropped.
    fn hold(&self) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel();
        let (holds, held) = mpsc::channel();
        let look: Look = Box::new(move |_| {
            holds.send(()).unwrap();
            let _ = released.recv_timeout(Duration::from_secs(60));
        });
        self.looks.send(look).unwrap();
        held.recv_timeout(LIMIT).unwrap();
        release
    }

    /// Waits until `holds` is true of the world.
    fn until(&self, what: &str, holds: impl Fn(&mut World) -> bool + Clone + Send + 'static) {
        let end = std::time::Instant::now() + LIMIT;
        while std::time::Instant::now() < end {
            if self.with(holds.clone()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("not within {LIMIT:?}: {what}");
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server panicked");
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// A client that sends given bytes.
struct Raw(Stream);

impl Raw {
    fn version() -> Vec<u8> {
        let version = Version {
            major: 0,
            minor: 0,
            text: Capabilities::OURS.to_text(),
        };
        version.encode()
    }

    /// Sends a command; the errno is the error.
    fn ask(
        &mut self,
        command: u16,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Message, u32> {
        let header = Header {
            id: 77,
            command,
            size: (HEADER_BYTES + payload.len()) as u32,
            flags: Default::default(),
            error: 0,
        };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        bytes.extend_from_slice(payload);
        self.send(bytes, descriptors);
        let reply = self.reply();
        assert_eq!((reply.header.id, reply.header.command), (77, command));
        if reply.header.flags.error() {
            assert_ne!(reply.header.error, 0, "a refusal says why");
            return Err(reply.header.error);
        }
        Ok(reply)
    }

    fn send(&mut self, bytes: Vec<u8>, descriptors: &[BorrowedFd<'_>]) {
        self.0.send(bytes, descriptors).unwrap();
        while !self.0.flush().unwrap() {
            self.0.wait(true, Duration::from_millis(10)).unwrap();
        }
    }

    fn reply(&mut self) -> Message {
        for _ in 0..500 {
            match self.0.receive().unwrap() {
                Received::Message(message) => return message,
                Received::Nothing => self.0.wait(false, Duration::from_millis(10)).unwrap(),
                Received::Closed => panic!("the server closed the connection"),
            }
        }
        panic!("no reply within 5 seconds");
    }

    fn is_closed(&mut self) -> bool {
        for _ in 0..500 {
            match self.0.receive() {
                Ok(Received::Closed) | Err(_) => return true,
                Ok(_) => self.0.wait(false, Duration::from_millis(10)).unwrap(),
            }
        }
        false
    }
}
