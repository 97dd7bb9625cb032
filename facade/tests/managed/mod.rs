//! Connections that two connection managers make.
#![allow(dead_code)] // each test file uses its part

use ringside::connect::{Connection, ConnectionManager, Listener, Settings};
use ringside::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

pub(crate) const WAIT: Duration = Duration::from_secs(20);
pub(crate) const PORT: u16 = 7471;

pub(crate) fn pair(device: &Device) -> (QueuePair, CompletionQueue) {
    let completions = device.completion_queue(16).unwrap();
    let domain = device.protection_domain().unwrap();
    let made = domain.queue_pair(QueuePairConfig::reliable(&completions));
    (made.unwrap(), completions)
}

/// One side: its device and its manager.
pub(crate) type Side<'d> = (&'d Device, &'d ConnectionManager);

/// Connects two sides, and returns both ends with their completion queues.
pub(crate) fn connect(
    near: Side<'_>,
    far: Side<'_>,
    to: IpAddr,
) -> ([Connection; 2], [CompletionQueue; 2]) {
    let listener = far.1.listen(SocketAddr::new(to, PORT), 4).unwrap();
    connect_to(near, (far.0, &listener), to, &Settings::default())
}

/// The same by a listener, with settings of the side that connects.
pub(crate) fn connect_to(
    (near, client): Side<'_>,
    (far, listener): (&Device, &Listener),
    to: IpAddr,
    settings: &Settings,
) -> ([Connection; 2], [CompletionQueue; 2]) {
    let to = SocketAddr::new(to, PORT);
    let (one, completions) = pair(near);
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let request = listener.next(WAIT).expect("a request");
            let (other, completions) = pair(far);
            let accepted = request.accept(other, &Settings::default(), WAIT);
            (accepted, completions)
        });
        let one = client.connect(one, to, settings, WAIT);
        let one = one.unwrap_or_else(|error| panic!("{to}: {error}"));
        let (other, others) = accepting.join().unwrap();
        ([one, other.unwrap()], [completions, others])
    })
}

/// A send without payload to the other end, and the status of its completion.
pub(crate) fn send([from, to]: &mut [Connection; 2], completions: &mut CompletionQueue) -> Status {
    to.queue_pair.receive(2, &[]).unwrap();
    from.queue_pair.send(1, &[], Flags::SIGNALLED).unwrap();
    from.queue_pair.ring();
    let (end, mut batch) = (Instant::now() + WAIT, [Completion::EMPTY; 4]);
    loop {
        if let Some(done) = completions.poll(&mut batch).first() {
            return done.status();
        }
        assert!(Instant::now() < end, "no completion");
    }
}
