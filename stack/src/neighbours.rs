//! The neighbour table: an engine without I/O. It takes frames and the time, and returns the frames
//! to send.

use crate::MacAddress;
use crate::wire::{How, Said};
use ringside_clock::Instant;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Neighbours that are remembered at most: a host that invents addresses does not fill the memory.
pub(crate) const ENTRIES: usize = 1024;
/// Addresses of which nothing is known yet that are queried at once, at most: packets from invented
/// sources leave room for the neighbours that are known.
pub(crate) const UNKNOWN: usize = ENTRIES / 2;

/// The timing of queries for neighbours, and the lifetime of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolveSettings {
    /// Requests before an address has no host, at least 1.
    pub probes: u8,
    /// Time between two requests.
    pub interval: Duration,
    /// The time after which a neighbour is queried again before it is used.
    pub lifetime: Duration,
}

impl Default for ResolveSettings {
    /// Three requests a second apart, as RFC 4861 has them (section 10), and an answer counts for
    /// 30 seconds.
    fn default() -> Self {
        Self {
            probes: 3,
            interval: Duration::from_secs(1),
            lifetime: Duration::from_secs(30),
        }
    }
}

/// A neighbour on a VLAN, or on frames without a tag.
pub(crate) type Key = (Option<u16>, IpAddr);

/// An entry of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its IP address.
    pub address: IpAddr,
    /// The VLAN that it is on; `None` for frames without a tag.
    pub vlan: Option<u16>,
    /// Its state.
    pub state: NeighbourState,
}

/// The state of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// It was queried and has not answered yet.
    Asked,
    /// It has this MAC address.
    Reachable(MacAddress),
    /// It had this MAC address, and is queried again before it is used.
    Stale(MacAddress),
    /// No host answered.
    Failed,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Asked {
        own: IpAddr,
        sent: u8,
        since: Instant,
        next: Instant,
        /// the MAC address that it had
        before: Option<MacAddress>,
    },
    /// It has sent something to this port, and has answered no query of the table.
    Heard { mac: MacAddress, since: Instant },
    /// It has answered a query.
    Known { mac: MacAddress, since: Instant },
    Failed {
        sent: u8,
        since: Instant,
        until: Instant,
    },
}

impl State {
    /// The state after a frame that names this MAC address. A station that was queried has
    /// answered.
    const fn heard_of(self, mac: MacAddress, now: Instant) -> Self {
        let since = now;
        match self {
            Self::Asked { .. } | Self::Known { .. } => Self::Known { mac, since },
            Self::Heard { .. } | Self::Failed { .. } => Self::Heard { mac, since },
        }
    }
}

/// The address that an entry is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newcomer {
    /// It is looked up.
    Wanted,
    /// A frame came from it.
    Stranger,
}

/// The state of an address at a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Mac(MacAddress),
    /// The answer is waited for.
    Pending,
    /// No host answered that many requests in that time.
    Failed {
        probes: u8,
        waited: Duration,
    },
    /// Too many are waited for.
    Full,
}

/// A request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) vlan: Option<u16>,
    pub(crate) own: IpAddr,
    pub(crate) target: IpAddr,
    /// the station that had the address, the only one to query
    pub(crate) to: Option<MacAddress>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Neighbours {
    settings: ResolveSettings,
    entries: BTreeMap<Key, State>,
}

impl Neighbours {
    pub(crate) const fn new(settings: ResolveSettings) -> Self {
        Self {
            settings,
            entries: BTreeMap::new(),
        }
    }

    /// The MAC address of a neighbour. If it is unknown, a query from `own` is due.
    pub(crate) fn find(&mut self, key: Key, own: IpAddr, now: Instant) -> Found {
        let before = match self.entries.get(&key).copied() {
            Some(State::Known { mac, since } | State::Heard { mac, since })
                if now.since(since) < self.settings.lifetime =>
            {
                return Found::Mac(mac);
            }
            Some(State::Known { mac, .. } | State::Heard { mac, .. }) => Some(mac),
            Some(State::Asked { .. }) => return Found::Pending,
            Some(State::Failed { sent, since, until }) if now < until => {
                let waited = until.since(since).saturating_sub(self.settings.interval);
                return Found::Failed {
                    probes: sent,
                    waited,
                };
            }
            Some(State::Failed { .. }) => None,
            None if self.asks_enough() || !self.make_room(Newcomer::Wanted) => return Found::Full,
            None => None,
        };
        let asked = State::Asked {
            own,
            sent: 0,
            since: now,
            next: now,
            before,
        };
        self.entries.insert(key, asked);
        Found::Pending
    }

    /// True while as many unknown addresses are queried as may be at once.
    fn asks_enough(&self) -> bool {
        let is_unknown = |state: &&State| matches!(state, State::Asked { before: None, .. });
        let has_few = self.entries.len() < UNKNOWN;
        !has_few && self.entries.values().filter(is_unknown).count() >= UNKNOWN
    }

    /// Makes room for one more: addresses that no host has go first, then strangers, then the
    /// neighbours that have answered, of each kind those that were heard of the longest time ago. A
    /// stranger takes the place of no neighbour that has answered: strangers may be invented. False
    /// if there is no room.
    fn make_room(&mut self, newcomer: Newcomer) -> bool {
        if self.entries.len() < ENTRIES {
            return true;
        }
        let oldest = self.entries.iter().filter_map(|(key, state)| match state {
            State::Asked { .. } => None,
            State::Failed { since, .. } => Some((0, *since, *key)),
            State::Heard { since, .. } => Some((1, *since, *key)),
            State::Known { since, .. } if newcomer == Newcomer::Wanted => Some((2, *since, *key)),
            State::Known { .. } => None,
        });
        let Some((_, _, key)) = oldest.min() else {
            return false;
        };
        self.entries.remove(&key);
        true
    }

