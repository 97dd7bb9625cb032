//! The thread that brings answers of the connection manager to datagram sockets, and sends what has
//! waited for them.

use crate::cm::datagrams::{Answer, QuestionId};
use crate::device::lock;
use crate::threads;
use crate::wakeup::Wakeup;
use ringside_bus::PerProcess;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Mutex, Weak};
use std::time::Duration;

/// Between two looks whether what waits can be sent.
const RETRY: Duration = Duration::from_millis(1);
/// The longest sleep.
const SLEEP: Duration = Duration::from_secs(3600);

/// A socket as the worker calls it, on the worker's thread.
pub(super) trait Served: Send + Sync {
    /// The host of a peer has answered a question, or has not in a long time.
    fn answered(&self, asked: (SocketAddr, QuestionId), answer: Answer);

    /// Sends what has waited. True if some of it could not be sent yet.
    fn send_waiting(&self) -> bool;
}

struct Job {
    socket: Weak<dyn Served>,
    /// the peer that was asked for and the question, and the answer; `None`: waiting datagrams may
    /// be sent
    answer: Option<((SocketAddr, QuestionId), Answer)>,
}

#[derive(Default)]
struct Worker {
    jobs: Mutex<Vec<Job>>,
    wake: Wakeup,
}

static WORKER: PerProcess<Worker> = PerProcess::new();

fn worker() -> &'static Worker {
    WORKER.get_or_init(Worker::default)
}

/// Starts the thread, once. Errors: `EAGAIN`.
pub(super) fn start() -> Result<(), c_int> {
    static STARTED: PerProcess<bool> = PerProcess::new();
    let is_started = STARTED.get_or_init(|| threads::start("ringside-dgram", run).is_ok());
    if *is_started {
        Ok(())
    } else {
        Err(libc::EAGAIN)
    }
}

fn add(job: Job) {
    lock(&worker().jobs).push(job);
    worker().wake.set();
}

/// Brings an answer to a socket.
pub(super) fn bring(socket: Weak<dyn Served>, asked: (SocketAddr, QuestionId), answer: Answer) {
    let answer = Some((asked, answer));
    add(Job { socket, answer });
}

/// Sends what waits in a socket as soon as that is possible.
pub(super) fn send_waiting(socket: Weak<dyn Served>) {
    add(Job {
        socket,
        answer: None,
    });
}

fn run() {
    let mut unfinished: Vec<Weak<dyn Served>> = Vec::new();
    loop {
        let sleep = if unfinished.is_empty() { SLEEP } else { RETRY };
        worker().wake.wait(sleep);
        let jobs = std::mem::take(&mut *lock(&worker().jobs));
        let mut sockets = std::mem::take(&mut unfinished);
        for Job { socket, answer } in jobs {
            if let (Some(found), Some((asked, answer))) = (socket.upgrade(), answer) {
                found.answered(asked, answer);
            }
            if !sockets.iter().any(|known| known.ptr_eq(&socket)) {
                sockets.push(socket);
            }
        }
        let is_left = |socket: &Weak<dyn Served>| {
            let found = socket.upgrade();
            found.is_some_and(|socket| socket.send_waiting())
        };
        unfinished = sockets.into_iter().filter(is_left).collect();
    }
}
