//! The rules of the registry: the next client to call and its device. The engine has no thread and
//! no clock.
//!
//! Each client gets one call at a time. For a device, `initialise` goes in order of registration
//! and `uninitialise` in reverse order; a call waits for the clients before it. A client that is in
//! a call for longer than [`Limits::call`] no longer delays the `initialise` of others; an
//! `uninitialise` waits without limit.

use super::cause::Cause;
use ringside_pmd::recovery::FailureCause;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A device in a registry. Devices that were opened later have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeviceId(pub(super) u64);

/// A client in a registry. Clients that were registered later have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientId(pub(super) u64);

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Initialise,
    Failed(FailureCause),
    Recovered { life: u32 },
    Uninitialise(Cause),
}

impl Call {
    /// The name of the method.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Initialise => "initialise",
            Self::Failed(_) => "failed",
            Self::Recovered { .. } => "recovered",
            Self::Uninitialise(_) => "uninitialise",
        }
    }
}

/// Times after which the engine goes on without a client or a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The time after which a call is overdue.
    pub(super) call: Duration,
    /// The time that a device may be absent from the bus before it is removed.
    pub(super) gone: Duration,
}

/// Something for the caller to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Call the client; [`Engine::returned`] follows.
    Call {
        client: ClientId,
        device: DeviceId,
        call: Call,
    },
    /// The device is being removed: clients get no calls for it other than `uninitialise`.
    Leave { device: DeviceId, cause: Cause },
    /// All clients are done with the device: shut it down once its last user drops it;
    /// [`Engine::shutting`] and [`Engine::shut`] follow.
    Close { device: DeviceId },
    /// The client gets no more calls: drop it; [`Engine::ended`] follows.
    End { client: ClientId },
}

/// A client and a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    /// To be initialised.
    Wanted,
    /// In `initialise`, called in this life of the device.
    Initialising {
        life: u32,
    },
    /// Initialised. The fields are the last state that the client was notified of.
    Present {
        life: u32,
        failed: bool,
    },
    /// `initialise` returned this error.
    Refused(String),
    Uninitialising,
    /// Uninitialised, or never to be initialised.
    Done,
}

impl Pair {
    /// True if the client may work with the device.
    const fn is_active(&self) -> bool {
        matches!(
            self,
            Self::Initialising { .. } | Self::Present { .. } | Self::Uninitialising
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    Leaving(Cause),
    /// Users may still hold it.
    Closing {
        since: Instant,
    },
    Shutting {
        since: Instant,
    },
}

#[derive(Clone, Debug)]
struct Device {
    phase: Phase,
    life: u32,
    failure: Option<FailureCause>,
    /// the cause of the last failure from which the device was recovered
    recovered_from: FailureCause,
    gone_since: Option<Instant>,
}

impl Device {
    fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
    }
}

#[derive(Clone, Copy, Debug)]
struct Running {
    /// `None`: the client is dropped
    what: Option<(DeviceId, Call)>,
    since: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    leaving: bool,
    running: Option<Running>,
}

/// The state that a caller of the registry waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Every client has initialised the device, refused it, or is overdue.
    DeviceSettled(DeviceId),
    /// The client has initialised every device, refused it, or is overdue.
    ClientSettled(ClientId),
    DeviceGone(DeviceId),
    ClientGone(ClientId),
    /// No device and no client is left.
    AllGone,
}

/// The present obstacle of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocker {
    /// A client is in a call, or in its destructor.
    Client {
        client: ClientId,
        what: Option<(DeviceId, Call)>,
        since: Instant,
    },
    /// Users still hold the device.
    Users { device: DeviceId, since: Instant },
    /// The shutdown of the device is under way.
    Shutdown { device: DeviceId, since: Instant },
}

