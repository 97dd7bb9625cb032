//! Devices of several models, each behind sockets of its own; a model that ends is a card that is
//! pulled out.

use crate::recorder::{Log, Recorder, config, registry, wait_until};
use ringside::driver::lan::{OpenPort, PortSettings};
use ringside::registry::{Cause, DeviceState};
use ringside_server::vfio_user::{Server, ServerSettings};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A model of one function behind a socket, on a thread.
struct Model {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Model {
    fn start(socket: &Path) -> Self {
        let settings = ServerSettings::new(vec![socket.to_owned()]);
        let mut server = Server::bind(&settings).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                server.run_for(Duration::from_millis(2));
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
    }
}

#[test]
fn a_model_that_ends_is_removed_and_one_at_its_socket_gets_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
    let (first, _second) = (Model::start(&one), Model::start(&other));
    let (registry, log) = (registry(), Log::default());
    registry.register("a", Recorder::new("a", &log)).unwrap();
    let address = |path: &Path| format!("vfio-user:{}", path.display());
    let gone = registry.open_as("s1", &address(&one), &config()).unwrap();
    let stays = registry.open_as("s2", &address(&other), &config()).unwrap();
    log.take();

    drop(first);
    assert_eq!(log.wait(2), ["a ! s1 gone", "a - s1 Gone"]);
    wait_until("the shutdown", || {
        gone.state() == DeviceState::Removed(Cause::Gone)
    });
    assert_eq!(stays.state(), DeviceState::InService { life: 1 });
    assert!(stays.device().unwrap().protection_domain().is_ok());

    let _again = Model::start(&one);
    // Another spelling of the same path.
    let spelling = directory.path().join(".").join("one");
    let back = registry.open(&address(&spelling), &config()).unwrap();
    assert_eq!((back.name(), back.index()), ("s1", gone.index()));
    assert_eq!(log.take(), ["a + s1"]);
    registry.close().unwrap();
    assert_eq!(log.take(), ["a - s1 Closed", "a - s2 Closed"]);
}

#[test]
fn a_packet_that_is_dropped_last_gives_its_device_back() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let _model = Model::start(&socket);
    let address = format!("vfio-user:{}", socket.display());
    let device = ringside::open(&address, &config()).unwrap();
    let OpenPort { port, pool, .. } = device.driver().open_port(&PortSettings::default()).unwrap();
    let packet = pool.packet().unwrap();
    drop((port, pool));
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{report:?}");

    let refused = ringside::open(&address, &config()).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("a function has one owner at a time: shut the device down here"),
        "{text}"
    );
    drop(packet);
    let again = ringside::open(&address, &config());
    assert!(again.is_ok(), "{again:?}");
}
