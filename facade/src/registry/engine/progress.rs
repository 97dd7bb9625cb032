//! The progress of a goal, and the client or user that delays it.

use super::{Blocker, ClientId, DeviceId, Engine, Goal, Pair, Phase, Progress};
use std::time::Instant;

impl Engine {
    /// The state of a goal, after [`Engine::step`].
    pub(crate) fn progress(&self, goal: Goal, now: Instant) -> Progress {
        let reached = match goal {
            Goal::DeviceSettled(id) => {
                let mut pairs = self.pairs().filter(|&(device, _, _)| device == id);
                pairs.all(|at| self.is_settled(at, now))
            }
            Goal::ClientSettled(id) => {
                let mut pairs = self.pairs().filter(|&(_, client, _)| client == id);
                pairs.all(|at| self.is_settled(at, now))
            }
            Goal::DeviceGone(id) => !self.devices.contains_key(&id),
            Goal::ClientGone(id) => !self.clients.contains_key(&id),
            Goal::AllGone => self.devices.is_empty() && self.clients.is_empty(),
        };
        if reached {
            return Progress::Reached;
        }
        Progress::Waiting(match goal {
            Goal::DeviceSettled(_) | Goal::ClientSettled(_) => None,
            Goal::DeviceGone(id) => self.blocker_of_device(id),
            Goal::ClientGone(id) => self.blocker_of_client(id),
            Goal::AllGone => {
                let devices = self.devices.keys();
                let clients = self.clients.keys();
                devices
                    .rev()
                    .find_map(|&id| self.blocker_of_device(id))
                    .or_else(|| clients.rev().find_map(|&id| self.blocker_of_client(id)))
            }
        })
    }

    /// True if the state of the pair does not change within the time limit of a call.
    fn is_settled(
        &self,
        (device, client, pair): (DeviceId, ClientId, &Pair),
        now: Instant,
    ) -> bool {
        let leaves = self.clients.get(&client).is_none_or(|it| it.leaving);
        match pair {
            Pair::Wanted => {
                let device = self.devices.get(&device);
                let comes = device.is_some_and(|it| it.is_serving() && it.failure.is_none());
                !comes || leaves || self.is_overdue(client, now)
            }
            Pair::Initialising { .. } => self.is_overdue(client, now),
            _ => true,
        }
    }

    fn blocker_of_device(&self, id: DeviceId) -> Option<Blocker> {
        match self.devices.get(&id)?.phase {
            Phase::Serving => None,
            Phase::Leaving(_) => {
                let mut pairs = self.pairs().filter(|&(device, _, _)| device == id);
                let active = |&(_, _, pair): &(DeviceId, ClientId, &Pair)| pair.is_active();
                let mut last = None;
                for (_, client, _) in pairs.by_ref().filter(active) {
                    last = Some(client);
                }
                self.blocker_in_call(last?)
            }
            Phase::Closing { since } => Some(Blocker::Users { device: id, since }),
            Phase::Shutting { since } => Some(Blocker::Shutdown { device: id, since }),
        }
    }

    fn blocker_of_client(&self, id: ClientId) -> Option<Blocker> {
        if let Some(blocker) = self.blocker_in_call(id) {
            return Some(blocker);
        }
        // The client is in no call: it waits for its turn with a device.
        let mut active = self.of_client(id).filter(|(_, pair)| pair.is_active());
        active.find_map(|(device, _)| self.blocker_of_device(device))
    }

    fn blocker_in_call(&self, client: ClientId) -> Option<Blocker> {
        let running = self.clients.get(&client)?.running?;
        Some(Blocker::Client {
            client,
            what: running.what,
            since: running.since,
        })
    }
}
