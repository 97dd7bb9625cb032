//! Memory, addresses and attributes that an application brings: its own memory behind regions,
//! addresses that come and go, attributes of queue pairs, and RESET. One run in four has these
//! actions between its steps. They use a random source of their own, and the runs are drawn apart,
//! so that the seeds of recorded findings do what they did.

use super::Run;
use crate::random::Random;
use crate::rule::{Problem, Rule};
use ringside_config::LocalAddress;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, ConnectionChange, Flags, Gid, Initialised,
    MemoryRegion, QueuePair, QueuePairConfig, QueuePairReport, Status, timer_steps,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The number of runs in a thousand that have them.
const RUNS: usize = 250;

/// Draws those runs. None of the recorded seeds is one: see the tests.
const SALT: u64 = 0xAE1;

/// In those runs, the number of steps in a thousand that are followed by a connection from an
/// address that was just added.
const CONNECTIONS: usize = 60;

/// Bytes of the memory at each end of it.
const BYTES: usize = 6_000;

/// The longest wait for one of its requests, in virtual time: seven repeats of the longest timeout.
const WAIT: Duration = Duration::from_secs(30);

/// Between two looks for its completion.
const STEP: Duration = Duration::from_millis(1);

/// The state of these actions.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) wanted: bool,
    seed: u64,
    /// changes of a side's GID table that were not reported yet
    changes: [u32; 2],
    recoveries: u64,
}

impl Own {
    pub(super) fn of(seed: u64) -> Self {
        Self {
            wanted: is_wanted(seed),
            seed,
            ..Self::default()
        }
    }
}

/// True if a run of this seed has these actions.
pub(super) fn is_wanted(seed: u64) -> bool {
    Random::split(seed, SALT).chance(RUNS)
}

/// The choice of memory for the regions of a side, or for those after a recovery.
pub(super) fn of_memory(seed: u64, number: u64) -> Option<Random> {
    is_wanted(seed).then(|| Random::split(seed, 0x5_8000_0000 + number))
}

/// The drawn attributes of an end.
struct Attributes {
    timeout: u8,
    retries: u8,
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
}

impl Attributes {
    fn draw(random: &mut Random) -> Self {
        Self {
            timeout: random.within(14, 17) as u8,
            retries: random.within(5, 7) as u8,
            traffic_class: random.below(256) as u8,
            hop_limit: random.within(1, 255) as u8,
            flow_label: random.below(1 << 20) as u32,
        }
    }

    fn apply(&self, config: QueuePairConfig) -> QueuePairConfig {
        config
            .acknowledge_timeout(self.timeout)
            .retries(self.retries)
            .traffic_class(self.traffic_class)
            .hop_limit(self.hop_limit)
            .flow_label(self.flow_label)
    }

    /// True if the queue pair reports them, and the address of its GID.
    fn are_of(&self, report: &QueuePairReport, gid: &Gid) -> bool {
        report.retransmission_timeout == timer_steps(self.timeout)
            && report.retries == self.retries
            && report.traffic_class == self.traffic_class
            && report.hop_limit == self.hop_limit
            && report.flow_label == self.flow_label
            && report.local_address == gid.address.address
            && report.vlan_tag.map(|tag| tag & 0xFFF) == gid.address.vlan
    }
}

/// One end of the connection, or of one that is to be made.
struct End<S = Connected> {
    queue_pair: QueuePair<S>,
    queue: CompletionQueue,
    region: MemoryRegion,
    /// the expected bytes of the region
    picture: Vec<u8>,
    /// the region after a write whose end says not whether it came: each byte is the old or the
    /// new one
    after_unsure: Option<Vec<u8>>,
    attributes: Attributes,
    gid: Gid,
}

impl End {
    /// Looks which bytes an unsure write has brought. Nothing of it comes any more: its queue pairs
    /// were reset.
    fn settle(&mut self) -> Result<(), Problem> {
        let Some(after) = self.after_unsure.take() else {
            return Ok(());
        };
        let mut actual = vec![0; BYTES];
        let read = self.region.read(0, &mut actual);
        let possible = self.picture.iter().zip(&after);
        let mut pairs = actual.iter().zip(possible);
        if !read || !pairs.all(|(byte, (old, new))| byte == old || byte == new) {
            let text = "the application's memory is neither as before a write nor as after it";
            return Err(wrong(Rule::BytesIntact, text.to_owned()));
        }
        self.picture = actual;
        Ok(())
    }
}

