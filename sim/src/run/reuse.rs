//! Memory that the driver returns while its device is in trouble is used again at once: no peer may
//! reach it by a key that was valid before.

use super::Run;
use super::transfers::{Place, Plan};
use crate::rig::Handle;
use crate::rule::{Problem, Rule};
use ringside_bus::DmaBuffer;
use ringside_model::Fault;
use ringside_pmd::rdma::{Access, Flags, MemoryRegion, Operation, RemoteAddress, Status};

/// Bytes of such a region.
const BYTES: usize = 4096;

/// Bytes that a peer tries to write: few enough to be inline on every connection.
const TRIED_BYTES: usize = 8;

/// The number of steps in a thousand, while in trouble, after which the memory is requested back.
const ASKED_BACK: usize = 500;

/// The required status of these writes.
const REFUSED: &[Status] = &[Status::RemoteAccess];

/// Regions that wait for a device in trouble, and memory that was returned then.
#[derive(Debug, Default)]
pub(super) struct Reuse {
    /// True if a fault of the run affects commands.
    pub(super) wanted: bool,
    lent: [Option<MemoryRegion>; 2],
    owned: Vec<Owned>,
}

/// Memory that was returned, with the bytes that its new owner wrote.
#[derive(Debug)]
struct Owned {
    side: usize,
    buffer: DmaBuffer,
    picture: Vec<u8>,
    /// Keys of its earlier regions that no peer has tried since.
    untried: Vec<RemoteAddress>,
}

/// True if the device may fail to confirm the end of a region.
pub(super) fn is_of_commands(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::ControlCommandFails { .. }
            | Fault::ControlCommandSilent { .. }
            | Fault::ControlCommandGarbled { .. }
    )
}

impl Run<'_> {
    /// Runs after each step of a run that has faults of commands.
    pub(super) fn reuse_memory(&mut self) -> Result<(), Problem> {
        for side in 0..2 {
            let lent = self.reuse.lent.get_mut(side).and_then(Option::take);
            let kept = match lent {
                None if !self.is_troubled() => self.lend(side)?,
                Some(region) if self.is_troubled_at(side) && self.random.chance(ASKED_BACK) => {
                    self.take_back(side, region)?;
                    None
                }
                other => other,
            };
            if let Some(place) = self.reuse.lent.get_mut(side) {
                *place = kept;
            }
        }
        self.try_old_keys()?;
        self.check_reused()
    }

    fn lend(&mut self, side: usize) -> Result<Option<MemoryRegion>, Problem> {
        let domain = self.side(side).domain.clone();
        self.must(side, "a region", |run| {
            let buffer = run.side(side).device.allocate(BYTES);
            let buffer = buffer.map_err(|error| error.to_string())?;
            let made = domain.register(buffer, Access::ALL);
            made.map_err(|error| error.to_string())
        })
    }

    /// Reregisters a region and takes its memory back. Memory that the driver returns is free of
    /// access: the device has confirmed it.
    fn take_back(&mut self, side: usize, region: MemoryRegion) -> Result<(), Problem> {
        let mut untried = vec![region.remote().at(0)];
        let domain = self.side(side).domain.clone();
        let again = self.call("reregistering a region", |_| {
            region.reregister(&domain, Access::ALL)
        })?;
        let region = match again {
            Ok(region) => region,
            Err(error) => match error.region {
                Some(region) => *region,
                // The driver keeps the memory.
                None => return Ok(()),
            },
        };
        untried.push(region.remote().at(0));
        let returned = self.call("deregistering", |_| region.deregister())?;
        let buffers = match returned {
            Ok(buffers) => buffers,
            Err(error) => {
                self.note(|| format!("side {side}: {error}"));
                return Ok(());
            }
        };
        for buffer in buffers {
            let picture = self.random.bytes(buffer.length());
            let _ = buffer.write(0, &picture);
            self.note(|| format!("side {side}: memory at {} has a new owner", buffer.iova()));
            self.counts.reused += 1;
            self.interference.reused(side, buffer.iova(), &self.world);
            self.reuse.owned.push(Owned {
                side,
                buffer,
                picture,
                untried: untried.clone(),
            });
        }
        Ok(())
    }

    /// A peer writes by a key that was valid before.
    fn try_old_keys(&mut self) -> Result<(), Problem> {
        let wanted = |owned: &Owned| !owned.untried.is_empty();
        let Some(place) = self.reuse.owned.iter().position(wanted) else {
            return Ok(());
        };
        let Some(side) = self.reuse.owned.get(place).map(|owned| owned.side) else {
            return Ok(());
        };
        let Some(peer) = self.whole_end(1 - side) else {
            return Ok(());
        };
        let owned = self.reuse.owned.get_mut(place);
        let Some(remote) = owned.and_then(|owned| owned.untried.pop()) else {
            return Ok(());
        };
        let data = self.random.bytes(TRIED_BYTES);
        let mut plan = Plan::new(Operation::Write, Vec::new());
        (plan.wrong, plan.flags) = (REFUSED, Flags::SIGNALLED);
        self.post(peer, plan, |queue_pair, id, flags| {
            queue_pair.write_inline(id, &data, remote, None, flags)
        })?;
        if let Some(queue_pair) = self.queue_pair(peer) {
            queue_pair.ring();
        }
        for _ in 0..4 {
            self.pass()?;
        }
        Ok(())
    }

    /// Picks an end of this side whose connection is known to be intact.
    fn whole_end(&self, side: usize) -> Option<Place> {
        let mut links = self.held.iter().filter(|(number, ends)| {
            let ready = ends
                .get(side)
                .is_some_and(|held| matches!(held.handle, Handle::Ready(_)));
            let link = self.ledger.links.get(number);
            let whole =
                link.is_some_and(|link| !link.is_wrong() && link.ends.iter().all(|end| !end.torn));
            ready && whole
        });
        links.next().map(|(number, _)| (*number, side))
    }

    /// Checks that memory with a new owner is as that owner left it.
    pub(super) fn check_reused(&self) -> Result<(), Problem> {
        for owned in &self.reuse.owned {
            let mut bytes = vec![0; owned.picture.len()];
            if !owned.buffer.read(0, &mut bytes) || bytes != owned.picture {
                let text = format!(
                    "memory at {} of side {} was given back and has changed under its new owner",
                    owned.buffer.iova(),
                    owned.side
                );
                return Err(Problem::new(Rule::OutsideUntouched, text));
            }
        }
        Ok(())
    }

    /// A device was recovered: its keys may be allocated again.
    pub(super) fn forget_old_keys(&mut self, side: usize) {
        for owned in self.reuse.owned.iter_mut().filter(|one| one.side == side) {
            owned.untried.clear();
        }
        if let Some(lent) = self.reuse.lent.get_mut(side) {
            *lent = None;
        }
    }

    /// Ends the reuse of memory.
    pub(super) fn end_reuse(&mut self) -> Result<(), Problem> {
        self.check_reused()?;
        self.reuse = Reuse::default();
        Ok(())
    }
}
