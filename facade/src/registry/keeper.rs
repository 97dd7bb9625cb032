//! The thread of a registry: it runs the engine, and never waits for a client, a device or a lock
//! of the program.

use super::caller::{Order, Report};
use super::cause::Cause;
use super::engine::{Action, Blocker, ClientId, DeviceId, Engine, Goal, Limits, Pair, Progress};
use super::error::RegistryError;
use super::handle::{DeviceHandle, DeviceState, News, Slot};
use super::listing::{Attached, Attachment, Listing};
use crate::device::Device;
use ringside_pmd::ShutdownReport;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// The longest shutdown of a device: it may wait for the end of a recovery.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(180);

/// The answer to a call that waits.
pub(super) type Answer = Result<ShutdownReport, RegistryError>;

/// A message: a call of the program, or a report of another thread.
pub(super) enum Message {
    Arrived {
        id: DeviceId,
        life: u32,
        slot: Arc<Slot>,
        reply: Sender<Answer>,
    },
    Register {
        id: ClientId,
        name: Arc<str>,
        calls: Sender<Order>,
        reply: Sender<Answer>,
    },
    Unregister {
        name: String,
        reply: Sender<Answer>,
    },
    Remove {
        name: String,
        reply: Sender<Answer>,
    },
    Close {
        reply: Sender<Answer>,
    },
    Attachments {
        reply: Sender<Vec<Attachment>>,
    },
    News(DeviceId, News),
    Client(ClientId, Report),
    Shut(DeviceId, ShutdownReport),
}

struct KnownClient {
    name: Arc<str>,
    /// `None` once the client gets no more calls
    calls: Option<Sender<Order>>,
}

struct Waiter {
    goal: Goal,
    since: Instant,
    /// `None`: the log gets errors
    reply: Option<Sender<Answer>>,
}

impl Waiter {
    fn answer(&self, result: Answer) {
        match (&self.reply, result) {
            (Some(reply), result) => answer(reply, result),
            (None, Err(error)) => tracing::error!(%error, "a removal does not end"),
            (None, Ok(_)) => {}
        }
    }
}

/// See the module.
pub(super) struct Keeper {
    limits: Limits,
    engine: Engine,
    slots: BTreeMap<DeviceId, Arc<Slot>>,
    clients: BTreeMap<ClientId, KnownClient>,
    waiters: Vec<Waiter>,
    is_closed: bool,
    listing: Arc<Listing>,
    /// to itself, for other threads
    sender: Sender<Message>,
}

impl Keeper {
    pub(super) fn new(limits: Limits, listing: Arc<Listing>, sender: Sender<Message>) -> Self {
        Self {
            limits,
            engine: Engine::new(limits),
            slots: BTreeMap::new(),
            clients: BTreeMap::new(),
            waiters: Vec::new(),
            is_closed: false,
            listing,
            sender,
        }
    }