/// The state of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Reached,
    Waiting(Option<Blocker>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Engine {
    limits: Limits,
    devices: BTreeMap<DeviceId, Device>,
    clients: BTreeMap<ClientId, Client>,
    pairs: BTreeMap<(DeviceId, ClientId), Pair>,
}

impl Engine {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            devices: BTreeMap::new(),
            clients: BTreeMap::new(),
            pairs: BTreeMap::new(),
        }
    }

    /// A device was opened; `life` is the number of its bring-ups.
    pub(super) fn device_came(&mut self, id: DeviceId, life: u32) {
        let device = Device {
            phase: Phase::Serving,
            life,
            failure: None,
            recovered_from: FailureCause::Requested,
            gone_since: None,
        };
        self.devices.insert(id, device);
        for &client in self.clients.keys() {
            self.pairs.insert((id, client), Pair::Wanted);
        }
    }

    /// A client was registered.
    pub(super) fn client_came(&mut self, id: ClientId) {
        self.clients.insert(id, Client::default());
        for (&device, known) in &self.devices {
            let pair = match known.is_serving() {
                true => Pair::Wanted,
                false => Pair::Done,
            };
            self.pairs.insert((device, id), pair);
        }
    }

    /// The device failed in this life. Returns false for a report that changes nothing: a late one
    /// of an earlier life, or a second one.
    ///
    /// The threads that recover the device and that see it fail again report independently. A
    /// failure in a later life shows that the device was recovered, so it counts as both.
    pub(super) fn failed(
        &mut self,
        id: DeviceId,
        life: u32,
        cause: FailureCause,
        now: Instant,
    ) -> bool {
        let former = self.devices.get(&id).and_then(|device| device.failure);
        self.recovered(id, life, former.unwrap_or(FailureCause::Requested));
        let Some(device) = self.devices.get_mut(&id) else {
            return false;
        };
        if life != device.life || device.failure.is_some() {
            return false;
        }
        device.failure = Some(cause);
        if cause == FailureCause::Gone {
            device.gone_since = Some(now);
        }
        true
    }

    /// A recovery failed. `is_gone`: the device did not respond on the bus.
    pub(super) fn not_recovered(&mut self, id: DeviceId, life: u32, is_gone: bool, now: Instant) {
        if let Some(device) = self.devices.get_mut(&id)
            && device.life == life
        {
            device.gone_since = is_gone.then(|| device.gone_since.unwrap_or(now));
        }
    }

    /// The device is in service again, after a failure with this cause. Returns false for a report
    /// that changes nothing, because this life or a later one is known.
    pub(super) fn recovered(&mut self, id: DeviceId, life: u32, cause: FailureCause) -> bool {
        let Some(device) = self.devices.get_mut(&id) else {
            return false;
        };
        if life <= device.life {
            return false;
        }
        device.life = life;
        device.failure = None;
        device.recovered_from = cause;
        device.gone_since = None;
        true
    }

    /// Begins the removal of the device. Only the first call counts.
    pub(super) fn remove(&mut self, id: DeviceId, cause: Cause) -> Option<Action> {
        let device = self.devices.get_mut(&id)?;
        if !device.is_serving() {
            return None;
        }
        device.phase = Phase::Leaving(cause);
        Some(Action::Leave { device: id, cause })
    }

    /// Begins the unregistration of the client.
    pub(super) fn unregister(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.leaving = true;
        }
    }

    /// The client returned from its call. `refusal`: the text of the error of `initialise`.
    pub(super) fn returned(&mut self, id: ClientId, refusal: Option<String>) {
        let Some((device, call)) = self
            .clients
            .get_mut(&id)
            .and_then(|client| client.running.take())
            .and_then(|running| running.what)
        else {
            return;
        };
        let Some(pair) = self.pairs.get_mut(&(device, id)) else {
            return;
        };
        match call {
            Call::Initialise => {
                let Pair::Initialising { life: begun } = *pair else {
                    return;
                };
                // If the device failed meanwhile, the refusal may come from that: `initialise` is
                // called again.
                let changed = self.devices.get(&device).is_some_and(|device| {
                    device.is_serving() && (device.failure.is_some() || device.life != begun)
                });
                *pair = match refusal {
                    None => Pair::Present {
                        life: begun,
                        failed: false,
                    },
                    Some(_) if changed => Pair::Wanted,
                    Some(reason) => Pair::Refused(reason),
                };
            }
            Call::Uninitialise(_) => *pair = Pair::Done,
            Call::Failed(_) | Call::Recovered { .. } => {}
        }
    }

    /// The device's last user dropped it; its shutdown begins.
    pub(super) fn shutting(&mut self, id: DeviceId, now: Instant) {
        if let Some(device) = self.devices.get_mut(&id) {
            device.phase = Phase::Shutting { since: now };
        }
    }

    /// The device was shut down.
    pub(super) fn shut(&mut self, id: DeviceId) {
        self.devices.remove(&id);
        self.pairs.retain(|&(device, _), _| device != id);
    }

    /// The client was dropped.
    pub(super) fn ended(&mut self, id: ClientId) {
        self.clients.remove(&id);
        self.pairs.retain(|&(_, client), _| client != id);
    }

    /// Returns all actions that are due. The engine counts them as begun.
    pub(super) fn step(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        let clients: Vec<_> = self.clients.keys().copied().collect();
        for &client in &clients {
            if let Some((device, call)) = self.next_call(client, now) {
                self.begin(client, device, call, now);
                actions.push(Action::Call {
                    client,
                    device,
                    call,
                });
            }
        }
        for (&id, device) in &mut self.devices {
            let mut pairs = self
                .pairs
                .range((id, ClientId(0))..=(id, ClientId(u64::MAX)));
            if matches!(device.phase, Phase::Leaving(_)) && !pairs.any(|(_, pair)| pair.is_active())
            {
                device.phase = Phase::Closing { since: now };
                actions.push(Action::Close { device: id });
            }
        }
        for id in clients {
            let is_at_work = self.of_client(id).any(|(_, pair)| pair.is_active());
            if let Some(client) = self.clients.get_mut(&id)
                && client.leaving
                && client.running.is_none()
                && !is_at_work
            {
                client.running = Some(Running {
                    what: None,
                    since: now,
                });
                actions.push(Action::End { client: id });
            }
        }
        actions
    }

    /// The devices that have been absent from the bus for too long. The caller removes them, unless
    /// a recovery is under way, whose result is known soon.
    pub(super) fn gone(&self, now: Instant) -> Vec<DeviceId> {
        let limit = self.limits.gone;
        let over = |device: &Device| {
            device.is_serving() && device.gone_since.is_some_and(|since| now >= since + limit)
        };
        let gone = self.devices.iter().filter(|(_, device)| over(device));
        gone.map(|(&id, _)| id).collect()
    }

    fn begin(&mut self, client: ClientId, device: DeviceId, call: Call, now: Instant) {
        let Some(pair) = self.pairs.get_mut(&(device, client)) else {
            return;
        };
        match (call, &mut *pair) {
            (Call::Initialise, _) => {
                let life = self.devices.get(&device).map_or(0, |device| device.life);
                *pair = Pair::Initialising { life };
            }
            (Call::Uninitialise(_), _) => *pair = Pair::Uninitialising,
            (Call::Failed(_), Pair::Present { failed, .. }) => *failed = true,
            (Call::Recovered { life: to }, Pair::Present { life, failed }) => {
                (*life, *failed) = (to, false);
            }
            (Call::Failed(_) | Call::Recovered { .. }, _) => {}
        }
        if let Some(client) = self.clients.get_mut(&client) {
            client.running = Some(Running {
                what: Some((device, call)),
                since: now,
            });
        }
    }

    /// The next call of a client: first `uninitialise`, of later devices before earlier ones; then
    /// failures and recoveries; then `initialise`.
    fn next_call(&self, id: ClientId, now: Instant) -> Option<(DeviceId, Call)> {
        let client = self.clients.get(&id)?;
        if client.running.is_some() {
            return None;
        }
        let news = || self.of_client(id).find_map(|at| self.news(at));
        let end = || {
            self.of_client(id)
                .rev()
                .find_map(|at| self.end(id, client, at))
        };
        let begin = || {
            self.of_client(id)
                .find_map(|at| self.beginning(id, client, at, now))
        };
        end().or_else(news).or_else(begin)
    }

    fn end(
        &self,
        id: ClientId,
        client: &Client,
        at: (DeviceId, &Pair),
    ) -> Option<(DeviceId, Call)> {
        let (device_id, Pair::Present { .. }) = at else {
            return None;
        };
        let device = self.devices.get(&device_id)?;
        if let Phase::Leaving(cause) = device.phase {
            let owes_news = cause == Cause::Gone && self.news(at).is_some();
            return (!owes_news && !self.later_is_active(device_id, id))
                .then_some((device_id, Call::Uninitialise(cause)));
        }
        client
            .leaving
            .then_some((device_id, Call::Uninitialise(Cause::Unregistered)))
    }

    /// The next report of a failure or a recovery. For a device that is being removed, only its
    /// absence from the bus is reported.
    fn news(&self, (id, pair): (DeviceId, &Pair)) -> Option<(DeviceId, Call)> {
        let Pair::Present { life, failed } = *pair else {
            return None;
        };
        let device = self.devices.get(&id)?;
        if !device.is_serving() {
            let cause = device.failure.filter(|_| !failed)?;
            return (device.phase == Phase::Leaving(Cause::Gone))
                .then_some((id, Call::Failed(cause)));
        }
        let call = match (life < device.life, failed) {
            (true, false) => Call::Failed(device.recovered_from),
            (true, true) => Call::Recovered { life: device.life },
            (false, false) => Call::Failed(device.failure?),
            (false, true) => return None,
        };
        Some((id, call))
    }

    fn beginning(
        &self,
        id: ClientId,
        client: &Client,
        (device_id, pair): (DeviceId, &Pair),
        now: Instant,
    ) -> Option<(DeviceId, Call)> {
        let device = self.devices.get(&device_id)?;
        let may = *pair == Pair::Wanted
            && !client.leaving
            && device.is_serving()
            && device.failure.is_none()
            && !self.earlier_is_awaited(device_id, id, now);
        may.then_some((device_id, Call::Initialise))
    }

    /// True if a client that was registered later may work with the device.
    fn later_is_active(&self, device: DeviceId, client: ClientId) -> bool {
        let later = (device, ClientId(client.0 + 1))..=(device, ClientId(u64::MAX));
        self.pairs.range(later).any(|(_, pair)| pair.is_active())
    }

    /// True if a client that was registered earlier has yet to initialise the device, and is not
    /// overdue.
    fn earlier_is_awaited(&self, device: DeviceId, client: ClientId, now: Instant) -> bool {
        let earlier = (device, ClientId(0))..(device, client);
        self.pairs.range(earlier).any(|(&(_, earlier), pair)| {
            let comes = match pair {
                Pair::Wanted => self.clients.get(&earlier).is_some_and(|it| !it.leaving),
                pair => matches!(pair, Pair::Initialising { .. }),
            };
            comes && !self.is_overdue(earlier, now)
        })
    }

    /// True if the client has been in a call for longer than [`Limits::call`].
    pub(super) fn is_overdue(&self, client: ClientId, now: Instant) -> bool {
        let running = self.clients.get(&client).and_then(|client| client.running);
        running.is_some_and(|running| now >= running.since + self.limits.call)
    }

    /// True if the client is overdue in a call for this device.
    pub(super) fn is_overdue_with(&self, device: DeviceId, client: ClientId, now: Instant) -> bool {
        let running = self.clients.get(&client).and_then(|client| client.running);
        let with = running.and_then(|running| running.what);
        with.is_some_and(|(at, _)| at == device) && self.is_overdue(client, now)
    }

    fn of_client(&self, id: ClientId) -> impl DoubleEndedIterator<Item = (DeviceId, &Pair)> {
        let of_it = self
            .pairs
            .iter()
            .filter(move |((_, client), _)| *client == id);
        of_it.map(|(&(device, _), pair)| (device, pair))
    }

    /// Every client and device, for inspection.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (DeviceId, ClientId, &Pair)> {
        let pairs = self.pairs.iter();
        pairs.map(|(&(device, client), pair)| (device, client, pair))
    }

    /// The next moment at which [`Engine::step`] or [`Engine::gone`] returns something without a
    /// further report.
    pub(super) fn next_time(&self, now: Instant) -> Option<Instant> {
        let running = self.clients.values().filter_map(|client| client.running);
        let overdue = running.map(|running| running.since + self.limits.call);
        let serving = self.devices.values().filter(|device| device.is_serving());
        let gone = serving.filter_map(|device| Some(device.gone_since? + self.limits.gone));
        overdue.chain(gone).filter(|&time| time > now).min()
    }
}

mod progress;

#[cfg(test)]
mod tests;