impl<S> End<S> {
    /// The end with its queue pair in another state, if `change` succeeds.
    fn with<T>(
        self,
        change: impl FnOnce(QueuePair<S>) -> Result<Option<QueuePair<T>>, Problem>,
    ) -> Result<Option<End<T>>, Problem> {
        let changed = change(self.queue_pair)?;
        Ok(changed.map(|queue_pair| End {
            queue_pair,
            queue: self.queue,
            region: self.region,
            picture: self.picture,
            after_unsure: self.after_unsure,
            attributes: self.attributes,
            gid: self.gid,
        }))
    }
}

fn wrong(rule: Rule, what: String) -> Problem {
    Problem::new(rule, what)
}

impl Run<'_> {
    /// Draws the memory of a side's regions after its recovery.
    pub(super) fn own_memory_again(&mut self) -> Option<Random> {
        self.own.recoveries += 1;
        of_memory(self.own.seed, 2 + self.own.recoveries)
    }

    /// Counts the regions of a side that have the application's memory.
    pub(super) fn count_own_memory(&mut self, side: usize) {
        let arenas = self.ledger.memory.arenas.get(side).into_iter().flatten();
        self.counts.own_memory += arenas.filter(|arena| arena.is_own).count() as u64;
    }

    /// True if a change of a side's GID table is to be reported, which this event does.
    pub(super) fn expects_gid_change(&mut self, side: usize) -> bool {
        let changes = self.own.changes.get_mut(side);
        changes.is_some_and(|changes| {
            let expected = *changes > 0;
            *changes = changes.saturating_sub(1);
            expected
        })
    }

    /// Runs after each step of a run that has these actions.
    pub(super) fn bring_own(&mut self) -> Result<(), Problem> {
        let is_down = self.ledger.weather.link_down.contains(&true);
        if self.is_troubled() || is_down || !self.random.chance(CONNECTIONS) {
            return Ok(());
        }
        let Some(gids) = self.add_addresses()? else {
            return Ok(());
        };
        if let Some(ends) = self.own_ends(gids)? {
            self.use_own(ends)?;
        }
        for (side, gid) in gids.into_iter().enumerate() {
            self.remove_own(side, gid)?;
        }
        self.poll_all()?;
        if self.own.changes != [0; 2] && !self.is_troubled() {
            let text = format!(
                "changes of the GID tables without an event: {:?}",
                self.own.changes
            );
            return Err(wrong(Rule::EventRight, text));
        }
        self.own.changes = [0; 2];
        Ok(())
    }

    /// Adds an address of one network to each side.
    fn add_addresses(&mut self) -> Result<Option<[Gid; 2]>, Problem> {
        let vlan = self
            .random
            .chance(300)
            .then(|| self.random.within(1, 4094) as u16);
        let (is_v4, host) = (self.random.chance(500), self.random.within(1, 200) as u16);
        let mut made = Vec::new();
        for side in 0..2_u16 {
            let (address, prefix) = match is_v4 {
                true => (
                    IpAddr::V4(Ipv4Addr::new(10, 77, side as u8, host as u8)),
                    16,
                ),
                false => (Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, side, host).into(), 64),
            };
            let mut address = LocalAddress::new(address, prefix);
            address.vlan = vlan;
            let side = usize::from(side);
            let gid = self.must(side, "adding an address", |run| {
                run.side(side).device.add_address(address)
            })?;
            let Some(gid) = gid else {
                return Ok(None);
            };
            self.note(|| format!("side {side}: {address} has index {}", gid.index));
            if let Some(changes) = self.own.changes.get_mut(side) {
                *changes += 1;
            }
            made.push(gid);
        }
        Ok(<[Gid; 2]>::try_from(made).ok())
    }

    fn remove_own(&mut self, side: usize, gid: Gid) -> Result<(), Problem> {
        let LocalAddress { address, vlan, .. } = gid.address;
        let removed = self.must(side, "removing an address", |run| {
            run.side(side).device.remove_address(address, vlan)
        })?;
        if let (Some(_), Some(changes)) = (removed, self.own.changes.get_mut(side)) {
            *changes += 1;
        }
        let left = self.side(side).device.gids();
        if removed.is_some() && left.is_ok_and(|left| left.contains(&gid)) {
            let text = format!("side {side}: {address} was removed and is in the GID table");
            return Err(wrong(Rule::NothingLeft, text));
        }
        self.counts.addresses += u64::from(removed.is_some());
        Ok(())
    }

    /// Makes a queue pair and a region of the application's memory on each side, and connects them.
    fn own_ends(&mut self, gids: [Gid; 2]) -> Result<Option<[End; 2]>, Problem> {
        let mut ends = Vec::new();
        for (side, gid) in gids.into_iter().enumerate() {
            let attributes = Attributes::draw(&mut self.random);
            let picture = self.random.bytes(BYTES);
            let made = self.must(side, "a connection from an added address", |run| {
                let place = run.side(side);
                let text = |error: &dyn std::fmt::Display| error.to_string();
                let buffer = place.device.map_memory(picture.clone());
                let buffer = buffer.map_err(|error| text(&error))?;
                let region = place.domain.register(buffer, Access::ALL);
                let region = region.map_err(|error| text(&error))?;
                let queue = place.device.completion_queue(16);
                let queue = queue.map_err(|error| text(&error))?;
                let config = QueuePairConfig::reliable(&queue).gid_index(gid.index);
                let pair = place.domain.queue_pair(attributes.apply(config));
                Ok::<_, String>((pair.map_err(|error| text(&error))?, queue, region))
            })?;
            let Some((queue_pair, queue, region)) = made else {
                return Ok(None);
            };
            ends.push(End {
                queue_pair,
                queue,
                region,
                picture,
                after_unsure: None,
                attributes,
                gid,
            });
        }
        self.connect_own(ends)
    }

    /// Connects two ends with each other.
    fn connect_own(&mut self, ends: Vec<End<Initialised>>) -> Result<Option<[End; 2]>, Problem> {
        let peers: Vec<_> = ends
            .iter()
            .rev()
            .map(|end| end.queue_pair.endpoint())
            .collect();
        let mut connected = Vec::new();
        for (side, (end, peer)) in ends.into_iter().zip(peers).enumerate() {
            let end = end.with(|pair| self.must(side, "connecting", |_| pair.connect(&peer)))?;
            let Some(end) = end else {
                return Ok(None);
            };
            connected.push(end);
        }
        Ok(<[End; 2]>::try_from(connected).ok())
    }

    /// Uses a connection: writes, a read without its right, RESET, and a connection anew.
    fn use_own(&mut self, mut ends: [End; 2]) -> Result<(), Problem> {
        self.counts.attributes += 1;
        let usable = self.check_attributes(&ends)? && self.own_write(&mut ends)?;
        if usable && self.random.chance(500) {
            let [_, peer] = &mut ends;
            let narrow = ConnectionChange {
                remote_access: Some(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
                ..ConnectionChange::default()
            };
            if self
                .must(1, "narrowing rights", |_| peer.queue_pair.change(&narrow))?
                .is_some()
            {
                self.own_refused_read(&mut ends)?;
            }
        }
        if let Some(mut ends) = self.own_reset(ends)? {
            let _ = self.check_attributes(&ends)? && self.own_write(&mut ends)?;
            let [one, other] = ends;
            drop((one.queue_pair, other.queue_pair));
            for (side, end) in [one.region, other.region].into_iter().enumerate() {
                self.must(side, "deregistering", |_| end.deregister())?;
            }
        }
        Ok(())
    }

    fn check_attributes(&mut self, ends: &[End; 2]) -> Result<bool, Problem> {
        for (side, end) in ends.iter().enumerate() {
            let report = self.must(side, "a queue pair's state", |_| end.queue_pair.query())?;
            let Some(report) = report else {
                return Ok(false);
            };
            if !end.attributes.are_of(&report, &end.gid) {
                let text =
                    format!("a queue pair reports other attributes than it was given: {report:?}");
                return Err(wrong(Rule::CallRight, text));
            }
        }
        Ok(true)
    }

    /// Writes to the peer's memory, and compares all of it; false if the connection is lost.
    fn own_write(&mut self, ends: &mut [End; 2]) -> Result<bool, Problem> {
        for end in &mut *ends {
            end.settle()?;
        }
        let bytes = self.random.within(1, BYTES);
        let (from, to) = (
            self.random.below(BYTES - bytes + 1),
            self.random.below(BYTES - bytes + 1),
        );
        let [one, other] = ends;
        let (Ok(source), target) = (one.region.slice(from..from + bytes), other.region.remote())
        else {
            return Err(wrong(
                Rule::CallRight,
                format!("no fragment {from}..{}", from + bytes),
            ));
        };
        let id = self.take_id();
        self.must(0, "a write from an added address", |_| {
            one.queue_pair
                .write(id, &[source], target.at(to as u64), Flags::SIGNALLED)
        })?;
        one.queue_pair.ring();
        let status = self.own_status(&mut one.queue, id)?;
        let mut after = other.picture.clone();
        let (source, target) = (
            one.picture.get(from..from + bytes),
            after.get_mut(to..to + bytes),
        );
        if let (Some(source), Some(target)) = (source, target) {
            target.copy_from_slice(source);
        }
        match status {
            Some(Status::Success) => other.picture = after,
            Some(Status::RetryExceeded) if !self.quiet_wire => other.after_unsure = Some(after),
            _ => {
                let text = format!("a write from an added address ends with {status:?}");
                return Err(wrong(Rule::StatusAllowed, text));
            }
        }
        let whole = status == Some(Status::Success);
        for (end, is_target) in [(&*one, false), (&*other, true)] {
            let mut actual = vec![0; BYTES];
            let read = end.region.read(0, &mut actual);
            // After a failure the target holds the old or the new bytes.
            if (whole || !is_target) && (!read || actual != end.picture) {
                return Err(wrong(
                    Rule::BytesIntact,
                    "the application's memory differs from what was written".to_owned(),
                ));
            }
        }
        Ok(whole)
    }

    /// Reads memory that the peer's queue pair no longer lets a peer read.
    fn own_refused_read(&mut self, ends: &mut [End; 2]) -> Result<(), Problem> {
        let [one, other] = ends;
        let Ok(into) = one.region.slice(0..8) else {
            return Ok(());
        };
        let (id, from) = (self.take_id(), other.region.remote().at(0));
        self.must(0, "a read without its right", |_| {
            one.queue_pair.read(id, &[into], from, Flags::SIGNALLED)
        })?;
        one.queue_pair.ring();
        let status = self.own_status(&mut one.queue, id)?;
        let refused = matches!(
            status,
            Some(Status::RemoteAccess | Status::RemoteInvalidRequest)
        );
        if refused || (status == Some(Status::RetryExceeded) && !self.quiet_wire) {
            return Ok(());
        }
        let text = format!("a read that the peer's queue pair does not allow ends with {status:?}");
        Err(wrong(Rule::StatusAllowed, text))
    }

    /// Waits for a request's completion; `None` if there was none in time.
    fn own_status(
        &mut self,
        queue: &mut CompletionQueue,
        id: u64,
    ) -> Result<Option<Status>, Problem> {
        let end = self.clock.now().plus(WAIT);
        while self.clock.now() < end {
            self.feed_all()?;
            self.poll_all()?;
            let mut batch = [Completion::EMPTY; 4];
            let done = queue.poll(&mut batch);
            if let Some(done) = done.iter().find(|done| done.id == id) {
                return Ok(Some(done.status()));
            }
            self.clock.pause(STEP);
        }
        Ok(None)
    }

    /// Takes both ends to RESET and connects them anew.
    fn own_reset(&mut self, ends: [End; 2]) -> Result<Option<[End; 2]>, Problem> {
        let mut reset = Vec::new();
        for (side, end) in ends.into_iter().enumerate() {
            let end = end.with(|pair| self.must(side, "a reset", |_| pair.reset()))?;
            let Some(end) = end else {
                return Ok(None);
            };
            reset.push(end);
        }
        self.connect_own(reset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded seeds have no draws of this module, so they do what they did when they found
    /// something.
    #[test]
    fn recorded_seeds_bring_nothing_of_their_own() {
        let recorded = [
            183, 475, 1_511, 51_280, 56_189, 71_869, 306_341, 326_392, 331_684, 401_719, 700_386,
            5_002_795,
        ];
        assert!(!recorded.into_iter().any(is_wanted));
        let wanted = (1..2_001).filter(|seed| is_wanted(*seed)).count();
        assert!((400..600).contains(&wanted), "{wanted} of 2000");
    }
}