    /// Runs until the registry is closed and all its devices and clients have ended.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let now = Instant::now();
            self.step(now);
            let next = self.answer_waiters(now);
            if self.is_closed && self.engine.progress(Goal::AllGone, now) == Progress::Reached {
                return;
            }
            let received = match next {
                Some(time) => messages.recv_timeout(time.saturating_duration_since(now)),
                None => messages.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                // It holds a sender itself.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Arrived {
                id,
                life,
                slot,
                reply,
            } => self.device_came(id, life, slot, reply),
            Message::Register {
                id,
                name,
                calls,
                reply,
            } => self.client_came(id, name, calls, reply),
            Message::Unregister { name, reply } => match self.client_called(&name) {
                Some(id) => {
                    self.engine.unregister(id);
                    self.wait_for(Goal::ClientGone(id), reply);
                }
                None => answer(&reply, Err(RegistryError::NoSuchClient { name })),
            },
            Message::Remove { name, reply } => match self.device_called(&name) {
                Some(id) => {
                    self.remove(id, Cause::Removed);
                    self.wait_for(Goal::DeviceGone(id), reply);
                }
                None => answer(&reply, Err(RegistryError::NoSuchDevice { name })),
            },
            Message::Close { reply } => {
                self.close();
                self.wait_for(Goal::AllGone, reply);
            }
            Message::Attachments { reply } => {
                // The caller may have stopped waiting.
                let _ = reply.send(self.attachments());
            }
            Message::News(id, news) => self.news(id, news),
            Message::Client(id, Report::Returned { refusal }) => self.engine.returned(id, refusal),
            Message::Client(id, Report::Ended) => {
                self.engine.ended(id);
                if let Some(client) = self.clients.remove(&id) {
                    self.listing.client_ended(&client.name);
                }
            }
            Message::Shut(id, report) => self.shut(id, &report),
        }
    }

    fn device_came(&mut self, id: DeviceId, life: u32, slot: Arc<Slot>, reply: Sender<Answer>) {
        self.slots.insert(id, slot);
        self.engine.device_came(id, life);
        if self.is_closed {
            self.remove(id, Cause::Closed);
            answer(&reply, Err(RegistryError::Closed));
            return;
        }
        self.wait_for(Goal::DeviceSettled(id), reply);
    }

    fn client_came(
        &mut self,
        id: ClientId,
        name: Arc<str>,
        calls: Sender<Order>,
        reply: Sender<Answer>,
    ) {
        if self.is_closed {
            // The client's thread ends without `calls`.
            answer(&reply, Err(RegistryError::Closed));
            return;
        }
        let calls = Some(calls);
        self.clients.insert(id, KnownClient { name, calls });
        self.engine.client_came(id);
        self.wait_for(Goal::ClientSettled(id), reply);
    }

    fn close(&mut self) {
        self.is_closed = true;
        let devices: Vec<_> = self.slots.keys().copied().collect();
        for id in devices {
            self.remove(id, Cause::Closed);
        }
        for &id in self.clients.keys() {
            self.engine.unregister(id);
        }
    }

    /// Begins a removal; false if one is under way.
    fn remove(&mut self, id: DeviceId, cause: Cause) -> bool {
        let leaves = self.engine.remove(id, cause);
        leaves.map(|action| self.perform(action)).is_some()
    }

    /// Begins a removal that no call waits for. A removal that hangs is logged.
    fn remove_unasked(&mut self, id: DeviceId, cause: Cause) {
        if self.remove(id, cause) {
            self.waiters.push(Waiter {
                goal: Goal::DeviceGone(id),
                since: Instant::now(),
                reply: None,
            });
        }
    }

    fn news(&mut self, id: DeviceId, news: News) {
        let Some(slot) = self.slots.get(&id) else {
            return;
        };
        let now = Instant::now();
        match news {
            News::Failed { life, cause } => {
                if self.engine.failed(id, life, cause, now) {
                    slot.note(DeviceState::Failed(cause));
                }
            }
            News::Recovered { life, cause } => {
                if self.engine.recovered(id, life, cause) {
                    slot.note(DeviceState::InService { life });
                }
            }
            News::NotRecovered { life, is_gone } => {
                self.engine.not_recovered(id, life, is_gone, now);
            }
            News::RemovalRequested => self.remove_unasked(id, Cause::Removed),
            News::ReleaseRequested => self.remove_unasked(id, Cause::ReleaseRequested),
            News::Released => self.shut_down(id),
        }
    }

    fn step(&mut self, now: Instant) {
        for id in self.engine.gone(now) {
            let slot = self.slots.get(&id);
            if !slot.is_some_and(|slot| slot.is_recovering()) {
                self.remove_unasked(id, Cause::Gone);
            }
        }
        for action in self.engine.step(now) {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Call {
                client,
                device,
                call,
            } => {
                let (Some(client), Some(slot)) =
                    (self.clients.get(&client), self.slots.get(&device))
                else {
                    return;
                };
                let handle = DeviceHandle::new(Arc::clone(slot), Arc::clone(&client.name));
                if let Some(calls) = &client.calls {
                    // The thread ends only after `calls` is dropped.
                    let _ = calls.send((handle, call));
                }
            }
            Action::Leave { device, cause } => {
                if let Some(slot) = self.slots.get(&device) {
                    tracing::info!(device = &**slot.name(), %cause, "a device leaves");
                    slot.leave(cause);
                }
            }
            Action::Close { device } => self.shut_down(device),
            Action::End { client } => {
                if let Some(client) = self.clients.get_mut(&client) {
                    client.calls = None;
                }
            }
        }
    }

    /// Shuts the device down on a thread of its own, unless it is in use.
    fn shut_down(&mut self, id: DeviceId) {
        let Some(device) = self.slots.get(&id).and_then(|slot| slot.close()) else {
            return;
        };
        self.engine.shutting(id, Instant::now());
        let ending = Ending {
            id,
            sender: self.sender.clone(),
            report: ShutdownReport::default(),
        };
        let thread = std::thread::Builder::new().name("ringside-end".to_owned());
        if let Err(error) = thread.spawn(move || ending.end(device)) {
            // The device was dropped with the closure, which shuts it down as well.
            tracing::warn!(%error, "no thread for the shutdown of a device");
        }
    }

    fn shut(&mut self, id: DeviceId, report: &ShutdownReport) {
        self.engine.shut(id);
        if let Some(slot) = self.slots.remove(&id) {
            slot.removed();
            self.listing.device_ended(slot.name());
            let (device, leaked_bytes) = (&**slot.name(), report.leaked_bytes);
            for failure in &report.failures {
                tracing::error!(device, %failure, "shutdown");
            }
            if leaked_bytes > 0 {
                tracing::warn!(device, leaked_bytes, "memory stays with the process");
            }
        }
        let (ended, others) = std::mem::take(&mut self.waiters)
            .into_iter()
            .partition(|waiter: &Waiter| waiter.goal == Goal::DeviceGone(id));
        self.waiters = others;
        for waiter in ended {
            waiter.answer(Ok(report.clone()));
        }
    }

    fn wait_for(&mut self, goal: Goal, reply: Sender<Answer>) {
        self.waiters.push(Waiter {
            goal,
            since: Instant::now(),
            reply: Some(reply),
        });
    }

    /// Answers the calls whose goal is reached or whose time is over. Returns the moment of the
    /// next work.
    fn answer_waiters(&mut self, now: Instant) -> Option<Instant> {
        let mut next = self.engine.next_time(now);
        for waiter in std::mem::take(&mut self.waiters) {
            let blocker = match self.engine.progress(waiter.goal, now) {
                Progress::Reached => {
                    waiter.answer(Ok(ShutdownReport::default()));
                    continue;
                }
                Progress::Waiting(blocker) => blocker,
            };
            if let Some(blocker) = blocker {
                let (since, limit) = match blocker {
                    Blocker::Client { since, .. } | Blocker::Users { since, .. } => {
                        (since, self.limits.call)
                    }
                    Blocker::Shutdown { since, .. } => (since, SHUTDOWN_LIMIT),
                };
                let end = since.max(waiter.since) + limit;
                if now >= end {
                    let waited = now.saturating_duration_since(since);
                    waiter.answer(Err(self.describe(blocker, waited)));
                    continue;
                }
                next = Some(next.map_or(end, |next| next.min(end)));
            }
            self.waiters.push(waiter);
        }
        next
    }

    fn describe(&self, blocker: Blocker, waited: Duration) -> RegistryError {
        let waited_ms = waited.as_millis() as u64;
        match blocker {
            Blocker::Client { client, what, .. } => RegistryError::ClientBusy {
                client: self.name_of_client(client),
                callback: what.map_or("drop", |(_, call)| call.name()),
                device: match what {
                    Some((device, _)) => self.name_of(device),
                    None => "all devices".to_owned(),
                },
                waited_ms,
            },
            Blocker::Users { device, .. } => RegistryError::InUse {
                device: self.name_of(device),
                holders: self
                    .slots
                    .get(&device)
                    .map(|slot| slot.holders())
                    .unwrap_or_default(),
                waited_ms,
            },
            Blocker::Shutdown { device, .. } => RegistryError::ShutdownSlow {
                device: self.name_of(device),
                waited_ms,
            },
        }
    }

    fn name_of(&self, id: DeviceId) -> String {
        let slot = self.slots.get(&id);
        slot.map(|slot| slot.name().to_string()).unwrap_or_default()
    }

    fn name_of_client(&self, id: ClientId) -> String {
        let client = self.clients.get(&id);
        client
            .map(|client| client.name.to_string())
            .unwrap_or_default()
    }

    fn device_called(&self, name: &str) -> Option<DeviceId> {
        let found = self.slots.iter().find(|(_, slot)| &**slot.name() == name);
        found.map(|(&id, _)| id)
    }

    fn client_called(&self, name: &str) -> Option<ClientId> {
        let found = self.clients.iter().find(|(_, known)| &*known.name == name);
        found.map(|(&id, _)| id)
    }

    fn attachments(&self) -> Vec<Attachment> {
        let now = Instant::now();
        let pairs = self
            .engine
            .pairs()
            .map(|(device, client, pair)| Attachment {
                device: self.name_of(device),
                client: self.name_of_client(client),
                state: match pair {
                    Pair::Wanted => Attached::Waiting,
                    Pair::Initialising { .. } => Attached::Initialising,
                    Pair::Present { .. } => Attached::Initialised,
                    Pair::Refused(reason) => Attached::Refused(reason.clone()),
                    Pair::Uninitialising => Attached::Uninitialising,
                    Pair::Done => Attached::Uninitialised,
                },
                is_overdue: self.engine.is_overdue_with(device, client, now),
            });
        pairs.collect()
    }
}

/// Answers a call; its caller may have stopped waiting.
fn answer(reply: &Sender<Answer>, answer: Answer) {
    let _ = reply.send(answer);
}

/// Reports the end of a device, also after a panic.
struct Ending {
    id: DeviceId,
    sender: Sender<Message>,
    report: ShutdownReport,
}

impl Ending {
    fn end(mut self, device: Device) {
        self.report = device.shutdown();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let report = std::mem::take(&mut self.report);
        let _ = self.sender.send(Message::Shut(self.id, report));
    }
}
