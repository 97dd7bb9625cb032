//! vfio-user: the driver on a model behind sockets, and another implementation in both roles.

mod driver;
mod other_client;
mod other_server;
mod stopped;
mod user_memory;

use ringside_bus::TscClock;
use ringside_bus::vfio_user::{ClientLimits, VfioUserFunction};
use ringside_model::World;
use ringside_server::vfio_user::{Server, ServerSettings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

type Look = Box<dyn FnOnce(&mut World) + Send>;

/// A directory that is removed with its sockets.
struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A server of two functions on its own thread.
struct Served {
    sockets: Vec<PathBuf>,
    stop: Arc<AtomicBool>,
    looks: mpsc::Sender<Look>,
    thread: Option<JoinHandle<()>>,
    _directory: Directory,
}

impl Served {
    fn start(doorbell_page: bool) -> Self {
        let directory = Directory::new();
        let sockets = vec![directory.socket("0.sock"), directory.socket("1.sock")];
        let mut settings = ServerSettings::new(sockets.clone());
        settings.doorbell_page = doorbell_page;
        let mut server = Server::bind(&settings).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (looks, asked) = mpsc::channel::<Look>();
        let inside = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !inside.load(Ordering::Relaxed) {
                server.run_for(Duration::from_millis(2));
                while let Ok(look) = asked.try_recv() {
                    look(server.world());
                }
            }
        });
        Self {
            sockets,
            stop,
            looks,
            thread: Some(thread),
            _directory: directory,
        }
    }

    fn client(&self, index: usize) -> Arc<VfioUserFunction> {
        connect(&self.sockets[index])
    }

    fn with<T: Send + 'static>(&self, look: impl FnOnce(&mut World) -> T + Send + 'static) -> T {
        let (sender, receiver) = mpsc::channel();
        let look: Look = Box::new(move |world| sender.send(look(world)).unwrap());
        self.looks.send(look).unwrap();
        receiver.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// Has the server do nothing until the result is dropped.
    fn hold(&self) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel::<()>();
        let (holds, held) = mpsc::channel();
        let look: Look = Box::new(move |_| {
            holds.send(()).unwrap();
            let _ = released.recv_timeout(Duration::from_secs(60));
        });
        self.looks.send(look).unwrap();
        held.recv_timeout(Duration::from_secs(10)).unwrap();
        release
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !std::thread::panicking() {
                outcome.expect("the server panicked");
            }
        }
    }
}

fn connect(path: &Path) -> Arc<VfioUserFunction> {
    let clock = Arc::new(TscClock::new());
    let function = VfioUserFunction::connect(path, clock, ClientLimits::default());
    Arc::new(function.unwrap_or_else(|error| panic!("{error}")))
}