    /// Notes that a frame on `vlan` named a neighbour; `is_ours` is true if the stack has an
    /// address.
    pub(crate) fn learn_from(
        &mut self,
        vlan: Option<u16>,
        said: &Said,
        is_ours: impl Fn(IpAddr) -> bool,
        now: Instant,
    ) {
        // A host that claims an address of ours does not become the way to ourselves.
        if is_ours(said.address) {
            return;
        }
        let key = (vlan, said.address);
        match (self.entries.get(&key).copied(), said.how) {
            // It names no MAC address: that of the entry counts.
            (
                Some(
                    former @ (State::Known { mac, .. }
                    | State::Heard { mac, .. }
                    // The question went to that station alone.
                    | State::Asked {
                        sent: 0..=1,
                        before: Some(mac),
                        ..
                    }),
                ),
                How::Confirmation,
            ) => {
                self.entries.insert(key, former.heard_of(mac, now));
            }
            (_, How::Confirmation) => {}
            (Some(State::Known { mac, .. } | State::Heard { mac, .. }), How::Hint)
                if mac != said.mac => {}
            // Only the station that had the address was queried so far.
            (
                Some(State::Asked {
                    sent: 0..=1,
                    before: Some(mac),
                    ..
                }),
                How::Hint,
            ) if mac != said.mac => {}
            (Some(former), _) => {
                self.entries.insert(key, former.heard_of(said.mac, now));
            }
            // A station that queries our address gets an answer, and probably packets soon. One
            // that answers us answers smoltcp: what that knows is known here.
            (None, How::Question { target } | How::Reply { target })
                if is_ours(target) && self.make_room(Newcomer::Stranger) =>
            {
                let (mac, since) = (said.mac, now);
                self.entries.insert(key, State::Heard { mac, since });
            }
            (None, _) => {}
        }
    }

    /// Requests that are to be sent now. Those that no host has answered fail.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Question> {
        let ResolveSettings {
            probes, interval, ..
        } = self.settings;
        let mut questions = Vec::new();
        for ((vlan, target), state) in &mut self.entries {
            let State::Asked {
                own,
                sent,
                since,
                next,
                before,
            } = state
            else {
                continue;
            };
            if now < *next {
                continue;
            }
            if *sent >= probes.max(1) {
                *state = State::Failed {
                    sent: *sent,
                    since: *since,
                    until: now.plus(interval),
                };
                continue;
            }
            // The first query goes to the station that had the address, all others to every
            // station.
            let to = before.filter(|_| *sent == 0);
            *sent += 1;
            *next = now.plus(interval);
            questions.push(Question {
                vlan: *vlan,
                own: *own,
                target: *target,
                to,
            });
        }
        questions
    }

    /// The neighbours of a VLAN whose MAC addresses are known: `most` at most, those that have
    /// answered first, and of these those that were heard of last.
    pub(crate) fn known(&self, vlan: Option<u16>, most: usize) -> Vec<(IpAddr, MacAddress)> {
        let known = |(key, state): (&Key, &State)| match state {
            State::Known { mac, since } if key.0 == vlan => Some((true, *since, key.1, *mac)),
            State::Heard { mac, since } if key.0 == vlan => Some((false, *since, key.1, *mac)),
            _ => None,
        };
        let mut all: Vec<_> = self.entries.iter().filter_map(known).collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        let latest = all.into_iter().take(most);
        latest.map(|(.., address, mac)| (address, mac)).collect()
    }

    /// True for a neighbour that has an entry, also one that has not answered.
    pub(crate) fn lists(&self, key: Key) -> bool {
        self.entries.contains_key(&key)
    }

    /// The MAC address that a neighbour had last; `None` if it is unknown.
    pub(crate) fn mac(&self, key: Key) -> Option<MacAddress> {
        match self.entries.get(&key)? {
            State::Known { mac, .. } | State::Heard { mac, .. } => Some(*mac),
            State::Asked { before, .. } => *before,
            State::Failed { .. } => None,
        }
    }

    /// The MAC address of a neighbour whose last answer still counts.
    pub(crate) fn reachable(&self, key: Key, now: Instant) -> Option<MacAddress> {
        match self.entries.get(&key)? {
            State::Known { mac, since } | State::Heard { mac, since }
                if now.since(*since) < self.settings.lifetime =>
            {
                Some(*mac)
            }
            _ => None,
        }
    }

    /// Forgets a neighbour; false if it is not known.
    pub(crate) fn forget(&mut self, key: Key) -> bool {
        self.entries.remove(&key).is_some()
    }

    /// All entries.
    pub(crate) fn list(&self, now: Instant) -> Vec<Neighbour> {
        let entry = |(key, state): (&Key, &State)| Neighbour {
            address: key.1,
            vlan: key.0,
            state: match state {
                State::Asked { .. } => NeighbourState::Asked,
                State::Known { mac, since } | State::Heard { mac, since }
                    if now.since(*since) < self.settings.lifetime =>
                {
                    NeighbourState::Reachable(*mac)
                }
                State::Known { mac, .. } | State::Heard { mac, .. } => NeighbourState::Stale(*mac),
                State::Failed { .. } => NeighbourState::Failed,
            },
        };
        self.entries.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests;
